/* SPDX-License-Identifier: MIT */
/*
 * Finds metadata by what it looks like: the tables through the group descriptors, the rest by magic
 * numbers in all blocks. The owner of an extent node or a directory block is the inode whose
 * checksum fits. Called by mutate.
 */
#include "target.h"

#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/crc.h"
#include "format/dirent.h"
#include "format/extent.h"
#include "format/inode.h"
#include "format/journal.h"

#define OWNERS_MAX          2048
#define INODE_GENERATION    0x64
#define INODE_CHECKSUM_LOW  0x7c
#define INODE_EXTRA_BYTES   0x80
#define INODE_CHECKSUM_HIGH 0x82
#define GROUP_CHECKSUM      0x1e
#define XATTR_CHECKSUM      0x10
#define JOURNAL_CHECKSUM    0xfc
#define SUPERBLOCK_CHECKSUM 0x3fc

struct owners {
    uint32_t seeds[OWNERS_MAX];
    unsigned int count;
};

static void put(uint8_t *place, uint32_t value, unsigned int bytes)
{
    for (unsigned int i = 0; i < bytes; i++)
        place[i] = (uint8_t)(value >> (8 * i));
}

static uint8_t *block_at(const struct target *target, const uint8_t *image, uint32_t block)
{
    return (uint8_t *)(uintptr_t)image + (size_t)block * target->sb.block_bytes;
}

static struct place *add_place(struct target *target, enum place_kind kind, uint32_t block)
{
    if (target->counts[kind] == PLACES_MAX)
        return NULL;
    struct place *place = &target->places[kind][target->counts[kind]++];
    *place = (struct place){.block = block};
    return place;
}

/* The inode table of one group, and the checksum seeds of the inodes in it. */
static void scan_table(struct target *target, const uint8_t *image, uint32_t table, uint32_t group,
                       struct owners *owners)
{
    const struct superblock *sb = &target->sb;

    for (uint32_t i = 0; i < sb->inode_table_blocks; i++) {
        bool is_used = false;

        if ((uint64_t)(table + i + 1) * sb->block_bytes > target->bytes)
            return;
        uint32_t first = group * sb->inodes_per_group + i * sb->inodes_per_block + 1;
        for (uint32_t k = 0; k < sb->inodes_per_block; k++) {
            const uint8_t *inode = block_at(target, image, table + i) + k * sb->inode_bytes;

            if (le16_at(inode) == 0 || owners->count == OWNERS_MAX)
                continue;
            is_used = true;
            owners->seeds[owners->count++] = inode_checksum_seed(sb, first + k,
                                                                 le32_at(inode + INODE_GENERATION));
        }
        struct place *place = is_used ? add_place(target, PLACE_INODES, table + i) : NULL;
        if (place != NULL)
            place->first_ino = first;
    }
}

static void scan_groups(struct target *target, const uint8_t *image, struct owners *owners)
{
    const struct superblock *sb = &target->sb;
    uint32_t first = sb->first_data_block + 1;

    for (uint32_t i = 0; i < sb->descriptor_block_count; i++)
        if ((uint64_t)(first + i + 1) * sb->block_bytes <= target->bytes)
            add_place(target, PLACE_DESCRIPTORS, first + i);
    for (uint32_t group = 0; group < sb->group_count; group++) {
        const uint8_t *descriptor = block_at(target, image, first) +
                                    (size_t)group * sb->descriptor_bytes;

        if ((size_t)(descriptor - image) + sb->descriptor_bytes > target->bytes)
            return;
        scan_table(target, image, le32_at(descriptor + 8), group, owners);
    }
}

static bool looks_like_directory(const struct superblock *sb, const uint8_t *block)
{
    unsigned int used = 0;
    struct dirent_view entry;

    for (size_t offset = 0; offset < sb->block_bytes; offset += entry.record_bytes) {
        if (dirent_read(sb, block, sb->block_bytes, offset, false, &entry) != NULL)
            return false;
        used += entry.ino != 0;
    }
    return used > 0;
}

static bool looks_like_numbers(const struct superblock *sb, const uint8_t *block)
{
    unsigned int used = 0;

    for (size_t offset = 0; offset < sb->block_bytes; offset += 4) {
        if (le32_at(block + offset) >= sb->block_count)
            return false;
        used += le32_at(block + offset) != 0;
    }
    return used > 1;
}

static void find_owner(const struct superblock *sb, struct place *place, enum place_kind kind,
                       const uint8_t *block, const struct owners *owners)
{
    if (place == NULL || !sb->has_metadata_csum)
        return;
    for (unsigned int i = 0; i < owners->count && !place->has_owner; i++) {
        place->has_owner = kind == PLACE_EXTENTS
                               ? extent_node_checksum_matches(sb, owners->seeds[i], block)
                               : dirent_block_checksum_matches(sb, owners->seeds[i], block);
        place->owner_seed = owners->seeds[i];
    }
}

