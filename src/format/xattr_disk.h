/* SPDX-License-Identifier: MIT */
/* The bytes of extended attributes, for the files that convert them. */
#ifndef UEXT4_FORMAT_XATTR_DISK_H
#define UEXT4_FORMAT_XATTR_DISK_H

#include "base/byteorder.h"
#include "format/xattr.h"

#define XATTR_MAGIC           0xea020000
#define XATTR_VALUE_INODE_MAX (16u << 20)
#define XATTR_ALIGN           4
#define INODE_BASE_BYTES      128

struct disk_xattr_header {
    le32 magic;
    le32 reference_count;
    le32 block_count;
    le32 hash;
    le32 checksum;
    le32 reserved[3];
};
_Static_assert(sizeof(struct disk_xattr_header) == 32, "xattr block header");

struct disk_xattr_entry {
    uint8_t name_length;
    uint8_t index;
    le16 value_offset;
    le32 value_ino;
    le32 value_bytes;
    le32 hash;
};
_Static_assert(sizeof(struct disk_xattr_entry) == 16, "xattr entry");

/* The checksum as it should be, whatever the features say. */
uint32_t xattr_block_checksum(const struct superblock *sb, uint64_t disk_block, const void *block);

#endif
