/* SPDX-License-Identifier: MIT */
/*
 * Every validator against many random changes of valid structures, in buffers of the exact size,
 * so that AddressSanitizer sees a read outside. What passes is walked, and has to keep what the
 * headers promise. UEXT4_TEST_SEED repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/casefold.h"
#include "format/crc.h"
#include "format/dirent.h"
#include "format/extent.h"
#include "format/group.h"
#include "format/inode.h"
#include "format/xattr.h"

#define ROUNDS 150000

static uint64_t seed, random_state;

static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 16) % below);
}

static void put16(uint8_t *place, uint16_t value)
{
    le16 disk = le16_make(value);
    memcpy(place, &disk, sizeof(disk));
}

static void put32(uint8_t *place, uint32_t value)
{
    le32 disk = le32_make(value);
    memcpy(place, &disk, sizeof(disk));
}

/* Changes some bytes; sometimes to values on the edge, sometimes near the beginning. */
static void mutate(uint8_t *bytes, size_t size)
{
    static const uint32_t edges[] = {0,      1,      0x7f,   0x80,       0xff,       0x7fff,
                                     0x8000, 0x8001, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff};
    for (uint32_t i = draw(6); i > 0; i--) {
        size_t offset = draw((uint32_t)(draw(2) ? size : MIN(size, 64)));
        uint32_t value = draw(2) ? edges[draw(ARRAY_LENGTH(edges))] : draw(UINT32_MAX);
        size_t width = (size_t)1 << draw(3);
        memcpy(bytes + offset, &value, MIN(width, size - offset));
    }
    if (draw(500) == 0)
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)draw(256);
}

static struct superblock make_superblock(void)
{
    static const uint32_t block_sizes[] = {1024, 2048, 4096, 65536};
    uint32_t block_bytes = block_sizes[draw(20) == 0 ? 3 : draw(3)];
    bool has_sum = draw(2);
    return (struct superblock){
        .block_count = 100000,
        .inode_count = 5000,
        .first_data_block = block_bytes == 1024,
        .block_bytes = block_bytes,
        .block_bits = (uint32_t)__builtin_ctz(block_bytes),
        .cluster_bytes = block_bytes,
        .cluster_blocks = 1,
        .blocks_per_group = 8192,
        .clusters_per_group = 8192,
        .inodes_per_group = 256,
        .inodes_per_block = block_bytes / 256,
        .inode_table_blocks = 256 * 256 / block_bytes,
        .inode_bytes = 256,
        .group_count = 13,
        .descriptor_bytes = 64,
        .descriptors_per_block = block_bytes / 64,
        .incompat = FEATURE_INCOMPAT_FILETYPE | FEATURE_INCOMPAT_64BIT |
                    (draw(2) ? FEATURE_INCOMPAT_EA_INODE : 0) |
                    (draw(2) ? FEATURE_INCOMPAT_LARGEDIR : 0),
        .ro_compat = FEATURE_RO_COMPAT_HUGE_FILE | FEATURE_RO_COMPAT_PROJECT,
        .has_metadata_csum = has_sum,
        .checksum_seed = draw(UINT32_MAX),
    };
}

/* ---- Extents -------------------------------------------------------------------------------- */

static void fill_extents(uint8_t *node, size_t size, unsigned int depth)
{
    unsigned int max = (unsigned int)((size - 12) / 12), count = draw(max + 1);
    uint32_t file_block = 0;
    memset(node, 0, size);
    if (depth > 0 && count == 0)
        count = 1;
    put16(node, 0xf30a);
    put16(node + 2, (uint16_t)count);
    put16(node + 4, (uint16_t)max);
    put16(node + 6, (uint16_t)depth);
    for (unsigned int i = 0; i < count; i++) {
        uint8_t *entry = node + 12 + 12 * i;
        uint32_t length = 1 + draw(100);
        file_block += draw(3);
        put32(entry, file_block);
        if (depth == 0) {
            put16(entry + 4, (uint16_t)(length + (draw(4) == 0 ? 32768 : 0)));
            put32(entry + 8, 2 + draw(90000));
        } else {
            put32(entry + 4, 2 + draw(90000));
        }
        file_block += length;
    }
}

