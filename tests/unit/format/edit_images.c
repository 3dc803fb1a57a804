/* SPDX-License-Identifier: MIT */
/*
 * Writing beside what others wrote. Images of mke2fs and, where a loop mount is possible, of the
 * kernel: each structure read and written again gives the same bytes, and hashes of attributes and
 * synthesised bitmaps are the ones found there. Then a file in pieces, device nodes, a directory
 * with an index, attributes and a shared attribute block are put into each image through the
 * functions of format/ alone: e2fsck has nothing to say, and debugfs shows what was meant.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "directory.h"
#include "format/bitmap.h"
#include "format/extent.h"
#include "format/inode.h"
#include "format/orphan.h"
#include "format/xattr.h"
#include "image.h"

#define NAMES_IN_INDEX 2500
#define PIECES         100
#define BIG_VALUE      700
#define FAR_SECONDS    0x2f0000000LL

static const struct shape {
    const char *name, *size, *options;
} shapes[] = {
    {"default", "64M", "-t ext4"},
    {"today", "64M", "-t ext4 -b 4096 -O orphan_file,metadata_csum_seed"},
    {"orphan-1k", "64M", "-t ext4 -b 1024 -O orphan_file"},
    {"b1024", "64M", "-t ext4 -b 1024"},
    {"b65536", "256M", "-t ext4 -b 65536"},
    {"i128", "64M", "-t ext4 -b 1024 -I 128"},
    {"i1024", "64M", "-t ext4 -b 2048 -I 1024"},
    {"bigalloc", "256M", "-t ext4 -O bigalloc -C 16384"},
    {"bigalloc-1k", "128M", "-t ext4 -b 1024 -O bigalloc -C 8192"},
    {"meta_bg", "128M", "-t ext4 -b 1024 -O meta_bg,^resize_inode -g 1024"},
    {"no-flex_bg", "64M", "-t ext4 -b 1024 -O ^flex_bg"},
    {"32bit", "64M", "-t ext4 -b 1024 -O ^64bit"},
    {"gdt_csum", "64M", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit"},
    {"gdt_csum-64bit", "64M", "-t ext4 -O ^metadata_csum,uninit_bg,64bit"},
    {"no-csum", "64M", "-t ext4 -O ^metadata_csum,^uninit_bg"},
    {"ea_inode", "64M", "-t ext4 -b 1024 -O ea_inode,large_dir"},
    {"no-huge_file", "64M", "-t ext4 -b 1024 -O ^huge_file,^extra_isize"},
    {"odd-size", "65537K", "-t ext4 -b 1024"},
    {"no-filetype", "64M", "-t ext4 -b 1024 -O ^filetype"},
};

static char folder[] = "/tmp/uext4-edit-XXXXXX";

static int run(const char *format, ...) PRINTF(1, 2);
static int run(const char *format, ...)
{
    char command[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- A small allocator ------------------------------------------------------------------------
 */

static uint8_t *open_block_bitmap(const struct image *image, uint32_t group,
                                  struct group_descriptor *descriptor)
{
    uint8_t *bitmap = image_block(image, descriptor->block_bitmap);
    if ((descriptor->flags & GROUP_BLOCK_UNINIT) != 0) {
        group_init_block_bitmap(&image->sb, group, descriptor, bitmap);
        descriptor->flags &= (uint16_t)~GROUP_BLOCK_UNINIT;
    }
    return bitmap;
}

/* Takes clusters in a run from the last group that has one, where nothing was written yet. */
static uint64_t take_blocks(struct image *image, uint32_t blocks)
{
    const struct superblock *sb = &image->sb;
    uint32_t wanted = (blocks + sb->cluster_blocks - 1) / sb->cluster_blocks;
    for (uint32_t group = sb->group_count; group-- > 0;) {
        struct group_descriptor descriptor = image_read_group(image, group);
        struct bitmap_run found;
        uint8_t *bitmap = open_block_bitmap(image, group, &descriptor);
        if (!bitmap_find_zero_run(bitmap, 0, group_cluster_count(sb, group), wanted, &found) ||
            found.to - found.from < wanted)
            continue;
        bitmap_set(bitmap, found.from, found.from + wanted);
        descriptor.free_clusters -= wanted;
        bitmap_block_set_checksum(sb, &descriptor, bitmap);
        image_write_group(image, group, &descriptor);
        image->sb.free_block_count -= (uint64_t)wanted * sb->cluster_blocks;
        uint64_t first = group_first_block(sb, group) + (uint64_t)found.from * sb->cluster_blocks;
        assert_false(group_owns_metadata(sb, group, &descriptor, first, wanted));
        memset(image_block(image, first), 0, (size_t)wanted * sb->cluster_bytes);
        return first;
    }
    fail_msg("%s: no room for %u blocks", image->name, blocks);
    return 0;
}

