/* SPDX-License-Identifier: MIT */
/*
 * One mounted file system and the session that serves it.
 */
#ifndef UEXT4_FUSE_SERVER_H
#define UEXT4_FUSE_SERVER_H

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif

#include <fuse_lowlevel.h>
#include <pthread.h>

#include "nodes.h"
#include "uext4.h"

enum { SERVER_MAX_TRANSFER_BYTES = 1 << 20 }; /* of one request; what max_pages allows at most */

struct server {
    pthread_rwlock_t gate;
    struct uext4 *fs;             /* NULL once closed; written under the gate, taken for writing */
    struct nodes *nodes;          /* likewise */
    struct fuse_session *session; /* [immutable] */
    unsigned int capabilities;    /* FUSE_CAP_* in use; set by the first request */
    int ready_fd;                 /* pipe to the waiting caller of a background mount, or -1 */
};

/* Takes over `fs`: server_close closes it, also when this fails. */
int server_create(struct uext4 *fs, struct fuse_args *args, struct server **server);

/*
 * Answers requests until the file system is unmounted or a signal ends the session. Returns 0, or
 * -errno when the connection to the kernel failed.
 */
int server_run(struct server *server);

/* Closes the file system. Waits for the requests under way; later ones fail with -ENOTCONN. */
void server_close(struct server *server);

/* Ends the session, which closes the connection to the kernel, and frees everything. */
void server_destroy(struct server *server);

/*
 * Begins a request on a node: returns its inode, to be given to server_leave. Returns NULL after
 * answering the request when that fails.
 */
struct uext4_inode *server_enter(struct server *server, fuse_req_t request, fuse_ino_t node);
void server_leave(struct server *server, struct uext4_inode *inode);

#endif
