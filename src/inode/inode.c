/* SPDX-License-Identifier: MIT */
/*
 * Reads inodes from the inode tables and keeps those that are held, once each, in a sharded hash.
 *
 * An inode is read with no lock held; when two threads read the same one, the first to enter it
 * into the hash wins and the other drops its copy. The last put takes it out and frees it, or, if
 * it has no name any more, hands it to who asks by inode_take_unlinked.
 *
 * Locks: one mutex per shard, held for look-ups only. Callers: map, dir, data, fs.
 */
#include "inode/inode.h"

#include <errno.h>
#include <stdlib.h>

#include "inode/table.h"
#include "inode/xattr.h"

/* Blocks of the inode table read at once, as neighbours are soon asked for. */
#define READ_AROUND_BYTES (64u * 1024)

static struct inode_shard *shard_of(struct inode_table *table, uint32_t ino)
{
    return &table->shards[ino % INODE_SHARD_COUNT];
}

static struct inode **bucket_of(struct inode_shard *shard, uint32_t ino)
{
    return &shard->buckets[ino / INODE_SHARD_COUNT % INODE_BUCKET_COUNT];
}

int inode_table_create(const struct volume *volume, struct inode_table **result)
{
    struct inode_table *table = calloc(1, sizeof(*table));

    if (table == NULL)
        return -ENOMEM;
    table->volume = volume;
    for (unsigned int i = 0; i < INODE_SHARD_COUNT; i++)
        mutex_init(&table->shards[i].mutex, LOCK_RANK_INODE_TABLE, "inode shard");
    mutex_init(&table->orphans_mutex, LOCK_RANK_ORPHANS, "orphans");
    list_init(&table->orphans);
    mutex_init(&table->unlinked_mutex, LOCK_RANK_LEAF, "unlinked inodes");
    list_init(&table->unlinked);
    *result = table;
    return 0;
}

void inode_table_destroy(struct inode_table *table)
{
    if (table == NULL)
        return;
    for (unsigned int i = 0; i < INODE_SHARD_COUNT; i++)
        mutex_destroy(&table->shards[i].mutex);
    mutex_destroy(&table->orphans_mutex);
    mutex_destroy(&table->unlinked_mutex);
    free(table);
}

size_t inode_table_count(struct inode_table *table)
{
    size_t count = 0;

    for (unsigned int i = 0; i < INODE_SHARD_COUNT; i++) {
        mutex_lock(&table->shards[i].mutex);
        count += table->shards[i].count;
        mutex_unlock(&table->shards[i].mutex);
    }
    return count;
}

/* Finds where an inode lies. `offset` is within the block. */
static int inode_locate(const struct volume *volume, uint32_t ino, uint64_t *block,
                        uint32_t *offset, struct group_descriptor *descriptor)
{
    const struct superblock *sb = &volume->sb;
    uint32_t index = (ino - 1) % sb->inodes_per_group;
    int error = volume_read_group(volume, (ino - 1) / sb->inodes_per_group, descriptor);

    if (error != 0)
        return error;
    *block = descriptor->inode_table + index / sb->inodes_per_block;
    *offset = index % sb->inodes_per_block * sb->inode_bytes;
    return 0;
}

static int inode_get_buffer(const struct volume *volume, uint32_t ino, struct buffer **buffer,
                            const void **raw)
{
    const struct superblock *sb = &volume->sb;
    struct group_descriptor descriptor;
    uint64_t block;
    uint32_t offset;
    int error = inode_locate(volume, ino, &block, &offset, &descriptor);

    if (error != 0)
        return error;
    uint32_t window = MAX(READ_AROUND_BYTES / sb->block_bytes, 1u);
    uint64_t first = descriptor.inode_table + ROUND_DOWN(block - descriptor.inode_table, window);
    uint64_t end = MIN(first + window, descriptor.inode_table + sb->inode_table_blocks);
    error = buffer_get_window(volume->buffers, block, first, (uint32_t)(end - first), buffer);
    if (error != 0) {
        log_error(volume->log, "inode %u: cannot read it from block %llu", ino,
                  (unsigned long long)block);
        return error;
    }
    *raw = (const char *)(*buffer)->data + offset;
    return 0;
}

