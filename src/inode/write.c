/* SPDX-License-Identifier: MIT */
/*
 * Brings inodes' bytes in the table in line with their fields.
 *
 * The bytes are changed under the inode's fields_mutex, so that its checksum always covers what is
 * there; other inodes of the same block are other bytes. The block joins the transaction before the
 * mutex is taken, as that may wait.
 *
 * Callers: inode, map, dir, data, fs, with an open handle.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "inode/table.h"

/* Gives the table block as part of the transaction, and the inode's bytes in it. */
static int open_raw(struct handle *handle, const struct inode *inode, struct buffer **buffer,
                    uint8_t **raw)
{
    const void *place;
    int error = inode_read_raw(inode, buffer, &place);

    if (error != 0)
        return error;
    error = journal_modify(handle, *buffer);
    if (error != 0) {
        buffer_put(*buffer);
        return error;
    }
    *raw = (uint8_t *)journal_data(handle, *buffer) +
           ((const uint8_t *)place - (const uint8_t *)(*buffer)->data);
    return 0;
}

static int write_locked(struct inode *inode, uint8_t *raw) REQUIRES(&inode->fields_mutex)
{
    int error = inode_format(&inode->volume->sb, inode->ino, &inode->fields, raw);

    if (error != 0)
        log_error(inode->volume->log, "inode %u: cannot be written: %s", inode->ino,
                  strerrordesc_np(-error));
    return error;
}

int inode_write(struct handle *handle, struct inode *inode)
{
    struct buffer *buffer;
    uint8_t *raw;
    int error = open_raw(handle, inode, &buffer, &raw);

    if (error != 0)
        return error;
    mutex_lock(&inode->fields_mutex);
    error = write_locked(inode, raw);
    mutex_unlock(&inode->fields_mutex);
    buffer_put(buffer);
    return error;
}

int inode_write_new(struct handle *handle, struct inode *inode)
{
    struct buffer *buffer;
    uint8_t *raw;
    int error = open_raw(handle, inode, &buffer, &raw);

    if (error != 0)
        return error;
    mutex_lock(&inode->fields_mutex);
    inode->fields.extra_isize = inode_init_raw(&inode->volume->sb, raw);
    error = write_locked(inode, raw);
    mutex_unlock(&inode->fields_mutex);
    buffer_put(buffer);
    return error;
}

int inode_write_block(struct handle *handle, struct inode *inode,
                      const uint8_t block[INODE_BLOCK_BYTES], uint32_t sets_flags,
                      uint32_t clears_flags)
{
    struct buffer *buffer;
    uint8_t *raw;
    int error = open_raw(handle, inode, &buffer, &raw);

    if (error != 0)
        return error;
    mutex_lock(&inode->fields_mutex);
    memcpy(inode->fields.block, block, INODE_BLOCK_BYTES);
    inode->fields.flags = (inode->fields.flags | sets_flags) & ~clears_flags;
    error = write_locked(inode, raw);
    mutex_unlock(&inode->fields_mutex);
    buffer_put(buffer);
    return error;
}

void inode_add_blocks(struct inode *inode, int64_t blocks)
{
    int64_t sectors = blocks * (int64_t)(inode->volume->sb.block_bytes / 512);

    mutex_lock(&inode->fields_mutex);
    inode->fields.allocated_sectors += (uint64_t)sectors;
    mutex_unlock(&inode->fields_mutex);
}

void inode_note_change(const struct handle *handle, struct inode *inode, bool needs_data)
{
    journal_sequence sequence = journal_handle_sequence(handle);

    atomic_store_explicit(&inode->changed_in, sequence, memory_order_release);
    if (needs_data)
        atomic_store_explicit(&inode->data_changed_in, sequence, memory_order_release);
}
