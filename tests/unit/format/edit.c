/* SPDX-License-Identifier: MIT */
/*
 * Random changes of bitmaps, extent nodes, attributes, ACLs and orphan blocks, each beside a plain
 * model, in buffers of the exact size. After every step the structure passes its validator, has a
 * good checksum and says the same as the model. UEXT4_TEST_SEED repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/bitmap.h"
#include "format/extent.h"
#include "format/inode.h"
#include "format/orphan.h"
#include "format/xattr.h"
#include "random.h"

#define BITMAP_BITS  4096
#define BITMAP_STEPS 6000
#define EXTENT_RUNS  300
#define EXTENT_STEPS 400
#define XATTR_RUNS   300
#define XATTR_STEPS  300
#define XATTR_NAMES  40
#define FILE_BLOCKS  100000

/* ---- Bitmaps -------------------------------------------------------------------------------- */

struct bits {
    bool bit[BITMAP_BITS];
};

static uint32_t model_find(const struct bits *model, uint32_t from, uint32_t to, bool value)
{
    while (from < to && model->bit[from] != value)
        from++;
    return from > to ? to : from;
}

static void compare_bitmap(const uint8_t *bitmap, const struct bits *model, uint32_t from,
                           uint32_t to)
{
    uint32_t count = 0, last = from, longest = 0;
    struct bitmap_run run, first_fit = {0};
    uint32_t wanted = 1 + draw(64);

    for (uint32_t i = from; i < to; i++) {
        assert_int_equal(bitmap_test(bitmap, i), model->bit[i]);
        count += model->bit[i];
        if (model->bit[i])
            last = i + 1;
    }
    assert_int_equal(bitmap_count_set(bitmap, from, to), count);
    assert_int_equal(bitmap_find_last_set(bitmap, from, to), last);
    assert_int_equal(bitmap_find_zero(bitmap, from, to), model_find(model, from, to, false));
    assert_int_equal(bitmap_find_set(bitmap, from, to), model_find(model, from, to, true));
    assert_int_equal(bitmap_is_all_zero(bitmap, from, to), count == 0);
    assert_int_equal(bitmap_is_all_set(bitmap, from, to), count == to - from);

    uint32_t at = from;
    while (bitmap_next_zero_run(bitmap, at, to, &run)) {
        assert_int_equal(run.from, model_find(model, at, to, false));
        assert_int_equal(run.to, model_find(model, run.from, to, true));
        if (first_fit.to == 0 && run.to - run.from >= wanted)
            first_fit = run;
        longest = MAX(longest, run.to - run.from);
        at = run.to;
    }
    assert_int_equal(model_find(model, at, to, false), to);
    assert_int_equal(bitmap_find_zero_run(bitmap, from, to, wanted, &run), longest > 0);
    if (first_fit.to != 0) {
        assert_int_equal(run.from, first_fit.from);
        assert_int_equal(run.to, first_fit.to);
    } else {
        assert_int_equal(run.to - run.from, longest);
    }
}

static void bitmaps_are_like_arrays_of_bools(void **state)
{
    uint8_t *bitmap = calloc(1, BITMAP_BITS / 8);
    struct bits *model = calloc(1, sizeof(*model));
    (void)state;
    for (unsigned int step = 0; step < BITMAP_STEPS; step++) {
        uint32_t from = draw(BITMAP_BITS + 1);
        uint32_t longest = draw(4) ? 100 : BITMAP_BITS;
        uint32_t to = from + draw(MIN(BITMAP_BITS - from, longest) + 1);
        bool value = draw(2);
        if (value)
            bitmap_set(bitmap, from, to);
        else
            bitmap_clear(bitmap, from, to);
        for (uint32_t i = from; i < to; i++)
            model->bit[i] = value;
        from = draw(4) ? draw(BITMAP_BITS + 1) : 0;
        to = draw(4) ? from + draw(BITMAP_BITS - from + 1) : BITMAP_BITS;
        compare_bitmap(bitmap, model, from, to);
    }
    free(model);
    free(bitmap);
}

