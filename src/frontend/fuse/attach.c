/* SPDX-License-Identifier: MIT */
/*
 * Attaches a session to a mountpoint.
 *
 * Root mounts by itself, because libfuse does not tell why mount(2) failed: a block device becomes
 * a `fuseblk` mount, which makes umount(2) wait until the device is closed and keeps others from
 * mounting it, and falls back to a plain `fuse` mount where the kernel does not take it. libfuse
 * then gets the open connection. Everybody else goes through libfuse and fusermount3.
 */
#include "attach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lifeline.h"
#include "mount_log.h"
#include "mountinfo.h"
#include "utab.h"

bool attach_check(struct attachment *attachment, const char *mountpoint)
{
    struct stat stat_of_mountpoint;

    if (realpath(mountpoint, attachment->mountpoint) == NULL ||
        stat(attachment->mountpoint, &stat_of_mountpoint) != 0) {
        if (errno == ENOENT)
            mount_log_print(UEXT4_LOG_ERROR, "mountpoint %s does not exist", mountpoint);
        else if (errno == ENOTCONN)
            mount_log_print(UEXT4_LOG_ERROR,
                            "mountpoint %s holds a mount whose server is gone; unmount it first",
                            mountpoint);
        else
            mount_log_print(UEXT4_LOG_ERROR, "mountpoint %s: %s", mountpoint, strerror(errno));
        return false;
    }
    if (!S_ISDIR(stat_of_mountpoint.st_mode)) {
        mount_log_print(UEXT4_LOG_ERROR, "mountpoint %s is not a directory", mountpoint);
        return false;
    }
    return true;
}

/* Adds "KEY=VALUE" or "KEY" to an option list, with commas and backslashes of the value escaped. */
static bool add_option(char **list, const char *key, const char *value)
{
    size_t old_length = *list != NULL ? strlen(*list) : 0;
    char *longer = realloc(*list, old_length + strlen(key) + 2 * strlen(value) + 2);
    char *at;

    if (longer == NULL)
        return false;
    *list = longer;
    at = longer + old_length;
    if (old_length != 0)
        *at++ = ',';
    at = stpcpy(at, key);
    for (; *value != '\0'; value++) {
        if (*value == ',' || *value == '\\')
            *at++ = '\\';
        *at++ = *value;
    }
    *at = '\0';
    return true;
}

static bool add_fusermount_options(const struct attachment *attachment,
                                   const struct options *options, char **list)
{
    static const struct {
        unsigned long flag;
        const char *name;
    } names[] = {
        {MS_NOEXEC, "noexec"},
        {MS_NOATIME, "noatime"},
        {MS_NODIRATIME, "nodiratime"},
        {MS_SYNCHRONOUS, "sync"},
    };
    bool is_good = add_option(list, "ro", "") && add_option(list, "default_permissions", "") &&
                   add_option(list, "subtype=uext4", "") &&
                   add_option(list, "fsname=", attachment->source);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && is_good; i++)
        if ((options->mount_flags & names[i].flag) != 0)
            is_good = add_option(list, names[i].name, "");
    if (is_good && options->access == OPTIONS_ACCESS_ALL)
        is_good = add_option(list, "allow_other", "");
    return is_good;
}

bool attach_make_arguments(const struct attachment *attachment, const struct options *options,
                           struct fuse_args *args)
{
    char max_read[32];
    char *list = NULL;
    bool is_good;

    snprintf(max_read, sizeof(max_read), "%d", SERVER_MAX_TRANSFER_BYTES);
    is_good = add_option(&list, "max_read=", max_read);
    if (is_good && !attachment->is_privileged)
        is_good = add_fusermount_options(attachment, options, &list);
    is_good = is_good && fuse_opt_add_arg(args, "uext4") == 0 &&
              fuse_opt_add_arg(args, "-o") == 0 && fuse_opt_add_arg(args, list) == 0;
    free(list);
    return is_good;
}

/* Calls mount(2) with one of FUSE's types. Returns 0 or -errno. */
static int mount_type(const struct attachment *attachment, const struct options *options,
                      const char *type, int fd)
{
    bool is_fuseblk = strncmp(type, "fuseblk", strlen("fuseblk")) == 0;
    char data[256], block_size[32] = "";

    if (is_fuseblk)
        snprintf(block_size, sizeof(block_size), ",blksize=%u",
                 attachment->block_bytes < 4096 ? attachment->block_bytes : 4096);
    snprintf(data, sizeof(data),
             "fd=%d,rootmode=%o,user_id=%u,group_id=%u,default_permissions%s,max_read=%d%s", fd,
             S_IFDIR, getuid(), getgid(),
             options->access != OPTIONS_ACCESS_OWNER ? ",allow_other" : "",
             SERVER_MAX_TRANSFER_BYTES, block_size);
    if (mount(attachment->source, attachment->mountpoint, type, options->mount_flags, data) != 0)
        return -errno;
    return 0;
}

