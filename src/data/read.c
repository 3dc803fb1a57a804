/* SPDX-License-Identifier: MIT */
/*
 * Reads of file data: each run of blocks that lies together on the disk becomes one request to the
 * device, straight into the caller's buffers where their alignment allows it. Holes and unwritten
 * blocks are zeros without I/O.
 *
 * Locks: none. Callers: fs.
 */
#include <errno.h>
#include <stdatomic.h>

#include "data/cursor.h"
#include "data/data.h"
#include "map/map.h"

/* One request to the device is not larger than this, so that a bounced one stays small too. */
#define MAX_RUN_BYTES (UINT64_C(64) << 20)

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

            error = cursor_read(cursor, inode->volume->device, run, place);
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
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_acquire);
    struct cursor cursor;
    ssize_t wanted = cursor_init(&cursor, iov, iov_count);
    int error;

    if (wanted < 0)
        return wanted;
    if (offset >= size)
        return 0;
    size_t length = (size_t)MIN((uint64_t)wanted, size - offset);
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
