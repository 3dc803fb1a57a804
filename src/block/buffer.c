/* SPDX-License-Identifier: MIT */
/*
 * The metadata buffer cache, sharded by block number.
 *
 * A buffer is in one of three states, guarded by its shard's mutex:
 *
 *   FREE ---- claim ----> LOADING ---- read succeeded ----> VALID
 *    ^                       |                                |
 *    +---- read failed ------+         (unused and oldest)    |
 *    +---- reclaim -------------------------------------------+
 *
 * claim: buffer_claim_locked; read: load_run; reclaim: buffer_claim_locked of another block;
 * forgotten: VALID to FREE by buffer_forget. A forgotten buffer may still be held; it is in no
 * chain, so nobody finds it, and it is free for other blocks when its last holder puts it.
 * A LOADING buffer is held by its loader; others wait for the shard's condition. The device is
 * called with no lock held. Buffers come from slabs, which live until the cache is destroyed.
 *
 * Callers: journal, space, inode, map, dir; fs for creation.
 */
#include "block/buffer.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/list.h"
#include "base/lock.h"

#define SHARD_COUNT     16
#define BUCKET_COUNT    512 /* hash chains of one shard */
#define SLAB_BYTES      (256u * 1024)
#define MAX_WINDOW      64 /* blocks in one request */
#define MIN_SHARD_SLABS 1

enum buffer_state { BUFFER_FREE, BUFFER_LOADING, BUFFER_VALID };

struct cached_buffer {
    struct buffer public;          /* block: [shard], constant while held; data: [immutable] */
    struct buffer_shard *shard;    /* [immutable] */
    struct cached_buffer *chained; /* [shard] next in the hash chain */
    struct list recency;           /* [shard] in `unused` while nobody holds it */
    unsigned int references;       /* [shard] */
    enum buffer_state state;       /* [shard] */
    bool is_unwanted;              /* [shard] LOADING, and to be forgotten when it ends */
    _Atomic uint64_t verified_tag; /* [atomic] */
};

struct buffer_slab {
    struct buffer_slab *next;
    void *data;
    size_t data_bytes;
    struct cached_buffer buffers[];
};

struct buffer_shard {
    struct mutex mutex;
    struct condition loaded;                     /* a buffer left LOADING */
    struct cached_buffer *buckets[BUCKET_COUNT]; /* [shard] */
    struct list unused;                          /* [shard] oldest first; FREE ones lead */
    struct buffer_slab *slabs;                   /* [shard] */
    unsigned int slab_count;                     /* [shard] */
    struct buffer_cache *cache;                  /* [immutable] */
};

struct buffer_cache {
    struct device *device;        /* [immutable] */
    uint32_t block_bytes;         /* [immutable] */
    unsigned int slab_buffers;    /* [immutable] */
    unsigned int max_shard_slabs; /* [immutable] */
    bool can_read_vectored;       /* [immutable] the device takes buffers as they are */
    _Atomic uint64_t device_reads, blocks_read, hits; /* [atomic] */
    struct buffer_shard shards[SHARD_COUNT];
};

static struct buffer_shard *shard_of(struct buffer_cache *cache, uint64_t block)
{
    return &cache->shards[(block * 0x9e3779b97f4a7c15u) >> 60];
}

static struct cached_buffer **bucket_of(struct buffer_shard *shard, uint64_t block)
{
    return &shard->buckets[((block * 0x9e3779b97f4a7c15u) >> 40) % BUCKET_COUNT];
}

_Static_assert(SHARD_COUNT == 16, "shard_of takes the top 4 bits");

int buffer_cache_create(struct device *device, uint32_t block_bytes, size_t max_bytes,
                        struct buffer_cache **result)
{
    const struct device_limits *limits = device_limits(device);
    struct buffer_cache *cache = calloc(1, sizeof(*cache));

    if (cache == NULL)
        return -ENOMEM;
    cache->device = device;
    cache->block_bytes = block_bytes;
    cache->slab_buffers = MAX(SLAB_BYTES / block_bytes, 4u);
    cache->max_shard_slabs =
        (unsigned int)(max_bytes / SHARD_COUNT / ((size_t)cache->slab_buffers * block_bytes));
    cache->max_shard_slabs = MAX(cache->max_shard_slabs, MIN_SHARD_SLABS);
    cache->can_read_vectored = block_bytes % limits->offset_alignment == 0 &&
                               block_bytes % limits->memory_alignment == 0;
    for (unsigned int i = 0; i < SHARD_COUNT; i++) {
        struct buffer_shard *shard = &cache->shards[i];

        mutex_init(&shard->mutex, LOCK_RANK_BUFFER_TABLE, "buffer shard");
        condition_init(&shard->loaded);
        list_init(&shard->unused);
        shard->cache = cache;
    }
    *result = cache;
    return 0;
}