static void bitmap_checksums_match(void **state)
{
    (void)state;
    for (unsigned int i = 0; i < 200; i++) {
        struct superblock sb = draw_superblock();
        struct group_descriptor group = {.block_bitmap_checksum = 5, .inode_bitmap_checksum = 6};
        uint8_t *bitmap = malloc(sb.block_bytes);
        sb.has_metadata_csum = true;
        sb.descriptor_bytes = draw(2) ? 32 : 64;
        draw_bytes(bitmap, sb.block_bytes);
        bitmap_block_set_checksum(&sb, &group, bitmap);
        bitmap_inode_set_checksum(&sb, &group, bitmap);
        assert_true(bitmap_block_checksum_matches(&sb, &group, bitmap));
        assert_true(bitmap_inode_checksum_matches(&sb, &group, bitmap));
        bitmap[3] ^= 1;
        assert_false(bitmap_block_checksum_matches(&sb, &group, bitmap));
        assert_false(bitmap_inode_checksum_matches(&sb, &group, bitmap));
        free(bitmap);
    }
}

static void groups_that_were_never_written(void **state)
{
    struct superblock sb = draw_superblock();
    struct group_descriptor group = {0};
    (void)state;
    sb.block_bytes = 1024;
    sb.block_bits = 10;
    sb.first_data_block = 1;
    sb.block_count = 1 + 8192 * 12 + 100; /* the last group has 100 blocks */
    sb.descriptor_block_count = 1;
    sb.reserved_descriptor_blocks = 4;
    sb.inode_table_blocks = 20;
    sb.ro_compat |= FEATURE_RO_COMPAT_SPARSE_SUPER;
    uint8_t *bitmap = malloc(sb.block_bytes);

    /* All of its metadata inside; group 3 has copies: 1 + 1 + 4 blocks. */
    uint64_t first = group_first_block(&sb, 3);
    group.block_bitmap = first + 10;
    group.inode_bitmap = first + 12;
    group.inode_table = first + 100;
    group_init_block_bitmap(&sb, 3, &group, bitmap);
    assert_int_equal(bitmap_count_set(bitmap, 0, 8192), 6 + 2 + 20);
    assert_true(bitmap_is_all_set(bitmap, 0, 6) && bitmap_is_all_set(bitmap, 100, 120));
    assert_true(bitmap_test(bitmap, 10) && bitmap_test(bitmap, 12));
    assert_true(group_owns_metadata(&sb, 3, &group, first + 119, 1));
    assert_false(group_owns_metadata(&sb, 3, &group, first + 120, 100));
    assert_true(group_owns_metadata(&sb, 3, &group, first + 5, 1));
    assert_false(group_owns_metadata(&sb, 3, &group, first + 6, 4));

    /* Its metadata elsewhere, no copies; the tail is in use. */
    group_init_block_bitmap(&sb, 12, &group, bitmap);
    assert_true(bitmap_is_all_zero(bitmap, 0, 100) && bitmap_is_all_set(bitmap, 100, 8192));
    assert_int_equal(group_cluster_count(&sb, 12), 100);
    group_init_inode_bitmap(&sb, bitmap);
    assert_true(bitmap_is_all_zero(bitmap, 0, 256) && bitmap_is_all_set(bitmap, 256, 8192));

    /* Clusters of 16 blocks: what touches one takes all of it. */
    sb.cluster_blocks = 16;
    sb.clusters_per_group = 512;
    group_init_block_bitmap(&sb, 3, &group, bitmap);
    assert_true(bitmap_is_all_set(bitmap, 0, 1) && bitmap_is_all_set(bitmap, 6, 8));
    assert_int_equal(bitmap_count_set(bitmap, 0, 512), 3);
    assert_true(bitmap_is_all_set(bitmap, 512, 8192));
    free(bitmap);
}

/* ---- Extents -------------------------------------------------------------------------------- */

/* What each file block maps to; 0 is a hole. */
struct extent_model {
    struct extent entries[6000];
    unsigned int count;
};

