/* SPDX-License-Identifier: MIT */
/* Changes of extended attributes. */
#ifndef UEXT4_INODE_XATTR_EDIT_H
#define UEXT4_INODE_XATTR_EDIT_H

#include "inode/xattr.h"

enum xattr_update_flags {
    XATTR_UPDATE_CREATES = 1u << 0,  /* -EEXIST if there is one of that name */
    XATTR_UPDATE_REPLACES = 1u << 1, /* -ENODATA if there is none */
};

/* A change of one attribute. */
struct xattr_update {
    uint8_t index;
    const char *name; /* without the prefix */
    uint8_t name_length;
    const void *value; /* NULL: the attribute is removed; one that is not there is left so */
    uint32_t value_bytes;
    unsigned int flags;    /* enum xattr_update_flags */
    bool sets_permissions; /* the inode's permissions become those of `permissions` */
    uint32_t permissions;  /* 0 to 0777 */
    struct timespec now;   /* becomes the change time */
};

/* Credits of xattr_update. */
uint32_t xattr_update_credits(const struct inode *inode);

/*
 * Makes the change in the handle's transaction, in the inode if it fits there, else in the
 * attribute block. Takes xattr_lock. -ENOSPC if the attribute fits in neither, -EAGAIN if it may
 * help to wait for a commit, -EOPNOTSUPP if it would touch a value that lies in an inode; nothing
 * is changed then. Errors in the middle abort the journal.
 */
int xattr_update(struct handle *handle, struct inode *inode,
                 const struct xattr_update *update) MUST_CHECK;

/*
 * Lets go of the attribute block of an inode that is being freed: takes one off its references, or
 * frees it with the last. A block and its group's bitmap and descriptor in credits.
 */
int xattr_release(struct handle *handle, struct inode *inode) MUST_CHECK;

/* ---- Access control lists in the interface's form, of which acl_to_disk was content -----------
 */

/* The permissions that an access ACL stands for. `is_equivalent`: it says no more than those. */
uint32_t acl_permissions(const void *acl, size_t size, bool *is_equivalent);

/*
 * Makes a directory's default ACL the access ACL of a new inode that is asked for with the
 * permissions of `mode`, whose other bits stay: what both grant is granted, in `mode` too. Returns
 * true if the ACL says more than the mode.
 */
bool acl_restrict(void *acl, size_t size, uint32_t *mode);

#endif
