/* SPDX-License-Identifier: MIT */
/*
 * Extended attributes as the public header shows them: full names, ACLs in the interface's form,
 * values wherever they lie.
 *
 * Locks: the inode's xattr_lock, shared, while a value is copied; not while one is read that lies
 * in an inode. Callers: front ends, create.c.
 */
#include "inode/xattr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "fs/fs.h"

#define MAX_VALUE_BYTES (16u << 20) /* of a value in an inode of its own */

/* Copies out under the rules of getxattr. */
static ssize_t give_value(const void *value, size_t length, void *buffer, size_t size)
{
    if (size == 0)
        return (ssize_t)length;
    if (length > size)
        return -ERANGE;
    if (length > 0)
        memcpy(buffer, value, length);
    return (ssize_t)length;
}

/*
 * True if the value is the one that its inode was made for: the inode's access time holds the hash.
 * An older form has the owner in the modify time and generation instead, and no hash.
 */
static bool is_right_value(const struct inode *inode, const struct inode *holder, const void *value,
                           size_t length)
{
    const struct superblock *sb = &inode->volume->sb;

    if (inode->volume->skip_checksums ||
        (uint32_t)holder->fields.access_time.tv_sec == xattr_value_inode_hash(sb, value, length))
        return true;
    return (uint32_t)holder->fields.modify_time.tv_sec == inode->ino &&
           holder->fields.generation == inode->fields.generation;
}

/* Reads a value that lies in an inode of its own, and checks it. */
static ssize_t read_value_inode(const struct inode *inode, const struct xattr_view *view,
                                void *buffer, size_t size)
{
    const struct volume *volume = inode->volume;
    struct inode *holder;
    void *value = NULL;
    ssize_t result;

    if (size == 0)
        return (ssize_t)view->value_bytes;
    if (view->value_bytes > size)
        return -ERANGE;
    result = inode_get(inode->table, view->value_ino, &holder);
    if (result != 0) {
        log_error(volume->log, "inode %u: attribute value in inode %u, which is not in use",
                  inode->ino, view->value_ino);
        return result == -ENOMEM || result == -EIO ? result : -EUCLEAN;
    }
    if (!inode_has_flag(holder, INODE_EA_INODE) || !S_ISREG(holder->fields.mode) ||
        holder->fields.size != view->value_bytes || view->value_bytes > MAX_VALUE_BYTES) {
        log_error(volume->log, "inode %u: attribute value in inode %u, which is none", inode->ino,
                  view->value_ino);
        result = -EUCLEAN;
        goto out;
    }
    value = malloc(MAX(view->value_bytes, 1u));
    if (value == NULL) {
        result = -ENOMEM;
        goto out;
    }
    result = data_read_buffer(holder, value, view->value_bytes, 0);
    if (result >= 0 && !is_right_value(inode, holder, value, (size_t)result)) {
        log_error(volume->log, "inode %u: the attribute value in inode %u does not match its hash",
                  inode->ino, view->value_ino);
        result = -EBADMSG;
    }
    if (result >= 0)
        memcpy(buffer, value, (size_t)result);
out:
    free(value);
    inode_put(holder);
    return result;
}

static bool is_acl(uint8_t index)
{
    return index == XATTR_ACL_ACCESS || index == XATTR_ACL_DEFAULT;
}

/* Copies the value out of the area that holds it; `view` says in which inode it lies otherwise. */
static ssize_t copy_value(struct inode *inode, uint8_t index, const char *name, void *buffer,
                          size_t size, struct xattr_view *view, bool *is_in_inode)
{
    struct xattr_holder holder;
    ssize_t result = xattr_find(inode, index, name, strlen(name), &holder);

    if (result != 0)
        return result;
    *view = holder.view;
    *is_in_inode = view->value_ino != 0;
    if (is_acl(index) && !*is_in_inode)
        result = acl_from_disk(view->value, view->value_bytes, buffer, size);
    else if (!*is_in_inode)
        result = give_value(view->value, view->value_bytes, buffer, size);
    if (result == -EUCLEAN)
        log_error(inode->volume->log, "inode %u: bad access control list", inode->ino);
    buffer_put(holder.buffer);
    return result;
}

ssize_t uext4_getxattr(struct uext4_inode *public, const char *name, void *buffer, size_t size)
{
    struct inode *inode = inode_from_public(public);
    bool is_in_inode = false;
    struct xattr_view view;
    const char *rest;
    uint8_t index = xattr_split_name(name, &rest);

    if (index == 0)
        return -EOPNOTSUPP;
    if (strlen(rest) > XATTR_NAME_MAX)
        return -ERANGE;
    /* Inline data lies in an attribute that is no attribute to anybody else. */
    if (index == XATTR_SYSTEM && strcmp(rest, "data") == 0)
        return -ENODATA;
    rwlock_read_lock(&inode->xattr_lock);
    ssize_t result = copy_value(inode, index, rest, buffer, size, &view, &is_in_inode);
    rwlock_read_unlock(&inode->xattr_lock);
    return is_in_inode ? read_value_inode(inode, &view, buffer, size) : result;
}

/* The list that is being written. */
struct lister {
    char *buffer;
    size_t size, used;
};

static int list_visitor(void *context, const struct xattr_view *view)
{
    struct lister *lister = context;
    bool is_whole_name;
    const char *prefix = xattr_prefix(view->index, &is_whole_name);

    /* Unknown namespaces, inline data and encryption contexts are not shown, as by the kernel. */
    if (prefix == NULL || view->index == XATTR_ENCRYPTION ||
        (view->index == XATTR_SYSTEM && view->name_length == 4 &&
         memcmp(view->name, "data", 4) == 0))
        return 0;
    size_t prefix_length = strlen(prefix);
    size_t name_length = is_whole_name ? 0 : view->name_length;
    size_t total = prefix_length + name_length + 1;
    if (lister->size > 0) {
        char *place = lister->buffer + lister->used;

        if (total > lister->size - lister->used)
            return -ERANGE;
        memcpy(place, prefix, prefix_length);
        memcpy(place + prefix_length, view->name, name_length);
        place[prefix_length + name_length] = '\0';
    }
    lister->used += total;
    return 0;
}

ssize_t uext4_listxattr(struct uext4_inode *public, char *buffer, size_t size)
{
    struct lister lister = {.buffer = buffer, .size = size};
    struct inode *inode = inode_from_public(public);

    rwlock_read_lock(&inode->xattr_lock);
    int error = xattr_for_each(inode, list_visitor, &lister);
    rwlock_read_unlock(&inode->xattr_lock);
    return error != 0 ? error : (ssize_t)lister.used;
}
