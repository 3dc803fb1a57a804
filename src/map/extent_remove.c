/* SPDX-License-Identifier: MIT */
/*
 * Extents that are unmapped or move to other file blocks.
 *
 * Both go through the tree in steps, each of which leaves a sound map and has its credits before it
 * begins: what is unmapped from the end on, what moves in the order in which room comes free.
 *
 * Locks: the caller holds map_lock exclusively. Callers: edit.c, extent_insert.c.
 */
#include <errno.h>

#include "map/change.h"

/* ---- Removing ------------------------------------------------------------------------------- */

static uint64_t extent_end(const struct extent *extent)
{
    return (uint64_t)extent->file_block + extent->length_blocks;
}

/* Blocks of directories and symlinks are metadata: the journal must not bring them back. */
static bool has_metadata_blocks(const struct inode *inode)
{
    return S_ISDIR(inode->fields.mode) || S_ISLNK(inode->fields.mode);
}

/* Takes [first, end) of the entry that the path has found out of the tree. */
static int unmap(struct extent_path *path, uint64_t first, uint64_t end)
{
    const struct extent_level *leaf = extent_path_leaf(path);
    unsigned int position = (unsigned int)leaf->position;
    struct extent whole = extent_at(leaf->node, position);
    struct extent_replacement plan = {.position = position, .removed = 1};

    if (first > whole.file_block) {
        plan.entries[plan.added] = whole;
        plan.entries[plan.added++].length_blocks = (uint32_t)(first - whole.file_block);
    }
    if (end < extent_end(&whole)) {
        struct extent *right = &plan.entries[plan.added++];

        *right = whole;
        right->file_block = (uint32_t)end;
        right->length_blocks = (uint32_t)(extent_end(&whole) - end);
        right->disk_block += end - whole.file_block;
    }
    return plan.added == 0 ? extent_path_remove(path, position, 1)
                           : extent_path_replace(path, &plan, 0);
}

static int free_data(struct map_change *change, const struct mapping *removed)
{
    struct space_run run;
    int64_t blocks;
    int error = extent_tree_own_clusters(change, removed, &run, &blocks);

    if (error != 0 || blocks == 0)
        return error;
    map_change_count_freed(change, (uint64_t)blocks);
    return space_free(change->handle, change->volume->space, run);
}

/* Removes what it can of the entry that covers `end` - 1, down to `first`. */
static int remove_from_extent(struct extent_path *path, uint64_t first, uint64_t *end, bool is_kept)
{
    struct map_change *change = path->change;
    const struct extent_level *leaf = extent_path_leaf(path);
    struct extent extent = extent_at(leaf->node, (unsigned int)leaf->position);
    bool is_metadata = has_metadata_blocks(change->inode) && !is_kept;
    const struct superblock *sb = &change->volume->sb;
    uint64_t from = MAX(first, extent.file_block);

    if (change->forgotten >= MAP_MAX_FORGOTTEN)
        return -EAGAIN;
    if (is_metadata)
        from = MAX(from, *end - MIN(*end, (uint64_t)(MAP_MAX_FORGOTTEN - change->forgotten)));
    struct mapping removed = {.file_block = from,
                              .length_blocks = *end - from,
                              .disk_block = extent.disk_block + (from - extent.file_block),
                              .kind = MAPPING_WRITTEN};

    uint32_t data_credits =
        is_kept ? 0 : space_credits(change->volume->space, (uint32_t)removed.length_blocks);
    int error = map_change_need(change, MAX(extent_remove_credits(sb, path->depth),
                                            extent_replace_credits(sb, path->depth)) +
                                            data_credits);
    if (error == 0 && is_metadata)
        error = map_change_forget(change, removed.disk_block, (uint32_t)removed.length_blocks);
    if (error == 0)
        error = unmap(path, from, *end);
    if (error != 0)
        return error;
    *end = from;
    return is_kept ? 0 : free_data(change, &removed);
}

/* One step down from *end. */
static int remove_step(struct map_change *change, uint64_t first, uint64_t *end, bool is_kept)
{
    struct extent_path path;
    int error = extent_path_find(change, *end - 1, &path);

    if (error != 0)
        return error;
    const struct extent_level *leaf = extent_path_leaf(&path);
    if (leaf->position < 0) {
        /* The first index entry may be behind the block: then nothing is before it. */
        *end = leaf->low < *end ? MAX(first, leaf->low) : first;
    } else {
        struct extent extent = extent_at(leaf->node, (unsigned int)leaf->position);

        if (extent_end(&extent) < *end)
            *end = MAX(first, extent_end(&extent));
        else
            error = remove_from_extent(&path, first, end, is_kept);
    }
    extent_path_release(&path);
    return error;
}

int extent_tree_remove(struct map_change *change, uint64_t first, uint64_t end, bool is_kept,
                       uint64_t *remaining_end)
{
    int error = 0;

    *remaining_end = end;
    while (*remaining_end > first && error == 0)
        error = remove_step(change, first, remaining_end, is_kept);
    if (error == 0)
        error = extent_tree_flatten(change);
    /* To stop is no error, unless it would go on like that with the next handle. */
    return error == -EAGAIN && *remaining_end < end ? 0 : error;
}

/* ---- Moving --------------------------------------------------------------------------------- */

/* The first block behind everything that is mapped. */
static int find_end(struct map_change *change, uint64_t *end)
{
    struct extent_path path;
    int error = extent_path_find(change, MAP_MAX_FILE_BLOCKS - 1, &path);

    *end = 0;
    if (error != 0)
        return error;
    if (extent_path_leaf(&path)->position >= 0) {
        struct extent last = extent_at(extent_path_leaf(&path)->node,
                                       (unsigned int)extent_path_leaf(&path)->position);

        *end = extent_end(&last);
    }
    extent_path_release(&path);
    return 0;
}

