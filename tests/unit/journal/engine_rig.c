/* SPDX-License-Identifier: MIT */
/* See engine_rig.h. */
#include "engine_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_BYTES   (1u << 20)
#define SECTOR_BYTES  512u
#define MAX_HANDLE    3u
#define MAX_UNFLUSHED 4096u

uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Every eighth content begins with the journal's magic number. */
void rig_fill(uint64_t block, uint64_t stamp, uint8_t *bytes, size_t length)
{
    uint64_t state = block << 32 ^ stamp;

    for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
        uint64_t word = random_next(&state);

        memcpy(bytes + i, &word, sizeof(word));
    }
    if (stamp % 8 == 0)
        memcpy(bytes, journal_magic, sizeof(journal_magic));
}

/* ---- The disk ------------------------------------------------------------------------------- */

static int disk_readv(struct device *device, const struct iovec *iov, int iov_count,
                      uint64_t offset)
{
    const uint8_t *bytes = container_of(device, struct rig, disk)->image->bytes;

    for (int i = 0; i < iov_count; offset += iov[i].iov_len, i++)
        memcpy(iov[i].iov_base, bytes + offset, iov[i].iov_len);
    return 0;
}

static int disk_writev(struct device *device, const struct iovec *iov, int iov_count,
                       uint64_t offset, unsigned int flags)
{
    uint8_t *bytes = container_of(device, struct rig, disk)->image->bytes;

    (void)flags;
    for (int i = 0; i < iov_count; offset += iov[i].iov_len, i++)
        memcpy(bytes + offset, iov[i].iov_base, iov[i].iov_len);
    return 0;
}

static void disk_close(struct device *device)
{
    (void)device;
}

static const struct device_ops disk_ops = {
    .name = "test disk",
    .readv = disk_readv,
    .writev = disk_writev,
    .close = disk_close,
};

/* ---- Creating ------------------------------------------------------------------------------- */

static void rig_blocks_init(struct rig *rig)
{
    for (unsigned int i = 0; i < RIG_BLOCKS; i++) {
        struct rig_block *block = &rig->blocks[i];

        block->rig = rig;
        block->block = i < FIXED_COUNT ? FIXED_FIRST + i : DYNAMIC_FIRST + i - FIXED_COUNT;
        block->use = i < FIXED_COUNT ? USE_METADATA : USE_FREE;
        pthread_mutex_init(&block->mutex, NULL);
    }
}

struct rig *rig_create(const struct rig_options *options)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct journal_options journal_options = {
        .commit_interval_ms = options->commit_interval_ms,
        .max_copy_bytes = options->max_copy_bytes,
    };
    struct device *lower;

    assert_non_null(rig);
    rig->options = *options;
    rig->image = image_create(&options->form, options->journal_blocks, options->sequence, 0);
    rig->size_bytes = (size_t)IMAGE_BLOCKS * options->form.block_bytes;
    rig->first_bytes = malloc(rig->size_bytes);
    assert_non_null(rig->first_bytes);
    memcpy(rig->first_bytes, rig->image->bytes, rig->size_bytes);
    pthread_mutex_init(&rig->mutex, NULL);
    rig_blocks_init(rig);
    rig->disk.ops = &disk_ops;
    rig->disk.limits = rig->image->device.limits;
    lower = options->stack != NULL ? options->stack(&rig->disk) : &rig->disk;
    assert_int_equal(record_open(lower, NULL, 0, NULL, &rig->record), 0);
    assert_int_equal(
        buffer_cache_create(rig->record, options->form.block_bytes, CACHE_BYTES, &rig->buffers), 0);
    assert_int_equal(image_open(rig->image, &rig->sb), 0);
    assert_int_equal(journal_open(rig->buffers, rig->record,
                                  options->has_no_journal ? NULL : &rig->image->location, &rig->sb,
                                  options->sequence, &journal_options, &rig->journal),
                     0);
    return rig;
}

int rig_close_journal(struct rig *rig)
{
    int error = 0;

    if (rig->journal != NULL)
        error = journal_close(rig->journal);
    rig->journal = NULL;
    if (!rig->may_fail)
        assert_int_equal(error, 0);
    return error;
}

