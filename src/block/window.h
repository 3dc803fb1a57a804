/* SPDX-License-Identifier: MIT */
/* The part of an image that a device shows: an offset and size, a partition, or both. */
#ifndef UEXT4_BLOCK_WINDOW_H
#define UEXT4_BLOCK_WINDOW_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/log.h"
#include "block/host_file.h"

#define WINDOW_REST UINT64_MAX /* as a size: to the end */

/* As asked for. The offset counts from the start of the partition, if one is given. */
struct window_options {
    uint64_t offset_bytes;
    uint64_t size_bytes; /* or WINDOW_REST */
    uint64_t partition;  /* number as the partition tools show it, 0: the whole image */
};

struct window {
    uint64_t offset_bytes;
    uint64_t size_bytes;
};

/*
 * Finds the window in a file; reads the partition table (GPT, MBR with logical partitions, and what
 * else libblkid knows) if a partition is asked for. Returns 0 or -EINVAL, logged, if there is no
 * such partition or the window does not fit.
 */
int window_find(const struct host_file *file, const char *path,
                const struct window_options *options, const struct log *log,
                struct window *window) MUST_CHECK;

#endif
