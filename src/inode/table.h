/* SPDX-License-Identifier: MIT */
/* The inside of the inode table, for the files of this folder. */
#ifndef UEXT4_INODE_TABLE_H
#define UEXT4_INODE_TABLE_H

#include "inode/inode.h"

#define INODE_SHARD_COUNT  16
#define INODE_BUCKET_COUNT 256

struct inode_shard {
    struct mutex mutex;
    struct inode *buckets[INODE_BUCKET_COUNT]; /* [mutex] */
    size_t count;                              /* [mutex] */
};

struct inode_table {
    const struct volume *volume; /* [immutable] */
    struct inode_shard shards[INODE_SHARD_COUNT];
    struct mutex orphans_mutex; /* taken with an open handle, before fields and buffers */
    struct list orphans;        /* [orphans_mutex] as the list on the disk, its head first */
    struct mutex unlinked_mutex;
    struct list unlinked; /* [unlinked_mutex] without references and names */
};

/* Initialises the inode's bytes in the table and writes its fields. */
int inode_write_new(struct handle *handle, struct inode *inode) MUST_CHECK;

#endif
