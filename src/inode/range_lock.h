/* SPDX-License-Identifier: MIT */
/*
 * Locks on ranges of bytes of one file, shared or exclusive.
 *
 * First come, first served among requests that overlap: a request waits for every earlier one, held
 * or waiting, that it conflicts with, so that neither readers nor writers starve; requests that do
 * not overlap never wait for each other. A request belongs to no thread: the one that completes the
 * I/O may release what another one took. No memory is allocated: the caller brings the request,
 * which stays in place from lock to unlock.
 */
#ifndef UEXT4_INODE_RANGE_LOCK_H
#define UEXT4_INODE_RANGE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"

#define RANGE_END                                                                  \
    UINT64_MAX /* as an end: the whole rest of the file, whatever its size becomes \
                */

/* The ranges of one file. */
struct range_lock {
    struct mutex mutex; /* held for list work only */
    struct condition changed;
    struct list requests; /* [mutex] held and waiting ones, in the order of their arrival */
    unsigned int waiting; /* [mutex] */
};

struct range_request {
    struct list link;    /* [mutex] */
    uint64_t first, end; /* bytes; end is exclusive */
    bool is_exclusive;
};

void range_lock_init(struct range_lock *lock);
void range_lock_destroy(struct range_lock *lock); /* nobody may hold or want a range */

/* Waits until the range is ours. An empty range conflicts with nothing. */
void range_lock_shared(struct range_lock *lock, struct range_request *request, uint64_t first,
                       uint64_t end);
void range_lock_exclusive(struct range_lock *lock, struct range_request *request, uint64_t first,
                          uint64_t end);

/* As the exclusive call without waiting. True if the range is ours. */
bool range_try_lock_exclusive(struct range_lock *lock, struct range_request *request,
                              uint64_t first, uint64_t end);

void range_unlock(struct range_lock *lock, struct range_request *request);

#endif
