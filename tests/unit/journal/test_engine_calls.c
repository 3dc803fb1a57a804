/* SPDX-License-Identifier: MIT */
/* The calls of journal.h one by one: credits, waits, callbacks, freeing, aborting, no journal. */
#include "engine_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define JOURNAL_BLOCKS 40u
#define MAX_CREDITS    ((JOURNAL_BLOCKS - IMAGE_FIRST_LOG) / 4)

static struct rig *create(bool has_no_journal)
{
    struct rig_options options = {.form = {.checksum_version = 3, .block_bytes = 1024},
                                  .journal_blocks = JOURNAL_BLOCKS,
                                  .sequence = 21,
                                  .has_no_journal = has_no_journal,
                                  .commit_interval_ms = 1000000};

    return rig_create(&options);
}

static struct journal_statistics statistics_of(struct rig *rig)
{
    struct journal_statistics result;

    journal_get_statistics(rig->journal, &result);
    return result;
}

/* Fills a block in a handle. */
static void write_block(struct rig *rig, struct handle *handle, uint64_t block, int fill)
{
    struct buffer *buffer;

    assert_int_equal(buffer_get(rig->buffers, block, &buffer), 0);
    assert_int_equal(journal_modify(handle, buffer), 0);
    memset(journal_data(handle, buffer), fill, rig->options.form.block_bytes);
    buffer_put(buffer);
}

static journal_sequence write_alone(struct rig *rig, uint64_t block, int fill)
{
    journal_sequence sequence;
    struct handle handle;

    assert_int_equal(journal_start(rig->journal, 1, &handle), 0);
    sequence = journal_handle_sequence(&handle);
    write_block(rig, &handle, block, fill);
    assert_int_equal(journal_stop(&handle), 0);
    return sequence;
}

static uint8_t home_byte(const struct rig *rig, uint64_t block)
{
    return rig->image->bytes[block * rig->options.form.block_bytes];
}

static void test_nothing_is_written_for_nothing(void **state)
{
    struct rig *rig = create(false);
    struct handle handle;

    (void)state;
    assert_int_equal(journal_start(rig->journal, 3, &handle), 0);
    handle.wants_sync = true;
    assert_int_equal(journal_stop(&handle), 0);
    assert_int_equal(journal_commit_all(rig->journal), 0);
    assert_int_equal(journal_commit(rig->journal, journal_running_sequence(rig->journal)), 0);
    assert_int_equal(journal_checkpoint(rig->journal), 0);
    assert_int_equal(statistics_of(rig).commits, 0);
    rig_close_journal(rig);
    assert_memory_equal(rig->image->bytes, rig->first_bytes, rig->size_bytes);
    rig_destroy(rig);
}

static void test_credits(void **state)
{
    struct rig *rig = create(false);
    struct handle handle;
    struct buffer *buffer;

    (void)state;
    assert_int_equal(journal_start(rig->journal, MAX_CREDITS + 1, &handle), -ENOSPC);
    assert_int_equal(journal_start(rig->journal, 1, &handle), 0);
    write_block(rig, &handle, 2, 1);
    write_block(rig, &handle, 2, 2);
    assert_int_equal(buffer_get(rig->buffers, 3, &buffer), 0);
    assert_int_equal(journal_modify(&handle, buffer), -ENOSPC);
    assert_int_equal(journal_extend(&handle, MAX_CREDITS), -ENOSPC);
    assert_int_equal(journal_extend(&handle, MAX_CREDITS - 1), 0);
    assert_int_equal(journal_extend(&handle, 1), -ENOSPC);
    assert_int_equal(journal_modify(&handle, buffer), 0);
    buffer_put(buffer);
    assert_int_equal(journal_stop(&handle), 0);
    /* What it did not use is there for others. */
    assert_int_equal(journal_start(rig->journal, MAX_CREDITS - 2, &handle), 0);
    assert_int_equal(statistics_of(rig).start_waits, 0);
    assert_int_equal(journal_stop(&handle), 0);
    /* A handle that the running transaction has no room for gets the next. */
    assert_int_equal(journal_start(rig->journal, MAX_CREDITS - 1, &handle), 0);
    assert_int_equal(journal_handle_sequence(&handle), 22);
    assert_int_equal(statistics_of(rig).start_waits, 1);
    assert_int_equal(journal_stop(&handle), 0);
    rig_destroy(rig);
}

