/* SPDX-License-Identifier: MIT */
/*
 * The latency filter. What is asserted is order, counts, and that nothing ends too early; never
 * that something is fast.
 */
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "block/latency.h"

#define SIZE     (1024u * 1024)
#define BLOCK    4096u
#define REQUESTS 24u
#define NS_OF_US 1000u

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct device *make(struct latency_options options, struct strict_device **strict)
{
    struct device *device = NULL;

    *strict = strict_device_create(SIZE, 1, 1);
    assert_int_equal(latency_open(&(*strict)->device, &options, &support_log, &device), 0);
    return device;
}

struct reader {
    struct device *device;
    unsigned int count;
    int error;
};

static void *read_some(void *argument)
{
    struct reader *reader = argument;
    char bytes[BLOCK];

    for (unsigned int i = 0; i < reader->count && reader->error == 0; i++)
        reader->error = device_read(reader->device, bytes, sizeof(bytes), i * BLOCK);
    return NULL;
}

static void read_from_threads(struct device *device, unsigned int thread_count,
                              unsigned int reads_each)
{
    pthread_t threads[32];
    struct reader readers[32];

    assert_true(thread_count <= 32);
    for (unsigned int i = 0; i < thread_count; i++) {
        readers[i] = (struct reader){.device = device, .count = reads_each};
        assert_int_equal(pthread_create(&threads[i], NULL, read_some, &readers[i]), 0);
    }
    for (unsigned int i = 0; i < thread_count; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].error, 0);
    }
}

static void test_each_operation_takes_its_time(void **state)
{
    struct strict_device *strict;
    struct device *device = make(
        (struct latency_options){.read_us = 3000, .write_us = 2000, .flush_us = 1000}, &strict);
    char bytes[BLOCK] = {0};
    uint64_t start = now_ns();

    (void)state;
    assert_int_equal(device_read(device, bytes, BLOCK, 0), 0);
    assert_true(now_ns() - start >= 3000 * NS_OF_US);
    start = now_ns();
    assert_int_equal(device_write(device, bytes, BLOCK, 0, DEVICE_FUA), 0);
    assert_true(now_ns() - start >= 2000 * NS_OF_US);
    assert_int_equal(strict->last_flags, DEVICE_FUA);
    start = now_ns();
    assert_int_equal(device_flush(device), 0);
    assert_true(now_ns() - start >= 1000 * NS_OF_US);
    assert_int_equal(device_discard(device, 0, BLOCK), 0);
    assert_int_equal(strict->reads + strict->writes + strict->flushes + strict->discards, 4);
    device_close(device);
}

/* Eight requests can only be inside the lower device together if none waits for another. */
static void test_unlimited_slots_are_parallel(void **state)
{
    struct strict_device *strict;
    struct device *device = make((struct latency_options){.read_us = 100}, &strict);

    (void)state;
    strict->hold_until = 8;
    read_from_threads(device, 8, 1);
    assert_int_equal(strict->max_inside, 8);
    device_close(device);
}

/* S slots serve N requests in no less than N/S service times. */
static void test_slots_bound_the_rate(void **state)
{
    static const unsigned int slots[] = {1, 2, 3, 8};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(slots); i++) {
        struct strict_device *strict;
        struct device *device = make((struct latency_options){.read_us = 1000, .slots = slots[i]},
                                     &strict);
        uint64_t start = now_ns();

        read_from_threads(device, 12, 2);
        assert_true(now_ns() - start >= (24 / slots[i]) * 1000 * NS_OF_US);
        assert_int_equal(strict->reads, 24);
        device_close(device);
    }
}

static void test_bandwidth_bounds_the_rate(void **state)
{
    struct strict_device *strict;
    struct device *device = make((struct latency_options){.bandwidth_per_second = 8 * 1024 * 1024},
                                 &strict);
    uint64_t start = now_ns();

    (void)state;
    read_from_threads(device, 8, 8);
    /* 256 KiB at 8 MiB a second. */
    assert_true(now_ns() - start >= UINT64_C(31250) * NS_OF_US);
    device_close(device);
}

/* ---- The queue ------------------------------------------------------------------------------ */

struct job {
    struct device_request request;
    struct iovec iov;
    char buffer[BLOCK];
    uint64_t done_ns;
    unsigned int place; /* in the order of ends */
};

static unsigned int done_count;

static void done(struct device_request *request)
{
    struct job *job = request->context;

    job->done_ns = now_ns();
    job->place = done_count++;
}

