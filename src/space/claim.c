/* SPDX-License-Identifier: MIT */
/*
 * Changing the block bitmaps on the disk, and giving freed blocks out again.
 *
 *   claim: reserved -> set in the bitmap's buffer; in memory the bit stays as it is
 *   free:  cleared in the bitmap's buffer; in memory it stays taken until the transaction commits
 *
 * What a transaction frees is kept in one list (struct space_freed), whose commit callback discards
 * and releases it. The bitmap's buffer, the descriptor in memory and the one in its buffer change
 * together, under the group's mutex.
 *
 * Locks: group, then freed_mutex or the journal's. Discards hold no lock.
 * Callers: map, dir, data, inode; the journal for the callback.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "space/space_group.h"

#define MAX_TRIM_CLUSTERS 32768u /* held at a time by space_trim */

struct space_freed {
    struct journal_callback callback;
    struct space *space;
    journal_sequence sequence;
    struct space_piece *pieces; /* [freed_mutex] until the commit */
    size_t count, capacity;     /* [freed_mutex] until the commit */
};

uint32_t space_credits(const struct space *space, uint32_t blocks)
{
    const struct superblock *sb = &space->volume->sb;
    uint64_t groups = (uint64_t)blocks / sb->blocks_per_group + 2;

    return (uint32_t)MIN(groups, sb->group_count) * 2;
}

/* ---- Discards ------------------------------------------------------------------------------- */

/* Tells the device; it may refuse, and then is not asked again. */
static int discard(struct space *space, struct space_run run)
{
    uint64_t block_bytes = space->volume->sb.block_bytes;
    int error = device_discard(space->volume->device, run.block * block_bytes,
                               run.length_blocks * block_bytes);

    atomic_fetch_add_explicit(&space->discards, 1, memory_order_relaxed);
    if (error == -EOPNOTSUPP)
        atomic_store(&space->has_discard, false);
    return error;
}

static int compare_pieces(const void *a, const void *b)
{
    const struct space_piece *left = a, *right = b;

    if (left->group != right->group)
        return left->group < right->group ? -1 : 1;
    return left->from < right->from ? -1 : left->from > right->from;
}

/* Joins neighbours, so that each group is locked, and the device is told, as seldom as can be. */
static size_t sort_and_join(struct space_piece *pieces, size_t count)
{
    size_t joined = 0;

    qsort(pieces, count, sizeof(*pieces), compare_pieces);
    for (size_t i = 1; i < count; i++) {
        if (pieces[i].group == pieces[joined].group && pieces[i].from == pieces[joined].to)
            pieces[joined].to = pieces[i].to;
        else
            pieces[++joined] = pieces[i];
    }
    return joined + 1;
}

/* ---- What a transaction freed --------------------------------------------------------------- */

static void freed_committed(struct journal_callback *callback, int error)
{
    struct space_freed *freed = container_of(callback, struct space_freed, callback);
    struct space *space = freed->space;

    mutex_lock(&space->freed_mutex);
    if (space->running_freed == freed)
        space->running_freed = NULL;
    mutex_unlock(&space->freed_mutex);
    /* After an abort the disk may show the old owner or the new: nobody gets the blocks. */
    size_t count = error == 0 && freed->count > 0 ? sort_and_join(freed->pieces, freed->count) : 0;
    for (size_t i = 0; i < count; i++) {
        struct space_piece piece = freed->pieces[i];

        if (space->options.discards && atomic_load(&space->has_discard)) {
            /* A discard is advice: whether it fails changes nothing. */
            int ignored = discard(
                space, space_piece_to_run(&space->volume->sb, piece.group, piece.from, piece.to));
            (void)ignored;
        }
        space_group_release(space, piece);
        atomic_fetch_sub(&space->freed, piece.to - piece.from);
    }
    free(freed->pieces);
    free(freed);
}

