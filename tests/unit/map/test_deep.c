/* SPDX-License-Identifier: MIT */
/*
 * Deep trees: depth 3 with real nodes, checked by e2fsck; depth 5 with nodes made small. They grow
 * in every order, are changed all over, and shrink back to nothing.
 */
#include <errno.h>

#include "fixture.h"

static void shuffle(uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = draw(i), number = numbers[i - 1];

        numbers[i - 1] = numbers[other];
        numbers[other] = number;
    }
}

/* Maps every second block: ascending, descending or in random order. Returns the greatest depth. */
static unsigned int grow(struct model *model, unsigned int order)
{
    uint32_t count = (uint32_t)(model->count / 2);
    uint32_t *numbers = calloc(count, sizeof(*numbers));
    unsigned int max_depth = 0;

    assert_non_null(numbers);
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = order == 1 ? count - 1 - i : i;
    if (order == 2)
        shuffle(numbers, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(model_insert(model, 2 * (uint64_t)numbers[i], 1, draw(2), false), 0);
        if (i % 2000 == 0 || i + 1 == count) {
            unsigned int depth = model_compare(model);

            max_depth = MAX(max_depth, depth);
        }
    }
    free(numbers);
    return max_depth;
}

static void shrink(struct model *model)
{
    uint64_t end = model->count;

    for (unsigned int i = 0; i < 200; i++) {
        uint64_t first = draw((uint32_t)model->count);

        assert_int_equal(model_remove(model, first, first + 1 + draw(40)), 0);
    }
    model_compare(model);
    while (end > 0) {
        uint64_t step = 1 + draw(8000);
        uint64_t first = end - MIN(end, step);

        assert_int_equal(model_remove(model, first, end), 0);
        model_compare(model);
        end = first;
    }
    assert_int_equal(model_compare(model), 0);
    assert_int_equal(model->inode->fields.allocated_sectors, 0);
}

static void test_real_nodes(void **state)
{
    (void)state;
    static const uint64_t counts[] = {60000, 34000, 56000};
    struct fixture fixture;
    struct model model;

    for (unsigned int order = 0; order < 3; order++) {
        fixture_make(&fixture, "-t ext4 -b 1024 -N 64", "96M");
        model_init(&model, &fixture, fixture.ino[0], counts[order]);
        unsigned int depth = grow(&model, order);
        printf("# order %u: depth %u\n", order, depth);
        assert_true(depth >= 3);
        uint64_t quarter = model.count / 4;
        assert_int_equal(model_remove(&model, model.count - 8, model.count), 0);
        assert_int_equal(model_shift(&model, quarter, 5), 0);
        model_compare(&model);
        assert_int_equal(model_shift(&model, quarter + 5, -4), 0);
        model_compare(&model);
        model_set_size(&model);
        uint32_t ino = model.inode->ino;
        inode_put(model.inode);
        fixture_close(&fixture);
        fixture_check(&fixture);
        model_compare_debugfs(&model, ino);

        uint64_t used = fixture.free_at_start;
        fixture_open(&fixture);
        fixture.free_at_start = used;
        assert_int_equal(inode_get(fixture.inodes, ino, &model.inode), 0);
        model_compare(&model);
        shrink(&model);
        model_set_size(&model);
        model_destroy(&model);
        fixture_close(&fixture);
        fixture_check(&fixture);
        fixture_remove(&fixture);
        assert_int_equal(fixture_errors, 0);
    }
}

/* A tree of small nodes may also be as deep as trees can be: that is logged. */
static void check_refusal(int error, bool was_refused, unsigned int *refused, unsigned int *full)
{
    if (error == -EFBIG) {
        assert_in_range(fixture_errors, 1, 2);
        fixture_errors = 0;
        ++*full;
    } else if (was_refused) {
        assert_int_equal(error, -ENOSPC);
        ++*refused;
    } else {
        assert_int_equal(error, 0);
    }
}

