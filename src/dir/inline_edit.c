/* SPDX-License-Identifier: MIT */
/*
 * Changes of directories whose entries lie in the inode: in i_block first, then in the attribute
 * system.data, which grows as far as the inode has room. When both are full the entries move to a
 * block, all to the places that their cookies name (inline.c).
 *
 * Locks: the caller's on the directory, exclusively; xattr_lock, map_lock, fields_mutex. Callers:
 * insert.c, remove.c.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "dir/change.h"
#include "format/xattr.h"
#include "map/edit.h"

#define ATTRIBUTE_NAME       "data"
#define ATTRIBUTE_NAME_BYTES 4
#define DOTS_BYTES           24 /* of "." and ".." with their records, tightly */

/* Sets the attribute, or removes it. -ENOSPC without room. */
static int change_attribute(struct handle *handle, struct inode *dir,
                            const struct xattr_new *attribute)
{
    const struct superblock *sb = &dir->volume->sb;
    struct xattr_place area;
    struct buffer *buffer;
    const void *place;

    if (sb->inode_bytes <= 128)
        return -ENOSPC;
    int error = inode_read_raw(dir, &buffer, &place);
    if (error != 0)
        return error;
    error = journal_modify(handle, buffer);
    if (error != 0) {
        buffer_put(buffer);
        return error;
    }
    uint8_t *raw = (uint8_t *)journal_data(handle, buffer) +
                   ((const uint8_t *)place - (const uint8_t *)buffer->data);
    rwlock_write_lock(&dir->xattr_lock);
    mutex_lock(&dir->fields_mutex);
    if (!xattr_inode_place(sb, raw, dir->fields.extra_isize, &area))
        error = -ENOSPC;
    else if (attribute != NULL)
        error = xattr_set(sb, &area, attribute);
    else
        error = xattr_remove(sb, &area, XATTR_SYSTEM, ATTRIBUTE_NAME, ATTRIBUTE_NAME_BYTES);
    inode_set_checksum(sb, dir->ino, raw);
    mutex_unlock(&dir->fields_mutex);
    rwlock_write_unlock(&dir->xattr_lock);
    buffer_put(buffer);
    return error;
}

static int set_tail(struct handle *handle, struct inode *dir, const void *tail, size_t size)
{
    struct xattr_new attribute = {
        .index = XATTR_SYSTEM,
        .name = ATTRIBUTE_NAME,
        .name_length = ATTRIBUTE_NAME_BYTES,
        .value = tail,
        .value_bytes = (uint32_t)size,
    };

    return change_attribute(handle, dir, &attribute);
}

static int remove_tail(struct handle *handle, struct inode *dir)
{
    return change_attribute(handle, dir, NULL);
}

/* i_block, and flags of the inode. */
static int set_head(struct handle *handle, struct inode *dir, const uint8_t head[INODE_BLOCK_BYTES],
                    uint32_t sets_flags, uint32_t clears_flags)
{
    rwlock_write_lock(&dir->map_lock);
    int error = inode_write_block(handle, dir, head, sets_flags, clears_flags);
    rwlock_write_unlock(&dir->map_lock);
    return error;
}

static int set_size(struct handle *handle, struct inode *dir, uint64_t size)
{
    mutex_lock(&dir->fields_mutex);
    uint64_t old_size = dir->fields.size;
    dir->fields.size = size;
    atomic_store(&dir->size, size);
    mutex_unlock(&dir->fields_mutex);
    int error = inode_write(handle, dir);
    if (error != 0) {
        mutex_lock(&dir->fields_mutex);
        dir->fields.size = old_size;
        atomic_store(&dir->size, old_size);
        mutex_unlock(&dir->fields_mutex);
    }
    return error;
}

int dir_inline_init(struct handle *handle, struct inode *dir, uint32_t parent_ino)
{
    uint8_t head[INODE_BLOCK_BYTES] = {0};
    const le32 parent = le32_make(parent_ino);
    int error = set_tail(handle, dir, "", 0);

    if (error != 0)
        return error;
    memcpy(head, &parent, sizeof(parent));
    dirent_area_init(&dir->volume->sb, head + DIR_INLINE_PARENT_BYTES,
                     sizeof(head) - DIR_INLINE_PARENT_BYTES);
    error = set_head(handle, dir, head, 0, INODE_EXTENTS);
    return error != 0 ? error : set_size(handle, dir, INODE_BLOCK_BYTES);
}

/* ---- Entries -------------------------------------------------------------------------------- */

/* A copy of both areas, to be changed and written back. */
struct copy {
    uint8_t head[INODE_BLOCK_BYTES];
    uint8_t *tail; /* capacity: the inode's size */
    size_t tail_bytes;
};

