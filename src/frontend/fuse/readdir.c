/* SPDX-License-Identifier: MIT */
/*
 * Directory listings, plain and with the attributes of the inodes.
 *
 * A listing has no state here: the library's cookies are the offsets that the kernel sees, and a
 * listing goes on wherever it is asked to.
 *
 * The kernel asks for attributes with every listing. Giving them costs some five times what the
 * names cost, and saves a request of its own for each name that is then looked at. So they go with
 * the first part of a listing, which is all of most directories, and with the further parts if the
 * names of the directory are being looked up. Asking the kernel to decide
 * (FUSE_CAP_READDIRPLUS_AUTO) does not do: programs that read many names before they look at the
 * first confuse it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"
#include "scratch.h"

struct listing {
    fuse_req_t request;
    struct server *server;
    char *buffer;
    size_t size;
    size_t used;
    bool has_attributes;
    fuse_ino_t
        *looked_up; /* nodes that the reply counts a look-up of; NULL: a listing of names alone */
    size_t looked_up_count;
};

void readdir_open(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info)
{
    struct server *server = fuse_req_userdata(request);
    struct uext4_inode *inode;

    /* This answer makes the kernel open all directories by itself, with both of the flags below. */
    if ((server->capabilities & FUSE_CAP_NO_OPENDIR_SUPPORT) != 0) {
        fuse_reply_err(request, ENOSYS);
        return;
    }
    inode = server_enter(server, request, node);
    if (inode == NULL)
        return;
    info->cache_readdir = 1;
    info->keep_cache = 1;
    fuse_reply_open(request, info);
    server_leave(server, inode);
}

static bool is_dot(const struct uext4_dirent *entry)
{
    return entry->name[0] == '.' &&
           (entry->name_length == 1 || (entry->name_length == 2 && entry->name[1] == '.'));
}

/*
 * Fills in the entry of a listing with attributes. An inode that cannot be read must not hide its
 * name: the entry then comes without a node, and looking it up gives the error.
 */
static void look_up_entry(struct listing *listing, const struct uext4_dirent *dirent,
                          struct fuse_entry_param *entry)
{
    struct uext4 *fs = listing->server->fs;
    struct uext4_inode *inode;

    if (!listing->has_attributes || is_dot(dirent) || uext4_inode_get(fs, dirent->ino, &inode) != 0)
        return;
    if (attr_make_entry(listing->server, inode, entry) == 0)
        listing->looked_up[listing->looked_up_count++] = entry->ino;
    uext4_inode_put(inode);
}

static bool add_entry(void *context, const struct uext4_dirent *dirent)
{
    struct listing *listing = context;
    struct fuse_entry_param entry = {
        .attr = {.st_ino = dirent->ino, .st_mode = (mode_t)dirent->type << 12},
    };
    char name[UEXT4_NAME_MAX + 1];
    char *at = listing->buffer + listing->used;
    size_t room = listing->size - listing->used;
    off_t next = (off_t)dirent->next_cookie;
    size_t needed;

    memcpy(name, dirent->name, dirent->name_length);
    name[dirent->name_length] = '\0';
    if (listing->looked_up == NULL) {
        needed = fuse_add_direntry(listing->request, at, room, name, &entry.attr, next);
    } else {
        needed = fuse_add_direntry_plus(listing->request, NULL, 0, name, NULL, 0);
        if (needed > room)
            return false;
        look_up_entry(listing, dirent, &entry);
        fuse_add_direntry_plus(listing->request, at, room, name, &entry, next);
    }
    if (needed > room)
        return false;
    listing->used += needed;
    return true;
}

static void reply_listing(struct listing *listing, int rc)
{
    struct server *server = listing->server;

    /* What was read before an error is worth having; the error comes again with the next call. */
    if (rc != 0 && listing->used == 0)
        rc = fuse_reply_err(listing->request, -rc);
    else
        rc = fuse_reply_buf(listing->request, listing->buffer, listing->used);
    for (size_t i = 0; rc != 0 && i < listing->looked_up_count; i++)
        nodes_forget(server->nodes, listing->looked_up[i], 1);
}

static void read_listing(fuse_req_t request, fuse_ino_t node, size_t size, off_t cookie,
                         bool is_plus)
{
    struct listing listing = {
        .request = request,
        .server = fuse_req_userdata(request),
        .size = size < SERVER_MAX_TRANSFER_BYTES ? size : SERVER_MAX_TRANSFER_BYTES,
    };
    struct uext4_inode *dir = server_enter(listing.server, request, node);
    int rc = 0;

    if (dir == NULL)
        return;
    listing.buffer = scratch_get(listing.size);
    if (is_plus) {
        listing.has_attributes = nodes_is_searched(listing.server->nodes, node, cookie == 0) ||
                                 cookie == 0;
        listing.looked_up =
            calloc(listing.size / fuse_add_direntry_plus(request, NULL, 0, "x", NULL, 0) + 1,
                   sizeof(listing.looked_up[0]));
    }
    if (listing.buffer == NULL || (is_plus && listing.looked_up == NULL))
        rc = -ENOMEM;
    else
        rc = uext4_readdir(dir, (uint64_t)cookie, add_entry, &listing);
    reply_listing(&listing, rc);
    free(listing.looked_up);
    server_leave(listing.server, dir);
}

void readdir_read(fuse_req_t request, fuse_ino_t node, size_t size, off_t cookie,
                  struct fuse_file_info *info)
{
    (void)info;
    read_listing(request, node, size, cookie, false);
}

void readdir_read_plus(fuse_req_t request, fuse_ino_t node, size_t size, off_t cookie,
                       struct fuse_file_info *info)
{
    (void)info;
    read_listing(request, node, size, cookie, true);
}
