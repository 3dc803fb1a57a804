/* SPDX-License-Identifier: MIT */
/*
 * Changes of directories.
 *
 * The caller holds the directory's lock (names_lock) exclusively and an open handle with
 * dir_credits. Each call writes the directory's inode where its size, map or flags change; times
 * and link counts are the caller's, and so is the writing of what it changes of them.
 *
 * Directories become indexed as they grow past one block (dir_index), split at every level, and
 * leave the inode (inline_data) when it is full. Blocks stay when names go; their room is used
 * again.
 *
 * A call that fails leaves the directory with the names it had, in the blocks it had (but a
 * directory that was in its inode may have left it). Errors of all calls, besides their own:
 *
 *   -ENOSPC    no room on the disk, or in the format: an index whose levels are full on the way to
 *              the name's block, a size past 4 GiB without large_dir
 *   -EAGAIN    there will be room once the running transaction has committed (space_reserve)
 *   -EUCLEAN   the directory is damaged where it would have to be changed; -EBADMSG: a checksum.
 *              Other than look-ups, changes do not go on without a damaged index.
 *   -ENOTDIR, -ENOKEY (encrypted), -ENAMETOOLONG, -EOPNOTSUPP (unknown encoding), -EIO, -ENOMEM,
 *   -EROFS     (journal)
 */
#ifndef UEXT4_DIR_EDIT_H
#define UEXT4_DIR_EDIT_H

#include "dir/dir.h"
#include "journal/journal.h"

/* Credits that any one call below may need at most. */
uint32_t dir_credits(const struct inode *dir);

/*
 * Writes "." and ".." into a new, empty directory; sets its size. The inode has an empty map, or
 * the flag INODE_INLINE_DATA: then the directory begins in the inode, if that has room for the
 * attribute that it takes (else the flag goes, and the inode gets an empty map).
 */
int dir_init(struct handle *handle, struct inode *dir, uint32_t parent_ino) MUST_CHECK;

/*
 * Enters a name that the directory does not have (the caller has looked). `type` is DT_*. -EINVAL
 * for a name that is not valid utf8 in a strict casefolded directory, or an empty one.
 */
int dir_insert(struct handle *handle, struct inode *dir, const char *name, size_t length,
               uint32_t ino, uint8_t type) MUST_CHECK;

/* Takes a name out. -ENOENT; -EINVAL for "." and "..". */
int dir_remove(struct handle *handle, struct inode *dir, const char *name,
               size_t length) MUST_CHECK;

/*
 * Points a name, or "..", at another inode; in a casefolded directory the name stays as it was
 * written. -ENOENT.
 */
int dir_replace(struct handle *handle, struct inode *dir, const char *name, size_t length,
                uint32_t ino, uint8_t type) MUST_CHECK;

/*
 * 1 if it has no names but "." and "..", 0 if it has, or -errno. Needs no handle; the lock may be
 * shared.
 */
int dir_is_empty(struct inode *dir) MUST_CHECK;

#endif
