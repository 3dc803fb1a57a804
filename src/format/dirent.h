/* SPDX-License-Identifier: MIT */
/*
 * Directory blocks: linear entries, and the nodes of the hash index.
 * Source: Documentation/filesystems/ext4/directory.rst.
 */
#ifndef UEXT4_FORMAT_DIRENT_H
#define UEXT4_FORMAT_DIRENT_H

#include "base/compiler.h"
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

/* ---- Changes of linear areas ------------------------------------------------------------------
 *
 * An area is what holds entries: a block without its tail (dirent_block_room bytes), or a part of
 * inline data. The entries of an area are checked as they are walked: -EUCLEAN if one is bad, with
 * nothing changed. `has_stored_hash` as above. An entry to be written is a struct dirent_view whose
 * record_bytes does not matter.
 */

/* Bytes that an entry takes at least, its hash included. */
uint32_t dirent_needed_bytes(size_t name_length, bool has_stored_hash);

/* Bytes of a block for entries: all without metadata_csum, else all but the tail. */
size_t dirent_block_room(const struct superblock *sb);

/* Writes one unused entry over the whole area (a multiple of 4, 12 bytes at least). */
void dirent_area_init(const struct superblock *sb, void *area, size_t size);

/* Makes an empty directory block: one unused entry, and the tail (checksum not yet set). */
void dirent_block_init(const struct superblock *sb, void *block);

/* Makes the first block of a new directory, with "." and "..". */
void dirent_block_init_dots(const struct superblock *sb, void *block, uint32_t ino,
                            uint32_t parent_ino);

/* True if a directory block ends with a tail (whatever its checksum); needed for metadata_csum. */
bool dirent_block_has_tail(const struct superblock *sb, const void *block);

/* Sets the checksum in the tail. No effect without metadata_csum. */
void dirent_block_set_checksum(const struct superblock *sb, uint32_t inode_seed, void *block);

/*
 * Finds the first record that has room for `needed_bytes` behind its own name (or is unused).
 * Returns 0 and its offset, -ENOSPC, or -EUCLEAN.
 */
int dirent_find_room(const struct superblock *sb, const void *area, size_t size,
                     bool has_stored_hash, uint32_t needed_bytes, size_t *offset) MUST_CHECK;

/*
 * Puts an entry into the record that dirent_find_room named, splitting it if it is in use. With
 * entry->has_hash the hashes are stored behind the name. Returns the offset of the new entry.
 */
size_t dirent_insert_at(const struct superblock *sb, void *area, size_t offset,
                        bool has_stored_hash, const struct dirent_view *entry);

/* Both in one: 0, -ENOSPC or -EUCLEAN. That the name is new is up to the caller. */
int dirent_insert(const struct superblock *sb, void *area, size_t size, bool has_stored_hash,
                  const struct dirent_view *entry) MUST_CHECK;

/*
 * Removes the entry at `offset`: the one before it takes over its record; the first of an area
 * becomes unused. -ENOENT if no used entry begins there.
 */
int dirent_remove(const struct superblock *sb, void *area, size_t size, bool has_stored_hash,
                  size_t offset) MUST_CHECK;

/* Gives the entry at `offset`, known to be good, another inode (rename over, ".." after a move). */
void dirent_replace(const struct superblock *sb, void *area, size_t offset, uint32_t ino,
                    uint8_t type);

/* 1 if nothing but "." and ".." is in the area, else 0, or -EUCLEAN. */
int dirent_area_is_empty(const struct superblock *sb, const void *area, size_t size,
                         bool has_stored_hash) MUST_CHECK;

/*
 * Copies all used entries, but "." and "..", of one area tightly to the start of another, whose
 * former content is lost. 0, -ENOSPC if they do not fit (inline data that becomes a block always
 * does), or -EUCLEAN.
 */
int dirent_copy_entries(const struct superblock *sb, const void *from, size_t from_size, void *to,
                        size_t to_size, bool has_stored_hash) MUST_CHECK;

struct htree_hash;

/* Hashes an entry's name. False if it cannot be. */
typedef bool (*dirent_hash_function)(void *context, const struct dirent_view *entry,
                                     struct htree_hash *hash);

/*
 * Splits a leaf of the hash index (at least two entries; not block 0): the upper half by hash, as
 * measured in bytes, goes to `upper`, a block whose content does not matter; both are compacted,
 * and get tails without checksum. `*hash` is what the index has to say for `upper`, with the lowest
 * bit set if entries of the same hash stayed below. -EUCLEAN for a bad entry or one that cannot be
 * hashed, -ENOSPC with less than two entries.
 */
int dirent_split(const struct superblock *sb, void *leaf, void *upper, bool has_stored_hash,
                 dirent_hash_function hash_entry, void *context, uint32_t *hash) MUST_CHECK;

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

/* ---- Changes of the index; nodes are checked ones. ------------------------------------------ */

/* Inner levels that an index of this file system may have: 1, or 2 with large_dir. */
unsigned int htree_levels_max(const struct superblock *sb);

/* Entries that fit a root or an inner node. */
unsigned int htree_limit(const struct superblock *sb, bool is_root);

static inline bool htree_is_full(const struct superblock *sb, const void *block, bool is_root)
{
    return htree_count(block, is_root) >= htree_limit(sb, is_root);
}

/*
 * Turns a linear first block into an index root: its entries behind ".." go to `leaf` (compacted,
 * its tail without checksum), which is file block `leaf_block`; the root gets one entry for it.
 * `hash_version` is superblock.default_hash_version (HTREE_HASH_SIPHASH for encrypted, casefolded
 * directories). -EUCLEAN, with `block` unchanged, if the block does not begin with "." and "..".
 */
int htree_make_root(const struct superblock *sb, void *block, void *leaf, uint32_t leaf_block,
                    uint8_t hash_version, bool has_stored_hash) MUST_CHECK;

/*
 * Puts an entry at `position` (1 .. count), those from there on move up. After a split of the child
 * at p, the new child belongs at p + 1. The node is not full.
 */
void htree_insert(const struct superblock *sb, void *block, bool is_root, unsigned int position,
                  const struct htree_entry *entry);

/* Moves the upper half of an inner node to a new one. Returns the hash for the parent's entry. */
uint32_t htree_node_split(const struct superblock *sb, void *node, void *upper);

/* The same at a chosen place: entries from `position` (1 .. count - 1) on move. */
uint32_t htree_node_split_at(const struct superblock *sb, void *node, unsigned int position,
                             void *upper);

/*
 * Grows the index by a level: the root's entries move to `node`, file block `node_block`, and the
 * root points to it alone. The root has fewer levels than htree_levels_max.
 */
void htree_root_push_down(const struct superblock *sb, void *root, void *node, uint32_t node_block);

void htree_node_set_checksum(const struct superblock *sb, uint32_t inode_seed, void *block,
                             bool is_root);

#endif
