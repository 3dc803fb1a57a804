/* SPDX-License-Identifier: MIT */
/*
 * The walk of a copy: directories are made on the way down and get their attributes on the way up.
 *
 * The walk keeps a stack of frames, each with an open descriptor of its target, and reads the names
 * of a directory in batches. Bounds against hostile images: a directory is entered once per source,
 * the stack is DEPTH_MAX high, a directory has no more entries than its size can hold, and all the
 * data of one source is no more than the device (ext4 shares no blocks).
 * Called by get.c.
 */
#include "copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"

#define DEPTH_MAX   1000
#define BATCH_BYTES 65536

/* An entry in a batch: this head, then the name and a NUL. */
struct batch_entry {
    uint64_t ino;
    uint16_t length;
};

struct frame {
    struct uext4_inode *inode;
    struct uext4_stat stat;
    int fd;
    bool has_attributes_to_set;
    bool is_at_end;
    uint64_t cookie;
    uint64_t entries_left;
    char *batch; /* NULL between batches */
    size_t batch_length, batch_offset;
    size_t source_length, target_length; /* of the paths, to return to */
};

struct walk {
    struct copy *copy;
    struct frame frames[DEPTH_MAX];
    unsigned int depth;
};

bool copy_tell_once(struct copy *copy, unsigned int bit)
{
    return !(atomic_fetch_or(&copy->told, bit) & bit);
}

int copy_path_push(struct copy_path *path, const char *name, size_t length)
{
    bool has_slash = path->length > 0 && path->text[path->length - 1] != '/';
    size_t wanted = path->length + has_slash + length + 1;

    if (wanted > path->capacity) {
        char *grown = realloc(path->text, wanted * 2);

        if (!grown)
            return -ENOMEM;
        path->text = grown;
        path->capacity = wanted * 2;
    }
    if (has_slash)
        path->text[path->length++] = '/';
    memcpy(path->text + path->length, name, length);
    path->length += length;
    path->text[path->length] = '\0';
    return 0;
}

void copy_path_cut(struct copy_path *path, size_t length)
{
    path->length = length;
    if (path->text)
        path->text[length] = '\0';
}

static bool add_to_batch(void *context, const struct uext4_dirent *entry)
{
    struct frame *frame = context;
    struct batch_entry head = {.ino = entry->ino, .length = entry->name_length};
    size_t length = sizeof(head) + head.length + 1;
    char *at = frame->batch + frame->batch_length;

    if (length > BATCH_BYTES - frame->batch_length)
        return false;
    if (frame->entries_left == 0)
        return false;
    frame->entries_left--;
    memcpy(at, &head, sizeof(head));
    memcpy(at + sizeof(head), entry->name, head.length);
    at[length - 1] = '\0';
    frame->batch_length += length;
    frame->cookie = entry->next_cookie;
    return true;
}

/* Reads the next names of the frame's directory; at the end it sets is_at_end. */
static void fill_batch(struct copy *copy, struct frame *frame)
{
    uint64_t cookie = frame->cookie;
    int result;

    frame->batch = malloc(BATCH_BYTES);
    frame->batch_length = frame->batch_offset = 0;
    result = frame->batch ? uext4_readdir(frame->inode, cookie, add_to_batch, frame) : -ENOMEM;
    if (result == 0 && frame->entries_left == 0)
        result = -EUCLEAN;
    if (result < 0) {
        session_error(copy->session, copy->source.text, result);
        frame->is_at_end = true;
    }
    if (frame->batch_length == 0)
        frame->is_at_end = true;
}

