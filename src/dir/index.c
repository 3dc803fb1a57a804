/* SPDX-License-Identifier: MIT */
/*
 * Paths through the hash index (htree) of a directory, and look-ups by them.
 *
 * A node is checked when it enters the cache; every move along the index is bounded by the number
 * of the directory's blocks.
 *
 * Locks: the caller's on the directory; a buffer per level is held. Callers: lookup.c, order.c,
 * index_edit.c.
 */
#include "dir/index.h"

#include <errno.h>

static const char *check_node(struct index_path *path, const struct buffer *buffer, bool is_root,
                              uint64_t tag)
{
    const struct superblock *sb = &path->dir->volume->sb;

    if (is_root)
        return htree_root_check(sb, buffer->data, path->block_count, &path->root);
    /* A node that was verified points into the directory, which does not shrink. */
    if (buffer_is_verified(buffer, tag))
        return NULL;
    return htree_node_check(sb, buffer->data, path->block_count);
}

static int get_node(struct index_path *path, uint32_t file_block, bool is_root,
                    struct buffer **result)
{
    struct inode *dir = path->dir;
    const struct volume *volume = dir->volume;
    uint64_t tag = block_tag(is_root ? BLOCK_KIND_HTREE_ROOT : BLOCK_KIND_HTREE_NODE, dir->ino, 0);
    struct buffer *buffer;
    uint64_t hole_blocks;
    int error = dir_get_block(dir, file_block, &buffer, &hole_blocks);

    if (error != 0)
        return error;
    if (buffer == NULL)
        return dir_corrupt(dir, file_block, "the index points to a hole");
    const char *reason = check_node(path, buffer, is_root, tag);
    if (reason != NULL) {
        error = dir_corrupt(dir, file_block, reason);
    } else if (!buffer_is_verified(buffer, tag)) {
        if (!volume->skip_checksums &&
            !htree_node_checksum_matches(&volume->sb, dir->checksum_seed, buffer->data, is_root)) {
            log_error(volume->log, "directory inode %u, index block %u: checksum does not match",
                      dir->ino, file_block);
            error = -EBADMSG;
        } else {
            buffer_set_verified(buffer, tag);
        }
    }
    if (error != 0)
        buffer_put(buffer);
    else
        *result = buffer;
    return error;
}

int index_get_node(struct index_path *path, uint32_t file_block, struct buffer **buffer)
{
    return get_node(path, file_block, false, buffer);
}

/* Reads a node of the index and pushes it as the next frame, standing on its first entry. */
static int push(struct index_path *path, uint32_t file_block)
{
    bool is_root = path->frame_count == 0;
    struct buffer *buffer;
    int error = get_node(path, file_block, is_root, &buffer);

    if (error != 0)
        return error;
    path->frames[path->frame_count++] = (struct index_frame){
        .buffer = buffer,
        .file_block = file_block,
        .count = htree_count(buffer->data, is_root),
    };
    if (!is_root)
        path->nodes_read++;
    return 0;
}

/* The index entry at a place of a frame. */
static struct htree_entry entry_at(const struct index_path *path, unsigned int number,
                                   unsigned int position)
{
    return htree_entry_at(path->frames[number].buffer->data, number == 0, position);
}

int index_open(struct inode *dir, struct index_path *path)
{
    int64_t blocks = dir_block_count(dir);

    *path = (struct index_path){.dir = dir};
    if (blocks < 0)
        return (int)blocks;
    path->block_count = (uint64_t)blocks;
    int error = push(path, 0);
    if (error == 0 && path->root.indirect_levels >= HTREE_MAX_LEVELS) {
        index_close(path);
        return dir_corrupt(dir, 0, "the index has too many levels");
    }
    return error;
}

void index_close(struct index_path *path)
{
    for (unsigned int i = 0; i < path->frame_count; i++)
        buffer_put(path->frames[i].buffer);
    path->frame_count = 0;
}

struct htree_entry index_leaf(const struct index_path *path)
{
    unsigned int last = path->frame_count - 1;

    return entry_at(path, last, path->frames[last].position);
}

/* Goes down from the lowest frame to the last inner level, by hash or along the first entries. */
static int complete(struct index_path *path, const uint32_t *hash)
{
    while (path->frame_count < path->root.indirect_levels + 1u) {
        int error = push(path, index_leaf(path).block);

        if (error != 0)
            return error;
        struct index_frame *frame = &path->frames[path->frame_count - 1];
        frame->position = hash != NULL ? htree_find(frame->buffer->data, false, *hash) : 0;
    }
    return 0;
}

int index_descend(struct index_path *path, uint32_t hash)
{
    path->frames[0].position = htree_find(path->frames[0].buffer->data, true, hash);
    return complete(path, &hash);
}

