/* SPDX-License-Identifier: MIT */
/*
 * Messages and the status line, on stderr.
 *
 * A message goes out as one write, after the status line has been taken away; the next update
 * draws that again. One mutex orders all of it.
 * Called by all commands, and by the library's threads through the log function of a session.
 */
#include "message.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

#define LINE_MAX_BYTES 8192

static pthread_mutex_t message_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_status_shown; /* message_lock */

static void clear_status_locked(void)
{
    if (is_status_shown)
        fputs("\r\033[K", stderr);
    is_status_shown = false;
}

static void put_part_locked(const char *part)
{
    if (!part)
        return;
    text_write(stderr, part, strlen(part), TEXT_MESSAGE);
    fputs(": ", stderr);
}

void message_print(const char *image, const char *path, const char *format, ...)
{
    char text[LINE_MAX_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);

    pthread_mutex_lock(&message_lock);
    clear_status_locked();
    flockfile(stderr);
    fputs("uext4: ", stderr);
    put_part_locked(image);
    put_part_locked(path);
    text_write(stderr, text, strlen(text), TEXT_MESSAGE);
    putc('\n', stderr);
    fflush(stderr);
    funlockfile(stderr);
    pthread_mutex_unlock(&message_lock);
}

const char *message_error_text(int error)
{
    switch (error) {
    case -EUCLEAN:
        return "the file system is damaged here";
    case -EBADMSG:
        return "a checksum does not match";
    case -EOPNOTSUPP:
        return "not supported by this version";
    case -ENOKEY:
        return "encrypted, and there is no key for it";
    case -ESTALE:
        return "the inode is not in use";
    default:
        return strerrordesc_np(-error) ? strerrordesc_np(-error) : "unknown error";
    }
}

bool message_flush_stdout(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    message_print(NULL, NULL, "standard output: %s", message_error_text(-(errno ? errno : EIO)));
    return false;
}

void message_status(const char *text)
{
    pthread_mutex_lock(&message_lock);
    fputs("\r", stderr);
    text_write(stderr, text, strlen(text), TEXT_MESSAGE);
    fputs("\033[K", stderr);
    fflush(stderr);
    is_status_shown = true;
    pthread_mutex_unlock(&message_lock);
}

void message_status_clear(void)
{
    pthread_mutex_lock(&message_lock);
    clear_status_locked();
    fflush(stderr);
    pthread_mutex_unlock(&message_lock);
}
