/* SPDX-License-Identifier: MIT */
/*
 * Allocating inodes.
 *
 * Where: a file goes into its directory's group, then the groups of the same flex_bg, then ever
 * further ones. A directory goes into its parent's flex_bg unless that is fuller than others; one
 * of the root goes into the emptiest of some that are sampled. Only as many descriptors are read as
 * the choice looks at.
 *
 * Which: the lowest free inode of the group. So the part of the inode table that is in use grows by
 * one inode at a time (unused_inodes shrinks), and at most one block of the table is used for the
 * first time: it is zeroed without being read, as an inode table that was not zeroed by mkfs may
 * hold anything. By the format's custom the rest of a block in use is zero or old inodes.
 *
 * The bitmap is searched in its buffer, under the group's mutex; it is checked when it is read.
 *
 * Locks: one group's mutex at a time, over those of the journal. Callers: fs.
 */
#include <assert.h>
#include <errno.h>

#include "space/space_group.h"

#define MAX_SAMPLES 32u /* flex_bgs that are compared for a directory */

/* ---- Choosing a group ----------------------------------------------------------------------- */

/* What a flex_bg has, or an average one. */
struct room {
    uint64_t inodes, clusters, directories;
};

static uint32_t flex_groups(const struct superblock *sb)
{
    return MIN(MAX(sb->flex_group_count, 1u), sb->group_count);
}

static uint32_t flex_count(const struct superblock *sb)
{
    return (sb->group_count - 1) / flex_groups(sb) + 1;
}

/* Adds up a flex_bg. Damaged groups have no room. */
static int read_room(struct space *space, uint32_t flex, struct room *room)
{
    const struct superblock *sb = &space->volume->sb;
    uint32_t first = flex * flex_groups(sb);
    uint32_t end = first + MIN(flex_groups(sb), sb->group_count - first);

    /* A sample is enough of one that is very large. */
    end = MIN(end, first + 256);
    *room = (struct room){0};
    for (uint32_t number = first; number < end; number++) {
        struct group_descriptor descriptor;

        if (atomic_load(&space->inode_hints[number]) == 0)
            continue;
        int error = volume_read_group(space->volume, number, &descriptor);
        if (error == -EUCLEAN || error == -EBADMSG) {
            atomic_store(&space->inode_hints[number], 0);
            atomic_store(&space->has_bad_inodes, true);
            continue;
        }
        if (error != 0)
            return error;
        room->inodes += descriptor.free_inodes;
        room->clusters += descriptor.free_clusters;
        room->directories += descriptor.used_directories;
    }
    return 0;
}

/* What a flex_bg has on the average, by the counts that are known. */
static struct room average_room(struct space *space)
{
    uint32_t count = flex_count(&space->volume->sb);

    mutex_lock(&space->count_mutex);
    int64_t inodes = space->base_inodes + atomic_load(&space->inode_delta);
    mutex_unlock(&space->count_mutex);
    return (struct room){.inodes = (uint64_t)MAX(inodes, 0) / count,
                         .clusters = (uint64_t)MAX(atomic_load(&space->usable), 0) / count};
}

/* The flex_bg for a directory of the root: the one with fewest directories of those not much below
   the average, in a sample that begins at another place each time. */
static int choose_spread(struct space *space, uint32_t *flex)
{
    const struct superblock *sb = &space->volume->sb;
    struct room average = average_room(space), best = {0};
    uint32_t count = flex_count(sb);
    uint32_t start = atomic_fetch_add(&space->spread, 1) % count;
    bool has_best = false;

    for (uint32_t i = 0; i < MIN(count, MAX_SAMPLES); i++) {
        uint32_t candidate = (uint32_t)(((uint64_t)start + i) % count);
        struct room room;
        int error = read_room(space, candidate, &room);

        if (error != 0)
            return error;
        if (room.inodes == 0 || room.inodes < average.inodes - average.inodes / 4 ||
            room.clusters < average.clusters - average.clusters / 4)
            continue;
        if (!has_best || room.directories < best.directories) {
            best = room;
            *flex = candidate;
            has_best = true;
        }
    }
    return 0;
}

/* The flex_bg for a directory below another one: the parent's, unless it is much fuller than the
   average, or full of directories; then the next that is not. */
