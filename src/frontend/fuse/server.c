/* SPDX-License-Identifier: MIT */
/*
 * The FUSE session: what is negotiated with the kernel, the threads, the start and the end.
 *
 * Locks: every request holds `gate` for reading while it uses the file system; closing takes it for
 * writing. With a block device the kernel asks for the close itself (FUSE_DESTROY) and lets
 * umount(2) wait for the answer, while other threads may still be busy with forgets that need no
 * answer. Callers: mount.c creates, runs, closes and destroys, in this order, from one thread.
 */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "mount_log.h"
#include "ops.h"

enum {
    MAX_THREADS = 64,
    MAX_IDLE_THREADS = 16,
    MAX_BACKGROUND = 64, /* read-ahead and asynchronous direct requests in flight */
};

/* Tells the waiting caller that the mount works, and lets go of its terminal. */
static void report_ready(struct server *server)
{
    int null;

    if (server->ready_fd < 0)
        return;
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (chdir("/") != 0)
        mount_log_print(UEXT4_LOG_WARNING, "cannot change to /");
    setsid();
    mount_log_use_syslog();
    for (int fd = 0; fd <= 2 && null >= 0; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
    if (write(server->ready_fd, "", 1) != 1)
        mount_log_print(UEXT4_LOG_WARNING, "the caller of the mount has gone");
    close(server->ready_fd);
    server->ready_fd = -1;
}

static void server_init(void *data, struct fuse_conn_info *connection)
{
    struct server *server = data;
    const unsigned int wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO |
                                FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_EXPORT_SUPPORT |
                                FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_READDIRPLUS |
                                FUSE_CAP_POSIX_ACL | FUSE_CAP_IOCTL_DIR |
                                FUSE_CAP_NO_OPENDIR_SUPPORT;

    connection->want = connection->capable & wanted;
    server->capabilities = connection->want;
    connection->max_read = SERVER_MAX_TRANSFER_BYTES;
    connection->max_write = SERVER_MAX_TRANSFER_BYTES;
    connection->max_readahead = SERVER_MAX_TRANSFER_BYTES;
    connection->max_background = MAX_BACKGROUND;
    connection->congestion_threshold = MAX_BACKGROUND * 3 / 4;
    connection->time_gran = 1;
    report_ready(server);
}

static void server_destroy_request(void *data)
{
    server_close(data);
}

static const struct fuse_lowlevel_ops operations = {
    .init = server_init,
    .destroy = server_destroy_request,
    .lookup = name_lookup,
    .forget = name_forget,
    .forget_multi = name_forget_multi,
    .readlink = name_readlink,
    .getattr = attr_get,
    .statfs = attr_statfs,
    .ioctl = attr_ioctl,
    .opendir = readdir_open,
    .readdir = readdir_read,
    .readdirplus = readdir_read_plus,
    .open = file_open,
    .read = file_read,
    .lseek = file_seek,
    .getxattr = xattr_get,
    .listxattr = xattr_list,
};

int server_create(struct uext4 *fs, struct fuse_args *args, struct server **result)
{
    struct server *server = calloc(1, sizeof(*server));
    int rc;

    if (server == NULL) {
        uext4_unmount(fs);
        return -ENOMEM;
    }
    server->fs = fs;
    server->ready_fd = -1;
    pthread_rwlock_init(&server->gate, NULL);
    rc = nodes_create(fs, &server->nodes);
    if (rc == 0) {
        server->session = fuse_session_new(args, &operations, sizeof(operations), server);
        if (server->session == NULL)
            rc = -EINVAL;
    }
    if (rc != 0) {
        server_destroy(server);
        return rc;
    }
    *result = server;
    return 0;
}

int server_run(struct server *server)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    int rc;

    if (config == NULL)
        return -ENOMEM;
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, MAX_THREADS);
    fuse_loop_cfg_set_idle_threads(config, MAX_IDLE_THREADS);
    rc = fuse_session_loop_mt(server->session, config);
    fuse_loop_cfg_destroy(config);
    return rc < 0 ? rc : 0; /* a positive result is the signal that ended the session */
}

void server_close(struct server *server)
{
    pthread_rwlock_wrlock(&server->gate);
    nodes_destroy(server->nodes);
    server->nodes = NULL;
    if (server->fs != NULL)
        uext4_unmount(server->fs);
    server->fs = NULL;
    pthread_rwlock_unlock(&server->gate);
}

void server_destroy(struct server *server)
{
    if (server == NULL)
        return;
    if (server->session != NULL)
        fuse_session_destroy(server->session);
    server_close(server);
    pthread_rwlock_destroy(&server->gate);
    free(server);
}

struct uext4_inode *server_enter(struct server *server, fuse_req_t request, fuse_ino_t node)
{
    struct uext4_inode *inode = NULL;
    int rc = -ENOTCONN;

    pthread_rwlock_rdlock(&server->gate);
    if (server->fs != NULL)
        rc = nodes_get(server->nodes, node, &inode);
    if (rc == 0)
        return inode;
    pthread_rwlock_unlock(&server->gate);
    fuse_reply_err(request, -rc);
    return NULL;
}

void server_leave(struct server *server, struct uext4_inode *inode)
{
    uext4_inode_put(inode);
    pthread_rwlock_unlock(&server->gate);
}
