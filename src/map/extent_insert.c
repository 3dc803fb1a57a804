/* SPDX-License-Identifier: MIT */
/*
 * New extents, and extents that become written or unwritten.
 *
 * Entries are joined with their neighbours in the same leaf; a new one with the first of the next
 * leaf too, as that costs no more. Never across the two kinds.
 *
 * Locks: the caller holds map_lock exclusively. Callers: edit.c.
 */
#include <assert.h>
#include <errno.h>

#include "map/change.h"

static uint64_t extent_end(const struct extent *extent)
{
    return (uint64_t)extent->file_block + extent->length_blocks;
}

/* Remembers an entry that was just written. */
static void remember(const struct map_change *change, const struct extent *extent)
{
    struct mapping mapping = {.file_block = extent->file_block,
                              .length_blocks = extent->length_blocks,
                              .disk_block = extent->disk_block,
                              .kind = extent->is_unwritten ? MAPPING_UNWRITTEN : MAPPING_WRITTEN};

    map_cache_add(&change->inode->mappings, &mapping);
}

/* ---- Clusters ------------------------------------------------------------------------------- */

/* Sets *is_used if a block of [from, to) lies in a cluster of the disk. */
static int is_cluster_used(const struct map_change *change, uint64_t from, uint64_t to,
                           uint64_t cluster, bool *is_used)
{
    uint32_t cluster_blocks = change->volume->sb.cluster_blocks;

    to = MIN(to, MAP_MAX_FILE_BLOCKS);
    while (from < to && !*is_used) {
        struct mapping mapping;
        int error = extent_tree_find(change->inode, change->root, (uint32_t)from, &mapping);

        if (error != 0)
            return error;
        if (mapping.kind != MAPPING_HOLE) {
            mapping_cut(&mapping, from);
            *is_used = mapping.disk_block / cluster_blocks == cluster;
        }
        from = mapping.file_block + mapping.length_blocks;
    }
    return 0;
}

int extent_tree_own_clusters(struct map_change *change, const struct mapping *mapping,
                             struct space_run *run, int64_t *blocks)
{
    const struct superblock *sb = &change->volume->sb;
    uint32_t size = sb->cluster_blocks;
    uint64_t end = mapping->file_block + mapping->length_blocks;
    uint64_t first = mapping->disk_block / size;
    uint64_t last = (mapping->disk_block + mapping->length_blocks - 1) / size;
    bool is_first_used = false, is_last_used = false;
    int error = 0;

    if (size > 1) {
        error = is_cluster_used(change, ROUND_DOWN(mapping->file_block, size), mapping->file_block,
                                first, &is_first_used);
        if (error == 0)
            error = is_cluster_used(change, end, ROUND_UP(end, size), last, &is_last_used);
        if (error != 0)
            return error;
    }
    uint64_t own_first = first + (is_first_used ? 1 : 0);
    uint64_t own_end = last + (is_last_used ? 0 : 1);
    if (own_end < own_first)
        own_end = own_first;
    *blocks = (int64_t)((own_end - own_first) * size);
    *run = (struct space_run){.block = own_first * size,
                              .length_blocks = (uint32_t)(MIN(own_end * size, sb->block_count) -
                                                          MIN(own_first * size, sb->block_count))};
    return 0;
}

/* ---- Inserting ------------------------------------------------------------------------------ */

/* The run crosses into the range of the next leaf, which must be mapped there. */
static int blocked_by_next_leaf(const struct extent_path *path, const struct extent *extent)
{
    uint64_t place = path->levels[path->depth].high;

    while (place < extent_end(extent)) {
        struct mapping mapping;
        int error = extent_tree_find(path->change->inode, path->change->root, (uint32_t)place,
                                     &mapping);

        if (error != 0)
            return error;
        if (mapping.kind != MAPPING_HOLE)
            return -EEXIST;
        place = mapping.file_block + mapping.length_blocks;
    }
    return extent_node_corrupt(path->change->inode, 0,
                               "an index entry does not name the first block of its child");
}

/* Plans how the entry goes into the leaf, joined with its neighbours. */
static int plan_insert(struct extent_path *path, const struct extent *extent,
                       struct extent_replacement *plan)
{
    const struct extent_level *leaf = extent_path_leaf(path);
    unsigned int position = (unsigned int)(leaf->position + 1);