void rig_destroy(struct rig *rig)
{
    (void)rig_close_journal(rig);
    buffer_cache_destroy(rig->buffers);
    device_close(rig->record);
    for (unsigned int i = 0; i < RIG_BLOCKS; i++) {
        pthread_mutex_destroy(&rig->blocks[i].mutex);
        free(rig->blocks[i].events);
    }
    pthread_mutex_destroy(&rig->mutex);
    image_destroy(rig->image);
    free(rig->first_bytes);
    free(rig->durables);
    free(rig);
}

/* ---- The workload --------------------------------------------------------------------------- */

static struct event *add_event(struct rig_block *block, enum event_kind kind,
                               journal_sequence sequence)
{
    if (block->event_count == block->event_capacity) {
        block->event_capacity = block->event_capacity * 2 + 16;
        block->events = realloc(block->events, block->event_capacity * sizeof(struct event));
        assert_non_null(block->events);
    }
    block->events[block->event_count] = (struct event){.kind = kind, .sequence = sequence};
    return &block->events[block->event_count++];
}

/* True, and counted, if a call failed in a test that is about failures. */
static bool has_failed(struct rig *rig, int error)
{
    if (error == 0)
        return false;
    rig->failures++;
    if (!rig->may_fail)
        fail_msg("a call failed with %d (seed %llu)", error, (unsigned long long)rig->options.seed);
    return true;
}

static void add_durable(struct rig *rig, journal_sequence sequence)
{
    size_t count = record_count(rig->record);

    pthread_mutex_lock(&rig->mutex);
    if (rig->durable_count == rig->durable_capacity) {
        rig->durable_capacity = rig->durable_capacity * 2 + 64;
        rig->durables = realloc(rig->durables, rig->durable_capacity * sizeof(struct durable));
        assert_non_null(rig->durables);
    }
    rig->durables[rig->durable_count++] = (struct durable){count, sequence};
    pthread_mutex_unlock(&rig->mutex);
}

/* Changes a buffer that is part of the handle's transaction, and notes it. */
static void write_stamp(struct rig_block *block, struct handle *handle, struct buffer *buffer)
{
    struct rig *rig = block->rig;
    uint64_t stamp = rig->next_stamp++;
    struct event *event = add_event(block, EVENT_WRITTEN, journal_handle_sequence(handle));

    event->stamp = stamp;
    rig_fill(block->block, stamp, journal_data(handle, buffer), rig->options.form.block_bytes);
}

/* What the cache shows must be what was written last, whatever became of it on the disk. */
static void check_cached(const struct rig_block *block, const struct buffer *buffer)
{
    const struct event *last;
    uint32_t block_bytes = block->rig->options.form.block_bytes;
    uint8_t *expected;

    if (block->event_count == 0)
        return;
    last = &block->events[block->event_count - 1];
    if (last->kind != EVENT_WRITTEN)
        return;
    expected = malloc(block_bytes);
    assert_non_null(expected);
    rig_fill(block->block, last->stamp, expected, block_bytes);
    if (memcmp(expected, buffer->data, block_bytes) != 0)
        fail_msg("the cache shows an old content of block %llu (seed %llu)",
                 (unsigned long long)block->block, (unsigned long long)block->rig->options.seed);
    free(expected);
}

static int change(struct rig_block *block, struct handle *handle)
{
    struct buffer *buffer;
    int error = buffer_get(block->rig->buffers, block->block, &buffer);

    if (error != 0)
        return error;
    if (!block->rig->may_fail)
        check_cached(block, buffer);
    error = journal_modify(handle, buffer);
    if (error == 0)
        write_stamp(block, handle, buffer);
    buffer_put(buffer);
    return error;
}

static int create(struct rig_block *block, struct handle *handle)
{
    struct buffer *buffer;
    int error = journal_create(handle, block->block, &buffer);

    if (error != 0)
        return error;
    block->use = USE_METADATA;
    write_stamp(block, handle, buffer);
    buffer_put(buffer);
    return 0;
}

static void freeing_committed(struct journal_callback *callback, int error)
{
    struct rig_block *block = container_of(callback, struct rig_block, callback);

    if (error != 0)
        return;
    pthread_mutex_lock(&block->mutex);
    assert_int_equal(block->use, USE_FREEING);
    block->use = USE_FREE;
    pthread_mutex_unlock(&block->mutex);
}

