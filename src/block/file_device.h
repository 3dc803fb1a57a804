/* SPDX-License-Identifier: MIT */
/* What the file device shares with its io_uring queue. */
#ifndef UEXT4_BLOCK_FILE_DEVICE_H
#define UEXT4_BLOCK_FILE_DEVICE_H

#include "block/device.h"
#include "block/host_file.h"

struct file_device {
    struct device device;
    struct host_file file; /* [immutable] */
    uint64_t offset_bytes; /* [immutable] where the device starts in the file */
    char *path;            /* [immutable] for messages */
};

/*
 * Carries out what is left of a read or write after its first `done` bytes. `flags` are those of
 * enum device_write_flags.
 */
int file_device_transfer(struct file_device *file, enum device_operation operation,
                         const struct iovec *iov, int iov_count, uint64_t offset_bytes,
                         unsigned int flags, uint64_t done) MUST_CHECK;

/* Logs a failed request and returns the error. */
int file_device_report(const struct file_device *file, enum device_operation operation,
                       uint64_t offset_bytes, int error);

/* The io_uring queue; a thread queue where the host has no io_uring. */
int file_queue_open(struct device *device, unsigned int depth,
                    struct device_queue **queue) MUST_CHECK;

#endif
