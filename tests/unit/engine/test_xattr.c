/* SPDX-License-Identifier: MIT */
/*
 * Changes of extended attributes through the public calls, on images of several shapes: a seeded
 * sequence against a model, then e2fsck, a new mount, and the kernel where it can be asked. Blocks
 * that the kernel made inodes share, and access control lists, which the kernel is given too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "uext4.h"

#define INODES    12
#define NAMES     14
#define MAX_VALUE 4200u
#define STEPS     1500
#define ROUNDS    2
#define SHARERS   8

static char folder[] = "/tmp/uext4-xattr-XXXXXX";
static char image[64];
static unsigned int seed;

struct model_value {
    bool exists;
    size_t size;
    uint8_t bytes[MAX_VALUE];
};

static struct model_value model[INODES][NAMES];

static void log_message(void *context, enum uext4_log_level level, const char *message)
{
    (void)context;
    (void)level;
    fprintf(stderr, "# log: %s\n", message);
}

static void run(const char *command)
{
    char line[2048];

    snprintf(line, sizeof(line), "cd %s && (%s) >log 2>&1 || { cat log >&2; exit 1; }", folder,
             command);
    if (system(line) != 0)
        fail_msg("failed: %s", line);
}

/* Runs a command with the image mounted by the kernel at `mnt`. False without the right to. */
static bool run_in_kernel(const char *command)
{
    char line[1536];

    if (geteuid() != 0 || access("/dev/loop-control", R_OK) != 0)
        return false;
    snprintf(line, sizeof(line),
             "mkdir -p mnt && mount -o loop,acl,user_xattr image mnt && "
             "{ (%s); result=$?; umount mnt; exit $result; }",
             command);
    run(line);
    return true;
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

/* Names of many lengths, some of the longest. */
static void name_of(unsigned int number, char name[300])
{
    static const char *const prefixes[] = {"user.", "trusted.", "security."};
    size_t length = number == 3 ? 249 : number * 3;
    int used = sprintf(name, "%s%c", prefixes[number % 3], 'a' + (int)number);

    memset(name + used, 'x', length);
    name[(size_t)used + length] = '\0';
}

static uint32_t needed_bytes(unsigned int name_number, size_t size)
{
    char name[300];

    name_of(name_number, name);
    size_t length = strlen(strchr(name, '.') + 1);
    return (uint32_t)(16 + ROUND_UP(length, 4) + ROUND_UP(size, 4));
}

/* -ENOSPC is right only if the attributes would not even fit a block that has them all. */
static void check_no_space(unsigned int inode, unsigned int number, size_t size, uint32_t block)
{
    uint32_t total = needed_bytes(number, size);

    for (unsigned int i = 0; i < NAMES; i++) {
        if (i != number && model[inode][i].exists)
            total += needed_bytes(i, model[inode][i].size);
    }
    assert_true(total + 36 > block);
}

static void step(struct uext4_inode *inode, unsigned int owner, uint32_t block_bytes)
{
    static const unsigned int bounds[] = {1, 8, 40, 200, 1000, MAX_VALUE};
    static uint8_t bytes[MAX_VALUE];
    unsigned int number = pick(NAMES);
    struct model_value *value = &model[owner][number];
    char name[300];

    name_of(number, name);
    if (pick(3) == 0) {
        assert_int_equal(uext4_removexattr(inode, name), value->exists ? 0 : -ENODATA);
        value->exists = false;
        return;
    }
    size_t size = pick(bounds[pick(ARRAY_LENGTH(bounds))]);
    int flags = (int)pick(3), expected = 0;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)rand_r(&seed);
    if (flags == UEXT4_XATTR_CREATE && value->exists)
        expected = -EEXIST;
    if (flags == UEXT4_XATTR_REPLACE && !value->exists)
        expected = -ENODATA;
    int error = uext4_setxattr(inode, name, size > 0 ? bytes : NULL, size, flags);
    if (error == -ENOSPC && expected == 0) {
        check_no_space(owner, number, size, block_bytes);
        return;
    }
    assert_int_equal(error, expected);
    if (error != 0)
        return;
    value->exists = true;
    value->size = size;
    memcpy(value->bytes, bytes, size);
}

static void path_of(unsigned int owner, char path[16])
{
    sprintf(path, "%s%u", owner % 4 == 3 ? "dir" : "file", owner);
}

static struct uext4_inode *open_owner(struct uext4 *fs, unsigned int owner)
{
    struct uext4_inode *inode;
    char path[16];

