/* SPDX-License-Identifier: MIT */
/*
 * Groups in memory: made when first used, their block bitmaps read, checked and dropped.
 *
 * Invariants, under a group's mutex: `taken` has all ones of the bitmap on the disk, and `blocked`
 * all of `taken`; free = zeros of `taken`; held = ones of `taken` that are zeros on the disk. While
 * held is 0, `taken` can be made anew from the disk, so it may be dropped. No free run of `blocked`
 * is longer than `longest`, which the hints show to who has not locked the group.
 *
 * Locks: one group's mutex at a time; never across a read of the device.
 * Callers: the allocator's files.
 */
#include "space/space_group.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Groups of a flex_bg whose metadata is looked for in a group. */
#define MAX_FLEX_MEMBERS 256u

struct space_piece space_next_piece(const struct superblock *sb, struct space_run *run)
{
    uint64_t offset = run->block - sb->first_data_block;
    uint32_t group = (uint32_t)(offset / sb->blocks_per_group);
    uint32_t first = (uint32_t)(offset % sb->blocks_per_group);
    uint32_t length = MIN(run->length_blocks, sb->blocks_per_group - first);
    struct space_piece piece = {.group = group,
                                .from = first / sb->cluster_blocks,
                                .to = (first + length - 1) / sb->cluster_blocks + 1};

    run->block += length;
    run->length_blocks -= length;
    return piece;
}

struct space_run space_piece_to_run(const struct superblock *sb, uint32_t group, uint32_t from,
                                    uint32_t to)
{
    uint64_t start = group_first_block(sb, group);
    uint64_t block = start + (uint64_t)from * sb->cluster_blocks;
    uint64_t end = MIN(start + (uint64_t)to * sb->cluster_blocks, sb->block_count);

    return (struct space_run){.block = block, .length_blocks = (uint32_t)(end - block)};
}

/* ---- Hints and sums ------------------------------------------------------------------------- */

void space_group_update_hints_locked(struct space *space, struct space_group *group)
{
    uint32_t limit = group->free - group->windowed;
    uint32_t windows = group->windowed > 0 ? SPACE_HINT_WINDOWS : 0;

    group->longest = MIN(group->longest, limit);
    atomic_store(&space->run_hints[group->number], group->longest | windows);
    atomic_store(&space->inode_hints[group->number],
                 group->has_bad_inodes ? 0 : group->descriptor.free_inodes);
}

static void note_bad_descriptor(struct space *space, uint32_t number)
{
    uint32_t unknown = SPACE_HINT_UNKNOWN;

    if (atomic_compare_exchange_strong(&space->run_hints[number], &unknown, 0))
        atomic_fetch_add(&space->groups_out_of_use, 1);
    atomic_store(&space->inode_hints[number], 0);
    atomic_store(&space->has_bad_groups, true);
    atomic_store(&space->has_bad_inodes, true);
}

static bool is_damage(int error)
{
    return error == -EUCLEAN || error == -EBADMSG;
}

int space_group_read_hints(struct space *space, uint32_t number)
{
    struct group_descriptor descriptor;
    uint32_t unknown = SPACE_HINT_UNKNOWN;

    if (atomic_load(&space->run_hints[number]) != SPACE_HINT_UNKNOWN)
        return 0;
    int error = volume_read_group(space->volume, number, &descriptor);
    if (is_damage(error)) {
        note_bad_descriptor(space, number);
        return 0;
    }
    if (error != 0)
        return error;
    /* Whoever uses the group by now knows better. */
    atomic_compare_exchange_strong(&space->inode_hints[number], &unknown, descriptor.free_inodes);
    unknown = SPACE_HINT_UNKNOWN;
    atomic_compare_exchange_strong(&space->run_hints[number], &unknown, descriptor.free_clusters);
    return 0;
}

/* What was free in a group when the volume was opened. */
static int read_initial(struct space *space, uint32_t number, int64_t *clusters, int64_t *inodes)
{
    struct group_descriptor descriptor = {0};
    struct space_group *group = atomic_load(&space->groups[number]);
    int error = group == NULL ? volume_read_group(space->volume, number, &descriptor) : 0;

    *clusters = descriptor.free_clusters;
    *inodes = descriptor.free_inodes;
    /* A change that this read may have met was made after the group had been entered. */
    if (group == NULL)
        group = atomic_load(&space->groups[number]);
    if (group != NULL) {
        *clusters = group->initial_clusters;
        *inodes = group->initial_inodes;
        return 0;
    }
    if (is_damage(error)) {
        note_bad_descriptor(space, number);
        *clusters = *inodes = 0;
        return 0;
    }
    return error;
}

