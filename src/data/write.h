/* SPDX-License-Identifier: MIT */
/*
 * Changes of files' bytes and sizes. All take the file's ranges themselves and start their own
 * handles: the caller holds neither.
 */
#ifndef UEXT4_DATA_WRITE_H
#define UEXT4_DATA_WRITE_H

#include "data/data.h"
#include "space/allocate.h"

/*
 * Writes from the buffers at `offset`, past the end of the file too. Data goes to the device first:
 * blocks are reserved in memory, written, and only then one transaction takes bitmap, map and size
 * together, so that a crash shows the old bytes or the new ones, and never what the blocks held
 * before. Writes that do not overlap run in parallel. Returns the count; less than asked for, or an
 * error if nothing was written, when space runs out or the device fails.
 */
ssize_t data_write(struct inode *inode, const struct iovec *iov, int iov_count, uint64_t offset,
                   unsigned int space_flags);

/* Sets the size: cuts off or adds a hole. */
int data_truncate(struct inode *inode, uint64_t size) MUST_CHECK;

/* Frees what a cut that was interrupted has left behind the size, and takes the inode off the
 * orphan list. */
int data_cut_behind_size(struct inode *inode) MUST_CHECK;

/* Frees everything that the inode has, in as many transactions as it takes; its size becomes 0. The
   inode is on the orphan list, or has no name and is put there. */
int data_free_all(struct inode *inode) MUST_CHECK;

#endif
