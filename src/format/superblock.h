/* SPDX-License-Identifier: MIT */
/*
 * The superblock: 1024 bytes at offset 1024 of the file system, with copies in some groups.
 * Source: Documentation/filesystems/ext4/super.rst (kernel documentation).
 */
#ifndef UEXT4_FORMAT_SUPERBLOCK_H
#define UEXT4_FORMAT_SUPERBLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SUPERBLOCK_OFFSET_BYTES 1024
#define SUPERBLOCK_BYTES        1024
#define SUPERBLOCK_MAGIC        0xef53

enum feature_compat {
    FEATURE_COMPAT_DIR_PREALLOC = 0x1,
    FEATURE_COMPAT_IMAGIC_INODES = 0x2,
    FEATURE_COMPAT_HAS_JOURNAL = 0x4,
    FEATURE_COMPAT_EXT_ATTR = 0x8,
    FEATURE_COMPAT_RESIZE_INODE = 0x10,
    FEATURE_COMPAT_DIR_INDEX = 0x20,
    FEATURE_COMPAT_LAZY_BG = 0x40,
    FEATURE_COMPAT_EXCLUDE_BITMAP = 0x100,
    FEATURE_COMPAT_SPARSE_SUPER2 = 0x200,
    FEATURE_COMPAT_FAST_COMMIT = 0x400,
    FEATURE_COMPAT_STABLE_INODES = 0x800,
    FEATURE_COMPAT_ORPHAN_FILE = 0x1000,
};

enum feature_incompat {
    FEATURE_INCOMPAT_COMPRESSION = 0x1,
    FEATURE_INCOMPAT_FILETYPE = 0x2,
    FEATURE_INCOMPAT_RECOVER = 0x4,
    FEATURE_INCOMPAT_JOURNAL_DEV = 0x8,
    FEATURE_INCOMPAT_META_BG = 0x10,
    FEATURE_INCOMPAT_EXTENTS = 0x40,
    FEATURE_INCOMPAT_64BIT = 0x80,
    FEATURE_INCOMPAT_MMP = 0x100,
    FEATURE_INCOMPAT_FLEX_BG = 0x200,
    FEATURE_INCOMPAT_EA_INODE = 0x400,
    FEATURE_INCOMPAT_DIRDATA = 0x1000,
    FEATURE_INCOMPAT_CSUM_SEED = 0x2000,
    FEATURE_INCOMPAT_LARGEDIR = 0x4000,
    FEATURE_INCOMPAT_INLINE_DATA = 0x8000,
    FEATURE_INCOMPAT_ENCRYPT = 0x10000,
    FEATURE_INCOMPAT_CASEFOLD = 0x20000,
};

enum feature_ro_compat {
    FEATURE_RO_COMPAT_SPARSE_SUPER = 0x1,
    FEATURE_RO_COMPAT_LARGE_FILE = 0x2,
    FEATURE_RO_COMPAT_BTREE_DIR = 0x4,
    FEATURE_RO_COMPAT_HUGE_FILE = 0x8,
    FEATURE_RO_COMPAT_GDT_CSUM = 0x10,
    FEATURE_RO_COMPAT_DIR_NLINK = 0x20,
    FEATURE_RO_COMPAT_EXTRA_ISIZE = 0x40,
    FEATURE_RO_COMPAT_HAS_SNAPSHOT = 0x80,
    FEATURE_RO_COMPAT_QUOTA = 0x100,
    FEATURE_RO_COMPAT_BIGALLOC = 0x200,
    FEATURE_RO_COMPAT_METADATA_CSUM = 0x400,
    FEATURE_RO_COMPAT_REPLICA = 0x800,
    FEATURE_RO_COMPAT_READONLY = 0x1000,
    FEATURE_RO_COMPAT_PROJECT = 0x2000,
    FEATURE_RO_COMPAT_SHARED_BLOCKS = 0x4000,
    FEATURE_RO_COMPAT_VERITY = 0x8000,
    FEATURE_RO_COMPAT_ORPHAN_PRESENT = 0x10000,
};

