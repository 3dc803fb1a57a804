/* SPDX-License-Identifier: MIT */
/*
 * Checksums of the block and inode bitmaps. They cover only the bytes that a full group uses, and
 * descriptors of 32 bytes keep only the lower half. Pure functions without locks, for the space
 * layer and for checking.
 */
#include "format/bitmap.h"

#include "format/crc.h"

/* Descriptors shorter than this have no upper halves of the bitmaps' checksums. */
#define DESCRIPTOR_BYTES_WITH_HIGH_HALVES 64

static bool is_match(const struct superblock *sb, const void *bitmap, size_t length,
                     uint32_t expected)
{
    if (!sb->has_metadata_csum)
        return true;
    uint32_t crc = crc32c(sb->checksum_seed, bitmap, length);
    if (sb->descriptor_bytes < DESCRIPTOR_BYTES_WITH_HIGH_HALVES)
        return (crc & 0xffff) == (expected & 0xffff);
    return crc == expected;
}

bool bitmap_block_checksum_matches(const struct superblock *sb,
                                   const struct group_descriptor *group, const void *bitmap)
{
    return is_match(sb, bitmap, sb->clusters_per_group / 8, group->block_bitmap_checksum);
}

bool bitmap_inode_checksum_matches(const struct superblock *sb,
                                   const struct group_descriptor *group, const void *bitmap)
{
    return is_match(sb, bitmap, sb->inodes_per_group / 8, group->inode_bitmap_checksum);
}
