/* SPDX-License-Identifier: MIT */
/*
 * What the files that change directories share.
 *
 * A change of more than one block is planned first, on copies of the blocks: that may fail for any
 * reason, and nothing has happened. Then plan_apply takes what can fail (room on the disk, room in
 * the transaction), undoing it if it must, and copies the result over the blocks, which cannot.
 */
#ifndef UEXT4_DIR_CHANGE_H
#define UEXT4_DIR_CHANGE_H

#include "dir/edit.h"

/* An index of the most levels, all full below the root: a leaf and the inner nodes split. */
#define PLAN_MAX_NEW_BLOCKS HTREE_MAX_LEVELS
#define PLAN_MAX_IMAGES     (HTREE_MAX_LEVELS + PLAN_MAX_NEW_BLOCKS + 1)

/* A block as it is to be. */
struct plan_image {
    struct buffer *buffer; /* held; NULL: a new block */
    uint32_t file_block;
    enum block_kind kind;
    uint8_t *data;
};

struct plan {
    struct inode *dir;
    uint64_t block_count; /* with the new blocks */
    struct plan_image images[PLAN_MAX_IMAGES];
    unsigned int count;
    uint32_t sets_flags; /* of the inode */
};

int plan_begin(struct plan *plan, struct inode *dir) MUST_CHECK;
void plan_end(struct plan *plan);

/* Adds a block that exists, with a copy of its content. */
int plan_add(struct plan *plan, struct buffer *buffer, uint32_t file_block, enum block_kind kind,
             struct plan_image **image) MUST_CHECK;

/* Adds a block at the directory's end, zeroed. -ENOSPC for more than a directory may have. */
int plan_add_new(struct plan *plan, enum block_kind kind, struct plan_image **image) MUST_CHECK;

int plan_apply(struct handle *handle, struct plan *plan) MUST_CHECK;

/*
 * Adds `count` blocks (up to PLAN_MAX_NEW_BLOCKS) to the end of the directory, with its size; gives
 * their buffers, zeroed, part of the transaction. `sets_flags` as in the plan. An error leaves all
 * as it was.
 */
int dir_grow(struct handle *handle, struct inode *dir, unsigned int count, uint32_t sets_flags,
             struct buffer **buffers) MUST_CHECK;

/* -EUCLEAN for a block of entries without the room for its checksum that the format asks for. */
int dir_check_tail(const struct inode *dir, const struct buffer *buffer,
                   uint64_t file_block) MUST_CHECK;

/* Brings the checksum of a changed block of entries up to date. */
void dir_finish_leaf(const struct inode *dir, void *block);

/* The same for the root of the index. */
void dir_finish_root(const struct inode *dir, void *block);

/* Enters a name into an indexed directory, or one that gets its index now (one full block). */
int dir_index_insert(struct handle *handle, struct inode *dir, const struct dir_name *name,
                     const struct dirent_view *entry) MUST_CHECK;
int dir_index_create(struct handle *handle, struct inode *dir, const struct dir_name *name,
                     const struct dirent_view *entry) MUST_CHECK;

/* ---- Directories in their inode -------------------------------------------------------------- */

/* Makes a new one. -ENOSPC if the inode has no room for its attribute. */
int dir_inline_init(struct handle *handle, struct inode *dir, uint32_t parent_ino) MUST_CHECK;

/* -ENOSPC: it must be moved out. */
int dir_inline_insert(struct handle *handle, struct inode *dir,
                      const struct dirent_view *entry) MUST_CHECK;
int dir_inline_remove(struct handle *handle, struct inode *dir,
                      const struct dir_place *place) MUST_CHECK;
int dir_inline_replace(struct handle *handle, struct inode *dir, const struct dir_place *place,
                       uint32_t ino, uint8_t type) MUST_CHECK;

/* Moves the entries to a block. */
int dir_inline_move_out(struct handle *handle, struct inode *dir) MUST_CHECK;

#endif
