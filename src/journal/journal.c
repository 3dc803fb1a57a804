/* SPDX-License-Identifier: MIT */
/*
 * A journal's life: opening, waiting for commits, aborting, closing.
 *
 *   open -- journal_abort, or an error of the commit or checkpoint thread --> aborted
 *     `------------------------ journal_close ----------------------------------'--> gone
 *
 * Aborting only sets abort_error and wakes everybody: each finds it out for itself, and the commit
 * thread notes it on the disk.
 *
 * Locks: `state`. Callers: fs/ for opening and closing; whoever wants a commit.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "journal/engine.h"

#define DEFAULT_COMMIT_INTERVAL_MS 5000u
#define DEFAULT_MAX_COPY_BYTES     ((size_t)16 << 20)
#define NANOSECONDS_PER_MS         UINT64_C(1000000)
#define MAX_BLOCKS_WITHOUT_LOG     4096u
#define MAX_REVOKES_WITHOUT_LOG    (1u << 20)

uint64_t journal_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

int journal_flush(struct journal *journal)
{
    int error = device_flush(journal->device);

    count_event(&journal->flushes, 1);
    if (error != 0)
        log_error(journal->log, "journal: cannot flush the device: %s", strerrordesc_np(-error));
    return error;
}

/* ---- Opening and closing -------------------------------------------------------------------- */

static struct journal *journal_allocate(void)
{
    void *memory;
    struct journal *journal;

    if (posix_memalign(&memory, CACHE_LINE_BYTES, sizeof(*journal)) != 0)
        return NULL;
    memset(memory, 0, sizeof(*journal));
    journal = memory;
    mutex_init(&journal->state, LOCK_RANK_JOURNAL_STATE, "journal state");
    mutex_init(&journal->pool_mutex, LOCK_RANK_LEAF, "journal copy pool");
    condition_init(&journal->opened);
    condition_init(&journal->left);
    condition_init(&journal->committed);
    condition_init(&journal->progress);
    condition_init(&journal->commit_wake);
    condition_init(&journal->checkpoint_wake);
    list_init(&journal->logged);
    list_init(&journal->pool);
    for (unsigned int i = 0; i < RECORD_SHARD_COUNT; i++)
        mutex_init(&journal->shards[i].mutex, LOCK_RANK_JOURNAL_RECORDS, "journal records");
    for (unsigned int i = 0; i < ARRAY_LENGTH(journal->transactions); i++)
        transaction_init(&journal->transactions[i]);
    return journal;
}

static void journal_free(struct journal *journal)
{
    transaction_discard_all(journal);
    device_queue_close(journal->home_queue);
    log_close(journal);
    copy_pool_destroy(journal);
    for (unsigned int i = 0; i < ARRAY_LENGTH(journal->transactions); i++)
        transaction_destroy(&journal->transactions[i]);
    for (unsigned int i = 0; i < RECORD_SHARD_COUNT; i++)
        mutex_destroy(&journal->shards[i].mutex);
    condition_destroy(&journal->checkpoint_wake);
    condition_destroy(&journal->commit_wake);
    condition_destroy(&journal->progress);
    condition_destroy(&journal->committed);
    condition_destroy(&journal->left);
    condition_destroy(&journal->opened);
    mutex_destroy(&journal->pool_mutex);
    mutex_destroy(&journal->state);
    free(journal);
}

static void stop_thread(struct journal *journal, pthread_t thread, bool *is_stopping,
                        struct condition *wake)
{
    mutex_lock(&journal->state);
    *is_stopping = true;
    condition_signal(wake);
    mutex_unlock(&journal->state);
    pthread_join(thread, NULL);
}

/* The threads leave all signals to those of the program. */
static int start_threads(struct journal *journal)
{
    sigset_t all, old;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&journal->commit_thread, NULL, commit_run, journal);
    if (error == 0 && journal->has_log) {
        error = pthread_create(&journal->checkpoint_thread, NULL, checkpoint_run, journal);
        if (error != 0)
            stop_thread(journal, journal->commit_thread, &journal->is_commit_stopping,
                        &journal->commit_wake);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -error;
}

