/* SPDX-License-Identifier: MIT */
/*
 * Extended attributes: behind the inode's fields, in a block of their own, with values in the same
 * area or in an inode. POSIX ACLs in their on-disk and their interface form.
 * Source: Documentation/filesystems/ext4/attributes.rst.
 */
#ifndef UEXT4_FORMAT_XATTR_H
#define UEXT4_FORMAT_XATTR_H

#include "base/compiler.h"
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

/*
 * The other way, with the interface's rules checked: known tags in their order, one entry each for
 * owner, group and others, a mask if anybody is named, permissions of three bits. An ACL without
 * entries gives 0: the attribute is to be removed. `raw` may be NULL with size 0, to learn the
 * length. Returns the length, -EINVAL for what is not a valid ACL, -ERANGE if it does not fit.
 */
int64_t acl_to_disk(const void *buffer, size_t length, void *raw, size_t size);

/* ---- Changes --------------------------------------------------------------------------------- */

/* A writable area. */
struct xattr_place {
    uint8_t *header; /* the block, or the magic number in the inode */
    uint8_t *entries, *base, *end;
    bool is_block;
};

/* An attribute to be set. */
struct xattr_new {
    uint8_t index;
    uint8_t name_length;
    const char *name; /* without the prefix */
    const void *value;
    uint32_t value_bytes;
    uint32_t value_ino;  /* the inode that holds the value, or 0; then `value` is not used */
    uint32_t value_hash; /* with value_ino: xattr_value_inode_hash of the value */
};

/*
 * The area behind an inode's fields. If there is none yet, it writes zeroes there, so that it is an
 * empty one (the magic number comes with the first attribute and goes with the last). False if the
 * inode has no room for one.
 */
bool xattr_inode_place(const struct superblock *sb, void *raw_inode, uint32_t extra_isize,
                       struct xattr_place *place);

/* That of a block whose header was checked with xattr_block_area. */
void xattr_block_place(const struct superblock *sb, void *block, struct xattr_place *place);

/* Makes an empty attribute block with one reference. */
void xattr_block_init(const struct superblock *sb, void *block);

/* For reading it with xattr_next. */
struct xattr_area xattr_area_of(const struct xattr_place *place);

/* Bytes that an attribute takes; value_bytes is 0 if the value lies in an inode. */
uint32_t xattr_needed_bytes(size_t name_length, uint32_t value_bytes);

/* Bytes that an empty area offers to attributes. */
uint32_t xattr_place_capacity(const struct xattr_place *place);

/*
 * Free bytes, to compare with xattr_needed_bytes, or -EUCLEAN. Changes ask more of an area than
 * reading: values are aligned, padded inside the area, and do not overlap.
 */
int64_t xattr_place_free(const struct superblock *sb, const struct xattr_place *place) MUST_CHECK;

/*
 * Sets or replaces an attribute; entries of a block are kept in order, values packed at the end. In
 * a block the hashes are brought up to date, too, but not the checksum. 0, -ENOSPC or -EUCLEAN with
 * nothing changed. The inode of a value that is replaced is the caller's business.
 */
int xattr_set(const struct superblock *sb, const struct xattr_place *place,
              const struct xattr_new *attribute) MUST_CHECK;

/* 0, -ENODATA or -EUCLEAN. */
int xattr_remove(const struct superblock *sb, const struct xattr_place *place, uint8_t index,
                 const char *name, size_t name_length) MUST_CHECK;

bool xattr_place_is_empty(const struct xattr_place *place);

/* How many inodes share an attribute block: at most XATTR_REFERENCES_MAX. */
#define XATTR_REFERENCES_MAX 1024
uint32_t xattr_block_references(const void *block);
void xattr_block_set_references(void *block, uint32_t references);

/* The hash of a block's attributes, 0 if it may not be shared. */
uint32_t xattr_block_hash(const void *block);

/* True if two blocks hold the same attributes (their headers aside), so that they can be shared. */
bool xattr_blocks_are_equal(const struct superblock *sb, const void *a, const void *b);

void xattr_block_set_checksum(const struct superblock *sb, uint64_t disk_block, void *block);

/* Hash of an entry, from its name and its value (or value_hash). In inodes it is 0 without one. */
uint32_t xattr_entry_hash(const struct xattr_new *attribute);

#endif
