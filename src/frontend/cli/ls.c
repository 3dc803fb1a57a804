/* SPDX-License-Identifier: MIT */
/*
 * `uext4 ls`: lists directories.
 *
 * -R works off a stack of pending directories, so that it needs no recursion. Each directory is
 * listed once per run: ext4 gives a directory one name, and an image in which one has two could
 * otherwise send us around for ever.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inode_map.h"
#include "listing.h"
#include "message.h"
#include "session.h"
#include "text.h"

#define PATH_MAX_BYTES (1u << 16) /* longer paths are not descended into */

const char ls_help[] =
    "Usage: uext4 ls [OPTIONS] IMAGE [PATH...]\n"
    "\n"
    "Lists files and directories; without a PATH, the root directory. Owners are\n"
    "shown as numbers, times in local time.\n"
    "\n"
    "  -l                  long lines: mode, links, owner, group, size (or the\n"
    "                      numbers of a device), time of modification, name\n"
    "  -R                  list directories in directories too\n"
    "  -a                  names that begin with a dot too\n"
    "  -A                  the same, but not '.' and '..'\n"
    "  -d                  directories themselves, not what they hold\n"
    "  -i                  inode numbers\n"
    "  -h                  sizes with units\n"
    "  -1                  one name a line, as always if the output is no terminal\n"
    "  -U                  do not sort\n"
    "  -b                  escape control characters, as always on a terminal\n"
    "\n" CLI_COMMON_HELP "\n"
    "Examples:\n"
    "  uext4 ls -l disk.img /etc\n"
    "  uext4 ls -lR --partition 1 vm.raw > list.txt\n";

struct ls {
    struct session session;
    struct listing_options options;
    bool is_recursive, has_hidden, has_dots, is_directory_itself;
    bool has_headers;      /* "PATH:" before each directory */
    bool has_printed;      /* an empty line comes before the next header */
    struct inode_map seen; /* directories that were listed or are pending */
    char **pending;        /* a stack of paths */
    uint64_t *pending_inos;
    size_t pending_count, pending_capacity;

    struct listing listing; /* of the directory at hand */
    uint64_t directory_bytes_left;
    uint64_t entries_left; /* no more names than this fit into it */
    int result;
};

static int push_pending(struct ls *ls, char *path, uint64_t ino)
{
    if (ls->pending_count == ls->pending_capacity) {
        size_t capacity = ls->pending_capacity ? ls->pending_capacity * 2 : 64;
        char **paths = realloc(ls->pending, capacity * sizeof(*paths));
        uint64_t *inos;

        if (!paths)
            return -ENOMEM;
        ls->pending = paths;
        inos = realloc(ls->pending_inos, capacity * sizeof(*inos));
        if (!inos)
            return -ENOMEM;
        ls->pending_inos = inos;
        ls->pending_capacity = capacity;
    }
    ls->pending[ls->pending_count] = path;
    ls->pending_inos[ls->pending_count++] = ino;
    return 0;
}

static bool is_dot_or_dots(const char *name, size_t length)
{
    return name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.'));
}

static bool take_entry(void *context, const struct uext4_dirent *dirent)
{
    struct ls *ls = context;
    struct listing_entry entry = {
        .name = (char *)dirent->name,
        .name_length = dirent->name_length,
        .ino = dirent->ino,
        .type = dirent->type,
    };
    bool is_dots = is_dot_or_dots(dirent->name, dirent->name_length);

    if (ls->entries_left-- == 0) {
        ls->result = -EUCLEAN;
        return false;
    }
    if (is_dots ? !ls->has_dots : dirent->name[0] == '.' && !ls->has_hidden)
        return true;
    ls->result = listing_add(&ls->listing, &entry);
    return ls->result == 0;
}

static char *join_path(const char *directory, const char *name)
{
    size_t length = strlen(directory);
    const char *slash = length > 0 && directory[length - 1] == '/' ? "" : "/";
    char *path;

    if (length + strlen(name) + 2 > PATH_MAX_BYTES)
        return NULL;
    return asprintf(&path, "%s%s%s", directory, slash, name) < 0 ? NULL : path;
}

