/* SPDX-License-Identifier: MIT */
/*
 * Reserving blocks: finding free runs, in memory only.
 *
 *   space_reserve: takes a share of `usable` -> find -> the goal itself | the stream's window |
 *                  walk over the groups -> gives back what was not found
 *
 * A walk goes from the goal's group on and takes the first run that is long enough; after some
 * bitmaps searched in vain, the best that it met. Walks with smaller demands follow, and at last
 * one that gives up the windows of streams. Groups without hope are passed by their hints, without
 * a lock; hints are bounds, never too low.
 *
 * The share of `usable` makes ENOSPC exact: who has one knows that a free cluster is there for him.
 * Before it is refused, searches under way are waited for, as they may give back a part.
 *
 * Locks: one group's mutex at a time. Callers: map, dir, data, inode.
 */
#include <errno.h>

#include "space/space_group.h"

#define FIRST_WINDOW_BLOCKS 16u
#define MAX_WINDOW_BLOCKS   2048u
#define MAX_SCANS           8u     /* bitmaps searched for a better run than the best so far */
#define MAX_MISSES          10000u /* searches in a row that others get ahead of */

/* One request, in clusters. */
struct search {
    struct space *space;
    struct space_stream *stream; /* or NULL */
    uint32_t wanted;
    uint32_t needed;  /* wanted, or with the window that is to be kept behind it */
    uint32_t group;   /* where it begins */
    uint32_t bit;     /* in that group; UINT32_MAX: where the last search there ended */
    bool takes_first; /* metadata: fills holes */
    bool breaks_windows;
    bool is_found;
    struct space_run run; /* the result */
};

/* ---- Taking --------------------------------------------------------------------------------- */

/* Marks [from, to) reserved; `windowed` of its clusters belong to a window. */
static void take_locked(struct search *search, struct space_group *group, uint32_t from,
                        uint32_t to, uint32_t windowed)
{
    bitmap_set(group->taken, from, to);
    bitmap_set(group->blocked, from, to);
    group->free -= to - from;
    group->held += to - from;
    group->windowed -= windowed;
    group->next = to;
    space_group_update_hints_locked(search->space, group);
    search->run = space_piece_to_run(&search->space->volume->sb, group->number, from, to);
    search->is_found = true;
}

/* Lets go of a window, [from, to) of the group. */
static void window_release_locked(struct space *space, struct space_group *group, uint32_t from,
                                  uint32_t to)
{
    bitmap_clear(group->blocked, from, to);
    group->windowed -= to - from;
    group->longest = group->free - group->windowed;
    space_group_update_hints_locked(space, group);
}

/* Takes what is wanted from the start of a free run, and keeps a window behind it. */
static void take_with_window_locked(struct search *search, struct space_group *group,
                                    struct bitmap_run run)
{
    struct space_stream *stream = search->stream;
    const struct superblock *sb = &search->space->volume->sb;
    uint32_t to = run.from + MIN(search->wanted, run.to - run.from);
    uint32_t end = run.from + MIN(MAX(search->needed, search->wanted), run.to - run.from);

    take_locked(search, group, run.from, to, 0);
    if (stream == NULL)
        return;
    bitmap_set(group->blocked, to, end);
    group->windowed += end - to;
    space_group_update_hints_locked(search->space, group);
    uint32_t taken_blocks = search->run.length_blocks;
    stream->next_block = search->run.block + taken_blocks;
    stream->window_end_block = stream->next_block + (uint64_t)(end - to) * sb->cluster_blocks;
    stream->window_epoch = group->window_epoch;
    uint32_t window = MAX(MAX(stream->window_blocks, FIRST_WINDOW_BLOCKS), taken_blocks);
    stream->window_blocks = MIN(window, MAX_WINDOW_BLOCKS / 2) * 2;
}

/* ---- In one group --------------------------------------------------------------------------- */

/* The first run of `needed` from a bit on, or from the group's start; else the longest. */
static bool group_search_locked(struct search *search, struct space_group *group, uint32_t from,
                                uint32_t needed, struct bitmap_run *run)
{
    atomic_fetch_add_explicit(&search->space->bitmaps_scanned, 1, memory_order_relaxed);
    /* Mostly the first hole is large enough: its end need not be known. */
    run->from = bitmap_find_zero(group->blocked, from, group->cluster_count);
    if (run->from < group->cluster_count && needed <= group->cluster_count - run->from) {
        run->to = run->from + needed;
        if (bitmap_find_set(group->blocked, run->from, run->to) == run->to)
            return true;
    }
    if (from < group->cluster_count &&
        bitmap_find_zero_run(group->blocked, from, group->cluster_count, needed, run) &&
        run->to - run->from >= needed)
        return true;
    if (!bitmap_find_zero_run(group->blocked, 0, group->cluster_count, needed, run)) {
        group->longest = 0;
        space_group_update_hints_locked(search->space, group);
        return false;
    }
    if (run->to - run->from < needed) {
        group->longest = run->to - run->from;
        space_group_update_hints_locked(search->space, group);
    }
    return true;
}

