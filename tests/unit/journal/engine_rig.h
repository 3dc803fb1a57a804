/* SPDX-License-Identifier: MIT */
/*
 * A journal engine over a test image that records its writes, a workload of several threads, and a
 * model of what each block must hold after each transaction.
 *
 * Blocks are metadata for good (FIXED), or come and go (DYNAMIC): created, changed, freed, used for
 * file data once the freeing has committed, and created again. Each block's history lists what was
 * done to it with the transaction that it belongs to, so that its content after any transaction is
 * known; that of data is known by its place in the record.
 */
#ifndef UEXT4_TEST_JOURNAL_ENGINE_RIG_H
#define UEXT4_TEST_JOURNAL_ENGINE_RIG_H

#include <pthread.h>

#include "block/record.h"
#include "image.h"
#include "journal/journal.h"

#define FIXED_FIRST    2u
#define FIXED_COUNT    32u
#define DYNAMIC_FIRST  132u
#define DYNAMIC_COUNT  48u
#define RIG_BLOCKS     (FIXED_COUNT + DYNAMIC_COUNT)
#define RIG_MAX_EVENTS 4096u

enum event_kind {
    EVENT_WRITTEN,   /* by a transaction, with a stamp */
    EVENT_FORGOTTEN, /* by a transaction */
    EVENT_DATA,      /* written past the journal, durably */
};

struct event {
    enum event_kind kind;
    journal_sequence sequence;
    uint64_t stamp;
    size_t record_before, record_after; /* of data */
};

enum block_use { USE_METADATA, USE_FREEING, USE_FREE, USE_DATA };

struct rig_block {
    struct journal_callback callback; /* of its freeing */
    struct rig *rig;
    pthread_mutex_t mutex;
    uint64_t block;
    enum block_use use;
    struct event *events;
    size_t event_count, event_capacity;
};

struct durable {
    size_t record_count;
    journal_sequence sequence;
};

struct rig_options {
    struct form form;
    uint32_t journal_blocks;
    journal_sequence sequence;
    bool has_no_journal;
    uint32_t commit_interval_ms;
    size_t max_copy_bytes;
    unsigned int threads, operations;
    uint64_t seed;
    unsigned int sync_percent;
    struct device *(*stack)(struct device *lower); /* between the record and the disk, or NULL */
};

struct rig {
    struct rig_options options;
    struct image *image;
    uint8_t *first_bytes; /* the image before the workload */
    size_t size_bytes;
    struct device disk; /* the image's bytes, for many threads */
    struct device *record;
    struct buffer_cache *buffers;
    struct journal_superblock sb;
    struct journal *journal;
    struct rig_block blocks[RIG_BLOCKS];
    pthread_mutex_t mutex;
    struct durable *durables;
    size_t durable_count, durable_capacity;
    _Atomic uint64_t next_stamp;
    _Atomic unsigned int failures; /* calls that returned an error */
    bool may_fail;                 /* errors are part of the test */
};

struct rig *rig_create(const struct rig_options *options);
void rig_destroy(struct rig *rig);

/* Runs the workload's threads to their end. */
void rig_run(struct rig *rig);

/* Closes the journal, which must succeed unless the rig may fail. */
int rig_close_journal(struct rig *rig);

void rig_fill(uint64_t block, uint64_t stamp, uint8_t *bytes, size_t length);

struct crash_totals {
    uint64_t states, transactions, replayed_blocks, revoked_blocks, escaped_blocks, checked_data;
};

/*
 * Recovers the image as it may be after a power cut at each place of the record, with `subsets`
 * seeded choices for the writes that were not flushed, and compares it with the model. Returns the
 * number of states that are wrong; prints the first with what replays it.
 */
unsigned int rig_check_crashes(struct rig *rig, unsigned int subsets, struct crash_totals *totals);

/* Recovers the image as it is, and compares it so. Returns what is wrong, or NULL. */
const char *rig_check_final(struct rig *rig, int32_t *noted_error);

uint64_t random_next(uint64_t *state);

#endif
