/* SPDX-License-Identifier: MIT */
/*
 * The table of nodes: shards of a hash table, each with its mutex, each growing by itself.
 *
 * Invariants: a node in the table has at least one look-up and holds one reference to its inode.
 * The root is in no shard and lives as long as the table.
 * Locks: one shard's mutex at a time, and no call into the library below it but taking one more
 * reference, so that a put that has work to do holds nobody up.
 */
#include "nodes.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "server.h"

enum {
    SHARD_BITS = 6,
    SHARD_COUNT = 1 << SHARD_BITS,
    FIRST_BUCKET_COUNT = 16,
    SEARCHED_MIN = 16,      /* more look-ups than a program that opens a file or two makes */
    SEARCHED_MAX = 1 << 20, /* bounds how long a directory stays searched */
};

struct node {
    struct node *next;         /* in the bucket */
    struct uext4_inode *inode; /* [immutable] */
    uint64_t id;               /* [immutable] */
    uint64_t lookup_count;
    uint32_t search_count; /* of a directory: names looked up in it lately */
};

/* All fields are guarded by `mutex`. */
struct shard {
    pthread_mutex_t mutex;
    struct node **buckets;
    size_t bucket_count; /* a power of two */
    size_t node_count;
} __attribute__((aligned(64)));

struct nodes {
    struct uext4 *fs;           /* [immutable] */
    struct uext4_inode *root;   /* [immutable] */
    uint32_t root_search_count; /* guarded by the mutex of the shard that the root's id falls in */
    struct shard shards[SHARD_COUNT];
};

static uint64_t hash_id(uint64_t id)
{
    return id * UINT64_C(0x9e3779b97f4a7c15);
}

static struct shard *shard_of(struct nodes *nodes, uint64_t id)
{
    return &nodes->shards[hash_id(id) >> (64 - SHARD_BITS)];
}

static struct node **bucket_of(struct shard *shard, uint64_t id)
{
    return &shard->buckets[(hash_id(id) >> 24) & (shard->bucket_count - 1)];
}

/* Returns where the node hangs, or the end of its bucket. */
static struct node **find_locked(struct shard *shard, uint64_t id)
{
    struct node **link = bucket_of(shard, id);

