/* SPDX-License-Identifier: MIT */
/*
 * Looks in the mapping cache, then in the inode's tree of whichever kind.
 *
 * Locks: a look-up in the cache takes the cache's lock alone. One in the tree holds map_lock shared
 * from the root to the entry into the cache, across the device; so no change comes in between.
 * Callers: dir, data, fs.
 */
#include "map/map.h"

#include <errno.h>

static bool map_has_extents(struct inode *inode)
{
    mutex_lock(&inode->fields_mutex);
    bool has_extents = inode_has_flag(inode, INODE_EXTENTS);
    mutex_unlock(&inode->fields_mutex);
    return has_extents;
}

int map_lookup(struct inode *inode, uint64_t file_block, struct mapping *result)
{
    if (file_block >= MAP_MAX_FILE_BLOCKS)
        return -EFBIG;
    if (!map_cache_find(&inode->mappings, file_block, result)) {
        rwlock_read_lock(&inode->map_lock);
        const void *root = inode->fields.block;
        int error = map_has_extents(inode)
                        ? extent_tree_find(inode, root, (uint32_t)file_block, result)
                        : indirect_find(inode, root, (uint32_t)file_block, result);

        if (error == 0)
            map_cache_add(&inode->mappings, result);
        rwlock_read_unlock(&inode->map_lock);
        if (error != 0)
            return error;
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
