/* SPDX-License-Identifier: MIT */
/* The overlay: reads of all shapes against a copy of what must be seen. */
#include "image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "block/overlay.h"

#define BLOCK_BYTES 1024u
#define SIZE        ((size_t)IMAGE_BLOCKS * BLOCK_BYTES)

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((random_state >> 33) % limit);
}

struct fixture {
    struct image *image; /* only its device is used */
    struct device *overlay;
    uint8_t *expected;
};

/* Blocks alone, in a row, at both ends of the device, and with a patch. */
static const struct overlay_entry shown[] = {
    {0, 100 * BLOCK_BYTES, false}, {5, 101 * BLOCK_BYTES, true},  {6, 102 * BLOCK_BYTES, false},
    {7, 90 * BLOCK_BYTES, true},   {20, 120 * BLOCK_BYTES, true}, {255, 130 * BLOCK_BYTES, true}};

static struct overlay_entry *copy_entries(void)
{
    struct overlay_entry *entries = malloc(sizeof(shown));

    assert_non_null(entries);
    memcpy(entries, shown, sizeof(shown));
    return entries;
}

static struct fixture make(uint32_t offset_alignment, uint32_t memory_alignment)
{
    struct form form = {.block_bytes = BLOCK_BYTES};
    struct fixture fixture = {
        .image = image_create(&form, 48, 1, 1),
        .expected = malloc(SIZE),
    };
    struct image *image = fixture.image;

    assert_non_null(fixture.expected);
    for (size_t i = 0; i < SIZE; i++)
        image->bytes[i] = (uint8_t)random_below(256);
    memcpy(fixture.expected, image->bytes, SIZE);
    for (size_t i = 0; i < ARRAY_LENGTH(shown); i++) {
        uint8_t *place = fixture.expected + shown[i].block * BLOCK_BYTES;

        memcpy(place, image->bytes + shown[i].source_offset, BLOCK_BYTES);
        if (shown[i].has_patch)
            memcpy(place, journal_magic, 4);
    }
    image->device.limits.offset_alignment = offset_alignment;
    image->device.limits.memory_alignment = memory_alignment;
    assert_int_equal(overlay_create(&image->device, BLOCK_BYTES, copy_entries(),
                                    ARRAY_LENGTH(shown), journal_magic, &fixture.overlay),
                     0);
    return fixture;
}

static void destroy(struct fixture *fixture)
{
    device_close(fixture->overlay);
    image_destroy(fixture->image);
    free(fixture->expected);
}

/* Every start and end near the borders of shown blocks. */
static void test_borders(void **state)
{
    static const int near[] = {-5, -4, -1, 0, 1, 3, 4, 5};
    struct fixture fixture = make(1, 1);
    uint8_t buffer[4 * BLOCK_BYTES + 16];

    (void)state;
    for (int64_t from = 4; from <= 9; from++)
        for (size_t i = 0; i < ARRAY_LENGTH(near); i++)
            for (int64_t to = from; to <= from + 3; to++)
                for (size_t k = 0; k < ARRAY_LENGTH(near); k++) {
                    int64_t start = from * BLOCK_BYTES + near[i];
                    int64_t end = to * BLOCK_BYTES + near[k];

                    if (end < start)
                        continue;
                    memset(buffer, 0xcc, sizeof(buffer));
                    assert_int_equal(device_read(fixture.overlay, buffer, (size_t)(end - start),
                                                 (uint64_t)start),
                                     0);
                    assert_memory_equal(buffer, fixture.expected + start, (size_t)(end - start));
                    assert_int_equal(buffer[end - start], 0xcc);
                }
    destroy(&fixture);
}

