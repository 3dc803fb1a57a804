/* SPDX-License-Identifier: MIT */
/*
 * Reads of file data: each run of blocks that lies together on the disk becomes one request to the
 * device, straight into the caller's buffers where their alignment allows it. Holes and unwritten
 * blocks are zeros without I/O.
 *
 * Locks: none. Callers: fs.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "data/data.h"
#include "map/map.h"

/* One request to the device is not larger than this, so that a bounced one stays small too. */
#define MAX_RUN_BYTES (UINT64_C(64) << 20)
#define MAX_PIECES    64 /* buffers in one vectored request */

/* A request below this that is not wholly aligned is bounced in one, rather than split. */
#define MIN_SPLIT_BYTES (128u * 1024)

/* A place in the caller's buffers. */
struct cursor {
    const struct iovec *iov;
    int iov_count;
    size_t skip; /* bytes of iov[0] that are filled already */
};

/* Takes the next contiguous piece, at most `limit` bytes; 0 bytes at the end. */
static struct iovec cursor_take(struct cursor *cursor, size_t limit)
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

static void cursor_fill(struct cursor *cursor, size_t length)
{
    while (length > 0) {
        struct iovec piece = cursor_take(cursor, length);

        if (piece.iov_len == 0)
            return;
        memset(piece.iov_base, 0, piece.iov_len);
        length -= piece.iov_len;
    }
}

static void cursor_copy(struct cursor *cursor, const uint8_t *source, size_t length)
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

/* Reads a run that lies together on the device; what is not aligned goes by itself. */
static int read_run(struct device *device, struct cursor *cursor, size_t length, uint64_t offset)
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
            error = device_readv(device, pieces, (int)count, offset);
        } else {
            /* A large one only to the next aligned place: the rest may need no copy. */
            size_t ahead = limits->offset_alignment - offset % limits->offset_alignment;
            bool splits = length >= MIN_SPLIT_BYTES && ahead < limits->offset_alignment;
            struct iovec piece = cursor_take(cursor, splits ? ahead : length);

            taken = piece.iov_len;
            error = device_read(device, piece.iov_base, piece.iov_len, offset);
        }
        if (error != 0)
            return error;
        offset += taken;
        length -= taken;
    }
    return 0;
}

static int read_inline(const struct inode *inode, struct cursor *cursor, size_t length,
                       uint64_t offset)
{
    struct inline_data data;
    int error = inode_read_inline(inode, &data);

    if (error != 0)
        return error;
    const struct {
        const uint8_t *start;
        size_t size;
    } parts[] = {{data.head, data.head_bytes}, {data.tail, data.tail_bytes}};
    for (size_t i = 0; i < ARRAY_LENGTH(parts); i++) {
        if (offset < parts[i].size) {
            size_t count = MIN(length, parts[i].size - (size_t)offset);

            cursor_copy(cursor, parts[i].start + offset, count);
            length -= count;
            offset += count;
        }
        offset -= MIN(offset, parts[i].size);
    }
    /* A size beyond what is stored reads as zeros. */
    cursor_fill(cursor, length);
    buffer_put(data.buffer);
    return 0;
}

static int read_mapped(struct inode *inode, struct cursor *cursor, size_t length, uint64_t offset)
{
    const struct superblock *sb = &inode->volume->sb;

    while (length > 0) {
        uint64_t in_block = offset & (sb->block_bytes - 1);
        uint64_t wanted = MIN(length, MAX_RUN_BYTES);
        uint64_t blocks = (in_block + wanted + sb->block_bytes - 1) >> sb->block_bits;
        struct mapping mapping;
        int error = map_lookup_joined(inode, offset >> sb->block_bits, blocks, &mapping);

        if (error != 0)
            return error;
        size_t run = (size_t)MIN((mapping.length_blocks << sb->block_bits) - in_block, wanted);
        if (mapping.kind == MAPPING_WRITTEN) {
            uint64_t place = (mapping.disk_block << sb->block_bits) + in_block;

            error = read_run(inode->volume->device, cursor, run, place);
            if (error != 0) {
                log_error(inode->volume->log,
                          "inode %u: cannot read %zu bytes at offset %llu (device offset %llu)",
                          inode->ino, run, (unsigned long long)offset, (unsigned long long)place);
                return error;
            }
        } else {
            cursor_fill(cursor, run);
        }
        offset += run;
        length -= run;
    }
    return 0;
}

ssize_t data_read(struct inode *inode, const struct iovec *iov, int iov_count, uint64_t offset)
{
    struct cursor cursor = {.iov = iov, .iov_count = iov_count};
    size_t length = 0;
    int error;

    if (iov_count < 0 || iov_count > IOV_MAX)
        return -EINVAL;
    for (int i = 0; i < iov_count; i++) {
        if (iov[i].iov_len > SSIZE_MAX - length)
            return -EINVAL;
        length += iov[i].iov_len;
    }
    if (offset >= inode->fields.size)
        return 0;
    length = (size_t)MIN(length, inode->fields.size - offset);
    if (length == 0)
        return 0;
    if (inode_is_inline(inode))
        error = read_inline(inode, &cursor, length, offset);
    else
        error = read_mapped(inode, &cursor, length, offset);
    return error != 0 ? error : (ssize_t)length;
}

ssize_t data_read_buffer(struct inode *inode, void *buffer, size_t length, uint64_t offset)
{
    struct iovec iov = {.iov_base = buffer, .iov_len = length};

    return data_read(inode, &iov, 1, offset);
}
