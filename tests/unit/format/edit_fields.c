/* SPDX-License-Identifier: MIT */
/*
 * Inodes, group descriptors and superblocks of random values: what is written reads back the same,
 * bytes that are not known stay, and what cannot be held is clamped or refused. UEXT4_TEST_SEED
 * repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/group.h"
#include "format/inode.h"
#include "random.h"

#define ROUNDS 20000

static struct timespec draw_time(void)
{
    return (struct timespec){.tv_sec = (int64_t)(draw64() >> 30) - INT32_MAX - 1,
                             .tv_nsec = draw(1000000000)};
}

static struct inode_fields draw_inode(const struct superblock *sb)
{
    static const uint32_t types[] = {S_IFREG, S_IFDIR,  S_IFLNK, S_IFCHR,
                                     S_IFBLK, S_IFSOCK, S_IFIFO};
    struct inode_fields inode = {
        .mode = types[draw(7)] | draw(010000),
        .uid = draw(UINT32_MAX),
        .gid = draw(UINT32_MAX),
        .link_count = 1 + draw(65535),
        .flags = (draw(UINT32_MAX) | INODE_EXTENTS) & ~(uint32_t)INODE_HUGE_FILE,
        .generation = draw(UINT32_MAX),
        .project_id = draw(UINT32_MAX),
        .deletion_time = draw(UINT32_MAX),
        .size = draw64() >> (22 + draw(40)),
        .allocated_sectors = draw64() >> (17 + draw(40)),
        .version = draw64(),
        .xattr_block = draw(2) ? 2 + draw(1000000000) : 0,
        .extra_isize = 4 * draw(sb->inode_bytes == 128 ? 1 : (sb->inode_bytes - 128) / 4),
        .access_time = draw_time(),
        .modify_time = draw_time(),
        .change_time = draw_time(),
        .birth_time = draw_time(),
    };
    draw_bytes(inode.block, sizeof(inode.block));
    if (S_ISCHR(inode.mode) || S_ISBLK(inode.mode)) {
        inode.rdev_major = draw(draw(2) ? 256 : 4096);
        inode.rdev_minor = 1 + draw(draw(2) ? 255 : (1 << 20) - 1);
    }
    return inode;
}

/* What the fields become if they do not fit. */
static struct inode_fields expected_of(const struct superblock *sb, struct inode_fields inode)
{
    uint32_t extra = inode.extra_isize;
    bool has_times = extra >= 16;

    inode.change_time = inode_clamp_time(extra >= 8 ? 32 : 0, inode.change_time);
    inode.modify_time = inode_clamp_time(extra >= 12 ? 32 : 0, inode.modify_time);
    inode.access_time = inode_clamp_time(has_times ? 32 : 0, inode.access_time);
    inode.birth_time = extra >= 20 ? inode_clamp_time(extra >= 24 ? 32 : 0, inode.birth_time)
                                   : (struct timespec){0};
    if (extra < 28)
        inode.version = (uint32_t)inode.version;
    if (extra < 32 || !superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_PROJECT))
        inode.project_id = 0;
    if (!S_ISREG(inode.mode) &&
        !(S_ISDIR(inode.mode) && superblock_has_incompat(sb, FEATURE_INCOMPAT_LARGEDIR)))
        inode.size = (uint32_t)inode.size;
    if (!superblock_has_incompat(sb, FEATURE_INCOMPAT_64BIT))
        inode.xattr_block = (uint32_t)inode.xattr_block;
    return inode;
}

static void expect_times(struct timespec a, struct timespec b)
{
    assert_true(a.tv_sec == b.tv_sec);
    assert_int_equal(a.tv_nsec, b.tv_nsec);
}

static void expect_inode(const struct inode_fields *a, const struct inode_fields *b)
{
    assert_int_equal(a->mode, b->mode);
    assert_true(a->uid == b->uid && a->gid == b->gid && a->project_id == b->project_id);
    assert_int_equal(a->link_count, b->link_count);
    assert_int_equal(a->flags & ~(uint32_t)INODE_HUGE_FILE, b->flags & ~(uint32_t)INODE_HUGE_FILE);
    assert_true(a->generation == b->generation && a->deletion_time == b->deletion_time);
    assert_true(a->size == b->size && a->version == b->version);
    assert_true(a->allocated_sectors == b->allocated_sectors);
    assert_true(a->xattr_block == b->xattr_block && a->extra_isize == b->extra_isize);
    expect_times(a->access_time, b->access_time);
    expect_times(a->modify_time, b->modify_time);
    expect_times(a->change_time, b->change_time);
    expect_times(a->birth_time, b->birth_time);
    assert_true(a->rdev_major == b->rdev_major && a->rdev_minor == b->rdev_minor);
    if (!S_ISCHR(a->mode) && !S_ISBLK(a->mode))
        assert_memory_equal(a->block, b->block, sizeof(a->block));
}

