/* SPDX-License-Identifier: MIT */
/*
 * Finds a name: by the index where there is one, else block by block.
 *
 * Locks: the caller's on the directory. Callers: fs, remove.c.
 */
#include <errno.h>
#include <string.h>

#include "dir/index.h"

static int linear_find(struct inode *dir, const struct dir_name *name, struct dir_place *place)
{
    uint32_t block_bytes = dir->volume->sb.block_bytes;
    int64_t block_count = dir_block_count(dir);
    unsigned int damaged_run = 0;
    uint64_t step;
    int first_error = 0;

    if (block_count < 0)
        return (int)block_count;
    for (uint64_t file_block = 0; file_block < (uint64_t)block_count; file_block += step) {
        const char *reason;
        struct buffer *buffer;

        step = 1;
        int result = dir_get_leaf(dir, file_block, &buffer, &step);
        if (result == 0 && buffer != NULL) {
            result = dir_search_area(dir, buffer->data, block_bytes, name, place, &reason);
            if (result > 0) {
                place->buffer = buffer;
                place->file_block = file_block;
                return 0;
            }
            if (result == -EUCLEAN)
                dir_corrupt(dir, file_block, reason);
            buffer_put(buffer);
        }
        if (result == -EIO || result == -ENOMEM)
            return result;
        if (result < 0 && first_error == 0)
            first_error = result;
        damaged_run = result < 0 ? damaged_run + 1 : 0;
        if (damaged_run == DIR_MAX_DAMAGED_RUN)
            break;
    }
    return first_error != 0 ? first_error : -ENOENT;
}

static bool is_ascii(const struct dir_name *name)
{
    for (size_t i = 0; i < name->length; i++)
        if ((unsigned char)name->bytes[i] >= 0x80)
            return false;
    return true;
}

int dir_find(struct inode *dir, const struct dir_name *name, bool for_change,
             struct dir_place *place)
{
    *place = (struct dir_place){0};
    if (inode_is_inline(dir))
        return dir_inline_find(dir, name, place);

    /* The root of the index hides the two entries that every directory starts with. */
    bool is_dots = memcmp(name->bytes, "..", MIN(name->length, 2)) == 0 && name->length <= 2;
    if (is_dots || !dir_has_index(dir))
        return linear_find(dir, name, place);
    int error = index_find(dir, name, place);
    if (!for_change && (error == -EUCLEAN || error == -EBADMSG)) {
        log_warning(dir->volume->log, "directory inode %u: searched without its index", dir->ino);
        return linear_find(dir, name, place);
    }
    /* Versions of utf8 fold some letters differently, and then hash them differently. */
    if (error == -ENOENT && name->is_folded && !is_ascii(name))
        return linear_find(dir, name, place);
    return error;
}

int dir_lookup(struct inode *dir, const char *bytes, size_t length, uint32_t *ino)
{
    struct dir_name name;
    struct dir_place place;

    if (!inode_is_directory(dir))
        return -ENOTDIR;
    if (length == 0)
        return -ENOENT;
    if (length > DIRENT_NAME_MAX)
        return -ENAMETOOLONG;
    if (inode_has_flag(dir, INODE_ENCRYPTED))
        return -ENOKEY;
    int error = dir_name_prepare(dir, bytes, length, &name);
    if (error == 0)
        error = dir_find(dir, &name, false, &place);
    if (error != 0)
        return error;
    *ino = place.ino;
    buffer_put(place.buffer);
    return 0;
}
