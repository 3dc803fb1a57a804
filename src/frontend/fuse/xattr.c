/* SPDX-License-Identifier: MIT */
/*
 * Extended attributes. The kernel asks here for ACLs too, and enforces them itself.
 */
#include <errno.h>
#include <string.h>

#include "ops.h"
#include "scratch.h"

/* Answers with a value of `length` bytes, or with its length when the caller asked for that. */
static void reply_value(fuse_req_t request, const char *value, ssize_t length, size_t size)
{
    if (length >= 0 && size != 0 && (size_t)length > size)
        length = -ERANGE;
    if (length < 0)
        fuse_reply_err(request, (int)-length);
    else if (size == 0)
        fuse_reply_xattr(request, (size_t)length);
    else
        fuse_reply_buf(request, value, (size_t)length);
}

void xattr_get(fuse_req_t request, fuse_ino_t node, const char *name, size_t size)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *inode = server_enter(server, request, node);
    char *value;
    ssize_t length = -ENOMEM;

    if (inode == NULL)
        return;
    if (size > SERVER_MAX_TRANSFER_BYTES)
        size = SERVER_MAX_TRANSFER_BYTES;
    value = scratch_get(size);
    if (value != NULL)
        length = uext4_getxattr(inode, name, value, size);
    reply_value(request, value, length, size);
    server_leave(server, inode);
}

/* As in the kernel, trusted attributes show only to those who may read them. */
static size_t drop_trusted(char *names, size_t length)
{
    static const char prefix[] = "trusted.";
    size_t kept = 0;

    for (size_t at = 0; at < length;) {
        size_t name_size = strnlen(names + at, length - at) + 1;

        if (name_size > length - at)
            break;
        if (strncmp(names + at, prefix, sizeof(prefix) - 1) != 0) {
            memmove(names + kept, names + at, name_size);
            kept += name_size;
        }
        at += name_size;
    }
    return kept;
}

void xattr_list(fuse_req_t request, fuse_ino_t node, size_t size)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *inode = server_enter(server, request, node);
    char *names = scratch_get(SERVER_MAX_TRANSFER_BYTES);
    ssize_t length = -ENOMEM;

    if (inode == NULL)
        return;
    if (names != NULL)
        length = uext4_listxattr(inode, names, SERVER_MAX_TRANSFER_BYTES);
    if (length > 0 && fuse_req_ctx(request)->uid != 0)
        length = (ssize_t)drop_trusted(names, (size_t)length);
    reply_value(request, names, length, size);
    server_leave(server, inode);
}
