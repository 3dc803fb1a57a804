/* SPDX-License-Identifier: MIT */
/* The public calls on a small tree: walks, links, directories, reads, options, exclusion. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "uext4.h"

#define FILE_BYTES 300000u

static char folder[] = "/tmp/uext4-calls-XXXXXX";
static char image[64];
static struct uext4 *fs;

static void run(const char *command)
{
    char line[1024];

    snprintf(line, sizeof(line), "cd %s && (%s) >/dev/null", folder, command);
    if (system(line) != 0)
        fail_msg("failed: %s", line);
}

static uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)(offset * 7 + offset / 251);
}

static int setup(void **state)
{
    char path[96];
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(folder));
    run("mkdir -p tree/a/b/c && cd tree && ln -s b a/link && ln -s /a/b/c absolute && "
        "ln -s nowhere dangling && ln -s loop2 loop1 && ln -s loop1 loop2 && "
        "ln -s ../../../../../a up && for i in $(seq 500); do : > a/b/name$i; done");
    snprintf(path, sizeof(path), "%s/tree/file", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < FILE_BYTES; i++)
        fputc(byte_at(i), file);
    fclose(file);
    run("truncate -s 5G tree/sparse && printf end | dd of=tree/sparse bs=1 seek=5000000000 "
        "conv=notrunc status=none && mke2fs -q -t ext4 -b 1024 -d tree image 64M");
    snprintf(image, sizeof(image), "%s/image", folder);
    return uext4_mount(image, NULL, &fs);
}

static int teardown(void **state)
{
    char command[96];

    (void)state;
    uext4_unmount(fs);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static uint64_t ino_of(const char *path, unsigned int flags)
{
    struct uext4_inode *inode;
    int error = uext4_walk(fs, path, flags, &inode);

    if (error != 0)
        fail_msg("%s: %s", path, strerror(-error));
    uint64_t ino = uext4_inode_number(inode);
    uext4_inode_put(inode);
    return ino;
}

static int walk_error(const char *path)
{
    struct uext4_inode *inode = NULL;
    int error = uext4_walk(fs, path, 0, &inode);

    uext4_inode_put(inode);
    return error;
}

static void test_walk(void **state)
{
    (void)state;
    uint64_t c = ino_of("/a/b/c", 0);
    assert_int_equal(ino_of("/", 0), UEXT4_ROOT_INO);
    assert_int_equal(ino_of("", 0), UEXT4_ROOT_INO);
    assert_int_equal(ino_of("a//b/./c/", 0), c);
    assert_int_equal(ino_of("/a/link/c", 0), c);
    assert_int_equal(ino_of("/absolute", 0), c);
    assert_int_equal(ino_of("/absolute/..", 0), ino_of("/a/b", 0));
    assert_int_equal(ino_of("/../../a", 0), ino_of("/a", 0));
    assert_int_equal(ino_of("/up/b/c", 0), c);
    assert_true(ino_of("/absolute", UEXT4_WALK_NOFOLLOW) != c);
    assert_int_equal(ino_of("/absolute/", UEXT4_WALK_NOFOLLOW), c);
    assert_int_equal(walk_error("/dangling"), -ENOENT);
    assert_int_equal(walk_error("/loop1"), -ELOOP);
    assert_int_equal(walk_error("/file/"), -ENOTDIR);
    assert_int_equal(walk_error("/file/x"), -ENOTDIR);
    assert_int_equal(walk_error("/a/none"), -ENOENT);
}

static void test_lookup_bounds(void **state)
{
    struct uext4_inode *root, *found;
    char name[300];

    (void)state;
    memset(name, 'x', sizeof(name));
    assert_int_equal(uext4_inode_get(fs, UEXT4_ROOT_INO, &root), 0);
    assert_int_equal(uext4_lookup(root, name, 256, &found), -ENAMETOOLONG);
    assert_int_equal(uext4_lookup(root, name, 255, &found), -ENOENT);
    assert_int_equal(uext4_lookup(root, "", 0, &found), -ENOENT);
    assert_int_equal(uext4_lookup(root, ".", 1, &found), 0);
    assert_ptr_equal(found, root);
    uext4_inode_put(found);
    uext4_inode_put(root);
    assert_int_equal(uext4_inode_get(fs, 0, &root), -ENOENT);
    assert_int_equal(uext4_inode_get(fs, UINT64_MAX, &root), -ENOENT);
    assert_int_equal(uext4_inode_get(fs, 16000, &root), -ESTALE);
}

static void test_readlink(void **state)
{
    struct uext4_inode *inode;
    char target[16];

    (void)state;
    assert_int_equal(uext4_walk(fs, "/absolute", UEXT4_WALK_NOFOLLOW, &inode), 0);
    assert_int_equal(uext4_readlink(inode, target, 3), 6);
    assert_memory_equal(target, "/a/", 3);
    assert_int_equal(uext4_readlink(inode, target, sizeof(target)), 6);
    assert_memory_equal(target, "/a/b/c", 6);
    uext4_inode_put(inode);
    assert_int_equal(uext4_inode_get(fs, UEXT4_ROOT_INO, &inode), 0);
    assert_int_equal(uext4_readlink(inode, target, sizeof(target)), -EINVAL);
    uext4_inode_put(inode);
}

/* Takes a few entries at a time. */
struct taker {
    unsigned int left, taken;
    uint64_t cookie;
    uint64_t ino_sum;
};

