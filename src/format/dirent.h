/* SPDX-License-Identifier: MIT */
/*
 * Directory blocks: linear entries, and the nodes of the hash index.
 * Source: Documentation/filesystems/ext4/directory.rst.
 */
#ifndef UEXT4_FORMAT_DIRENT_H
#define UEXT4_FORMAT_DIRENT_H

#include "format/superblock.h"

#define DIRENT_NAME_MAX     255
#define DIRENT_HEADER_BYTES 8
#define DIRENT_TAIL_BYTES   12 /* the fake entry that holds a leaf's checksum */
#define HTREE_MAX_LEVELS    3  /* inner levels below the root + 1, with large_dir */

/* A directory entry in place; `name` points into the block. */
struct dirent_view {
    uint32_t ino;          /* 0: not in use */
    uint32_t record_bytes; /* 65536 possible */
    uint8_t name_length;
    uint8_t type; /* DT_* of <dirent.h>; DT_UNKNOWN without filetype */
    const char *name;
    uint32_t hash, minor_hash; /* only with has_hash: stored behind encrypted, casefolded names */
    bool has_hash;
};

/*
 * Reads the entry at `offset` of a linear area of `size` bytes (a block, or inline data), without
 * trusting anything: the record is within the area, at least 12 bytes, a multiple of 4 and long
 * enough for its name; inode numbers are within the file system; entries in use have a name.
 * `has_stored_hash` says that names carry their hash behind them (encrypted and casefolded
 * directories). Returns NULL or what is wrong.
 */
const char *dirent_read(const struct superblock *sb, const void *area, size_t size, size_t offset,
                        bool has_stored_hash, struct dirent_view *result);

/*
 * True if the name can be shown to other programs: no '/' and no zero byte. Encrypted names need
 * not be like that.
 */
bool dirent_name_is_valid(const struct dirent_view *entry);

/*
 * True if the block ends with a valid checksum entry, or the format has none. Blocks of the index
 * look different: see htree_node_checksum_matches.
 */
bool dirent_block_checksum_matches(const struct superblock *sb, uint32_t inode_seed,
                                   const void *block);

/* ---- The hash index ------------------------------------------------------------------------- */

enum htree_hash_version {
    HTREE_HASH_LEGACY = 0,
    HTREE_HASH_HALF_MD4 = 1,
    HTREE_HASH_TEA = 2,
    HTREE_HASH_LEGACY_UNSIGNED = 3,
    HTREE_HASH_HALF_MD4_UNSIGNED = 4,
    HTREE_HASH_TEA_UNSIGNED = 5,
    HTREE_HASH_SIPHASH = 6,
};

struct htree_hash {
    uint32_t major; /* lowest bit is 0 */
    uint32_t minor;
};

/*
 * Hashes a name (already folded in casefolded directories). `version` is the root's, before the
 * superblock's choice of signedness is applied. Returns false for a version that cannot be computed
 * (siphash, unknown).
 */
bool htree_hash_name(const struct superblock *sb, uint8_t version, const char *name, size_t length,
                     struct htree_hash *result);

/* The facts of an index root. */
struct htree_root {
    uint8_t hash_version;
    uint8_t indirect_levels; /* inner levels below the root: 0, 1, or 2 with large_dir */
};

/* What an index node is made of; entry 0 has no hash of its own (it is 0). */
struct htree_entry {
    uint32_t
        hash; /* its lowest bit says that the run of equal hashes goes on from the leaf before */
    uint32_t block; /* file block of the child */
};

/*
 * Checks a root (block 0) or an inner node: the fake entries, count <= limit, limit as the block
 * size and the checksum demand, hashes sorted, reserved fields. `directory_blocks` bounds the
 * children. They return NULL or what is wrong.
 */
const char *htree_root_check(const struct superblock *sb, const void *block,
                             uint64_t directory_blocks, struct htree_root *result);
const char *htree_node_check(const struct superblock *sb, const void *block,
                             uint64_t directory_blocks);

bool htree_node_checksum_matches(const struct superblock *sb, uint32_t inode_seed,
                                 const void *block, bool is_root);

/* On checked nodes. */
unsigned int htree_count(const void *block, bool is_root);
struct htree_entry htree_entry_at(const void *block, bool is_root, unsigned int position);

/* Position of the last entry whose hash is <= `hash`. */
unsigned int htree_find(const void *block, bool is_root, uint32_t hash);

#endif
