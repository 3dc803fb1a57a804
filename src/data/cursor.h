/* SPDX-License-Identifier: MIT */
/* A place in a caller's buffers, for reads and writes that go through them piece by piece. */
#ifndef UEXT4_DATA_CURSOR_H
#define UEXT4_DATA_CURSOR_H

#include "block/device.h"

struct cursor {
    const struct iovec *iov;
    int iov_count;
    size_t skip; /* bytes of iov[0] that are done already */
};

/* Takes the next contiguous piece, at most `limit` bytes; 0 bytes at the end. */
struct iovec cursor_take(struct cursor *cursor, size_t limit);

void cursor_fill(struct cursor *cursor, size_t length);                        /* with zeros */
void cursor_copy(struct cursor *cursor, const uint8_t *source, size_t length); /* into buffers */
void cursor_copy_out(struct cursor *cursor, uint8_t *target, size_t length);   /* out of them */

/*
 * Moves a run that lies together on the device between it and the buffers. What is aligned as the
 * device wants it goes as it is, many pieces in one request; what is not goes through a bounce.
 */
int cursor_read(struct cursor *cursor, struct device *device, size_t length,
                uint64_t offset) MUST_CHECK;
int cursor_write(struct cursor *cursor, struct device *device, size_t length,
                 uint64_t offset) MUST_CHECK;

/* Adds up the buffers. -EINVAL for too many of them or too many bytes. */
ssize_t cursor_init(struct cursor *cursor, const struct iovec *iov, int iov_count);

#endif