static uint64_t sectors_of(const struct superblock *sb, uint32_t blocks)
{
    return (uint64_t)(blocks + sb->cluster_blocks - 1) / sb->cluster_blocks * sb->cluster_bytes /
           512;
}

/* Takes an inode from the last group, whose bitmap and table were never written. */
static uint32_t take_inode(struct image *image, bool is_dir)
{
    const struct superblock *sb = &image->sb;
    uint32_t group = sb->group_count - 1;
    struct group_descriptor descriptor = image_read_group(image, group);
    uint8_t *bitmap = image_block(image, descriptor.inode_bitmap);

    if ((descriptor.flags & GROUP_INODE_UNINIT) != 0) {
        group_init_inode_bitmap(sb, bitmap);
        descriptor.flags &= (uint16_t)~GROUP_INODE_UNINIT;
        /* Not so in the kernel, but e2fsck wants the other bitmap, too. */
        bitmap_block_set_checksum(sb, &descriptor, open_block_bitmap(image, group, &descriptor));
    }
    uint32_t index = bitmap_find_zero(bitmap, 0, sb->inodes_per_group);
    assert_true(index < sb->inodes_per_group);
    bitmap_set(bitmap, index, index + 1);
    descriptor.free_inodes--;
    descriptor.used_directories += is_dir;
    descriptor.unused_inodes = MIN(descriptor.unused_inodes, sb->inodes_per_group - index - 1);
    bitmap_inode_set_checksum(sb, &descriptor, bitmap);
    image_write_group(image, group, &descriptor);
    image->sb.free_inode_count--;
    return group * sb->inodes_per_group + index + 1;
}

/* ---- New files --------------------------------------------------------------------------------
 */

static struct inode_fields new_inode(const struct image *image, uint32_t ino, uint32_t mode)
{
    struct inode_fields inode = {
        .mode = mode,
        .uid = 0x12345,
        .gid = 0x23456,
        .link_count = 1,
        .generation = 0xabcd0000 + ino,
        .extra_isize = inode_init_raw(&image->sb, image_raw_inode(image, ino)),
        .access_time = {.tv_sec = 1000000000, .tv_nsec = 1},
        .modify_time = {.tv_sec = FAR_SECONDS, .tv_nsec = 999999999},
        .change_time = {.tv_sec = -5, .tv_nsec = 7},
        .birth_time = {.tv_sec = 1500000000, .tv_nsec = 500},
    };
    if (S_ISREG(mode) || S_ISDIR(mode)) {
        inode.flags = INODE_EXTENTS;
        extent_node_init(inode.block, EXTENT_ROOT_CAPACITY, 0);
    }
    return inode;
}

static void add_extent(struct inode_fields *inode, uint32_t file_block, uint64_t disk_block,
                       uint32_t length, bool is_unwritten)
{
    struct extent extent = {file_block, length, disk_block, is_unwritten};
    extent_insert(inode->block, extent_node_header(inode->block).entry_count, &extent);
}

/* A name in the root directory, in the first block with room. */
static void add_root_name(const struct image *image, const char *name, uint32_t ino, uint8_t type)
{
    const struct superblock *sb = &image->sb;
    struct inode_fields root = image_read_inode(image, INODE_ROOT);
    uint32_t seed = inode_checksum_seed(sb, INODE_ROOT, root.generation);
    uint8_t *block = image_block(image, extent_at(root.block, 0).disk_block);
    struct dirent_view entry = {
        .ino = ino, .type = type, .name = name, .name_length = (uint8_t)strlen(name)};

    assert_int_equal(dirent_insert(sb, block, dirent_block_room(sb), false, &entry), 0);
    dirent_block_set_checksum(sb, seed, block);
    assert_true(dirent_block_checksum_matches(sb, seed, block));
    if (type == DT_DIR)
        root.link_count++;
    image_write_inode(image, INODE_ROOT, &root);
}