static void test_checkpoint_empties_the_log(void **state)
{
    struct rig *rig = create(false);
    struct journal_superblock sb;

    (void)state;
    assert_int_equal(journal_commit(rig->journal, write_alone(rig, 5, 0x11)), 0);
    assert_int_not_equal(home_byte(rig, 5), 0x11);
    assert_int_equal(image_open(rig->image, &sb), 0);
    assert_int_equal(sb.start_block, sb.first_block);
    assert_int_equal(sb.sequence, 21);
    assert_int_equal(journal_checkpoint(rig->journal), 0);
    assert_int_equal(home_byte(rig, 5), 0x11);
    assert_int_equal(image_open(rig->image, &sb), 0);
    assert_int_equal(sb.start_block, 0);
    assert_int_equal(sb.sequence, 22);
    /* What has not committed does not go home. */
    write_alone(rig, 5, 0x22);
    assert_int_equal(journal_checkpoint(rig->journal), 0);
    assert_int_equal(home_byte(rig, 5), 0x11);
    rig_close_journal(rig);
    assert_int_equal(home_byte(rig, 5), 0x22);
    assert_int_equal(image_open(rig->image, &sb), 0);
    assert_int_equal(sb.start_block, 0);
    assert_int_equal(sb.sequence, 23);
    assert_true((sb.incompat & JOURNAL_INCOMPAT_REVOKE) != 0);
    rig_destroy(rig);
}

static void test_create_and_forget(void **state)
{
    struct rig *rig = create(false);
    struct buffer *buffer;
    struct handle handle;
    static const uint8_t zeros[1024];

    (void)state;
    assert_int_equal(buffer_get(rig->buffers, 140, &buffer), 0);
    buffer_set_verified(buffer, 9);
    buffer_put(buffer);
    assert_int_equal(journal_start(rig->journal, 3, &handle), 0);
    assert_int_equal(journal_create(&handle, 140, &buffer), 0);
    assert_memory_equal(buffer->data, zeros, sizeof(zeros));
    assert_false(buffer_is_verified(buffer, 9));
    buffer_put(buffer);
    /* New in this transaction: no revoke, and the cache reads it anew. */
    assert_int_equal(journal_forget(&handle, 140, 1), 0);
    assert_null(buffer_find(rig->buffers, 140));
    assert_int_equal(statistics_of(rig).revokes, 0);
    write_block(rig, &handle, 141, 0x33);
    assert_int_equal(journal_stop(&handle), 0);
    assert_int_equal(journal_commit_all(rig->journal), 0);
    assert_int_equal(home_byte(rig, 140), 140 ^ 0x5a);

    /* Committed, then freed: its copy goes home until the freeing commits, and not after. */
    assert_int_equal(journal_start(rig->journal, 1, &handle), 0);
    assert_int_equal(journal_forget(&handle, 141, 1), 0);
    assert_int_equal(journal_stop(&handle), 0);
    assert_int_equal(statistics_of(rig).revokes, 1);
    assert_int_equal(journal_commit_all(rig->journal), 0);
    assert_null(buffer_find(rig->buffers, 141));
    assert_int_equal(journal_checkpoint(rig->journal), 0);
    assert_int_equal(home_byte(rig, 141), 141 ^ 0x5a);
    rig_destroy(rig);
}

