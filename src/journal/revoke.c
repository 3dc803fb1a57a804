/* SPDX-License-Identifier: MIT */
/*
 * Freed metadata blocks.
 *
 * What has to be kept from a freed block once its transaction, T, has committed:
 *
 *   replay      an older transaction in the log may hold the block. T's revoke record stops that
 *               for all transactions up to T. It is left out only if no older one can hold it: the
 *               block was allocated in T itself, was not freed in T before that, and has no copy
 *               from before T. (It may have been in the log in an earlier life; who freed it then
 *               has left a revoke, which stays in the log at least as long.)
 *   checkpoint  a committed copy must not go home. It must if T never commits; so it is dropped
 *               when T's commit block is on the disk, and before the commit callbacks let anybody
 *               have the block. A copy that is being written at that moment is waited for.
 *   the cache   a buffer without copies is forgotten at once; one with copies is forgotten with
 *               the last of them.
 *
 * A block that comes back within T loses its revoke: T's own copy is the newest, and wins.
 *
 * Locks: a set by its block's record shard until its transaction is closed. Callers: handle.c,
 * commit.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "journal/engine.h"

#define EMPTY_SLOT   UINT64_MAX
#define MIN_CAPACITY 16

/* ---- The set -------------------------------------------------------------------------------- */

static size_t home_slot(const struct revoke_set *set, uint64_t block)
{
    /* The top bits choose the shard, so that the slot must come from others. */
    return (size_t)((block * 0x9e3779b97f4a7c15u) >> 20) & (set->capacity - 1);
}

static size_t find_slot(const struct revoke_set *set, uint64_t block)
{
    size_t slot = home_slot(set, block);

    while (set->slots[slot] != EMPTY_SLOT && set->slots[slot] != block)
        slot = (slot + 1) & (set->capacity - 1);
    return slot;
}

static int grow(struct revoke_set *set)
{
    struct revoke_set larger = {.capacity = MAX(set->capacity * 2, (size_t)MIN_CAPACITY),
                                .count = set->count};

    larger.slots = malloc(larger.capacity * sizeof(*larger.slots));
    if (larger.slots == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < larger.capacity; i++)
        larger.slots[i] = EMPTY_SLOT;
    for (size_t i = 0; i < set->capacity; i++)
        if (set->slots[i] != EMPTY_SLOT)
            larger.slots[find_slot(&larger, set->slots[i])] = set->slots[i];
    free(set->slots);
    *set = larger;
    return 0;
}

int revoke_set_add(struct revoke_set *set, uint64_t block, bool *is_added)
{
    size_t slot;

    *is_added = false;
    if ((set->count + 1) * 2 > set->capacity) {
        int error = grow(set);

        if (error != 0)
            return error;
    }
    slot = find_slot(set, block);
    if (set->slots[slot] == block)
        return 0;
    set->slots[slot] = block;
    set->count++;
    *is_added = true;
    return 0;
}

bool revoke_set_remove(struct revoke_set *set, uint64_t block)
{
    size_t mask = set->capacity - 1;
    size_t hole;

    if (set->count == 0)
        return false;
    hole = find_slot(set, block);
    if (set->slots[hole] == EMPTY_SLOT)
        return false;
    /* What follows moves up, as far as it may lie in the hole, so that no search ends too early. */
    for (size_t slot = (hole + 1) & mask; set->slots[slot] != EMPTY_SLOT; slot = (slot + 1) & mask)
        if (((slot - home_slot(set, set->slots[slot])) & mask) >= ((slot - hole) & mask)) {
            set->slots[hole] = set->slots[slot];
            hole = slot;
        }
    set->slots[hole] = EMPTY_SLOT;
    set->count--;
    return true;
}

void revoke_set_clear(struct revoke_set *set)
{
    free(set->slots);
    *set = (struct revoke_set){0};
}

bool revoke_set_next(const struct revoke_set *set, size_t *position, uint64_t *block)
{
    while (*position < set->capacity) {
        uint64_t value = set->slots[(*position)++];

        if (value != EMPTY_SLOT) {
            *block = value;
            return true;
        }
    }
    return false;
}

/* ---- Freeing -------------------------------------------------------------------------------- */