static void walk_extents(const struct superblock *sb, const uint8_t *node, size_t size)
{
    struct extent_header header = extent_node_header(node);
    uint64_t free_from = 0;
    assert_true(header.depth <= EXTENT_MAX_DEPTH && header.entry_count <= header.entry_max);
    assert_true(12u + 12u * header.entry_max <= size);
    for (unsigned int i = 0; i < header.entry_count; i++) {
        if (header.depth > 0) {
            struct extent_index index = extent_index_at(node, i);
            assert_true(index.disk_block > sb->first_data_block);
            assert_true(index.disk_block < sb->block_count);
            assert_true(i == 0 || index.file_block >= free_from);
            assert_int_equal(extent_find(node, index.file_block), i);
            free_from = (uint64_t)index.file_block + 1;
            continue;
        }
        struct extent extent = extent_at(node, i);
        assert_true(extent.length_blocks > 0 && extent.length_blocks <= EXTENT_MAX_WRITTEN);
        assert_true(!extent.is_unwritten || extent.length_blocks <= EXTENT_MAX_UNWRITTEN);
        assert_true(extent.file_block >= free_from);
        free_from = (uint64_t)extent.file_block + extent.length_blocks;
        assert_true(free_from <= (uint64_t)1 << 32);
        assert_true(extent.disk_block > sb->first_data_block);
        assert_true(extent.disk_block + extent.length_blocks <= sb->block_count);
        assert_int_equal(extent_find(node, extent.file_block), i);
    }
    if (header.entry_count == 0)
        assert_int_equal(extent_find(node, draw(UINT32_MAX)), -1);
}

static void extents(void **state)
{
    unsigned int good = 0, bad = 0;
    (void)state;
    for (unsigned int round = 0; round < ROUNDS; round++) {
        struct superblock sb = make_superblock();
        bool is_root = draw(2);
        size_t size = is_root ? 60 : MIN(sb.block_bytes, 4096);
        unsigned int depth = draw(is_root ? 6 : 5);
        uint8_t *node = malloc(size);
        sb.block_bytes = MIN(sb.block_bytes, 4096);
        fill_extents(node, size, depth);
        assert_null(extent_node_check(&sb, node, size, is_root ? -1 : (int)depth));
        mutate(node, size);
        if (extent_node_check(&sb, node, size, is_root ? -1 : (int)depth) == NULL) {
            walk_extents(&sb, node, size);
            good++;
        } else {
            bad++;
        }
        if (!is_root)
            extent_node_checksum_matches(&sb, 1, node);
        for (size_t shorter = 0; shorter < 13; shorter++)
            assert_non_null(extent_node_check(&sb, node, shorter, -1));
        free(node);
    }
    print_message("# %u passed, %u refused\n", good, bad);
    assert_true(good > 1000 && bad > 1000);
}

/* ---- Directories ---------------------------------------------------------------------------- */

static void fill_directory(const struct superblock *sb, uint8_t *block, size_t size, bool has_hash)
{
    size_t offset = 0;
    for (size_t i = 0; i < size; i++)
        block[i] = (uint8_t)draw(256);
    while (offset < size) {
        size_t name_length = 1 + draw(255);
        size_t bytes = ROUND_UP(8 + name_length, 4) + (has_hash ? 8 : 0);
        if (size - offset < bytes + 24) {
            bytes = size - offset;
            name_length = 1;
        }
        put32(block + offset, draw(5) ? 1 + draw(sb->inode_count) : 0);
        put16(block + offset + 4, (uint16_t)MIN(bytes, 65535));
        block[offset + 6] = (uint8_t)name_length;
        block[offset + 7] = (uint8_t)draw(8);
        offset += bytes;
    }
}

