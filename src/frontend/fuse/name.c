/* SPDX-License-Identifier: MIT */
/*
 * Names: look-up, the counts of look-ups, and the targets of symbolic links.
 */
#include <errno.h>
#include <string.h>

#include "ops.h"
#include "scratch.h"

enum { LINK_TARGET_MAX = 4095 }; /* what the kernel takes as the target of a symbolic link */

void name_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *dir = server_enter(server, request, parent);
    struct uext4_inode *inode = NULL;
    struct fuse_entry_param entry = {.entry_timeout = OPS_CACHE_SECONDS};
    int rc;

    if (dir == NULL)
        return;
    nodes_count_search(server->nodes, parent);
    rc = uext4_lookup(dir, name, strlen(name), &inode);
    if (rc == 0)
        rc = attr_make_entry(server, inode, &entry);
    uext4_inode_put(inode);
    if (rc == 0 || rc == -ENOENT) {
        /* Number 0 says that the name does not exist, and lets the kernel remember that. */
        if (fuse_reply_entry(request, &entry) != 0 && entry.ino != 0)
            nodes_forget(server->nodes, entry.ino, 1);
    } else {
        fuse_reply_err(request, -rc);
    }
    server_leave(server, dir);
}

void name_forget_multi(fuse_req_t request, size_t count, struct fuse_forget_data *forgets)
{
    struct server *server = fuse_req_userdata(request);

    pthread_rwlock_rdlock(&server->gate);
    for (size_t i = 0; i < count && server->nodes != NULL; i++)
        nodes_forget(server->nodes, forgets[i].ino, forgets[i].nlookup);
    pthread_rwlock_unlock(&server->gate);
    fuse_reply_none(request);
}

void name_forget(fuse_req_t request, fuse_ino_t node, uint64_t count)
{
    name_forget_multi(request, 1, &(struct fuse_forget_data){.ino = node, .nlookup = count});
}

void name_readlink(fuse_req_t request, fuse_ino_t node)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *inode = server_enter(server, request, node);
    char *target = scratch_get(LINK_TARGET_MAX + 1);
    ssize_t length;

    if (inode == NULL)
        return;
    length = target != NULL ? uext4_readlink(inode, target, LINK_TARGET_MAX) : -ENOMEM;
    if (length > LINK_TARGET_MAX)
        length = -ENAMETOOLONG;
    if (length >= 0) {
        target[length] = '\0';
        fuse_reply_readlink(request, target);
    } else {
        fuse_reply_err(request, (int)-length);
    }
    server_leave(server, inode);
}
