/* SPDX-License-Identifier: MIT */
/*
 * Transactions: groups of changes to metadata blocks that reach the disk together or not at all.
 *
 * One transaction is running: handles join it and change buffers. One may be committing. A commit
 *
 *   1. closes the transaction to new handles and waits for those it has,
 *   2. copies its buffers and opens the next transaction: handles go on from here,
 *   3. calls the data callback (ordered mode waits for file data in it),
 *   4. writes descriptors, copies and revokes to the log, flushes, and writes the commit block with
 *      FUA,
 *   5. calls the commit callbacks; whoever waits for it goes on.
 *
 * The copies go home later, in the background or when the log or their memory runs short
 * (checkpoint); the newest committed copy of a block is the one that counts. A buffer stays held
 * until it is home.
 *
 * Without a journal on the disk (no location) the same calls serve: a commit writes the copies home
 * and flushes, so that what was committed is there, but a crash in the middle of it leaves what
 * e2fsck must mend.
 *
 * Handles never wait for file data. What a handle may wait for: a commit that copies, room in the
 * running transaction, room in the log. So nobody starts a handle while holding a lock that a
 * holder of another handle may want, but those that LOCKING.md places before it.
 *
 * Buffers' content is guarded by the locks of whoever knows what is in them; the commit copies them
 * while no handle is open.
 */
#ifndef UEXT4_JOURNAL_JOURNAL_H
#define UEXT4_JOURNAL_JOURNAL_H

#include "block/buffer.h"
#include "journal/recovery.h"

struct journal;
struct transaction;

typedef uint32_t journal_sequence; /* compare with journal_sequence_is_after: it wraps */

struct journal_options {
    uint32_t commit_interval_ms; /* a transaction commits at this age at the latest; 0: 5000 */
    size_t max_copy_bytes;       /* committed copies not home yet: past this the checkpoint starts
                                    by itself, past 4 times this commits wait for it; 0: 16 MiB */
    const struct log *log;
};

/* A change in progress; lives on its owner's stack, belongs to one thread. */
struct handle {
    struct journal *journal;
    struct transaction *transaction;
    uint32_t credits;        /* blocks that it may still add to its transaction */
    unsigned int join_shard; /* the journal's */
    bool wants_sync;
};

/*
 * A function that a transaction calls when it has committed, in the commit thread; or, with an
 * error, when it never will: then in journal_close at the latest. No lock is held. It may free the
 * callback; it starts no handle and waits for no commit.
 */
struct journal_callback {
    void (*committed)(struct journal_callback *callback, int error);
    struct journal_callback *next; /* the journal's */
};

/*
 * Starts on an empty log (after recovery), at `sequence`, which no transaction in the journal may
 * ever have had: what the superblock or the replay says comes next. `location` NULL: no journal on
 * the disk, and `sb` is not looked at. The location and its extents are copied. Starts the threads
 * for commits and checkpoints. Marks nothing on the disk before the first commit.
 *
 * The format is the one that `sb` asks for by its features; the caller may have changed them as
 * long as the log is empty (mke2fs leaves them out, the kernel sets 64BIT and CSUM_V3 when it
 * mounts). Revokes are always asked for; a superblock of version 1 becomes one of version 2. With
 * the checksum of version 1 commits carry it.
 *
 * -EBUSY if the log is not empty, -EINVAL if it is smaller than 16 blocks, -EOPNOTSUPP for unknown
 * read-only compatible features.
 */
int journal_open(struct buffer_cache *buffers, struct device *device,
                 const struct journal_location *location, const struct journal_superblock *sb,
                 journal_sequence sequence, const struct journal_options *options,
                 struct journal **journal) MUST_CHECK;

/*
 * Commits, writes everything home, marks the log empty, flushes, and frees. No handle may be open.
 * Returns the first error that kept something from the disk; frees all the same.
 */
int journal_close(struct journal *journal);

/*
 * Joins the running transaction with room for `credits` blocks. May wait (see above). -EROFS once
 * the journal has aborted, -ENOSPC if no transaction can hold so many: the bound is a quarter of
 * the log and 16384 blocks, 4096 without a log. Threads that only join and leave take no lock.
 */
int journal_start(struct journal *journal, uint32_t credits, struct handle *handle) MUST_CHECK;

