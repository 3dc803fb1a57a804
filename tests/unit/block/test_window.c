/* SPDX-License-Identifier: MIT */
/* Partitions: MBR with logical ones and GPT, made by sfdisk, with sectors of 512 and 4096 bytes. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE (64u * 1024 * 1024)

static bool has_sfdisk(void)
{
    const char *const arguments[] = {"sfdisk", "--version", NULL};

    return support_run(arguments, NULL) == 0;
}

/* Each byte place is marked at the given offsets, to tell one partition from another. */
static void put_mark(const char *path, uint64_t offset, char mark)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &mark, 1, (off_t)offset), 1);
    close(fd);
}

static void check_partition(const char *prefix, const char *path, int number, uint64_t size,
                            char mark)
{
    char spec[200];
    char byte = 0;
    struct device *device;

    snprintf(spec, sizeof(spec), "%s%s,partition=%d", prefix, path, number);
    device = support_open(spec, true);
    if (device_limits(device)->size_bytes != size)
        fail_msg("%s: size %llu", spec, (unsigned long long)device_limits(device)->size_bytes);
    assert_int_equal(device_read(device, &byte, 1, 0), 0);
    assert_int_equal(byte, mark);
    device_close(device);
}

static void check_missing(const char *path, int number, const char *message)
{
    char spec[200];

    snprintf(spec, sizeof(spec), "%s,partition=%d", path, number);
    assert_int_equal(support_open_error(spec, false), -EINVAL);
    if (strstr(support_messages(), message) == NULL)
        fail_msg("%s: %s", spec, support_messages());
}

static void make_table(const char *path, const char *table)
{
    const char *const arguments[] = {"sfdisk", "--no-reread", "--no-tell-kernel", path, NULL};

    support_make_sparse_file(path, SIZE);
    assert_int_equal(support_run(arguments, table), 0);
}

static void test_mbr(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    char spec[200];
    struct device *device;

    (void)state;
    if (!has_sfdisk()) {
        support_remove_folder(&folder);
        print_message("# skipped: sfdisk is not installed\n");
        skip();
    }
    make_table(path, "label: dos\n"
                     "1 : start=2048, size=8192, type=83\n"
                     "2 : start=10240, size=16384, type=83\n"
                     "4 : start=32768, size=65536, type=5\n"
                     "5 : start=34816, size=8192, type=83\n"
                     "6 : start=45056, size=20480, type=83\n");
    put_mark(path, 2048 * 512, 'a');
    put_mark(path, 10240 * 512, 'b');
    put_mark(path, 34816 * 512, 'c');
    put_mark(path, 45056 * 512, 'd');
    check_partition("", path, 1, 8192 * 512, 'a');
    check_partition("file:", path, 2, 16384 * 512, 'b');
    check_partition("", path, 5, 8192 * 512, 'c');
    check_partition("memory:", path, 6, 20480 * 512, 'd');
    check_partition("record:", path, 6, 20480 * 512, 'd');
    check_missing(path, 3, "has no partition 3; there are: 1, 2, 4, 5, 6");
    check_missing(path, 7, "has no partition 7");
    /* An offset counts from the partition's start. */
    snprintf(spec, sizeof(spec), "%s,partition=2,offset=4M,size=1M", path);
    put_mark(path, 10240 * 512 + (4u << 20), 'e');
    device = support_open(spec, false);
    {
        char byte = 0;

        assert_int_equal(device_read(device, &byte, 1, 0), 0);
        assert_int_equal(byte, 'e');
    }
    device_close(device);
    snprintf(spec, sizeof(spec), "%s,partition=2,offset=8M,size=1", path);
    assert_int_equal(support_open_error(spec, false), -EINVAL);
    /* A table that promises more than the image has. */
    assert_int_equal(truncate(path, 44 * 512 * 1024), 0);
    check_missing(path, 6, "reaches past the end of the image");
    check_partition("", path, 2, 16384 * 512, 'b');
    support_remove_folder(&folder);
}

