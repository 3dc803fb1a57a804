/* SPDX-License-Identifier: MIT */
/*
 * The range lock: a list of requests in the order of their arrival. A request may go on when none
 * before it conflicts with it. In-flight requests of one file are few (as many as threads or queue
 * slots), so a list is quicker than a tree.
 *
 * Locks: the mutex of the file's range lock, rank RANGE_LIST, never held while anything else is
 * taken. Callers: data, fs.
 */
#include "inode/range_lock.h"

void range_lock_init(struct range_lock *lock)
{
    mutex_init(&lock->mutex, LOCK_RANK_RANGE_LIST, "range lock");
    condition_init(&lock->changed);
    list_init(&lock->requests);
    lock->waiting = 0;
}

void range_lock_destroy(struct range_lock *lock)
{
    condition_destroy(&lock->changed);
    mutex_destroy(&lock->mutex);
}

static bool conflicts(const struct range_request *one, const struct range_request *two)
{
    return (one->is_exclusive || two->is_exclusive) &&
           MAX(one->first, two->first) < MIN(one->end, two->end);
}

static bool has_conflict_before_locked(const struct range_lock *lock,
                                       const struct range_request *request)
{
    list_for_each (link, &lock->requests) {
        if (link == &request->link)
            return false;
        if (conflicts(list_entry(link, struct range_request, link), request))
            return true;
    }
    return false;
}

static void request_lock(struct range_lock *lock, struct range_request *request)
{
    mutex_lock(&lock->mutex);
    list_add_last(&lock->requests, &request->link);
    if (has_conflict_before_locked(lock, request)) {
        lock->waiting++;
        do
            condition_wait(&lock->changed, &lock->mutex);
        while (has_conflict_before_locked(lock, request));
        lock->waiting--;
    }
    mutex_unlock(&lock->mutex);
}

void range_lock_shared(struct range_lock *lock, struct range_request *request, uint64_t first,
                       uint64_t end)
{
    *request = (struct range_request){.first = first, .end = end, .is_exclusive = false};
    request_lock(lock, request);
}

void range_lock_exclusive(struct range_lock *lock, struct range_request *request, uint64_t first,
                          uint64_t end)
{
    *request = (struct range_request){.first = first, .end = end, .is_exclusive = true};
    request_lock(lock, request);
}

bool range_try_lock_exclusive(struct range_lock *lock, struct range_request *request,
                              uint64_t first, uint64_t end)
{
    bool is_ours;

    *request = (struct range_request){.first = first, .end = end, .is_exclusive = true};
    mutex_lock(&lock->mutex);
    list_add_last(&lock->requests, &request->link);
    is_ours = !has_conflict_before_locked(lock, request);
    if (!is_ours)
        list_remove(&request->link);
    mutex_unlock(&lock->mutex);
    return is_ours;
}

void range_unlock(struct range_lock *lock, struct range_request *request)
{
    bool wakes;

    mutex_lock(&lock->mutex);
    list_remove(&request->link);
    wakes = lock->waiting > 0;
    mutex_unlock(&lock->mutex);
    if (wakes)
        condition_broadcast(&lock->changed);
}
