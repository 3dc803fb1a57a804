/* SPDX-License-Identifier: MIT */
/*
 * The requests of the kernel, as libfuse's table of operations wants them; server.c lists them.
 * Each runs in one of the session's threads, in parallel with any other, and answers its request
 * exactly once.
 */
#ifndef UEXT4_FUSE_OPS_H
#define UEXT4_FUSE_OPS_H

#include "server.h"

/* An image that is open for reading does not change, so the kernel may keep what it was told. */
#define OPS_CACHE_SECONDS 86400.0

/* name.c */
void name_lookup(fuse_req_t request, fuse_ino_t parent, const char *name);
void name_forget(fuse_req_t request, fuse_ino_t node, uint64_t count);
void name_forget_multi(fuse_req_t request, size_t count, struct fuse_forget_data *forgets);
void name_readlink(fuse_req_t request, fuse_ino_t node);

/* attr.c */
void attr_get(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info);
void attr_statfs(fuse_req_t request, fuse_ino_t node);
void attr_ioctl(fuse_req_t request, fuse_ino_t node, unsigned int command, void *argument,
                struct fuse_file_info *info, unsigned int flags, const void *in, size_t in_size,
                size_t out_size);

/* Fills an entry for a reply, and counts the look-up. */
int attr_make_entry(struct server *server, struct uext4_inode *inode,
                    struct fuse_entry_param *entry);

/* readdir.c */
void readdir_open(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info);
void readdir_read(fuse_req_t request, fuse_ino_t node, size_t size, off_t cookie,
                  struct fuse_file_info *info);
void readdir_read_plus(fuse_req_t request, fuse_ino_t node, size_t size, off_t cookie,
                       struct fuse_file_info *info);

/* file.c */
void file_open(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info);
void file_read(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset,
               struct fuse_file_info *info);
void file_seek(fuse_req_t request, fuse_ino_t node, off_t offset, int whence,
               struct fuse_file_info *info);

/* xattr.c */
void xattr_get(fuse_req_t request, fuse_ino_t node, const char *name, size_t size);
void xattr_list(fuse_req_t request, fuse_ino_t node, size_t size);

#endif
