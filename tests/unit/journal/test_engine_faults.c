/* SPDX-License-Identifier: MIT */
/*
 * A device that fails at each write and at each flush of a workload in turn, once or for good,
 * wholly or torn: the error reaches a caller, nothing hangs, nothing leaks (under the sanitizers),
 * and what is on the disk recovers to a transaction not before what was reported durable.
 */
#include "engine_rig.h"

#include <errno.h>
#include <stdio.h>

#include "block/fault.h"

static struct fault_options options_of_next_rig;
static struct device *fault_of_rig;

static struct device *stack_fault(struct device *lower)
{
    assert_int_equal(fault_open(lower, &options_of_next_rig, NULL, &fault_of_rig), 0);
    return fault_of_rig;
}

static struct rig *create(bool has_no_journal, uint64_t seed)
{
    struct rig_options options = {
        .form = {.checksum_version = 3, .is_64bit = true, .block_bytes = 1024},
        .journal_blocks = 36,
        .sequence = 5,
        .has_no_journal = has_no_journal,
        .commit_interval_ms = 1000,
        .threads = 2,
        .operations = 40,
        .seed = seed,
        .sync_percent = 20,
        .stack = stack_fault};
    struct rig *rig = rig_create(&options);

    rig->may_fail = true;
    return rig;
}

static void check_aborted(struct rig *rig)
{
    struct handle handle;
    struct buffer *buffer;

    if (!journal_is_aborted(rig->journal))
        return;
    assert_int_equal(journal_start(rig->journal, 1, &handle), -EROFS);
    assert_int_equal(journal_commit_all(rig->journal), -EROFS);
    assert_int_equal(journal_checkpoint(rig->journal), -EROFS);
    assert_int_equal(buffer_get(rig->buffers, FIXED_FIRST, &buffer), 0);
    buffer_put(buffer);
}

/* Returns whether the fault came. */
static bool run(const struct fault_options *options, bool has_no_journal, uint64_t seed)
{
    int32_t noted_error = 0;
    struct rig *rig;
    bool is_injected, is_aborted;
    int error;

    options_of_next_rig = *options;
    rig = create(has_no_journal, seed);
    rig_run(rig);
    check_aborted(rig);
    is_aborted = journal_is_aborted(rig->journal);
    error = rig_close_journal(rig);
    is_injected = fault_injected(fault_of_rig) > 0;
    assert_int_equal(rig->failures > 0 || error != 0, is_injected);
    if (is_aborted)
        assert_true(error < 0);
    if (!has_no_journal) {
        const char *problem = rig_check_final(rig, &noted_error);

        if (problem != NULL)
            fail_msg("operation %d, at %llu, count %llu, kind %d: %s", options->operation,
                     (unsigned long long)options->at, (unsigned long long)options->count,
                     options->kind, problem);
        if (is_aborted && options->count == 1)
            assert_true(noted_error != 0);
    }
    rig_destroy(rig);
    return is_injected;
}

static void test_each(void **state)
{
    static const int operations[] = {DEVICE_WRITE, DEVICE_FLUSH};
    static const int kinds[] = {FAULT_ERROR, FAULT_TORN};
    unsigned int count = 0;

    (void)state;
    for (unsigned int i = 0; i < 16; i++) {
        struct fault_options options = FAULT_OPTIONS_DEFAULT;
        bool has_no_journal = i >= 8;

        options.operation = operations[i & 1];
        options.kind = kinds[(i >> 1) & 1];
        options.count = (i >> 2) & 1;
        options.bytes = 512;
        if (options.operation == DEVICE_FLUSH && options.kind != FAULT_ERROR)
            continue;
        for (options.at = 1; options.at < 40; options.at++)
            count += run(&options, has_no_journal, options.at);
        for (; options.at < 100000; options.at += 23)
            if (!run(&options, has_no_journal, options.at))
                break;
            else
                count++;
    }
    printf("# %u faults\n", count);
    assert_true(count > 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
