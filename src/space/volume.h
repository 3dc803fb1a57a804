/* SPDX-License-Identifier: MIT */
/*
 * The parts of an opened file system that every layer above works on: device, buffers, superblock.
 * Fixed from the mount to the unmount, but for the content of the superblock's and descriptors'
 * blocks.
 */
#ifndef UEXT4_SPACE_VOLUME_H
#define UEXT4_SPACE_VOLUME_H

#include "block/buffer.h"
#include "format/group.h"
#include "format/superblock.h"

struct handle;
struct journal;
struct space;
struct volume_locks;

struct volume {
    struct superblock sb;         /* [immutable] */
    struct device *device;        /* [immutable] */
    struct buffer_cache *buffers; /* [immutable] */
    const struct log *log;        /* [immutable] */
    uint32_t backup_group;        /* [immutable] group of the superblock in use; 0: the primary */
    bool skip_checksums;          /* [immutable] mismatches of metadata are not errors */
    struct volume_locks *locks;   /* [immutable] NULL while nobody may change the volume */
    struct journal *journal;      /* [immutable] NULL when mounted read-only */
    struct space *space;          /* [immutable] NULL when mounted read-only */
};

/*
 * What a block is verified as, for buffer_set_verified: the kind of structure, and the inode that
 * it belongs to where checksum or bounds depend on it.
 */
enum block_kind {
    BLOCK_KIND_EXTENT_NODE = 1,
    BLOCK_KIND_DIRECTORY_LEAF,
    BLOCK_KIND_HTREE_ROOT,
    BLOCK_KIND_HTREE_NODE,
    BLOCK_KIND_XATTR,
    BLOCK_KIND_INODE_BITMAP,
};

/* `detail` is what else the verdict depends on, such as the depth of an extent node. */
static inline uint64_t block_tag(enum block_kind kind, uint64_t ino, uint32_t detail)
{
    return (uint64_t)kind << 56 | (uint64_t)(detail & 0xffffff) << 32 | (ino & 0xffffffff);
}

/* True if `count` blocks from `block` lie in the file system, behind its boot block. */
static inline bool volume_has_blocks(const struct volume *volume, uint64_t block, uint64_t count)
{
    return block >= volume->sb.first_data_block && block < volume->sb.block_count &&
           count <= volume->sb.block_count - block;
}

/*
 * Makes and frees the locks that readers of descriptors need once someone writes them. Both while
 * no other thread uses the volume. space_create and space_destroy call them.
 */
int volume_enable_changes(struct volume *volume) MUST_CHECK;
void volume_disable_changes(struct volume *volume);

/*
 * Reads and checks a group's descriptor, as the running transaction has it. Also -ERANGE for a
 * group past the last. Problems are logged.
 */
int volume_read_group(const struct volume *volume, uint32_t group,
                      struct group_descriptor *result) MUST_CHECK;

/* Gives the buffer that holds a group's descriptor, and its offset in it. */
int volume_get_descriptor(const struct volume *volume, uint32_t group, struct buffer **buffer,
                          uint32_t *offset_bytes) MUST_CHECK;

/* Writes a descriptor and its checksum over the raw bytes; readers see the old or the new one. */
void volume_format_group(const struct volume *volume, uint32_t group,
                         const struct group_descriptor *descriptor, void *raw);

/*
 * Changes the superblock's block in the handle's transaction: `change` gets the values that the
 * block holds now, and what it alters among those that superblock_format writes is written back.
 * Callers do not disturb each other. `change` takes no lock. A credit.
 */
int volume_change_superblock(struct handle *handle, const struct volume *volume,
                             void (*change)(struct superblock *sb, void *context),
                             void *context) MUST_CHECK;

#endif