static void test_whole_device(void **state)
{
    (void)state;
    for (uint32_t alignment = 1; alignment <= 8192; alignment *= 2) {
        struct fixture fixture = make(alignment, MIN(alignment, 4096u));
        uint8_t *buffer = malloc(SIZE);

        assert_non_null(buffer);
        assert_int_equal(device_read(fixture.overlay, buffer, SIZE, 0), 0);
        assert_memory_equal(buffer, fixture.expected, SIZE);
        assert_int_equal(device_read(fixture.overlay, buffer, SIZE - 3001, 1500), 0);
        assert_memory_equal(buffer, fixture.expected + 1500, SIZE - 3001);
        assert_int_equal(device_read(fixture.overlay, buffer, 1, SIZE), -EIO);
        free(buffer);
        destroy(&fixture);
    }
}

/* Vectors whose pieces have nothing to do with the blocks, empty ones among them. */
static void test_vectors(void **state)
{
    struct fixture fixture = make(1, 1);
    uint8_t *buffer = malloc(SIZE);

    (void)state;
    assert_non_null(buffer);
    for (int round = 0; round < 20000; round++) {
        struct iovec iov[16];
        int count = 1 + (int)random_below(16);
        uint64_t offset = random_below(random_below(2) == 0 ? 30 * BLOCK_BYTES : (uint32_t)SIZE);
        size_t length = 0;

        for (int i = 0; i < count; i++) {
            size_t part = random_below(random_below(2) == 0 ? 8 : 3000);

            part = MIN(part, SIZE - offset - length);
            iov[i] = (struct iovec){buffer + length, part};
            length += part;
        }
        memset(buffer, 0xcc, length);
        assert_int_equal(device_readv(fixture.overlay, iov, count, offset), 0);
        assert_memory_equal(buffer, fixture.expected + offset, length);
    }
    free(buffer);
    destroy(&fixture);
}

static void test_read_only(void **state)
{
    struct fixture fixture = make(1, 1);
    uint8_t byte = 0;

    (void)state;
    assert_true(device_limits(fixture.overlay)->is_read_only);
    assert_int_equal(device_limits(fixture.overlay)->size_bytes, SIZE);
    assert_int_equal(device_write(fixture.overlay, &byte, 1, 0, 0), -EROFS);
    assert_int_equal(device_discard(fixture.overlay, 0, BLOCK_BYTES), -EROFS);
    assert_int_equal(device_flush(fixture.overlay), 0);
    destroy(&fixture);
}

static void test_errors_pass_through(void **state)
{
    struct fixture fixture = make(1, 1);
    uint8_t buffer[3 * BLOCK_BYTES];

    (void)state;
    fixture.image->failing_block = 101; /* what is shown as block 5 */
    assert_int_equal(device_read(fixture.overlay, buffer, sizeof(buffer), 4 * BLOCK_BYTES), -EIO);
    assert_int_equal(device_read(fixture.overlay, buffer, BLOCK_BYTES, 4 * BLOCK_BYTES), 0);
    fixture.image->failing_block = 5; /* hidden */
    assert_int_equal(device_read(fixture.overlay, buffer, sizeof(buffer), 4 * BLOCK_BYTES), 0);
    destroy(&fixture);
}

static void test_bad_entries(void **state)
{
    struct form form = {.block_bytes = BLOCK_BYTES};
    struct image *image = image_create(&form, 48, 1, 1);
    struct device *overlay;

    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        struct overlay_entry *entries = copy_entries();
        uint32_t block_bytes = BLOCK_BYTES;

        if (variant == 0)
            entries[2].block = entries[1].block;
        else if (variant == 1)
            entries[5].block = UINT64_MAX / 2;
        else if (variant == 2)
            entries[3].source_offset = UINT64_MAX - 10;
        else
            block_bytes = 2;
        assert_int_equal(overlay_create(&image->device, block_bytes, entries, ARRAY_LENGTH(shown),
                                        journal_magic, &overlay),
                         -EINVAL);
        free(entries);
    }
    assert_int_equal(overlay_create(&image->device, BLOCK_BYTES, NULL, 0, journal_magic, &overlay),
                     0);
    device_close(overlay);
    image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_borders),
        cmocka_unit_test(test_whole_device),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_errors_pass_through),
        cmocka_unit_test(test_bad_entries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
