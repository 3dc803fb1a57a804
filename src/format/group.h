/* SPDX-License-Identifier: MIT */
/*
 * Group descriptors, and where the format puts them and the superblock's copies.
 * Source: Documentation/filesystems/ext4/group_descr.rst, blockgroup.rst, bitmaps.rst.
 */
#ifndef UEXT4_FORMAT_GROUP_H
#define UEXT4_FORMAT_GROUP_H

#include "format/superblock.h"

enum group_flags {
    GROUP_INODE_UNINIT = 0x1,
    GROUP_BLOCK_UNINIT = 0x2,
    GROUP_INODE_ZEROED = 0x4,
};

struct group_descriptor {
    uint64_t block_bitmap, inode_bitmap, inode_table; /* disk blocks, inside the file system */
    uint32_t free_clusters, free_inodes, used_directories, unused_inodes;
    uint32_t block_bitmap_checksum, inode_bitmap_checksum;
    uint16_t flags;
};

/* True if the group holds a copy of the superblock (sparse_super, sparse_super2). */
bool group_has_superblock(const struct superblock *sb, uint32_t group);

/* First block of a group, and how many blocks it has (the last group may be partial). */
uint64_t group_first_block(const struct superblock *sb, uint32_t group);
uint64_t group_block_count(const struct superblock *sb, uint32_t group);

/*
 * Disk block that holds the descriptor of `group`, and its byte offset in it. With a backup
 * superblock of group `backup_group` (0: primary), the descriptors beside that copy are used; in
 * meta_bg's layout, which has none there, the copy in the second group of the meta block group, if
 * there is one.
 */
uint64_t group_descriptor_block(const struct superblock *sb, uint32_t group, uint32_t backup_group,
                                uint32_t *offset_bytes);

/*
 * Blocks that the superblock's copy, the descriptors and those reserved for more take at the start
 * of a group; with the boot block where group 0 begins with it (1 KiB blocks and clusters).
 */
uint32_t group_base_metadata_blocks(const struct superblock *sb, uint32_t group);

/* True if the descriptor's checksum matches, or the format has none. */
bool group_descriptor_checksum_matches(const struct superblock *sb, uint32_t group,
                                       const void *raw);

/*
 * Converts and checks sb->descriptor_bytes raw bytes. Returns NULL or what is wrong; the positions
 * of the bitmaps and of the whole inode table are then inside the file system, the counts within
 * the group's size.
 */
const char *group_descriptor_parse(const struct superblock *sb, uint32_t group, const void *raw,
                                   struct group_descriptor *result);

/*
 * Writes all fields into sb->descriptor_bytes raw bytes and brings the checksum up to date. Flags
 * and unused_inodes are left alone where the format has no checksums of descriptors.
 */
void group_descriptor_format(const struct superblock *sb, uint32_t group,
                             const struct group_descriptor *descriptor, void *raw);

/*
 * Makes the block bitmap (block_bytes long) that a group marked GROUP_BLOCK_UNINIT stands for:
 * in use are the copies of superblock and descriptors with their reserve, those of the group's own
 * bitmaps and inode table that lie in it, and the bits beyond its end. Units are clusters.
 */
void group_init_block_bitmap(const struct superblock *sb, uint32_t group,
                             const struct group_descriptor *descriptor, void *bitmap);

/* The inode bitmap that GROUP_INODE_UNINIT stands for: only the bits past the group's inodes. */
void group_init_inode_bitmap(const struct superblock *sb, void *bitmap);

/* Clusters of the group; bits beyond them are always set in its block bitmap. */
uint32_t group_cluster_count(const struct superblock *sb, uint32_t group);

/*
 * True if one of the blocks belongs to the format by what `group` and its descriptor say: copies of
 * superblock and descriptors in that group, its bitmaps and its inode table, wherever they lie.
 */
bool group_owns_metadata(const struct superblock *sb, uint32_t group,
                         const struct group_descriptor *descriptor, uint64_t first_block,
                         uint64_t length_blocks);

#endif
