/* SPDX-License-Identifier: MIT */
/* Structures of an image that is mapped, and whether they come out of format/ as they went in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/bitmap.h"
#include "format/extent.h"
#include "format/orphan.h"
#include "format/xattr.h"
#include "image.h"

struct image_met image_met;

uint8_t *image_block(const struct image *image, uint64_t block)
{
    assert_true(block < image->sb.block_count);
    return image->bytes + block * image->sb.block_bytes;
}

void image_open(struct image *image)
{
    int fd = open(image->path, O_RDWR);
    struct stat stat;
    assert_true(fd >= 0 && fstat(fd, &stat) == 0);
    image->size = (size_t)stat.st_size;
    image->bytes = mmap(NULL, image->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(image->bytes != MAP_FAILED);
    close(fd);
    assert_null(superblock_parse(image->bytes + SUPERBLOCK_OFFSET_BYTES, image->size, &image->sb));
}

void image_close(struct image *image)
{
    assert_int_equal(munmap(image->bytes, image->size), 0);
}

uint8_t *image_raw_group(const struct image *image, uint32_t group)
{
    uint32_t offset;
    uint64_t block = group_descriptor_block(&image->sb, group, 0, &offset);
    return image_block(image, block) + offset;
}

struct group_descriptor image_read_group(const struct image *image, uint32_t group)
{
    struct group_descriptor descriptor;
    assert_null(
        group_descriptor_parse(&image->sb, group, image_raw_group(image, group), &descriptor));
    return descriptor;
}

void image_write_group(const struct image *image, uint32_t group,
                       const struct group_descriptor *descriptor)
{
    group_descriptor_format(&image->sb, group, descriptor, image_raw_group(image, group));
    assert_true(
        group_descriptor_checksum_matches(&image->sb, group, image_raw_group(image, group)));
}

uint8_t *image_raw_inode(const struct image *image, uint32_t ino)
{
    const struct superblock *sb = &image->sb;
    struct group_descriptor descriptor = image_read_group(image, (ino - 1) / sb->inodes_per_group);
    return image_block(image, descriptor.inode_table) +
           (size_t)((ino - 1) % sb->inodes_per_group) * sb->inode_bytes;
}

struct inode_fields image_read_inode(const struct image *image, uint32_t ino)
{
    struct inode_fields inode;
    const char *problem = inode_parse(&image->sb, image_raw_inode(image, ino), &inode);
    if (problem != NULL)
        fail_msg("%s: inode %u: %s", image->name, ino, problem);
    return inode;
}

void image_write_inode(const struct image *image, uint32_t ino, const struct inode_fields *inode)
{
    assert_int_equal(inode_format(&image->sb, ino, inode, image_raw_inode(image, ino)), 0);
    assert_true(inode_checksum_matches(&image->sb, ino, image_raw_inode(image, ino)));
}

/* ---- Read and written again ------------------------------------------------------------------ */

static void expect_same(const struct image *image, const char *what, uint64_t number,
                        const void *expected, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (((const uint8_t *)expected)[i] != ((const uint8_t *)bytes)[i])
            fail_msg("%s: %s %llu: byte %zu is %02x, was %02x", image->name, what,
                     (unsigned long long)number, i, ((const uint8_t *)bytes)[i],
                     ((const uint8_t *)expected)[i]);
}

