/* SPDX-License-Identifier: MIT */
/* Reads all names and contents below a directory, through the public calls. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "crash.h"

#define MAX_DEPTH 12

struct listing {
    struct tree *tree;
    const char *parent;
    bool has_failed;
};

static bool take_name(void *context, const struct uext4_dirent *entry)
{
    struct listing *listing = context;
    struct tree *tree = listing->tree;

    if (entry->name[0] == '.' &&
        (entry->name_length == 1 || (entry->name_length == 2 && entry->name[1] == '.')))
        return true;
    if (tree->count == tree->capacity) {
        int capacity = tree->capacity * 2 + 64;
        struct seen *entries = realloc(tree->entries, (size_t)capacity * sizeof(*entries));

        if (entries == NULL) {
            listing->has_failed = true;
            return false;
        }
        tree->entries = entries;
        tree->capacity = capacity;
    }
    struct seen *seen = &tree->entries[tree->count];

    memset(seen, 0, sizeof(*seen));
    int length = snprintf(seen->path, sizeof(seen->path), "%s%s%.*s", listing->parent,
                          listing->parent[0] != '\0' ? "/" : "", entry->name_length, entry->name);
    if (length >= (int)sizeof(seen->path)) {
        listing->has_failed = true;
        return false;
    }
    tree->count++;
    return true;
}

static bool read_content(struct uext4_inode *inode, struct seen *seen, struct finding *finding)
{
    if (seen->size > 4 * MAX_FILE_BYTES) {
        snprintf(finding->text, sizeof(finding->text), "%s: absurd size %llu", seen->path,
                 (unsigned long long)seen->size);
        return false;
    }
    seen->content = malloc(seen->size + 1);
    ssize_t count = seen->content == NULL ? -1 : uext4_read(inode, seen->content, seen->size, 0);
    if (count == (ssize_t)seen->size)
        return true;
    snprintf(finding->text, sizeof(finding->text), "%s: read of %llu bytes gives %zd", seen->path,
             (unsigned long long)seen->size, count);
    return false;
}

static bool read_directory(struct uext4_inode *dir, const char *path, struct tree *tree, int depth,
                           struct finding *finding);

static bool read_entry(struct uext4_inode *dir, int index, struct tree *tree, int depth,
                       struct finding *finding)
{
    struct seen *seen = &tree->entries[index];
    const char *slash = strrchr(seen->path, '/');
    const char *name = slash != NULL ? slash + 1 : seen->path;
    struct uext4_inode *inode;
    struct uext4_stat stat;
    char path[MAX_PATH];
    bool is_good = true;
    int error = uext4_lookup(dir, name, strlen(name), &inode);

    if (error != 0) {
        snprintf(finding->text, sizeof(finding->text), "%s: listed, and lookup gives %d",
                 seen->path, error);
        return false;
    }
    error = uext4_stat(inode, &stat);
    seen->is_directory = S_ISDIR(stat.mode);
    seen->link_count = stat.link_count;
    seen->ino = stat.ino;
    seen->size = S_ISREG(stat.mode) ? stat.size : 0;
    memcpy(path, seen->path, sizeof(path));
    if (error != 0) {
        snprintf(finding->text, sizeof(finding->text), "%s: stat gives %d", path, error);
        is_good = false;
    } else if (seen->is_directory) {
        is_good = read_directory(inode, path, tree, depth + 1, finding);
    } else {
        is_good = read_content(inode, seen, finding);
    }
    uext4_inode_put(inode);
    return is_good;
}

static bool read_directory(struct uext4_inode *dir, const char *path, struct tree *tree, int depth,
                           struct finding *finding)
{
    struct listing listing = {tree, path, false};
    int first = tree->count;
    int error = depth > MAX_DEPTH ? -1 : uext4_readdir(dir, 0, take_name, &listing);
    int end = tree->count;

    if (error != 0 || listing.has_failed) {
        snprintf(finding->text, sizeof(finding->text), "directory %s: readdir gives %d", path,
                 error);
        return false;
    }
    for (int i = first; i < end; i++)
        if (!read_entry(dir, i, tree, depth, finding))
            return false;
    return true;
}

bool tree_read(struct uext4 *fs, const char *root, struct tree *tree, struct finding *finding)
{
    struct uext4_inode *dir;
    int error = uext4_walk(fs, root, 0, &dir);

    if (error != 0) {
        snprintf(finding->text, sizeof(finding->text), "%s: lookup gives %d", root, error);
        return false;
    }
    bool is_good = read_directory(dir, "", tree, 0, finding);
    uext4_inode_put(dir);
    return is_good;
}

uint64_t tree_digest(const struct tree *tree)
{
    uint64_t digest = 0;

    for (int i = 0; i < tree->count; i++) {
        const struct seen *seen = &tree->entries[i];
        uint64_t hash = hash_bytes(seen->is_directory, seen->path, strlen(seen->path));

        hash = mix(mix(mix(hash, seen->size), seen->ino), seen->link_count);
        if (seen->content != NULL)
            hash = hash_bytes(hash, seen->content, seen->size);
        digest += hash;
    }
    return digest;
}

void tree_free(struct tree *tree)
{
    for (int i = 0; i < tree->count; i++)
        free(tree->entries[i].content);
    free(tree->entries);
    *tree = (struct tree){0};
}
