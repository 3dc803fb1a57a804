/* SPDX-License-Identifier: MIT */
/* Reads journal blocks, in requests larger than a block. One thread. */
#ifndef UEXT4_JOURNAL_READER_H
#define UEXT4_JOURNAL_READER_H

#include "journal/recovery.h"

struct journal_reader {
    const struct journal_location *location;
    uint8_t *buffer;
    uint32_t capacity_blocks;
    uint32_t first_block, block_count; /* what the buffer holds */
};

int journal_reader_init(struct journal_reader *reader,
                        const struct journal_location *location) MUST_CHECK;

/* The content of a journal block, valid until the next call. */
int journal_reader_get(struct journal_reader *reader, uint32_t journal_block,
                       const uint8_t **data) MUST_CHECK;

void journal_reader_destroy(struct journal_reader *reader);

#endif
