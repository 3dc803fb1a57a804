/* SPDX-License-Identifier: MIT */
/*
 * Changes of the block map of ext2 and ext3: runs are entered and removed, and with them the
 * indirect blocks that they need or leave empty.
 *
 * An insertion goes over its run twice: first it sees that all of it is a hole and counts the
 * indirect blocks that are missing, which are then allocated at once; then it fills in. A removal
 * goes from the end on, run by run.
 *
 * Invariant: no indirect block is empty.
 *
 * Locks: the caller holds map_lock exclusively. Callers: edit.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "map/change.h"

/* A way down, as far as there are blocks. nodes[0] is the root's copy. */
struct descent {
    struct indirect_path path;
    unsigned int present; /* nodes[0 .. present] exist; path.levels: all of them */
    uint8_t *nodes[INDIRECT_MAX_LEVELS + 1];
    struct buffer *buffers[INDIRECT_MAX_LEVELS + 1];
    unsigned int positions[INDIRECT_MAX_LEVELS + 1];
};

static unsigned int entry_bits(const struct map_change *change)
{
    return change->volume->sb.block_bits - 2;
}

static uint32_t entry_get(const uint8_t *node, unsigned int position)
{
    return le32_at(node + 4 * (size_t)position);
}

static void entry_set(uint8_t *node, unsigned int position, uint32_t block)
{
    le32 value = le32_make(block);

    memcpy(node + 4 * (size_t)position, &value, sizeof(value));
}

static void descent_release(struct descent *descent)
{
    for (unsigned int level = 1; level <= descent->present; level++)
        buffer_put(descent->buffers[level]);
    descent->present = 0;
}

static int descend(struct map_change *change, uint64_t file_block, struct descent *descent)
{
    *descent = (struct descent){.nodes = {change->root}};
    if (!indirect_path_find(&change->volume->sb, (uint32_t)file_block, &descent->path))
        return -EFBIG;
    descent->positions[0] = descent->path.root;
    for (unsigned int level = 1; level <= descent->path.levels; level++)
        descent->positions[level] = descent->path.positions[level - 1];
    for (unsigned int level = 1; level <= descent->path.levels; level++) {
        uint32_t block = entry_get(descent->nodes[level - 1], descent->positions[level - 1]);

        if (block == 0)
            break;
        int error = indirect_block_get(change->inode, block, &descent->buffers[level]);
        if (error != 0) {
            descent_release(descent);
            return error;
        }
        descent->nodes[level] = buffer_writable(descent->buffers[level]);
        descent->present = level;
    }
    return 0;
}

static bool is_complete(const struct descent *descent)
{
    return descent->present == descent->path.levels;
}

/* File blocks below an entry of the node at `level`. */
static uint64_t entry_reach(const struct map_change *change, const struct descent *descent,
                            unsigned int level)
{
    return UINT64_C(1) << (entry_bits(change) * (descent->path.levels - level));
}

/* First file block below the entry that is followed at `level`. */
static uint64_t entry_first(const struct map_change *change, const struct descent *descent,
                            uint64_t file_block, unsigned int level)
{
    uint64_t first = descent->path.tree_first;

    if (descent->path.levels == 0)
        return file_block;
    return first + ROUND_DOWN(file_block - first, entry_reach(change, descent, level));
}

/* Entries of the lowest node from the position on that `file_block` has. */
static unsigned int entries_left(const struct map_change *change, const struct descent *descent)
{
    unsigned int count = descent->path.levels == 0 ? INDIRECT_DIRECT_COUNT
                                                   : 1u << entry_bits(change);

    return count - descent->positions[descent->path.levels];
}

/* The node at `level` is about to change. */
static int modify_node(struct map_change *change, const struct descent *descent, unsigned int level)
{
    if (level > 0)
        return journal_modify(change->handle, descent->buffers[level]);
    change->is_root_changed = true;
    return 0;
}

/* ---- Credits -------------------------------------------------------------------------------- */