static int choose_near(struct space *space, uint32_t *flex)
{
    const struct superblock *sb = &space->volume->sb;
    struct room average = average_room(space);
    uint32_t count = flex_count(sb);
    uint64_t inodes = (uint64_t)sb->inodes_per_group * flex_groups(sb);

    for (uint32_t i = 0; i < MIN(count, MAX_SAMPLES); i++) {
        uint32_t candidate = (uint32_t)(((uint64_t)*flex + i) % count);
        struct room room;
        int error = read_room(space, candidate, &room);

        if (error != 0)
            return error;
        if (room.inodes > 0 && room.inodes >= average.inodes / 4 &&
            room.clusters >= average.clusters / 4 && room.directories <= inodes / 4) {
            *flex = candidate;
            return 0;
        }
    }
    return 0;
}

/* The group that a new inode is looked for in first. */
static int choose_group(struct space *space, uint32_t parent_ino, bool is_dir, bool is_top_level,
                        uint32_t *group)
{
    const struct superblock *sb = &space->volume->sb;

    *group = (parent_ino - 1) / sb->inodes_per_group;
    if (!is_dir)
        return 0;
    uint32_t own = *group / flex_groups(sb), flex = own;
    int error = is_top_level ? choose_spread(space, &flex) : choose_near(space, &flex);
    if (flex != own || is_top_level)
        *group = flex * flex_groups(sb);
    return error;
}

/* ---- The inode bitmap ----------------------------------------------------------------------- */

/* A group with what an allocation or a release changes. Buffers are NULL until they are needed. */
struct inode_change {
    struct space *space;
    struct space_group *group;
    struct buffer *bitmap, *descriptor;
    uint32_t descriptor_offset;
};

static void condemn_inodes_locked(struct inode_change *change, const char *reason)
{
    struct space_group *group = change->group;

    log_error(change->space->volume->log,
              "group %u: inode bitmap in block %llu: %s; its inodes are not given out any more",
              group->number, (unsigned long long)group->descriptor.inode_bitmap, reason);
    group->has_bad_inodes = true;
    if (group->descriptor.free_inodes > 0)
        atomic_store(&change->space->has_bad_inodes, true);
    space_group_update_hints_locked(change->space, group);
}

static const char *judge_bitmap_locked(const struct inode_change *change)
{
    const struct volume *volume = change->space->volume;
    const struct superblock *sb = &volume->sb;
    const struct space_group *group = change->group;
    const void *bitmap = change->bitmap->data;
    uint32_t bound = space_inodes_in_use_bound(sb, &group->descriptor);

    if (!volume->skip_checksums && !bitmap_inode_checksum_matches(sb, &group->descriptor, bitmap))
        return "checksum does not match";
    if (!bitmap_is_all_zero(bitmap, bound, sb->inodes_per_group))
        return "an inode is in use in the part of the table that never was";
    if (group->number == 0 &&
        !bitmap_is_all_set(bitmap, 0, MIN(sb->first_ino - 1, sb->inodes_per_group)))
        return "a reserved inode is marked free";
    if (sb->inodes_per_group - bitmap_count_set(bitmap, 0, sb->inodes_per_group) !=
        group->descriptor.free_inodes)
        return "the number of free inodes is not that of the descriptor";
    return NULL;
}

/* Locks the group with its inode bitmap checked; -EUCLEAN if it is out of use. */
static int inode_change_begin(struct space *space, uint32_t number,
                              struct inode_change *change) NO_THREAD_SAFETY_CHECK
{
    const uint64_t tag = block_tag(BLOCK_KIND_INODE_BITMAP, 0, number);
    const char *reason = NULL;

    *change = (struct inode_change){.space = space};
    int error = space_group_get(space, number, &change->group);
    if (error != 0)
        return error;
    struct space_group *group = change->group;
    error = volume_get_descriptor(space->volume, number, &change->descriptor,
                                  &change->descriptor_offset);
    while (error == 0) {
        mutex_lock(&group->mutex);
        bool is_uninit = (group->descriptor.flags & GROUP_INODE_UNINIT) != 0;
        if (group->has_bad_inodes)
            error = -EUCLEAN;
        else if (change->bitmap == NULL && !is_uninit)
            reason = NULL;
        else if (!is_uninit && !buffer_is_verified(change->bitmap, tag) &&
                 (reason = judge_bitmap_locked(change)) != NULL)
            condemn_inodes_locked(change, reason);
        else
            break;
        mutex_unlock(&group->mutex);
        if (error == 0 && reason != NULL)
            error = -EUCLEAN;
        if (error == 0) {
            error = buffer_get(space->volume->buffers, group->descriptor.inode_bitmap,
                               &change->bitmap);
            if (error != 0)
                log_error(space->volume->log, "group %u: cannot read its inode bitmap", number);
        }
    }
    if (error == 0) {
        if (change->bitmap != NULL)
            buffer_set_verified(change->bitmap, tag);
        return 0;
    }
    buffer_put(change->bitmap);
    buffer_put(change->descriptor);
    return error;
}

