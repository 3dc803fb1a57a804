/* SPDX-License-Identifier: MIT */
/*
 * Files, symbolic links, hard links, devices, fifos and sockets into an image; see put.h.
 *
 * The host's file is opened before anything in the image is touched. What stands in the way in the
 * image and is no directory is unlinked then, so that a new file never shares an inode with an old
 * one. A file whose contents cannot be copied is taken away again: a file that is there is whole.
 * Called by put_tree.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "message.h"
#include "put.h"

#define BUFFER_BYTES     (1u << 20)
#define BUFFER_ALIGNMENT 4096
#define TARGET_BYTES     4097 /* of a symbolic link of the host, and one more */

/* Files of one inode number, on different devices of the host. */
struct put_link {
    struct put_link *next;
    dev_t device;
    uint64_t names_left;
    struct uext4_inode *inode; /* NULL when all names have come by */
};

int put_begin(struct put *put, struct session *session, const struct put_options *options,
              struct progress *progress)
{
    void *buffer;

    *put = (struct put){.session = session, .options = *options, .progress = progress};
    if (posix_memalign(&buffer, BUFFER_ALIGNMENT, BUFFER_BYTES) != 0)
        return -ENOMEM;
    put->buffer = buffer;
    put->has_image = stat(session->image, &put->image) == 0;
    return 0;
}

void put_end(struct put *put)
{
    for (size_t i = 0; i < put->links.capacity; i++) {
        struct put_link *link = put->links.slots[i].value;

        while (link) {
            struct put_link *next = link->next;

            uext4_inode_put(link->inode);
            free(link);
            link = next;
        }
    }
    inode_map_clear(&put->links, false);
    free(put->path.text);
    free(put->buffer);
}

void put_fail(struct put *put, int error)
{
    session_fail(put->session, put->path.text, "%s", message_error_text(error));
    if (error != -ENOSPC && error != -EROFS)
        return;
    if (!put->is_stopped)
        session_fail(put->session, NULL, "what is left is not copied");
    put->is_stopped = true;
}

int put_attributes(struct put *put, struct uext4_inode *inode, const struct stat *stat)
{
    const struct put_options *options = &put->options;
    unsigned int mask = UEXT4_SET_UID | UEXT4_SET_GID | UEXT4_SET_ACCESS_TIME |
                        UEXT4_SET_MODIFY_TIME;
    struct uext4_stat wanted = {
        .mode = stat->st_mode & 07777,
        .uid = options->owner.has_uid ? options->owner.uid : stat->st_uid,
        .gid = options->owner.has_gid ? options->owner.gid : stat->st_gid,
        .access_time = options->has_time ? options->time : stat->st_atim,
        .modify_time = options->has_time ? options->time : stat->st_mtim,
        .change_time = options->time,
    };

    if (!S_ISLNK(stat->st_mode))
        mask |= UEXT4_SET_MODE;
    if (options->has_time)
        mask |= UEXT4_SET_CHANGE_TIME;
    return uext4_set_attributes(inode, &wanted, mask);
}

void put_directory_time(struct put *put, struct uext4_inode *dir)
{
    struct uext4_stat wanted = {.modify_time = put->options.time, .change_time = put->options.time};
    int result;

    if (!put->options.has_time)
        return;
    result = uext4_set_attributes(dir, &wanted, UEXT4_SET_MODIFY_TIME | UEXT4_SET_CHANGE_TIME);
    if (result < 0)
        put_fail(put, result);
}

void put_look_for_xattrs(struct put *put, int fd)
{
    if (put->session->verbosity == 0 || put->has_told_xattrs || flistxattr(fd, NULL, 0) <= 0)
        return;
    put->has_told_xattrs = true;
    session_warn(put->session, put->path.text,
                 "has extended attributes, which are not copied (told once)");
}

static struct put_link *find_link(const struct put *put, const struct stat *stat)
{
    void **value = inode_map_find(&put->links, stat->st_ino);
    struct put_link *link = value ? *value : NULL;