static int freed_append_locked(struct space_freed *freed, struct space_piece piece)
{
    struct space_piece *last = freed->count > 0 ? &freed->pieces[freed->count - 1] : NULL;

    if (last != NULL && last->group == piece.group && last->to == piece.from) {
        last->to = piece.to;
        return 0;
    }
    if (freed->count == freed->capacity) {
        size_t capacity = MAX(freed->capacity * 2, (size_t)8);
        struct space_piece *grown = realloc(freed->pieces, capacity * sizeof(*grown));

        if (grown == NULL)
            return -ENOMEM;
        freed->pieces = grown;
        freed->capacity = capacity;
    }
    assert(freed->pieces != NULL);
    freed->pieces[freed->count++] = piece;
    return 0;
}

/* Adds a piece to what the handle's transaction frees. */
static int freed_add(struct space *space, struct handle *handle, struct space_piece piece)
{
    journal_sequence sequence = journal_handle_sequence(handle);
    int error = 0;

    mutex_lock(&space->freed_mutex);
    struct space_freed *freed = space->running_freed;
    if (freed == NULL || freed->sequence != sequence) {
        freed = calloc(1, sizeof(*freed));
        if (freed == NULL) {
            error = -ENOMEM;
        } else {
            freed->callback.committed = freed_committed;
            freed->space = space;
            freed->sequence = sequence;
            space->running_freed = freed;
            journal_on_commit(handle, &freed->callback);
        }
    }
    if (error == 0)
        error = freed_append_locked(freed, piece);
    mutex_unlock(&space->freed_mutex);
    return error;
}

/* ---- The bitmap on the disk ----------------------------------------------------------------- */

/* A group with its two buffers, locked, and part of the handle's transaction. */
struct change {
    struct space *space;
    struct space_group *group;
    struct buffer *bitmap, *descriptor;
    uint32_t descriptor_offset;
};

static int change_modify_locked(struct handle *handle, struct change *change)
{
    struct space_group *group = change->group;
    const struct superblock *sb = &change->space->volume->sb;
    int error;

    if (change->bitmap != NULL) {
        error = journal_modify(handle, change->bitmap);
    } else {
        error = journal_create(handle, group->descriptor.block_bitmap, &change->bitmap);
        if (error == 0)
            group_init_block_bitmap(sb, group->number, &group->descriptor,
                                    journal_data(handle, change->bitmap));
    }
    return error == 0 ? journal_modify(handle, change->descriptor) : error;
}

/* Leaves the group locked if it succeeds. */
static int change_begin(struct handle *handle, struct space *space, uint32_t number,
                        struct change *change) NO_THREAD_SAFETY_CHECK
{
    *change = (struct change){.space = space};
    assert(handle->journal == space->journal);
    int error = space_group_get(space, number, &change->group);
    if (error != 0)
        return error;
    struct space_group *group = change->group;

    error = volume_get_descriptor(space->volume, number, &change->descriptor,
                                  &change->descriptor_offset);
    /* A bitmap that is initialised stays so: at most one look finds another state than the last. */
    while (error == 0) {
        error = space_group_lock(space, group);
        if (error != 0)
            break;
        if (change->bitmap != NULL || (group->descriptor.flags & GROUP_BLOCK_UNINIT) != 0) {
            error = change_modify_locked(handle, change);
            if (error == 0)
                return 0;
            space_group_unlock(space, group);
            break;
        }
        space_group_unlock(space, group);
        error = buffer_get(space->volume->buffers, group->descriptor.block_bitmap, &change->bitmap);
    }
    buffer_put(change->bitmap);
    buffer_put(change->descriptor);
    return error;
}

static void change_write(struct handle *handle, struct change *change)
{
    struct space_group *group = change->group;
    const struct volume *volume = change->space->volume;

    group->descriptor.flags &= (uint16_t)~GROUP_BLOCK_UNINIT;
    bitmap_block_set_checksum(&volume->sb, &group->descriptor, change->bitmap->data);
    volume_format_group(volume, group->number, &group->descriptor,
                        (char *)journal_data(handle, change->descriptor) +
                            change->descriptor_offset);
}

