/* SPDX-License-Identifier: MIT */
/*
 * Bitmaps. Checksums cover only the bytes that a full group uses, and descriptors of 32 bytes keep
 * only the lower half. Searches look at 64 bits at a time. Pure functions without locks, for the
 * space layer and for checking.
 */
#include "format/bitmap.h"

#include <string.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/crc.h"

/* Descriptors shorter than this have no upper halves of the bitmaps' checksums. */
#define DESCRIPTOR_BYTES_WITH_HIGH_HALVES 64

#define WORD_BITS 64

static bool is_match(const struct superblock *sb, const void *bitmap, size_t length,
                     uint32_t expected)
{
    if (!sb->has_metadata_csum)
        return true;
    uint32_t crc = crc32c(sb->checksum_seed, bitmap, length);
    if (sb->descriptor_bytes < DESCRIPTOR_BYTES_WITH_HIGH_HALVES)
        return (crc & 0xffff) == (expected & 0xffff);
    return crc == expected;
}

bool bitmap_block_checksum_matches(const struct superblock *sb,
                                   const struct group_descriptor *group, const void *bitmap)
{
    return is_match(sb, bitmap, sb->clusters_per_group / 8, group->block_bitmap_checksum);
}

bool bitmap_inode_checksum_matches(const struct superblock *sb,
                                   const struct group_descriptor *group, const void *bitmap)
{
    return is_match(sb, bitmap, sb->inodes_per_group / 8, group->inode_bitmap_checksum);
}

static void set_checksum(const struct superblock *sb, const void *bitmap, size_t length,
                         uint32_t *checksum)
{
    if (!sb->has_metadata_csum)
        return;
    *checksum = crc32c(sb->checksum_seed, bitmap, length);
    if (sb->descriptor_bytes < DESCRIPTOR_BYTES_WITH_HIGH_HALVES)
        *checksum &= 0xffff;
}

void bitmap_block_set_checksum(const struct superblock *sb, struct group_descriptor *group,
                               const void *bitmap)
{
    set_checksum(sb, bitmap, sb->clusters_per_group / 8, &group->block_bitmap_checksum);
}

void bitmap_inode_set_checksum(const struct superblock *sb, struct group_descriptor *group,
                               const void *bitmap)
{
    set_checksum(sb, bitmap, sb->inodes_per_group / 8, &group->inode_bitmap_checksum);
}

/* ---- Bits ----------------------------------------------------------------------------------- */

/* Bit n of the bitmap is bit n % 64 of word n / 64. */
static uint64_t word_at(const void *bitmap, uint32_t index)
{
    le64 word;
    memcpy(&word, (const uint8_t *)bitmap + (size_t)index * sizeof(word), sizeof(word));
    return le64_get(word);
}

/* The bits of word `index` that lie in [from, to). */
static uint64_t mask_of(uint32_t index, uint32_t from, uint32_t to)
{
    uint64_t mask = UINT64_MAX;
    if (index == from / WORD_BITS)
        mask &= UINT64_MAX << from % WORD_BITS;
    if (index == to / WORD_BITS)
        mask &= ~(UINT64_MAX << to % WORD_BITS);
    return mask;
}

/* Words that a range touches. */
static uint32_t end_word(uint32_t to)
{
    return to / WORD_BITS + (to % WORD_BITS != 0 ? 1 : 0);
}

bool bitmap_test(const void *bitmap, uint32_t bit)
{
    return (((const uint8_t *)bitmap)[bit / 8] >> bit % 8 & 1) != 0;
}

static void change(void *bitmap, uint32_t from, uint32_t to, bool value)
{
    if (from >= to)
        return;
    for (uint32_t i = from / WORD_BITS; i < end_word(to); i++) {
        uint64_t mask = mask_of(i, from, to), word = word_at(bitmap, i);
        le64 changed = le64_make(value ? word | mask : word & ~mask);
        memcpy((uint8_t *)bitmap + (size_t)i * sizeof(changed), &changed, sizeof(changed));
    }
}

void bitmap_set(void *bitmap, uint32_t from, uint32_t to)
{
    change(bitmap, from, to, true);
}

void bitmap_clear(void *bitmap, uint32_t from, uint32_t to)
{
    change(bitmap, from, to, false);
}

/* `flip` makes the bits that are looked for 1. */
static uint32_t find(const void *bitmap, uint32_t from, uint32_t to, uint64_t flip)
{
    if (from >= to)
        return to;
    uint32_t index = from / WORD_BITS, end = end_word(to);
    uint64_t word = (word_at(bitmap, index) ^ flip) & UINT64_MAX << from % WORD_BITS;
    while (word == 0) {
        if (++index >= end)
            return to;
        word = word_at(bitmap, index) ^ flip;
    }
    uint32_t bit = index * WORD_BITS + (uint32_t)__builtin_ctzll(word);
    return MIN(bit, to);
}

uint32_t bitmap_find_zero(const void *bitmap, uint32_t from, uint32_t to)
{
    return find(bitmap, from, to, UINT64_MAX);
}

uint32_t bitmap_find_set(const void *bitmap, uint32_t from, uint32_t to)
{
    return find(bitmap, from, to, 0);
}

uint32_t bitmap_find_last_set(const void *bitmap, uint32_t from, uint32_t to)
{
    if (from >= to)
        return from;
    for (uint32_t i = end_word(to); i-- > from / WORD_BITS;) {
        uint64_t word = word_at(bitmap, i) & mask_of(i, from, to);
        if (word != 0)
            return i * WORD_BITS + WORD_BITS - (uint32_t)__builtin_clzll(word);
    }
    return from;
}

uint32_t bitmap_count_set(const void *bitmap, uint32_t from, uint32_t to)
{
    uint32_t count = 0;
    if (from >= to)
        return 0;
    for (uint32_t i = from / WORD_BITS; i < end_word(to); i++)
        count += (uint32_t)__builtin_popcountll(word_at(bitmap, i) & mask_of(i, from, to));
    return count;
}

bool bitmap_is_all_zero(const void *bitmap, uint32_t from, uint32_t to)
{
    return bitmap_find_set(bitmap, from, to) == to;
}

bool bitmap_is_all_set(const void *bitmap, uint32_t from, uint32_t to)
{
    return bitmap_find_zero(bitmap, from, to) == to;
}

bool bitmap_next_zero_run(const void *bitmap, uint32_t from, uint32_t to, struct bitmap_run *run)
{
    run->from = bitmap_find_zero(bitmap, from, to);
    if (run->from >= to)
        return false;
    run->to = bitmap_find_set(bitmap, run->from, to);
    return true;
}

bool bitmap_find_zero_run(const void *bitmap, uint32_t from, uint32_t to, uint32_t wanted,
                          struct bitmap_run *run)
{
    struct bitmap_run next = {.to = from};

    *run = (struct bitmap_run){.from = to, .to = to};
    while (bitmap_next_zero_run(bitmap, next.to, to, &next)) {
        if (next.to - next.from > run->to - run->from)
            *run = next;
        if (next.to - next.from >= wanted)
            break;
    }
    return run->from < run->to;
}
