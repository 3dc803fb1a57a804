/* SPDX-License-Identifier: MIT */
/*
 * The inode table in memory: each inode that somebody holds exists once.
 */
#ifndef UEXT4_INODE_INODE_H
#define UEXT4_INODE_INODE_H

#include <sys/stat.h>

#include "base/lock.h"
#include "format/inode.h"
#include "space/volume.h"

struct inode_table;

/* A run of file blocks and where they lie; the mapping layer's currency, cached per inode. */
enum mapping_kind { MAPPING_HOLE, MAPPING_WRITTEN, MAPPING_UNWRITTEN };

struct mapping {
    uint64_t file_block;
    uint64_t length_blocks;
    uint64_t disk_block; /* 0 for a hole */
    enum mapping_kind kind;
};

/* Mappings of one inode that were looked up before; map/cache.c owns it. */
struct mapping_cache {
    struct rwlock lock;
    struct mapping *mappings; /* [lock] sorted by file block, not overlapping */
    size_t count, capacity;   /* [lock] */
};

struct inode {
    struct inode_table *table;   /* [immutable] */
    const struct volume *volume; /* [immutable] */
    uint32_t ino;                /* [immutable] */
    uint32_t checksum_seed;      /* [immutable] */
    struct inode_fields fields;  /* [immutable] */
    struct mapping_cache mappings;
    unsigned int references; /* [table shard] */
    struct inode *chained;   /* [table shard] */
};

int inode_table_create(const struct volume *volume, struct inode_table **table) MUST_CHECK;

/* Nobody may hold an inode. NULL is allowed. */
void inode_table_destroy(struct inode_table *table);

/* Inodes that somebody holds at the moment. */
size_t inode_table_count(struct inode_table *table);

/*
 * Gives a reference to an inode. -ENOENT for a number out of range, -ESTALE for one not in use.
 * May wait for the device. Problems are logged.
 */
int inode_get(struct inode_table *table, uint64_t ino, struct inode **inode) MUST_CHECK;
void inode_ref(struct inode *inode);
void inode_put(struct inode *inode);

/*
 * Gives the buffer that holds the inode as it lies on the disk, and its place in it. For what is
 * not kept in memory: extended attributes and inline data.
 */
int inode_read_raw(const struct inode *inode, struct buffer **buffer, const void **raw) MUST_CHECK;

static inline bool inode_is_directory(const struct inode *inode)
{
    return S_ISDIR(inode->fields.mode);
}

static inline bool inode_has_flag(const struct inode *inode, uint32_t flag)
{
    return (inode->fields.flags & flag) != 0;
}

/* True if the data lies in the inode itself. */
static inline bool inode_is_inline(const struct inode *inode)
{
    return inode_has_flag(inode, INODE_INLINE_DATA);
}

/*
 * The bytes of an inode with inline data, in two parts: `head` in i_block, `tail` in the attribute
 * system.data (may be empty).
 */
struct inline_data {
    struct buffer *buffer; /* holds both parts; release it */
    const uint8_t *head, *tail;
    size_t head_bytes, tail_bytes;
};

int inode_read_inline(const struct inode *inode, struct inline_data *result) MUST_CHECK;

#endif