static bool walk_directory(const struct superblock *sb, const uint8_t *block, size_t size,
                           bool has_hash)
{
    size_t offset = 0;
    unsigned int sum = 0;
    while (offset < size) {
        struct dirent_view entry;
        if (dirent_read(sb, block, size, offset, has_hash, &entry) != NULL)
            return false;
        assert_true(entry.record_bytes >= 12 && entry.record_bytes % 4 == 0);
        assert_true(entry.record_bytes <= size - offset);
        assert_true(entry.ino <= sb->inode_count);
        assert_true(entry.name_length + 8u <= entry.record_bytes);
        assert_true(entry.ino == 0 || entry.name_length > 0);
        for (unsigned int i = 0; i < entry.name_length; i++)
            sum += (unsigned char)entry.name[i];
        sum += dirent_name_is_valid(&entry);
        offset += entry.record_bytes;
    }
    assert_int_equal(offset, size);
    return sum < UINT32_MAX;
}

static void directories(void **state)
{
    unsigned int good = 0, bad = 0;
    (void)state;
    for (unsigned int round = 0; round < ROUNDS; round++) {
        struct superblock sb = make_superblock();
        bool has_hash = draw(2), is_inline = draw(3) == 0;
        size_t size = is_inline ? 12 + 4 * draw(40) : MIN(sb.block_bytes, 4096);
        uint8_t *block = malloc(size);
        sb.block_bytes = MIN(sb.block_bytes, 4096);
        if (is_inline) {
            memset(block, 0, size);
            put16(block + 4, (uint16_t)size);
        } else {
            fill_directory(&sb, block, size, has_hash);
            assert_true(walk_directory(&sb, block, size, has_hash));
        }
        mutate(block, size);
        if (walk_directory(&sb, block, size, has_hash))
            good++;
        else
            bad++;
        struct dirent_view entry;
        dirent_read(&sb, block, size, draw((uint32_t)size + 100), has_hash, &entry);
        if (!is_inline)
            dirent_block_checksum_matches(&sb, 1, block);
        free(block);
    }
    print_message("# %u passed, %u refused\n", good, bad);
    assert_true(good > 1000 && bad > 1000);
}

static void fill_index(const struct superblock *sb, uint8_t *block, bool is_root)
{
    size_t start = is_root ? 32 : 8;
    unsigned int limit =
        (unsigned int)((sb->block_bytes - start - (sb->has_metadata_csum ? 8 : 0)) / 8);
    unsigned int count = 1 + draw(limit);
    uint32_t hash = 0;

    memset(block, 0, sb->block_bytes);
    if (is_root) {
        put16(block + 4, 12);
        block[6] = 1;
        block[8] = '.';
        put16(block + 16, (uint16_t)(sb->block_bytes - 12));
        block[18] = 2;
        memcpy(block + 20, "..", 2);
        block[28] = (uint8_t)draw(3);
        block[29] = 8;
        block[30] = (uint8_t)draw(2);
    } else {
        put16(block + 4, (uint16_t)MIN(sb->block_bytes, 65535));
    }
    for (unsigned int i = 0; i < count; i++) {
        put32(block + start + 8 * i, hash);
        put32(block + start + 8 * i + 4, 1 + draw(999));
        hash += draw(UINT32_MAX / 2 / count) & ~1u;
    }
    put16(block + start, (uint16_t)limit);
    put16(block + start + 2, (uint16_t)count);
}

static void walk_index(const struct superblock *sb, const uint8_t *block, bool is_root)
{
    unsigned int count = htree_count(block, is_root);
    uint32_t previous = 0;
    assert_true(count >= 1 && count * 8 + (is_root ? 32 : 8) <= sb->block_bytes);
    for (unsigned int i = 0; i < count; i++) {
        struct htree_entry entry = htree_entry_at(block, is_root, i);
        assert_true(entry.hash >= previous && entry.block > 0 && entry.block < 1000);
        previous = entry.hash;
    }
    uint32_t hash = draw(UINT32_MAX);
    unsigned int found = htree_find(block, is_root, hash);
    assert_true(found < count && htree_entry_at(block, is_root, found).hash <= hash);
    assert_true(found + 1 == count || htree_entry_at(block, is_root, found + 1).hash > hash);
}

