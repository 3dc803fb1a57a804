/* SPDX-License-Identifier: MIT */
/*
 * Look-ups in the block map of ext2 and ext3: twelve direct blocks, then trees of one, two and
 * three levels of indirect blocks.
 *
 * An entry is a disk block or 0 for a hole; a 0 in an inner block is a hole as large as all below
 * it. Neighbouring entries that continue each other are taken as one mapping.
 *
 * Locks: the caller holds map_lock; one buffer is held at a time. Callers: map.c, indirect_edit.c.
 */
#include <errno.h>

#include "base/byteorder.h"
#include "map/map.h"

bool indirect_path_find(const struct superblock *sb, uint32_t file_block,
                        struct indirect_path *path)
{
    unsigned int bits = sb->block_bits - 2; /* of entries per block */
    uint64_t rest = file_block;

    if (file_block < INDIRECT_DIRECT_COUNT) {
        path->levels = 0;
        path->root = file_block;
        path->tree_first = 0;
        return true;
    }
    rest -= INDIRECT_DIRECT_COUNT;
    path->tree_first = INDIRECT_DIRECT_COUNT;
    for (unsigned int levels = 1; levels <= INDIRECT_MAX_LEVELS; levels++) {
        uint64_t reach = UINT64_C(1) << (bits * levels);

        if (rest < reach) {
            path->levels = levels;
            path->root = INDIRECT_DIRECT_COUNT + levels - 1;
            for (unsigned int i = 0; i < levels; i++)
                path->positions[i] = (unsigned int)(rest >> (bits * (levels - 1 - i))) &
                                     ((1u << bits) - 1);
            return true;
        }
        rest -= reach;
        path->tree_first += reach;
    }
    return false;
}

/* Joins the entries from `position` on that continue each other (or are all holes). */
static int run_of_entries(const struct inode *inode, const uint8_t *entries, unsigned int count,
                          unsigned int position, uint64_t file_block, struct mapping *result)
{
    uint32_t first = le32_at(entries + 4 * (size_t)position);
    uint32_t length = 1;

    while (position + length < count &&
           le32_at(entries + 4 * ((size_t)position + length)) == (first == 0 ? 0 : first + length))
        length++;
    if (first != 0 && !volume_has_blocks(inode->volume, first, length)) {
        log_error(inode->volume->log, "inode %u: file block %llu lies outside the file system",
                  inode->ino, (unsigned long long)file_block);
        return -EUCLEAN;
    }
    result->file_block = file_block;
    result->length_blocks = length;
    result->disk_block = first;
    result->kind = first == 0 ? MAPPING_HOLE : MAPPING_WRITTEN;
    return 0;
}

int indirect_block_get(const struct inode *inode, uint32_t block, struct buffer **buffer)
{
    int error;

    if (!volume_has_blocks(inode->volume, block, 1)) {
        log_error(inode->volume->log, "inode %u: indirect block %u lies outside the file system",
                  inode->ino, block);
        return -EUCLEAN;
    }
    error = buffer_get(inode->volume->buffers, block, buffer);
    if (error != 0)
        log_error(inode->volume->log, "inode %u: cannot read indirect block %u", inode->ino, block);
    return error;
}

int indirect_find(const struct inode *inode, const void *root, uint32_t file_block,
                  struct mapping *result)
{
    const struct superblock *sb = &inode->volume->sb;
    unsigned int bits = sb->block_bits - 2;
    struct indirect_path path;

    if (!indirect_path_find(sb, file_block, &path)) {
        result->file_block = file_block;
        result->length_blocks = MAP_MAX_FILE_BLOCKS - file_block;
        result->disk_block = 0;
        result->kind = MAPPING_HOLE;
        return 0;
    }
    if (path.levels == 0)
        return run_of_entries(inode, root, INDIRECT_DIRECT_COUNT, path.root, file_block, result);

    uint32_t block = le32_at((const uint8_t *)root + 4 * (size_t)path.root);
    uint64_t subtree_first = path.tree_first;
    for (unsigned int level = 0;; level++) {
        unsigned int levels_below = path.levels - level; /* a block here reaches this many levels */
        struct buffer *buffer;

        if (block == 0) {
            result->file_block = subtree_first;
            result->length_blocks = UINT64_C(1) << (bits * levels_below);
            result->length_blocks = MIN(result->length_blocks, MAP_MAX_FILE_BLOCKS - subtree_first);
            result->disk_block = 0;
            result->kind = MAPPING_HOLE;
            return 0;
        }
        int error = indirect_block_get(inode, block, &buffer);
        if (error != 0)
            return error;
        if (levels_below == 1) {
            error = run_of_entries(inode, buffer->data, 1u << bits, path.positions[level],
                                   file_block, result);
            buffer_put(buffer);
            return error;
        }
        block = le32_at((const uint8_t *)buffer->data + 4 * (size_t)path.positions[level]);
        subtree_first += (uint64_t)path.positions[level] << (bits * (levels_below - 1));
        buffer_put(buffer);
    }
}
