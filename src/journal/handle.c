/* SPDX-License-Identifier: MIT */
/*
 * Handles: joining the running transaction, and making buffers part of it.
 *
 * To join takes no lock: a thread counts itself in at its shard of the counters, sees that the
 * transaction is open (transaction.c says why that is enough), and takes its credits from one
 * atomic sum. Only who finds the transaction closed or full goes on under the state mutex.
 *
 * To change a buffer that the transaction has takes no lock either: buffer->private_mark names the
 * transaction. Else the record of the buffer is changed under the mutex of its shard.
 *
 * Invariant: the credits of a transaction are what its handles may still use plus the blocks that
 * it has, and never more than max_blocks.
 * Callers: whoever changes metadata.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal/engine.h"

enum join_result { JOINED, JOIN_CLOSED, JOIN_FULL };

/* The mark of a sequence, never 0. */
static uint64_t mark_of(journal_sequence sequence)
{
    return UINT64_C(1) << 32 | sequence;
}

/* ---- Joining -------------------------------------------------------------------------------- */

/* Threads spread over the shards in the order in which they first come. */
static unsigned int own_join_shard(void)
{
    static _Atomic unsigned int next;
    static _Thread_local unsigned int own; /* the shard + 1 */

    if (own == 0)
        own = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % JOIN_SHARD_COUNT + 1;
    return own - 1;
}

static bool take_credits(const struct journal *journal, struct transaction *transaction,
                         uint32_t credits)
{
    uint32_t taken = atomic_load(&transaction->credits);

    do {
        if (taken > journal->max_blocks || credits > journal->max_blocks - taken)
            return false;
    } while (!atomic_compare_exchange_weak(&transaction->credits, &taken, taken + credits));
    return true;
}

static void leave(struct journal *journal, struct transaction *transaction, unsigned int join_shard)
{
    atomic_fetch_sub(&transaction->joins[join_shard].handles, 1);
    if (atomic_load(&transaction->state) == TRANSACTION_OPEN)
        return;
    mutex_lock(&journal->state);
    condition_broadcast(&journal->left);
    mutex_unlock(&journal->state);
}

static enum join_result join(struct journal *journal, uint32_t credits, struct handle *handle)
{
    struct transaction *transaction = atomic_load(&journal->running);
    unsigned int join_shard = own_join_shard();
    enum join_result result = JOIN_CLOSED;

    atomic_fetch_add(&transaction->joins[join_shard].handles, 1);
    if (atomic_load(&transaction->state) == TRANSACTION_OPEN) {
        bool has_room = atomic_load(&transaction->revoke_count) <= journal->max_revokes / 2;

        result = JOIN_FULL;
        if (has_room && take_credits(journal, transaction, credits)) {
            atomic_fetch_add_explicit(&transaction->joins[join_shard].starts, 1,
                                      memory_order_relaxed);
            *handle = (struct handle){.journal = journal,
                                      .transaction = transaction,
                                      .credits = credits,
                                      .join_shard = join_shard};
            return JOINED;
        }
    }
    atomic_fetch_sub(&transaction->joins[join_shard].handles, 1);
    return result;
}

/* Whoever has counted itself out of a closed transaction may be the one that its commit awaits. */
static int join_waiting(struct journal *journal, uint32_t credits, struct handle *handle)
{
    enum join_result result = JOIN_CLOSED;
    int error = 0;

    count_event(&journal->start_waits, 1);
    mutex_lock(&journal->state);
    condition_broadcast(&journal->left);
    while (!is_aborted(journal)) {
        result = join(journal, credits, handle);
        if (result == JOINED)
            break;
        condition_broadcast(&journal->left);
        if (result == JOIN_FULL && !journal->is_commit_requested) {
            transaction_set_dirty(atomic_load(&journal->running));
            journal->is_commit_requested = true;
            condition_signal(&journal->commit_wake);
        }
        condition_wait(&journal->opened, &journal->state);
    }
    if (result != JOINED)
        error = -EROFS;
    mutex_unlock(&journal->state);
    return error;
}

int journal_start(struct journal *journal, uint32_t credits, struct handle *handle)
{
    int error = 0;

    if (is_aborted(journal))
        return -EROFS;
    if (credits > journal->max_blocks)
        return -ENOSPC;
    lock_order_enter(journal, LOCK_RANK_JOURNAL_HANDLE, "journal handle");
    if (join(journal, credits, handle) != JOINED)
        error = join_waiting(journal, credits, handle);
    if (error != 0)
        lock_order_leave(journal, "journal handle");
    return error;
}

int journal_extend(struct handle *handle, uint32_t credits)
{
    struct transaction *transaction = handle->transaction;

    if (is_aborted(handle->journal))
        return -EROFS;
    if (atomic_load(&transaction->state) != TRANSACTION_OPEN ||
        !take_credits(handle->journal, transaction, credits))
        return -ENOSPC;
    handle->credits += credits;
    return 0;
}

