/* SPDX-License-Identifier: MIT */
/*
 * A mounted file system, and what the files of this folder share. Everything here is behind the
 * public header, whose contract holds.
 */
#ifndef UEXT4_FS_FS_H
#define UEXT4_FS_FS_H

#include "base/lock.h"
#include "inode/inode.h"
#include "journal/recovery.h"
#include "uext4.h"

/* Counts that statfs needs from all group descriptors, made at its first call. */
struct usage {
    bool is_known;
    uint64_t overhead_blocks, free_blocks, free_inodes;
};

struct uext4 {
    struct volume volume;               /* [immutable] */
    struct inode_table *inodes;         /* [immutable] */
    struct log log;                     /* [immutable] */
    struct uext4_mount_options options; /* [immutable] */
    struct uext4_info info;             /* [immutable] */
    struct mutex rename_mutex;          /* over a rename between directories */
    struct mutex usage_mutex;
    struct usage usage; /* [usage_mutex] */
};

/* The public name of an inode and ours are the same object. */
static inline struct inode *inode_from_public(const struct uext4_inode *inode)
{
    return (struct inode *)(uintptr_t)inode;
}

static inline struct uext4_inode *inode_to_public(struct inode *inode)
{
    return (struct uext4_inode *)inode;
}

/* Fills a log from the options. */
void fs_log_init(struct log *log, const struct uext4_mount_options *options);

/*
 * Opens the device and reads the superblock into the volume, without buffers yet. The device is
 * open when it returns 0.
 */
int fs_open_volume(const char *spec, const struct uext4_mount_options *options, bool is_writable,
                   const struct log *log, struct volume *volume) MUST_CHECK;

/*
 * Finds where the journal lies: its inode's blocks. The volume needs buffers. The extents must be
 * freed. -EOPNOTSUPP for an external journal, -ENOENT for none.
 */
int fs_locate_journal(const struct volume *volume, struct journal_location *location,
                      struct journal_extent **extents) MUST_CHECK;

/*
 * Replays the journal home if the file system asks for it, on a volume open for writing without
 * buffers. What the volume knows is old after that.
 */
int fs_recover_volume(struct volume *volume, const struct uext4_mount_options *options,
                      struct uext4_recovery *report) MUST_CHECK;

/* Opens and closes what changes need, on a volume open for writing without buffers. */
int fs_open_changes(struct uext4 *fs) MUST_CHECK;
void fs_close_changes(struct uext4 *fs);

/* True if the journal lies on another device. */
bool fs_has_external_journal(const struct superblock *sb);

/* Fills the parts of the info that the superblock has. */
void fs_fill_info(const struct volume *volume, struct uext4_info *info);

#endif