    path_of(owner, path);
    assert_int_equal(uext4_walk(fs, path, 0, &inode), 0);
    return inode;
}

static void compare(struct uext4 *fs)
{
    static uint8_t bytes[MAX_VALUE + 1];
    static char list[8192];

    for (unsigned int owner = 0; owner < INODES; owner++) {
        struct uext4_inode *inode = open_owner(fs, owner);
        ssize_t listed = 0;

        for (unsigned int i = 0; i < NAMES; i++) {
            const struct model_value *value = &model[owner][i];
            char name[300];

            name_of(i, name);
            ssize_t size = uext4_getxattr(inode, name, bytes, sizeof(bytes));
            assert_int_equal(size, value->exists ? (ssize_t)value->size : -ENODATA);
            if (size < 0)
                continue;
            assert_memory_equal(bytes, value->bytes, value->size);
            listed += (ssize_t)strlen(name) + 1;
        }
        assert_int_equal(uext4_listxattr(inode, list, sizeof(list)), listed);
        uext4_inode_put(inode);
    }
}

/* What the kernel is to find: a line for each inode and each attribute. */
static void write_expectations(void)
{
    char path[96], name[300];

    snprintf(path, sizeof(path), "%s/expected", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (unsigned int owner = 0; owner < INODES; owner++) {
        for (unsigned int i = 0; i < NAMES; i++) {
            if (!model[owner][i].exists)
                continue;
            path_of(owner, path);
            name_of(i, name);
            fprintf(file, "%s %s x", path, name);
            for (size_t byte = 0; byte < model[owner][i].size; byte++)
                fprintf(file, "%02x", model[owner][i].bytes[byte]);
            fputc('\n', file);
        }
    }
    fclose(file);
}

static const char compare_in_kernel[] =
    "import os\n"
    "want = set(tuple(line.split()) for line in open(\"expected\"))\n"
    "have = set((f, n, \"x\" + os.getxattr(\"mnt/\" + f, n).hex())\n"
    "           for f in os.listdir(\"mnt\") for n in os.listxattr(\"mnt/\" + f))\n"
    "assert want and want == have, (len(want), len(have), [x[:2] for x in want ^ have])\n";

static void make_owners(void)
{
    struct uext4 *fs = mount_image(false);
    struct uext4_inode *root;
    char path[16];

    assert_int_equal(uext4_inode_get(fs, UEXT4_ROOT_INO, &root), 0);
    for (unsigned int owner = 0; owner < INODES; owner++) {
        struct uext4_new_inode what = {.mode = S_IFREG | 0644};

        path_of(owner, path);
        if (path[0] == 'd')
            assert_int_equal(uext4_mkdir(root, path, strlen(path), &what, NULL), 0);
        else
            assert_int_equal(uext4_create(root, path, strlen(path), &what, NULL), 0);
    }
    uext4_inode_put(root);
    uext4_unmount(fs);
}

static void write_text(const char *name, const char *text)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void change_attributes(const char *mke2fs_options)
{
    struct uext4_stat stat;
    struct uext4 *fs;
    char command[256];

    memset(model, 0, sizeof(model));
    snprintf(command, sizeof(command), "rm -f image; mke2fs -q -F %s image 32M", mke2fs_options);
    run(command);
    make_owners();
    for (unsigned int round = 0; round < ROUNDS; round++) {
        fs = mount_image(false);
        for (unsigned int i = 0; i < STEPS; i++) {
            unsigned int owner = pick(INODES);
            struct uext4_inode *inode = open_owner(fs, owner);

            assert_int_equal(uext4_stat(inode, &stat), 0);
            step(inode, owner, stat.block_bytes);
            uext4_inode_put(inode);
        }
        compare(fs);
        uext4_unmount(fs);
        run("e2fsck -fn image");
        fs = mount_image(true);
        compare(fs);
        uext4_unmount(fs);
        write_expectations();
        write_text("compare.py", compare_in_kernel);
        run("cp --sparse=always image kept");
        if (!run_in_kernel("rmdir mnt/lost+found; python3 compare.py"))
            printf("# not compared with the kernel: needs root and loop devices\n");
        run("mv kept image");
    }
}

static void test_ext4(void **state)
{
    (void)state;
    change_attributes("-t ext4 -b 4096 -I 256");
}

static void test_large_inodes(void **state)
{
    (void)state;
    change_attributes("-t ext4 -b 1024 -I 512");
}

static void test_small_blocks(void **state)
{
    (void)state;
    change_attributes("-t ext4 -b 1024 -I 256 -O ^metadata_csum");
}

static void test_small_inodes(void **state)
{
    (void)state;
    change_attributes("-t ext4 -I 128 -b 4096");
}

static void test_ext2(void **state)
{
    (void)state;
    change_attributes("-t ext2 -b 1024 -I 128");
}

static void test_without_feature(void **state)
{
    (void)state;
    change_attributes("-t ext3 -b 4096 -O ^ext_attr");
}

static void test_bigalloc(void **state)
{
    (void)state;
    change_attributes("-t ext4 -b 4096 -O bigalloc -C 16384");
}

/* ---- Errors --------------------------------------------------------------------------------- */

static void test_errors(void **state)
{
    static char name[400], value[70000];
    struct uext4_new_inode what = {.mode = S_IFREG | 0644};
    struct uext4_inode *root, *file;
    struct uext4 *fs;

    (void)state;
    run("rm -f image; mke2fs -q -F -t ext4 -I 128 -b 1024 -m 0 image 8M");
    fs = mount_image(false);
    assert_int_equal(uext4_inode_get(fs, UEXT4_ROOT_INO, &root), 0);
    assert_int_equal(uext4_create(root, "file", 4, &what, &file), 0);
    memset(name, 'n', sizeof(name) - 1);
    memcpy(name, "user.", 5);
    name[256] = '\0';
    assert_int_equal(uext4_setxattr(file, name, "v", 1, 0), -ERANGE);
    name[255] = '\0';
    assert_int_equal(uext4_setxattr(file, name, "v", 1, 0), 0);
    assert_int_equal(uext4_removexattr(file, name), 0);
    assert_int_equal(uext4_removexattr(file, name), -ENODATA);
    assert_int_equal(uext4_setxattr(file, "user.a", value, 65537, 0), -E2BIG);
    assert_int_equal(uext4_setxattr(file, "user.a", value, 65536, 0), -ENOSPC);
    assert_int_equal(uext4_setxattr(file, "user.a", value, 1, 4), -EINVAL);
    assert_int_equal(uext4_setxattr(file, "system.data", value, 1, 0), -EOPNOTSUPP);
    assert_int_equal(uext4_setxattr(file, "other.a", value, 1, 0), -EOPNOTSUPP);
    assert_int_equal(uext4_removexattr(file, "system.data"), -EOPNOTSUPP);

    /* A full disk: no block for the attribute; one that has a block can still change. */
    assert_int_equal(uext4_setxattr(root, "user.a", "old", 3, 0), 0);
    uint64_t offset = 0;
    ssize_t count;
    while ((count = uext4_write(file, value, sizeof(value), offset)) > 0)
        offset += (uint64_t)count;
    assert_int_equal(count, -ENOSPC);
    while (uext4_write(file, value, 1024, offset) == 1024)
        offset += 1024;
    assert_int_equal(uext4_setxattr(file, "user.a", "new", 3, 0), -ENOSPC);
    assert_int_equal(uext4_setxattr(root, "user.a", "newer", 5, 0), 0);
    assert_int_equal(uext4_getxattr(file, "user.a", value, sizeof(value)), -ENODATA);
    assert_int_equal(uext4_getxattr(root, "user.a", value, sizeof(value)), 5);
    /* What is freed serves again. */
    assert_int_equal(uext4_removexattr(root, "user.a"), 0);
    assert_int_equal(uext4_setxattr(file, "user.a", "new", 3, 0), 0);
    uext4_inode_put(file);
    uext4_inode_put(root);
    uext4_unmount(fs);
    run("e2fsck -fn image");
    fs = mount_image(true);
    assert_int_equal(uext4_walk(fs, "file", 0, &file), 0);
    assert_int_equal(uext4_setxattr(file, "user.a", "v", 1, 0), -EROFS);
    assert_int_equal(uext4_removexattr(file, "user.a"), -EROFS);
    uext4_inode_put(file);
    uext4_unmount(fs);
}

/* ---- Shared blocks -------------------------------------------------------------------------- */

static const char share_in_kernel[] = "import os\n"
                                      "for i in range(8):\n"
                                      "    name = f\"mnt/sharer{i}\"\n"
                                      "    open(name, \"w\").close()\n"
                                      "    os.setxattr(name, \"user.one\", b\"1\" * 40)\n"
                                      "    os.setxattr(name, \"user.two\", b\"2\" * 300)\n";

struct sharer {
    struct uext4_inode *inode;
    unsigned int number;
    int error;
};

/* Changes the attributes of one inode of those that share a block. */
static void *change_shared(void *context)
{
    struct sharer *sharer = context;
    char value[512];

    memset(value, 'a' + (int)sharer->number, sizeof(value));
    switch (sharer->number % 4) {
    case 0:
        for (unsigned int i = 0; i < 50 && sharer->error == 0; i++)
            sharer->error = uext4_setxattr(sharer->inode, "user.one", value, 10 * i % 400, 0);
        break;
    case 1:
        sharer->error = uext4_removexattr(sharer->inode, "user.one");
        if (sharer->error == 0)
            sharer->error = uext4_removexattr(sharer->inode, "user.two");
        break;
    case 2:
        sharer->error = uext4_setxattr(sharer->inode, "user.three", value, 100, 0);
        break;
    default: /* keeps what it has */
        for (unsigned int i = 0; i < 50 && sharer->error == 0; i++) {
            ssize_t size = uext4_getxattr(sharer->inode, "user.two", value, sizeof(value));
            sharer->error = size == 300 && value[299] == '2' ? 0 : -EUCLEAN;
        }
        break;
    }
    return NULL;
}

static void check_sharer(struct uext4_inode *inode, unsigned int number)
{
    char value[512], names[64];
    ssize_t one = uext4_getxattr(inode, "user.one", value, sizeof(value));
    ssize_t two = uext4_getxattr(inode, "user.two", value, sizeof(value));
    ssize_t three = uext4_getxattr(inode, "user.three", value, sizeof(value));

    assert_int_equal(one, number % 4 == 0 ? 90 : number % 4 == 1 ? -ENODATA : 40);
    assert_int_equal(two, number % 4 == 1 ? -ENODATA : 300);
    assert_int_equal(three, number % 4 == 2 ? 100 : -ENODATA);
    assert_true(uext4_listxattr(inode, names, sizeof(names)) >= 0);
}

static void test_shared_block(void **state)
{
    struct sharer sharers[SHARERS];
    pthread_t threads[SHARERS];
    struct uext4_inode *root;
    struct uext4 *fs;
    char name[16];

    (void)state;
    run("rm -f image; mke2fs -q -F -t ext4 -I 128 -b 1024 image 32M");
    write_text("share.py", share_in_kernel);
    if (!run_in_kernel("python3 share.py")) {
        printf("# needs root and loop devices\n");
        skip();
    }
    /* All of them have the same block. */
    run("for i in 0 1 2 3 4 5 6 7; do debugfs -R \"stat sharer$i\" image | grep -o 'File ACL: "
        "[1-9][0-9]*' >>blocks; done; test $(sort -u blocks | wc -l) = 1");
    fs = mount_image(false);
    for (unsigned int i = 0; i < SHARERS; i++) {
        sharers[i] = (struct sharer){.number = i};
        sprintf(name, "sharer%u", i);
        assert_int_equal(uext4_walk(fs, name, 0, &sharers[i].inode), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, change_shared, &sharers[i]), 0);
    }
    for (unsigned int i = 0; i < SHARERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(sharers[i].error, 0);
        check_sharer(sharers[i].inode, i);
        uext4_inode_put(sharers[i].inode);
    }
    uext4_unmount(fs);
    run("e2fsck -fn image");
    fs = mount_image(false);
    assert_int_equal(uext4_inode_get(fs, UEXT4_ROOT_INO, &root), 0);
    for (unsigned int i = 0; i < SHARERS; i++) {
        sprintf(name, "sharer%u", i);
        assert_int_equal(uext4_walk(fs, name, 0, &sharers[i].inode), 0);
        check_sharer(sharers[i].inode, i);
        uext4_inode_put(sharers[i].inode);
        assert_int_equal(uext4_unlink(root, name, strlen(name)), 0);
    }
    uext4_inode_put(root);
    uext4_unmount(fs);
    run("e2fsck -fn image");
}

