/* SPDX-License-Identifier: MIT */
/*
 * The inode table in memory: each inode that somebody holds exists once.
 */
#ifndef UEXT4_INODE_INODE_H
#define UEXT4_INODE_INODE_H

#include <sys/stat.h>

#include "base/list.h"
#include "base/lock.h"
#include "format/inode.h"
#include "inode/range_lock.h"
#include "journal/journal.h"
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

/*
 * Locks, in their order: names_lock (of directories), ranges; then, inside a handle, the others.
 * Who may read and change the fields:
 *   the type in `mode`                never changes
 *   `size` of a directory             names_lock; changed with fields_mutex too
 *   `block`, the EXTENTS flag         map_lock; changed with it held exclusively and fields_mutex
 * too `xattr_block`                     xattr_lock; changed with fields_mutex too the rest
 * fields_mutex A read-only file system changes none of them.
 */
struct inode {
    struct inode_table *table;   /* [immutable] */
    const struct volume *volume; /* [immutable] */
    uint32_t ino;                /* [immutable] */
    uint32_t checksum_seed;      /* [immutable] */
    struct rwlock names_lock;    /* the entries of a directory, and that it stays one */
    struct range_lock ranges;    /* the bytes of a file */
    struct rwlock xattr_lock;
    struct rwlock map_lock;
    struct mutex fields_mutex;
    struct inode_fields fields; /* as the table has them, or will have by the open handle */
    _Atomic uint64_t size; /* [atomic] as callers see it: ahead of fields.size while a write past
                              the end is under way */
    _Atomic journal_sequence changed_in;      /* [atomic] transaction of the last change */
    _Atomic journal_sequence data_changed_in; /* [atomic] of the last that its data needs */
    _Atomic bool has_unwritten_fields;        /* [atomic] times that no transaction has yet */
    struct mapping_cache mappings;
    struct list orphan_link;   /* [orphans of the table] */
    bool is_orphan;            /* [orphans of the table] */
    struct list unlinked_link; /* [unlinked of the table] */
    unsigned int references;   /* [table shard] */
    struct inode *chained;     /* [table shard] */
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

/* ---- Changes: with an open handle, on a file system mounted for writing -----------------------
 */

#define INODE_WRITE_CREDITS 1u /* blocks that inode_write adds to the transaction */

/*
 * Brings the inode's bytes in the table in line with its fields, in the handle's transaction. Takes
 * fields_mutex. Call it after the last change of a handle; the transaction has what it finds then.
 */
int inode_write(struct handle *handle, struct inode *inode) MUST_CHECK;

/*
 * As inode_write, and replaces i_block. The caller holds map_lock exclusively. `sets_flags` and
 * `clears_flags` change the inode's flags in the same step.
 */
int inode_write_block(struct handle *handle, struct inode *inode,
                      const uint8_t block[INODE_BLOCK_BYTES], uint32_t sets_flags,
                      uint32_t clears_flags) MUST_CHECK;

/* Notes which transaction an fsync must wait for; `needs_data`: an fdatasync too. */
void inode_note_change(const struct handle *handle, struct inode *inode, bool needs_data);

/*
 * Makes a new inode: writes `fields` over whatever the table has at `ino`, and gives a reference.
 * Nobody else knows the number yet.
 */
int inode_create(struct handle *handle, struct inode_table *table, uint32_t ino,
                 const struct inode_fields *fields, struct inode **inode) MUST_CHECK;

/* Writes the fields of all inodes that have unwritten ones, each in a handle of its own. */
int inode_write_pending(struct inode_table *table) MUST_CHECK;

/*
 * Takes an inode whose last reference went while its link count was 0, for the caller to free; NULL
 * if there is none. The table does not know it any more. inode_discard ends it.
 */
struct inode *inode_take_unlinked(struct inode_table *table);
void inode_discard(struct inode *inode);

/* ---- Orphans: inodes that a recovery has to truncate or free -----------------------------------
 */

#define ORPHAN_CREDITS \
    (INODE_WRITE_CREDITS * 2u + 1u) /* of either call: inode, neighbour, superblock */

/* As inode_get, and gives inodes without links too: orphans that a recovery works off. */
int inode_get_orphan(struct inode_table *table, uint64_t ino, struct inode **inode) MUST_CHECK;

/* Notes that an inode found on the disk's list is at its head. */
void orphan_adopt(struct inode *inode);

/* Enters an inode into the orphan list on the disk, or takes it out; again is harmless. */
int orphan_add(struct handle *handle, struct inode *inode) MUST_CHECK;
int orphan_remove(struct handle *handle, struct inode *inode) MUST_CHECK;

/* Adds blocks to (or, negative, takes them from) what the inode has allocated, in memory:
   inode_write brings it to the table. */
void inode_add_blocks(struct inode *inode, int64_t blocks);

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
