/* SPDX-License-Identifier: MIT */
/* Where the journal's blocks are on the device. */
#ifndef UEXT4_JOURNAL_LOCATION_H
#define UEXT4_JOURNAL_LOCATION_H

#include "journal/recovery.h"

/* -EUCLEAN unless the extents cover the journal in order, and nothing overflows in bytes. */
int journal_location_check(const struct journal_location *location) MUST_CHECK;

/*
 * The disk block of a journal block below block_count, and how many journal blocks follow it on the
 * disk, itself included. The location has been checked.
 */
uint64_t journal_location_find(const struct journal_location *location, uint32_t journal_block,
                               uint32_t *run_blocks);

/* A copy of the extents sorted by disk block, for the caller to free. NULL: out of memory. */
struct journal_extent *journal_location_sort(const struct journal_location *location);

#endif
