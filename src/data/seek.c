/* SPDX-License-Identifier: MIT */
/*
 * Finding data and holes. Unwritten blocks count as holes, the end of the file as one too.
 *
 * Locks: none. Callers: fs.
 */
#include <errno.h>

#include "data/data.h"
#include "map/map.h"

int64_t data_seek(struct inode *inode, uint64_t offset, bool wants_data)
{
    const struct superblock *sb = &inode->volume->sb;
    uint64_t size = inode->fields.size;
    uint64_t place = offset, runs = 0, max_runs = map_max_runs(sb);

    if (offset >= size)
        return -ENXIO;
    if (inode_is_inline(inode))
        return (int64_t)(wants_data ? offset : size);
    while (place < size) {
        struct mapping mapping;
        int error = map_lookup(inode, place >> sb->block_bits, &mapping);

        if (error != 0)
            return error;
        if ((mapping.kind == MAPPING_WRITTEN) == wants_data)
            return (int64_t)place;
        place = (mapping.file_block + mapping.length_blocks) << sb->block_bits;
        if (++runs > max_runs)
            return map_too_many_runs(inode);
    }
    return wants_data ? -ENXIO : (int64_t)size;
}
