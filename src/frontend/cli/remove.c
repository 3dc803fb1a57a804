/* SPDX-License-Identifier: MIT */
/*
 * `uext4 rm`.
 *
 * A tree is removed with a stack of frames. The names of a directory are read in batches and
 * removed after each, and the directory is read again until a reading removes nothing: entries that
 * move meanwhile are found then. Bounds against hostile images: a directory is entered once, and
 * the stack is DEPTH_MAX high.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "inode_map.h"
#include "message.h"
#include "path.h"
#include "place.h"
#include "progress.h"
#include "session.h"

#define DEPTH_MAX   1000
#define BATCH_BYTES 65536

const char rm_help[] =
    "Usage: uext4 rm [OPTIONS] IMAGE PATH...\n"
    "\n"
    "Removes files from the image; symbolic links themselves, never what they say.\n"
    "An error at one file does not stop the others; the exit code is then 1.\n"
    "\n"
    "  -r, --recursive     remove directories with all that they hold\n"
    "  -d, --dir           remove empty directories\n"
    "  -f, --force         a path that does not exist is no error\n"
    "\n" CLI_CHANGE_HELP "\n"
    "Example:\n"
    "  uext4 rm -r disk.img /var/cache/apt /tmp/build\n";

struct frame {
    struct uext4_inode *inode;
    char *name;         /* of the directory, in the one above it */
    size_t path_length; /* of the directory's path */
    uint64_t cookie;
    bool has_removed; /* in this reading */
    bool has_failed;  /* something in it could not be removed */
    char *batch;      /* names, each with a NUL behind it */
    size_t batch_length, batch_offset;
};

struct removal {
    struct session session;
    bool is_recursive, is_forced, has_directories;
    struct progress progress;
    struct inode_map seen;
    struct frame frames[DEPTH_MAX];
    unsigned int depth;
    struct uext4_inode *top_dir; /* where the first frame's name stands */
    char *path;                  /* of the frames, for messages */
    size_t path_length, path_capacity;
};

/* The path of a name in the directory at hand; the buffer is the removal's. */
static const char *path_of(struct removal *removal, size_t length, const char *name)
{
    size_t wanted = length + strlen(name) + 2;

    if (wanted > removal->path_capacity) {
        char *grown = realloc(removal->path, wanted * 2);

        if (!grown)
            return name;
        removal->path = grown;
        removal->path_capacity = wanted * 2;
    }
    if (length > 0 && removal->path[length - 1] != '/')
        removal->path[length++] = '/';
    strcpy(removal->path + length, name);
    removal->path_length = length + strlen(name);
    return removal->path;
}

static bool add_to_batch(void *context, const struct uext4_dirent *entry)
{
    struct frame *frame = context;
    bool is_dots = entry->name[0] == '.' &&
                   (entry->name_length == 1 || (entry->name_length == 2 && entry->name[1] == '.'));

    if (!is_dots) {
        if (frame->batch_length + entry->name_length + 1u > BATCH_BYTES)
            return false;
        memcpy(frame->batch + frame->batch_length, entry->name, entry->name_length);
        frame->batch_length += entry->name_length;
        frame->batch[frame->batch_length++] = '\0';
    }
    frame->cookie = entry->next_cookie;
    return true;
}

/* Enters a directory; takes over the reference. Returns 0 or -errno, told. */
static int push(struct removal *removal, struct uext4_inode *inode, const char *name,
                const char *path)
{
    struct frame frame = {.inode = inode, .path_length = removal->path_length};
    int result = removal->depth == DEPTH_MAX
                     ? -ELOOP
                     : inode_map_add(&removal->seen, uext4_inode_number(inode));

    if (result == 1) {
        frame.name = strdup(name);
        frame.batch = malloc(BATCH_BYTES);
        if (frame.name && frame.batch) {
            removal->frames[removal->depth++] = frame;
            return 0;
        }
        free(frame.name);
        free(frame.batch);
        result = -ENOMEM;
    }
    uext4_inode_put(inode);
    if (result == 0)
        session_fail(&removal->session, path,
                     "this directory has a second name, which damage alone explains; not removed");
    else if (result == -ELOOP)
        session_fail(&removal->session, path, "nested too deep, not removed");
    else
        session_error(&removal->session, path, result);
    return result == 0 ? -EUCLEAN : result;
}

/* Removes a name, or enters the directory there. Returns 1 if it entered, 0, or -errno, told. */
static int remove_name(struct removal *removal, struct uext4_inode *dir, const char *name,
                       const char *path)
{
    struct uext4_inode *inode = NULL;
    struct uext4_stat stat;
    int result = uext4_lookup(dir, name, strlen(name), &inode);

    if (result == 0)
        result = uext4_stat(inode, &stat);
    if (result == 0 && S_ISDIR(stat.mode) && removal->is_recursive) {
        result = push(removal, inode, name, path);
        return result == 0 ? 1 : result;
    }
    uext4_inode_put(inode);
    if (result == 0 && S_ISDIR(stat.mode))
        result = removal->has_directories ? uext4_rmdir(dir, name, strlen(name)) : -EISDIR;
    else if (result == 0)
        result = uext4_unlink(dir, name, strlen(name));
    if (result == 0)
        progress_add(&removal->progress, 0, 1);
    else if (result == -ENOENT && removal->is_forced)
        result = 0;
    else
        session_error(&removal->session, path, result);
    return result;
}

