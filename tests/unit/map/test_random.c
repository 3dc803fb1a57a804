/* SPDX-License-Identifier: MIT */
/*
 * Seeded random sequences of changes on images of many shapes, each compared with the model, then
 * with e2fsck and debugfs; and -ENOSPC at each allocation.
 */
#include <errno.h>

#include "fixture.h"

#define FILE_BLOCKS 1600u

static const char *const shapes[] = {
    "-t ext4 -b 1024 -I 256",
    "-t ext4 -b 4096",
    "-t ext4 -b 1024 -O ^metadata_csum,^64bit -I 128",
    "-t ext4 -b 1024 -O ^has_journal",
    "-t ext4 -b 2048 -O ^flex_bg,meta_bg,^resize_inode",
    "-t ext4 -b 4096 -O bigalloc -C 16384",
    "-t ext4 -b 1024 -O bigalloc -C 8192",
    "-t ext3 -b 1024",
    "-t ext3 -b 4096",
    "-t ext2 -b 1024",
};

/* UEXT4_TEST_SHAPE chooses one by its number. */
static bool is_left_out(unsigned int shape)
{
    const char *text = getenv("UEXT4_TEST_SHAPE");

    return text != NULL && strtoul(text, NULL, 0) != shape;
}

static uint64_t run_of(const struct model *model, uint64_t first, bool is_mapped, uint64_t limit)
{
    uint64_t length = 0;

    while (length < limit && first + length < model->count &&
           (model->blocks[first + length].disk_block != 0) == is_mapped)
        length++;
    return length;
}

/* One random change. `fails`: allocations of tree blocks may be refused. */
static int change(struct model *model, bool fails)
{
    uint32_t size = model->fixture->volume.sb.cluster_blocks;
    bool has_extents = inode_has_flag(model->inode, INODE_EXTENTS);
    uint64_t first = draw((uint32_t)model->count);
    uint32_t kind = draw(100);

    if (kind < 55) {
        uint64_t length = run_of(model, first, false, 1 + (draw(4) == 0 ? draw(40) : 0));

        return length == 0 ? 0
                           : model_insert(model, first, length, has_extents && draw(2), draw(2));
    }
    if (kind < 65) {
        uint64_t length = run_of(model, first, true, 1 + draw(20));

        return length == 0 ? 0 : model_set_kind(model, first, length, false);
    }
    if (kind < 75) {
        uint64_t length = 1 + draw((uint32_t)MIN(30, model->count - first));

        return has_extents ? model_set_kind(model, first, length, true) : 0;
    }
    if (kind < 95)
        return model_remove(model, first, first + 1 + draw(draw(8) == 0 ? 400 : 12));
    if (!has_extents || fails)
        return 0;
    int64_t delta = (int64_t)(size * (1 + draw(8)));
    first = ROUND_DOWN(first, size);
    if (draw(2) && first >= (uint64_t)delta) {
        int error = model_remove(model, first - (uint64_t)delta, first);

        return error != 0 ? error : model_shift(model, first, -delta);
    }
    uint64_t end = model->count;
    while (end > 0 && model->blocks[end - 1].disk_block == 0)
        end--;
    if (end + (uint64_t)delta > model->count || first + (uint64_t)delta > model->count)
        return 0;
    return model_shift(model, first, delta);
}

static void check_closed(struct fixture *fixture, struct model *model)
{
    struct model_block *blocks = model->blocks;

    model_set_size(model);
    model->blocks = NULL;
    model_destroy(model);
    model->blocks = blocks;
    fixture_close(fixture);
    fixture_check(fixture);
    model_compare_debugfs(model, fixture->ino[0]);
    free(blocks);
}