/* A file of many pieces: its extents fill leaves below an index, grown from a root. */
static uint32_t add_pieces(struct image *image)
{
    const struct superblock *sb = &image->sb;
    uint32_t ino = take_inode(image, false), step = 2 * sb->cluster_blocks;
    struct inode_fields inode = new_inode(image, ino, S_IFREG | 0640);
    uint32_t seed = inode_checksum_seed(sb, ino, inode.generation);
    uint64_t leaf_block = take_blocks(image, 1), second_block = take_blocks(image, 1);
    uint64_t data = take_blocks(image, PIECES * step);
    uint8_t *leaf = image_block(image, leaf_block), *second = image_block(image, second_block);

    for (uint32_t i = 0; i < EXTENT_ROOT_CAPACITY; i++)
        add_extent(&inode, i * step, data + (uint64_t)i * step, 1, i == 2);
    extent_root_push_down(sb, inode.block, leaf, leaf_block);
    uint8_t *node = leaf;
    for (uint32_t i = EXTENT_ROOT_CAPACITY; i < PIECES; i++) {
        struct extent extent = {i * step, 1, data + (uint64_t)i * step, false};
        struct extent_header header = extent_node_header(node);
        if (header.entry_count == header.entry_max || (i == PIECES / 2 && node == leaf)) {
            extent_node_init(second, extent_block_capacity(sb), 0);
            extent_move_last(node, header.entry_count / 2, second);
            struct extent_index index = {extent_at(second, 0).file_block, second_block};
            extent_index_insert(inode.block, 1, &index);
            node = second;
        }
        extent_insert(node, extent_node_header(node).entry_count, &extent);
    }
    extent_node_set_checksum(sb, seed, leaf);
    extent_node_set_checksum(sb, seed, second);
    for (uint32_t i = 0; i < PIECES; i++)
        memset(image_block(image, data + (uint64_t)i * step), 'a' + (int)(i % 26), sb->block_bytes);

    /* The clusters between the pieces belong to nobody. */
    for (uint32_t i = 0; i < PIECES; i++) {
        uint64_t unused = data + (uint64_t)i * step + sb->cluster_blocks;
        uint32_t group = (uint32_t)((unused - sb->first_data_block) / sb->blocks_per_group);
        struct group_descriptor descriptor = image_read_group(image, group);
        uint8_t *bitmap = image_block(image, descriptor.block_bitmap);
        uint32_t bit = (uint32_t)((unused - group_first_block(sb, group)) / sb->cluster_blocks);
        bitmap_clear(bitmap, bit, bit + 1);
        descriptor.free_clusters++;
        bitmap_block_set_checksum(sb, &descriptor, bitmap);
        image_write_group(image, group, &descriptor);
        image->sb.free_block_count += sb->cluster_blocks;
    }
    inode.size = ((uint64_t)(PIECES - 1) * step + 1) << sb->block_bits;
    inode.allocated_sectors = (PIECES + 2) * (uint64_t)(sb->cluster_bytes / 512);
    image_write_inode(image, ino, &inode);
    add_root_name(image, "pieces", ino, DT_REG);
    return ino;
}

static void add_device(struct image *image, const char *name, uint32_t major, uint32_t minor)
{
    uint32_t ino = take_inode(image, false);
    struct inode_fields inode = new_inode(image, ino, S_IFBLK | 0600);
    inode.rdev_major = major;
    inode.rdev_minor = minor;
    image_write_inode(image, ino, &inode);
    add_root_name(image, name, ino, DT_BLK);
}

static void make_name(char *name, size_t size, unsigned int number)
{
    snprintf(name, size, "name-%05u-%.*s", number, (int)(number * 7 % 40),
             "gr\xc3\xb6\xc3\x9f"
             "er-than-it-has-to-be-to-fill-a-block-soon");
}

