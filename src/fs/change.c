/* SPDX-License-Identifier: MIT */
/*
 * The common parts of changing calls, and the freeing of inodes without names.
 *
 * Callers: the other files of this folder.
 */
#include "fs/change.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "data/write.h"
#include "inode/xattr_edit.h"

#define MAX_LINKS                                                                  \
    65000u /* the format's bound; directories of more links count 1 with dir_nlink \
            */
#define MAX_TRIES 3

int change_check(const struct inode *inode)
{
    const struct volume *volume = inode->volume;

    if (volume->journal == NULL || journal_is_aborted(volume->journal))
        return -EROFS;
    return 0;
}

int change_check_dir(const struct inode *dir)
{
    if (!inode_is_directory(dir))
        return -ENOTDIR;
    if (inode_has_flag(dir, INODE_ENCRYPTED))
        return -ENOKEY;
    return dir->fields.link_count == 0 ? -ENOENT : change_check(dir);
}

struct timespec change_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return now;
}

void change_touch(struct inode *inode, struct timespec now, bool modifies)
{
    mutex_lock(&inode->fields_mutex);
    inode->fields.change_time = inode_clamp_time(inode->fields.extra_isize, now);
    if (modifies)
        inode->fields.modify_time = inode->fields.change_time;
    mutex_unlock(&inode->fields_mutex);
}

bool change_has_room_for_link(struct inode *inode)
{
    bool can_pass = inode_is_directory(inode) &&
                    superblock_has_ro_compat(&inode->volume->sb, FEATURE_RO_COMPAT_DIR_NLINK);

    mutex_lock(&inode->fields_mutex);
    bool has_room = inode->fields.link_count < MAX_LINKS || can_pass;
    mutex_unlock(&inode->fields_mutex);
    return has_room;
}

void change_add_links(struct inode *inode, int links)
{
    bool is_dir = inode_is_directory(inode);

    mutex_lock(&inode->fields_mutex);
    uint32_t count = inode->fields.link_count;
    /* 1 on a directory says: more than can be counted. It stays so until the directory goes. */
    if (is_dir && count == 1 && links > -2)
        links = 0;
    count += (uint32_t)links;
    if (is_dir && count >= MAX_LINKS)
        count = 1;
    inode->fields.link_count = count;
    mutex_unlock(&inode->fields_mutex);
}

int change_stop(struct handle *handle, int error, bool is_torn)
{
    if (error != 0 && is_torn)
        journal_abort(handle->journal, error);
    int stop_error = journal_stop(handle);
    return error != 0 ? error : stop_error;
}

bool change_can_retry(const struct inode *inode, int error, unsigned int *tries)
{
    if (error != -EAGAIN || ++*tries > MAX_TRIES)
        return false;
    return journal_commit_all(inode->volume->journal) == 0;
}

void change_write_times(struct inode *inode)
{
    struct handle handle;

    if (!atomic_exchange_explicit(&inode->has_unwritten_fields, false, memory_order_acq_rel))
        return;
    if (journal_start(inode->volume->journal, INODE_WRITE_CREDITS, &handle) != 0)
        return;
    int error = inode_write(&handle, inode);
    if (error == 0)
        inode_note_change(&handle, inode, false);
    /* An error stops all changes, which every later call tells. */
    if (change_stop(&handle, error, error != 0) != 0)
        log_warning(inode->volume->log, "inode %u: its times were not written", inode->ino);
}

/* The last transaction of an inode: its attributes and its number. */
static int free_inode(struct inode *inode)
{
    const struct volume *volume = inode->volume;
    uint32_t credits = SPACE_FREE_INODE_CREDITS + ORPHAN_CREDITS + INODE_WRITE_CREDITS +
                       space_credits(volume->space, 1) + 1;
    struct handle handle;
    int error = journal_start(volume->journal, credits, &handle);

    if (error != 0)
        return error;
    error = xattr_release(&handle, inode);
    if (error == 0)
        error = orphan_remove(&handle, inode);
    if (error == 0) {
        mutex_lock(&inode->fields_mutex);
        inode->fields.deletion_time = (uint32_t)change_now().tv_sec;
        mutex_unlock(&inode->fields_mutex);
        error = inode_write(&handle, inode);
    }
    if (error == 0)
        error = space_free_inode(&handle, volume->space, inode->ino, inode_is_directory(inode));
    return change_stop(&handle, error, true);
}

/* True for an inode that has blocks in a map. */
static bool has_map(const struct inode *inode)
{
    mode_t mode = inode->fields.mode;

    if (inode_is_inline(inode))
        return false;
    return S_ISREG(mode) || S_ISDIR(mode) ||
           (S_ISLNK(mode) && !inode_is_fast_symlink(&inode->volume->sb, &inode->fields));
}

void change_reap(struct uext4 *fs)
{
    struct inode *inode;

    if (fs->volume.journal == NULL)
        return;
    while ((inode = inode_take_unlinked(fs->inodes)) != NULL) {
        int error = change_check(inode);

        if (error == 0 && has_map(inode))
            error = data_free_all(inode);
        if (error == 0)
            error = free_inode(inode);
        /* What could not be freed stays on the orphan list: the next recovery does it. */
        if (error != 0 && error != -EROFS)
            log_error(&fs->log, "inode %u: cannot be freed: error %d", inode->ino, -error);
        inode_discard(inode);
    }
}
