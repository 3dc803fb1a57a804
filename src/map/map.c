/* SPDX-License-Identifier: MIT */
/*
 * Looks in the mapping cache, then in the inode's tree of whichever kind.
 *
 * Locks: none across the device. Callers: dir, data, fs.
 */
#include "map/map.h"

#include <errno.h>

static void mapping_cut(struct mapping *mapping, uint64_t file_block)
{
    uint64_t skipped = file_block - mapping->file_block;

    mapping->file_block = file_block;
    mapping->length_blocks -= skipped;
    if (mapping->kind != MAPPING_HOLE)
        mapping->disk_block += skipped;
}

int map_lookup(struct inode *inode, uint64_t file_block, struct mapping *result)
{
    if (file_block >= MAP_MAX_FILE_BLOCKS)
        return -EFBIG;
    if (!map_cache_find(&inode->mappings, file_block, result)) {
        int error = inode_has_flag(inode, INODE_EXTENTS)
                        ? extent_tree_lookup(inode, (uint32_t)file_block, result)
                        : indirect_lookup(inode, (uint32_t)file_block, result);

        if (error != 0)
            return error;
        map_cache_add(&inode->mappings, result);
    }
    mapping_cut(result, file_block);
    return 0;
}

int map_too_many_runs(const struct inode *inode)
{
    log_error(inode->volume->log,
              "inode %u: its map has more pieces than the file system has room for", inode->ino);
    return -EUCLEAN;
}

int map_lookup_joined(struct inode *inode, uint64_t file_block, uint64_t max_blocks,
                      struct mapping *result)
{
    uint64_t runs = 0, max_runs = map_max_runs(&inode->volume->sb);
    int error = map_lookup(inode, file_block, result);

    if (error != 0)
        return error;
    while (result->length_blocks < max_blocks) {
        uint64_t end = result->file_block + result->length_blocks;
        struct mapping next;

        /* An error behind a good mapping comes back when its own place is asked for. */
        if (end >= MAP_MAX_FILE_BLOCKS || map_lookup(inode, end, &next) != 0)
            break;
        if (next.kind != result->kind)
            break;
        if (next.kind != MAPPING_HOLE &&
            next.disk_block != result->disk_block + result->length_blocks)
            break;
        result->length_blocks += next.length_blocks;
        if (++runs > max_runs)
            return map_too_many_runs(inode);
    }
    result->length_blocks = MIN(result->length_blocks, max_blocks);
    return 0;
}
