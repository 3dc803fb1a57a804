/* SPDX-License-Identifier: MIT */
/*
 * Inodes as they lie in the inode table, 128 bytes or more.
 * Source: Documentation/filesystems/ext4/inodes.rst, ifork.rst, inlinedata.rst, special_inodes.rst.
 */
#ifndef UEXT4_FORMAT_INODE_H
#define UEXT4_FORMAT_INODE_H

#include <time.h>

#include "base/compiler.h"
#include "format/superblock.h"

#define INODE_BLOCK_BYTES 60 /* i_block: block map, extent root, short symlink or inline data */

enum inode_number {
    INODE_BAD_BLOCKS = 1,
    INODE_ROOT = 2,
    INODE_USER_QUOTA = 3,
    INODE_GROUP_QUOTA = 4,
    INODE_BOOT_LOADER = 5,
    INODE_UNDELETE = 6,
    INODE_RESIZE = 7,
    INODE_JOURNAL = 8,
};

enum inode_flags {
    INODE_SYNC = 0x8,
    INODE_IMMUTABLE = 0x10,
    INODE_APPEND = 0x20,
    INODE_COMPRESSED = 0x200,
    INODE_ENCRYPTED = 0x800,
    INODE_INDEXED = 0x1000, /* the directory has a hash index */
    INODE_JOURNAL_DATA = 0x4000,
    INODE_TOPDIR = 0x20000,
    INODE_HUGE_FILE = 0x40000, /* i_blocks counts file-system blocks */
    INODE_EXTENTS = 0x80000,
    INODE_VERITY = 0x100000,
    INODE_EA_INODE = 0x200000, /* holds one extended attribute's value */
    INODE_INLINE_DATA = 0x10000000,
    INODE_PROJECT_INHERIT = 0x20000000,
    INODE_CASEFOLD = 0x40000000,
};

/* An inode in host values. */
struct inode_fields {
    uint32_t mode; /* type and permissions */
    uint32_t uid, gid;
    uint32_t link_count;
    uint32_t flags;
    uint32_t generation;
    uint32_t project_id;
    uint32_t deletion_time; /* raw i_dtime; in the orphan list the next inode */
    uint64_t size;
    uint64_t allocated_sectors; /* 512-byte units, whatever form the disk has */
    uint64_t version;
    uint64_t xattr_block; /* i_file_acl */
    uint32_t extra_isize; /* 0 for 128-byte inodes; else bytes used past the first 128 */
    struct timespec access_time, modify_time, change_time, birth_time;
    uint32_t rdev_major, rdev_minor; /* devices only */
    uint8_t block[INODE_BLOCK_BYTES];
};

/*
 * True if the inode's checksum matches, or the format has none. `raw` is sb->inode_bytes long. An
 * inode of zeroes, never written, has no checksum and is good.
 */
bool inode_checksum_matches(const struct superblock *sb, uint32_t ino, const void *raw);

/* The seed of the checksums of everything that belongs to one inode (directories, extents). */
uint32_t inode_checksum_seed(const struct superblock *sb, uint32_t ino, uint32_t generation);

/*
 * Converts and checks an inode. Returns NULL or what is wrong: an unknown type, an extra size that
 * does not fit or is not a multiple of 4, a size with its top bit set, a size that the block map
 * cannot reach, extended attribute block outside the file system. An inode that is not in use
 * (mode and link count 0) parses without complaint.
 */
const char *inode_parse(const struct superblock *sb, const void *raw, struct inode_fields *result);

/*
 * Makes a new inode's bytes: zero, but for an extra size of want_extra_isize. inode_format gives it
 * a content and a checksum. Returns the extra size, for struct inode_fields.
 */
uint32_t inode_init_raw(const struct superblock *sb, void *raw);

/*
 * Writes all fields and the checksum. Fields behind the first 128 bytes are written as far as
 * inode->extra_isize covers them, which must fit the inode; what lies behind it (attributes) is
 * left alone. Times beyond what can be held become the nearest that can (see inode_clamp_time).
 * Chooses the unit of i_blocks and INODE_HUGE_FILE by itself. For device files i_block comes from
 * rdev_*. Returns 0, or -EFBIG, with nothing written, if the form cannot hold so many sectors.
 */
int inode_format(const struct superblock *sb, uint32_t ino, const struct inode_fields *inode,
                 void *raw) MUST_CHECK;

/* Brings the checksum up to date after other bytes were changed: attributes, a cleared inode. */
void inode_set_checksum(const struct superblock *sb, uint32_t ino, void *raw);

/*
 * The time as an inode of that extra size will hold it: seconds in -2^31 .. 2^34 - 2^31 - 1 with
 * nanoseconds, or 2^31 seconds to either side without them. A time out of range has no nanoseconds.
 */
struct timespec inode_clamp_time(uint32_t extra_isize, struct timespec time);

/*
 * Largest size in bytes that a file may have: what its kind of map reaches, and what i_blocks can
 * count if all of it were allocated (without huge_file that is 2 TiB).
 */
uint64_t inode_max_size(const struct superblock *sb, bool has_extents);

/* True for a symbolic link whose target lies in i_block. */
bool inode_is_fast_symlink(const struct superblock *sb, const struct inode_fields *inode);

#endif
