/* SPDX-License-Identifier: MIT */
/* The fault filter: which requests fail, how, and what is on the device afterwards. */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "block/fault.h"

static char ones[4096], twos[4096], back[4096];

static void fill(void)
{
    memset(ones, 1, sizeof(ones));
    memset(twos, 2, sizeof(twos));
}

static void test_nth_write(void **state)
{
    struct device *device = support_open("fault(op=write,at=3,errno=ENOSPC):memory:64M", true);

    (void)state;
    fill();
    for (int i = 1; i <= 6; i++) {
        int error = device_write(device, ones, 4096, (uint64_t)i * 4096, 0);

        assert_int_equal(error, i == 3 ? -ENOSPC : 0);
        assert_int_equal(device_read(device, back, 4096, (uint64_t)i * 4096), 0);
        assert_int_equal(back[0], i == 3 ? 0 : 1);
        assert_int_equal(device_flush(device), 0);
    }
    assert_int_equal(fault_count(fault_find(device)), 6);
    assert_int_equal(fault_injected(fault_find(device)), 1);
    device_close(device);
}

static void test_count(void **state)
{
    struct device *device = support_open("fault(op=any,at=2,count=2):memory:1M", true);

    (void)state;
    fill();
    assert_int_equal(device_write(device, ones, 4096, 0, 0), 0);
    assert_int_equal(device_read(device, back, 4096, 0), -EIO);
    assert_int_equal(device_flush(device), -EIO);
    assert_int_equal(device_discard(device, 0, 4096), 0);
    device_close(device);
    device = support_open("fault(op=flush,at=2,count=0):memory:1M", true);
    assert_int_equal(device_flush(device), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(device_flush(device), -EIO);
    assert_int_equal(device_write(device, ones, 4096, 0, 0), 0);
    assert_int_equal(fault_injected(fault_find(device)), 100);
    device_close(device);
    device = support_open("fault(op=discard,errno=EOPNOTSUPP):memory:1M", true);
    assert_int_equal(device_discard(device, 0, 4096), -EOPNOTSUPP);
    assert_int_equal(device_discard(device, 0, 4096), 0);
    device_close(device);
}

static void test_range(void **state)
{
    struct device *device = support_open("fault(op=write,count=0,offset=8K,length=4K):memory:1M",
                                         true);

    (void)state;
    fill();
    assert_int_equal(device_write(device, ones, 4096, 4096, 0), 0);
    assert_int_equal(device_write(device, ones, 4096, 4097, 0), -EIO);
    assert_int_equal(device_write(device, ones, 1, 8192, 0), -EIO);
    assert_int_equal(device_write(device, ones, 1, 12287, 0), -EIO);
    assert_int_equal(device_write(device, ones, 1, 12288, 0), 0);
    assert_int_equal(fault_count(fault_find(device)), 3);
    device_close(device);
}

static void check_torn(const char *keys, int expected_error, size_t expected_bytes)
{
    char spec[200];
    struct iovec iov[3] = {{twos, 1000}, {twos, 48}, {twos, 3048}};
    struct device *device;

    fill();
    snprintf(spec, sizeof(spec), "fault(op=write,at=2,%s):memory:1M", keys);
    device = support_open(spec, true);
    assert_int_equal(device_write(device, ones, 4096, 0, 0), 0);
    assert_int_equal(device_writev(device, iov, 3, 0, 0), expected_error);
    assert_int_equal(device_read(device, back, 4096, 0), 0);
    assert_memory_equal(back, twos, expected_bytes);
    assert_memory_equal(back + expected_bytes, ones, 4096 - expected_bytes);
    assert_int_equal(device_writev(device, iov, 3, 0, 0), 0);
    device_close(device);
}

static void test_torn_writes(void **state)
{
    (void)state;
    check_torn("kind=torn,bytes=1536", -EIO, 1536);
    check_torn("kind=torn,bytes=1100,report=success", 0, 1024);
    check_torn("kind=torn,bytes=511,report=success", 0, 0);
    check_torn("kind=torn,bytes=1M", -EIO, 4096);
    check_torn("kind=short,bytes=2K,errno=ETIMEDOUT", -ETIMEDOUT, 2048);
    check_torn("kind=error,bytes=2K", -EIO, 0);
}

static void test_short_read(void **state)
{
    struct device *device = support_open("fault(op=read,kind=short,bytes=1K):memory:1M", true);

    (void)state;
    fill();
    assert_int_equal(device_write(device, ones, 4096, 0, 0), 0);
    memset(back, 9, sizeof(back));
    assert_int_equal(device_read(device, back, 4096, 0), -EIO);
    assert_int_equal(back[1023], 1);
    assert_int_equal(back[1024], 9);
    device_close(device);
}

/* A tear on a device with large sectors falls between these. */
static void test_tear_follows_alignment(void **state)
{
    struct strict_device *strict = strict_device_create(65536, 4096, 1);
    struct fault_options options = FAULT_OPTIONS_DEFAULT;
    struct device *device;
    char bytes[16384];

    (void)state;
    memset(bytes, 5, sizeof(bytes));
    options.kind = FAULT_TORN;
    options.bytes = 9000;
    options.reports_success = 1;
    assert_int_equal(fault_open(&strict->device, &options, NULL, &device), 0);
    assert_int_equal(device_write(device, bytes, sizeof(bytes), 0, 0), 0);
    assert_int_equal(strict->violations, 0);
    assert_int_equal(strict->bytes[8191], 5);
    assert_int_equal(strict->bytes[8192], 0);
    device_close(device);
}

static void test_reset_and_find(void **state)
{
    struct device *device = support_open("latency:fault(op=read):record:memory:1M", true);
    struct device *fault = fault_find(device);
    struct fault_options options = FAULT_OPTIONS_DEFAULT;

    (void)state;
    assert_non_null(fault);
    assert_int_equal(device_read(device, back, 512, 0), -EIO);
    assert_int_equal(device_read(device, back, 512, 0), 0);
    options.operation = DEVICE_READ;
    options.at = 2;
    options.error = ENODEV;
    assert_int_equal(fault_reset(fault, &options), 0);
    assert_int_equal(fault_count(fault), 0);
    assert_int_equal(device_read(device, back, 512, 0), 0);
    assert_int_equal(device_read(device, back, 512, 0), -ENODEV);
    options.at = 0;
    assert_int_equal(fault_reset(fault, &options), -EINVAL);
    device_close(device);
    device = support_open("record:memory:1M", true);
    assert_null(fault_find(device));
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nth_write),      cmocka_unit_test(test_count),
        cmocka_unit_test(test_range),          cmocka_unit_test(test_torn_writes),
        cmocka_unit_test(test_short_read),     cmocka_unit_test(test_tear_follows_alignment),
        cmocka_unit_test(test_reset_and_find),
    };

    return support_run_tests(tests);
}