static void test_small_nodes(void **state)
{
    (void)state;
    struct fixture fixture;
    struct model model;
    static const uint64_t counts[] = {60000, 1100, 4000};
    unsigned int refused = 0, full = 0;

    small_capacity = 6;
    for (unsigned int order = 0; order < 3; order++) {
        fixture_make(&fixture, "-t ext4 -b 1024 -N 64", "128M");
        model_init(&model, &fixture, fixture.ino[0], counts[order]);
        unsigned int depth = grow(&model, order);
        printf("# order %u: depth %u\n", order, depth);
        assert_int_equal(depth, EXTENT_MAX_DEPTH);
        for (unsigned int i = 0; i < 2000; i++) {
            uint64_t first = draw((uint32_t)model.count - 8);

            bool may_fail = draw(2);
            uint32_t number = 1 + draw(5);

            fail_reserve_in = may_fail ? number : 0;
            bool is_mapped = model.blocks[first].disk_block != 0;
            int error = draw(2) == 0 ? model_remove(&model, first, first + 1 + draw(2))
                        : is_mapped  ? model_set_kind(&model, first, 1, draw(2))
                                     : model_set_kind(&model, first, 1 + draw(8), true);
            check_refusal(error, may_fail && fail_reserve_in == 0, &refused, &full);
            if (model.blocks[first].disk_block == 0) {
                fail_reserve_in = number;
                error = model_insert(&model, first, 1, false, true);
                check_refusal(error, fail_reserve_in == 0, &refused, &full);
            }
            fail_reserve_in = 0;
            if (i % 20 == 0)
                model_compare(&model);
        }
        model_compare(&model);
        shrink(&model);
        model_destroy(&model);
        fixture_close(&fixture);
        fixture_check(&fixture);
        fixture_remove(&fixture);
        assert_int_equal(fixture_errors, 0);
    }
    printf("# %u refused, %u times too deep\n", refused, full);
    assert_true(refused > 50);
    small_capacity = 0;
}

/* A run that takes several extents, and one that fails at a later of them. */
static void test_long_runs(void **state)
{
    (void)state;
    struct fixture fixture;
    struct model model;

    fixture_make(&fixture, "-t ext4 -b 1024 -N 64 -G 64", "256M");
    model_init(&model, &fixture, fixture.ino[0], 120000);
    /* One run on the disk, longer than an extent: the file takes it in pieces, which join. */
    for (uint64_t i = 0; i < 100000; i += 4000)
        assert_int_equal(model_insert(&model, i, 4000, i >= 40000 && i < 80000, false), 0);
    model_compare(&model);
    assert_int_equal(model_set_kind(&model, 10, 99000, true), 0);
    model_compare(&model);
    assert_int_equal(model_set_kind(&model, 0, 100000, false), 0);
    model_compare(&model);
    assert_int_equal(model_set_kind(&model, 0, 100000, true), 0);
    model_compare(&model);
    assert_int_equal(model_remove(&model, 5, 99990), 0);
    model_compare(&model);
    assert_int_equal(model_insert(&model, 5, 40000, false, false), 0);
    model_compare(&model);
    model_set_size(&model);
    uint32_t ino = model.inode->ino;
    inode_put(model.inode);
    fixture_close(&fixture);
    fixture_check(&fixture);
    model_compare_debugfs(&model, ino);
    free(model.blocks);
    fixture_remove(&fixture);
    assert_int_equal(fixture_errors, 0);
}

static void test_arguments(void **state)
{
    (void)state;
    struct fixture fixture;
    struct model model;
    struct handle handle;

    fixture_make(&fixture, "-t ext4 -b 4096 -N 64 -O bigalloc -C 16384", "64M");
    model_init(&model, &fixture, fixture.ino[0], 1000);
    assert_int_equal(model_insert(&model, 8, 6, false, false), 0);
    model_start(&model, 100, &handle);
    uint64_t disk_block = model.blocks[8].disk_block, next = MAP_SHIFT_START;
    struct mapping mapping = {
        .file_block = 9, .length_blocks = 1, .disk_block = disk_block + 1, .kind = MAPPING_WRITTEN};
    assert_int_equal(map_insert(&handle, model.inode, &mapping), -EEXIST);
    mapping.file_block = 0;
    assert_int_equal(map_insert(&handle, model.inode, &mapping), -EINVAL);
    mapping.file_block = MAP_MAX_FILE_BLOCKS - 3;
    mapping.length_blocks = 4;
    assert_int_equal(map_insert(&handle, model.inode, &mapping), -EFBIG);
    assert_int_equal(map_shift(&handle, model.inode, 8, 3, &next), -EINVAL);
    assert_int_equal(map_shift(&handle, model.inode, 12, -4, &next), -EINVAL);
    assert_int_equal(map_shift(&handle, model.inode, 8, (INT64_C(1) << 32) - 12, &next), -EFBIG);
    assert_int_equal(fixture_errors, 0);
    assert_int_equal(map_convert(&handle, model.inode, 8, 7), -EUCLEAN);
    assert_int_equal(fixture_errors, 1);
    fixture_errors = 0;
    assert_int_equal(journal_stop(&handle), 0);
    model_compare(&model);
    assert_int_equal(model_remove(&model, 0, MAP_MAX_FILE_BLOCKS), 0);
    model_compare(&model);
    model_destroy(&model);
    fixture_close(&fixture);
    fixture_check(&fixture);
    fixture_remove(&fixture);
}

