/* SPDX-License-Identifier: MIT */
/*
 * Names of features, as mke2fs and dumpe2fs give them, and the lists of those that may be read and
 * written. A bit that nobody here knows is unsupported. Pure functions without locks, for mounting
 * and for showing.
 */
#include <stdio.h>

#include "base/compiler.h"
#include "format/superblock.h"

/* ENCRYPT and CASEFOLD only concern names and contents; what they need is judged per inode. */
#define READABLE_INCOMPAT                                                                  \
    (FEATURE_INCOMPAT_FILETYPE | FEATURE_INCOMPAT_RECOVER | FEATURE_INCOMPAT_META_BG |     \
     FEATURE_INCOMPAT_EXTENTS | FEATURE_INCOMPAT_64BIT | FEATURE_INCOMPAT_MMP |            \
     FEATURE_INCOMPAT_FLEX_BG | FEATURE_INCOMPAT_EA_INODE | FEATURE_INCOMPAT_CSUM_SEED |   \
     FEATURE_INCOMPAT_LARGEDIR | FEATURE_INCOMPAT_INLINE_DATA | FEATURE_INCOMPAT_ENCRYPT | \
     FEATURE_INCOMPAT_CASEFOLD)

/*
 * Writing needs more. MMP demands a heartbeat that keeps other hosts out. With ENCRYPT, new names
 * and contents would have to be encrypted with keys that are not here.
 */
#define WRITABLE_INCOMPAT \
    (READABLE_INCOMPAT & ~(uint32_t)(FEATURE_INCOMPAT_MMP | FEATURE_INCOMPAT_ENCRYPT))

/*
 * Left out on purpose: BTREE_DIR, HAS_SNAPSHOT and REPLICA are not specified; READONLY forbids
 * writing; SHARED_BLOCKS lets files share blocks without a count of references, so that writing to
 * one would change the others; VERITY files carry hashes that a write would make stale.
 */
#define WRITABLE_RO_COMPAT                                                                         \
    (FEATURE_RO_COMPAT_SPARSE_SUPER | FEATURE_RO_COMPAT_LARGE_FILE | FEATURE_RO_COMPAT_HUGE_FILE | \
     FEATURE_RO_COMPAT_GDT_CSUM | FEATURE_RO_COMPAT_DIR_NLINK | FEATURE_RO_COMPAT_EXTRA_ISIZE |    \
     FEATURE_RO_COMPAT_QUOTA | FEATURE_RO_COMPAT_BIGALLOC | FEATURE_RO_COMPAT_METADATA_CSUM |      \
     FEATURE_RO_COMPAT_PROJECT | FEATURE_RO_COMPAT_ORPHAN_PRESENT)

static const char *const compat_names[32] = {
    [0] = "dir_prealloc",  [1] = "imagic_inodes", [2] = "has_journal",    [3] = "ext_attr",
    [4] = "resize_inode",  [5] = "dir_index",     [6] = "lazy_bg",        [8] = "snapshot_bitmap",
    [9] = "sparse_super2", [10] = "fast_commit",  [11] = "stable_inodes", [12] = "orphan_file",
};

static const char *const incompat_names[32] = {
    [0] = "compression", [1] = "filetype",     [2] = "needs_recovery", [3] = "journal_dev",
    [4] = "meta_bg",     [6] = "extent",       [7] = "64bit",          [8] = "mmp",
    [9] = "flex_bg",     [10] = "ea_inode",    [12] = "dirdata",       [13] = "metadata_csum_seed",
    [14] = "large_dir",  [15] = "inline_data", [16] = "encrypt",       [17] = "casefold",
};

static const char *const ro_compat_names[32] = {
    [0] = "sparse_super",   [1] = "large_file",  [3] = "huge_file",       [4] = "uninit_bg",
    [5] = "dir_nlink",      [6] = "extra_isize", [8] = "quota",           [9] = "bigalloc",
    [10] = "metadata_csum", [11] = "replica",    [12] = "read-only",      [13] = "project",
    [14] = "shared_blocks", [15] = "verity",     [16] = "orphan_present",
};

static const char *const journal_compat_names[32] = {
    [0] = "journal_checksum",
};

static const char *const journal_incompat_names[32] = {
    [0] = "journal_incompat_revoke", [1] = "journal_64bit",       [2] = "journal_async_commit",
    [3] = "journal_checksum_v2",     [4] = "journal_checksum_v3", [5] = "fast_commit",
};

static const char *const *const names_of_set[] = {
    [FEATURE_SET_COMPAT] = compat_names,
    [FEATURE_SET_INCOMPAT] = incompat_names,
    [FEATURE_SET_RO_COMPAT] = ro_compat_names,
    [FEATURE_SET_JOURNAL_COMPAT] = journal_compat_names,
    [FEATURE_SET_JOURNAL_INCOMPAT] = journal_incompat_names,
};

/* What stands before the bit number of a feature without a name. */
static const char letter_of_set[] = {
    [FEATURE_SET_COMPAT] = 'C',           [FEATURE_SET_INCOMPAT] = 'I',
    [FEATURE_SET_RO_COMPAT] = 'R',        [FEATURE_SET_JOURNAL_COMPAT] = 'C',
    [FEATURE_SET_JOURNAL_INCOMPAT] = 'I',
};

const char *feature_name(enum feature_set set, unsigned int bit)
{
    if ((unsigned int)set >= ARRAY_LENGTH(names_of_set) || bit >= 32)
        return NULL;
    return names_of_set[set][bit];
}

/* Adds the names of all set bits behind `*used` bytes, which may end past `size`. */
static unsigned int append_names(enum feature_set set, uint32_t features, char *names, size_t size,
                                 size_t *used)
{
    unsigned int count = 0;
    for (unsigned int bit = 0; bit < 32; bit++) {
        if ((features & (uint32_t)1 << bit) == 0)
            continue;
        const char *separator = *used > 0 ? " " : "";
        const char *name = feature_name(set, bit);
        char unknown[sizeof("FEATURE_C31")];
        if (name == NULL) {
            snprintf(unknown, sizeof(unknown), "FEATURE_%c%u", letter_of_set[set], bit & 31);
            name = unknown;
        }
        count++;
        if (*used < size)
            *used += (size_t)snprintf(names + *used, size - *used, "%s%s", separator, name);
    }
    return count;
}

unsigned int feature_list_names(enum feature_set set, uint32_t features, char *names, size_t size)
{
    size_t used = 0;
    if (size > 0)
        names[0] = '\0';
    return append_names(set, features, names, size, &used);
}

unsigned int superblock_unsupported_features(const struct superblock *sb, char *names, size_t size)
{
    return feature_list_names(FEATURE_SET_INCOMPAT, sb->incompat & ~(uint32_t)READABLE_INCOMPAT,
                              names, size);
}

unsigned int superblock_unwritable_features(const struct superblock *sb, char *names, size_t size)
{
    size_t used = 0;
    if (size > 0)
        names[0] = '\0';
    unsigned int count = append_names(
        FEATURE_SET_INCOMPAT, sb->incompat & ~(uint32_t)WRITABLE_INCOMPAT, names, size, &used);
    return count + append_names(FEATURE_SET_RO_COMPAT,
                                sb->ro_compat & ~(uint32_t)WRITABLE_RO_COMPAT, names, size, &used);
}