/* ---- Access control lists ------------------------------------------------------------------- */

#define ACL_CASES 7

/* Entries as tag, permissions, id; ended by tag 0. Little-endian hosts and others alike. */
struct acl_entry {
    uint16_t tag, permissions;
    uint32_t id;
};

static const struct acl_entry acls[ACL_CASES][8] = {
    {{1, 7, ~0u}, {2, 5, 1000}, {4, 6, ~0u}, {0x10, 5, ~0u}, {0x20, 1, ~0u}},
    {{1, 6, ~0u}, {4, 4, ~0u}, {0x20, 0, ~0u}},
    {{1, 7, ~0u}, {4, 5, ~0u}, {0x10, 7, ~0u}, {0x20, 5, ~0u}},
    {{1, 7, ~0u}, {2, 7, 1}, {2, 0, 2}, {4, 7, ~0u}, {8, 6, 5}, {0x10, 6, ~0u}, {0x20, 4, ~0u}},
    {{1, 7, ~0u}, {2, 5, 1000}, {4, 6, ~0u}, {0x20, 1, ~0u}}, /* no mask */
    {{0x20, 7, ~0u}},                                         /* incomplete */
    {{0, 0, 0}},                                              /* none */
};

static size_t make_acl(unsigned int number, uint8_t acl[128])
{
    size_t size = 4;

    memcpy(acl, "\2\0\0\0", 4);
    for (const struct acl_entry *entry = acls[number]; entry->tag != 0; entry++) {
        acl[size++] = (uint8_t)entry->tag;
        acl[size++] = 0;
        acl[size++] = (uint8_t)entry->permissions;
        acl[size++] = 0;
        for (unsigned int byte = 0; byte < 4; byte++)
            acl[size++] = (uint8_t)(entry->id >> 8 * byte);
    }
    return size;
}

