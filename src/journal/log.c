/* SPDX-License-Identifier: MIT */
/*
 * The log on the disk.
 *
 *   ... free ... | T1 | T2 | (T3 being written) | ... free ...      the blocks wrap
 *                ^ tail: superblock             ^ head
 *
 * The order of writes, and what a crash between them leaves:
 *
 *   superblock (start = T) \  only if it says that the log is empty. Without the commit block a
 *   revokes, descriptors,   } replay finds no whole transaction at T, whatever part of these
 *     data of T            /  arrived: sequences never repeat, so nothing older passes for T
 *   flush                     all of it is there, and file data that T refers to
 *   commit block, FUA         T counts, as a whole
 *   ... home writes ...       the log still has what they write; torn ones are replayed over
 *   flush                     they are there
 *   superblock (tail), FUA    a replay begins behind what is home; only now is the space free, so
 *                             that no block is overwritten that a replay would start from
 *
 * What changes in the superblock lies in one sector: it is the old one or the new one.
 *
 * Invariants: `logged` is in the order of the log; the superblock's start is that of its first, or
 * the head; log_used counts from the start on the disk. A transaction is listed before its first
 * block is written, so that no tail passes it.
 * Locks: `state`; is_superblock_busy is held over the superblock's write instead of a lock.
 * Callers: commit.c, checkpoint.c, journal.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal/engine.h"
#include "journal/location.h"

#define MIN_LOG_BLOCKS         16u
#define MAX_TRANSACTION_BLOCKS 16384u /* bounds the memory of its copies in a large log */
#define MAX_COPY_FACTOR        4u     /* times max_copy_bytes: commits wait */
#define MAX_REVOKE_BLOCKS      256u   /* of one transaction */
#define SCRATCH_ALIGNMENT      4096u
#define CHECKSUMS_INCOMPAT     ((uint32_t)(JOURNAL_INCOMPAT_CSUM_V2 | JOURNAL_INCOMPAT_CSUM_V3))

/* ---- Opening -------------------------------------------------------------------------------- */

static int read_superblock(struct journal *journal)
{
    struct journal_superblock_fields fields;
    uint32_t run;
    uint64_t disk_block = journal_location_find(&journal->location, 0, &run);
    int error = device_read(journal->device, journal->raw_superblock, JOURNAL_SUPERBLOCK_BYTES,
                            disk_block * journal->block_bytes);

    if (error == 0 && !journal_superblock_parse(journal->raw_superblock, &fields))
        error = -EINVAL;
    else if (error == 0 && fields.start_block != 0)
        error = -EBUSY;
    if (error != 0)
        log_error(journal->log, "journal: its superblock does not say that the log is empty: %s",
                  strerrordesc_np(-error));
    return error;
}

/* Takes over the superblock as the caller wants it, and works out what follows from it. */
static void set_format(struct journal *journal, const struct journal_superblock *sb)
{
    unsigned int checksum_version;
    uint32_t revoke_blocks = MIN(sb->log_blocks / 4, MAX_REVOKE_BLOCKS);

    journal->sb = *sb;
    journal->sb.incompat |= JOURNAL_INCOMPAT_REVOKE;
    if (journal->location.fs_block_count > UINT32_MAX)
        journal->sb.incompat |= JOURNAL_INCOMPAT_64BIT;
    if ((journal->sb.incompat & CHECKSUMS_INCOMPAT) != 0)
        journal->sb.checksum_type = JOURNAL_CHECKSUM_CRC32C;
    checksum_version = (journal->sb.incompat & JOURNAL_INCOMPAT_CSUM_V3) != 0   ? 3
                       : (journal->sb.incompat & JOURNAL_INCOMPAT_CSUM_V2) != 0 ? 2
                                                                                : 0;
    journal_layout_init(&journal->layout, journal->block_bytes, checksum_version,
                        (journal->sb.incompat & JOURNAL_INCOMPAT_64BIT) != 0, sb->uuid);
    journal->max_blocks = MIN(sb->log_blocks / 4, MAX_TRANSACTION_BLOCKS);
    journal->max_revokes = revoke_blocks * journal_revoke_capacity(&journal->layout);
}