/* The directory is read to its end: removes it, if it is empty, and returns to the one above. */
static void pop(struct removal *removal)
{
    struct frame frame = removal->frames[--removal->depth];
    struct frame *above = removal->depth > 0 ? &removal->frames[removal->depth - 1] : NULL;
    struct uext4_inode *dir = above ? above->inode : removal->top_dir;

    uext4_inode_put(frame.inode);
    removal->path_length = frame.path_length;
    removal->path[frame.path_length] = '\0';
    if (!frame.has_failed) {
        int result = uext4_rmdir(dir, frame.name, strlen(frame.name));

        if (result < 0) {
            session_error(&removal->session, removal->path, result);
            frame.has_failed = true;
        } else {
            progress_add(&removal->progress, 0, 1);
        }
    }
    if (above) {
        above->has_removed |= !frame.has_failed;
        above->has_failed |= frame.has_failed;
    }
    free(frame.name);
    free(frame.batch);
}

/* Reads the next names. Returns false at the end of the last reading. */
static bool read_names(struct removal *removal, struct frame *frame)
{
    bool is_again = false;

    for (;;) {
        int result;

        frame->batch_length = frame->batch_offset = 0;
        result = uext4_readdir(frame->inode, frame->cookie, add_to_batch, frame);
        if (result < 0) {
            removal->path[frame->path_length] = '\0';
            session_error(&removal->session, removal->path, result);
            frame->has_failed = true;
            return false;
        }
        if (frame->batch_length > 0)
            return true;
        if (is_again || !frame->has_removed || frame->has_failed)
            return false;
        frame->cookie = 0;
        frame->has_removed = false;
        is_again = true;
    }
}

static void remove_frames(struct removal *removal)
{
    while (removal->depth > 0) {
        struct frame *frame = &removal->frames[removal->depth - 1];
        const char *name, *path;
        int result;

        if (frame->batch_offset == frame->batch_length) {
            if (!read_names(removal, frame))
                pop(removal);
            continue;
        }
        name = frame->batch + frame->batch_offset;
        frame->batch_offset += strlen(name) + 1;
        path = path_of(removal, frame->path_length, name);
        result = remove_name(removal, frame->inode, name, path);
        frame->has_removed |= result == 0;
        frame->has_failed |= result < 0;
    }
}

static void remove_path(struct removal *removal, const char *path)
{
    struct session *session = &removal->session;
    struct place place;
    struct uext4_inode *inode;
    int result = uext4_walk(session->fs, path, UEXT4_WALK_NOFOLLOW, &inode);
    char *name;

    if (result == 0)
        uext4_inode_put(inode);
    else if (result == -ENOENT && removal->is_forced)
        return;
    if (place_find(session, path, removal->is_recursive || removal->has_directories, &place) < 0)
        return;
    name = strndup(place.name, place.length);
    if (name && path_of(removal, 0, path) == removal->path) {
        removal->top_dir = place.dir;
        if (remove_name(removal, place.dir, name, path) == 1)
            remove_frames(removal);
    } else {
        session_error(session, path, -ENOMEM);
    }
    free(name);
    place_release(&place);
}

static void parse_options(struct removal *removal, int argc, char **argv)
{
    static const struct option longs[] = {
        {"recursive", no_argument, NULL, 'r'},
        {"dir", no_argument, NULL, 'd'},
        {"force", no_argument, NULL, 'f'},
        {0},
    };
    int option;

    while ((option = session_option(&removal->session, argc, argv, "rRdf", longs)) != -1) {
        if (option == 'f')
            removal->is_forced = true;
        else if (option == 'd')
            removal->has_directories = true;
        else
            removal->is_recursive = true;
    }
}

int rm_run(const struct command *command, int argc, char **argv)
{
    struct removal *removal = calloc(1, sizeof(*removal));
    int result;

    if (!removal) {
        message_print(NULL, NULL, "%s", message_error_text(-ENOMEM));
        return CLI_FAILED;
    }
    session_begin_change(&removal->session, command);
    parse_options(removal, argc, argv);
    session_take_image(&removal->session, argc, argv);
    if (optind >= argc && !removal->is_forced)
        session_usage(&removal->session, "a path in the image is needed");
    if (session_open(&removal->session) == 0) {
        progress_begin(&removal->progress, NULL, NULL, !removal->session.is_quiet);
        for (int i = optind; i < argc; i++)
            remove_path(removal, argv[i]);
        progress_end(&removal->progress);
    }
    result = session_end(&removal->session);
    inode_map_clear(&removal->seen, false);
    free(removal->path);
    free(removal);
    return result;
}