/* The same as use_acls in ours/, with the kernel in kernels/; then everything is compared. */
static const char acls_in_kernel[] =
    "import os, sys\n"
    "os.umask(0)\n"
    "A, D = \"system.posix_acl_access\", \"system.posix_acl_default\"\n"
    "def call(f, *arguments):\n"
    "    try:\n"
    "        f(*arguments)\n"
    "        return 0\n"
    "    except OSError as e:\n"
    "        return -e.errno\n"
    "results = []\n"
    "for i, line in enumerate(open(\"acls\")):\n"
    "    acl = bytes.fromhex(line.strip())\n"
    "    path = f\"mnt/kernels/{i}\"\n"
    "    os.mkdir(path, 0o755)\n"
    "    os.close(os.open(path + \"/own\", os.O_CREAT | os.O_WRONLY, 0o640))\n"
    "    results.append(call(os.setxattr, path + \"/own\", A, acl))\n"
    "    results.append(call(os.setxattr, path + \"/own\", D, acl))\n"
    "    results.append(call(os.setxattr, path, A, acl))\n"
    "    results.append(call(os.setxattr, path, D, acl))\n"
    "    for mode in (0, 0o777, 0o751, 0o4640, 0o66):\n"
    "        os.close(os.open(f\"{path}/f{mode}\", os.O_CREAT | os.O_WRONLY, mode))\n"
    "        os.mkdir(f\"{path}/d{mode}\", mode)\n"
    "    os.symlink(\"target\", path + \"/link\")\n"
    "    os.mkfifo(path + \"/fifo\", 0o666)\n"
    "    results.append(call(os.removexattr, path, A))\n"
    "    results.append(call(os.removexattr, path, A))\n"
    "    results.append(call(os.setxattr, path + \"/d511\", D, b\"\"))\n"
    "assert results == [int(x) for x in open(\"results\")], results\n"
    "def look(top):\n"
    "    found = {}\n"
    "    for folder, dirs, files in os.walk(top):\n"
    "        for name in [\".\"] + dirs + files:\n"
    "            p = os.path.join(folder, name)\n"
    "            x = {n: os.getxattr(p, n, follow_symlinks=False)\n"
    "                 for n in os.listxattr(p, follow_symlinks=False)}\n"
    "            found[os.path.relpath(p, top)] = (oct(os.lstat(p).st_mode), x)\n"
    "    return found\n"
    "ours, kernels = look(\"mnt/ours\"), look(\"mnt/kernels\")\n"
    "for p in sorted(set(ours) | set(kernels)):\n"
    "    if ours.get(p) != kernels.get(p):\n"
    "        print(p, ours.get(p), kernels.get(p))\n"
    "assert ours == kernels and len(ours) > 80\n";