bool target_scan(struct target *target, const uint8_t *image, size_t bytes)
{
    struct owners *owners = calloc(1, sizeof(*owners));
    struct superblock *sb = &target->sb;
    bool is_good = owners != NULL && bytes >= 4096 &&
                   superblock_parse(image + SUPERBLOCK_OFFSET_BYTES, 0, sb) == NULL;

    target->bytes = bytes;
    memset(target->counts, 0, sizeof(target->counts));
    if (is_good) {
        add_place(target, PLACE_SUPERBLOCK, SUPERBLOCK_OFFSET_BYTES / sb->block_bytes);
        scan_groups(target, image, owners);
    }
    for (uint32_t i = sb->first_data_block + 2; is_good && i < bytes / sb->block_bytes; i++) {
        const uint8_t *block = block_at(target, image, i);

        if (le16_at(block) == 0xf30a)
            find_owner(sb, add_place(target, PLACE_EXTENTS, i), PLACE_EXTENTS, block, owners);
        else if (le32_at(block) == 0xea020000)
            add_place(target, PLACE_XATTR, i);
        else if (le32_at(block) == 0x98393bc0)
            add_place(target, PLACE_JOURNAL, i);
        else if (looks_like_directory(sb, block))
            find_owner(sb, add_place(target, PLACE_DIRECTORY, i), PLACE_DIRECTORY, block, owners);
        else if (looks_like_numbers(sb, block))
            add_place(target, PLACE_NUMBERS, i);
    }
    free(owners);
    return is_good;
}

static void repair_inodes(const struct target *target, uint8_t *block, const struct place *place)
{
    const struct superblock *sb = &target->sb;

    for (uint32_t k = 0; k < sb->inodes_per_block; k++) {
        uint8_t *inode = block + k * sb->inode_bytes;
        bool has_high = sb->inode_bytes > 128 && le16_at(inode + INODE_EXTRA_BYTES) >= 4;

        put(inode + INODE_CHECKSUM_LOW, 0, 2);
        if (has_high)
            put(inode + INODE_CHECKSUM_HIGH, 0, 2);
        uint32_t seed = inode_checksum_seed(sb, place->first_ino + k,
                                            le32_at(inode + INODE_GENERATION));
        uint32_t crc = crc32c(seed, inode, sb->inode_bytes);
        put(inode + INODE_CHECKSUM_LOW, crc, 2);
        if (has_high)
            put(inode + INODE_CHECKSUM_HIGH, crc >> 16, 2);
    }
}

static void repair_descriptors(const struct target *target, uint8_t *block,
                               const struct place *place)
{
    const struct superblock *sb = &target->sb;
    uint32_t first = (place->block - sb->first_data_block - 1) * sb->descriptors_per_block;

    for (uint32_t k = 0; k < sb->descriptors_per_block; k++) {
        uint8_t *descriptor = block + (size_t)k * sb->descriptor_bytes;
        le32 number = le32_make(first + k);

        put(descriptor + GROUP_CHECKSUM, 0, 2);
        uint32_t crc = crc32c(sb->checksum_seed, &number, sizeof(number));
        put(descriptor + GROUP_CHECKSUM, crc32c(crc, descriptor, sb->descriptor_bytes), 2);
    }
}

static void repair_xattr(const struct target *target, uint8_t *block, const struct place *place)
{
    le64 number = le64_make(place->block);

    put(block + XATTR_CHECKSUM, 0, 4);
    uint32_t crc = crc32c(target->sb.checksum_seed, &number, sizeof(number));
    put(block + XATTR_CHECKSUM, crc32c(crc, block, target->sb.block_bytes), 4);
}

static void repair_journal(uint8_t *block)
{
    uint32_t crc = journal_superblock_checksum(block);

    if (block[7] == JOURNAL_BLOCK_SUPERBLOCK_V2)
        put(block + JOURNAL_CHECKSUM, __builtin_bswap32(crc), 4);
}

void target_repair(const struct target *target, uint8_t *image, enum place_kind kind,
                   const struct place *place)
{
    const struct superblock *sb = &target->sb;
    uint8_t *block = block_at(target, image, place->block);

    if (kind == PLACE_JOURNAL)
        repair_journal(block);
    if (!sb->has_metadata_csum)
        return;
    if (kind == PLACE_SUPERBLOCK) {
        uint8_t *raw = image + SUPERBLOCK_OFFSET_BYTES;
        put(raw + SUPERBLOCK_CHECKSUM, crc32c(UINT32_MAX, raw, SUPERBLOCK_CHECKSUM), 4);
    } else if (kind == PLACE_DESCRIPTORS) {
        repair_descriptors(target, block, place);
    } else if (kind == PLACE_INODES) {
        repair_inodes(target, block, place);
    } else if (kind == PLACE_XATTR) {
        repair_xattr(target, block, place);
    } else if (kind == PLACE_EXTENTS && place->has_owner) {
        size_t covered = EXTENT_HEADER_BYTES +
                         (size_t)extent_node_header(block).entry_max * EXTENT_ENTRY_BYTES;
        if (covered <= sb->block_bytes - 4)
            put(block + covered, crc32c(place->owner_seed, block, covered), 4);
    } else if (kind == PLACE_DIRECTORY && place->has_owner) {
        size_t covered = sb->block_bytes - DIRENT_TAIL_BYTES;
        put(block + covered + 8, crc32c(place->owner_seed, block, covered), 4);
    }
}
