/* SPDX-License-Identifier: MIT */
/*
 * Extended attributes: behind the inode's fields, in a block of their own, with values in the same
 * area or in an inode. POSIX ACLs in their on-disk and their interface form.
 * Source: Documentation/filesystems/ext4/attributes.rst.
 */
#ifndef UEXT4_FORMAT_XATTR_H
#define UEXT4_FORMAT_XATTR_H

#include "format/superblock.h"

#define XATTR_NAME_MAX 255 /* bytes without the prefix */

enum xattr_index {
    XATTR_USER = 1,
    XATTR_ACL_ACCESS = 2,
    XATTR_ACL_DEFAULT = 3,
    XATTR_TRUSTED = 4,
    XATTR_SECURITY = 6,
    XATTR_SYSTEM = 7,
    XATTR_RICHACL = 8,
    XATTR_ENCRYPTION = 9,
    XATTR_HURD = 10,
};

/* An area that holds attributes: where entries start and where value offsets count from. */
struct xattr_area {
    const void *entries;
    const void *base; /* value offsets count from here */
    const void *end;
};

struct xattr_view {
    uint8_t index; /* enum xattr_index */
    uint8_t name_length;
    const char *name; /* in the area, without the prefix */
    uint32_t value_bytes;
    const void *value;  /* in the area; NULL if it lies in `value_ino` */
    uint32_t value_ino; /* 0, or the inode that holds the value */
    uint32_t hash;
    const void *following; /* pass it to xattr_next */
};

/*
 * Finds the area behind an inode's fields. False if there is none (128-byte inode, no room, or no
 * magic number).
 */
bool xattr_inode_area(const struct superblock *sb, const void *raw_inode, uint32_t extra_isize,
                      struct xattr_area *area);

/* The area of an attribute block after a check of its header. Returns NULL or what is wrong. */
const char *xattr_block_area(const struct superblock *sb, const void *block,
                             struct xattr_area *area);

bool xattr_block_checksum_matches(const struct superblock *sb, uint64_t disk_block,
                                  const void *block);

/*
 * Steps through the attributes: start with position = area->entries. Returns 1 with an entry in
 * `result`, whose name and value lie inside the area, 0 at the end, -EUCLEAN for a bad entry with
 * the reason in `reason`. Values in inodes are bounded by 16 MiB here; entries overlapping their
 * values are refused. The first step checks all entries, so that a damaged area yields none.
 */
int xattr_next(const struct superblock *sb, const struct xattr_area *area, const void *position,
               struct xattr_view *result, const char **reason);

/*
 * "user." and so on; with `is_whole_name` set, the index alone is the name ("system.richacl"), and
 * the entry's own name is empty. NULL for indexes that are not shown.
 */
const char *xattr_prefix(uint8_t index, bool *is_whole_name);

/*
 * Splits a full name. Returns the index, or 0 if no prefix matches or nothing follows it; `rest`
 * points to what follows the prefix ("" where the index alone is the name).
 */
uint8_t xattr_split_name(const char *full_name, const char **rest);

/* Hash of an EA inode's value, as its inode stores it: crc32c from the checksum seed. */
uint32_t xattr_value_inode_hash(const struct superblock *sb, const void *value, size_t length);

/*
 * Converts an ACL from its on-disk form (version 1) to that of the xattr interface (version 2).
 * With `size` 0 it only tells the length. Returns the length, -ERANGE, or -EUCLEAN.
 */
int64_t acl_from_disk(const void *raw, size_t raw_length, void *buffer, size_t size);

#endif