/* Fields are wiped first where that must not matter: what is known has to be written. */
static void compare_superblock(const struct image *image)
{
    const uint8_t *raw = image->bytes + SUPERBLOCK_OFFSET_BYTES;
    static const struct {
        size_t offset, length;
    } wiped[] = {{0x0c, 8},  {0x2c, 10}, {0x3a, 2},     {0x5c, 12}, {0x78, 80}, {0xe8, 4},
                 {0x160, 4}, {0x178, 8}, {0x194, 0x6c}, {0x274, 2}, {0x278, 4}, {0x3fc, 4}};
    uint8_t copy[SUPERBLOCK_BYTES];

    memcpy(copy, raw, sizeof(copy));
    superblock_format(&image->sb, copy);
    expect_same(image, "superblock", 0, raw, copy, sizeof(copy));
    for (size_t i = 0; i < ARRAY_LENGTH(wiped); i++)
        memset(copy + wiped[i].offset, 0, wiped[i].length);
    superblock_format(&image->sb, copy);
    if (!image->sb.has_metadata_csum)
        memcpy(copy + 0x3fc, raw + 0x3fc, 4);
    expect_same(image, "wiped superblock", 0, raw, copy, sizeof(copy));

    superblock_format_copy(raw, 3, copy);
    struct superblock parsed;
    assert_null(superblock_parse(copy, image->size, &parsed));
    assert_true(superblock_checksum_matches(copy));
    assert_int_equal(le16_at(copy + 0x5a), 3);
    assert_int_equal(parsed.state & SUPERBLOCK_STATE_CLEAN, 0);
}

static struct xattr_new attribute_of(const struct image *image, const struct xattr_view *view)
{
    return (struct xattr_new){
        .index = view->index,
        .name = view->name,
        .name_length = view->name_length,
        .value = view->value,
        .value_bytes = view->value_bytes,
        .value_ino = view->value_ino,
        /* The inode of a value keeps its hash where others have the time of access. */
        .value_hash = view->value_ino != 0 ? le32_at(image_raw_inode(image, view->value_ino) + 8)
                                           : 0,
    };
}

/* Recomputes the hashes; puts the attributes one by one into another place. */
static void compare_attributes(const struct image *image, uint32_t ino,
                               const struct xattr_area *area, const struct xattr_place *place)
{
    struct xattr_view view = {.following = area->entries};
    const char *reason;

    while (xattr_next(&image->sb, area, view.following, &view, &reason) > 0) {
        struct xattr_new attribute = attribute_of(image, &view);
        image_met.values_in_inodes += view.value_ino != 0;
        if (place->is_block || view.hash != 0) {
            if (view.hash != xattr_entry_hash(&attribute))
                fail_msg("%s: inode %u: hash of attribute %.*s", image->name, ino, view.name_length,
                         view.name);
            image_met.attributes_hashed++;
        }
        assert_int_equal(xattr_set(&image->sb, place, &attribute), 0);
    }
}

/* An attribute block made anew, attribute by attribute, is the same but for the values' places. */
static void compare_attribute_block(const struct image *image, uint32_t ino, uint64_t block)
{
    const struct superblock *sb = &image->sb;
    uint8_t *raw = image_block(image, block), *copy = malloc(sb->block_bytes);
    struct xattr_place place;
    struct xattr_area area;

    assert_null(xattr_block_area(sb, raw, &area));
    xattr_block_init(sb, copy);
    xattr_block_place(sb, copy, &place);
    compare_attributes(image, ino, &area, &place);
    assert_int_equal(xattr_block_hash(copy), xattr_block_hash(raw));
    memcpy(copy, raw, sb->block_bytes);
    xattr_block_set_checksum(sb, block, copy);
    expect_same(image, "attribute block", block, raw, copy, sb->block_bytes);
    image_met.attribute_blocks++;
    free(copy);
}