    *plan = (struct extent_replacement){.position = position, .added = 1, .entries = {*extent}};
    if (position > 0) {
        struct extent left = extent_at(leaf->node, position - 1);

        if (extent_end(&left) > extent->file_block)
            return -EEXIST;
        if (extent_can_merge(&left, extent)) {
            left.length_blocks += extent->length_blocks;
            plan->entries[0] = left;
            plan->position--;
            plan->removed++;
        }
    }
    if (position < extent_path_count(path)) {
        struct extent right = extent_at(leaf->node, position);

        if (right.file_block < extent_end(extent))
            return -EEXIST;
        if (extent_can_merge(&plan->entries[0], &right)) {
            plan->entries[0].length_blocks += right.length_blocks;
            plan->removed++;
        }
    } else if (leaf->high < extent_end(extent)) {
        return blocked_by_next_leaf(path, extent);
    }
    return 0;
}

/* True if the entry would stand alone at the end of a leaf, and the next leaf begins behind it. */
static bool has_next_leaf_behind(const struct extent_path *path, const struct extent *extent,
                                 const struct extent_replacement *plan)
{
    return plan->removed == 0 && plan->position == extent_path_count(path) &&
           extent_end(extent) < MAP_MAX_FILE_BLOCKS &&
           path->levels[path->depth].high == extent_end(extent);
}

/* Joins the entry with the first of the next leaf. *is_done stays false if they do not fit. */
static int insert_in_next_leaf(struct map_change *change, const struct extent *extent,
                               int64_t blocks, bool *is_done)
{
    struct extent_path path;
    int error = extent_path_find(change, extent_end(extent), &path);

    if (error != 0)
        return error;
    if (extent_path_leaf(&path)->position == 0) {
        struct extent right = extent_at(extent_path_leaf(&path)->node, 0);

        if (extent_can_merge(extent, &right)) {
            struct extent_replacement plan = {.removed = 1, .added = 1, .entries = {*extent}};

            plan.entries[0].length_blocks += right.length_blocks;
            error = extent_path_replace(&path, &plan, blocks);
            *is_done = error == 0;
            if (*is_done)
                remember(change, &plan.entries[0]);
        }
    }
    extent_path_release(&path);
    return error;
}

static int insert_extent(struct map_change *change, const struct extent *extent, int64_t blocks)
{
    struct extent_replacement plan;
    struct extent_path path;
    bool is_done = false;
    int error = extent_path_find(change, extent->file_block, &path);

    if (error != 0)
        return error;
    error = plan_insert(&path, extent, &plan);
    if (error == 0 && has_next_leaf_behind(&path, extent, &plan))
        error = insert_in_next_leaf(change, extent, blocks, &is_done);
    if (error == 0 && !is_done) {
        error = extent_path_replace(&path, &plan, blocks);
        if (error == 0)
            remember(change, &plan.entries[0]);
    }
    extent_path_release(&path);
    return error;
}

/* Takes back what was inserted of a run, and counted. */
static void take_back(struct map_change *change, uint64_t first, uint64_t end, int64_t blocks)
{
    uint64_t remaining_end = end;
    int error = 0;

    if (end > first) {
        map_cache_drop(&change->inode->mappings, first, end);
        error = extent_tree_remove(change, first, end, true, &remaining_end);
        map_change_count_freed(change, (uint64_t)blocks);
    }
    if (error != 0 || (end > first && remaining_end != first))
        log_error(change->volume->log, "inode %u: blocks %llu to %llu stay mapped after an error",
                  change->inode->ino, (unsigned long long)first, (unsigned long long)remaining_end);
}

int extent_tree_insert(struct map_change *change, const struct mapping *mapping)
{
    bool is_unwritten = mapping->kind == MAPPING_UNWRITTEN;
    uint32_t longest = is_unwritten ? EXTENT_MAX_UNWRITTEN : EXTENT_MAX_WRITTEN;
    struct mapping rest = *mapping;
    struct space_run run;
    int64_t blocks;

    if (((mapping->file_block ^ mapping->disk_block) &
         (change->volume->sb.cluster_blocks - UINT64_C(1))) != 0)
        return -EINVAL;
    int error = extent_tree_own_clusters(change, mapping, &run, &blocks);
    int64_t counted = 0;
    while (error == 0 && rest.length_blocks > 0) {
        struct extent extent = {.file_block = (uint32_t)rest.file_block,
                                .length_blocks = (uint32_t)MIN(rest.length_blocks, longest),
                                .disk_block = rest.disk_block,
                                .is_unwritten = is_unwritten};

        /* The first piece brings the count of all. */
        error = insert_extent(change, &extent, blocks - counted);
        if (error == 0) {
            counted = blocks;
            mapping_cut(&rest, rest.file_block + extent.length_blocks);
        }
    }
    if (error != 0)
        take_back(change, mapping->file_block, rest.file_block, counted);
    return error;
}

