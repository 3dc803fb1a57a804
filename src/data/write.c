/* SPDX-License-Identifier: MIT */
/*
 * Writes of file data, data first (`data=first`).
 *
 * A request is taken apart along its mappings:
 *
 *   written     -> to the device, no transaction
 *   unwritten   -> whole blocks to the device, the rest of them zeros; then a transaction converts
 *   hole        -> blocks reserved, written whole; then a transaction claims, maps and grows
 *
 * While it runs the request holds its range, rounded to clusters, exclusively; never a handle
 * across data I/O. Bytes behind the end of the file in its last block are zeros on the disk: what
 * grows the file past them relies on it, what cuts it keeps it.
 *
 * Locks: the range; handles inside. Callers: fs.
 */
#include "data/write.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "data/cursor.h"
#include "map/edit.h"

#define MAX_RUN_BLOCKS 32767u /* an extent's bound for both kinds */

struct write {
    struct inode *inode;
    struct cursor cursor;
    uint64_t offset; /* of what is left */
    uint64_t left;   /* bytes */
    unsigned int space_flags;
};

static uint64_t block_of(const struct write *write)
{
    return write->offset >> write->inode->volume->sb.block_bits;
}

static void write_advance(struct write *write, uint64_t bytes)
{
    write->offset += bytes;
    write->left -= bytes;
}

/* The size as callers see it grows to `end` at least. */
static void grow_visible_size(struct inode *inode, uint64_t end)
{
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);

    while (size < end && !atomic_compare_exchange_weak_explicit(
                             &inode->size, &size, end, memory_order_release, memory_order_relaxed))
        ;
}

/* In an open handle: the size on the disk covers `end`, and the inode goes with the transaction. */
static int finish_inode(struct handle *handle, struct inode *inode, uint64_t end)
{
    mutex_lock(&inode->fields_mutex);
    if (inode->fields.size < end)
        inode->fields.size = end;
    mutex_unlock(&inode->fields_mutex);
    int error = inode_write(handle, inode);
    if (error == 0)
        inode_note_change(handle, inode, true);
    return error;
}

/* A transaction that only grows the size on the disk, when the blocks were there. */
static int grow_disk_size(struct inode *inode, uint64_t end)
{
    struct handle handle;

    mutex_lock(&inode->fields_mutex);
    bool is_needed = inode->fields.size < end;
    mutex_unlock(&inode->fields_mutex);
    if (!is_needed)
        return 0;
    int error = journal_start(inode->volume->journal, INODE_WRITE_CREDITS, &handle);
    if (error != 0)
        return error;
    error = finish_inode(&handle, inode, end);
    int stop_error = journal_stop(&handle);
    return error != 0 ? error : stop_error;
}

static int write_written(struct write *write, uint64_t disk_offset, uint64_t bytes)
{
    int error = cursor_write(&write->cursor, write->inode->volume->device, (size_t)bytes,
                             disk_offset);

    if (error == 0)
        write_advance(write, bytes);
    return error;
}

/*
 * Writes whole blocks: the request's bytes, and zeros before and behind them in the first and the
 * last block. `bytes` counts the request's only.
 */
static int write_whole_blocks(struct write *write, uint64_t disk_block, uint64_t bytes)
{
    const struct superblock *sb = &write->inode->volume->sb;
    struct device *device = write->inode->volume->device;
    uint64_t place = disk_block << sb->block_bits;
    uint64_t head = write->offset & (sb->block_bytes - 1);
    uint8_t *block = NULL;
    int error = 0;

    while (bytes > 0 && error == 0) {
        uint64_t in_block = MIN(sb->block_bytes - head, bytes);
        uint64_t whole = head == 0 ? ROUND_DOWN(bytes, sb->block_bytes) : 0;

        if (whole > 0) {
            error = cursor_write(&write->cursor, device, (size_t)whole, place);
            in_block = whole;
            place += whole;
        } else {
            if (block == NULL && posix_memalign((void **)&block, 4096, sb->block_bytes) != 0)
                return -ENOMEM;
            memset(block, 0, sb->block_bytes);
            cursor_copy_out(&write->cursor, block + head, (size_t)in_block);
            error = device_write(device, block, sb->block_bytes, place, 0);
            place += sb->block_bytes;
        }
        bytes -= in_block;
        head = 0;
    }
    free(block);
    return error;
}

