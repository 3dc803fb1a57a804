/* SPDX-License-Identifier: MIT */
/* Helpers of the fuzz targets. Called by all of them. */
#include "fuzz.h"

#include <string.h>

void fuzz_make_superblock(uint32_t choices, struct superblock *sb)
{
    static const uint32_t seed[4] = {1, 2, 3, 4};
    uint32_t log_block = (choices & 7) > 6 ? 2 : choices & 7;
    uint32_t log_inode = 7 + (choices >> 3 & 7);

    memset(sb, 0, sizeof(*sb));
    sb->block_bits = 10 + log_block;
    sb->block_bytes = 1024u << log_block;
    sb->cluster_bytes = sb->block_bytes;
    sb->cluster_blocks = 1;
    sb->first_data_block = log_block == 0 ? 1 : 0;
    sb->block_count = (choices >> 6 & 1) != 0 ? (uint64_t)1 << 33 : 100000;
    sb->blocks_per_group = sb->clusters_per_group = 8 * sb->block_bytes;
    sb->inode_bytes = 1u << log_inode > sb->block_bytes ? 128 : 1u << log_inode;
    sb->inodes_per_block = sb->block_bytes / sb->inode_bytes;
    sb->inodes_per_group = 8 * sb->inodes_per_block;
    sb->inode_table_blocks = 8;
    sb->group_count =
        (uint32_t)((sb->block_count - sb->first_data_block + sb->blocks_per_group - 1) /
                   sb->blocks_per_group);
    sb->inode_count = sb->group_count * sb->inodes_per_group;
    sb->first_ino = 11;
    sb->revision = 1;
    sb->descriptor_bytes = (choices >> 7 & 1) != 0 ? 64 : 32;
    sb->descriptors_per_block = sb->block_bytes / sb->descriptor_bytes;
    sb->flex_group_count = 1;
    sb->incompat = FEATURE_INCOMPAT_FILETYPE | FEATURE_INCOMPAT_EXTENTS;
    if ((choices >> 7 & 1) != 0)
        sb->incompat |= FEATURE_INCOMPAT_64BIT;
    if ((choices >> 8 & 1) != 0)
        sb->incompat |= FEATURE_INCOMPAT_LARGEDIR;
    if ((choices >> 9 & 1) != 0)
        sb->incompat |= FEATURE_INCOMPAT_EA_INODE;
    if ((choices >> 10 & 1) != 0)
        sb->incompat &= ~(uint32_t)FEATURE_INCOMPAT_FILETYPE;
    sb->compat = FEATURE_COMPAT_DIR_INDEX | FEATURE_COMPAT_EXT_ATTR;
    if ((choices >> 11 & 1) != 0)
        sb->ro_compat |= FEATURE_RO_COMPAT_HUGE_FILE;
    if ((choices >> 12 & 1) != 0)
        sb->ro_compat |= FEATURE_RO_COMPAT_PROJECT;
    sb->has_metadata_csum = (choices >> 13 & 1) != 0;
    if (sb->has_metadata_csum)
        sb->ro_compat |= FEATURE_RO_COMPAT_METADATA_CSUM;
    sb->is_hash_unsigned = (choices >> 14 & 1) != 0;
    sb->creator_os = (choices >> 15 & 1) != 0 ? 1 : 0;
    memcpy(sb->hash_seed, seed, sizeof(seed));
}

uint8_t fuzz_touch(const void *bytes, size_t count)
{
    const volatile uint8_t *place = bytes;
    uint8_t sum = 0;

    for (size_t i = 0; i < count; i++)
        sum = (uint8_t)(sum + place[i]);
    return sum;
}
