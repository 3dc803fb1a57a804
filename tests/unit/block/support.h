/* SPDX-License-Identifier: MIT */
/* What the tests of the block layer share: a log that can be read, scratch files, a strict device.
 */
#ifndef TESTS_UNIT_BLOCK_SUPPORT_H
#define TESTS_UNIT_BLOCK_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/lock.h"
#include "block/device.h"

/*
 * Runs a table of tests. cmocka reports a skipped test as "not ok N # SKIP", which readers of TAP
 * count as a failure; here it comes out as "ok N # SKIP".
 */
#define support_run_tests(tests) (support_mend_skips(), cmocka_run_group_tests(tests, NULL, NULL))
void support_mend_skips(void);

/* Collects the messages of a device; cleared by support_clear_log. */
extern const struct log support_log;
const char *support_messages(void);
void support_clear_log(void);

/* A folder of this run, removed with all it has by support_remove_folder. */
struct support_folder {
    char path[64];
};

struct support_folder support_make_folder(const char *parent);
void support_remove_folder(const struct support_folder *folder);

/* Gives the path of a file in the folder, in a static buffer of its own for each of 4 calls. */
const char *support_path(const struct support_folder *folder, const char *name);

/* Makes a file of `size` bytes that holds support_byte at each place. */
void support_make_file(const char *path, uint64_t size);
void support_make_sparse_file(const char *path, uint64_t size);
unsigned char support_byte(uint64_t place);

/* Compares memory with support_byte; gives the first place that differs, or UINT64_MAX. */
uint64_t support_first_difference(const void *memory, size_t length, uint64_t place);

/* Runs a program without a shell; its exit code, or -1 if it cannot be run. */
int support_run(const char *const arguments[], const char *standard_input);

/* Attaches a loop device with sectors of `sector` bytes and gives its name; false without rights.
 * One at a time.
 */
bool support_attach_loop(const char *path, const char *sector, char *name, size_t size);
void support_detach_loop(void);

/* Opens a device with the test's log; fails the test if it cannot. */
struct device *support_open(const char *spec, bool is_writable);

/* Opens and expects an error; the messages are in the log. */
int support_open_error(const char *spec, bool is_writable);

/* A generator of random numbers (xorshift). The seed is printed, and taken from UEXT4_SEED. */
uint64_t support_seed(void);
uint64_t support_random(uint64_t *state, uint64_t bound);

/*
 * A device in memory that refuses what breaks its limits, and counts. Requests can be held inside
 * it until a number of them is there at the same time.
 */
struct strict_device {
    struct device device;
    unsigned char *bytes;
    struct mutex mutex;
    struct condition changed;
    unsigned int inside, max_inside;
    unsigned int hold_until; /* requests wait until as many have been inside; 0: they do not */
    unsigned int reads, writes, flushes, discards;
    unsigned int violations;
    unsigned int last_flags;
};

struct strict_device *strict_device_create(uint64_t size_bytes, uint32_t offset_alignment,
                                           uint32_t memory_alignment);

#endif