static int copy_open(const struct inode *dir, struct copy *copy)
{
    const struct superblock *sb = &dir->volume->sb;
    struct dir_inline_areas areas;
    int error = dir_inline_open(dir, &areas);

    if (error != 0)
        return error;
    copy->tail_bytes = areas.area[1].size;
    copy->tail = calloc(1, sb->inode_bytes);
    if (copy->tail == NULL) {
        error = -ENOMEM;
    } else if (areas.data.head_bytes != sizeof(copy->head) || copy->tail_bytes > sb->inode_bytes) {
        error = dir_corrupt(dir, 0, "inline data of a wrong size");
    } else {
        memcpy(copy->head, areas.data.head, sizeof(copy->head));
        if (copy->tail_bytes > 0)
            memcpy(copy->tail, areas.area[1].start, copy->tail_bytes);
    }
    buffer_put(areas.data.buffer);
    if (error != 0)
        free(copy->tail);
    return error;
}

static uint8_t *copy_area(struct copy *copy, int area, size_t *size)
{
    if (area == 0) {
        *size = sizeof(copy->head) - DIR_INLINE_PARENT_BYTES;
        return copy->head + DIR_INLINE_PARENT_BYTES;
    }
    *size = copy->tail_bytes;
    return copy->tail;
}

/* Writes back an area that kept its size. */
static int copy_write(struct handle *handle, struct inode *dir, const struct copy *copy, int area)
{
    return area == 0 ? set_head(handle, dir, copy->head, 0, 0)
                     : set_tail(handle, dir, copy->tail, copy->tail_bytes);
}

/* Puts the entry behind the last one of the attribute, if that can grow. */
static int grow_tail(struct handle *handle, struct inode *dir, struct copy *copy,
                     const struct dirent_view *entry)
{
    const struct superblock *sb = &dir->volume->sb;
    size_t more = dirent_needed_bytes(entry->name_length, false);

    if (copy->tail_bytes % 4 != 0 || more > sb->inode_bytes - copy->tail_bytes)
        return -ENOSPC;
    dirent_area_init(sb, copy->tail + copy->tail_bytes, more);
    dirent_insert_at(sb, copy->tail + copy->tail_bytes, 0, false, entry);
    int error = set_tail(handle, dir, copy->tail, copy->tail_bytes + more);
    if (error != 0)
        return error;
    error = set_size(handle, dir, INODE_BLOCK_BYTES + copy->tail_bytes + more);
    if (error != 0 && set_tail(handle, dir, copy->tail, copy->tail_bytes) != 0)
        log_error(dir->volume->log, "directory inode %u: an entry could not be taken back",
                  dir->ino);
    return error;
}

int dir_inline_insert(struct handle *handle, struct inode *dir, const struct dirent_view *entry)
{
    const struct superblock *sb = &dir->volume->sb;
    struct copy copy;
    int error = copy_open(dir, &copy);

    if (error != 0)
        return error;
    error = -ENOSPC;
    for (int i = 0; i < 2 && error == -ENOSPC; i++) {
        size_t size;
        uint8_t *area = copy_area(&copy, i, &size);

        error = dirent_insert(sb, area, size, false, entry);
        if (error == 0)
            error = copy_write(handle, dir, &copy, i);
        else if (error == -EUCLEAN)
            dir_corrupt(dir, 0, "has a bad entry");
    }
    if (error == -ENOSPC)
        error = grow_tail(handle, dir, &copy, entry);
    free(copy.tail);
    return error;
}

int dir_inline_remove(struct handle *handle, struct inode *dir, const struct dir_place *place)
{
    struct copy copy;
    size_t size;
    int error = copy_open(dir, &copy);

    if (error != 0)
        return error;
    uint8_t *area = copy_area(&copy, place->area, &size);
    error = dirent_remove(&dir->volume->sb, area, size, false, place->offset);
    if (error == 0)
        error = copy_write(handle, dir, &copy, place->area);
    free(copy.tail);
    return error;
}

int dir_inline_replace(struct handle *handle, struct inode *dir, const struct dir_place *place,
                       uint32_t ino, uint8_t type)
{
    const le32 parent = le32_make(ino);
    struct copy copy;
    size_t size;
    int error = copy_open(dir, &copy);

    if (error != 0)
        return error;
    if (place->area == DIR_AREA_DOTS)
        memcpy(copy.head, &parent, sizeof(parent));
    else
        dirent_replace(&dir->volume->sb, copy_area(&copy, place->area, &size), place->offset, ino,
                       type);
    error = copy_write(handle, dir, &copy, MAX(place->area, 0));
    free(copy.tail);
    return error;
}

