/* SPDX-License-Identifier: MIT */
/*
 * Random changes of directories beside a list of names: single areas of every size, and a directory
 * with a hash index that grows, splits leaves and inner nodes and gains levels, as the dir layer
 * would do it. After every step all blocks pass their validators, and each name is found where the
 * index says. UEXT4_TEST_SEED repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "directory.h"
#include "format/dirent.h"
#include "random.h"

#define AREA_RUNS    400
#define AREA_STEPS   400
#define NAMES        6000
#define INDEX_RUNS   12
#define INDEX_BLOCKS 20000
#define SEED         77

static const uint8_t all_types[] = {DT_REG, DT_DIR, DT_CHR, DT_BLK, DT_FIFO, DT_SOCK, DT_LNK};

struct name {
    bool is_set;
    uint32_t ino;
    uint8_t length, type;
    char bytes[DIRENT_NAME_MAX];
};

static struct name names[NAMES];

static void draw_name(struct name *name, unsigned int number, unsigned int longest)
{
    *name = (struct name){.ino = 1 + draw(5000), .type = all_types[draw(7)]};
    name->length = (uint8_t)snprintf(name->bytes, sizeof(name->bytes), "%x-", number);
    while (name->length < longest && draw(longest) > 0)
        name->bytes[name->length++] = (char)('a' + draw(26));
}

static struct dirent_view view_of(const struct name *name, bool has_hash)
{
    return (struct dirent_view){.ino = name->ino,
                                .type = name->type,
                                .name = name->bytes,
                                .name_length = name->length,
                                .has_hash = has_hash,
                                .hash = name->ino * 2,
                                .minor_hash = name->ino * 3};
}

/* ---- One area ------------------------------------------------------------------------------- */

static size_t find_in_area(const struct superblock *sb, const uint8_t *area, size_t size,
                           bool has_hash, const struct name *name)
{
    struct dirent_view entry;
    for (size_t at = 0; at < size; at += entry.record_bytes) {
        assert_null(dirent_read(sb, area, size, at, has_hash, &entry));
        if (entry.ino == 0 || entry.name_length != name->length ||
            memcmp(entry.name, name->bytes, name->length) != 0)
            continue;
        assert_int_equal(entry.ino, name->ino);
        assert_int_equal(entry.type, name->type);
        if (has_hash) {
            assert_int_equal(entry.hash, name->ino * 2);
            assert_int_equal(entry.minor_hash, name->ino * 3);
        }
        return at;
    }
    return SIZE_MAX;
}

static void compare_area(const struct superblock *sb, const uint8_t *area, size_t size,
                         bool has_hash, unsigned int candidates)
{
    struct dirent_view entry;
    unsigned int found = 0, expected = 0;
    size_t at = 0;

    for (; at < size; at += entry.record_bytes) {
        const char *problem = dirent_read(sb, area, size, at, has_hash, &entry);
        if (problem != NULL)
            fail_msg("%s", problem);
        found += entry.ino != 0;
    }
    assert_int_equal(at, size);
    for (unsigned int i = 0; i < candidates; i++) {
        expected += names[i].is_set;
        if (names[i].is_set)
            assert_true(find_in_area(sb, area, size, has_hash, &names[i]) != SIZE_MAX);
    }
    assert_int_equal(found, expected);
    assert_int_equal(dirent_area_is_empty(sb, area, size, has_hash), expected == 0);
}

/* The most that one record has to spare. */
static uint32_t largest_room(const struct superblock *sb, const uint8_t *area, size_t size,
                             bool has_hash)
{
    struct dirent_view entry;
    uint32_t largest = 0;
    for (size_t at = 0; at < size; at += entry.record_bytes) {
        assert_null(dirent_read(sb, area, size, at, has_hash, &entry));
        uint32_t used = entry.ino == 0 ? 0
                                       : (8u + entry.name_length + 3) / 4 * 4 + (has_hash ? 8 : 0);
        largest = MAX(largest, entry.record_bytes - used);
    }
    return largest;
}

