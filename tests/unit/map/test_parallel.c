/* SPDX-License-Identifier: MIT */
/*
 * Look-ups while maps change. A writer gives each file block, time after time, a mapping whose disk
 * block tells the file block, so that a reader can see that a mapping is not another's; and says
 * before and after each change which states a reader may find.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "fixture.h"

#define READERS     3
#define FILE_BLOCKS 600u
#define ROUNDS      3000u

struct shared {
    struct model *model;
    /* Per block: a counter that is odd while it changes; and its disk block, as it stands. */
    _Atomic uint32_t versions[FILE_BLOCKS];
    _Atomic uint32_t disk_blocks[FILE_BLOCKS];
    _Atomic bool is_over;
    _Atomic uint64_t checked, failed;
};

static void *read_map(void *context)
{
    struct shared *shared = context;
    uint64_t state = (uint64_t)(uintptr_t)&state | 1;

    while (!atomic_load(&shared->is_over)) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t place = (uint32_t)(state >> 33) % FILE_BLOCKS;
        uint32_t version = atomic_load(&shared->versions[place]);
        uint32_t wanted = atomic_load(&shared->disk_blocks[place]);
        struct mapping mapping;

        if (map_lookup(shared->model->inode, place, &mapping) != 0)
            atomic_fetch_add(&shared->failed, 1);
        if (version % 2 != 0 || atomic_load(&shared->versions[place]) != version)
            continue;
        if (mapping.kind == MAPPING_HOLE ? wanted != 0 : mapping.disk_block != wanted)
            atomic_fetch_add(&shared->failed, 1);
        atomic_fetch_add(&shared->checked, 1);
    }
    return NULL;
}

static void announce(struct shared *shared, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++)
        atomic_fetch_add(&shared->versions[i], 1);
}

static void publish(struct shared *shared, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        atomic_store(&shared->disk_blocks[i], shared->model->blocks[i].disk_block);
        atomic_fetch_add(&shared->versions[i], 1);
    }
}

static void edit(struct shared *shared)
{
    struct model *model = shared->model;
    bool has_extents = inode_has_flag(model->inode, INODE_EXTENTS);

    for (unsigned int round = 0; round < ROUNDS; round++) {
        uint64_t first = draw(FILE_BLOCKS - 30), end = first + 1;

        if (model->blocks[first].disk_block == 0) {
            while (end < first + 6 && model->blocks[end].disk_block == 0)
                end++;
            announce(shared, first, end);
            assert_int_equal(
                model_insert(model, first, end - first, has_extents && draw(2), draw(2)), 0);
        } else if (draw(2)) {
            end = first + 1 + draw(20);
            announce(shared, first, end);
            assert_int_equal(model_remove(model, first, end), 0);
        } else {
            announce(shared, first, end);
            assert_int_equal(model_set_kind(model, first, 1, has_extents && draw(2)), 0);
        }
        publish(shared, first, end);
        if (round % 500 == 0)
            assert_int_equal(journal_commit_all(model->fixture->volume.journal), 0);
    }
}

static void run_readers(const char *arguments)
{
    struct fixture fixture;
    struct model model;
    struct shared *shared = calloc(1, sizeof(*shared));
    pthread_t threads[READERS];

    assert_non_null(shared);
    fixture_make(&fixture, arguments, "32M");
    model_init(&model, &fixture, fixture.ino[0], FILE_BLOCKS);
    shared->model = &model;
    for (unsigned int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_map, shared), 0);
    edit(shared);
    atomic_store(&shared->is_over, true);
    for (unsigned int i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    printf("# %llu look-ups compared\n", (unsigned long long)shared->checked);
    assert_int_equal(shared->failed, 0);
    assert_true(shared->checked > 0);
    free(shared);
    model_compare(&model);
    model_set_size(&model);
    model_destroy(&model);
    fixture_close(&fixture);
    fixture_check(&fixture);
    fixture_remove(&fixture);
    assert_int_equal(fixture_errors, 0);
}

static void test_readers_of_extents(void **state)
{
    (void)state;
    run_readers("-t ext4 -b 1024");
}

static void test_readers_of_block_map(void **state)
{
    (void)state;
    run_readers("-t ext3 -b 1024");
}

/* ---- Several files at once ---- */

struct writer {
    struct model model;
    uint64_t seed;
    unsigned int failures;
};

static uint32_t writer_draw(struct writer *writer, uint32_t below)
{
    writer->seed = writer->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((writer->seed >> 33) % below);
}

/* cmocka's assertions are for the main thread: failures are counted. */
static void *write_map(void *context)
{
    struct writer *writer = context;
    struct model *model = &writer->model;
    struct space *space = model->fixture->volume.space;

    for (unsigned int round = 0; round < 1500; round++) {
        uint64_t place = writer_draw(writer, FILE_BLOCKS);
        struct handle handle;
        int error = journal_start(model->fixture->volume.journal,
                                  map_credits(model->inode, 1) + space_credits(space, 1), &handle);

        if (error != 0) {
            writer->failures++;
            continue;
        }
        if (model->blocks[place].disk_block == 0) {
            struct space_run run = {0};

            error = space_reserve(space, map_goal(model->inode, place), 1, 0, NULL, &run);
            if (error == 0)
                error = space_claim(&handle, space, run);
            struct mapping mapping = {.file_block = place,
                                      .length_blocks = 1,
                                      .disk_block = run.block,
                                      .kind = MAPPING_WRITTEN};
            if (error == 0)
                error = map_insert(&handle, model->inode, &mapping);
            model->blocks[place].disk_block = (uint32_t)run.block;
        } else {
            uint64_t remaining_end;

            error = map_remove(&handle, model->inode, place, place + 1, 0, &remaining_end);
            writer->failures += remaining_end != place;
            model->blocks[place].disk_block = 0;
        }
        writer->failures += error != 0;
        writer->failures += journal_stop(&handle) != 0;
    }
    return NULL;
}

static void test_many_files(void **state)
{
    (void)state;
    static struct writer writers[FIXTURE_FILES];
    struct fixture fixture;
    pthread_t threads[FIXTURE_FILES];

    fixture_make(&fixture, "-t ext4 -b 1024", "32M");
    for (unsigned int i = 0; i < FIXTURE_FILES; i++) {
        model_init(&writers[i].model, &fixture, fixture.ino[i], FILE_BLOCKS);
        writers[i].seed = draw(UINT32_MAX);
        assert_int_equal(pthread_create(&threads[i], NULL, write_map, &writers[i]), 0);
    }
    for (unsigned int i = 0; i < FIXTURE_FILES; i++) {
        uint64_t sectors;

        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(writers[i].failures, 0);
        model_compare_map(&writers[i].model, &sectors);
        model_set_size(&writers[i].model);
        model_destroy(&writers[i].model);
    }
    fixture_close(&fixture);
    fixture_check(&fixture);
    fixture_remove(&fixture);
    assert_int_equal(fixture_errors, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readers_of_extents),
        cmocka_unit_test(test_readers_of_block_map),
        cmocka_unit_test(test_many_files),
    };

    start_random();
    return cmocka_run_group_tests_name("map, parallel", tests, NULL, NULL);
}
