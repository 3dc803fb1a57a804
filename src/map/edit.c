/* SPDX-License-Identifier: MIT */
/*
 * The calls that change maps, for both kinds; new maps, and goals.
 *
 * What a call is going to change is dropped from the mapping cache before the tree is touched, with
 * map_lock held, so that no look-up can bring it back before the tree is as it shall be.
 *
 * Locks: map_lock, see change.c. Callers: dir, data, fs.
 */
#include "map/edit.h"

#include <errno.h>
#include <string.h>

#include "map/change.h"

#define LONGEST_EXTENT             EXTENT_MAX_UNWRITTEN
#define MAX_INDIRECT_CREDIT_BLOCKS 4096u
#define MAX_GOAL_STEPS             4
#define MAX_GOAL_SKIP              2048u /* blocks of a hole that are left free for what may fill it */

static uint32_t flags_of(struct inode *inode)
{
    mutex_lock(&inode->fields_mutex);
    uint32_t flags = inode->fields.flags;
    mutex_unlock(&inode->fields_mutex);
    return flags;
}

static bool has_extents(struct inode *inode)
{
    return (flags_of(inode) & INODE_EXTENTS) != 0;
}

uint32_t map_credits(const struct inode *constant, uint64_t length_blocks)
{
    struct inode *inode = (struct inode *)(uintptr_t)constant; /* its locks do change */
    const struct volume *volume = inode->volume;
    uint32_t length = (uint32_t)MIN(MAX(length_blocks, 1u), LONGEST_EXTENT + 1u);
    uint32_t credits;

    rwlock_read_lock(&inode->map_lock);
    if (has_extents(inode)) {
        unsigned int depth = MIN(extent_node_header(inode->fields.block).depth, EXTENT_MAX_DEPTH);
        uint32_t pieces = (length - 1) / LONGEST_EXTENT + 1;
        uint32_t replacing = extent_replace_credits(&volume->sb, depth);
        uint32_t removing = MAX(extent_remove_credits(&volume->sb, depth), replacing) +
                            space_credits(volume->space, length);

        credits = MAX(pieces * replacing, removing);
    } else {
        credits = indirect_credits(volume, MIN(length, MAX_INDIRECT_CREDIT_BLOCKS));
    }
    rwlock_read_unlock(&inode->map_lock);
    return credits;
}

/* Begins a change of a run: nothing is known of it any more. */
static void begin(struct map_change *change, struct handle *handle, struct inode *inode,
                  uint64_t first, uint64_t end)
{
    map_change_begin(change, handle, inode);
    map_cache_drop(&inode->mappings, first, end);
}

static int check_run(const struct map_change *change, uint64_t first, uint64_t length)
{
    if (first >= MAP_MAX_FILE_BLOCKS || length > MAP_MAX_FILE_BLOCKS - first)
        return -EFBIG;
    if ((flags_of(change->inode) & INODE_INLINE_DATA) != 0)
        return extent_node_corrupt(change->inode, 0, "there is inline data in its place");
    return 0;
}

int map_insert(struct handle *handle, struct inode *inode, const struct mapping *mapping)
{
    struct map_change change;
    int error;

    if (mapping->length_blocks == 0 || mapping->kind == MAPPING_HOLE ||
        !volume_has_blocks(inode->volume, mapping->disk_block, mapping->length_blocks))
        return -EINVAL;
    begin(&change, handle, inode, mapping->file_block,
          mapping->file_block + mapping->length_blocks);
    error = check_run(&change, mapping->file_block, mapping->length_blocks);
    if (error == 0)
        error = has_extents(inode) ? extent_tree_insert(&change, mapping)
                                   : indirect_insert(&change, mapping);
    return map_change_end(&change, error);
}

static int set_kind(struct handle *handle, struct inode *inode, uint64_t file_block,
                    uint64_t length_blocks, bool is_unwritten)
{
    struct map_change change;
    int error;

    begin(&change, handle, inode, file_block, file_block + length_blocks);
    error = check_run(&change, file_block, length_blocks);
    if (error == 0 && has_extents(inode))
        error = extent_tree_set_kind(&change, file_block, file_block + length_blocks, is_unwritten);
    else if (error == 0 && is_unwritten)
        error = -EOPNOTSUPP;
    return map_change_end(&change, error);
}

int map_convert(struct handle *handle, struct inode *inode, uint64_t file_block,
                uint64_t length_blocks)
{
    return set_kind(handle, inode, file_block, length_blocks, false);
}

int map_unwrite(struct handle *handle, struct inode *inode, uint64_t file_block,
                uint64_t length_blocks)
{
    return set_kind(handle, inode, file_block, length_blocks, true);
}

