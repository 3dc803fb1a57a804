/* SPDX-License-Identifier: MIT */
/* Changes of extended attributes. */
#ifndef UEXT4_INODE_XATTR_EDIT_H
#define UEXT4_INODE_XATTR_EDIT_H

#include "inode/xattr.h"

/*
 * Lets go of the attribute block of an inode that is being freed: takes one off its references, or
 * frees it with the last. A block and its group's bitmap and descriptor in credits.
 */
int xattr_release(struct handle *handle, struct inode *inode) MUST_CHECK;

#endif
