/* SPDX-License-Identifier: MIT */
/*
 * A path through the hash index of a directory:
 *
 *   block 0: root (".", "..", facts, entries) -> up to 2 levels of inner nodes -> blocks of entries
 *
 * Equal hashes can go on in the next block of entries: then its index entry has the same hash, with
 * the lowest bit set.
 */
#ifndef UEXT4_DIR_INDEX_H
#define UEXT4_DIR_INDEX_H

#include "dir/dir.h"

/* One node on the way down, held, and the entry that the path takes in it. */
struct index_frame {
    struct buffer *buffer;
    uint32_t file_block;
    unsigned int position, count;
};

struct index_path {
    struct inode *dir;
    uint64_t block_count; /* of the directory */
    struct htree_root root;
    struct index_frame frames[HTREE_MAX_LEVELS];
    unsigned int frame_count; /* root.indirect_levels + 1, except in the middle of a move */
    uint64_t nodes_read;      /* inner nodes that the path has passed */
};

/* Reads and checks the root. On an error nothing is held. */
int index_open(struct inode *dir, struct index_path *path) MUST_CHECK;
void index_close(struct index_path *path);

/* Goes down to the first block that can hold the hash. Follows index_open. */
int index_descend(struct index_path *path, uint32_t hash) MUST_CHECK;

/* The entry of the last inner level: the block of entries that the path leads to. */
struct htree_entry index_leaf(const struct index_path *path);

/* Tells the hash that the next block's index entry has. False if this is the last one. */
bool index_peek_next(const struct index_path *path, uint32_t *hash);

/* Moves to the next block of entries. 1: moved, 0: there is none, or an error. */
int index_next(struct index_path *path) MUST_CHECK;

/* Reads and checks an inner node that is not on the path; release the buffer. */
int index_get_node(struct index_path *path, uint32_t file_block, struct buffer **buffer) MUST_CHECK;

/*
 * Looks at the whole of the index: inner nodes sound, hashes in order, as many blocks in it as the
 * directory has. 1 if so, 0 if not, or an error other than of the index (-EIO, -ENOMEM). Logs what
 * is wrong.
 */
int index_check(struct inode *dir) MUST_CHECK;

/* Searches through the index. -ENOENT, or another error if the index is of no use. */
int index_find(struct inode *dir, const struct dir_name *name, struct dir_place *place) MUST_CHECK;

#endif
