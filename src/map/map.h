/* SPDX-License-Identifier: MIT */
/*
 * From file blocks to disk blocks: extent trees and indirect blocks behind one call.
 */
#ifndef UEXT4_MAP_MAP_H
#define UEXT4_MAP_MAP_H

#include "inode/inode.h"

/* One past the last file block that a mapping can have, for any inode. */
#define MAP_MAX_FILE_BLOCKS (UINT64_C(1) << 32)

/*
 * Finds the mapping that covers a file block, cut so that it starts there. It is at least one block
 * long and need not be maximal: the next one may go on where it ends, holes too. Holes reach at
 * most to MAP_MAX_FILE_BLOCKS. The disk blocks are inside the file system. Not for inline data. May
 * wait for the device. -EFBIG past MAP_MAX_FILE_BLOCKS.
 */
int map_lookup(struct inode *inode, uint64_t file_block, struct mapping *result) MUST_CHECK;

/*
 * As map_lookup, and joined with the mappings that follow it, on the disk too, until it is
 * `max_blocks` long or the neighbour is another run. -EUCLEAN for a run in too many pieces.
 */
int map_lookup_joined(struct inode *inode, uint64_t file_block, uint64_t max_blocks,
                      struct mapping *result) MUST_CHECK;

/*
 * More look-ups than it takes to go from run to run through any sound file: each run is a block of
 * the file system at least, or a hole beside one or at the edge of an indirect block. A map in
 * which blocks stand for many would take hours.
 */
static inline uint64_t map_max_runs(const struct superblock *sb)
{
    return 4 * sb->block_count + 1024;
}

/* Logs that a file has more runs than that and gives -EUCLEAN. */
int map_too_many_runs(const struct inode *inode);

/* ---- Shared by the files of this folder ------------------------------------------------------ */

/* True if the cache knows the block; the result is the whole mapping. */
bool map_cache_find(struct mapping_cache *cache, uint64_t file_block, struct mapping *result);

/* Remembers a mapping, whole as it lies on the disk. A hint: it may be dropped. */
void map_cache_add(struct mapping_cache *cache, const struct mapping *mapping);

/* They find a mapping without the cache; it covers `file_block` and may start before it. */
int extent_tree_lookup(const struct inode *inode, uint32_t file_block, struct mapping *result);
int indirect_lookup(const struct inode *inode, uint32_t file_block, struct mapping *result);

#endif
