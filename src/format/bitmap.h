/* SPDX-License-Identifier: MIT */
/* Checksums of the block and inode bitmaps. Source: Documentation/filesystems/ext4/bitmaps.rst. */
#ifndef UEXT4_FORMAT_BITMAP_H
#define UEXT4_FORMAT_BITMAP_H

#include "format/group.h"

bool bitmap_block_checksum_matches(const struct superblock *sb,
                                   const struct group_descriptor *group, const void *bitmap);
bool bitmap_inode_checksum_matches(const struct superblock *sb,
                                   const struct group_descriptor *group, const void *bitmap);

#endif