/* Reads the inodes of the entries, as far as long lines or -R need them. */
static void stat_entries(struct ls *ls, const char *path)
{
    for (size_t i = 0; i < ls->listing.count; i++) {
        struct listing_entry *entry = &ls->listing.entries[i];
        int result;

        if (!ls->options.is_long && !(ls->is_recursive && entry->type == DT_UNKNOWN))
            continue;
        result = listing_stat(&ls->session, entry);
        if (result < 0) {
            char *full = join_path(path, entry->name);

            session_error(&ls->session, full ? full : entry->name, result);
            free(full);
        }
    }
}

/* Puts the directories of the listing on the stack, so that the first comes off first. */
static void push_directories(struct ls *ls, const char *path)
{
    for (size_t i = ls->listing.count; i-- > 0;) {
        const struct listing_entry *entry = &ls->listing.entries[i];
        char *full;
        int result;

        if (entry->type != DT_DIR || is_dot_or_dots(entry->name, entry->name_length))
            continue;
        full = join_path(path, entry->name);
        if (!full) {
            session_fail(&ls->session, path, "nested too deep, not listed further");
            return;
        }
        result = entry->ino ? inode_map_add(&ls->seen, entry->ino) : -EUCLEAN;
        if (result == 0)
            session_fail(&ls->session, full,
                         "this directory has a second name, which damage alone explains");
        else if (result == 1)
            result = push_pending(ls, full, entry->ino) == 0 ? 1 : -ENOMEM;
        if (result < 0)
            session_error(&ls->session, full, result);
        if (result != 1)
            free(full);
    }
}

static void print_header(struct ls *ls, const char *path)
{
    if (ls->has_headers) {
        if (ls->has_printed)
            putchar('\n');
        text_write(stdout, path, strlen(path), ls->options.style);
        puts(":");
    }
    ls->has_printed = true;
}

static void list_directory(struct ls *ls, const char *path, struct uext4_inode *inode)
{
    struct uext4_stat stat;
    int result = uext4_stat(inode, &stat);

    if (result < 0) {
        session_error(&ls->session, path, result);
        return;
    }
    if (stat.size > ls->directory_bytes_left) {
        session_fail(&ls->session, path,
                     "more directories than the image has room for; not listed");
        return;
    }
    ls->directory_bytes_left -= stat.size;
    print_header(ls, path);
    ls->entries_left = stat.size / 8 + 16;
    ls->result = 0;
    result = uext4_readdir(inode, 0, take_entry, ls);
    if (result == 0)
        result = ls->result;
    if (result == -EFBIG)
        session_fail(&ls->session, path, "too many names; only the first %d are listed",
                     LISTING_MAX_ENTRIES);
    else if (result < 0)
        session_error(&ls->session, path, result);

    stat_entries(ls, path);
    if (!ls->options.is_unsorted)
        listing_sort(&ls->listing);
    listing_print(&ls->session, &ls->listing, &ls->options);
    if (ls->is_recursive)
        push_directories(ls, path);
    listing_clear(&ls->listing);
}

static void list_pending(struct ls *ls)
{
    while (ls->pending_count > 0) {
        char *path = ls->pending[--ls->pending_count];
        struct uext4_inode *inode;
        int result = uext4_inode_get(ls->session.fs, ls->pending_inos[ls->pending_count], &inode);

        if (result < 0) {
            session_error(&ls->session, path, result);
        } else {
            list_directory(ls, path, inode);
            uext4_inode_put(inode);
        }
        free(path);
    }
}

