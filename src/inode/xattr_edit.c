/* SPDX-License-Identifier: MIT */
/*
 * Changes of extended attributes.
 *
 * A change is first made in copies of the inode's area and of its attribute block. Only when it is
 * known to fit do the copies go into the transaction: the block first, as its allocation may fail,
 * then the inode, whose area and fields are written in one step under fields_mutex.
 *
 * Locks: the inode's xattr_lock, exclusively, inside a handle. Callers: fs.
 */
#include "inode/xattr_edit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inode/xattr_block.h"
#include "space/allocate.h"

/* Copies of both areas. */
struct edit {
    struct inode *inode;
    uint8_t *raw, *block;
    struct xattr_place in_inode, in_block;
    bool has_inode_area;
    bool is_inode_changed, is_block_changed;
};

static int copy_inode(struct edit *edit)
{
    struct inode *inode = edit->inode;
    const struct superblock *sb = &inode->volume->sb;
    struct buffer *buffer;
    const void *raw;
    int error = inode_read_raw(inode, &buffer, &raw);

    if (error != 0)
        return error;
    mutex_lock(&inode->fields_mutex);
    memcpy(edit->raw, raw, sb->inode_bytes);
    uint32_t extra_isize = inode->fields.extra_isize;
    mutex_unlock(&inode->fields_mutex);
    buffer_put(buffer);
    edit->has_inode_area = xattr_inode_place(sb, edit->raw, extra_isize, &edit->in_inode);
    return 0;
}

static int copy_block(struct edit *edit)
{
    const struct volume *volume = edit->inode->volume;
    struct buffer *buffer;
    struct xattr_area area;
    int error = xattr_block_open(edit->inode, &buffer, &area);

    if (error == 0) {
        xattr_block_copy(volume, buffer, edit->block);
        buffer_put(buffer);
    } else if (error == -ENODATA) {
        xattr_block_init(&volume->sb, edit->block);
    } else {
        return error;
    }
    xattr_block_place(&volume->sb, edit->block, &edit->in_block);
    return 0;
}

static void edit_close(struct edit *edit)
{
    free(edit->raw);
    free(edit->block);
}

static int edit_open(struct edit *edit, struct inode *inode)
{
    const struct superblock *sb = &inode->volume->sb;

    *edit = (struct edit){
        .inode = inode, .raw = malloc(sb->inode_bytes), .block = malloc(sb->block_bytes)};
    int error = edit->raw != NULL && edit->block != NULL ? copy_inode(edit) : -ENOMEM;
    if (error == 0)
        error = copy_block(edit);
    if (error != 0)
        edit_close(edit);
    return error;
}

/* ---- In the copies -------------------------------------------------------------------------- */

/* What a place has: 1 with the attribute in `found`, 0, or -EUCLEAN. */
static int find(const struct edit *edit, const struct xattr_place *place,
                const struct xattr_update *update, struct xattr_view *found)
{
    struct xattr_area area = xattr_area_of(place);
    const void *position = area.entries;
    const char *reason = "bad entry";
    int step;

    while ((step = xattr_next(&edit->inode->volume->sb, &area, position, found, &reason)) > 0) {
        if (found->index == update->index && found->name_length == update->name_length &&
            memcmp(found->name, update->name, update->name_length) == 0)
            return 1;
        position = found->following;
    }
    if (step < 0)
        log_error(edit->inode->volume->log, "inode %u: extended attribute: %s", edit->inode->ino,
                  reason);
    return step;
}

/* -EOPNOTSUPP if another inode's block would be copied with values that lie in inodes. */
static int check_values(const struct edit *edit)
{
    struct xattr_area area = xattr_area_of(&edit->in_block);
    const void *position = area.entries;
    struct xattr_view view;
    const char *reason;

    if (!edit->is_block_changed || xattr_block_references(edit->block) <= 1)
        return 0;
    while (xattr_next(&edit->inode->volume->sb, &area, position, &view, &reason) > 0) {
        if (view.value_ino != 0)
            return -EOPNOTSUPP;
        position = view.following;
    }
    return 0;
}

static int remove_from(struct edit *edit, bool is_block, const struct xattr_update *update)
{
    const struct xattr_place *place = is_block ? &edit->in_block : &edit->in_inode;
    int error = xattr_remove(&edit->inode->volume->sb, place, update->index, update->name,
                             update->name_length);

    if (error == 0)
        *(is_block ? &edit->is_block_changed : &edit->is_inode_changed) = true;
    return error;
}

/* Sets the attribute where there is room for it, and takes it from where it was. */
static int set(struct edit *edit, const struct xattr_update *update, bool is_in_inode,
               bool is_in_block)
{
    const struct superblock *sb = &edit->inode->volume->sb;
    struct xattr_new attribute = {
        .index = update->index,
        .name_length = update->name_length,
        .name = update->name,
        .value = update->value,
        .value_bytes = update->value_bytes,
    };
    int error = edit->has_inode_area ? xattr_set(sb, &edit->in_inode, &attribute) : -ENOSPC;

    if (error == 0) {
        edit->is_inode_changed = true;
        return is_in_block ? remove_from(edit, true, update) : 0;
    }
    if (error != -ENOSPC)
        return error;
    error = xattr_set(sb, &edit->in_block, &attribute);
    if (error != 0)
        return error;
    edit->is_block_changed = true;
    return is_in_inode ? remove_from(edit, false, update) : 0;
}

