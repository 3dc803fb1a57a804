/* SPDX-License-Identifier: MIT */
/*
 * `uext4 mkdir`, `uext4 mv` and `uext4 ln`: the commands that make and move names.
 *
 * Arguments are taken in their order, and one that fails does not stop the others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "message.h"
#include "mode.h"
#include "path.h"
#include "place.h"
#include "session.h"

#define MODE_DEFAULT 0755

const char mkdir_help[] =
    "Usage: uext4 mkdir [OPTIONS] IMAGE PATH...\n"
    "\n"
    "Makes directories in the image. They belong to root (0:0) unless --owner says\n"
    "otherwise, and have mode 0755 unless -m does; the umask plays no part.\n"
    "\n"
    "  -p, --parents       make missing directories above it too, with mode 0755;\n"
    "                      one that exists is no error\n"
    "  -m, --mode MODE     octal, or symbolic from a=rwx on\n"
    "      --owner OWNER   UID, UID:GID or :GID; numbers, or names of the host\n"
    "\n" CLI_CHANGE_HELP "\n"
    "Examples:\n"
    "  uext4 mkdir -p disk.img /srv/www/html\n"
    "  uext4 mkdir -m 1777 disk.img /scratch\n";

const char mv_help[] =
    "Usage: uext4 mv [OPTIONS] IMAGE SOURCE... DEST\n"
    "\n"
    "Renames files and directories within the image. If DEST is a directory, each\n"
    "SOURCE goes into it under its own last name. A file in the way is replaced in\n"
    "one step, as is an empty directory by a directory.\n"
    "\n"
    "  -n, --no-clobber    leave what exists; that is an error then\n"
    "\n" CLI_CHANGE_HELP "\n"
    "Example:\n"
    "  uext4 mv disk.img /etc/fstab.new /etc/fstab\n";

const char ln_help[] =
    "Usage: uext4 ln [OPTIONS] IMAGE TARGET... DEST\n"
    "\n"
    "Makes another name for a file of the image, or with -s a symbolic link that says\n"
    "TARGET. If DEST is a directory, the link stands in it under the last name of\n"
    "TARGET. A TARGET that is a symbolic link gets another name itself.\n"
    "\n"
    "  -s, --symbolic      make symbolic links; TARGET is taken as it is\n"
    "  -f, --force         replace a file in the way\n"
    "      --owner OWNER   of symbolic links: UID, UID:GID or :GID (0:0)\n"
    "\n" CLI_CHANGE_HELP "\n"
    "Examples:\n"
    "  uext4 ln disk.img /bin/busybox /bin/sh\n"
    "  uext4 ln -s disk.img ../usr/lib/os-release /etc/os-release\n";

struct making {
    struct session session;
    struct uext4_new_inode what;
    bool has_parents, has_mode;
    bool is_symbolic, is_forced;
    unsigned int rename_flags;
};

static void take_owner(struct making *making)
{
    struct mode_owner owner;

    if (!mode_parse_owner(optarg, &owner))
        session_usage(&making->session, "--owner: '%s' is no owner", optarg);
    making->what.uid = owner.uid;
    making->what.gid = owner.gid;
}

/* Makes one directory; with -p one that exists is good. Returns 0 or -errno, told. */
static int make_directory(struct making *making, const char *path, bool is_last)
{
    struct uext4_new_inode what = making->what;
    struct uext4_inode *inode = NULL;
    struct uext4_stat stat;
    struct place place;
    int result = place_find(&making->session, path, true, &place);

    if (result < 0)
        return result;
    if (!is_last)
        what.mode = MODE_DEFAULT;
    result = uext4_mkdir(place.dir, place.name, place.length, &what, &inode);
    place_release(&place);
    if (result == 0 && is_last && making->has_mode) {
        /* What a set-group-ID directory hands down gives way to a mode that was asked for. */
        stat.mode = what.mode;
        result = uext4_set_attributes(inode, &stat, UEXT4_SET_MODE);
    }
    uext4_inode_put(inode);
    if (result < 0)
        session_error(&making->session, path, result);
    return result;
}

static bool is_directory(struct session *session, const char *path)
{
    struct uext4_inode *inode;
    struct uext4_stat stat;
    bool is_one;

    if (uext4_walk(session->fs, path, 0, &inode) < 0)
        return false;
    is_one = uext4_stat(inode, &stat) == 0 && S_ISDIR(stat.mode);
    uext4_inode_put(inode);
    return is_one;
}

/* Makes a directory and those above it that are missing, from the top down. */
static void make_parents(struct making *making, const char *path)
{
    char *part = strdup(path);
    size_t end = 0;

    if (!part) {
        session_error(&making->session, path, -ENOMEM);
        return;
    }
    while (path[end]) {
        end += strspn(path + end, "/");
        end += strcspn(path + end, "/");
        memcpy(part, path, end);
        part[end] = '\0';
        if (!is_directory(&making->session, part) &&
            make_directory(making, part, path[end + strspn(path + end, "/")] == '\0') < 0)
            break;
    }
    free(part);
}