static void test_freed_goes_home_before_the_commit(void **state)
{
    struct rig *rig = create(false);
    struct handle handle;

    (void)state;
    assert_int_equal(journal_commit(rig->journal, write_alone(rig, 141, 0x44)), 0);
    assert_int_equal(journal_start(rig->journal, 1, &handle), 0);
    assert_int_equal(journal_forget(&handle, 141, 1), 0);
    assert_int_equal(journal_stop(&handle), 0);
    assert_int_equal(journal_checkpoint(rig->journal), 0);
    assert_int_equal(home_byte(rig, 141), 0x44);
    rig_destroy(rig);
}

struct noted {
    struct journal_callback callback;
    unsigned int calls;
    int error;
    unsigned int *order;
    unsigned int place;
};

static void note(struct journal_callback *callback, int error)
{
    struct noted *noted = container_of(callback, struct noted, callback);

    noted->calls++;
    noted->error = error;
    noted->place = ++*noted->order;
}

static void test_callbacks(void **state)
{
    struct rig *rig = create(false);
    unsigned int order = 0;
    struct noted noted[3] = {0};
    struct handle handle;

    (void)state;
    for (unsigned int i = 0; i < 3; i++) {
        noted[i].order = &order;
        noted[i].callback.committed = note;
    }
    assert_int_equal(journal_start(rig->journal, 1, &handle), 0);
    journal_on_commit(&handle, &noted[0].callback);
    journal_on_commit(&handle, &noted[1].callback);
    handle.wants_sync = true;
    assert_int_equal(journal_stop(&handle), 0);
    assert_int_equal(noted[0].place, 1);
    assert_int_equal(noted[1].place, 2);
    assert_int_equal(noted[0].error, 0);

    assert_int_equal(journal_start(rig->journal, 1, &handle), 0);
    journal_on_commit(&handle, &noted[2].callback);
    journal_abort(rig->journal, -EIO);
    assert_int_equal(journal_stop(&handle), -EROFS);
    rig->may_fail = true;
    assert_int_equal(rig_close_journal(rig), -EIO);
    assert_int_equal(noted[2].calls, 1);
    assert_true(noted[2].error < 0);
    rig_destroy(rig);
}

static void test_abort(void **state)
{
    struct rig *rig = create(false);
    journal_sequence first = write_alone(rig, 4, 0x10);
    struct journal_superblock sb;
    struct buffer *buffer;
    struct handle handle;

    (void)state;
    assert_int_equal(journal_commit(rig->journal, first), 0);
    assert_int_equal(journal_start(rig->journal, 2, &handle), 0);
    write_block(rig, &handle, 4, 0x20);
    journal_abort(rig->journal, -EIO);
    assert_true(journal_is_aborted(rig->journal));
    assert_int_equal(buffer_get(rig->buffers, 5, &buffer), 0);
    assert_int_equal(journal_modify(&handle, buffer), -EROFS);
    buffer_put(buffer);
    assert_int_equal(journal_extend(&handle, 1), -EROFS);
    assert_int_equal(journal_forget(&handle, 4, 1), -EROFS);
    handle.wants_sync = true;
    assert_int_equal(journal_stop(&handle), -EROFS);
    assert_int_equal(journal_commit(rig->journal, first), 0);
    rig->may_fail = true;
    assert_int_equal(rig_close_journal(rig), -EIO);
    /* The log is left as it is, with the error; what had committed is in it. */
    assert_int_equal(image_open(rig->image, &sb), 0);
    assert_int_equal(sb.error, -EIO);
    assert_int_equal(sb.sequence, first);
    assert_int_not_equal(sb.start_block, 0);
    assert_int_not_equal(home_byte(rig, 4), 0x20);
    rig_destroy(rig);
}

