/* SPDX-License-Identifier: MIT */
/* Random numbers that a seed repeats, and superblocks of many kinds, for the tests of format/. */
#ifndef UEXT4_TESTS_FORMAT_RANDOM_H
#define UEXT4_TESTS_FORMAT_RANDOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "format/superblock.h"

static uint64_t random_state;

static inline uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 16) % below);
}

static inline uint64_t draw64(void)
{
    return (uint64_t)draw(UINT32_MAX) << 32 | draw(UINT32_MAX);
}

static inline void draw_bytes(void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)draw(256);
}

static inline void start_random(void)
{
    const char *text = getenv("UEXT4_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    printf("# UEXT4_TEST_SEED=%llu\n", (unsigned long long)seed);
}

static inline struct superblock draw_superblock(void)
{
    static const uint32_t block_sizes[] = {1024, 2048, 4096, 65536};
    uint32_t block_bytes = block_sizes[draw(12) == 0 ? 3 : draw(3)];
    uint32_t inode_bytes = 128u << draw(4);
    return (struct superblock){
        .block_count = (uint64_t)1 << 40,
        .inode_count = 5000,
        .first_data_block = block_bytes == 1024,
        .block_bytes = block_bytes,
        .block_bits = (uint32_t)__builtin_ctz(block_bytes),
        .cluster_bytes = block_bytes,
        .cluster_blocks = 1,
        .blocks_per_group = 8192,
        .clusters_per_group = 8192,
        .inodes_per_group = 256,
        .inodes_per_block = block_bytes / inode_bytes,
        .inode_table_blocks = 256 * inode_bytes / block_bytes,
        .inode_bytes = inode_bytes,
        .want_extra_isize = inode_bytes > 128 ? 32 : 0,
        .first_ino = 11,
        .group_count = 13,
        .descriptor_bytes = 64,
        .descriptors_per_block = block_bytes / 64,
        .incompat = FEATURE_INCOMPAT_FILETYPE | FEATURE_INCOMPAT_64BIT | FEATURE_INCOMPAT_EA_INODE |
                    (draw(2) ? FEATURE_INCOMPAT_LARGEDIR : 0),
        .ro_compat = FEATURE_RO_COMPAT_HUGE_FILE | FEATURE_RO_COMPAT_PROJECT,
        .has_metadata_csum = draw(2),
        .checksum_seed = draw(UINT32_MAX),
    };
}

#endif