int inode_read_raw(const struct inode *inode, struct buffer **buffer, const void **raw)
{
    return inode_get_buffer(inode->volume, inode->ino, buffer, raw);
}

/*
 * Reads and checks an inode. One that was never used may be all zeros and without a checksum, so
 * whether it is in use is decided first.
 */
static int inode_load(const struct volume *volume, uint32_t ino, bool wants_orphans,
                      struct inode_fields *fields)
{
    struct buffer *buffer;
    const void *raw;
    int error = inode_get_buffer(volume, ino, &buffer, &raw);

    if (error != 0)
        return error;
    const char *reason = inode_parse(&volume->sb, raw, fields);
    if (reason == NULL && (fields->mode == 0 || (fields->link_count == 0 && !wants_orphans))) {
        error = -ESTALE;
    } else if (!volume->skip_checksums && !inode_checksum_matches(&volume->sb, ino, raw)) {
        log_error(volume->log, "inode %u: checksum does not match", ino);
        error = -EBADMSG;
    } else if (reason != NULL) {
        log_error(volume->log, "inode %u: %s", ino, reason);
        error = -EUCLEAN;
    }
    buffer_put(buffer);
    return error;
}

static struct inode *shard_find_locked(struct inode_shard *shard, uint32_t ino)
    REQUIRES(&shard->mutex)
{
    struct inode *inode = *bucket_of(shard, ino);

    while (inode != NULL && inode->ino != ino)
        inode = inode->chained;
    if (inode != NULL)
        inode->references++;
    return inode;
}

void inode_discard(struct inode *inode)
{
    rwlock_destroy(&inode->mappings.lock);
    mutex_destroy(&inode->fields_mutex);
    rwlock_destroy(&inode->map_lock);
    rwlock_destroy(&inode->xattr_lock);
    range_lock_destroy(&inode->ranges);
    rwlock_destroy(&inode->names_lock);
    free(inode->mappings.mappings);
    free(inode);
}

/* Makes an inode from its fields, with one reference, not in the table yet. */
static struct inode *inode_make(struct inode_table *table, uint32_t ino,
                                const struct inode_fields *fields)
{
    struct inode *inode = calloc(1, sizeof(*inode));

    if (inode == NULL)
        return NULL;
    inode->table = table;
    inode->volume = table->volume;
    inode->ino = ino;
    inode->fields = *fields;
    inode->checksum_seed = inode_checksum_seed(&table->volume->sb, ino, fields->generation);
    inode->references = 1;
    atomic_init(&inode->size, fields->size);
    list_init(&inode->orphan_link);
    rwlock_init(&inode->names_lock, LOCK_RANK_NAMES, "names");
    range_lock_init(&inode->ranges);
    rwlock_init(&inode->xattr_lock, LOCK_RANK_XATTR, "extended attributes");
    rwlock_init(&inode->map_lock, LOCK_RANK_MAP, "map");
    mutex_init(&inode->fields_mutex, LOCK_RANK_INODE_FIELDS, "inode fields");
    rwlock_init(&inode->mappings.lock, LOCK_RANK_MAP_CACHE, "mapping cache");
    return inode;
}

static void shard_enter_locked(struct inode_shard *shard, struct inode *inode)
    REQUIRES(&shard->mutex)
{
    struct inode **bucket = bucket_of(shard, inode->ino);

    inode->chained = *bucket;
    *bucket = inode;
    shard->count++;
}

static int get(struct inode_table *table, uint64_t number, bool wants_orphans,
               struct inode **result)
{
    const struct volume *volume = table->volume;

    if (number == 0 || number > volume->sb.inode_count)
        return -ENOENT;
    uint32_t ino = (uint32_t)number;
    struct inode_shard *shard = shard_of(table, ino);
    mutex_lock(&shard->mutex);
    struct inode *inode = shard_find_locked(shard, ino);
    mutex_unlock(&shard->mutex);
    if (inode != NULL) {
        *result = inode;
        return 0;
    }

