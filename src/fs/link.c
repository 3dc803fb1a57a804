/* SPDX-License-Identifier: MIT */
/*
 * More names for an inode, and fewer.
 *
 * Locks: the directory's names_lock, exclusively, then that of a directory that is removed; a
 * handle inside. Callers: front ends.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "fs/change.h"

static int link_locked(struct inode *inode, struct inode *dir, const char *name, size_t length)
{
    struct handle handle;
    int error = journal_start(inode->volume->journal,
                              dir_credits(dir) + INODE_WRITE_CREDITS * 2 + ORPHAN_CREDITS, &handle);

    if (error != 0)
        return error;
    error = dir_insert(&handle, dir, name, length, inode->ino,
                       (uint8_t)((inode->fields.mode & S_IFMT) >> 12));
    bool is_torn = error == -EUCLEAN || error == -EIO;
    if (error == 0) {
        change_add_links(inode, 1);
        change_touch(inode, change_now(), false);
        change_touch(dir, change_now(), true);
        error = inode_write(&handle, inode);
        if (error == 0)
            error = inode_write(&handle, dir);
        is_torn = error != 0;
    }
    if (error == 0) {
        inode_note_change(&handle, inode, true);
        inode_note_change(&handle, dir, true);
    }
    return change_stop(&handle, error, is_torn);
}

int uext4_link(struct uext4_inode *public, struct uext4_inode *public_dir, const char *name,
               size_t length)
{
    struct inode *inode = inode_from_public(public), *dir = inode_from_public(public_dir);
    unsigned int tries = 0;
    uint32_t existing;
    int error;

    if (inode_is_directory(inode))
        return -EPERM;
    if (length > UEXT4_NAME_MAX)
        return -ENAMETOOLONG;
    do {
        rwlock_write_lock(&dir->names_lock);
        error = change_check_dir(dir);
        if (error == 0)
            error = dir_lookup(dir, name, length, &existing);
        if (error == 0) {
            error = -EEXIST;
        } else if (error == -ENOENT && dir->fields.link_count > 0) {
            /* An inode without a name is on its way out. */
            if (inode->fields.link_count == 0)
                error = -ENOENT;
            else
                error = change_has_room_for_link(inode) ? link_locked(inode, dir, name, length)
                                                        : -EMLINK;
        }
        rwlock_write_unlock(&dir->names_lock);
    } while (change_can_retry(dir, error, &tries));
    return error == -EAGAIN ? -ENOSPC : error;
}

/* Takes the name of an inode out of its directory, with both locked as they have to be. */
static int remove_locked(struct inode *dir, const char *name, size_t length, struct inode *inode)
{
    bool is_dir = inode_is_directory(inode);
    struct handle handle;
    int error = journal_start(dir->volume->journal,
                              dir_credits(dir) + INODE_WRITE_CREDITS * 2 + ORPHAN_CREDITS, &handle);

    if (error != 0)
        return error;
    error = dir_remove(&handle, dir, name, length);
    if (error != 0)
        return change_stop(&handle, error, error != -ENOENT);
    if (is_dir) {
        mutex_lock(&inode->fields_mutex);
        inode->fields.link_count = 0;
        mutex_unlock(&inode->fields_mutex);
        change_add_links(dir, -1);
    } else {
        change_add_links(inode, -1);
    }
    change_touch(inode, change_now(), false);
    change_touch(dir, change_now(), true);
    if (inode->fields.link_count == 0)
        error = orphan_add(&handle, inode);
    if (error == 0)
        error = inode_write(&handle, inode);
    if (error == 0)
        error = inode_write(&handle, dir);
    if (error == 0) {
        inode_note_change(&handle, inode, true);
        inode_note_change(&handle, dir, true);
    }
    return change_stop(&handle, error, true);
}

/* Checks what a name leads to, and removes it. `dir` is locked. */
static int remove_name(struct inode *dir, const char *name, size_t length, bool wants_dir)
{
    struct inode *inode;
    uint32_t ino;
    int error = change_check_dir(dir);

    if (error == 0)
        error = dir_lookup(dir, name, length, &ino);
    if (error == 0)
        error = inode_get(dir->table, ino, &inode);
    if (error != 0)
        return error == -ESTALE ? -EUCLEAN : error;
    if (!wants_dir) {
        error = inode_is_directory(inode) ? -EISDIR : remove_locked(dir, name, length, inode);
    } else if (!inode_is_directory(inode)) {
        error = -ENOTDIR;
    } else if (inode->ino == UEXT4_ROOT_INO) {
        error = -EBUSY;
    } else {
        rwlock_write_lock(&inode->names_lock);
        int is_empty = dir_is_empty(inode);
        if (is_empty < 0)
            error = is_empty;
        else
            error = is_empty == 0 ? -ENOTEMPTY : remove_locked(dir, name, length, inode);
        rwlock_write_unlock(&inode->names_lock);
    }
    inode_put(inode);
    return error;
}

static bool is_dots(const char *name, size_t length)
{
    return length <= 2 && memcmp(name, "..", length) == 0;
}

int uext4_unlink(struct uext4_inode *public, const char *name, size_t length)
{
    struct inode *dir = inode_from_public(public);

    if (is_dots(name, length))
        return length == 0 ? -ENOENT : -EISDIR;
    rwlock_write_lock(&dir->names_lock);
    int error = remove_name(dir, name, length, false);
    rwlock_write_unlock(&dir->names_lock);
    change_reap(fs_of(dir));
    return error;
}

int uext4_rmdir(struct uext4_inode *public, const char *name, size_t length)
{
    struct inode *dir = inode_from_public(public);

    if (is_dots(name, length))
        return length == 0 ? -ENOENT : length == 1 ? -EINVAL : -ENOTEMPTY;
    rwlock_write_lock(&dir->names_lock);
    int error = remove_name(dir, name, length, true);
    rwlock_write_unlock(&dir->names_lock);
    change_reap(fs_of(dir));
    return error;
}