int space_sum(struct space *space)
{
    int64_t all_clusters = 0, all_inodes = 0;

    if (atomic_load(&space->is_summed))
        return 0;
    for (uint32_t number = 0; number < space->volume->sb.group_count; number++) {
        int64_t clusters, inodes;
        int error = read_initial(space, number, &clusters, &inodes);

        if (error != 0)
            return error;
        all_clusters += clusters;
        all_inodes += inodes;
    }
    mutex_lock(&space->count_mutex);
    if (!atomic_load(&space->is_summed)) {
        atomic_fetch_add(&space->usable, all_clusters - space->base_clusters);
        space->base_clusters = all_clusters;
        space->base_inodes = all_inodes;
        atomic_store(&space->is_summed, true);
    }
    mutex_unlock(&space->count_mutex);
    return 0;
}

/* ---- Making a group ------------------------------------------------------------------------- */

int space_group_get(struct space *space, uint32_t number, struct space_group **result)
{
    const struct superblock *sb = &space->volume->sb;
    struct space_group *group = atomic_load(&space->groups[number]), *none = NULL;

    *result = group;
    if (group != NULL)
        return 0;
    group = calloc(1, sizeof(*group));
    if (group == NULL)
        return -ENOMEM;
    int error = volume_read_group(space->volume, number, &group->descriptor);
    if (error != 0) {
        if (is_damage(error)) {
            note_bad_descriptor(space, number);
            error = -EUCLEAN;
        }
        free(group);
        return error;
    }
    mutex_init(&group->mutex, LOCK_RANK_GROUP, "group");
    group->number = number;
    group->cluster_count = group_cluster_count(sb, number);
    group->initial_clusters = group->descriptor.free_clusters;
    group->initial_inodes = group->descriptor.free_inodes;
    group->free = group->descriptor.free_clusters;
    group->longest = group->free;
    if (number == 0)
        group->next_inode = MIN(sb->first_ino - 1, sb->inodes_per_group);
    mutex_lock(&group->mutex);
    bool is_first = atomic_compare_exchange_strong(&space->groups[number], &none, group);
    if (is_first)
        space_group_update_hints_locked(space, group);
    mutex_unlock(&group->mutex);
    if (!is_first) {
        mutex_destroy(&group->mutex);
        free(group);
        group = none;
    }
    *result = group;
    return 0;
}

/* ---- What belongs to the format ------------------------------------------------------------- */

struct metadata_list {
    struct bitmap_run *runs;
    uint32_t count, capacity;
};

/* Adds the clusters of the blocks [start, start + length) that lie in the group. */
static int metadata_add(const struct superblock *sb, uint32_t number, uint64_t start,
                        uint64_t length, struct metadata_list *list)
{
    uint64_t first = group_first_block(sb, number);
    uint64_t from = MAX(start, first);
    uint64_t to = MIN(start + length, first + group_block_count(sb, number));

    if (from >= to)
        return 0;
    struct bitmap_run run = {
        .from = (uint32_t)((from - first) / sb->cluster_blocks),
        .to = (uint32_t)((to - first + sb->cluster_blocks - 1) / sb->cluster_blocks)};
    struct bitmap_run *last = list->count > 0 ? &list->runs[list->count - 1] : NULL;
    if (last != NULL && run.from >= last->from && run.from <= last->to) {
        last->to = MAX(last->to, run.to);
        return 0;
    }
    if (list->count == list->capacity) {
        uint32_t capacity = MAX(list->capacity * 2, 4u);
        struct bitmap_run *grown = realloc(list->runs, capacity * sizeof(*grown));

        if (grown == NULL)
            return -ENOMEM;
        list->runs = grown;
        list->capacity = capacity;
    }
    list->runs[list->count++] = run;
    return 0;
}

/*
 * Collects what of the format lies in a group: its own start, and the bitmaps and tables of the
 * groups that share its flex_bg. Each kind in turn, as each lies together.
 */
