/* SPDX-License-Identifier: MIT */
/*
 * Images made by mke2fs for the tests of the allocator, opened with everything below it: device,
 * buffers, and a journal without a log, whose commits write home.
 */
#ifndef TESTS_UNIT_SPACE_SUPPORT_H
#define TESTS_UNIT_SPACE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/bitmap.h"
#include "space/allocate.h"

struct shape {
    const char *name;
    const char *size;
    const char *options; /* of mke2fs, separated by single spaces */
};

extern const struct shape shapes[];
extern const size_t shape_count;

/* The shape of that name. */
const struct shape *shape_find(const char *name);

struct image {
    char path[128];
    struct volume volume;
    struct journal *journal;
    struct space *space;
    uint8_t *initial; /* a bit a block of the file system: in use when the image was made */
    uint64_t initial_free_clusters;
    uint32_t initial_free_inodes;
};

/* Runs a program, with its output collected in `text` (may be NULL). Returns its exit code. */
int run_program(const char *const arguments[], char *text, size_t size);

/* Makes an image file. */
struct image *image_create(const struct shape *shape);

/* Opens and closes everything on it; `options` NULL: none. Closing writes the superblock. */
void image_open(struct image *image, const struct space_options *options);
void image_close(struct image *image);

/* Ends with whatever is on the disk; runs e2fsck -fn first, which must be content. */
void image_check(struct image *image);
void image_destroy(struct image *image);

/* Reads the bitmaps from the disk into `initial`, without the allocator; not while it is open. */
void image_note_initial(struct image *image);
bool image_was_free(const struct image *image, uint64_t block);

/* True if the disk, not the cache, has the block's bit set. */
bool image_disk_bit(struct image *image, uint64_t block);

/* One call in a transaction of its own. */
void image_claim(struct image *image, struct space_run run);
int image_free(struct image *image, struct space_run run);
void image_commit(struct image *image);

/* The messages since the last call. */
const char *image_messages(void);
void image_clear_messages(void);

uint64_t test_seed(void);
uint64_t test_random(uint64_t *state, uint64_t bound);

#endif
