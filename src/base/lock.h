/* SPDX-License-Identifier: MIT */
/*
 * Mutexes and reader-writer locks that know their place in the lock order (LOCKING.md).
 *
 * Debug builds (-DUEXT4_CHECK_LOCK_ORDER) keep, per thread, the ranks of the locks it holds, and
 * abort with both names when a lock is taken whose rank is not above all of them. Locks of one rank
 * may be held together only where the rank says so (see lock.c).
 */
#ifndef UEXT4_BASE_LOCK_H
#define UEXT4_BASE_LOCK_H

#include <pthread.h>

#include "base/compiler.h"

/* Lowest first: a thread takes locks in rising rank. The order of LOCKING.md. */
enum lock_rank {
    LOCK_RANK_FS,              /* state of a mounted file system, such as its first statfs */
    LOCK_RANK_RENAME,          /* moves of directories, one at a time */
    LOCK_RANK_NAMES,           /* a directory's entries; several: parents first, then by number */
    LOCK_RANK_JOURNAL_HANDLE,  /* an open handle: not a lock, but others wait for its end */
    LOCK_RANK_INODE_LOAD,      /* one inode's reading from the disk */
    LOCK_RANK_ORPHANS,         /* the orphan list */
    LOCK_RANK_XATTR,           /* an inode's extended attributes */
    LOCK_RANK_MAP,             /* an inode's map: extent tree or indirect blocks */
    LOCK_RANK_MAP_CACHE,       /* mapping cache of an inode */
    LOCK_RANK_INODE_FIELDS,    /* an inode's fields in memory, and their bytes in the table */
    LOCK_RANK_GROUP,           /* a block group's bitmaps and counts */
    LOCK_RANK_FREED,           /* what the running transaction has freed */
    LOCK_RANK_DESCRIPTOR,      /* bytes of a group's descriptor, of the superblock */
    LOCK_RANK_BUFFER_LOAD,     /* one metadata block's reading from the device */
    LOCK_RANK_INODE_TABLE,     /* shard of the inode hash */
    LOCK_RANK_JOURNAL_STATE,   /* the transactions, the log and who waits for them */
    LOCK_RANK_JOURNAL_RECORDS, /* shard of the journal's knowledge of buffers */
    LOCK_RANK_BUFFER_TABLE,    /* shard of the buffer hash */
    LOCK_RANK_DEVICE,          /* inside a device or a filter */
    LOCK_RANK_DEVICE_QUEUE,    /* inside an asynchronous queue */
    LOCK_RANK_RANGE_LIST,      /* who has which range of a file, while it is looked at */
    LOCK_RANK_LEAF,            /* takes no further lock */
};

struct CAPABILITY("mutex") mutex {
    pthread_mutex_t pthread;
#ifdef UEXT4_CHECK_LOCK_ORDER
    enum lock_rank rank;
    const char *name;
#endif
};

struct CAPABILITY("mutex") rwlock {
    pthread_rwlock_t pthread;
#ifdef UEXT4_CHECK_LOCK_ORDER
    enum lock_rank rank;
    const char *name;
#endif
};

struct condition {
    pthread_cond_t pthread; /* waits on the monotonic clock */
};

/* `name` must outlive the lock; a literal. */
void mutex_init(struct mutex *mutex, enum lock_rank rank, const char *name);
void mutex_destroy(struct mutex *mutex);
void mutex_lock(struct mutex *mutex) ACQUIRE(mutex);
void mutex_unlock(struct mutex *mutex) RELEASE(mutex);

void rwlock_init(struct rwlock *lock, enum lock_rank rank, const char *name);
void rwlock_destroy(struct rwlock *lock);
void rwlock_read_lock(struct rwlock *lock) ACQUIRE_SHARED(lock);
void rwlock_read_unlock(struct rwlock *lock) RELEASE_SHARED(lock);
void rwlock_write_lock(struct rwlock *lock) ACQUIRE(lock);
void rwlock_write_unlock(struct rwlock *lock) RELEASE(lock);

void condition_init(struct condition *condition);
void condition_destroy(struct condition *condition);
void condition_wait(struct condition *condition, struct mutex *mutex) REQUIRES(mutex);
/* Waits until the monotonic time `deadline_ns`. Returns 0 when woken, -ETIMEDOUT otherwise. */
int condition_wait_until(struct condition *condition, struct mutex *mutex, uint64_t deadline_ns)
    REQUIRES(mutex);
void condition_signal(struct condition *condition);
void condition_broadcast(struct condition *condition);

/*
 * For the order check alone: from here to the leave, the thread has something that others wait for
 * as for a lock. `place` tells it from others.
 */
void lock_order_enter(const void *place, enum lock_rank rank, const char *name);
void lock_order_leave(const void *place, const char *name);

#endif