static int metadata_collect(struct space *space, uint32_t number, struct metadata_list *list)
{
    const struct superblock *sb = &space->volume->sb;
    uint32_t members = MIN(sb->flex_group_count, MAX_FLEX_MEMBERS);
    uint32_t first = number - number % members;
    uint32_t end = first + MIN(members, sb->group_count - first);
    uint32_t count = 0;
    struct group_descriptor *descriptors = calloc(members, sizeof(*descriptors));
    int error = descriptors == NULL ? -ENOMEM : 0;

    for (uint32_t member = first; member < end && error == 0; member++) {
        error = volume_read_group(space->volume, member, &descriptors[count]);
        /* What a group with a damaged descriptor has here is not known. */
        if (is_damage(error))
            error = 0;
        else
            count++;
    }
    if (error == 0)
        error = metadata_add(sb, number, group_first_block(sb, number),
                             group_base_metadata_blocks(sb, number), list);
    for (uint32_t i = 0; i < count && error == 0; i++)
        error = metadata_add(sb, number, descriptors[i].block_bitmap, 1, list);
    for (uint32_t i = 0; i < count && error == 0; i++)
        error = metadata_add(sb, number, descriptors[i].inode_bitmap, 1, list);
    for (uint32_t i = 0; i < count && error == 0; i++)
        error = metadata_add(sb, number, descriptors[i].inode_table, sb->inode_table_blocks, list);
    free(descriptors);
    return error;
}

/* ---- Bitmaps in memory ---------------------------------------------------------------------- */

void space_group_condemn_locked(struct space *space, struct space_group *group, const char *reason)
{
    log_error(space->volume->log,
              "group %u: block bitmap in block %llu: %s; the group is not used any more",
              group->number, (unsigned long long)group->descriptor.block_bitmap, reason);
    group->has_bad_blocks = true;
    atomic_fetch_sub(&space->usable, group->free);
    atomic_fetch_add(&space->out_of_use, group->free);
    atomic_fetch_add(&space->groups_out_of_use, 1);
    if (group->free > 0)
        atomic_store(&space->has_bad_groups, true);
    group->free = group->windowed = group->longest = 0;
    space_group_update_hints_locked(space, group);
}

/* Judges `taken` as it comes from the disk. Returns what is wrong, or NULL. */
static const char *bitmap_judge_locked(const struct space_group *group)
{
    for (uint32_t i = 0; i < group->metadata_count; i++) {
        struct bitmap_run run = group->metadata[i];

        if (!bitmap_is_all_set(group->taken, run.from, MIN(run.to, group->cluster_count)))
            return "blocks of the format are marked free";
    }
    if (group->cluster_count - bitmap_count_set(group->taken, 0, group->cluster_count) !=
        group->descriptor.free_clusters)
        return "the number of free clusters is not that of the descriptor";
    return NULL;
}

/* Fills the new bitmaps, from the disk's (NULL: it is not initialised). */
static int bitmaps_fill_locked(struct space *space, struct space_group *group,
                               const struct buffer *buffer)
{
    const struct superblock *sb = &space->volume->sb;
    const char *reason = NULL;

    if (buffer == NULL) {
        group_init_block_bitmap(sb, group->number, &group->descriptor, group->taken);
    } else {
        if (!space->volume->skip_checksums &&
            !bitmap_block_checksum_matches(sb, &group->descriptor, buffer->data))
            reason = "checksum does not match";
        memcpy(group->taken, buffer->data, sb->block_bytes);
        bitmap_set(group->taken, group->cluster_count, sb->block_bytes * 8);
        atomic_fetch_add(&space->bitmaps_read, 1);
    }
    if (reason == NULL)
        reason = bitmap_judge_locked(group);
    if (reason != NULL) {
        space_group_condemn_locked(space, group, reason);
        return -EUCLEAN;
    }
    memcpy(group->blocked, group->taken, sb->block_bytes);
    group->longest = group->free;
    space_group_update_hints_locked(space, group);
    return 0;
}

static void bitmaps_drop_locked(struct space *space, struct space_group *group)
{
    free(group->taken);
    group->taken = group->blocked = NULL;
    atomic_fetch_sub(&space->bitmaps_in_memory, 1);
}

/* Collects the metadata of a group, if that was not done yet. */
static int metadata_install(struct space *space, struct space_group *group)
{
    struct metadata_list list = {0};
    int error = metadata_collect(space, group->number, &list);

    if (error == 0) {
        mutex_lock(&group->mutex);
        if (!group->has_metadata) {
            group->metadata = list.runs;
            group->metadata_count = list.count;
            group->has_metadata = true;
            list.runs = NULL;
        }
        mutex_unlock(&group->mutex);
    }
    free(list.runs);
    return error;
}

