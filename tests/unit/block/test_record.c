/* SPDX-License-Identifier: MIT */
/* The record filter: what it holds, that a replay gives the same bytes, and the log file. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "block/record.h"

#define SIZE (1024u * 1024)

static struct record_entry get(struct device *record, size_t index)
{
    struct record_entry entry;

    assert_int_equal(record_get(record, index, &entry), 0);
    return entry;
}

static void test_entries(void **state)
{
    struct device *device = support_open("record:memory:1M", true);
    struct device *record = record_find(device);
    struct record_entry entry;
    char bytes[1024];

    (void)state;
    memset(bytes, 3, sizeof(bytes));
    assert_int_equal(record_count(record), 0);
    assert_int_equal(device_write(device, bytes, 1024, 4096, 0), 0);
    assert_int_equal(device_flush(device), 0);
    assert_int_equal(record_mark(record, "after the flush"), 0);
    assert_int_equal(device_write(device, bytes, 512, 8192, DEVICE_FUA), 0);
    assert_int_equal(device_discard(device, 4096, 512), 0);
    assert_int_equal(device_read(device, bytes, 512, 0), 0);
    assert_int_equal(record_count(record), 5);
    entry = get(record, 0);
    assert_int_equal(entry.kind, RECORD_WRITE);
    assert_int_equal(entry.flags, 0);
    assert_int_equal(entry.offset_bytes, 4096);
    assert_int_equal(entry.length_bytes, 1024);
    assert_int_equal(((const char *)entry.data)[1023], 3);
    assert_int_equal(get(record, 1).kind, RECORD_FLUSH);
    entry = get(record, 2);
    assert_int_equal(entry.kind, RECORD_MARK);
    assert_string_equal(entry.data, "after the flush");
    assert_int_equal(get(record, 3).flags, DEVICE_FUA);
    entry = get(record, 4);
    assert_int_equal(entry.kind, RECORD_DISCARD);
    assert_int_equal(entry.offset_bytes, 4096);
    assert_int_equal(entry.length_bytes, 512);
    assert_int_equal(record_get(record, 5, &entry), -ENOENT);
    record_reset(record);
    assert_int_equal(record_count(record), 0);
    device_close(device);
}

static void test_failures_are_not_recorded(void **state)
{
    struct device *device = support_open("record:fault(count=2):memory:1M", true);
    struct device *record = record_find(device);
    char bytes[512] = {0};

    (void)state;
    assert_int_equal(device_write(device, bytes, 512, 0, 0), -EIO);
    assert_int_equal(device_flush(device), -EIO);
    assert_int_equal(device_flush(device), 0);
    assert_int_equal(record_count(record), 2);
    assert_int_equal(get(record, 0).kind, RECORD_NOTHING);
    assert_int_equal(get(record, 1).kind, RECORD_FLUSH);
    device_close(device);
}

static void test_bound(void **state)
{
    struct device *device = support_open("record(max=4K):memory:1M", true);
    char bytes[4096];

    (void)state;
    memset(bytes, 1, sizeof(bytes));
    assert_int_equal(device_write(device, bytes, 3584, 0, 0), 0);
    assert_int_equal(device_write(device, bytes, 1024, 65536, 0), -ENOMEM);
    assert_non_null(strstr(support_messages(), "record: full"));
    assert_int_equal(device_read(device, bytes, 1024, 65536), 0);
    assert_int_equal(bytes[0], 0);
    assert_int_equal(device_write(device, bytes, 512, 65536, 0), 0);
    record_reset(record_find(device));
    assert_int_equal(device_write(device, bytes, 4096, 65536, 0), 0);
    device_close(device);
}

/* A write that failed takes nothing of the bound. */
static void test_failed_write_gives_its_bytes_back(void **state)
{
    struct device *device = support_open("record(max=4K):fault(count=3):memory:1M", true);
    char bytes[4096] = {0};

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(device_write(device, bytes, 4096, 0, 0), -EIO);
    assert_int_equal(device_write(device, bytes, 4096, 0, 0), 0);
    assert_int_equal(record_count(record_find(device)), 1);
    device_close(device);
}

