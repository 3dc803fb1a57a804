/* SPDX-License-Identifier: MIT */
/*
 * The walk of a put: directories are made on the way down and get their attributes on the way up.
 *
 * The walk keeps a stack of frames, each with an open descriptor of its source, which is DEPTH_MAX
 * high. The names of a directory are read all at once and sorted by their bytes.
 * Called by put.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "put.h"

#define DEPTH_MAX 1000

struct frame {
    struct uext4_inode *inode; /* the target */
    struct stat stat;          /* of the source */
    int fd;
    bool has_attributes_to_set;
    char **names;
    size_t count, next;
    size_t path_length; /* of the source, for the one above to return to */
};

struct walk {
    struct put *put;
    struct frame frames[DEPTH_MAX];
    unsigned int depth;
};

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static void free_names(struct frame *frame)
{
    for (size_t i = 0; i < frame->count; i++)
        free(frame->names[i]);
    free(frame->names);
    frame->names = NULL;
    frame->count = 0;
}

/* Adds a name; returns 0 or -ENOMEM. */
static int add_name(struct frame *frame, size_t *capacity, const char *name)
{
    if (frame->count == *capacity) {
        size_t wanted = *capacity ? *capacity * 2 : 64;
        void *grown = realloc(frame->names, wanted * sizeof(*frame->names));

        if (!grown)
            return -ENOMEM;
        frame->names = grown;
        *capacity = wanted;
    }
    frame->names[frame->count] = strdup(name);
    if (!frame->names[frame->count])
        return -ENOMEM;
    frame->count++;
    return 0;
}

/* Reads and sorts the names of the frame's directory. Returns 0 or -errno. */
static int read_names(struct frame *frame)
{
    int fd = openat(frame->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), result = 0;
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    size_t capacity = 0;

    if (!stream) {
        result = -errno;
        if (fd >= 0)
            close(fd);
        return result;
    }
    while (result == 0) {
        errno = 0;
        entry = readdir(stream);
        if (!entry) {
            result = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = add_name(frame, &capacity, entry->d_name);
    }
    closedir(stream);
    if (frame->count > 0)
        qsort(frame->names, frame->count, sizeof(*frame->names), compare_names);
    return result;
}

/*
 * Enters a directory; takes over `fd` and the reference to the target. One that cannot be read to
 * its end is copied as far as that went.
 */
static void push_frame(struct walk *walk, struct uext4_inode *inode, int fd,
                       const struct stat *stat, bool has_attributes_to_set)
{
    struct frame *frame = &walk->frames[walk->depth++];
    int result;

    *frame = (struct frame){
        .inode = inode, .stat = *stat, .fd = fd, .has_attributes_to_set = has_attributes_to_set};
    put_look_for_xattrs(walk->put, fd);
    result = read_names(frame);
    if (result < 0)
        session_fail(walk->put->session, walk->put->path.text, "cannot read: %s",
                     message_error_text(result));
}

static void pop_frame(struct walk *walk)
{
    struct frame *frame = &walk->frames[--walk->depth];
    struct put *put = walk->put;

    if (!frame->has_attributes_to_set) {
        put_directory_time(put, frame->inode);
    } else {
        int result = put_attributes(put, frame->inode, &frame->stat);

        if (result < 0)
            put_fail(put, result);
    }
    free_names(frame);
    close(frame->fd);
    uext4_inode_put(frame->inode);
    progress_add(put->progress, 0, 1);
}

/* Makes the directory at a place, or takes the one that is there. Returns 0 or -errno. */
static int make_directory(const struct stat *stat, const struct place *place,
                          struct uext4_inode **inode)
{
    struct uext4_new_inode what = {.mode = stat->st_mode, .uid = stat->st_uid, .gid = stat->st_gid};
    struct uext4_stat there;
    int result = uext4_mkdir(place->dir, place->name, place->length, &what, inode);

    if (result != -EEXIST)
        return result;
    result = place_lookup(place, inode, &there);
    if (result == 0 && !S_ISDIR(there.mode)) {
        uext4_inode_put(*inode);
        result = -ENOTDIR;
    }
    return result;
}

static int open_directory(int dir_fd, const char *name, struct stat *stat)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, stat) == 0)
        return fd < 0 ? -errno : fd;
    close(fd);
    return -EIO;
}

