/* SPDX-License-Identifier: MIT */
/*
 * Writing the blocks of one transaction into the log, at the place that log.c found for it:
 *
 *   revoke blocks, { descriptor, its data blocks }..., flush, commit block with FUA
 *
 * Blocks gather while they follow one another on the disk, and go out in large requests. What the
 * engine makes itself lies in a scratch, which is used again once it has been written.
 *
 * A copy that begins with the journal's magic number is escaped while it is in the log, and gets
 * the number back before anybody can write it home.
 *
 * Locks: none; waits for the device. Callers: log.c, in the commit thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/crc.h"
#include "journal/engine.h"
#include "journal/location.h"

#define MAX_WRITE_BYTES (1024u * 1024u)
#define MAX_WRITE_IOV   1024u

/* ---- Gathering ------------------------------------------------------------------------------ */

/* Blocks that follow one another on the disk gather here and go out in one request. */
struct log_writer {
    struct journal *journal;
    struct iovec *iov;
    uint32_t iov_max, iov_count;
    uint64_t disk_block;    /* of the first gathered */
    uint32_t journal_block; /* the next */
    uint32_t scratch_used;  /* blocks of the scratch that are gathered */
    uint32_t data_crc;
};

static int log_writer_init(struct log_writer *writer, struct journal *journal,
                           uint32_t journal_block)
{
    uint32_t max = device_limits(journal->device)->max_iov_count;

    max = MIN(max, MAX_WRITE_IOV);
    *writer = (struct log_writer){.journal = journal,
                                  .iov_max = MIN(max, MAX_WRITE_BYTES / journal->block_bytes),
                                  .journal_block = journal_block,
                                  .data_crc = ~0u};
    writer->iov = calloc(writer->iov_max, sizeof(*writer->iov));
    return writer->iov == NULL ? -ENOMEM : 0;
}

static int log_writer_flush(struct log_writer *writer, unsigned int flags)
{
    struct journal *journal = writer->journal;
    uint64_t offset_bytes = writer->disk_block * journal->block_bytes;
    uint32_t count = writer->iov_count;
    int error = 0;

    writer->iov_count = 0;
    writer->scratch_used = 0;
    if (count == 0)
        return 0;
    if (journal->can_write_vectored) {
        error = device_writev(journal->device, writer->iov, (int)count, offset_bytes, flags);
    } else {
        for (uint32_t i = 0; i < count && error == 0; i++)
            error = device_write(journal->device, writer->iov[i].iov_base, journal->block_bytes,
                                 offset_bytes + i * (uint64_t)journal->block_bytes, flags);
    }
    if (error != 0)
        log_error(journal->log, "journal: cannot write %u blocks of the log at disk block %llu: %s",
                  count, (unsigned long long)writer->disk_block, strerrordesc_np(-error));
    else
        count_event(&journal->blocks_logged, count);
    return error;
}

/* A block of the scratch to fill and then to add. */
static int log_writer_scratch(struct log_writer *writer, uint8_t **block)
{
    int error = 0;

    if (writer->scratch_used == LOG_SCRATCH_BLOCKS)
        error = log_writer_flush(writer, 0);
    *block = writer->journal->scratch + writer->scratch_used * writer->journal->block_bytes;
    writer->scratch_used++;
    return error;
}

static int log_writer_add(struct log_writer *writer, void *block)
{
    struct journal *journal = writer->journal;
    uint32_t run;
    uint64_t disk_block = journal_location_find(&journal->location, writer->journal_block, &run);

    if (writer->iov_count == writer->iov_max ||
        (writer->iov_count > 0 && writer->disk_block + writer->iov_count != disk_block)) {
        uint32_t scratch_used = writer->scratch_used;
        int error = log_writer_flush(writer, 0);

        if (error != 0)
            return error;
        /* The block being added may be the newest of the scratch. */
        writer->scratch_used = scratch_used;
    }
    if (writer->iov_count == 0)
        writer->disk_block = disk_block;
    writer->iov[writer->iov_count++] = (struct iovec){.iov_base = block,
                                                      .iov_len = journal->block_bytes};
    writer->journal_block++;
    if (writer->journal_block == journal->sb.first_block + journal->sb.log_blocks)
        writer->journal_block = journal->sb.first_block;
    return 0;
}

/* ---- The blocks ----------------------------------------------------------------------------- */

