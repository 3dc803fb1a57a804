/* SPDX-License-Identifier: MIT */
/*
 * Replays a journal into its image and marks the file system clean.
 *
 *   scan -> blocks written home, flush -> journal marked empty, flush -> needs_recovery cleared,
 * flush
 *
 * A crash between any two of these leaves an image on which the same recovery gives the same
 * result.
 *
 * Locks: none; the device is ours alone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/fs.h"

/* Clears needs_recovery in the superblock as it is on the disk after the replay. */
static int mark_recovered(const struct volume *volume, bool has_errors)
{
    uint8_t raw[SUPERBLOCK_BYTES];
    int error = device_read(volume->device, raw, sizeof(raw), SUPERBLOCK_OFFSET_BYTES);

    if (error != 0)
        return error;
    if (!superblock_has_magic(raw)) {
        log_error(volume->log, "the journal has replaced the superblock with something else");
        return -EUCLEAN;
    }
    superblock_mark_recovered(raw, has_errors);
    error = device_write(volume->device, raw, sizeof(raw), SUPERBLOCK_OFFSET_BYTES, 0);
    return error != 0 ? error : device_flush(volume->device);
}

static int replay_home(const struct volume *volume, const struct journal_location *location,
                       struct uext4_recovery *report)
{
    struct journal_superblock journal_sb;
    struct journal_replay *replay;
    int error = journal_read_superblock(location, &journal_sb);

    if (error != 0)
        return error;
    error = journal_scan(location, &journal_sb, &replay);
    if (error != 0)
        return error;
    report->pending_fast_commit_blocks = replay->fast_commit_blocks;
    if (replay->fast_commit_blocks > 0) {
        log_error(volume->log,
                  "%u blocks of fast commits are pending, which this version cannot "
                  "replay: nothing was written",
                  replay->fast_commit_blocks);
        error = -EOPNOTSUPP;
    } else {
        error = journal_replay_apply(location, &journal_sb, replay);
    }
    if (error == 0) {
        report->transactions = replay->transactions;
        report->blocks_written = replay->entry_count;
        report->blocks_revoked = replay->revoked_blocks;
        /* The journal's own error says that an earlier attempt had damage and was cut short. */
        report->had_damage = replay->had_bad_blocks || journal_sb.error != 0;
        if (report->had_damage)
            log_warning(volume->log, "the journal was damaged or aborted: "
                                     "the file system is marked for a full check by e2fsck");
        error = mark_recovered(volume, report->had_damage);
    }
    journal_replay_free(replay);
    return error;
}

int fs_recover_volume(struct volume *volume, const struct uext4_mount_options *options,
                      struct uext4_recovery *report)
{
    struct journal_location location;
    struct journal_extent *extents = NULL;
    const struct superblock *sb = &volume->sb;
    int error;

    report->orphan_list_head = sb->last_orphan;
    report->has_orphan_file_entries = superblock_has_ro_compat(sb,
                                                               FEATURE_RO_COMPAT_ORPHAN_PRESENT);
    if (!superblock_has_incompat(sb, FEATURE_INCOMPAT_RECOVER))
        return 0;
    report->was_needed = true;
    if (fs_has_external_journal(sb)) {
        log_error(volume->log, "the journal is external, which is not supported");
        return -EOPNOTSUPP;
    }
    error = buffer_cache_create(volume->device, sb->block_bytes, options->metadata_cache_bytes,
                                &volume->buffers);
    if (error != 0)
        return error;
    error = fs_locate_journal(volume, &location, &extents);
    if (error == -ENOENT) {
        log_error(volume->log, "needs_recovery is set, but there is no journal");
        error = -EUCLEAN;
    }
    if (error == 0)
        error = replay_home(volume, &location, report);
    free(extents);
    buffer_cache_destroy(volume->buffers);
    volume->buffers = NULL;
    return error;
}

int uext4_recover(const char *spec, const struct uext4_mount_options *given,
                  struct uext4_recovery *report)
{
    struct uext4_mount_options options;
    struct uext4_recovery unwanted;
    struct volume volume;
    struct log log;

    if (given != NULL)
        options = *given;
    else
        uext4_mount_options_init(&options);
    if (report == NULL)
        report = &unwanted;
    memset(report, 0, sizeof(*report));
    fs_log_init(&log, &options);
    if (options.superblock != 0) {
        log_error(&log, "recovery works with the primary superblock only");
        return -EINVAL;
    }
    int error = fs_open_volume(spec, &options, true, &log, &volume);
    if (error != 0)
        return error;
    error = fs_recover_volume(&volume, &options, report);
    device_close(volume.device);
    return error;
}
