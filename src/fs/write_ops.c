/* SPDX-License-Identifier: MIT */
/*
 * The calls of the public header that change bytes, sizes and attributes, and those that make
 * changes durable.
 *
 * Locks: ranges and handles inside data/; fields_mutex. Callers: front ends.
 */
#include <errno.h>
#include <stdatomic.h>

#include "data/write.h"
#include "fs/change.h"

static int check_writable_file(const struct inode *inode)
{
    if (S_ISDIR(inode->fields.mode))
        return -EISDIR;
    if (!S_ISREG(inode->fields.mode))
        return -EINVAL;
    if (inode_has_flag(inode, INODE_ENCRYPTED))
        return -ENOKEY;
    if (inode_has_flag(inode, INODE_IMMUTABLE) || inode_has_flag(inode, INODE_VERITY))
        return -EPERM;
    return change_check(inode);
}

/* Writes the inode's times in a transaction of their own. */
static int write_times(struct inode *inode, bool needs_data)
{
    struct handle handle;
    int error = journal_start(inode->volume->journal, INODE_WRITE_CREDITS, &handle);

    if (error != 0)
        return error;
    error = inode_write(&handle, inode);
    if (error == 0)
        inode_note_change(&handle, inode, needs_data);
    return change_stop(&handle, error, error != 0);
}

/* Takes setuid and setgid off a file that is written, as the kernel does. */
static bool clear_privileges(struct inode *inode)
{
    bool has_changed = false;

    mutex_lock(&inode->fields_mutex);
    uint32_t mode = inode->fields.mode & ~(uint32_t)S_ISUID;
    if ((mode & S_IXGRP) != 0)
        mode &= ~(uint32_t)S_ISGID;
    has_changed = mode != inode->fields.mode;
    inode->fields.mode = mode;
    mutex_unlock(&inode->fields_mutex);
    return has_changed;
}

ssize_t uext4_writev(struct uext4_inode *public, const struct iovec *iov, int iov_count,
                     uint64_t offset)
{
    struct inode *inode = inode_from_public(public);
    int error = check_writable_file(inode);

    if (error != 0)
        return error;
    ssize_t count = data_write(inode, iov, iov_count, offset, 0);
    if (count > 0) {
        clear_privileges(inode);
        change_touch(inode, change_now(), true);
        atomic_store_explicit(&inode->has_unwritten_fields, true, memory_order_release);
    }
    return count;
}

ssize_t uext4_write(struct uext4_inode *inode, const void *buffer, size_t length, uint64_t offset)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buffer, .iov_len = length};

    return uext4_writev(inode, &iov, 1, offset);
}

int uext4_truncate(struct uext4_inode *public, uint64_t size)
{
    struct inode *inode = inode_from_public(public);
    int error = check_writable_file(inode);

    if (error != 0)
        return error;
    clear_privileges(inode);
    change_touch(inode, change_now(), true);
    error = data_truncate(inode, size);
    return error != 0 ? error : write_times(inode, true);
}

int uext4_set_attributes(struct uext4_inode *public, const struct uext4_stat *stat,
                         unsigned int mask)
{
    struct inode *inode = inode_from_public(public);
    struct inode_fields *fields = &inode->fields;
    int error = change_check(inode);

    if (error != 0)
        return error;
    uint32_t extra = fields->extra_isize;
    mutex_lock(&inode->fields_mutex);
    if ((mask & UEXT4_SET_MODE) != 0)
        fields->mode = (fields->mode & S_IFMT) | (stat->mode & 07777);
    if ((mask & UEXT4_SET_UID) != 0)
        fields->uid = stat->uid;
    if ((mask & UEXT4_SET_GID) != 0)
        fields->gid = stat->gid;
    if ((mask & UEXT4_SET_ACCESS_TIME) != 0)
        fields->access_time = inode_clamp_time(extra, stat->access_time);
    if ((mask & UEXT4_SET_MODIFY_TIME) != 0)
        fields->modify_time = inode_clamp_time(extra, stat->modify_time);
    fields->change_time = inode_clamp_time(
        extra, (mask & UEXT4_SET_CHANGE_TIME) != 0 ? stat->change_time : change_now());
    mutex_unlock(&inode->fields_mutex);
    return write_times(inode, false);
}

int uext4_fsync(struct uext4_inode *public, bool data_only)
{
    struct inode *inode = inode_from_public(public);
    struct journal *journal = inode->volume->journal;
    int error = change_check(inode);

    if (error != 0)
        return error;
    if (!data_only &&
        atomic_exchange_explicit(&inode->has_unwritten_fields, false, memory_order_acq_rel)) {
        error = write_times(inode, false);
        if (error != 0)
            return error;
    }
    journal_sequence sequence = atomic_load_explicit(
        data_only ? &inode->data_changed_in : &inode->changed_in, memory_order_acquire);
    return journal_sync(journal, sequence);
}

int uext4_sync(struct uext4 *fs)
{
    if (fs->volume.journal == NULL)
        return 0;
    if (journal_is_aborted(fs->volume.journal))
        return -EROFS;
    int error = inode_write_pending(fs->inodes);
    int commit_error = journal_commit_all(fs->volume.journal);
    int flush_error = device_flush(fs->volume.device);
    return error != 0 ? error : commit_error != 0 ? commit_error : flush_error;
}