static bool take(void *context, const struct uext4_dirent *entry)
{
    struct taker *taker = context;

    if (taker->left == 0)
        return false;
    taker->left--;
    taker->taken++;
    taker->cookie = entry->next_cookie;
    taker->ino_sum += entry->ino;
    return true;
}

static void test_readdir_in_pieces(void **state)
{
    struct taker whole = {.left = 10000}, pieces = {0};
    struct uext4_inode *dir;

    (void)state;
    assert_int_equal(uext4_walk(fs, "/a/b", 0, &dir), 0);
    assert_int_equal(uext4_readdir(dir, 0, take, &whole), 0);
    assert_int_equal(whole.taken, 503);
    for (unsigned int before = 1; pieces.taken != before;) {
        before = pieces.taken;
        pieces.left = 7;
        assert_int_equal(uext4_readdir(dir, pieces.cookie, take, &pieces), 0);
    }
    assert_int_equal(pieces.taken, whole.taken);
    assert_int_equal(pieces.ino_sum, whole.ino_sum);
    uext4_inode_put(dir);
    assert_int_equal(uext4_walk(fs, "/file", 0, &dir), 0);
    assert_int_equal(uext4_readdir(dir, 0, take, &whole), -ENOTDIR);
    uext4_inode_put(dir);
}

static void test_read_any_place(void **state)
{
    static uint8_t buffer[FILE_BYTES + 100];
    struct uext4_inode *inode;
    unsigned int seed = 1;

    (void)state;
    assert_int_equal(uext4_walk(fs, "/file", 0, &inode), 0);
    assert_int_equal(uext4_read(inode, buffer, sizeof(buffer), 0), FILE_BYTES);
    for (unsigned int i = 0; i < 2000; i++) {
        uint64_t offset = (unsigned int)rand_r(&seed) % (FILE_BYTES + 5000);
        size_t length = (unsigned int)rand_r(&seed) % (i % 3 == 0 ? 200000 : 5000);
        size_t shift = (unsigned int)rand_r(&seed) % 3 * 33;
        size_t expected = offset >= FILE_BYTES ? 0 : MIN(length, FILE_BYTES - offset);
        struct iovec iov[3] = {{buffer + shift, length / 3},
                               {buffer + shift + length / 3, 0},
                               {buffer + shift + length / 3, length - length / 3}};

        memset(buffer, 0xee, sizeof(buffer));
        assert_int_equal(uext4_readv(inode, iov, 3, offset), expected);
        for (size_t j = 0; j < expected; j++)
            if (buffer[shift + j] != byte_at(offset + j))
                fail_msg("seed 1, step %u: wrong byte at %llu", i, (unsigned long long)offset + j);
        assert_int_equal(buffer[shift + expected], 0xee);
    }
    assert_int_equal(uext4_read(inode, buffer, 10, UINT64_MAX), 0);
    assert_int_equal(uext4_readv(inode, NULL, -1, 0), -EINVAL);
    uext4_inode_put(inode);
    assert_int_equal(uext4_inode_get(fs, UEXT4_ROOT_INO, &inode), 0);
    assert_int_equal(uext4_read(inode, buffer, 10, 0), -EISDIR);
    uext4_inode_put(inode);
}

