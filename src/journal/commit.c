/* SPDX-License-Identifier: MIT */
/*
 * The commit thread. One transaction at a time:
 *
 *   close, wait for its handles      those that start now wait
 *   copy, open the next              they go on
 *   data callback                    file data that the transaction refers to is on its way out
 *   log.c: write, flush, commit block  (without a log: flush, home, flush)
 *   newest copies, revokes, callbacks, waiters
 *
 * Who asks for a commit while one is under way gets the next, together with all who do: they wait
 * for its sequence.
 *
 * An error of any step aborts the journal. So does one of the data callback: to commit would show
 * blocks that do not hold what was written to them.
 *
 * Locks: `state` for the decision what to do; none while it does it. Callers: journal.c starts it.
 */
#include <errno.h>
#include <stdlib.h>

#include "journal/engine.h"

/* Without a log: as well ordered as it can be, data before what refers to it. */
static int write_without_log(struct journal *journal, struct journal_copy **copies, size_t count)
{
    int error = journal_flush(journal);

    if (error == 0)
        error = home_write(journal, copies, count);
    return error != 0 ? error : journal_flush(journal);
}

static int write_out(struct journal *journal, struct transaction *transaction,
                     struct journal_copy **copies, size_t count, struct logged **logged)
{
    int (*callback)(void *context, journal_sequence sequence);
    void *context;
    int error = 0;

    mutex_lock(&journal->state);
    callback = journal->data_callback;
    context = journal->data_context;
    mutex_unlock(&journal->state);
    if (callback != NULL)
        error = callback(context, atomic_load(&transaction->sequence));
    if (error == 0 && is_aborted(journal))
        error = -EROFS;
    if (error != 0)
        return error;
    if (!journal->has_log)
        return write_without_log(journal, copies, count);
    return log_write_transaction(journal, transaction, copies, count, logged);
}

static void commit(struct journal *journal)
{
    struct transaction *transaction;
    struct journal_copy **copies;
    struct logged *logged = NULL;
    journal_sequence sequence;
    size_t count;
    int error;

    mutex_lock(&journal->state);
    transaction = transaction_close_locked(journal);
    mutex_unlock(&journal->state);
    sequence = atomic_load(&transaction->sequence);
    error = transaction_copy(journal, transaction, &copies, &count);
    if (error != 0) {
        journal_abort(journal, error);
        return;
    }
    mutex_lock(&journal->state);
    transaction_open_locked(journal, sequence + 1);
    mutex_unlock(&journal->state);

    error = write_out(journal, transaction, copies, count, &logged);
    if (error == 0) {
        transaction_finish(journal, transaction, logged, copies, count);
    } else {
        journal_abort(journal, error);
        transaction_keep(journal, transaction, copies, count);
    }
    free(copies);
    transaction_call(transaction, error);
    if (error != 0)
        return;
    transaction_reset(transaction);
    count_event(&journal->commits, 1);
    mutex_lock(&journal->state);
    journal->committed_sequence = sequence;
    condition_broadcast(&journal->committed);
    checkpoint_consider_locked(journal);
    mutex_unlock(&journal->state);
}

/* Waits for work. False: the thread is to end. */
static bool wait_for_work_locked(struct journal *journal) REQUIRES(&journal->state)
{
    while (!journal->is_commit_stopping) {
        struct transaction *running = atomic_load(&journal->running);
        uint64_t due_ns;

        if (is_aborted(journal)) {
            if (journal->has_log && !journal->is_error_noted)
                return true;
            condition_wait(&journal->commit_wake, &journal->state);
            continue;
        }
        if (!atomic_load(&running->is_dirty)) {
            condition_wait(&journal->commit_wake, &journal->state);
            continue;
        }
        due_ns = atomic_load(&running->dirty_since_ns) + journal->commit_interval_ns;
        if (journal->is_commit_requested || journal_now_ns() >= due_ns)
            return true;
        (void)condition_wait_until(&journal->commit_wake, &journal->state, due_ns);
    }
    return false;
}

void *commit_run(void *argument)
{
    struct journal *journal = argument;

    mutex_lock(&journal->state);
    while (wait_for_work_locked(journal)) {
        if (is_aborted(journal)) {
            journal->is_error_noted = true;
            mutex_unlock(&journal->state);
            log_note_error(journal);
        } else {
            mutex_unlock(&journal->state);
            commit(journal);
        }
        mutex_lock(&journal->state);
    }
    mutex_unlock(&journal->state);
    return NULL;
}