static int write_revokes(struct log_writer *log, struct transaction *transaction)
{
    const struct journal_layout *layout = &log->journal->layout;
    journal_sequence sequence = atomic_load(&transaction->sequence);
    struct journal_writer writer = {0};
    uint8_t *block = NULL;
    int error = 0;

    for (unsigned int i = 0; i < RECORD_SHARD_COUNT && error == 0; i++) {
        size_t position = 0;
        uint64_t revoked;

        while (error == 0 && revoke_set_next(&transaction->revokes[i], &position, &revoked)) {
            if (block != NULL && journal_revoke_add(&writer, revoked))
                continue;
            if (block != NULL) {
                journal_revoke_end(&writer);
                error = log_writer_add(log, block);
            }
            if (error == 0)
                error = log_writer_scratch(log, &block);
            if (error == 0) {
                journal_revoke_begin(&writer, layout, block, sequence);
                (void)journal_revoke_add(&writer, revoked);
            }
        }
    }
    if (error == 0 && block != NULL) {
        journal_revoke_end(&writer);
        error = log_writer_add(log, block);
    }
    return error;
}

/* Writes a descriptor and its blocks. */
static int write_group(struct log_writer *log, journal_sequence sequence,
                       struct journal_copy **copies, size_t count)
{
    const struct journal_layout *layout = &log->journal->layout;
    bool has_data_crc = (log->journal->sb.compat & JOURNAL_COMPAT_CHECKSUM) != 0;
    struct journal_writer writer;
    uint8_t *block;
    int error = log_writer_scratch(log, &block);

    if (error != 0)
        return error;
    journal_descriptor_begin(&writer, layout, block, sequence);
    for (size_t i = 0; i < count; i++) {
        struct journal_tag tag = {.disk_block = copies[i]->block};

        copies[i]->is_escaped = journal_is_escape_needed(copies[i]->data);
        if (copies[i]->is_escaped) {
            tag.flags = JOURNAL_TAG_ESCAPED;
            journal_escape(copies[i]->data);
        }
        tag.checksum = journal_tag_checksum(layout, sequence, copies[i]->data);
        (void)journal_descriptor_add(&writer, &tag);
    }
    journal_descriptor_end(&writer);
    if (has_data_crc)
        log->data_crc = crc32_be(log->data_crc, block, layout->block_bytes);
    error = log_writer_add(log, block);
    for (size_t i = 0; i < count && error == 0; i++) {
        if (has_data_crc)
            log->data_crc = crc32_be(log->data_crc, copies[i]->data, layout->block_bytes);
        error = log_writer_add(log, copies[i]->data);
    }
    return error;
}

/* Commit times never go backwards: a replay tells old blocks from damaged ones by that. */
static int write_commit(struct log_writer *log, journal_sequence sequence)
{
    struct journal *journal = log->journal;
    bool has_data_crc = (journal->sb.compat & JOURNAL_COMPAT_CHECKSUM) != 0;
    struct timespec now;
    uint8_t *block;
    int error = log_writer_scratch(log, &block);

    if (error != 0)
        return error;
    clock_gettime(CLOCK_REALTIME, &now);
    journal->last_seconds = MAX(journal->last_seconds, (uint64_t)MAX(now.tv_sec, 0));
    journal_commit_write(&journal->layout, block, sequence, journal->last_seconds,
                         (uint32_t)now.tv_nsec, has_data_crc ? &log->data_crc : NULL);
    error = log_writer_add(log, block);
    return error != 0 ? error : log_writer_flush(log, DEVICE_FUA);
}

static uint32_t divide_up(size_t value, uint32_t divisor)
{
    return (uint32_t)((value + divisor - 1) / divisor);
}

uint32_t log_count_blocks(const struct journal *journal, struct transaction *transaction,
                          size_t count)
{
    size_t revokes = 0;

    for (unsigned int i = 0; i < RECORD_SHARD_COUNT; i++)
        revokes += transaction->revokes[i].count;
    return divide_up(revokes, journal_revoke_capacity(&journal->layout)) +
           divide_up(count, journal_descriptor_capacity(&journal->layout)) + (uint32_t)count + 1;
}

int log_write_blocks(struct journal *journal, struct transaction *transaction,
                     const struct logged *logged, struct journal_copy **copies, size_t count)
{
    uint32_t capacity = journal_descriptor_capacity(&journal->layout);
    struct log_writer writer;
    int error = log_writer_init(&writer, journal, logged->start_block);

    if (error == 0)
        error = write_revokes(&writer, transaction);
    for (size_t i = 0; i < count && error == 0; i += capacity)
        error = write_group(&writer, logged->sequence, copies + i,
                            MIN(count - i, (size_t)capacity));
    if (error == 0)
        error = log_writer_flush(&writer, 0);
    if (error == 0)
        error = journal_flush(journal);
    if (error == 0 && is_aborted(journal))
        error = -EROFS;
    if (error == 0)
        error = write_commit(&writer, logged->sequence);
    free(writer.iov);
    for (size_t i = 0; i < count; i++)
        if (copies[i]->is_escaped)
            journal_unescape(copies[i]->data);
    return error;
}
