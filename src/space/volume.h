/* SPDX-License-Identifier: MIT */
/*
 * The parts of an opened file system that every layer above works on: device, buffers, superblock.
 * Fixed from the mount to the unmount.
 */
#ifndef UEXT4_SPACE_VOLUME_H
#define UEXT4_SPACE_VOLUME_H

#include "block/buffer.h"
#include "format/group.h"
#include "format/superblock.h"

struct volume {
    struct superblock sb;         /* [immutable] */
    struct device *device;        /* [immutable] */
    struct buffer_cache *buffers; /* [immutable] */
    const struct log *log;        /* [immutable] */
    uint32_t backup_group;        /* [immutable] group of the superblock in use; 0: the primary */
    bool skip_checksums;          /* [immutable] mismatches of metadata are not errors */
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
 * Reads and checks a group's descriptor. Also -ERANGE for a group past the last. Problems are
 * logged.
 */
int volume_read_group(const struct volume *volume, uint32_t group,
                      struct group_descriptor *result) MUST_CHECK;

#endif