int mkdir_run(const struct command *command, int argc, char **argv)
{
    static const struct option longs[] = {
        {"parents", no_argument, NULL, 'p'},
        {"mode", required_argument, NULL, 'm'},
        {"owner", required_argument, NULL, 0x100},
        {0},
    };
    struct making making = {.what = {.mode = MODE_DEFAULT}};
    int option;

    session_begin_change(&making.session, command);
    while ((option = session_option(&making.session, argc, argv, "pm:", longs)) != -1) {
        if (option == 'p') {
            making.has_parents = true;
        } else if (option == 0x100) {
            take_owner(&making);
        } else {
            making.what.mode = S_IFDIR | 0777;
            if (!mode_apply(optarg, &making.what.mode))
                session_usage(&making.session, "'%s' is no mode", optarg);
            making.has_mode = true;
        }
    }
    session_take_image(&making.session, argc, argv);
    if (optind >= argc)
        session_usage(&making.session, "a path in the image is needed");
    if (session_open(&making.session) == 0) {
        for (int i = optind; i < argc; i++) {
            if (making.has_parents)
                make_parents(&making, argv[i]);
            else
                make_directory(&making, argv[i], true);
        }
    }
    return session_end(&making.session);
}

static void move(struct making *making, const char *source, const char *dest, bool needs_directory)
{
    struct session *session = &making->session;
    struct uext4_inode *inode;
    struct uext4_stat stat;
    struct place from, to;
    int result;

    if (place_find(session, source, true, &from) < 0)
        return;
    result = place_lookup(&from, &inode, &stat);
    if (result == 0) {
        uext4_inode_put(inode);
        if (path_ends_in_slash(source) && !S_ISDIR(stat.mode))
            result = -ENOTDIR;
    }
    if (result < 0) {
        session_error(session, source, result);
    } else if (place_find_target(session, dest, source, needs_directory, S_ISDIR(stat.mode), &to) ==
               0) {
        result = uext4_rename(from.dir, from.name, from.length, to.dir, to.name, to.length,
                              making->rename_flags);
        if (result == -EINVAL)
            session_fail(session, source, "cannot go to '%s', which is itself or in it", dest);
        else if (result < 0)
            session_fail(session, source, "cannot go to '%s': %s", dest,
                         message_error_text(result));
        place_release(&to);
    }
    place_release(&from);
}

int mv_run(const struct command *command, int argc, char **argv)
{
    static const struct option longs[] = {{"no-clobber", no_argument, NULL, 'n'}, {0}};
    struct making making = {0};

    session_begin_change(&making.session, command);
    while (session_option(&making.session, argc, argv, "n", longs) != -1)
        making.rename_flags = UEXT4_RENAME_NOREPLACE;
    session_take_image(&making.session, argc, argv);
    if (argc - optind < 2)
        session_usage(&making.session, "a path in the image and a destination are needed");
    if (session_open(&making.session) == 0) {
        for (int i = optind; i < argc - 1; i++)
            move(&making, argv[i], argv[argc - 1], argc - optind > 2);
    }
    return session_end(&making.session);
}

/* Makes the link at a place that is free. Returns 0 or -errno. */
static int make_link(struct making *making, struct uext4_inode *inode, const char *target,
                     const struct place *place)
{
    if (making->is_symbolic)
        return uext4_symlink(place->dir, place->name, place->length, target, strlen(target),
                             &making->what, NULL);
    return uext4_link(inode, place->dir, place->name, place->length);
}

/* True if the place holds a name of `inode` already, which must not be cleared for its sake. */
static bool is_same_file(const struct place *place, struct uext4_inode *inode)
{
    struct uext4_inode *there;
    struct uext4_stat stat;

    if (!inode || place_lookup(place, &there, &stat) < 0)
        return false;
    uext4_inode_put(there);
    return stat.ino == uext4_inode_number(inode);
}

static void link_one(struct making *making, const char *target, const char *dest,
                     bool needs_directory)
{
    struct session *session = &making->session;
    struct uext4_inode *inode = NULL;
    struct place place;
    int result = 0;

    if (!making->is_symbolic)
        result = session_walk(session, target, UEXT4_WALK_NOFOLLOW, &inode);
    if (result < 0) {
        session_error(session, target, result);
        return;
    }
    if (place_find_target(session, dest, target, needs_directory, false, &place) == 0) {
        result = make_link(making, inode, target, &place);
        if (result == -EEXIST && making->is_forced && !is_same_file(&place, inode)) {
            result = place_clear(&place);
            if (result == 0)
                result = make_link(making, inode, target, &place);
        }
        if (result == -EPERM)
            session_fail(session, target, "a directory gets no second name");
        else if (result < 0)
            session_error(session, dest, result);
        place_release(&place);
    }
    uext4_inode_put(inode);
}

int ln_run(const struct command *command, int argc, char **argv)
{
    static const struct option longs[] = {
        {"symbolic", no_argument, NULL, 's'},
        {"force", no_argument, NULL, 'f'},
        {"owner", required_argument, NULL, 0x100},
        {0},
    };
    struct making making = {.what = {.mode = S_IFLNK | 0777}};
    int option;

    session_begin_change(&making.session, command);
    while ((option = session_option(&making.session, argc, argv, "sf", longs)) != -1) {
        if (option == 's')
            making.is_symbolic = true;
        else if (option == 'f')
            making.is_forced = true;
        else
            take_owner(&making);
    }
    session_take_image(&making.session, argc, argv);
    if (argc - optind < 2)
        session_usage(&making.session, "a target and a destination are needed");
    if (session_open(&making.session) == 0) {
        for (int i = optind; i < argc - 1; i++)
            link_one(&making, argv[i], argv[argc - 1], argc - optind > 2);
    }
    return session_end(&making.session);
}