static void set_options(struct journal *journal, const struct journal_options *options)
{
    uint32_t interval_ms = options->commit_interval_ms;

    if (interval_ms == 0)
        interval_ms = DEFAULT_COMMIT_INTERVAL_MS;
    journal->log = options->log;
    journal->commit_interval_ns = interval_ms * NANOSECONDS_PER_MS;
    journal->max_copy_bytes = options->max_copy_bytes == 0 ? DEFAULT_MAX_COPY_BYTES
                                                           : options->max_copy_bytes;
}

int journal_open(struct buffer_cache *buffers, struct device *device,
                 const struct journal_location *location, const struct journal_superblock *sb,
                 journal_sequence sequence, const struct journal_options *options,
                 struct journal **result)
{
    struct journal *journal = journal_allocate();
    const struct device_limits *limits = device_limits(device);
    int error = 0;

    if (journal == NULL)
        return -ENOMEM;
    set_options(journal, options);
    journal->buffers = buffers;
    journal->device = device;
    journal->block_bytes = buffer_cache_block_bytes(buffers);
    journal->can_write_vectored = journal->block_bytes % limits->offset_alignment == 0;
    journal->has_log = location != NULL;
    journal->max_blocks = MAX_BLOCKS_WITHOUT_LOG;
    journal->max_revokes = MAX_REVOKES_WITHOUT_LOG;
    journal->committed_sequence = sequence - 1;
    journal->next_log_sequence = sequence;
    if (journal->has_log)
        error = log_open(journal, location, sb);
    if (error == 0) {
        mutex_lock(&journal->state);
        transaction_open_locked(journal, sequence);
        mutex_unlock(&journal->state);
        error = start_threads(journal);
    }
    if (error != 0) {
        journal_free(journal);
        return error;
    }
    *result = journal;
    return 0;
}

int journal_close(struct journal *journal)
{
    int error = journal_commit_all(journal);

    stop_thread(journal, journal->commit_thread, &journal->is_commit_stopping,
                &journal->commit_wake);
    if (journal->has_log) {
        if (error == 0)
            error = journal_checkpoint(journal);
        stop_thread(journal, journal->checkpoint_thread, &journal->is_checkpoint_stopping,
                    &journal->checkpoint_wake);
        if (is_aborted(journal) && !journal->is_error_noted)
            log_note_error(journal);
    }
    if (is_aborted(journal))
        error = atomic_load(&journal->abort_error);
    journal_free(journal);
    return error;
}

/* ---- Commits -------------------------------------------------------------------------------- */

journal_sequence journal_running_sequence(struct journal *journal)
{
    journal_sequence sequence;

    mutex_lock(&journal->state);
    sequence = atomic_load(&atomic_load(&journal->running)->sequence);
    mutex_unlock(&journal->state);
    return sequence;
}

static bool has_committed_locked(const struct journal *journal, journal_sequence sequence)
{
    return !journal_sequence_is_after(sequence, journal->committed_sequence);
}

static int wait_committed_locked(struct journal *journal, journal_sequence sequence)
    REQUIRES(&journal->state)
{
    while (!has_committed_locked(journal, sequence)) {
        if (is_aborted(journal))
            return atomic_load(&journal->abort_error);
        condition_wait(&journal->committed, &journal->state);
    }
    return 0;
}

/* Asks for the commit of the running transaction. False: it holds nothing. */
static bool request_locked(struct journal *journal, struct transaction *running)
    REQUIRES(&journal->state)
{
    if (!atomic_load(&running->is_dirty))
        return false;
    if (atomic_load(&running->state) == TRANSACTION_OPEN && !journal->is_commit_requested) {
        journal->is_commit_requested = true;
        condition_signal(&journal->commit_wake);
    }
    return true;
}

/* A commit waits for handles: who waits for it may hold nothing that a handle may. */
static void check_may_wait(const struct journal *journal)
{
    lock_order_enter(journal, LOCK_RANK_JOURNAL_HANDLE, "wait for a commit");
    lock_order_leave(journal, "wait for a commit");
}

