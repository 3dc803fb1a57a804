/* SPDX-License-Identifier: MIT */
/*
 * Names: looking one up, and going through all of a directory.
 *
 * Both work on directories of every form: linear, indexed, inline, casefolded. Encrypted ones are
 * refused with -ENOKEY, since their names mean nothing without the key.
 */
#ifndef UEXT4_DIR_DIR_H
#define UEXT4_DIR_DIR_H

#include "format/dirent.h"
#include "inode/inode.h"

/*
 * Finds the inode number of a name. -ENOENT, -ENOTDIR, -ENOKEY, -ENAMETOOLONG. A damaged index is
 * logged, and the directory searched without it.
 */
int dir_lookup(struct inode *dir, const char *name, size_t length, uint32_t *ino) MUST_CHECK;

/* Takes an entry in use; false stops. `next_cookie` is where to go on behind it. */
typedef bool (*dir_visitor)(void *context, const struct dirent_view *entry, uint64_t next_cookie);

/*
 * Visits the entries from `cookie` on; 0 starts. A damaged block is logged and left out; its error
 * comes back at the end, when all else was visited.
 *
 * A cookie stays good while names come and go between two calls: each entry that is there from the
 * first to the last call is visited once, also if the directory leaves the inode, gets an index or
 * splits its blocks meanwhile. Cookies have 63 bits and rise from entry to entry. Two kinds:
 *
 *   bit 62 clear   a place: the offset in bytes of the next entry. In directories that never get an
 *                  index, and in those whose index is damaged, until the end of the reading.
 *   bit 62 set     a position in the order of hashes (order.c)
 */
int dir_iterate(struct inode *dir, uint64_t cookie, dir_visitor visit, void *context) MUST_CHECK;

/* ---- Shared by the files of this folder ------------------------------------------------------ */

/* Blocks of the directory; -EUCLEAN for a size that the file system cannot hold. */
int64_t dir_block_count(const struct inode *dir);

/*
 * Reads a block of the directory. A hole gives success, a NULL buffer, and in *hole_blocks how many
 * blocks it goes on for.
 */
int dir_get_block(struct inode *dir, uint64_t file_block, struct buffer **buffer,
                  uint64_t *hole_blocks) MUST_CHECK;

/* As dir_get_block for a block of entries or of the index as readdir meets it, checksum checked. */
int dir_get_leaf(struct inode *dir, uint64_t file_block, struct buffer **buffer,
                 uint64_t *hole_blocks) MUST_CHECK;

/*
 * After so many damaged blocks in a row a search or a reading of a directory ends: one that claims
 * a whole disk of zeros would take hours.
 */
#define DIR_MAX_DAMAGED_RUN 1024

/* Logs a problem in a block and gives -EUCLEAN. */
int dir_corrupt(const struct inode *dir, uint64_t file_block, const char *reason);

/* A name that is looked for, with what comparing it takes. */
struct dir_name {
    const char *bytes;
    size_t length;
    bool is_folded; /* the directory ignores case, and the name could be folded */
    char folded[1024];
    size_t folded_length;
};

/* -EOPNOTSUPP for an encoding that is not known. `bytes` must stay. */
int dir_name_prepare(const struct inode *dir, const char *bytes, size_t length,
                     struct dir_name *result) MUST_CHECK;

/* True if an entry of the directory has this name. */
bool dir_name_matches(const struct dir_name *name, const struct dirent_view *entry);

/* Hashes a name, folded where the directory ignores case. False for an unknown hash version. */
bool dir_name_hash(const struct inode *dir, uint8_t version, const struct dir_name *name,
                   struct htree_hash *hash);

/* The same for the name of an entry. */
bool dir_entry_hash(const struct inode *dir, uint8_t version, const struct dirent_view *entry,
                    struct htree_hash *hash);

/* The hash version that an index of this directory has, or would get. */
uint8_t dir_default_hash_version(const struct superblock *sb);

/* True if names are looked up by an index. */
bool dir_has_index(const struct inode *dir);

/* Where an entry lies. */
struct dir_place {
    struct buffer *buffer; /* holds the entry; release it */
    uint64_t file_block;
    int area;      /* inline directories: 0 or 1, or DIR_AREA_DOTS */
    size_t offset; /* in the block or the area */
    uint32_t ino;
};

#define DIR_AREA_DOTS (-1) /* "." and ".." of inline directories have no entries */

/* Searches an area of entries. 1 if found, 0 if not, or -EUCLEAN with the reason. */
int dir_search_area(const struct inode *dir, const void *area, size_t size,
                    const struct dir_name *name, struct dir_place *place, const char **reason);

/*
 * Finds an entry, in any directory. With `for_change` a damaged index is an error, else the
 * directory is searched without it.
 */
int dir_find(struct inode *dir, const struct dir_name *name, bool for_change,
             struct dir_place *place) MUST_CHECK;

/* ---- Directories in their inode -------------------------------------------------------------- */

/* 4 bytes with the parent's number precede the entries of the first area. */
#define DIR_INLINE_PARENT_BYTES 4

struct dir_inline_areas {
    struct inline_data data; /* release data.buffer */
    uint32_t parent;
    struct {
        const uint8_t *start;
        size_t size;
    } area[2];
};

int dir_inline_open(const struct inode *dir, struct dir_inline_areas *areas) MUST_CHECK;
int dir_inline_find(const struct inode *dir, const struct dir_name *name,
                    struct dir_place *place) MUST_CHECK;
int dir_inline_iterate(const struct inode *dir, uint64_t cookie, dir_visitor visit, void *context);

/* ---- The order of hashes --------------------------------------------------------------------- */

#define DIR_COOKIE_ORDERED (UINT64_C(1) << 62)

/* True if the directory is read in the order of hashes. */
bool dir_is_ordered(const struct inode *dir);

/*
 * dir_iterate for it, from 0, 1 (behind ".") or a cookie with DIR_COOKIE_ORDERED on. -EAGAIN, at
 * cookies 0 and 1 only and before anything was visited: this directory must be read by places.
 */
int dir_order_iterate(struct inode *dir, uint64_t cookie, dir_visitor visit, void *context);

#endif
