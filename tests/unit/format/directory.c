/* SPDX-License-Identifier: MIT */
/* Grows directories in memory with the functions of format/dirent.h, the way src/dir does. */
#include "directory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS_MAX   4
#define ATTEMPTS_MAX 20

struct frame {
    uint32_t block;
    unsigned int position;
};

uint8_t *directory_block(const struct directory *dir, uint32_t block)
{
    assert_true(block < dir->count);
    return dir->blocks + (size_t)block * dir->sb.block_bytes;
}

static uint32_t add_block(struct directory *dir)
{
    assert_true(dir->count < dir->count_max);
    return dir->count++;
}

void directory_start(struct directory *dir, uint32_t blocks_max, uint32_t ino, uint32_t parent_ino)
{
    dir->blocks = malloc((size_t)blocks_max * dir->sb.block_bytes);
    assert_non_null(dir->blocks);
    dir->count_max = blocks_max;
    dir->hash_mask = UINT32_MAX;
    dirent_block_init_dots(&dir->sb, directory_block(dir, add_block(dir)), ino, parent_ino);
    assert_int_equal(
        dirent_area_is_empty(&dir->sb, dir->blocks, dirent_block_room(&dir->sb), false), 1);
}

bool directory_hash(void *context, const struct dirent_view *entry, struct htree_hash *hash)
{
    const struct directory *dir = context;
    if (!htree_hash_name(&dir->sb, dir->root.hash_version, entry->name, entry->name_length, hash))
        return false;
    hash->major &= dir->hash_mask;
    return true;
}

static uint32_t hash_of(struct directory *dir, const struct dirent_view *entry)
{
    struct htree_hash hash;
    assert_true(directory_hash(dir, entry, &hash));
    return hash.major;
}

/* The way from the root to the leaf for a hash; the last frame is the node above the leaf. */
static unsigned int descend(struct directory *dir, uint32_t hash, struct frame *frames,
                            uint32_t *leaf)
{
    uint32_t block = 0;
    unsigned int levels = dir->root.indirect_levels + 1u;
    for (unsigned int i = 0; i < levels; i++) {
        unsigned int position = htree_find(directory_block(dir, block), i == 0, hash);
        frames[i] = (struct frame){block, position};
        block = htree_entry_at(directory_block(dir, block), i == 0, position).block;
    }
    *leaf = block;
    return levels;
}

/* The leaf after this one, if the run of equal hashes goes on there. */
static bool follow(struct directory *dir, uint32_t hash, struct frame *frames, unsigned int levels,
                   uint32_t *leaf)
{
    unsigned int level = levels;
    while (level > 0) {
        struct frame *frame = &frames[level - 1];
        if (frame->position + 1 < htree_count(directory_block(dir, frame->block), level == 1))
            break;
        level--;
    }
    if (level == 0)
        return false;
    frames[level - 1].position++;
    uint8_t *node = directory_block(dir, frames[level - 1].block);
    struct htree_entry entry = htree_entry_at(node, level == 1, frames[level - 1].position);
    if (entry.hash != (hash | 1))
        return false;
    for (; level < levels; level++) {
        frames[level] = (struct frame){entry.block, 0};
        entry = htree_entry_at(directory_block(dir, entry.block), false, 0);
    }
    *leaf = entry.block;
    return true;
}

static size_t find_in_block(struct directory *dir, uint32_t block, const struct dirent_view *wanted)
{
    const size_t size = dirent_block_room(&dir->sb);
    struct dirent_view entry;
    for (size_t at = 0; at < size; at += entry.record_bytes) {
        assert_null(dirent_read(&dir->sb, directory_block(dir, block), size, at, false, &entry));
        if (entry.ino == wanted->ino && entry.name_length == wanted->name_length &&
            memcmp(entry.name, wanted->name, entry.name_length) == 0)
            return at;
    }
    return SIZE_MAX;
}

size_t directory_find(struct directory *dir, const struct dirent_view *entry, uint32_t *block)
{
    struct frame frames[LEVELS_MAX];
    *block = 0;
    if (!dir->is_indexed)
        return find_in_block(dir, 0, entry);
    uint32_t hash = hash_of(dir, entry);
    unsigned int levels = descend(dir, hash, frames, block);
    do {
        size_t at = find_in_block(dir, *block, entry);
        if (at != SIZE_MAX)
            return at;
    } while (follow(dir, hash, frames, levels, block));
    return SIZE_MAX;
}

