/* SPDX-License-Identifier: MIT */
/*
 * Opening costs the same whatever the size: an image of 1 TiB reads as many blocks as one of
 * 100 MiB, none of them a bitmap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/fs.h"

#define MAX_BLOCKS_TO_OPEN 64

static char folder[] = "/tmp/uext4-open-XXXXXX";

static void make_image(const char *name, const char *size)
{
    char command[256];

    snprintf(command, sizeof(command),
             "mke2fs -q -F -t ext4 -b 4096 -E nodiscard %s/%s %s >/dev/null", folder, name, size);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    make_image("small", "100M");
    make_image("large", "1T");
    return 0;
}

static int teardown(void **state)
{
    char command[256];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

/* Mounts, looks at the root, and tells how many blocks that read. */
static uint64_t blocks_to_open(const char *spec)
{
    struct uext4_mount_options options;
    struct buffer_statistics statistics;
    struct uext4_inode *root;
    struct uext4 *fs;

    uext4_mount_options_init(&options);
    assert_int_equal(uext4_mount(spec, &options, &fs), 0);
    assert_int_equal(uext4_walk(fs, "/lost+found", 0, &root), 0);
    uext4_inode_put(root);
    buffer_cache_get_statistics(fs->volume.buffers, &statistics);
    uext4_unmount(fs);
    return statistics.blocks_read;
}

static void test_size_does_not_matter(void **state)
{
    char small[64], large[64];

    (void)state;
    snprintf(small, sizeof(small), "%s/small", folder);
    snprintf(large, sizeof(large), "%s/large", folder);
    uint64_t blocks = blocks_to_open(small);
    assert_true(blocks > 0 && blocks <= MAX_BLOCKS_TO_OPEN);
    assert_true(blocks_to_open(large) <= blocks + 2);
}

/* With every bitmap of the first flexible group unreadable it opens all the same. */
static void test_no_bitmap_is_read(void **state)
{
    struct uext4_mount_options options;
    struct uext4_group first, last;
    struct uext4 *fs;
    char spec[256];

    (void)state;
    snprintf(spec, sizeof(spec), "%s/large", folder);
    uext4_mount_options_init(&options);
    assert_int_equal(uext4_mount(spec, &options, &fs), 0);
    assert_int_equal(uext4_get_group(fs, 0, &first), 0);
    assert_int_equal(uext4_get_group(fs, 15, &last), 0);
    uext4_unmount(fs);
    /* Block bitmaps, then inode bitmaps, then the inode tables. */
    assert_true(first.block_bitmap < last.inode_bitmap && last.inode_bitmap < first.inode_table);
    snprintf(spec, sizeof(spec), "fault(op=read,at=1,count=0,offset=%llu,length=%llu):%s/large",
             (unsigned long long)first.block_bitmap * 4096,
             (unsigned long long)(last.inode_bitmap + 1 - first.block_bitmap) * 4096, folder);
    assert_true(blocks_to_open(spec) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_does_not_matter),
        cmocka_unit_test(test_no_bitmap_is_read),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