static uint32_t search_start_locked(const struct search *search, const struct space_group *group)
{
    if (group->number != search->group)
        return search->takes_first ? 0 : group->next;
    return search->bit != UINT32_MAX ? search->bit : group->next;
}

static int lock_group(struct search *search, uint32_t number, struct space_group **group)
{
    int error = space_group_get(search->space, number, group);

    if (error == 0)
        error = space_group_lock(search->space, *group);
    if (error == 0)
        atomic_fetch_add_explicit(&search->space->groups_locked, 1, memory_order_relaxed);
    return error;
}

static bool has_window(const struct space_stream *stream)
{
    return stream != NULL && stream->next_block != 0 &&
           stream->next_block < stream->window_end_block;
}

/* Splits a block number into its group and bit. */
static void locate(const struct superblock *sb, uint64_t block, uint32_t *group, uint32_t *bit)
{
    uint64_t offset = block - sb->first_data_block;

    *group = (uint32_t)(offset / sb->blocks_per_group);
    *bit = (uint32_t)(offset % sb->blocks_per_group / sb->cluster_blocks);
}

/* Takes from the stream's window; `goal` may lie in it, and else is of no interest. */
static void take_from_window_locked(struct search *search, struct space_group *group, uint64_t goal)
{
    struct space_stream *stream = search->stream;
    const struct superblock *sb = &search->space->volume->sb;
    uint32_t number, from, end_bit;

    locate(sb, stream->next_block, &number, &from);
    locate(sb, stream->window_end_block - 1, &number, &end_bit);
    end_bit++;
    if (goal > stream->next_block && goal < stream->window_end_block) {
        uint32_t goal_bit;

        locate(sb, goal, &number, &goal_bit);
        if (goal_bit > from)
            window_release_locked(search->space, group, from, goal_bit);
        from = goal_bit;
    }
    uint32_t to = from + MIN(search->wanted, end_bit - from);
    take_locked(search, group, from, to, to - from);
    stream->next_block = search->run.block + search->run.length_blocks;
    atomic_fetch_add_explicit(&search->space->window_hits, 1, memory_order_relaxed);
}

static int try_window(struct search *search, uint64_t goal)
{
    struct space_stream *stream = search->stream;
    struct space_group *group;
    uint32_t number, bit;

    if (!has_window(stream))
        return 0;
    locate(&search->space->volume->sb, stream->next_block, &number, &bit);
    int error = lock_group(search, number, &group);
    if (error != 0) {
        stream->window_end_block = 0;
        return error == -EUCLEAN ? 0 : error;
    }
    if (stream->window_epoch == group->window_epoch)
        take_from_window_locked(search, group, goal);
    else
        stream->window_end_block = 0;
    space_group_unlock(search->space, group);
    return 0;
}

/*
 * Takes a run that begins at the goal, if all that is wanted or a useful part of it is free there;
 * with `has_new_window`, the stream goes on from there.
 */
static int try_goal(struct search *search, uint64_t goal, bool has_new_window)
{
    struct space_group *group;
    uint32_t number, bit;
    struct bitmap_run run;

    locate(&search->space->volume->sb, goal, &number, &bit);
    int error = space_group_read_hints(search->space, number);
    if (error == 0 && atomic_load(&search->space->run_hints[number]) == 0)
        return 0;
    if (error == 0)
        error = lock_group(search, number, &group);
    if (error != 0)
        return error == -EUCLEAN ? 0 : error;
    if (bit < group->cluster_count && !bitmap_test(group->blocked, bit)) {
        uint32_t limit = MIN(MAX(search->needed, search->wanted), group->cluster_count - bit);

        run.from = bit;
        run.to = bitmap_find_set(group->blocked, bit, bit + limit);
        if (run.to - run.from >= MIN(search->wanted, FIRST_WINDOW_BLOCKS)) {
            if (has_new_window)
                take_with_window_locked(search, group, run);
            else
                take_locked(search, group, run.from, MIN(run.to, run.from + search->wanted), 0);
        }
    }
    space_group_unlock(search->space, group);
    return 0;
}

/* ---- Over the groups ------------------------------------------------------------------------ */

struct best {
    uint32_t group, length;
};