static void inodes_read_back_the_same(void **state)
{
    unsigned int too_large = 0, huge = 0;
    (void)state;
    for (unsigned int i = 0; i < ROUNDS; i++) {
        struct superblock sb = draw_superblock();
        struct inode_fields parsed, inode = draw_inode(&sb);
        uint8_t *raw = malloc(sb.inode_bytes), before[1024];
        bool has_huge = draw(3) > 0;
        if (!has_huge)
            sb.ro_compat &= ~(uint32_t)FEATURE_RO_COMPAT_HUGE_FILE;
        if (draw(4) == 0)
            sb.ro_compat &= ~(uint32_t)FEATURE_RO_COMPAT_PROJECT;
        /* Beyond 48 bits only whole blocks can be counted. */
        if (draw(8) == 0)
            inode.allocated_sectors = (draw64() >> 16) * (sb.block_bytes / 512);
        uint64_t most = has_huge ? (((uint64_t)1 << 48) - 1) * (sb.block_bytes / 512) : UINT32_MAX;
        draw_bytes(raw, sb.inode_bytes);
        memcpy(before, raw, sb.inode_bytes);
        int result = inode_format(&sb, 17, &inode, raw);
        if (inode.allocated_sectors > most) {
            assert_int_equal(result, -EFBIG);
            assert_memory_equal(raw, before, sb.inode_bytes);
            too_large++;
            free(raw);
            continue;
        }
        assert_int_equal(result, 0);
        const char *problem = inode_parse(&sb, raw, &parsed);
        if (problem != NULL)
            fail_msg("%s", problem);
        inode = expected_of(&sb, inode);
        expect_inode(&parsed, &inode);
        assert_true(inode_checksum_matches(&sb, 17, raw));
        assert_true(!sb.has_metadata_csum || !inode_checksum_matches(&sb, 18, raw));
        /* Attributes and the fields behind the extra size are others' business. */
        uint32_t known = MAX(128 + MIN(inode.extra_isize, 32), 130);
        if (sb.inode_bytes > known)
            assert_memory_equal(raw + known, before + known, sb.inode_bytes - known);
        huge += (parsed.flags & INODE_HUGE_FILE) != 0;
        free(raw);
    }
    assert_true(too_large > 100 && huge > 10);
}