/* Sorts an argument into the first listing (all that is listed itself) or onto the stack. */
static void take_argument(struct ls *ls, const char *path)
{
    bool is_itself = ls->options.is_long || ls->is_directory_itself;
    struct listing_entry entry = {.name = (char *)path};
    struct uext4_inode *inode;
    int result = session_walk(&ls->session, path, is_itself ? UEXT4_WALK_NOFOLLOW : 0, &inode);
    char *copy;

    if (result == -ENOENT && !is_itself)
        result = session_walk(&ls->session, path, UEXT4_WALK_NOFOLLOW, &inode);
    if (result < 0) {
        session_error(&ls->session, path, result);
        return;
    }
    entry.ino = uext4_inode_number(inode);
    entry.name_length = (uint16_t)strnlen(path, UINT16_MAX);
    result = listing_stat(&ls->session, &entry);
    uext4_inode_put(inode);
    if (result == 0 && S_ISDIR(entry.mode) && !ls->is_directory_itself) {
        copy = strdup(path);
        result = copy ? inode_map_add(&ls->seen, entry.ino) : -ENOMEM;
        if (result < 0 || push_pending(ls, copy, entry.ino) < 0)
            free(copy);
    } else if (result == 0) {
        result = listing_add(&ls->listing, &entry);
    }
    if (result < 0)
        session_error(&ls->session, path, result);
}

static void reverse_pending(struct ls *ls)
{
    for (size_t i = 0, j = ls->pending_count; i + 1 < j; i++) {
        char *path = ls->pending[i];
        uint64_t ino = ls->pending_inos[i];

        j--;
        ls->pending[i] = ls->pending[j];
        ls->pending_inos[i] = ls->pending_inos[j];
        ls->pending[j] = path;
        ls->pending_inos[j] = ino;
    }
}

static void parse_options(struct ls *ls, int argc, char **argv)
{
    int option;

    while ((option = session_option(&ls->session, argc, argv, "lRaAdih1Ub", NULL)) != -1) {
        if (option == 'l')
            ls->options.is_long = true;
        else if (option == 'R')
            ls->is_recursive = true;
        else if (option == 'a')
            ls->has_hidden = ls->has_dots = true;
        else if (option == 'A')
            ls->has_hidden = true;
        else if (option == 'd')
            ls->is_directory_itself = true;
        else if (option == 'i')
            ls->options.has_inode = true;
        else if (option == 'h')
            ls->options.is_human = true;
        else if (option == '1')
            ls->options.is_one_per_line = true;
        else if (option == 'U')
            ls->options.is_unsorted = true;
        else if (option == 'b')
            ls->options.style = TEXT_ESCAPED;
    }
    if (ls->is_directory_itself)
        ls->is_recursive = false;
}

static void look_at_terminal(struct ls *ls)
{
    struct winsize size = {0};

    if (!isatty(STDOUT_FILENO)) {
        ls->options.is_one_per_line = true;
        return;
    }
    ls->options.style = TEXT_ESCAPED;
    ls->options.line_width = 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        ls->options.line_width = size.ws_col;
}

int ls_run(const struct command *command, int argc, char **argv)
{
    struct ls ls = {.options.style = TEXT_RAW};
    struct uext4_info info;
    int count;

    session_begin(&ls.session, command);
    look_at_terminal(&ls);
    parse_options(&ls, argc, argv);
    session_take_image(&ls.session, argc, argv);
    count = argc - optind;
    if (session_open(&ls.session) < 0)
        return session_end(&ls.session);
    uext4_get_info(ls.session.fs, &info);
    ls.directory_bytes_left = info.device_bytes;

    if (count == 0)
        take_argument(&ls, "/");
    for (int i = optind; i < argc; i++)
        take_argument(&ls, argv[i]);
    if (!ls.options.is_unsorted)
        listing_sort(&ls.listing);
    listing_print(&ls.session, &ls.listing, &ls.options);
    ls.has_printed = ls.listing.count > 0;
    listing_clear(&ls.listing);

    ls.has_headers = ls.is_recursive || count > 1;
    reverse_pending(&ls);
    list_pending(&ls);
    inode_map_clear(&ls.seen, false);
    free(ls.pending);
    free(ls.pending_inos);
    return session_end(&ls.session);
}