enum superblock_state {
    SUPERBLOCK_STATE_CLEAN = 0x1, /* unmounted properly, or the journal holds what is missing */
    SUPERBLOCK_STATE_ERRORS = 0x2,
    SUPERBLOCK_STATE_ORPHANS = 0x4,
};

enum superblock_errors_behaviour {
    SUPERBLOCK_ERRORS_CONTINUE = 1,
    SUPERBLOCK_ERRORS_READ_ONLY = 2,
    SUPERBLOCK_ERRORS_PANIC = 3,
};

#define SUPERBLOCK_ERROR_FUNCTION_BYTES 32

/* What the superblock remembers of an error. */
struct superblock_error {
    uint64_t time; /* seconds */
    uint64_t block;
    uint32_t ino;
    uint32_t line;
    uint8_t code; /* the format's own small numbers: see superblock_error_code */
    char function[SUPERBLOCK_ERROR_FUNCTION_BYTES + 1]; /* terminated */
};

/*
 * The superblock in host values, all checked: every size and count is in its range and agrees with
 * the others, so that arithmetic on them neither overflows nor divides by zero.
 */
struct superblock {
    uint64_t block_count;
    uint64_t reserved_block_count;
    uint64_t free_block_count; /* clusters are counted as blocks here */
    uint32_t inode_count;
    uint32_t free_inode_count;
    uint32_t first_data_block;
    uint32_t block_bytes; /* 1024 .. 65536 */
    uint32_t block_bits;
    uint32_t cluster_bytes; /* = block_bytes without bigalloc */
    uint32_t cluster_blocks;
    uint32_t blocks_per_group;
    uint32_t clusters_per_group;
    uint32_t inodes_per_group;
    uint32_t inodes_per_block;
    uint32_t inode_table_blocks; /* of one group */
    uint32_t inode_bytes;        /* 128 .. block_bytes, a power of two */
    uint32_t want_extra_isize;
    uint32_t group_count;
    uint32_t descriptor_bytes; /* 32, or 64 .. 1024 with 64bit */
    uint32_t descriptors_per_block;
    uint32_t descriptor_block_count;
    uint32_t reserved_descriptor_blocks;
    uint32_t first_meta_bg;    /* descriptor block from which meta_bg's layout holds */
    uint32_t flex_group_count; /* groups in a flex_bg; 1 without it */
    uint32_t compat, incompat, ro_compat;
    uint32_t revision;
    uint32_t first_ino;
    uint32_t backup_groups[2]; /* sparse_super2 */
    uint32_t creator_os;
    uint32_t flags; /* s_flags */
    uint16_t state;
    uint16_t errors_behaviour;
    uint16_t mount_count, max_mount_count;
    uint16_t default_uid, default_gid;
    uint64_t created, mounted, written, checked; /* seconds, with their high bytes */
    uint64_t kib_written;
    uint32_t error_count;
    struct superblock_error first_error, last_error;
    uint32_t default_mount_options;
    uint64_t overhead_blocks;
    uint8_t uuid[16];
    char volume_name[17];  /* terminated */
    char last_mounted[65]; /* terminated */

    uint32_t hash_seed[4];
    uint8_t default_hash_version;
    bool is_hash_unsigned;             /* the hash treats names' bytes as unsigned (s_flags) */
    uint16_t encoding, encoding_flags; /* casefold */

    uint32_t journal_ino;
    uint32_t journal_device;
    uint8_t journal_uuid[16];
    uint8_t journal_backup_type;
    uint32_t journal_blocks[17]; /* copy of the journal inode's i_block[15], size high, size low */

