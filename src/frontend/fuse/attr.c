/* SPDX-License-Identifier: MIT */
/*
 * Attributes of inodes, by stat(2) and by the ioctls of chattr, and those of the file system.
 */
#include <errno.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "ops.h"

static void fill_stat(const struct uext4_stat *from, struct stat *to)
{
    *to = (struct stat){
        .st_ino = from->ino,
        .st_mode = from->mode,
        .st_nlink = from->link_count,
        .st_uid = from->uid,
        .st_gid = from->gid,
        .st_rdev = makedev(from->rdev_major, from->rdev_minor),
        .st_size = (off_t)from->size,
        .st_blksize = (blksize_t)from->block_bytes,
        .st_blocks = (blkcnt_t)from->allocated_sectors,
        .st_atim = from->access_time,
        .st_mtim = from->modify_time,
        .st_ctim = from->change_time,
    };
}

int attr_make_entry(struct server *server, struct uext4_inode *inode,
                    struct fuse_entry_param *entry)
{
    struct uext4_stat stat;
    uint64_t node;
    int rc = uext4_stat(inode, &stat);

    if (rc == 0)
        rc = nodes_remember(server->nodes, inode, &node);
    if (rc != 0)
        return rc;
    *entry = (struct fuse_entry_param){
        .ino = node,
        .generation = node == FUSE_ROOT_ID ? 0 : stat.generation,
        .attr_timeout = OPS_CACHE_SECONDS,
        .entry_timeout = OPS_CACHE_SECONDS,
    };
    fill_stat(&stat, &entry->attr);
    return 0;
}

void attr_get(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *inode = server_enter(server, request, node);
    struct uext4_stat stat;
    struct stat attr;
    int rc;

    (void)info;
    if (inode == NULL)
        return;
    rc = uext4_stat(inode, &stat);
    if (rc == 0) {
        fill_stat(&stat, &attr);
        fuse_reply_attr(request, &attr, OPS_CACHE_SECONDS);
    } else {
        fuse_reply_err(request, -rc);
    }
    server_leave(server, inode);
}

void attr_statfs(fuse_req_t request, fuse_ino_t node)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *inode = server_enter(server, request, node);
    struct uext4_statfs usage;
    int rc;

    if (inode == NULL)
        return;
    rc = uext4_statfs(server->fs, &usage);
    if (rc == 0) {
        struct statvfs reply = {
            .f_bsize = usage.block_bytes,
            .f_frsize = usage.block_bytes,
            .f_blocks = usage.block_count,
            .f_bfree = usage.free_blocks,
            .f_bavail = usage.available_blocks,
            .f_files = usage.inode_count,
            .f_ffree = usage.free_inodes,
            .f_favail = usage.free_inodes,
            .f_namemax = usage.name_max,
        };
        fuse_reply_statfs(request, &reply);
    } else {
        fuse_reply_err(request, -rc);
    }
    server_leave(server, inode);
}

/* The flags of FS_IOC_GETFLAGS that FS_IOC_FSGETXATTR has too, under other numbers. */
static uint32_t extended_flags(uint32_t flags)
{
    static const struct {
        uint32_t plain, extended;
    } pairs[] = {
        {FS_SYNC_FL, FS_XFLAG_SYNC},
        {FS_IMMUTABLE_FL, FS_XFLAG_IMMUTABLE},
        {FS_APPEND_FL, FS_XFLAG_APPEND},
        {FS_NODUMP_FL, FS_XFLAG_NODUMP},
        {FS_NOATIME_FL, FS_XFLAG_NOATIME},
        {FS_DAX_FL, FS_XFLAG_DAX},
        {FS_PROJINHERIT_FL, FS_XFLAG_PROJINHERIT},
    };
    uint32_t result = 0;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        result |= (flags & pairs[i].plain) != 0 ? pairs[i].extended : 0;
    return result;
}

void attr_ioctl(fuse_req_t request, fuse_ino_t node, unsigned int command, void *argument,
                struct fuse_file_info *info, unsigned int flags, const void *in, size_t in_size,
                size_t out_size)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *inode = server_enter(server, request, node);
    struct fsxattr extended = {0};
    struct uext4_stat stat;
    uint32_t word = 0;
    int rc;

    (void)argument, (void)info, (void)flags, (void)in, (void)in_size;
    if (inode == NULL)
        return;
    rc = uext4_stat(inode, &stat);
    if (rc == 0 && (command == FS_IOC_GETFLAGS || command == FS_IOC_GETVERSION)) {
        word = command == FS_IOC_GETFLAGS ? stat.flags : stat.generation;
        rc = out_size < sizeof(word) ? -EINVAL : 0;
    } else if (rc == 0 && command == FS_IOC_FSGETXATTR) {
        extended.fsx_xflags = extended_flags(stat.flags);
        extended.fsx_projid = stat.project_id;
        rc = out_size < sizeof(extended) ? -EINVAL : 0;
    } else if (rc == 0) {
        rc = -ENOTTY;
    }
    /* The two older calls are defined with a long and carry an int. */
    if (rc != 0)
        fuse_reply_err(request, -rc);
    else if (command == FS_IOC_FSGETXATTR)
        fuse_reply_ioctl(request, 0, &extended, sizeof(extended));
    else
        fuse_reply_ioctl(request, 0, &word, sizeof(word));
    server_leave(server, inode);
}
