/* SPDX-License-Identifier: MIT */
/*
 * `uext4 cat`: files to standard output, past stdio, in large pieces.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "message.h"
#include "session.h"

#define BUFFER_BYTES     (1u << 20)
#define BUFFER_ALIGNMENT 4096

const char cat_help[] =
    "Usage: uext4 cat [OPTIONS] IMAGE PATH...\n"
    "\n"
    "Writes the content of files to standard output. Symbolic links are followed\n"
    "inside the image. A PATH of the form '<12>' means inode number 12.\n"
    "\n" CLI_COMMON_HELP "\n"
    "Examples:\n"
    "  uext4 cat disk.img /etc/fstab\n"
    "  uext4 cat disk.img /var/lib/backup.tar | tar t\n";

/* Returns 0 or -errno of stdout. */
static int write_all(const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t count = write(STDOUT_FILENO, bytes, length);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -errno;
        bytes += count;
        length -= (size_t)count;
    }
    return 0;
}

/* Returns false if standard output takes no more. */
static bool cat_file(struct session *session, const char *path, char *buffer)
{
    struct uext4_inode *inode = NULL;
    uint64_t offset = 0;
    ssize_t count;
    int result = session_walk(session, path, 0, &inode);

    if (result < 0) {
        session_error(session, path, result);
        return true;
    }
    while ((count = uext4_read(inode, buffer, BUFFER_BYTES, offset)) > 0) {
        result = write_all(buffer, (size_t)count);
        if (result < 0)
            break;
        offset += (uint64_t)count;
    }
    if (count == -EINVAL)
        session_fail(session, path, "not a regular file");
    else if (count < 0)
        session_error(session, path, (int)count);
    if (result < 0)
        session_fail(session, NULL, "standard output: %s", message_error_text(result));
    uext4_inode_put(inode);
    return result == 0;
}

int cat_run(const struct command *command, int argc, char **argv)
{
    struct session session;
    void *buffer;

    session_begin(&session, command);
    while (session_option(&session, argc, argv, "", NULL) != -1)
        ;
    session_take_image(&session, argc, argv);
    if (optind >= argc)
        session_usage(&session, "no path given");
    if (session_open(&session) < 0)
        return session_end(&session);
    if (posix_memalign(&buffer, BUFFER_ALIGNMENT, BUFFER_BYTES) != 0) {
        session_error(&session, NULL, -ENOMEM);
        return session_end(&session);
    }
    while (optind < argc && cat_file(&session, argv[optind], buffer))
        optind++;
    free(buffer);
    return session_end(&session);
}
