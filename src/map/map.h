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

/*
 * The cache holds what is true now: whoever adds holds the inode's map_lock, shared at least;
 * whoever changes the map holds it exclusively and drops what it changes before it lets go. So
 * nothing that was read before a change is added after it.
 */

/* Cuts a mapping so that it starts at `file_block`, which lies in it or at its end. */
static inline void mapping_cut(struct mapping *mapping, uint64_t file_block)
{
    uint64_t skipped = file_block - mapping->file_block;

    mapping->file_block = file_block;
    mapping->length_blocks -= skipped;
    if (mapping->kind != MAPPING_HOLE)
        mapping->disk_block += skipped;
}

/* True if the cache knows the block; the result is the whole mapping. */
bool map_cache_find(struct mapping_cache *cache, uint64_t file_block, struct mapping *result);

/* Remembers a mapping, whole as it lies on the disk. A hint: it may be dropped. */
void map_cache_add(struct mapping_cache *cache, const struct mapping *mapping);

/* Forgets what is known of [first, end). */
void map_cache_drop(struct mapping_cache *cache, uint64_t first, uint64_t end);

/*
 * They find a mapping without the cache, from a root (i_block or a copy of it); it covers
 * `file_block` and may start before it. The caller holds map_lock.
 */
int extent_tree_find(const struct inode *inode, const void *root, uint32_t file_block,
                     struct mapping *result) MUST_CHECK;
int indirect_find(const struct inode *inode, const void *root, uint32_t file_block,
                  struct mapping *result) MUST_CHECK;

/* Reads a node below the root, and checks it if that was not done yet. Problems are logged. */
int extent_node_get(const struct inode *inode, uint64_t block, unsigned int depth,
                    struct buffer **buffer) MUST_CHECK;

/* Logs what is wrong with a node (block 0: the root) and gives -EUCLEAN. */
int extent_node_corrupt(const struct inode *inode, uint64_t block, const char *reason);

#define INDIRECT_DIRECT_COUNT 12
#define INDIRECT_MAX_LEVELS   3

/* Where a file block is found: the entry of i_block, and the positions in the levels below it. */
struct indirect_path {
    unsigned int levels;                         /* 0: direct */
    unsigned int root;                           /* position in i_block */
    uint64_t tree_first;                         /* first file block of the tree */
    unsigned int positions[INDIRECT_MAX_LEVELS]; /* top level first */
};

/* False past what three levels reach. */
bool indirect_path_find(const struct superblock *sb, uint32_t file_block,
                        struct indirect_path *path);

/* Reads an indirect block. Problems are logged. */
int indirect_block_get(const struct inode *inode, uint32_t block,
                       struct buffer **buffer) MUST_CHECK;

#endif
