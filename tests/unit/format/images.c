/* SPDX-License-Identifier: MIT */
/*
 * File systems that mke2fs, debugfs and e2fsck made: everything parses, agrees with dumpe2fs, all
 * checksums match, and a flip of any covered byte is noticed. Skips where the tools are missing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/bitmap.h"
#include "format/dirent.h"
#include "format/extent.h"
#include "format/group.h"
#include "format/inode.h"
#include "format/xattr.h"

#define NAMES_IN_LARGE    3000 /* enough for inner index nodes in blocks of 1 KiB */
#define NAMES_IN_SMALL    300  /* an index, but one that mke2fs makes faster */
#define EXTENTS_IN_FILE   400
#define EXTENT_STEP_BYTES 131072
#define FLIP_MASK         0x81
#define FLIPPED_PER_KIND  2
#define GROUPS_COMPARED   100 /* with dumpe2fs, which takes its time over large file systems */

static const struct shape {
    const char *name, *size, *options;
    bool has_large_directory;
} shapes[] = {
    {"default", "64M", "-t ext4", false},
    {"b1024", "64M", "-t ext4 -b 1024", true},
    {"b2048", "64M", "-t ext4 -b 2048", false},
    {"b65536", "256M", "-t ext4 -b 65536", true},
    {"i128", "64M", "-t ext4 -b 1024 -I 128", false},
    {"i512", "64M", "-t ext4 -b 1024 -I 512", false},
    {"i4096", "256M", "-t ext4 -b 4096 -I 4096 -N 4096", false},
    {"bigalloc", "256M", "-t ext4 -O bigalloc -C 16384", false},
    {"bigalloc-1k", "128M", "-t ext4 -b 1024 -O bigalloc -C 8192", false},
    {"meta_bg", "256M", "-t ext4 -b 1024 -O meta_bg,^resize_inode", false},
    {"meta_bg-32bit", "256M", "-t ext4 -b 1024 -O meta_bg,^resize_inode,^64bit -g 1024", false},
    {"sparse_super2", "256M", "-t ext4 -b 1024 -O sparse_super2", false},
    {"no-sparse_super", "64M", "-t ext4 -b 1024 -O ^sparse_super,^resize_inode", false},
    {"no-flex_bg", "64M", "-t ext4 -b 1024 -O ^flex_bg", false},
    {"32bit", "64M", "-t ext4 -b 1024 -O ^64bit", true},
    {"wide-descriptors", "64M", "-t ext4 -b 1024 -O 64bit -E desc_size=128", false},
    {"gdt_csum", "64M", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit", false},
    {"gdt_csum-64bit", "64M", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,64bit", false},
    {"csum_seed", "64M", "-t ext4 -b 1024 -O metadata_csum_seed", false},
    {"casefold", "64M", "-t ext4 -b 1024 -O casefold", false},
    {"large_dir", "64M", "-t ext4 -b 1024 -O large_dir,ea_inode", true},
    {"quota", "64M", "-t ext4 -b 1024 -O quota,project", false},
    {"orphan_file", "64M", "-t ext4 -b 1024 -O orphan_file,fast_commit", false},
    {"small-groups", "64M", "-t ext4 -b 1024 -g 512 -O ^resize_inode", false},
    {"ext2", "64M", "-t ext2 -b 1024", false},
    {"ext3", "64M", "-t ext3 -b 1024", false},
    {"odd-size", "65537K", "-t ext4 -b 1024", false},
    {"sparse-15T", "15T", "-t ext4 -O 64bit -T largefile4 -E lazy_itable_init=1", false},
    {"tiny-200K", "200K", "-t ext4", false},
    {"tiny-64K", "64K", "-t ext2 -b 1024 -N 16", false},
    {"revision-0", "8M", "-t ext2 -r 0", false},
};

/* Kinds of structures with a checksum; each has to be met somewhere. */
enum kind {
    KIND_SUPERBLOCK,
    KIND_GROUP,
    KIND_BLOCK_BITMAP,
    KIND_INODE_BITMAP,
    KIND_INODE,
    KIND_DIRECTORY,
    KIND_HTREE_ROOT,
    KIND_HTREE_NODE,
    KIND_EXTENT,
    KIND_XATTR,
    KIND_COUNT
};

static const char *const kind_names[] = {
    "superblocks",   "group descriptors", "block bitmaps",     "inode bitmaps", "inodes",
    "linear blocks", "index roots",       "inner index nodes", "extent nodes",  "attribute blocks",
};

static char folder[] = "/tmp/uext4-format-XXXXXX";
static unsigned long met[KIND_COUNT], flipped[KIND_COUNT];

/* One file system, mapped privately, so that bytes may be changed. */
struct image {
    const struct shape *shape;
    struct superblock sb;
    uint8_t *bytes;
    size_t size;
    unsigned int flipped[KIND_COUNT];
};

/* The arguments that tell which object a checksum belongs to. */
struct subject {
    const struct image *image;
    const struct group_descriptor *descriptor;
    uint64_t number; /* group, inode or block */
    uint32_t seed;
};

static bool is_match(enum kind kind, const struct subject *subject, const void *raw)
{
    const struct superblock *sb = &subject->image->sb;
    switch (kind) {
    case KIND_SUPERBLOCK:
        return superblock_checksum_matches(raw);
    case KIND_GROUP:
        return group_descriptor_checksum_matches(sb, (uint32_t)subject->number, raw);
    case KIND_BLOCK_BITMAP:
        return bitmap_block_checksum_matches(sb, subject->descriptor, raw);
    case KIND_INODE_BITMAP:
        return bitmap_inode_checksum_matches(sb, subject->descriptor, raw);
    case KIND_INODE:
        return inode_checksum_matches(sb, (uint32_t)subject->number, raw);
    case KIND_DIRECTORY:
        return dirent_block_checksum_matches(sb, subject->seed, raw);
    case KIND_HTREE_ROOT:
        return htree_node_checksum_matches(sb, subject->seed, raw, true);
    case KIND_HTREE_NODE:
        return htree_node_checksum_matches(sb, subject->seed, raw, false);
    case KIND_EXTENT:
        return extent_node_checksum_matches(sb, subject->seed, raw);
    case KIND_XATTR:
        return xattr_block_checksum_matches(sb, subject->number, raw);
    default:
        return false;
    }
}

/* The checksum matches; and no longer when one of the covered bytes changes. */
static void check_sum(enum kind kind, const struct subject *subject, uint8_t *raw, size_t covered)
{
    struct image *image = (struct image *)subject->image;

    if (!is_match(kind, subject, raw))
        fail_msg("%s: checksum of one of the %s, number %llu", image->shape->name, kind_names[kind],
                 (unsigned long long)subject->number);
    bool has_sum = image->sb.has_metadata_csum || (kind == KIND_GROUP && image->sb.has_gdt_csum);
    if (!has_sum)
        return;
    met[kind]++;
    if (image->flipped[kind]++ >= FLIPPED_PER_KIND)
        return;
    /* Large blocks would take long: every byte of the small ones, each 13th of the others. */
    for (size_t i = 0; i<covered; i += covered> 4096 ? 13 : 1) {
        raw[i] ^= FLIP_MASK;
        if (is_match(kind, subject, raw))
            fail_msg("%s: flip of byte %zu of one of the %s unnoticed", image->shape->name, i,
                     kind_names[kind]);
        raw[i] ^= FLIP_MASK;
        flipped[kind]++;
    }
}

static uint8_t *block_at(const struct image *image, uint64_t block)
{
    assert_true(block < image->sb.block_count);
    return image->bytes + block * image->sb.block_bytes;
}

/* ---- Directories and attributes of one inode ------------------------------------------------ */

/* Where the first blocks of a file lie. */
struct block_list {
    uint64_t blocks[4096];
    uint32_t count;
};

static void walk_extents(const struct subject *subject, const void *node, size_t size, int depth,
                         struct block_list *list)
{
    const struct image *image = subject->image;
    const char *problem = extent_node_check(&image->sb, node, size, depth);
    if (problem != NULL)
        fail_msg("%s: %s", image->shape->name, problem);
    struct extent_header header = extent_node_header(node);
    for (unsigned int i = 0; i < header.entry_count; i++) {
        if (header.depth > 0) {
            struct extent_index index = extent_index_at(node, i);
            uint8_t *child = block_at(image, index.disk_block);
            assert_int_equal(extent_find(node, index.file_block), i);
            check_sum(KIND_EXTENT, subject, child,
                      EXTENT_HEADER_BYTES + extent_node_header(child).entry_max * 12u + 4);
            walk_extents(subject, child, image->sb.block_bytes, header.depth - 1, list);
            continue;
        }
        struct extent extent = extent_at(node, i);
        assert_int_equal(extent_find(node, extent.file_block), i);
        assert_int_equal(extent_find(node, extent.file_block + extent.length_blocks - 1), i);
        for (uint32_t k = 0; k < extent.length_blocks; k++)
            if (extent.file_block + k < ARRAY_LENGTH(list->blocks)) {
                list->blocks[extent.file_block + k] = extent.disk_block + k;
                list->count = MAX(list->count, extent.file_block + k + 1);
            }
    }
}

static void check_leaf(const struct subject *subject, uint8_t *block, uint32_t hash_from,
                       uint32_t hash_to, uint8_t version)
{
    const struct superblock *sb = &subject->image->sb;
    check_sum(KIND_DIRECTORY, subject, block, sb->block_bytes);
    for (size_t offset = 0; offset < sb->block_bytes;) {
        struct dirent_view entry;
        const char *problem = dirent_read(sb, block, sb->block_bytes, offset, false, &entry);
        if (problem != NULL)
            fail_msg("%s: %s", subject->image->shape->name, problem);
        offset += entry.record_bytes;
        if (entry.ino == 0)
            continue;
        assert_true(dirent_name_is_valid(&entry));
        struct htree_hash hash;
        assert_true(htree_hash_name(sb, version, entry.name, entry.name_length, &hash));
        assert_true(hash.major >= (hash_from & ~1u) && hash.major <= hash_to);
    }
}

static void walk_index(const struct subject *subject, const struct block_list *list, uint32_t at,
                       unsigned int level, struct htree_root *root)
{
    const struct superblock *sb = &subject->image->sb;
    bool is_root = level == 0;
    uint8_t *block = block_at(subject->image, list->blocks[at]);
    const char *problem = is_root ? htree_root_check(sb, block, list->count, root)
                                  : htree_node_check(sb, block, list->count);
    if (problem != NULL)
        fail_msg("%s: %s", subject->image->shape->name, problem);
    unsigned int count = htree_count(block, is_root);
    check_sum(is_root ? KIND_HTREE_ROOT : KIND_HTREE_NODE, subject, block,
              (is_root ? 32 : 8) + count * 8);
    for (unsigned int i = 0; i < count; i++) {
        struct htree_entry entry = htree_entry_at(block, is_root, i);
        uint32_t hash_to = i + 1 < count ? htree_entry_at(block, is_root, i + 1).hash : UINT32_MAX;
        unsigned int found = htree_find(block, is_root, entry.hash);
        assert_true(found == i || htree_entry_at(block, is_root, found).hash == entry.hash);
        if (level < root->indirect_levels)
            walk_index(subject, list, entry.block, level + 1, root);
        else
            check_leaf(subject, block_at(subject->image, list->blocks[entry.block]), entry.hash,
                       hash_to, root->hash_version);
    }
}

static void check_attributes(const struct image *image, const struct xattr_area *area)
{
    struct xattr_view view = {.following = area->entries};
    const char *reason;
    int step;
    while ((step = xattr_next(&image->sb, area, view.following, &view, &reason)) > 0) {
        if (view.value_bytes > 0 && view.index == XATTR_USER && view.value != NULL)
            assert_int_equal(*(const char *)view.value, 'v');
    }
    if (step < 0)
        fail_msg("%s: %s", image->shape->name, reason);
}

static void check_inode(struct image *image, uint32_t ino, uint8_t *raw)
{
    static struct block_list list;
    const struct superblock *sb = &image->sb;
    struct subject subject = {.image = image, .number = ino};
    struct inode_fields inode;
    struct xattr_area area;

    const char *problem = inode_parse(sb, raw, &inode);
    if (problem != NULL)
        fail_msg("%s: inode %u: %s", image->shape->name, ino, problem);
    if (inode.mode == 0)
        return;
    check_sum(KIND_INODE, &subject, raw, sb->inode_bytes);
    subject.seed = inode_checksum_seed(sb, ino, inode.generation);
    if (xattr_inode_area(sb, raw, inode.extra_isize, &area))
        check_attributes(image, &area);
    if (inode.xattr_block != 0) {
        uint8_t *block = block_at(image, inode.xattr_block);
        struct subject attributes = {.image = image, .number = inode.xattr_block};
        check_sum(KIND_XATTR, &attributes, block, sb->block_bytes);
        assert_null(xattr_block_area(sb, block, &area));
        check_attributes(image, &area);
    }
    if ((inode.flags & INODE_EXTENTS) == 0)
        return;
    list.count = 0;
    walk_extents(&subject, inode.block, INODE_BLOCK_BYTES, -1, &list);
    if (!S_ISDIR(inode.mode))
        return;
    assert_int_equal(list.count, inode.size >> sb->block_bits);
    struct htree_root root;
    if ((inode.flags & INODE_INDEXED) != 0)
        walk_index(&subject, &list, 0, 0, &root);
    else
        for (uint32_t i = 0; i < list.count; i++)
            check_leaf(&subject, block_at(image, list.blocks[i]), 0, UINT32_MAX,
                       sb->default_hash_version);
}

/* ---- Groups --------------------------------------------------------------------------------- */

static bool has_bit(const uint8_t *bitmap, uint32_t bit)
{
    return (bitmap[bit / 8] >> bit % 8 & 1) != 0;
}

/* Returns how many inodes are in use. */
static uint32_t check_group(struct image *image, uint32_t group)
{
    const struct superblock *sb = &image->sb;
    struct group_descriptor descriptor;
    uint32_t offset, used = 0;
    uint8_t *raw = block_at(image, group_descriptor_block(sb, group, 0, &offset)) + offset;

    const char *problem = group_descriptor_parse(sb, group, raw, &descriptor);
    if (problem != NULL)
        fail_msg("%s: group %u: %s", image->shape->name, group, problem);
    struct subject subject = {.image = image, .number = group, .descriptor = &descriptor};
    check_sum(KIND_GROUP, &subject, raw, sb->descriptor_bytes);

    uint8_t *blocks = block_at(image, descriptor.block_bitmap);
    uint8_t *inodes = block_at(image, descriptor.inode_bitmap);
    if ((descriptor.flags & GROUP_BLOCK_UNINIT) == 0) {
        check_sum(KIND_BLOCK_BITMAP, &subject, blocks, sb->clusters_per_group / 8);
        uint32_t metadata = group_base_metadata_blocks(sb, group);
        for (uint32_t i = 0; i < metadata; i++)
            assert_true(has_bit(blocks, i / sb->cluster_blocks));
    }
    if ((descriptor.flags & GROUP_INODE_UNINIT) != 0)
        return 0;
    check_sum(KIND_INODE_BITMAP, &subject, inodes, sb->inodes_per_group / 8);
    uint8_t *table = block_at(image, descriptor.inode_table);
    for (uint32_t i = 0; i < sb->inodes_per_group - descriptor.unused_inodes; i++)
        if (has_bit(inodes, i)) {
            check_inode(image, group * sb->inodes_per_group + i + 1,
                        table + (size_t)i * sb->inode_bytes);
            used++;
        }
    assert_int_equal(sb->inodes_per_group - used, descriptor.free_inodes);
    return used;
}

/* Copies of the superblock and of the descriptors. */
static void check_copies(const struct image *image)
{
    const struct superblock *sb = &image->sb;
    for (uint32_t group = 1; group < sb->group_count; group++) {
        const uint8_t *first = block_at(image, group_first_block(sb, group));
        /* Blocks that held something else before may look like a copy. */
        if (!group_has_superblock(sb, group))
            continue;
        struct superblock copy;
        assert_null(superblock_parse(first, image->size, &copy));
        assert_true(superblock_checksum_matches(first));
        assert_memory_equal(copy.uuid, sb->uuid, sizeof(sb->uuid));
        assert_int_equal(copy.block_count, sb->block_count);
        for (uint32_t other = 0; other < sb->group_count; other++) {
            struct group_descriptor primary, backup;
            uint32_t offset;
            const uint8_t *raw = block_at(image, group_descriptor_block(sb, other, 0, &offset));
            assert_null(group_descriptor_parse(sb, other, raw + offset, &primary));
            raw = block_at(image, group_descriptor_block(sb, other, group, &offset));
            assert_null(group_descriptor_parse(sb, other, raw + offset, &backup));
            assert_int_equal(backup.block_bitmap, primary.block_bitmap);
            assert_int_equal(backup.inode_table, primary.inode_table);
        }
    }
}

/* ---- What dumpe2fs says --------------------------------------------------------------------- */

static void check_line(const struct image *image, const char *line, const char *key, uint64_t value,
                       unsigned int *checked)
{
    unsigned long long said;
    if (strncmp(line, key, strlen(key)) != 0 || line[strlen(key)] != ':' ||
        sscanf(line + strlen(key) + 1, "%llu", &said) != 1)
        return;
    if (said != value)
        fail_msg("%s: %s is %llu, not %llu", image->shape->name, key, said,
                 (unsigned long long)value);
    ++*checked;
}

static void check_features(const struct image *image, const char *line, unsigned int *checked)
{
    const struct superblock *sb = &image->sb;
    char names[1000];
    size_t length = 0;
    const struct {
        enum feature_set set;
        uint32_t bits;
    } sets[] = {{FEATURE_SET_COMPAT, sb->compat},
                {FEATURE_SET_INCOMPAT, sb->incompat},
                {FEATURE_SET_RO_COMPAT, sb->ro_compat}};

    if (strncmp(line, "Filesystem features:", 20) != 0)
        return;
    line += 20 + strspn(line + 20, " ");
    for (size_t i = 0; i < ARRAY_LENGTH(sets); i++) {
        feature_list_names(sets[i].set, sets[i].bits, names + length, sizeof(names) - length);
        if (names[length] != '\0')
            strcat(names, " ");
        length = strlen(names);
    }
    if (length > 0)
        assert_memory_equal(line, names, length - 1);
    ++*checked;
}

static void check_group_line(const struct image *image, const char *line, uint32_t group,
                             unsigned int *checked)
{
    static const struct {
        const char *key;
        size_t offset;
    } places[] = {{"  Block bitmap at ", offsetof(struct group_descriptor, block_bitmap)},
                  {"  Inode bitmap at ", offsetof(struct group_descriptor, inode_bitmap)},
                  {"  Inode table at ", offsetof(struct group_descriptor, inode_table)}};
    struct group_descriptor descriptor;
    uint32_t offset;
    const uint8_t *raw = block_at(image, group_descriptor_block(&image->sb, group, 0, &offset)) +
                         offset;
    assert_null(group_descriptor_parse(&image->sb, group, raw, &descriptor));
    for (size_t i = 0; i < ARRAY_LENGTH(places); i++) {
        const char *place = strstr(line, places[i].key);
        uint64_t value;
        if (place == NULL)
            continue;
        memcpy(&value, (const char *)&descriptor + places[i].offset, sizeof(value));
        assert_int_equal(strtoull(place + strlen(places[i].key), NULL, 10), value);
        ++*checked;
    }
    const char *last = strchr(line, '-');
    if (strncmp(line, "Group ", 6) == 0 && last != NULL) {
        uint64_t first = group_first_block(&image->sb, group);
        assert_int_equal(strtoull(strstr(line, "Blocks ") + 7, NULL, 10), first);
        assert_int_equal(strtoull(last + 1, NULL, 10),
                         first + group_block_count(&image->sb, group) - 1);
        ++*checked;
    }
    if (strstr(line, "uperblock at ") != NULL) {
        assert_true(group_has_superblock(&image->sb, group));
        ++*checked;
    }
}

static void compare_with_dumpe2fs(const struct image *image, const char *path)
{
    const struct superblock *sb = &image->sb;
    char command[200], line[2000];
    unsigned int checked = 0, group = 0;
    bool is_in_groups = false;

    snprintf(command, sizeof(command), "dumpe2fs %s 2>/dev/null", path);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(line, sizeof(line), output) != NULL) {
        check_features(image, line, &checked);
        check_line(image, line, "Block count", sb->block_count, &checked);
        check_line(image, line, "Inode count", sb->inode_count, &checked);
        check_line(image, line, "Free blocks", sb->free_block_count, &checked);
        check_line(image, line, "Free inodes", sb->free_inode_count, &checked);
        check_line(image, line, "Reserved block count", sb->reserved_block_count, &checked);
        check_line(image, line, "Overhead clusters", sb->overhead_blocks / sb->cluster_blocks,
                   &checked);
        check_line(image, line, "First block", sb->first_data_block, &checked);
        check_line(image, line, "Block size", sb->block_bytes, &checked);
        check_line(image, line, "Cluster size", sb->cluster_bytes, &checked);
        check_line(image, line, "Blocks per group", sb->blocks_per_group, &checked);
        check_line(image, line, "Clusters per group", sb->clusters_per_group, &checked);
        check_line(image, line, "Inodes per group", sb->inodes_per_group, &checked);
        check_line(image, line, "Inode blocks per group", sb->inode_table_blocks, &checked);
        check_line(image, line, "Group descriptor size", sb->descriptor_bytes, &checked);
        check_line(image, line, "Reserved GDT blocks", sb->reserved_descriptor_blocks, &checked);
        check_line(image, line, "Flex block group size", sb->flex_group_count, &checked);
        check_line(image, line, "Inode size", sb->inode_bytes, &checked);
        check_line(image, line, "First inode", sb->first_ino, &checked);
        check_line(image, line, "Desired extra isize", sb->want_extra_isize, &checked);
        check_line(image, line, "Journal inode", sb->journal_ino, &checked);
        check_line(image, line, "Mount count", sb->mount_count, &checked);
        if (sscanf(line, "Group %u:", &group) == 1)
            is_in_groups = true;
        if (group >= GROUPS_COMPARED)
            break;
        if (is_in_groups)
            check_group_line(image, line, group, &checked);
    }
    pclose(output);
    assert_true(checked >= 12 + 4 * MIN(sb->group_count, GROUPS_COMPARED));
}

/* ---- Making images -------------------------------------------------------------------------- */

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

/* Directories to fill the images from: one with many names, a file in many pieces. */
static void make_names(const char *source, unsigned int count)
{
    char path[300];
    assert_int_equal(run("mkdir -p %s/%s/many %s/%s/few", folder, source, folder, source), 0);
    for (unsigned int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s/many/a-name-that-takes-room-%08u-%08u-%s", folder,
                 source, i, i * 7919,
                 i % 3 == 0 ? "gr\xc3\xb6\xc3\x9f"
                              "e"
                            : "plain");
        assert_true(symlink("target", path) == 0);
    }
}