void buffer_cache_destroy(struct buffer_cache *cache)
{
    if (cache == NULL)
        return;
    for (unsigned int i = 0; i < SHARD_COUNT; i++) {
        struct buffer_shard *shard = &cache->shards[i];

        while (shard->slabs != NULL) {
            struct buffer_slab *slab = shard->slabs;

            shard->slabs = slab->next;
            munmap(slab->data, slab->data_bytes);
            free(slab);
        }
        condition_destroy(&shard->loaded);
        mutex_destroy(&shard->mutex);
    }
    free(cache);
}

uint32_t buffer_cache_block_bytes(const struct buffer_cache *cache)
{
    return cache->block_bytes;
}

/* Adds a slab of free buffers to the shard. */
static int shard_grow_locked(struct buffer_shard *shard) REQUIRES(&shard->mutex)
{
    struct buffer_cache *cache = shard->cache;
    unsigned int count = cache->slab_buffers;
    struct buffer_slab *slab = calloc(1, sizeof(*slab) + count * sizeof(slab->buffers[0]));

    if (slab == NULL)
        return -ENOMEM;
    /* One block more than needed, so that the first can be aligned to the block size. */
    slab->data_bytes = (size_t)(count + 1) * cache->block_bytes;
    slab->data = mmap(NULL, slab->data_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (slab->data == MAP_FAILED) {
        free(slab);
        return -ENOMEM;
    }
    uintptr_t first = ROUND_UP((uintptr_t)slab->data, cache->block_bytes);
    for (unsigned int i = 0; i < count; i++) {
        struct cached_buffer *buffer = &slab->buffers[i];

        buffer->public.data = (const void *)(first + (uintptr_t)i * cache->block_bytes);
        buffer->shard = shard;
        list_add_first(&shard->unused, &buffer->recency);
    }
    slab->next = shard->slabs;
    shard->slabs = slab;
    shard->slab_count++;
    return 0;
}

static struct cached_buffer *shard_find_locked(struct buffer_shard *shard, uint64_t block)
    REQUIRES(&shard->mutex)
{
    struct cached_buffer *buffer = *bucket_of(shard, block);

    while (buffer != NULL && buffer->public.block != block)
        buffer = buffer->chained;
    return buffer;
}

static void shard_unhash_locked(struct buffer_shard *shard, struct cached_buffer *buffer)
    REQUIRES(&shard->mutex)
{
    struct cached_buffer **link = bucket_of(shard, buffer->public.block);

    while (*link != buffer)
        link = &(*link)->chained;
    *link = buffer->chained;
    buffer->chained = NULL;
    buffer->state = BUFFER_FREE;
}

static void shard_hold_locked(struct buffer_shard *shard, struct cached_buffer *buffer)
    REQUIRES(&shard->mutex)
{
    (void)shard;
    if (buffer->references++ == 0)
        list_remove(&buffer->recency);
}

static void shard_release_locked(struct buffer_shard *shard, struct cached_buffer *buffer)
    REQUIRES(&shard->mutex)
{
    if (--buffer->references > 0)
        return;
    if (buffer->state == BUFFER_FREE)
        list_add_first(&shard->unused, &buffer->recency);
    else
        list_add_last(&shard->unused, &buffer->recency);
}

/*
 * Takes a free or the oldest unused buffer for a block that is not cached, held by the caller and
 * LOADING. Returns NULL without memory.
 */
static struct cached_buffer *buffer_claim_locked(struct buffer_shard *shard, uint64_t block)
    REQUIRES(&shard->mutex)
{
    struct cached_buffer *buffer;
    bool is_full = shard->slab_count >= shard->cache->max_shard_slabs;
    bool has_free = !list_is_empty(&shard->unused) &&
                    list_first(&shard->unused, struct cached_buffer, recency)->state == BUFFER_FREE;

    if (!has_free && (!is_full || list_is_empty(&shard->unused))) {
        if (shard_grow_locked(shard) != 0 && list_is_empty(&shard->unused))
            return NULL;
    }
    buffer = list_first(&shard->unused, struct cached_buffer, recency);
    if (buffer->state == BUFFER_VALID)
        shard_unhash_locked(shard, buffer);
    buffer->public.block = block;
    buffer->state = BUFFER_LOADING;
    buffer->is_unwanted = false;
    buffer->public.private = NULL;
    atomic_store_explicit(&buffer->public.private_mark, 0, memory_order_relaxed);
    atomic_store_explicit(&buffer->verified_tag, 0, memory_order_relaxed);
    struct cached_buffer **bucket = bucket_of(shard, block);
    buffer->chained = *bucket;
    *bucket = buffer;
    shard_hold_locked(shard, buffer);
    return buffer;
}

/* Ends the loading of a held buffer and wakes those who wait for it. The hold stays. */
static void buffer_loaded(struct cached_buffer *buffer, int error)
{
    struct buffer_shard *shard = buffer->shard;

    mutex_lock(&shard->mutex);
    if (error == 0 && !buffer->is_unwanted)
        buffer->state = BUFFER_VALID;
    else
        shard_unhash_locked(shard, buffer);
    condition_broadcast(&shard->loaded);
    mutex_unlock(&shard->mutex);
}

/*
 * Reads the LOADING buffers `run`, consecutive blocks, in one request; when that fails and there
 * are several, each for itself. Returns the error of the one at `wanted`.
 */
static int load_run(struct buffer_cache *cache, struct cached_buffer **run, unsigned int count,
                    unsigned int wanted)
{
    struct iovec iov[MAX_WINDOW];
    int error = 0;

    for (unsigned int i = 0; i < count; i++) {
        iov[i].iov_base = (void *)(uintptr_t)run[i]->public.data;
        iov[i].iov_len = cache->block_bytes;
    }
    if (cache->can_read_vectored)
        error = device_readv(cache->device, iov, (int)count,
                             run[0]->public.block * cache->block_bytes);
    atomic_fetch_add_explicit(&cache->device_reads, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&cache->blocks_read, count, memory_order_relaxed);
    int wanted_error = error;
    for (unsigned int i = 0; i < count; i++) {
        int own_error = error;

        if (!cache->can_read_vectored || (error != 0 && count > 1))
            own_error = device_read(cache->device, iov[i].iov_base, cache->block_bytes,
                                    run[i]->public.block * cache->block_bytes);
        if (i == wanted)
            wanted_error = own_error;
        buffer_loaded(run[i], own_error);
    }
    return wanted_error;
}

/*
 * Finds a block and holds it, waiting while another thread loads it. Without it, claims it: then
 * *is_claimed is set, and the caller loads it. NULL without memory.
 */
static struct cached_buffer *find_or_claim(struct buffer_cache *cache, uint64_t block,
                                           bool *is_claimed)
{
    struct buffer_shard *shard = shard_of(cache, block);
    struct cached_buffer *buffer;

    *is_claimed = false;
    mutex_lock(&shard->mutex);
    while ((buffer = shard_find_locked(shard, block)) != NULL && buffer->state == BUFFER_LOADING)
        condition_wait(&shard->loaded, &shard->mutex);
    if (buffer != NULL) {
        shard_hold_locked(shard, buffer);
    } else {
        buffer = buffer_claim_locked(shard, block);
        *is_claimed = buffer != NULL;
    }
    mutex_unlock(&shard->mutex);
    return buffer;
}

/* Claims a block for a read-around; NULL if it is cached, being loaded, or there is no memory. */
static struct cached_buffer *claim_if_absent(struct buffer_cache *cache, uint64_t block)
{
    struct buffer_shard *shard = shard_of(cache, block);
    struct cached_buffer *buffer = NULL;

    mutex_lock(&shard->mutex);
    if (shard_find_locked(shard, block) == NULL)
        buffer = buffer_claim_locked(shard, block);
    mutex_unlock(&shard->mutex);
    return buffer;
}

int buffer_get_window(struct buffer_cache *cache, uint64_t block, uint64_t window_first,
                      uint32_t window_count, struct buffer **result)
{
    struct cached_buffer *run[MAX_WINDOW];
    unsigned int first, count;
    bool is_claimed;
    struct cached_buffer *buffer = find_or_claim(cache, block, &is_claimed);

    if (buffer == NULL)
        return -ENOMEM;
    if (!is_claimed) {
        atomic_fetch_add_explicit(&cache->hits, 1, memory_order_relaxed);
        *result = &buffer->public;
        return 0;
    }

    /* The run grows from the wanted block in both directions until it meets a cached one. */
    first = MAX_WINDOW;
    run[--first] = buffer;
    while (first > MAX_WINDOW / 2 && run[first]->public.block > window_first) {
        struct cached_buffer *before = claim_if_absent(cache, run[first]->public.block - 1);

        if (before == NULL)
            break;
        run[--first] = before;
    }
    count = MAX_WINDOW - first;
    for (unsigned int i = 0; i < count; i++)
        run[i] = run[first + i];
    unsigned int wanted = count - 1;
    while (count < MAX_WINDOW && run[count - 1]->public.block + 1 < window_first + window_count) {
        struct cached_buffer *after = claim_if_absent(cache, run[count - 1]->public.block + 1);

        if (after == NULL)
            break;
        run[count++] = after;
    }

    int error = load_run(cache, run, count, wanted);
    for (unsigned int i = 0; i < count; i++)
        if (i != wanted || error != 0)
            buffer_put(&run[i]->public);
    if (error != 0)
        return error;
    *result = &buffer->public;
    return 0;
}

int buffer_get(struct buffer_cache *cache, uint64_t block, struct buffer **buffer)
{
    return buffer_get_window(cache, block, block, 1, buffer);
}

void buffer_put(struct buffer *buffer)
{
    if (buffer == NULL)
        return;
    struct cached_buffer *cached = container_of(buffer, struct cached_buffer, public);
    struct buffer_shard *shard = cached->shard;

    mutex_lock(&shard->mutex);
    shard_release_locked(shard, cached);
    mutex_unlock(&shard->mutex);
}

void buffer_hold(struct buffer *buffer)
{
    struct cached_buffer *cached = container_of(buffer, struct cached_buffer, public);
    struct buffer_shard *shard = cached->shard;

    mutex_lock(&shard->mutex);
    shard_hold_locked(shard, cached);
    mutex_unlock(&shard->mutex);
}

int buffer_create(struct buffer_cache *cache, uint64_t block, struct buffer **result)
{
    bool is_claimed;
    struct cached_buffer *buffer = find_or_claim(cache, block, &is_claimed);

    if (buffer == NULL)
        return -ENOMEM;
    if (is_claimed) {
        memset(buffer_writable(&buffer->public), 0, cache->block_bytes);
        buffer_loaded(buffer, 0);
    }
    *result = &buffer->public;
    return 0;
}

struct buffer *buffer_find(struct buffer_cache *cache, uint64_t block)
{
    struct buffer_shard *shard = shard_of(cache, block);
    struct cached_buffer *buffer;

    mutex_lock(&shard->mutex);
    buffer = shard_find_locked(shard, block);
    if (buffer != NULL && buffer->state == BUFFER_VALID)
        shard_hold_locked(shard, buffer);
    else
        buffer = NULL;
    mutex_unlock(&shard->mutex);
    return buffer == NULL ? NULL : &buffer->public;
}

void buffer_forget(struct buffer_cache *cache, uint64_t block)
{
    struct buffer_shard *shard = shard_of(cache, block);
    struct cached_buffer *buffer;

    mutex_lock(&shard->mutex);
    buffer = shard_find_locked(shard, block);
    if (buffer != NULL && buffer->state == BUFFER_LOADING) {
        buffer->is_unwanted = true;
    } else if (buffer != NULL) {
        shard_unhash_locked(shard, buffer);
        if (buffer->references == 0) {
            list_remove(&buffer->recency);
            list_add_first(&shard->unused, &buffer->recency);
        }
    }
    mutex_unlock(&shard->mutex);
}

bool buffer_is_verified(const struct buffer *buffer, uint64_t tag)
{
    const struct cached_buffer *cached =
        (const struct cached_buffer *)((const char *)buffer -
                                       offsetof(struct cached_buffer, public));

    return tag != 0 && atomic_load_explicit(&cached->verified_tag, memory_order_relaxed) == tag;
}

void buffer_set_verified(struct buffer *buffer, uint64_t tag)
{
    struct cached_buffer *cached = container_of(buffer, struct cached_buffer, public);

    atomic_store_explicit(&cached->verified_tag, tag, memory_order_relaxed);
}

void buffer_cache_get_statistics(struct buffer_cache *cache, struct buffer_statistics *result)
{
    result->device_reads = atomic_load_explicit(&cache->device_reads, memory_order_relaxed);
    result->blocks_read = atomic_load_explicit(&cache->blocks_read, memory_order_relaxed);
    result->hits = atomic_load_explicit(&cache->hits, memory_order_relaxed);
}
