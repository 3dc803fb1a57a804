/* SPDX-License-Identifier: MIT */
/*
 * Single facts of the format. Times are the table of Documentation/filesystems/ext4/inodes.rst;
 * device numbers are bytes that Linux wrote.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/dirent.h"
#include "format/extent.h"
#include "format/inode.h"

static const struct superblock plain = {
    .block_count = 100000,
    .inode_count = 5000,
    .first_data_block = 0,
    .block_bytes = 4096,
    .block_bits = 12,
    .cluster_bytes = 4096,
    .cluster_blocks = 1,
    .inode_bytes = 256,
    .incompat = FEATURE_INCOMPAT_FILETYPE | FEATURE_INCOMPAT_64BIT,
    .ro_compat = FEATURE_RO_COMPAT_HUGE_FILE | FEATURE_RO_COMPAT_PROJECT,
};

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

static struct inode_fields parse(const struct superblock *sb, const uint8_t *raw)
{
    struct inode_fields inode;
    const char *problem = inode_parse(sb, raw, &inode);
    if (problem != NULL)
        fail_msg("%s", problem);
    return inode;
}

static void times_have_their_epochs(void **state)
{
    static const struct {
        uint32_t epoch, seconds;
        int64_t time;
    } table[] = {
        {0, 0x80000000, -0x80000000LL}, {0, 0xffffffff, -1},          {0, 0x00000000, 0},
        {0, 0x7fffffff, 0x7fffffff},    {1, 0x80000000, 0x80000000},  {1, 0xffffffff, 0xffffffff},
        {1, 0x00000000, 0x100000000},   {1, 0x7fffffff, 0x17fffffff}, {2, 0x80000000, 0x180000000},
        {2, 0xffffffff, 0x1ffffffff},   {2, 0x00000000, 0x200000000}, {2, 0x7fffffff, 0x27fffffff},
        {3, 0x80000000, 0x280000000},   {3, 0xffffffff, 0x2ffffffff}, {3, 0x00000000, 0x300000000},
        {3, 0x7fffffff, 0x37fffffff},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        uint8_t raw[256] = {0};
        put16(raw, 0100644);
        put16(raw + 0x80, 32);
        put32(raw + 0x10, table[i].seconds);
        put32(raw + 0x88, 999999999u << 2 | table[i].epoch);
        put32(raw + 0x90, table[i].seconds);
        put32(raw + 0x94, 5u << 2 | table[i].epoch);
        struct inode_fields inode = parse(&plain, raw);
        assert_true(inode.modify_time.tv_sec == table[i].time);
        assert_int_equal(inode.modify_time.tv_nsec, 999999999);
        assert_true(inode.birth_time.tv_sec == table[i].time);
        assert_int_equal(inode.birth_time.tv_nsec, 5);
        assert_int_equal(inode.access_time.tv_sec, 0);
        put16(raw + 0x80, 8); /* covers the change time's extra alone */
        inode = parse(&plain, raw);
        assert_true(inode.modify_time.tv_sec == (int32_t)table[i].seconds);
        assert_int_equal(inode.modify_time.tv_nsec, 0);
        assert_int_equal(inode.birth_time.tv_sec, 0);
    }
}

/* What Linux wrote for "mknod c 5 300", "b 259 1000000", and "c 1 3" (which has the older form). */
static void devices_have_two_encodings(void **state)
{
    static const struct {
        uint16_t mode;
        uint8_t block[8];
        uint32_t major, minor;
    } table[] = {{020644, {0, 0, 0, 0, 0x2c, 0x05, 0x10, 0x00}, 5, 300},
                 {060644, {0, 0, 0, 0, 0x40, 0x03, 0x21, 0xf4}, 259, 1000000},
                 {020644, {0x03, 0x01}, 1, 3}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        uint8_t raw[256] = {0};
        put16(raw, table[i].mode);
        memcpy(raw + 0x28, table[i].block, 8);
        struct inode_fields inode = parse(&plain, raw);
        assert_int_equal(inode.rdev_major, table[i].major);
        assert_int_equal(inode.rdev_minor, table[i].minor);
    }
}

