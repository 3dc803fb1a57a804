/* SPDX-License-Identifier: MIT */
/* Writing a replay home: crashes in the middle of it, and what must not be written. */
#include "image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define JOURNAL_BLOCKS 48u

static struct image *make(const struct form *form)
{
    static const struct image_block blocks[] = {
        {30, 1, true, false},  {31, 2, false, false},  {32, 3, false, false}, {60, 4, false, false},
        {150, 5, true, false}, {151, 6, false, false}, {250, 7, false, false}};
    static const struct image_block newer[] = {{31, 8, true, false}, {90, 9, false, false}};
    static const uint64_t revoked[] = {60};
    struct image *image = image_create(form, JOURNAL_BLOCKS, 50, 40);

    image_write_transaction(image, blocks, ARRAY_LENGTH(blocks));
    image_write_revoke(image, revoked, 1);
    image_write_transaction(image, newer, ARRAY_LENGTH(newer));
    for (size_t i = 0; i < ARRAY_LENGTH(blocks); i++)
        if (blocks[i].disk_block != 60)
            image_model_set(image, &blocks[i]);
    image_model_set(image, &newer[0]);
    image_model_set(image, &newer[1]);
    return image;
}

static int apply(struct image *image)
{
    struct journal_superblock sb;
    struct journal_replay *replay = image_scan(image, &sb);
    int error = journal_replay_apply(&image->location, &sb, replay);

    journal_replay_free(replay);
    return error;
}

/* Stops after each number of writes in turn; the next recovery gives the same result. */
static void test_crash_at_every_write(void **state)
{
    (void)state;
    for (size_t i = 0; i < image_form_count(); i++) {
        struct form form = image_form(i);
        long writes = 0;

        for (int error = -EIO; error != 0; writes++) {
            struct image *image = make(&form);
            struct journal_superblock sb;

            image->writes_left = writes;
            error = apply(image);
            image->writes_left = -1;
            if (error != 0) {
                assert_int_equal(error, -EIO);
                assert_int_equal(image_open(image, &sb), 0);
                assert_int_equal(sb.start_block, 40);
                image_recover(image);
            }
            image_assert_model(image);
            image_destroy(image);
        }
        assert_true(writes >= 6);
    }
}

/* Applying what was scanned before once more changes nothing. */
static void test_apply_twice(void **state)
{
    struct form form = image_form(3);
    struct image *image = make(&form);
    struct journal_superblock sb;
    struct journal_replay *replay = image_scan(image, &sb);
    size_t size = (size_t)IMAGE_BLOCKS * form.block_bytes;
    uint8_t *once = malloc(size);

    (void)state;
    assert_non_null(once);
    assert_int_equal(journal_replay_apply(&image->location, &sb, replay), 0);
    memcpy(once, image->bytes, size);
    assert_int_equal(journal_replay_apply(&image->location, &sb, replay), 0);
    assert_memory_equal(once, image->bytes, size);
    free(once);
    journal_replay_free(replay);
    image_destroy(image);
}

/* The journal's blocks stay as they are, but for three fields of the superblock. */
static void test_journal_is_left_alone(void **state)
{
    struct form form = image_form(3);
    struct image *image = make(&form);
    uint8_t before[JOURNAL_BLOCKS][1024];

    (void)state;
    for (uint32_t i = 0; i < JOURNAL_BLOCKS; i++)
        memcpy(before[i], image_journal(image, i), 1024);
    assert_int_equal(apply(image), 0);
    put_be32(before[0] + 0x18, 53);
    put_be32(before[0] + 0x1c, 0);
    memcpy(before[0] + 0xfc, image_journal(image, 0) + 0xfc, 4);
    for (uint32_t i = 0; i < JOURNAL_BLOCKS; i++)
        assert_memory_equal(before[i], image_journal(image, i), 1024);
    image_destroy(image);
}

static void test_read_only_device(void **state)
{
    struct form form = image_form(3);
    struct image *image = make(&form);
    struct journal_superblock sb;
    struct journal_replay *replay;

    (void)state;
    image->device.limits.is_read_only = true;
    replay = image_scan(image, &sb);
    assert_int_equal(replay->entry_count, 7);
    assert_int_equal(journal_replay_apply(&image->location, &sb, replay), -EROFS);
    journal_replay_free(replay);
    image_destroy(image);
}

/* A read-only compatible feature: the log may be looked at, not written. */
static void test_read_only_feature(void **state)
{
    struct form form = image_form(3);
    struct image *image = make(&form);
    size_t size = (size_t)IMAGE_BLOCKS * form.block_bytes;
    uint8_t *before = malloc(size);

    (void)state;
    assert_non_null(before);
    put_be32(image_journal(image, 0) + 0x2c, 1);
    image_seal_superblock(image);
    memcpy(before, image->bytes, size);
    assert_int_equal(apply(image), -EOPNOTSUPP);
    assert_memory_equal(before, image->bytes, size);
    free(before);
    image_destroy(image);
}

/* A block of the log that cannot be read any more: the log stays as it is. */
static void test_unreadable_source(void **state)
{
    struct form form = image_form(0);
    struct image *image = make(&form);
    struct journal_superblock sb;
    struct journal_replay *replay = image_scan(image, &sb);

    (void)state;
    image->failing_block = replay->entries[2].source_block;
    assert_int_equal(journal_replay_apply(&image->location, &sb, replay), -EIO);
    image->failing_block = 0;
    journal_replay_free(replay);
    assert_int_equal(image_open(image, &sb), 0);
    assert_int_equal(sb.start_block, 40);
    image_recover(image);
    image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crash_at_every_write),  cmocka_unit_test(test_apply_twice),
        cmocka_unit_test(test_journal_is_left_alone), cmocka_unit_test(test_read_only_device),
        cmocka_unit_test(test_read_only_feature),     cmocka_unit_test(test_unreadable_source),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