static void compare_extents(const struct image *image, uint32_t ino, uint32_t seed,
                            const uint8_t *node, size_t size)
{
    const struct superblock *sb = &image->sb;
    struct extent_header header = extent_node_header(node);
    bool is_root = size == INODE_BLOCK_BYTES;
    uint8_t *copy = malloc(size);

    assert_null(extent_node_check(sb, node, size, -1));
    memcpy(copy, node, size);
    memset(copy, 0, EXTENT_HEADER_BYTES + (size_t)header.entry_count * EXTENT_ENTRY_BYTES);
    extent_node_init(copy, is_root ? EXTENT_ROOT_CAPACITY : extent_block_capacity(sb),
                     header.depth);
    for (unsigned int i = header.entry_count; i-- > 0;) {
        struct extent extent = extent_at(node, i);
        struct extent_index index = extent_index_at(node, i);
        if (header.depth == 0)
            extent_insert(copy, 0, &extent);
        else
            extent_index_insert(copy, 0, &index);
        if (header.depth > 0)
            compare_extents(image, ino, seed, image_block(image, index.disk_block),
                            sb->block_bytes);
    }
    /* The kernel leaves whatever was there in the last two bytes of index entries. */
    for (unsigned int i = 0; header.depth > 0 && i < header.entry_count; i++) {
        size_t unused = EXTENT_HEADER_BYTES + (i + 1) * (size_t)EXTENT_ENTRY_BYTES - sizeof(le16);
        memcpy(copy + unused, node + unused, sizeof(le16));
    }
    if (!is_root)
        extent_node_set_checksum(sb, seed, copy);
    expect_same(image, "extent node of inode", ino, node, copy, size);
    image_met.extent_nodes++;
    free(copy);
}

static void compare_inode(const struct image *image, uint32_t ino)
{
    const struct superblock *sb = &image->sb;
    const uint8_t *raw = image_raw_inode(image, ino);
    struct inode_fields inode = image_read_inode(image, ino);
    uint8_t *copy = malloc(sb->inode_bytes);
    struct xattr_area area;
    struct xattr_place place;

    if (inode.mode == 0 && inode.link_count == 0) {
        free(copy);
        return;
    }
    /* The second time with all bytes wiped but those that nothing here knows. */
    memcpy(copy, raw, sb->inode_bytes);
    assert_int_equal(inode_format(sb, ino, &inode, copy), 0);
    expect_same(image, "inode", ino, raw, copy, sb->inode_bytes);
    memset(copy, 0, 0x70);
    memset(copy + 0x74, 0, 10);
    if (inode.extra_isize >= 32)
        memset(copy + 0x80, 0, 32);
    assert_int_equal(inode_format(sb, ino, &inode, copy), 0);
    if (!S_ISREG(inode.mode) && !S_ISDIR(inode.mode))
        memcpy(copy + 0x6c, raw + 0x6c, 4);
    expect_same(image, "wiped inode", ino, raw, copy, sb->inode_bytes);
    image_met.inodes++;

    if (xattr_inode_area(sb, raw, inode.extra_isize, &area)) {
        inode_init_raw(sb, copy);
        assert_true(xattr_inode_place(sb, copy, inode.extra_isize, &place));
        compare_attributes(image, ino, &area, &place);
    }
    if (inode.xattr_block != 0)
        compare_attribute_block(image, ino, inode.xattr_block);
    if ((inode.flags & INODE_EXTENTS) != 0)
        compare_extents(image, ino, inode_checksum_seed(sb, ino, inode.generation), inode.block,
                        INODE_BLOCK_BYTES);
    free(copy);
}

