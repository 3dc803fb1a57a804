/* SPDX-License-Identifier: MIT */
/*
 * Where a name of an image stands: the directory, and the name in it. What the commands that change
 * names work on.
 *
 * Threads: one at a time.
 */
#ifndef UEXT4_CLI_PLACE_H
#define UEXT4_CLI_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <uext4.h>

#include "session.h"

struct place {
    struct uext4_inode *dir; /* a reference */
    const char *name;        /* not terminated; part of the path that was given */
    size_t length;
};

/*
 * Finds the directory that a path's last name stands in; the name itself need not exist. A slash at
 * the end is taken only with `is_directory`. Returns 0, or -errno after telling of it.
 */
int place_find(struct session *session, const char *path, bool is_directory, struct place *place);

/*
 * Finds where `source` goes if `dest` is the destination: into it under its own last name if `dest`
 * is a directory, else to `dest` itself, unless `needs_directory`. Returns 0, or -errno after
 * telling of it.
 */
int place_find_target(struct session *session, const char *dest, const char *source,
                      bool needs_directory, bool is_directory, struct place *place);

void place_release(struct place *place);

/* The inode at a place, symbolic links not followed. Returns 0 or -errno, and tells nothing. */
int place_lookup(const struct place *place, struct uext4_inode **inode, struct uext4_stat *stat);

/* Unlinks what is at a place and no directory; nothing there is no error. 0 or -errno. */
int place_clear(const struct place *place);

#endif