/* Takes a block out of the running transaction. Gives its copy, for the caller to drop. */
static struct journal_copy *leave_running_locked(struct transaction *transaction,
                                                 struct journal_buffer *record)
{
    struct journal_copy *copy = record->running;

    list_remove(&copy->link);
    record->running = NULL;
    atomic_store_explicit(&record->buffer->private_mark, 0, memory_order_release);
    atomic_fetch_sub(&transaction->credits, 1);
    return copy;
}

static int forget_block(struct journal *journal, struct transaction *transaction, uint64_t block)
{
    unsigned int index = record_shard_index(block);
    struct record_shard *shard = &journal->shards[index];
    struct buffer *buffer;
    struct journal_buffer *record;
    bool needs_revoke = true;
    bool is_added = false;
    int error = 0;

    mutex_lock(&shard->mutex);
    buffer = buffer_find(journal->buffers, block);
    record = buffer == NULL ? NULL : buffer->private;
    if (record != NULL && record->running != NULL)
        needs_revoke = !record->running->is_new || record->copy_count > 1;
    if (needs_revoke)
        error = revoke_set_add(&transaction->revokes[index], block, &is_added);
    if (error == 0 && record != NULL) {
        record->is_forgotten = true;
        if (record->running != NULL)
            record_drop_copy_locked(journal, shard, leave_running_locked(transaction, record));
    } else if (error == 0) {
        buffer_forget(journal->buffers, block);
    }
    mutex_unlock(&shard->mutex);
    buffer_put(buffer);
    if (is_added)
        count_event(&journal->revokes, 1);
    else
        atomic_fetch_sub(&transaction->revoke_count, 1);
    return error;
}

/* Counts revokes in before they are made, so that many threads do not pass the bound together. */
static bool reserve_revokes(struct journal *journal, struct transaction *transaction,
                            uint32_t count)
{
    uint32_t taken = atomic_load(&transaction->revoke_count);

    do {
        if (taken > journal->max_revokes || count > journal->max_revokes - taken)
            return false;
    } while (!atomic_compare_exchange_weak(&transaction->revoke_count, &taken, taken + count));
    return true;
}

int journal_forget(struct handle *handle, uint64_t block, uint32_t count)
{
    struct journal *journal = handle->journal;
    struct transaction *transaction = handle->transaction;

    if (is_aborted(journal))
        return -EROFS;
    if (!reserve_revokes(journal, transaction, count))
        return -ENOSPC;
    transaction_mark_dirty(journal, transaction);
    for (uint32_t i = 0; i < count; i++) {
        int error = forget_block(journal, transaction, block + i);

        if (error != 0) {
            atomic_fetch_sub(&transaction->revoke_count, count - i - 1);
            return error;
        }
    }
    return 0;
}

/* ---- After the commit ----------------------------------------------------------------------- */

/* Drops the committed copy of a block. False if that has to wait for a checkpoint's batch. */
static bool drop_committed_locked(struct journal *journal, uint64_t block) REQUIRES(&journal->state)
{
    struct record_shard *shard = &journal->shards[record_shard_index(block)];
    struct journal_buffer *record;
    struct buffer *buffer;
    bool is_dropped = true;

    mutex_lock(&shard->mutex);
    buffer = buffer_find(journal->buffers, block);
    record = buffer == NULL ? NULL : buffer->private;
    if (record == NULL) {
        buffer_forget(journal->buffers, block);
    } else if (record->is_writing) {
        is_dropped = false;
    } else if (record->committed != NULL) {
        struct journal_copy *copy = record->committed;

        record->committed = NULL;
        list_remove(&copy->link);
        atomic_fetch_sub(&journal->copy_bytes, journal->block_bytes);
        record_drop_copy_locked(journal, shard, copy);
    }
    mutex_unlock(&shard->mutex);
    buffer_put(buffer);
    return is_dropped;
}

void revoke_apply(struct journal *journal, struct transaction *transaction)
{
    for (unsigned int i = 0; i < RECORD_SHARD_COUNT; i++) {
        size_t position = 0;
        uint64_t block;

        while (revoke_set_next(&transaction->revokes[i], &position, &block)) {
            mutex_lock(&journal->state);
            while (!drop_committed_locked(journal, block))
                condition_wait(&journal->progress, &journal->state);
            mutex_unlock(&journal->state);
        }
    }
}
