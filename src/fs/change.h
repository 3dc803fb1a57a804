/* SPDX-License-Identifier: MIT */
/* What the changing calls of the public header share. */
#ifndef UEXT4_FS_CHANGE_H
#define UEXT4_FS_CHANGE_H

#include "dir/edit.h"
#include "fs/fs.h"
#include "space/allocate.h"

static inline struct uext4 *fs_of(const struct inode *inode)
{
    return (struct uext4 *)(uintptr_t)((const char *)inode->volume -
                                       offsetof(struct uext4, volume));
}

/* -EROFS unless changes are allowed. */
int change_check(const struct inode *inode) MUST_CHECK;

/* As change_check for a directory that names go into or out of, under its names_lock. -ENOTDIR,
   -ENOENT if it was removed, -ENOKEY. */
int change_check_dir(const struct inode *dir) MUST_CHECK;

struct timespec change_now(void);

/* Sets modify and change time of an inode to `now`; for the handle's transaction by inode_write. */
void change_touch(struct inode *inode, struct timespec now, bool modifies);

/* Adds to an inode's link count, under its fields_mutex. Directories with dir_nlink stop at 1. */
void change_add_links(struct inode *inode, int links);
bool change_has_room_for_link(struct inode *inode);

/*
 * Ends a handle. When `error` is not 0 and the transaction was changed in part (`is_torn`), changes
 * of the file system are stopped: what is on the disk is the state before.
 */
int change_stop(struct handle *handle, int error, bool is_torn) MUST_CHECK;

/* Waits for blocks that the running transaction frees. True if trying again may help. */
bool change_can_retry(const struct inode *inode, int error, unsigned int *tries);

/* Writes times that no transaction has yet. */
void change_write_times(struct inode *inode);

/* Frees inodes whose last name and last reference are gone. */
void change_reap(struct uext4 *fs);

#endif
