/* SPDX-License-Identifier: MIT */
/* The memory device: zeros, copies of images, and that it stays sparse. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long long total = 0, resident = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu %llu", &total, &resident), 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void test_zeros(void **state)
{
    struct device *device = support_open("memory:64G", true);
    static const char zeros[8192];
    char bytes[8192];

    (void)state;
    assert_true(device_limits(device)->size_bytes == UINT64_C(64) << 30);
    memset(bytes, 1, sizeof(bytes));
    assert_int_equal(device_read(device, bytes, sizeof(bytes), UINT64_C(63) << 30), 0);
    assert_memory_equal(bytes, zeros, sizeof(bytes));
    memset(bytes, 1, sizeof(bytes));
    assert_int_equal(device_write(device, bytes, sizeof(bytes), 12345, DEVICE_FUA), 0);
    assert_int_equal(device_flush(device), 0);
    memset(bytes, 2, sizeof(bytes));
    assert_int_equal(device_read(device, bytes, sizeof(bytes), 12345), 0);
    assert_int_equal(bytes[0] + bytes[8191], 2);
    /* A discard zeros exactly the range. */
    assert_int_equal(device_discard(device, 12346, 8190), 0);
    assert_int_equal(device_read(device, bytes, sizeof(bytes), 12345), 0);
    assert_int_equal(bytes[0], 1);
    assert_int_equal(bytes[8191], 1);
    assert_memory_equal(bytes + 1, zeros, 8190);
    device_close(device);
}

static void test_discard_gives_memory_back(void **state)
{
    struct device *device = support_open("memory:256M", true);
    size_t size = 64u << 20;
    char *bytes = malloc(size);
    uint64_t before;

    (void)state;
    assert_non_null(bytes);
    memset(bytes, 1, size);
    assert_int_equal(device_write(device, bytes, size, 100, 0), 0);
    before = resident_bytes();
    assert_int_equal(device_discard(device, 0, 256u << 20), 0);
    assert_true(resident_bytes() + size / 2 < before);
    assert_int_equal(device_read(device, bytes, size, 0), 0);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(bytes[i], 0);
    free(bytes);
    device_close(device);
}

static void test_copy(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    unsigned char bytes[5000], back[5000];
    struct device *device;
    char spec[200];

    (void)state;
    support_make_file(path, 100001);
    snprintf(spec, sizeof(spec), "memory:%s", path);
    device = support_open(spec, true);
    assert_int_equal(device_limits(device)->size_bytes, 100001);
    assert_int_equal(device_read(device, bytes, 5000, 95001), 0);
    assert_true(support_first_difference(bytes, 5000, 95001) == UINT64_MAX);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(device_write(device, bytes, 5000, 1000, 0), 0);
    assert_int_equal(device_read(device, back, 5000, 1000), 0);
    assert_memory_equal(bytes, back, 5000);
    device_close(device);
    /* The copy is private, and holds no lock on the image. */
    device = support_open(path, true);
    assert_int_equal(device_read(device, bytes, 5000, 1000), 0);
    assert_true(support_first_difference(bytes, 5000, 1000) == UINT64_MAX);
    device_close(device);

    snprintf(spec, sizeof(spec), "memory:%s,offset=4K,size=1000", path);
    device = support_open(spec, false);
    assert_int_equal(device_limits(device)->size_bytes, 1000);
    assert_true(device_limits(device)->is_read_only);
    assert_int_equal(device_read(device, bytes, 1000, 0), 0);
    assert_true(support_first_difference(bytes, 1000, 4096) == UINT64_MAX);
    device_close(device);
    support_remove_folder(&folder);
}

static void test_sparse_copy(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    uint64_t before = resident_bytes();
    uint64_t places[] = {0, UINT64_C(3) << 30, (UINT64_C(20) << 30) - 5000};
    unsigned char bytes[5000];
    struct device *device;
    char spec[200];
    int fd;

    (void)state;
    support_make_sparse_file(path, UINT64_C(20) << 30);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < ARRAY_LENGTH(places); i++) {
        for (size_t j = 0; j < sizeof(bytes); j++)
            bytes[j] = support_byte(places[i] + j);
        assert_int_equal(pwrite(fd, bytes, sizeof(bytes), (off_t)places[i]), sizeof(bytes));
    }
    close(fd);
    snprintf(spec, sizeof(spec), "memory:%s", path);
    device = support_open(spec, true);
    for (size_t i = 0; i < ARRAY_LENGTH(places); i++) {
        assert_int_equal(device_read(device, bytes, sizeof(bytes), places[i]), 0);
        assert_true(support_first_difference(bytes, sizeof(bytes), places[i]) == UINT64_MAX);
    }
    assert_int_equal(device_read(device, bytes, 100, UINT64_C(5) << 30), 0);
    assert_int_equal(bytes[0] | bytes[99], 0);
    assert_true(resident_bytes() < before + (64u << 20));
    device_close(device);
    support_remove_folder(&folder);
}

/* Zeros that the file does hold are not copied either. */
static void test_zeros_are_not_copied(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    size_t size = 64u << 20;
    char *zeros = calloc(1, size);
    struct device *device;
    uint64_t before;
    char spec[200];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    (void)state;
    assert_non_null(zeros);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, zeros, size, 0), size);
    close(fd);
    free(zeros);
    before = resident_bytes();
    snprintf(spec, sizeof(spec), "memory:%s", path);
    device = support_open(spec, false);
    assert_true(resident_bytes() < before + size / 2);
    device_close(device);
    support_remove_folder(&folder);
}

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(support_open_error("memory:0", true), -EINVAL);
    assert_int_equal(support_open_error("memory:4M,offset=1", true), -EINVAL);
    assert_int_equal(support_open_error("memory:8388607T", true), -ENOMEM);
    assert_non_null(strstr(support_messages(), "cannot be mapped"));
    assert_int_equal(support_open_error("memory:/nonexistent", true), -ENOENT);
    assert_int_equal(support_open_error("memory:", true), -EINVAL);
    assert_int_equal(support_open_error("memory:/dev/null", true), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_discard_gives_memory_back),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_sparse_copy),
        cmocka_unit_test(test_zeros_are_not_copied),
        cmocka_unit_test(test_refusals),
    };

    return support_run_tests(tests);
}