static void test_sector_size(void **state)
{
    struct strict_device *strict = strict_device_create(SIZE, 4096, 1);
    struct device *device;

    (void)state;
    assert_int_equal(record_open(&strict->device, NULL, 0, NULL, &device), 0);
    assert_int_equal(device_limits(device)->offset_alignment, 4096);
    device_close(device);
    assert_int_equal(support_open_error("record:memory:1000", true), -EINVAL);
}

static void compare_devices(struct device *one, struct device *other)
{
    char *left = malloc(SIZE);
    char *right = malloc(SIZE);

    assert_non_null(left);
    assert_non_null(right);
    assert_int_equal(device_read(one, left, SIZE, 0), 0);
    assert_int_equal(device_read(other, right, SIZE, 0), 0);
    assert_memory_equal(left, right, SIZE);
    free(left);
    free(right);
}

/* Random writes and discards, and their state at a point in between, both come out of a replay. */
static void test_replay(void **state)
{
    struct device *device = support_open("record:memory:1M", true);
    struct device *record = record_find(device);
    struct device *middle = support_open("memory:1M", true);
    struct device *target = support_open("memory:1M", true);
    uint64_t random = support_seed();
    char bytes[9000];
    size_t middle_count = 0;

    (void)state;
    for (unsigned int i = 0; i < 600; i++) {
        uint64_t length = support_random(&random, sizeof(bytes)) + 1;
        uint64_t offset = support_random(&random, SIZE - length);

        memset(bytes, (int)support_random(&random, 256), length);
        if (support_random(&random, 10) == 0)
            assert_int_equal(device_discard(device, offset & ~UINT64_C(511), 512), 0);
        else
            assert_int_equal(device_write(device, bytes, length, offset, 0), 0);
        if (i % 50 == 0)
            assert_int_equal(device_flush(device), 0);
        if (i == 300) {
            middle_count = record_count(record);
            assert_int_equal(record_replay(record, 0, middle_count, middle), 0);
            compare_devices(device, middle);
        }
    }
    assert_int_equal(record_replay(record, 0, middle_count, target), 0);
    compare_devices(middle, target);
    assert_int_equal(record_replay(record, middle_count, record_count(record), target), 0);
    compare_devices(device, target);
    device_close(device);
    device_close(middle);
    device_close(target);
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct writer {
    struct device *device;
    unsigned int number;
    int error;
};

static void *write_some(void *argument)
{
    struct writer *writer = argument;
    unsigned char bytes[512];

    for (unsigned int i = 0; i < 200 && writer->error == 0; i++) {
        memset(bytes, (int)i, sizeof(bytes));
        writer->error = device_write(writer->device, bytes, sizeof(bytes), writer->number * 512u,
                                     0);
        if (writer->error == 0 && i % 20 == 19)
            writer->error = device_flush(writer->device);
    }
    return NULL;
}

/* Each thread overwrites one sector; its own order must be the record's. */
static void test_threads(void **state)
{
    struct device *device = support_open("record:memory:1M", true);
    struct device *target = support_open("memory:1M", true);
    struct device *record = record_find(device);
    unsigned int next[8] = {0};
    pthread_t threads[8];
    struct writer writers[8];

    (void)state;
    for (unsigned int i = 0; i < 8; i++) {
        writers[i] = (struct writer){.device = device, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, write_some, &writers[i]), 0);
    }
    for (unsigned int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(writers[i].error, 0);
    }
    assert_int_equal(record_count(record), 8 * 210);
    for (size_t i = 0; i < record_count(record); i++) {
        struct record_entry entry = get(record, i);

        if (entry.kind != RECORD_WRITE)
            continue;
        assert_int_equal(*(const unsigned char *)entry.data, next[entry.offset_bytes / 512]++);
    }
    assert_int_equal(record_replay(record, 0, record_count(record), target), 0);
    compare_devices(device, target);
    device_close(device);
    device_close(target);
}

/* A write that ends while a flush runs comes after the flush: the flush does not cover it. */
static void *flush_once(void *argument)
{
    struct writer *writer = argument;

    writer->error = device_flush(writer->device);
    return NULL;
}

