/* SPDX-License-Identifier: MIT */
/*
 * The calls of the public header on names: look-up, path walk, readdir.
 *
 * Locks: none across the device. Callers: front ends.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "dir/dir.h"
#include "fs/fs.h"

#define MAX_LINKS_FOLLOWED 40 /* as the kernel's path walk */
#define MAX_PATH_BYTES     65536

/* Keeps the entries of a directory as they are; needed only where somebody may change them. */
static void lock_names(struct inode *dir) NO_THREAD_SAFETY_CHECK
{
    if (dir->volume->journal != NULL)
        rwlock_read_lock(&dir->names_lock);
}

static void unlock_names(struct inode *dir) NO_THREAD_SAFETY_CHECK
{
    if (dir->volume->journal != NULL)
        rwlock_read_unlock(&dir->names_lock);
}

static int lookup(struct inode *dir, const char *name, size_t length, struct inode **result)
{
    uint32_t ino;

    lock_names(dir);
    int error = dir_lookup(dir, name, length, &ino);
    if (error == 0) {
        error = inode_get(dir->table, ino, result);
        if (error == -ESTALE || error == -ENOENT) {
            log_error(dir->volume->log,
                      "directory inode %u: entry '%.*s' points to unused inode %u", dir->ino,
                      (int)length, name, ino);
            error = -EUCLEAN;
        }
    }
    unlock_names(dir);
    return error;
}

int uext4_lookup(struct uext4_inode *dir, const char *name, size_t length,
                 struct uext4_inode **result)
{
    struct inode *inode;
    int error = lookup(inode_from_public(dir), name, length, &inode);

    if (error == 0)
        *result = inode_to_public(inode);
    return error;
}

/* A walk in progress. `rest` is what is left of the path, in a buffer that link targets extend. */
struct walk {
    struct uext4 *fs;
    struct inode *current;
    char *buffer;
    const char *rest;
    unsigned int links_followed;
};

static int walk_to_root(struct walk *walk)
{
    struct inode *root;
    int error = inode_get(walk->fs->inodes, UEXT4_ROOT_INO, &root);

    if (error != 0)
        return error;
    inode_put(walk->current);
    walk->current = root;
    return 0;
}

/* Puts a link's target in front of the rest of the path. */
static int walk_follow(struct walk *walk, struct inode *link)
{
    size_t target_bytes = link->fields.size, rest_bytes = strlen(walk->rest);
    char *buffer;
    ssize_t length;

    if (++walk->links_followed > MAX_LINKS_FOLLOWED)
        return -ELOOP;
    if (target_bytes == 0)
        return -ENOENT;
    if (target_bytes > MAX_PATH_BYTES - rest_bytes)
        return -ENAMETOOLONG;
    buffer = malloc(target_bytes + 1 + rest_bytes + 1);
    if (buffer == NULL)
        return -ENOMEM;
    length = uext4_readlink(inode_to_public(link), buffer, target_bytes);
    if (length < 0) {
        free(buffer);
        return (int)length;
    }
    /* A target ends at a NUL, should the disk have one in it. */
    length = (ssize_t)strnlen(buffer, (size_t)length);
    buffer[length] = '/';
    memcpy(buffer + length + (rest_bytes > 0 ? 1 : 0), walk->rest, rest_bytes + 1);
    free(walk->buffer);
    walk->buffer = buffer;
    walk->rest = buffer;
    return buffer[0] == '/' ? walk_to_root(walk) : 0;
}

/* Takes one component. */
static int walk_component(struct walk *walk, size_t length, bool follows_link)
{
    const char *name = walk->rest;
    struct inode *next;
    int error;

    walk->rest += length;
    error = lookup(walk->current, name, length, &next);
    if (error != 0)
        return error;
    if (S_ISLNK(next->fields.mode) && follows_link) {
        error = walk_follow(walk, next);
        inode_put(next);
        return error;
    }
    inode_put(walk->current);
    walk->current = next;
    return 0;
}

int uext4_walk(struct uext4 *fs, const char *path, unsigned int flags, struct uext4_inode **result)
{
    struct walk walk = {.fs = fs};
    int error;

    if (strlen(path) >= MAX_PATH_BYTES)
        return -ENAMETOOLONG;
    walk.rest = path;
    error = walk_to_root(&walk);
    while (error == 0) {
        walk.rest += strspn(walk.rest, "/");
        size_t length = strcspn(walk.rest, "/");
        if (length == 0)
            break;
        bool is_last = walk.rest[length] == '\0';
        error = walk_component(&walk, length, !is_last || (flags & UEXT4_WALK_NOFOLLOW) == 0);
        /* What a slash follows must be a directory, at the end too. */
        if (error == 0 && walk.rest[0] == '/' && !inode_is_directory(walk.current))
            error = -ENOTDIR;
    }
    free(walk.buffer);
    if (error != 0) {
        inode_put(walk.current);
        return error;
    }
    *result = inode_to_public(walk.current);
    return 0;
}

/* Carries the caller's function through dir_iterate. */
struct reader {
    uext4_dirent_fn fn;
    void *context;
};

static bool visit_entry(void *context, const struct dirent_view *view, uint64_t next_cookie)
{
    const struct reader *reader = context;
    struct uext4_dirent entry = {
        .ino = view->ino,
        .next_cookie = next_cookie,
        .type = view->type,
        .name_length = view->name_length,
        .name = view->name,
    };

    return reader->fn(reader->context, &entry);
}

/* Entries that are handed out after the directory's lock is gone. */
#define BATCH_ENTRIES 128

struct batch {
    unsigned int count;
    struct uext4_dirent entries[BATCH_ENTRIES];
    char names[BATCH_ENTRIES][UEXT4_NAME_MAX];
};

static bool collect_entry(void *context, const struct dirent_view *view, uint64_t next_cookie)
{
    struct batch *batch = context;

    if (batch->count == BATCH_ENTRIES)
        return false;
    memcpy(batch->names[batch->count], view->name, view->name_length);
    batch->entries[batch->count] = (struct uext4_dirent){
        .ino = view->ino,
        .next_cookie = next_cookie,
        .type = view->type,
        .name_length = view->name_length,
        .name = batch->names[batch->count],
    };
    batch->count++;
    return true;
}

/* The function may call the library, so it is called without the directory's lock. */
static int readdir_in_batches(struct inode *dir, uint64_t cookie, uext4_dirent_fn fn, void *context)
{
    struct batch *batch = malloc(sizeof(*batch));
    bool goes_on = true;
    int error;

    if (batch == NULL)
        return -ENOMEM;
    do {
        batch->count = 0;
        lock_names(dir);
        error = dir_iterate(dir, cookie, collect_entry, batch);
        unlock_names(dir);
        for (unsigned int i = 0; goes_on && i < batch->count; i++) {
            goes_on = fn(context, &batch->entries[i]);
            cookie = batch->entries[i].next_cookie;
        }
    } while (goes_on && error == 0 && batch->count == BATCH_ENTRIES);
    free(batch);
    return goes_on ? error : 0;
}

int uext4_readdir(struct uext4_inode *public, uint64_t cookie, uext4_dirent_fn fn, void *context)
{
    struct inode *dir = inode_from_public(public);
    struct reader reader = {fn, context};

    if (dir->volume->journal != NULL)
        return readdir_in_batches(dir, cookie, fn, context);
    return dir_iterate(dir, cookie, visit_entry, &reader);
}