static void wide_fields_join(void **state)
{
    uint8_t raw[256] = {0};
    struct superblock sb = plain;
    (void)state;
    put16(raw, 0100644);
    put16(raw + 2, 0x1111);
    put16(raw + 0x18, 0x2222);
    put16(raw + 0x78, 0x3333);
    put16(raw + 0x7a, 0x4444);
    put32(raw + 4, 0x12345678);
    put32(raw + 0x6c, 3);
    put32(raw + 0x1c, 0x80);
    put16(raw + 0x74, 2);
    put32(raw + 0x20, INODE_EXTENTS);
    put32(raw + 0x24, 7);
    put32(raw + 0x98, 9);
    put32(raw + 0x9c, 77);
    put16(raw + 0x80, 32);
    struct inode_fields inode = parse(&sb, raw);
    assert_int_equal(inode.uid, 0x33331111);
    assert_int_equal(inode.gid, 0x44442222);
    assert_true(inode.size == 0x312345678);
    assert_true(inode.allocated_sectors == 0x200000080);
    assert_true(inode.version == 0x900000007);
    assert_int_equal(inode.project_id, 77);
    put32(raw + 0x20, INODE_EXTENTS | INODE_HUGE_FILE);
    assert_true(parse(&sb, raw).allocated_sectors == (uint64_t)0x200000080 * 8);
    sb.ro_compat = 0;
    assert_int_equal(parse(&sb, raw).allocated_sectors, 0x80);
    sb.creator_os = 2;
    assert_int_equal(parse(&sb, raw).uid, 0x1111);
    put16(raw, 040755);
    assert_int_equal(parse(&sb, raw).size, 0x12345678);
    sb.incompat |= FEATURE_INCOMPAT_LARGEDIR;
    assert_true(parse(&sb, raw).size == 0x312345678);
}

static void unreachable_sizes_are_refused(void **state)
{
    uint8_t raw[256] = {0};
    struct inode_fields inode;
    struct superblock sb = plain;
    (void)state;
    put16(raw, 0100644);
    /* With 1 KiB blocks a block map reaches 12 + 256 + 256^2 + 256^3 blocks. */
    sb.block_bytes = 1024;
    sb.block_bits = 10;
    uint64_t reach = (12 + 256 + 65536 + 16777216ull) * 1024;
    put32(raw + 4, (uint32_t)reach);
    put32(raw + 0x6c, (uint32_t)(reach >> 32));
    assert_null(inode_parse(&sb, raw, &inode));
    put32(raw + 4, (uint32_t)reach + 1);
    assert_non_null(inode_parse(&sb, raw, &inode));
    put32(raw + 0x20, INODE_EXTENTS);
    assert_null(inode_parse(&sb, raw, &inode));
    put32(raw + 0x6c, 0x400);
    assert_non_null(inode_parse(&sb, raw, &inode));
    put32(raw + 0x6c, 0x80000000);
    assert_string_equal(inode_parse(&sb, raw, &inode), "inode with a negative size");
}

static void bad_inodes_are_refused(void **state)
{
    static const uint16_t unknown[] = {0030000, 0050000, 0070000, 0110000, 0130000,
                                       0150000, 0160000, 0170000, 0000644};
    struct inode_fields inode;
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(unknown); i++) {
        uint8_t raw[256] = {0};
        put16(raw, unknown[i]);
        assert_non_null(inode_parse(&plain, raw, &inode));
    }
    for (unsigned int extra = 0; extra < 65536; extra++) {
        uint8_t raw[256] = {0};
        put16(raw, 0100644);
        put16(raw + 0x80, (uint16_t)extra);
        bool is_good = inode_parse(&plain, raw, &inode) == NULL;
        assert_int_equal(is_good, extra % 4 == 0 && extra <= 128);
    }
}

static void fast_links_are_told_from_slow_ones(void **state)
{
    struct superblock sb = plain;
    struct inode_fields link = {.mode = 0120777, .size = 59};
    (void)state;
    assert_true(inode_is_fast_symlink(&sb, &link));
    link.allocated_sectors = 8;
    assert_false(inode_is_fast_symlink(&sb, &link));
    link.xattr_block = 77;
    assert_true(inode_is_fast_symlink(&sb, &link));
    link.flags = INODE_INLINE_DATA;
    assert_false(inode_is_fast_symlink(&sb, &link));
    link = (struct inode_fields){.mode = 0120777, .size = 60};
    assert_false(inode_is_fast_symlink(&sb, &link));
    link = (struct inode_fields){.mode = 0100777, .size = 5};
    assert_false(inode_is_fast_symlink(&sb, &link));
}

