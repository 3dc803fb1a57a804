/* SPDX-License-Identifier: MIT */
/*
 * Attribute blocks: reading, sharing, allocation.
 *
 * Inodes may share a block. As long as more than one does, its entries do not change: who wants
 * others takes a copy and gives its reference back. Only whoever has the last reference changes the
 * block in place, or frees it. No inode joins a block here, so that the last one stays alone.
 *
 * Locks: the inode's xattr_lock, held by the callers; a block's header (references, checksum)
 * belongs to a mutex chosen by its number, as several inodes' xattr_locks lead to it. It is not
 * held across the device. Callers: xattr.c, xattr_edit.c.
 */
#include "inode/xattr_block.h"

#include <errno.h>
#include <string.h>

#include "space/allocate.h"

#define MUTEX_COUNT 16

static struct mutex header_mutexes[MUTEX_COUNT];
static pthread_once_t has_mutexes = PTHREAD_ONCE_INIT;

static void make_mutexes(void)
{
    for (unsigned int i = 0; i < MUTEX_COUNT; i++)
        mutex_init(&header_mutexes[i], LOCK_RANK_DESCRIPTOR, "attribute block");
}

static struct mutex *header_mutex(uint64_t block)
{
    pthread_once(&has_mutexes, make_mutexes);
    return &header_mutexes[block % MUTEX_COUNT];
}

/* NULL, or what is wrong; then *error is -EUCLEAN or -EBADMSG. */
static const char *check(const struct volume *volume, struct buffer *buffer,
                         struct xattr_area *area, int *error)
{
    uint64_t tag = block_tag(BLOCK_KIND_XATTR, 0, 0);
    struct mutex *mutex = header_mutex(buffer->block);

    mutex_lock(mutex);
    const char *reason = xattr_block_area(&volume->sb, buffer->data, area);
    if (reason != NULL) {
        *error = -EUCLEAN;
    } else if (!buffer_is_verified(buffer, tag)) {
        if (!volume->skip_checksums &&
            !xattr_block_checksum_matches(&volume->sb, buffer->block, buffer->data)) {
            reason = "checksum does not match";
            *error = -EBADMSG;
        } else {
            buffer_set_verified(buffer, tag);
        }
    }
    mutex_unlock(mutex);
    return reason;
}

int xattr_block_open(const struct inode *inode, struct buffer **buffer, struct xattr_area *area)
{
    const struct volume *volume = inode->volume;
    uint64_t block = inode->fields.xattr_block;

    if (block == 0)
        return -ENODATA;
    if (!volume_has_blocks(volume, block, 1)) {
        log_error(volume->log, "inode %u: its attribute block %llu lies outside the file system",
                  inode->ino, (unsigned long long)block);
        return -EUCLEAN;
    }
    int error = buffer_get(volume->buffers, block, buffer);
    if (error != 0) {
        log_error(volume->log, "inode %u: cannot read its attribute block %llu", inode->ino,
                  (unsigned long long)block);
        return error;
    }
    const char *reason = check(volume, *buffer, area, &error);
    if (reason != NULL) {
        log_error(volume->log, "inode %u: attribute block %llu: %s", inode->ino,
                  (unsigned long long)block, reason);
        buffer_put(*buffer);
    }
    return error;
}

void xattr_block_copy(const struct volume *volume, const struct buffer *buffer, void *copy)
{
    struct mutex *mutex = header_mutex(buffer->block);

    mutex_lock(mutex);
    memcpy(copy, buffer->data, volume->sb.block_bytes);
    mutex_unlock(mutex);
}

/* The block has its cluster for itself, at the start. */
static struct space_run run_of(const struct superblock *sb, uint64_t block)
{
    uint64_t first = block - block % sb->cluster_blocks;

    return (struct space_run){
        .block = first,
        .length_blocks = (uint32_t)MIN(sb->cluster_blocks, sb->block_count - first)};
}

/* The inode has this block now; i_blocks counts its cluster. */
static void set_block(struct inode *inode, uint64_t block)
{
    int64_t clusters;

    mutex_lock(&inode->fields_mutex);
    clusters = (block != 0) - (inode->fields.xattr_block != 0);
    inode->fields.xattr_block = block;
    mutex_unlock(&inode->fields_mutex);
    if (clusters != 0)
        inode_add_blocks(inode, clusters * (int64_t)inode->volume->sb.cluster_blocks);
}

static int abort_with(struct handle *handle, int error)
{
    journal_abort(handle->journal, error);
    return error;
}