static int write_unwritten(struct write *write, const struct mapping *mapping, uint64_t bytes)
{
    struct inode *inode = write->inode;
    const struct superblock *sb = &inode->volume->sb;
    uint64_t first = block_of(write);
    uint64_t end = write->offset + bytes;
    uint64_t blocks = ((end - 1) >> sb->block_bits) - first + 1;
    struct handle handle;
    int error = write_whole_blocks(write, mapping->disk_block, bytes);

    if (error != 0)
        return error;
    error = journal_start(inode->volume->journal, map_credits(inode, blocks) + INODE_WRITE_CREDITS,
                          &handle);
    if (error != 0)
        return error;
    error = map_convert(&handle, inode, first, blocks);
    if (error == 0)
        error = finish_inode(&handle, inode, end);
    int stop_error = journal_stop(&handle);
    if (error == 0)
        error = stop_error;
    if (error == 0)
        write_advance(write, bytes);
    return error;
}

/*
 * With bigalloc a hole may lie in a cluster of which another part is mapped: then the disk blocks
 * are settled already. True if so, with the disk block of `file_block` and how far its cluster goes
 * on.
 */
static bool find_shared_cluster(struct inode *inode, uint64_t file_block, uint64_t *disk_block,
                                uint64_t *blocks)
{
    const struct superblock *sb = &inode->volume->sb;
    uint64_t first = ROUND_DOWN(file_block, sb->cluster_blocks);
    uint64_t end = first + sb->cluster_blocks;
    struct mapping mapping;

    for (uint64_t block = first; sb->cluster_blocks > 1 && block < end;
         block = mapping.file_block + mapping.length_blocks) {
        if (map_lookup(inode, block, &mapping) != 0)
            return false;
        if (mapping.kind == MAPPING_HOLE)
            continue;
        *disk_block = mapping.disk_block - (mapping.file_block - first) + (file_block - first);
        *blocks = end - file_block;
        return true;
    }
    return false;
}

/* Reserves room for a hole; waits for freed blocks where that helps. */
static int reserve(struct write *write, uint64_t file_block, uint64_t blocks, struct space_run *run)
{
    const struct volume *volume = write->inode->volume;
    uint64_t goal = map_goal(write->inode, file_block);
    uint64_t skipped = file_block % volume->sb.cluster_blocks;
    uint64_t wanted = ROUND_UP(MIN(blocks, MAX_RUN_BLOCKS - volume->sb.cluster_blocks) + skipped,
                               volume->sb.cluster_blocks);
    int error = space_reserve(volume->space, goal, (uint32_t)wanted, write->space_flags, NULL, run);

    if (error == -EAGAIN) {
        error = journal_commit_all(volume->journal);
        if (error == 0)
            error = space_reserve(volume->space, goal, (uint32_t)wanted, write->space_flags, NULL,
                                  run);
    }
    return error == -EAGAIN ? -ENOSPC : error;
}

/* One transaction claims the run (unless its cluster is shared), maps it and grows the file. */
static int take_run(struct inode *inode, const struct space_run *run, bool is_claimed,
                    const struct mapping *mapping, uint64_t end)
{
    const struct volume *volume = inode->volume;
    uint32_t credits = map_credits(inode, mapping->length_blocks) + INODE_WRITE_CREDITS +
                       (is_claimed ? 0 : space_credits(volume->space, run->length_blocks));
    bool has_claimed = false;
    struct handle handle;
    int error = journal_start(volume->journal, credits, &handle);

    if (error == 0) {
        if (!is_claimed) {
            error = space_claim(&handle, volume->space, *run);
            has_claimed = error == 0;
        }
        if (error == 0)
            error = map_insert(&handle, inode, mapping);
        if (error == 0)
            error = finish_inode(&handle, inode, end);
        else if (has_claimed && space_free(&handle, volume->space, *run) != 0)
            journal_abort(volume->journal, -EUCLEAN);
        int stop_error = journal_stop(&handle);
        if (error == 0)
            error = stop_error;
    }
    if (error != 0 && !is_claimed && !has_claimed)
        space_unreserve(volume->space, *run);
    return error;
}