    while (link && link->device != stat->st_dev)
        link = link->next;
    return link;
}

/* Keeps a reference to a file whose other names may come. Without memory they become copies. */
static void remember_link(struct put *put, const struct stat *stat, struct uext4_inode *inode)
{
    struct put_link *link = find_link(put, stat);
    void **value;

    if (!link) {
        link = calloc(1, sizeof(*link));
        if (!link || stat->st_ino == 0 || inode_map_add(&put->links, stat->st_ino) < 0) {
            free(link);
            return;
        }
        value = inode_map_find(&put->links, stat->st_ino);
        link->device = stat->st_dev;
        link->next = *value;
        *value = link;
    }
    uext4_inode_put(link->inode);
    link->inode = uext4_inode_ref(inode);
    link->names_left = (uint64_t)stat->st_nlink - 1;
}

/* Makes one more name of a file that was put before. Returns false if it has to be copied. */
static bool link_to_first(struct put *put, const struct stat *stat, const struct place *place)
{
    struct put_link *link = find_link(put, stat);
    struct uext4_stat wanted = {.change_time = put->options.time};
    int result;

    if (!link || !link->inode)
        return false;
    result = place_clear(place);
    if (result == 0)
        result = uext4_link(link->inode, place->dir, place->name, place->length);
    /* Too many names, or the first ones were replaced meanwhile. */
    if (result == -EMLINK || result == -ENOENT)
        return false;
    if (result == 0 && put->options.has_time)
        result = uext4_set_attributes(link->inode, &wanted, UEXT4_SET_CHANGE_TIME);
    if (result < 0)
        put_fail(put, result);
    if (--link->names_left == 0) {
        uext4_inode_put(link->inode);
        link->inode = NULL;
    }
    return true;
}

/* Copies [offset, end). Returns false after telling of an error. */
static bool put_range(struct put *put, int fd, struct uext4_inode *inode, uint64_t offset,
                      uint64_t end)
{
    while (offset < end) {
        size_t wanted = end - offset < BUFFER_BYTES ? (size_t)(end - offset) : BUFFER_BYTES;
        ssize_t count = pread(fd, put->buffer, wanted, (off_t)offset), done = 0;

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            session_fail(put->session, put->path.text, "cannot read: %s",
                         count < 0 ? message_error_text(-errno) : "it has become shorter");
            return false;
        }
        while (done < count) {
            ssize_t written = uext4_write(inode, put->buffer + done, (size_t)(count - done),
                                          offset + (uint64_t)done);

            if (written <= 0) {
                put_fail(put, written < 0 ? (int)written : -ENOSPC);
                return false;
            }
            done += written;
        }
        offset += (uint64_t)count;
        progress_add(put->progress, (uint64_t)count, 0);
    }
    return true;
}

/*
 * The next range of the host's file that holds data, [*start, *end), *start == size if there is
 * none. A host that does not know of holes has data all through.
 */
static void find_data(int fd, uint64_t size, uint64_t offset, uint64_t *start, uint64_t *end)
{
    off_t data = lseek(fd, (off_t)offset, SEEK_DATA), hole;

    *start = offset;
    *end = size;
    if (data < 0 && errno == ENXIO)
        *start = size;
    if (data < (off_t)offset)
        return;
    *start = (uint64_t)data < size ? (uint64_t)data : size;
    hole = lseek(fd, data, SEEK_HOLE);
    if (hole > data && (uint64_t)hole < size)
        *end = (uint64_t)hole;
}

/* Returns false after telling of an error. */
static bool put_contents(struct put *put, int fd, const struct stat *stat,
                         struct uext4_inode *inode)
{
    uint64_t size = (uint64_t)stat->st_size, offset = 0, start = 0, end = 0;

    while (offset < size) {
        find_data(fd, size, offset, &start, &end);
        if (!put_range(put, fd, inode, start, end))
            return false;
        offset = end;
    }
    if (size > 0 && start == size) {
        int result = uext4_truncate(inode, size);

        if (result < 0) {
            put_fail(put, result);
            return false;
        }
    }
    return true;
}

