/* SPDX-License-Identifier: MIT */
/* What of an image is worth damaging, and how its checksums are put right again. */
#ifndef UEXT4_TESTS_HOSTILE_TARGET_H
#define UEXT4_TESTS_HOSTILE_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/superblock.h"

enum place_kind {
    PLACE_SUPERBLOCK,
    PLACE_DESCRIPTORS,
    PLACE_INODES,
    PLACE_EXTENTS,
    PLACE_DIRECTORY,
    PLACE_XATTR,
    PLACE_JOURNAL,
    PLACE_NUMBERS, /* indirect blocks, or what looks like them */
    PLACE_KINDS,
};

struct place {
    uint32_t block;
    uint32_t first_ino;  /* PLACE_INODES: of the block's first inode */
    uint32_t owner_seed; /* of the checksum of extents and directories */
    bool has_owner;
};

#define PLACES_MAX 1024

struct target {
    struct superblock sb;
    size_t bytes;
    struct place places[PLACE_KINDS][PLACES_MAX];
    unsigned int counts[PLACE_KINDS];
};

/* Finds the metadata of a good image. False if it is none. */
bool target_scan(struct target *target, const uint8_t *image, size_t bytes);

/* Renews the checksums of what lies in a place, as the format has them. */
void target_repair(const struct target *target, uint8_t *image, enum place_kind kind,
                   const struct place *place);

#endif
