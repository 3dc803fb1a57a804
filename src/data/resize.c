/* SPDX-License-Identifier: MIT */
/*
 * Changes of a file's size, and the freeing of all that a file has.
 *
 * Cutting spans as many transactions as it takes. The first sets the size; if it cannot free
 * everything, it puts the inode on the orphan list too, and the last takes it off: a recovery in
 * between goes on freeing behind the size.
 *
 * When the new end lies inside a written block, the bytes behind it must be zeros. The block is not
 * changed in place, as a crash could then show the old size with the new bytes: its head is copied
 * to a new block, which takes its place in the same transaction as the size. With bigalloc, where a
 * block has no cluster of its own, and on a full file system it is zeroed in place.
 *
 * Locks: the range from the new end on, exclusively; handles inside. Callers: fs.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "data/write.h"
#include "map/edit.h"

/* A copy of a file's last block, cut at the new end, in a block that is reserved. */
struct cut_block {
    bool is_needed;
    struct space_run run;
    uint64_t file_block;
};

static void set_fields_size(struct inode *inode, uint64_t size)
{
    mutex_lock(&inode->fields_mutex);
    inode->fields.size = size;
    mutex_unlock(&inode->fields_mutex);
}

/* Writes zeros from the new end to the end of its block, in place. */
static int zero_tail_in_place(struct inode *inode, uint64_t size, const struct mapping *mapping)
{
    const struct superblock *sb = &inode->volume->sb;
    uint32_t kept = (uint32_t)(size & (sb->block_bytes - 1));
    uint8_t *zeros = calloc(1, sb->block_bytes);
    int error;

    if (zeros == NULL)
        return -ENOMEM;
    error = device_write(inode->volume->device, zeros, sb->block_bytes - kept,
                         (mapping->disk_block << sb->block_bits) + kept, 0);
    free(zeros);
    return error;
}

static int copy_head(struct inode *inode, uint64_t size, const struct mapping *mapping,
                     uint64_t target_block)
{
    const struct superblock *sb = &inode->volume->sb;
    struct device *device = inode->volume->device;
    uint32_t kept = (uint32_t)(size & (sb->block_bytes - 1));
    uint8_t *block;
    int error;

    if (posix_memalign((void **)&block, 4096, sb->block_bytes) != 0)
        return -ENOMEM;
    error = device_read(device, block, sb->block_bytes, mapping->disk_block << sb->block_bits);
    if (error == 0) {
        memset(block + kept, 0, sb->block_bytes - kept);
        error = device_write(device, block, sb->block_bytes, target_block << sb->block_bits, 0);
    }
    free(block);
    return error;
}

/* Makes the copy of the block that the new end lies in, if there is a written one. */
static int prepare_cut(struct inode *inode, uint64_t size, struct cut_block *cut)
{
    const struct volume *volume = inode->volume;
    const struct superblock *sb = &volume->sb;
    struct mapping mapping;

    cut->is_needed = false;
    if ((size & (sb->block_bytes - 1)) == 0)
        return 0;
    cut->file_block = size >> sb->block_bits;
    int error = map_lookup(inode, cut->file_block, &mapping);
    if (error != 0 || mapping.kind != MAPPING_WRITTEN)
        return error;
    if (sb->cluster_blocks > 1)
        return zero_tail_in_place(inode, size, &mapping);
    error = space_reserve(volume->space, mapping.disk_block, 1, SPACE_PRIVILEGED, NULL, &cut->run);
    if (error == -ENOSPC || error == -EAGAIN)
        return zero_tail_in_place(inode, size, &mapping);
    if (error != 0)
        return error;
    error = copy_head(inode, size, &mapping, cut->run.block);
    if (error != 0)
        space_unreserve(volume->space, cut->run);
    cut->is_needed = error == 0;
    return error;
}

/* Puts the copy in the place of the block that it was made from. */
static int swap_cut_block(struct handle *handle, struct inode *inode, const struct cut_block *cut)
{
    struct mapping mapping = {.file_block = cut->file_block,
                              .length_blocks = 1,
                              .disk_block = cut->run.block,
                              .kind = MAPPING_WRITTEN};
    uint64_t rest;
    int error = space_claim(handle, inode->volume->space, cut->run);

    if (error != 0) {
        space_unreserve(inode->volume->space, cut->run);
        return error;
    }
    error = map_remove(handle, inode, cut->file_block, cut->file_block + 1, 0, &rest);
    return error != 0 ? error : map_insert(handle, inode, &mapping);
}

