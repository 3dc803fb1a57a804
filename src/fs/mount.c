/* SPDX-License-Identifier: MIT */
/*
 * Mounting and unmounting.
 *
 *   device -> superblock -> buffers -> journal: nothing to replay        -> inode table
 *                              ^                `-> scan -> overlay --.
 *                              |                                      |
 *                              `------- superblock, read again <------'
 *
 * A read-only mount replays the journal by laying its blocks over the device. Everything that was
 * read before may be older than what the journal holds, so it is read again.
 *
 * Locks: none; nobody else knows the file system yet, or any more.
 */
#include <errno.h>
#include <stdlib.h>

#include "block/overlay.h"
#include "fs/fs.h"

const char *uext4_version(void)
{
    return UEXT4_VERSION;
}

static int create_buffers(struct uext4 *fs)
{
    return buffer_cache_create(fs->volume.device, fs->volume.sb.block_bytes,
                               fs->options.metadata_cache_bytes, &fs->volume.buffers);
}

/* Shows the device as the replay of its journal would leave it. */
static int lay_over(struct uext4 *fs, const struct journal_replay *replay)
{
    struct volume *volume = &fs->volume;
    uint32_t block_bytes = volume->sb.block_bytes;
    struct overlay_entry *entries = calloc(MAX(replay->entry_count, 1), sizeof(*entries));
    uint8_t raw[SUPERBLOCK_BYTES];
    char names[512];

    if (entries == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < replay->entry_count; i++) {
        entries[i].block = replay->entries[i].disk_block;
        entries[i].source_offset = replay->entries[i].source_block * block_bytes;
        entries[i].has_patch = replay->entries[i].is_escaped;
    }
    struct device *overlay;
    int error = overlay_create(volume->device, block_bytes, entries, replay->entry_count,
                               journal_magic, &overlay);
    if (error != 0) {
        free(entries);
        return error;
    }
    volume->device = overlay;
    buffer_cache_destroy(volume->buffers);
    volume->buffers = NULL;

    error = device_read(volume->device, raw, sizeof(raw), SUPERBLOCK_OFFSET_BYTES);
    if (error != 0)
        return error;
    const char *reason = superblock_has_magic(raw)
                             ? superblock_parse(raw, device_limits(overlay)->size_bytes,
                                                &volume->sb)
                             : "no magic number";
    if (reason == NULL && volume->sb.block_bytes != block_bytes)
        reason = "another block size";
    if (reason != NULL) {
        log_error(volume->log, "superblock, as the journal has it: %s", reason);
        return -EUCLEAN;
    }
    if (!fs->options.skip_checksums && !superblock_checksum_matches(raw)) {
        log_error(volume->log, "superblock, as the journal has it: checksum does not match");
        return -EBADMSG;
    }
    if (superblock_unsupported_features(&volume->sb, names, sizeof(names)) > 0) {
        log_error(volume->log, "features, as the journal has them, that are not supported: %s",
                  names);
        return -EOPNOTSUPP;
    }
    return create_buffers(fs);
}

static void note_journal(struct uext4_info *info, const struct journal_superblock *sb)
{
    info->journal_block_count = sb->block_count;
    info->journal_first_sequence = sb->sequence;
    info->journal_compat = sb->compat;
    info->journal_incompat = sb->incompat;
    info->journal_ro_compat = sb->ro_compat;
}

static int replay(struct uext4 *fs, const struct journal_location *location,
                  const struct journal_superblock *journal_sb)
{
    const struct log *log = fs->volume.log;
    struct journal_replay *result;
    int error = journal_scan(location, journal_sb, &result);

    if (error != 0) {
        log_error(log, "the journal cannot be replayed (noload shows the image without it)");
        return error;
    }
    fs->info.journal_state = UEXT4_JOURNAL_REPLAYED;
    fs->info.replayed_transactions = result->transactions;
    fs->info.replayed_blocks = result->entry_count;
    fs->info.revoked_blocks = result->revoked_blocks;
    fs->info.pending_fast_commit_blocks = result->fast_commit_blocks;
    if (result->fast_commit_blocks > 0)
        log_warning(log, "%u blocks of fast commits are pending: what they hold is not shown",
                    result->fast_commit_blocks);
    if (result->had_bad_blocks)
        log_warning(log, "some blocks of the journal are damaged and were left out");
    log_info(log, "journal replayed in memory: %u transactions, %zu blocks", result->transactions,
             result->entry_count);
    if (result->entry_count > 0)
        error = lay_over(fs, result);
    journal_replay_free(result);
    return error;
}

