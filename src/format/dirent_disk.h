/* SPDX-License-Identifier: MIT */
/* The bytes of directory blocks, linear and indexed, for the files that convert them. */
#ifndef UEXT4_FORMAT_DIRENT_DISK_H
#define UEXT4_FORMAT_DIRENT_DISK_H

#include "base/byteorder.h"
#include "format/dirent.h"

#define DIRENT_RECORD_MIN_BYTES  12
#define DIRENT_STORED_HASH_BYTES 8
#define DIRENT_TAIL_TYPE         0xde

struct disk_dirent {
    le32 ino;
    le16 record_bytes;
    uint8_t name_length;
    uint8_t type;
};
_Static_assert(sizeof(struct disk_dirent) == DIRENT_HEADER_BYTES, "directory entry");

struct disk_dirent_tail {
    le32 zero;
    le16 record_bytes;
    uint8_t zero_name_length;
    uint8_t type;
    le32 checksum;
};
_Static_assert(sizeof(struct disk_dirent_tail) == DIRENT_TAIL_BYTES, "directory block tail");

/* True for "." and "..", which have no stored hash. */
bool dirent_is_dot_or_dotdot(const struct dirent_view *entry);

#define HTREE_INFO_BYTES  8
#define HTREE_ENTRY_BYTES 8
#define HTREE_TAIL_BYTES  8
#define HTREE_BLOCK_MASK  0x0fffffff /* the upper four bits are reserved */
#define DOT_RECORD_BYTES  12

struct disk_htree_dot {
    le32 ino;
    le16 record_bytes;
    uint8_t name_length;
    uint8_t type;
    char name[4];
};
_Static_assert(sizeof(struct disk_htree_dot) == DOT_RECORD_BYTES, "htree dot entry");

/* In front of the entries of the root. */
struct disk_htree_root {
    struct disk_htree_dot dot;
    struct disk_htree_dot dotdot;
    le32 reserved;
    uint8_t hash_version;
    uint8_t info_bytes;
    uint8_t indirect_levels;
    uint8_t flags;
};
_Static_assert(sizeof(struct disk_htree_root) == 32, "htree root");

/* In front of the entries of an inner node: an unused entry that fills the block. */
struct disk_htree_node {
    le32 ino;
    le16 record_bytes;
    uint8_t name_length;
    uint8_t type;
};
_Static_assert(sizeof(struct disk_htree_node) == 8, "htree node");

/* Overlays the hash of entry 0, which needs none. */
struct disk_htree_counts {
    le16 limit;
    le16 count;
    le32 block;
};
_Static_assert(sizeof(struct disk_htree_counts) == HTREE_ENTRY_BYTES, "htree counts");

struct disk_htree_entry {
    le32 hash;
    le32 block;
};
_Static_assert(sizeof(struct disk_htree_entry) == HTREE_ENTRY_BYTES, "htree entry");

struct disk_htree_tail {
    le32 reserved;
    le32 checksum;
};
_Static_assert(sizeof(struct disk_htree_tail) == HTREE_TAIL_BYTES, "htree tail");

/* Where the entries of an index node begin. */
size_t htree_entries_offset(bool is_root);

/* The checksum as it should be; the count is within the limit. */
uint32_t htree_node_checksum(uint32_t inode_seed, const void *block, bool is_root,
                             const struct disk_htree_tail *tail);

#endif