static void make_source(void)
{
    char path[300];
    make_names("source", NAMES_IN_SMALL);
    make_names("large-source", NAMES_IN_LARGE);
    snprintf(path, sizeof(path), "%s/source/pieces", folder);
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    assert_true(fd >= 0);
    for (unsigned int i = 0; i < EXTENTS_IN_FILE; i++)
        assert_int_equal(pwrite(fd, "x", 1, (off_t)i * EXTENT_STEP_BYTES), 1);
    close(fd);
    assert_int_equal(run("ln %s/source/pieces %s/large-source/pieces", folder, folder), 0);
    assert_int_equal(run("for i in 1 2 3; do head -c 900 /dev/zero | tr '\\0' v "
                         "> %s/value$i; done",
                         folder),
                     0);
}

static bool make_image(const struct shape *shape, const char *path)
{
    bool is_small = strchr(shape->size, 'K') != NULL && strlen(shape->size) < 6;
    bool has_room = !is_small && strchr(shape->size, 'T') == NULL && strcmp(shape->size, "8M") != 0;
    if (run("truncate -s %s %s 2>/dev/null", shape->size, path) != 0)
        return false;
    char source[100] = "";
    if (has_room)
        snprintf(source, sizeof(source), "-d %s/%s", folder,
                 shape->has_large_directory ? "large-source" : "source");
    if (run("mke2fs -q -F %s %s %s > %s/log 2>&1 < /dev/null", shape->options, source, path,
            folder) != 0)
        return false;
    if (!has_room)
        return true;
    if (strstr(shape->options, "ext4") != NULL)
        assert_int_equal(run("debugfs -w -R 'ea_set -f %s/value1 pieces user.long' %s "
                             "> %s/log 2>&1 && "
                             "debugfs -w -R 'ea_set few user.short value' %s > %s/log 2>&1",
                             folder, path, folder, path, folder),
                         0);
    /* Makes large directories indexed; 1 says that something was changed. */
    assert_true(run("e2fsck -fyD %s > %s/log 2>&1", path, folder) <= 1);
    return true;
}

