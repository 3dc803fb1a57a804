/* SPDX-License-Identifier: MIT */
/*
 * Plans of changes to several blocks of a directory: copies of blocks on which the work is done,
 * and the one step that brings them to the buffers.
 *
 * Locks: the caller's on the directory, exclusively. Callers: index_edit.c, insert.c.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dir/change.h"

int plan_begin(struct plan *plan, struct inode *dir)
{
    int64_t blocks = dir_block_count(dir);

    *plan = (struct plan){.dir = dir};
    if (blocks < 0)
        return (int)blocks;
    plan->block_count = (uint64_t)blocks;
    return 0;
}

void plan_end(struct plan *plan)
{
    for (unsigned int i = 0; i < plan->count; i++) {
        buffer_put(plan->images[i].buffer);
        free(plan->images[i].data);
    }
    plan->count = 0;
}

static int add_image(struct plan *plan, struct plan_image image, struct plan_image **result)
{
    size_t block_bytes = plan->dir->volume->sb.block_bytes;

    assert(plan->count < PLAN_MAX_IMAGES);
    image.data = malloc(block_bytes);
    if (image.data == NULL)
        return -ENOMEM;
    if (image.buffer != NULL) {
        memcpy(image.data, image.buffer->data, block_bytes);
        buffer_hold(image.buffer);
    } else {
        memset(image.data, 0, block_bytes);
    }
    plan->images[plan->count] = image;
    *result = &plan->images[plan->count++];
    return 0;
}

int plan_add(struct plan *plan, struct buffer *buffer, uint32_t file_block, enum block_kind kind,
             struct plan_image **image)
{
    return add_image(
        plan, (struct plan_image){.buffer = buffer, .file_block = file_block, .kind = kind}, image);
}

int plan_add_new(struct plan *plan, enum block_kind kind, struct plan_image **image)
{
    const struct superblock *sb = &plan->dir->volume->sb;
    bool is_large = superblock_has_incompat(sb, FEATURE_INCOMPAT_LARGEDIR);

    /* The index has 28 bits for a block; without large_dir a directory's size has 32. */
    if (plan->block_count > 0x0fffffff ||
        (!is_large && (plan->block_count + 1) << sb->block_bits > UINT32_MAX))
        return -ENOSPC;
    int error = add_image(
        plan, (struct plan_image){.file_block = (uint32_t)plan->block_count, .kind = kind}, image);
    if (error == 0)
        plan->block_count++;
    return error;
}

/* Copies an image to its buffer, which is part of the transaction. */
static void write_image(struct handle *handle, const struct plan *plan,
                        const struct plan_image *image, struct buffer *buffer)
{
    const struct inode *dir = plan->dir;
    const struct superblock *sb = &dir->volume->sb;

    if (image->kind == BLOCK_KIND_DIRECTORY_LEAF)
        dirent_block_set_checksum(sb, dir->checksum_seed, image->data);
    else
        htree_node_set_checksum(sb, dir->checksum_seed, image->data,
                                image->kind == BLOCK_KIND_HTREE_ROOT);
    memcpy(journal_data(handle, buffer), image->data, sb->block_bytes);
    buffer_set_verified(buffer, block_tag(image->kind, dir->ino, 0));
}

int plan_apply(struct handle *handle, struct plan *plan)
{
    struct buffer *new_buffers[PLAN_MAX_NEW_BLOCKS];
    unsigned int new_count = 0, next = 0;

    for (unsigned int i = 0; i < plan->count; i++) {
        if (plan->images[i].buffer == NULL) {
            new_count++;
            continue;
        }
        int error = journal_modify(handle, plan->images[i].buffer);
        if (error != 0)
            return error;
    }
    if (new_count > 0) {
        int error = dir_grow(handle, plan->dir, new_count, plan->sets_flags, new_buffers);
        if (error != 0)
            return error;
    }
    for (unsigned int i = 0; i < plan->count; i++) {
        const struct plan_image *image = &plan->images[i];
        bool is_new = image->buffer == NULL;
        struct buffer *buffer = is_new ? new_buffers[next++] : image->buffer;

        write_image(handle, plan, image, buffer);
        if (is_new)
            buffer_put(buffer);
    }
    return 0;
}
