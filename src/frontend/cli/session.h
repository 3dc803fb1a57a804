/* SPDX-License-Identifier: MIT */
/*
 * One run of a command on one image: its options, the open file system, and how its errors are
 * told. Used in this order: session_begin, session_option until -1, session_take_image,
 * session_open, session_end. Commands that change the image use session_begin_change instead of
 * session_begin; the rest is the same.
 *
 * Threads: session_error and session_warn from any thread, the rest by one.
 */
#ifndef UEXT4_CLI_SESSION_H
#define UEXT4_CLI_SESSION_H

#include <getopt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uext4.h>

#include "cli.h"

struct session {
    const struct command *command;
    struct uext4_mount_options mount;
    const char *image; /* as the user wrote it */
    char *spec;        /* the image with the partition or offset that the options add */
    struct uext4 *fs;
    uint64_t offset;
    uint64_t partition; /* 0: none given */
    bool has_offset;
    bool is_changing; /* the image is opened for writing */
    bool is_quiet;
    unsigned int verbosity;
    atomic_bool has_failed; /* an error was told */
    atomic_bool has_logged; /* the library told an error */
};

void session_begin(struct session *session, const struct command *command);

/* The same for a command that changes the image; it takes no option that speaks against that. */
void session_begin_change(struct session *session, const struct command *command);

/*
 * The next option of the command's own, as getopt_long returns it, or -1 at the end. Takes the
 * common options itself; --help and a wrong option end the program. `longs` ends with zeros.
 */
int session_option(struct session *session, int argc, char **argv, const char *shorts,
                   const struct option *longs);

/* Tells of a wrong command line and ends the program with CLI_USAGE. */
_Noreturn void session_usage(const struct session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Takes the next argument as the image and makes the spec. Ends the program if there is none. */
void session_take_image(struct session *session, int argc, char **argv);

/* Opens the image. Returns 0, or -errno after telling of it. */
int session_open(struct session *session);

/* Tells that the image could not be opened, unless the library has done so. */
void session_open_error(struct session *session, int error);

/*
 * Makes changes durable, closes the image, flushes stdout, and returns the exit code of the
 * command: CLI_GOOD only if all of that went well.
 */
int session_end(struct session *session);

/* Tells that `path` (may be NULL) failed with `error`, a negative errno; the exit code is then 1.
 */
void session_error(struct session *session, const char *path, int error);

/* The same with words of its own. */
void session_fail(struct session *session, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Tells something that is no failure, unless quiet. */
void session_warn(const struct session *session, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Finds an inode by a path, or by its number in the form "<12>". Returns 0 or -errno, and tells
 * nothing.
 */
int session_walk(struct session *session, const char *path, unsigned int flags,
                 struct uext4_inode **inode);

#endif