/* Tells whether the kernel should open the block device for a fuseblk mount. */
static bool is_fuseblk_possible(const struct attachment *attachment)
{
    struct stat device;

    if (!attachment->is_block_device || stat(attachment->source, &device) != 0)
        return false;
    /* A second fuseblk mount would show the first one's file system again and ask us nothing. */
    return !mountinfo_has_device(major(device.st_rdev), minor(device.st_rdev), "fuseblk");
}

static bool mount_privileged(struct attachment *attachment, const struct options *options,
                             struct server *server)
{
    char connection[32];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    int rc = -EINVAL;

    if (fd < 0) {
        mount_log_print(UEXT4_LOG_ERROR, "/dev/fuse: %s; is the kernel's fuse module loaded?",
                        strerror(errno));
        return false;
    }
    if (is_fuseblk_possible(attachment)) {
        rc = mount_type(attachment, options, "fuseblk.uext4", fd);
        if (rc == -EBUSY && !attachment->is_part) {
            mount_log_print(UEXT4_LOG_ERROR, "%s is in use: mounted, or part of another device",
                            attachment->source);
            close(fd);
            return false;
        }
    }
    if (rc != 0) {
        attachment->is_in_utab = utab_enter(attachment->source, attachment->mountpoint);
        rc = mount_type(attachment, options, "fuse.uext4", fd);
    }
    if (rc != 0) {
        mount_log_print(UEXT4_LOG_ERROR, "cannot mount on %s: %s", attachment->mountpoint,
                        strerror(-rc));
        close(fd);
        return false;
    }
    attachment->is_attached = true;
    snprintf(connection, sizeof(connection), "/dev/fd/%d", fd);
    return fuse_session_mount(server->session, connection) == 0;
}

/* Lets unmounters wait for us. The mount works without that too. */
static void hold_lifeline(struct attachment *attachment)
{
    struct mountinfo *mounted = malloc(sizeof(*mounted));
    int rc = mounted != NULL ? mountinfo_find(attachment->mountpoint, mounted) : -ENOMEM;

    if (rc == 0)
        rc = lifeline_listen(mounted->major, mounted->minor);
    if (rc >= 0)
        attachment->lifeline = rc;
    else
        mount_log_print(UEXT4_LOG_WARNING, "unmounting will not wait for the end: %s",
                        strerror(-rc));
    free(mounted);
}

bool attach_begin(struct attachment *attachment, const struct options *options,
                  struct server *server)
{
    attachment->lifeline = -1;
    if (attachment->is_privileged) {
        if (!mount_privileged(attachment, options, server))
            return false;
    } else {
        if (fuse_session_mount(server->session, attachment->mountpoint) != 0) {
            mount_log_print(UEXT4_LOG_ERROR, "cannot mount on %s", attachment->mountpoint);
            return false;
        }
        attachment->is_attached = true;
    }
    hold_lifeline(attachment);
    return true;
}

/* The kernel ends the connection when the last mount of the file system has gone. */
static bool is_connection_alive(struct server *server)
{
    struct pollfd connection = {.fd = fuse_session_fd(server->session)};

    return poll(&connection, 1, 0) == 0 || (connection.revents & POLLERR) == 0;
}

void attach_end(struct attachment *attachment, struct server *server)
{
    bool is_mounted = attachment->is_attached && is_connection_alive(server);

    if (attachment->is_attached && !attachment->is_privileged)
        fuse_session_unmount(server->session);
    /*
     * The connection is closed first: the unmount of a fuseblk mount waits for an answer that no
     * thread would give any more.
     */
    server_destroy(server);
    if (is_mounted && attachment->is_privileged)
        umount2(attachment->mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW);
    attachment->is_attached = false;
    if (attachment->is_in_utab)
        utab_remove(attachment->mountpoint);
    attachment->is_in_utab = false;
    if (attachment->lifeline >= 0)
        close(attachment->lifeline);
    attachment->lifeline = -1;
}