    struct inode_fields fields;
    int error = inode_load(volume, ino, wants_orphans, &fields);
    if (error != 0)
        return error;
    struct inode *loaded = inode_make(table, ino, &fields);
    if (loaded == NULL)
        return -ENOMEM;
    /* What changed it before it was last put is in a transaction up to the running one. */
    if (volume->journal != NULL) {
        journal_sequence sequence = journal_running_sequence(volume->journal);

        atomic_init(&loaded->changed_in, sequence);
        atomic_init(&loaded->data_changed_in, sequence);
    }
    mutex_lock(&shard->mutex);
    inode = shard_find_locked(shard, ino);
    if (inode == NULL) {
        shard_enter_locked(shard, loaded);
        inode = loaded;
    }
    mutex_unlock(&shard->mutex);
    if (inode != loaded)
        inode_discard(loaded);
    *result = inode;
    return 0;
}

int inode_get(struct inode_table *table, uint64_t ino, struct inode **inode)
{
    return get(table, ino, false, inode);
}

int inode_get_orphan(struct inode_table *table, uint64_t ino, struct inode **inode)
{
    return get(table, ino, true, inode);
}

int inode_create(struct handle *handle, struct inode_table *table, uint32_t ino,
                 const struct inode_fields *fields, struct inode **result)
{
    struct inode *inode = inode_make(table, ino, fields);

    if (inode == NULL)
        return -ENOMEM;
    int error = inode_write_new(handle, inode);
    if (error != 0) {
        inode_discard(inode);
        return error;
    }
    struct inode_shard *shard = shard_of(table, ino);
    mutex_lock(&shard->mutex);
    shard_enter_locked(shard, inode);
    mutex_unlock(&shard->mutex);
    *result = inode;
    return 0;
}

void inode_ref(struct inode *inode)
{
    struct inode_shard *shard = shard_of(inode->table, inode->ino);

    mutex_lock(&shard->mutex);
    inode->references++;
    mutex_unlock(&shard->mutex);
}

void inode_put(struct inode *inode)
{
    if (inode == NULL)
        return;
    struct inode_table *table = inode->table;
    struct inode_shard *shard = shard_of(table, inode->ino);
    bool is_last;

    mutex_lock(&shard->mutex);
    is_last = --inode->references == 0;
    if (is_last) {
        struct inode **link = bucket_of(shard, inode->ino);

        while (*link != inode)
            link = &(*link)->chained;
        *link = inode->chained;
        shard->count--;
    }
    mutex_unlock(&shard->mutex);
    if (!is_last)
        return;
    /* Nobody else has it any more, so that its fields need no lock. */
    if (inode->fields.link_count > 0) {
        inode_discard(inode);
        return;
    }
    mutex_lock(&table->unlinked_mutex);
    list_add_last(&table->unlinked, &inode->unlinked_link);
    mutex_unlock(&table->unlinked_mutex);
}

struct inode *inode_take_unlinked(struct inode_table *table)
{
    struct inode *inode = NULL;

    mutex_lock(&table->unlinked_mutex);
    if (!list_is_empty(&table->unlinked)) {
        inode = list_first(&table->unlinked, struct inode, unlinked_link);
        list_remove(&inode->unlinked_link);
    }
    mutex_unlock(&table->unlinked_mutex);
    return inode;
}

int inode_read_inline(const struct inode *inode, struct inline_data *result)
{
    struct xattr_holder holder;
    int error = xattr_find_in_inode(inode, XATTR_SYSTEM, "data", 4, &holder);

    result->head = inode->fields.block;
    result->head_bytes = INODE_BLOCK_BYTES;
    result->tail = NULL;
    result->tail_bytes = 0;
    result->buffer = NULL;
    if (error == -ENODATA) {
        log_error(inode->volume->log, "inode %u: inline data without its attribute", inode->ino);
        return -EUCLEAN;
    }
    if (error != 0)
        return error;
    if (holder.view.value_ino != 0) {
        log_error(inode->volume->log, "inode %u: inline data in another inode", inode->ino);
        buffer_put(holder.buffer);
        return -EUCLEAN;
    }
    result->tail = holder.view.value;
    result->tail_bytes = holder.view.value_bytes;
    result->buffer = holder.buffer;
    return 0;
}