/* Goals follow the block before, and files of neighbouring inodes do not begin at the same place.
 */
static void test_goals(void **state)
{
    (void)state;
    struct fixture fixture;
    struct model model;
    struct inode *other;

    fixture_make(&fixture, "-t ext4 -b 4096", "64M");
    model_init(&model, &fixture, fixture.ino[0], 1000);
    assert_int_equal(inode_get(fixture.inodes, fixture.ino[1], &other), 0);
    assert_true(map_goal(other, 0) > map_goal(model.inode, 0));
    assert_true(map_goal(other, 0) < fixture.volume.sb.block_count);
    assert_int_equal(model_insert(&model, 3, 2, false, false), 0);
    assert_int_equal(map_goal(model.inode, 5), model.blocks[4].disk_block + 1);
    assert_int_equal(map_goal(model.inode, 7), model.blocks[4].disk_block + 3);
    inode_put(other);
    model_set_size(&model);
    model_destroy(&model);
    fixture_close(&fixture);
    fixture_check(&fixture);
    fixture_remove(&fixture);
}

/* The blocks of directories are revoked before they are freed. */
static void test_directory(void **state)
{
    static const char *const arguments[] = {"-t ext4 -b 1024", "-t ext3 -b 1024"};

    (void)state;
    for (unsigned int i = 0; i < ARRAY_LENGTH(arguments); i++) {
        struct fixture fixture;
        struct journal_statistics before, after;
        struct inode *inode;
        struct handle handle;
        uint64_t end;

        fixture_make(&fixture, arguments[i], "32M");
        assert_int_equal(inode_get(fixture.inodes, 11, &inode), 0); /* lost+found */
        assert_true(S_ISDIR(inode->fields.mode));
        uint64_t blocks = inode->fields.size / fixture.volume.sb.block_bytes;
        assert_true(blocks > 1);
        journal_get_statistics(fixture.volume.journal, &before);
        assert_int_equal(journal_start(fixture.volume.journal, map_credits(inode, blocks), &handle),
                         0);
        assert_int_equal(map_remove(&handle, inode, 0, blocks, 0, &end), 0);
        assert_int_equal(journal_stop(&handle), 0);
        assert_int_equal(end, 0);
        journal_get_statistics(fixture.volume.journal, &after);
        assert_true(after.revokes - before.revokes >= blocks);
        assert_int_equal(inode->fields.allocated_sectors, 0);
        inode_put(inode);
        fixture_close(&fixture);
        fixture_remove(&fixture);
        assert_int_equal(fixture_errors, 0);
    }
}

/* An insertion that fails in the middle leaves nothing of it. */
static void test_no_memory(void **state)
{
    static const char *const arguments[] = {"-t ext3 -b 1024 -N 64", "-t ext4 -b 1024 -N 64"};

    (void)state;
    for (unsigned int i = 0; i < ARRAY_LENGTH(arguments); i++) {
        struct fixture fixture;
        struct model model;
        unsigned int failed = 0;

        fixture_make(&fixture, arguments[i], "64M");
        model_init(&model, &fixture, fixture.ino[0], 9000);
        for (unsigned int step = 0; step < 600; step++) {
            uint64_t first = draw(8000), length = 0, limit = 1 + draw(step % 2 == 0 ? 900 : 3);

            while (length < limit && model.blocks[first + length].disk_block == 0)
                length++;
            assert_int_equal(journal_commit_all(fixture.volume.journal), 0);
            fail_modify_in = 1 + draw(6);
            int error = length > 0 ? model_insert(&model, first, length, false, true) : 0;
            if (length > 0 && fail_modify_in == 0) {
                assert_int_equal(error, -ENOMEM);
                failed++;
            } else {
                assert_int_equal(error, 0);
            }
            fail_modify_in = 0;
            model_compare(&model);
            if (step % 3 == 0) {
                assert_int_equal(model_remove(&model, first, first + 500), 0);
                model_compare(&model);
            }
        }
        printf("# %s: %u failed\n", arguments[i], failed);
        assert_true(failed > 20);
        model_set_size(&model);
        model_destroy(&model);
        fixture_close(&fixture);
        fixture_check(&fixture);
        fixture_remove(&fixture);
        assert_int_equal(fixture_errors, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),   cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_directory),   cmocka_unit_test(test_goals),
        cmocka_unit_test(test_long_runs),   cmocka_unit_test(test_real_nodes),
        cmocka_unit_test(test_small_nodes),
    };

    start_random();
    return cmocka_run_group_tests_name("map, deep", tests, NULL, NULL);
}