/* In blocks of 64 KiB a record of the whole block is written as 65535 or 0. */
static void records_of_64_kib(void **state)
{
    struct superblock sb = plain;
    struct dirent_view entry;
    uint8_t *block = calloc(1, 65536);
    (void)state;
    sb.block_bytes = 65536;
    sb.block_bits = 16;
    put32(block, 12);
    block[6] = 1;
    block[7] = 2;
    block[8] = 'x';
    for (unsigned int stored = 0; stored < 65536; stored++) {
        put16(block + 4, (uint16_t)stored);
        const char *problem = dirent_read(&sb, block, 65536, 0, false, &entry);
        bool is_whole = stored == 0 || stored == 65535;
        assert_int_equal(problem == NULL, is_whole || (stored >= 12 && stored % 4 == 0));
        if (problem == NULL) {
            assert_int_equal(entry.record_bytes, is_whole ? 65536 : stored);
            assert_int_equal(entry.type, DT_DIR);
        }
        /* An area that begins later has no room for such a record. */
        assert_true(dirent_read(&sb, block, 65532, 0, false, &entry) != NULL || !is_whole);
    }
    sb.block_bytes = 4096;
    put16(block + 4, 65535);
    assert_non_null(dirent_read(&sb, block, 4096, 0, false, &entry));
    put16(block + 4, 0);
    assert_non_null(dirent_read(&sb, block, 4096, 0, false, &entry));
    free(block);
}

static void stored_hashes_are_read(void **state)
{
    uint8_t area[24] = {12, 0, 0, 0, 24, 0, 3, 1, 'a', 'b', 'c', 0, 1, 2, 3, 4, 5, 6, 7, 8};
    struct dirent_view entry;
    (void)state;
    assert_null(dirent_read(&plain, area, sizeof(area), 0, true, &entry));
    assert_true(entry.has_hash);
    assert_int_equal(entry.hash, 0x04030201);
    assert_int_equal(entry.minor_hash, 0x08070605);
    assert_null(dirent_read(&plain, area, sizeof(area), 0, false, &entry));
    assert_false(entry.has_hash);
    put16(area + 4, 16);
    assert_non_null(dirent_read(&plain, area, sizeof(area), 0, true, &entry));
    memcpy(area + 6, "\x02\x02..", 4); /* ".." has no hash */
    assert_null(dirent_read(&plain, area, sizeof(area), 0, true, &entry));
    assert_false(entry.has_hash);
}

static void extent_lengths_tell_unwritten_ones(void **state)
{
    static const struct {
        uint16_t stored;
        uint32_t length;
        bool is_unwritten;
    } table[] = {{1, 1, false},
                 {32767, 32767, false},
                 {32768, 32768, false},
                 {32769, 1, true},
                 {65535, 32767, true}};
    uint8_t node[60] = {0x0a, 0xf3, 1, 0, 4, 0};
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        put16(node + 16, table[i].stored);
        put32(node + 20, 100);
        assert_null(extent_node_check(&plain, node, sizeof(node), -1));
        struct extent extent = extent_at(node, 0);
        assert_int_equal(extent.length_blocks, table[i].length);
        assert_int_equal(extent.is_unwritten, table[i].is_unwritten);
        /* The last file block is 2^32 - 1. */
        put32(node + 12, UINT32_MAX - table[i].length + 1);
        assert_null(extent_node_check(&plain, node, sizeof(node), -1));
        put32(node + 12, UINT32_MAX - table[i].length + 2);
        assert_true(table[i].length == 1 ||
                    extent_node_check(&plain, node, sizeof(node), -1) != NULL);
        put32(node + 12, 0);
        put32(node + 20, 100000 - table[i].length + 1); /* one block past the end */
        assert_non_null(extent_node_check(&plain, node, sizeof(node), -1));
    }
    put16(node + 16, 0);
    assert_non_null(extent_node_check(&plain, node, sizeof(node), -1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_have_their_epochs),
        cmocka_unit_test(devices_have_two_encodings),
        cmocka_unit_test(wide_fields_join),
        cmocka_unit_test(unreachable_sizes_are_refused),
        cmocka_unit_test(bad_inodes_are_refused),
        cmocka_unit_test(fast_links_are_told_from_slow_ones),
        cmocka_unit_test(records_of_64_kib),
        cmocka_unit_test(stored_hashes_are_read),
        cmocka_unit_test(extent_lengths_tell_unwritten_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