/* Splits the highest node of those that are full, or adds a level. */
static bool make_index_room(struct directory *dir, struct frame *frames, unsigned int levels)
{
    const struct superblock *sb = &dir->sb;
    unsigned int level = levels;
    while (level > 0 &&
           htree_is_full(sb, directory_block(dir, frames[level - 1].block), level == 1))
        level--;
    if (level == 0) {
        if (dir->root.indirect_levels >= htree_levels_max(sb))
            return false;
        uint32_t node = add_block(dir);
        htree_root_push_down(sb, directory_block(dir, 0), directory_block(dir, node), node);
        dir->push_downs++;
    } else {
        const struct frame *parent = &frames[level - 1], *full = &frames[level];
        uint32_t upper = add_block(dir);
        uint32_t hash = htree_node_split(sb, directory_block(dir, full->block),
                                         directory_block(dir, upper));
        htree_insert(sb, directory_block(dir, parent->block), level == 1, parent->position + 1,
                     &(struct htree_entry){hash, upper});
        dir->node_splits++;
    }
    assert_null(htree_root_check(sb, directory_block(dir, 0), dir->count, &dir->root));
    return true;
}

static void split_leaf(struct directory *dir, const struct frame *parent, bool is_root,
                       uint32_t leaf)
{
    uint32_t upper = add_block(dir), hash;
    assert_int_equal(dirent_split(&dir->sb, directory_block(dir, leaf), directory_block(dir, upper),
                                  false, directory_hash, dir, &hash),
                     0);
    htree_insert(&dir->sb, directory_block(dir, parent->block), is_root, parent->position + 1,
                 &(struct htree_entry){hash, upper});
    dir->leaf_splits++;
    dir->continued += hash & 1;
}

static void make_index(struct directory *dir)
{
    uint32_t leaf = add_block(dir);
    assert_int_equal(htree_make_root(&dir->sb, dir->blocks, directory_block(dir, leaf), leaf,
                                     dir->sb.default_hash_version, false),
                     0);
    assert_null(htree_root_check(&dir->sb, dir->blocks, dir->count, &dir->root));
    assert_int_equal(dir->root.hash_version, dir->sb.default_hash_version);
    dir->is_indexed = true;
}

int directory_add(struct directory *dir, const struct dirent_view *entry)
{
    const size_t size = dirent_block_room(&dir->sb);
    struct frame frames[LEVELS_MAX];
    uint32_t leaf;

    if (!dir->is_indexed) {
        int result = dirent_insert(&dir->sb, dir->blocks, size, false, entry);
        if (result != -ENOSPC)
            return result;
        make_index(dir);
    }
    for (unsigned int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        unsigned int levels = descend(dir, hash_of(dir, entry), frames, &leaf);
        int result = dirent_insert(&dir->sb, directory_block(dir, leaf), size, false, entry);
        if (result != -ENOSPC)
            return result;
        const struct frame *parent = &frames[levels - 1];
        if (!htree_is_full(&dir->sb, directory_block(dir, parent->block), levels == 1))
            split_leaf(dir, parent, levels == 1, leaf);
        else if (!make_index_room(dir, frames, levels))
            return -ENOSPC;
    }
    fail_msg("a name finds no room");
    return -EUCLEAN;
}

static void set_checksums_below(struct directory *dir, uint32_t block, unsigned int level)
{
    uint8_t *bytes = directory_block(dir, block);
    if (!dir->is_indexed || level > dir->root.indirect_levels) {
        dirent_block_set_checksum(&dir->sb, dir->seed, bytes);
        return;
    }
    htree_node_set_checksum(&dir->sb, dir->seed, bytes, level == 0);
    for (unsigned int i = 0; i < htree_count(bytes, level == 0); i++)
        set_checksums_below(dir, htree_entry_at(bytes, level == 0, i).block, level + 1);
}

void directory_set_checksums(struct directory *dir)
{
    set_checksums_below(dir, 0, 0);
}
