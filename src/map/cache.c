/* SPDX-License-Identifier: MIT */
/*
 * The mapping cache of an inode: the mappings found so far, sorted by file block. Once full it is
 * emptied: a file that many extents and random reads fill it with is served by the buffer cache.
 *
 * What it holds is true at every moment that nobody holds map_lock exclusively (see map.h). A
 * look-up that meets it during a change may still get what was there before.
 *
 * Locks: its own reader-writer lock, rank MAP_CACHE, held only for memory work. Callers: map.c and
 * the files that change maps.
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

/* There is room for it. */
static void cache_insert_locked(struct mapping_cache *cache, size_t position,
                                const struct mapping *mapping) REQUIRES(&cache->lock)
{
    memmove(&cache->mappings[position + 1], &cache->mappings[position],
            (cache->count - position) * sizeof(*mapping));
    cache->mappings[position] = *mapping;
    cache->count++;
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

/* Cuts [first, end) out. A mapping that lies around it loses what is behind, if memory is short. */
static void cache_drop_locked(struct mapping_cache *cache, uint64_t first, uint64_t end)
    REQUIRES(&cache->lock)
{
    size_t position = cache_position_locked(cache, first);
    size_t kept;

    if (cache_covers_locked(cache, position, first)) {
        struct mapping *mapping = &cache->mappings[position - 1];
        struct mapping behind = *mapping;

        mapping_cut(&behind, MIN(end, mapping->file_block + mapping->length_blocks));
        mapping->length_blocks = first - mapping->file_block;
        if (mapping->length_blocks == 0)
            position--;
        else if (behind.length_blocks > 0 && cache->count < cache->capacity)
            cache_insert_locked(cache, position, &behind);
        if (mapping->length_blocks == 0 && behind.length_blocks > 0) {
            *mapping = behind;
            return;
        }
    }
    if (position == cache->count)
        return;
    kept = position;
    while (kept < cache->count &&
           cache->mappings[kept].file_block + cache->mappings[kept].length_blocks <= end)
        kept++;
    memmove(&cache->mappings[position], &cache->mappings[kept],
            (cache->count - kept) * sizeof(*cache->mappings));
    cache->count -= kept - position;
    if (position < cache->count && cache->mappings[position].file_block < end)
        mapping_cut(&cache->mappings[position], end);
}

void map_cache_drop(struct mapping_cache *cache, uint64_t first, uint64_t end)
{
    if (first >= end)
        return;
    rwlock_write_lock(&cache->lock);
    cache_drop_locked(cache, first, end);
    rwlock_write_unlock(&cache->lock);
}

void map_cache_add(struct mapping_cache *cache, const struct mapping *mapping)
{
    rwlock_write_lock(&cache->lock);
    /* What is known of the same blocks is true too, but may be a part only. */
    cache_drop_locked(cache, mapping->file_block, mapping->file_block + mapping->length_blocks);
    if (cache_reserve_locked(cache))
        cache_insert_locked(cache, cache_position_locked(cache, mapping->file_block), mapping);
    rwlock_write_unlock(&cache->lock);
}
