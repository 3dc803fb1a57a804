/* SPDX-License-Identifier: MIT */
/* Giving out every block exactly once, over all shapes; ENOSPC, EAGAIN, blocks reserved for root.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "support.h"

struct runs {
    struct space_run *list;
    size_t count, capacity;
};

static void runs_add(struct runs *runs, struct space_run run)
{
    if (runs->count == runs->capacity) {
        runs->capacity = MAX(runs->capacity * 2, (size_t)64);
        runs->list = realloc(runs->list, runs->capacity * sizeof(run));
        assert_non_null(runs->list);
    }
    runs->list[runs->count++] = run;
}

/* Marks a run in the model; nothing of it may be in use. */
static uint64_t mark(struct image *image, uint8_t *used, struct space_run run)
{
    const struct superblock *sb = &image->volume.sb;

    assert_true(run.length_blocks > 0);
    assert_int_equal((run.block - sb->first_data_block) % sb->cluster_blocks, 0);
    assert_true(volume_has_blocks(&image->volume, run.block, run.length_blocks));
    for (uint64_t block = run.block; block < run.block + run.length_blocks; block++) {
        assert_true(image_was_free(image, block));
        assert_false(used[block] != 0);
        used[block] = 1;
    }
    return (run.length_blocks + sb->cluster_blocks - 1) / sb->cluster_blocks;
}

/* Reserves until ENOSPC, and returns how many clusters that were. */
static uint64_t exhaust(struct image *image, uint64_t *random, uint8_t *used, unsigned int flags,
                        struct runs *runs)
{
    struct space_stream streams[3] = {0};
    uint64_t clusters = 0;

    for (;;) {
        struct space_run run;
        uint64_t goal = test_random(random, 2) == 0
                            ? 0
                            : test_random(random, image->volume.sb.block_count * 2);
        uint32_t wanted = 1 + (uint32_t)test_random(random, 1u << test_random(random, 14));
        unsigned int stream = (unsigned int)test_random(random, 4);
        unsigned int own_flags = flags | (test_random(random, 8) == 0 ? SPACE_METADATA : 0u);
        int error = space_reserve(image->space, goal, wanted, own_flags,
                                  stream < 3 ? &streams[stream] : NULL, &run);

        if (error == -ENOSPC)
            break;
        assert_int_equal(error, 0);
        assert_true(run.length_blocks < wanted + image->volume.sb.cluster_blocks);
        clusters += mark(image, used, run);
        runs_add(runs, run);
    }
    for (unsigned int i = 0; i < 3; i++)
        space_end_stream(image->space, &streams[i]);
    return clusters;
}

static void exhaust_shape(const struct shape *shape, uint64_t seed)
{
    struct image *image = image_create(shape);
    struct runs runs = {0}, privileged = {0};
    struct space_usage usage;

    print_message("# %s\n", shape->name);
    image_clear_messages();
    image_open(image, NULL);
    const struct superblock *sb = &image->volume.sb;
    uint8_t *used = calloc(1, sb->block_count);
    assert_non_null(used);
    uint64_t root = sb->reserved_block_count / sb->cluster_blocks;

    uint64_t ordinary = exhaust(image, &seed, used, 0, &runs);
    assert_int_equal(ordinary, image->initial_free_clusters - root);
    assert_int_equal(space_get_usage(image->space, &usage), 0);
    assert_int_equal(usage.available_blocks, 0);
    assert_int_equal(usage.free_blocks, root * sb->cluster_blocks);
    uint64_t all = ordinary + exhaust(image, &seed, used, SPACE_PRIVILEGED, &privileged);
    assert_int_equal(all, image->initial_free_clusters);

    /* All of it on the disk; half is freed at once, and nothing of that is to be had yet. */
    for (size_t i = 0; i < runs.count; i++)
        image_claim(image, runs.list[i]);
    struct space_run none;
    for (size_t i = 0; i < runs.count; i += 2) {
        assert_int_equal(image_free(image, runs.list[i]), 0);
        for (uint32_t k = 0; k < runs.list[i].length_blocks; k++)
            used[runs.list[i].block + k] = 0;
    }
    assert_int_equal(space_reserve(image->space, 0, 1, SPACE_PRIVILEGED, NULL, &none), -EAGAIN);
    for (size_t i = 0; i < privileged.count; i++) {
        space_unreserve(image->space, privileged.list[i]);
        for (uint32_t k = 0; k < privileged.list[i].length_blocks; k++)
            used[privileged.list[i].block + k] = 0;
    }
    image_commit(image);
    struct runs again = {0};
    exhaust(image, &seed, used, SPACE_PRIVILEGED, &again);
    for (uint64_t block = sb->first_data_block; block < sb->block_count; block++)
        assert_true(used[block] != 0 || !image_was_free(image, block));
    for (size_t i = 0; i < again.count; i++)
        space_unreserve(image->space, again.list[i]);

    for (size_t i = 1; i < runs.count; i += 2)
        assert_int_equal(image_free(image, runs.list[i]), 0);
    image_commit(image);
    assert_int_equal(space_get_usage(image->space, &usage), 0);
    assert_int_equal(usage.free_blocks, image->initial_free_clusters * sb->cluster_blocks);
    image_close(image);
    assert_string_equal(image_messages(), "");
    image_check(image);
    free(used);
    free(runs.list);
    free(privileged.list);
    free(again.list);
    image_destroy(image);
}