static void indexes(void **state)
{
    unsigned int good = 0, bad = 0;
    (void)state;
    for (unsigned int round = 0; round < ROUNDS; round++) {
        struct superblock sb = make_superblock();
        struct htree_root root = {0};
        bool is_root = draw(2);
        uint8_t *block = malloc(sb.block_bytes);
        fill_index(&sb, block, is_root);
        assert_null(is_root ? htree_root_check(&sb, block, 1000, &root)
                            : htree_node_check(&sb, block, 1000));
        mutate(block, sb.block_bytes);
        const char *problem = is_root ? htree_root_check(&sb, block, 1000, &root)
                                      : htree_node_check(&sb, block, 1000);
        if (problem == NULL) {
            walk_index(&sb, block, is_root);
            assert_true(root.indirect_levels < HTREE_MAX_LEVELS);
            good++;
        } else {
            bad++;
        }
        htree_node_checksum_matches(&sb, 1, block, is_root);
        free(block);
    }
    print_message("# %u passed, %u refused\n", good, bad);
    assert_true(good > 1000 && bad > 1000);
}

/* ---- Attributes ----------------------------------------------------------------------------- */

static void fill_attributes(uint8_t *entries, uint8_t *base, uint8_t *end)
{
    static const uint8_t indexes_with_names[] = {1, 4, 6, 7};
    uint8_t *place = entries, *values = end;
    memset(entries, 0, (size_t)(end - entries));
    for (uint32_t i = draw(10); i > 0; i--) {
        size_t name_length = 1 + draw(20), value_bytes = draw(40);
        size_t bytes = ROUND_UP(16 + name_length, 4), room = ROUND_UP(value_bytes, 4);
        if ((size_t)(values - place) < bytes + room + 4)
            return;
        place[0] = (uint8_t)name_length;
        place[1] = indexes_with_names[draw(ARRAY_LENGTH(indexes_with_names))];
        values -= room;
        put16(place + 2, (uint16_t)(values - base));
        put32(place + 8, (uint32_t)value_bytes);
        memset(place + 16, 'n', name_length);
        memset(values, 'v', room);
        place += bytes;
    }
}

static bool walk_attributes(const struct superblock *sb, const struct xattr_area *area)
{
    struct xattr_view view = {.following = area->entries};
    const char *reason;
    unsigned int sum = 0;
    int step;
    while ((step = xattr_next(sb, area, view.following, &view, &reason)) > 0) {
        assert_true((const char *)view.name + view.name_length < (const char *)area->end);
        for (unsigned int i = 0; i < view.name_length; i++)
            sum += (unsigned char)view.name[i];
        assert_true((view.value == NULL) == (view.value_ino != 0));
        assert_true(view.value_ino <= sb->inode_count && view.value_bytes <= 16u << 20);
        for (uint32_t i = 0; view.value != NULL && i < view.value_bytes; i++)
            sum += ((const uint8_t *)view.value)[i];
    }
    assert_true(step == 0 || (step == -EUCLEAN && reason != NULL));
    return step == 0 && sum < UINT32_MAX;
}

