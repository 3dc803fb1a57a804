/* SPDX-License-Identifier: MIT */
/* The journal's superblock: what is refused, and with which error. */
#include "image.h"

#include <errno.h>
#include <string.h>

#define JOURNAL_BLOCKS 48u

/* One 32-bit field changed, in a journal with checksums of a version. */
struct change {
    unsigned int checksum_version;
    uint32_t offset;
    uint32_t value;
    int error;
};

static const struct change changes[] = {
    {3, 0x00, 0xc03b3999, -EINVAL},
    {3, 0x04, 1, -EINVAL},
    {3, 0x04, 5, -EINVAL},
    {3, 0x0c, 0, -EUCLEAN},
    {3, 0x0c, 2048, -EUCLEAN},
    {3, 0x10, 0, -EUCLEAN},
    {3, 0x10, 1, -EUCLEAN},
    {3, 0x10, JOURNAL_BLOCKS - 1, 0},
    {3, 0x10, JOURNAL_BLOCKS + 1, -EUCLEAN},
    {3, 0x10, 0xffffffff, -EUCLEAN},
    {3, 0x14, 0, -EUCLEAN},
    {3, 0x14, 10, 0},
    {3, 0x14, 11, -EUCLEAN}, /* behind the log's start */
    {3, 0x14, JOURNAL_BLOCKS, -EUCLEAN},
    {3, 0x14, 0xffffffff, -EUCLEAN},
    {3, 0x1c, 0, 0},
    {3, 0x1c, 1, 0},
    {3, 0x1c, JOURNAL_BLOCKS - 1, 0},
    {3, 0x1c, JOURNAL_BLOCKS, -EUCLEAN},
    {3, 0x1c, 0xffffffff, -EUCLEAN},
    {3, 0x24, 1, -EUCLEAN},
    {2, 0x24, 1, -EUCLEAN},
    {0, 0x28, 0, 0},
    {0, 0x28, 0x27, 0},
    {0, 0x28, 0x18, -EUCLEAN},
    {0, 0x28, 0x40, -EOPNOTSUPP},
    {0, 0x28, 0x80000000, -EOPNOTSUPP},
    {0, 0x28, 0xffffffff, -EOPNOTSUPP},
    {0, 0x2c, 1, 0},
    {3, 0x50, 0, -EOPNOTSUPP},
    {3, 0x50, 0x01000000, -EOPNOTSUPP},
    {0, 0x50, 0x01000000, 0},
};

static void test_changes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(changes); i++) {
        struct form form = {.checksum_version = changes[i].checksum_version, .block_bytes = 1024};
        struct image *image = image_create(&form, JOURNAL_BLOCKS, 50, 10);
        struct journal_superblock sb;
        int error;

        put_be32(image_journal(image, 0) + changes[i].offset, changes[i].value);
        image_seal_superblock(image);
        error = image_open(image, &sb);
        if (error != changes[i].error)
            fail_msg("field %#x = %#x: %d, not %d", changes[i].offset, changes[i].value, error,
                     changes[i].error);
        assert_int_equal(image->errors_logged, error != 0 ? 1 : 0);
        image_destroy(image);
    }
}

static void test_checksum(void **state)
{
    (void)state;
    for (unsigned int version = 0; version <= 3; version++) {
        struct form form = {.checksum_version = version, .block_bytes = 4096};
        struct image *image = image_create(&form, JOURNAL_BLOCKS, 50, 10);
        struct journal_superblock sb;

        image_journal(image, 0)[1023] ^= 1;
        assert_int_equal(image_open(image, &sb), version >= 2 ? -EBADMSG : 0);
        image_destroy(image);
    }
}

static void test_unknown_features_are_named(void **state)
{
    struct form form = {.block_bytes = 1024};
    struct image *image = image_create(&form, JOURNAL_BLOCKS, 50, 10);
    struct journal_superblock sb;

    (void)state;
    put_be32(image_journal(image, 0) + 0x28, 0x80000041);
    assert_int_equal(image_open(image, &sb), -EOPNOTSUPP);
    assert_non_null(strstr(image->last_error, "FEATURE_I6"));
    assert_non_null(strstr(image->last_error, "FEATURE_I31"));
    image_destroy(image);
}

/* Extents that do not cover the journal in order. */
static void test_location(void **state)
{
    (void)state;
    for (unsigned int variant = 0; variant < 7; variant++) {
        struct form form = {.block_bytes = 1024};
        struct image *image = image_create(&form, JOURNAL_BLOCKS, 50, 10);
        struct journal_superblock sb;

        switch (variant) {
        case 0:
            image->location.extent_count = 0;
            break;
        case 1:
            image->location.extent_count--;
            break;
        case 2:
            image->extents[1].journal_block++;
            break;
        case 3:
            image->extents[1].length_blocks++;
            break;
        case 4:
            image->extents[1].length_blocks = 0;
            break;
        case 5:
            image->extents[2].disk_block = UINT64_MAX - 3;
            break;
        case 6:
            image->location.block_count = 0;
            break;
        }
        assert_int_equal(image_open(image, &sb), -EUCLEAN);
        image_destroy(image);
    }
}

/* The area for fast commits is taken from the end, if enough is left for the log. */
static void test_fast_commit_area(void **state)
{
    static const struct {
        uint32_t blocks, wanted, got;
    } cases[] = {{40, 0, 0},         {40, 8, 0},     {1024, 8, 0},   {1031, 8, 0},
                 {1032, 8, 8},       {1279, 0, 0},   {1280, 0, 256}, {9000, 0xffffffff, 0},
                 {9000, 7976, 7976}, {9000, 7977, 0}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct form form = {.block_bytes = 1024};
        struct image *image = image_create(&form, JOURNAL_BLOCKS, 50, 10);
        struct journal_superblock sb;
        uint8_t *raw = image_journal(image, 0);

        put_be32(raw + 0x10, cases[i].blocks);
        put_be32(raw + 0x28, 0x20);
        put_be32(raw + 0x54, cases[i].wanted);
        image->extents[2].length_blocks = 9000;
        image->location.block_count = 9000;
        assert_int_equal(image_open(image, &sb), 0);
        assert_int_equal(sb.fast_commit_blocks, cases[i].got);
        assert_int_equal(sb.log_blocks, cases[i].blocks - cases[i].got - 1);
        image_destroy(image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_unknown_features_are_named),
        cmocka_unit_test(test_location),
        cmocka_unit_test(test_fast_commit_area),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
