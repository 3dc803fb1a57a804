/* SPDX-License-Identifier: MIT */
/* The generic calls: bounce buffers, alignment, bounds. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (4u * 1024 * 1024)

static void compare_random(uint32_t offset_alignment, uint32_t memory_alignment)
{
    struct strict_device *strict = strict_device_create(SIZE, offset_alignment, memory_alignment);
    unsigned char *expected = calloc(1, SIZE);
    unsigned char *buffer = malloc(SIZE + 64);
    uint64_t state = support_seed();

    assert_non_null(expected);
    assert_non_null(buffer);
    for (unsigned int i = 0; i < 2000; i++) {
        uint64_t offset = support_random(&state, SIZE);
        uint64_t largest = support_random(&state, 50) == 0 ? SIZE : 20000;
        uint64_t wanted = support_random(&state, largest) + 1;
        uint64_t length = MIN(wanted, SIZE - offset);
        unsigned char *place = buffer + support_random(&state, 64);

        if (support_random(&state, 2) == 0) {
            for (uint64_t j = 0; j < length; j++)
                place[j] = (unsigned char)support_random(&state, 256);
            memcpy(expected + offset, place, length);
            assert_int_equal(device_write(&strict->device, place, length, offset, DEVICE_FUA), 0);
            assert_int_equal(strict->last_flags, DEVICE_FUA);
        } else {
            assert_int_equal(device_read(&strict->device, place, length, offset), 0);
            assert_memory_equal(place, expected + offset, length);
        }
    }
    assert_memory_equal(strict->bytes, expected, SIZE);
    assert_int_equal(strict->violations, 0);
    free(buffer);
    free(expected);
    device_close(&strict->device);
}

static void test_any_request(void **state)
{
    (void)state;
    compare_random(1, 1);
    compare_random(512, 512);
    compare_random(4096, 16);
    compare_random(1, 4096);
    compare_random(65536, 4096);
}

static void test_aligned_is_not_copied(void **state)
{
    struct strict_device *strict = strict_device_create(SIZE, 4096, 512);
    void *buffer = NULL;

    (void)state;
    assert_int_equal(posix_memalign(&buffer, 4096, SIZE), 0);
    memset(buffer, 1, SIZE);
    assert_int_equal(device_write(&strict->device, buffer, SIZE, 0, 0), 0);
    assert_int_equal(device_read(&strict->device, buffer, SIZE, 0), 0);
    assert_int_equal(strict->writes, 1);
    assert_int_equal(strict->reads, 1);
    /* Bounced, it goes in bounded pieces. */
    assert_int_equal(device_read(&strict->device, (char *)buffer + 1, SIZE - 4096, 0), 0);
    assert_true(strict->reads > 2);
    free(buffer);
    device_close(&strict->device);
}

static void test_partial_write_reads_only_what_it_needs(void **state)
{
    struct strict_device *strict = strict_device_create(SIZE, 4096, 1);
    unsigned char bytes[16384] = {1};

    (void)state;
    assert_int_equal(device_write(&strict->device, bytes, 8192, 4096, 0), 0);
    assert_int_equal(strict->reads, 0);
    assert_int_equal(device_write(&strict->device, bytes, 100, 5000, 0), 0);
    assert_int_equal(strict->reads, 1);
    assert_int_equal(device_write(&strict->device, bytes, 4096 + 100, 8192, 0), 0);
    assert_int_equal(strict->reads, 2);
    assert_int_equal(device_write(&strict->device, bytes, 4096 + 100, 8192 + 3996, 0), 0);
    assert_int_equal(strict->reads, 3);
    assert_int_equal(device_write(&strict->device, bytes, 8192, 100, 0), 0);
    assert_int_equal(strict->reads, 5);
    device_close(&strict->device);
}

static void test_bounds(void **state)
{
    struct strict_device *strict = strict_device_create(SIZE, 512, 1);
    struct device *device = &strict->device;
    unsigned char bytes[1024] = {0};
    struct iovec iov[2] = {{bytes, 512}, {bytes + 512, 512}};

    (void)state;
    assert_int_equal(device_read(device, bytes, 1, SIZE), -EIO);
    assert_int_equal(device_read(device, bytes, 2, SIZE - 1), -EIO);
    assert_int_equal(device_read(device, bytes, 1, UINT64_MAX), -EIO);
    assert_int_equal(device_read(device, bytes, SIZE_MAX, 1), -EIO);
    assert_int_equal(device_read(device, bytes, 0, SIZE), 0);
    assert_int_equal(device_read(device, bytes, 1, SIZE - 1), 0);
    assert_int_equal(device_write(device, bytes, 2, SIZE - 1, 0), -ENOSPC);
    assert_int_equal(device_write(device, bytes, SIZE_MAX, SIZE_MAX, 0), -ENOSPC);
    assert_int_equal(device_discard(device, SIZE, 512), -ENOSPC);
    assert_int_equal(device_discard(device, 100, 512), -EINVAL);
    assert_int_equal(device_readv(device, iov, 2, SIZE - 512), -EIO);
    assert_int_equal(device_readv(device, iov, 2, UINT64_MAX - 511), -EIO);
    assert_int_equal(device_writev(device, iov, 2, SIZE - 512, 0), -ENOSPC);
    assert_int_equal(device_readv(device, iov, 2, 100), -EINVAL);
    assert_int_equal(device_readv(device, iov, 17, 0), -EINVAL);
    assert_int_equal(device_readv(device, iov, -1, 0), -EINVAL);
    iov[0].iov_len = 511;
    assert_int_equal(device_readv(device, iov, 2, 0), -EINVAL);
    iov[0].iov_len = SIZE_MAX & ~(size_t)511;
    iov[1].iov_len = SIZE_MAX & ~(size_t)511;
    assert_int_equal(device_readv(device, iov, 2, 0), -EINVAL);
    assert_int_equal(strict->violations, 0);
    assert_int_equal(strict->writes, 0);
    device_close(device);
}

static void test_read_only(void **state)
{
    struct strict_device *strict = strict_device_create(SIZE, 1, 1);
    char byte = 1;
    struct iovec iov = {&byte, 1};

    (void)state;
    strict->device.limits.is_read_only = true;
    assert_int_equal(device_write(&strict->device, &byte, 1, 0, 0), -EROFS);
    assert_int_equal(device_writev(&strict->device, &iov, 1, 0, 0), -EROFS);
    assert_int_equal(device_discard(&strict->device, 0, 1), -EROFS);
    assert_int_equal(device_flush(&strict->device), 0);
    assert_int_equal(strict->writes + strict->flushes + strict->discards, 0);
    device_close(&strict->device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_request),
        cmocka_unit_test(test_aligned_is_not_copied),
        cmocka_unit_test(test_partial_write_reads_only_what_it_needs),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_read_only),
    };

    return support_run_tests(tests);
}
