/* SPDX-License-Identifier: MIT */
#ifndef UEXT4_FUSE_SCRATCH_H
#define UEXT4_FUSE_SCRATCH_H

#include <stddef.h>

/*
 * The calling thread's buffer, SERVER_MAX_TRANSFER_BYTES long and aligned for direct I/O; its
 * content lasts until the thread asks again. Freed when the thread ends. Returns NULL for a larger
 * size and without memory.
 */
void *scratch_get(size_t size);

#endif
