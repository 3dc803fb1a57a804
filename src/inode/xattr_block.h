/* SPDX-License-Identifier: MIT */
/* Attribute blocks, for the files of this folder. Inodes may share one by its reference count. */
#ifndef UEXT4_INODE_XATTR_BLOCK_H
#define UEXT4_INODE_XATTR_BLOCK_H

#include "inode/xattr.h"

/*
 * Gives the inode's attribute block, checked. -ENODATA if there is none. Entries and values stay as
 * they are while the inode's xattr_lock is held; the header, only under the block's mutex, as
 * inodes that share the block come and go.
 */
int xattr_block_open(const struct inode *inode, struct buffer **buffer,
                     struct xattr_area *area) MUST_CHECK;

/* Copies a block that was opened, its header included. */
void xattr_block_copy(const struct volume *volume, const struct buffer *buffer, void *copy);

/*
 * Makes `content` the inode's attribute block, without references and checksum, which come here:
 * in place if nobody shares the block it has, else in a new one. The inode's fields follow;
 * inode_write brings them to the table. -ENOSPC and -EAGAIN (wait for a commit) change nothing;
 * errors in the middle abort the journal.
 */
int xattr_block_store(struct handle *handle, struct inode *inode, const void *content) MUST_CHECK;

/* Takes the block from the inode: one off its references, or it is freed with the last. */
int xattr_block_drop(struct handle *handle, struct inode *inode) MUST_CHECK;

#endif