/*
 * Asks for more room without waiting. -ENOSPC: end the handle in a state fit to be committed, and
 * start anew. Also when the transaction is about to commit: a handle that goes on would hold up
 * everybody.
 */
int journal_extend(struct handle *handle, uint32_t credits) MUST_CHECK;

/* Leaves the transaction, and waits for its commit if wants_sync is set (returns its error). */
int journal_stop(struct handle *handle);

/*
 * Makes a buffer part of the handle's transaction; to be called before its content is changed, and
 * enough once per handle. Costs a credit if the transaction does not have it yet. Cancels a revoke.
 * -EROFS, -ENOMEM, -ENOSPC (no credits left: a mistake of the caller, logged).
 */
int journal_modify(struct handle *handle, struct buffer *buffer) MUST_CHECK;

/* The content of a buffer that is part of the handle's transaction, to be changed. */
void *journal_data(struct handle *handle, struct buffer *buffer);

/*
 * Gives a buffer for a block that was just allocated, zeroed, part of the transaction, without
 * reading it.
 */
int journal_create(struct handle *handle, uint64_t block, struct buffer **buffer) MUST_CHECK;

/*
 * Says that `count` metadata blocks are freed: they leave the transaction, are not written home by
 * an older checkpoint any more, and are revoked, so that a replay does not overwrite what is put
 * there next. Their buffers are forgotten. Costs no credits. The blocks may be used for something
 * else only when the handle's transaction has committed; a checkpoint before that still writes
 * their committed content home. -ENOSPC if the transaction has no room for the revokes: as for
 * journal_extend. -ENOMEM, with some of the blocks freed, -EROFS.
 */
int journal_forget(struct handle *handle, uint64_t block, uint32_t count) MUST_CHECK;

/* Registers a callback with the handle's transaction. */
void journal_on_commit(struct handle *handle, struct journal_callback *callback);

/* The sequence of the handle's transaction; for journal_commit later. */
journal_sequence journal_handle_sequence(const struct handle *handle);

/* The sequence of the running transaction. */
journal_sequence journal_running_sequence(struct journal *journal);

/*
 * Starts the commit of that transaction if it is still running, and waits until it is on the disk.
 * Callers that want the same one share its commit. 0 at once if it has committed, or if it is
 * running and nothing was changed in it: then it goes on. The caller holds no handle. -EROFS if the
 * journal had aborted before the call, else the error that aborts it; -EINVAL for a sequence that
 * has not begun.
 */
int journal_commit(struct journal *journal, journal_sequence sequence);

/*
 * As journal_commit, and whatever was written to the device before the call is durable too. Costs a
 * flush of its own only if the transaction was not running any more at the call: the flush of its
 * commit may have begun before.
 */
int journal_sync(struct journal *journal, journal_sequence sequence);

/* Whether that transaction is on the disk. Does not wait. */
bool journal_has_committed(struct journal *journal, journal_sequence sequence);

/* Commits what is running, if anything, and waits. */
int journal_commit_all(struct journal *journal);

/* Writes everything committed so far home, and marks the log empty unless more has committed. */
int journal_checkpoint(struct journal *journal);

/*
 * What a commit calls after step 2, before it writes to the log. For ordered mode: what it has
 * written when it returns is durable before the commit. An error aborts the journal, as the
 * transaction may refer to what could not be written.
 */
void journal_set_data_callback(struct journal *journal,
                               int (*callback)(void *context, journal_sequence sequence),
                               void *context);

/*
 * From now on every change fails with -EROFS; reads go on. `error` is what went wrong; it is noted
 * in the journal's superblock if that can still be written. Commits under way fail.
 */
void journal_abort(struct journal *journal, int error);
bool journal_is_aborted(const struct journal *journal);

/* For tests and statistics. */
struct journal_statistics {
    uint64_t commits, blocks_logged, revokes, checkpoints, blocks_home, flushes;
    uint64_t starts, start_waits; /* handles, and how many of them had to wait */
};

void journal_get_statistics(struct journal *journal, struct journal_statistics *result);

static inline bool journal_sequence_is_after(journal_sequence a, journal_sequence b)
{
    return (int32_t)(a - b) > 0;
}

#endif
