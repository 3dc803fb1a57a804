/* SPDX-License-Identifier: MIT */
/*
 * What the files of the engine behind journal.h share. Nobody else includes this.
 *
 *   journal.c     opening, closing, aborting, waiting for commits
 *   handle.c      joining a transaction, changing buffers
 *   transaction.c the two transactions: closing, copying, opening, what a commit leaves behind
 *   commit.c      the commit thread
 *   log.c         the log on the disk: space, superblock
 *   log_write.c   the blocks of a transaction
 *   checkpoint.c  the checkpoint thread
 *   home.c        copies: their memory, and writing them home
 *   revoke.c      revokes of a transaction
 *
 * Locks, in their order: `state`, then a record shard's mutex, then those of the buffer cache.
 * Fields are tagged with what guards them: [state], [shard], [atomic], [immutable], [commit] for
 * the commit thread alone, [checkpoint] for the checkpoint thread alone (for both, the caller of
 * journal_open and journal_close while they do not run).
 */
#ifndef UEXT4_JOURNAL_ENGINE_H
#define UEXT4_JOURNAL_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/lock.h"
#include "format/journal.h"
#include "journal/journal.h"

#define JOIN_SHARD_COUNT   16
#define RECORD_SHARD_COUNT 16
#define CACHE_LINE_BYTES   64

/* The content of a block as one transaction has it; `data` is filled when that commits. */
struct journal_copy {
    struct journal_buffer *record; /* [immutable] */
    uint64_t block;                /* [immutable] */
    void *data;                    /* [commit], from its commit on constant */
    struct list link;              /* in transaction.copies [shard], logged.copies [state], pool */
    struct logged *logged;         /* [state] */
    bool is_new;                   /* [shard] its block was allocated in this very transaction */
    bool is_escaped;               /* [commit] */
    bool is_writing;               /* [state] on its way home: its batch frees it */
};

/*
 * What the journal knows of a buffer; hangs at buffer->private, and holds the buffer, as long as
 * any copy of it exists. buffer->private_mark says in which running transaction the buffer is.
 */
struct journal_buffer {
    struct buffer *buffer;           /* [immutable] */
    struct journal_copy *running;    /* [shard] in the running transaction */
    struct journal_copy *committing; /* [shard] */
    struct journal_copy *committed;  /* [shard] the newest that is in the log and not home */
    unsigned int copy_count;         /* [shard] these, and an older one being written home */
    bool is_forgotten;               /* [shard] freed: forget the buffer with the record */
    bool is_writing;                 /* [state] a copy is on its way home */
};

/* Block numbers; open addressing, never more than half full. */
struct revoke_set {
    uint64_t *slots;
    size_t capacity; /* 0 or a power of two */
    size_t count;
};

enum transaction_state {
    TRANSACTION_IDLE,
    TRANSACTION_OPEN,
    TRANSACTION_CLOSED, /* its commit is under way */
};

struct join_shard {
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t handles; /* [atomic] */
    _Atomic uint64_t starts;                             /* [atomic] */
};

struct transaction {
    _Atomic enum transaction_state state;          /* [atomic] changes under the state mutex */
    _Atomic journal_sequence sequence;             /* [atomic] constant unless idle */
    _Atomic uint32_t credits;                      /* [atomic] blocks it has or has promised */
    _Atomic uint32_t revoke_count;                 /* [atomic] */
    atomic_bool is_dirty;                          /* [atomic] there is something to commit */
    _Atomic uint64_t dirty_since_ns;               /* [atomic] */
    _Atomic(struct journal_callback *) callbacks;  /* [atomic] newest first */
    struct list copies[RECORD_SHARD_COUNT];        /* [shard] */
    struct revoke_set revokes[RECORD_SHARD_COUNT]; /* [shard] until it is closed, then constant */
    struct join_shard joins[JOIN_SHARD_COUNT];
};

/* A transaction in the log. */
struct logged {
    struct list link; /* [state] in journal.logged, oldest first */
    journal_sequence sequence;
    uint32_t start_block, block_count; /* where it begins, and its length */
    struct list copies;                /* [state] those that must go home before the tail passes */
    bool is_committed;                 /* [state] */
};

struct record_shard {
    _Alignas(CACHE_LINE_BYTES) struct mutex mutex;
};

