/* SPDX-License-Identifier: MIT */
/*
 * Changes of extended attributes as the public header has them: full names, ACLs in the interface's
 * form, and the permissions that follow an access ACL.
 *
 * Locks: a handle, the inode's xattr_lock inside. Callers: front ends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/change.h"
#include "inode/xattr_edit.h"

#define MAX_VALUE_BYTES 65536u

/* Splits a name into index and rest, and refuses those that nobody sets. */
static int parse_name(const char *name, struct xattr_update *update)
{
    const char *rest;

    update->index = xattr_split_name(name, &rest);
    switch (update->index) {
    case XATTR_USER:
    case XATTR_TRUSTED:
    case XATTR_SECURITY:
    case XATTR_ACL_ACCESS:
    case XATTR_ACL_DEFAULT:
        break;
    default:
        return -EOPNOTSUPP;
    }
    /* With the prefix, as nobody could read a longer one through a kernel. */
    if (strlen(name) > XATTR_NAME_MAX)
        return -ERANGE;
    update->name = rest;
    update->name_length = (uint8_t)strlen(rest);
    return 0;
}

static int check_changeable(const struct inode *inode)
{
    int error = change_check(inode);

    if (error != 0)
        return error;
    return inode_has_flag(inode, INODE_IMMUTABLE) || inode_has_flag(inode, INODE_APPEND) ? -EPERM
                                                                                         : 0;
}

static bool is_acl(const struct xattr_update *update)
{
    return update->index == XATTR_ACL_ACCESS || update->index == XATTR_ACL_DEFAULT;
}

/* One transaction; again after a commit if space may come from that. */
static int make_update(struct inode *inode, struct xattr_update *update)
{
    unsigned int tries = 0;
    struct handle handle;
    int error;

    do {
        error = journal_start(inode->volume->journal, xattr_update_credits(inode), &handle);
        if (error != 0)
            return error;
        update->now = change_now();
        error = xattr_update(&handle, inode, update);
        if (error == 0)
            inode_note_change(&handle, inode, false);
        error = change_stop(&handle, error, false);
    } while (change_can_retry(inode, error, &tries));
    return error == -EAGAIN ? -ENOSPC : error;
}

/* Sets an ACL; `acl` NULL takes it away. */
static int set_acl(struct inode *inode, struct xattr_update *update, const void *acl, size_t size)
{
    bool is_access = update->index == XATTR_ACL_ACCESS, is_equivalent = false;
    int64_t length = size > 0 ? acl_to_disk(acl, size, NULL, 0) : 0;
    void *raw = NULL;

    if (S_ISLNK(inode->fields.mode))
        return -EOPNOTSUPP;
    if (!is_access && !inode_is_directory(inode))
        return length != 0 ? -EACCES : 0;
    if (length < 0)
        return (int)length;
    update->flags = 0;
    if (length > 0 && is_access) {
        update->sets_permissions = true;
        update->permissions = acl_permissions(acl, size, &is_equivalent);
    }
    if (length > 0 && !is_equivalent) {
        raw = malloc((size_t)length);
        if (raw == NULL)
            return -ENOMEM;
        update->value_bytes = (uint32_t)acl_to_disk(acl, size, raw, (size_t)length);
        update->value = raw;
    }
    int error = make_update(inode, update);
    free(raw);
    return error;
}

int uext4_setxattr(struct uext4_inode *public, const char *name, const void *value, size_t size,
                   int flags)
{
    struct inode *inode = inode_from_public(public);
    struct xattr_update update = {0};
    int error = parse_name(name, &update);

    if ((flags & ~(UEXT4_XATTR_CREATE | UEXT4_XATTR_REPLACE)) != 0)
        return -EINVAL;
    if (error == 0 && size > MAX_VALUE_BYTES)
        error = -E2BIG;
    if (error == 0)
        error = check_changeable(inode);
    if (error != 0)
        return error;
    if (is_acl(&update))
        return set_acl(inode, &update, value, size);
    /* An empty value is one, whatever the caller points to. */
    update.value = size > 0 ? value : "";
    update.value_bytes = (uint32_t)size;
    if ((flags & UEXT4_XATTR_CREATE) != 0)
        update.flags |= XATTR_UPDATE_CREATES;
    if ((flags & UEXT4_XATTR_REPLACE) != 0)
        update.flags |= XATTR_UPDATE_REPLACES;
    return make_update(inode, &update);
}

int uext4_removexattr(struct uext4_inode *public, const char *name)
{
    struct inode *inode = inode_from_public(public);
    struct xattr_update update = {0};
    int error = parse_name(name, &update);

    if (error == 0)
        error = check_changeable(inode);
    if (error != 0)
        return error;
    if (is_acl(&update))
        return set_acl(inode, &update, NULL, 0);
    update.flags = XATTR_UPDATE_REPLACES;
    return make_update(inode, &update);
}