static void compare_extents(const struct superblock *sb, uint8_t *node, size_t size,
                            unsigned int depth, const struct extent_model *model)
{
    const char *problem = extent_node_check(sb, node, size, (int)depth);
    if (problem != NULL)
        fail_msg("%s", problem);
    if (size == sb->block_bytes) {
        extent_node_set_checksum(sb, 77, node);
        assert_true(extent_node_checksum_matches(sb, 77, node));
        assert_true(!sb->has_metadata_csum || !extent_node_checksum_matches(sb, 78, node));
    }
    assert_int_equal(extent_node_header(node).entry_count, model->count);
    for (unsigned int i = 0; i < model->count; i++) {
        if (depth > 0) {
            struct extent_index index = extent_index_at(node, i);
            assert_int_equal(index.file_block, model->entries[i].file_block);
            assert_true(index.disk_block == model->entries[i].disk_block);
            continue;
        }
        struct extent extent = extent_at(node, i);
        assert_int_equal(extent.file_block, model->entries[i].file_block);
        assert_int_equal(extent.length_blocks, model->entries[i].length_blocks);
        assert_true(extent.disk_block == model->entries[i].disk_block);
        assert_int_equal(extent.is_unwritten, model->entries[i].is_unwritten);
    }
}

static struct extent draw_extent(uint32_t file_block, uint32_t longest)
{
    bool is_unwritten = draw(2);
    uint32_t most = MIN(longest,
                        (uint32_t)(is_unwritten ? EXTENT_MAX_UNWRITTEN : EXTENT_MAX_WRITTEN));
    return (struct extent){.file_block = file_block,
                           .length_blocks = draw(3) == 0 ? most : 1 + draw(most),
                           .disk_block = 2 + (draw64() & 0xfffffff000),
                           .is_unwritten = is_unwritten};
}

/* The gap of file blocks in front of an entry of the model. */
static uint32_t gap_before(const struct extent_model *model, unsigned int position, uint32_t *start)
{
    *start = 0;
    if (position > 0)
        *start = model->entries[position - 1].file_block +
                 model->entries[position - 1].length_blocks;
    uint32_t end = position < model->count ? model->entries[position].file_block : UINT32_MAX;
    return end - *start;
}

static void change_extents(uint8_t *node, unsigned int depth, struct extent_model *model)
{
    unsigned int max = extent_node_header(node).entry_max, position = draw(model->count + 1);
    uint32_t start, gap = gap_before(model, position, &start);
    struct extent extent;

    if (draw(3) > 0 && model->count < max && gap > 0) {
        uint32_t skipped = draw(MIN(gap, FILE_BLOCKS));
        extent = draw_extent(start + skipped, MIN(gap - skipped, 40000));
        if (depth > 0) {
            extent.length_blocks = 1;
            extent_index_insert(node, position,
                                &(struct extent_index){extent.file_block, extent.disk_block});
        } else {
            extent_insert(node, position, &extent);
        }
        memmove(&model->entries[position + 1], &model->entries[position],
                (model->count - position) * sizeof(extent));
        model->entries[position] = extent;
        model->count++;
    } else if (position < model->count && draw(2)) {
        extent = model->entries[position];
        extent.disk_block = 5 + draw(1000);
        extent.is_unwritten = extent.length_blocks <= EXTENT_MAX_UNWRITTEN && draw(2);
        if (depth > 0)
            extent_index_set(node, position,
                             &(struct extent_index){extent.file_block, extent.disk_block});
        else
            extent_set(node, position, &extent);
        model->entries[position] = extent;
    } else if (position < model->count) {
        unsigned int count = draw(MIN(model->count - position, 5) + 1);
        if (depth > 0 && count == model->count)
            count--;
        extent_remove(node, position, count);
        memmove(&model->entries[position], &model->entries[position + count],
                (model->count - position - count) * sizeof(extent));
        model->count -= count;
    }
}

