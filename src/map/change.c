/* SPDX-License-Identifier: MIT */
/*
 * A change of an inode's map in progress: its lock, its root, its tree blocks and i_blocks.
 *
 * The root in the inode stays as it is until map_change_end, which always installs what is in the
 * copy: each step leaves the copy and the blocks below it fit to be looked at.
 *
 * Locks: map_lock, exclusively, from begin to end; below it those of space and journal. Callers:
 * edit.c, extent_path.c, extent_remove.c, indirect_edit.c.
 */
#include "map/change.h"

#include <errno.h>
#include <string.h>

void map_change_begin(struct map_change *change, struct handle *handle,
                      struct inode *inode) NO_THREAD_SAFETY_CHECK
{
    *change = (struct map_change){.handle = handle, .inode = inode, .volume = inode->volume};
    rwlock_write_lock(&inode->map_lock);
    memcpy(change->root, inode->fields.block, INODE_BLOCK_BYTES);
}

int map_change_end(struct map_change *change, int error) NO_THREAD_SAFETY_CHECK
{
    int written = 0;

    if (change->is_root_changed)
        written = inode_write_block(change->handle, change->inode, change->root, 0, 0);
    else if (change->is_inode_changed)
        written = inode_write(change->handle, change->inode);
    rwlock_write_unlock(&change->inode->map_lock);
    return error != 0 ? error : written;
}

int map_change_need(struct map_change *change, uint32_t credits)
{
    uint32_t present = change->handle->credits;
    int error;

    if (present >= credits)
        return 0;
    error = journal_extend(change->handle, credits - present);
    return error == -ENOSPC ? -EAGAIN : error;
}

int map_change_prepare_inode(struct map_change *change, int64_t blocks)
{
    int error;

    if (blocks != 0)
        inode_add_blocks(change->inode, blocks);
    error = inode_write(change->handle, change->inode);
    if (error != 0 && blocks != 0)
        inode_add_blocks(change->inode, -blocks);
    return error;
}

void map_change_count_freed(struct map_change *change, uint64_t blocks)
{
    inode_add_blocks(change->inode, -(int64_t)blocks);
    change->is_inode_changed = true;
}

/* ---- Tree blocks ---------------------------------------------------------------------------- */

uint32_t map_block_credits(const struct superblock *sb, uint32_t count)
{
    return 2 * MIN(count, sb->group_count); /* bitmap and descriptor */
}

/* A tree block has its cluster for itself, at the start. */
static struct space_run tree_run(const struct map_change *change, uint64_t block)
{
    const struct superblock *sb = &change->volume->sb;
    uint64_t first = ROUND_DOWN(block, sb->cluster_blocks);

    if (sb->cluster_blocks == 1)
        return (struct space_run){.block = block, .length_blocks = 1};
    return (struct space_run){
        .block = first,
        .length_blocks = (uint32_t)MIN(sb->cluster_blocks, sb->block_count - first)};
}

/* The goal of the first tree block: where the data of the inode's group begins. */
static uint64_t tree_goal(const struct map_change *change)
{
    const struct superblock *sb = &change->volume->sb;

    return group_first_block(sb, (change->inode->ino - 1) / sb->inodes_per_group);
}

static int reserve_blocks(struct map_change *change, uint64_t goal, struct tree_block *blocks,
                          uint32_t count)
{
    struct space *space = change->volume->space;

    for (uint32_t i = 0; i < count; i++) {
        struct space_run run;
        int error = space_reserve(space, goal, 1, SPACE_METADATA | SPACE_PRIVILEGED, NULL, &run);

        if (error != 0) {
            while (i-- > 0)
                space_unreserve(space, tree_run(change, blocks[i].block));
            return error;
        }
        blocks[i] = (struct tree_block){.block = run.block};
        goal = run.block + run.length_blocks;
    }
    return 0;
}

static int create_block(struct map_change *change, struct tree_block *block)
{
    struct space_run run = tree_run(change, block->block);
    int error = space_claim(change->handle, change->volume->space, run);

    if (error != 0) {
        space_unreserve(change->volume->space, run);
        return error;
    }
    error = journal_create(change->handle, block->block, &block->buffer);
    if (error != 0)
        map_change_drop_blocks(change, block, 1);
    return error;
}

int map_change_create_blocks(struct map_change *change, uint64_t goal, struct tree_block *blocks,
                             uint32_t count)
{
    int error = reserve_blocks(change, goal != 0 ? goal : tree_goal(change), blocks, count);

    if (error != 0)
        return error;
    for (uint32_t i = 0; i < count; i++) {
        error = create_block(change, &blocks[i]);
        if (error != 0) {
            for (uint32_t rest = i + 1; rest < count; rest++)
                space_unreserve(change->volume->space, tree_run(change, blocks[rest].block));
            map_change_drop_blocks(change, blocks, i);
            return error;
        }
    }
    return 0;
}

void map_change_drop_blocks(struct map_change *change, struct tree_block *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int error = 0;

        if (blocks[i].buffer != NULL)
            error = journal_forget(change->handle, blocks[i].block, 1);
        buffer_put(blocks[i].buffer);
        if (error == 0)
            error = space_free(change->handle, change->volume->space,
                               tree_run(change, blocks[i].block));
        if (error != 0)
            log_error(change->volume->log, "inode %u: block %llu stays allocated without owner",
                      change->inode->ino, (unsigned long long)blocks[i].block);
    }
}

int map_change_forget(struct map_change *change, uint64_t block, uint32_t count)
{
    int error = journal_forget(change->handle, block, count);

    change->forgotten += count;
    return error == -ENOSPC ? -EAGAIN : error;
}

int map_change_free_tree_block(struct map_change *change, uint64_t block)
{
    map_change_count_freed(change, change->volume->sb.cluster_blocks);
    return space_free(change->handle, change->volume->space, tree_run(change, block));
}
