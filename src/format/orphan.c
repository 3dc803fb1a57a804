/* SPDX-License-Identifier: MIT */
/*
 * Blocks of the orphan file. Pure functions without locks, called by the inode layer.
 */
#include "format/orphan.h"

#include <assert.h>
#include <string.h>

#include "base/byteorder.h"
#include "format/crc.h"

#define ORPHAN_MAGIC 0x0b10ca04

struct disk_orphan_tail {
    le32 magic;
    le32 checksum;
};
_Static_assert(sizeof(struct disk_orphan_tail) == 8, "orphan block tail");

unsigned int orphan_block_slots(const struct superblock *sb)
{
    return (unsigned int)((sb->block_bytes - sizeof(struct disk_orphan_tail)) / sizeof(le32));
}

static size_t slots_bytes(const struct superblock *sb)
{
    return orphan_block_slots(sb) * sizeof(le32);
}

void orphan_block_init(const struct superblock *sb, void *block)
{
    struct disk_orphan_tail tail = {.magic = le32_make(ORPHAN_MAGIC)};

    memset(block, 0, sb->block_bytes);
    memcpy((uint8_t *)block + slots_bytes(sb), &tail, sizeof(tail));
}

const char *orphan_block_check(const struct superblock *sb, const void *block)
{
    if (le32_at((const uint8_t *)block + slots_bytes(sb)) != ORPHAN_MAGIC)
        return "orphan block without its magic number";
    for (unsigned int i = 0; i < orphan_block_slots(sb); i++) {
        uint32_t ino = orphan_block_get(block, i);
        if (ino != 0 && (ino < sb->first_ino || ino > sb->inode_count))
            return "orphan's inode number out of range";
    }
    return NULL;
}

static uint32_t compute_checksum(const struct superblock *sb, uint32_t inode_seed,
                                 uint64_t disk_block, const void *block)
{
    le64 number = le64_make(disk_block);
    uint32_t crc = crc32c(inode_seed, &number, sizeof(number));
    return crc32c(crc, block, slots_bytes(sb));
}

bool orphan_block_checksum_matches(const struct superblock *sb, uint32_t inode_seed,
                                   uint64_t disk_block, const void *block)
{
    const struct disk_orphan_tail *tail = (const void *)((const uint8_t *)block + slots_bytes(sb));
    return !sb->has_metadata_csum ||
           compute_checksum(sb, inode_seed, disk_block, block) == le32_get(tail->checksum);
}

void orphan_block_set_checksum(const struct superblock *sb, uint32_t inode_seed,
                               uint64_t disk_block, void *block)
{
    struct disk_orphan_tail *tail = (void *)((uint8_t *)block + slots_bytes(sb));
    if (sb->has_metadata_csum)
        tail->checksum = le32_make(compute_checksum(sb, inode_seed, disk_block, block));
}

uint32_t orphan_block_get(const void *block, unsigned int slot)
{
    return le32_at((const uint8_t *)block + slot * sizeof(le32));
}

void orphan_block_set(void *block, unsigned int slot, uint32_t ino)
{
    le32 disk = le32_make(ino);
    memcpy((uint8_t *)block + slot * sizeof(disk), &disk, sizeof(disk));
}

unsigned int orphan_block_find_free(const struct superblock *sb, const void *block,
                                    unsigned int from)
{
    while (from < orphan_block_slots(sb) && orphan_block_get(block, from) != 0)
        from++;
    return from;
}

unsigned int orphan_block_find_used(const struct superblock *sb, const void *block,
                                    unsigned int from)
{
    while (from < orphan_block_slots(sb) && orphan_block_get(block, from) == 0)
        from++;
    return from;
}
