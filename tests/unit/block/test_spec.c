/* SPDX-License-Identifier: MIT */
/* The grammar of device specs: good strings, bad ones with their messages, and random ones. */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "block/spec.h"

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t value; /* UINT64_MAX: refused */
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"4K", 4096},
        {"4k", 4096},
        {"1M", 1048576},
        {"2G", UINT64_C(2) << 30},
        {"3T", UINT64_C(3) << 40},
        {"0x10", 16},
        {"0XfF", 255},
        {"0x1K", 1024},
        {"9223372036854775807", INT64_MAX},
        {"8388607T", UINT64_C(8388607) << 40},
        {"9223372036854775808", UINT64_MAX},
        {"8388608T", UINT64_MAX},
        {"99999999999999999999999", UINT64_MAX},
        {"0xffffffffffffffffffff", UINT64_MAX},
        {"", UINT64_MAX},
        {"K", UINT64_MAX},
        {"0x", UINT64_MAX},
        {"-1", UINT64_MAX},
        {" 1", UINT64_MAX},
        {"1 ", UINT64_MAX},
        {"1KB", UINT64_MAX},
        {"1P", UINT64_MAX},
        {"1.5K", UINT64_MAX},
        {"0xg", UINT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint64_t value = 0;
        bool is_good = spec_parse_size(cases[i].text, strlen(cases[i].text), &value);

        if (is_good != (cases[i].value != UINT64_MAX) || (is_good && value != cases[i].value))
            fail_msg("'%s': %d, %llu", cases[i].text, is_good, (unsigned long long)value);
    }
    /* An embedded NUL is no suffix. */
    assert_false(spec_parse_size("1\0", 2, &(uint64_t){0}));
}

static void check_size(const char *spec, uint64_t size)
{
    struct device *device = support_open(spec, true);

    if (device_limits(device)->size_bytes != size)
        fail_msg("%s: size %llu", spec, (unsigned long long)device_limits(device)->size_bytes);
    device_close(device);
}

static void test_good_specs(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    char here[4096];

    (void)state;
    assert_non_null(getcwd(here, sizeof(here)));
    assert_int_equal(chdir(folder.path), 0);
    support_make_file("disk.img", 100 * 1024);
    support_make_file("a,b", 3 * 1024);
    support_make_file("odd,offset=1K", 5 * 1024);
    support_make_file("with:colon", 6 * 1024);
    support_make_file("memory:4K", 7 * 1024);
    support_make_file("fault(x):y", 8 * 1024);
    support_make_file("paren(1).img", 9 * 1024);
    support_make_file("64M", 10 * 1024);

    check_size("disk.img", 100 * 1024);
    check_size("./disk.img", 100 * 1024);
    check_size("file:disk.img", 100 * 1024);
    check_size("disk.img,offset=1K", 99 * 1024);
    check_size("disk.img,offset=1K,size=2K", 2 * 1024);
    check_size("disk.img,size=0x800,direct=off", 2 * 1024);
    check_size("a,,b", 3 * 1024);
    check_size("a,b", 3 * 1024);
    check_size("file:a,,b,offset=1K", 2 * 1024);
    check_size("odd,offset=1K", 5 * 1024);
    check_size("odd,,offset=1K,offset=1K", 4 * 1024);
    check_size("with:colon,offset=1K", 5 * 1024);
    check_size("memory:4K", 7 * 1024);
    check_size("file:memory:4K", 7 * 1024);
    check_size("fault(x):y", 8 * 1024);
    check_size("file:fault(x):y", 8 * 1024);
    check_size("paren(1).img,offset=1K", 8 * 1024);
    check_size("memory:64M", 64 * 1024 * 1024);
    check_size("memory:./64M", 10 * 1024);
    check_size("latency:memory:1M", 1024 * 1024);
    check_size("latency():memory:1M", 1024 * 1024);
    check_size("latency(read_us=200,write_us=18,slots=16):file:disk.img,offset=1K", 99 * 1024);
    check_size("latency(jitter=0.25,bandwidth=100M,seed=7,flush_us=1):disk.img", 100 * 1024);
    check_size("fault(op=write,at=3):memory:64M", 64 * 1024 * 1024);
    check_size("fault(op=any,kind=torn,report=success,bytes=4K,length=1G):record:disk.img",
               100 * 1024);
    check_size("record:record:record:record:fault:fault:latency:latency:memory:1M", 1024 * 1024);
    assert_int_equal(chdir(here), 0);
    support_remove_folder(&folder);
}

