/* SPDX-License-Identifier: MIT */
/*
 * The checkpoint thread: writes committed copies home, oldest transactions first, flushes, and
 * gives the log's space back.
 *
 * It works when a commit lacks space, when everything is to go home, and by itself from half a log
 * or max_copy_bytes on, down to half of either: a block that is changed again and again goes home
 * once for many commits.
 *
 * While a batch is under way its records have is_writing set. A newer copy may be committed, or the
 * block freed, meanwhile: the first takes the written copy's place, the second waits.
 *
 * Locks: `state`, and a record's shard in it; none while the device works. Callers: journal.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "journal/engine.h"

#define BATCH_COPIES 2048u

static struct logged *oldest_committed_locked(struct journal *journal)
{
    struct logged *oldest;

    if (list_is_empty(&journal->logged))
        return NULL;
    oldest = list_first(&journal->logged, struct logged, link);
    return oldest->is_committed ? oldest : NULL;
}

/* Whether the log or the memory hold more than a share of what they may. */
static bool is_above_locked(const struct journal *journal, unsigned int divisor)
{
    return journal->log_used > journal->sb.log_blocks / divisor ||
           atomic_load(&journal->copy_bytes) > journal->max_copy_bytes / (divisor / 2);
}

void checkpoint_consider_locked(struct journal *journal)
{
    if (!journal->has_log || !is_above_locked(journal, 2))
        return;
    journal->is_checkpoint_draining = true;
    condition_signal(&journal->checkpoint_wake);
}

static bool is_wanted_locked(struct journal *journal)
{
    struct logged *oldest = oldest_committed_locked(journal);

    if (oldest == NULL || is_aborted(journal))
        return false;
    if (journal->is_checkpoint_draining)
        journal->is_checkpoint_draining = is_above_locked(journal, 4);
    return journal->is_checkpoint_draining ||
           journal->sb.log_blocks - 1 - journal->log_used < journal->log_wanted ||
           (journal->checkpoint_waiters > 0 &&
            !journal_sequence_is_after(oldest->sequence, journal->checkpoint_goal));
}

/* Picks what goes home next, whole transactions. NULL without memory. */
static struct journal_copy **pick_locked(struct journal *journal, size_t *count)
{
    struct journal_copy **copies;
    size_t capacity = 0;
    size_t picked = 0;

    list_for_each (link, &journal->logged) {
        struct logged *logged = list_entry(link, struct logged, link);

        if (!logged->is_committed || capacity >= BATCH_COPIES)
            break;
        list_for_each (element, &logged->copies)
            capacity++;
    }
    copies = malloc(MAX(capacity, (size_t)1) * sizeof(struct journal_copy *));
    if (copies == NULL)
        return NULL;
    list_for_each (link, &journal->logged) {
        struct logged *logged = list_entry(link, struct logged, link);

        if (picked == capacity)
            break;
        list_for_each (element, &logged->copies) {
            copies[picked] = list_entry(element, struct journal_copy, link);
            copies[picked]->is_writing = true;
            copies[picked++]->record->is_writing = true;
        }
    }
    *count = picked;
    return copies;
}

/* Ends a batch. Copies that did not get home stay. */
static void end_batch_locked(struct journal *journal, struct journal_copy **copies, size_t count,
                             bool is_home) REQUIRES(&journal->state)
{
    for (size_t i = 0; i < count; i++) {
        struct journal_copy *copy = copies[i];
        struct journal_buffer *record = copy->record;
        struct record_shard *shard = &journal->shards[record_shard_index(copy->block)];

        mutex_lock(&shard->mutex);
        record->is_writing = false;
        copy->is_writing = false;
        if (record->committed == copy && is_home) {
            record->committed = NULL;
            list_remove(&copy->link);
            atomic_fetch_sub(&journal->copy_bytes, journal->block_bytes);
            record_drop_copy_locked(journal, shard, copy);
        } else if (record->committed != copy) {
            record_drop_copy_locked(journal, shard, copy);
        }
        mutex_unlock(&shard->mutex);
    }
    condition_broadcast(&journal->progress);
}

static void checkpoint_batch(struct journal *journal)
{
    struct journal_copy **copies;
    size_t count = 0;
    int error = 0;

    mutex_lock(&journal->state);
    copies = pick_locked(journal, &count);
    mutex_unlock(&journal->state);
    if (copies == NULL) {
        journal_abort(journal, -ENOMEM);
        return;
    }
    if (count > 0) {
        error = home_write(journal, copies, count);
        if (error == 0)
            error = journal_flush(journal);
    }
    if (error != 0)
        journal_abort(journal, error);
    mutex_lock(&journal->state);
    end_batch_locked(journal, copies, count, error == 0);
    mutex_unlock(&journal->state);
    free(copies);
    if (error == 0) {
        error = log_advance_tail(journal);
        if (error != 0)
            journal_abort(journal, error);
    }
    count_event(&journal->checkpoints, 1);
}

void *checkpoint_run(void *argument)
{
    struct journal *journal = argument;

    mutex_lock(&journal->state);
    while (!journal->is_checkpoint_stopping) {
        if (is_wanted_locked(journal)) {
            mutex_unlock(&journal->state);
            checkpoint_batch(journal);
            mutex_lock(&journal->state);
        } else {
            condition_wait(&journal->checkpoint_wake, &journal->state);
        }
    }
    mutex_unlock(&journal->state);
    return NULL;
}

int journal_checkpoint(struct journal *journal)
{
    journal_sequence goal;
    struct logged *oldest;
    int error = 0;

    if (!journal->has_log)
        return is_aborted(journal) ? -EROFS : 0;
    mutex_lock(&journal->state);
    goal = journal->committed_sequence;
    if (journal->checkpoint_waiters++ == 0 ||
        journal_sequence_is_after(goal, journal->checkpoint_goal))
        journal->checkpoint_goal = goal;
    condition_signal(&journal->checkpoint_wake);
    while (!is_aborted(journal) && (oldest = oldest_committed_locked(journal)) != NULL &&
           !journal_sequence_is_after(oldest->sequence, goal))
        condition_wait(&journal->progress, &journal->state);
    journal->checkpoint_waiters--;
    mutex_unlock(&journal->state);
    if (is_aborted(journal))
        return -EROFS;
    error = log_mark_empty(journal);
    if (error != 0)
        journal_abort(journal, error);
    return error;
}