/* Many names of one file in a directory that became an index. */
static void add_directory(struct image *image)
{
    const struct superblock *sb = &image->sb;
    uint32_t ino = take_inode(image, true), file_ino = take_inode(image, false);
    struct inode_fields inode = new_inode(image, ino, S_IFDIR | 0755);
    struct inode_fields file = new_inode(image, file_ino, S_IFREG | 0644);
    struct directory dir = {.sb = *sb, .seed = inode_checksum_seed(sb, ino, inode.generation)};
    char name[100];

    directory_start(&dir, 2000, ino, INODE_ROOT);
    for (unsigned int i = 0; i < NAMES_IN_INDEX; i++) {
        make_name(name, sizeof(name), i);
        struct dirent_view entry = {
            .ino = file_ino, .type = DT_REG, .name = name, .name_length = (uint8_t)strlen(name)};
        assert_int_equal(directory_add(&dir, &entry), 0);
    }
    directory_set_checksums(&dir);
    uint64_t first = take_blocks(image, dir.count);
    memcpy(image_block(image, first), dir.blocks, (size_t)dir.count * sb->block_bytes);
    free(dir.blocks);
    add_extent(&inode, 0, first, dir.count, false);
    inode.size = (uint64_t)dir.count << sb->block_bits;
    inode.allocated_sectors = sectors_of(sb, dir.count);
    inode.flags |= dir.is_indexed ? INODE_INDEXED : 0;
    inode.link_count = 2;
    image_write_inode(image, ino, &inode);
    file.link_count = NAMES_IN_INDEX;
    image_write_inode(image, file_ino, &file);
    add_root_name(image, "index", ino, DT_DIR);
}

static void set_user(const struct image *image, const struct xattr_place *place, const char *name,
                     const void *value, uint32_t length)
{
    struct xattr_new attribute = {.index = XATTR_USER,
                                  .name = name,
                                  .name_length = (uint8_t)strlen(name),
                                  .value = value,
                                  .value_bytes = length};
    assert_int_equal(xattr_set(&image->sb, place, &attribute), 0);
}

/* Attributes in the inode, and a block of them that two files share. */
static void add_attributes(struct image *image, uint32_t ino)
{
    const struct superblock *sb = &image->sb;
    uint32_t other = take_inode(image, false);
    struct inode_fields file = image_read_inode(image, ino),
                        second = new_inode(image, other, S_IFREG | 0600);
    uint64_t block = take_blocks(image, 1);
    uint8_t *bytes = image_block(image, block);
    struct xattr_place place;
    char big[BIG_VALUE];

    memset(big, 'v', sizeof(big));
    if (xattr_inode_place(sb, image_raw_inode(image, ino), file.extra_isize, &place)) {
        set_user(image, &place, "short", "value", 5);
        set_user(image, &place, "gone", "123", 3);
        set_user(image, &place,
                 "gr\xc3\xb6\xc3\x9f"
                 "e",
                 "odd", 3);
        assert_int_equal(xattr_remove(sb, &place, XATTR_USER, "gone", 4), 0);
    }
    xattr_block_init(sb, bytes);
    xattr_block_place(sb, bytes, &place);
    set_user(image, &place, "zz", "last", 4);
    set_user(image, &place, "big", big, sizeof(big));
    set_user(image, &place, "gr\xc3\xb6", "inside", 6);
    set_user(image, &place, "empty", "", 0);
    xattr_block_set_references(bytes, 2);
    xattr_block_set_checksum(sb, block, bytes);
    assert_true(xattr_block_checksum_matches(sb, block, bytes));
    file.xattr_block = second.xattr_block = block;
    file.allocated_sectors += sectors_of(sb, 1);
    second.allocated_sectors = sectors_of(sb, 1);
    image_write_inode(image, ino, &file);
    image_write_inode(image, other, &second);
    add_root_name(image, "sharing", other, DT_REG);
}

/* ---- What others say --------------------------------------------------------------------------
 */

static void expect_output(const struct image *image, const char *request, const char *expected)
{
    char command[300], output[20000];
    snprintf(command, sizeof(command), "debugfs -R '%s' %s 2>/dev/null", request, image->path);
    FILE *stream = popen(command, "r");
    assert_non_null(stream);
    size_t length = fread(output, 1, sizeof(output) - 1, stream);
    output[length] = '\0';
    pclose(stream);
    if (strstr(output, expected) == NULL)
        fail_msg("%s: %s does not say \"%s\" but: %s", image->name, request, expected, output);
}

static void expect_clean(const struct image *image)
{
    if (run("e2fsck -fn %s > %s/log 2>&1", image->path, folder) != 0) {
        run("sed 's/^/# /' %s/log | head -30", folder);
        fail_msg("%s: e2fsck finds something", image->name);
    }
}

