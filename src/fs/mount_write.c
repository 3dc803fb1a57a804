/* SPDX-License-Identifier: MIT */
/*
 * What a mount for writing adds: recovery, the journal, the allocator, orphans; and the way back.
 *
 *   refuse what is not understood -> replay home -> superblock: needs_recovery set, FUA
 *     -> buffers -> journal -> space -> inode table -> orphans freed or truncated
 *
 *   unmount: reap -> commit, everything home, log empty -> superblock: needs_recovery cleared
 *
 * needs_recovery is on the disk before the first commit can be in the log, and goes when the log is
 * empty, so that a crash anywhere is replayed. Without a journal the clean state takes its place.
 *
 * Locks: none; nobody else knows the file system yet, or any more.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/write.h"
#include "fs/change.h"

#define FEATURE_NAMES_BYTES 512
#define STATE_CLEAN         0x1

/* Refuses a file system that could not be kept right. */
static int check_features(const struct volume *volume)
{
    const struct superblock *sb = &volume->sb;
    char names[FEATURE_NAMES_BYTES];

    if (volume->backup_group != 0) {
        log_error(volume->log, "a backup superblock serves reading only: give the option ro");
        return -EOPNOTSUPP;
    }
    if (superblock_unwritable_features(sb, names, sizeof(names)) > 0) {
        log_error(volume->log, "features that are not supported for writing: %s (ro reads)", names);
        return -EOPNOTSUPP;
    }
    if (superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_QUOTA) ||
        superblock_has_incompat(sb, FEATURE_INCOMPAT_INLINE_DATA)) {
        log_error(volume->log, "features that are not supported for writing: %s (ro reads)",
                  superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_QUOTA) ? "quota" : "inline_data");
        return -EOPNOTSUPP;
    }
    if (fs_has_external_journal(sb)) {
        log_error(volume->log, "the journal is external, which is not supported for writing");
        return -EOPNOTSUPP;
    }
    return 0;
}

/* Changes the superblock on the disk, past buffers and journal. */
static int write_superblock(struct volume *volume, void (*change)(struct superblock *sb))
{
    uint8_t raw[SUPERBLOCK_BYTES];
    struct superblock sb;
    int error = device_read(volume->device, raw, sizeof(raw), SUPERBLOCK_OFFSET_BYTES);

    if (error != 0)
        return error;
    const char *reason = superblock_has_magic(raw)
                             ? superblock_parse(raw, device_limits(volume->device)->size_bytes, &sb)
                             : "no magic number";
    if (reason != NULL) {
        log_error(volume->log, "superblock: %s", reason);
        return -EUCLEAN;
    }
    change(&sb);
    superblock_format(&sb, raw);
    error = device_write(volume->device, raw, sizeof(raw), SUPERBLOCK_OFFSET_BYTES, DEVICE_FUA);
    if (error == 0)
        volume->sb = sb;
    return error;
}

static void mark_open(struct superblock *sb)
{
    if (superblock_has_compat(sb, FEATURE_COMPAT_HAS_JOURNAL))
        sb->incompat |= FEATURE_INCOMPAT_RECOVER;
    else
        sb->state &= (uint16_t)~STATE_CLEAN;
    sb->mount_count++;
    sb->mounted = sb->written = (uint64_t)time(NULL);
}

static void mark_closed(struct superblock *sb)
{
    sb->incompat &= ~(uint32_t)FEATURE_INCOMPAT_RECOVER;
    if (!superblock_has_compat(sb, FEATURE_COMPAT_HAS_JOURNAL))
        sb->state |= STATE_CLEAN;
    sb->written = (uint64_t)time(NULL);
}

static int open_journal(struct uext4 *fs)
{
    struct volume *volume = &fs->volume;
    struct journal_options options = {
        .commit_interval_ms = fs->options.commit_interval_seconds * 1000, .log = volume->log};
    struct journal_superblock journal_sb;
    struct journal_location location;
    struct journal_extent *extents = NULL;

    if (!superblock_has_compat(&volume->sb, FEATURE_COMPAT_HAS_JOURNAL))
        return journal_open(volume->buffers, volume->device, NULL, NULL, 1, &options,
                            &volume->journal);
    int error = fs_locate_journal(volume, &location, &extents);
    if (error == 0)
        error = journal_read_superblock(&location, &journal_sb);
    /* On a clean log the sequence is that of the last transaction. */
    if (error == 0)
        error = journal_open(volume->buffers, volume->device, &location, &journal_sb,
                             journal_sb.sequence + 1, &options, &volume->journal);
    free(extents);
    return error;
}