static int write_hole(struct write *write, const struct mapping *hole, uint64_t bytes)
{
    struct inode *inode = write->inode;
    const struct superblock *sb = &inode->volume->sb;
    uint64_t first = block_of(write);
    uint64_t blocks = ((write->offset + bytes - 1) >> sb->block_bits) - first + 1;
    struct mapping mapping = {.file_block = first, .kind = MAPPING_WRITTEN};
    struct space_run run = {0};
    uint64_t shared_blocks;
    bool is_shared = find_shared_cluster(inode, first, &mapping.disk_block, &shared_blocks);
    int error = 0;

    blocks = MIN(blocks, hole->length_blocks);
    /* What reaches into a cluster that is mapped farther on comes with the next step. */
    uint64_t last_cluster = ROUND_DOWN(first + blocks, (uint64_t)sb->cluster_blocks);
    uint64_t unused_block, unused_count;
    if (!is_shared && last_cluster > first && last_cluster < first + blocks &&
        find_shared_cluster(inode, last_cluster, &unused_block, &unused_count))
        blocks = last_cluster - first;
    if (is_shared) {
        mapping.length_blocks = MIN(blocks, shared_blocks);
    } else {
        error = reserve(write, first, blocks, &run);
        if (error != 0)
            return error;
        uint64_t skipped = first % sb->cluster_blocks;
        mapping.disk_block = run.block + skipped;
        mapping.length_blocks = MIN(blocks, run.length_blocks - skipped);
    }
    bytes = MIN(bytes, ((first + mapping.length_blocks) << sb->block_bits) - write->offset);
    error = write_whole_blocks(write, mapping.disk_block, bytes);
    if (error != 0) {
        if (!is_shared)
            space_unreserve(inode->volume->space, run);
        return error;
    }
    if (!is_shared && run.length_blocks > mapping.length_blocks) {
        /* What the request does not reach goes back, in whole clusters. */
        uint32_t used = (uint32_t)ROUND_UP(mapping.disk_block - run.block + mapping.length_blocks,
                                           sb->cluster_blocks);

        if (used < run.length_blocks)
            space_unreserve(inode->volume->space,
                            (struct space_run){run.block + used, run.length_blocks - used});
        run.length_blocks = MIN(used, run.length_blocks);
    }
    error = take_run(inode, &run, is_shared, &mapping, write->offset + bytes);
    if (error == 0)
        write_advance(write, bytes);
    return error;
}

/* Writes what the first mapping of the rest covers. */
static int write_step(struct write *write)
{
    struct inode *inode = write->inode;
    const struct superblock *sb = &inode->volume->sb;
    uint64_t in_block = write->offset & (sb->block_bytes - 1);
    uint64_t blocks = (in_block + write->left + sb->block_bytes - 1) >> sb->block_bits;
    struct mapping mapping;
    int error = map_lookup_joined(inode, block_of(write), MIN(blocks, MAX_RUN_BLOCKS), &mapping);

    if (error != 0)
        return error;
    uint64_t bytes = MIN((mapping.length_blocks << sb->block_bits) - in_block, write->left);
    switch (mapping.kind) {
    case MAPPING_WRITTEN:
        return write_written(write, (mapping.disk_block << sb->block_bits) + in_block, bytes);
    case MAPPING_UNWRITTEN:
        return write_unwritten(write, &mapping, bytes);
    default:
        return write_hole(write, &mapping, bytes);
    }
}

ssize_t data_write(struct inode *inode, const struct iovec *iov, int iov_count, uint64_t offset,
                   unsigned int space_flags)
{
    const struct superblock *sb = &inode->volume->sb;
    struct write write = {.inode = inode, .offset = offset, .space_flags = space_flags};
    uint64_t max_size = inode_max_size(sb, inode_has_flag(inode, INODE_EXTENTS));
    struct range_request range;
    ssize_t wanted = cursor_init(&write.cursor, iov, iov_count);
    int error = 0;

    if (wanted <= 0)
        return wanted;
    if (offset >= max_size)
        return -EFBIG;
    write.left = MIN((uint64_t)wanted, max_size - offset);
    uint64_t total = write.left, end = offset + total;

    range_lock_exclusive(&inode->ranges, &range, ROUND_DOWN(offset, (uint64_t)sb->cluster_bytes),
                         ROUND_UP(end, (uint64_t)sb->cluster_bytes));
    while (write.left > 0 && error == 0)
        error = write_step(&write);
    uint64_t done = total - write.left;
    if (done > 0) {
        int size_error = grow_disk_size(inode, offset + done);

        if (size_error == 0)
            grow_visible_size(inode, offset + done);
        else
            error = size_error;
    }
    range_unlock(&inode->ranges, &range);
    return done > 0 && (error == 0 || done < total) ? (ssize_t)done : error;
}
