/* SPDX-License-Identifier: MIT */
/*
 * Reads through the public calls run in parallel: a gate under the file system holds each read
 * until as many are under way as there are threads. If one read waited for another, it would never
 * open.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/fs.h"
#include "gate.h"

#define THREADS    8
#define FILE_BYTES (1u << 20)
#define READ_BYTES 4096u

struct fixture {
    char folder[64];
    struct uext4 *fs;
    struct device *gate;
};

static void run(const char *format, const char *folder)
{
    char command[512];

    snprintf(command, sizeof(command), format, folder, folder, folder);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

static void write_file(const char *folder, unsigned int number)
{
    char path[128];
    uint32_t words[FILE_BYTES / 4];
    FILE *file;

    snprintf(path, sizeof(path), "%s/tree/file%u", folder, number);
    for (uint32_t i = 0; i < FILE_BYTES / 4; i++)
        words[i] = i * 8 + number;
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(words, 1, sizeof(words), file), sizeof(words));
    fclose(file);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct uext4_mount_options options;
    char image[128];

    assert_non_null(fixture);
    strcpy(fixture->folder, "/tmp/uext4-parallel-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    run("mkdir %s/tree", fixture->folder);
    for (unsigned int i = 0; i < THREADS; i++)
        write_file(fixture->folder, i);
    run("mke2fs -q -t ext4 -d %s/tree %s/image 64M >/dev/null", fixture->folder);
    snprintf(image, sizeof(image), "%s/image", fixture->folder);
    uext4_mount_options_init(&options);
    assert_int_equal(uext4_mount(image, &options, &fixture->fs), 0);
    /* From here on file data comes through the gate, metadata past it. */
    fixture->gate = gate_open(fixture->fs->volume.device);
    fixture->fs->volume.device = fixture->gate;
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    uext4_unmount(fixture->fs);
    run("rm -r %s", fixture->folder);
    free(fixture);
    return 0;
}

struct reader {
    struct uext4 *fs;
    unsigned int file, first, step; /* reads `first`, `first` + `step`, … */
    unsigned int errors;
};

static void *read_file(void *context)
{
    struct reader *reader = context;
    struct uext4_inode *inode;
    uint32_t *buffer = aligned_alloc(READ_BYTES, READ_BYTES);
    char path[32];

    snprintf(path, sizeof(path), "/file%u", reader->file);
    if (uext4_walk(reader->fs, path, 0, &inode) != 0) {
        reader->errors++;
        free(buffer);
        return NULL;
    }
    for (unsigned int i = 0; i < 16; i++) {
        uint64_t offset = (uint64_t)(reader->first + i * reader->step) * READ_BYTES;

        if (uext4_read(inode, buffer, READ_BYTES, offset) != READ_BYTES ||
            buffer[3] != (offset / 4 + 3) * 8 + reader->file)
            reader->errors++;
    }
    uext4_inode_put(inode);
    free(buffer);
    return NULL;
}

static void read_by_threads(struct fixture *fixture, bool same_file)
{
    struct reader readers[THREADS];
    pthread_t threads[THREADS];

    gate_hold(fixture->gate, THREADS);
    for (unsigned int i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){fixture->fs, same_file ? 0 : i, same_file ? i : 0,
                                     same_file ? THREADS : 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_file, &readers[i]), 0);
    }
    for (unsigned int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].errors, 0);
    }
    assert_int_equal(gate_timeouts(fixture->gate), 0);
    assert_int_equal(gate_max_in_flight(fixture->gate), THREADS);
    assert_int_equal(gate_reads(fixture->gate), THREADS * 16);
}

static void test_many_files(void **state)
{
    read_by_threads(*state, false);
}

static void test_one_file(void **state)
{
    read_by_threads(*state, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_file, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
