/* SPDX-License-Identifier: MIT */
/*
 * `uext4 recover`: replays the journal into the image. The only command that writes to it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "session.h"

const char recover_help[] =
    "Usage: uext4 recover [OPTIONS] IMAGE\n"
    "\n"
    "Writes what the journal holds to its place in the image and marks the journal\n"
    "clean, as the kernel does when it mounts the file system. Does nothing if the\n"
    "journal is clean. Refuses an image that somebody has open, one with pending fast\n"
    "commits and one with an external journal. Orphans are reported and left.\n"
    "\n"
    "All other commands read an image that needs recovery without this: they show\n"
    "what it would hold after it.\n"
    "\n" CLI_COMMON_HELP "\n"
    "Example:\n"
    "  uext4 recover disk.img\n";

static void print_report(const struct session *session, const struct uext4_recovery *report)
{
    if (!report->was_needed)
        printf("%s: the journal was clean, nothing to do\n", session->image);
    else
        printf("%s: replayed %" PRIu32 " transaction%s: %" PRIu64 " block%s written, %" PRIu64
               " revoked; the journal is clean now\n",
               session->image, report->transactions, report->transactions == 1 ? "" : "s",
               report->blocks_written, report->blocks_written == 1 ? "" : "s",
               report->blocks_revoked);
    if (report->pending_fast_commit_blocks > 0)
        printf("%s: %" PRIu32 " blocks of fast commits were left as they are\n", session->image,
               report->pending_fast_commit_blocks);
    if (report->orphan_list_head != 0)
        printf("%s: the orphan list, from inode %" PRIu32 " on, was left as it is\n",
               session->image, report->orphan_list_head);
    if (report->has_orphan_file_entries)
        printf("%s: the entries of the orphan file were left as they are\n", session->image);
}

int recover_run(const struct command *command, int argc, char **argv)
{
    struct uext4_recovery report = {0};
    struct session session;
    int result;

    session_begin(&session, command);
    session.mount.direct = UEXT4_DIRECT_AUTO;
    while (session_option(&session, argc, argv, "", NULL) != -1)
        ;
    session_take_image(&session, argc, argv);
    if (optind < argc)
        session_usage(&session, "one image at a time");
    if (session.mount.skip_journal_replay)
        session_usage(&session, "noload makes no sense here");

    result = uext4_recover(session.spec, &session.mount, &report);
    if (result == -EINVAL)
        session_fail(&session, NULL, "not an ext2, ext3 or ext4 file system, or a wrong spec");
    else if (result < 0)
        session_open_error(&session, result);
    else if (!session.is_quiet)
        print_report(&session, &report);
    return session_end(&session);
}