static void test_gpt(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");

    (void)state;
    if (!has_sfdisk()) {
        support_remove_folder(&folder);
        print_message("# skipped: sfdisk is not installed\n");
        skip();
    }
    make_table(path, "label: gpt\n"
                     "1 : start=2048, size=8192\n"
                     "3 : start=20480, size=4096\n"
                     "128 : start=40960, size=2048\n");
    put_mark(path, 2048 * 512, 'a');
    put_mark(path, 20480 * 512, 'b');
    put_mark(path, 40960 * 512, 'c');
    check_partition("", path, 1, 8192 * 512, 'a');
    check_partition("", path, 3, 4096 * 512, 'b');
    check_partition("memory:", path, 128, 2048 * 512, 'c');
    check_missing(path, 2, "has no partition 2; there are: 1, 3, 128");
    support_remove_folder(&folder);
}

/* A GPT of a disk with sectors of 4 KiB is read on the device and from the plain image. */
static void check_large_sectors(const char *label)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    char name[64];
    const char *const make[] = {"sfdisk", "--no-reread", "--no-tell-kernel", name, NULL};
    char table[200];
    int made;

    support_make_sparse_file(path, SIZE);
    if (!has_sfdisk() || !support_attach_loop(path, "4096", name, sizeof(name))) {
        support_remove_folder(&folder);
        print_message("# skipped: no sfdisk, or no loop device (needs root)\n");
        skip();
    }
    snprintf(table, sizeof(table),
             "label: %s\n1 : start=256, size=1024\n2 : start=2048, size=4096\n", label);
    made = support_run(make, table);
    if (made == 0) {
        put_mark(name, 256 * 4096, 'a');
        put_mark(name, 2048 * 4096, 'b');
        check_partition("", name, 1, 1024 * 4096, 'a');
        check_partition("", name, 2, 4096 * 4096, 'b');
    }
    support_detach_loop();
    assert_int_equal(made, 0);
    if (strcmp(label, "gpt") == 0) {
        check_partition("", path, 1, 1024 * 4096, 'a');
        check_partition("memory:", path, 2, 4096 * 4096, 'b');
        check_missing(path, 3, "has no partition 3; there are: 1, 2");
    }
    support_remove_folder(&folder);
}

static void test_large_sectors_gpt(void **state)
{
    (void)state;
    check_large_sectors("gpt");
}

static void test_large_sectors_mbr(void **state)
{
    (void)state;
    check_large_sectors("dos");
}

static void test_no_table(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");

    (void)state;
    support_make_sparse_file(path, SIZE);
    check_missing(path, 1, "has no partition table");
    support_make_sparse_file(path, 0);
    check_missing(path, 1, "partition table");
    support_make_file(path, 1000);
    check_missing(path, 1, "partition table");
    support_remove_folder(&folder);
}

/* Tables full of random bytes behind a valid signature: any answer but a crash or a hang. */
static void test_hostile_tables(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    uint64_t random = support_seed();

    (void)state;
    for (unsigned int i = 0; i < 300; i++) {
        unsigned char sector[512];
        char spec[200];
        int fd;

        support_make_sparse_file(path, 4u << 20);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        for (unsigned int j = 0; j < 8; j++) {
            for (unsigned int k = 0; k < 512; k++)
                sector[k] = (unsigned char)support_random(&random, 256);
            for (unsigned int k = 0; k < 4; k++) {
                unsigned char *entry = sector + 446 + 16 * k;

                entry[0] = support_random(&random, 2) == 0 ? 0 : 0x80;
                entry[4] = support_random(&random, 2) == 0 ? 5 : 0x83;
                if (support_random(&random, 2) == 0)
                    memset(entry + 9, 0, 3);
            }
            sector[510] = 0x55;
            sector[511] = 0xaa;
            assert_int_equal(pwrite(fd, sector, 512, j == 0 ? 0 : (off_t)(j * 32 * 512)), 512);
        }
        close(fd);
        for (int number = 1; number < 8; number++) {
            struct device_open_options options = {.direct = -1, .log = &support_log};
            struct device *device;

            support_clear_log();
            snprintf(spec, sizeof(spec), "%s,partition=%d", path, number);
            if (device_open(spec, &options, &device) != 0)
                continue;
            assert_true(device_limits(device)->size_bytes <= 4u << 20);
            device_close(device);
        }
    }
    support_remove_folder(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mbr),
        cmocka_unit_test(test_gpt),
        cmocka_unit_test(test_large_sectors_gpt),
        cmocka_unit_test(test_large_sectors_mbr),
        cmocka_unit_test(test_no_table),
        cmocka_unit_test(test_hostile_tables),
    };

    return support_run_tests(tests);
}