static void change_end(struct change *change) NO_THREAD_SAFETY_CHECK
{
    space_group_unlock(change->space, change->group);
    buffer_put(change->bitmap);
    buffer_put(change->descriptor);
}

/* ---- Claiming ------------------------------------------------------------------------------- */

static int claim_piece(struct handle *handle, struct space *space, struct space_piece piece)
{
    struct change change;
    int error = change_begin(handle, space, piece.group, &change);

    if (error != 0)
        return error;
    struct space_group *group = change.group;
    uint32_t count = piece.to - piece.from;
    assert(group->held >= count && bitmap_is_all_set(group->taken, piece.from, piece.to));
    if (!bitmap_is_all_zero(change.bitmap->data, piece.from, piece.to)) {
        log_error(space->volume->log,
                  "group %u: clusters %u to %u were reserved, but one of them "
                  "is allocated on the disk",
                  piece.group, piece.from, piece.to - 1);
        error = -EUCLEAN;
    } else {
        bitmap_set(journal_data(handle, change.bitmap), piece.from, piece.to);
        group->descriptor.free_clusters -= count;
        group->held -= count;
        atomic_fetch_sub(&space->cluster_delta, count);
        change_write(handle, &change);
    }
    change_end(&change);
    return error;
}

/* Takes a claim back, in the same handle. Its buffers are part of the transaction already. */
static void unclaim_piece(struct handle *handle, struct space *space, struct space_piece piece)
{
    struct change change;

    if (change_begin(handle, space, piece.group, &change) != 0) {
        log_error(space->volume->log, "group %u: clusters %u to %u stay allocated without owner",
                  piece.group, piece.from, piece.to - 1);
        return;
    }
    bitmap_clear(journal_data(handle, change.bitmap), piece.from, piece.to);
    change.group->descriptor.free_clusters += piece.to - piece.from;
    change.group->held += piece.to - piece.from;
    atomic_fetch_add(&space->cluster_delta, piece.to - piece.from);
    change_write(handle, &change);
    change_end(&change);
}

int space_claim(struct handle *handle, struct space *space, struct space_run run)
{
    const struct superblock *sb = &space->volume->sb;
    struct space_run rest = run;

    while (rest.length_blocks > 0) {
        uint64_t failed_block = rest.block;
        int error = claim_piece(handle, space, space_next_piece(sb, &rest));

        if (error == 0)
            continue;
        run.length_blocks = (uint32_t)(failed_block - run.block);
        while (run.length_blocks > 0)
            unclaim_piece(handle, space, space_next_piece(sb, &run));
        return error;
    }
    return 0;
}

/* ---- Freeing -------------------------------------------------------------------------------- */

static bool is_metadata_locked(const struct space_group *group, struct space_piece piece)
{
    for (uint32_t i = 0; i < group->metadata_count; i++)
        if (piece.from < group->metadata[i].to && piece.to > group->metadata[i].from)
            return true;
    return false;
}

static int free_piece_locked(struct handle *handle, struct change *change, struct space_piece piece)
{
    struct space *space = change->space;
    struct space_group *group = change->group;
    uint32_t count = piece.to - piece.from;
    const char *reason = NULL;

    if (is_metadata_locked(group, piece))
        reason = "belongs to the format";
    else if (!bitmap_is_all_set(change->bitmap->data, piece.from, piece.to))
        reason = "is free already";
    if (reason != NULL) {
        struct space_run run = space_piece_to_run(&space->volume->sb, piece.group, piece.from,
                                                  piece.to);

        log_error(space->volume->log, "blocks %llu to %llu are to be freed, but one of them %s",
                  (unsigned long long)run.block,
                  (unsigned long long)(run.block + run.length_blocks - 1), reason);
        return -EUCLEAN;
    }
    int error = freed_add(space, handle, piece);
    if (error != 0)
        return error;
    bitmap_clear(journal_data(handle, change->bitmap), piece.from, piece.to);
    group->descriptor.free_clusters += count;
    group->held += count;
    atomic_fetch_add(&space->cluster_delta, count);
    atomic_fetch_add(&space->freed, count);
    change_write(handle, change);
    return 0;
}