static void compare_names(const struct image *image)
{
    char command[300], line[400], name[100];
    static bool found[NAMES_IN_INDEX];
    unsigned int number, count = 0;

    memset(found, 0, sizeof(found));
    snprintf(command, sizeof(command), "debugfs -R 'ls -p index' %s 2>/dev/null", image->path);
    FILE *stream = popen(command, "r");
    assert_non_null(stream);
    while (fgets(line, sizeof(line), stream) != NULL) {
        const char *place = strstr(line, "/name-");
        if (place == NULL || sscanf(place, "/name-%u-", &number) != 1)
            continue;
        assert_true(number < NAMES_IN_INDEX && !found[number]);
        make_name(name, sizeof(name), number);
        assert_int_equal(strncmp(place + 1, name, strlen(name)), 0);
        found[number] = true;
        count++;
    }
    pclose(stream);
    assert_int_equal(count, NAMES_IN_INDEX);
    /* A few by the index. */
    for (number = 0; number < NAMES_IN_INDEX; number += 500) {
        char request[200];
        make_name(name, sizeof(name), number);
        snprintf(request, sizeof(request), "stat index/%s", name);
        expect_output(image, request, "Links: 2500");
    }
}

static void expect_new_files(const struct image *image)
{
    const struct superblock *sb = &image->sb;
    struct stat dumped;
    char path[200];

    expect_output(image, "stat old-device", "Device major/minor number: 08:17");
    expect_output(image, "stat new-device", "Device major/minor number: 1234:456789");
    expect_output(image, "stat pieces", "User: 74565   Group: 144470");
    if (sb->inode_bytes > 128 && sb->want_extra_isize >= 28) {
        expect_output(image, "stat pieces", "mtime: 0xf0000000:ee6b27ff -- ");
        expect_output(image, "ea_get pieces user.short", "value");
        expect_output(image,
                      "ea_get pieces user.gr\xc3\xb6\xc3\x9f"
                      "e",
                      "odd");
    }
    expect_output(image, "ea_get sharing user.big", "vvvvvvvv");
    expect_output(image, "ea_get sharing user.zz", "last");
    expect_output(image, "ea_get pieces user.gr\xc3\xb6", "inside");
    compare_names(image);

    snprintf(path, sizeof(path), "%s/dump", folder);
    assert_int_equal(run("debugfs -R 'dump pieces %s' %s > /dev/null 2>&1", path, image->path), 0);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &dumped) == 0);
    uint64_t step = 2ull * sb->cluster_blocks << sb->block_bits;
    assert_int_equal(dumped.st_size, (PIECES - 1) * step + sb->block_bytes);
    for (uint32_t i = 0; i < PIECES; i++) {
        char byte;
        assert_int_equal(pread(fd, &byte, 1, (off_t)(i * step + sb->block_bytes - 1)), 1);
        assert_int_equal(byte, i == 2 ? 0 : 'a' + (int)(i % 26));
    }
    close(fd);
    unlink(path);
}

/* ---- The tests --------------------------------------------------------------------------------
 */

static void edit_image(struct image *image)
{
    uint32_t ino = add_pieces(image);
    add_device(image, "old-device", 8, 17);
    add_device(image, "new-device", 1234, 456789);
    add_directory(image);
    add_attributes(image, ino);
    image->sb.written = FAR_SECONDS;
    image->sb.mount_count++;
    snprintf(image->sb.last_mounted, sizeof(image->sb.last_mounted), "/somewhere");
    superblock_format(&image->sb, image->bytes + SUPERBLOCK_OFFSET_BYTES);
    assert_true(superblock_checksum_matches(image->bytes + SUPERBLOCK_OFFSET_BYTES));
}

static void edit_shape(void **state)
{
    const struct shape *shape = *state;
    struct image image = {.name = shape->name};

    snprintf(image.path, sizeof(image.path), "%s/%s.img", folder, shape->name);
    if (run("truncate -s %s %s && mke2fs -q -F %s %s > %s/log 2>&1 < /dev/null", shape->size,
            image.path, shape->options, image.path, folder) != 0) {
        print_message("# %s: this mke2fs cannot make it\n", shape->name);
        unlink(image.path);
        skip();
    }
    image_open(&image);
    image_compare(&image);
    edit_image(&image);
    image_compare(&image);
    image_close(&image);
    expect_clean(&image);
    expect_new_files(&image);
    unlink(image.path);
}

