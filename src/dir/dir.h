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
 * Visits the entries from `cookie` on; 0 starts. Cookies are places in the directory. A damaged
 * block is logged and left out; its error comes back at the end, when all else was visited.
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

/* -EOPNOTSUPP for an encoding that is not known. */
int dir_name_prepare(const struct inode *dir, const char *bytes, size_t length,
                     struct dir_name *result) MUST_CHECK;

/* True if an entry of the directory has this name. */
bool dir_name_matches(const struct dir_name *name, const struct dirent_view *entry);

/* Searches an area of entries. 1 if found, 0 if not, or -EUCLEAN with the reason. */
int dir_search_area(const struct inode *dir, const void *area, size_t size,
                    const struct dir_name *name, uint32_t *ino, const char **reason);

/* Searches through the hash index. -ENOENT, or another error if the index is of no use. */
int dir_index_lookup(struct inode *dir, const struct dir_name *name, uint32_t *ino);

int dir_inline_lookup(const struct inode *dir, const struct dir_name *name, uint32_t *ino);
int dir_inline_iterate(const struct inode *dir, uint64_t cookie, dir_visitor visit, void *context);

#endif
