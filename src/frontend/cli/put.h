/* SPDX-License-Identifier: MIT */
/*
 * Copying of files and trees of the host into an image. The host's trees are hostile too: they are
 * walked by descriptors, no symbolic link in them is followed, and what is opened is checked to be
 * what was found. The traversal is sorted and by one thread, so that the same input makes the same
 * changes in the same order.
 *
 *   put.c       options, and what goes where
 *   put_tree.c  walks the host's tree, makes directories
 *   put_file.c  makes files, links, devices; contents and attributes
 *
 * Threads: one.
 */
#ifndef UEXT4_CLI_PUT_H
#define UEXT4_CLI_PUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <time.h>
#include <uext4.h>

#include "copy.h"
#include "inode_map.h"
#include "mode.h"
#include "place.h"
#include "progress.h"
#include "session.h"

struct put_options {
    struct mode_owner owner; /* what it has takes the place of the host's */
    bool has_time;           /* all times become this one */
    struct timespec time;
};

struct put {
    struct session *session;
    struct put_options options;
    struct progress *progress;
    struct inode_map links; /* the host's inode -> struct put_link, of files with several names */
    struct copy_path path;  /* of the file at hand, on the host */
    char *buffer;           /* for contents */
    struct stat image;      /* the image's own file, which is never put into itself */
    bool has_image;
    bool has_told_xattrs;
    bool is_stopped; /* after an error that all that follows would meet as well */
};

/* Returns 0 or -ENOMEM. */
int put_begin(struct put *put, struct session *session, const struct put_options *options,
              struct progress *progress);

/*
 * Puts the host's file or tree `path` into `dir` under `name`, or with `name` NULL the contents of
 * a directory into `dir` itself. Errors are told and counted in the session.
 */
void put_source(struct put *put, const char *path, struct uext4_inode *dir, const char *name);

void put_end(struct put *put);

/* ---- Between the parts ---------------------------------------------------------------------- */

/* Tells that the file at hand failed with an error of the image, and whether to go on. */
void put_fail(struct put *put, int error);

/* Puts what is no directory, `name` in `dir_fd`, to a place. Tells its errors. */
void put_node(struct put *put, int dir_fd, const char *name, const struct stat *stat,
              const struct place *place);

/* Gives an inode the attributes of the host's file. Returns 0 or -errno. */
int put_attributes(struct put *put, struct uext4_inode *inode, const struct stat *stat);

/* With a fixed time, sets it as that of a directory that was there and has got names. */
void put_directory_time(struct put *put, struct uext4_inode *dir);

/* Says once that extended attributes stay behind, if `fd` has some and the user wants to know. */
void put_look_for_xattrs(struct put *put, int fd);

#endif