static void check_shape(void **state)
{
    const struct shape *shape = *state;
    char path[100];

    snprintf(path, sizeof(path), "%s/%s.img", folder, shape->name);
    if (!make_image(shape, path)) {
        print_message("# %s: this mke2fs cannot make it\n", shape->name);
        unlink(path);
        skip();
    }
    int fd = open(path, O_RDONLY);
    struct stat stat;
    assert_true(fd >= 0 && fstat(fd, &stat) == 0);
    struct image image = {.shape = shape, .size = (size_t)stat.st_size};
    image.bytes = mmap(NULL, image.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd,
                       0);
    assert_true(image.bytes != MAP_FAILED);

    uint8_t *raw = image.bytes + SUPERBLOCK_OFFSET_BYTES;
    const char *problem = superblock_parse(raw, image.size, &image.sb);
    if (problem != NULL)
        fail_msg("%s: %s", shape->name, problem);
    size_t used_bytes = image.sb.block_count << image.sb.block_bits;
    assert_non_null(superblock_parse(raw, used_bytes - 1, &image.sb));
    assert_null(superblock_parse(raw, used_bytes, &image.sb));
    struct subject subject = {.image = &image};
    check_sum(KIND_SUPERBLOCK, &subject, raw, SUPERBLOCK_BYTES);
    char names[100];
    assert_int_equal(superblock_unsupported_features(&image.sb, names, sizeof(names)), 0);

    uint32_t used = 0;
    for (uint32_t group = 0; group < image.sb.group_count; group++)
        used += check_group(&image, group);
    assert_int_equal(image.sb.inode_count - used, image.sb.free_inode_count);
    if (image.sb.group_count <= 1000)
        check_copies(&image);
    compare_with_dumpe2fs(&image, path);
    munmap(image.bytes, image.size);
    close(fd);
    unlink(path);
}

static void every_kind_was_met(void **state)
{
    (void)state;
    for (unsigned int kind = 0; kind < KIND_COUNT; kind++) {
        print_message("# %s: %lu with a checksum, %lu bytes flipped\n", kind_names[kind], met[kind],
                      flipped[kind]);
        assert_true(met[kind] > 0 && flipped[kind] > 0);
    }
}

static int remove_folder(void **state)
{
    (void)state;
    return run("rm -rf %s", folder);
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    make_source();
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[ARRAY_LENGTH(shapes) + 1] = {0};
    if (run("command -v mke2fs debugfs e2fsck dumpe2fs > /dev/null") != 0) {
        printf("1..0 # SKIP e2fsprogs is not installed\n");
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(shapes); i++)
        tests[i] = (struct CMUnitTest){
            .name = shapes[i].name, .test_func = check_shape, .initial_state = (void *)&shapes[i]};
    tests[ARRAY_LENGTH(shapes)] = (struct CMUnitTest)cmocka_unit_test(every_kind_was_met);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
