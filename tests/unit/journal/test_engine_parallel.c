/* SPDX-License-Identifier: MIT */
/* Many threads: joining without waiting, and one commit for all who ask for it. */
#include "engine_rig.h"

#include <stdlib.h>
#include <string.h>

#define THREADS 8u
#define STARTS  20000u

static struct rig *create(void)
{
    struct rig_options options = {.form = {.checksum_version = 3, .block_bytes = 1024},
                                  .journal_blocks = 96,
                                  .sequence = 1,
                                  .commit_interval_ms = 1000000};

    return rig_create(&options);
}

static struct journal_statistics statistics_of(struct rig *rig)
{
    struct journal_statistics result;

    journal_get_statistics(rig->journal, &result);
    return result;
}

/* Runs a function in THREADS threads. */
static void run_threads(void *(*function)(void *), void *argument)
{
    pthread_t threads[THREADS];

    for (unsigned int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, function, argument), 0);
    for (unsigned int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void *start_and_stop(void *argument)
{
    struct rig *rig = argument;

    for (unsigned int i = 0; i < STARTS; i++) {
        struct handle handle;

        if (journal_start(rig->journal, 2, &handle) != 0 || journal_stop(&handle) != 0)
            abort();
    }
    return NULL;
}

/* While nothing commits, nobody waits, and no lock of the journal is taken. */
static void test_starts_do_not_wait(void **state)
{
    struct rig *rig = create();
    struct journal_statistics statistics;

    (void)state;
    run_threads(start_and_stop, rig);
    statistics = statistics_of(rig);
    assert_int_equal(statistics.starts, THREADS * STARTS);
    assert_int_equal(statistics.start_waits, 0);
    assert_int_equal(statistics.commits, 0);
    rig_destroy(rig);
}

struct gate {
    struct rig *rig;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    bool is_entered, is_open;
    pthread_barrier_t barrier;
    _Atomic unsigned int next_block;
    journal_sequence sequence;
};

/* The data callback: holds the commit until the gate opens. */
static int hold_commit(void *context, journal_sequence sequence)
{
    struct gate *gate = context;

    (void)sequence;
    pthread_mutex_lock(&gate->mutex);
    gate->is_entered = true;
    pthread_cond_broadcast(&gate->condition);
    while (!gate->is_open)
        pthread_cond_wait(&gate->condition, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
    return 0;
}

static void change_block(struct rig *rig, uint64_t block, journal_sequence *sequence)
{
    struct handle handle;
    struct buffer *buffer;

    if (journal_start(rig->journal, 1, &handle) != 0 ||
        buffer_get(rig->buffers, block, &buffer) != 0 || journal_modify(&handle, buffer) != 0)
        abort();
    memset(journal_data(&handle, buffer), 7, 1024);
    buffer_put(buffer);
    *sequence = journal_handle_sequence(&handle);
    if (journal_stop(&handle) != 0)
        abort();
}

static void *commit_first(void *argument)
{
    struct gate *gate = argument;

    if (journal_commit(gate->rig->journal, gate->sequence) != 0)
        abort();
    return NULL;
}

static void *change_and_commit(void *argument)
{
    struct gate *gate = argument;
    journal_sequence sequence;

    change_block(gate->rig, FIXED_FIRST + gate->next_block++, &sequence);
    if (sequence != gate->sequence + 1)
        abort();
    if (pthread_barrier_wait(&gate->barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
        pthread_mutex_lock(&gate->mutex);
        gate->is_open = true;
        pthread_cond_broadcast(&gate->condition);
        pthread_mutex_unlock(&gate->mutex);
    }
    if (journal_commit(gate->rig->journal, sequence) != 0)
        abort();
    return NULL;
}

/* While a commit does its I/O, handles join the next transaction; all who want that share it. */
static void test_group_commit(void **state)
{
    struct gate gate = {
        .rig = create(), .mutex = PTHREAD_MUTEX_INITIALIZER, .condition = PTHREAD_COND_INITIALIZER};
    uint64_t waits;
    pthread_t first;

    (void)state;
    pthread_barrier_init(&gate.barrier, NULL, THREADS);
    journal_set_data_callback(gate.rig->journal, hold_commit, &gate);
    change_block(gate.rig, FIXED_FIRST, &gate.sequence);
    assert_int_equal(pthread_create(&first, NULL, commit_first, &gate), 0);
    pthread_mutex_lock(&gate.mutex);
    while (!gate.is_entered)
        pthread_cond_wait(&gate.condition, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
    waits = statistics_of(gate.rig).start_waits;
    run_threads(change_and_commit, &gate);
    pthread_join(first, NULL);
    assert_int_equal(statistics_of(gate.rig).commits, 2);
    assert_int_equal(statistics_of(gate.rig).start_waits, waits);
    pthread_barrier_destroy(&gate.barrier);
    rig_destroy(gate.rig);
}

/* Threads that change the same few blocks and sync each time. */
static void *change_shared(void *argument)
{
    struct gate *gate = argument;

    for (unsigned int i = 0; i < 300; i++) {
        struct rig_block *block = &gate->rig->blocks[gate->next_block++ % 5];
        struct handle handle;
        struct buffer *buffer;

        if (journal_start(gate->rig->journal, 1, &handle) != 0 ||
            buffer_get(gate->rig->buffers, block->block, &buffer) != 0)
            abort();
        pthread_mutex_lock(&block->mutex);
        if (journal_modify(&handle, buffer) != 0)
            abort();
        ++*(uint32_t *)journal_data(&handle, buffer);
        pthread_mutex_unlock(&block->mutex);
        buffer_put(buffer);
        handle.wants_sync = i % 4 == 0;
        if (journal_stop(&handle) != 0)
            abort();
    }
    return NULL;
}

static void test_shared_blocks(void **state)
{
    struct gate gate = {.rig = create()};
    uint32_t sum = 0;

    (void)state;
    for (unsigned int i = 0; i < 5; i++)
        memset(gate.rig->image->bytes + (FIXED_FIRST + i) * 1024, 0, 4);
    run_threads(change_shared, &gate);
    (void)rig_close_journal(gate.rig);
    for (unsigned int i = 0; i < 5; i++) {
        uint32_t value;

        memcpy(&value, gate.rig->image->bytes + (FIXED_FIRST + i) * 1024, sizeof(value));
        sum += value;
    }
    assert_int_equal(sum, THREADS * 300);
    rig_destroy(gate.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starts_do_not_wait),
        cmocka_unit_test(test_group_commit),
        cmocka_unit_test(test_shared_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