/* The most nodes that a run touches. */
static uint64_t node_bound(const struct superblock *sb, uint64_t length)
{
    uint64_t entries = sb->block_bytes / 4;
    uint64_t leaves = (length + entries - 2) / entries + 1;
    uint64_t middles = (leaves + entries - 2) / entries + 1;

    return leaves + middles + 1;
}

static uint32_t remove_credits(const struct volume *volume, uint32_t length)
{
    return INDIRECT_MAX_LEVELS + map_block_credits(&volume->sb, INDIRECT_MAX_LEVELS) +
           space_credits(volume->space, MIN(length, volume->sb.block_bytes / 4)) +
           INODE_WRITE_CREDITS;
}

static uint32_t insert_credits(const struct superblock *sb, uint64_t length, uint32_t new_count)
{
    return (uint32_t)node_bound(sb, length) + map_block_credits(sb, new_count) +
           INODE_WRITE_CREDITS;
}

uint32_t indirect_credits(const struct volume *volume, uint64_t length)
{
    uint64_t nodes = node_bound(&volume->sb, length);

    return MAX(insert_credits(&volume->sb, length, (uint32_t)nodes),
               remove_credits(volume, (uint32_t)length));
}

/* ---- Removing ------------------------------------------------------------------------------- */

static bool is_empty_but(const struct map_change *change, const uint8_t *node, unsigned int first,
                         unsigned int count)
{
    for (unsigned int i = 0; i < 1u << entry_bits(change); i++)
        if ((i < first || i >= first + count) && entry_get(node, i) != 0)
            return false;
    return true;
}

/*
 * Zeroes `count` entries from the descent's position in its lowest node on, and frees blocks that
 * become empty, upward.
 */
static int clear_entries(struct map_change *change, struct descent *descent, unsigned int count)
{
    unsigned int level = descent->present; /* the node that keeps an entry, or the root */
    unsigned int cleared = count;
    int error = 0;

    while (level > 0 &&
           is_empty_but(change, descent->nodes[level], descent->positions[level], cleared)) {
        level--;
        cleared = 1;
    }
    error = modify_node(change, descent, level);
    for (unsigned int freed = level + 1; freed <= descent->present && error == 0; freed++)
        error = map_change_forget(change, descent->buffers[freed]->block, 1);
    if (error != 0)
        return error;
    for (unsigned int i = 0; i < cleared; i++)
        entry_set(descent->nodes[level], descent->positions[level] + i, 0);
    for (unsigned int freed = descent->present; freed > level && error == 0; freed--)
        error = map_change_free_tree_block(change, descent->buffers[freed]->block);
    return error;
}

/* Finds the run that ends with the entry of `last` and does not begin before `first`. */
static unsigned int run_before(const struct descent *descent, uint64_t first, uint64_t last)
{
    unsigned int level = descent->path.levels;
    const uint8_t *node = descent->nodes[level];
    unsigned int position = descent->positions[level];
    uint32_t block = entry_get(node, position);
    unsigned int count = 1;

    while (count <= position && last - count + 1 > first &&
           entry_get(node, position - count) == (block == 0 ? 0 : block - count))
        count++;
    return count;
}

static int remove_run(struct map_change *change, struct descent *descent, uint64_t first,
                      uint64_t *end, bool is_kept)
{
    unsigned int level = descent->path.levels;
    unsigned int count = run_before(descent, first, *end - 1);
    uint32_t block = entry_get(descent->nodes[level], descent->positions[level]);
    bool is_metadata = !is_kept &&
                       (S_ISDIR(change->inode->fields.mode) || S_ISLNK(change->inode->fields.mode));
    int error;

    if (block == 0) {
        *end -= count;
        return 0;
    }
    if (change->forgotten >= MAP_MAX_FORGOTTEN)
        return -EAGAIN;
    if (is_metadata)
        count = MIN(count, MAP_MAX_FORGOTTEN - change->forgotten);
    struct space_run run = {.block = block - (count - 1), .length_blocks = count};
    descent->positions[level] -= count - 1;
    error = map_change_need(change, remove_credits(change->volume, is_kept ? 1 : count));
    if (error == 0)
        error = map_change_prepare_inode(change, 0);
    if (error == 0 && is_metadata && volume_has_blocks(change->volume, run.block, count))
        error = map_change_forget(change, run.block, count);
    if (error == 0)
        error = clear_entries(change, descent, count);
    if (error != 0)
        return error;
    *end -= count;
    if (is_kept)
        return 0;
    map_change_count_freed(change, count);
    return space_free(change->handle, change->volume->space, run);
}