static void test_direct_overrides_the_option(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    struct device_open_options options = {.direct = 1, .log = &support_log};
    const char *path = support_path(&folder, "image");
    struct device *device;
    char spec[200];

    (void)state;
    support_make_file(path, 65536);
    snprintf(spec, sizeof(spec), "%s,direct=off", path);
    assert_int_equal(device_open(spec, &options, &device), 0);
    assert_false(device_limits(device)->is_direct);
    device_close(device);
    assert_int_equal(device_open(path, &options, &device), 0);
    assert_true(device_limits(device)->is_direct);
    device_close(device);
    options.direct = 0;
    assert_int_equal(device_open(path, &options, &device), 0);
    assert_false(device_limits(device)->is_direct);
    device_close(device);
    support_remove_folder(&folder);
}

static void test_bad_specs(void **state)
{
    static const struct {
        const char *spec;
        int error;
        const char *message;
    } cases[] = {
        {"", -EINVAL, "column 1: nothing follows"},
        {"file:", -EINVAL, "column 6: nothing follows"},
        {",offset=1", -EINVAL, "column 1: nothing follows"},
        {"memory:1M,", -EINVAL, "column 11: a key was expected"},
        {"memory:1M,offset=1", -EINVAL, "column 11: unknown key 'offset'"},
        {"/nonexistent,foo=1", -EINVAL,
         "column 14: unknown key 'foo' of file; known: offset, size, partition, direct"},
        {"/nonexistent,offset", -EINVAL, "offset of file cannot be ''"},
        {"/nonexistent,offset=", -EINVAL, "column 21: offset of file cannot be ''"},
        {"/nonexistent,offset=x", -EINVAL, "cannot be 'x'; known: a number of bytes"},
        {"/nonexistent,offset=-1", -EINVAL, "cannot be '-1'"},
        {"/nonexistent,size=0", -EINVAL, "size of file must be from 1"},
        {"/nonexistent,partition=0", -EINVAL, "partition of file must be from 1 to 65535"},
        {"/nonexistent,partition=65536", -EINVAL, "partition of file must be from 1 to 65535"},
        {"/nonexistent,direct=maybe", -EINVAL, "known: auto, on, off"},
        {"/nonexistent,offset=1,offset=1", -EINVAL, "column 23: offset is given twice"},
        {"/nonexistent,offset=1,,size=1", -EINVAL, "cannot be '1,,size=1'"},
        {"/nonexistent,=", -EINVAL, "unknown key ''"},
        {"delay(read_us=1):memory:1M", -EINVAL,
         "column 1: unknown filter 'delay'; known: latency, fault, record"},
        {"fault:delay():memory:1M", -EINVAL, "column 7: unknown filter 'delay'"},
        {"latency(read_us=1:memory:1M", -EINVAL, "column 8: the parenthesis"},
        {"latency(read_us=1)memory:1M", -EINVAL, "column 8: the parenthesis"},
        {"latency(wrong_us=1):memory:1M", -EINVAL, "column 9: unknown key 'wrong_us' of latency"},
        {"latency(read_us=fast):memory:1M", -EINVAL, "column 17: read_us of latency"},
        {"latency(read_us=99999999999):memory:1M", -EINVAL, "must be from 0 to 3600000000"},
        {"latency(slots=0):memory:1M", -EINVAL, "slots of latency must be from 1"},
        {"latency(jitter=2):memory:1M", -EINVAL, "a fraction from 0 to 1"},
        {"latency(jitter=0.5.5):memory:1M", -EINVAL, "a fraction from 0 to 1"},
        {"latency(jitter=.):memory:1M", -EINVAL, "a fraction from 0 to 1"},
        {"latency(jitter=nan):memory:1M", -EINVAL, "a fraction from 0 to 1"},
        {"latency(read_us=1,):memory:1M", -EINVAL, "unknown key ''"},
        {"fault(op=erase):memory:1M", -EINVAL, "known: read, write, flush, discard, any"},
        {"fault(at=0):memory:1M", -EINVAL, "at of fault must be from 1"},
        {"fault(errno=5):memory:1M", -EINVAL, "known: EIO, ENOSPC"},
        {"record(log=):memory:1M", -EINVAL, "log of record cannot be ''"},
        {"fault:fault:fault:fault:fault:fault:fault:fault:fault:memory:1M", -EINVAL,
         "more than 8 filters"},
        {"/nonexistent\n\033[31m", -ENOENT, "/nonexistent??[31m"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        int error = support_open_error(cases[i].spec, true);

        if (error != cases[i].error || strstr(support_messages(), cases[i].message) == NULL)
            fail_msg("'%s' gave %d: %s", cases[i].spec, error, support_messages());
    }
}

static void test_long_specs(void **state)
{
    size_t size = 1u << 20;
    char *spec = malloc(size + 1);

    (void)state;
    assert_non_null(spec);
    memset(spec, 'a', size);
    spec[size] = '\0';
    assert_int_equal(support_open_error(spec, true), -EINVAL);
    spec[16384] = '\0';
    assert_int_equal(support_open_error(spec, true), -ENAMETOOLONG);
    spec[4095] = '\0';
    assert_int_equal(support_open_error(spec, true), -ENAMETOOLONG);
    memset(spec, ',', 16000);
    spec[16000] = '\0';
    assert_int_equal(support_open_error(spec, true), -ENAMETOOLONG);
    memset(spec, '(', 16000);
    assert_true(support_open_error(spec, true) < 0);
    for (size_t i = 0; i < 16000; i += 6)
        memcpy(spec + i, "fault:", 6);
    assert_int_equal(support_open_error(spec, true), -EINVAL);
    free(spec);
}

/* Pieces of the grammar in any order: an error or a device, and nothing that the sanitizers see. */
static void test_random_specs(void **state)
{
    static const char *const pieces[] = {"latency",
                                         "fault",
                                         "record",
                                         "(",
                                         ")",
                                         ":",
                                         ",",
                                         ",,",
                                         "=",
                                         "memory:",
                                         "file:",
                                         "64K",
                                         "1M",
                                         "op",
                                         "at",
                                         "read_us",
                                         "jitter",
                                         "0.5",
                                         "0x",
                                         "offset",
                                         "size",
                                         "direct",
                                         "write",
                                         "any",
                                         "slots",
                                         "seed",
                                         "max",
                                         "\n",
                                         "\xff",
                                         "1",
                                         "99999999999999999999",
                                         "kind=torn",
                                         "report=success",
                                         "):"};
    uint64_t random = support_seed();
    unsigned int opened = 0;

    (void)state;
    for (unsigned int i = 0; i < 20000; i++) {
        struct device_open_options options = {.direct = -1, .log = &support_log};
        struct device *device = NULL;
        char spec[400] = "";
        uint64_t count = support_random(&random, 14);

        if (support_random(&random, 2) == 0)
            strcat(spec, "fault(op=");
        for (uint64_t j = 0; j < count; j++)
            strcat(spec, pieces[support_random(&random, ARRAY_LENGTH(pieces))]);
        if (support_random(&random, 2) == 0)
            strcat(spec, "):memory:64K");
        support_clear_log();
        if (device_open(spec, &options, &device) == 0) {
            opened++;
            device_close(device);
        } else if (support_messages()[0] == '\0') {
            fail_msg("'%s' failed without a message", spec);
        }
    }
    print_message("# %u of 20000 random specs opened\n", opened);
    assert_true(opened > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_good_specs),
        cmocka_unit_test(test_bad_specs),  cmocka_unit_test(test_direct_overrides_the_option),
        cmocka_unit_test(test_long_specs), cmocka_unit_test(test_random_specs),
    };

    return support_run_tests(tests);
}
