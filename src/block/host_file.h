/* SPDX-License-Identifier: MIT */
/* A file or block device of the host, opened and locked; what the file and memory devices share. */
#ifndef UEXT4_BLOCK_HOST_FILE_H
#define UEXT4_BLOCK_HOST_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/log.h"

struct host_file {
    int fd;
    bool is_block_device;
    uint64_t size_bytes;
    uint32_t sector_bytes; /* logical sector of a block device, 0 for a file */
};

/*
 * Opens a regular file or block device and locks it: exclusively if it is writable, else shared.
 * Refuses everything else without opening it. Logs what fails.
 * Returns 0, -EBUSY if the lock is held, -EINVAL for another kind of file, or open's error.
 */
int host_file_open(const char *path, bool is_writable, const struct log *log,
                   struct host_file *file) MUST_CHECK;

/* Gives up the lock and closes; the lock is gone when this returns. */
void host_file_close(struct host_file *file);

/* What direct I/O on the file asks for. Both are 0 where there is none. */
struct host_file_direct {
    uint32_t offset_alignment;
    uint32_t memory_alignment;
    bool is_worthwhile; /* the host keeps the file somewhere else than in its page cache */
};

struct host_file_direct host_file_direct(const struct host_file *file);

/* Switches direct I/O on or off. */
int host_file_set_direct(const struct host_file *file, bool is_direct) MUST_CHECK;

#endif
