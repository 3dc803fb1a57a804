/* SPDX-License-Identifier: MIT */
/*
 * Look-ups through the hash index (htree) of a directory.
 *
 *   block 0: root (".", "..", facts, entries) -> up to 2 levels of inner nodes -> blocks of entries
 *
 * Equal hashes can go on in the next block of entries: then its index entry has the same hash.
 *
 * Locks: none; a buffer per level is held. Callers: lookup.c.
 */
#include <errno.h>

#include "dir/dir.h"

/* One node on the way down. */
struct frame {
    struct buffer *buffer;
    unsigned int position, count;
};

struct descent {
    struct inode *dir;
    uint64_t block_count; /* of the directory */
    unsigned int levels;  /* inner levels below the root */
    struct frame frames[HTREE_MAX_LEVELS];
    unsigned int frame_count;
};

/* Reads a node of the index and pushes it as the next frame, standing on its first entry. */
static int descent_push(struct descent *descent, uint64_t file_block, struct htree_root *root)
{
    struct inode *dir = descent->dir;
    const struct volume *volume = dir->volume;
    bool is_root = root != NULL;
    uint64_t tag = block_tag(is_root ? BLOCK_KIND_HTREE_ROOT : BLOCK_KIND_HTREE_NODE, dir->ino, 0);
    const char *reason = NULL;
    struct buffer *buffer;
    uint64_t hole_blocks;
    int error = dir_get_block(dir, file_block, &buffer, &hole_blocks);

    if (error != 0)
        return error;
    if (buffer == NULL)
        return dir_corrupt(dir, file_block, "the index points to a hole");
    if (is_root)
        reason = htree_root_check(&volume->sb, buffer->data, descent->block_count, root);
    else if (!buffer_is_verified(buffer, tag))
        reason = htree_node_check(&volume->sb, buffer->data, descent->block_count);
    if (reason != NULL) {
        error = dir_corrupt(dir, file_block, reason);
    } else if (!buffer_is_verified(buffer, tag)) {
        if (!volume->skip_checksums &&
            !htree_node_checksum_matches(&volume->sb, dir->checksum_seed, buffer->data, is_root)) {
            log_error(volume->log, "directory inode %u, index block %llu: checksum does not match",
                      dir->ino, (unsigned long long)file_block);
            error = -EBADMSG;
        } else {
            buffer_set_verified(buffer, tag);
        }
    }
    if (error != 0) {
        buffer_put(buffer);
        return error;
    }
    descent->frames[descent->frame_count++] =
        (struct frame){.buffer = buffer, .count = htree_count(buffer->data, is_root)};
    return 0;
}

/* The index entry that the frame stands on. */
static struct htree_entry frame_entry(const struct descent *descent, unsigned int number)
{
    const struct frame *frame = &descent->frames[number];

    return htree_entry_at(frame->buffer->data, number == 0, frame->position);
}

/* Goes down from the lowest frame to the last inner level, by hash or along the first entries. */
static int descent_complete(struct descent *descent, const uint32_t *hash)
{
    while (descent->frame_count < descent->levels + 1) {
        int error = descent_push(descent, frame_entry(descent, descent->frame_count - 1).block,
                                 NULL);

        if (error != 0)
            return error;
        struct frame *frame = &descent->frames[descent->frame_count - 1];
        frame->position = hash != NULL ? htree_find(frame->buffer->data, false, *hash) : 0;
    }
    return 0;
}

/*
 * Moves to the next block of entries if it can hold the same hash. 1: moved, 0: there is none.
 */
static int descent_next(struct descent *descent, uint32_t hash)
{
    while (descent->frame_count > 0) {
        struct frame *frame = &descent->frames[descent->frame_count - 1];

        if (frame->position + 1 < frame->count) {
            frame->position++;
            if ((frame_entry(descent, descent->frame_count - 1).hash & ~1u) != hash)
                return 0;
            int error = descent_complete(descent, NULL);
            return error != 0 ? error : 1;
        }
        buffer_put(frame->buffer);
        descent->frame_count--;
    }
    return 0;
}

static int search_leaf(struct descent *descent, const struct dir_name *name, uint32_t *ino)
{
    struct inode *dir = descent->dir;
    uint64_t file_block = frame_entry(descent, descent->frame_count - 1).block;
    const char *reason;
    struct buffer *buffer;
    uint64_t hole_blocks;
    int result = dir_get_leaf(dir, file_block, &buffer, &hole_blocks);

    if (result != 0)
        return result;
    if (buffer == NULL)
        return dir_corrupt(dir, file_block, "the index points to a hole");
    result = dir_search_area(dir, buffer->data, dir->volume->sb.block_bytes, name, ino, &reason);
    if (result < 0)
        dir_corrupt(dir, file_block, reason);
    buffer_put(buffer);
    return result;
}

static int search(struct descent *descent, const struct dir_name *name, uint32_t *ino)
{
    const struct superblock *sb = &descent->dir->volume->sb;
    struct htree_root root = {0};
    struct htree_hash hash;
    int result = descent_push(descent, 0, &root);

    if (result != 0)
        return result;
    descent->levels = root.indirect_levels;
    if (descent->levels >= HTREE_MAX_LEVELS)
        return dir_corrupt(descent->dir, 0, "the index has too many levels");
    bool is_hashed = name->is_folded
                         ? htree_hash_name(sb, root.hash_version, name->folded, name->folded_length,
                                           &hash)
                         : htree_hash_name(sb, root.hash_version, name->bytes, name->length, &hash);
    if (!is_hashed)
        return dir_corrupt(descent->dir, 0, "the index has an unknown hash");
    descent->frames[0].position = htree_find(descent->frames[0].buffer->data, true, hash.major);
    result = descent_complete(descent, &hash.major);

    /* Each step goes to another leaf, of which there are no more than blocks. */
    for (uint64_t leaves = 0; result == 0 && leaves < descent->block_count; leaves++) {
        result = search_leaf(descent, name, ino);
        if (result != 0)
            return result > 0 ? 0 : result;
        result = descent_next(descent, hash.major);
        if (result <= 0)
            return result == 0 ? -ENOENT : result;
        result = 0;
    }
    return result != 0 ? result : dir_corrupt(descent->dir, 0, "the index runs in a circle");
}

int dir_index_lookup(struct inode *dir, const struct dir_name *name, uint32_t *ino)
{
    struct descent descent = {.dir = dir};
    int64_t blocks = dir_block_count(dir);

    if (blocks < 0)
        return (int)blocks;
    descent.block_count = (uint64_t)blocks;
    int error = search(&descent, name, ino);
    for (unsigned int i = 0; i < descent.frame_count; i++)
        buffer_put(descent.frames[i].buffer);
    return error;
}
