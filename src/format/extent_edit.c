/* SPDX-License-Identifier: MIT */
/*
 * Changes of single extent nodes. Callers hold checked nodes and know the positions; that is
 * asserted, as a mistake here would be ours. A node's checksum is stale until
 * extent_node_set_checksum. Pure functions without locks, called by the map layer.
 */
#include <assert.h>
#include <string.h>

#include "base/compiler.h"
#include "format/crc.h"
#include "format/extent_disk.h"

static uint8_t *entry_place(void *node, unsigned int position)
{
    return (uint8_t *)node + EXTENT_HEADER_BYTES + (size_t)position * EXTENT_ENTRY_BYTES;
}

static void set_count(void *node, unsigned int count)
{
    struct disk_extent_header *disk = node;
    assert(count <= le16_get(disk->entry_max));
    disk->entry_count = le16_make((uint16_t)count);
}

static void set_depth(void *node, unsigned int depth)
{
    struct disk_extent_header *disk = node;
    disk->depth = le16_make((uint16_t)depth);
}

unsigned int extent_block_capacity(const struct superblock *sb)
{
    /* At least four bytes are left for the checksum in blocks of every size. */
    return (sb->block_bytes - EXTENT_HEADER_BYTES) / EXTENT_ENTRY_BYTES;
}

void extent_node_init(void *node, unsigned int capacity, unsigned int depth)
{
    struct disk_extent_header *disk = node;

    assert(capacity > 0 && capacity <= UINT16_MAX && depth <= EXTENT_MAX_DEPTH);
    *disk = (struct disk_extent_header){
        .magic = le16_make(EXTENT_MAGIC),
        .entry_max = le16_make((uint16_t)capacity),
        .depth = le16_make((uint16_t)depth),
    };
}

/* Makes a gap for one entry. */
static void open_gap(void *node, unsigned int position)
{
    unsigned int count = extent_node_header(node).entry_count;

    assert(position <= count);
    set_count(node, count + 1);
    memmove(entry_place(node, position + 1), entry_place(node, position),
            (size_t)(count - position) * EXTENT_ENTRY_BYTES);
}

static uint32_t longest_extent(const struct extent *extent)
{
    return extent->is_unwritten ? EXTENT_MAX_UNWRITTEN : EXTENT_MAX_WRITTEN;
}

void extent_set(void *node, unsigned int position, const struct extent *extent)
{
    uint32_t length = extent->length_blocks + (extent->is_unwritten ? EXTENT_MAX_WRITTEN : 0);
    struct disk_extent disk = {
        .file_block = le32_make(extent->file_block),
        .length = le16_make((uint16_t)length),
        .disk_block_high = le16_make((uint16_t)(extent->disk_block >> 32)),
        .disk_block_low = le32_make((uint32_t)extent->disk_block),
    };

    assert(position < extent_node_header(node).entry_count);
    assert(extent->length_blocks > 0 && extent->length_blocks <= longest_extent(extent));
    assert(extent->disk_block >> 48 == 0);
    memcpy(entry_place(node, position), &disk, sizeof(disk));
}

void extent_index_set(void *node, unsigned int position, const struct extent_index *index)
{
    struct disk_extent_index disk = {
        .file_block = le32_make(index->file_block),
        .disk_block_low = le32_make((uint32_t)index->disk_block),
        .disk_block_high = le16_make((uint16_t)(index->disk_block >> 32)),
    };

    assert(position < extent_node_header(node).entry_count);
    assert(index->disk_block >> 48 == 0);
    memcpy(entry_place(node, position), &disk, sizeof(disk));
}

void extent_insert(void *node, unsigned int position, const struct extent *extent)
{
    assert(extent_node_header(node).depth == 0);
    open_gap(node, position);
    extent_set(node, position, extent);
}

void extent_index_insert(void *node, unsigned int position, const struct extent_index *index)
{
    assert(extent_node_header(node).depth > 0);
    open_gap(node, position);
    extent_index_set(node, position, index);
}

void extent_remove(void *node, unsigned int position, unsigned int count)
{
    unsigned int present = extent_node_header(node).entry_count;

    assert(position <= present && count <= present - position);
    memmove(entry_place(node, position), entry_place(node, position + count),
            (size_t)(present - position - count) * EXTENT_ENTRY_BYTES);
    set_count(node, present - count);
}

void extent_move_last(void *from, unsigned int position, void *to)
{
    unsigned int present = extent_node_header(from).entry_count;
    unsigned int there = extent_node_header(to).entry_count;
    unsigned int count = present - position;

    assert(position <= present && extent_node_header(from).depth == extent_node_header(to).depth);
    set_count(to, there + count);
    memmove(entry_place(to, count), entry_place(to, 0), (size_t)there * EXTENT_ENTRY_BYTES);
    memcpy(entry_place(to, 0), entry_place(from, position), (size_t)count * EXTENT_ENTRY_BYTES);
    set_count(from, position);
}

void extent_move_first(void *from, unsigned int count, void *to)
{
    unsigned int there = extent_node_header(to).entry_count;

    assert(count <= extent_node_header(from).entry_count);
    assert(extent_node_header(from).depth == extent_node_header(to).depth);
    set_count(to, there + count);
    memcpy(entry_place(to, there), entry_place(from, 0), (size_t)count * EXTENT_ENTRY_BYTES);
    extent_remove(from, 0, count);
}

void extent_root_push_down(const struct superblock *sb, void *root, void *child,
                           uint64_t child_block)
{
    struct extent_header header = extent_node_header(root);
    struct extent_index index = {.disk_block = child_block};

    assert(header.entry_count > 0 && header.depth < EXTENT_MAX_DEPTH);
    index.file_block = le32_at(entry_place(root, 0));
    extent_node_init(child, extent_block_capacity(sb), header.depth);
    extent_move_last(root, 0, child);
    set_depth(root, header.depth + 1u);
    extent_index_insert(root, 0, &index);
}

bool extent_root_pull_up(void *root, const void *child)
{
    struct extent_header header = extent_node_header(root);
    struct extent_header below = extent_node_header(child);

    assert(header.entry_count == 1 && header.depth == below.depth + 1);
    if (below.entry_count > header.entry_max)
        return false;
    set_depth(root, below.depth);
    set_count(root, below.entry_count);
    memcpy(entry_place(root, 0), (const uint8_t *)child + EXTENT_HEADER_BYTES,
           (size_t)below.entry_count * EXTENT_ENTRY_BYTES);
    return true;
}

void extent_node_set_checksum(const struct superblock *sb, uint32_t inode_seed, void *node)
{
    if (!sb->has_metadata_csum)
        return;
    size_t covered_bytes = EXTENT_HEADER_BYTES +
                           (size_t)extent_node_header(node).entry_max * EXTENT_ENTRY_BYTES;
    assert(covered_bytes <= sb->block_bytes - sizeof(le32));
    le32 checksum = le32_make(crc32c(inode_seed, node, covered_bytes));
    memcpy((uint8_t *)node + covered_bytes, &checksum, sizeof(checksum));
}

bool extent_can_merge(const struct extent *a, const struct extent *b)
{
    return a->is_unwritten == b->is_unwritten &&
           (uint64_t)a->file_block + a->length_blocks == b->file_block &&
           a->disk_block + a->length_blocks == b->disk_block &&
           (uint64_t)a->length_blocks + b->length_blocks <= longest_extent(a);
}
