/* SPDX-License-Identifier: MIT */
/*
 * Takes names out of directories, points them at other inodes, begins new directories. Blocks stay
 * when their last name goes: their room is used again.
 *
 * Locks: the caller's on the directory, exclusively. Callers: fs.
 */
#include <errno.h>
#include <string.h>

#include "dir/change.h"
#include "dir/index.h"
#include "map/edit.h"

static int check_name(const struct inode *dir, const char *bytes, size_t length,
                      struct dir_name *name)
{
    if (!inode_is_directory(dir))
        return -ENOTDIR;
    if (length == 0)
        return -ENOENT;
    if (length > DIRENT_NAME_MAX)
        return -ENAMETOOLONG;
    if (inode_has_flag(dir, INODE_ENCRYPTED))
        return -ENOKEY;
    return dir_name_prepare(dir, bytes, length, name);
}

static bool is_dots(const char *bytes, size_t length)
{
    return length <= 2 && memcmp(bytes, "..", length) == 0;
}

int dir_remove(struct handle *handle, struct inode *dir, const char *bytes, size_t length)
{
    const struct superblock *sb = &dir->volume->sb;
    struct dir_name name;
    struct dir_place place;
    int error = check_name(dir, bytes, length, &name);

    if (error == 0 && is_dots(bytes, length))
        error = -EINVAL;
    if (error == 0)
        error = dir_find(dir, &name, true, &place);
    if (error != 0)
        return error;
    if (inode_is_inline(dir)) {
        error = dir_inline_remove(handle, dir, &place);
    } else {
        error = dir_check_tail(dir, place.buffer, place.file_block);
        if (error == 0)
            error = journal_modify(handle, place.buffer);
        if (error == 0) {
            void *data = journal_data(handle, place.buffer);
            error = dirent_remove(sb, data, dirent_block_room(sb), false, place.offset);
            dir_finish_leaf(dir, data);
        }
    }
    buffer_put(place.buffer);
    return error;
}

/* "." and ".." of an indexed directory share their block with the root of the index. */
static int replace_in_block(struct handle *handle, struct inode *dir, const struct dir_place *place,
                            bool is_root, uint32_t ino, uint8_t type)
{
    int error = is_root ? 0 : dir_check_tail(dir, place->buffer, place->file_block);

    if (error == 0)
        error = journal_modify(handle, place->buffer);
    if (error != 0)
        return error;
    void *data = journal_data(handle, place->buffer);
    dirent_replace(&dir->volume->sb, data, place->offset, ino, type);
    if (is_root)
        dir_finish_root(dir, data);
    else
        dir_finish_leaf(dir, data);
    return 0;
}

int dir_replace(struct handle *handle, struct inode *dir, const char *bytes, size_t length,
                uint32_t ino, uint8_t type)
{
    struct dir_name name;
    struct dir_place place;
    int error = check_name(dir, bytes, length, &name);

    if (error == 0)
        error = dir_find(dir, &name, true, &place);
    if (error != 0)
        return error;
    if (inode_is_inline(dir)) {
        error = dir_inline_replace(handle, dir, &place, ino, type);
    } else {
        bool is_root = place.file_block == 0 && inode_has_flag(dir, INODE_INDEXED);
        struct index_path path;

        /* Its checksum covers what the root says it has: that must be sound. */
        if (is_root)
            error = index_open(dir, &path);
        if (is_root && error == 0)
            index_close(&path);
        if (error == 0)
            error = replace_in_block(handle, dir, &place, is_root, ino, type);
    }
    buffer_put(place.buffer);
    return error;
}

int dir_init(struct handle *handle, struct inode *dir, uint32_t parent_ino)
{
    const struct superblock *sb = &dir->volume->sb;
    struct buffer *buffer;

    if (inode_is_inline(dir)) {
        int error = dir_inline_init(handle, dir, parent_ino);
        if (error != -ENOSPC)
            return error;
        struct inode_fields fields = dir->fields;
        fields.flags &= ~(uint32_t)INODE_INLINE_DATA;
        map_init(sb, &fields);
        rwlock_write_lock(&dir->map_lock);
        error = inode_write_block(handle, dir, fields.block, fields.flags & INODE_EXTENTS,
                                  INODE_INLINE_DATA);
        rwlock_write_unlock(&dir->map_lock);
        if (error != 0)
            return error;
    }
    int error = dir_grow(handle, dir, 1, 0, &buffer);
    if (error != 0)
        return error;
    void *data = journal_data(handle, buffer);
    dirent_block_init_dots(sb, data, dir->ino, parent_ino);
    dir_finish_leaf(dir, data);
    buffer_set_verified(buffer, block_tag(BLOCK_KIND_DIRECTORY_LEAF, dir->ino, 0));
    buffer_put(buffer);
    return 0;
}

/* ---- Emptiness ------------------------------------------------------------------------------ */

static bool stop_at_name(void *context, const struct dirent_view *entry, uint64_t next_cookie)
{
    bool *has_names = context;

    (void)next_cookie;
    *has_names = !is_dots(entry->name, entry->name_length);
    return !*has_names;
}

int dir_is_empty(struct inode *dir)
{
    bool has_names = false;
    int error = dir_iterate(dir, 0, stop_at_name, &has_names);

    return error != 0 ? error : has_names ? 0 : 1;
}