static void test_sparse(void **state)
{
    struct uext4_inode *inode;
    struct uext4_extent extent;
    char buffer[8];

    (void)state;
    assert_int_equal(uext4_walk(fs, "/sparse", 0, &inode), 0);
    int64_t data = uext4_seek_data(inode, 0);
    assert_true(data > 0 && data <= 5000000000 && data > 5000000000 - 65536);
    assert_int_equal(uext4_seek_hole(inode, 0), 0);
    assert_int_equal(uext4_seek_data(inode, UINT64_C(5) << 30), -ENXIO);
    assert_int_equal(uext4_read(inode, buffer, 5, 4999999999), 5);
    assert_memory_equal(buffer, "\0end\0", 5);
    assert_int_equal(uext4_map(inode, 0, &extent), 0);
    assert_int_equal(extent.kind, UEXT4_EXTENT_HOLE);
    assert_int_equal(extent.length, data);
    assert_int_equal(uext4_map(inode, (uint64_t)data, &extent), 0);
    assert_int_equal(extent.kind, UEXT4_EXTENT_WRITTEN);
    assert_int_equal(uext4_map(inode, extent.offset + extent.length, &extent), -ENXIO);
    uext4_inode_put(inode);
}

static void test_mount_options(void **state)
{
    struct uext4_mount_options options;
    char error[128];

    (void)state;
    uext4_mount_options_init(&options);
    assert_int_equal(uext4_mount_options_parse(
                         &options, "ro,noload,,direct=off,sb=32768,cache=64M,noatime,data=ordered",
                         error, sizeof(error)),
                     0);
    assert_true(options.skip_journal_replay);
    assert_int_equal(options.direct, UEXT4_DIRECT_OFF);
    assert_int_equal(options.superblock, 32768);
    assert_int_equal(options.metadata_cache_bytes, 64u << 20);
    static const char *const bad[] = {"direct=maybe",
                                      "cache=1X",
                                      "cache=-1",
                                      "sb",
                                      "nonsense",
                                      "ro=1",
                                      "cache=99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(uext4_mount_options_parse(&options, bad[i], error, sizeof(error)),
                         -EINVAL);
        assert_true(error[0] != '\0');
    }
    options.is_read_only = false;
    assert_int_equal(uext4_mount(image, &options, &(struct uext4 *){NULL}), -EBUSY);
}

static void test_readers_share_and_exclude_writers(void **state)
{
    struct uext4 *second;

    (void)state;
    assert_int_equal(uext4_mount(image, NULL, &second), 0);
    assert_int_equal(uext4_recover(image, NULL, NULL), -EBUSY);
    uext4_unmount(second);
    assert_int_equal(uext4_mount("/nonexistent/image", NULL, &second), -ENOENT);
    assert_int_equal(uext4_mount("/dev/null", NULL, &second), -EINVAL);
}

static void test_read_only_file(void **state)
{
    struct uext4 *second;

    (void)state;
    assert_int_equal(chmod(image, 0444), 0);
    assert_int_equal(uext4_mount(image, NULL, &second), 0);
    uext4_unmount(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_lookup_bounds),
        cmocka_unit_test(test_readlink),
        cmocka_unit_test(test_readdir_in_pieces),
        cmocka_unit_test(test_read_any_place),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_mount_options),
        cmocka_unit_test(test_readers_share_and_exclude_writers),
        cmocka_unit_test(test_read_only_file),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
