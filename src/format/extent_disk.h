/* SPDX-License-Identifier: MIT */
/* The bytes of extent nodes, for the files that convert them. */
#ifndef UEXT4_FORMAT_EXTENT_DISK_H
#define UEXT4_FORMAT_EXTENT_DISK_H

#include "base/byteorder.h"
#include "format/extent.h"

#define EXTENT_MAGIC 0xf30a

struct disk_extent_header {
    le16 magic;
    le16 entry_count;
    le16 entry_max;
    le16 depth;
    le32 generation;
};
_Static_assert(sizeof(struct disk_extent_header) == EXTENT_HEADER_BYTES, "extent header");

struct disk_extent {
    le32 file_block;
    le16 length;
    le16 disk_block_high;
    le32 disk_block_low;
};
_Static_assert(sizeof(struct disk_extent) == EXTENT_ENTRY_BYTES, "extent");

struct disk_extent_index {
    le32 file_block;
    le32 disk_block_low;
    le16 disk_block_high;
    le16 unused;
};
_Static_assert(sizeof(struct disk_extent_index) == EXTENT_ENTRY_BYTES, "extent index");

#endif
