/* SPDX-License-Identifier: MIT */
/*
 * The lock wrappers over pthreads, and the order check of debug builds.
 *
 * The check keeps a small stack of held ranks per thread. A violation is a bug of ours that shows
 * as a deadlock only under bad luck, so it aborts at once and names both locks.
 */
#include "base/lock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef UEXT4_CHECK_LOCK_ORDER

#define MAX_HELD 16

static _Thread_local struct {
    unsigned int count;
    struct {
        const void *lock;
        enum lock_rank rank;
        const char *name;
    } held[MAX_HELD];
} order;

/* Locks of which a thread may hold several: in an order that their own place says (lock.h). */
static bool may_repeat(enum lock_rank rank)
{
    return rank == LOCK_RANK_NAMES;
}

static void order_acquire(const void *lock, enum lock_rank rank, const char *name)
{
    for (unsigned int i = 0; i < order.count; i++) {
        if (order.held[i].rank > rank || (order.held[i].rank == rank && !may_repeat(rank))) {
            fprintf(stderr, "lock order: %s (rank %d) taken while holding %s (rank %d)\n", name,
                    (int)rank, order.held[i].name, (int)order.held[i].rank);
            abort();
        }
    }
    if (order.count == MAX_HELD) {
        fprintf(stderr, "lock order: more than %d locks held when taking %s\n", MAX_HELD, name);
        abort();
    }
    order.held[order.count].lock = lock;
    order.held[order.count].rank = rank;
    order.held[order.count].name = name;
    order.count++;
}

static void order_release(const void *lock, const char *name)
{
    for (unsigned int i = order.count; i-- > 0;) {
        if (order.held[i].lock == lock) {
            order.count--;
            for (unsigned int j = i; j < order.count; j++)
                order.held[j] = order.held[j + 1];
            return;
        }
    }
    fprintf(stderr, "lock order: %s released by a thread that does not hold it\n", name);
    abort();
}

#define ORDER_INIT(lock, lock_rank, lock_name) \
    ((lock)->rank = (lock_rank), (lock)->name = (lock_name))
#define ORDER_ACQUIRE(lock) order_acquire(lock, (lock)->rank, (lock)->name)
#define ORDER_RELEASE(lock) order_release(lock, (lock)->name)

#else

#define ORDER_INIT(lock, lock_rank, lock_name) ((void)(lock_rank), (void)(lock_name))
#define ORDER_ACQUIRE(lock)                    ((void)0)
#define ORDER_RELEASE(lock)                    ((void)0)

#endif

void lock_order_enter(const void *place, enum lock_rank rank, const char *name)
{
#ifdef UEXT4_CHECK_LOCK_ORDER
    order_acquire(place, rank, name);
#else
    (void)place, (void)rank, (void)name;
#endif
}

void lock_order_leave(const void *place, const char *name)
{
#ifdef UEXT4_CHECK_LOCK_ORDER
    order_release(place, name);
#else
    (void)place, (void)name;
#endif
}

/* The pthread calls below fail only when they are misused, which is a bug of ours. */
static void require(int error, const char *call)
{
    if (error != 0) {
        fprintf(stderr, "uext4: %s failed with error %d\n", call, error);
        abort();
    }
}

void mutex_init(struct mutex *mutex, enum lock_rank rank, const char *name)
{
    require(pthread_mutex_init(&mutex->pthread, NULL), "pthread_mutex_init");
    ORDER_INIT(mutex, rank, name);
}

void mutex_destroy(struct mutex *mutex)
{
    require(pthread_mutex_destroy(&mutex->pthread), "pthread_mutex_destroy");
}

void mutex_lock(struct mutex *mutex) NO_THREAD_SAFETY_CHECK
{
    ORDER_ACQUIRE(mutex);
    require(pthread_mutex_lock(&mutex->pthread), "pthread_mutex_lock");
}

void mutex_unlock(struct mutex *mutex) NO_THREAD_SAFETY_CHECK
{
    ORDER_RELEASE(mutex);
    require(pthread_mutex_unlock(&mutex->pthread), "pthread_mutex_unlock");
}

void rwlock_init(struct rwlock *lock, enum lock_rank rank, const char *name)
{
    pthread_rwlockattr_t attributes;

    /* Readers that follow each other closely must not keep a writer out for ever. */
    require(pthread_rwlockattr_init(&attributes), "pthread_rwlockattr_init");
    require(pthread_rwlockattr_setkind_np(&attributes,
                                          PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP),
            "pthread_rwlockattr_setkind_np");
    require(pthread_rwlock_init(&lock->pthread, &attributes), "pthread_rwlock_init");
    pthread_rwlockattr_destroy(&attributes);
    ORDER_INIT(lock, rank, name);
}

void rwlock_destroy(struct rwlock *lock)
{
    require(pthread_rwlock_destroy(&lock->pthread), "pthread_rwlock_destroy");
}

void rwlock_read_lock(struct rwlock *lock) NO_THREAD_SAFETY_CHECK
{
    ORDER_ACQUIRE(lock);
    require(pthread_rwlock_rdlock(&lock->pthread), "pthread_rwlock_rdlock");
}

void rwlock_read_unlock(struct rwlock *lock) NO_THREAD_SAFETY_CHECK
{
    ORDER_RELEASE(lock);
    require(pthread_rwlock_unlock(&lock->pthread), "pthread_rwlock_unlock");
}

void rwlock_write_lock(struct rwlock *lock) NO_THREAD_SAFETY_CHECK
{
    ORDER_ACQUIRE(lock);
    require(pthread_rwlock_wrlock(&lock->pthread), "pthread_rwlock_wrlock");
}

void rwlock_write_unlock(struct rwlock *lock) NO_THREAD_SAFETY_CHECK
{
    ORDER_RELEASE(lock);
    require(pthread_rwlock_unlock(&lock->pthread), "pthread_rwlock_unlock");
}

void condition_init(struct condition *condition)
{
    pthread_condattr_t attributes;

    require(pthread_condattr_init(&attributes), "pthread_condattr_init");
    require(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC), "pthread_condattr_setclock");
    require(pthread_cond_init(&condition->pthread, &attributes), "pthread_cond_init");
    pthread_condattr_destroy(&attributes);
}

void condition_destroy(struct condition *condition)
{
    require(pthread_cond_destroy(&condition->pthread), "pthread_cond_destroy");
}

void condition_wait(struct condition *condition, struct mutex *mutex) NO_THREAD_SAFETY_CHECK
{
    require(pthread_cond_wait(&condition->pthread, &mutex->pthread), "pthread_cond_wait");
}

int condition_wait_until(struct condition *condition, struct mutex *mutex,
                         uint64_t deadline_ns) NO_THREAD_SAFETY_CHECK
{
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                .tv_nsec = (long)(deadline_ns % 1000000000u)};
    int error = pthread_cond_timedwait(&condition->pthread, &mutex->pthread, &deadline);

    if (error == ETIMEDOUT)
        return -ETIMEDOUT;
    require(error, "pthread_cond_timedwait");
    return 0;
}

void condition_signal(struct condition *condition)
{
    require(pthread_cond_signal(&condition->pthread), "pthread_cond_signal");
}

void condition_broadcast(struct condition *condition)
{
    require(pthread_cond_broadcast(&condition->pthread), "pthread_cond_broadcast");
}
