/* SPDX-License-Identifier: MIT */
/*
 * Renames: one transaction enters the new name (or points it at the moved inode), takes the old one
 * out, and moves ".." and link counts along, so that a crash shows the one or the other.
 *
 * Locks: the file system's rename mutex when a directory changes its parent, so that the tree
 * stands still while loops are looked for; both directories' names_lock, the one nearer to the root
 * first, otherwise by number; then that of a directory that is replaced. A handle inside. Callers:
 * front ends.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "fs/change.h"

#define MAX_DEPTH 65536 /* of the walk towards the root; a longer one is a circle on the disk */

struct side {
    struct inode *dir;
    const char *name;
    size_t length;
    struct inode *inode; /* what the name leads to; NULL if it does not exist */
};

struct move {
    struct side from, to;
    unsigned int flags;
};

static uint8_t type_of(const struct inode *inode)
{
    return (uint8_t)((inode->fields.mode & S_IFMT) >> 12);
}

static bool is_dots(const char *name, size_t length)
{
    return length <= 2 && memcmp(name, "..", length) == 0;
}

/*
 * 1 if `ancestor` is `dir` or lies above it, 0 if not. The names of the directories on the way are
 * not locked: under the rename mutex none of them gets another parent.
 */
static int is_ancestor(struct inode *ancestor, struct inode *dir)
{
    struct inode *current = dir;
    int result = -EUCLEAN;

    inode_ref(current);
    for (unsigned int depth = 0; depth < MAX_DEPTH; depth++) {
        struct inode *parent;
        uint32_t ino;

        if (current == ancestor || current->ino == UEXT4_ROOT_INO) {
            result = current == ancestor;
            break;
        }
        result = dir_lookup(current, "..", 2, &ino);
        if (result == 0)
            result = inode_get(current->table, ino, &parent);
        if (result != 0)
            break;
        inode_put(current);
        current = parent;
        result = -EUCLEAN;
    }
    inode_put(current);
    return result;
}

static int find_side(struct side *side)
{
    uint32_t ino;
    int error = change_check_dir(side->dir);

    side->inode = NULL;
    if (error == 0)
        error = dir_lookup(side->dir, side->name, side->length, &ino);
    if (error != 0)
        return error;
    error = inode_get(side->dir->table, ino, &side->inode);
    return error == -ESTALE ? -EUCLEAN : error;
}

/* Whether the two ends go together; both directories are locked. */
static int check_move(const struct move *move)
{
    const struct side *from = &move->from, *to = &move->to;

    if (to->inode == NULL)
        return (move->flags & UEXT4_RENAME_EXCHANGE) != 0 ? -ENOENT : 0;
    if ((move->flags & UEXT4_RENAME_NOREPLACE) != 0)
        return -EEXIST;
    if ((move->flags & UEXT4_RENAME_EXCHANGE) != 0)
        return 0;
    if (inode_is_directory(from->inode) && !inode_is_directory(to->inode))
        return -ENOTDIR;
    if (!inode_is_directory(from->inode) && inode_is_directory(to->inode))
        return -EISDIR;
    return 0;
}

static uint32_t move_credits(const struct move *move)
{
    return dir_credits(move->from.dir) + dir_credits(move->to.dir) + INODE_WRITE_CREDITS * 4 +
           ORPHAN_CREDITS + 4;
}

/* Points ".." of a directory that moves at its new parent, and counts the links. */
static int move_parent(struct handle *handle, struct inode *inode, struct inode *from_dir,
                       struct inode *to_dir)
{
    if (!inode_is_directory(inode) || from_dir == to_dir)
        return 0;
    change_add_links(from_dir, -1);
    change_add_links(to_dir, 1);
    return dir_replace(handle, inode, "..", 2, to_dir->ino, DT_DIR);
}

/* The inode that the new name led to loses it. */
static int drop_replaced(struct handle *handle, struct inode *inode, struct inode *dir)
{
    if (inode_is_directory(inode)) {
        mutex_lock(&inode->fields_mutex);
        inode->fields.link_count = 0;
        mutex_unlock(&inode->fields_mutex);
        change_add_links(dir, -1);
    } else {
        change_add_links(inode, -1);
    }
    change_touch(inode, change_now(), false);
    int error = inode->fields.link_count == 0 ? orphan_add(handle, inode) : 0;
    return error != 0 ? error : inode_write(handle, inode);
}

static int finish(struct handle *handle, const struct move *move)
{
    struct inode *const touched[] = {move->from.dir, move->to.dir, move->from.inode};
    struct timespec now = change_now();
    int error = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(touched) && error == 0; i++) {
        change_touch(touched[i], now, i < 2);
        error = inode_write(handle, touched[i]);
        inode_note_change(handle, touched[i], true);
    }
    if (error == 0 && move->to.inode != NULL) {
        change_touch(move->to.inode, now, false);
        error = inode_write(handle, move->to.inode);
        inode_note_change(handle, move->to.inode, true);
    }
    return error;
}

static int exchange(struct handle *handle, const struct move *move)
{
    const struct side *from = &move->from, *to = &move->to;
    int error = dir_replace(handle, from->dir, from->name, from->length, to->inode->ino,
                            type_of(to->inode));

    if (error == 0)
        error = dir_replace(handle, to->dir, to->name, to->length, from->inode->ino,
                            type_of(from->inode));
    if (error == 0)
        error = move_parent(handle, from->inode, from->dir, to->dir);
    if (error == 0)
        error = move_parent(handle, to->inode, to->dir, from->dir);
    return error;
}

