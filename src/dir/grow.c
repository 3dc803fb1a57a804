/* SPDX-License-Identifier: MIT */
/*
 * Adds blocks to the end of a directory: reserve, claim, map, make their buffers, raise the size.
 * Every step that fails has those before it undone.
 *
 * With bigalloc the blocks of one cluster of the file lie in one cluster of the disk, at the same
 * places: a block that does not begin a cluster follows the one before it.
 *
 * Locks: the caller's on the directory, exclusively; fields_mutex. Callers: plan.c, inline_edit.c,
 * remove.c.
 */
#include <assert.h>
#include <errno.h>

#include "dir/change.h"
#include "map/edit.h"
#include "space/allocate.h"

/* New blocks that lie together on the disk. */
struct piece {
    uint64_t file_block, disk_block;
    uint32_t length_blocks;
    struct space_run
        run; /* what was reserved for it; no length: its cluster is the file's already */
    bool is_claimed, is_mapped;
};

struct growth {
    struct handle *handle;
    struct inode *dir;
    uint64_t first; /* file block */
    struct piece pieces[PLAN_MAX_NEW_BLOCKS];
    unsigned int piece_count;
};

/* Where a block that does not begin a cluster must lie. */
static int follow_cluster(const struct growth *growth, uint64_t file_block, uint64_t *disk_block)
{
    const struct inode *dir = growth->dir;
    uint32_t cluster_blocks = dir->volume->sb.cluster_blocks;
    struct mapping before;

    if (growth->piece_count > 0) {
        const struct piece *last = &growth->pieces[growth->piece_count - 1];
        *disk_block = last->disk_block + last->length_blocks;
    } else {
        int error = map_lookup(growth->dir, file_block - 1, &before);
        if (error != 0)
            return error;
        *disk_block = before.kind == MAPPING_WRITTEN ? before.disk_block + 1 : 0;
    }
    if (*disk_block % cluster_blocks != file_block % cluster_blocks)
        return dir_corrupt(dir, file_block - 1, "is not where its cluster asks for");
    return 0;
}

static int reserve_piece(struct growth *growth, uint64_t file_block, uint32_t wanted)
{
    struct inode *dir = growth->dir;
    uint32_t cluster_blocks = dir->volume->sb.cluster_blocks;
    struct piece *piece = &growth->pieces[growth->piece_count];
    uint64_t goal = 0;
    int error;

    assert(growth->piece_count < PLAN_MAX_NEW_BLOCKS);
    *piece = (struct piece){.file_block = file_block, .length_blocks = 1};
    if (file_block % cluster_blocks != 0) {
        error = follow_cluster(growth, file_block, &piece->disk_block);
    } else {
        goal = growth->piece_count > 0 ? piece[-1].disk_block + piece[-1].length_blocks
                                       : map_goal(dir, file_block);
        error = space_reserve(dir->volume->space, goal, cluster_blocks > 1 ? 1 : wanted,
                              SPACE_METADATA, NULL, &piece->run);
        piece->disk_block = piece->run.block;
        if (cluster_blocks == 1 && error == 0)
            piece->length_blocks = piece->run.length_blocks;
    }
    if (error == 0)
        growth->piece_count++;
    return error;
}

static int reserve_all(struct growth *growth, unsigned int count)
{
    uint64_t file_block = growth->first, end = growth->first + count;

    while (file_block < end) {
        int error = reserve_piece(growth, file_block, (uint32_t)(end - file_block));

        if (error != 0)
            return error;
        file_block += growth->pieces[growth->piece_count - 1].length_blocks;
    }
    return 0;
}

static int claim_and_map(struct growth *growth)
{
    for (unsigned int i = 0; i < growth->piece_count; i++) {
        struct piece *piece = &growth->pieces[i];
        struct mapping mapping = {
            .file_block = piece->file_block,
            .length_blocks = piece->length_blocks,
            .disk_block = piece->disk_block,
            .kind = MAPPING_WRITTEN,
        };
        int error = 0;

        if (piece->run.length_blocks > 0)
            error = space_claim(growth->handle, growth->dir->volume->space, piece->run);
        piece->is_claimed = error == 0;
        if (error == 0)
            error = map_insert(growth->handle, growth->dir, &mapping);
        piece->is_mapped = error == 0;
        if (error != 0)
            return error;
    }
    return 0;
}

