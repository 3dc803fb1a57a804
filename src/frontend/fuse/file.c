/* SPDX-License-Identifier: MIT */
/*
 * The data of files. A buffered open leaves caching and read-ahead to the kernel's page cache; an
 * open with O_DIRECT makes the kernel pass every read on as it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "ops.h"
#include "scratch.h"

void file_open(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *inode = server_enter(server, request, node);

    if (inode == NULL)
        return;
    if ((info->flags & O_DIRECT) != 0)
        info->direct_io = 1;
    else
        info->keep_cache = 1;
    info->noflush = 1;
    fuse_reply_open(request, info);
    server_leave(server, inode);
}

void file_read(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset,
               struct fuse_file_info *info)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *inode = server_enter(server, request, node);
    void *buffer = scratch_get(size);
    ssize_t length;

    (void)info;
    if (inode == NULL)
        return;
    length = buffer != NULL ? uext4_read(inode, buffer, size, (uint64_t)offset) : -ENOMEM;
    if (length >= 0)
        fuse_reply_buf(request, buffer, (size_t)length);
    else
        fuse_reply_err(request, (int)-length);
    server_leave(server, inode);
}

void file_seek(fuse_req_t request, fuse_ino_t node, off_t offset, int whence,
               struct fuse_file_info *info)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *inode = server_enter(server, request, node);
    int64_t result = -EINVAL;

    (void)info;
    if (inode == NULL)
        return;
    if (offset < 0)
        result = -ENXIO;
    else if (whence == SEEK_DATA)
        result = uext4_seek_data(inode, (uint64_t)offset);
    else if (whence == SEEK_HOLE)
        result = uext4_seek_hole(inode, (uint64_t)offset);
    if (result >= 0)
        fuse_reply_lseek(request, result);
    else
        fuse_reply_err(request, (int)-result);
    server_leave(server, inode);
}