static int forget(struct rig_block *block, struct handle *handle, uint64_t random)
{
    int error = journal_forget(handle, block->block, 1);

    if (error != 0)
        return error;
    add_event(block, EVENT_FORGOTTEN, journal_handle_sequence(handle));
    block->use = USE_FREEING;
    if (random % 4 == 0) /* it comes back at once, and stays, or goes for good */
        error = create(block, handle);
    if (error != 0 || random % 8 == 0)
        return error;
    if (block->use == USE_METADATA) {
        error = journal_forget(handle, block->block, 1);
        if (error != 0)
            return error;
        add_event(block, EVENT_FORGOTTEN, journal_handle_sequence(handle));
        block->use = USE_FREEING;
    }
    block->callback.committed = freeing_committed;
    journal_on_commit(handle, &block->callback);
    return 0;
}

static int write_data(struct rig_block *block)
{
    struct rig *rig = block->rig;
    uint32_t block_bytes = rig->options.form.block_bytes;
    uint64_t stamp = rig->next_stamp++;
    size_t before = record_count(rig->record);
    uint8_t *bytes = malloc(block_bytes);
    struct event *event;
    int error;

    assert_non_null(bytes);
    rig_fill(block->block, stamp, bytes, block_bytes);
    error = device_write(rig->record, bytes, block_bytes, block->block * block_bytes, DEVICE_FUA);
    free(bytes);
    event = add_event(block, EVENT_DATA, 0);
    event->stamp = stamp;
    event->record_before = before;
    event->record_after = error != 0 ? SIZE_MAX : record_count(rig->record);
    block->use = USE_DATA;
    return error;
}

/* Sets *has_changed if the transaction has anything of it. */
static int operate(struct rig_block *block, struct handle *handle, uint64_t random,
                   bool *has_changed)
{
    int error = 0;

    pthread_mutex_lock(&block->mutex);
    switch (block->use) {
    case USE_METADATA:
        if (block->block >= DYNAMIC_FIRST && random % 3 == 0)
            error = forget(block, handle, random >> 8);
        else
            error = change(block, handle);
        break;
    case USE_FREE:
        if (random % 2 == 0) {
            error = write_data(block);
            pthread_mutex_unlock(&block->mutex);
            return error;
        }
        error = create(block, handle);
        break;
    case USE_DATA: /* the file that had it is gone */
        error = create(block, handle);
        break;
    case USE_FREEING:
        pthread_mutex_unlock(&block->mutex);
        return 0;
    }
    *has_changed = true;
    pthread_mutex_unlock(&block->mutex);
    return error;
}

/* One handle. False: the journal has failed. */
static bool run_operation(struct rig *rig, uint64_t *random)
{
    unsigned int count = 1 + (unsigned int)(random_next(random) % MAX_HANDLE);
    struct handle handle;
    journal_sequence sequence;
    bool has_changed = false;
    int error = journal_start(rig->journal, count * 2, &handle);

    if (has_failed(rig, error))
        return false;
    for (unsigned int i = 0; i < count && error == 0; i++) {
        struct rig_block *block = &rig->blocks[random_next(random) % RIG_BLOCKS];

        error = operate(block, &handle, random_next(random), &has_changed);
    }
    sequence = journal_handle_sequence(&handle);
    handle.wants_sync = random_next(random) % 100 < rig->options.sync_percent;
    if (error == 0) {
        bool is_synced = handle.wants_sync && has_changed;

        error = journal_stop(&handle);
        if (error == 0 && is_synced)
            add_durable(rig, sequence);
    } else {
        (void)journal_stop(&handle);
    }
    if (error == 0 && random_next(random) % 64 == 0)
        error = journal_checkpoint(rig->journal);
    return !has_failed(rig, error);
}

struct worker {
    pthread_t thread;
    struct rig *rig;
    uint64_t random;
};

static void *run_worker(void *argument)
{
    struct worker *worker = argument;

    for (unsigned int i = 0; i < worker->rig->options.operations; i++)
        if (!run_operation(worker->rig, &worker->random))
            break;
    return NULL;
}

void rig_run(struct rig *rig)
{
    struct worker workers[16];

    assert_true(rig->options.threads <= ARRAY_LENGTH(workers));
    for (unsigned int i = 0; i < rig->options.threads; i++) {
        workers[i].rig = rig;
        workers[i].random = rig->options.seed * 1000 + i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]), 0);
    }
    for (unsigned int i = 0; i < rig->options.threads; i++)
        pthread_join(workers[i].thread, NULL);
}

/* ---- Crashes -------------------------------------------------------------------------------- */

