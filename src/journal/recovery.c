/* SPDX-License-Identifier: MIT */
/*
 * Reads the journal's superblock and turns the log into a table of blocks to replay.
 *
 *     journal_read_superblock -> journal_scan -> (lay it over, or journal_replay_apply)
 *
 * Of each block's copies in the log, the newest wins that no revoke of its own or of a later
 * transaction covers and whose checksum is right.
 * Invariant: no entry of a replay is outside the file system or inside the journal.
 * Locks: none; each call has its own state and may wait for the device.
 * Callers: fs/ at mount.
 */
#include "journal/recovery.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/journal.h"
#include "journal/location.h"
#include "journal/reader.h"
#include "journal/replay_table.h"
#include "journal/scan.h"

#define KNOWN_INCOMPAT                                                                  \
    (JOURNAL_INCOMPAT_REVOKE | JOURNAL_INCOMPAT_64BIT | JOURNAL_INCOMPAT_ASYNC_COMMIT | \
     JOURNAL_INCOMPAT_CSUM_V2 | JOURNAL_INCOMPAT_CSUM_V3 | JOURNAL_INCOMPAT_FAST_COMMIT)
#define CHECKSUMS_INCOMPAT (JOURNAL_INCOMPAT_CSUM_V2 | JOURNAL_INCOMPAT_CSUM_V3)

const uint8_t journal_magic[4] = {0xc0, 0x3b, 0x39, 0x98};

/* ---- Superblock ----------------------------------------------------------------------------- */

static int check_features(const struct log *log, const struct journal_superblock_fields *fields)
{
    uint32_t unknown = fields->incompat & ~(uint32_t)KNOWN_INCOMPAT;
    uint32_t checksums = fields->incompat & CHECKSUMS_INCOMPAT;

    if (unknown != 0) {
        char names[32 * sizeof("FEATURE_I31")] = "";
        size_t length = 0;

        for (unsigned int bit = 0; bit < 32; bit++)
            if ((unknown >> bit & 1) != 0)
                length += (size_t)snprintf(names + length, sizeof(names) - length, " FEATURE_I%u",
                                           bit);
        log_error(log, "journal: unsupported incompatible features:%s", names);
        return -EOPNOTSUPP;
    }
    if (checksums == CHECKSUMS_INCOMPAT) {
        log_error(log, "journal: checksums of version 2 and of version 3 at the same time");
        return -EUCLEAN;
    }
    if (checksums != 0 && (fields->compat & JOURNAL_COMPAT_CHECKSUM) != 0) {
        log_error(log, "journal: checksums of version 1 and of a later one at the same time");
        return -EUCLEAN;
    }
    if (checksums != 0 && fields->checksum_type != JOURNAL_CHECKSUM_CRC32C) {
        log_error(log, "journal: unsupported checksum type %u", fields->checksum_type);
        return -EOPNOTSUPP;
    }
    return 0;
}

static int check_geometry(const struct journal_location *location,
                          const struct journal_superblock_fields *fields)
{
    if (fields->block_bytes != location->block_bytes)
        log_error(location->log, "journal: blocks of %u bytes in a file system of %u-byte blocks",
                  fields->block_bytes, location->block_bytes);
    else if (fields->block_count > location->block_count)
        log_error(location->log, "journal: length of %u blocks in a file of %u",
                  fields->block_count, location->block_count);
    else if (fields->first_block == 0 || fields->first_block >= fields->block_count)
        log_error(location->log, "journal: first block %u of %u", fields->first_block,
                  fields->block_count);
    else
        return 0;
    return -EUCLEAN;
}

/* The log is what the fast-commit area leaves; a journal too small for both has no such area. */
static void split_journal(struct journal_superblock *sb, uint32_t fast_commit_blocks)
{
    uint32_t wanted = 0;

    if ((sb->incompat & JOURNAL_INCOMPAT_FAST_COMMIT) != 0)
        wanted = fast_commit_blocks != 0 ? fast_commit_blocks : JOURNAL_DEFAULT_FAST_COMMIT_BLOCKS;
    if (sb->block_count < JOURNAL_MIN_LOG_BLOCKS ||
        sb->block_count - JOURNAL_MIN_LOG_BLOCKS < wanted ||
        sb->block_count - wanted <= sb->first_block)
        wanted = 0;
    sb->fast_commit_blocks = wanted;
    sb->log_blocks = sb->block_count - wanted - sb->first_block;
}