static void extent_nodes_are_like_arrays(void **state)
{
    static struct extent_model model;
    (void)state;
    for (unsigned int run = 0; run < EXTENT_RUNS; run++) {
        struct superblock sb = draw_superblock();
        bool is_root = draw(2);
        size_t size = is_root ? INODE_BLOCK_BYTES : sb.block_bytes;
        unsigned int depth = draw(3);
        uint8_t *node = malloc(size);
        draw_bytes(node, size);
        extent_node_init(node, is_root ? EXTENT_ROOT_CAPACITY : extent_block_capacity(&sb), depth);
        model.count = 0;
        if (depth > 0) {
            model.entries[model.count++] = (struct extent){.length_blocks = 1, .disk_block = 9};
            extent_index_insert(node, 0, &(struct extent_index){0, 9});
        }
        for (unsigned int step = 0; step < EXTENT_STEPS; step++) {
            change_extents(node, depth, &model);
            if (sb.block_bytes <= 4096 || step % 16 == 0)
                compare_extents(&sb, node, size, depth, &model);
        }
        free(node);
    }
}

/* Fills a leaf with `count` extents from a file block on. */
static void fill_leaf(const struct superblock *sb, uint8_t *node, size_t size, unsigned int count,
                      uint32_t file_block, struct extent_model *model)
{
    extent_node_init(
        node, size == INODE_BLOCK_BYTES ? EXTENT_ROOT_CAPACITY : extent_block_capacity(sb), 0);
    model->count = 0;
    for (unsigned int i = 0; i < count; i++) {
        struct extent extent = draw_extent(file_block, 10);
        extent_insert(node, i, &extent);
        model->entries[model->count++] = extent;
        file_block += 10;
    }
}

static void entries_move_between_nodes(void **state)
{
    static struct extent_model first, second;
    (void)state;
    for (unsigned int run = 0; run < 500; run++) {
        struct superblock sb = draw_superblock();
        unsigned int max = extent_block_capacity(&sb), count = 2 + draw(max - 1);
        uint8_t *low = malloc(sb.block_bytes), *high = malloc(sb.block_bytes);
        uint8_t root[INODE_BLOCK_BYTES];
        unsigned int cut = draw(count + 1);

        /* Split, then take some back. */
        fill_leaf(&sb, low, sb.block_bytes, count, 100, &first);
        extent_node_init(high, max, 0);
        extent_move_last(low, cut, high);
        second.count = count - cut;
        memcpy(second.entries, first.entries + cut, second.count * sizeof(struct extent));
        first.count = cut;
        compare_extents(&sb, low, sb.block_bytes, 0, &first);
        compare_extents(&sb, high, sb.block_bytes, 0, &second);
        unsigned int back = draw(second.count + 1);
        extent_move_first(high, back, low);
        memcpy(first.entries + first.count, second.entries, back * sizeof(struct extent));
        first.count += back;
        memmove(second.entries, second.entries + back,
                (second.count - back) * sizeof(struct extent));
        second.count -= back;
        compare_extents(&sb, low, sb.block_bytes, 0, &first);
        compare_extents(&sb, high, sb.block_bytes, 0, &second);

        /* And some of the end to the front of the other again. */
        unsigned int moved = draw(first.count + 1);
        extent_move_last(low, first.count - moved, high);
        memmove(second.entries + moved, second.entries, second.count * sizeof(struct extent));
        first.count -= moved;
        memcpy(second.entries, first.entries + first.count, moved * sizeof(struct extent));
        second.count += moved;
        compare_extents(&sb, low, sb.block_bytes, 0, &first);
        compare_extents(&sb, high, sb.block_bytes, 0, &second);

        /* A level more, a level less. */
        fill_leaf(&sb, root, sizeof(root), 1 + draw(4), 7, &first);
        extent_root_push_down(&sb, root, high, 4711);
        compare_extents(&sb, high, sb.block_bytes, 0, &first);
        second.count = 1;
        second.entries[0] = (struct extent){.file_block = 7, .disk_block = 4711};
        compare_extents(&sb, root, sizeof(root), 1, &second);
        assert_true(extent_root_pull_up(root, high));
        compare_extents(&sb, root, sizeof(root), 0, &first);
        extent_root_push_down(&sb, root, low, 4711);
        fill_leaf(&sb, low, sb.block_bytes, 5, 7, &first);
        assert_false(extent_root_pull_up(root, low));
        compare_extents(&sb, root, sizeof(root), 1, &second);
        free(low);
        free(high);
    }
}

