/* SPDX-License-Identifier: MIT */
/*
 * Group descriptors, read through the buffer cache when they are asked for: opening a file system
 * costs nothing in proportion to its size; and the superblock's block.
 *
 * Locks     Once changes are enabled, a descriptor's bytes are read and written under the stripe of
 *           locks that its group falls into, so that a reader never meets a half-written one. Who
 *           writes it holds the group's own lock too. The superblock's bytes have a lock. Nothing
 *           but buffers and the journal is locked below.
 * Callers   space, inode, fs.
 */
#include "space/volume.h"

#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"
#include "journal/journal.h"

#define STRIPE_COUNT 16u

struct volume_locks {
    struct mutex descriptors[STRIPE_COUNT];
    struct mutex superblock;
};

int volume_enable_changes(struct volume *volume)
{
    struct volume_locks *locks = calloc(1, sizeof(*locks));

    if (locks == NULL)
        return -ENOMEM;
    for (unsigned int i = 0; i < STRIPE_COUNT; i++)
        mutex_init(&locks->descriptors[i], LOCK_RANK_DESCRIPTOR, "descriptor stripe");
    mutex_init(&locks->superblock, LOCK_RANK_DESCRIPTOR, "superblock");
    volume->locks = locks;
    return 0;
}

void volume_disable_changes(struct volume *volume)
{
    struct volume_locks *locks = volume->locks;

    if (locks == NULL)
        return;
    volume->locks = NULL;
    for (unsigned int i = 0; i < STRIPE_COUNT; i++)
        mutex_destroy(&locks->descriptors[i]);
    mutex_destroy(&locks->superblock);
    free(locks);
}

static void descriptor_lock(const struct volume *volume, uint32_t group) NO_THREAD_SAFETY_CHECK
{
    if (volume->locks != NULL)
        mutex_lock(&volume->locks->descriptors[group % STRIPE_COUNT]);
}

static void descriptor_unlock(const struct volume *volume, uint32_t group) NO_THREAD_SAFETY_CHECK
{
    if (volume->locks != NULL)
        mutex_unlock(&volume->locks->descriptors[group % STRIPE_COUNT]);
}

int volume_get_descriptor(const struct volume *volume, uint32_t group, struct buffer **buffer,
                          uint32_t *offset_bytes)
{
    if (group >= volume->sb.group_count)
        return -ERANGE;
    uint64_t block = group_descriptor_block(&volume->sb, group, volume->backup_group, offset_bytes);
    if (!volume_has_blocks(volume, block, 1)) {
        log_error(volume->log, "group %u: its descriptor lies outside the file system", group);
        return -EUCLEAN;
    }
    int error = buffer_get(volume->buffers, block, buffer);
    if (error != 0)
        log_error(volume->log, "group %u: cannot read its descriptor in block %llu", group,
                  (unsigned long long)block);
    return error;
}

int volume_read_group(const struct volume *volume, uint32_t group, struct group_descriptor *result)
{
    const struct superblock *sb = &volume->sb;
    struct buffer *buffer;
    uint32_t offset;
    int error = volume_get_descriptor(volume, group, &buffer, &offset);

    if (error != 0)
        return error;
    const void *raw = (const char *)buffer->data + offset;
    descriptor_lock(volume, group);
    const char *reason = group_descriptor_parse(sb, group, raw, result);
    bool has_matching_checksum = volume->skip_checksums ||
                                 group_descriptor_checksum_matches(sb, group, raw);
    descriptor_unlock(volume, group);
    if (reason != NULL) {
        log_error(volume->log, "group %u: descriptor in block %llu: %s", group,
                  (unsigned long long)buffer->block, reason);
        error = -EUCLEAN;
    } else if (!has_matching_checksum) {
        log_error(volume->log, "group %u: descriptor in block %llu: checksum does not match", group,
                  (unsigned long long)buffer->block);
        error = -EBADMSG;
    }
    buffer_put(buffer);
    return error;
}

void volume_format_group(const struct volume *volume, uint32_t group,
                         const struct group_descriptor *descriptor, void *raw)
{
    descriptor_lock(volume, group);
    group_descriptor_format(&volume->sb, group, descriptor, raw);
    descriptor_unlock(volume, group);
}

static int change_superblock_locked(struct handle *handle, const struct volume *volume,
                                    struct buffer *buffer, uint32_t offset,
                                    void (*change)(struct superblock *sb, void *context),
                                    void *context)
{
    struct superblock sb;
    int error = journal_modify(handle, buffer);

    if (error != 0)
        return error;
    char *raw = (char *)journal_data(handle, buffer) + offset;
    const char *reason = superblock_parse(raw, 0, &sb);
    if (reason != NULL) {
        log_error(volume->log, "superblock in block %llu: %s", (unsigned long long)buffer->block,
                  reason);
        return -EUCLEAN;
    }
    change(&sb, context);
    superblock_format(&sb, raw);
    return 0;
}

int volume_change_superblock(struct handle *handle, const struct volume *volume,
                             void (*change)(struct superblock *sb, void *context), void *context)
{
    uint32_t block_bytes = volume->sb.block_bytes;
    struct buffer *buffer;
    int error = buffer_get(volume->buffers, SUPERBLOCK_OFFSET_BYTES / block_bytes, &buffer);

    if (error != 0) {
        log_error(volume->log, "cannot read the superblock's block");
        return error;
    }
    mutex_lock(&volume->locks->superblock);
    error = change_superblock_locked(handle, volume, buffer, SUPERBLOCK_OFFSET_BYTES % block_bytes,
                                     change, context);
    mutex_unlock(&volume->locks->superblock);
    buffer_put(buffer);
    return error;
}