/* Brings the bitmaps into memory, if nobody else has by then. The group is not locked. */
static int bitmaps_load(struct space *space, struct space_group *group, bool is_uninit)
{
    uint32_t block_bytes = space->volume->sb.block_bytes;
    struct buffer *buffer = NULL;
    uint8_t *memory = malloc(2 * (size_t)block_bytes);
    int error = memory == NULL ? -ENOMEM : 0;

    if (error == 0 && !is_uninit) {
        error = buffer_get(space->volume->buffers, group->descriptor.block_bitmap, &buffer);
        if (error != 0)
            log_error(space->volume->log, "group %u: cannot read its block bitmap", group->number);
    }
    if (error == 0) {
        mutex_lock(&group->mutex);
        bool is_still_uninit = (group->descriptor.flags & GROUP_BLOCK_UNINIT) != 0;
        if (group->taken == NULL && !group->has_bad_blocks && is_uninit == is_still_uninit) {
            group->taken = memory;
            group->blocked = memory + block_bytes;
            memory = NULL;
            atomic_fetch_add(&space->bitmaps_in_memory, 1);
            error = bitmaps_fill_locked(space, group, buffer);
            if (error != 0)
                bitmaps_drop_locked(space, group);
        }
        mutex_unlock(&group->mutex);
    }
    buffer_put(buffer);
    free(memory);
    return error;
}

int space_group_lock(struct space *space, struct space_group *group) NO_THREAD_SAFETY_CHECK
{
    for (;;) {
        mutex_lock(&group->mutex);
        if (group->has_bad_blocks) {
            mutex_unlock(&group->mutex);
            return -EUCLEAN;
        }
        if (group->taken != NULL)
            return 0;
        bool is_uninit = (group->descriptor.flags & GROUP_BLOCK_UNINIT) != 0;
        bool has_metadata = group->has_metadata;
        mutex_unlock(&group->mutex);

        int error = has_metadata ? 0 : metadata_install(space, group);
        if (error == 0)
            error = bitmaps_load(space, group, is_uninit);
        if (error != 0)
            return error;
    }
}

void space_group_unlock(struct space *space, struct space_group *group) NO_THREAD_SAFETY_CHECK
{
    if (group->taken != NULL && group->held == 0 &&
        atomic_load_explicit(&space->bitmaps_in_memory, memory_order_relaxed) >
            space->max_bitmaps) {
        space_group_clear_windows_locked(space, group);
        bitmaps_drop_locked(space, group);
    }
    mutex_unlock(&group->mutex);
}

void space_group_clear_windows_locked(struct space *space, struct space_group *group)
{
    if (group->windowed == 0)
        return;
    memcpy(group->blocked, group->taken, space->volume->sb.block_bytes);
    group->windowed = 0;
    group->window_epoch++;
    group->longest = group->free;
    space_group_update_hints_locked(space, group);
}

void space_group_release(struct space *space, struct space_piece piece) NO_THREAD_SAFETY_CHECK
{
    struct space_group *group = atomic_load(&space->groups[piece.group]);
    uint32_t count = piece.to - piece.from;

    mutex_lock(&group->mutex);
    assert(group->taken != NULL && group->held >= count);
    assert(bitmap_is_all_set(group->taken, piece.from, piece.to));
    bitmap_clear(group->taken, piece.from, piece.to);
    bitmap_clear(group->blocked, piece.from, piece.to);
    group->held -= count;
    group->free += count;
    group->longest = group->free;
    space_group_update_hints_locked(space, group);
    atomic_fetch_add(&space->usable, count);
    space_group_unlock(space, group);
}

/* ---- Searches under way --------------------------------------------------------------------- */

void space_begin_search(struct space *space)
{
    atomic_fetch_add(&space->searches, ((uint64_t)1 << 32) + 1);
}

void space_end_search(struct space *space)
{
    atomic_fetch_sub(&space->searches, 1);
    if (atomic_load(&space->has_waiters) == 0)
        return;
    mutex_lock(&space->count_mutex);
    condition_broadcast(&space->search_ended);
    mutex_unlock(&space->count_mutex);
}

void space_wait_for_searches(struct space *space)
{
    mutex_lock(&space->count_mutex);
    atomic_fetch_add(&space->has_waiters, 1);
    /* One that ends after this look sees the waiter, and needs the mutex to say so. */
    if ((uint32_t)atomic_load(&space->searches) > 0)
        condition_wait(&space->search_ended, &space->count_mutex);
    atomic_fetch_sub(&space->has_waiters, 1);
    mutex_unlock(&space->count_mutex);
}
