/* SPDX-License-Identifier: MIT */
/*
 * Enters names into directories of every form:
 *
 *   in the inode    moves to a block when its two areas are full
 *   one block       gets an index when it is full (with dir_index)
 *   indexed         index_edit.c
 *   linear          grows by a block when all are full (without dir_index)
 *
 * Locks: the caller's on the directory, exclusively. Callers: fs.
 */
#include <errno.h>

#include "dir/change.h"
#include "map/edit.h"
#include "space/allocate.h"

#define ENCODING_STRICT 1 /* of superblock.encoding_flags */

uint32_t dir_credits(const struct inode *dir)
{
    /* What splits are new blocks and, but for the first, those that they were split from. */
    const uint32_t existing = 1 + HTREE_MAX_LEVELS;
    const uint32_t per_new_block =
        1 + space_credits(dir->volume->space, dir->volume->sb.cluster_blocks) +
        map_credits((struct inode *)(uintptr_t)dir, 1);

    return existing + PLAN_MAX_NEW_BLOCKS * per_new_block + INODE_WRITE_CREDITS;
}

int dir_check_tail(const struct inode *dir, const struct buffer *buffer, uint64_t file_block)
{
    if (dir->volume->sb.has_metadata_csum && !dirent_block_has_tail(&dir->volume->sb, buffer->data))
        return dir_corrupt(dir, file_block, "has no room for its checksum");
    return 0;
}

void dir_finish_leaf(const struct inode *dir, void *block)
{
    dirent_block_set_checksum(&dir->volume->sb, dir->checksum_seed, block);
}

void dir_finish_root(const struct inode *dir, void *block)
{
    htree_node_set_checksum(&dir->volume->sb, dir->checksum_seed, block, true);
}

/* Tries one block. -ENOSPC if it is full. */
static int insert_into_block(struct handle *handle, struct inode *dir, uint64_t file_block,
                             const struct dirent_view *entry)
{
    const struct superblock *sb = &dir->volume->sb;
    uint64_t hole_blocks;
    struct buffer *buffer;
    size_t offset;
    int error = dir_get_leaf(dir, file_block, &buffer, &hole_blocks);

    if (error != 0)
        return error;
    if (buffer == NULL)
        return dir_corrupt(dir, file_block, "is a hole");
    error = dir_check_tail(dir, buffer, file_block);
    if (error == 0) {
        error = dirent_find_room(sb, buffer->data, dirent_block_room(sb), false,
                                 dirent_needed_bytes(entry->name_length, false), &offset);
        if (error == -EUCLEAN)
            dir_corrupt(dir, file_block, "has a bad entry");
    }
    if (error == 0)
        error = journal_modify(handle, buffer);
    if (error == 0) {
        void *data = journal_data(handle, buffer);
        dirent_insert_at(sb, data, offset, false, entry);
        dir_finish_leaf(dir, data);
    }
    buffer_put(buffer);
    return error;
}

static int append_block(struct handle *handle, struct inode *dir, const struct dirent_view *entry)
{
    const struct superblock *sb = &dir->volume->sb;
    struct plan_image *image;
    struct plan plan;
    int error = plan_begin(&plan, dir);

    if (error == 0)
        error = plan_add_new(&plan, BLOCK_KIND_DIRECTORY_LEAF, &image);
    if (error == 0) {
        dirent_block_init(sb, image->data);
        error = dirent_insert(sb, image->data, dirent_block_room(sb), false, entry);
    }
    if (error == 0)
        error = plan_apply(handle, &plan);
    plan_end(&plan);
    return error;
}

/* An index that nobody keeps up to date any more, as the feature is gone, may be overwritten. */
static int drop_index(struct handle *handle, struct inode *dir)
{
    mutex_lock(&dir->fields_mutex);
    dir->fields.flags &= ~(uint32_t)INODE_INDEXED;
    mutex_unlock(&dir->fields_mutex);
    int error = inode_write(handle, dir);
    if (error != 0) {
        mutex_lock(&dir->fields_mutex);
        dir->fields.flags |= INODE_INDEXED;
        mutex_unlock(&dir->fields_mutex);
    }
    return error;
}

static int linear_insert(struct handle *handle, struct inode *dir, const struct dir_name *name,
                         const struct dirent_view *entry)
{
    const struct superblock *sb = &dir->volume->sb;
    int64_t blocks = dir_block_count(dir);

    if (blocks < 0)
        return (int)blocks;
    if (blocks == 0)
        return dir_corrupt(dir, 0, "is missing");
    if (inode_has_flag(dir, INODE_INDEXED)) {
        int error = drop_index(handle, dir);
        if (error != 0)
            return error;
    }
    for (int64_t i = 0; i < blocks; i++) {
        int error = insert_into_block(handle, dir, (uint64_t)i, entry);
        if (error != -ENOSPC)
            return error;
    }
    if (blocks == 1 && superblock_has_compat(sb, FEATURE_COMPAT_DIR_INDEX))
        return dir_index_create(handle, dir, name, entry);
    return append_block(handle, dir, entry);
}

static int check_new_name(const struct inode *dir, const char *bytes, size_t length,
                          struct dir_name *name)
{
    if (!inode_is_directory(dir))
        return -ENOTDIR;
    if (length == 0)
        return -EINVAL;
    if (length > DIRENT_NAME_MAX)
        return -ENAMETOOLONG;
    if (inode_has_flag(dir, INODE_ENCRYPTED))
        return -ENOKEY;
    int error = dir_name_prepare(dir, bytes, length, name);
    if (error != 0)
        return error;
    bool is_strict = (dir->volume->sb.encoding_flags & ENCODING_STRICT) != 0;
    return inode_has_flag(dir, INODE_CASEFOLD) && is_strict && !name->is_folded ? -EINVAL : 0;
}

int dir_insert(struct handle *handle, struct inode *dir, const char *bytes, size_t length,
               uint32_t ino, uint8_t type)
{
    struct dir_name name;
    int error = check_new_name(dir, bytes, length, &name);
    struct dirent_view entry = {
        .ino = ino, .type = type, .name = bytes, .name_length = (uint8_t)length};

    if (error != 0)
        return error;
    if (inode_is_inline(dir)) {
        error = dir_inline_insert(handle, dir, &entry);
        if (error != -ENOSPC)
            return error;
        error = dir_inline_move_out(handle, dir);
        if (error != 0)
            return error;
    }
    if (dir_has_index(dir))
        return dir_index_insert(handle, dir, &name, &entry);
    return linear_insert(handle, dir, &name, &entry);
}
