/* SPDX-License-Identifier: MIT */
/*
 * The mount itself: the way into the kernel's tree and out of it, for root by mount(2) and for
 * other users by fusermount3.
 */
#ifndef UEXT4_FUSE_ATTACH_H
#define UEXT4_FUSE_ATTACH_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "options.h"
#include "server.h"

struct attachment {
    char mountpoint[PATH_MAX]; /* without symbolic links */
    const char *source;        /* shown in the table of mounts */
    bool is_block_device;      /* `source` is one */
    bool is_part;              /* of it: the file system does not begin at its start */
    uint32_t block_bytes;      /* of the file system */
    bool is_privileged;        /* by mount(2) */
    bool is_attached;
    bool is_in_utab; /* see utab.h */
    int lifeline;    /* see lifeline.h; -1: none */
};

/*
 * Checks a mountpoint and fills in `mountpoint`. Returns false after saying what is wrong. Does not
 * touch the file systems that are mounted there.
 */
bool attach_check(struct attachment *attachment, const char *mountpoint);

/* The arguments of the session that is to be attached. */
bool attach_make_arguments(const struct attachment *attachment, const struct options *options,
                           struct fuse_args *args);

/* Mounts. Returns false after saying what is wrong. */
bool attach_begin(struct attachment *attachment, const struct options *options,
                  struct server *server);

/*
 * Unmounts if that has not happened, closes the session and the file system, and lets those go
 * that wait for it. Frees `server`.
 */
void attach_end(struct attachment *attachment, struct server *server);

#endif