int space_free(struct handle *handle, struct space *space, struct space_run run)
{
    if (run.length_blocks > 0 && !volume_has_blocks(space->volume, run.block, run.length_blocks)) {
        log_error(space->volume->log,
                  "%u blocks from %llu are to be freed, but lie outside the "
                  "file system",
                  run.length_blocks, (unsigned long long)run.block);
        return -EUCLEAN;
    }
    while (run.length_blocks > 0) {
        struct space_piece piece = space_next_piece(&space->volume->sb, &run);
        struct change change;
        int error = change_begin(handle, space, piece.group, &change);

        if (error == 0) {
            error = free_piece_locked(handle, &change, piece);
            change_end(&change);
        }
        if (error != 0)
            return error;
    }
    return 0;
}

/* ---- Trimming ------------------------------------------------------------------------------- */

/*
 * Holds the next free run from *from on, at least `min` long, as if it were reserved. False: there
 * is none before `to`.
 */
static bool trim_take_locked(struct space *space, struct space_group *group, uint32_t *from,
                             uint32_t to, uint32_t min, struct bitmap_run *run)
{
    while (bitmap_next_zero_run(group->blocked, *from, to, run)) {
        run->to = MIN(run->to, run->from + MAX_TRIM_CLUSTERS);
        *from = run->to;
        uint32_t count = run->to - run->from;
        if (count < min)
            continue;
        bitmap_set(group->taken, run->from, run->to);
        bitmap_set(group->blocked, run->from, run->to);
        group->free -= count;
        group->held += count;
        atomic_fetch_sub(&space->usable, count);
        space_group_update_hints_locked(space, group);
        return true;
    }
    return false;
}

/* Trims [from, to) of a group. Returns the blocks discarded. */
static int64_t trim_group(struct space *space, uint32_t number, uint32_t from, uint32_t to,
                          uint32_t min)
{
    struct space_group *group;
    int64_t blocks = 0;
    int error = space_group_get(space, number, &group);

    while (error == 0) {
        struct bitmap_run found;

        error = space_group_lock(space, group);
        if (error != 0)
            break;
        bool is_taken = trim_take_locked(space, group, &from, to, min, &found);
        space_group_unlock(space, group);
        if (!is_taken)
            break;
        struct space_run run = space_piece_to_run(&space->volume->sb, number, found.from, found.to);
        error = discard(space, run);
        if (error == 0)
            blocks += run.length_blocks;
        space_unreserve(space, run);
    }
    return error == 0 || error == -EUCLEAN ? blocks : error;
}

int64_t space_trim(struct space *space, uint64_t first_block, uint64_t count, uint32_t min_blocks)
{
    const struct superblock *sb = &space->volume->sb;
    uint64_t block = MAX(first_block, (uint64_t)sb->first_data_block);
    uint64_t end = count < sb->block_count - MIN(first_block, sb->block_count) ? first_block + count
                                                                               : sb->block_count;
    uint32_t min = MAX(min_blocks / sb->cluster_blocks, 1u);
    int64_t blocks = 0;

    if (!atomic_load(&space->has_discard))
        return -EOPNOTSUPP;
    while (block < end) {
        struct space_run run = {
            .block = block,
            .length_blocks = (uint32_t)MIN(end - block, (uint64_t)sb->blocks_per_group)};
        struct space_piece piece = space_next_piece(sb, &run);

        block = MIN(run.block, end);
        int error = space_group_read_hints(space, piece.group);
        if (error != 0)
            return error;
        if ((atomic_load(&space->run_hints[piece.group]) & ~SPACE_HINT_WINDOWS) < min)
            continue;
        space_begin_search(space);
        int64_t trimmed = trim_group(space, piece.group, piece.from, piece.to, min);
        space_end_search(space);
        if (trimmed < 0)
            return trimmed;
        blocks += trimmed;
    }
    return blocks;
}
