/* SPDX-License-Identifier: MIT */
/*
 * Goes through a directory: in the order of hashes where it has an index or may get one (order.c),
 * else block by block, whatever its index, as blocks of the index hold no entries in use. There a
 * cookie is the byte offset of the next entry: entries keep their place while others come and go.
 *
 * Locks: the caller's on the directory; the block under the visitor is held. Callers: fs.
 */
#include <errno.h>

#include "dir/dir.h"

/*
 * Visits the entries of one block from `cookie` on. 1 to go on, 0 when stopped, or -EUCLEAN. An
 * entry whose name cannot be one is left out.
 */
static int visit_block(struct inode *dir, const struct buffer *buffer, uint64_t file_block,
                       uint64_t cookie, dir_visitor visit, void *context)
{
    const struct superblock *sb = &dir->volume->sb;
    uint64_t start = file_block * sb->block_bytes;
    struct dirent_view entry;
    int result = 1;

    for (size_t offset = 0; offset < sb->block_bytes; offset += entry.record_bytes) {
        const char *reason = dirent_read(sb, buffer->data, sb->block_bytes, offset, false, &entry);

        if (reason != NULL)
            return dir_corrupt(dir, file_block, reason);
        if (entry.ino == 0 || start + offset < cookie)
            continue;
        if (!dirent_name_is_valid(&entry))
            result = dir_corrupt(dir, file_block, "a name has a slash or a NUL in it");
        else if (!visit(context, &entry, start + offset + entry.record_bytes))
            return 0;
    }
    return result;
}

static int iterate_places(struct inode *dir, uint64_t cookie, dir_visitor visit, void *context)
{
    unsigned int damaged_run = 0;
    int first_error = 0;

    if (inode_is_inline(dir))
        return dir_inline_iterate(dir, cookie, visit, context);
    int64_t block_count = dir_block_count(dir);
    if (block_count < 0)
        return (int)block_count;
    uint64_t file_block = cookie / dir->volume->sb.block_bytes;
    while (file_block < (uint64_t)block_count) {
        struct buffer *buffer;
        uint64_t step = 1;
        int result = dir_get_leaf(dir, file_block, &buffer, &step);

        if (result == 0 && buffer == NULL) {
            log_warning(dir->volume->log, "directory inode %u: hole at block %llu", dir->ino,
                        (unsigned long long)file_block);
        } else if (result == 0) {
            result = visit_block(dir, buffer, file_block, cookie, visit, context);
            buffer_put(buffer);
            if (result == 0)
                return 0;
        }
        if (result < 0 && first_error == 0)
            first_error = result;
        /* A device that fails once is likely to fail for the rest: that can take very long. */
        if (result == -EIO || result == -ENOMEM)
            break;
        damaged_run = result < 0 ? damaged_run + 1 : 0;
        if (damaged_run == DIR_MAX_DAMAGED_RUN) {
            log_error(dir->volume->log, "directory inode %u: not read on from block %llu", dir->ino,
                      (unsigned long long)file_block);
            break;
        }
        file_block += step;
    }
    return first_error;
}

int dir_iterate(struct inode *dir, uint64_t cookie, dir_visitor visit, void *context)
{
    if (!inode_is_directory(dir))
        return -ENOTDIR;
    if (inode_has_flag(dir, INODE_ENCRYPTED))
        return -ENOKEY;
    if (cookie <= 1 || (cookie & DIR_COOKIE_ORDERED) != 0) {
        int result = -EAGAIN;

        if (dir_is_ordered(dir))
            result = dir_order_iterate(dir, cookie, visit, context);
        if (result != -EAGAIN)
            return result;
        /* A position in an order that the directory has no more: nothing is behind it. */
        if ((cookie & DIR_COOKIE_ORDERED) != 0)
            return 0;
    }
    return iterate_places(dir, cookie, visit, context);
}
