/* SPDX-License-Identifier: MIT */
/* What the files that change maps share: a change in progress, and paths in extent trees. */
#ifndef UEXT4_MAP_CHANGE_H
#define UEXT4_MAP_CHANGE_H

#include "format/extent.h"
#include "map/edit.h"

/*
 * A change of one inode's map, within a handle. map_lock is held exclusively from begin to end. The
 * root is changed in a copy, which map_change_end installs.
 */
struct map_change {
    struct handle *handle;
    struct inode *inode;
    const struct volume *volume;
    uint8_t root[INODE_BLOCK_BYTES];
    bool is_root_changed;
    bool is_inode_changed; /* i_blocks */
    uint32_t forgotten;    /* blocks revoked so far */
};

/* A block of the tree that was just allocated. */
struct tree_block {
    uint64_t block;
    struct buffer *buffer;
};

void map_change_begin(struct map_change *change, struct handle *handle, struct inode *inode);

/* Installs what was changed and unlocks; returns `error`, or what went wrong here. */
int map_change_end(struct map_change *change, int error) MUST_CHECK;

/* Sees to it that the handle has so many credits left, or gives -EAGAIN. */
int map_change_need(struct map_change *change, uint32_t credits) MUST_CHECK;

/*
 * Adds to i_blocks and makes the inode part of the transaction, so that nothing can go wrong with
 * it after the tree was changed. On an error nothing is changed.
 */
int map_change_prepare_inode(struct map_change *change, int64_t blocks) MUST_CHECK;

/* Takes blocks from i_blocks; map_change_end writes the inode. */
void map_change_count_freed(struct map_change *change, uint64_t blocks);

/*
 * Allocates tree blocks, zeroed and part of the transaction, all or none; i_blocks is left alone.
 * `goal` 0: near the inode.
 */
int map_change_create_blocks(struct map_change *change, uint64_t goal, struct tree_block *blocks,
                             uint32_t count) MUST_CHECK;

/* Gives back blocks that map_change_create_blocks gave and the tree does not have. */
void map_change_drop_blocks(struct map_change *change, struct tree_block *blocks, uint32_t count);

/* Revokes blocks that are to be freed. -EAGAIN, with nothing done, if there is no room for that. */
int map_change_forget(struct map_change *change, uint64_t block, uint32_t count) MUST_CHECK;

/* Frees a tree block that was forgotten, and takes it from i_blocks. */
int map_change_free_tree_block(struct map_change *change, uint64_t block) MUST_CHECK;

/* Credits for allocating or freeing so many single blocks. */
uint32_t map_block_credits(const struct superblock *sb, uint32_t count);

/* Revokes that one call makes at most, so that those of many threads have room. */
#define MAP_MAX_FORGOTTEN 64u

/* ---- extent_path.c: a way from the root to a leaf, and changes at its end ---------------------
 */

struct extent_level {
    void *node;            /* the root's copy, or what `buffer` holds */
    struct buffer *buffer; /* NULL at the root */
    int position;          /* of the entry that was followed; in the leaf the one found, or -1 */
    uint64_t low, high;    /* file blocks that the node may speak of */
};

struct extent_path {
    struct map_change *change;
    unsigned int depth;
    struct extent_level levels[EXTENT_MAX_DEPTH + 1];
};

/*
 * Finds the leaf in which a file block is mapped, or would be. Everything on the path is checked
 * for lying in its bounds. The path must be released if this succeeds, and is of no use any more
 * once the tree was changed.
 */
int extent_path_find(struct map_change *change, uint64_t file_block,
                     struct extent_path *path) MUST_CHECK;
void extent_path_release(struct extent_path *path);

static inline struct extent_level *extent_path_leaf(struct extent_path *path)
{
    return &path->levels[path->depth];
}

static inline unsigned int extent_path_count(const struct extent_path *path)
{
    return extent_node_header(path->levels[path->depth].node).entry_count;
}

/* Entries of the leaf that make room for others, at least one more than leaves it empty. */
struct extent_replacement {
    unsigned int position, removed, added;
    struct extent entries[3];
};

/*
 * Replaces entries of the leaf, splitting nodes as needed. Adds `blocks`, and those of new nodes,
 * to i_blocks. On an error nothing is changed.
 */
int extent_path_replace(struct extent_path *path, const struct extent_replacement *replacement,
                        int64_t blocks) MUST_CHECK;

/*
 * Removes entries of the leaf; if none is left, the leaf, and nodes above it that become empty. On
 * -EAGAIN nothing is changed.
 */
int extent_path_remove(struct extent_path *path, unsigned int position,
                       unsigned int count) MUST_CHECK;

/* Moves the leaf's entries from `position` up to and with `last` by `delta` file blocks. */
int extent_path_shift(struct extent_path *path, unsigned int position, unsigned int last,
                      int64_t delta) MUST_CHECK;

/*
 * Takes levels away as long as the root has one child whose entries fit into it, and nothing is in
 * the way. An error is one of freeing the child.
 */
int extent_tree_flatten(struct map_change *change) MUST_CHECK;

/* Credits that a call of extent_path_replace or extent_path_remove takes at most, at that depth. */
uint32_t extent_replace_credits(const struct superblock *sb, unsigned int depth);
uint32_t extent_remove_credits(const struct superblock *sb, unsigned int depth);

/* ---- What edit.c chooses between ------------------------------------------------------------- */

int extent_tree_insert(struct map_change *change, const struct mapping *mapping) MUST_CHECK;

/* Makes what is mapped in a run written or unwritten. */
int extent_tree_set_kind(struct map_change *change, uint64_t first, uint64_t end,
                         bool is_unwritten) MUST_CHECK;

/* With `is_kept` the blocks are unmapped only, neither freed nor counted. */
int extent_tree_remove(struct map_change *change, uint64_t first, uint64_t end, bool is_kept,
                       uint64_t *remaining_end) MUST_CHECK;
int extent_tree_shift(struct map_change *change, uint64_t first, int64_t delta,
                      uint64_t *next) MUST_CHECK;

uint32_t indirect_credits(const struct volume *volume, uint64_t length_blocks);
int indirect_insert(struct map_change *change, const struct mapping *mapping) MUST_CHECK;
int indirect_remove(struct map_change *change, uint64_t first, uint64_t end, bool is_kept,
                    uint64_t *remaining_end) MUST_CHECK;

/*
 * Blocks of the clusters of a run that no other block of the inode uses: what the run adds to
 * i_blocks, or frees, as it is not in the tree now. *run is what to free.
 */
int extent_tree_own_clusters(struct map_change *change, const struct mapping *mapping,
                             struct space_run *run, int64_t *blocks) MUST_CHECK;

#endif
