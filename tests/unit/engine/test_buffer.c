/* SPDX-License-Identifier: MIT */
/* The buffer cache: sharing, windows, bounds, errors, and many threads at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "block/buffer.h"
#include "gate.h"

#define BLOCK_BYTES 4096u
#define BLOCKS      4096u
#define CACHE_BYTES (4u << 20) /* the least that 16 shards of one slab each take */

struct fixture {
    struct device *gate;
    struct buffer_cache *cache;
};

static int setup(void **state)
{
    struct device_open_options options = {.is_writable = true, .direct = 0};
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct device *memory;
    uint64_t block[BLOCK_BYTES / sizeof(uint64_t)];

    assert_non_null(fixture);
    assert_int_equal(device_open("memory:16M", &options, &memory), 0);
    for (uint64_t number = 0; number < BLOCKS; number++) {
        for (size_t i = 0; i < sizeof(block) / sizeof(block[0]); i++)
            block[i] = number;
        assert_int_equal(device_write(memory, block, sizeof(block), number * BLOCK_BYTES, 0), 0);
    }
    fixture->gate = gate_open(memory);
    assert_int_equal(buffer_cache_create(fixture->gate, BLOCK_BYTES, CACHE_BYTES, &fixture->cache),
                     0);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    buffer_cache_destroy(fixture->cache);
    device_close(fixture->gate);
    free(fixture);
    return 0;
}

static void assert_content(const struct buffer *buffer, uint64_t number)
{
    const uint64_t *words = buffer->data;

    assert_int_equal(buffer->block, number);
    assert_int_equal(words[0], number);
    assert_int_equal(words[BLOCK_BYTES / sizeof(uint64_t) - 1], number);
}

static void get_and_put(struct fixture *fixture, uint64_t number)
{
    struct buffer *buffer;

    assert_int_equal(buffer_get(fixture->cache, number, &buffer), 0);
    assert_content(buffer, number);
    buffer_put(buffer);
}

static void test_second_get_reads_nothing(void **state)
{
    struct fixture *fixture = *state;

    get_and_put(fixture, 17);
    get_and_put(fixture, 17);
    assert_int_equal(gate_reads(fixture->gate), 1);
}

static void test_window_is_one_read(void **state)
{
    struct fixture *fixture = *state;
    struct buffer *buffer;

    get_and_put(fixture, 102);
    assert_int_equal(buffer_get_window(fixture->cache, 108, 100, 16, &buffer), 0);
    assert_content(buffer, 108);
    buffer_put(buffer);
    assert_int_equal(gate_reads(fixture->gate), 2);
    /* The window stops at the block that was cached before: 103 to 115 came with it. */
    for (uint64_t number = 102; number < 116; number++)
        get_and_put(fixture, number);
    assert_int_equal(gate_reads(fixture->gate), 2);
    get_and_put(fixture, 101);
    get_and_put(fixture, 116);
    assert_int_equal(gate_reads(fixture->gate), 4);
}

static void test_memory_is_bounded(void **state)
{
    struct fixture *fixture = *state;
    struct buffer_statistics statistics;

    for (unsigned int round = 0; round < 2; round++)
        for (uint64_t number = 0; number < BLOCKS; number++)
            get_and_put(fixture, number);
    /* 16 MiB do not fit into 4: a second round finds the oldest gone. */
    buffer_cache_get_statistics(fixture->cache, &statistics);
    assert_true(statistics.device_reads > BLOCKS + BLOCKS / 2);
    /* What was used last is still there. */
    unsigned int reads = gate_reads(fixture->gate);
    get_and_put(fixture, BLOCKS - 1);
    assert_int_equal(gate_reads(fixture->gate), reads);
}

static void test_held_buffers_stay(void **state)
{
    struct fixture *fixture = *state;
    struct buffer *held[64];

    for (uint64_t i = 0; i < 64; i++)
        assert_int_equal(buffer_get(fixture->cache, i * 7, &held[i]), 0);
    for (uint64_t number = 1000; number < BLOCKS; number++)
        get_and_put(fixture, number);
    for (uint64_t i = 0; i < 64; i++) {
        assert_content(held[i], i * 7);
        buffer_put(held[i]);
    }
}

static void test_error_is_not_kept(void **state)
{
    struct fixture *fixture = *state;
    struct buffer *buffer;

    gate_fail(fixture->gate, 55 * BLOCK_BYTES, BLOCK_BYTES, -EIO);
    assert_int_equal(buffer_get(fixture->cache, 55, &buffer), -EIO);
    gate_fail(fixture->gate, 0, 0, 0);
    get_and_put(fixture, 55);
}

static void test_bad_neighbour_does_no_harm(void **state)
{
    struct fixture *fixture = *state;
    struct buffer *buffer;

    gate_fail(fixture->gate, 61 * BLOCK_BYTES, BLOCK_BYTES, -EIO);
    assert_int_equal(buffer_get_window(fixture->cache, 60, 56, 16, &buffer), 0);
    assert_content(buffer, 60);
    buffer_put(buffer);
    assert_int_equal(buffer_get(fixture->cache, 61, &buffer), -EIO);
    get_and_put(fixture, 62);
}

static void test_verified_until_reused(void **state)
{
    struct fixture *fixture = *state;
    struct buffer *buffer;

    assert_int_equal(buffer_get(fixture->cache, 5, &buffer), 0);
    assert_false(buffer_is_verified(buffer, 77));
    buffer_set_verified(buffer, 77);
    assert_true(buffer_is_verified(buffer, 77));
    assert_false(buffer_is_verified(buffer, 78));
    buffer_put(buffer);
    for (uint64_t number = 6; number < BLOCKS; number++)
        get_and_put(fixture, number);
    assert_int_equal(buffer_get(fixture->cache, 5, &buffer), 0);
    assert_false(buffer_is_verified(buffer, 77));
    buffer_put(buffer);
}

static void *get_block_9(void *context)
{
    get_and_put(context, 9);
    return NULL;
}

static void test_threads_share_one_read(void **state)
{
    struct fixture *fixture = *state;
    pthread_t threads[8];

    for (size_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_block_9, fixture), 0);
    for (size_t i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(gate_reads(fixture->gate), 1);
}

struct worker {
    struct fixture *fixture;
    uint64_t seed;
};

static void *read_at_random(void *context)
{
    struct worker *worker = context;
    uint64_t state = worker->seed;

    for (unsigned int i = 0; i < 20000; i++) {
        struct buffer *buffer;
        uint64_t number, first;

        state = state * 6364136223846793005u + 1442695040888963407u;
        number = (state >> 33) % BLOCKS;
        first = number - number % 8;
        assert_int_equal(
            buffer_get_window(worker->fixture->cache, number, first, i % 3 == 0 ? 8 : 1, &buffer),
            0);
        assert_content(buffer, number);
        buffer_put(buffer);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    struct worker workers[8];
    pthread_t threads[8];

    for (size_t i = 0; i < 8; i++) {
        workers[i] = (struct worker){*state, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, read_at_random, &workers[i]), 0);
    }
    for (size_t i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_second_get_reads_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_window_is_one_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_held_buffers_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_error_is_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_neighbour_does_no_harm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verified_until_reused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads_share_one_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_threads, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
