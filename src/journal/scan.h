/* SPDX-License-Identifier: MIT */
/* Walking the log from its start to its end. */
#ifndef UEXT4_JOURNAL_SCAN_H
#define UEXT4_JOURNAL_SCAN_H

#include "format/journal.h"
#include "journal/reader.h"
#include "journal/replay_table.h"

struct log_end {
    uint32_t transactions; /* whole ones */
    bool is_damaged;       /* the log ends at a commit whose checksum is wrong */
};

/* Fills the table with all whole transactions. -EBADMSG, -EIO, -ENOMEM. */
int journal_scan_log(struct journal_reader *reader, const struct journal_superblock *sb,
                     const struct journal_layout *layout, struct replay_table *table,
                     struct log_end *end) MUST_CHECK;

/* The journal block at a position counted from the log's start. */
uint32_t journal_log_block(const struct journal_superblock *sb, uint32_t position);

/* The blocks of the fast-commit area that hold whole fast commits for a sequence. */
int journal_count_fast_commits(struct journal_reader *reader, const struct journal_superblock *sb,
                               uint32_t sequence, uint32_t *count) MUST_CHECK;

#endif