static void convert(const struct journal_superblock_fields *fields,
                    struct journal_superblock *result)
{
    *result = (struct journal_superblock){
        .version = fields->type == JOURNAL_BLOCK_SUPERBLOCK_V1 ? 1 : 2,
        .block_bytes = fields->block_bytes,
        .block_count = fields->block_count,
        .first_block = fields->first_block,
        .sequence = fields->sequence,
        .start_block = fields->start_block,
        .error = fields->error,
        .compat = fields->compat,
        .incompat = fields->incompat,
        .ro_compat = fields->ro_compat,
        .checksum_type = fields->checksum_type,
    };
    memcpy(result->uuid, fields->uuid, sizeof(result->uuid));
    split_journal(result, fields->fast_commit_blocks);
}

static int check_superblock(const struct journal_location *location, const uint8_t *raw,
                            const struct journal_superblock_fields *fields)
{
    int error = check_features(location->log, fields);

    if (error != 0)
        return error;
    if ((fields->incompat & CHECKSUMS_INCOMPAT) != 0 &&
        journal_superblock_checksum(raw) != fields->checksum) {
        log_error(location->log, "journal: its superblock's checksum is wrong");
        return -EBADMSG;
    }
    return check_geometry(location, fields);
}

int journal_read_superblock(const struct journal_location *location,
                            struct journal_superblock *result)
{
    uint8_t raw[JOURNAL_SUPERBLOCK_BYTES];
    struct journal_superblock_fields fields;
    uint64_t disk_block;
    uint32_t run;
    int error = journal_location_check(location);

    if (error != 0)
        return error;
    disk_block = journal_location_find(location, 0, &run);
    error = device_read(location->device, raw, sizeof(raw), disk_block * location->block_bytes);
    if (error != 0) {
        log_error(location->log, "journal: cannot read its superblock: %s",
                  strerrordesc_np(-error));
        return error;
    }
    if (!journal_superblock_parse(raw, &fields)) {
        log_error(location->log, "journal: disk block %llu is not its superblock",
                  (unsigned long long)disk_block);
        return -EINVAL;
    }
    error = check_superblock(location, raw, &fields);
    if (error != 0)
        return error;
    convert(&fields, result);
    if (result->start_block != 0 &&
        (result->start_block < result->first_block ||
         result->start_block - result->first_block >= result->log_blocks)) {
        log_error(location->log, "journal: the log starts at block %u outside it",
                  result->start_block);
        return -EUCLEAN;
    }
    if (result->version > 1 && memcmp(result->uuid, location->fs_uuid, sizeof(result->uuid)) != 0)
        log_info(location->log, "journal: its UUID is not the file system's");
    return 0;
}

/* ---- Revoke and replay ---------------------------------------------------------------------- */

static int apply_revokes(struct journal_reader *reader, const struct journal_superblock *sb,
                         const struct journal_layout *layout, struct replay_table *table)
{
    for (size_t i = 0; i < table->revoke_count; i++) {
        const struct replay_revoke *revoke = &table->revokes[i];
        uint32_t journal_block = journal_log_block(sb, revoke->position);
        const uint8_t *block;
        int count;
        int error = journal_reader_get(reader, journal_block, &block);

        if (error != 0)
            return error;
        count = journal_revoke_count(layout, block);
        if (count < 0) {
            log_error(reader->location->log, "journal: revoke block %u has a wrong length",
                      journal_block);
            return count;
        }
        for (int k = 0; k < count; k++)
            replay_table_revoke(table, journal_revoke_record(layout, block, k),
                                revoke->transaction);
    }
    return 0;
}

struct builder {
    const struct journal_location *location;
    const struct journal_superblock *sb;
    const struct replay_table *table;
    struct journal_replay *replay;
    struct journal_extent *journal_extents; /* sorted by disk block */
    size_t next_extent; /* the first that does not end before the block being added */
};

static int check_target(struct builder *builder, uint64_t disk_block)
{
    const struct journal_location *location = builder->location;
    const struct journal_extent *extents = builder->journal_extents;

    if (disk_block < location->fs_first_data_block || disk_block >= location->fs_block_count) {
        log_error(location->log, "journal: it holds block %llu, which is not in the file system",
                  (unsigned long long)disk_block);
        return -EUCLEAN;
    }
    while (builder->next_extent < location->extent_count &&
           extents[builder->next_extent].disk_block + extents[builder->next_extent].length_blocks <=
               disk_block)
        builder->next_extent++;
    if (builder->next_extent < location->extent_count &&
        extents[builder->next_extent].disk_block <= disk_block) {
        log_error(location->log, "journal: it holds block %llu, which is its own",
                  (unsigned long long)disk_block);
        return -EUCLEAN;
    }
    return 0;
}