static void test_without_journal(void **state)
{
    struct rig *rig = create(true);
    struct journal_superblock sb;

    (void)state;
    assert_int_equal(journal_commit(rig->journal, write_alone(rig, 6, 0x66)), 0);
    assert_int_equal(home_byte(rig, 6), 0x66);
    assert_true(statistics_of(rig).flushes >= 1);
    write_alone(rig, 7, 0x77);
    assert_int_not_equal(home_byte(rig, 7), 0x77);
    rig_close_journal(rig);
    assert_int_equal(home_byte(rig, 7), 0x77);
    assert_int_equal(image_open(rig->image, &sb), 0);
    assert_int_equal(sb.start_block, 0);
    rig_destroy(rig);
}

struct awaited {
    struct journal_callback callback;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    bool is_called;
};

static void wake(struct journal_callback *callback, int error)
{
    struct awaited *awaited = container_of(callback, struct awaited, callback);

    assert_int_equal(error, 0);
    pthread_mutex_lock(&awaited->mutex);
    awaited->is_called = true;
    pthread_cond_signal(&awaited->condition);
    pthread_mutex_unlock(&awaited->mutex);
}

/* Without anybody asking, a transaction commits when it is old enough. */
static void test_interval(void **state)
{
    struct rig_options options = {.form = {.block_bytes = 1024},
                                  .journal_blocks = JOURNAL_BLOCKS,
                                  .sequence = 1,
                                  .commit_interval_ms = 1};
    struct rig *rig = rig_create(&options);
    struct awaited awaited = {.callback.committed = wake,
                              .mutex = PTHREAD_MUTEX_INITIALIZER,
                              .condition = PTHREAD_COND_INITIALIZER};
    struct handle handle;

    (void)state;
    assert_int_equal(journal_start(rig->journal, 1, &handle), 0);
    journal_on_commit(&handle, &awaited.callback);
    assert_int_equal(journal_stop(&handle), 0);
    pthread_mutex_lock(&awaited.mutex);
    while (!awaited.is_called)
        pthread_cond_wait(&awaited.condition, &awaited.mutex);
    pthread_mutex_unlock(&awaited.mutex);
    rig_destroy(rig);
}

static int fail_data(void *context, journal_sequence sequence)
{
    *(journal_sequence *)context = sequence;
    return -EIO;
}

static void test_data_error_aborts(void **state)
{
    struct rig *rig = create(false);
    journal_sequence seen = 0;
    journal_sequence sequence = write_alone(rig, 3, 1);

    (void)state;
    journal_set_data_callback(rig->journal, fail_data, &seen);
    assert_int_equal(journal_commit(rig->journal, sequence), -EIO);
    assert_int_equal(seen, sequence);
    rig->may_fail = true;
    assert_int_equal(rig_close_journal(rig), -EIO);
    rig_destroy(rig);
}

static void test_refused(void **state)
{
    struct rig *rig = create(false);
    struct journal_options options = {0};
    struct journal_superblock sb = rig->sb;
    struct journal *journal;

    (void)state;
    sb.log_blocks = 15;
    assert_int_equal(
        journal_open(rig->buffers, rig->record, &rig->image->location, &sb, 1, &options, &journal),
        -EINVAL);
    sb = rig->sb;
    sb.ro_compat = 1;
    assert_int_equal(
        journal_open(rig->buffers, rig->record, &rig->image->location, &sb, 1, &options, &journal),
        -EOPNOTSUPP);
    assert_int_equal(journal_commit(rig->journal, write_alone(rig, 3, 1)), 0);
    assert_int_equal(journal_open(rig->buffers, rig->record, &rig->image->location, &rig->sb, 1,
                                  &options, &journal),
                     -EBUSY);
    rig_destroy(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_written_for_nothing),
        cmocka_unit_test(test_credits),
        cmocka_unit_test(test_checkpoint_empties_the_log),
        cmocka_unit_test(test_create_and_forget),
        cmocka_unit_test(test_freed_goes_home_before_the_commit),
        cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_without_journal),
        cmocka_unit_test(test_interval),
        cmocka_unit_test(test_data_error_aborts),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
