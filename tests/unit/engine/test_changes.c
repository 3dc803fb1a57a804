/* SPDX-License-Identifier: MIT */
/*
 * Changes through the public calls, on images of several shapes: a seeded sequence of operations
 * against a small model, then e2fsck and a look with fresh eyes.
 */
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

#define FILES     40
#define MAX_BYTES 200000u
#define STEPS     1500

static char folder[] = "/tmp/uext4-changes-XXXXXX";
static char image[64];
static unsigned int seed;

/* What a file of the model holds. */
struct model_file {
    bool exists;
    uint64_t size;
    uint8_t data[MAX_BYTES];
};

static struct model_file files[FILES];

static void log_message(void *context, enum uext4_log_level level, const char *message)
{
    (void)context;
    (void)level;
    fprintf(stderr, "# log: %s\n", message);
}

static void run(const char *command)
{
    char line[1024];

    snprintf(line, sizeof(line), "cd %s && (%s) >log 2>&1 || { cat log >&2; exit 1; }", folder,
             command);
    if (system(line) != 0)
        fail_msg("failed: %s", line);
}

static struct uext4 *mount_image(bool is_read_only)
{
    struct uext4_mount_options options;
    struct uext4 *fs;

    uext4_mount_options_init(&options);
    options.is_read_only = is_read_only;
    options.log = log_message;
    int error = uext4_mount(image, &options, &fs);
    if (error != 0)
        fail_msg("mount: %s", strerror(-error));
    return fs;
}

static unsigned int pick(unsigned int bound)
{
    return (unsigned int)rand_r(&seed) % bound;
}

static size_t name_of(unsigned int number, char name[32])
{
    return (size_t)sprintf(name, "file-%u", number);
}

static void step(struct uext4_inode *root, unsigned int number)
{
    static uint8_t buffer[MAX_BYTES];
    struct uext4_new_inode what = {.mode = S_IFREG | 0644};
    struct model_file *file = &files[number];
    struct uext4_inode *inode;
    char name[32];
    size_t length = name_of(number, name);

    if (!file->exists) {
        assert_int_equal(uext4_create(root, name, length, &what, NULL), 0);
        file->exists = true;
        file->size = 0;
        return;
    }
    assert_int_equal(uext4_lookup(root, name, length, &inode), 0);
    switch (pick(8)) {
    case 0:
        assert_int_equal(uext4_unlink(root, name, length), 0);
        file->exists = false;
        break;
    case 1: {
        uint64_t size = pick(MAX_BYTES);

        assert_int_equal(uext4_truncate(inode, size), 0);
        if (size > file->size)
            memset(file->data + file->size, 0, size - file->size);
        file->size = size;
        break;
    }
    case 2:
        assert_int_equal(uext4_fsync(inode, pick(2) == 0), 0);
        break;
    default: {
        uint64_t offset = pick(3) == 0 ? file->size : pick(MAX_BYTES - 1);
        size_t count = 1 + pick(pick(3) == 0 ? 60000 : 5000);

        offset = MIN(offset, MAX_BYTES - 1);
        count = MIN(count, MAX_BYTES - offset);
        for (size_t i = 0; i < count; i++)
            buffer[i] = (uint8_t)rand_r(&seed);
        assert_int_equal(uext4_write(inode, buffer, count, offset), count);
        if (offset > file->size)
            memset(file->data + file->size, 0, offset - file->size);
        memcpy(file->data + offset, buffer, count);
        file->size = MAX(file->size, offset + count);
        break;
    }
    }
    uext4_inode_put(inode);
}

static void compare(struct uext4 *fs)
{
    static uint8_t buffer[MAX_BYTES + 1];

    for (unsigned int i = 0; i < FILES; i++) {
        struct uext4_inode *inode;
        char name[32];

        name_of(i, name);
        int error = uext4_walk(fs, name, 0, &inode);
        assert_int_equal(error, files[i].exists ? 0 : -ENOENT);
        if (error != 0)
            continue;
        assert_int_equal(uext4_read(inode, buffer, sizeof(buffer), 0), files[i].size);
        assert_memory_equal(buffer, files[i].data, files[i].size);
        uext4_inode_put(inode);
    }
}

static void change_files(const char *mke2fs_options)
{
    char command[256];
    struct uext4_inode *root;
    struct uext4 *fs;

    memset(files, 0, sizeof(files));
    snprintf(command, sizeof(command), "rm -f image; mke2fs -q -F %s image 64M", mke2fs_options);
    run(command);
    for (unsigned int round = 0; round < 3; round++) {
        fs = mount_image(false);
        assert_int_equal(uext4_inode_get(fs, UEXT4_ROOT_INO, &root), 0);
        for (unsigned int i = 0; i < STEPS; i++)
            step(root, pick(FILES));
        compare(fs);
        uext4_inode_put(root);
        uext4_unmount(fs);
        run("e2fsck -fn image");
        fs = mount_image(true);
        compare(fs);
        uext4_unmount(fs);
    }
}

static void test_ext4(void **state)
{
    (void)state;
    change_files("-t ext4 -b 4096");
}

static void test_ext4_small_blocks(void **state)
{
    (void)state;
    change_files("-t ext4 -b 1024");
}

static void test_ext3(void **state)
{
    (void)state;
    change_files("-t ext3 -b 1024");
}

static void test_ext2(void **state)
{
    (void)state;
    change_files("-t ext2 -b 4096");
}

static void test_small_inodes(void **state)
{
    (void)state;
    change_files("-t ext4 -I 128 -O ^metadata_csum,^64bit");
}

