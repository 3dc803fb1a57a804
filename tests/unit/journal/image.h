/* SPDX-License-Identifier: MIT */
/*
 * A file system's blocks with a journal among them, in memory, and a writer of journals that shares
 * no code with the reader but the checksums. Beside the image stands a model: what each block must
 * hold once the journal is replayed.
 */
#ifndef UEXT4_TEST_JOURNAL_IMAGE_H
#define UEXT4_TEST_JOURNAL_IMAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "journal/recovery.h"

#define IMAGE_BLOCKS       256u
#define IMAGE_MAX_JOURNAL  96u
#define IMAGE_FIRST_LOG    1u
#define IMAGE_FIRST_SECOND 1000000u /* time of the first commit */

/* How a journal is written. */
struct form {
    unsigned int checksum_version; /* 0 .. 3 */
    bool is_64bit;
    bool is_async;
    bool has_uuid_everywhere; /* no tag uses SAME_UUID */
    uint32_t block_bytes;
};

struct image {
    struct device device;
    struct log log;
    uint8_t *bytes;
    long writes_left;       /* -1: no limit; at 0 writes fail */
    uint64_t failing_block; /* reads that touch it fail; 0: none */
    uint64_t reads;
    unsigned int errors_logged;
    char last_error[512];

    struct form form;
    struct journal_extent extents[4];
    struct journal_location location;
    uint32_t journal_blocks;

    /* The writer. */
    uint32_t sequence;
    uint32_t log_block; /* the next to write */
    uint64_t seconds;
    uint32_t data_crc;

    uint8_t *model;
};

struct image_block {
    uint64_t disk_block;
    uint8_t fill;
    bool has_magic; /* the content begins with the journal's magic number */
    bool is_broken; /* its content in the log does not match its checksum */
};

/* A journal of `journal_blocks` in several extents, with its log starting at `start`. */
struct image *image_create(const struct form *form, uint32_t journal_blocks, uint32_t sequence,
                           uint32_t start);
void image_destroy(struct image *image);

/* The bytes of a journal block. */
uint8_t *image_journal(struct image *image, uint32_t journal_block);

/* Writes the superblock's checksum anew, if the form has one. */
void image_seal_superblock(struct image *image);

/* Writes the tail of a descriptor or revoke block anew. */
void image_seal_tail(struct image *image, uint32_t journal_block);
void image_seal_commit(struct image *image, uint32_t journal_block);

/* Each returns the journal block of what it wrote. */
uint32_t image_write_descriptor(struct image *image, const struct image_block *blocks,
                                size_t count);
uint32_t image_write_revoke(struct image *image, const uint64_t *blocks, size_t count);
uint32_t image_write_commit(struct image *image);

/* A whole transaction; the model is the caller's. */
void image_write_transaction(struct image *image, const struct image_block *blocks, size_t count);

void image_model_set(struct image *image, const struct image_block *block);

/* Fails the test unless every block outside the journal is as in the model. */
void image_assert_model(const struct image *image);

int image_open(struct image *image, struct journal_superblock *sb);

/* Scans, which must succeed. */
struct journal_replay *image_scan(struct image *image, struct journal_superblock *sb);

/* Scans, applies, compares with the model, and finds the log empty afterwards. */
void image_recover(struct image *image);

/* All forms, in both block sizes. */
size_t image_form_count(void);
struct form image_form(size_t index);

void put_be16(uint8_t *place, uint16_t value);
void put_be32(uint8_t *place, uint32_t value);
void put_be64(uint8_t *place, uint64_t value);
uint32_t get_be32(const uint8_t *place);

#endif