static void enter_directory(struct walk *walk, int dir_fd, const char *name,
                            const struct place *place)
{
    struct put *put = walk->put;
    struct uext4_inode *inode;
    struct stat stat;
    int fd, result;

    if (walk->depth == DEPTH_MAX) {
        session_fail(put->session, put->path.text, "nested too deep, not copied");
        return;
    }
    fd = open_directory(dir_fd, name, &stat);
    if (fd < 0) {
        session_fail(put->session, put->path.text, "cannot open: %s", message_error_text(fd));
        return;
    }
    result = make_directory(&stat, place, &inode);
    if (result == 0) {
        push_frame(walk, inode, fd, &stat, true);
        return;
    }
    close(fd);
    if (result == -ENOTDIR)
        session_fail(put->session, put->path.text, "the target exists and is no directory");
    else
        put_fail(put, result);
}

/* Puts the file at put->path, `name` in `dir_fd`, to a place. */
static void put_entry(struct walk *walk, int dir_fd, const char *name, const struct place *place)
{
    struct put *put = walk->put;
    struct stat stat;

    if (fstatat(dir_fd, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
        session_fail(put->session, put->path.text, "%s", message_error_text(-errno));
    else if (S_ISDIR(stat.st_mode))
        enter_directory(walk, dir_fd, name, place);
    else
        put_node(put, dir_fd, name, &stat, place);
}

static void walk_frames(struct walk *walk)
{
    struct put *put = walk->put;

    while (walk->depth > 0) {
        struct frame *frame = &walk->frames[walk->depth - 1];
        unsigned int depth = walk->depth;

        if (frame->next < frame->count && !put->is_stopped) {
            const char *name = frame->names[frame->next++];
            struct place place = {.dir = frame->inode, .name = name, .length = strlen(name)};

            frame->path_length = put->path.length;
            if (copy_path_push(&put->path, name, place.length) < 0)
                session_error(put->session, put->path.text, -ENOMEM);
            else
                put_entry(walk, frame->fd, name, &place);
            if (walk->depth == depth)
                copy_path_cut(&put->path, frame->path_length);
        } else {
            pop_frame(walk);
            if (walk->depth > 0)
                copy_path_cut(&put->path, walk->frames[walk->depth - 1].path_length);
        }
    }
}

/* Enters a directory whose contents go into `dir` itself. */
static void enter_root(struct walk *walk, const char *path, struct uext4_inode *dir)
{
    struct put *put = walk->put;
    struct stat stat;
    int fd = open_directory(AT_FDCWD, path, &stat);

    if (fd < 0)
        session_fail(put->session, put->path.text, "cannot open: %s", message_error_text(fd));
    else
        push_frame(walk, uext4_inode_ref(dir), fd, &stat, false);
}

void put_source(struct put *put, const char *path, struct uext4_inode *dir, const char *name)
{
    struct walk *walk = put->is_stopped ? NULL : calloc(1, sizeof(*walk));

    if (put->is_stopped)
        return;
    copy_path_cut(&put->path, 0);
    if (!walk || copy_path_push(&put->path, path, strlen(path)) < 0) {
        session_error(put->session, path, -ENOMEM);
        free(walk);
        return;
    }
    walk->put = put;
    if (name) {
        struct place place = {.dir = dir, .name = name, .length = strlen(name)};

        put_entry(walk, AT_FDCWD, path, &place);
    } else {
        enter_root(walk, path, dir);
    }
    walk_frames(walk);
    if (name)
        put_directory_time(put, dir);
    free(walk);
}