/* What the bitmap of a group without files would be, is there or is counted in the descriptor. */
static void compare_bitmaps(const struct image *image, uint32_t group)
{
    const struct superblock *sb = &image->sb;
    struct group_descriptor descriptor = image_read_group(image, group), other = descriptor;
    uint8_t *made = malloc(sb->block_bytes);
    uint32_t clusters = group_cluster_count(sb, group);
    const uint8_t *blocks = image_block(image, descriptor.block_bitmap);
    const uint8_t *inodes = image_block(image, descriptor.inode_bitmap);

    group_init_block_bitmap(sb, group, &descriptor, made);
    uint32_t free_clusters = clusters - bitmap_count_set(made, 0, clusters);
    if ((descriptor.flags & GROUP_BLOCK_UNINIT) != 0) {
        assert_int_equal(free_clusters, descriptor.free_clusters);
        image_met.bitmaps_synthesised++;
    } else {
        assert_int_equal(clusters - bitmap_count_set(blocks, 0, clusters),
                         descriptor.free_clusters);
        if (free_clusters == descriptor.free_clusters)
            expect_same(image, "block bitmap", group, blocks, made, sb->block_bytes);
        for (uint32_t i = 0; i < clusters; i++)
            if (bitmap_test(made, i))
                assert_true(bitmap_test(blocks, i));
        bitmap_block_set_checksum(sb, &other, blocks);
    }
    if ((descriptor.flags & GROUP_INODE_UNINIT) == 0) {
        group_init_inode_bitmap(sb, made);
        if (descriptor.free_inodes == sb->inodes_per_group)
            expect_same(image, "inode bitmap", group, inodes, made, sb->block_bytes);
        bitmap_inode_set_checksum(sb, &other, inodes);
    }
    assert_int_equal(other.block_bitmap_checksum, descriptor.block_bitmap_checksum);
    assert_int_equal(other.inode_bitmap_checksum, descriptor.inode_bitmap_checksum);
    free(made);
}

static void compare_group(const struct image *image, uint32_t group)
{
    const struct superblock *sb = &image->sb;
    const uint8_t *raw = image_raw_group(image, group);
    struct group_descriptor descriptor = image_read_group(image, group);
    uint8_t copy[1024];

    memcpy(copy, raw, sb->descriptor_bytes);
    group_descriptor_format(sb, group, &descriptor, copy);
    expect_same(image, "descriptor", group, raw, copy, sb->descriptor_bytes);
    memset(copy, 0, 32);
    if (sb->descriptor_bytes >= 64)
        memset(copy, 0, 64);
    group_descriptor_format(sb, group, &descriptor, copy);
    if (!sb->has_metadata_csum && !sb->has_gdt_csum) {
        memcpy(copy + 0x12, raw + 0x12, 2);
        memcpy(copy + 0x1c, raw + 0x1c, 4);
    }
    expect_same(image, "wiped descriptor", group, raw, copy, sb->descriptor_bytes);
    compare_bitmaps(image, group);
    if ((descriptor.flags & GROUP_INODE_UNINIT) != 0)
        return;
    const uint8_t *inodes = image_block(image, descriptor.inode_bitmap);
    for (uint32_t i = 0; i < sb->inodes_per_group - descriptor.unused_inodes; i++)
        if (bitmap_test(inodes, i))
            compare_inode(image, group * sb->inodes_per_group + i + 1);
}

/* The blocks of an orphan file without orphans, as mke2fs or the kernel left them. */
static void compare_orphan_file(const struct image *image)
{
    const struct superblock *sb = &image->sb;
    uint32_t ino = sb->orphan_file_ino;
    if (!superblock_has_compat(sb, FEATURE_COMPAT_ORPHAN_FILE))
        return;
    struct inode_fields inode = image_read_inode(image, ino);
    uint32_t seed = inode_checksum_seed(sb, ino, inode.generation);
    uint8_t *made = malloc(sb->block_bytes);
    for (unsigned int i = 0; i < extent_node_header(inode.block).entry_count; i++) {
        struct extent extent = extent_at(inode.block, i);
        for (uint32_t k = 0; k < extent.length_blocks; k++) {
            uint64_t block = extent.disk_block + k;
            assert_null(orphan_block_check(sb, image_block(image, block)));
            assert_true(orphan_block_checksum_matches(sb, seed, block, image_block(image, block)));
            orphan_block_init(sb, made);
            orphan_block_set_checksum(sb, seed, block, made);
            expect_same(image, "orphan block", block, image_block(image, block), made,
                        sb->block_bytes);
            image_met.orphan_blocks++;
        }
    }
    free(made);
}

void image_compare(const struct image *image)
{
    compare_superblock(image);
    for (uint32_t group = 0; group < image->sb.group_count; group++)
        compare_group(image, group);
    compare_orphan_file(image);
}