static void attributes(void **state)
{
    unsigned int good = 0, bad = 0;
    (void)state;
    for (unsigned int round = 0; round < ROUNDS; round++) {
        struct superblock sb = make_superblock();
        struct xattr_area area;
        bool is_block = draw(2), is_found;
        size_t size = is_block ? sb.block_bytes : sb.inode_bytes;
        uint8_t *raw = calloc(1, size);
        uint32_t extra = 4 * (1 + draw(20));
        if (is_block) {
            put32(raw, 0xea020000);
            put32(raw + 4, 1);
            put32(raw + 8, 1);
            fill_attributes(raw + 32, raw, raw + size);
            assert_null(xattr_block_area(&sb, raw, &area));
        } else {
            put32(raw + 128 + extra, 0xea020000);
            fill_attributes(raw + 132 + extra, raw + 132 + extra, raw + size);
            assert_true(xattr_inode_area(&sb, raw, extra, &area));
        }
        assert_true(walk_attributes(&sb, &area));
        mutate(raw, size);
        if (!is_block)
            mutate(raw + 128, 128);
        extra = draw(10) == 0 ? draw(300) : extra;
        is_found = is_block ? xattr_block_area(&sb, raw, &area) == NULL
                            : xattr_inode_area(&sb, raw, extra, &area);
        if (is_found && walk_attributes(&sb, &area))
            good++;
        else
            bad++;
        if (is_block)
            xattr_block_checksum_matches(&sb, 5, raw);
        free(raw);
    }
    print_message("# %u passed, %u refused\n", good, bad);
    assert_true(good > 1000 && bad > 1000);
}

static void acls(void **state)
{
    unsigned int good = 0, bad = 0;
    (void)state;
    for (unsigned int round = 0; round < ROUNDS; round++) {
        static const uint8_t valid[] = {1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 5,  0, 0xe8, 3, 0,  0, 4, 0,
                                        4, 0, 8, 0, 7, 0, 9, 9, 1, 0, 16, 0, 7,    0, 32, 0, 0, 0};
        size_t length = draw(4) ? sizeof(valid) : draw(sizeof(valid) + 1), size = draw(80);
        uint8_t *raw = malloc(MAX(length, 1)), *buffer = malloc(MAX(size, 1));
        memcpy(raw, valid, length);
        if (length > 0)
            mutate(raw, length);
        int64_t wanted = acl_from_disk(raw, length, NULL, 0);
        int64_t got = acl_from_disk(raw, length, buffer, size);
        assert_true(wanted == -EUCLEAN || (wanted >= 4 && wanted % 8 == 4));
        if (size > 0 && wanted > 0)
            assert_int_equal(got, (size_t)wanted > size ? -ERANGE : wanted);
        wanted > 0 ? good++ : bad++;
        free(raw);
        free(buffer);
    }
    print_message("# %u passed, %u refused\n", good, bad);
    assert_true(good > 1000 && bad > 1000);
}

/* ---- Superblocks, descriptors, inodes ------------------------------------------------------- */

static void fill_superblock(uint8_t *raw)
{
    memset(raw, 0, SUPERBLOCK_BYTES);
    put32(raw, 13 * 256);
    put32(raw + 4, 100000);
    put32(raw + 0x14, 1);
    put32(raw + 0x20, 8192);
    put32(raw + 0x24, 8192);
    put32(raw + 0x28, 256);
    put16(raw + 0x38, SUPERBLOCK_MAGIC);
    put32(raw + 0x4c, 1);
    put32(raw + 0x54, 11);
    put16(raw + 0x58, 256);
    put32(raw + 0x60, FEATURE_INCOMPAT_64BIT | FEATURE_INCOMPAT_FLEX_BG);
    put16(raw + 0xfe, 64);
}

