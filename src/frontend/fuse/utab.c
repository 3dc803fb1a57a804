/* SPDX-License-Identifier: MIT */
/*
 * Entries in mount(8)'s own table, made by running mount(8) with --fake.
 *
 * The mount must not exist yet, or not any more: nobody would answer if the programs looked at it.
 * Callers: attach.c.
 */
#include "utab.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Runs a program without a terminal. Returns true if it ended well. */
static bool run_silently(const char *const *argv)
{
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t child;
    int rc;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return false;
    rc = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    if (rc == 0)
        rc = posix_spawnp(&child, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    while (rc == 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return rc == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool utab_enter(const char *source, const char *mountpoint)
{
    return run_silently((const char *const[]){"mount", "--fake", "--internal-only",
                                              "--no-canonicalize", "-t", "fuse.uext4", "-o",
                                              "ro,uhelper=uext4", "--", source, mountpoint, NULL});
}

void utab_remove(const char *mountpoint)
{
    run_silently((const char *const[]){"umount", "--fake", "--internal-only", "--no-canonicalize",
                                       "--", mountpoint, NULL});
}