/* Runs commands in a mounted image; false if it cannot be mounted here. */
static bool fill_by_kernel(const char *path, bool has_value_inodes)
{
    char file[200];
    char big[3000];

    if (geteuid() != 0 || run("mkdir -p %s/mnt && mount -o loop,acl %s %s/mnt 2>/dev/null", folder,
                              path, folder) != 0)
        return false;
    memset(big, 'b', sizeof(big));
    static const uint8_t acl[] = {2, 0, 0,   0,   1,   0,   6,  0, 255, 255, 255, 255, 2,   0,  7,
                                  0, 1, 2,   0,   0,   4,   0,  4, 0,   255, 255, 255, 255, 16, 0,
                                  7, 0, 255, 255, 255, 255, 32, 0, 0,   0,   255, 255, 255, 255};
    for (unsigned int i = 0; i < 4; i++) {
        snprintf(file, sizeof(file), "%s/mnt/file-%u", folder, i);
        int fd = open(file, O_CREAT | O_RDWR, 0644);
        assert_true(fd >= 0);
        for (unsigned int k = 0; k < 30; k++)
            assert_int_equal(pwrite(fd, "x", 1, (off_t)k * 200000), 1);
        assert_int_equal(fsetxattr(fd, "user.a", "1", 1, 0), 0);
        assert_int_equal(fsetxattr(fd, "trusted.empty", "", 0, 0), 0);
        assert_int_equal(fsetxattr(fd,
                                   "user.gr\xc3\xb6\xc3\x9f"
                                   "e",
                                   big, 37, 0),
                         0);
        assert_int_equal(fsetxattr(fd, "user.big", big, i < 2 ? 300 : 300 + i, 0), 0);
        assert_int_equal(fsetxattr(fd, "system.posix_acl_access", acl, sizeof(acl), 0), 0);
        if (has_value_inodes)
            assert_int_equal(fsetxattr(fd, "user.huge", big, sizeof(big), 0), 0);
        const struct timespec times[] = {{FAR_SECONDS, 123456789}, {-1234567, 987654321}};
        assert_int_equal(futimens(fd, times), 0);
        close(fd);
    }
    int status = run("cd %s/mnt && mknod old b 8 17 && mknod new c 1234 456789 && mkfifo fifo && "
                     "ln -s target fast && ln -s $(printf '%%0150d' 7) slow && mkdir -p many && "
                     "for i in $(seq 400); do : > many/name-that-is-not-short-$i; done && "
                     "chown 100000:200000 fifo",
                     folder);
    assert_int_equal(run("umount %s/mnt", folder), 0);
    assert_int_equal(status, 0);
    return true;
}

/* The kernel's ACL is the one that acl_to_disk makes. */
static void compare_acls(const struct image *image)
{
    static const uint8_t on_disk[] = {1, 0, 0, 0, 1, 0, 6,  0, 2, 0, 7,  0, 1, 2,
                                      0, 0, 4, 0, 4, 0, 16, 0, 7, 0, 32, 0, 0, 0};
    const struct superblock *sb = &image->sb;
    uint8_t interface[100], raw[100];
    unsigned int found = 0;

    int64_t length = acl_from_disk(on_disk, sizeof(on_disk), interface, sizeof(interface));
    assert_int_equal(acl_to_disk(interface, (size_t)length, raw, sizeof(raw)), sizeof(on_disk));
    assert_memory_equal(raw, on_disk, sizeof(on_disk));
    for (uint32_t ino = sb->first_ino; ino < sb->first_ino + 100; ino++) {
        struct inode_fields inode = image_read_inode(image, ino);
        struct xattr_area areas[2];
        unsigned int count = 0;
        if (xattr_inode_area(sb, image_raw_inode(image, ino), inode.extra_isize, &areas[count]))
            count++;
        if (inode.xattr_block != 0 &&
            xattr_block_area(sb, image_block(image, inode.xattr_block), &areas[count]) == NULL)
            count++;
        while (count-- > 0) {
            struct xattr_view view = {.following = areas[count].entries};
            const char *reason;
            while (xattr_next(sb, &areas[count], view.following, &view, &reason) > 0)
                if (view.index == XATTR_ACL_ACCESS && view.value_bytes == sizeof(on_disk)) {
                    assert_memory_equal(view.value, on_disk, sizeof(on_disk));
                    found++;
                }
        }
    }
    assert_int_equal(found, 4);
}

