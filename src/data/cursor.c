/* SPDX-License-Identifier: MIT */
/*
 * Going through a caller's buffers, and moving runs between them and the device.
 *
 * Locks: none. Callers: read.c, write.c.
 */
#include "data/cursor.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define MAX_PIECES 64 /* buffers in one vectored request */

/* A request below this that is not wholly aligned is bounced in one, rather than split. */
#define MIN_SPLIT_BYTES (128u * 1024)

struct iovec cursor_take(struct cursor *cursor, size_t limit)
{
    while (cursor->iov_count > 0 && cursor->skip == cursor->iov->iov_len) {
        cursor->iov++;
        cursor->iov_count--;
        cursor->skip = 0;
    }
    if (cursor->iov_count == 0)
        return (struct iovec){.iov_base = NULL, .iov_len = 0};

    struct iovec piece = {.iov_base = (char *)cursor->iov->iov_base + cursor->skip,
                          .iov_len = MIN(limit, cursor->iov->iov_len - cursor->skip)};
    cursor->skip += piece.iov_len;
    return piece;
}

void cursor_fill(struct cursor *cursor, size_t length)
{
    while (length > 0) {
        struct iovec piece = cursor_take(cursor, length);

        if (piece.iov_len == 0)
            return;
        memset(piece.iov_base, 0, piece.iov_len);
        length -= piece.iov_len;
    }
}

void cursor_copy(struct cursor *cursor, const uint8_t *source, size_t length)
{
    while (length > 0) {
        struct iovec piece = cursor_take(cursor, length);

        if (piece.iov_len == 0)
            return;
        memcpy(piece.iov_base, source, piece.iov_len);
        source += piece.iov_len;
        length -= piece.iov_len;
    }
}

void cursor_copy_out(struct cursor *cursor, uint8_t *target, size_t length)
{
    while (length > 0) {
        struct iovec piece = cursor_take(cursor, length);

        if (piece.iov_len == 0)
            return;
        memcpy(target, piece.iov_base, piece.iov_len);
        target += piece.iov_len;
        length -= piece.iov_len;
    }
}

/*
 * Takes the next piece that the device can fill without a copy: its address is aligned, and the
 * length of a large one cut to a multiple of the alignment. 0 bytes, and nothing taken, if there is
 * none.
 */
static struct iovec cursor_take_aligned(struct cursor *cursor, const struct device_limits *limits,
                                        size_t limit)
{
    struct cursor start = *cursor;
    struct iovec piece = cursor_take(cursor, limit);
    size_t aligned = ROUND_DOWN(piece.iov_len, limits->offset_alignment);

    if ((uintptr_t)piece.iov_base % limits->memory_alignment != 0 ||
        (aligned != piece.iov_len && piece.iov_len < MIN_SPLIT_BYTES))
        aligned = 0;
    *cursor = start;
    return aligned == 0 ? (struct iovec){.iov_base = NULL, .iov_len = 0}
                        : cursor_take(cursor, aligned);
}

static int transfer_pieces(struct device *device, bool is_write, const struct iovec *pieces,
                           int count, uint64_t offset)
{
    return is_write ? device_writev(device, pieces, count, offset, 0)
                    : device_readv(device, pieces, count, offset);
}

static int transfer_bounced(struct device *device, bool is_write, struct iovec piece,
                            uint64_t offset)
{
    return is_write ? device_write(device, piece.iov_base, piece.iov_len, offset, 0)
                    : device_read(device, piece.iov_base, piece.iov_len, offset);
}

static int transfer_run(struct cursor *cursor, struct device *device, bool is_write, size_t length,
                        uint64_t offset)
{
    const struct device_limits *limits = device_limits(device);
    uint32_t max_pieces = MIN(limits->max_iov_count, MAX_PIECES);

    while (length > 0) {
        struct iovec pieces[MAX_PIECES];
        uint32_t count = 0;
        size_t taken = 0;
        int error;

        while (taken < length && count < max_pieces && offset % limits->offset_alignment == 0) {
            pieces[count] = cursor_take_aligned(cursor, limits, length - taken);
            if (pieces[count].iov_len == 0)
                break;
            taken += pieces[count++].iov_len;
        }
        if (count > 0) {
            error = transfer_pieces(device, is_write, pieces, (int)count, offset);
        } else {
            /* A large one only to the next aligned place: the rest may need no copy. */
            size_t ahead = limits->offset_alignment - offset % limits->offset_alignment;
            bool splits = length >= MIN_SPLIT_BYTES && ahead < limits->offset_alignment;
            struct iovec piece = cursor_take(cursor, splits ? ahead : length);

            taken = piece.iov_len;
            error = transfer_bounced(device, is_write, piece, offset);
        }
        if (error != 0)
            return error;
        offset += taken;
        length -= taken;
    }
    return 0;
}

int cursor_read(struct cursor *cursor, struct device *device, size_t length, uint64_t offset)
{
    return transfer_run(cursor, device, false, length, offset);
}

int cursor_write(struct cursor *cursor, struct device *device, size_t length, uint64_t offset)
{
    return transfer_run(cursor, device, true, length, offset);
}

ssize_t cursor_init(struct cursor *cursor, const struct iovec *iov, int iov_count)
{
    size_t length = 0;

    if (iov_count < 0 || iov_count > IOV_MAX)
        return -EINVAL;
    for (int i = 0; i < iov_count; i++) {
        if (iov[i].iov_len > SSIZE_MAX - length)
            return -EINVAL;
        length += iov[i].iov_len;
    }
    *cursor = (struct cursor){.iov = iov, .iov_count = iov_count};
    return (ssize_t)length;
}