static void test_sequences(void **state)
{
    (void)state;
    for (unsigned int shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct fixture fixture;
        struct model model;

        if (is_left_out(shape))
            continue;
        unsigned int max_depth = 0;

        fixture_make(&fixture, shapes[shape], "64M");
        model_init(&model, &fixture, fixture.ino[0], FILE_BLOCKS);
        for (unsigned int step = 0; step < 1500; step++) {
            assert_int_equal(change(&model, false), 0);
            unsigned int depth = model_compare(&model);
            max_depth = MAX(max_depth, depth);
        }
        printf("# %s: depth %u\n", shapes[shape], max_depth);
        check_closed(&fixture, &model);
        fixture_remove(&fixture);
        assert_int_equal(fixture_errors, 0);
    }
}

/* Each change is first tried with the n-th allocation of a tree block refused. */
static void test_no_space(void **state)
{
    unsigned int total_refused = 0;

    (void)state;
    for (unsigned int shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct fixture fixture;
        struct model model;

        if (is_left_out(shape))
            continue;
        unsigned int refused = 0;

        fixture_make(&fixture, shapes[shape], "64M");
        model_init(&model, &fixture, fixture.ino[0], FILE_BLOCKS);
        for (unsigned int step = 0; step < 1200; step++) {
            uint64_t seed = random_state;

            fail_reserve_in = draw(3) == 0 ? 1 + draw(3) : 1;
            fail_reserve_error = draw(2) ? -ENOSPC : -EAGAIN;
            int wanted = fail_reserve_error;
            random_state = seed;
            int error = change(&model, true);
            bool was_refused = fail_reserve_in == 0;
            fail_reserve_in = 0;
            if (was_refused) {
                assert_int_equal(error, wanted);
                refused++;
            } else {
                assert_int_equal(error, 0);
            }
            model_compare(&model);
        }
        printf("# %s: %u refused\n", shapes[shape], refused);
        total_refused += refused;
        check_closed(&fixture, &model);
        fixture_remove(&fixture);
        assert_int_equal(fixture_errors, 0);
    }
    if (getenv("UEXT4_TEST_SHAPE") == NULL)
        assert_true(total_refused > 0);
}

/* Removals and shifts that must stop for want of credits go on where they stopped. */
static void test_stops(void **state)
{
    (void)state;
    for (unsigned int shape = 0; shape < ARRAY_LENGTH(shapes); shape++) {
        struct fixture fixture;
        struct model model;

        if (is_left_out(shape))
            continue;

        fixture_make(&fixture, shapes[shape], "64M");
        model_init(&model, &fixture, fixture.ino[0], FILE_BLOCKS);
        bool has_extents = inode_has_flag(model.inode, INODE_EXTENTS);
        uint32_t size = fixture.volume.sb.cluster_blocks;
        for (unsigned int round = 0; round < 3; round++) {
            for (uint64_t i = 0; i + 100 < FILE_BLOCKS; i += 2)
                assert_int_equal(model_insert(&model, i, 1, has_extents && draw(2), true), 0);
            for (int64_t sign = -1; sign <= 1 && has_extents; sign += 2) {
                refuse_extend_after = 1 + draw(3);
                if (sign < 0)
                    assert_int_equal(model_remove(&model, 64 - size, 64), 0);
                assert_int_equal(model_shift(&model, 64, sign * (int64_t)size), 0);
                model_compare(&model);
            }
            uint64_t end = FILE_BLOCKS;
            while (end > 0) {
                uint64_t step = 1 + draw(500);
                uint64_t first = end - MIN(end, step);

                refuse_extend_after = 1 + draw(3);
                assert_int_equal(model_remove(&model, first, end), 0);
                model_compare(&model);
                end = first;
            }
            refuse_extend_after = 0;
        }
        assert_int_equal(model.inode->fields.allocated_sectors, 0);
        check_closed(&fixture, &model);
        fixture_remove(&fixture);
        assert_int_equal(fixture_errors, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_no_space),
        cmocka_unit_test(test_stops),
    };

    start_random();
    return cmocka_run_group_tests_name("map, random", tests, NULL, NULL);
}
