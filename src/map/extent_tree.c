/* SPDX-License-Identifier: MIT */
/*
 * Look-ups in an extent tree.
 *
 * The walk goes from the root in the inode to a leaf, one block per level, and narrows the range
 * of file blocks that the node below may speak of: [low, high). A node that speaks of others is
 * corrupt. Each node is checked when it enters the buffer cache, and its checksum with it.
 *
 * Locks: the caller holds map_lock; one buffer is held at a time. Callers: map.c, and the files
 * that change extent trees.
 */
#include <errno.h>

#include "format/extent.h"
#include "map/map.h"

struct walk {
    const struct inode *inode;
    const void *node;      /* the root, or the data of `buffer` */
    struct buffer *buffer; /* NULL at the root */
    int depth;             /* of the node */
    uint64_t low, high;    /* file blocks that it may speak of */
};

int extent_node_corrupt(const struct inode *inode, uint64_t block, const char *reason)
{
    if (block == 0)
        log_error(inode->volume->log, "inode %u: extent root: %s", inode->ino, reason);
    else
        log_error(inode->volume->log, "inode %u: extent node in block %llu: %s", inode->ino,
                  (unsigned long long)block, reason);
    return -EUCLEAN;
}

static int corrupt(const struct walk *walk, const char *reason)
{
    return extent_node_corrupt(walk->inode, walk->buffer != NULL ? walk->buffer->block : 0, reason);
}

int extent_node_get(const struct inode *inode, uint64_t block, unsigned int depth,
                    struct buffer **result)
{
    const struct volume *volume = inode->volume;
    struct buffer *buffer;
    uint64_t tag = block_tag(BLOCK_KIND_EXTENT_NODE, inode->ino, depth);
    int error = buffer_get(volume->buffers, block, &buffer);

    if (error != 0) {
        log_error(volume->log, "inode %u: cannot read its extent node in block %llu", inode->ino,
                  (unsigned long long)block);
        return error;
    }
    if (!buffer_is_verified(buffer, tag)) {
        const char *reason = extent_node_check(&volume->sb, buffer->data, volume->sb.block_bytes,
                                               (int)depth);

        if (reason != NULL) {
            error = extent_node_corrupt(inode, block, reason);
        } else if (!volume->skip_checksums &&
                   !extent_node_checksum_matches(&volume->sb, inode->checksum_seed, buffer->data)) {
            log_error(volume->log, "inode %u: extent node in block %llu: checksum does not match",
                      inode->ino, (unsigned long long)block);
            error = -EBADMSG;
        }
        if (error != 0) {
            buffer_put(buffer);
            return error;
        }
        buffer_set_verified(buffer, tag);
    }
    *result = buffer;
    return 0;
}

/* Goes on to the node below. */
static int walk_descend(struct walk *walk, uint64_t block)
{
    struct buffer *buffer;
    int error = extent_node_get(walk->inode, block, (unsigned int)walk->depth - 1, &buffer);

    if (error != 0)
        return error;
    buffer_put(walk->buffer);
    walk->buffer = buffer;
    walk->node = buffer->data;
    walk->depth--;
    return 0;
}

/* Picks the child that covers the block and narrows the range to it. */
static int walk_step(struct walk *walk, uint32_t file_block, bool *is_hole)
{
    unsigned int count = extent_node_header(walk->node).entry_count;
    int position = extent_find(walk->node, file_block);

    *is_hole = position < 0;
    if (*is_hole) {
        walk->high = MIN(walk->high, extent_index_at(walk->node, 0).file_block);
        return 0;
    }
    struct extent_index index = extent_index_at(walk->node, (unsigned int)position);
    if (index.file_block < walk->low)
        return corrupt(walk, "speaks of blocks before its own range");
    walk->low = index.file_block;
    if ((unsigned int)position + 1 < count)
        walk->high = MIN(walk->high,
                         extent_index_at(walk->node, (unsigned int)position + 1).file_block);
    return walk_descend(walk, index.disk_block);
}

static void set_hole(struct mapping *result, uint64_t first, uint64_t end)
{
    result->file_block = first;
    result->length_blocks = end - first;
    result->disk_block = 0;
    result->kind = MAPPING_HOLE;
}

/* Looks in the leaf that the walk has reached. */
static int walk_leaf(const struct walk *walk, uint32_t file_block, struct mapping *result)
{
    unsigned int count = extent_node_header(walk->node).entry_count;
    int position = extent_find(walk->node, file_block);
    uint64_t hole_start = walk->low, hole_end = walk->high;

    if ((unsigned int)(position + 1) < count)
        hole_end = MIN(hole_end, extent_at(walk->node, (unsigned int)(position + 1)).file_block);
    if (position >= 0) {
        struct extent extent = extent_at(walk->node, (unsigned int)position);
        uint64_t end = (uint64_t)extent.file_block + extent.length_blocks;

        if (extent.file_block < walk->low || end > walk->high)
            return corrupt(walk, "speaks of blocks outside its range");
        if (file_block < end) {
            result->file_block = extent.file_block;
            result->length_blocks = extent.length_blocks;
            result->disk_block = extent.disk_block;
            result->kind = extent.is_unwritten ? MAPPING_UNWRITTEN : MAPPING_WRITTEN;
            return 0;
        }
        hole_start = end;
    }
    set_hole(result, hole_start, hole_end);
    return 0;
}

int extent_tree_find(const struct inode *inode, const void *root, uint32_t file_block,
                     struct mapping *result)
{
    struct walk walk = {.inode = inode, .node = root, .low = 0, .high = MAP_MAX_FILE_BLOCKS};
    const char *reason = extent_node_check(&inode->volume->sb, root, INODE_BLOCK_BYTES, -1);
    bool is_hole = false;
    int error = 0;

    if (reason != NULL)
        return corrupt(&walk, reason);
    walk.depth = extent_node_header(walk.node).depth;
    while (walk.depth > 0 && error == 0 && !is_hole)
        error = walk_step(&walk, file_block, &is_hole);
    if (error == 0 && is_hole)
        set_hole(result, walk.low, walk.high);
    else if (error == 0)
        error = walk_leaf(&walk, file_block, result);
    buffer_put(walk.buffer);
    return error;
}