/* The kernel finds all that was put there, by the index too, and can delete it. */
static void expect_kernel_reads(const struct image *image)
{
    char name[100];

    make_name(name, sizeof(name), NAMES_IN_INDEX / 2);
    assert_int_equal(run("mount -o loop,acl %s %s/mnt", image->path, folder), 0);
    int status = run("cd %s/mnt && test $(ls index | wc -l) = %u && test -f index/%s && "
                     "test $(stat -c %%t:%%T new-device) = 4d2:6f855 && "
                     "test $(stat -c %%u:%%g pieces) = 74565:144470 && "
                     "test \"$(head -c 1 pieces)\" = a && rm -r index sharing",
                     folder, NAMES_IN_INDEX, name);
    struct stat stat_of_pieces;
    char value[BIG_VALUE + 1], path[200];
    snprintf(path, sizeof(path), "%s/mnt/pieces", folder);
    int64_t length = getxattr(path, "user.big", value, sizeof(value));
    int error = stat(path, &stat_of_pieces);
    assert_int_equal(run("umount %s/mnt", folder), 0);
    assert_int_equal(status, 0);
    assert_int_equal(length, BIG_VALUE);
    assert_int_equal(error, 0);
    if (image->sb.inode_bytes > 128) {
        assert_true(stat_of_pieces.st_mtim.tv_sec == FAR_SECONDS);
        assert_int_equal(stat_of_pieces.st_mtim.tv_nsec, 999999999);
    }
    expect_clean(image);
}