    while (*link != NULL && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

/* Doubles the buckets. Without memory for it the chains get longer, nothing else. */
static void grow_locked(struct shard *shard)
{
    size_t old_count = shard->bucket_count;
    struct node **old = shard->buckets;
    struct node **buckets = calloc(old_count * 2, sizeof(struct node *));

    if (buckets == NULL)
        return;
    shard->buckets = buckets;
    shard->bucket_count = old_count * 2;
    for (size_t i = 0; i < old_count; i++) {
        while (old[i] != NULL) {
            struct node *node = old[i];
            struct node **bucket = bucket_of(shard, node->id);

            old[i] = node->next;
            node->next = *bucket;
            *bucket = node;
        }
    }
    free(old);
}

int nodes_create(struct uext4 *fs, struct nodes **result)
{
    struct nodes *nodes = aligned_alloc(_Alignof(struct nodes), sizeof(*nodes));
    int rc;

    if (nodes == NULL)
        return -ENOMEM;
    *nodes = (struct nodes){.fs = fs};
    for (size_t i = 0; i < SHARD_COUNT; i++) {
        struct shard *shard = &nodes->shards[i];

        pthread_mutex_init(&shard->mutex, NULL);
        shard->bucket_count = FIRST_BUCKET_COUNT;
        shard->buckets = calloc(FIRST_BUCKET_COUNT, sizeof(struct node *));
        if (shard->buckets == NULL) {
            shard->bucket_count = 0;
            nodes_destroy(nodes);
            return -ENOMEM;
        }
    }
    rc = uext4_inode_get(fs, UEXT4_ROOT_INO, &nodes->root);
    if (rc != 0) {
        nodes_destroy(nodes);
        return rc;
    }
    *result = nodes;
    return 0;
}

void nodes_destroy(struct nodes *nodes)
{
    if (nodes == NULL)
        return;
    for (size_t i = 0; i < SHARD_COUNT; i++) {
        struct shard *shard = &nodes->shards[i];

        for (size_t j = 0; j < shard->bucket_count; j++) {
            while (shard->buckets[j] != NULL) {
                struct node *node = shard->buckets[j];

                shard->buckets[j] = node->next;
                uext4_inode_put(node->inode);
                free(node);
            }
        }
        free(shard->buckets);
        pthread_mutex_destroy(&shard->mutex);
    }
    uext4_inode_put(nodes->root);
    free(nodes);
}

int nodes_get(struct nodes *nodes, uint64_t id, struct uext4_inode **inode)
{
    struct shard *shard = shard_of(nodes, id);
    struct node *node;

    if (id == FUSE_ROOT_ID) {
        *inode = uext4_inode_ref(nodes->root);
        return 0;
    }
    pthread_mutex_lock(&shard->mutex);
    node = *find_locked(shard, id);
    if (node != NULL)
        *inode = uext4_inode_ref(node->inode);
    pthread_mutex_unlock(&shard->mutex);
    return node != NULL ? 0 : uext4_inode_get(nodes->fs, id, inode);
}

int nodes_remember(struct nodes *nodes, struct uext4_inode *inode, uint64_t *id)
{
    uint64_t ino = uext4_inode_number(inode);
    struct shard *shard = shard_of(nodes, ino);
    struct node **link, *node;

    if (ino == UEXT4_ROOT_INO) {
        *id = FUSE_ROOT_ID;
        return 0;
    }
    if (ino == FUSE_ROOT_ID)
        return -EUCLEAN;
    *id = ino;
    pthread_mutex_lock(&shard->mutex);
    link = find_locked(shard, ino);
    node = *link;
    if (node == NULL) {
        node = malloc(sizeof(*node));
        if (node != NULL) {
            *node = (struct node){.inode = uext4_inode_ref(inode), .id = ino};
            *link = node;
            if (++shard->node_count > shard->bucket_count)
                grow_locked(shard);
        }
    }
    if (node != NULL)
        node->lookup_count++;
    pthread_mutex_unlock(&shard->mutex);
    return node != NULL ? 0 : -ENOMEM;
}

/* Returns NULL for a directory that the kernel has forgotten. */
static uint32_t *search_count_locked(struct nodes *nodes, struct shard *shard, uint64_t dir)
{
    struct node *node;

    if (dir == FUSE_ROOT_ID)
        return &nodes->root_search_count;
    node = *find_locked(shard, dir);
    return node != NULL ? &node->search_count : NULL;
}

void nodes_count_search(struct nodes *nodes, uint64_t dir)
{
    struct shard *shard = shard_of(nodes, dir);
    uint32_t *count;

    pthread_mutex_lock(&shard->mutex);
    count = search_count_locked(nodes, shard, dir);
    if (count != NULL && *count < SEARCHED_MAX)
        ++*count;
    pthread_mutex_unlock(&shard->mutex);
}

bool nodes_is_searched(struct nodes *nodes, uint64_t dir, bool is_listing_start)
{
    struct shard *shard = shard_of(nodes, dir);
    bool is_searched = false;
    uint32_t *count;

    pthread_mutex_lock(&shard->mutex);
    count = search_count_locked(nodes, shard, dir);
    if (count != NULL) {
        is_searched = *count >= SEARCHED_MIN;
        if (is_listing_start)
            *count /= 2;
    }
    pthread_mutex_unlock(&shard->mutex);
    return is_searched;
}

void nodes_forget(struct nodes *nodes, uint64_t id, uint64_t count)
{
    struct shard *shard = shard_of(nodes, id);
    struct node **link, *node;

    if (id == FUSE_ROOT_ID)
        return;
    pthread_mutex_lock(&shard->mutex);
    link = find_locked(shard, id);
    node = *link;
    if (node != NULL && node->lookup_count > count) {
        node->lookup_count -= count;
        node = NULL;
    } else if (node != NULL) {
        *link = node->next;
        shard->node_count--;
    }
    pthread_mutex_unlock(&shard->mutex);
    if (node != NULL) {
        uext4_inode_put(node->inode);
        free(node);
    }
}
