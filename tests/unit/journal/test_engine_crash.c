/* SPDX-License-Identifier: MIT */
/*
 * Power cuts: after a cut at any write of a workload, with any part of what was not flushed, the
 * recovered image is exactly that after some transaction, none earlier than what was reported
 * durable, and file data in freed blocks is untouched.
 */
#include "engine_rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "block/latency.h"

/* ThreadSanitizer is for the workload; the states, which one thread checks, take it too long. */
#ifdef __SANITIZE_THREAD__
#define SUBSETS(count) 0
#else
#define SUBSETS(count) (count)
#endif

static unsigned int base_seed(void)
{
    const char *text = getenv("UEXT4_TEST_SEED");

    return text != NULL ? (unsigned int)strtoul(text, NULL, 0) : 1;
}

static void check(struct rig_options *options, unsigned int subsets, struct crash_totals *totals)
{
    struct journal_statistics statistics;
    struct rig *rig = rig_create(options);
    unsigned int wrong;

    rig_run(rig);
    journal_get_statistics(rig->journal, &statistics);
    (void)rig_close_journal(rig);
    assert_true(statistics.commits > 4);
    assert_true(statistics.blocks_logged > 2 * (uint64_t)options->journal_blocks);
    wrong = rig_check_crashes(rig, subsets, totals);
    if (wrong > 0)
        printf("# checksums %u, 64bit %d, %u-byte blocks, journal of %u: %u states are wrong\n",
               options->form.checksum_version, options->form.is_64bit, options->form.block_bytes,
               options->journal_blocks, wrong);
    assert_int_equal(wrong, 0);
    rig_destroy(rig);
}

static void print_totals(const char *name, const struct crash_totals *totals)
{
    printf("# %s: seed %u, %llu states, %llu transactions and %llu blocks replayed, %llu revoked, "
           "%llu times data compared\n",
           name, base_seed(), (unsigned long long)totals->states,
           (unsigned long long)totals->transactions, (unsigned long long)totals->replayed_blocks,
           (unsigned long long)totals->revoked_blocks, (unsigned long long)totals->checked_data);
}

/* Every form of the journal, in a log that wraps many times. */
static void test_forms(void **state)
{
    struct crash_totals totals = {0};

    (void)state;
    for (size_t i = 0; i < image_form_count(); i++) {
        struct form form = image_form(i);
        struct rig_options options = {.form = form,
                                      .journal_blocks = i % 3 == 0 ? 96 : 40,
                                      .sequence = i % 2 == 0 ? 7 : UINT32_MAX - 5,
                                      .commit_interval_ms = 1000,
                                      .max_copy_bytes = i % 4 == 0 ? 8 * form.block_bytes : 0,
                                      .threads = 3,
                                      .operations = i % 3 == 0 ? 120 : 70,
                                      .seed = base_seed() + i,
                                      .sync_percent = 15};

        if (!form.has_uuid_everywhere) /* the engine writes the UUID once in a block */
            check(&options, SUBSETS(3), &totals);
    }
    print_totals("forms", &totals);
    assert_true(totals.revoked_blocks > 0);
    assert_true(totals.escaped_blocks > 0);
    assert_true(totals.checked_data > 0);
}

/* Many seeds in one form. */
static void test_seeds(void **state)
{
    struct crash_totals totals = {0};

    (void)state;
    for (unsigned int i = 0; i < 24; i++) {
        struct rig_options options = {
            .form = {.checksum_version = 3, .is_64bit = true, .block_bytes = 1024},
            .journal_blocks = 34 + i,
            .sequence = i * 1000,
            .commit_interval_ms = i % 2 == 0 ? 1 : 1000,
            .threads = 1 + i % 4,
            .operations = 400 / (1 + i % 4),
            .seed = base_seed() + 100 + i,
            .sync_percent = i % 3 == 0 ? 2 : 20};

        check(&options, SUBSETS(2), &totals);
    }
    print_totals("seeds", &totals);
    assert_true(totals.revoked_blocks > 0);
}

static struct device *stack_latency(struct device *lower)
{
    struct latency_options options = {
        .write_us = 60, .flush_us = 200, .slots = 4, .jitter = 0.9, .seed = base_seed()};
    struct device *device;

    assert_int_equal(latency_open(lower, &options, NULL, &device), 0);
    return device;
}

/* A disk that takes its time: handles, a commit and a checkpoint are under way together. */
static void test_slow_disk(void **state)
{
    struct crash_totals totals = {0};

    (void)state;
    for (unsigned int i = 0; i < 6; i++) {
        struct rig_options options = {.form = image_form(4 + i % 4),
                                      .journal_blocks = 40 + 8 * i,
                                      .sequence = 77,
                                      .commit_interval_ms = 2,
                                      .max_copy_bytes = 16 * 1024,
                                      .threads = 6,
                                      .operations = 60,
                                      .seed = base_seed() + 300 + i,
                                      .sync_percent = 10,
                                      .stack = stack_latency};

        check(&options, SUBSETS(3), &totals);
    }
    print_totals("slow disk", &totals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_slow_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
