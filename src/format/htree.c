/* SPDX-License-Identifier: MIT */
/*
 * Nodes of the directory hash index. A node is a directory block whose fake entries hide the
 * index from readers that know only linear directories. The checks read inside the block alone;
 * the accessors trust them. Pure functions without locks, called by the dir layer.
 */
#include "base/compiler.h"
#include "format/crc.h"
#include "format/dirent_disk.h"

size_t htree_entries_offset(bool is_root)
{
    return is_root ? sizeof(struct disk_htree_root) : sizeof(struct disk_htree_node);
}

static const struct disk_htree_counts *counts_of(const void *block, bool is_root)
{
    return (const void *)((const uint8_t *)block + htree_entries_offset(is_root));
}

unsigned int htree_limit(const struct superblock *sb, bool is_root)
{
    size_t tail_bytes = sb->has_metadata_csum ? HTREE_TAIL_BYTES : 0;
    return (unsigned int)((sb->block_bytes - htree_entries_offset(is_root) - tail_bytes) /
                          HTREE_ENTRY_BYTES);
}

unsigned int htree_levels_max(const struct superblock *sb)
{
    return superblock_has_incompat(sb, FEATURE_INCOMPAT_LARGEDIR) ? HTREE_MAX_LEVELS - 1 : 1;
}

unsigned int htree_count(const void *block, bool is_root)
{
    return le16_get(counts_of(block, is_root)->count);
}

struct htree_entry htree_entry_at(const void *block, bool is_root, unsigned int position)
{
    const struct disk_htree_entry *disk = (const void *)((const uint8_t *)block +
                                                         htree_entries_offset(is_root) +
                                                         (size_t)position * HTREE_ENTRY_BYTES);
    return (struct htree_entry){.hash = position == 0 ? 0 : le32_get(disk->hash),
                                .block = le32_get(disk->block) & HTREE_BLOCK_MASK};
}

unsigned int htree_find(const void *block, bool is_root, uint32_t hash)
{
    /* Entries before `low` have hashes <= `hash`, those from `high` on greater ones. */
    unsigned int low = 1, high = htree_count(block, is_root);
    while (low < high) {
        unsigned int middle = low + (high - low) / 2;
        if (htree_entry_at(block, is_root, middle).hash <= hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

static const char *check_entries(const struct superblock *sb, const void *block, bool is_root,
                                 uint64_t directory_blocks)
{
    unsigned int limit = le16_get(counts_of(block, is_root)->limit);
    unsigned int count = htree_count(block, is_root);
    if (limit != htree_limit(sb, is_root))
        return "index node's limit does not fit the block";
    if (count == 0 || count > limit)
        return "index node's count out of range";
    uint32_t previous = 0;
    for (unsigned int i = 0; i < count; i++) {
        struct htree_entry entry = htree_entry_at(block, is_root, i);
        if (entry.hash < previous)
            return "index hashes are not sorted";
        previous = entry.hash;
        if (entry.block == 0 || entry.block >= directory_blocks)
            return "index points outside the directory";
    }
    return NULL;
}

static bool is_dot(const struct disk_htree_dot *entry, uint8_t name_length)
{
    return entry->name_length == name_length && entry->name[0] == '.' &&
           (name_length == 1 || entry->name[1] == '.');
}

const char *htree_root_check(const struct superblock *sb, const void *block,
                             uint64_t directory_blocks, struct htree_root *result)
{
    const struct disk_htree_root *root = block;

    if (!is_dot(&root->dot, 1) || le16_get(root->dot.record_bytes) != DOT_RECORD_BYTES)
        return "index root without its first entry";
    if (!is_dot(&root->dotdot, 2) ||
        le16_get(root->dotdot.record_bytes) != sb->block_bytes - DOT_RECORD_BYTES)
        return "index root without its second entry";
    if (le32_get(root->reserved) != 0 || (root->flags & 1) != 0)
        return "index root with unknown flags";
    if (root->info_bytes != HTREE_INFO_BYTES)
        return "index root of an unknown size";
    if (root->hash_version > HTREE_HASH_TEA && root->hash_version != HTREE_HASH_SIPHASH)
        return "index root with an unknown hash version";
    if (root->indirect_levels > htree_levels_max(sb))
        return "index with too many levels";
    *result = (struct htree_root){.hash_version = root->hash_version,
                                  .indirect_levels = root->indirect_levels};
    return check_entries(sb, block, true, directory_blocks);
}

/* As in linear entries, 65535 or 0 stand for 65536. */
static bool is_whole_block(const struct superblock *sb, uint16_t record_bytes)
{
    if (sb->block_bytes == 65536)
        return record_bytes == 65535 || record_bytes == 0;
    return record_bytes == sb->block_bytes;
}

const char *htree_node_check(const struct superblock *sb, const void *block,
                             uint64_t directory_blocks)
{
    const struct disk_htree_node *node = block;
    if (le32_get(node->ino) != 0 || node->name_length != 0 ||
        !is_whole_block(sb, le16_get(node->record_bytes)))
        return "index node without its empty entry";
    return check_entries(sb, block, false, directory_blocks);
}

uint32_t htree_node_checksum(uint32_t inode_seed, const void *block, bool is_root,
                             const struct disk_htree_tail *tail)
{
    static const uint8_t zero[sizeof(le32)];
    size_t count = htree_count(block, is_root);
    uint32_t crc = crc32c(inode_seed, block,
                          htree_entries_offset(is_root) + count * HTREE_ENTRY_BYTES);
    crc = crc32c(crc, &tail->reserved, sizeof(tail->reserved));
    return crc32c(crc, zero, sizeof(zero));
}

bool htree_node_checksum_matches(const struct superblock *sb, uint32_t inode_seed,
                                 const void *block, bool is_root)
{
    if (!sb->has_metadata_csum)
        return true;
    size_t limit = le16_get(counts_of(block, is_root)->limit);
    if (limit != htree_limit(sb, is_root) || htree_count(block, is_root) > limit)
        return false;
    const struct disk_htree_tail *tail = (const void *)((const uint8_t *)block +
                                                        htree_entries_offset(is_root) +
                                                        limit * HTREE_ENTRY_BYTES);
    return htree_node_checksum(inode_seed, block, is_root, tail) == le32_get(tail->checksum);
}