static void kernel_writes_the_same(void **state)
{
    static const struct shape kernel_shapes[] = {
        {"kernel-default", "64M", "-t ext4 -b 4096 -I 256"},
        {"kernel-1k-128", "64M", "-t ext4 -b 1024 -I 128"},
        {"kernel-today", "64M", "-t ext4 -O orphan_file,metadata_csum_seed"},
        {"kernel-ea_inode", "64M", "-t ext4 -b 1024 -O ea_inode"},
        {"kernel-bigalloc", "256M", "-t ext4 -O bigalloc -C 16384"},
        {"kernel-gdt_csum", "64M", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(kernel_shapes); i++) {
        const struct shape *shape = &kernel_shapes[i];
        struct image image = {.name = shape->name};
        snprintf(image.path, sizeof(image.path), "%s/%s.img", folder, shape->name);
        assert_int_equal(run("truncate -s %s %s && mke2fs -q -F %s %s > %s/log 2>&1", shape->size,
                             image.path, shape->options, image.path, folder),
                         0);
        if (!fill_by_kernel(image.path, strstr(shape->options, "ea_inode") != NULL)) {
            print_message("# not root, or no loop mounts: no images of the kernel\n");
            skip();
        }
        image_open(&image);
        image_compare(&image);
        compare_acls(&image);
        edit_image(&image);
        image_compare(&image);
        image_close(&image);
        expect_clean(&image);
        expect_new_files(&image);
        expect_kernel_reads(&image);
        unlink(image.path);
    }
    print_message("# hashes of %lu attributes, %lu blocks of them\n", image_met.attributes_hashed,
                  image_met.attribute_blocks);
    assert_true(image_met.attributes_hashed > 20 && image_met.values_in_inodes > 0 &&
                image_met.attribute_blocks > 5);
}

/* An orphan in the file's block: e2fsck finds and deletes it. */
static void orphans_are_found(void **state)
{
    struct image image = {.name = "orphan"};
    (void)state;
    snprintf(image.path, sizeof(image.path), "%s/orphan.img", folder);
    if (run("truncate -s 64M %s && mke2fs -q -F -t ext4 -O orphan_file %s > %s/log 2>&1",
            image.path, image.path, folder) != 0)
        skip();
    image_open(&image);
    uint32_t ino = take_inode(&image, false), file = image.sb.orphan_file_ino;
    struct inode_fields inode = new_inode(&image, ino, S_IFREG | 0600);
    struct inode_fields orphans = image_read_inode(&image, file);
    inode.link_count = 0;
    add_extent(&inode, 0, take_blocks(&image, 1), 1, false);
    inode.size = image.sb.block_bytes;
    inode.allocated_sectors = sectors_of(&image.sb, 1);
    image_write_inode(&image, ino, &inode);
    uint64_t block = extent_at(orphans.block, 0).disk_block;
    orphan_block_set(image_block(&image, block),
                     orphan_block_find_free(&image.sb, image_block(&image, block), 0), ino);
    orphan_block_set_checksum(&image.sb, inode_checksum_seed(&image.sb, file, orphans.generation),
                              block, image_block(&image, block));
    image.sb.ro_compat |= FEATURE_RO_COMPAT_ORPHAN_PRESENT;
    superblock_format(&image.sb, image.bytes + SUPERBLOCK_OFFSET_BYTES);
    image_close(&image);
    assert_int_equal(run("e2fsck -fp %s > %s/log 2>&1", image.path, folder) & ~1, 0);
    char expected[100];
    snprintf(expected, sizeof(expected), "Clearing orphaned inode %u", ino);
    assert_int_equal(run("grep -q '%s' %s/log", expected, folder), 0);
    expect_clean(&image);
    unlink(image.path);
}

/* Errors are shown by dumpe2fs as they were noted. */
static void errors_are_remembered(void **state)
{
    struct image image = {.name = "errors"};
    (void)state;
    snprintf(image.path, sizeof(image.path), "%s/errors.img", folder);
    assert_int_equal(run("truncate -s 8M %s && mke2fs -q -F -t ext4 %s > %s/log 2>&1", image.path,
                         image.path, folder),
                     0);
    image_open(&image);
    superblock_add_error(&image.sb, 1000000000, -EIO, 17, 99, "first_function", 12);
    superblock_add_error(&image.sb, 1100000000, EUCLEAN, 18, 100,
                         "a_function_with_a_name_of_more_than_32_bytes", 13);
    superblock_format(&image.sb, image.bytes + SUPERBLOCK_OFFSET_BYTES);
    image_close(&image);
    static const char *const lines[] = {"FS Error count: *2",
                                        "First error function: *first_function$",
                                        "First error line #: *12",
                                        "First error inode #: *17",
                                        "First error block #: *99",
                                        "First error err: *EIO",
                                        "Last error err: *EFSCORRUPTED",
                                        "Last error line #: *13",
                                        "Filesystem state:.*errors"};
    for (size_t i = 0; i < ARRAY_LENGTH(lines); i++)
        if (run("dumpe2fs -h %s 2>/dev/null | grep -q '^%s'", image.path, lines[i]) != 0)
            fail_msg("dumpe2fs does not say %s", lines[i]);
    unlink(image.path);
}

static void everything_was_met(void **state)
{
    (void)state;
    print_message("# compared: %lu inodes, %lu extent nodes, %lu attribute blocks, %lu orphan "
                  "blocks; %lu bitmaps synthesised\n",
                  image_met.inodes, image_met.extent_nodes, image_met.attribute_blocks,
                  image_met.orphan_blocks, image_met.bitmaps_synthesised);
    assert_true(image_met.inodes > 100 && image_met.extent_nodes > 50 &&
                image_met.attribute_blocks > 5 && image_met.orphan_blocks > 5 &&
                image_met.bitmaps_synthesised > 5);
}

static int remove_folder(void **state)
{
    (void)state;
    return run("mountpoint -q %s/mnt && umount %s/mnt; rm -rf %s", folder, folder, folder);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(kernel_writes_the_same),
        cmocka_unit_test(orphans_are_found),
        cmocka_unit_test(errors_are_remembered),
        cmocka_unit_test(everything_was_met),
    };
    struct CMUnitTest tests[ARRAY_LENGTH(shapes) + ARRAY_LENGTH(others)] = {0};
    if (run("command -v mke2fs debugfs e2fsck dumpe2fs > /dev/null") != 0) {
        printf("1..0 # SKIP e2fsprogs is not installed\n");
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(shapes); i++)
        tests[i] = (struct CMUnitTest){
            .name = shapes[i].name, .test_func = edit_shape, .initial_state = (void *)&shapes[i]};
    memcpy(tests + ARRAY_LENGTH(shapes), others, sizeof(others));
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
