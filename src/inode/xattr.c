/* SPDX-License-Identifier: MIT */
/*
 * Walks the two areas of an inode's extended attributes.
 *
 * Locks: the callers hold xattr_lock, at least shared, until they have done with what they got;
 * buffers are held while an area is looked at. Callers: inode.c, fs.
 */
#include "inode/xattr.h"

#include <errno.h>
#include <string.h>

#include "inode/xattr_block.h"

/* Gets the area in the inode. -ENODATA if there is none. */
static int open_inode_area(const struct inode *inode, struct buffer **buffer,
                           struct xattr_area *area)
{
    const void *raw;

    if (inode->volume->sb.inode_bytes <= 128)
        return -ENODATA;
    int error = inode_read_raw(inode, buffer, &raw);
    if (error != 0)
        return error;
    if (!xattr_inode_area(&inode->volume->sb, raw, inode->fields.extra_isize, area)) {
        buffer_put(*buffer);
        return -ENODATA;
    }
    return 0;
}

/* Visits the attributes of an area. Returns the visitor's value, or 0 at the end. */
static int visit_area(const struct inode *inode, const struct xattr_area *area, xattr_visitor visit,
                      void *context)
{
    const void *position = area->entries;
    const char *reason = NULL;
    struct xattr_view view;
    int step;

    while ((step = xattr_next(&inode->volume->sb, area, position, &view, &reason)) > 0) {
        int result = visit(context, &view);

        if (result != 0)
            return result;
        position = view.following;
    }
    if (step < 0)
        log_error(inode->volume->log, "inode %u: extended attribute: %s", inode->ino,
                  reason != NULL ? reason : "bad entry");
    return step;
}

int xattr_for_each(const struct inode *inode, xattr_visitor visit, void *context)
{
    static int (*const openers[])(const struct inode *, struct buffer **,
                                  struct xattr_area *) = {open_inode_area, xattr_block_open};

    for (size_t i = 0; i < ARRAY_LENGTH(openers); i++) {
        struct buffer *buffer;
        struct xattr_area area;
        int result = openers[i](inode, &buffer, &area);

        if (result == -ENODATA)
            continue;
        if (result != 0)
            return result;
        result = visit_area(inode, &area, visit, context);
        buffer_put(buffer);
        if (result != 0)
            return result;
    }
    return 0;
}

struct finder {
    uint8_t index;
    const char *name;
    size_t length;
    struct xattr_view *found;
};

static int find_visitor(void *context, const struct xattr_view *view)
{
    const struct finder *finder = context;

    if (view->index != finder->index || view->name_length != finder->length ||
        memcmp(view->name, finder->name, finder->length) != 0)
        return 0;
    *finder->found = *view;
    return 1;
}

/* Looks in an area that is open; releases its buffer unless the attribute was found. */
static int find_in_area(const struct inode *inode, const struct xattr_area *area,
                        const struct finder *finder, struct buffer *buffer)
{
    int found = visit_area(inode, area, find_visitor, (void *)(uintptr_t)finder);

    if (found == 1)
        return 0;
    buffer_put(buffer);
    return found == 0 ? -ENODATA : found;
}

int xattr_find_in_inode(const struct inode *inode, uint8_t index, const char *name, size_t length,
                        struct xattr_holder *result)
{
    struct finder finder = {index, name, length, &result->view};
    struct xattr_area area;
    int error = open_inode_area(inode, &result->buffer, &area);

    return error != 0 ? error : find_in_area(inode, &area, &finder, result->buffer);
}

int xattr_find(const struct inode *inode, uint8_t index, const char *name, size_t length,
               struct xattr_holder *result)
{
    struct finder finder = {index, name, length, &result->view};
    struct xattr_area area;
    int error = xattr_find_in_inode(inode, index, name, length, result);

    if (error != -ENODATA)
        return error;
    error = xattr_block_open(inode, &result->buffer, &area);
    return error != 0 ? error : find_in_area(inode, &area, &finder, result->buffer);
}
