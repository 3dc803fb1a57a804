/* SPDX-License-Identifier: MIT */
/*
 * Finds the whole transactions of a log, in one pass that reads each block at most once:
 *
 *     transaction = { descriptor, data blocks... | revoke block }... commit
 *
 * The log ends at the first block that does not carry the next header. A checksum that does not
 * match may be damage, or a block of an earlier life of the log; the time in the commit that
 * follows tells them apart, since times never go backwards while the log lives.
 *
 * Invariant: positions only grow and stay below the log's length, so the walk ends.
 * Locks: none. Callers: recovery.c.
 */
#include "journal/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/crc.h"

enum step { STEP_ON, STEP_END };

struct scan {
    struct journal_reader *reader;
    const struct journal_superblock *sb;
    const struct journal_layout *layout;
    const struct log *log;
    struct replay_table *table;
    struct log_end *end;
    uint8_t *descriptor; /* a copy: its data blocks are read while it is in use */

    uint32_t position;    /* blocks of the log behind us */
    uint32_t transaction; /* counts from the log's start */
    uint32_t data_crc;    /* of the transaction's blocks, for checksums of version 1 */
    uint64_t last_seconds;
    bool is_suspect;     /* a block of this transaction had a wrong checksum */
    bool is_interrupted; /* an asynchronous commit before this one did not arrive whole */
};

uint32_t journal_log_block(const struct journal_superblock *sb, uint32_t position)
{
    uint64_t distance = (uint64_t)(sb->start_block - sb->first_block) + position;

    return sb->first_block + (uint32_t)(distance % sb->log_blocks);
}

static uint32_t sequence_of(const struct scan *scan)
{
    return scan->sb->sequence + scan->transaction;
}

static bool has_data_crc(const struct scan *scan)
{
    return (scan->sb->compat & JOURNAL_COMPAT_CHECKSUM) != 0;
}

/* Checks the data block of a tag where there are checksums, and adds it to the transaction's. */
static int check_data(struct scan *scan, const struct journal_tag *tag, uint32_t position,
                      bool *is_bad)
{
    uint32_t journal_block = journal_log_block(scan->sb, position);
    const uint8_t *data;
    int error;

    *is_bad = false;
    if (scan->is_suspect || (scan->layout->checksum_version < 2 && !has_data_crc(scan)))
        return 0;
    error = journal_reader_get(scan->reader, journal_block, &data);
    if (error != 0)
        return error;
    if (has_data_crc(scan))
        scan->data_crc = crc32_be(scan->data_crc, data, scan->layout->block_bytes);
    *is_bad = !journal_tag_checksum_matches(scan->layout, tag, sequence_of(scan), data);
    return 0;
}

/* A descriptor at `position`; the data blocks of its tags follow it. */
static int scan_descriptor(struct scan *scan, const uint8_t *block, enum step *step)
{
    uint32_t offset = 0;
    struct journal_tag tag;
    int error;

    if (!journal_tail_checksum_matches(scan->layout, block))
        scan->is_suspect = true;
    if (has_data_crc(scan))
        scan->data_crc = crc32_be(scan->data_crc, block, scan->layout->block_bytes);
    memcpy(scan->descriptor, block, scan->layout->block_bytes);
    scan->position++;
    while (journal_tag_next(scan->layout, scan->descriptor, &offset, &tag)) {
        struct replay_tag entry = {
            .disk_block = tag.disk_block,
            .position = scan->position,
            .transaction = scan->transaction,
            .is_escaped = (tag.flags & JOURNAL_TAG_ESCAPED) != 0,
        };

        if (scan->position >= scan->sb->log_blocks) {
            *step = STEP_END;
            return 0;
        }
        error = check_data(scan, &tag, scan->position, &entry.is_bad);
        if (error == 0)
            error = replay_table_add_tag(scan->table, &entry);
        if (error != 0)
            return error;
        scan->position++;
    }
    return 0;
}

