/* SPDX-License-Identifier: MIT */
/*
 * The unmount command, and umount(8)'s helper. It takes hold of the server's lifeline, unmounts,
 * and waits until the server has closed the image.
 */
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lifeline.h"
#include "mount.h"
#include "mount_log.h"
#include "mount_status.h"
#include "mountinfo.h"
#include "utab.h"

enum { WAIT_STEP_MS = 250, WAIT_LIMIT_MS = 60 * 1000 };

extern char **environ;

struct request {
    const char *mountpoint;
    bool is_helper;
    bool is_lazy;
    bool is_forced;
};

static const char usage[] =
    "Usage: uext4 umount [OPTIONS] MOUNTPOINT\n"
    "Unmounts, and returns when the image is closed and its lock is gone.\n"
    "\n"
    "  -l, --lazy   take it out of the tree now, and close the image when nobody uses\n"
    "               it any more; does not wait\n"
    "  -f, --force  end requests that are under way with an error\n"
    "      --help   print this text\n";

static const struct option command_options[] = {
    {"lazy", no_argument, NULL, 'l'},
    {"force", no_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool read_command_line(struct request *request, int argc, char **argv)
{
    int option;

    optind = 1;
    while ((option = request->is_helper
                         ? getopt(argc, argv, "flnrvN:t:")
                         : getopt_long(argc, argv, "fl", command_options, NULL)) != -1) {
        switch (option) {
        case 'l':
            request->is_lazy = true;
            break;
        case 'f':
            request->is_forced = true;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        case 'n': /* no table of mounts is kept */
        case 'r': /* it is read-only already */
        case 'v':
        case 't':
            break;
        case 'N':
            mount_log_print(UEXT4_LOG_ERROR, "unmounting in another namespace is not supported");
            return false;
        default:
            return false;
        }
    }
    if (argc - optind != 1) {
        mount_log_print(UEXT4_LOG_ERROR, "one mountpoint is needed");
        return false;
    }
    request->mountpoint = argv[optind];
    return true;
}

/*
 * Finds the mount on a path. Symbolic links are resolved in the directory above only at first: the
 * mountpoint's own server may be dead.
 */
static bool find_mount(const char *mountpoint, struct mountinfo *mounted)
{
    char *for_dirname = strdup(mountpoint), *for_basename = strdup(mountpoint);
    char *parent = NULL, *whole = NULL, *joined = NULL;
    const char *name;
    int rc = -ENOENT;

    if (for_dirname == NULL || for_basename == NULL)
        goto out;
    name = basename(for_basename);
    parent = realpath(dirname(for_dirname), NULL);
    if (parent != NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
        asprintf(&joined, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name) >= 0)
        rc = mountinfo_find(joined, mounted);
    if (rc != 0) {
        whole = realpath(mountpoint, NULL);
        if (whole != NULL)
            rc = mountinfo_find(whole, mounted);
    }
out:
    free(joined);
    free(whole);
    free(parent);
    free(for_basename);
    free(for_dirname);
    return rc == 0;
}

/* Unmounts by the setuid program of FUSE. Returns true if that worked; it says itself why not. */
static bool run_fusermount(const struct request *request, const char *mountpoint)
{
    char program[] = "fusermount3", unmount[] = "-u", lazy[] = "-uz", end[] = "--";
    char *path = strdup(mountpoint);
    char *argv[] = {program, request->is_lazy ? lazy : unmount, end, path, NULL};
    int status = -1;
    pid_t child;
    int rc = path != NULL ? posix_spawnp(&child, program, NULL, NULL, argv, environ) : ENOMEM;

    if (rc != 0)
        mount_log_print(UEXT4_LOG_ERROR, "%s: %s", program, strerror(rc));
    while (rc == 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    free(path);
    return rc == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool unmount(const struct request *request, const char *mountpoint)
{
    int flags = UMOUNT_NOFOLLOW | (request->is_lazy ? MNT_DETACH : 0) |
                (request->is_forced ? MNT_FORCE : 0);

    if (geteuid() != 0)
        return run_fusermount(request, mountpoint);
    if (umount2(mountpoint, flags) == 0)
        return true;
    mount_log_print(UEXT4_LOG_ERROR, "%s: %s", mountpoint,
                    errno == EBUSY ? "still in use" : strerror(errno));
    return false;
}

/* Waits for the server's end. A mount that lives on in another place has one that does not end. */
static bool wait_for_server(struct lifeline *line, const struct mountinfo *mounted)
{
    for (int waited_ms = 0; waited_ms < WAIT_LIMIT_MS; waited_ms += WAIT_STEP_MS) {
        if (lifeline_wait(line, WAIT_STEP_MS) == 0)
            return true;
        if (mountinfo_has_device(mounted->major, mounted->minor, "fuse"))
            return true;
    }
    mount_log_print(UEXT4_LOG_ERROR,
                    "%s: unmounted, but its server still has the image open: another mount "
                    "namespace may hold it",
                    mounted->mountpoint);
    return false;
}

static int run(const struct request *request)
{
    struct mountinfo *mounted = malloc(sizeof(*mounted));
    struct lifeline line = {.fd = -1};
    bool is_good = false, has_line;

    if (mounted == NULL)
        goto out;
    if (!find_mount(request->mountpoint, mounted)) {
        mount_log_print(UEXT4_LOG_ERROR, "%s: nothing is mounted there", request->mountpoint);
        goto out;
    }
    if (strcmp(mounted->type, "fuse.uext4") != 0 && strcmp(mounted->type, "fuseblk.uext4") != 0) {
        mount_log_print(UEXT4_LOG_ERROR, "%s: not a mount of uext4 but of %s", request->mountpoint,
                        mounted->type);
        goto out;
    }
    has_line = lifeline_connect(&line, mounted->major, mounted->minor, mounted->user) == 0;
    if (!unmount(request, mounted->mountpoint))
        goto out;
    if (!has_line && geteuid() == 0)
        utab_remove(mounted->mountpoint); /* a server that was killed has not done it */
    is_good = request->is_lazy || !has_line || wait_for_server(&line, mounted);
out:
    lifeline_close(&line);
    free(mounted);
    return is_good ? 0 : mount_status_failed(request->is_helper);
}

int umount_main(int argc, char **argv)
{
    struct request request = {.is_helper = mount_status_is_helper(argv[0], "umount.")};

    if (read_command_line(&request, argc, argv))
        return run(&request);
    fputs("Try `uext4 umount --help`.\n", stderr);
    return mount_status_usage(request.is_helper);
}
