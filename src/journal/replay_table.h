/* SPDX-License-Identifier: MIT */
/*
 * What the log holds: a tag for each block in it, and the places of the revoke blocks. Both grow by
 * whole transactions: what was added since the last commit can be dropped.
 */
#ifndef UEXT4_JOURNAL_REPLAY_TABLE_H
#define UEXT4_JOURNAL_REPLAY_TABLE_H

#include "journal/recovery.h"

/* Positions count blocks from the log's start and transactions from its first, so neither wraps. */
struct replay_tag {
    uint64_t disk_block;
    uint32_t position;
    uint32_t transaction;
    uint32_t
        revoked_before; /* in a block's first tag, once sorted: revoked in transactions below */
    bool is_escaped;
    bool is_bad; /* its checksum did not match */
};

struct replay_revoke {
    uint32_t position;
    uint32_t transaction;
};

struct replay_table {
    struct replay_tag *tags;
    struct replay_revoke *revokes;
    size_t tag_count, tag_capacity, committed_tags;
    size_t revoke_count, revoke_capacity, committed_revokes;
};

int replay_table_add_tag(struct replay_table *table, const struct replay_tag *tag) MUST_CHECK;
int replay_table_add_revoke(struct replay_table *table,
                            const struct replay_revoke *revoke) MUST_CHECK;

void replay_table_commit(struct replay_table *table);

/* Drops what is not committed and sorts the tags; nothing may be added after it. */
void replay_table_sort(struct replay_table *table);

/* The block was revoked in a transaction. The table is sorted. */
void replay_table_revoke(struct replay_table *table, uint64_t disk_block, uint32_t transaction);

void replay_table_destroy(struct replay_table *table);

#endif
