/* SPDX-License-Identifier: MIT */
/*
 * Finds a name: by the index where there is one, else block by block.
 *
 * Locks: none. Callers: fs.
 */
#include <errno.h>
#include <string.h>

#include "dir/dir.h"

static int linear_lookup(struct inode *dir, const struct dir_name *name, uint32_t *ino)
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
            result = dir_search_area(dir, buffer->data, block_bytes, name, ino, &reason);
            if (result == -EUCLEAN)
                dir_corrupt(dir, file_block, reason);
            buffer_put(buffer);
        }
        if (result > 0)
            return 0;
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

int dir_lookup(struct inode *dir, const char *bytes, size_t length, uint32_t *ino)
{
    struct dir_name name;

    if (!inode_is_directory(dir))
        return -ENOTDIR;
    if (length == 0)
        return -ENOENT;
    if (length > DIRENT_NAME_MAX)
        return -ENAMETOOLONG;
    if (inode_has_flag(dir, INODE_ENCRYPTED))
        return -ENOKEY;
    int error = dir_name_prepare(dir, bytes, length, &name);
    if (error != 0)
        return error;
    if (inode_is_inline(dir))
        return dir_inline_lookup(dir, &name, ino);

    /* The root of the index hides the two entries that every directory starts with. */
    bool is_dots = memcmp(bytes, "..", MIN(length, 2)) == 0 && length <= 2;
    if (!inode_has_flag(dir, INODE_INDEXED) || is_dots ||
        !superblock_has_compat(&dir->volume->sb, FEATURE_COMPAT_DIR_INDEX))
        return linear_lookup(dir, &name, ino);
    error = dir_index_lookup(dir, &name, ino);
    if (error == -EUCLEAN || error == -EBADMSG) {
        log_warning(dir->volume->log, "directory inode %u: searched without its index", dir->ino);
        return linear_lookup(dir, &name, ino);
    }
    /* Versions of utf8 fold some letters differently, and then hash them differently. */
    if (error == -ENOENT && name.is_folded && !is_ascii(&name))
        return linear_lookup(dir, &name, ino);
    return error;
}
