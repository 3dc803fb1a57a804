/* SPDX-License-Identifier: MIT */
/*
 * Extent tree nodes: a 12-byte header, then 12-byte entries, sorted by file block. The root lies in
 * the inode (60 bytes), other nodes fill a block and end with a checksum.
 * Source: Documentation/filesystems/ext4/ifork.rst.
 */
#ifndef UEXT4_FORMAT_EXTENT_H
#define UEXT4_FORMAT_EXTENT_H

#include "format/superblock.h"

#define EXTENT_MAX_DEPTH     5
#define EXTENT_HEADER_BYTES  12
#define EXTENT_ENTRY_BYTES   12
#define EXTENT_MAX_WRITTEN   32768 /* blocks in one written extent */
#define EXTENT_MAX_UNWRITTEN 32767

struct extent_header {
    uint16_t entry_count, entry_max, depth; /* depth 0: leaf */
};

/* One extent of a leaf. Checked: length > 0, disk blocks inside the file system. */
struct extent {
    uint32_t file_block;
    uint32_t length_blocks;
    uint64_t disk_block;
    bool is_unwritten;
};

/* One entry of an inner node. */
struct extent_index {
    uint32_t file_block; /* first file block below the child */
    uint64_t disk_block; /* the child */
};

/*
 * Checks a whole node of `size` bytes: magic, counts within the size, the depth (`depth` is what
 * the parent demands, -1 for a root, where up to EXTENT_MAX_DEPTH is good), entries sorted, not
 * overlapping, not wrapping past 2^32 file blocks, disk blocks inside the file system and behind
 * first_data_block. An inner node has at least one entry. Returns NULL or what is wrong.
 */
const char *extent_node_check(const struct superblock *sb, const void *node, size_t size,
                              int depth);

/* True if the checksum at the end of a block-sized node matches, or the format has none. */
bool extent_node_checksum_matches(const struct superblock *sb, uint32_t inode_seed,
                                  const void *node);

/* The rest works on nodes that passed the check. */
struct extent_header extent_node_header(const void *node);
struct extent extent_at(const void *node, unsigned int position);
struct extent_index extent_index_at(const void *node, unsigned int position);

/*
 * Position of the last entry whose file block is <= `file_block`, or -1 if there is none. Serves
 * leaves and inner nodes.
 */
int extent_find(const void *node, uint32_t file_block);

/* ---- Changes. Positions and counts are the caller's duty (asserted); order is, too. ---------- */

/* Entries in the root (in an inode's i_block) and in a block. */
#define EXTENT_ROOT_CAPACITY ((60 - EXTENT_HEADER_BYTES) / EXTENT_ENTRY_BYTES)
unsigned int extent_block_capacity(const struct superblock *sb);

/* Writes the header of an empty node; the rest of its bytes is left alone. */
void extent_node_init(void *node, unsigned int capacity, unsigned int depth);

/* Puts an entry before the one at `position`; at entry_count: behind all. The node is not full. */
void extent_insert(void *node, unsigned int position, const struct extent *extent);
void extent_index_insert(void *node, unsigned int position, const struct extent_index *index);

/* Overwrites an entry. */
void extent_set(void *node, unsigned int position, const struct extent *extent);
void extent_index_set(void *node, unsigned int position, const struct extent_index *index);

/* Removes `count` entries of either kind from `position` on. */
void extent_remove(void *node, unsigned int position, unsigned int count);

/*
 * Moves the entries from `position` on in front of those of another node of the same depth with
 * enough room: a split, if `to` is new and empty.
 */
void extent_move_last(void *from, unsigned int position, void *to);

/* Moves the first `count` entries of `from` behind those of `to` (join with the node after it). */
void extent_move_first(void *from, unsigned int count, void *to);

/*
 * Grows the tree by a level: `child` (a zeroed block, disk block `child_block`) becomes a node with
 * all of the root's entries; the root gets one index entry for it. The root is below
 * EXTENT_MAX_DEPTH and has an entry.
 */
void extent_root_push_down(const struct superblock *sb, void *root, void *child,
                           uint64_t child_block);

/*
 * Shrinks it: a root with one index entry takes over the entries of its only child. False, with
 * nothing changed, if they do not fit. The child's block is the caller's to free.
 */
bool extent_root_pull_up(void *root, const void *child);

/* Brings the checksum behind the entries of a block-sized node up to date. */
void extent_node_set_checksum(const struct superblock *sb, uint32_t inode_seed, void *node);

/*
 * True if b follows a directly, in the file and on the disk, is of the same kind, and both together
 * are not too long for one extent.
 */
bool extent_can_merge(const struct extent *a, const struct extent *b);

#endif