/* Sets *is_flushed if the commit that was waited for was asked for here or later. */
static int commit_until(struct journal *journal, journal_sequence sequence, bool *is_flushed)
{
    struct transaction *running;
    journal_sequence newest;
    int error = 0;

    *is_flushed = false;
    check_may_wait(journal);
    mutex_lock(&journal->state);
    running = atomic_load(&journal->running);
    newest = atomic_load(&running->sequence);
    if (has_committed_locked(journal, sequence))
        goto out;
    if (is_aborted(journal)) {
        error = -EROFS;
    } else if (journal_sequence_is_after(sequence, newest)) {
        error = -EINVAL;
    } else {
        /* An empty transaction is not committed, but those before it are waited for. */
        if (sequence == newest && !request_locked(journal, running))
            sequence--;
        *is_flushed = sequence == newest && atomic_load(&running->state) == TRANSACTION_OPEN;
        error = wait_committed_locked(journal, sequence);
    }
out:
    mutex_unlock(&journal->state);
    return error;
}

int journal_commit(struct journal *journal, journal_sequence sequence)
{
    bool is_flushed;

    return commit_until(journal, sequence, &is_flushed);
}

int journal_sync(struct journal *journal, journal_sequence sequence)
{
    bool is_flushed;
    int error = commit_until(journal, sequence, &is_flushed);

    return error != 0 || is_flushed ? error : journal_flush(journal);
}

int journal_commit_all(struct journal *journal)
{
    struct transaction *running;
    journal_sequence sequence;
    int error;

    check_may_wait(journal);
    mutex_lock(&journal->state);
    running = atomic_load(&journal->running);
    sequence = atomic_load(&running->sequence);
    if (is_aborted(journal)) {
        error = -EROFS;
    } else {
        if (!request_locked(journal, running))
            sequence--;
        error = wait_committed_locked(journal, sequence);
    }
    mutex_unlock(&journal->state);
    return error;
}

bool journal_has_committed(struct journal *journal, journal_sequence sequence)
{
    bool has_committed;

    mutex_lock(&journal->state);
    has_committed = has_committed_locked(journal, sequence);
    mutex_unlock(&journal->state);
    return has_committed;
}

void journal_set_data_callback(struct journal *journal,
                               int (*callback)(void *context, journal_sequence sequence),
                               void *context)
{
    mutex_lock(&journal->state);
    journal->data_callback = callback;
    journal->data_context = context;
    mutex_unlock(&journal->state);
}

/* ---- Aborting ------------------------------------------------------------------------------- */

void journal_abort(struct journal *journal, int error)
{
    int none = 0;

    if (!atomic_compare_exchange_strong(&journal->abort_error, &none, error))
        return;
    log_error(journal->log, "journal: aborted, nothing is written any more: %s",
              strerrordesc_np(-error));
    mutex_lock(&journal->state);
    condition_broadcast(&journal->opened);
    condition_broadcast(&journal->committed);
    condition_broadcast(&journal->progress);
    condition_signal(&journal->commit_wake);
    condition_signal(&journal->checkpoint_wake);
    mutex_unlock(&journal->state);
}

bool journal_is_aborted(const struct journal *journal)
{
    return is_aborted(journal);
}

void journal_get_statistics(struct journal *journal, struct journal_statistics *result)
{
    *result = (struct journal_statistics){
        .commits = atomic_load(&journal->commits),
        .blocks_logged = atomic_load(&journal->blocks_logged),
        .revokes = atomic_load(&journal->revokes),
        .checkpoints = atomic_load(&journal->checkpoints),
        .blocks_home = atomic_load(&journal->blocks_home),
        .flushes = atomic_load(&journal->flushes),
        .start_waits = atomic_load(&journal->start_waits),
    };
    for (unsigned int i = 0; i < ARRAY_LENGTH(journal->transactions); i++)
        for (unsigned int k = 0; k < JOIN_SHARD_COUNT; k++)
            result->starts += atomic_load(&journal->transactions[i].joins[k].starts);
}
