/* SPDX-License-Identifier: MIT */
/*
 * Everything that goes to stderr: messages, and the status line of a running copy on a terminal.
 *
 * Threads: all functions may be called from any thread.
 */
#ifndef UEXT4_CLI_MESSAGE_H
#define UEXT4_CLI_MESSAGE_H

#include <stdbool.h>

/*
 * Prints "uext4: image: path: text". `image` and `path` may be NULL and are then left out. Bytes
 * that could command a terminal are escaped, wherever they come from.
 */
void message_print(const char *image, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The words for an error of the library or the host; `error` is a negative errno. */
const char *message_error_text(int error);

/* Flushes stdout; tells of it and returns false if that, or writing before it, has failed. */
bool message_flush_stdout(void);

/* Shows a status line at the bottom of the terminal, in place of the one before it. */
void message_status(const char *text);

/* Takes the status line away. */
void message_status_clear(void);

#endif
