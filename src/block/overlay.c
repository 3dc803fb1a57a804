/* SPDX-License-Identifier: MIT */
/*
 * Shows blocks of the lower device at other places, for reading a file system with a journal that
 * is not replayed.
 *
 * A request is cut where a shown block begins or ends. A request that touches none goes to the
 * lower device as it is; a piece that is not aligned as the lower device asks goes through
 * device_read.
 * Invariant: entries are sorted by block, each block once, and no offset overflows.
 * Locks: none; nothing changes after overlay_create.
 * Callers: fs/ at a read-only mount.
 */
#include "block/overlay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATCH_BYTES     4
#define PIECES_AT_ONCE  64
#define MAX_BLOCK_BYTES (1u << 30)

struct overlay {
    struct device device;
    uint32_t block_bytes;          /* [immutable] */
    struct overlay_entry *entries; /* [immutable] */
    size_t count;                  /* [immutable] */
    uint8_t patch[PATCH_BYTES];    /* [immutable] */
};

/* A place in a vector of buffers. */
struct cursor {
    const struct iovec *iov;
    size_t skipped; /* bytes of iov[0] behind us */
};

/* The next buffer for at most `length` bytes; steps over it. */
static struct iovec take_piece(struct cursor *cursor, uint64_t length)
{
    struct iovec piece;

    while (cursor->skipped == cursor->iov->iov_len) {
        cursor->iov++;
        cursor->skipped = 0;
    }
    piece.iov_base = (uint8_t *)cursor->iov->iov_base + cursor->skipped;
    piece.iov_len = (size_t)MIN(length, (uint64_t)(cursor->iov->iov_len - cursor->skipped));
    cursor->skipped += piece.iov_len;
    return piece;
}

static bool is_aligned(const struct device_limits *limits, const struct iovec *pieces, int count,
                       uint64_t offset)
{
    uint64_t lengths = offset;
    uintptr_t addresses = 0;

    for (int i = 0; i < count; i++) {
        lengths |= pieces[i].iov_len;
        addresses |= (uintptr_t)pieces[i].iov_base;
    }
    return (lengths & (limits->offset_alignment - 1)) == 0 &&
           (addresses & (limits->memory_alignment - 1)) == 0;
}

static int read_pieces(struct device *lower, const struct iovec *pieces, int count, uint64_t offset)
{
    if (is_aligned(&lower->limits, pieces, count, offset))
        return device_readv(lower, pieces, count, offset);
    for (int i = 0; i < count; i++) {
        int error = device_read(lower, pieces[i].iov_base, pieces[i].iov_len, offset);

        if (error != 0)
            return error;
        offset += pieces[i].iov_len;
    }
    return 0;
}

/* Reads a range of the lower device to where the cursor stands. */
static int read_lower(struct device *lower, struct cursor *cursor, uint64_t length, uint64_t offset)
{
    int max = (int)MIN((uint32_t)PIECES_AT_ONCE, MAX(lower->limits.max_iov_count, 1u));

    while (length > 0) {
        struct iovec pieces[PIECES_AT_ONCE];
        uint64_t bytes = 0;
        int count = 0;
        int error;

        while (count < max && bytes < length) {
            pieces[count] = take_piece(cursor, length - bytes);
            bytes += pieces[count++].iov_len;
        }
        error = read_pieces(lower, pieces, count, offset);
        if (error != 0)
            return error;
        offset += bytes;
        length -= bytes;
    }
    return 0;
}

/* Reads `length` bytes of a shown block, from `start` in it. */
static int read_shown(struct overlay *overlay, const struct overlay_entry *entry,
                      struct cursor *cursor, uint64_t start, uint64_t length)
{
    struct cursor patched = *cursor;
    int error = read_lower(overlay->device.lower, cursor, length, entry->source_offset + start);

    if (error != 0 || !entry->has_patch)
        return error;
    for (uint64_t done = start, end = MIN(start + length, (uint64_t)PATCH_BYTES); done < end;) {
        struct iovec piece = take_piece(&patched, end - done);

        memcpy(piece.iov_base, overlay->patch + done, piece.iov_len);
        done += piece.iov_len;
    }
    return 0;
}

/* The first entry at or behind a block; may be the end. */
static size_t find_entry(const struct overlay *overlay, uint64_t block)
{
    size_t low = 0;
    size_t high = overlay->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (overlay->entries[middle].block < block)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int overlay_readv(struct device *device, const struct iovec *iov, int iov_count,
                         uint64_t offset)
{
    struct overlay *overlay = container_of(device, struct overlay, device);
    struct cursor cursor = {.iov = iov};
    uint64_t block_bytes = overlay->block_bytes;
    size_t next = find_entry(overlay, offset / block_bytes);
    uint64_t end = offset;
    int error = 0;

    for (int i = 0; i < iov_count; i++)
        end += iov[i].iov_len;
    if (next == overlay->count || overlay->entries[next].block * block_bytes >= end)
        return read_pieces(device->lower, iov, iov_count, offset);
    while (error == 0 && offset < end) {
        const struct overlay_entry *entry = next < overlay->count ? &overlay->entries[next] : NULL;
        uint64_t shown = entry != NULL ? entry->block * block_bytes : end;
        uint64_t stop;

        if (shown > offset) {
            stop = MIN(shown, end);
            error = read_lower(device->lower, &cursor, stop - offset, offset);
        } else {
            stop = MIN(shown + block_bytes, end);
            error = read_shown(overlay, entry, &cursor, offset - shown, stop - offset);
            next++;
        }
        offset = stop;
    }
    return error;
}

static void overlay_close(struct device *device)
{
    struct overlay *overlay = container_of(device, struct overlay, device);

    device_close(device->lower);
    free(overlay->entries);
    free(overlay);
}

static const struct device_ops overlay_ops = {
    .name = "overlay",
    .readv = overlay_readv,
    .close = overlay_close,
};

int overlay_create(struct device *lower, uint32_t block_bytes, struct overlay_entry *entries,
                   size_t count, const uint8_t patch[4], struct device **result)
{
    struct overlay *overlay;

    if (block_bytes < PATCH_BYTES || block_bytes > MAX_BLOCK_BYTES)
        return -EINVAL;
    for (size_t i = 0; i < count; i++)
        if (entries[i].block > (uint64_t)INT64_MAX / block_bytes - 1 ||
            entries[i].source_offset > (uint64_t)INT64_MAX - block_bytes ||
            (i > 0 && entries[i].block <= entries[i - 1].block))
            return -EINVAL;
    overlay = calloc(1, sizeof(*overlay));
    if (overlay == NULL)
        return -ENOMEM;
    overlay->device.ops = &overlay_ops;
    overlay->device.limits = lower->limits;
    overlay->device.limits.is_read_only = true;
    overlay->device.limits.has_discard = false;
    overlay->device.log = lower->log;
    overlay->device.lower = lower;
    overlay->block_bytes = block_bytes;
    overlay->entries = entries;
    overlay->count = count;
    memcpy(overlay->patch, patch, PATCH_BYTES);
    *result = &overlay->device;
    return 0;
}
