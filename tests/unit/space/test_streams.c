/* SPDX-License-Identifier: MIT */
/* Contiguity of streams, and how little is looked at for it. */
#include "support.h"

#define STREAMS 8
#define APPENDS 4000

struct file {
    struct space_stream stream;
    uint64_t next; /* behind its last block */
    unsigned int extents;
    uint32_t blocks;
};

static void append(struct image *image, struct file *file, uint32_t wanted, bool has_goal)
{
    struct space_run run;

    assert_int_equal(
        space_reserve(image->space, has_goal ? file->next : 0, wanted, 0, &file->stream, &run), 0);
    if (run.block != file->next)
        file->extents++;
    file->next = run.block + run.length_blocks;
    file->blocks += run.length_blocks;
    image_claim(image, run);
}

/* Windows of 16, 32, ... 2048 blocks: 8 of them hold 4080 blocks. */
static void interleave(bool has_goal)
{
    const struct shape large = {"large", "1G", "-t ext4 -b 4096"};
    struct image *image = image_create(&large);
    struct file files[STREAMS] = {0};
    struct space_statistics statistics;

    image_open(image, NULL);
    for (unsigned int i = 0; i < APPENDS; i++)
        for (unsigned int k = 0; k < STREAMS; k++)
            append(image, &files[k], 1, has_goal);
    space_get_statistics(image->space, &statistics);
    for (unsigned int k = 0; k < STREAMS; k++) {
        print_message("# %u blocks in %u extents\n", files[k].blocks, files[k].extents);
        assert_int_equal(files[k].blocks, APPENDS);
        assert_true(files[k].extents <= 8);
    }
    print_message(
        "# %llu bitmaps scanned, %llu read, %llu groups locked, %llu window hits\n",
        (unsigned long long)statistics.bitmaps_scanned, (unsigned long long)statistics.bitmaps_read,
        (unsigned long long)statistics.groups_locked, (unsigned long long)statistics.window_hits);
    /* Nearly every request is one look into the stream's own window. */
    assert_true(statistics.window_hits >= STREAMS * (APPENDS - 10));
    assert_true(statistics.bitmaps_scanned <= STREAMS * 12);
    assert_true(statistics.groups_locked <= STREAMS * (APPENDS + 24));
    assert_true(statistics.bitmaps_read <= 3);
    for (unsigned int k = 0; k < STREAMS; k++)
        space_end_stream(image->space, &files[k].stream);
    image_close(image);
    image_destroy(image);
}

static void test_interleaved_appends(void **state)
{
    (void)state;
    interleave(false);
    interleave(true);
}

/* One writer alone gets one extent as far as a group goes. */
static void test_lone_stream(void **state)
{
    struct image *image = image_create(shape_find("ext4"));
    struct file file = {0};

    (void)state;
    image_open(image, NULL);
    for (unsigned int i = 0; i < APPENDS; i++)
        append(image, &file, 1, i % 2 == 0);
    assert_int_equal(file.extents, 1);
    space_end_stream(image->space, &file.stream);
    image_close(image);
    image_destroy(image);
}

/* 1 MiB: one group, one search, one run. */
static void test_large_request(void **state)
{
    struct image *image = image_create(shape_find("ext4"));
    struct space_statistics before, after;
    struct space_run run;

    (void)state;
    image_open(image, NULL);
    assert_int_equal(space_reserve(image->space, 0, 1, 0, NULL, &run), 0);
    for (unsigned int i = 0; i < 50; i++) {
        struct space_run large;

        space_get_statistics(image->space, &before);
        assert_int_equal(space_reserve(image->space, 0, 256, 0, NULL, &large), 0);
        space_get_statistics(image->space, &after);
        assert_int_equal(large.length_blocks, 256);
        assert_int_equal(after.groups_locked - before.groups_locked, 1);
        assert_int_equal(after.bitmaps_scanned - before.bitmaps_scanned, 1);
        assert_int_equal(after.bitmaps_read, before.bitmaps_read);
        space_unreserve(image->space, large);
    }
    space_unreserve(image->space, run);
    image_close(image);
    image_destroy(image);
}

/* Small files, one after the other, lie close together: windows are given up when they end. */
static void test_small_files(void **state)
{
    struct image *image = image_create(shape_find("ext4"));
    uint64_t lowest = UINT64_MAX, highest = 0;

    (void)state;
    image_open(image, NULL);
    for (unsigned int i = 0; i < 500; i++) {
        struct file file = {0};

        append(image, &file, 1, false);
        space_end_stream(image->space, &file.stream);
        lowest = MIN(lowest, file.next);
        highest = MAX(highest, file.next);
    }
    assert_int_equal(highest - lowest, 499);
    image_close(image);
    image_destroy(image);
}

/* Windows hold nothing back from who needs it: with all the rest taken, they are given up. */
static void test_windows_are_broken(void **state)
{
    struct image *image = image_create(shape_find("ext4-1k"));
    struct space_stream streams[32] = {0};
    struct space_statistics statistics;
    uint64_t total = 0;
    struct space_run run;

    (void)state;
    image_open(image, &(struct space_options){.may_use_reserved = true});
    for (unsigned int i = 0; i < 32; i++) {
        for (unsigned int k = 0; k < 20; k++) {
            assert_int_equal(space_reserve(image->space, 0, 1, 0, &streams[i], &run), 0);
            total += run.length_blocks;
        }
    }
    int error;
    while ((error = space_reserve(image->space, 0, 100000, 0, NULL, &run)) == 0)
        total += run.length_blocks;
    assert_int_equal(error, -ENOSPC);
    assert_int_equal(total, image->initial_free_clusters);
    space_get_statistics(image->space, &statistics);
    assert_true(statistics.windows_broken > 0);
    assert_int_equal(space_reserve(image->space, 0, 1, 0, &streams[0], &run), -ENOSPC);
    image_close(image);
    image_destroy(image);
}

/* Full groups are passed by what their descriptors say: their bitmaps are not read. */
static void test_full_groups_are_not_read(void **state)
{
    struct image *image = image_create(shape_find("ext4-1k"));
    struct space_statistics statistics;
    struct space_run run;
    uint32_t groups = 0;

    (void)state;
    image_open(image, &(struct space_options){.may_use_reserved = true});
    uint64_t last = group_first_block(&image->volume.sb, image->volume.sb.group_count - 1);
    while (space_reserve(image->space, 0, 100000, 0, NULL, &run) == 0) {
        if (run.block < last)
            image_claim(image, run);
        else
            space_unreserve(image->space, run);
        groups++;
        if (run.block >= last)
            break;
    }
    /* What is left over in the groups before. */
    while (space_reserve(image->space, 1, 1, SPACE_METADATA, NULL, &run) == 0 && run.block < last)
        image_claim(image, run);
    image_close(image);
    image_open(image, &(struct space_options){.may_use_reserved = true});
    assert_int_equal(space_reserve(image->space, 1, 8, 0, NULL, &run), 0);
    assert_true(run.block >= last);
    space_get_statistics(image->space, &statistics);
    assert_true(groups > 1);
    assert_int_equal(statistics.bitmaps_scanned, 1);
    assert_true(statistics.groups_locked <= 1);
    assert_true(statistics.bitmaps_read <= 1);
    space_unreserve(image->space, run);
    image_close(image);
    image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interleaved_appends), cmocka_unit_test(test_lone_stream),
        cmocka_unit_test(test_large_request),       cmocka_unit_test(test_small_files),
        cmocka_unit_test(test_windows_are_broken),  cmocka_unit_test(test_full_groups_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