static void submit(struct device_queue *queue, struct job *job, enum device_operation operation)
{
    static uint64_t count;
    uint64_t place = count++ % (SIZE / BLOCK) * BLOCK;

    /* Each request has a place of its own: those that overlap are the caller's to order. */
    job->iov = (struct iovec){job->buffer, BLOCK};
    job->request = (struct device_request){.operation = operation,
                                           .iov = &job->iov,
                                           .iov_count = 1,
                                           .offset_bytes = place,
                                           .length_bytes = BLOCK,
                                           .result = -1,
                                           .done = done,
                                           .context = job};
    assert_int_equal(device_queue_submit(queue, &job->request), 0);
}

static void test_queue_times(void **state)
{
    static const unsigned int slots[] = {0, 1, 4};
    static struct job jobs[REQUESTS];

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(slots); i++) {
        struct strict_device *strict;
        struct device *device = make((struct latency_options){.read_us = 2000, .slots = slots[i]},
                                     &strict);
        struct device_queue *queue;
        uint64_t start = now_ns();

        done_count = 0;
        assert_int_equal(device_queue_open(device, REQUESTS, &queue), 0);
        for (unsigned int j = 0; j < REQUESTS; j++)
            submit(queue, &jobs[j], DEVICE_READ);
        assert_int_equal(device_queue_reap(queue, REQUESTS, REQUESTS), REQUESTS);
        for (unsigned int j = 0; j < REQUESTS; j++) {
            unsigned int round = slots[i] == 0 ? 1 : j / slots[i] + 1;

            assert_int_equal(jobs[j].request.result, 0);
            assert_int_equal(jobs[j].place, j);
            assert_true(jobs[j].done_ns - start >= (uint64_t)round * 2000 * NS_OF_US);
        }
        assert_int_equal(strict->reads, REQUESTS);
        device_queue_close(queue);
        device_close(device);
    }
}

/* A slow write that was submitted first ends after the fast reads behind it, given the slots. */
static void test_queue_order_is_by_end(void **state)
{
    static struct job jobs[4];
    struct strict_device *strict;
    struct device *device = make((struct latency_options){.read_us = 1000, .write_us = 300000},
                                 &strict);
    struct device_queue *queue;
    uint64_t start = now_ns();
    bool was_stalled;

    (void)state;
    done_count = 0;
    assert_int_equal(device_queue_open(device, 8, &queue), 0);
    submit(queue, &jobs[0], DEVICE_WRITE);
    for (unsigned int j = 1; j < 4; j++)
        submit(queue, &jobs[j], DEVICE_READ);
    was_stalled = now_ns() - start > 299000 * NS_OF_US;
    while (done_count < 4)
        assert_true(device_queue_reap(queue, 1, 8) >= 1);
    device_queue_close(queue);
    device_close(device);
    if (was_stalled) {
        print_message("# skipped: this machine took too long to submit four requests\n");
        skip();
    }
    assert_int_equal(jobs[0].place, 3);
    for (unsigned int j = 1; j < 4; j++)
        assert_int_equal(jobs[j].place, j - 1);
}

/* The ends that the model must give to requests which all arrive at time 0, in microseconds. */
static void expect_ends(const struct job *jobs, unsigned int slot_count, uint64_t *ends)
{
    uint64_t slots[8] = {0};

    for (unsigned int i = 0; i < REQUESTS; i++) {
        unsigned int first = 0;

        for (unsigned int j = 1; j < slot_count; j++)
            if (slots[j] < slots[first])
                first = j;
        ends[i] = slots[first] + (jobs[i].request.operation == DEVICE_READ ? 3000 : 20000);
        slots[first] = ends[i];
    }
}

/*
 * Reads and writes mixed at random: whichever slot is free first serves the next request, so they
 * end in the order that a plain simulation gives. A run in which the submissions themselves took
 * long says nothing and is repeated.
 */
