/* SPDX-License-Identifier: MIT */
/*
 * Changes of extended attributes.
 *
 * Locks: the inode's xattr_lock. Callers: fs, with an open handle.
 */
#include "inode/xattr_edit.h"

#include <errno.h>

#include "space/allocate.h"

/* Takes one reference off a shared attribute block. */
static int drop_reference(struct handle *handle, const struct volume *volume, struct buffer *buffer,
                          uint32_t references)
{
    int error = journal_modify(handle, buffer);

    if (error != 0)
        return error;
    void *block = journal_data(handle, buffer);
    xattr_block_set_references(block, references);
    xattr_block_set_checksum(&volume->sb, buffer->block, block);
    return 0;
}

int xattr_release(struct handle *handle, struct inode *inode)
{
    const struct volume *volume = inode->volume;
    uint64_t block = inode->fields.xattr_block;
    uint32_t cluster_blocks = volume->sb.cluster_blocks;
    struct xattr_area area;
    struct buffer *buffer;

    if (block == 0)
        return 0;
    int error = buffer_get(volume->buffers, block, &buffer);
    if (error != 0)
        return error;
    const char *reason = xattr_block_area(&volume->sb, buffer->data, &area);
    if (reason != NULL) {
        log_error(volume->log, "inode %u: attribute block %llu: %s", inode->ino,
                  (unsigned long long)block, reason);
        buffer_put(buffer);
        return -EUCLEAN;
    }
    uint32_t references = xattr_block_references(buffer->data);
    bool is_last = references <= 1;
    if (!is_last)
        error = drop_reference(handle, volume, buffer, references - 1);
    buffer_put(buffer);
    if (error == 0 && is_last)
        error = journal_forget(handle, block, 1);
    if (error == 0 && is_last)
        error = space_free(
            handle, volume->space,
            (struct space_run){ROUND_DOWN(block, (uint64_t)cluster_blocks), cluster_blocks});
    if (error == 0) {
        mutex_lock(&inode->fields_mutex);
        inode->fields.xattr_block = 0;
        mutex_unlock(&inode->fields_mutex);
    }
    return error;
}
