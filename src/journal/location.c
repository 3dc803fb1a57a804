/* SPDX-License-Identifier: MIT */
/*
 * Looks journal blocks up in the extents of the journal's inode.
 *
 * Invariant: after journal_location_check, every block below block_count is in exactly one extent,
 * and no product with the block size overflows.
 * Locks: none; a location does not change while it is in use.
 * Callers: the other files of recovery.
 */
#include "journal/location.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/journal.h"

int journal_location_check(const struct journal_location *location)
{
    uint32_t block_bytes = location->block_bytes;
    uint64_t max_block;
    uint64_t covered = 0;

    if (block_bytes < JOURNAL_MIN_BLOCK_BYTES || block_bytes > JOURNAL_MAX_BLOCK_BYTES ||
        (block_bytes & (block_bytes - 1)) != 0)
        return -EINVAL;
    max_block = (uint64_t)INT64_MAX / block_bytes;
    for (size_t i = 0; i < location->extent_count; i++) {
        const struct journal_extent *extent = &location->extents[i];

        if (extent->journal_block != covered || extent->length_blocks == 0 ||
            extent->disk_block > max_block ||
            max_block - extent->disk_block < extent->length_blocks)
            break;
        covered += extent->length_blocks;
    }
    if (location->block_count == 0 || covered < location->block_count) {
        log_error(location->log,
                  "journal: its extents cover %llu of %u blocks, or are not in order",
                  (unsigned long long)covered, location->block_count);
        return -EUCLEAN;
    }
    return 0;
}

uint64_t journal_location_find(const struct journal_location *location, uint32_t journal_block,
                               uint32_t *run_blocks)
{
    size_t low = 0;
    size_t high = location->extent_count;
    const struct journal_extent *extent;
    uint32_t skipped;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (location->extents[middle].journal_block <= journal_block)
            low = middle;
        else
            high = middle;
    }
    extent = &location->extents[low];
    skipped = journal_block - extent->journal_block;
    *run_blocks = extent->length_blocks - skipped;
    return extent->disk_block + skipped;
}

static int compare_disk_blocks(const void *a, const void *b)
{
    const struct journal_extent *left = a;
    const struct journal_extent *right = b;

    return (left->disk_block > right->disk_block) - (left->disk_block < right->disk_block);
}

struct journal_extent *journal_location_sort(const struct journal_location *location)
{
    size_t bytes = location->extent_count * sizeof(struct journal_extent);
    struct journal_extent *sorted = malloc(bytes);

    if (sorted == NULL)
        return NULL;
    memcpy(sorted, location->extents, bytes);
    qsort(sorted, location->extent_count, sizeof(*sorted), compare_disk_blocks);
    return sorted;
}