static void extents_merge_only_where_they_may(void **state)
{
    struct extent a = {.file_block = 10, .length_blocks = 5, .disk_block = 100};
    struct extent b = {.file_block = 15, .length_blocks = 7, .disk_block = 105};
    (void)state;
    assert_true(extent_can_merge(&a, &b));
    assert_false(extent_can_merge(&b, &a));
    b.disk_block++;
    assert_false(extent_can_merge(&a, &b));
    b.disk_block--;
    b.is_unwritten = true;
    assert_false(extent_can_merge(&a, &b));
    a.is_unwritten = true;
    assert_true(extent_can_merge(&a, &b));
    b.length_blocks = EXTENT_MAX_UNWRITTEN - 5;
    assert_true(extent_can_merge(&a, &b));
    b.length_blocks++;
    assert_false(extent_can_merge(&a, &b));
    a.is_unwritten = b.is_unwritten = false;
    assert_true(extent_can_merge(&a, &b));
    b.length_blocks++;
    assert_false(extent_can_merge(&a, &b));
    b.length_blocks = 1;
    b.file_block++;
    assert_false(extent_can_merge(&a, &b));
    a.file_block = UINT32_MAX - 4;
    b = (struct extent){.file_block = 0, .length_blocks = 1, .disk_block = 105};
    assert_false(extent_can_merge(&a, &b));
}

/* ---- Attributes ----------------------------------------------------------------------------- */

struct attribute {
    bool is_set;
    uint8_t index, name_length;
    char name[XATTR_NAME_MAX];
    uint8_t value[5000];
    uint32_t value_bytes, value_ino, value_hash;
};

static int compare_names(const struct xattr_view *a, const struct xattr_view *b)
{
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    if (a->name_length != b->name_length)
        return a->name_length < b->name_length ? -1 : 1;
    return memcmp(a->name, b->name, a->name_length);
}

static void compare_attributes(const struct superblock *sb, const struct xattr_place *place,
                               const struct attribute *model)
{
    struct xattr_area area = xattr_area_of(place);
    struct xattr_view view = {.following = area.entries}, before = {0};
    const char *reason;
    unsigned int found = 0, expected = 0;
    uint32_t used = 0, hash = 0;
    bool is_shareable = true;
    int step;

    for (unsigned int i = 0; i < XATTR_NAMES; i++)
        expected += model[i].is_set;
    while ((step = xattr_next(sb, &area, view.following, &view, &reason)) > 0) {
        const struct attribute *one = model;
        while (one < model + XATTR_NAMES &&
               (!one->is_set || one->index != view.index || one->name_length != view.name_length ||
                memcmp(one->name, view.name, view.name_length) != 0))
            one++;
        assert_true(one < model + XATTR_NAMES);
        assert_int_equal(view.value_ino, one->value_ino);
        assert_int_equal(view.value_bytes, one->value_bytes);
        if (view.value_ino == 0 && view.value_bytes > 0)
            assert_memory_equal(view.value, one->value, one->value_bytes);
        if (place->is_block && before.name != NULL)
            assert_true(compare_names(&before, &view) < 0);
        if (!place->is_block && view.value_ino == 0)
            assert_int_equal(view.hash, 0);
        is_shareable = is_shareable && view.hash != 0;
        hash = (hash << 16 | hash >> 16) ^ view.hash;
        used += xattr_needed_bytes(view.name_length, view.value_ino ? 0 : view.value_bytes);
        before = view;
        found++;
    }
    if (step < 0)
        fail_msg("%s", reason);
    assert_int_equal(found, expected);
    assert_int_equal(xattr_place_is_empty(place), expected == 0);
    assert_int_equal(xattr_place_free(sb, place), xattr_place_capacity(place) - used);
    if (place->is_block)
        assert_int_equal(xattr_block_hash(place->header), is_shareable ? hash : 0);
}