static void use_acls(struct uext4_inode *ours, unsigned int number, FILE *results)
{
    static const char access[] = "system.posix_acl_access", def[] = "system.posix_acl_default";
    static const uint32_t modes[] = {0, 0777, 0751, 04640, 066};
    struct uext4_new_inode what = {.mode = 0755}, file = {.mode = S_IFREG | 0640};
    struct uext4_inode *dir, *own, *sub;
    uint8_t acl[128];
    size_t size = make_acl(number, acl);
    char name[16];

    sprintf(name, "%u", number);
    assert_int_equal(uext4_mkdir(ours, name, 1, &what, &dir), 0);
    assert_int_equal(uext4_create(dir, "own", 3, &file, &own), 0);
    fprintf(results, "%d\n", uext4_setxattr(own, access, acl, size, 0));
    fprintf(results, "%d\n", uext4_setxattr(own, def, acl, size, 0));
    fprintf(results, "%d\n", uext4_setxattr(dir, access, acl, size, 0));
    fprintf(results, "%d\n", uext4_setxattr(dir, def, acl, size, 0));
    for (unsigned int i = 0; i < ARRAY_LENGTH(modes); i++) {
        /* The kernel drops setuid bits of mkdir before the file system sees them. */
        what.mode = modes[i] & 01777;
        file.mode = S_IFREG | modes[i];
        int length = sprintf(name, "f%u", modes[i]);
        assert_int_equal(uext4_create(dir, name, (size_t)length, &file, NULL), 0);
        name[0] = 'd';
        assert_int_equal(uext4_mkdir(dir, name, (size_t)length, &what, NULL), 0);
    }
    assert_int_equal(uext4_symlink(dir, "link", 4, "target", 6, &what, &sub), 0);
    assert_int_equal(uext4_setxattr(sub, access, acl, size, 0), -EOPNOTSUPP);
    uext4_inode_put(sub);
    file.mode = S_IFIFO | 0666;
    assert_int_equal(uext4_create(dir, "fifo", 4, &file, NULL), 0);
    fprintf(results, "%d\n", uext4_removexattr(dir, access));
    fprintf(results, "%d\n", uext4_removexattr(dir, access));
    assert_int_equal(uext4_lookup(dir, "d511", 4, &sub), 0);
    fprintf(results, "%d\n", uext4_setxattr(sub, def, NULL, 0, 0));
    uext4_inode_put(sub);
    uext4_inode_put(own);
    uext4_inode_put(dir);
}