/* `is_torn` tells whether an error came after something was changed. */
static int replace(struct handle *handle, const struct move *move, bool *is_torn)
{
    const struct side *from = &move->from, *to = &move->to;
    int error;

    *is_torn = false;
    if (to->inode != NULL)
        error = dir_replace(handle, to->dir, to->name, to->length, from->inode->ino,
                            type_of(from->inode));
    else
        error = dir_insert(handle, to->dir, to->name, to->length, from->inode->ino,
                           type_of(from->inode));
    if (error != 0) {
        *is_torn = error == -EUCLEAN || error == -EIO;
        return error;
    }
    *is_torn = true;
    error = dir_remove(handle, from->dir, from->name, from->length);
    if (error == 0)
        error = move_parent(handle, from->inode, from->dir, to->dir);
    if (error == 0 && to->inode != NULL)
        error = drop_replaced(handle, to->inode, to->dir);
    return error;
}

static int move_locked(const struct move *move)
{
    bool is_torn = true;
    struct handle handle;
    int error = journal_start(move->from.dir->volume->journal, move_credits(move), &handle);

    if (error != 0)
        return error;
    if ((move->flags & UEXT4_RENAME_EXCHANGE) != 0)
        error = exchange(&handle, move);
    else
        error = replace(&handle, move, &is_torn);
    if (error == 0) {
        error = finish(&handle, move);
        is_torn = true;
    }
    return change_stop(&handle, error, is_torn);
}

/* Both directories are locked, and the tree stands still if it has to. */
static int move_found(const struct move *move)
{
    const struct side *to = &move->to;
    int error = check_move(move);

    if (error != 0)
        return error;
    if (move->from.inode == to->inode)
        return 0;
    if (inode_is_directory(move->from.inode) && move->from.dir != to->dir &&
        !change_has_room_for_link(to->dir))
        return -EMLINK;
    if (to->inode == NULL || !inode_is_directory(to->inode) ||
        (move->flags & UEXT4_RENAME_EXCHANGE) != 0)
        return move_locked(move);
    rwlock_write_lock(&to->inode->names_lock);
    int is_empty = dir_is_empty(to->inode);
    error = is_empty < 0 ? is_empty : is_empty == 0 ? -ENOTEMPTY : move_locked(move);
    rwlock_write_unlock(&to->inode->names_lock);
    return error;
}

/* Locks two directories: the one above first; unrelated ones by number. */
static int lock_both(struct inode *one, struct inode *two) NO_THREAD_SAFETY_CHECK
{
    int is_above = is_ancestor(one, two);

    if (is_above == 0) {
        int is_below = is_ancestor(two, one);

        if (is_below < 0)
            return is_below;
        is_above = is_below == 0 && one->ino < two->ino;
    }
    if (is_above < 0)
        return is_above;
    rwlock_write_lock(is_above ? &one->names_lock : &two->names_lock);
    rwlock_write_lock(is_above ? &two->names_lock : &one->names_lock);
    return 0;
}

static int try_move(struct move *move) NO_THREAD_SAFETY_CHECK
{
    struct inode *from_dir = move->from.dir, *to_dir = move->to.dir;
    bool is_same = from_dir == to_dir;
    int error = 0;

    if (is_same)
        rwlock_write_lock(&from_dir->names_lock);
    else
        error = lock_both(from_dir, to_dir);
    if (error != 0)
        return error;
    move->to.inode = NULL;
    error = find_side(&move->from);
    if (error == 0) {
        error = find_side(&move->to);
        if (error == -ENOENT && to_dir->fields.link_count > 0)
            error = 0;
    }
    /* A directory must not go below itself. */
    if (error == 0 && !is_same && inode_is_directory(move->from.inode)) {
        int is_loop = is_ancestor(move->from.inode, to_dir);

        error = is_loop < 0 ? is_loop : is_loop > 0 ? -EINVAL : 0;
    }
    if (error == 0 && !is_same && move->to.inode != NULL && inode_is_directory(move->to.inode)) {
        int is_loop = is_ancestor(move->to.inode, from_dir);

        if (is_loop != 0)
            error = is_loop < 0                                  ? is_loop
                    : (move->flags & UEXT4_RENAME_EXCHANGE) != 0 ? -EINVAL
                                                                 : -ENOTEMPTY;
    }
    if (error == 0)
        error = move_found(move);
    inode_put(move->from.inode);
    inode_put(move->to.inode);
    rwlock_write_unlock(&from_dir->names_lock);
    if (!is_same)
        rwlock_write_unlock(&to_dir->names_lock);
    return error;
}

int uext4_rename(struct uext4_inode *old_dir, const char *old_name, size_t old_length,
                 struct uext4_inode *new_dir, const char *new_name, size_t new_length,
                 unsigned int flags) NO_THREAD_SAFETY_CHECK
{
    struct move move = {.from = {inode_from_public(old_dir), old_name, old_length, NULL},
                        .to = {inode_from_public(new_dir), new_name, new_length, NULL},
                        .flags = flags};
    struct uext4 *fs = fs_of(move.from.dir);
    unsigned int tries = 0;
    int error;

    if ((flags & ~(UEXT4_RENAME_NOREPLACE | UEXT4_RENAME_EXCHANGE)) != 0 ||
        flags == (UEXT4_RENAME_NOREPLACE | UEXT4_RENAME_EXCHANGE))
        return -EINVAL;
    if (is_dots(old_name, old_length) || is_dots(new_name, new_length))
        return old_length == 0 || new_length == 0 ? -ENOENT : -EBUSY;
    if (new_length > UEXT4_NAME_MAX)
        return -ENAMETOOLONG;
    do {
        if (old_dir != new_dir)
            mutex_lock(&fs->rename_mutex);
        error = try_move(&move);
        if (old_dir != new_dir)
            mutex_unlock(&fs->rename_mutex);
        change_reap(fs);
    } while (change_can_retry(move.from.dir, error, &tries));
    return error == -EAGAIN ? -ENOSPC : error;
}
