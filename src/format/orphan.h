/* SPDX-License-Identifier: MIT */
/*
 * Blocks of the orphan file: inode numbers, 0 for a free slot, then a magic number and a checksum.
 * Source: Documentation/filesystems/ext4/orphan.rst.
 */
#ifndef UEXT4_FORMAT_ORPHAN_H
#define UEXT4_FORMAT_ORPHAN_H

#include "format/superblock.h"

/* Slots in a block. */
unsigned int orphan_block_slots(const struct superblock *sb);

/* Makes a block without orphans; the checksum is not set. */
void orphan_block_init(const struct superblock *sb, void *block);

/* Checks the magic number and that all numbers are those of inodes. NULL or what is wrong. */
const char *orphan_block_check(const struct superblock *sb, const void *block);

/* `inode_seed` is that of the orphan file's inode, `disk_block` where the block lies. */
bool orphan_block_checksum_matches(const struct superblock *sb, uint32_t inode_seed,
                                   uint64_t disk_block, const void *block);
void orphan_block_set_checksum(const struct superblock *sb, uint32_t inode_seed,
                               uint64_t disk_block, void *block);

uint32_t orphan_block_get(const void *block, unsigned int slot);
void orphan_block_set(void *block, unsigned int slot, uint32_t ino);

/* The first slot from `from` on that is free, or in use; orphan_block_slots if there is none. */
unsigned int orphan_block_find_free(const struct superblock *sb, const void *block,
                                    unsigned int from);
unsigned int orphan_block_find_used(const struct superblock *sb, const void *block,
                                    unsigned int from);

#endif