static uint32_t removal_credits(struct inode *inode)
{
    return map_credits(inode, 1) * 2 + space_credits(inode->volume->space, 1) * 8 + ORPHAN_CREDITS +
           INODE_WRITE_CREDITS;
}

/* Frees what lies behind `first_block`, down from *end, in further transactions. */
static int remove_rest(struct inode *inode, uint64_t first_block, uint64_t end)
{
    struct journal *journal = inode->volume->journal;
    int error = 0;

    while (error == 0 && end > first_block) {
        struct handle handle;

        error = journal_start(journal, removal_credits(inode), &handle);
        if (error != 0)
            return error;
        error = map_remove(&handle, inode, first_block, end, 0, &end);
        if (error == 0 && end == first_block)
            error = orphan_remove(&handle, inode);
        if (error == 0)
            inode_note_change(&handle, inode, true);
        else
            journal_abort(journal, error);
        int stop_error = journal_stop(&handle);
        if (error == 0)
            error = stop_error;
    }
    return error;
}

/* The first transaction of a cut, and all the others. The range is ours. */
static int cut_to(struct inode *inode, uint64_t size, const struct cut_block *cut)
{
    const struct volume *volume = inode->volume;
    const struct superblock *sb = &volume->sb;
    uint64_t kept_blocks = (size + sb->block_bytes - 1) >> sb->block_bits;
    uint64_t end = MAP_MAX_FILE_BLOCKS;
    struct handle handle;
    int error = journal_start(volume->journal, removal_credits(inode), &handle);

    if (error != 0) {
        if (cut->is_needed)
            space_unreserve(volume->space, cut->run);
        return error;
    }
    if (cut->is_needed)
        error = swap_cut_block(&handle, inode, cut);
    if (error == 0)
        error = map_remove(&handle, inode, kept_blocks, end, 0, &end);
    if (error == 0 && end > kept_blocks)
        error = orphan_add(&handle, inode);
    if (error == 0) {
        set_fields_size(inode, size);
        error = inode_write(&handle, inode);
    }
    if (error == 0)
        inode_note_change(&handle, inode, true);
    else
        journal_abort(volume->journal, error);
    int stop_error = journal_stop(&handle);
    if (error == 0)
        error = stop_error;
    if (error == 0 && end > kept_blocks)
        error = remove_rest(inode, kept_blocks, end);
    return error;
}

static int grow_to(struct inode *inode, uint64_t size)
{
    struct handle handle;
    int error = journal_start(inode->volume->journal, INODE_WRITE_CREDITS, &handle);

    if (error != 0)
        return error;
    set_fields_size(inode, size);
    error = inode_write(&handle, inode);
    if (error == 0)
        inode_note_change(&handle, inode, true);
    int stop_error = journal_stop(&handle);
    return error != 0 ? error : stop_error;
}

int data_truncate(struct inode *inode, uint64_t size)
{
    const struct superblock *sb = &inode->volume->sb;
    struct range_request range;
    struct cut_block cut = {.is_needed = false};
    int error = 0;

    if (size > inode_max_size(sb, inode_has_flag(inode, INODE_EXTENTS)))
        return -EFBIG;
    range_lock_exclusive(&inode->ranges, &range, ROUND_DOWN(size, (uint64_t)sb->cluster_bytes),
                         RANGE_END);
    uint64_t old_size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    if (size >= old_size) {
        if (size > old_size)
            error = grow_to(inode, size);
    } else {
        error = prepare_cut(inode, size, &cut);
        if (error == 0)
            error = cut_to(inode, size, &cut);
    }
    if (error == 0)
        atomic_store_explicit(&inode->size, size, memory_order_release);
    range_unlock(&inode->ranges, &range);
    return error;
}

int data_free_all(struct inode *inode)
{
    const struct cut_block none = {.is_needed = false};
    int error = cut_to(inode, 0, &none);

    if (error == 0)
        atomic_store_explicit(&inode->size, 0, memory_order_release);
    return error;
}

int data_cut_behind_size(struct inode *inode)
{
    uint32_t block_bytes = inode->volume->sb.block_bytes;
    uint64_t kept_blocks = (inode->fields.size + block_bytes - 1) / block_bytes;

    return remove_rest(inode, kept_blocks, MAP_MAX_FILE_BLOCKS);
}
