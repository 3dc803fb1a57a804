/* SPDX-License-Identifier: MIT */
/*
 * Copying out of an image into a directory of the host. The target directory is reached by
 * descriptors alone, and no symbolic link in it is followed: an image cannot make the copy write
 * anywhere else.
 *
 *   copy.c             walks the tree, makes directories
 *   copy_node.c        makes files, links, devices
 *   copy_data.c        contents of files, by a pool of threads
 *   copy_attributes.c  owners, modes, times, extended attributes
 *
 * Threads: copy_source by one thread; copy_data.c and copy_attributes.c also run on the pool's.
 */
#ifndef UEXT4_CLI_COPY_H
#define UEXT4_CLI_COPY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uext4.h>

#include "inode_map.h"
#include "progress.h"
#include "session.h"

#define COPY_THREADS_MAX 64
#define COPY_QUEUE_MAX   (2 * COPY_THREADS_MAX)

struct copy_options {
    bool is_owner_kept;
    bool has_xattrs;
    bool has_devices; /* devices, fifos and sockets are made */
    unsigned int threads;
};

/* A path that grows and shrinks by components; always terminated. */
struct copy_path {
    char *text;
    size_t length, capacity;
};

/* A regular file that is made and waits for its contents. The job owns all of it. */
struct copy_job {
    struct uext4_inode *inode;
    struct uext4_stat stat;
    int fd;
    char *path; /* in the image, for messages */
};

struct copy_pool {
    pthread_mutex_t lock;
    pthread_cond_t has_job, has_room;
    struct copy_job jobs[COPY_QUEUE_MAX]; /* lock; a ring */
    size_t first, count;                  /* lock */
    bool is_closing;                      /* lock */
    pthread_t threads[COPY_THREADS_MAX];
    unsigned int thread_count; /* 0: jobs run where they are submitted */
};

struct copy {
    struct session *session;
    struct copy_options options;
    struct progress *progress;
    int root_fd;                     /* all targets lie below it */
    struct inode_map links;          /* inode -> struct copy_link, of files with several names */
    struct inode_map seen;           /* directories of the source at hand */
    struct copy_path source;         /* of the file at hand, in the image */
    struct copy_path target;         /* the same, below root_fd */
    uint64_t directory_bytes_left;   /* of one source: directories share no blocks either */
    uint64_t data_limit;             /* more data than the device holds cannot be right */
    atomic_uint_fast64_t data_bytes; /* copied from the source at hand */
    atomic_uint told;                /* bits of enum copy_told */
    struct copy_pool pool;
};

/* Things told once in a run. */
enum copy_told {
    COPY_TOLD_OWNER = 1u << 0,
    COPY_TOLD_LINK = 1u << 1,
    COPY_TOLD_XATTR = 1u << 2, /* and the four bits above, a namespace each */
};

/* Sets the bit; returns true for the first who does. */
bool copy_tell_once(struct copy *copy, unsigned int bit);

/* Fills in *copy and starts the pool. Takes over `root_fd`. */
void copy_begin(struct copy *copy, struct session *session, const struct copy_options *options,
                struct progress *progress, int root_fd);

/*
 * Copies a file or tree to `name` below the root, or with `name` NULL the contents of a directory
 * into the root. `path` is for messages. Errors are told and counted in the session.
 */
void copy_source(struct copy *copy, struct uext4_inode *inode, const char *path, const char *name);

/* Waits for the pool and frees all. */
void copy_end(struct copy *copy);

/* ---- Between the parts of the copy ---------------------------------------------------------- */

int copy_path_push(struct copy_path *path, const char *name, size_t length);
void copy_path_cut(struct copy_path *path, size_t length);

/* Makes what is no directory at copy->target, named `name` in `dir_fd`. Tells its errors. */
void copy_node(struct copy *copy, struct uext4_inode *inode, const struct uext4_stat *stat,
               int dir_fd, const char *name);

void copy_pool_start(struct copy *copy);
void copy_pool_submit(struct copy *copy, const struct copy_job *job);
void copy_pool_wait(struct copy *copy); /* until no job is queued or under way; ends the pool */

/*
 * Gives the host's file the attributes of the inode: through `fd`, or if that is -1 as `name` in
 * `dir_fd`, never following a symbolic link.
 */
void copy_attributes(struct copy *copy, struct uext4_inode *inode, const struct uext4_stat *stat,
                     int fd, int dir_fd, const char *name, const char *path);

#endif
