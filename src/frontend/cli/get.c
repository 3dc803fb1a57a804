/* SPDX-License-Identifier: MIT */
/*
 * `uext4 get`: copies files and trees to the host. This file finds out what goes where; copy.h has
 * the copying.
 *
 * The rule: if DEST is a directory, each PATH goes into it under its last name, and the contents of
 * a PATH that has none ("/", or one that ends in "." or "..") go into it as they are. If DEST does
 * not exist, the one PATH becomes DEST.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copy.h"
#include "message.h"
#include "path.h"
#include "session.h"
#include "text.h"

#define THREADS_DEFAULT 4

const char get_help[] =
    "Usage: uext4 get [OPTIONS] IMAGE PATH... DEST\n"
    "\n"
    "Copies files and trees from the image to DEST on the host, with modes, times,\n"
    "extended attributes, hard links, holes, and as root with owners and devices.\n"
    "\n"
    "If DEST is a directory, each PATH goes into it under its own last name; the\n"
    "contents of '/' go into it as they are. If DEST does not exist, the one PATH\n"
    "becomes DEST. Files in the way are replaced, directories merged. Symbolic links\n"
    "are copied, not followed, and in DEST none is written through. An error at one\n"
    "file does not stop the others; the exit code is then 1.\n"
    "\n"
    "  -j, --jobs N        copy the contents of N files at a time (4)\n"
    "      --no-owner      leave owners (as always if not root), and drop set-user-ID\n"
    "                      and set-group-ID bits\n"
    "      --no-xattrs     leave extended attributes and ACLs\n"
    "      --no-devices    leave out devices, fifos and sockets\n"
    "\n" CLI_COMMON_HELP "\n"
    "Examples:\n"
    "  uext4 get disk.img /etc ./etc        ./etc becomes a copy of /etc\n"
    "  uext4 get disk.img / rootfs          all of it\n"
    "  uext4 get disk.img /etc/passwd /etc/group .\n"
    "                                       two files into this directory\n";

struct get {
    struct session session;
    struct copy_options options;
    char **paths;
    size_t path_count;
    const char *dest;

    struct uext4_inode **inodes; /* of the paths; NULL where one failed */
    uint64_t *inos;              /* of those that did not fail */
    size_t ino_count;
    int root_fd;
    char *root_name; /* the name of the copy below root_fd; NULL: each has its own */
};

static void parse_options(struct get *get, int argc, char **argv)
{
    static const struct option longs[] = {
        {"jobs", required_argument, NULL, 'j'},
        {"no-owner", no_argument, NULL, 0x100},
        {"no-xattrs", no_argument, NULL, 0x101},
        {"no-devices", no_argument, NULL, 0x102},
        {0},
    };
    uint64_t number;
    int option;

    while ((option = session_option(&get->session, argc, argv, "j:", longs)) != -1) {
        if (option == 0x100) {
            get->options.is_owner_kept = false;
        } else if (option == 0x101) {
            get->options.has_xattrs = false;
        } else if (option == 0x102) {
            get->options.has_devices = false;
        } else {
            if (!text_parse_size(optarg, &number) || number == 0 || number > COPY_THREADS_MAX)
                session_usage(&get->session, "-j takes a number from 1 to %d", COPY_THREADS_MAX);
            get->options.threads = (unsigned int)number;
        }
    }
}

static void look_up_paths(struct get *get)
{
    for (size_t i = 0; i < get->path_count; i++) {
        int result = session_walk(&get->session, get->paths[i], UEXT4_WALK_NOFOLLOW,
                                  &get->inodes[i]);

        if (result < 0) {
            get->inodes[i] = NULL;
            session_error(&get->session, get->paths[i], result);
        } else {
            get->inos[get->ino_count++] = uext4_inode_number(get->inodes[i]);
        }
    }
}

static bool is_directory(struct uext4_inode *inode)
{
    struct uext4_stat stat;

    return uext4_stat(inode, &stat) == 0 && S_ISDIR(stat.mode);
}