/* Searches one group; takes a run of `accepted`, or notes in `best` how long one there is. */
static int walk_group(struct search *search, uint32_t number, uint32_t accepted, uint32_t *scans,
                      struct best *best)
{
    struct space_group *group;
    struct bitmap_run run;
    int error = lock_group(search, number, &group);

    if (error != 0)
        return error == -EUCLEAN ? 0 : error;
    if (search->breaks_windows && group->windowed > 0) {
        space_group_clear_windows_locked(search->space, group);
        atomic_fetch_add_explicit(&search->space->windows_broken, 1, memory_order_relaxed);
    }
    if (group->longest >= accepted && group->longest > best->length) {
        (*scans)++;
        uint32_t needed = MIN(search->needed, group->longest);
        uint32_t from = search_start_locked(search, group);
        if (group_search_locked(search, group, from, needed, &run)) {
            if (run.to - run.from >= accepted)
                take_with_window_locked(search, group, run);
            else if (run.to - run.from > best->length)
                *best = (struct best){.group = number, .length = run.to - run.from};
        }
    }
    space_group_unlock(search->space, group);
    return 0;
}

static bool is_hopeful(const struct search *search, uint32_t hint, uint32_t accepted)
{
    if (search->breaks_windows && (hint & SPACE_HINT_WINDOWS) != 0)
        return true;
    return (hint & ~SPACE_HINT_WINDOWS) >= accepted;
}

/* Looks for a run of at least `accepted`; after some searches the best met will do. */
static int walk(struct search *search, uint32_t accepted)
{
    struct space *space = search->space;
    uint32_t group_count = space->volume->sb.group_count;
    struct best best = {0};
    uint32_t scans = 0;
    int kept_error = 0;

    for (uint32_t i = 0; i < group_count && !search->is_found; i++) {
        uint32_t number = (uint32_t)(((uint64_t)search->group + i) % group_count);
        int error = space_group_read_hints(space, number);

        if (error == 0 && !is_hopeful(search, atomic_load(&space->run_hints[number]), accepted))
            continue;
        if (error == 0)
            error = walk_group(search, number, accepted, &scans, &best);
        if (error == -ENOMEM)
            return error;
        if (error != 0)
            kept_error = error;
        if (scans >= MAX_SCANS && best.length > 0)
            break;
    }
    if (!search->is_found && best.length > 0) {
        best.length = 0;
        return walk_group(search, best.group, 1, &scans, &best);
    }
    return search->is_found ? 0 : kept_error;
}

/* Looks everywhere, for less and less. */
static int walk_all(struct search *search)
{
    uint32_t accepted = MIN(search->wanted,
                            MAX(search->space->volume->sb.clusters_per_group / 4, 1u));
    int error = 0;

    for (; accepted > 0 && !search->is_found; accepted /= 2) {
        error = walk(search, accepted);
        if (error == -ENOMEM)
            return error;
    }
    if (!search->is_found) {
        search->breaks_windows = true;
        error = walk(search, 1);
    }
    return search->is_found ? 0 : error;
}

static bool is_goal_usable(const struct volume *volume, uint64_t goal)
{
    return goal != 0 && volume_has_blocks(volume, goal, 1);
}

/* Finds a run. 0 without is_found: others were ahead, or there is none. */
static int find(struct search *search, uint64_t goal)
{
    struct space *space = search->space;
    const struct superblock *sb = &space->volume->sb;
    struct space_stream *stream = search->stream;
    uint64_t next = stream != NULL ? stream->next_block : 0;
    bool is_in_window = has_window(stream) && goal >= next && goal < stream->window_end_block;
    int error = 0;

    if (!is_goal_usable(space->volume, goal))
        goal = 0;
    if (has_window(stream)) {
        if (goal != 0 && !is_in_window)
            error = try_goal(search, goal, false);
        if (error == 0 && !search->is_found)
            error = try_window(search, goal);
        if (error != 0 || search->is_found)
            return error;
    }
    if (goal == 0 && is_goal_usable(space->volume, next))
        goal = next;
    if (stream != NULL)
        search->needed = MAX(search->wanted, (MAX(stream->window_blocks, FIRST_WINDOW_BLOCKS) +
                                              sb->cluster_blocks - 1) /
                                                 sb->cluster_blocks);
    search->group = MIN(atomic_load(&space->cursor), sb->group_count - 1);
    search->bit = UINT32_MAX;
    if (goal != 0) {
        error = try_goal(search, goal, true);
        if (error != 0 || search->is_found)
            return error;
        locate(sb, goal, &search->group, &search->bit);
    }
    error = walk_all(search);
    if (error == 0 && search->is_found && goal == 0)
        atomic_store(&space->cursor,
                     (uint32_t)((search->run.block - sb->first_data_block) / sb->blocks_per_group));
    return error;
}

