/* SPDX-License-Identifier: MIT */
/*
 * The allocator as a whole: making it, counts, statistics. See allocate.h for the states of a
 * block; reserve.c, claim.c and inodes.c have the calls, space_group.c the groups in memory.
 *
 * Counts: what is free on the disk is base + delta. The base, what was free at the opening, comes
 * from the superblock if that can be trusted, else from a sum over all descriptors that is made
 * with the first request. Before a shortage is reported the sum is made in any case.
 *
 * Locks: count_mutex, a leaf.
 * Callers: fs.
 */
#include "space/allocate.h"

#include <errno.h>
#include <stdlib.h>

#include "space/space_group.h"

#define DEFAULT_MAX_BITMAP_BYTES ((size_t)32 << 20)

static int allocate_arrays(struct space *space, uint32_t group_count)
{
    space->groups = calloc(group_count, sizeof(*space->groups));
    space->run_hints = malloc(group_count * sizeof(*space->run_hints));
    space->inode_hints = malloc(group_count * sizeof(*space->inode_hints));
    if (space->groups == NULL || space->run_hints == NULL || space->inode_hints == NULL)
        return -ENOMEM;
    for (uint32_t number = 0; number < group_count; number++) {
        atomic_init(&space->run_hints[number], SPACE_HINT_UNKNOWN);
        atomic_init(&space->inode_hints[number], SPACE_HINT_UNKNOWN);
    }
    return 0;
}

static void free_arrays(struct space *space)
{
    free(space->groups);
    free(space->run_hints);
    free(space->inode_hints);
    free(space);
}

int space_create(struct volume *volume, struct journal *journal,
                 const struct space_options *options, struct space **result)
{
    const struct superblock *sb = &volume->sb;
    struct space *space;

    if (volume->backup_group != 0) {
        log_error(volume->log, "blocks cannot be allocated with a backup superblock in use");
        return -EINVAL;
    }
    space = calloc(1, sizeof(*space));
    if (space == NULL)
        return -ENOMEM;
    int error = allocate_arrays(space, sb->group_count);
    if (error == 0)
        error = volume_enable_changes(volume);
    if (error != 0) {
        free_arrays(space);
        return error;
    }
    space->volume = volume;
    space->journal = journal;
    space->options = *options;
    space->root_clusters = (int64_t)(sb->reserved_block_count / sb->cluster_blocks);
    size_t bitmap_bytes = options->max_bitmap_bytes != 0 ? options->max_bitmap_bytes
                                                         : DEFAULT_MAX_BITMAP_BYTES;
    space->max_bitmaps = (uint32_t)MIN(bitmap_bytes / (2 * sb->block_bytes), (size_t)UINT32_MAX);
    space->base_clusters = (int64_t)(sb->free_block_count / sb->cluster_blocks);
    space->base_inodes = sb->free_inode_count;
    atomic_store(&space->usable, space->base_clusters);
    atomic_store(&space->has_discard, device_limits(volume->device)->has_discard);
    mutex_init(&space->count_mutex, LOCK_RANK_LEAF, "space counts");
    condition_init(&space->search_ended);
    mutex_init(&space->freed_mutex, LOCK_RANK_FREED, "freed blocks");
    *result = space;
    return 0;
}

void space_destroy(struct space *space)
{
    if (space == NULL)
        return;
    for (uint32_t number = 0; number < space->volume->sb.group_count; number++) {
        struct space_group *group = atomic_load(&space->groups[number]);

        if (group == NULL)
            continue;
        mutex_destroy(&group->mutex);
        free(group->taken);
        free(group->metadata);
        free(group);
    }
    volume_disable_changes(space->volume);
    condition_destroy(&space->search_ended);
    mutex_destroy(&space->count_mutex);
    mutex_destroy(&space->freed_mutex);
    free_arrays(space);
}

/* ---- Counts --------------------------------------------------------------------------------- */

int space_get_usage(struct space *space, struct space_usage *usage)
{
    uint32_t cluster_blocks = space->volume->sb.cluster_blocks;
    int error = space->options.has_exact_counts ? 0 : space_sum(space);

    if (error != 0)
        return error;
    int64_t freed = atomic_load(&space->freed);
    int64_t clusters = MAX(freed + atomic_load(&space->usable), 0);
    int64_t limit = space->options.may_use_reserved ? 0 : space->root_clusters;
    mutex_lock(&space->count_mutex);
    int64_t inodes = space->base_inodes + atomic_load(&space->inode_delta);
    mutex_unlock(&space->count_mutex);
    usage->free_blocks = (uint64_t)clusters * cluster_blocks;
    usage->available_blocks = (uint64_t)MAX(clusters - limit, 0) * cluster_blocks;
    usage->free_inodes = (uint64_t)MAX(inodes, 0);
    return 0;
}

static void set_counts(struct superblock *sb, void *context)
{
    const struct space_usage *usage = context;

    sb->free_block_count = MIN(usage->free_blocks, sb->block_count);
    sb->free_inode_count = (uint32_t)MIN(usage->free_inodes, sb->inode_count);
}

int space_update_superblock(struct handle *handle, struct space *space)
{
    struct space_usage usage = {0};
    int error = space->options.has_exact_counts ? 0 : space_sum(space);

    if (error != 0)
        return error;
    mutex_lock(&space->count_mutex);
    int64_t clusters = space->base_clusters + atomic_load(&space->cluster_delta);
    int64_t inodes = space->base_inodes + atomic_load(&space->inode_delta);
    mutex_unlock(&space->count_mutex);
    usage.free_blocks = (uint64_t)MAX(clusters, 0) * space->volume->sb.cluster_blocks;
    usage.free_inodes = (uint64_t)MAX(inodes, 0);
    return volume_change_superblock(handle, space->volume, set_counts, &usage);
}

void space_get_statistics(struct space *space, struct space_statistics *result)
{
    *result = (struct space_statistics){
        .bitmaps_read = atomic_load(&space->bitmaps_read),
        .bitmaps_scanned = atomic_load(&space->bitmaps_scanned),
        .groups_locked = atomic_load(&space->groups_locked),
        .window_hits = atomic_load(&space->window_hits),
        .windows_broken = atomic_load(&space->windows_broken),
        .discards = atomic_load(&space->discards),
        .bitmaps_in_memory = atomic_load(&space->bitmaps_in_memory),
        .groups_out_of_use = atomic_load(&space->groups_out_of_use),
    };
}
