/* SPDX-License-Identifier: MIT */
/*
 * A read-only device that shows some blocks of its lower device from other places of that device,
 * with the first bytes replaced where asked. Memory: 24 bytes a block, whatever the block size.
 */
#ifndef UEXT4_BLOCK_OVERLAY_H
#define UEXT4_BLOCK_OVERLAY_H

#include "block/device.h"

struct overlay_entry {
    uint64_t block;         /* shown here, in units of the overlay's block size */
    uint64_t source_offset; /* bytes; where its content lies */
    bool has_patch;         /* the first 4 bytes are replaced by the overlay's patch */
};

/*
 * Takes `entries` over (allocated by malloc, sorted by block, each block once) and the lower
 * device: closing the overlay closes it. On failure the caller keeps both.
 */
int overlay_create(struct device *lower, uint32_t block_bytes, struct overlay_entry *entries,
                   size_t count, const uint8_t patch[4], struct device **overlay) MUST_CHECK;

#endif