static void change_area(const struct superblock *sb, uint8_t *area, size_t size, bool has_hash,
                        struct name *name, unsigned int number)
{
    if (!name->is_set) {
        draw_name(name, number, draw(5) ? 20 : 255);
        struct dirent_view entry = view_of(name, has_hash);
        uint32_t needed = dirent_needed_bytes(name->length, has_hash);
        bool has_room = needed <= largest_room(sb, area, size, has_hash);
        assert_int_equal(dirent_insert(sb, area, size, has_hash, &entry), has_room ? 0 : -ENOSPC);
        name->is_set = has_room;
        return;
    }
    size_t at = find_in_area(sb, area, size, has_hash, name);
    if (draw(4) == 0 && !has_hash) {
        name->ino = 1 + draw(5000);
        name->type = all_types[draw(7)];
        dirent_replace(sb, area, at, name->ino, name->type);
        return;
    }
    assert_int_equal(dirent_remove(sb, area, size, has_hash, at + 4), -ENOENT);
    assert_int_equal(dirent_remove(sb, area, size, has_hash, at), 0);
    name->is_set = false;
}

static void areas_are_like_lists(void **state)
{
    (void)state;
    for (unsigned int run = 0; run < AREA_RUNS; run++) {
        struct superblock sb = draw_superblock();
        bool has_hash = draw(4) == 0, is_inline = draw(3) == 0;
        size_t size = is_inline ? 56 + 4 * draw(40) : dirent_block_room(&sb);
        unsigned int candidates = 1 + draw(100);
        uint8_t *area = malloc(is_inline ? size : sb.block_bytes);

        memset(names, 0, sizeof(names));
        draw_bytes(area, size);
        if (is_inline)
            dirent_area_init(&sb, area, size);
        else
            dirent_block_init(&sb, area);
        for (unsigned int step = 0; step < AREA_STEPS; step++) {
            unsigned int number = draw(candidates);
            change_area(&sb, area, size, has_hash, &names[number], number);
            if (step % 8 == 0)
                compare_area(&sb, area, size, has_hash, candidates);
        }
        compare_area(&sb, area, size, has_hash, candidates);
        if (!is_inline) {
            assert_int_equal(dirent_block_has_tail(&sb, area), sb.has_metadata_csum);
            dirent_block_set_checksum(&sb, SEED, area);
            assert_true(dirent_block_checksum_matches(&sb, SEED, area));
            assert_true(!sb.has_metadata_csum ||
                        !dirent_block_checksum_matches(&sb, SEED + 1, area));
        }

        /* Compacted into an area that just holds them. */
        size_t used = 0;
        for (unsigned int i = 0; i < candidates; i++)
            if (names[i].is_set)
                used += dirent_needed_bytes(names[i].length, has_hash);
        size_t small = MAX(used, 12);
        uint8_t *copy = malloc(small);
        assert_int_equal(dirent_copy_entries(&sb, area, size, copy, small, has_hash), 0);
        compare_area(&sb, copy, small, has_hash, candidates);
        if (used > 12)
            assert_int_equal(dirent_copy_entries(&sb, area, size, copy, small - 4, has_hash),
                             -ENOSPC);
        free(copy);
        free(area);
    }
}

/* ---- A directory with an index --------------------------------------------------------------- */

static size_t find_name(struct directory *dir, const struct name *name, uint32_t *leaf)
{
    struct dirent_view entry = view_of(name, false);
    return directory_find(dir, &entry, leaf);
}

static void check_subtree(struct directory *dir, uint32_t block, unsigned int level,
                          uint32_t hash_from, uint32_t hash_to, unsigned int *found)
{
    uint8_t *bytes = directory_block(dir, block);
    const struct superblock *sb = &dir->sb;
    if (level == dir->root.indirect_levels + 1u) {
        struct dirent_view entry;
        dirent_block_set_checksum(sb, SEED, bytes);
        assert_true(dirent_block_checksum_matches(sb, SEED, bytes));
        for (size_t at = 0; at < dirent_block_room(sb); at += entry.record_bytes) {
            struct htree_hash hash;
            assert_null(dirent_read(sb, bytes, dirent_block_room(sb), at, false, &entry));
            if (entry.ino == 0)
                continue;
            assert_true(directory_hash(dir, &entry, &hash));
            assert_true(hash.major >= (hash_from & ~1u) && hash.major <= hash_to);
            ++*found;
        }
        return;
    }
    struct htree_root root;
    const char *problem = level == 0 ? htree_root_check(sb, bytes, dir->count, &root)
                                     : htree_node_check(sb, bytes, dir->count);
    if (problem != NULL)
        fail_msg("%s", problem);
    htree_node_set_checksum(sb, SEED, bytes, level == 0);
    assert_true(htree_node_checksum_matches(sb, SEED, bytes, level == 0));
    unsigned int count = htree_count(bytes, level == 0);
    for (unsigned int i = 0; i < count; i++) {
        struct htree_entry entry = htree_entry_at(bytes, level == 0, i);
        uint32_t to = i + 1 < count ? htree_entry_at(bytes, level == 0, i + 1).hash : hash_to;
        check_subtree(dir, entry.block, level + 1, i == 0 ? hash_from : entry.hash, to, found);
    }
}