/* ---- The request ---------------------------------------------------------------------------- */

/* Takes a share of what may be used, up to `wanted`. */
static uint32_t take_share(struct space *space, uint32_t wanted, int64_t limit)
{
    int64_t usable = atomic_load(&space->usable);

    while (usable > limit) {
        int64_t share = MIN((int64_t)wanted, usable - limit);

        if (atomic_compare_exchange_weak(&space->usable, &usable, usable - share))
            return (uint32_t)share;
    }
    return 0;
}

static uint32_t cluster_count(const struct superblock *sb, uint32_t blocks)
{
    return blocks / sb->cluster_blocks + (blocks % sb->cluster_blocks != 0);
}

/* One try. *has_missed: something was free, but others were ahead. */
static int try_reserve(struct search *search, uint64_t goal, int64_t limit, bool *has_missed)
{
    struct space *space = search->space;
    uint32_t wanted = search->wanted;
    int error = 0;

    space_begin_search(space);
    uint32_t share = take_share(space, wanted, limit);
    search->wanted = search->needed = share;
    if (share > 0)
        error = find(search, goal);
    *has_missed = share > 0 && !search->is_found;
    if (search->is_found)
        share -= cluster_count(&space->volume->sb, search->run.length_blocks);
    atomic_fetch_add(&space->usable, share);
    space_end_search(space);
    return error;
}

/*
 * Decides what a request in vain ends with; 0: it is worth another try. Exact, as it looks when no
 * search is under way: then `usable` is what the groups have.
 */
static int judge_shortage(struct space *space, int64_t limit)
{
    bool was_summed = atomic_load(&space->is_summed);
    int error = space_sum(space);

    if (error != 0 || !was_summed)
        return error;
    uint64_t searches = atomic_load(&space->searches);
    if ((uint32_t)searches > 0) {
        space_wait_for_searches(space);
        return 0;
    }
    /* A commit makes freed clusters usable first: in this order none is overlooked. */
    int64_t freed = atomic_load(&space->freed);
    int64_t usable = atomic_load(&space->usable);
    bool has_bad_groups = atomic_load(&space->has_bad_groups);
    if (atomic_load(&space->searches) != searches || usable > limit)
        return 0;
    if (usable + freed > limit)
        return -EAGAIN;
    return has_bad_groups ? -EUCLEAN : -ENOSPC;
}

int space_reserve(struct space *space, uint64_t goal, uint32_t wanted, unsigned int flags,
                  struct space_stream *stream, struct space_run *result)
{
    const struct superblock *sb = &space->volume->sb;
    bool is_privileged = (flags & SPACE_PRIVILEGED) != 0 || space->options.may_use_reserved;
    bool is_metadata = (flags & SPACE_METADATA) != 0;
    int64_t limit = is_privileged ? 0 : space->root_clusters;
    uint32_t clusters = MIN(MAX(cluster_count(sb, wanted), 1u), sb->clusters_per_group);
    unsigned int misses = 0;
    int error = space->options.has_exact_counts ? 0 : space_sum(space);

    if (error != 0)
        return error;
    while (misses < MAX_MISSES) {
        struct search search = {.space = space,
                                .stream = is_metadata ? NULL : stream,
                                .wanted = clusters,
                                .takes_first = is_metadata};
        bool has_missed;

        error = try_reserve(&search, goal, limit, &has_missed);

        if (error == 0 && search.is_found)
            *result = search.run;
        if (error != 0 || search.is_found)
            return error;
        error = judge_shortage(space, limit);
        if (error != 0)
            return error;
        misses += has_missed ? 1 : 0;
    }
    log_error(space->volume->log, "free blocks are counted, but none is found");
    return -EUCLEAN;
}

void space_unreserve(struct space *space, struct space_run run)
{
    while (run.length_blocks > 0)
        space_group_release(space, space_next_piece(&space->volume->sb, &run));
}

void space_end_stream(struct space *space, struct space_stream *stream) NO_THREAD_SAFETY_CHECK
{
    const struct superblock *sb = &space->volume->sb;

    if (has_window(stream)) {
        uint32_t number, from, last;

        locate(sb, stream->next_block, &number, &from);
        locate(sb, stream->window_end_block - 1, &number, &last);
        struct space_group *group = atomic_load(&space->groups[number]);
        mutex_lock(&group->mutex);
        if (stream->window_epoch == group->window_epoch)
            window_release_locked(space, group, from, last + 1);
        space_group_unlock(space, group);
    }
    stream->window_end_block = 0;
    stream->window_blocks = 0;
}