int log_open(struct journal *journal, const struct journal_location *location,
             const struct journal_superblock *sb)
{
    size_t extent_bytes = location->extent_count * sizeof(struct journal_extent);
    void *scratch;
    int error = journal_location_check(location);

    if (error != 0)
        return error;
    if (sb->log_blocks < MIN_LOG_BLOCKS) {
        log_error(journal->log, "journal: a log of %u blocks is too small to write to",
                  sb->log_blocks);
        return -EINVAL;
    }
    if (sb->ro_compat != 0) {
        log_error(journal->log, "journal: unsupported read-only compatible features %#x",
                  sb->ro_compat);
        return -EOPNOTSUPP;
    }
    journal->extents = malloc(extent_bytes);
    if (journal->extents == NULL)
        return -ENOMEM;
    memcpy(journal->extents, location->extents, extent_bytes);
    journal->location = *location;
    journal->location.extents = journal->extents;
    if (posix_memalign(&scratch, SCRATCH_ALIGNMENT, LOG_SCRATCH_BLOCKS * journal->block_bytes) != 0)
        return -ENOMEM;
    journal->scratch = scratch;
    set_format(journal, sb);
    journal->log_head = sb->first_block;
    journal->is_marked_empty = true;
    return read_superblock(journal);
}

void log_close(struct journal *journal)
{
    free(journal->scratch);
    free(journal->extents);
}

/* ---- Superblock ----------------------------------------------------------------------------- */

static void superblock_acquire_locked(struct journal *journal) REQUIRES(&journal->state)
{
    while (journal->is_superblock_busy)
        condition_wait(&journal->progress, &journal->state);
    journal->is_superblock_busy = true;
}

static void superblock_release_locked(struct journal *journal) REQUIRES(&journal->state)
{
    journal->is_superblock_busy = false;
    condition_broadcast(&journal->progress);
}

/* Writes the superblock, which the caller has acquired; no lock is held. */
static int superblock_write(struct journal *journal, uint32_t start_block,
                            journal_sequence sequence, int32_t noted_error, unsigned int flags)
{
    struct journal_superblock_update update = {
        .sequence = sequence,
        .start_block = start_block,
        .error = noted_error,
        .compat = journal->sb.compat,
        .incompat = journal->sb.incompat,
        .ro_compat = journal->sb.ro_compat,
        .checksum_type = journal->sb.checksum_type,
    };
    uint8_t raw[JOURNAL_SUPERBLOCK_BYTES];
    uint32_t run;
    uint64_t disk_block = journal_location_find(&journal->location, 0, &run);
    int error;

    memcpy(raw, journal->raw_superblock, sizeof(raw));
    journal_superblock_write(raw, &update);
    error = device_write(journal->device, raw, sizeof(raw), disk_block * journal->block_bytes,
                         flags);
    if (error == 0)
        memcpy(journal->raw_superblock, raw, sizeof(raw));
    else
        log_error(journal->log, "journal: cannot write its superblock: %s",
                  strerrordesc_np(-error));
    return error;
}

static int mark_used_locked(struct journal *journal, const struct logged *logged)
    REQUIRES(&journal->state)
{
    int error = 0;

    superblock_acquire_locked(journal);
    if (journal->is_marked_empty) {
        mutex_unlock(&journal->state);
        error = superblock_write(journal, logged->start_block, logged->sequence, 0, 0);
        mutex_lock(&journal->state);
        journal->is_marked_empty = error != 0;
    }
    superblock_release_locked(journal);
    return error;
}

int log_mark_empty(struct journal *journal)
{
    int error = 0;

    mutex_lock(&journal->state);
    superblock_acquire_locked(journal);
    if (list_is_empty(&journal->logged) && !journal->is_marked_empty) {
        journal_sequence sequence = journal->next_log_sequence;

        /* Also when the write fails, as it may have arrived: the next commit writes anew. */
        journal->is_marked_empty = true;
        mutex_unlock(&journal->state);
        error = superblock_write(journal, 0, sequence, 0, DEVICE_FUA);
        mutex_lock(&journal->state);
    }
    superblock_release_locked(journal);
    mutex_unlock(&journal->state);
    return error;
}

