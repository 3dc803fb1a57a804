/* SPDX-License-Identifier: MIT */
/*
 * Directories whose entries lie in the inode: 4 bytes with the parent's number, then entries in the
 * rest of i_block, then more in the attribute system.data. "." and ".." have no entries.
 *
 * Cookies: those that the entries will have in the block that takes them when the inode is full
 * (inline_edit.c): 12 behind ".", 24 behind "..", then 24 + the place of the next entry, the two
 * areas counted as one.
 *
 * Locks: the caller's on the directory. Callers: lookup.c, iterate.c, order.c, inline_edit.c.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "dir/dir.h"

#define DOT_COOKIE    12
#define DOTDOT_COOKIE 24

int dir_inline_open(const struct inode *dir, struct dir_inline_areas *areas)
{
    int error = inode_read_inline(dir, &areas->data);

    if (error != 0)
        return error;
    areas->parent = le32_at(areas->data.head);
    areas->area[0].start = areas->data.head + DIR_INLINE_PARENT_BYTES;
    areas->area[0].size = areas->data.head_bytes - DIR_INLINE_PARENT_BYTES;
    areas->area[1].start = areas->data.tail;
    areas->area[1].size = areas->data.tail_bytes;
    return 0;
}

int dir_inline_find(const struct inode *dir, const struct dir_name *name, struct dir_place *place)
{
    struct dir_inline_areas areas;
    const char *reason;
    int result = dir_inline_open(dir, &areas);

    if (result != 0)
        return result;
    place->area = DIR_AREA_DOTS;
    if (name->length == 1 && name->bytes[0] == '.') {
        place->ino = dir->ino;
        result = 1;
    } else if (name->length == 2 && memcmp(name->bytes, "..", 2) == 0) {
        place->ino = areas.parent;
        result = 1;
    }
    for (int i = 0; result == 0 && i < (int)ARRAY_LENGTH(areas.area); i++) {
        result = dir_search_area(dir, areas.area[i].start, areas.area[i].size, name, place,
                                 &reason);
        place->area = i;
        if (result < 0)
            dir_corrupt(dir, 0, reason);
    }
    if (result > 0)
        place->buffer = areas.data.buffer;
    else
        buffer_put(areas.data.buffer);
    return result > 0 ? 0 : result == 0 ? -ENOENT : result;
}

/* A parent out of range is left out and gives *error. */
static bool visit_dots(const struct inode *dir, uint32_t parent, uint64_t cookie, dir_visitor visit,
                       void *context, int *error)
{
    struct dirent_view entry = {.ino = dir->ino, .name_length = 1, .name = ".", .type = DT_DIR};

    if (cookie == 0 && !visit(context, &entry, DOT_COOKIE))
        return false;
    if (parent == 0 || parent > dir->volume->sb.inode_count) {
        *error = dir_corrupt(dir, 0, "its parent's inode number is out of range");
        return true;
    }
    entry.ino = parent;
    entry.name = "..";
    entry.name_length = 2;
    return cookie >= DOTDOT_COOKIE || visit(context, &entry, DOTDOT_COOKIE);
}

int dir_inline_iterate(const struct inode *dir, uint64_t cookie, dir_visitor visit, void *context)
{
    struct dir_inline_areas areas;
    uint64_t place = DOTDOT_COOKIE;
    int result = dir_inline_open(dir, &areas);

    if (result != 0)
        return result;
    bool goes_on = visit_dots(dir, areas.parent, cookie, visit, context, &result);
    for (unsigned int i = 0; goes_on && i < ARRAY_LENGTH(areas.area); i++) {
        size_t size = areas.area[i].size;
        struct dirent_view entry;

        for (size_t offset = 0; goes_on && offset < size; offset += entry.record_bytes) {
            const char *reason = dirent_read(&dir->volume->sb, areas.area[i].start, size, offset,
                                             false, &entry);

            if (reason != NULL) {
                result = dir_corrupt(dir, 0, reason);
                break;
            }
            if (entry.ino == 0 || place + offset < cookie)
                continue;
            if (!dirent_name_is_valid(&entry))
                result = dir_corrupt(dir, 0, "a name has a slash or a NUL in it");
            else
                goes_on = visit(context, &entry, place + offset + entry.record_bytes);
        }
        place += size;
    }
    buffer_put(areas.data.buffer);
    return goes_on ? result : 0;
}