struct checker {
    struct rig *rig;
    struct image *target; /* where a state is built and recovered */
    uint8_t *flushed;     /* the image with all that is durable for sure */
    uint8_t *expected;
    struct crash_totals *totals;
    uint64_t random;
    size_t since_flush; /* the first record after the last flush */
    unsigned int wrong;
};

static void apply(uint8_t *bytes, const struct record_entry *entry)
{
    memcpy(bytes + entry->offset_bytes, entry->data, (size_t)entry->length_bytes);
}

/* Some of its sectors, chosen by chance. */
static void apply_torn(uint8_t *bytes, const struct record_entry *entry, uint64_t *random)
{
    for (uint64_t at = 0; at < entry->length_bytes; at += SECTOR_BYTES)
        if (random_next(random) % 2 == 0)
            memcpy(bytes + entry->offset_bytes + at, (const uint8_t *)entry->data + at,
                   SECTOR_BYTES);
}

static struct record_entry get_entry(const struct rig *rig, size_t index)
{
    struct record_entry entry;

    assert_int_equal(record_get(rig->record, index, &entry), 0);
    return entry;
}

/* Builds what the disk may hold when the power fails after `cut` records. Choice 0: all of them. */
static void build(struct checker *checker, size_t cut, unsigned int choice)
{
    uint8_t *bytes = checker->target->bytes;
    unsigned int keep_percent = (unsigned int)(random_next(&checker->random) % 101);

    memcpy(bytes, checker->flushed, checker->rig->size_bytes);
    for (size_t i = checker->since_flush; i < cut; i++) {
        struct record_entry entry = get_entry(checker->rig, i);

        if (entry.kind != RECORD_WRITE)
            continue;
        if (choice == 0 || (entry.flags & DEVICE_FUA) != 0 ||
            random_next(&checker->random) % 100 < keep_percent)
            apply(bytes, &entry);
        else if (random_next(&checker->random) % 2 == 0)
            apply_torn(bytes, &entry, &checker->random);
    }
    if (choice > 0 && cut < record_count(checker->rig->record)) { /* the write under way */
        struct record_entry entry = get_entry(checker->rig, cut);

        if (entry.kind == RECORD_WRITE)
            apply_torn(bytes, &entry, &checker->random);
    }
}

/* The last transaction that was reported durable before the cut. */
static journal_sequence required_at(const struct rig *rig, size_t cut)
{
    journal_sequence required = rig->options.sequence - 1;

    for (size_t i = 0; i < rig->durable_count; i++)
        if (rig->durables[i].record_count <= cut &&
            journal_sequence_is_after(rig->durables[i].sequence, required))
            required = rig->durables[i].sequence;
    return required;
}

/*
 * The content of a block after transaction `last`, if the power failed after `cut` records. False:
 * it may be anything.
 */
static bool find_expected(const struct checker *checker, const struct rig_block *block,
                          journal_sequence last, size_t cut, bool *is_data)
{
    const struct rig *rig = checker->rig;
    uint32_t block_bytes = rig->options.form.block_bytes;
    const struct event *current = NULL;
    bool is_known = true;

    for (size_t i = 0; i < block->event_count; i++) {
        const struct event *event = &block->events[i];

        if (event->kind == EVENT_DATA) {
            if (event->record_before > cut)
                break;
            is_known = event->record_after <= cut;
        } else {
            if (journal_sequence_is_after(event->sequence, last))
                break;
            is_known = event->kind == EVENT_WRITTEN;
        }
        current = event;
    }
    *is_data = current != NULL && current->kind == EVENT_DATA;
    if (!is_known)
        return false;
    if (current == NULL)
        memcpy(checker->expected, rig->first_bytes + block->block * block_bytes, block_bytes);
    else
        rig_fill(block->block, current->stamp, checker->expected, block_bytes);
    return true;
}

static const char *compare(struct checker *checker, journal_sequence last, size_t cut,
                           uint64_t *wrong_block)
{
    uint32_t block_bytes = checker->rig->options.form.block_bytes;

    for (unsigned int i = 0; i < RIG_BLOCKS; i++) {
        const struct rig_block *block = &checker->rig->blocks[i];
        bool is_data;

        if (!find_expected(checker, block, last, cut, &is_data))
            continue;
        checker->totals->checked_data += is_data;
        *wrong_block = block->block;
        if (memcmp(checker->expected, checker->target->bytes + block->block * block_bytes,
                   block_bytes) != 0)
            return is_data ? "file data was overwritten" : "not the content of that transaction";
    }
    return NULL;
}