static void test_first_free_slot_is_taken(void **state)
{
    static struct job jobs[REQUESTS];
    uint64_t random = support_seed();
    unsigned int runs = 0;

    (void)state;
    for (unsigned int attempt = 0; attempt < 60 && runs < 4; attempt++) {
        unsigned int slots = 3 + attempt % 6;
        struct strict_device *strict;
        struct device *device = make(
            (struct latency_options){.read_us = 3000, .write_us = 20000, .slots = slots}, &strict);
        struct device_queue *queue;
        uint64_t ends[REQUESTS];
        uint64_t start = now_ns();
        bool was_stalled;

        done_count = 0;
        assert_int_equal(device_queue_open(device, REQUESTS, &queue), 0);
        for (unsigned int j = 0; j < REQUESTS; j++)
            submit(queue, &jobs[j], support_random(&random, 2) == 0 ? DEVICE_READ : DEVICE_WRITE);
        was_stalled = now_ns() - start > 900 * NS_OF_US;
        device_queue_close(queue);
        device_close(device);
        if (was_stalled)
            continue;
        runs++;
        expect_ends(jobs, slots, ends);
        for (unsigned int i = 0; i < REQUESTS; i++) {
            assert_true(jobs[i].done_ns - start >= ends[i] * NS_OF_US);
            for (unsigned int j = 0; j < REQUESTS; j++)
                assert_true(ends[i] + 1000 > ends[j] || jobs[i].place < jobs[j].place);
        }
    }
    print_message("# %u runs compared\n", runs);
    if (runs == 0) {
        print_message("# skipped: this machine took too long to submit\n");
        skip();
    }
}

/* Requests that nobody reaps keep no slot from a synchronous call. */
static void test_unreaped_requests_block_nobody(void **state)
{
    static struct job jobs[4];
    struct strict_device *strict;
    struct device *device = make((struct latency_options){.read_us = 500, .slots = 1}, &strict);
    struct device_queue *queue;
    char byte;

    (void)state;
    done_count = 0;
    assert_int_equal(device_queue_open(device, 4, &queue), 0);
    for (unsigned int j = 0; j < 4; j++)
        submit(queue, &jobs[j], DEVICE_READ);
    assert_int_equal(device_read(device, &byte, 1, 0), 0);
    assert_int_equal(done_count, 0);
    device_queue_close(queue);
    assert_int_equal(done_count, 4);
    device_close(device);
}

/* Inside a stack with errors: the time is taken, and the error is passed on. */
static void test_errors_pass(void **state)
{
    static struct job job;
    struct device *device = support_open("latency(read_us=1000):fault(op=read):memory:1M", true);
    struct device_queue *queue;
    char byte;

    (void)state;
    assert_int_equal(device_read(device, &byte, 1, 0), -EIO);
    assert_int_equal(device_read(device, &byte, 1, 0), 0);
    device_close(device);
    device = support_open("latency(read_us=1000):fault(op=read):memory:1M", true);
    assert_int_equal(device_queue_open(device, 2, &queue), 0);
    submit(queue, &job, DEVICE_READ);
    assert_int_equal(device_queue_reap(queue, 1, 1), 1);
    assert_int_equal(job.request.result, -EIO);
    device_queue_close(queue);
    device_close(device);
}

/*
 * With full jitter a request takes anything from nothing to twice its time. The times follow from
 * the seed: with 5, 28 of the first hundred take at least 600 us where 400 are asked for.
 */
static void test_jitter(void **state)
{
    struct strict_device *strict;
    struct device *device =
        make((struct latency_options){.read_us = 400, .slots = 1, .jitter = 1, .seed = 5}, &strict);
    unsigned int long_count = 0;
    char bytes[BLOCK];

    (void)state;
    for (unsigned int i = 0; i < 100; i++) {
        uint64_t start = now_ns();

        assert_int_equal(device_read(device, bytes, BLOCK, 0), 0);
        if (now_ns() - start >= 600 * NS_OF_US)
            long_count++;
    }
    assert_true(long_count >= 28);
    device_close(device);
}

static void test_options(void **state)
{
    struct strict_device *strict = strict_device_create(SIZE, 1, 1);
    struct device *device = NULL;
    struct latency_options bad = {.jitter = 1.5};

    (void)state;
    assert_int_equal(latency_open(&strict->device, &bad, NULL, &device), -EINVAL);
    bad = (struct latency_options){.slots = UINT64_MAX};
    assert_int_equal(latency_open(&strict->device, &bad, NULL, &device), -EINVAL);
    bad = (struct latency_options){.read_us = UINT64_MAX};
    assert_int_equal(latency_open(&strict->device, &bad, NULL, &device), -EINVAL);
    device_close(&strict->device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_operation_takes_its_time),
        cmocka_unit_test(test_unlimited_slots_are_parallel),
        cmocka_unit_test(test_slots_bound_the_rate),
        cmocka_unit_test(test_bandwidth_bounds_the_rate),
        cmocka_unit_test(test_queue_times),
        cmocka_unit_test(test_queue_order_is_by_end),
        cmocka_unit_test(test_first_free_slot_is_taken),
        cmocka_unit_test(test_unreaped_requests_block_nobody),
        cmocka_unit_test(test_errors_pass),
        cmocka_unit_test(test_jitter),
        cmocka_unit_test(test_options),
    };

    return support_run_tests(tests);
}