/* Makes or opens a directory of the host. Returns the descriptor or -errno. */
static int make_directory(int dir_fd, const char *name)
{
    int fd;

    if (mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Enters a directory whose target is open; takes over `fd`, and a reference to the inode. */
static void push_frame(struct walk *walk, struct uext4_inode *inode, const struct uext4_stat *stat,
                       int fd, bool has_attributes_to_set)
{
    walk->copy->directory_bytes_left -= stat->size < walk->copy->directory_bytes_left
                                            ? stat->size
                                            : walk->copy->directory_bytes_left;
    walk->frames[walk->depth++] = (struct frame){
        .inode = uext4_inode_ref(inode),
        .stat = *stat,
        .fd = fd,
        .has_attributes_to_set = has_attributes_to_set,
        .entries_left = stat->size / 8 + 16,
    };
}

static void pop_frame(struct walk *walk)
{
    struct frame *frame = &walk->frames[--walk->depth];
    struct copy *copy = walk->copy;

    if (frame->has_attributes_to_set)
        copy_attributes(copy, frame->inode, &frame->stat, frame->fd, -1, NULL, copy->source.text);
    close(frame->fd);
    free(frame->batch);
    uext4_inode_put(frame->inode);
    progress_add(copy->progress, 0, 1);
}

/* Copies a directory to `name` in `dir_fd`, which means: makes it and enters it. */
static void enter_directory(struct walk *walk, struct uext4_inode *inode,
                            const struct uext4_stat *stat, int dir_fd, const char *name)
{
    struct copy *copy = walk->copy;
    const char *path = copy->source.text;
    int fd, result;

    if (walk->depth == DEPTH_MAX) {
        session_fail(copy->session, path, "nested too deep, not copied");
        return;
    }
    if (stat->size > copy->directory_bytes_left) {
        session_fail(copy->session, path,
                     "more directories than the image has room for; not copied");
        return;
    }
    result = inode_map_add(&copy->seen, stat->ino);
    if (result == 0) {
        session_fail(copy->session, path,
                     "this directory has a second name, which damage alone explains; not copied");
        return;
    }
    if (result < 0) {
        session_error(copy->session, path, result);
        return;
    }
    fd = make_directory(dir_fd, name);
    if (fd == -ENOTDIR || fd == -ELOOP)
        session_fail(copy->session, path, "the target exists and is no directory");
    else if (fd < 0)
        session_fail(copy->session, path, "cannot make the directory: %s", message_error_text(fd));
    else
        push_frame(walk, inode, stat, fd, true);
}

static bool is_name_allowed(const char *name, size_t length)
{
    return length > 0 && !memchr(name, '/', length) && !memchr(name, '\0', length);
}

static bool is_dot_or_dots(const char *name, size_t length)
{
    return name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.'));
}

/* Copies what is at copy->source; returns false if that pushed a frame. */
static bool copy_inode(struct walk *walk, struct uext4_inode *inode, int dir_fd, const char *name)
{
    unsigned int depth = walk->depth;
    struct copy *copy = walk->copy;
    struct uext4_stat stat;
    int result = uext4_stat(inode, &stat);

    if (result < 0)
        session_error(copy->session, copy->source.text, result);
    else if (S_ISDIR(stat.mode))
        enter_directory(walk, inode, &stat, dir_fd, name);
    else
        copy_node(copy, inode, &stat, dir_fd, name);
    return walk->depth == depth;
}

static void copy_entry(struct walk *walk, struct frame *frame)
{
    struct copy *copy = walk->copy;
    const char *name = frame->batch + frame->batch_offset + sizeof(struct batch_entry);
    struct uext4_inode *inode;
    struct batch_entry head;
    int result;

    memcpy(&head, frame->batch + frame->batch_offset, sizeof(head));
    frame->batch_offset += sizeof(head) + head.length + 1;
    if (head.length > 0 && is_dot_or_dots(name, head.length))
        return;
    frame->source_length = copy->source.length;
    frame->target_length = copy->target.length;
    if (copy_path_push(&copy->source, name, head.length) < 0 ||
        copy_path_push(&copy->target, name, head.length) < 0) {
        session_error(copy->session, copy->source.text, -ENOMEM);
    } else if (!is_name_allowed(name, head.length)) {
        session_fail(copy->session, copy->source.text, "this name is refused");
    } else {
        result = uext4_inode_get(copy->session->fs, head.ino, &inode);
        if (result < 0) {
            session_error(copy->session, copy->source.text, result);
        } else {
            bool is_done = copy_inode(walk, inode, frame->fd, name);

            uext4_inode_put(inode);
            if (!is_done)
                return;
        }
    }
    copy_path_cut(&copy->source, frame->source_length);
    copy_path_cut(&copy->target, frame->target_length);
}

static void walk_frames(struct walk *walk)
{
    while (walk->depth > 0) {
        struct frame *frame = &walk->frames[walk->depth - 1];

        if (frame->batch && frame->batch_offset < frame->batch_length) {
            copy_entry(walk, frame);
        } else if (!frame->is_at_end) {
            free(frame->batch);
            frame->batch = NULL;
            fill_batch(walk->copy, frame);
        } else {
            pop_frame(walk);
            if (walk->depth > 0) {
                frame = &walk->frames[walk->depth - 1];
                copy_path_cut(&walk->copy->source, frame->source_length);
                copy_path_cut(&walk->copy->target, frame->target_length);
            }
        }
    }
}

/* Enters a directory whose contents go into the root itself. */
static void enter_root(struct walk *walk, struct uext4_inode *inode)
{
    struct copy *copy = walk->copy;
    struct uext4_stat stat;
    int result = uext4_stat(inode, &stat);
    int fd = -1;

    if (result == 0) {
        fd = openat(copy->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        result = fd < 0 ? -errno : inode_map_add(&copy->seen, stat.ino);
    }
    if (result < 0) {
        session_error(copy->session, copy->source.text, result);
        if (fd >= 0)
            close(fd);
        return;
    }
    push_frame(walk, inode, &stat, fd, false);
}

void copy_source(struct copy *copy, struct uext4_inode *inode, const char *path, const char *name)
{
    struct walk *walk = calloc(1, sizeof(*walk));
    int result = walk ? 0 : -ENOMEM;

    copy_path_cut(&copy->source, 0);
    copy_path_cut(&copy->target, 0);
    if (result == 0)
        result = copy_path_push(&copy->source, path, strlen(path));
    if (result == 0)
        result = copy_path_push(&copy->target, name ? name : "", name ? strlen(name) : 0);
    if (result < 0) {
        session_error(copy->session, path, result);
        free(walk);
        return;
    }
    walk->copy = copy;
    inode_map_clear(&copy->seen, false);
    atomic_store(&copy->data_bytes, 0);
    copy->directory_bytes_left = copy->data_limit;
    if (name)
        copy_inode(walk, inode, copy->root_fd, name);
    else
        enter_root(walk, inode);
    walk_frames(walk);
    free(walk);
}

void copy_begin(struct copy *copy, struct session *session, const struct copy_options *options,
                struct progress *progress, int root_fd)
{
    struct uext4_info info;

    memset(copy, 0, sizeof(*copy));
    copy->session = session;
    copy->options = *options;
    copy->progress = progress;
    copy->root_fd = root_fd;
    uext4_get_info(session->fs, &info);
    copy->data_limit = info.device_bytes;
    copy_pool_start(copy);
}

void copy_end(struct copy *copy)
{
    copy_pool_wait(copy);
    inode_map_clear(&copy->links, true);
    inode_map_clear(&copy->seen, false);
    free(copy->source.text);
    free(copy->target.text);
    close(copy->root_fd);
}