int map_remove(struct handle *handle, struct inode *inode, uint64_t first, uint64_t end,
               unsigned int flags, uint64_t *remaining_end)
{
    struct map_change change;
    int error;

    (void)flags; /* freeing needs no privilege */
    end = MIN(end, MAP_MAX_FILE_BLOCKS);
    *remaining_end = MAX(first, end);
    if (first >= end) {
        *remaining_end = first;
        return 0;
    }
    begin(&change, handle, inode, first, end);
    error = check_run(&change, first, end - first);
    if (error == 0)
        error = has_extents(inode) ? extent_tree_remove(&change, first, end, false, remaining_end)
                                   : indirect_remove(&change, first, end, false, remaining_end);
    return map_change_end(&change, error);
}

int map_shift(struct handle *handle, struct inode *inode, uint64_t first, int64_t delta_blocks,
              uint64_t *next)
{
    uint64_t distance = delta_blocks < 0 ? -(uint64_t)delta_blocks : (uint64_t)delta_blocks;
    struct map_change change;
    int error;

    if (delta_blocks == 0 || first >= MAP_MAX_FILE_BLOCKS) {
        *next = MAP_SHIFT_DONE;
        return 0;
    }
    if (distance % inode->volume->sb.cluster_blocks != 0 || (delta_blocks < 0 && distance > first))
        return -EINVAL;
    begin(&change, handle, inode, delta_blocks < 0 ? first - distance : first, MAP_MAX_FILE_BLOCKS);
    error = check_run(&change, first, 1);
    if (error == 0 && !has_extents(inode))
        error = -EOPNOTSUPP;
    if (error == 0)
        error = extent_tree_shift(&change, first, delta_blocks, next);
    return map_change_end(&change, error);
}

void map_init(const struct superblock *sb, struct inode_fields *fields)
{
    memset(fields->block, 0, sizeof(fields->block));
    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_EXTENTS)) {
        extent_node_init(fields->block, EXTENT_ROOT_CAPACITY, 0);
        fields->flags |= INODE_EXTENTS;
    } else {
        fields->flags &= ~(uint32_t)INODE_EXTENTS;
    }
}

/* ---- Goals ---------------------------------------------------------------------------------- */

/* The mapping that covers a block, whole, or false. */
static bool find_whole(struct inode *inode, uint64_t file_block, struct mapping *mapping)
{
    int error;

    if (map_cache_find(&inode->mappings, file_block, mapping))
        return true;
    rwlock_read_lock(&inode->map_lock);
    error = has_extents(inode)
                ? extent_tree_find(inode, inode->fields.block, (uint32_t)file_block, mapping)
                : indirect_find(inode, inode->fields.block, (uint32_t)file_block, mapping);
    if (error == 0)
        map_cache_add(&inode->mappings, mapping);
    rwlock_read_unlock(&inode->map_lock);
    return error == 0;
}

/* A place behind the last block that is mapped before `file_block`, or 0. */
static uint64_t goal_behind(struct inode *inode, uint64_t file_block)
{
    const struct superblock *sb = &inode->volume->sb;
    uint64_t place = file_block;

    for (unsigned int steps = 0; place > 0 && steps < MAX_GOAL_STEPS; steps++) {
        struct mapping mapping;

        if (!find_whole(inode, place - 1, &mapping))
            return 0;
        if (mapping.kind != MAPPING_HOLE) {
            uint64_t skipped = file_block - place;
            uint64_t goal = mapping.disk_block + (place - mapping.file_block);

            if (skipped <= MAX_GOAL_SKIP)
                goal += skipped;
            return goal < sb->block_count ? goal : 0;
        }
        place = mapping.file_block;
    }
    return 0;
}

/*
 * The inode's share of its group's data: neighbours in the table lie as far from each other as they
 * would if all inodes had the same size, so that files which grow side by side do not collide.
 */
static uint64_t goal_of_inode(const struct inode *inode)
{
    const struct superblock *sb = &inode->volume->sb;
    uint32_t group = (inode->ino - 1) / sb->inodes_per_group;
    uint32_t index = (inode->ino - 1) % sb->inodes_per_group;
    uint64_t blocks = group_block_count(sb, group);
    uint64_t metadata = group_base_metadata_blocks(sb, group);
    uint64_t tables = UINT64_C(2) + sb->inode_table_blocks;

    if (sb->flex_group_count <= 1)
        metadata += tables;
    else if (group % sb->flex_group_count == 0)
        metadata += tables * MIN(sb->flex_group_count, sb->group_count - group);
    metadata = MIN(metadata, blocks - 1);
    return group_first_block(sb, group) + metadata +
           (blocks - metadata) * index / sb->inodes_per_group;
}

uint64_t map_goal(struct inode *inode, uint64_t file_block)
{
    uint64_t goal = goal_behind(inode, MIN(file_block, MAP_MAX_FILE_BLOCKS));

    return goal != 0 ? goal : goal_of_inode(inode);
}
