/* SPDX-License-Identifier: MIT */
/*
 * The two transactions of a journal, which take turns by the lowest bit of their sequence:
 *
 *   IDLE -- transaction_open_locked --> OPEN -- transaction_close_locked --> CLOSED
 *     ^                                                                         |
 *     `----------------------------- transaction_reset ------------------------'
 *
 * and the copies of a block on their way through it:
 *
 *   running -- transaction_copy --> committing -- transaction_finish --> committed --> (home) freed
 *
 * A newer committed copy takes the place of an older one: the older need not go home, since a
 * replay would write the newer over it.
 *
 * Invariant: a transaction is idle when its turn comes, as only one commits at a time.
 * Locks: as engine.h tags them. Callers: journal.c, commit.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal/engine.h"

void transaction_init(struct transaction *transaction)
{
    for (unsigned int i = 0; i < RECORD_SHARD_COUNT; i++)
        list_init(&transaction->copies[i]);
}

void transaction_destroy(struct transaction *transaction)
{
    for (unsigned int i = 0; i < RECORD_SHARD_COUNT; i++)
        revoke_set_clear(&transaction->revokes[i]);
}

void transaction_open_locked(struct journal *journal, journal_sequence sequence)
{
    struct transaction *transaction = &journal->transactions[sequence & 1];

    atomic_store(&transaction->sequence, sequence);
    atomic_store(&transaction->state, TRANSACTION_OPEN);
    atomic_store(&journal->running, transaction);
    condition_broadcast(&journal->opened);
}

static uint64_t count_handles(struct transaction *transaction)
{
    uint64_t count = 0;

    for (unsigned int i = 0; i < JOIN_SHARD_COUNT; i++)
        count += atomic_load(&transaction->joins[i].handles);
    return count;
}

/*
 * Who joins counts itself in and then looks at the state; who closes sets the state and then looks
 * at the counts. In the total order of these operations one of the two sees the other, so that a
 * count which is seen as zero here stays one but for those who find the transaction closed and
 * leave at once.
 */
struct transaction *transaction_close_locked(struct journal *journal)
{
    struct transaction *transaction = atomic_load(&journal->running);

    atomic_store(&transaction->state, TRANSACTION_CLOSED);
    journal->is_commit_requested = false;
    while (count_handles(transaction) != 0)
        condition_wait(&journal->left, &journal->state);
    return transaction;
}

/* ---- Copying -------------------------------------------------------------------------------- */

static size_t count_copies(const struct transaction *transaction)
{
    size_t count = 0;

    for (unsigned int i = 0; i < RECORD_SHARD_COUNT; i++)
        list_for_each (link, &transaction->copies[i])
            count++;
    return count;
}

int transaction_copy(struct journal *journal, struct transaction *transaction,
                     struct journal_copy ***result, size_t *result_count)
{
    size_t count = count_copies(transaction);
    struct journal_copy **copies = malloc(MAX(count, (size_t)1) * sizeof(struct journal_copy *));
    size_t filled = 0;

    if (copies == NULL)
        return -ENOMEM;
    for (unsigned int i = 0; i < RECORD_SHARD_COUNT; i++) {
        struct record_shard *shard = &journal->shards[i];

        mutex_lock(&shard->mutex);
        list_for_each (link, &transaction->copies[i]) {
            struct journal_copy *copy = list_entry(link, struct journal_copy, link);

            memcpy(copy->data, copy->record->buffer->data, journal->block_bytes);
            copy->record->running = NULL;
            copy->record->committing = copy;
            copies[filled++] = copy;
        }
        list_init(&transaction->copies[i]);
        mutex_unlock(&shard->mutex);
    }
    for (size_t i = 0; i < filled; i++)
        list_init(&copies[i]->link);
    *result = copies;
    *result_count = count;
    return 0;
}

/* ---- After the commit ----------------------------------------------------------------------- */

void record_drop_copy_locked(struct journal *journal, struct record_shard *shard,
                             struct journal_copy *copy)
{
    struct journal_buffer *record = copy->record;

    (void)shard;
    copy_free(journal, copy);
    if (--record->copy_count > 0)
        return;
    record->buffer->private = NULL;
    atomic_store_explicit(&record->buffer->private_mark, 0, memory_order_release);
    if (record->is_forgotten)
        buffer_forget(journal->buffers, record->buffer->block);
    buffer_put(record->buffer);
    free(record);
}

