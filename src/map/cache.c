/* SPDX-License-Identifier: MIT */
/*
 * The mapping cache of an inode: the mappings found so far, sorted by file block. Once full it is
 * emptied: a file that many extents and random reads fill it with is served by the buffer cache.
 *
 * Locks: its own reader-writer lock, rank MAP, held only for memory work. Callers: map.c.
 */
#include <stdlib.h>
#include <string.h>

#include "map/map.h"

#define MAX_MAPPINGS   2048
#define FIRST_CAPACITY 4

/* Position of the first mapping that starts behind `file_block`. */
static size_t cache_position_locked(const struct mapping_cache *cache, uint64_t file_block)
{
    size_t low = 0, high = cache->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (cache->mappings[middle].file_block <= file_block)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool cache_covers_locked(const struct mapping_cache *cache, size_t position,
                                uint64_t file_block)
{
    const struct mapping *mapping;

    if (position == 0)
        return false;
    mapping = &cache->mappings[position - 1];
    return file_block - mapping->file_block < mapping->length_blocks;
}

bool map_cache_find(struct mapping_cache *cache, uint64_t file_block, struct mapping *result)
{
    rwlock_read_lock(&cache->lock);
    size_t position = cache_position_locked(cache, file_block);
    bool is_found = cache_covers_locked(cache, position, file_block);
    if (is_found)
        *result = cache->mappings[position - 1];
    rwlock_read_unlock(&cache->lock);
    return is_found;
}

/* Makes room for one more mapping. False without memory: then nothing is cached. */
static bool cache_reserve_locked(struct mapping_cache *cache) REQUIRES(&cache->lock)
{
    if (cache->count < cache->capacity)
        return true;
    if (cache->count >= MAX_MAPPINGS) {
        cache->count = 0;
        return true;
    }
    size_t capacity = cache->capacity == 0 ? FIRST_CAPACITY : cache->capacity * 2;
    struct mapping *grown = realloc(cache->mappings, capacity * sizeof(*grown));
    if (grown == NULL)
        return false;
    cache->mappings = grown;
    cache->capacity = capacity;
    return true;
}

void map_cache_add(struct mapping_cache *cache, const struct mapping *mapping)
{
    rwlock_write_lock(&cache->lock);
    if (cache_reserve_locked(cache)) {
        size_t position = cache_position_locked(cache, mapping->file_block);
        uint64_t end = mapping->file_block + mapping->length_blocks;
        bool overlaps = cache_covers_locked(cache, position, mapping->file_block) ||
                        (position < cache->count && cache->mappings[position].file_block < end);

        /* Another thread may have been faster. */
        if (!overlaps) {
            memmove(&cache->mappings[position + 1], &cache->mappings[position],
                    (cache->count - position) * sizeof(*mapping));
            cache->mappings[position] = *mapping;
            cache->count++;
        }
    }
    rwlock_write_unlock(&cache->lock);
}