static int remove_step(struct map_change *change, uint64_t first, uint64_t *end, bool is_kept)
{
    struct descent descent;
    int error = descend(change, *end - 1, &descent);

    if (error != 0)
        return error;
    if (is_complete(&descent))
        error = remove_run(change, &descent, first, end, is_kept);
    else
        *end = MAX(first, entry_first(change, &descent, *end - 1, descent.present));
    descent_release(&descent);
    return error;
}

/* One past what three levels reach. */
static uint64_t reach_end(const struct map_change *change)
{
    unsigned int bits = entry_bits(change);
    uint64_t end = INDIRECT_DIRECT_COUNT + (UINT64_C(1) << bits) + (UINT64_C(1) << 2 * bits) +
                   (UINT64_C(1) << 3 * bits);

    return MIN(end, MAP_MAX_FILE_BLOCKS);
}

int indirect_remove(struct map_change *change, uint64_t first, uint64_t end, bool is_kept,
                    uint64_t *remaining_end)
{
    int error = 0;

    *remaining_end = end;
    if (change->volume->sb.cluster_blocks > 1)
        return -EOPNOTSUPP;
    *remaining_end = MAX(first, MIN(end, reach_end(change)));
    while (*remaining_end > first && error == 0)
        error = remove_step(change, first, remaining_end, is_kept);
    /* To stop is no error, unless it would go on like that with the next handle. */
    return error == -EAGAIN && *remaining_end < end ? 0 : error;
}

/* ---- Inserting ------------------------------------------------------------------------------ */

/* Indirect blocks that [first, end), below one missing block at level present + 1, needs. */
static uint64_t count_missing(const struct map_change *change, const struct descent *descent,
                              uint64_t first, uint64_t end)
{
    uint64_t start = descent->path.tree_first, count = 0;

    for (unsigned int level = descent->present; level < descent->path.levels; level++) {
        uint64_t reach = entry_reach(change, descent, level);

        count += (end - 1 - start) / reach - (first - start) / reach + 1;
    }
    return count;
}

/* Sees that the run is a hole. */
static int survey(struct map_change *change, uint64_t first, uint64_t end, uint64_t *missing)
{
    *missing = 0;
    while (first < end) {
        struct descent descent;
        int error = descend(change, first, &descent);

        if (error != 0)
            return error;
        uint64_t stop;
        if (is_complete(&descent)) {
            unsigned int level = descent.path.levels;
            unsigned int count = (unsigned int)MIN(entries_left(change, &descent), end - first);

            stop = first + count;
            for (unsigned int i = 0; i < count && error == 0; i++)
                if (entry_get(descent.nodes[level], descent.positions[level] + i) != 0)
                    error = -EEXIST;
        } else {
            stop = entry_first(change, &descent, first, descent.present) +
                   entry_reach(change, &descent, descent.present);
            stop = MIN(stop, end);
            *missing += count_missing(change, &descent, first, stop);
        }
        descent_release(&descent);
        if (error != 0)
            return error;
        first = stop;
    }
    return 0;
}

/* Hangs new blocks where the way ends too early. */
static int complete(struct map_change *change, struct descent *descent, struct tree_block **new)
{
    while (!is_complete(descent)) {
        unsigned int level = descent->present;
        int error = modify_node(change, descent, level);

        if (error != 0)
            return error;
        entry_set(descent->nodes[level], descent->positions[level], (uint32_t)(*new)->block);
        level++;
        descent->buffers[level] = (*new)->buffer;
        buffer_hold((*new)->buffer);
        descent->nodes[level] = buffer_writable((*new)->buffer);
        descent->present = level;
        ++*new;
    }
    return 0;
}

