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

#endif