/* Makes the buffers; on an error those made before are left in *made. */
static int create_buffers(const struct growth *growth, struct buffer **buffers, unsigned int *made)
{
    for (unsigned int i = 0; i < growth->piece_count; i++) {
        const struct piece *piece = &growth->pieces[i];

        for (uint32_t j = 0; j < piece->length_blocks; j++) {
            int error = journal_create(growth->handle, piece->disk_block + j, &buffers[*made]);

            if (error != 0)
                return error;
            ++*made;
        }
    }
    return 0;
}

static int set_size(const struct growth *growth, uint64_t size, uint32_t sets_flags,
                    uint32_t clears_flags)
{
    struct inode *dir = growth->dir;

    mutex_lock(&dir->fields_mutex);
    dir->fields.size = size;
    atomic_store(&dir->size, size);
    dir->fields.flags = (dir->fields.flags | sets_flags) & ~clears_flags;
    mutex_unlock(&dir->fields_mutex);
    return inode_write(growth->handle, dir);
}

/* Undoes what was done; the buffers are given up. */
static void undo(const struct growth *growth, struct buffer **buffers, unsigned int made)
{
    struct inode *dir = growth->dir;
    struct space *space = dir->volume->space;
    uint64_t end = growth->first, remaining_end;
    int error = 0;

    for (unsigned int i = 0; i < made; i++)
        buffer_put(buffers[i]);
    for (unsigned int i = 0; i < growth->piece_count; i++) {
        const struct piece *piece = &growth->pieces[i];

        if (piece->is_mapped)
            end = piece->file_block + piece->length_blocks;
        else if (piece->run.length_blocks > 0 && !piece->is_claimed)
            space_unreserve(space, piece->run);
        else if (piece->run.length_blocks > 0)
            error = space_free(growth->handle, space, piece->run);
    }
    if (end > growth->first) {
        int map_error = map_remove(growth->handle, dir, growth->first, end, SPACE_METADATA,
                                   &remaining_end);
        error = map_error != 0 ? map_error : error;
        if (map_error == 0 && remaining_end != growth->first)
            error = -ENOSPC;
    }
    if (error != 0)
        log_error(dir->volume->log,
                  "directory inode %u: new blocks could not be given back: error %d", dir->ino,
                  error);
}

int dir_grow(struct handle *handle, struct inode *dir, unsigned int count, uint32_t sets_flags,
             struct buffer **buffers)
{
    const struct superblock *sb = &dir->volume->sb;
    struct growth growth = {.handle = handle, .dir = dir};
    uint64_t old_size = dir->fields.size;
    unsigned int made = 0;
    int64_t blocks = dir_block_count(dir);

    assert(count <= PLAN_MAX_NEW_BLOCKS);
    if (blocks < 0)
        return (int)blocks;
    growth.first = (uint64_t)blocks;
    uint32_t new_flags = sets_flags & ~dir->fields.flags;
    int error = reserve_all(&growth, count);
    if (error == 0)
        error = claim_and_map(&growth);
    if (error == 0)
        error = create_buffers(&growth, buffers, &made);
    if (error == 0) {
        error = set_size(&growth, (growth.first + count) << sb->block_bits, sets_flags, 0);
        /* What it was is written again only to bring the bytes in line, should they have changed.
         */
        if (error != 0 && set_size(&growth, old_size, 0, new_flags) != 0)
            log_error(dir->volume->log, "directory inode %u: its size could not be set back",
                      dir->ino);
    }
    if (error != 0)
        undo(&growth, buffers, made);
    /* What the map cannot reach is room that there is not. */
    return error == -EFBIG ? -ENOSPC : error;
}