static void test_every_block_once(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
    for (size_t i = 0; i < shape_count; i++)
        exhaust_shape(&shapes[i], seed + i * 2);
}

/* A superblock whose count is wrong, as after a crash, must not change what is given out. */
static void test_wrong_estimate(void **state)
{
    const char *counts[] = {"0", "10", "100000000"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(counts); i++) {
        struct image *image = image_create(shape_find("ext4-1k"));
        char request[64];
        const char *arguments[] = {"debugfs", "-w", "-R", request, image->path, NULL};
        struct space_usage usage;
        struct space_run run;
        uint64_t seed = 1, clusters;
        struct runs runs = {0};

        snprintf(request, sizeof(request), "ssv free_blocks_count %s", counts[i]);
        assert_int_equal(run_program(arguments, NULL, 0), 0);
        image_open(image, NULL);
        uint8_t *used = calloc(1, image->volume.sb.block_count);
        assert_int_equal(space_reserve(image->space, 0, 1000, 0, NULL, &run), 0);
        assert_int_equal(run.length_blocks, 1000);
        clusters = mark(image, used, run);
        clusters += exhaust(image, &seed, used, 0, &runs);
        assert_int_equal(clusters,
                         image->initial_free_clusters - image->volume.sb.reserved_block_count);
        space_unreserve(image->space, run);
        for (size_t k = 0; k < runs.count; k++)
            space_unreserve(image->space, runs.list[k]);
        assert_int_equal(space_get_usage(image->space, &usage), 0);
        assert_int_equal(usage.free_blocks, image->initial_free_clusters);
        image_close(image);
        image_check(image);
        free(used);
        free(runs.list);
        image_destroy(image);
    }
}

/* More groups than may keep their bitmaps: they are dropped and read anew, with the same result. */
static void test_bitmaps_are_dropped(void **state)
{
    const struct shape shape = {"many-groups", "200M", "-t ext4 -b 1024 -g 256 -N 8192"};
    struct image *image = image_create(&shape);
    struct space_statistics statistics;
    struct runs runs = {0};
    uint64_t seed = 99;

    (void)state;
    image_open(image, &(struct space_options){.may_use_reserved = true, .max_bitmap_bytes = 32768});
    uint8_t *used = calloc(1, image->volume.sb.block_count);
    uint64_t clusters = 0;
    struct space_run run;
    /* Claimed at once, nothing is held in a group that is full. */
    while (space_reserve(image->space, 0, 64, 0, NULL, &run) == 0) {
        clusters += mark(image, used, run);
        image_claim(image, run);
        runs_add(&runs, run);
    }
    assert_int_equal(clusters, image->initial_free_clusters);
    for (size_t i = 0; i < runs.count; i++) {
        assert_int_equal(image_free(image, runs.list[(i * 7919) % runs.count]), 0);
        if (i % 100 == 0)
            image_commit(image);
    }
    image_commit(image);
    memset(used, 0, image->volume.sb.block_count);
    runs.count = 0;
    assert_int_equal(exhaust(image, &seed, used, 0, &runs), clusters);
    for (size_t i = 0; i < runs.count; i++)
        space_unreserve(image->space, runs.list[i]);
    space_get_statistics(image->space, &statistics);
    print_message("# %u groups, %u bitmaps in memory, %llu read\n", image->volume.sb.group_count,
                  statistics.bitmaps_in_memory, (unsigned long long)statistics.bitmaps_read);
    assert_int_equal(statistics.groups_out_of_use, 0);
    assert_true(statistics.bitmaps_in_memory <= 17);
    assert_true(statistics.bitmaps_read > image->volume.sb.group_count);
    image_close(image);
    image_check(image);
    free(used);
    free(runs.list);
    image_destroy(image);
}

static _Atomic unsigned int refusals;

static void *reserve_much(void *context)
{
    struct image *image = context;

    for (unsigned int i = 0; i < 5000; i++) {
        struct space_run run;
        int error = space_reserve(image->space, 0, 5000, 0, NULL, &run);

        if (error == 0)
            space_unreserve(image->space, run);
        else
            atomic_fetch_add(&refusals, 1);
    }
    return NULL;
}

/*
 * Single free blocks, more than threads: each thread asks for much and gets one. Nobody is to be
 * refused because another one asked for more than it got.
 */
static void test_no_false_shortage(void **state)
{
    const struct shape tiny = {"tiny", "1M", "-t ext4 -b 1024 -N 64 -O ^has_journal"};
    struct image *image = image_create(&tiny);
    struct runs runs = {0};
    struct space_run run;
    pthread_t threads[8];

    (void)state;
    image_open(image, &(struct space_options){.may_use_reserved = true});
    while (space_reserve(image->space, 0, 1, 0, NULL, &run) == 0)
        runs_add(&runs, run);
    for (size_t i = 0; i < runs.count; i++)
        if (runs.list[i].block % 8 == 0)
            space_unreserve(image->space, runs.list[i]);
    for (unsigned int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reserve_much, image), 0);
    for (unsigned int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&refusals), 0);
    for (size_t i = 0; i < runs.count; i++)
        if (runs.list[i].block % 8 != 0)
            space_unreserve(image->space, runs.list[i]);
    image_close(image);
    image_check(image);
    free(runs.list);
    image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_block_once),
        cmocka_unit_test(test_wrong_estimate),
        cmocka_unit_test(test_bitmaps_are_dropped),
        cmocka_unit_test(test_no_false_shortage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