/* Puts the content into a block that this inode alone has, and that is part of the transaction. */
static void fill(struct handle *handle, const struct volume *volume, struct buffer *buffer,
                 const void *content)
{
    void *block = journal_data(handle, buffer);

    memcpy(block, content, volume->sb.block_bytes);
    xattr_block_set_references(block, 1);
    xattr_block_set_checksum(&volume->sb, buffer->block, block);
}

static int create_block(struct handle *handle, const struct inode *inode, const void *content,
                        uint64_t *block)
{
    const struct volume *volume = inode->volume;
    const struct superblock *sb = &volume->sb;
    uint64_t goal = group_first_block(sb, (inode->ino - 1) / sb->inodes_per_group);
    struct space_run run;
    struct buffer *buffer;
    int error = space_reserve(volume->space, goal, 1, SPACE_METADATA, NULL, &run);

    if (error != 0)
        return error;
    error = space_claim(handle, volume->space, run);
    if (error != 0) {
        space_unreserve(volume->space, run);
        return error;
    }
    error = journal_create(handle, run.block, &buffer);
    if (error != 0)
        return abort_with(handle, error);
    struct mutex *mutex = header_mutex(run.block);
    mutex_lock(mutex);
    fill(handle, volume, buffer, content);
    mutex_unlock(mutex);
    buffer_put(buffer);
    *block = run.block;
    return 0;
}

/* Takes a reference off a block that has several; *is_last says that it has not. */
static int drop_reference(struct handle *handle, const struct volume *volume, struct buffer *buffer,
                          bool *is_last)
{
    struct mutex *mutex = header_mutex(buffer->block);
    int error = 0;

    mutex_lock(mutex);
    uint32_t references = xattr_block_references(buffer->data);
    *is_last = references <= 1;
    if (!*is_last)
        error = journal_modify(handle, buffer);
    if (!*is_last && error == 0) {
        void *block = journal_data(handle, buffer);

        xattr_block_set_references(block, references - 1);
        xattr_block_set_checksum(&volume->sb, buffer->block, block);
    }
    mutex_unlock(mutex);
    return error;
}

/* Gives up the block that the inode has, without a look at its fields. */
static int let_go(struct handle *handle, const struct inode *inode)
{
    const struct volume *volume = inode->volume;
    uint64_t block = inode->fields.xattr_block;
    struct xattr_area area;
    struct buffer *buffer;
    bool is_last;
    int error = xattr_block_open(inode, &buffer, &area);

    if (error != 0)
        return error;
    error = drop_reference(handle, volume, buffer, &is_last);
    buffer_put(buffer);
    if (error != 0 || !is_last)
        return error;
    error = journal_forget(handle, block, 1);
    if (error == -ENOSPC)
        return -EAGAIN;
    if (error == 0)
        error = space_free(handle, volume->space, run_of(&volume->sb, block));
    return error != 0 ? abort_with(handle, error) : 0;
}

int xattr_block_drop(struct handle *handle, struct inode *inode)
{
    if (inode->fields.xattr_block == 0)
        return 0;
    int error = let_go(handle, inode);
    if (error == 0)
        set_block(inode, 0);
    return error;
}

/* Changes the block if the inode has it alone. */
static int store_in_place(struct handle *handle, const struct inode *inode, const void *content,
                          bool *is_shared)
{
    struct xattr_area area;
    struct buffer *buffer;
    int error = xattr_block_open(inode, &buffer, &area);

    if (error != 0)
        return error;
    struct mutex *mutex = header_mutex(buffer->block);
    mutex_lock(mutex);
    *is_shared = xattr_block_references(buffer->data) > 1;
    if (!*is_shared)
        error = journal_modify(handle, buffer);
    if (!*is_shared && error == 0)
        fill(handle, inode->volume, buffer, content);
    mutex_unlock(mutex);
    buffer_put(buffer);
    return error;
}

int xattr_block_store(struct handle *handle, struct inode *inode, const void *content)
{
    bool has_block = inode->fields.xattr_block != 0, is_shared = false;
    uint64_t block;
    int error;

    if (has_block) {
        error = store_in_place(handle, inode, content, &is_shared);
        if (error != 0 || !is_shared)
            return error;
    }
    error = create_block(handle, inode, content, &block);
    if (error != 0)
        return error;
    if (has_block) {
        error = let_go(handle, inode);
        if (error != 0)
            return abort_with(handle, error);
    }
    set_block(inode, block);
    return 0;
}