/* DEST is no directory yet: opens the one in which it will lie. Returns 0 or -errno. */
static int open_parent(struct get *get)
{
    size_t length;
    const char *name = path_last_name(get->dest, &length);
    bool has_slash = get->dest[strlen(get->dest) - 1] == '/';
    char *parent;

    if (!name)
        return -ENOENT;
    if (has_slash && get->inodes[0] && !is_directory(get->inodes[0]))
        return -ENOTDIR;
    get->root_name = strndup(name, length);
    parent = name == get->dest ? strdup(".") : strndup(get->dest, (size_t)(name - get->dest));
    if (!get->root_name || !parent) {
        free(parent);
        return -ENOMEM;
    }
    get->root_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    length = (size_t)errno;
    free(parent);
    return get->root_fd < 0 ? -(int)length : 0;
}

/* Opens the directory of the host below which the copy goes. Returns false after telling why not.
 */
static bool open_root(struct get *get)
{
    struct stat stat_buffer;
    bool is_there = stat(get->dest, &stat_buffer) == 0;
    int result;

    get->root_fd = -1;
    if (is_there && S_ISDIR(stat_buffer.st_mode)) {
        get->root_fd = open(get->dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        result = get->root_fd < 0 ? -errno : 0;
    } else if (is_there && !S_ISREG(stat_buffer.st_mode)) {
        session_fail(&get->session, NULL, "%s: exists and is no regular file", get->dest);
        return false;
    } else if (get->path_count > 1) {
        session_fail(&get->session, NULL, "%s: several paths need a directory to go to", get->dest);
        return false;
    } else if (is_there && get->inodes[0] && is_directory(get->inodes[0])) {
        result = -ENOTDIR;
    } else {
        result = open_parent(get);
    }
    if (result < 0)
        session_fail(&get->session, NULL, "%s: %s", get->dest, message_error_text(result));
    return result == 0;
}

/* The name of a copy in DEST: the path's last one, or for "<12>" its number. NULL: none. */
static char *target_name(const char *path)
{
    size_t length;
    const char *name = path_last_name(path, &length);

    return name ? strndup(name, length) : NULL;
}

static void copy_paths(struct get *get)
{
    struct progress_roots roots;
    struct progress progress;
    struct copy *copy = malloc(sizeof(*copy));

    if (!copy) {
        session_error(&get->session, NULL, -ENOMEM);
        close(get->root_fd);
        return;
    }
    roots =
        (struct progress_roots){.fs = get->session.fs, .inos = get->inos, .count = get->ino_count};
    progress_begin(&progress, progress_scan_image, &roots, !get->session.is_quiet);
    copy_begin(copy, &get->session, &get->options, &progress, get->root_fd);
    for (size_t i = 0; i < get->path_count; i++) {
        char *name = get->root_name ? strdup(get->root_name) : target_name(get->paths[i]);

        if (get->inodes[i] && (name || is_directory(get->inodes[i])))
            copy_source(copy, get->inodes[i], get->paths[i], name);
        free(name);
    }
    copy_end(copy);
    progress_end(&progress);
    free(copy);
}

static void run_get(struct get *get)
{
    get->inodes = calloc(get->path_count, sizeof(*get->inodes));
    get->inos = calloc(get->path_count, sizeof(*get->inos));
    if (!get->inodes || !get->inos) {
        session_error(&get->session, NULL, -ENOMEM);
        return;
    }
    look_up_paths(get);
    if (get->ino_count > 0 && open_root(get))
        copy_paths(get);
    for (size_t i = 0; i < get->path_count; i++)
        uext4_inode_put(get->inodes[i]);
}

int get_run(const struct command *command, int argc, char **argv)
{
    struct get get = {
        .options = {.is_owner_kept = geteuid() == 0,
                    .has_xattrs = true,
                    .has_devices = true,
                    .threads = THREADS_DEFAULT},
    };

    session_begin(&get.session, command);
    parse_options(&get, argc, argv);
    session_take_image(&get.session, argc, argv);
    if (argc - optind < 2)
        session_usage(&get.session, "a path in the image and a destination are needed");
    get.paths = argv + optind;
    get.path_count = (size_t)(argc - optind - 1);
    get.dest = argv[argc - 1];
    if (!get.dest[0])
        session_usage(&get.session, "the destination is empty");

    umask(0);
    path_raise_descriptor_limit();
    if (session_open(&get.session) == 0)
        run_get(&get);
    free(get.inodes);
    free(get.inos);
    free(get.root_name);
    return session_end(&get.session);
}