/* ---- Moving out ----------------------------------------------------------------------------- */

/* Copies the entries of an area to where they lie in the block; 0 or -EUCLEAN. */
static int place_area(const struct inode *dir, const uint8_t *area, size_t size, uint8_t *block,
                      size_t start)
{
    const struct superblock *sb = &dir->volume->sb;
    struct dirent_view entry;

    for (size_t offset = 0; offset < size; offset += entry.record_bytes)
        if (dirent_read(sb, area, size, offset, false, &entry) != NULL)
            return dir_corrupt(dir, 0, "has a bad entry");
    memcpy(block + start, area, size);
    return 0;
}

/* Makes the block. The room behind the entries becomes a record that is not in use. */
static int make_block(const struct inode *dir, struct copy *copy, uint8_t *block)
{
    const struct superblock *sb = &dir->volume->sb;
    size_t room = dirent_block_room(sb), at = DOTS_BYTES, head_bytes, tail_bytes;
    const uint8_t *head = copy_area(copy, 0, &head_bytes), *tail = copy_area(copy, 1, &tail_bytes);
    size_t used = at + head_bytes + tail_bytes;
    uint32_t parent = le32_at(copy->head);

    if (parent == 0 || parent > sb->inode_count)
        return dir_corrupt(dir, 0, "its parent's inode number is out of range");
    if (used > room || room - used < DIRENT_TAIL_BYTES)
        return dir_corrupt(dir, 0, "inline data of a wrong size");
    dirent_block_init_dots(sb, block, dir->ino, parent);
    dirent_area_init(sb, block + DIRENT_TAIL_BYTES, DOTS_BYTES - DIRENT_TAIL_BYTES);
    struct dirent_view dotdot = {.ino = parent, .type = DT_DIR, .name = "..", .name_length = 2};
    dirent_insert_at(sb, block, DIRENT_TAIL_BYTES, false, &dotdot);
    int error = place_area(dir, head, head_bytes, block, at);
    if (error == 0)
        error = place_area(dir, tail, tail_bytes, block, at + head_bytes);
    dirent_area_init(sb, block + used, room - used);
    return error;
}

/* Puts everything back that the failed attempt has changed. */
static void move_back(struct handle *handle, struct inode *dir, const struct copy *copy,
                      uint64_t size, uint32_t sets_flags, uint32_t clears_flags)
{
    int error = set_head(handle, dir, copy->head, sets_flags, clears_flags);

    if (error == 0)
        error = set_tail(handle, dir, copy->tail, copy->tail_bytes);
    if (error == 0)
        error = set_size(handle, dir, size);
    if (error != 0)
        log_error(dir->volume->log,
                  "directory inode %u: its entries could not be put back: error %d", dir->ino,
                  error);
}

static int move_to_block(struct handle *handle, struct inode *dir, const struct copy *copy,
                         const uint8_t *block)
{
    const struct superblock *sb = &dir->volume->sb;
    struct inode_fields fields = dir->fields;
    struct buffer *buffer;

    fields.flags &= ~(uint32_t)(INODE_INLINE_DATA | INODE_EXTENTS);
    map_init(sb, &fields);
    uint32_t map_flag = fields.flags & INODE_EXTENTS & ~dir->fields.flags;
    uint64_t old_size = dir->fields.size;
    int error = remove_tail(handle, dir);
    if (error != 0)
        return error;
    error = set_head(handle, dir, fields.block, map_flag, INODE_INLINE_DATA);
    if (error == 0)
        error = set_size(handle, dir, 0);
    if (error == 0)
        error = dir_grow(handle, dir, 1, 0, &buffer);
    if (error != 0) {
        move_back(handle, dir, copy, old_size, INODE_INLINE_DATA, map_flag);
        return error;
    }
    void *data = journal_data(handle, buffer);
    memcpy(data, block, sb->block_bytes);
    dir_finish_leaf(dir, data);
    buffer_set_verified(buffer, block_tag(BLOCK_KIND_DIRECTORY_LEAF, dir->ino, 0));
    buffer_put(buffer);
    return 0;
}

int dir_inline_move_out(struct handle *handle, struct inode *dir)
{
    struct copy copy;
    int error = copy_open(dir, &copy);

    if (error != 0)
        return error;
    uint8_t *block = calloc(1, dir->volume->sb.block_bytes);
    if (block == NULL)
        error = -ENOMEM;
    if (error == 0)
        error = make_block(dir, &copy, block);
    if (error == 0)
        error = move_to_block(handle, dir, &copy, block);
    free(block);
    free(copy.tail);
    return error;
}