static void change_acls(const char *mke2fs_options)
{
    struct uext4_new_inode what = {.mode = 0755};
    struct uext4_inode *root, *ours;
    char path[96];
    struct uext4 *fs;

    snprintf(path, sizeof(path), "rm -f image; mke2fs -q -F %s image 32M", mke2fs_options);
    run(path);
    snprintf(path, sizeof(path), "%s/results", folder);
    FILE *results = fopen(path, "w");
    snprintf(path, sizeof(path), "%s/acls", folder);
    FILE *lists = fopen(path, "w");
    assert_non_null(results);
    assert_non_null(lists);
    fs = mount_image(false);
    assert_int_equal(uext4_inode_get(fs, UEXT4_ROOT_INO, &root), 0);
    assert_int_equal(uext4_mkdir(root, "kernels", 7, &what, NULL), 0);
    assert_int_equal(uext4_mkdir(root, "ours", 4, &what, &ours), 0);
    for (unsigned int i = 0; i < ACL_CASES; i++) {
        uint8_t acl[128];
        size_t size = make_acl(i, acl);

        for (size_t byte = 0; byte < size; byte++)
            fprintf(lists, "%02x", acl[byte]);
        fputc('\n', lists);
        use_acls(ours, i, results);
    }
    fclose(lists);
    fclose(results);
    uext4_inode_put(ours);
    uext4_inode_put(root);
    uext4_unmount(fs);
    run("e2fsck -fn image");
    write_text("acls.py", acls_in_kernel);
    if (!run_in_kernel("python3 acls.py")) {
        printf("# not compared with the kernel: needs root and loop devices\n");
        skip();
    }
}

static void test_acls(void **state)
{
    (void)state;
    change_acls("-t ext4 -I 256");
}

static void test_acls_in_blocks(void **state)
{
    (void)state;
    change_acls("-t ext4 -I 128");
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
    snprintf(command, sizeof(command), "rm -r --one-file-system %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ext4),           cmocka_unit_test(test_large_inodes),
        cmocka_unit_test(test_small_blocks),   cmocka_unit_test(test_small_inodes),
        cmocka_unit_test(test_ext2),           cmocka_unit_test(test_without_feature),
        cmocka_unit_test(test_bigalloc),       cmocka_unit_test(test_errors),
        cmocka_unit_test(test_shared_block),   cmocka_unit_test(test_acls),
        cmocka_unit_test(test_acls_in_blocks),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