/* Looks at the journal, and replays it in memory if the file system asks for that. */
static int open_journal(struct uext4 *fs)
{
    const struct superblock *sb = &fs->volume.sb;
    bool is_dirty = superblock_has_incompat(sb, FEATURE_INCOMPAT_RECOVER);
    struct journal_superblock journal_sb;
    struct journal_location location;
    struct journal_extent *extents = NULL;

    fs->info.journal_state = UEXT4_JOURNAL_NONE;
    if (!superblock_has_compat(sb, FEATURE_COMPAT_HAS_JOURNAL)) {
        if (!is_dirty)
            return 0;
        log_error(fs->volume.log, "needs_recovery is set, but there is no journal");
        return fs->options.skip_journal_replay ? 0 : -EUCLEAN;
    }
    fs->info.journal_state = fs_has_external_journal(sb) ? UEXT4_JOURNAL_EXTERNAL
                             : is_dirty                  ? UEXT4_JOURNAL_SKIPPED
                                                         : UEXT4_JOURNAL_CLEAN;
    if (fs_has_external_journal(sb)) {
        if (!is_dirty || fs->options.skip_journal_replay)
            return 0;
        log_error(fs->volume.log, "needs recovery from an external journal, which is not "
                                  "supported (noload shows the image without it)");
        return -EOPNOTSUPP;
    }
    int error = fs_locate_journal(&fs->volume, &location, &extents);
    if (error == 0)
        error = journal_read_superblock(&location, &journal_sb);
    if (error == 0) {
        note_journal(&fs->info, &journal_sb);
        if (is_dirty && !fs->options.skip_journal_replay)
            error = replay(fs, &location, &journal_sb);
    } else if (!is_dirty || fs->options.skip_journal_replay) {
        /* A journal with nothing to say does not keep anybody from reading the rest. */
        log_warning(fs->volume.log, "the journal is damaged");
        error = error == -ENOMEM ? error : 0;
    }
    free(extents);
    return error;
}

static void fs_free(struct uext4 *fs)
{
    fs_close_changes(fs);
    inode_table_destroy(fs->inodes);
    buffer_cache_destroy(fs->volume.buffers);
    device_close(fs->volume.device);
    mutex_destroy(&fs->usage_mutex);
    mutex_destroy(&fs->rename_mutex);
    free(fs);
}

static int open_for_reading(struct uext4 *fs)
{
    int error = create_buffers(fs);

    if (error == 0)
        error = open_journal(fs);
    if (error == 0)
        error = inode_table_create(&fs->volume, &fs->inodes);
    return error;
}

int uext4_mount(const char *spec, const struct uext4_mount_options *options, struct uext4 **result)
{
    struct uext4 *fs = calloc(1, sizeof(*fs));

    if (fs == NULL)
        return -ENOMEM;
    if (options != NULL)
        fs->options = *options;
    else
        uext4_mount_options_init(&fs->options);
    fs_log_init(&fs->log, &fs->options);
    bool is_writable = !fs->options.is_read_only;
    int error = fs_open_volume(spec, &fs->options, is_writable, &fs->log, &fs->volume);
    if (error != 0) {
        free(fs);
        return error;
    }
    mutex_init(&fs->usage_mutex, LOCK_RANK_FS, "usage");
    mutex_init(&fs->rename_mutex, LOCK_RANK_RENAME, "rename");
    error = is_writable ? fs_open_changes(fs) : open_for_reading(fs);
    if (error != 0) {
        fs_free(fs);
        return error;
    }
    fs_fill_info(&fs->volume, &fs->info);
    *result = fs;
    return 0;
}

void uext4_unmount(struct uext4 *fs)
{
    size_t held = inode_table_count(fs->inodes);

    if (held > 0)
        log_error(&fs->log, "unmounted while %zu inodes are held: a mistake of the program", held);
    fs_free(fs);
}
