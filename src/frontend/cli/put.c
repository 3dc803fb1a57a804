/* SPDX-License-Identifier: MIT */
/*
 * `uext4 put`: copies files and trees of the host into the image. This file finds out what goes
 * where; put.h has the copying.
 *
 * The rule is that of `uext4 get`: if DEST is a directory of the image, each SOURCE goes into it
 * under its last name, and the contents of a SOURCE that has none ("/", or one that ends in "." or
 * "..") go into it as they are. If DEST does not exist, the one SOURCE becomes DEST.
 */
#include "put.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "path.h"
#include "times.h"

const char put_help[] =
    "Usage: uext4 put [OPTIONS] IMAGE SOURCE... DEST\n"
    "\n"
    "Copies files and trees of the host to DEST in the image, with modes, owners,\n"
    "times, hard links, holes, symbolic links and device nodes. Extended attributes\n"
    "and ACLs are not copied; with -v the first file that has some is named.\n"
    "\n"
    "If DEST is a directory, each SOURCE goes into it under its own last name; the\n"
    "contents of '.', '/' or 'tree/.' go into it as they are. If DEST does not exist,\n"
    "the one SOURCE becomes DEST. Files in the way are replaced, directories merged.\n"
    "Symbolic links are copied, not followed. An error at one file does not stop the\n"
    "others, but a full image does; the exit code is then 1.\n"
    "\n"
    "      --owner OWNER   UID, UID:GID or :GID for all, in place of the host's\n"
    "                      owners; numbers, or names of the host\n"
    "      --time SECONDS  since 1970: all times become this one, also of the\n"
    "                      directory that the copy goes to; only the times of birth\n"
    "                      are those of the clock\n"
    "\n" CLI_CHANGE_HELP "\n"
    "Examples:\n"
    "  uext4 put disk.img ./tree /srv/tree  a tree, which becomes /srv/tree\n"
    "  uext4 put --owner 0:0 --time 0 disk.img rootfs/. /\n"
    "                                       a whole system, the same each time\n";

struct put_command {
    struct session session;
    struct put_options options;
    char **sources; /* ends with NULL, when `dest` is taken */
    size_t source_count;
    const char *dest;
};

static void parse_options(struct put_command *command, int argc, char **argv)
{
    static const struct option longs[] = {
        {"owner", required_argument, NULL, 0x100},
        {"time", required_argument, NULL, 0x101},
        {0},
    };
    int option;

    while ((option = session_option(&command->session, argc, argv, "", longs)) != -1) {
        if (option == 0x100) {
            if (!mode_parse_owner(optarg, &command->options.owner))
                session_usage(&command->session, "--owner: '%s' is no owner", optarg);
        } else {
            if (!times_parse_seconds(optarg, &command->options.time))
                session_usage(&command->session, "--time: '%s' is no number of seconds", optarg);
            command->options.has_time = true;
        }
    }
}

/* The scan behind the progress bar; errors are left to the copy. */
static void scan_host(struct progress *progress, void *context)
{
    const struct put_command *command = context;
    FTS *tree = fts_open(command->sources, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    FTSENT *entry;

    while (tree && !atomic_load(&progress->is_stopping) && (entry = fts_read(tree)) != NULL) {
        uint64_t bytes = 0;

        if (entry->fts_info == FTS_DP)
            continue;
        if (entry->fts_info == FTS_F) {
            bytes = (uint64_t)entry->fts_statp->st_blocks * 512;
            if (bytes > (uint64_t)entry->fts_statp->st_size)
                bytes = (uint64_t)entry->fts_statp->st_size;
        }
        progress_add_total(progress, bytes, 1);
    }
    if (tree)
        fts_close(tree);
}

static bool is_host_directory(const char *path)
{
    struct stat stat_buffer;

    return lstat(path, &stat_buffer) == 0 && S_ISDIR(stat_buffer.st_mode);
}

/* Puts all sources into a directory that is there. */
static void put_into(struct put_command *command, struct put *put, struct uext4_inode *dir)
{
    for (size_t i = 0; i < command->source_count; i++) {
        size_t length;
        const char *source = command->sources[i], *last = path_last_name(source, &length);
        char *name = last ? strndup(last, length) : NULL;

        if (last && !name)
            session_error(&command->session, source, -ENOMEM);
        else
            put_source(put, source, dir, name);
        free(name);
    }
}

/* Puts the one source to DEST, which is no directory yet. */
static void put_as(struct put_command *command, struct put *put)
{
    const char *source = command->sources[0];
    struct place place;
    char *name;

    if (command->source_count > 1) {
        session_fail(&command->session, command->dest, "several sources need a directory to go to");
        return;
    }
    if (place_find(&command->session, command->dest, is_host_directory(source), &place) < 0)
        return;
    name = strndup(place.name, place.length);
    if (name)
        put_source(put, source, place.dir, name);
    else
        session_error(&command->session, source, -ENOMEM);
    free(name);
    place_release(&place);
}

static void run_put(struct put_command *command)
{
    struct session *session = &command->session;
    struct uext4_inode *dest = NULL;
    struct progress progress;
    struct uext4_stat stat;
    struct put put;
    int result = uext4_walk(session->fs, command->dest, 0, &dest);
    bool is_there = result == 0;

    if (is_there)
        result = uext4_stat(dest, &stat);
    if (result < 0 && result != -ENOENT) {
        session_error(session, command->dest, result);
        uext4_inode_put(dest);
        return;
    }
    progress_begin(&progress, scan_host, command, !session->is_quiet);
    if (put_begin(&put, session, &command->options, &progress) < 0)
        session_error(session, NULL, -ENOMEM);
    else if (is_there && S_ISDIR(stat.mode))
        put_into(command, &put, dest);
    else
        put_as(command, &put);
    put_end(&put);
    progress_end(&progress);
    uext4_inode_put(dest);
}

int put_run(const struct command *table_entry, int argc, char **argv)
{
    struct put_command command = {0};

    session_begin_change(&command.session, table_entry);
    parse_options(&command, argc, argv);
    session_take_image(&command.session, argc, argv);
    if (argc - optind < 2)
        session_usage(&command.session, "a source and a destination in the image are needed");
    command.sources = argv + optind;
    command.source_count = (size_t)(argc - optind - 1);
    command.dest = argv[argc - 1];
    argv[argc - 1] = NULL;
    for (size_t i = 0; i < command.source_count; i++) {
        if (!command.sources[i][0])
            session_usage(&command.session, "a source is empty");
    }
    path_raise_descriptor_limit();
    if (session_open(&command.session) == 0)
        run_put(&command);
    return session_end(&command.session);
}