static void inode_change_end(struct inode_change *change) NO_THREAD_SAFETY_CHECK
{
    mutex_unlock(&change->group->mutex);
    buffer_put(change->bitmap);
    buffer_put(change->descriptor);
}

/* After a change of bitmap and counts. */
static void inode_change_write(struct handle *handle, struct inode_change *change)
{
    struct space_group *group = change->group;
    const struct volume *volume = change->space->volume;

    assert(change->bitmap != NULL);
    bitmap_inode_set_checksum(&volume->sb, &group->descriptor, change->bitmap->data);
    volume_format_group(volume, group->number, &group->descriptor,
                        (char *)journal_data(handle, change->descriptor) +
                            change->descriptor_offset);
    space_group_update_hints_locked(change->space, group);
}

/* ---- Allocating ----------------------------------------------------------------------------- */

/*
 * Makes an uninitialised inode bitmap real; and the block bitmap with it, as a group whose inodes
 * are in use is expected to have both.
 */
static int initialise_locked(struct handle *handle, struct inode_change *change)
{
    struct space_group *group = change->group;
    const struct superblock *sb = &change->space->volume->sb;
    struct buffer *blocks = NULL;
    int error = 0;

    if ((group->descriptor.flags & GROUP_INODE_UNINIT) != 0) {
        error = journal_create(handle, group->descriptor.inode_bitmap, &change->bitmap);
        if (error != 0)
            return error;
        group_init_inode_bitmap(sb, journal_data(handle, change->bitmap));
        buffer_set_verified(change->bitmap, block_tag(BLOCK_KIND_INODE_BITMAP, 0, group->number));
    }
    if ((group->descriptor.flags & GROUP_BLOCK_UNINIT) != 0) {
        error = journal_create(handle, group->descriptor.block_bitmap, &blocks);
        if (error != 0)
            return error;
        group_init_block_bitmap(sb, group->number, &group->descriptor,
                                journal_data(handle, blocks));
        bitmap_block_set_checksum(sb, &group->descriptor, blocks->data);
        group->descriptor.flags &= (uint16_t)~GROUP_BLOCK_UNINIT;
        buffer_put(blocks);
    }
    return 0;
}

/* Zeroes the block of the inode table that `bit` is the first of to be used. */
static int prepare_table_locked(struct handle *handle, struct inode_change *change, uint32_t bit)
{
    const struct superblock *sb = &change->space->volume->sb;
    const struct group_descriptor *descriptor = &change->group->descriptor;
    uint32_t bound = space_inodes_in_use_bound(sb, descriptor);
    struct buffer *buffer;

    if (bit / sb->inodes_per_block * sb->inodes_per_block < bound)
        return 0;
    int error = journal_create(handle, descriptor->inode_table + bit / sb->inodes_per_block,
                               &buffer);
    if (error == 0)
        buffer_put(buffer);
    return error;
}

static int take_inode_locked(struct handle *handle, struct inode_change *change, uint32_t bit,
                             bool is_dir)
{
    struct space_group *group = change->group;
    struct group_descriptor *descriptor = &group->descriptor;
    const struct superblock *sb = &change->space->volume->sb;
    int error = journal_modify(handle, change->descriptor);

    if (error == 0)
        error = prepare_table_locked(handle, change, bit);
    if (error == 0)
        error = initialise_locked(handle, change);
    if (error == 0)
        error = journal_modify(handle, change->bitmap);
    if (error != 0)
        return error;
    bitmap_set(journal_data(handle, change->bitmap), bit, bit + 1);
    uint32_t bound = space_inodes_in_use_bound(sb, descriptor);
    descriptor->unused_inodes = sb->inodes_per_group - MAX(bound, bit + 1);
    descriptor->flags &= (uint16_t)~GROUP_INODE_UNINIT;
    descriptor->free_inodes--;
    descriptor->used_directories += is_dir ? 1 : 0;
    group->next_inode = bit + 1;
    atomic_fetch_sub(&change->space->inode_delta, 1);
    inode_change_write(handle, change);
    return 0;
}