static void test_flush_stands_where_it_began(void **state)
{
    struct strict_device *strict = strict_device_create(SIZE, 512, 1);
    struct device *device;
    struct writer writer = {0};
    pthread_t thread;
    char bytes[512] = {0};

    (void)state;
    assert_int_equal(record_open(&strict->device, NULL, 0, NULL, &device), 0);
    writer.device = device;
    strict->hold_until = 2;
    assert_int_equal(pthread_create(&thread, NULL, flush_once, &writer), 0);
    mutex_lock(&strict->mutex);
    while (strict->inside == 0)
        condition_wait(&strict->changed, &strict->mutex);
    mutex_unlock(&strict->mutex);
    assert_int_equal(get(device, 0).kind, RECORD_NOTHING);
    assert_int_equal(device_write(device, bytes, 512, 0, 0), 0);
    pthread_join(thread, NULL);
    assert_int_equal(writer.error, 0);
    assert_int_equal(get(device, 0).kind, RECORD_FLUSH);
    assert_int_equal(get(device, 1).kind, RECORD_WRITE);
    device_close(device);
}

/* ---- The log file --------------------------------------------------------------------------- */

static uint64_t le64_from(const unsigned char *place)
{
    le64 value;

    memcpy(&value, place, sizeof(value));
    return le64_get(value);
}

/* Replays a log file as the format is documented, sharing nothing with record.c. */
static unsigned int replay_log(const char *path, struct device *target, char *marks, size_t size)
{
    unsigned char sector[512];
    uint64_t place = 512;
    uint64_t entry_count;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, sector, 512, 0), 512);
    assert_true(le64_from(sector) == UINT64_C(0x6a736677736872));
    assert_int_equal(le64_from(sector + 8), 1);
    entry_count = le64_from(sector + 16);
    assert_int_equal(le32_at(sector + 24), 512);
    marks[0] = '\0';
    for (uint64_t i = 0; i < entry_count; i++) {
        uint64_t offset, length, flags;

        assert_int_equal(pread(fd, sector, 512, (off_t)place), 512);
        offset = le64_from(sector) * 512;
        length = le64_from(sector + 8) * 512;
        flags = le64_from(sector + 16);
        place += 512;
        if ((flags & 8) == 0)
            assert_int_equal(le64_from(sector + 24), 0);
        if ((flags & 8) != 0) {
            snprintf(marks + strlen(marks), size - strlen(marks), "%.*s;",
                     (int)le64_from(sector + 24), sector + 32);
        } else if ((flags & 4) != 0) {
            assert_int_equal(device_discard(target, offset, length), 0);
        } else if (length > 0) {
            void *data = malloc(length);

            assert_non_null(data);
            assert_int_equal(pread(fd, data, length, (off_t)place), length);
            assert_int_equal(device_write(target, data, length, offset, 0), 0);
            place += length;
            free(data);
        }
    }
    assert_int_equal(lseek(fd, 0, SEEK_END), place);
    close(fd);
    return (unsigned int)entry_count;
}

static void test_log_file(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "a,b.log");
    struct device *before = support_open("memory:1M", true);
    struct device *target = support_open("memory:1M", true);
    struct device *device;
    char spec[200], marks[100], bytes[3000];

    (void)state;
    snprintf(spec, sizeof(spec), "record(log=%s/a,,b.log):memory:1M", folder.path);
    device = support_open(spec, true);
    memset(bytes, 9, sizeof(bytes));
    assert_int_equal(device_write(device, bytes, 3000, 777, 0), 0);
    assert_int_equal(record_mark(device, "one"), 0);
    assert_int_equal(device_flush(device), 0);
    assert_int_equal(device_write(device, bytes, 512, 65536, DEVICE_FUA), 0);
    assert_int_equal(device_discard(device, 1024, 1024), 0);
    assert_int_equal(record_mark(device, "two"), 0);
    assert_int_equal(record_replay(device, 0, record_count(device), before), 0);
    device_close(device);
    assert_int_equal(replay_log(path, target, marks, sizeof(marks)), 6);
    assert_string_equal(marks, "one;two;");
    compare_devices(before, target);
    device_close(before);
    device_close(target);

    device = support_open("record:memory:1M", true);
    assert_int_equal(record_save(device, "/nonexistent/log"), -ENOENT);
    device_close(device);
    support_remove_folder(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_failures_are_not_recorded),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_failed_write_gives_its_bytes_back),
        cmocka_unit_test(test_sector_size),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_flush_stands_where_it_began),
        cmocka_unit_test(test_log_file),
    };

    return support_run_tests(tests);
}
