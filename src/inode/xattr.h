/* SPDX-License-Identifier: MIT */
/*
 * Finding extended attributes: behind the inode's fields first, then in the attribute block. Values
 * that lie in an inode of their own are only pointed to: reading them takes layers above.
 */
#ifndef UEXT4_INODE_XATTR_H
#define UEXT4_INODE_XATTR_H

#include "format/xattr.h"
#include "inode/inode.h"

/* An attribute and the buffer that its name and value lie in; release the buffer. */
struct xattr_holder {
    struct buffer *buffer;
    struct xattr_view view;
};

/* -ENODATA if there is none of that name. `name` is without its prefix. */
int xattr_find(const struct inode *inode, uint8_t index, const char *name, size_t length,
               struct xattr_holder *result) MUST_CHECK;

/* The same without the attribute block. */
int xattr_find_in_inode(const struct inode *inode, uint8_t index, const char *name, size_t length,
                        struct xattr_holder *result) MUST_CHECK;

/* Takes one attribute; 0 to go on, else the walk ends with the value. The view ends with the call.
 */
typedef int (*xattr_visitor)(void *context, const struct xattr_view *view);

int xattr_for_each(const struct inode *inode, xattr_visitor visit, void *context) MUST_CHECK;

#endif