/* Enters the run. *first is where it stopped; *new are the blocks not used. */
static int fill_in(struct map_change *change, uint64_t *first, uint64_t end, uint64_t disk_block,
                   struct tree_block **new)
{
    while (*first < end) {
        struct descent descent;
        int error = descend(change, *first, &descent);

        if (error == 0)
            error = complete(change, &descent, new);
        if (error == 0)
            error = modify_node(change, &descent, descent.path.levels);
        if (error != 0) {
            descent_release(&descent);
            return error;
        }
        unsigned int level = descent.path.levels;
        unsigned int count = (unsigned int)MIN(entries_left(change, &descent), end - *first);
        for (unsigned int i = 0; i < count; i++)
            entry_set(descent.nodes[level], descent.positions[level] + i,
                      (uint32_t)(disk_block + i));
        *first += count;
        disk_block += count;
        descent_release(&descent);
    }
    return 0;
}

/* Frees empty blocks at the end of a way, which an insertion has left after an error. */
static int prune(struct map_change *change, uint64_t file_block)
{
    struct descent descent;
    int error = descend(change, file_block, &descent);

    if (error != 0)
        return error;
    if (descent.present > 0 && is_empty_but(change, descent.nodes[descent.present], 0, 0))
        error = clear_entries(change, &descent, 0);
    descent_release(&descent);
    return error;
}

static int insert_with(struct map_change *change, const struct mapping *mapping,
                       struct tree_block *new, uint32_t new_count)
{
    uint64_t first = mapping->file_block, end = first + mapping->length_blocks;
    int64_t blocks = (int64_t)mapping->length_blocks + new_count;
    struct tree_block *unused = new;
    uint64_t remaining_end;
    int error;

    for (uint32_t i = 0; i < new_count; i++)
        if (new[i].block > UINT32_MAX) {
            map_change_drop_blocks(change, new, new_count);
            return -ENOSPC;
        }
    error = map_change_prepare_inode(change, blocks);
    if (error == 0) {
        error = fill_in(change, &first, end, mapping->disk_block, &unused);
        if (error != 0) {
            /* Back to where it was: i_blocks, the tree, and the blocks that it did not take. */
            int undone = prune(change, first);

            if (undone == 0 && first > mapping->file_block)
                undone = indirect_remove(change, mapping->file_block, first, true, &remaining_end);
            if (undone != 0)
                log_error(change->volume->log, "inode %u: a change of its map stays half-done",
                          change->inode->ino);
            map_change_count_freed(change,
                                   mapping->length_blocks + (uint64_t)(new + new_count - unused));
        }
    }
    if (error != 0)
        map_change_drop_blocks(change, unused, (uint32_t)(new + new_count - unused));
    for (struct tree_block *it = new; error == 0 ? it < new + new_count : it < unused; it++)
        buffer_put(it->buffer);
    return error;
}

int indirect_insert(struct map_change *change, const struct mapping *mapping)
{
    uint64_t end = mapping->file_block + mapping->length_blocks;
    uint64_t missing;
    int error;

    if (mapping->kind == MAPPING_UNWRITTEN || change->volume->sb.cluster_blocks > 1)
        return -EOPNOTSUPP;
    if (mapping->disk_block + mapping->length_blocks - 1 > UINT32_MAX)
        return -EFBIG;
    error = survey(change, mapping->file_block, end, &missing);
    if (error == 0)
        error = map_change_need(
            change, insert_credits(&change->volume->sb, mapping->length_blocks, (uint32_t)missing));
    if (error != 0)
        return error;
    struct tree_block *new = calloc(missing + 1, sizeof(*new));
    if (new == NULL)
        return -ENOMEM;
    error = map_change_create_blocks(change, 0, new, (uint32_t)missing);
    if (error == 0)
        error = insert_with(change, mapping, new, (uint32_t)missing);
    free(new);
    return error;
}