struct journal {
    struct buffer_cache *buffers;     /* [immutable] */
    struct device *device;            /* [immutable] */
    const struct log *log;            /* [immutable] */
    uint32_t block_bytes;             /* [immutable] */
    bool has_log;                     /* [immutable] */
    bool can_write_vectored;          /* [immutable] the device takes blocks as they are */
    uint32_t max_blocks, max_revokes; /* [immutable] of one transaction */
    uint64_t commit_interval_ns;      /* [immutable] */
    size_t max_copy_bytes;            /* [immutable] */
    struct journal_location location; /* [immutable] */
    struct journal_extent *extents;   /* [immutable] the location's */
    struct journal_superblock sb;     /* [immutable] geometry and features */
    struct journal_layout layout;     /* [immutable] */

    _Atomic(struct transaction *) running; /* [atomic] changes under the state mutex */
    _Atomic int abort_error;               /* [atomic] 0: not aborted */
    struct transaction transactions[2];    /* by the lowest bit of the sequence */
    struct record_shard shards[RECORD_SHARD_COUNT];

    struct mutex state;
    struct condition opened;             /* a transaction opened */
    struct condition left;               /* a handle left a closed transaction */
    struct condition committed;          /* committed_sequence moved */
    struct condition progress;           /* log space, the superblock or a checkpoint's batch */
    struct condition commit_wake;        /* work for the commit thread */
    struct condition checkpoint_wake;    /* work for the checkpoint thread */
    journal_sequence committed_sequence; /* [state] */
    bool is_commit_requested;            /* [state] of the running transaction */
    bool is_commit_stopping, is_checkpoint_stopping; /* [state] */
    bool is_error_noted;                             /* [state] on the disk */
    unsigned int checkpoint_waiters;                 /* [state] who want everything home */
    journal_sequence checkpoint_goal;                /* [state] that is, up to this transaction */
    bool is_checkpoint_draining; /* [state] above the bounds, and not far below yet */

    struct list logged;                 /* [state] */
    journal_sequence next_log_sequence; /* [state] of the next transaction in the log */
    uint32_t log_head;                  /* [state] journal block that is written next */
    uint32_t log_used;                  /* [state] blocks from the tail on the disk to it */
    uint32_t log_wanted;                /* [state] free blocks that a commit waits for */
    bool is_marked_empty;               /* [state] the superblock says so */
    bool is_superblock_busy;            /* [state] somebody writes it */
    uint8_t raw_superblock[JOURNAL_SUPERBLOCK_BYTES]; /* whoever set is_superblock_busy */

    _Atomic size_t copy_bytes; /* [atomic] of copies committed and not home */
    struct mutex pool_mutex;
    struct list pool;  /* [pool_mutex] copies out of use */
    size_t pool_count; /* [pool_mutex] */

    int (*data_callback)(void *context, journal_sequence sequence); /* [state] */
    void *data_context;                                             /* [state] */

    pthread_t commit_thread, checkpoint_thread; /* [immutable] */
    uint8_t *scratch;                           /* [commit] descriptors, revokes, the commit */
    uint64_t last_seconds;                      /* [commit] time of the last commit */
    struct device_queue *home_queue;            /* [checkpoint], or [commit] without a log */

    _Atomic uint64_t commits, blocks_logged, revokes, checkpoints, blocks_home, flushes,
        start_waits; /* [atomic] */
};

static inline bool is_aborted(const struct journal *journal)
{
    return atomic_load_explicit(&journal->abort_error, memory_order_acquire) != 0;
}

static inline void count_event(_Atomic uint64_t *counter, uint64_t count)
{
    atomic_fetch_add_explicit(counter, count, memory_order_relaxed);
}

static inline unsigned int record_shard_index(uint64_t block)
{
    return (unsigned int)((block * 0x9e3779b97f4a7c15u) >> 60);
}

_Static_assert(RECORD_SHARD_COUNT == 16, "record_shard_index takes the top 4 bits");

uint64_t journal_now_ns(void); /* monotonic */

/* ---- journal.c ---- */

/* Flushes the device; logs and returns the error. */
int journal_flush(struct journal *journal) MUST_CHECK;

/* ---- transaction.c ---- */

void transaction_init(struct transaction *transaction);
void transaction_destroy(struct transaction *transaction);

/* Opens the transaction of a sequence to handles. */
void transaction_open_locked(struct journal *journal, journal_sequence sequence)
    REQUIRES(&journal->state);

/* Closes the running transaction and waits for its handles. */
struct transaction *transaction_close_locked(struct journal *journal) REQUIRES(&journal->state);

