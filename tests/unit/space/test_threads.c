/* SPDX-License-Identifier: MIT */
/*
 * Random reserving, claiming, freeing and committing by one and eight threads against a model that
 * knows each cluster's owner. A block that was freed may come back only once the disk shows it
 * free: without a log, a commit is on the disk before its callbacks run.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "support.h"

#define MAX_RUNS   48
#define OPERATIONS 3000
#define MAX_INODES 64

enum owner { OWNER_NOBODY, OWNER_FREED, OWNER_FIRST };

struct model {
    struct image *image;
    _Atomic uint8_t *owners; /* of each block */
    uint8_t *inodes;         /* an inode's owner, by the inode bitmap's invariant: one thread */
    _Atomic unsigned int failures;
    _Atomic uint64_t freed_again; /* blocks that came back after a commit */
    unsigned int thread_count;
};

struct worker {
    struct model *model;
    pthread_t thread;
    uint64_t random;
    uint8_t owner;
    struct space_run runs[MAX_RUNS];
    bool is_claimed[MAX_RUNS];
    unsigned int run_count;
    uint32_t inodes[MAX_INODES];
    bool is_dir[MAX_INODES];
    unsigned int inode_count;
    struct space_stream streams[2];
};

/* cmocka's assertions must not be used off the main thread. */
static void expect(struct model *model, bool is_right, const char *what)
{
    if (!is_right) {
        atomic_fetch_add(&model->failures, 1);
        fprintf(stderr, "# %s\n", what);
    }
}

static void give_out(struct worker *worker, struct space_run run)
{
    struct model *model = worker->model;

    for (uint64_t block = run.block; block < run.block + run.length_blocks; block++) {
        uint8_t old = atomic_exchange(&model->owners[block], worker->owner);

        expect(model, old < OWNER_FIRST, "a block was given out twice");
        expect(model, image_was_free(model->image, block), "a block in use was given out");
        if (old == OWNER_FREED) {
            atomic_fetch_add(&model->freed_again, 1);
            expect(model, !image_disk_bit(model->image, block), "freed, given out before commit");
        }
    }
}

static void give_back(struct worker *worker, struct space_run run, uint8_t owner)
{
    for (uint64_t block = run.block; block < run.block + run.length_blocks; block++)
        expect(worker->model,
               atomic_exchange(&worker->model->owners[block], owner) == worker->owner,
               "a block of ours has another owner");
}

static void reserve(struct worker *worker)
{
    struct image *image = worker->model->image;
    unsigned int stream = (unsigned int)test_random(&worker->random, 3);
    uint32_t wanted = 1 + (uint32_t)test_random(&worker->random,
                                                1u << test_random(&worker->random, 12));
    uint64_t goal = test_random(&worker->random, 4) == 0
                        ? test_random(&worker->random, image->volume.sb.block_count)
                        : 0;
    struct space_run run;
    int error = space_reserve(image->space, goal, wanted, SPACE_PRIVILEGED,
                              stream < 2 ? &worker->streams[stream] : NULL, &run);

    if (error == -EAGAIN) {
        expect(worker->model, journal_commit_all(image->journal) == 0, "a commit failed");
        return;
    }
    if (error == -ENOSPC)
        return;
    expect(worker->model, error == 0, "reserving failed");
    if (error != 0)
        return;
    give_out(worker, run);
    worker->runs[worker->run_count] = run;
    worker->is_claimed[worker->run_count] = false;
    worker->run_count++;
}

static void claim(struct worker *worker, unsigned int index)
{
    struct image *image = worker->model->image;
    struct space_run run = worker->runs[index];
    struct handle handle;

    if (worker->is_claimed[index])
        return;
    expect(worker->model,
           journal_start(image->journal, space_credits(image->space, run.length_blocks), &handle) ==
               0,
           "no handle");
    expect(worker->model, space_claim(&handle, image->space, run) == 0, "a claim failed");
    expect(worker->model, journal_stop(&handle) == 0, "a handle failed");
    worker->is_claimed[index] = true;
}

static void release(struct worker *worker, unsigned int index)
{
    struct image *image = worker->model->image;
    struct space_run run = worker->runs[index];
    struct handle handle;

    if (worker->is_claimed[index]) {
        expect(worker->model,
               journal_start(image->journal, space_credits(image->space, run.length_blocks),
                             &handle) == 0,
               "no handle");
        /* Before the handle ends nothing of it can be given out. */
        give_back(worker, run, OWNER_FREED);
        expect(worker->model, space_free(&handle, image->space, run) == 0, "freeing failed");
        expect(worker->model, journal_stop(&handle) == 0, "a handle failed");
    } else {
        give_back(worker, run, OWNER_NOBODY);
        space_unreserve(image->space, run);
    }
    worker->run_count--;
    worker->runs[index] = worker->runs[worker->run_count];
    worker->is_claimed[index] = worker->is_claimed[worker->run_count];
}