static void check_directory(struct directory *dir, unsigned int candidates)
{
    unsigned int found = 0, expected = 0;
    uint32_t leaf;
    check_subtree(dir, 0, 0, 0, UINT32_MAX, &found);
    for (unsigned int i = 0; i < candidates; i++) {
        expected += names[i].is_set;
        if (names[i].is_set)
            assert_true(find_name(dir, &names[i], &leaf) != SIZE_MAX);
    }
    assert_int_equal(found, expected);
}

static void check_dots(struct directory *dir)
{
    struct dirent_view entry;
    uint8_t *first = directory_block(dir, 0);
    assert_null(dirent_read(&dir->sb, first, dir->sb.block_bytes, 0, false, &entry));
    assert_true(entry.ino == 12 && entry.record_bytes == 12 && entry.type == DT_DIR);
    assert_null(dirent_read(&dir->sb, first, dir->sb.block_bytes, 12, false, &entry));
    assert_true(entry.ino == 2 && entry.type == DT_DIR && entry.name_length == 2);
}

static void change_directory(struct directory *dir, unsigned int number, unsigned int longest)
{
    struct name *name = &names[number], *victim = &names[draw(number + 1)];
    uint32_t leaf;

    draw_name(name, number, longest);
    struct dirent_view entry = view_of(name, false);
    assert_int_equal(directory_add(dir, &entry), 0);
    name->is_set = true;
    if (draw(6) == 0 && victim->is_set) {
        size_t at = find_name(dir, victim, &leaf);
        assert_int_equal(dirent_remove(&dir->sb, directory_block(dir, leaf),
                                       dirent_block_room(&dir->sb), false, at),
                         0);
        victim->is_set = false;
    }
    if (number % 1000 == 0 && dir->is_indexed)
        check_directory(dir, number + 1);
}

static void indexes_find_every_name(void **state)
{
    unsigned int splits = 0, node_splits = 0, push_downs = 0, continued = 0;
    (void)state;
    for (unsigned int run = 0; run < INDEX_RUNS; run++) {
        struct directory dir = {.sb = draw_superblock(), .seed = SEED};
        dir.sb.block_bytes = run < 9 ? 1024 : 2048;
        dir.sb.block_bits = run < 9 ? 10 : 11;
        dir.sb.default_hash_version = (uint8_t)draw(3);
        draw_bytes(dir.sb.hash_seed, sizeof(dir.sb.hash_seed));
        directory_start(&dir, INDEX_BLOCKS, 12, 2);
        dir.hash_mask = run % 3 == 2 ? 0xf8000000 : UINT32_MAX;
        memset(names, 0, sizeof(names));
        for (unsigned int i = 0; i < NAMES; i++)
            change_directory(&dir, i, run < 6 ? 255 : 30);
        check_directory(&dir, NAMES);
        check_dots(&dir);
        splits += dir.leaf_splits;
        node_splits += dir.node_splits;
        push_downs += dir.push_downs;
        continued += dir.continued;
        free(dir.blocks);
    }
    print_message("# %u leaves split, %u of them inside equal hashes, %u inner nodes split, %u "
                  "levels added\n",
                  splits, continued, node_splits, push_downs);
    assert_true(splits > 1000 && continued > 10 && node_splits > 10 && push_downs > 3);
}

/* ---- Facts ------------------------------------------------------------------------------------
 */

static bool cannot_hash(void *context, const struct dirent_view *entry, struct htree_hash *hash)
{
    (void)context;
    (void)entry;
    (void)hash;
    return false;
}

