/* SPDX-License-Identifier: MIT */
/*
 * Block and inode bitmaps: their checksums, and bits in them. Bit 0 is the lowest of byte 0. A
 * bitmap's memory is a multiple of 8 bytes long, as blocks are; ranges are [from, to).
 * Source: Documentation/filesystems/ext4/bitmaps.rst.
 */
#ifndef UEXT4_FORMAT_BITMAP_H
#define UEXT4_FORMAT_BITMAP_H

#include "format/group.h"

bool bitmap_block_checksum_matches(const struct superblock *sb,
                                   const struct group_descriptor *group, const void *bitmap);
bool bitmap_inode_checksum_matches(const struct superblock *sb,
                                   const struct group_descriptor *group, const void *bitmap);

/* They put the checksum into the descriptor in memory; no effect where the format has none. */
void bitmap_block_set_checksum(const struct superblock *sb, struct group_descriptor *group,
                               const void *bitmap);
void bitmap_inode_set_checksum(const struct superblock *sb, struct group_descriptor *group,
                               const void *bitmap);

bool bitmap_test(const void *bitmap, uint32_t bit);
void bitmap_set(void *bitmap, uint32_t from, uint32_t to);
void bitmap_clear(void *bitmap, uint32_t from, uint32_t to);

/* The first bit of that value in the range, or `to` if there is none. */
uint32_t bitmap_find_zero(const void *bitmap, uint32_t from, uint32_t to);
uint32_t bitmap_find_set(const void *bitmap, uint32_t from, uint32_t to);

/* The last bit of that value in the range plus one, or `from` if there is none. */
uint32_t bitmap_find_last_set(const void *bitmap, uint32_t from, uint32_t to);

uint32_t bitmap_count_set(const void *bitmap, uint32_t from, uint32_t to);
bool bitmap_is_all_zero(const void *bitmap, uint32_t from, uint32_t to);
bool bitmap_is_all_set(const void *bitmap, uint32_t from, uint32_t to);

struct bitmap_run {
    uint32_t from, to;
};

/* The first run of zeros that begins in the range, cut off at its end. False if there is none. */
bool bitmap_next_zero_run(const void *bitmap, uint32_t from, uint32_t to, struct bitmap_run *run);

/*
 * The first run of at least `wanted` zeros in the range, whole up to the range's ends; without one,
 * the longest there is. False if there is no zero at all.
 */
bool bitmap_find_zero_run(const void *bitmap, uint32_t from, uint32_t to, uint32_t wanted,
                          struct bitmap_run *run);

#endif