/* Makes a copy of the committing transaction the newest committed one of its block. */
static void promote_locked(struct journal *journal, struct logged *logged,
                           struct journal_copy *copy) REQUIRES(&journal->state)
{
    struct journal_buffer *record = copy->record;
    struct record_shard *shard = &journal->shards[record_shard_index(copy->block)];
    struct journal_copy *older;

    mutex_lock(&shard->mutex);
    older = record->committed;
    record->committing = NULL;
    record->committed = copy;
    copy->logged = logged;
    list_add_last(&logged->copies, &copy->link);
    atomic_fetch_add(&journal->copy_bytes, journal->block_bytes);
    if (older != NULL) {
        list_remove(&older->link);
        atomic_fetch_sub(&journal->copy_bytes, journal->block_bytes);
        if (!older->is_writing)
            record_drop_copy_locked(journal, shard, older);
    }
    mutex_unlock(&shard->mutex);
}

/* Without a log a copy has done its work when its transaction has committed. */
static void release(struct journal *journal, struct journal_copy *copy)
{
    struct record_shard *shard = &journal->shards[record_shard_index(copy->block)];

    mutex_lock(&shard->mutex);
    copy->record->committing = NULL;
    record_drop_copy_locked(journal, shard, copy);
    mutex_unlock(&shard->mutex);
}

void transaction_finish(struct journal *journal, struct transaction *transaction,
                        struct logged *logged, struct journal_copy **copies, size_t count)
{
    if (logged != NULL) {
        mutex_lock(&journal->state);
        for (size_t i = 0; i < count; i++)
            promote_locked(journal, logged, copies[i]);
        logged->is_committed = true;
        mutex_unlock(&journal->state);
    } else {
        for (size_t i = 0; i < count; i++)
            release(journal, copies[i]);
    }
    revoke_apply(journal, transaction);
}

void transaction_keep(struct journal *journal, struct transaction *transaction,
                      struct journal_copy **copies, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned int index = record_shard_index(copies[i]->block);

        mutex_lock(&journal->shards[index].mutex);
        list_add_last(&transaction->copies[index], &copies[i]->link);
        mutex_unlock(&journal->shards[index].mutex);
    }
}

void transaction_call(struct transaction *transaction, int error)
{
    struct journal_callback *newest = atomic_exchange(&transaction->callbacks, NULL);
    struct journal_callback *oldest = NULL;

    while (newest != NULL) {
        struct journal_callback *next = newest->next;

        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct journal_callback *callback = oldest;

        oldest = callback->next;
        callback->committed(callback, error);
    }
}

void transaction_reset(struct transaction *transaction)
{
    for (unsigned int i = 0; i < RECORD_SHARD_COUNT; i++)
        revoke_set_clear(&transaction->revokes[i]);
    atomic_store(&transaction->credits, 0);
    atomic_store(&transaction->revoke_count, 0);
    atomic_store(&transaction->is_dirty, false);
    atomic_store(&transaction->state, TRANSACTION_IDLE);
}

static void discard_list(struct journal *journal, struct list *copies)
{
    list_for_each_safe (link, next, copies) {
        struct journal_copy *copy = list_entry(link, struct journal_copy, link);
        struct record_shard *shard = &journal->shards[record_shard_index(copy->block)];

        mutex_lock(&shard->mutex);
        record_drop_copy_locked(journal, shard, copy);
        mutex_unlock(&shard->mutex);
    }
    list_init(copies);
}

void transaction_discard_all(struct journal *journal)
{
    for (unsigned int i = 0; i < ARRAY_LENGTH(journal->transactions); i++) {
        struct transaction *transaction = &journal->transactions[i];

        transaction_call(transaction, -EROFS);
        for (unsigned int k = 0; k < RECORD_SHARD_COUNT; k++)
            discard_list(journal, &transaction->copies[k]);
    }
    while (!list_is_empty(&journal->logged)) {
        struct logged *logged = list_first(&journal->logged, struct logged, link);

        list_remove(&logged->link);
        discard_list(journal, &logged->copies);
        free(logged);
    }
}