static void splits_have_their_limits(void **state)
{
    struct superblock sb = draw_superblock();
    struct directory dir = {.sb = sb, .hash_mask = 0};
    uint8_t *leaf = malloc(sb.block_bytes), *upper = malloc(sb.block_bytes);
    struct dirent_view entry = {.ino = 12, .name = "a", .name_length = 1, .type = DT_REG};
    uint32_t hash;
    (void)state;

    dirent_block_init(&sb, leaf);
    assert_int_equal(dirent_split(&sb, leaf, upper, false, directory_hash, &dir, &hash), -ENOSPC);
    assert_int_equal(dirent_insert(&sb, leaf, dirent_block_room(&sb), false, &entry), 0);
    assert_int_equal(dirent_split(&sb, leaf, upper, false, directory_hash, &dir, &hash), -ENOSPC);
    entry.name = "b";
    assert_int_equal(dirent_insert(&sb, leaf, dirent_block_room(&sb), false, &entry), 0);
    assert_int_equal(dirent_split(&sb, leaf, upper, false, cannot_hash, &dir, &hash), -EUCLEAN);
    assert_int_equal(dirent_split(&sb, leaf, upper, false, directory_hash, &dir, &hash), 0);
    assert_int_equal(hash, 1); /* all hashes are 0: the run goes on */
    assert_int_equal(dirent_area_is_empty(&sb, leaf, dirent_block_room(&sb), false), 0);
    assert_int_equal(dirent_area_is_empty(&sb, upper, dirent_block_room(&sb), false), 0);
    free(leaf);
    free(upper);
}

static void damaged_areas_stay_as_they_are(void **state)
{
    (void)state;
    for (unsigned int run = 0; run < 3000; run++) {
        struct superblock sb = draw_superblock();
        sb.block_bytes = 1024;
        uint8_t *area = malloc(1024), *upper = malloc(1024), before[1024];
        struct directory dir = {.sb = sb, .hash_mask = UINT32_MAX};
        struct dirent_view entry, new = {.ino = 12, .name = "new", .name_length = 3};
        uint32_t hash;
        memset(names, 0, 20 * sizeof(names[0]));
        dirent_block_init(&sb, area);
        for (unsigned int i = 0; i < 20; i++)
            change_area(&sb, area, dirent_block_room(&sb), false, &names[i], i);
        for (unsigned int i = 1 + draw(4); i > 0; i--)
            area[draw(900)] ^= (uint8_t)(1u << draw(8));
        bool is_bad = false;
        for (size_t at = 0; at < dirent_block_room(&sb) && !is_bad; at += entry.record_bytes)
            is_bad = dirent_read(&sb, area, dirent_block_room(&sb), at, false, &entry) != NULL;
        if (is_bad) {
            size_t last = 1000;
            memcpy(before, area, sizeof(before));
            assert_int_equal(dirent_insert(&sb, area, dirent_block_room(&sb), false, &new),
                             -EUCLEAN);
            assert_int_equal(dirent_remove(&sb, area, dirent_block_room(&sb), false, last),
                             -EUCLEAN);
            assert_int_equal(dirent_split(&sb, area, upper, false, directory_hash, &dir, &hash),
                             -EUCLEAN);
            assert_int_equal(dirent_area_is_empty(&sb, area, dirent_block_room(&sb), false),
                             -EUCLEAN);
            assert_int_equal(htree_make_root(&sb, area, upper, 1, 1, false), -EUCLEAN);
            assert_memory_equal(area, before, sizeof(before));
        }
        free(area);
        free(upper);
    }
}

static void blocks_of_64k_have_their_lengths(void **state)
{
    struct superblock sb = draw_superblock();
    uint8_t *block = malloc(65536);
    struct dirent_view entry = {.ino = 12, .name = "a", .name_length = 1, .type = DT_REG};
    (void)state;
    sb.block_bytes = 65536;
    sb.has_metadata_csum = false;
    dirent_block_init(&sb, block);
    assert_int_equal(le16_at(block + 4), 65535);
    assert_null(dirent_read(&sb, block, 65536, 0, false, &entry));
    assert_int_equal(entry.record_bytes, 65536);
    entry = (struct dirent_view){.ino = 12, .name = "a", .name_length = 1, .type = DT_REG};
    assert_int_equal(dirent_insert(&sb, block, 65536, false, &entry), 0);
    assert_int_equal(le16_at(block + 4), 65535);
    entry.name = "b";
    assert_int_equal(dirent_insert(&sb, block, 65536, false, &entry), 0);
    assert_int_equal(le16_at(block + 4), 12);
    assert_int_equal(le16_at(block + 16), 65524);
    assert_int_equal(dirent_remove(&sb, block, 65536, false, 12), 0);
    assert_int_equal(le16_at(block + 4), 65535);
    free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(areas_are_like_lists),
        cmocka_unit_test(indexes_find_every_name),
        cmocka_unit_test(splits_have_their_limits),
        cmocka_unit_test(damaged_areas_stay_as_they_are),
        cmocka_unit_test(blocks_of_64k_have_their_lengths),
    };
    start_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