/* All arithmetic that the other layers do with a superblock that was found good. */
static void check_superblock(const struct superblock *sb)
{
    uint32_t group = draw(sb->group_count), last = sb->group_count - 1, offset;
    assert_true(sb->block_bytes >= 1024 && sb->block_bytes <= 65536);
    assert_int_equal(sb->block_bytes, 1u << sb->block_bits);
    assert_true(sb->block_count <= (uint64_t)INT64_MAX / sb->block_bytes);
    assert_int_equal((uint64_t)sb->group_count * sb->inodes_per_group, sb->inode_count);
    assert_true(sb->inode_bytes >= 128 && sb->inode_bytes <= sb->block_bytes);
    assert_true(sb->inodes_per_block * sb->inode_bytes == sb->block_bytes);
    assert_true((uint64_t)sb->inode_table_blocks * sb->inodes_per_block >= sb->inodes_per_group);
    assert_true(sb->clusters_per_group <= 8 * sb->block_bytes);
    assert_true((uint64_t)sb->clusters_per_group * sb->cluster_blocks == sb->blocks_per_group);
    assert_true((uint64_t)sb->cluster_blocks * sb->block_bytes == sb->cluster_bytes);
    assert_true(sb->want_extra_isize + 128 <= sb->inode_bytes);
    assert_true(group_first_block(sb, last) < sb->block_count);
    assert_true(group_block_count(sb, last) > 0);
    assert_true(group_first_block(sb, last) + group_block_count(sb, last) == sb->block_count);
    group_descriptor_block(sb, group, draw(sb->group_count), &offset);
    assert_true(offset + sb->descriptor_bytes <= sb->block_bytes);
    group_base_metadata_blocks(sb, group);
    assert_true(sb->volume_name[16] == '\0' && sb->last_mounted[64] == '\0');
    char names[50];
    superblock_unsupported_features(sb, names, sizeof(names));
    superblock_unwritable_features(sb, names, sizeof(names));
}

static void superblocks(void **state)
{
    unsigned int good = 0, bad = 0;
    (void)state;
    for (unsigned int round = 0; round < 4 * ROUNDS; round++) {
        uint8_t *raw = malloc(SUPERBLOCK_BYTES);
        struct superblock sb;
        fill_superblock(raw);
        assert_null(superblock_parse(raw, 0, &sb));
        assert_non_null(superblock_parse(raw, 99999 * 1024, &sb));
        assert_null(superblock_parse(raw, 100000 * 1024, &sb));
        mutate(raw, SUPERBLOCK_BYTES);
        if (draw(3) == 0)
            mutate(raw, 0x108);
        if (superblock_parse(raw, draw(2) ? 0 : 100000 * 1024, &sb) == NULL) {
            check_superblock(&sb);
            good++;
        } else {
            bad++;
        }
        superblock_checksum_matches(raw);
        free(raw);
    }
    print_message("# %u passed, %u refused\n", good, bad);
    assert_true(good > 1000 && bad > 1000);
}

static void descriptors(void **state)
{
    unsigned int good = 0, bad = 0;
    (void)state;
    for (unsigned int round = 0; round < ROUNDS; round++) {
        struct superblock sb = make_superblock();
        struct group_descriptor group;
        sb.has_gdt_csum = !sb.has_metadata_csum;
        sb.descriptor_bytes = 32u << draw(3);
        uint8_t *raw = calloc(1, sb.descriptor_bytes);
        put32(raw, 10 + draw(99990));
        put32(raw + 4, 10 + draw(99990));
        put32(raw + 8, 10 + draw(99990 - sb.inode_table_blocks));
        assert_null(group_descriptor_parse(&sb, draw(13), raw, &group));
        mutate(raw, sb.descriptor_bytes);
        if (group_descriptor_parse(&sb, draw(13), raw, &group) == NULL) {
            assert_true(group.inode_table + sb.inode_table_blocks <= sb.block_count);
            assert_true(group.block_bitmap < sb.block_count && group.block_bitmap > 0);
            assert_true(group.inode_bitmap < sb.block_count && group.inode_bitmap > 0);
            assert_true(group.unused_inodes <= 256 && group.free_inodes <= 256);
            assert_true(group.free_clusters <= 8192 && group.used_directories <= 256);
            good++;
        } else {
            bad++;
        }
        group_descriptor_checksum_matches(&sb, 3, raw);
        free(raw);
    }
    print_message("# %u passed, %u refused\n", good, bad);
    assert_true(good > 1000 && bad > 1000);
}

