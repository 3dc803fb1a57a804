/* SPDX-License-Identifier: MIT */
/* The range lock: what conflicts, in which order, and that non-overlapping ones never wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "inode/range_lock.h"

static void test_what_conflicts(void **state)
{
    struct range_lock lock;
    struct range_request shared, exclusive, other;

    (void)state;
    range_lock_init(&lock);
    range_lock_shared(&lock, &shared, 0, 100);
    range_lock_shared(&lock, &other, 50, 150);
    assert_false(range_try_lock_exclusive(&lock, &exclusive, 99, 100));
    assert_true(range_try_lock_exclusive(&lock, &exclusive, 150, RANGE_END));
    range_unlock(&lock, &other);
    range_unlock(&lock, &exclusive);
    assert_true(range_try_lock_exclusive(&lock, &exclusive, 100, 200));
    assert_false(range_try_lock_exclusive(&lock, &other, 199, 200));
    assert_true(range_try_lock_exclusive(&lock, &other, 150, 150));
    range_unlock(&lock, &other);
    range_unlock(&lock, &exclusive);
    range_unlock(&lock, &shared);
    assert_true(range_try_lock_exclusive(&lock, &exclusive, 0, RANGE_END));
    range_unlock(&lock, &exclusive);
    range_lock_destroy(&lock);
}

/* A reader that comes behind a waiting writer waits too: the writer does not starve. */
struct queue {
    struct range_lock lock;
    atomic_int order;
    int writer_turn, reader_turn;
};

static void *write_once(void *context)
{
    struct queue *queue = context;
    struct range_request request;

    range_lock_exclusive(&queue->lock, &request, 0, 10);
    queue->writer_turn = atomic_fetch_add(&queue->order, 1);
    range_unlock(&queue->lock, &request);
    return NULL;
}

static void *read_once(void *context)
{
    struct queue *queue = context;
    struct range_request request;

    range_lock_shared(&queue->lock, &request, 0, 10);
    queue->reader_turn = atomic_fetch_add(&queue->order, 1);
    range_unlock(&queue->lock, &request);
    return NULL;
}

static void wait_for_waiters(struct range_lock *lock, unsigned int count)
{
    unsigned int waiting;

    do {
        mutex_lock(&lock->mutex);
        waiting = lock->waiting;
        mutex_unlock(&lock->mutex);
        sched_yield();
    } while (waiting < count);
}

static void test_first_come_first_served(void **state)
{
    struct queue queue = {.order = 0};
    struct range_request first;
    pthread_t writer, reader;

    (void)state;
    range_lock_init(&queue.lock);
    range_lock_shared(&queue.lock, &first, 0, 10);
    assert_int_equal(pthread_create(&writer, NULL, write_once, &queue), 0);
    wait_for_waiters(&queue.lock, 1);
    assert_int_equal(pthread_create(&reader, NULL, read_once, &queue), 0);
    wait_for_waiters(&queue.lock, 2);
    range_unlock(&queue.lock, &first);
    pthread_join(writer, NULL);
    pthread_join(reader, NULL);
    assert_int_equal(queue.writer_turn, 0);
    assert_int_equal(queue.reader_turn, 1);
    range_lock_destroy(&queue.lock);
}

/* Owners of the cells of a small file, to see two exclusive holders of one. */
#define CELLS  64
#define ROUNDS 20000

static struct range_lock shared_lock;
static atomic_int cells[CELLS];
static atomic_int violations;

static void *hammer(void *context)
{
    unsigned int seed = *(unsigned int *)context;

    for (unsigned int round = 0; round < ROUNDS; round++) {
        unsigned int first = (unsigned int)rand_r(&seed) % CELLS;
        unsigned int end = first + 1 + (unsigned int)rand_r(&seed) % (CELLS - first);
        bool is_exclusive = rand_r(&seed) % 3 == 0;
        int step = is_exclusive ? 1000 : 1;
        struct range_request request;

        if (is_exclusive)
            range_lock_exclusive(&shared_lock, &request, first, end);
        else
            range_lock_shared(&shared_lock, &request, first, end);
        for (unsigned int i = first; i < end; i++) {
            int before = atomic_fetch_add(&cells[i], step);

            if (before >= 1000 || (is_exclusive && before != 0))
                atomic_fetch_add(&violations, 1);
        }
        for (unsigned int i = first; i < end; i++)
            atomic_fetch_sub(&cells[i], step);
        range_unlock(&shared_lock, &request);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    pthread_t threads[8];
    unsigned int seeds[8];

    (void)state;
    range_lock_init(&shared_lock);
    for (unsigned int i = 0; i < 8; i++) {
        seeds[i] = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, &seeds[i]), 0);
    }
    for (unsigned int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&violations), 0);
    range_lock_destroy(&shared_lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_conflicts),
        cmocka_unit_test(test_first_come_first_served),
        cmocka_unit_test(test_many_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
