/* SPDX-License-Identifier: MIT */
/*
 * Making of files, symbolic links, hard links, devices, fifos and sockets.
 *
 * What stands in the way and is no directory is unlinked first, so that a new file never shares an
 * inode with an old one, and nothing is written through a link. Files with several names are
 * remembered by the path of their first copy; the next names become links to it, or copies where
 * that does not work.
 * Called by copy.c.
 */
#include "copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "message.h"

#define TARGET_BYTES    4096  /* the host takes no longer targets */
#define LINK_PATH_BYTES 16384 /* longer paths of first copies are not remembered */

struct copy_link {
    uint32_t names_left;
    char path[]; /* below the root */
};

/* One try at making a node; 0 or a descriptor, or -errno. */
static int try_node(const struct uext4_stat *stat, const char *link_target, int dir_fd,
                    const char *name)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int result;

    if (S_ISREG(stat->mode))
        result = openat(dir_fd, name, flags, 0600);
    else if (S_ISLNK(stat->mode))
        result = symlinkat(link_target, dir_fd, name);
    else
        result = mknodat(dir_fd, name, stat->mode & S_IFMT,
                         makedev(stat->rdev_major, stat->rdev_minor));
    return result < 0 ? -errno : result;
}

static int make_node(const struct uext4_stat *stat, const char *link_target, int dir_fd,
                     const char *name)
{
    int result = try_node(stat, link_target, dir_fd, name);

    if (result != -EEXIST)
        return result;
    if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
        return -errno;
    return try_node(stat, link_target, dir_fd, name);
}

/* Opens the directory of a path below the root, following no links. */
static int open_parent(int root_fd, const char *path, const char **name)
{
    int fd = openat(root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *slash;

    while (fd >= 0 && (slash = strchr(path, '/')) != NULL) {
        char part[UEXT4_NAME_MAX + 1];
        size_t length = (size_t)(slash - path);
        int next = -1;

        errno = ENAMETOOLONG;
        if (length < sizeof(part)) {
            memcpy(part, path, length);
            part[length] = '\0';
            next = openat(fd, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        close(fd);
        fd = next;
        path = slash + 1;
    }
    *name = path;
    return fd;
}

/* Makes one more name of a file that was copied before. Returns false if it has to be copied. */
static bool link_to_copy(struct copy *copy, uint64_t ino, int dir_fd, const char *name)
{
    void **value = inode_map_find(&copy->links, ino);
    struct copy_link *known = value ? *value : NULL;
    const char *first_name;
    int fd, result;

    if (!known || strcmp(known->path, copy->target.text) == 0)
        return false;
    fd = open_parent(copy->root_fd, known->path, &first_name);
    if (fd < 0)
        return false;
    result = linkat(fd, first_name, dir_fd, name, 0) < 0 ? -errno : 0;
    if (result == -EEXIST && unlinkat(dir_fd, name, 0) == 0)
        result = linkat(fd, first_name, dir_fd, name, 0) < 0 ? -errno : 0;
    close(fd);
    if (result < 0 && copy_tell_once(copy, COPY_TOLD_LINK))
        session_warn(copy->session, copy->source.text, "hard links become copies: %s (told once)",
                     message_error_text(result));
    if (result == 0 && --known->names_left == 0) {
        free(known);
        *value = NULL;
    }
    return result == 0;
}

static void remember_copy(struct copy *copy, const struct uext4_stat *stat)
{
    struct copy_link *known;
    void **value;

    if (copy->target.length > LINK_PATH_BYTES || inode_map_add(&copy->links, stat->ino) < 0)
        return;
    known = malloc(sizeof(*known) + copy->target.length + 1);
    value = inode_map_find(&copy->links, stat->ino);
    if (!known || !value) {
        free(known);
        return;
    }
    known->names_left = stat->link_count - 1;
    memcpy(known->path, copy->target.text, copy->target.length + 1);
    free(*value);
    *value = known;
}

/* Reads the target of a symbolic link as the host takes it. Returns 0 or -errno. */
static int read_target(struct uext4_inode *inode, char target[TARGET_BYTES])
{
    ssize_t length = uext4_readlink(inode, target, TARGET_BYTES);

    if (length < 0)
        return (int)length;
    if (length >= TARGET_BYTES)
        return -ENAMETOOLONG;
    if (length == 0 || memchr(target, '\0', (size_t)length))
        return -EUCLEAN;
    target[length] = '\0';
    return 0;
}

static void submit_contents(struct copy *copy, struct uext4_inode *inode,
                            const struct uext4_stat *stat, int fd)
{
    struct copy_job job = {
        .stat = *stat,
        .fd = fd,
        .path = strdup(copy->source.text),
    };

    if (!job.path) {
        session_error(copy->session, copy->source.text, -ENOMEM);
        close(fd);
        return;
    }
    job.inode = uext4_inode_ref(inode);
    copy_pool_submit(copy, &job);
}

static void tell_failure(struct copy *copy, const struct uext4_stat *stat, int error)
{
    const char *path = copy->source.text;

    if (error == -EPERM && (S_ISCHR(stat->mode) || S_ISBLK(stat->mode)))
        session_fail(copy->session, path, "skipped: only root may make devices");
    else if (error == -EISDIR)
        session_fail(copy->session, path, "the target exists and is a directory");
    else
        session_fail(copy->session, path, "cannot make it: %s", message_error_text(error));
}

static bool is_special(uint32_t mode)
{
    return S_ISCHR(mode) || S_ISBLK(mode) || S_ISFIFO(mode) || S_ISSOCK(mode);
}

void copy_node(struct copy *copy, struct uext4_inode *inode, const struct uext4_stat *stat,
               int dir_fd, const char *name)
{
    char link_target[TARGET_BYTES] = "";
    int result = 0;

    if (!S_ISREG(stat->mode) && !S_ISLNK(stat->mode) && !is_special(stat->mode)) {
        session_fail(copy->session, copy->source.text, "skipped: no known type of file");
        return;
    }
    if (is_special(stat->mode) && !copy->options.has_devices)
        return;
    if (stat->link_count > 1 && link_to_copy(copy, stat->ino, dir_fd, name)) {
        progress_add(copy->progress, 0, 1);
        return;
    }
    if (S_ISLNK(stat->mode))
        result = read_target(inode, link_target);
    if (result < 0) {
        session_error(copy->session, copy->source.text, result);
        return;
    }
    result = make_node(stat, link_target, dir_fd, name);
    if (result < 0) {
        tell_failure(copy, stat, result);
        return;
    }
    if (stat->link_count > 1)
        remember_copy(copy, stat);
    if (S_ISREG(stat->mode)) {
        submit_contents(copy, inode, stat, result);
    } else {
        copy_attributes(copy, inode, stat, -1, dir_fd, name, copy->source.text);
        progress_add(copy->progress, 0, 1);
    }
}