static void inodes(void **state)
{
    static const uint16_t modes[] = {0100644, 040755, 0120777, 020600, 060600, 010600, 0140600, 0};
    unsigned int good = 0, bad = 0;
    (void)state;
    for (unsigned int round = 0; round < ROUNDS; round++) {
        struct superblock sb = make_superblock();
        struct inode_fields inode;
        sb.inode_bytes = 128u << draw(3);
        uint8_t *raw = calloc(1, sb.inode_bytes);
        put16(raw, modes[draw(ARRAY_LENGTH(modes))]);
        put16(raw + 26, 1);
        if (sb.inode_bytes > 128)
            put16(raw + 128, 32);
        assert_null(inode_parse(&sb, raw, &inode));
        mutate(raw, sb.inode_bytes);
        if (inode_parse(&sb, raw, &inode) == NULL) {
            assert_true(inode.extra_isize + 128 <= sb.inode_bytes && inode.extra_isize % 4 == 0);
            assert_true(inode.modify_time.tv_nsec >= 0 && inode.modify_time.tv_nsec < 1000000000);
            assert_true(inode.birth_time.tv_nsec >= 0 && inode.birth_time.tv_nsec < 1000000000);
            if (inode.mode != 0 || inode.link_count != 0)
                assert_true(inode.size <= INT64_MAX && inode.xattr_block < sb.block_count);
            inode_is_fast_symlink(&sb, &inode);
            struct xattr_area area;
            xattr_inode_area(&sb, raw, inode.extra_isize, &area);
            good++;
        } else {
            bad++;
        }
        inode_checksum_matches(&sb, 12, raw);
        free(raw);
    }
    print_message("# %u passed, %u refused\n", good, bad);
    assert_true(good > 1000 && bad > 1000);
}

static void names_to_fold(void **state)
{
    unsigned int good = 0, bad = 0;
    (void)state;
    for (unsigned int round = 0; round < ROUNDS; round++) {
        static const char *const pieces[] = {
            "A",        "\xce\x90",         "\xc4\xb0",     "\xe1\xbe\x82", "\xef\xac\x83",
            "\xcc\x81", "\xf0\x9d\x85\xa0", "\xea\xb0\x81", "\xc2\xad"};
        size_t length = 1 + draw(255), size = draw(1200), used = 0;
        char *name = malloc(length), *buffer = malloc(size + 1);
        while (used < length) {
            const char *piece = pieces[draw(ARRAY_LENGTH(pieces))];
            size_t bytes = strlen(piece);
            if (bytes > length - used) {
                piece = "zzzz";
                bytes = length - used;
            }
            memcpy(name + used, piece, bytes);
            used += bytes;
        }
        if (draw(2))
            mutate((uint8_t *)name, length);
        buffer[size] = 'x';
        int result = casefold_name(name, length, buffer, size);
        assert_int_equal(buffer[size], 'x');
        if (result >= 0) {
            /* Folding twice changes nothing. */
            char again[1200];
            assert_true((size_t)result <= size);
            if (result <= 255) {
                assert_int_equal(casefold_name(buffer, (size_t)result, again, sizeof(again)),
                                 result);
                assert_memory_equal(buffer, again, (size_t)result);
            }
            good++;
        } else {
            assert_true(result == -EINVAL || result == -ENAMETOOLONG);
            bad++;
        }
        free(name);
        free(buffer);
    }
    print_message("# %u folded, %u refused\n", good, bad);
    assert_true(good > 1000 && bad > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(superblocks),   cmocka_unit_test(descriptors),
        cmocka_unit_test(inodes),        cmocka_unit_test(extents),
        cmocka_unit_test(directories),   cmocka_unit_test(indexes),
        cmocka_unit_test(attributes),    cmocka_unit_test(acls),
        cmocka_unit_test(names_to_fold),
    };
    const char *wanted = getenv("UEXT4_TEST_SEED");
    seed = wanted != NULL ? strtoull(wanted, NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
    random_state = seed | 1;
    print_message("# UEXT4_TEST_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
