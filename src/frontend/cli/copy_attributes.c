/* SPDX-License-Identifier: MIT */
/*
 * Owners, extended attributes, modes and times, in this order: a change of owner clears set-user-ID
 * bits and capabilities, an ACL changes the mode, and all of them change times.
 *
 * Attributes that the host does not let us set are told once per namespace and are no failure;
 * set-user-ID and set-group-ID are dropped unless the owner is kept.
 * Threads: any. Called by copy.c, copy_node.c and the pool.
 */
#include "copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "message.h"

/* What Linux takes at most, for the list and for a value. */
#define XATTR_LIST_BYTES 65536
#define XATTR_BYTES      65536

/* The file of the host under way. */
struct host_file {
    int fd; /* or -1: */
    int dir_fd;
    const char *name;
};

static bool set_owner(struct copy *copy, const struct host_file *file,
                      const struct uext4_stat *stat, const char *path)
{
    int result;

    if (!copy->options.is_owner_kept)
        return false;
    if (file->fd >= 0)
        result = fchown(file->fd, stat->uid, stat->gid);
    else
        result = fchownat(file->dir_fd, file->name, stat->uid, stat->gid, AT_SYMLINK_NOFOLLOW);
    if (result == 0)
        return true;
    if (copy_tell_once(copy, COPY_TOLD_OWNER))
        session_fail(copy->session, path, "the owner cannot be set: %s (told once)",
                     message_error_text(-errno));
    return false;
}

static void set_mode(struct copy *copy, const struct host_file *file, const struct uext4_stat *stat,
                     bool is_owner_kept, const char *path)
{
    mode_t mode = stat->mode & 07777;
    int result;

    if (S_ISLNK(stat->mode))
        return;
    if (!is_owner_kept)
        mode &= ~(mode_t)(S_ISUID | S_ISGID);
    if (file->fd >= 0)
        result = fchmod(file->fd, mode);
    else
        result = fchmodat(file->dir_fd, file->name, mode, AT_SYMLINK_NOFOLLOW);
    if (result < 0)
        session_fail(copy->session, path, "the mode cannot be set: %s", message_error_text(-errno));
}

static void set_times(struct copy *copy, const struct host_file *file,
                      const struct uext4_stat *stat, const char *path)
{
    struct timespec times[2] = {stat->access_time, stat->modify_time};
    int result;

    if (file->fd >= 0)
        result = futimens(file->fd, times);
    else
        result = utimensat(file->dir_fd, file->name, times, AT_SYMLINK_NOFOLLOW);
    if (result < 0)
        session_fail(copy->session, path, "the times cannot be set: %s",
                     message_error_text(-errno));
}

static int host_setxattr(const struct host_file *file, const char *name, const void *value,
                         size_t length)
{
    char path[UEXT4_NAME_MAX + 64];
    int result;

    if (file->fd >= 0) {
        result = fsetxattr(file->fd, name, value, length, 0);
    } else {
        /* No call sets attributes relative to a descriptor; lsetxattr follows no last link. */
        snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", file->dir_fd, file->name);
        result = lsetxattr(path, name, value, length, 0);
    }
    return result < 0 ? -errno : 0;
}

static void tell_xattr_failure(struct copy *copy, const char *path, const char *name, int error)
{
    static const char *const namespaces[] = {"user.", "trusted.", "security.", "system."};
    unsigned int i;

    if (error != -EPERM && error != -EACCES && error != -EOPNOTSUPP) {
        session_fail(copy->session, path, "attribute %s cannot be set: %s", name,
                     message_error_text(error));
        return;
    }
    for (i = 0; i < 4 && strncmp(name, namespaces[i], strlen(namespaces[i])) != 0; i++)
        ;
    if (copy_tell_once(copy, COPY_TOLD_XATTR << i))
        session_warn(copy->session, path, "attribute %s%s cannot be set here: %s (told once)",
                     i < 4 ? namespaces[i] : name, i < 4 ? "*" : "",
                     error == -EOPNOTSUPP ? "the host does not take it"
                                          : message_error_text(error));
}

static void copy_xattr(struct copy *copy, struct uext4_inode *inode, const struct host_file *file,
                       const char *name, const char *path)
{
    ssize_t length = uext4_getxattr(inode, name, NULL, 0);
    char *value;
    int result;

    if (length > XATTR_BYTES) {
        session_fail(copy->session, path, "attribute %s is too long for the host", name);
        return;
    }
    value = length >= 0 ? malloc((size_t)length + 1) : NULL;
    if (value)
        length = uext4_getxattr(inode, name, value, (size_t)length);
    if (length < 0 || !value) {
        session_fail(copy->session, path, "attribute %s cannot be read: %s", name,
                     message_error_text(length < 0 ? (int)length : -ENOMEM));
    } else {
        result = host_setxattr(file, name, value, (size_t)length);
        if (result < 0)
            tell_xattr_failure(copy, path, name, result);
    }
    free(value);
}

static void copy_xattrs(struct copy *copy, struct uext4_inode *inode, const struct host_file *file,
                        const char *path)
{
    ssize_t length = uext4_listxattr(inode, NULL, 0);
    char *names = NULL;

    if (length == 0)
        return;
    if (length > XATTR_LIST_BYTES)
        length = -E2BIG;
    if (length > 0) {
        names = malloc((size_t)length + 1);
        length = names ? uext4_listxattr(inode, names, (size_t)length) : -ENOMEM;
    }
    if (length < 0) {
        session_fail(copy->session, path, "the attributes cannot be read: %s",
                     message_error_text((int)length));
    } else if (names) {
        names[length] = '\0';
        for (char *name = names; name < names + length; name += strlen(name) + 1)
            copy_xattr(copy, inode, file, name, path);
    }
    free(names);
}

void copy_attributes(struct copy *copy, struct uext4_inode *inode, const struct uext4_stat *stat,
                     int fd, int dir_fd, const char *name, const char *path)
{
    struct host_file file = {.fd = fd, .dir_fd = dir_fd, .name = name};
    bool is_owner_kept = set_owner(copy, &file, stat, path);

    if (copy->options.has_xattrs)
        copy_xattrs(copy, inode, &file, path);
    set_mode(copy, &file, stat, is_owner_kept, path);
    set_times(copy, &file, stat, path);
}