/*
 * Copies the buffers of a closed transaction whose handles have left. The copies are then in
 * *copies, an array of *count for the caller to free.
 */
int transaction_copy(struct journal *journal, struct transaction *transaction,
                     struct journal_copy ***copies, size_t *count) MUST_CHECK;

/*
 * The transaction is on the disk. With a log its copies become the newest of their blocks and are
 * listed with `logged`; without one they are home, and are freed. What the transaction revoked is
 * kept from going home: waits for a checkpoint's batch that is writing it now.
 */
void transaction_finish(struct journal *journal, struct transaction *transaction,
                        struct logged *logged, struct journal_copy **copies, size_t count);

/* Calls the callbacks, oldest first. */
void transaction_call(struct transaction *transaction, int error);

/*
 * The transaction did not reach the disk, and the journal has aborted. Its copies stay, and with
 * them the buffers, so that readers go on to see what was changed.
 */
void transaction_keep(struct journal *journal, struct transaction *transaction,
                      struct journal_copy **copies, size_t count);

/* Makes the transaction idle; it has no copies. */
void transaction_reset(struct transaction *transaction);

/* Frees whatever a journal that aborted has left; no thread runs. */
void transaction_discard_all(struct journal *journal);

/*
 * Frees a copy that is in no list. The record goes with its last copy, and with it the buffer of a
 * freed block.
 */
void record_drop_copy_locked(struct journal *journal, struct record_shard *shard,
                             struct journal_copy *copy) REQUIRES(&shard->mutex);

/* ---- handle.c ---- */

/* Says that the transaction has something to commit. True if it had nothing before. */
bool transaction_set_dirty(struct transaction *transaction);

/* So, and wakes the commit thread, which keeps the time. */
void transaction_mark_dirty(struct journal *journal, struct transaction *transaction);

/* ---- commit.c ---- */

void *commit_run(void *journal);

/* ---- log.c ---- */

int log_open(struct journal *journal, const struct journal_location *location,
             const struct journal_superblock *sb) MUST_CHECK;
void log_close(struct journal *journal);

/* Writes a closed transaction to the log and makes it durable. Waits for log space. */
int log_write_transaction(struct journal *journal, struct transaction *transaction,
                          struct journal_copy **copies, size_t count,
                          struct logged **logged) MUST_CHECK;

/* Gives the space of transactions that are home back. Their writes have been flushed. */
int log_advance_tail(struct journal *journal) MUST_CHECK;

/* Marks the log empty if it is. */
int log_mark_empty(struct journal *journal) MUST_CHECK;

/* Notes the error of an aborted journal. */
void log_note_error(struct journal *journal);

/* ---- log_write.c ---- */

#define LOG_SCRATCH_BLOCKS 16u

/* The blocks that a closed transaction takes in the log. */
uint32_t log_count_blocks(const struct journal *journal, struct transaction *transaction,
                          size_t count);

/* Writes them, and makes them durable. */
int log_write_blocks(struct journal *journal, struct transaction *transaction,
                     const struct logged *logged, struct journal_copy **copies,
                     size_t count) MUST_CHECK;

/* ---- checkpoint.c ---- */

void *checkpoint_run(void *journal);

/* Starts the checkpoint if the log or the copies' memory call for it. */
void checkpoint_consider_locked(struct journal *journal) REQUIRES(&journal->state);

/* ---- home.c ---- */

struct journal_copy *copy_allocate(struct journal *journal);
void copy_free(struct journal *journal, struct journal_copy *copy);
void copy_pool_destroy(struct journal *journal);

/* Writes copies home, in the order of their blocks, which the array has afterwards. No flush. */
int home_write(struct journal *journal, struct journal_copy **copies, size_t count) MUST_CHECK;

/* ---- revoke.c ---- */

/* -ENOMEM; adding twice is harmless. */
int revoke_set_add(struct revoke_set *set, uint64_t block, bool *is_added) MUST_CHECK;
bool revoke_set_remove(struct revoke_set *set, uint64_t block);
void revoke_set_clear(struct revoke_set *set);

/* Steps through a set: *position begins as 0. */
bool revoke_set_next(const struct revoke_set *set, size_t *position, uint64_t *block);

/* Keeps what a committed transaction revoked from going home, and forgets its buffers. */
void revoke_apply(struct journal *journal, struct transaction *transaction);

#endif