static void draw_attributes(struct attribute *model)
{
    static const uint8_t indexes[] = {XATTR_USER, XATTR_TRUSTED, XATTR_SECURITY, XATTR_SYSTEM};
    for (unsigned int i = 0; i < XATTR_NAMES; i++) {
        model[i] = (struct attribute){.index = indexes[draw(4)],
                                      .name_length = (uint8_t)(2 + draw(draw(5) ? 20 : 254))};
        memset(model[i].name, 'a' + (int)draw(20), model[i].name_length);
        /* Makes names unique. */
        model[i].name[0] = (char)('0' + i);
    }
    model[0] = (struct attribute){.index = XATTR_ACL_ACCESS};
}

static void change_attributes(const struct superblock *sb, const struct xattr_place *place,
                              struct attribute *model)
{
    struct attribute *one = &model[draw(XATTR_NAMES)];
    int64_t free_bytes = xattr_place_free(sb, place);
    int64_t gained = one->is_set ? xattr_needed_bytes(one->name_length,
                                                      one->value_ino ? 0 : one->value_bytes)
                                 : 0;
    if (draw(3) == 0) {
        int result = xattr_remove(sb, place, one->index, one->name, one->name_length);
        assert_int_equal(result, one->is_set ? 0 : -ENODATA);
        one->is_set = false;
        return;
    }
    static struct attribute next;
    next = *one;
    next.is_set = true;
    next.value_ino = draw(8) == 0 ? 12 + draw(4000) : 0;
    next.value_bytes = draw(4) == 0 ? draw(sizeof(next.value)) : draw(100);
    next.value_hash = draw(UINT32_MAX);
    draw_bytes(next.value, next.value_bytes);
    struct xattr_new attribute = {.index = one->index,
                                  .name = one->name,
                                  .name_length = one->name_length,
                                  .value = next.value,
                                  .value_bytes = next.value_bytes,
                                  .value_ino = next.value_ino,
                                  .value_hash = next.value_hash};
    bool has_room = xattr_needed_bytes(one->name_length, next.value_ino ? 0 : next.value_bytes) <=
                    free_bytes + gained;
    int result = xattr_set(sb, place, &attribute);
    assert_int_equal(result, has_room ? 0 : -ENOSPC);
    if (result == 0)
        *one = next;
}

static void attributes_are_like_a_map(void **state)
{
    static struct attribute model[XATTR_NAMES];
    (void)state;
    for (unsigned int run = 0; run < XATTR_RUNS; run++) {
        struct superblock sb = draw_superblock();
        bool is_block = draw(2);
        struct xattr_place place;
        uint8_t *memory = malloc(is_block ? sb.block_bytes : sb.inode_bytes);
        if (is_block) {
            struct xattr_area area;
            xattr_block_init(&sb, memory);
            xattr_block_place(&sb, memory, &place);
            assert_null(xattr_block_area(&sb, memory, &area));
            assert_int_equal(xattr_block_references(memory), 1);
        } else {
            draw_bytes(memory, sb.inode_bytes);
            if (!xattr_inode_place(&sb, memory, sb.want_extra_isize, &place)) {
                assert_int_equal(sb.inode_bytes, 128);
                free(memory);
                continue;
            }
        }
        draw_attributes(model);
        for (unsigned int step = 0; step < XATTR_STEPS; step++) {
            struct xattr_area area;
            change_attributes(&sb, &place, model);
            compare_attributes(&sb, &place, model);
            if (!is_block)
                assert_int_equal(xattr_inode_area(&sb, memory, sb.want_extra_isize, &area),
                                 !xattr_place_is_empty(&place));
        }
        if (is_block) {
            xattr_block_set_references(memory, 17);
            xattr_block_set_checksum(&sb, 4711, memory);
            assert_true(xattr_block_checksum_matches(&sb, 4711, memory));
            assert_true(!sb.has_metadata_csum || !xattr_block_checksum_matches(&sb, 4712, memory));
            assert_int_equal(xattr_block_references(memory), 17);
            assert_true(xattr_blocks_are_equal(&sb, memory, memory));
        }
        free(memory);
    }
}

