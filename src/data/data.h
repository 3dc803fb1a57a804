/* SPDX-License-Identifier: MIT */
/* The bytes of files. */
#ifndef UEXT4_DATA_DATA_H
#define UEXT4_DATA_DATA_H

#include <sys/uio.h>

#include "inode/inode.h"

/*
 * Reads from `offset` into the buffers, up to the end of the file. Returns the count or -errno.
 * Works on every inode with data, directories and symbolic links too. No lock is held while the
 * device works.
 */
ssize_t data_read(struct inode *inode, const struct iovec *iov, int iov_count, uint64_t offset);

/* As data_read into one buffer. */
ssize_t data_read_buffer(struct inode *inode, void *buffer, size_t length, uint64_t offset);

/* The next offset with data, or without, from `offset` on. -ENXIO as lseek(2) has it. */
int64_t data_seek(struct inode *inode, uint64_t offset, bool wants_data);

#endif
