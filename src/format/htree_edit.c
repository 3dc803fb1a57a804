/* SPDX-License-Identifier: MIT */
/*
 * Changes of the directory hash index: making a root, inserting, splitting, growing by a level.
 * Nodes passed their check; room and positions are the caller's duty and asserted. Checksums are
 * stale until htree_node_set_checksum. Pure functions without locks, called by the dir layer.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "format/dirent_disk.h"

static struct disk_htree_counts *counts_of(void *block, bool is_root)
{
    return (void *)((uint8_t *)block + htree_entries_offset(is_root));
}

static uint8_t *entry_place(void *block, bool is_root, unsigned int position)
{
    return (uint8_t *)block + htree_entries_offset(is_root) + (size_t)position * HTREE_ENTRY_BYTES;
}

/* Entry 0 has its block here, and the counts where others have their hash. */
static void init_entries(const struct superblock *sb, void *block, bool is_root,
                         uint32_t first_block)
{
    *counts_of(block, is_root) = (struct disk_htree_counts){
        .limit = le16_make((uint16_t)htree_limit(sb, is_root)),
        .count = le16_make(1),
        .block = le32_make(first_block),
    };
}

static void set_count(const struct superblock *sb, void *block, bool is_root, unsigned int count)
{
    assert(count >= 1 && count <= htree_limit(sb, is_root));
    (void)sb;
    counts_of(block, is_root)->count = le16_make((uint16_t)count);
}

/* Makes an inner node with one entry. All of the block is written. */
static void init_node(const struct superblock *sb, void *block, uint32_t first_block)
{
    uint32_t record_bytes = sb->block_bytes == 65536 ? 65535 : sb->block_bytes;

    memset(block, 0, sb->block_bytes);
    *(struct disk_htree_node *)block =
        (struct disk_htree_node){.record_bytes = le16_make((uint16_t)record_bytes)};
    init_entries(sb, block, false, first_block);
}

/* Reads ".", then "..", of a linear first block; returns where what follows begins, or 0. */
static size_t read_dots(const struct superblock *sb, const void *block, struct dirent_view *dot,
                        struct dirent_view *dotdot)
{
    const size_t size = dirent_block_room(sb);

    if (dirent_read(sb, block, size, 0, false, dot) != NULL || dot->ino == 0 ||
        dot->name_length != 1 || dot->name[0] != '.')
        return 0;
    if (dirent_read(sb, block, size, dot->record_bytes, false, dotdot) != NULL ||
        dotdot->ino == 0 || dotdot->name_length != 2 || memcmp(dotdot->name, "..", 2) != 0)
        return 0;
    return (size_t)dot->record_bytes + dotdot->record_bytes;
}

int htree_make_root(const struct superblock *sb, void *block, void *leaf, uint32_t leaf_block,
                    uint8_t hash_version, bool has_stored_hash)
{
    struct dirent_view dot, dotdot;
    size_t start = read_dots(sb, block, &dot, &dotdot);

    if (start == 0)
        return -EUCLEAN;
    memset(leaf, 0, sb->block_bytes);
    dirent_block_init(sb, leaf);
    int error = dirent_copy_entries(sb, (const uint8_t *)block + start,
                                    dirent_block_room(sb) - start, leaf, dirent_block_room(sb),
                                    has_stored_hash);
    if (error != 0)
        return error;

    struct disk_htree_root root = {
        .dot = {.ino = le32_make(dot.ino),
                .record_bytes = le16_make(DOT_RECORD_BYTES),
                .name_length = 1,
                .name = "."},
        .dotdot = {.ino = le32_make(dotdot.ino),
                   .record_bytes = le16_make((uint16_t)(sb->block_bytes - DOT_RECORD_BYTES)),
                   .name_length = 2,
                   .name = ".."},
        .hash_version = hash_version,
        .info_bytes = HTREE_INFO_BYTES,
    };
    memset(block, 0, sb->block_bytes);
    memcpy(block, &root, sizeof(root));
    dirent_replace(sb, block, offsetof(struct disk_htree_root, dot), dot.ino, DT_DIR);
    dirent_replace(sb, block, offsetof(struct disk_htree_root, dotdot), dotdot.ino, DT_DIR);
    init_entries(sb, block, true, leaf_block);
    return 0;
}

void htree_insert(const struct superblock *sb, void *block, bool is_root, unsigned int position,
                  const struct htree_entry *entry)
{
    unsigned int count = htree_count(block, is_root);
    struct disk_htree_entry disk = {.hash = le32_make(entry->hash),
                                    .block = le32_make(entry->block)};

    assert(position >= 1 && position <= count && entry->block <= HTREE_BLOCK_MASK);
    set_count(sb, block, is_root, count + 1);
    memmove(entry_place(block, is_root, position + 1), entry_place(block, is_root, position),
            (size_t)(count - position) * HTREE_ENTRY_BYTES);
    memcpy(entry_place(block, is_root, position), &disk, sizeof(disk));
}

uint32_t htree_node_split_at(const struct superblock *sb, void *node, unsigned int position,
                             void *upper)
{
    unsigned int count = htree_count(node, false);

    assert(position >= 1 && position < count);
    struct htree_entry first = htree_entry_at(node, false, position);
    init_node(sb, upper, first.block);
    memcpy(entry_place(upper, false, 1), entry_place(node, false, position + 1),
           (size_t)(count - position - 1) * HTREE_ENTRY_BYTES);
    set_count(sb, upper, false, count - position);
    set_count(sb, node, false, position);
    return first.hash;
}

uint32_t htree_node_split(const struct superblock *sb, void *node, void *upper)
{
    return htree_node_split_at(sb, node, htree_count(node, false) / 2, upper);
}

void htree_root_push_down(const struct superblock *sb, void *root, void *node, uint32_t node_block)
{
    struct disk_htree_root *disk = root;
    unsigned int count = htree_count(root, true);

    assert(disk->indirect_levels < htree_levels_max(sb) && node_block <= HTREE_BLOCK_MASK);
    init_node(sb, node, htree_entry_at(root, true, 0).block);
    memcpy(entry_place(node, false, 1), entry_place(root, true, 1),
           (size_t)(count - 1) * HTREE_ENTRY_BYTES);
    set_count(sb, node, false, count);
    init_entries(sb, root, true, node_block);
    disk->indirect_levels++;
}

void htree_node_set_checksum(const struct superblock *sb, uint32_t inode_seed, void *block,
                             bool is_root)
{
    if (!sb->has_metadata_csum)
        return;
    struct disk_htree_tail *tail = (void *)entry_place(block, is_root, htree_limit(sb, is_root));
    tail->checksum = le32_make(htree_node_checksum(inode_seed, block, is_root, tail));
}