/* Damaged areas are refused, or changed without leaving them. */
static void damaged_attributes_are_survived(void **state)
{
    static struct attribute model[XATTR_NAMES];
    unsigned int refused = 0, changed = 0;
    (void)state;
    for (unsigned int run = 0; run < 20000; run++) {
        struct superblock sb = draw_superblock();
        struct xattr_place place;
        sb.block_bytes = 1024;
        uint8_t *memory = malloc(sb.block_bytes);
        xattr_block_init(&sb, memory);
        xattr_block_place(&sb, memory, &place);
        draw_attributes(model);
        for (unsigned int i = 0; i < 12; i++)
            change_attributes(&sb, &place, model);
        for (uint32_t i = 1 + draw(4); i > 0; i--)
            memory[draw(2) ? 32 + draw(200) : draw(1024)] ^= (uint8_t)(1u << draw(8));
        for (unsigned int i = 0; i < 4; i++) {
            const struct attribute *one = &model[draw(XATTR_NAMES)];
            struct xattr_new attribute = {.index = one->index,
                                          .name = one->name,
                                          .name_length = one->name_length,
                                          .value = one->value,
                                          .value_bytes = draw(100)};
            int result = draw(2)
                             ? xattr_set(&sb, &place, &attribute)
                             : xattr_remove(&sb, &place, one->index, one->name, one->name_length);
            refused += result == -EUCLEAN;
            changed += result == 0;
            if (result == 0)
                assert_true(xattr_place_free(&sb, &place) >= 0);
        }
        free(memory);
    }
    assert_true(refused > 1000 && changed > 1000);
}

/* ---- ACLs and orphans ------------------------------------------------------------------------ */

struct acl_entry {
    uint16_t tag, permissions;
    uint32_t id;
};

static int64_t convert(const struct acl_entry *entries, size_t count, uint8_t *raw, size_t size)
{
    uint8_t buffer[4 + 8 * 8] = {2};
    for (size_t i = 0; i < count; i++) {
        le16 tag = le16_make(entries[i].tag), permissions = le16_make(entries[i].permissions);
        le32 id = le32_make(entries[i].id);
        memcpy(buffer + 4 + 8 * i, &tag, sizeof(tag));
        memcpy(buffer + 6 + 8 * i, &permissions, sizeof(permissions));
        memcpy(buffer + 8 + 8 * i, &id, sizeof(id));
    }
    int64_t length = acl_to_disk(buffer, 4 + 8 * count, raw, size);
    if (length > 0 && size > 0) {
        uint8_t again[sizeof(buffer)];
        assert_int_equal(acl_from_disk(raw, (size_t)length, again, sizeof(again)), 4 + 8 * count);
        assert_memory_equal(again, buffer, 4 + 8 * count);
    }
    return length;
}

