/* SPDX-License-Identifier: MIT */
/*
 * Nodes of the extent tree. Whatever bytes a node holds, extent_node_check reads inside `size`
 * alone; the accessors trust it and must only see nodes that passed. Pure functions without locks,
 * called by the map layer.
 */
#include "format/extent.h"

#include "format/crc.h"
#include "format/extent_disk.h"

static const void *entry_place(const void *node, unsigned int position)
{
    return (const uint8_t *)node + EXTENT_HEADER_BYTES + (size_t)position * EXTENT_ENTRY_BYTES;
}

struct extent_header extent_node_header(const void *node)
{
    const struct disk_extent_header *disk = node;
    return (struct extent_header){.entry_count = le16_get(disk->entry_count),
                                  .entry_max = le16_get(disk->entry_max),
                                  .depth = le16_get(disk->depth)};
}

struct extent extent_at(const void *node, unsigned int position)
{
    const struct disk_extent *disk = entry_place(node, position);
    uint32_t length = le16_get(disk->length);
    bool is_unwritten = length > EXTENT_MAX_WRITTEN;
    return (struct extent){
        .file_block = le32_get(disk->file_block),
        .length_blocks = is_unwritten ? length - EXTENT_MAX_WRITTEN : length,
        .disk_block = (uint64_t)le16_get(disk->disk_block_high) << 32 |
                      le32_get(disk->disk_block_low),
        .is_unwritten = is_unwritten,
    };
}

struct extent_index extent_index_at(const void *node, unsigned int position)
{
    const struct disk_extent_index *disk = entry_place(node, position);
    return (struct extent_index){
        .file_block = le32_get(disk->file_block),
        .disk_block = (uint64_t)le16_get(disk->disk_block_high) << 32 |
                      le32_get(disk->disk_block_low),
    };
}

static bool is_disk_range_valid(const struct superblock *sb, uint64_t start, uint64_t length)
{
    return start > sb->first_data_block && start < sb->block_count &&
           length <= sb->block_count - start;
}

static const char *check_leaf(const struct superblock *sb, const void *node, unsigned int count)
{
    uint64_t free_from = 0; /* first file block that no extent covers yet */
    for (unsigned int i = 0; i < count; i++) {
        struct extent extent = extent_at(node, i);
        if (extent.length_blocks == 0)
            return "extent without a length";
        if (extent.file_block < free_from)
            return "extents overlap or are not sorted";
        free_from = (uint64_t)extent.file_block + extent.length_blocks;
        if (free_from > (uint64_t)UINT32_MAX + 1)
            return "extent beyond the largest file block";
        if (!is_disk_range_valid(sb, extent.disk_block, extent.length_blocks))
            return "extent outside the file system";
    }
    return NULL;
}

static const char *check_inner(const struct superblock *sb, const void *node, unsigned int count)
{
    if (count == 0)
        return "inner extent node without entries";
    for (unsigned int i = 0; i < count; i++) {
        struct extent_index index = extent_index_at(node, i);
        if (i > 0 && index.file_block <= extent_index_at(node, i - 1).file_block)
            return "extent index entries are not sorted";
        if (!is_disk_range_valid(sb, index.disk_block, 1))
            return "extent node outside the file system";
    }
    return NULL;
}

const char *extent_node_check(const struct superblock *sb, const void *node, size_t size, int depth)
{
    const struct disk_extent_header *disk = node;

    if (size < EXTENT_HEADER_BYTES)
        return "no room for an extent header";
    if (le16_get(disk->magic) != EXTENT_MAGIC)
        return "extent header without its magic number";
    struct extent_header header = extent_node_header(node);
    if (header.entry_max == 0)
        return "extent node of capacity 0";
    if (header.entry_max > (size - EXTENT_HEADER_BYTES) / EXTENT_ENTRY_BYTES)
        return "extent node's capacity beyond its size";
    if (header.entry_count > header.entry_max)
        return "extent node with more entries than its capacity";
    if (depth < 0 ? header.depth > EXTENT_MAX_DEPTH : header.depth != depth)
        return "wrong depth of an extent node";
    return header.depth == 0 ? check_leaf(sb, node, header.entry_count)
                             : check_inner(sb, node, header.entry_count);
}

bool extent_node_checksum_matches(const struct superblock *sb, uint32_t inode_seed,
                                  const void *node)
{
    if (!sb->has_metadata_csum)
        return true;
    /* The checksum lies behind the last entry that the header says there is room for. */
    size_t covered_bytes = EXTENT_HEADER_BYTES +
                           (size_t)extent_node_header(node).entry_max * EXTENT_ENTRY_BYTES;
    if (covered_bytes > sb->block_bytes - sizeof(le32))
        return false;
    return crc32c(inode_seed, node, covered_bytes) ==
           le32_at((const uint8_t *)node + covered_bytes);
}

int extent_find(const void *node, uint32_t file_block)
{
    /* Both kinds of entries begin with their file block. Entries before `low` are <= file_block,
     * those from `high` on are greater. */
    unsigned int low = 0, high = extent_node_header(node).entry_count;
    while (low < high) {
        unsigned int middle = low + (high - low) / 2;
        if (le32_at(entry_place(node, middle)) <= file_block)
            low = middle + 1;
        else
            high = middle;
    }
    return (int)low - 1;
}