static int scan_revoke(struct scan *scan, const uint8_t *block)
{
    struct replay_revoke revoke = {
        .position = scan->position,
        .transaction = scan->transaction,
    };

    if (!journal_tail_checksum_matches(scan->layout, block))
        scan->is_suspect = true;
    scan->position++;
    return replay_table_add_revoke(scan->table, &revoke);
}

static bool is_commit_intact(const struct scan *scan, const uint8_t *block,
                             const struct journal_commit *commit)
{
    if (!has_data_crc(scan))
        return journal_commit_checksum_matches(scan->layout, block);
    if (commit->checksum_type == JOURNAL_CHECKSUM_NONE && commit->checksum_size == 0)
        return commit->checksum == 0;
    return commit->checksum_type == JOURNAL_CHECKSUM_CRC32 &&
           commit->checksum_size == sizeof(uint32_t) && commit->checksum == scan->data_crc;
}

/* A commit whose own checksum, or the one that it holds of its transaction, is wrong. */
static enum step end_at_broken_commit(struct scan *scan, const struct journal_commit *commit)
{
    if (commit->seconds < scan->last_seconds)
        return STEP_END;
    if ((scan->sb->incompat & JOURNAL_INCOMPAT_ASYNC_COMMIT) != 0) {
        /* It may have been written before its data; it ends the log, unless a later one exists. */
        scan->is_interrupted = true;
        return STEP_ON;
    }
    log_error(scan->log, "journal: transaction %u has a commit with a wrong checksum",
              sequence_of(scan));
    scan->end->is_damaged = true;
    return STEP_END;
}

static int scan_commit(struct scan *scan, const uint8_t *block, enum step *step)
{
    struct journal_commit commit;

    journal_commit_parse(block, &commit);
    if (scan->is_suspect) {
        *step = STEP_END;
        if (commit.seconds < scan->last_seconds)
            return 0;
        log_error(scan->log, "journal: transaction %u has a descriptor with a wrong checksum",
                  sequence_of(scan));
        return -EBADMSG;
    }
    if (scan->is_interrupted) {
        log_error(scan->log, "journal: a transaction before %u has a wrong checksum",
                  sequence_of(scan));
        scan->end->is_damaged = true;
        *step = STEP_END;
        return 0;
    }
    if (is_commit_intact(scan, block, &commit)) {
        replay_table_commit(scan->table);
        scan->end->transactions = scan->transaction + 1;
    } else {
        *step = end_at_broken_commit(scan, &commit);
    }
    scan->last_seconds = commit.seconds;
    scan->data_crc = ~0u;
    scan->transaction++;
    scan->position++;
    return 0;
}

static int scan_block(struct scan *scan, enum step *step)
{
    struct journal_header header;
    const uint8_t *block;
    int error = journal_reader_get(scan->reader, journal_log_block(scan->sb, scan->position),
                                   &block);

    if (error != 0)
        return error;
    if (!journal_header_parse(block, &header) || header.sequence != sequence_of(scan)) {
        *step = STEP_END;
        return 0;
    }
    switch (header.type) {
    case JOURNAL_BLOCK_DESCRIPTOR:
        return scan_descriptor(scan, block, step);
    case JOURNAL_BLOCK_REVOKE:
        return scan_revoke(scan, block);
    case JOURNAL_BLOCK_COMMIT:
        return scan_commit(scan, block, step);
    default:
        *step = STEP_END;
        return 0;
    }
}

int journal_scan_log(struct journal_reader *reader, const struct journal_superblock *sb,
                     const struct journal_layout *layout, struct replay_table *table,
                     struct log_end *end)
{
    struct scan scan = {
        .reader = reader,
        .sb = sb,
        .layout = layout,
        .log = reader->location->log,
        .table = table,
        .end = end,
        .descriptor = malloc(layout->block_bytes),
        .data_crc = ~0u,
    };
    enum step step = STEP_ON;
    int error = scan.descriptor == NULL ? -ENOMEM : 0;

    *end = (struct log_end){0};
    while (error == 0 && step == STEP_ON && scan.position < sb->log_blocks)
        error = scan_block(&scan, &step);
    free(scan.descriptor);
    return error;
}