static void acls_are_converted_if_valid(void **state)
{
    static const struct acl_entry full[] = {
        {0x01, 7, UINT32_MAX}, {0x02, 5, 1000},       {0x02, 4, 1001},      {0x04, 5, UINT32_MAX},
        {0x08, 4, 50},         {0x10, 7, UINT32_MAX}, {0x20, 0, UINT32_MAX}};
    struct acl_entry changed[7];
    uint8_t raw[100];
    (void)state;

    assert_int_equal(convert(full, 7, raw, sizeof(raw)), 4 + 4 * 4 + 3 * 8);
    assert_int_equal(convert(full, 7, NULL, 0), 4 + 4 * 4 + 3 * 8);
    assert_int_equal(convert(full, 7, raw, 43), -ERANGE);
    assert_int_equal(convert(full, 0, raw, sizeof(raw)), 0);
    assert_int_equal(convert(full, 6, raw, sizeof(raw)), -EINVAL); /* no entry for others */
    for (unsigned int left_out = 0; left_out < 7; left_out++) {
        unsigned int count = 0;
        for (unsigned int i = 0; i < 7; i++)
            if (i != left_out)
                changed[count++] = full[i];
        bool is_optional = full[left_out].tag == 0x02 || full[left_out].tag == 0x08;
        assert_int_equal(convert(changed, count, raw, sizeof(raw)) > 0, is_optional);
    }
    for (unsigned int i = 0; i < 6; i++) {
        memcpy(changed, full, sizeof(full));
        changed[i] = full[i + 1];
        changed[i + 1] = full[i];
        assert_int_equal(convert(changed, 7, raw, sizeof(raw)) > 0, full[i].tag == full[i + 1].tag);
    }
    memcpy(changed, full, sizeof(full));
    changed[0].permissions = 8;
    assert_int_equal(convert(changed, 7, raw, sizeof(raw)), -EINVAL);
    changed[0].permissions = 7;
    changed[1].tag = 0x03;
    assert_int_equal(convert(changed, 7, raw, sizeof(raw)), -EINVAL);
    changed[1] = (struct acl_entry){0x02, 7, UINT32_MAX};
    assert_int_equal(convert(changed, 7, raw, sizeof(raw)), -EINVAL);
    assert_int_equal(acl_to_disk("\2\0\0\0abc", 7, raw, sizeof(raw)), -EINVAL);
    assert_int_equal(acl_to_disk("\1\0\0\0", 4, raw, sizeof(raw)), -EINVAL);
    assert_int_equal(acl_to_disk("\2\0", 2, raw, sizeof(raw)), -EINVAL);
}

static void orphan_blocks_hold_numbers(void **state)
{
    (void)state;
    for (unsigned int run = 0; run < 100; run++) {
        struct superblock sb = draw_superblock();
        uint8_t *block = malloc(sb.block_bytes);
        unsigned int slots = orphan_block_slots(&sb), slot = draw(slots);
        assert_int_equal(slots, sb.block_bytes / 4 - 2);
        orphan_block_init(&sb, block);
        assert_null(orphan_block_check(&sb, block));
        assert_int_equal(orphan_block_find_used(&sb, block, 0), slots);
        orphan_block_set(block, slot, 4711);
        assert_null(orphan_block_check(&sb, block));
        assert_int_equal(orphan_block_get(block, slot), 4711);
        assert_int_equal(orphan_block_find_used(&sb, block, 0), slot);
        assert_int_equal(orphan_block_find_used(&sb, block, slot + 1), slots);
        assert_int_equal(orphan_block_find_free(&sb, block, slot), slot + 1);
        orphan_block_set_checksum(&sb, 5, 99, block);
        assert_true(orphan_block_checksum_matches(&sb, 5, 99, block));
        if (sb.has_metadata_csum) {
            assert_false(orphan_block_checksum_matches(&sb, 6, 99, block));
            assert_false(orphan_block_checksum_matches(&sb, 5, 98, block));
        }
        for (unsigned int i = 0; i < slots; i++)
            orphan_block_set(block, i, 11 + i % 4000);
        assert_int_equal(orphan_block_find_free(&sb, block, 0), slots);
        orphan_block_set(block, slot, 5001);
        assert_non_null(orphan_block_check(&sb, block));
        orphan_block_set(block, slot, 10);
        assert_non_null(orphan_block_check(&sb, block));
        free(block);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bitmaps_are_like_arrays_of_bools),
        cmocka_unit_test(bitmap_checksums_match),
        cmocka_unit_test(groups_that_were_never_written),
        cmocka_unit_test(extent_nodes_are_like_arrays),
        cmocka_unit_test(entries_move_between_nodes),
        cmocka_unit_test(extents_merge_only_where_they_may),
        cmocka_unit_test(attributes_are_like_a_map),
        cmocka_unit_test(damaged_attributes_are_survived),
        cmocka_unit_test(acls_are_converted_if_valid),
        cmocka_unit_test(orphan_blocks_hold_numbers),
    };
    start_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