/* Recovers the state in the target. Returns what is wrong with it, or NULL. */
static const char *recover_and_compare(struct checker *checker, size_t cut, uint64_t *wrong_block)
{
    struct image *target = checker->target;
    struct journal_superblock sb;
    struct journal_replay *replay;
    journal_sequence last;

    if (journal_read_superblock(&target->location, &sb) != 0)
        return "its journal superblock is refused";
    if (journal_scan(&target->location, &sb, &replay) != 0)
        return "its journal is refused";
    last = sb.sequence + replay->transactions - 1;
    checker->totals->transactions += replay->transactions;
    checker->totals->replayed_blocks += replay->entry_count;
    checker->totals->revoked_blocks += replay->revoked_blocks;
    for (size_t i = 0; i < replay->entry_count; i++)
        checker->totals->escaped_blocks += replay->entries[i].is_escaped;
    bool had_bad_blocks = replay->had_bad_blocks;
    int error = journal_replay_apply(&target->location, &sb, replay);
    journal_replay_free(replay);
    if (had_bad_blocks)
        return "its journal has a wrong checksum";
    if (error != 0)
        return "its journal cannot be replayed";
    *wrong_block = last;
    if (journal_sequence_is_after(required_at(checker->rig, cut), last))
        return "a durable transaction is missing";
    return compare(checker, last, cut, wrong_block);
}

static void check_state(struct checker *checker, size_t cut, unsigned int choice)
{
    uint64_t seed = checker->random;
    uint64_t wrong_block = 0;
    const char *problem;

    build(checker, cut, choice);
    checker->totals->states++;
    problem = recover_and_compare(checker, cut, &wrong_block);
    if (problem == NULL)
        return;
    if (checker->wrong++ < 3)
        printf("# crash state: seed %llu, cut %zu, choice %u, random %llu: %s (%llu)\n",
               (unsigned long long)checker->rig->options.seed, cut, choice,
               (unsigned long long)seed, problem, (unsigned long long)wrong_block);
}

/* A flush has ended: what was written before it is durable. */
static void pass_flush(struct checker *checker, size_t flush)
{
    for (size_t i = checker->since_flush; i < flush; i++) {
        struct record_entry entry = get_entry(checker->rig, i);

        if (entry.kind == RECORD_WRITE)
            apply(checker->flushed, &entry);
    }
    checker->since_flush = flush;
}

unsigned int rig_check_crashes(struct rig *rig, unsigned int subsets, struct crash_totals *totals)
{
    struct checker checker = {
        .rig = rig,
        .target = image_create(&rig->options.form, rig->options.journal_blocks,
                               rig->options.sequence, 0),
        .flushed = malloc(rig->size_bytes),
        .expected = malloc(rig->options.form.block_bytes),
        .totals = totals,
        .random = rig->options.seed,
    };
    size_t count = record_count(rig->record);

    assert_non_null(checker.flushed);
    assert_non_null(checker.expected);
    memcpy(checker.flushed, rig->first_bytes, rig->size_bytes);
    for (size_t cut = 0; cut <= count; cut++) {
        for (unsigned int choice = 0; choice <= subsets; choice++)
            check_state(&checker, cut, choice);
        if (cut < count && get_entry(rig, cut).kind == RECORD_FLUSH)
            pass_flush(&checker, cut);
    }
    image_destroy(checker.target);
    free(checker.flushed);
    free(checker.expected);
    return checker.wrong;
}

const char *rig_check_final(struct rig *rig, int32_t *noted_error)
{
    struct crash_totals totals = {0};
    struct journal_superblock sb;
    uint64_t wrong_block;
    const char *problem;
    struct checker checker = {
        .rig = rig,
        .target = image_create(&rig->options.form, rig->options.journal_blocks,
                               rig->options.sequence, 0),
        .expected = malloc(rig->options.form.block_bytes),
        .totals = &totals,
    };

    assert_non_null(checker.expected);
    memcpy(checker.target->bytes, rig->image->bytes, rig->size_bytes);
    assert_int_equal(image_open(checker.target, &sb), 0);
    *noted_error = sb.error;
    problem = recover_and_compare(&checker, record_count(rig->record), &wrong_block);
    image_destroy(checker.target);
    free(checker.expected);
    return problem;
}