static void times_are_clamped(void **state)
{
    static const struct {
        uint32_t extra;
        int64_t given, held;
        bool keeps_nanoseconds;
    } table[] = {
        {32, 0x37fffffff, 0x37fffffff, true},     {32, 0x380000000, 0x37fffffff, false},
        {32, -0x80000000LL, -0x80000000LL, true}, {32, -0x80000001LL, -0x80000000LL, false},
        {0, 0x7fffffff, 0x7fffffff, false},       {0, 0x80000000, 0x7fffffff, false},
        {0, -0x80000001LL, -0x80000000LL, false}, {32, INT64_MAX, 0x37fffffff, false},
        {32, INT64_MIN, -0x80000000LL, false},    {12, 0x80000000, 0x7fffffff, false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        struct timespec given = {.tv_sec = table[i].given, .tv_nsec = 5};
        struct timespec held = inode_clamp_time(table[i].extra, given);
        assert_true(held.tv_sec == table[i].held);
        assert_int_equal(held.tv_nsec, table[i].keeps_nanoseconds ? 5 : 0);
    }
}

/* The largest sizes of Documentation/filesystems/ext4/blocks.rst and super.rst. */
static void sizes_have_their_limits(void **state)
{
    struct superblock sb = draw_superblock();
    (void)state;
    sb.block_bytes = 4096;
    sb.block_bits = 12;
    assert_true(inode_max_size(&sb, true) == (uint64_t)UINT32_MAX << 12);
    uint64_t reach = (12 + 1024 + 1024 * 1024 + 1024ull * 1024 * 1024) << 12;
    assert_true(inode_max_size(&sb, false) == reach);
    sb.ro_compat &= ~(uint32_t)FEATURE_RO_COMPAT_HUGE_FILE;
    assert_true(inode_max_size(&sb, true) == (uint64_t)(UINT32_MAX / 8) << 12);
    uint64_t size = inode_max_size(&sb, false), blocks = size >> 12;
    /* With all blocks of its map, the count still has 32 bits. */
    assert_true((blocks + blocks / 1024 + blocks / 1024 / 1024 + 4) * 8 <= UINT32_MAX);
    sb.block_bytes = 1024;
    sb.block_bits = 10;
    reach = (12 + 256 + 256ull * 256 + 256 * 256 * 256) << 10;
    assert_true(inode_max_size(&sb, false) == reach);
}

static void new_inodes_are_empty(void **state)
{
    (void)state;
    for (unsigned int i = 0; i < 100; i++) {
        struct superblock sb = draw_superblock();
        struct inode_fields parsed;
        uint8_t *raw = malloc(sb.inode_bytes);
        draw_bytes(raw, sb.inode_bytes);
        uint32_t extra = inode_init_raw(&sb, raw);
        assert_int_equal(extra, sb.want_extra_isize);
        assert_null(inode_parse(&sb, raw, &parsed));
        assert_int_equal(parsed.extra_isize, extra);
        assert_int_equal(parsed.mode, 0);
        free(raw);
    }
}

static void descriptors_read_back_the_same(void **state)
{
    (void)state;
    for (unsigned int i = 0; i < ROUNDS; i++) {
        struct superblock sb = draw_superblock();
        struct group_descriptor parsed;
        uint8_t raw[128], before[128];
        sb.block_count = (uint64_t)1 << 31;
        sb.descriptor_bytes = 32u << draw(3);
        sb.has_gdt_csum = !sb.has_metadata_csum && draw(2);
        uint32_t mask = sb.descriptor_bytes == 32 ? 0xffff : UINT32_MAX;
        struct group_descriptor descriptor = {
            .block_bitmap = 2 + draw(1u << 30),
            .inode_bitmap = 2 + draw(1u << 30),
            .inode_table = 2 + draw(1u << 30),
            .free_clusters = draw(8193),
            .free_inodes = draw(257),
            .used_directories = draw(257),
            .unused_inodes = draw(257),
            .block_bitmap_checksum = draw(UINT32_MAX) & mask,
            .inode_bitmap_checksum = draw(UINT32_MAX) & mask,
            .flags = (uint16_t)draw(8),
        };
        draw_bytes(raw, sizeof(raw));
        memcpy(before, raw, sizeof(raw));
        group_descriptor_format(&sb, 7, &descriptor, raw);
        assert_null(group_descriptor_parse(&sb, 7, raw, &parsed));
        if (!sb.has_metadata_csum && !sb.has_gdt_csum) {
            assert_memory_equal(raw + 0x1c, before + 0x1c, 4);
            descriptor.flags = 0;
            descriptor.unused_inodes = 0;
        }
        assert_true(parsed.block_bitmap == descriptor.block_bitmap &&
                    parsed.inode_bitmap == descriptor.inode_bitmap &&
                    parsed.inode_table == descriptor.inode_table);
        assert_int_equal(parsed.free_clusters, descriptor.free_clusters);
        assert_int_equal(parsed.free_inodes, descriptor.free_inodes);
        assert_int_equal(parsed.used_directories, descriptor.used_directories);
        assert_int_equal(parsed.unused_inodes, descriptor.unused_inodes);
        assert_int_equal(parsed.block_bitmap_checksum, descriptor.block_bitmap_checksum);
        assert_int_equal(parsed.inode_bitmap_checksum, descriptor.inode_bitmap_checksum);
        assert_int_equal(parsed.flags, descriptor.flags);
        assert_true(group_descriptor_checksum_matches(&sb, 7, raw));
        if (sb.has_gdt_csum)
            assert_false(group_descriptor_checksum_matches(&sb, 8, raw));
        size_t known = MIN(sb.descriptor_bytes, 64);
        assert_memory_equal(raw + known, before + known, sizeof(raw) - known);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inodes_read_back_the_same),      cmocka_unit_test(times_are_clamped),
        cmocka_unit_test(sizes_have_their_limits),        cmocka_unit_test(new_inodes_are_empty),
        cmocka_unit_test(descriptors_read_back_the_same),
    };
    start_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
