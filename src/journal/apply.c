/* SPDX-License-Identifier: MIT */
/*
 * Writes a replay home.
 *
 *     blocks home -> flush -> superblock of an empty log -> flush
 *
 * A crash before the superblock's write leaves the log as it was, so the same blocks are written
 * again; its changed fields lie in one sector, so the write is whole or absent.
 * Invariant: nothing but the superblock of the journal's own blocks is written.
 * Locks: none; nobody else uses the device's file system. May wait for the device.
 * Callers: fs/ at mount.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/journal.h"
#include "journal/location.h"

#define RUN_BYTES        (1024u * 1024u)
#define BUFFER_ALIGNMENT 4096u

/* The number of entries from the first whose disk blocks follow one another, at most `max`. */
static size_t target_run(const struct journal_replay_entry *entries, size_t count, size_t max)
{
    size_t length = 1;

    while (length < count && length < max &&
           entries[length].disk_block == entries[0].disk_block + length)
        length++;
    return length;
}

static size_t source_run(const struct journal_replay_entry *entries, size_t count)
{
    size_t length = 1;

    while (length < count && entries[length].source_block == entries[0].source_block + length)
        length++;
    return length;
}

static int copy_run(const struct journal_location *location,
                    const struct journal_replay_entry *entries, size_t count, uint8_t *buffer)
{
    size_t block_bytes = location->block_bytes;
    int error;

    for (size_t i = 0, part; i < count; i += part) {
        part = source_run(entries + i, count - i);
        error = device_read(location->device, buffer + i * block_bytes, part * block_bytes,
                            entries[i].source_block * block_bytes);
        if (error != 0) {
            log_error(location->log, "journal: cannot read disk block %llu: %s",
                      (unsigned long long)entries[i].source_block, strerrordesc_np(-error));
            return error;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (entries[i].is_escaped)
            memcpy(buffer + i * block_bytes, journal_magic, sizeof(journal_magic));
    error = device_write(location->device, buffer, count * block_bytes,
                         entries[0].disk_block * block_bytes, 0);
    if (error != 0)
        log_error(location->log, "journal: cannot replay %zu blocks from disk block %llu: %s",
                  count, (unsigned long long)entries[0].disk_block, strerrordesc_np(-error));
    return error;
}

static int write_home(const struct journal_location *location, const struct journal_replay *replay)
{
    size_t max = MAX(RUN_BYTES / location->block_bytes, 1u);
    void *buffer;
    int error = 0;

    if (posix_memalign(&buffer, BUFFER_ALIGNMENT, max * location->block_bytes) != 0)
        return -ENOMEM;
    for (size_t i = 0, run; error == 0 && i < replay->entry_count; i += run) {
        run = target_run(replay->entries + i, replay->entry_count - i, max);
        error = copy_run(location, replay->entries + i, run, buffer);
    }
    free(buffer);
    return error;
}

static int mark_empty(const struct journal_location *location, const struct journal_superblock *sb,
                      const struct journal_replay *replay)
{
    bool has_checksum = (sb->incompat & (JOURNAL_INCOMPAT_CSUM_V2 | JOURNAL_INCOMPAT_CSUM_V3)) != 0;
    int32_t new_error = replay->had_bad_blocks && sb->error == 0 ? -EIO : 0;
    uint8_t raw[JOURNAL_SUPERBLOCK_BYTES];
    uint32_t run;
    uint64_t offset = journal_location_find(location, 0, &run) * location->block_bytes;
    int error = device_read(location->device, raw, sizeof(raw), offset);

    if (error != 0)
        return error;
    journal_superblock_mark_empty(raw, replay->next_sequence, new_error, has_checksum);
    error = device_write(location->device, raw, sizeof(raw), offset, DEVICE_FUA);
    if (error != 0)
        log_error(location->log, "journal: cannot write its superblock: %s",
                  strerrordesc_np(-error));
    return error;
}

int journal_replay_apply(const struct journal_location *location,
                         const struct journal_superblock *sb, const struct journal_replay *replay)
{
    int error = 0;

    if (sb->ro_compat != 0) {
        log_error(location->log,
                  "journal: unsupported read-only compatible features %#x, it is not replayed",
                  sb->ro_compat);
        return -EOPNOTSUPP;
    }
    if (replay->entry_count > 0)
        error = write_home(location, replay);
    if (error == 0)
        error = device_flush(location->device);
    if (error == 0)
        error = mark_empty(location, sb, replay);
    if (error == 0)
        error = device_flush(location->device);
    return error;
}