static int change_copies(struct edit *edit, const struct xattr_update *update)
{
    struct xattr_view in_inode = {0}, in_block = {0};
    int is_in_inode = edit->has_inode_area ? find(edit, &edit->in_inode, update, &in_inode) : 0;
    int is_in_block = is_in_inode >= 0 ? find(edit, &edit->in_block, update, &in_block) : 0;
    int error = 0;

    if (is_in_inode < 0 || is_in_block < 0)
        return -EUCLEAN;
    bool exists = is_in_inode > 0 || is_in_block > 0;
    if (exists && (update->flags & XATTR_UPDATE_CREATES) != 0)
        return -EEXIST;
    if (!exists && (update->flags & XATTR_UPDATE_REPLACES) != 0)
        return -ENODATA;
    if ((is_in_inode > 0 && in_inode.value_ino != 0) ||
        (is_in_block > 0 && in_block.value_ino != 0))
        return -EOPNOTSUPP;
    if (update->value != NULL) {
        error = set(edit, update, is_in_inode > 0, is_in_block > 0);
    } else {
        if (is_in_inode > 0)
            error = remove_from(edit, false, update);
        if (error == 0 && is_in_block > 0)
            error = remove_from(edit, true, update);
    }
    if (error == -EUCLEAN)
        log_error(edit->inode->volume->log,
                  "inode %u: extended attributes overlap and cannot be changed", edit->inode->ino);
    return error != 0 ? error : check_values(edit);
}

/* ---- In the transaction --------------------------------------------------------------------- */

static void set_feature(struct superblock *sb, void *context)
{
    (void)context;
    sb->compat |= FEATURE_COMPAT_EXT_ATTR;
}

static int store_block(struct handle *handle, struct edit *edit)
{
    if (!edit->is_block_changed)
        return 0;
    if (xattr_place_is_empty(&edit->in_block))
        return xattr_block_drop(handle, edit->inode);
    return xattr_block_store(handle, edit->inode, edit->block);
}

/* Writes area and fields. The table's block is part of the transaction already. */
static int store_inode(const struct edit *edit, const struct xattr_update *update, uint8_t *raw)
{
    struct inode *inode = edit->inode;
    struct inode_fields *fields = &inode->fields;
    size_t area_offset = (size_t)(edit->in_inode.header - edit->raw);
    size_t inode_bytes = inode->volume->sb.inode_bytes;

    mutex_lock(&inode->fields_mutex);
    if (edit->is_inode_changed)
        memcpy(raw + area_offset, edit->raw + area_offset, inode_bytes - area_offset);
    if (update->sets_permissions)
        fields->mode = (fields->mode & ~0777u) | update->permissions;
    fields->change_time = inode_clamp_time(fields->extra_isize, update->now);
    int error = inode_format(&inode->volume->sb, inode->ino, fields, raw);
    mutex_unlock(&inode->fields_mutex);
    if (error != 0)
        log_error(inode->volume->log, "inode %u: cannot be written: %s", inode->ino,
                  strerrordesc_np(-error));
    return error;
}

static int store(struct handle *handle, struct edit *edit, const struct xattr_update *update)
{
    struct inode *inode = edit->inode;
    const struct volume *volume = inode->volume;
    struct buffer *buffer;
    const void *place;
    int error = 0;

    if (!superblock_has_compat(&volume->sb, FEATURE_COMPAT_EXT_ATTR) && update->value != NULL)
        error = volume_change_superblock(handle, volume, set_feature, NULL);
    if (error == 0)
        error = inode_read_raw(inode, &buffer, &place);
    if (error != 0)
        return error;
    error = journal_modify(handle, buffer);
    if (error == 0)
        error = store_block(handle, edit);
    if (error == 0) {
        uint8_t *raw = (uint8_t *)journal_data(handle, buffer) +
                       ((const uint8_t *)place - (const uint8_t *)buffer->data);

        error = store_inode(edit, update, raw);
        if (error != 0)
            journal_abort(handle->journal, error);
    }
    buffer_put(buffer);
    return error;
}

uint32_t xattr_update_credits(const struct inode *inode)
{
    /* The inode, an old block and a new one, both allocations, the superblock. */
    return INODE_WRITE_CREDITS + 2 + 2 * space_credits(inode->volume->space, 1) +
           SPACE_SUPERBLOCK_CREDITS;
}

int xattr_update(struct handle *handle, struct inode *inode, const struct xattr_update *update)
{
    struct edit edit;

    rwlock_write_lock(&inode->xattr_lock);
    int error = edit_open(&edit, inode);
    if (error == 0) {
        error = change_copies(&edit, update);
        if (error == 0)
            error = store(handle, &edit, update);
        edit_close(&edit);
    }
    rwlock_write_unlock(&inode->xattr_lock);
    return error;
}

int xattr_release(struct handle *handle, struct inode *inode)
{
    rwlock_write_lock(&inode->xattr_lock);
    int error = xattr_block_drop(handle, inode);
    rwlock_write_unlock(&inode->xattr_lock);
    return error;
}
