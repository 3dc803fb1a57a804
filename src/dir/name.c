/* SPDX-License-Identifier: MIT */
/*
 * Comparing names, with or without regard to case, and searching an area of entries for one.
 *
 * Locks: none. Callers: all of this folder.
 */
#include <errno.h>
#include <string.h>

#include "dir/dir.h"
#include "format/casefold.h"

#define ENCODING_UTF8_12_1 1

int dir_name_prepare(const struct inode *dir, const char *bytes, size_t length,
                     struct dir_name *result)
{
    const struct superblock *sb = &dir->volume->sb;

    result->bytes = bytes;
    result->length = length;
    result->is_folded = false;
    if (!inode_has_flag(dir, INODE_CASEFOLD))
        return 0;
    if (sb->encoding != ENCODING_UTF8_12_1) {
        log_error(dir->volume->log, "directory inode %u: casefold with an unknown encoding %u",
                  dir->ino, sb->encoding);
        return -EOPNOTSUPP;
    }
    int folded = casefold_name(bytes, length, result->folded, sizeof(result->folded));
    /* A name that is no utf8 is compared byte by byte, as the kernel does. */
    if (folded >= 0) {
        result->is_folded = true;
        result->folded_length = (size_t)folded;
    }
    return 0;
}

bool dir_name_matches(const struct dir_name *name, const struct dirent_view *entry)
{
    char folded[sizeof(name->folded)];

    if (entry->name_length == name->length && memcmp(entry->name, name->bytes, name->length) == 0)
        return true;
    if (!name->is_folded)
        return false;
    int length = casefold_name(entry->name, entry->name_length, folded, sizeof(folded));
    return length >= 0 && (size_t)length == name->folded_length &&
           memcmp(folded, name->folded, name->folded_length) == 0;
}

bool dir_name_hash(const struct inode *dir, uint8_t version, const struct dir_name *name,
                   struct htree_hash *hash)
{
    const struct superblock *sb = &dir->volume->sb;

    return name->is_folded ? htree_hash_name(sb, version, name->folded, name->folded_length, hash)
                           : htree_hash_name(sb, version, name->bytes, name->length, hash);
}

bool dir_entry_hash(const struct inode *dir, uint8_t version, const struct dirent_view *entry,
                    struct htree_hash *hash)
{
    struct dir_name name;

    if (!inode_has_flag(dir, INODE_CASEFOLD))
        return htree_hash_name(&dir->volume->sb, version, entry->name, entry->name_length, hash);
    return dir_name_prepare(dir, entry->name, entry->name_length, &name) == 0 &&
           dir_name_hash(dir, version, &name, hash);
}

uint8_t dir_default_hash_version(const struct superblock *sb)
{
    /* Roots hold these three only; signedness is the superblock's. */
    return sb->default_hash_version <= HTREE_HASH_TEA ? sb->default_hash_version
                                                      : (uint8_t)HTREE_HASH_HALF_MD4;
}

bool dir_has_index(const struct inode *dir)
{
    return inode_has_flag(dir, INODE_INDEXED) &&
           superblock_has_compat(&dir->volume->sb, FEATURE_COMPAT_DIR_INDEX);
}

int dir_search_area(const struct inode *dir, const void *area, size_t size,
                    const struct dir_name *name, struct dir_place *place, const char **reason)
{
    struct dirent_view entry;

    for (size_t offset = 0; offset < size; offset += entry.record_bytes) {
        *reason = dirent_read(&dir->volume->sb, area, size, offset, false, &entry);
        if (*reason != NULL)
            return -EUCLEAN;
        if (entry.ino != 0 && dir_name_matches(name, &entry)) {
            place->ino = entry.ino;
            place->offset = offset;
            return 1;
        }
    }
    return 0;
}