/* -EINVAL if something is mapped in [first, end). */
static int check_hole(struct map_change *change, uint64_t first, uint64_t end)
{
    while (first < end) {
        struct mapping mapping;
        int error = extent_tree_find(change->inode, change->root, (uint32_t)first, &mapping);

        if (error != 0)
            return error;
        if (mapping.kind != MAPPING_HOLE)
            return -EINVAL;
        first = mapping.file_block + mapping.length_blocks;
    }
    return 0;
}

/* Cuts the entry that covers both sides of `first` in two. */
static int cut_at(struct map_change *change, uint64_t first)
{
    struct extent_path path;
    int error = extent_path_find(change, first, &path);

    if (error != 0)
        return error;
    const struct extent_level *leaf = extent_path_leaf(&path);
    if (leaf->position >= 0) {
        struct extent whole = extent_at(leaf->node, (unsigned int)leaf->position);

        if (whole.file_block < first && first < extent_end(&whole)) {
            uint32_t left = (uint32_t)(first - whole.file_block);
            struct extent_replacement plan = {.position = (unsigned int)leaf->position,
                                              .removed = 1,
                                              .added = 2,
                                              .entries = {whole, whole}};

            plan.entries[0].length_blocks = left;
            plan.entries[1].file_block += left;
            plan.entries[1].disk_block += left;
            plan.entries[1].length_blocks -= left;
            error = extent_path_replace(&path, &plan, 0);
        }
    }
    extent_path_release(&path);
    return error;
}

/* After a move to the left: joins the entry at `position` with the one before it. */
static int join_left(struct extent_path *path, unsigned int position)
{
    const void *leaf = extent_path_leaf(path)->node;

    if (position == 0 || position >= extent_path_count(path))
        return 0;
    struct extent left = extent_at(leaf, position - 1);
    struct extent right = extent_at(leaf, position);
    if (!extent_can_merge(&left, &right))
        return 0;
    struct extent_replacement plan = {.position = position - 1, .removed = 2, .added = 1};
    left.length_blocks += right.length_blocks;
    plan.entries[0] = left;
    return extent_path_replace(path, &plan, 0);
}

/* Moves what one leaf has from *next on to the left; *next is then behind it. */
static int shift_left_step(struct map_change *change, int64_t delta, uint64_t *next)
{
    struct extent_path path;
    int error = extent_path_find(change, *next, &path);

    if (error != 0)
        return error;
    const struct extent_level *leaf = extent_path_leaf(&path);
    unsigned int position = (unsigned int)MAX(leaf->position, 0);
    unsigned int count = extent_path_count(&path);
    if (leaf->position >= 0 && extent_at(leaf->node, position).file_block < *next)
        position++;
    if (position >= count) {
        *next = leaf->high;
    } else {
        struct extent last = extent_at(leaf->node, count - 1);

        error = extent_path_shift(&path, position, count - 1, delta);
        if (error == 0) {
            *next = extent_end(&last);
            error = join_left(&path, position);
        }
    }
    extent_path_release(&path);
    return error;
}

/* Moves what one leaf has in [first, *next) to the right; *next is then where that began. */
static int shift_right_step(struct map_change *change, uint64_t first, int64_t delta,
                            uint64_t *next)
{
    struct extent_path path;
    int error = extent_path_find(change, *next - 1, &path);

    if (error != 0)
        return error;
    const struct extent_level *leaf = extent_path_leaf(&path);
    int last = leaf->position;
    int position = last + 1;
    while (position > 0 && extent_at(leaf->node, (unsigned int)position - 1).file_block >= first)
        position--;
    if (position <= last) {
        uint64_t start = extent_at(leaf->node, (unsigned int)position).file_block;

        error = extent_path_shift(&path, (unsigned int)position, (unsigned int)last, delta);
        if (error == 0)
            *next = start;
    } else {
        /* As in remove_step; a leaf that begins before `first` is the last to look at. */
        *next = last < 0 && leaf->low < *next ? MAX(first, leaf->low) : first;
    }
    extent_path_release(&path);
    return error;
}

static int start_left(struct map_change *change, uint64_t first, int64_t delta)
{
    return check_hole(change, first - (uint64_t)-delta, first);
}

static int start_right(struct map_change *change, uint64_t first, int64_t delta)
{
    uint64_t end;
    int error = find_end(change, &end);

    if (error == 0 && end > first && (uint64_t)delta > MAP_MAX_FILE_BLOCKS - end)
        error = -EFBIG;
    return error == 0 ? cut_at(change, first) : error;
}

int extent_tree_shift(struct map_change *change, uint64_t first, int64_t delta, uint64_t *next)
{
    bool is_left = delta < 0;
    uint64_t place = *next;
    int error = 0;

    if (place == MAP_SHIFT_START) {
        error = is_left ? start_left(change, first, delta) : start_right(change, first, delta);
        if (error != 0)
            return error;
        place = is_left ? first : MAP_MAX_FILE_BLOCKS;
    }
    uint64_t start = place;
    while (error == 0 && (is_left ? place < MAP_MAX_FILE_BLOCKS : place > first)) {
        error = is_left ? shift_left_step(change, delta, &place)
                        : shift_right_step(change, first, delta, &place);
    }
    if (error != 0 && place == start)
        return error;
    *next = error == 0 ? MAP_SHIFT_DONE : place;
    if (error == 0)
        error = extent_tree_flatten(change);
    return error == -EAGAIN ? 0 : error;
}
