/* SPDX-License-Identifier: MIT */
/*
 * Finding of places in an image; see place.h.
 * Called by the commands that change names.
 */
#include "place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "path.h"

int place_find(struct session *session, const char *path, bool is_directory, struct place *place)
{
    char *parent;
    int result;

    place->dir = NULL;
    place->name = path_last_name(path, &place->length);
    if (!place->name) {
        session_fail(session, path, "a path that ends in a name is needed");
        return -EINVAL;
    }
    if (path_ends_in_slash(path) && !is_directory) {
        session_error(session, path, -ENOTDIR);
        return -ENOTDIR;
    }
    parent = place->name == path ? strdup("/") : strndup(path, (size_t)(place->name - path));
    result = parent ? uext4_walk(session->fs, parent, 0, &place->dir) : -ENOMEM;
    free(parent);
    if (result < 0) {
        place->dir = NULL;
        session_error(session, path, result);
    }
    return result;
}

int place_find_target(struct session *session, const char *dest, const char *source,
                      bool needs_directory, bool is_directory, struct place *place)
{
    struct uext4_inode *inode = NULL;
    struct uext4_stat stat;
    int result = uext4_walk(session->fs, dest, 0, &inode);

    if (result == 0)
        result = uext4_stat(inode, &stat);
    if (result == 0 && S_ISDIR(stat.mode)) {
        place->name = path_last_name(source, &place->length);
        place->dir = inode;
        if (place->name)
            return 0;
        place->dir = NULL;
        uext4_inode_put(inode);
        session_fail(session, NULL, "%s: a path that ends in a name is needed", source);
        return -EINVAL;
    }
    uext4_inode_put(inode);
    if (result == 0 && needs_directory)
        result = -ENOTDIR;
    if (result == 0 || (result == -ENOENT && !needs_directory))
        return place_find(session, dest, is_directory, place);
    place->dir = NULL;
    session_error(session, dest, result);
    return result;
}

void place_release(struct place *place)
{
    uext4_inode_put(place->dir);
    place->dir = NULL;
}

int place_lookup(const struct place *place, struct uext4_inode **inode, struct uext4_stat *stat)
{
    int result = uext4_lookup(place->dir, place->name, place->length, inode);

    if (result < 0)
        return result;
    result = uext4_stat(*inode, stat);
    if (result < 0)
        uext4_inode_put(*inode);
    return result;
}

int place_clear(const struct place *place)
{
    int result = uext4_unlink(place->dir, place->name, place->length);

    return result == -ENOENT ? 0 : result;
}