    uint32_t last_orphan;
    uint32_t orphan_file_ino;
    uint32_t usr_quota_ino, grp_quota_ino, prj_quota_ino;
    uint16_t mmp_interval;
    uint64_t mmp_block;
    uint8_t checksum_type;
    uint32_t checksum_seed; /* of all metadata checksums: s_checksum_seed or crc32c of the UUID */
    bool has_metadata_csum;
    bool has_gdt_csum; /* crc16 of group descriptors; never together with the one above */
};

/* True if the bytes carry the magic number; nothing else is looked at. */
bool superblock_has_magic(const void *raw);

/* True if there is no metadata_csum or the superblock's own checksum matches. */
bool superblock_checksum_matches(const void *raw);

/*
 * Converts and checks SUPERBLOCK_BYTES raw bytes. `device_bytes` bounds the block count; 0 means
 * that the device's size does not matter. Returns NULL, or what is wrong as a static string; the
 * result is then undefined. Does not judge features: see superblock_unsupported_features. Free,
 * reserved and overhead counts only inform: those beyond the totals are lowered to them.
 */
const char *superblock_parse(const void *raw, uint64_t device_bytes, struct superblock *result);

/*
 * Clears needs_recovery in raw bytes, sets the error state if something was lost (so that e2fsck
 * looks at everything), and brings the checksum up to date.
 */
void superblock_mark_recovered(void *raw, bool has_errors);

/*
 * Writes the fields that change while a file system is in use into SUPERBLOCK_BYTES raw bytes that
 * hold the rest already, and their checksum: features, state, flags, free counts, mount count and
 * times, last_mounted, the label, kib_written, the list of orphans, the errors. What parsing made
 * of all other fields is not written.
 */
void superblock_format(const struct superblock *sb, void *raw);

/*
 * Makes the copy of a group from the primary: all of it but the number of the group, needs_recovery
 * and the state "clean", which only the primary has. `copy` and `primary` are SUPERBLOCK_BYTES.
 */
void superblock_format_copy(const void *primary, uint32_t group, void *copy);

/* The number that stands for an errno (of either sign) in struct superblock_error. */
uint8_t superblock_error_code(int error);

/*
 * Counts an error and notes it as the last, and as the first if there was none; sets the state.
 * `function` is cut off where it is too long.
 */
void superblock_add_error(struct superblock *sb, uint64_t time, int error, uint32_t ino,
                          uint64_t block, const char *function, uint32_t line);

/*
 * Writes the names of features that this version cannot read to `names`, separated by spaces,
 * always terminated. Returns how many there are.
 */
unsigned int superblock_unsupported_features(const struct superblock *sb, char *names, size_t size);

/* Features without which writing is refused, in the same way: those not understood in full. */
unsigned int superblock_unwritable_features(const struct superblock *sb, char *names, size_t size);

enum feature_set {
    FEATURE_SET_COMPAT,
    FEATURE_SET_INCOMPAT,
    FEATURE_SET_RO_COMPAT,
    FEATURE_SET_JOURNAL_COMPAT,
    FEATURE_SET_JOURNAL_INCOMPAT
};

/* The name that mke2fs and dumpe2fs use for bit number `bit` (0..31), or NULL. */
const char *feature_name(enum feature_set set, unsigned int bit);

/*
 * Writes the names of all set bits, separated by spaces, cut off at `size` and always terminated;
 * bits without a name as FEATURE_C12, like dumpe2fs. Returns how many there are.
 */
unsigned int feature_list_names(enum feature_set set, uint32_t features, char *names, size_t size);

static inline bool superblock_has_compat(const struct superblock *sb, uint32_t feature)
{
    return (sb->compat & feature) != 0;
}

static inline bool superblock_has_incompat(const struct superblock *sb, uint32_t feature)
{
    return (sb->incompat & feature) != 0;
}

static inline bool superblock_has_ro_compat(const struct superblock *sb, uint32_t feature)
{
    return (sb->ro_compat & feature) != 0;
}

#endif
