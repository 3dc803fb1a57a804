/* SPDX-License-Identifier: MIT */
/* What the fuzz targets share. */
#ifndef UEXT4_TESTS_FUZZ_FUZZ_H
#define UEXT4_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "format/superblock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Takes `count` bytes off the front of the input; zeros where it is too short. */
static inline void fuzz_take(const uint8_t **data, size_t *size, void *result, size_t count)
{
    size_t given = *size < count ? *size : count;

    __builtin_memset(result, 0, count);
    __builtin_memcpy(result, *data, given);
    *data += given;
    *size -= given;
}

/*
 * A file system that accepts a block of any kind: `choices` picks its block size, the sizes of its
 * inodes and descriptors, and the features that change how metadata is laid out.
 */
void fuzz_make_superblock(uint32_t choices, struct superblock *sb);

/* Reads every byte, so that the sanitizer checks each. Returns their sum. */
uint8_t fuzz_touch(const void *bytes, size_t count);

/* Ends the run if a condition does not hold. */
#define FUZZ_REQUIRE(condition) \
    do {                        \
        if (!(condition))       \
            __builtin_trap();   \
    } while (0)

#endif