/* -ENOSPC if the group has no inode to give, for whatever reason. */
static int allocate_in(struct handle *handle, struct space *space, uint32_t number, bool is_dir,
                       uint32_t *ino)
{
    const struct superblock *sb = &space->volume->sb;
    struct inode_change change;
    int error = inode_change_begin(space, number, &change);

    if (error != 0)
        return error == -EUCLEAN || error == -EBADMSG ? -ENOSPC : error;
    uint32_t bit = change.group->next_inode;
    if (change.bitmap != NULL)
        bit = bitmap_find_zero(change.bitmap->data, bit, sb->inodes_per_group);
    if (bit >= sb->inodes_per_group || change.group->descriptor.free_inodes == 0)
        error = -ENOSPC;
    else
        error = take_inode_locked(handle, &change, bit, is_dir);
    inode_change_end(&change);
    *ino = number * sb->inodes_per_group + bit + 1;
    return error;
}

/* Tries a group if its hints promise an inode, and, if `wants_blocks`, a free block. */
static int try_group(struct handle *handle, struct space *space, uint32_t number, bool wants_blocks,
                     bool is_dir, uint32_t *ino)
{
    int error = space_group_read_hints(space, number);

    if (error != 0)
        return error;
    if (atomic_load(&space->inode_hints[number]) == 0 ||
        (wants_blocks && atomic_load(&space->run_hints[number]) == 0))
        return -ENOSPC;
    return allocate_in(handle, space, number, is_dir, ino);
}

int space_allocate_inode(struct handle *handle, struct space *space, uint32_t parent_ino,
                         bool is_dir, bool is_top_level, uint32_t *ino)
{
    const struct superblock *sb = &space->volume->sb;
    uint32_t count = sb->group_count, members = flex_groups(sb);
    uint32_t group;

    if (parent_ino == 0 || parent_ino > sb->inode_count)
        return -EINVAL;
    int error = choose_group(space, parent_ino, is_dir, is_top_level, &group);
    if (error != 0)
        return error;
    uint32_t first = group - group % members;
    uint32_t present = MIN(members, count - first);

    error = -ENOSPC;
    for (uint32_t i = 0; i < present && error == -ENOSPC; i++)
        error = try_group(handle, space, first + (group - first + i) % present, true, is_dir, ino);
    for (uint32_t step = 1; step < count && error == -ENOSPC; step *= 2) {
        error = try_group(handle, space, (uint32_t)(((uint64_t)group + step) % count), true, is_dir,
                          ino);
        if (step > UINT32_MAX / 2)
            break;
    }
    for (uint32_t i = 0; i < count && error == -ENOSPC; i++)
        error = try_group(handle, space, (uint32_t)(((uint64_t)group + i) % count), false, is_dir,
                          ino);
    return error == -ENOSPC && atomic_load(&space->has_bad_inodes) ? -EUCLEAN : error;
}

/* ---- Freeing -------------------------------------------------------------------------------- */

static int free_inode_locked(struct handle *handle, struct inode_change *change, uint32_t bit,
                             bool is_dir)
{
    struct space_group *group = change->group;
    struct space *space = change->space;
    int error = journal_modify(handle, change->bitmap);

    if (error == 0)
        error = journal_modify(handle, change->descriptor);
    if (error != 0)
        return error;
    bitmap_clear(journal_data(handle, change->bitmap), bit, bit + 1);
    group->descriptor.free_inodes++;
    if (is_dir)
        group->descriptor.used_directories--;
    group->next_inode = MIN(group->next_inode, bit);
    atomic_fetch_add(&space->inode_delta, 1);
    inode_change_write(handle, change);
    return 0;
}

int space_free_inode(struct handle *handle, struct space *space, uint32_t ino, bool is_dir)
{
    const struct superblock *sb = &space->volume->sb;
    struct inode_change change;

    if (ino < sb->first_ino || ino > sb->inode_count) {
        log_error(space->volume->log, "inode %u is to be freed, but is none that can be", ino);
        return -EUCLEAN;
    }
    uint32_t number = (ino - 1) / sb->inodes_per_group;
    uint32_t bit = (ino - 1) % sb->inodes_per_group;
    int error = inode_change_begin(space, number, &change);
    if (error != 0)
        return error;
    const char *reason = NULL;
    if (change.bitmap == NULL || !bitmap_test(change.bitmap->data, bit))
        reason = "is free already";
    else if (is_dir && change.group->descriptor.used_directories == 0)
        reason = "is a directory, and its group has none by its count";
    if (reason != NULL) {
        log_error(space->volume->log, "inode %u is to be freed, but %s", ino, reason);
        error = -EUCLEAN;
    } else {
        error = free_inode_locked(handle, &change, bit, is_dir);
    }
    inode_change_end(&change);
    return error;
}