int journal_stop(struct handle *handle)
{
    struct journal *journal = handle->journal;
    struct transaction *transaction = handle->transaction;
    journal_sequence sequence = journal_handle_sequence(handle);

    atomic_fetch_sub(&transaction->credits, handle->credits);
    handle->transaction = NULL;
    handle->credits = 0;
    leave(journal, transaction, handle->join_shard);
    lock_order_leave(journal, "journal handle");
    if (handle->wants_sync)
        return journal_commit(journal, sequence);
    return is_aborted(journal) ? -EROFS : 0;
}

journal_sequence journal_handle_sequence(const struct handle *handle)
{
    return atomic_load_explicit(&handle->transaction->sequence, memory_order_relaxed);
}

/* ---- Changing ------------------------------------------------------------------------------- */

bool transaction_set_dirty(struct transaction *transaction)
{
    if (atomic_load_explicit(&transaction->is_dirty, memory_order_relaxed))
        return false;
    atomic_store(&transaction->dirty_since_ns, journal_now_ns());
    return !atomic_exchange(&transaction->is_dirty, true);
}

void transaction_mark_dirty(struct journal *journal, struct transaction *transaction)
{
    if (!transaction_set_dirty(transaction))
        return;
    /* The commit thread sleeps without an end while there is nothing to commit. */
    mutex_lock(&journal->state);
    condition_signal(&journal->commit_wake);
    mutex_unlock(&journal->state);
}

/* The record of a buffer, which holds it; made if there is none. NULL without memory. */
static struct journal_buffer *record_get_locked(struct record_shard *shard, struct buffer *buffer)
    REQUIRES(&shard->mutex)
{
    struct journal_buffer *record = buffer->private;

    (void)shard;
    if (record != NULL)
        return record;
    record = calloc(1, sizeof(*record));
    if (record == NULL)
        return NULL;
    record->buffer = buffer;
    buffer_hold(buffer);
    buffer->private = record;
    return record;
}

/* Enters a copy for the buffer into the transaction, unless it has one: then *copy is left. */
static int enter_locked(struct handle *handle, struct record_shard *shard, struct buffer *buffer,
                        bool is_new, struct journal_copy **copy) REQUIRES(&shard->mutex)
{
    struct transaction *transaction = handle->transaction;
    unsigned int index = record_shard_index(buffer->block);
    struct journal_buffer *record = record_get_locked(shard, buffer);

    if (record == NULL)
        return -ENOMEM;
    if (record->running == NULL) {
        bool was_revoked = revoke_set_remove(&transaction->revokes[index], buffer->block);

        if (was_revoked)
            atomic_fetch_sub(&transaction->revoke_count, 1);
        handle->credits--;
        (*copy)->record = record;
        (*copy)->block = buffer->block;
        (*copy)->is_new = is_new && !was_revoked && record->copy_count == 0;
        list_add_last(&transaction->copies[index], &(*copy)->link);
        record->running = *copy;
        record->copy_count++;
        record->is_forgotten = false;
        *copy = NULL;
    }
    atomic_store_explicit(&buffer->private_mark, mark_of(journal_handle_sequence(handle)),
                          memory_order_release);
    return 0;
}

static int enter(struct handle *handle, struct buffer *buffer, bool is_new)
{
    struct journal *journal = handle->journal;
    struct record_shard *shard = &journal->shards[record_shard_index(buffer->block)];
    uint64_t mark = mark_of(journal_handle_sequence(handle));
    struct journal_copy *copy;
    int error;

    if (is_aborted(journal))
        return -EROFS;
    if (atomic_load_explicit(&buffer->private_mark, memory_order_acquire) == mark)
        return 0;
    if (handle->credits == 0) {
        log_error(journal->log, "journal: a handle has no credit left for block %llu",
                  (unsigned long long)buffer->block);
        return -ENOSPC;
    }
    copy = copy_allocate(journal);
    if (copy == NULL)
        return -ENOMEM;
    transaction_mark_dirty(journal, handle->transaction);
    mutex_lock(&shard->mutex);
    error = enter_locked(handle, shard, buffer, is_new, &copy);
    mutex_unlock(&shard->mutex);
    copy_free(journal, copy);
    return error;
}

int journal_modify(struct handle *handle, struct buffer *buffer)
{
    return enter(handle, buffer, false);
}

void *journal_data(struct handle *handle, struct buffer *buffer)
{
    (void)handle;
    return buffer_writable(buffer);
}

int journal_create(struct handle *handle, uint64_t block, struct buffer **result)
{
    struct journal *journal = handle->journal;
    struct buffer *buffer;
    int error = buffer_create(journal->buffers, block, &buffer);

    if (error != 0)
        return error;
    error = enter(handle, buffer, true);
    if (error != 0) {
        buffer_put(buffer);
        return error;
    }
    memset(buffer_writable(buffer), 0, journal->block_bytes);
    buffer_set_verified(buffer, 0);
    *result = buffer;
    return 0;
}

void journal_on_commit(struct handle *handle, struct journal_callback *callback)
{
    struct transaction *transaction = handle->transaction;

    callback->next = atomic_load(&transaction->callbacks);
    while (!atomic_compare_exchange_weak(&transaction->callbacks, &callback->next, callback))
        ;
    transaction_mark_dirty(handle->journal, transaction);
}