int log_advance_tail(struct journal *journal)
{
    uint32_t freed = 0;
    uint32_t start_block;
    journal_sequence sequence;
    int error = 0;

    mutex_lock(&journal->state);
    superblock_acquire_locked(journal);
    start_block = journal->log_head;
    sequence = journal->next_log_sequence;
    list_for_each_safe (link, next, &journal->logged) {
        struct logged *first = list_entry(link, struct logged, link);

        start_block = first->start_block;
        sequence = first->sequence;
        if (!first->is_committed || !list_is_empty(&first->copies))
            break;
        freed += first->block_count;
        list_remove(&first->link);
        free(first);
        start_block = journal->log_head;
        sequence = journal->next_log_sequence;
    }
    if (freed > 0) {
        mutex_unlock(&journal->state);
        error = superblock_write(journal, start_block, sequence, 0, DEVICE_FUA);
        mutex_lock(&journal->state);
        if (error == 0)
            journal->log_used -= freed;
    }
    superblock_release_locked(journal);
    mutex_unlock(&journal->state);
    return error;
}

void log_note_error(struct journal *journal)
{
    struct journal_superblock_fields fields;
    int error;

    mutex_lock(&journal->state);
    superblock_acquire_locked(journal);
    mutex_unlock(&journal->state);
    if (journal_superblock_parse(journal->raw_superblock, &fields)) {
        error = superblock_write(journal, fields.start_block, fields.sequence,
                                 atomic_load(&journal->abort_error), DEVICE_FUA);
        if (error != 0)
            log_error(journal->log, "journal: the error is not noted on the disk");
    }
    mutex_lock(&journal->state);
    superblock_release_locked(journal);
    mutex_unlock(&journal->state);
}

/* ---- Transactions --------------------------------------------------------------------------- */

/*
 * Whether a commit must wait for the checkpoint. Only commits wait, and handles only once the
 * running transaction is full; the memory of the copies is bounded in the same way.
 */
static bool must_wait_locked(const struct journal *journal, uint32_t needed)
{
    return journal->sb.log_blocks - 1 - journal->log_used < needed ||
           atomic_load(&journal->copy_bytes) / MAX_COPY_FACTOR > journal->max_copy_bytes;
}

/* Waits for space, and takes it at the head. */
static int reserve(struct journal *journal, struct logged *logged)
{
    uint32_t needed = logged->block_count;
    int error = 0;

    if (needed > journal->sb.log_blocks - 1)
        return -ENOSPC;
    mutex_lock(&journal->state);
    journal->log_wanted = needed;
    while (must_wait_locked(journal, needed) && !is_aborted(journal)) {
        journal->is_checkpoint_draining = true;
        condition_signal(&journal->checkpoint_wake);
        condition_wait(&journal->progress, &journal->state);
    }
    journal->log_wanted = 0;
    if (is_aborted(journal)) {
        mutex_unlock(&journal->state);
        return -EROFS;
    }
    logged->start_block = journal->log_head;
    list_add_last(&journal->logged, &logged->link);
    journal->log_used += needed;
    journal->log_head = journal->sb.first_block +
                        (journal->log_head - journal->sb.first_block + needed) %
                            journal->sb.log_blocks;
    journal->next_log_sequence = logged->sequence + 1;
    error = mark_used_locked(journal, logged);
    mutex_unlock(&journal->state);
    return error;
}

int log_write_transaction(struct journal *journal, struct transaction *transaction,
                          struct journal_copy **copies, size_t count, struct logged **result)
{
    struct logged *logged = calloc(1, sizeof(*logged));
    int error;

    if (logged == NULL)
        return -ENOMEM;
    list_init(&logged->link);
    list_init(&logged->copies);
    logged->sequence = atomic_load(&transaction->sequence);
    logged->block_count = log_count_blocks(journal, transaction, count);
    error = reserve(journal, logged);
    if (error == 0)
        error = log_write_blocks(journal, transaction, logged, copies, count);
    /* One that is listed stays in the list: nothing of the log moves any more. */
    if (error != 0 && list_is_empty(&logged->link))
        free(logged);
    *result = logged;
    return error;
}