static void change_inodes(struct worker *worker)
{
    struct model *model = worker->model;
    struct image *image = model->image;
    bool is_dir = test_random(&worker->random, 3) == 0;
    struct handle handle;
    uint32_t ino;

    expect(model, journal_start(image->journal, SPACE_ALLOCATE_INODE_CREDITS, &handle) == 0,
           "no handle");
    if (worker->inode_count < MAX_INODES && test_random(&worker->random, 5) < 3) {
        uint32_t parent = worker->inode_count > 0 ? worker->inodes[0] : 2;
        int error = space_allocate_inode(&handle, image->space, parent, is_dir,
                                         test_random(&worker->random, 2) == 0, &ino);

        expect(model, error == 0 || error == -ENOSPC, "no inode");
        if (error == 0) {
            expect(model, ino >= image->volume.sb.first_ino, "a reserved inode was given out");
            expect(model, model->inodes[ino] == 0, "an inode was given out twice");
            model->inodes[ino] = worker->owner;
            worker->inodes[worker->inode_count] = ino;
            worker->is_dir[worker->inode_count++] = is_dir;
        }
    } else if (worker->inode_count > 0) {
        worker->inode_count--;
        ino = worker->inodes[worker->inode_count];
        model->inodes[ino] = 0;
        expect(model,
               space_free_inode(&handle, image->space, ino, worker->is_dir[worker->inode_count]) ==
                   0,
               "freeing an inode failed");
    }
    expect(model, journal_stop(&handle) == 0, "a handle failed");
}

static void *work(void *context)
{
    struct worker *worker = context;
    struct image *image = worker->model->image;

    for (unsigned int i = 0; i < OPERATIONS; i++) {
        uint64_t choice = test_random(&worker->random, 100);
        unsigned int index = worker->run_count > 0
                                 ? (unsigned int)test_random(&worker->random, worker->run_count)
                                 : 0;

        if (choice < 40 && worker->run_count < MAX_RUNS)
            reserve(worker);
        else if (choice < 65 && worker->run_count > 0)
            claim(worker, index);
        else if (choice < 90 && worker->run_count > 0)
            release(worker, index);
        else if (choice < 97)
            change_inodes(worker);
        else if (choice == 97)
            space_end_stream(image->space, &worker->streams[0]);
        else if (choice == 98 && i % 4 == 0)
            expect(worker->model, journal_commit_all(image->journal) == 0, "a commit failed");
    }
    while (worker->run_count > 0)
        release(worker, worker->run_count - 1);
    for (unsigned int i = 0; i < worker->inode_count; i++) {
        struct handle handle;

        worker->model->inodes[worker->inodes[i]] = 0;
        expect(worker->model,
               journal_start(image->journal, SPACE_FREE_INODE_CREDITS, &handle) == 0 &&
                   space_free_inode(&handle, image->space, worker->inodes[i], worker->is_dir[i]) ==
                       0 &&
                   journal_stop(&handle) == 0,
               "freeing an inode failed");
    }
    space_end_stream(image->space, &worker->streams[0]);
    space_end_stream(image->space, &worker->streams[1]);
    return NULL;
}

static void run_shape(const struct shape *shape, unsigned int thread_count, uint64_t seed,
                      bool discards)
{
    struct image *image = image_create(shape);
    struct model model = {.image = image, .thread_count = thread_count};
    struct worker *workers = calloc(thread_count, sizeof(*workers));
    struct space_usage usage;

    image_clear_messages();
    image_open(image, &(struct space_options){.discards = discards});
    model.owners = calloc(image->volume.sb.block_count, 1);
    model.inodes = calloc(image->volume.sb.inode_count + 1, 1);
    for (unsigned int i = 0; i < thread_count; i++) {
        workers[i].model = &model;
        workers[i].random = seed + i * 977 + 1;
        workers[i].owner = (uint8_t)(OWNER_FIRST + i);
        if (thread_count == 1)
            work(&workers[i]);
        else
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned int i = 0; i < thread_count && thread_count > 1; i++)
        pthread_join(workers[i].thread, NULL);
    assert_int_equal(atomic_load(&model.failures), 0);
    image_commit(image);
    assert_int_equal(space_get_usage(image->space, &usage), 0);
    assert_int_equal(usage.free_blocks,
                     image->initial_free_clusters * image->volume.sb.cluster_blocks);
    assert_int_equal(usage.free_inodes, image->initial_free_inodes);
    print_message("# %s, %u threads: %llu blocks came back\n", shape->name, thread_count,
                  (unsigned long long)model.freed_again);
    image_close(image);
    assert_string_equal(image_messages(), "");
    image_check(image);
    free((void *)model.owners);
    free(model.inodes);
    free(workers);
    image_destroy(image);
}

static void test_one_thread(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
    for (size_t i = 0; i < shape_count; i++)
        run_shape(&shapes[i], 1, seed + i, i % 2 == 0);
}

static void test_eight_threads(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
    for (size_t i = 0; i < shape_count; i++)
        run_shape(&shapes[i], 8, seed + i, i % 2 == 1);
}

/* A file system so small that the threads meet its end again and again. */
static void test_shortage(void **state)
{
    const struct shape tiny = {"tiny", "1M", "-t ext4 -b 1024 -N 64 -O ^has_journal"};
    uint64_t seed = test_seed();

    (void)state;
    for (unsigned int i = 0; i < 3; i++)
        run_shape(&tiny, 8, seed + i, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread),
        cmocka_unit_test(test_eight_threads),
        cmocka_unit_test(test_shortage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