bool index_peek_next(const struct index_path *path, uint32_t *hash)
{
    for (unsigned int i = path->frame_count; i-- > 0;) {
        if (path->frames[i].position + 1 < path->frames[i].count) {
            *hash = entry_at(path, i, path->frames[i].position + 1).hash;
            return true;
        }
    }
    return false;
}

int index_next(struct index_path *path)
{
    while (path->frame_count > 0) {
        struct index_frame *frame = &path->frames[path->frame_count - 1];

        if (frame->position + 1 < frame->count) {
            frame->position++;
            int error = complete(path, NULL);
            return error != 0 ? error : 1;
        }
        buffer_put(frame->buffer);
        path->frame_count--;
    }
    return 0;
}

/* ---- The whole of an index ------------------------------------------------------------------ */

/* True if the hashes of the lowest node lie between those of the entries around it, above. */
static bool lowest_node_is_in_order(const struct index_path *path)
{
    unsigned int last = path->frame_count - 1;
    const struct index_frame *frame = &path->frames[last];
    uint32_t next;

    if (last == 0 || frame->count < 2)
        return true;
    if (entry_at(path, last, 1).hash <
        entry_at(path, last - 1, path->frames[last - 1].position).hash)
        return false;
    /* Standing on the last entry, the next one is another node's. */
    return !index_peek_next(path, &next) || entry_at(path, last, frame->count - 1).hash <= next;
}

static int check_nodes(struct index_path *path)
{
    uint64_t leaves = 0;
    uint32_t highest = 0;
    int result = complete(path, NULL);

    if (result != 0)
        return result;
    do {
        struct index_frame *frame = &path->frames[path->frame_count - 1];
        uint32_t next;

        leaves += frame->count;
        if (leaves >= path->block_count)
            return dir_corrupt(path->dir, 0, "the index has more blocks than the directory");
        frame->position = frame->count - 1;
        bool has_next = index_peek_next(path, &next);
        if (!lowest_node_is_in_order(path) || (has_next && next < highest))
            return dir_corrupt(path->dir, frame->file_block, "the index is not in order");
        highest = has_next ? next : highest;
        result = index_next(path);
    } while (result > 0);
    if (result == 0 && leaves + path->nodes_read + 1 != path->block_count)
        return dir_corrupt(path->dir, 0, "blocks of the directory are not in its index");
    return result;
}

int index_check(struct inode *dir)
{
    struct index_path path;
    int error = index_open(dir, &path);

    if (error == 0) {
        error = check_nodes(&path);
        index_close(&path);
    }
    if (error == -EUCLEAN || error == -EBADMSG)
        return 0;
    return error != 0 ? error : 1;
}

/* ---- Look-ups ------------------------------------------------------------------------------- */

static int search_leaf(struct index_path *path, const struct dir_name *name,
                       struct dir_place *place)
{
    struct inode *dir = path->dir;
    uint32_t file_block = index_leaf(path).block;
    const char *reason;
    struct buffer *buffer;
    uint64_t hole_blocks;
    int result = dir_get_leaf(dir, file_block, &buffer, &hole_blocks);

    if (result != 0)
        return result;
    if (buffer == NULL)
        return dir_corrupt(dir, file_block, "the index points to a hole");
    result = dir_search_area(dir, buffer->data, dir->volume->sb.block_bytes, name, place, &reason);
    if (result < 0)
        dir_corrupt(dir, file_block, reason);
    if (result > 0) {
        place->buffer = buffer;
        place->file_block = file_block;
    } else {
        buffer_put(buffer);
    }
    return result;
}

static int search(struct index_path *path, const struct dir_name *name, struct dir_place *place)
{
    struct htree_hash hash;

    if (!dir_name_hash(path->dir, path->root.hash_version, name, &hash))
        return dir_corrupt(path->dir, 0, "the index has an unknown hash");
    int result = index_descend(path, hash.major);

    /* Each step goes to another leaf, of which there are no more than blocks. */
    for (uint64_t leaves = 0; result == 0 && leaves < path->block_count; leaves++) {
        uint32_t next_hash;

        result = search_leaf(path, name, place);
        if (result != 0)
            return result > 0 ? 0 : result;
        if (!index_peek_next(path, &next_hash) || (next_hash & ~1u) != hash.major)
            return -ENOENT;
        result = index_next(path);
        if (result <= 0)
            return result == 0 ? -ENOENT : result;
        result = 0;
    }
    return result != 0 ? result : dir_corrupt(path->dir, 0, "the index runs in a circle");
}

int index_find(struct inode *dir, const struct dir_name *name, struct dir_place *place)
{
    struct index_path path;
    int error = index_open(dir, &path);

    if (error != 0)
        return error;
    error = search(&path, name, place);
    index_close(&path);
    return error;
}