/* Frees an orphan without links, or cuts one that has some to its size. */
static int work_off_orphan(struct uext4 *fs, uint32_t ino, uint32_t *next)
{
    struct inode *inode;
    int error = inode_get_orphan(fs->inodes, ino, &inode);

    if (error != 0)
        return error;
    *next = inode->fields.deletion_time;
    orphan_adopt(inode);
    if (inode->fields.link_count > 0)
        error = data_cut_behind_size(inode);
    inode_put(inode);
    change_reap(fs);
    return error;
}

/*
 * Walks the orphan list. Each orphan takes itself off when it is done; the list on the disk is as
 * long as there are inodes at most.
 */
static int work_off_orphans(struct uext4 *fs)
{
    uint32_t ino = fs->volume.sb.last_orphan, count = 0;

    if (superblock_has_ro_compat(&fs->volume.sb, FEATURE_RO_COMPAT_ORPHAN_PRESENT)) {
        log_error(&fs->log, "the orphan file has entries, which is not supported for writing: "
                            "e2fsck can work them off (ro reads)");
        return -EOPNOTSUPP;
    }
    for (; ino != 0 && count < fs->volume.sb.inode_count; count++) {
        uint32_t next = 0;
        int error = work_off_orphan(fs, ino, &next);

        if (error != 0) {
            log_error(&fs->log, "orphan inode %u cannot be worked off: %s", ino,
                      strerrordesc_np(-error));
            return error;
        }
        ino = next;
    }
    if (count > 0)
        log_info(&fs->log, "%u orphans worked off", count);
    return 0;
}

int fs_open_changes(struct uext4 *fs)
{
    struct volume *volume = &fs->volume;
    struct space_options space_options = {
        .has_exact_counts = !superblock_has_incompat(&volume->sb, FEATURE_INCOMPAT_RECOVER)};
    struct uext4_recovery recovery = {0};
    int error = check_features(volume);

    if (error == 0)
        error = fs_recover_volume(volume, &fs->options, &recovery);
    if (error == 0)
        error = write_superblock(volume, mark_open);
    if (error == 0)
        error = buffer_cache_create(volume->device, volume->sb.block_bytes,
                                    fs->options.metadata_cache_bytes, &volume->buffers);
    if (error != 0)
        return error;
    if (recovery.was_needed)
        log_info(volume->log, "journal replayed: %u transactions, %llu blocks",
                 recovery.transactions, (unsigned long long)recovery.blocks_written);
    fs->info.journal_state = !superblock_has_compat(&volume->sb, FEATURE_COMPAT_HAS_JOURNAL)
                                 ? UEXT4_JOURNAL_NONE
                             : recovery.was_needed ? UEXT4_JOURNAL_REPLAYED
                                                   : UEXT4_JOURNAL_CLEAN;
    error = open_journal(fs);
    if (error == 0)
        error = space_create(volume, volume->journal, &space_options, &volume->space);
    if (error == 0)
        error = inode_table_create(volume, &fs->inodes);
    if (error == 0)
        error = work_off_orphans(fs);
    return error;
}

static int update_counts(struct uext4 *fs)
{
    struct handle handle;
    int error = journal_start(fs->volume.journal, SPACE_SUPERBLOCK_CREDITS, &handle);

    if (error != 0)
        return error;
    error = space_update_superblock(&handle, fs->volume.space);
    return change_stop(&handle, error, error != 0);
}

void fs_close_changes(struct uext4 *fs)
{
    struct volume *volume = &fs->volume;
    int error = 0;

    if (volume->journal == NULL)
        return;
    if (volume->space != NULL && fs->inodes != NULL && !journal_is_aborted(volume->journal)) {
        change_reap(fs);
        error = inode_write_pending(fs->inodes);
        if (error == 0)
            error = update_counts(fs);
    }
    bool was_aborted = journal_is_aborted(volume->journal);
    int close_error = journal_close(volume->journal);
    volume->journal = NULL;
    if (volume->space != NULL)
        space_destroy(volume->space);
    volume->space = NULL;
    if (error == 0)
        error = close_error;
    /* After an error the log may hold what is not home: the next mount replays it. */
    if (error == 0 && !was_aborted)
        error = write_superblock(volume, mark_closed);
    if (error != 0 && error != -EROFS)
        log_error(volume->log, "unmount: not everything reached the disk: %s",
                  strerrordesc_np(-error));
}