/* ---- Written and unwritten ------------------------------------------------------------------ */

/* Adds an entry, in two if it is too long for its kind. */
static void plan_add(struct extent_replacement *plan, struct extent extent)
{
    uint32_t longest = extent.is_unwritten ? EXTENT_MAX_UNWRITTEN : EXTENT_MAX_WRITTEN;
    uint32_t rest = extent.length_blocks > longest ? extent.length_blocks - longest : 0;

    assert(plan->added < ARRAY_LENGTH(plan->entries));
    extent.length_blocks -= rest;
    plan->entries[plan->added++] = extent;
    if (rest > 0) {
        extent.file_block += extent.length_blocks;
        extent.disk_block += extent.length_blocks;
        extent.length_blocks = rest;
        plan_add(plan, extent);
    }
}

/*
 * Plans to give [first, end) of the entry at `position`, which covers it, another kind. Returns
 * which of the new entries has that kind.
 */
static unsigned int plan_kind(struct extent_path *path, unsigned int position, uint64_t first,
                              uint64_t end, struct extent_replacement *plan)
{
    const void *leaf = extent_path_leaf(path)->node;
    struct extent whole = extent_at(leaf, position);
    struct extent middle = {.file_block = (uint32_t)first,
                            .length_blocks = (uint32_t)(end - first),
                            .disk_block = whole.disk_block + (first - whole.file_block),
                            .is_unwritten = !whole.is_unwritten};
    unsigned int changed;

    *plan = (struct extent_replacement){.position = position, .removed = 1};
    if (first > whole.file_block) {
        struct extent left = whole;

        left.length_blocks = (uint32_t)(first - whole.file_block);
        plan_add(plan, left);
    } else if (position > 0) {
        struct extent left = extent_at(leaf, position - 1);

        if (extent_can_merge(&left, &middle)) {
            left.length_blocks += middle.length_blocks;
            middle = left;
            plan->position--;
            plan->removed++;
        }
    }
    changed = plan->added;
    if (end < extent_end(&whole)) {
        struct extent right = whole;

        right.file_block = (uint32_t)end;
        right.length_blocks = (uint32_t)(extent_end(&whole) - end);
        right.disk_block += end - whole.file_block;
        plan_add(plan, middle);
        plan_add(plan, right);
        return changed;
    }
    if (position + 1 < extent_path_count(path)) {
        struct extent right = extent_at(leaf, position + 1);

        if (extent_can_merge(&middle, &right)) {
            middle.length_blocks += right.length_blocks;
            plan->removed++;
        }
    }
    plan_add(plan, middle);
    return changed;
}

/* Does what can be done at `place`; *place moves behind it. */
static int set_kind_step(struct map_change *change, uint64_t *place, uint64_t end,
                         bool is_unwritten)
{
    struct extent_path path;
    struct extent_replacement plan;
    int error = extent_path_find(change, *place, &path);

    if (error != 0)
        return error;
    const struct extent_level *leaf = extent_path_leaf(&path);
    unsigned int count = extent_path_count(&path);
    int position = leaf->position;
    struct extent extent = {0};
    if (position >= 0)
        extent = extent_at(leaf->node, (unsigned int)position);
    if (position < 0 || extent_end(&extent) <= *place) {
        uint64_t next = (unsigned int)(position + 1) < count
                            ? extent_at(leaf->node, (unsigned int)(position + 1)).file_block
                            : leaf->high;

        if (!is_unwritten) {
            log_error(change->volume->log,
                      "inode %u: block %llu is to become written, but it is a hole",
                      change->inode->ino, (unsigned long long)*place);
            error = -EUCLEAN;
        }
        *place = next;
    } else if (extent.is_unwritten == is_unwritten) {
        *place = extent_end(&extent);
    } else {
        uint64_t stop = MIN(end, extent_end(&extent));
        unsigned int changed = plan_kind(&path, (unsigned int)position, *place, stop, &plan);

        error = extent_path_replace(&path, &plan, 0);
        if (error == 0) {
            remember(change, &plan.entries[changed]);
            *place = stop;
        }
    }
    extent_path_release(&path);
    return error;
}

int extent_tree_set_kind(struct map_change *change, uint64_t first, uint64_t end, bool is_unwritten)
{
    int error = 0;

    while (first < end && error == 0)
        error = set_kind_step(change, &first, end, is_unwritten);
    return error;
}
