/* SPDX-License-Identifier: MIT */
/*
 * The metadata buffer cache: file-system blocks in memory, each at most once. It knows nothing of
 * journals and of what the blocks hold.
 *
 * Bounded: buffers that nobody holds are reused oldest first once the cache's bytes reach its
 * bound; held buffers are never reused, so that the bound can be passed by what is held.
 */
#ifndef UEXT4_BLOCK_BUFFER_H
#define UEXT4_BLOCK_BUFFER_H

#include <stdatomic.h>

#include "block/device.h"

struct buffer_cache;

/*
 * A block. The holder of a reference may read `data`, under whatever lock guards what is in the
 * block. Who writes blocks back hangs what it knows about one at `private`, under locks of its own,
 * and holds the buffer as long as it does: the cache only clears both fields when a buffer is given
 * to another block.
 */
struct buffer {
    uint64_t block;
    const void *data; /* block_bytes long, aligned to them */
    void *private;
    _Atomic uint64_t private_mark; /* may be read by every holder */
};

int buffer_cache_create(struct device *device, uint32_t block_bytes, size_t max_bytes,
                        struct buffer_cache **cache) MUST_CHECK;

/* Nobody may hold a buffer. NULL is allowed. */
void buffer_cache_destroy(struct buffer_cache *cache);

uint32_t buffer_cache_block_bytes(const struct buffer_cache *cache);

/*
 * Gives a reference to a block, read from the device if it is not cached. Threads that want the
 * same block at once share one read. May wait for the device, holding no lock that others need for
 * other blocks. Returns also -EIO; an error is not kept, a later call tries again.
 */
int buffer_get(struct buffer_cache *cache, uint64_t block, struct buffer **buffer) MUST_CHECK;

/* Releases a reference; NULL is allowed. */
void buffer_put(struct buffer *buffer);

/* One more reference to a buffer that the caller holds. */
void buffer_hold(struct buffer *buffer);

/*
 * Gives a reference without reading: to what the cache has of the block, else to zeros. For blocks
 * whose content on the device is of no interest.
 */
int buffer_create(struct buffer_cache *cache, uint64_t block, struct buffer **buffer) MUST_CHECK;

/* Gives a reference if the block is cached and read, else NULL. Does not wait. */
struct buffer *buffer_find(struct buffer_cache *cache, uint64_t block);

/*
 * Makes the cache forget a block: whoever wants it next reads it from the device, also if a read of
 * it is under way now. Who holds it keeps what it has. Does not wait. Nothing may hang at
 * `private`.
 */
void buffer_forget(struct buffer_cache *cache, uint64_t block);

/* The content, for who may change it: the journal's journal_data gives it out. */
static inline void *buffer_writable(struct buffer *buffer)
{
    return (void *)(uintptr_t)buffer->data;
}

/*
 * As buffer_get, and if the block has to be read, reads the window of `window_count` blocks from
 * `window_first` around it in the same request, as far as those are not cached. Trouble with the
 * other blocks of the window is left for whoever wants them.
 */
int buffer_get_window(struct buffer_cache *cache, uint64_t block, uint64_t window_first,
                      uint32_t window_count, struct buffer **buffer) MUST_CHECK;

/*
 * Remembers that a validator was content with the block, so that it need not run again while the
 * block stays cached. `tag` says which validator and for whom (the same bytes may be asked for as
 * two kinds of metadata); 0 is no tag.
 */
bool buffer_is_verified(const struct buffer *buffer, uint64_t tag);
void buffer_set_verified(struct buffer *buffer, uint64_t tag);

/* Reads from the device and reads avoided, since the cache was created. */
struct buffer_statistics {
    uint64_t device_reads, blocks_read, hits;
};

void buffer_cache_get_statistics(struct buffer_cache *cache, struct buffer_statistics *result);

#endif