/* Adds the newest good copy of a block, given its tags in the order of the log. */
static int add_block(struct builder *builder, const struct replay_tag *tags, size_t count)
{
    struct journal_replay *replay = builder->replay;
    const struct replay_tag *newest = NULL;
    bool has_live = false;
    uint32_t run;
    int error;

    for (size_t i = 0; i < count; i++) {
        if (tags[i].transaction < tags[0].revoked_before) {
            replay->revoked_blocks++;
            continue;
        }
        has_live = true;
        if (!tags[i].is_bad) {
            newest = &tags[i];
            continue;
        }
        replay->had_bad_blocks = true;
        log_error(builder->location->log,
                  "journal: wrong checksum of its block %u, left out of disk block %llu",
                  journal_log_block(builder->sb, tags[i].position),
                  (unsigned long long)tags[i].disk_block);
    }
    if (!has_live)
        return 0;
    error = check_target(builder, tags[0].disk_block);
    if (error != 0 || newest == NULL)
        return error;
    replay->entries[replay->entry_count++] = (struct journal_replay_entry){
        .disk_block = newest->disk_block,
        .source_block = journal_location_find(
            builder->location, journal_log_block(builder->sb, newest->position), &run),
        .is_escaped = newest->is_escaped,
    };
    return 0;
}

static int build_replay(struct builder *builder)
{
    const struct replay_table *table = builder->table;
    const struct replay_tag *tags = table->tags;
    size_t blocks = 0;
    int error = 0;

    for (size_t i = 0; i < table->tag_count; i++)
        blocks += i == 0 || tags[i].disk_block != tags[i - 1].disk_block;
    if (blocks == 0)
        return 0;
    builder->replay->entries = calloc(blocks, sizeof(*builder->replay->entries));
    builder->journal_extents = journal_location_sort(builder->location);
    if (builder->replay->entries == NULL || builder->journal_extents == NULL)
        error = -ENOMEM;
    for (size_t first = 0, end; error == 0 && first < table->tag_count; first = end) {
        for (end = first + 1; end < table->tag_count; end++)
            if (tags[end].disk_block != tags[first].disk_block)
                break;
        error = add_block(builder, tags + first, end - first);
    }
    free(builder->journal_extents);
    return error;
}

/* The three passes over a log that is not empty. */
static int recover(const struct journal_location *location, const struct journal_superblock *sb,
                   struct journal_replay *replay)
{
    unsigned int checksum_version = (sb->incompat & JOURNAL_INCOMPAT_CSUM_V3) != 0   ? 3
                                    : (sb->incompat & JOURNAL_INCOMPAT_CSUM_V2) != 0 ? 2
                                                                                     : 0;
    struct journal_layout layout;
    struct journal_reader reader;
    struct replay_table table = {0};
    struct builder builder = {
        .location = location,
        .sb = sb,
        .table = &table,
        .replay = replay,
    };
    struct log_end end;
    int error = journal_reader_init(&reader, location);

    if (error != 0)
        return error;
    journal_layout_init(&layout, sb->block_bytes, checksum_version,
                        (sb->incompat & JOURNAL_INCOMPAT_64BIT) != 0, sb->uuid);
    error = journal_scan_log(&reader, sb, &layout, &table, &end);
    if (error != 0)
        goto out;
    replay->transactions = end.transactions;
    replay->had_bad_blocks = end.is_damaged;
    /* One more than the first that is missing: what is left of that one must never match again. */
    replay->next_sequence = sb->sequence + end.transactions + 1;
    replay_table_sort(&table);
    error = apply_revokes(&reader, sb, &layout, &table);
    if (error == 0)
        error = build_replay(&builder);
    if (error == 0)
        error = journal_count_fast_commits(&reader, sb, sb->sequence + end.transactions,
                                           &replay->fast_commit_blocks);
out:
    replay_table_destroy(&table);
    journal_reader_destroy(&reader);
    return error;
}

int journal_scan(const struct journal_location *location, const struct journal_superblock *sb,
                 struct journal_replay **result)
{
    struct journal_replay *replay = calloc(1, sizeof(*replay));
    int error = 0;

    if (replay == NULL)
        return -ENOMEM;
    replay->next_sequence = sb->sequence + 1;
    if (sb->start_block != 0)
        error = recover(location, sb, replay);
    if (error != 0) {
        journal_replay_free(replay);
        return error;
    }
    *result = replay;
    return 0;
}

void journal_replay_free(struct journal_replay *replay)
{
    if (replay == NULL)
        return;
    free(replay->entries);
    free(replay);
}