/* Makes the inode at a place that is free. Returns 0 or -errno. */
static int make_inode(const struct place *place, const struct stat *stat, const char *target,
                      struct uext4_inode **inode)
{
    struct uext4_new_inode what = {
        .mode = stat->st_mode,
        .uid = stat->st_uid,
        .gid = stat->st_gid,
    };

    if (S_ISLNK(stat->st_mode))
        return uext4_symlink(place->dir, place->name, place->length, target, strlen(target), &what,
                             inode);
    if (S_ISCHR(stat->st_mode) || S_ISBLK(stat->st_mode)) {
        what.rdev_major = major(stat->st_rdev);
        what.rdev_minor = minor(stat->st_rdev);
    }
    return uext4_create(place->dir, place->name, place->length, &what, inode);
}

/* Makes what the host's file is, with contents and attributes; `fd` is that of a regular file. */
static void make_node(struct put *put, int fd, const char *target, const struct stat *stat,
                      const struct place *place)
{
    struct uext4_inode *inode;
    bool is_whole = true;
    int result = place_clear(place);

    if (result == 0)
        result = make_inode(place, stat, target, &inode);
    if (result == -EISDIR) {
        session_fail(put->session, put->path.text, "the target exists and is a directory");
        return;
    }
    if (result < 0) {
        put_fail(put, result);
        return;
    }
    if (fd >= 0)
        is_whole = put_contents(put, fd, stat, inode);
    if (is_whole) {
        result = put_attributes(put, inode, stat);
        if (result < 0)
            put_fail(put, result);
        if (stat->st_nlink > 1)
            remember_link(put, stat, inode);
    } else {
        result = uext4_unlink(place->dir, place->name, place->length);
        if (result < 0)
            put_fail(put, result);
    }
    uext4_inode_put(inode);
}

/*
 * Opens a regular file of the host, which must still be what was found, and reads its state anew.
 * Returns the descriptor, or -1 after telling of it.
 */
static int open_file(struct put *put, int dir_fd, const char *name, struct stat *stat)
{
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = openat(dir_fd, name, flags);
    struct stat found = *stat;

    if (fd < 0 || fstat(fd, stat) < 0) {
        session_fail(put->session, put->path.text, "cannot open: %s", message_error_text(-errno));
    } else if (!S_ISREG(stat->st_mode) || stat->st_ino != found.st_ino ||
               stat->st_dev != found.st_dev) {
        session_fail(put->session, put->path.text, "was replaced while it was read");
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

void put_node(struct put *put, int dir_fd, const char *name, const struct stat *found,
              const struct place *place)
{
    char target[TARGET_BYTES] = "";
    struct stat stat = *found;
    int fd = -1;

    if (put->has_image && stat.st_ino == put->image.st_ino && stat.st_dev == put->image.st_dev) {
        session_fail(put->session, put->path.text, "is the image itself, not copied");
        return;
    }
    if (stat.st_nlink > 1 && link_to_first(put, &stat, place)) {
        progress_add(put->progress, 0, 1);
        return;
    }
    if (S_ISREG(stat.st_mode)) {
        fd = open_file(put, dir_fd, name, &stat);
        if (fd < 0)
            return;
        put_look_for_xattrs(put, fd);
    } else if (S_ISLNK(stat.st_mode)) {
        ssize_t length = readlinkat(dir_fd, name, target, sizeof(target));

        if (length <= 0 || length == (ssize_t)sizeof(target)) {
            session_fail(put->session, put->path.text, "cannot read the link: %s",
                         message_error_text(length < 0 ? -errno : -ENAMETOOLONG));
            return;
        }
        target[length] = '\0';
    }
    make_node(put, fd, target, &stat, place);
    if (fd >= 0)
        close(fd);
    progress_add(put->progress, 0, 1);
}