static void test_bigalloc(void **state)
{
    (void)state;
    change_files("-t ext4 -b 4096 -O bigalloc -C 16384");
}

/* Names: a tree is made, moved and removed again. */
static void test_names(void **state)
{
    struct uext4_new_inode what = {.mode = 0755};
    struct uext4_inode *root, *dir, *sub, *link;
    struct uext4 *fs;
    char name[64];

    (void)state;
    run("rm -f image; mke2fs -q -F -t ext4 -b 1024 image 64M");
    fs = mount_image(false);
    assert_int_equal(uext4_inode_get(fs, UEXT4_ROOT_INO, &root), 0);
    assert_int_equal(uext4_mkdir(root, "dir", 3, &what, &dir), 0);
    assert_int_equal(uext4_mkdir(root, "dir", 3, &what, NULL), -EEXIST);
    for (unsigned int i = 0; i < 3000; i++) {
        struct uext4_new_inode file = {.mode = S_IFREG | 0600};
        size_t length = (size_t)sprintf(name, "a-rather-long-name-%u", i);

        assert_int_equal(uext4_create(dir, name, length, &file, NULL), 0);
    }
    for (unsigned int i = 0; i < 3000; i += 2) {
        size_t length = (size_t)sprintf(name, "a-rather-long-name-%u", i);

        assert_int_equal(uext4_unlink(dir, name, length), 0);
    }
    assert_int_equal(uext4_mkdir(dir, "sub", 3, &what, &sub), 0);
    assert_int_equal(uext4_symlink(sub, "short", 5, "target", 6, &what, NULL), 0);
    memset(name, 'x', sizeof(name));
    assert_int_equal(uext4_symlink(sub, "long", 4, name, sizeof(name), &what, &link), 0);
    assert_int_equal(uext4_link(link, root, "hard", 4), 0);
    assert_int_equal(uext4_link(dir, root, "no", 2), -EPERM);
    uext4_inode_put(link);
    assert_int_equal(uext4_rename(dir, "sub", 3, sub, "in", 2, 0), -EINVAL);
    assert_int_equal(uext4_rename(dir, "sub", 3, root, "moved", 5, 0), 0);
    assert_int_equal(uext4_rename(root, "moved", 5, root, "dir", 3, 0), -ENOTEMPTY);
    assert_int_equal(
        uext4_rename(root, "moved", 5, dir, "a-rather-long-name-1", 20, UEXT4_RENAME_EXCHANGE), 0);
    assert_int_equal(
        uext4_rename(dir, "a-rather-long-name-3", 20, dir, "a-rather-long-name-5", 20, 0), 0);
    assert_int_equal(uext4_rename(dir, "a-rather-long-name-7", 20, dir, "a-rather-long-name-9", 20,
                                  UEXT4_RENAME_NOREPLACE),
                     -EEXIST);
    assert_int_equal(uext4_rmdir(root, "dir", 3), -ENOTEMPTY);
    assert_int_equal(uext4_unlink(root, "dir", 3), -EISDIR);
    assert_int_equal(uext4_rmdir(root, "hard", 4), -ENOTDIR);
    uext4_inode_put(sub);
    uext4_inode_put(dir);
    uext4_inode_put(root);
    uext4_unmount(fs);
    run("e2fsck -fn image");
}

/* An inode without names lives until its last reference is put, and a crash before that frees it.
 */
static void test_unlinked_while_used(void **state)
{
    struct uext4_new_inode what = {.mode = S_IFREG | 0600};
    struct uext4_inode *root, *file;
    struct uext4 *fs;
    char text[8];

    (void)state;
    run("rm -f image copy; mke2fs -q -F -t ext4 -b 1024 image 64M");
    fs = mount_image(false);
    assert_int_equal(uext4_inode_get(fs, UEXT4_ROOT_INO, &root), 0);
    assert_int_equal(uext4_create(root, "file", 4, &what, &file), 0);
    struct uext4_statfs before, after;
    assert_int_equal(uext4_statfs(fs, &before), 0);
    assert_int_equal(uext4_write(file, "content", 7, 5000000), 7);
    assert_int_equal(uext4_statfs(fs, &after), 0);
    assert_int_equal(before.free_blocks, after.free_blocks + 1);
    assert_int_equal(uext4_unlink(root, "file", 4), 0);
    assert_int_equal(uext4_read(file, text, 7, 5000000), 7);
    assert_memory_equal(text, "content", 7);
    assert_int_equal(uext4_sync(fs), 0);
    run("cp image copy");
    uext4_inode_put(file);
    uext4_inode_put(root);
    uext4_unmount(fs);
    run("e2fsck -fn image && mv copy image");
    fs = mount_image(false);
    uext4_unmount(fs);
    run("e2fsck -fn image");
}

static int setup(void **state)
{
    const char *text = getenv("UEXT4_TEST_SEED");

    (void)state;
    seed = text != NULL ? (unsigned int)strtoul(text, NULL, 0) : 1;
    printf("# seed %u\n", seed);
    assert_non_null(mkdtemp(folder));
    snprintf(image, sizeof(image), "%s/image", folder);
    return 0;
}

static int teardown(void **state)
{
    char command[96];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ext4),         cmocka_unit_test(test_ext4_small_blocks),
        cmocka_unit_test(test_ext3),         cmocka_unit_test(test_ext2),
        cmocka_unit_test(test_small_inodes), cmocka_unit_test(test_bigalloc),
        cmocka_unit_test(test_names),        cmocka_unit_test(test_unlinked_while_used),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
