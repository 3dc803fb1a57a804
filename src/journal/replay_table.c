/* SPDX-License-Identifier: MIT */
/*
 * The tags and revoke blocks found in a log, 24 and 8 bytes each.
 *
 * Revoke records themselves are not kept: a block of them costs 8 bytes here whatever it holds, and
 * is read again once the tags are sorted. So memory is bounded by the log's blocks, and a record is
 * one binary search whatever it names.
 * Invariant: a tag or a revoke block takes up a block of the log of its own, so there are never
 * more of them than blocks in the log; the scan sees to that.
 * Locks: none; a table belongs to one call.
 * Callers: scan.c fills it, recovery.c makes the replay from it.
 */
#include "journal/replay_table.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_CAPACITY 256

/* Makes room for one more element. */
static int reserve(void **elements, size_t count, size_t *capacity, size_t element_bytes)
{
    size_t wanted = *capacity == 0 ? FIRST_CAPACITY : *capacity * 2;
    void *grown;

    if (count < *capacity)
        return 0;
    grown = reallocarray(*elements, wanted, element_bytes);
    if (grown == NULL)
        return -ENOMEM;
    *elements = grown;
    *capacity = wanted;
    return 0;
}

int replay_table_add_tag(struct replay_table *table, const struct replay_tag *tag)
{
    void *tags = table->tags;
    int error = reserve(&tags, table->tag_count, &table->tag_capacity, sizeof(*tag));

    table->tags = tags;
    if (error == 0)
        table->tags[table->tag_count++] = *tag;
    return error;
}

int replay_table_add_revoke(struct replay_table *table, const struct replay_revoke *revoke)
{
    void *revokes = table->revokes;
    int error = reserve(&revokes, table->revoke_count, &table->revoke_capacity, sizeof(*revoke));

    table->revokes = revokes;
    if (error == 0)
        table->revokes[table->revoke_count++] = *revoke;
    return error;
}

void replay_table_commit(struct replay_table *table)
{
    table->committed_tags = table->tag_count;
    table->committed_revokes = table->revoke_count;
}

static int compare_tags(const void *a, const void *b)
{
    const struct replay_tag *left = a;
    const struct replay_tag *right = b;

    if (left->disk_block != right->disk_block)
        return left->disk_block < right->disk_block ? -1 : 1;
    return (left->position > right->position) - (left->position < right->position);
}

void replay_table_sort(struct replay_table *table)
{
    table->tag_count = table->committed_tags;
    table->revoke_count = table->committed_revokes;
    if (table->tag_count > 1)
        qsort(table->tags, table->tag_count, sizeof(*table->tags), compare_tags);
}

void replay_table_revoke(struct replay_table *table, uint64_t disk_block, uint32_t transaction)
{
    size_t low = 0;
    size_t high = table->tag_count;
    struct replay_tag *first;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (table->tags[middle].disk_block < disk_block)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == table->tag_count || table->tags[low].disk_block != disk_block)
        return;
    first = &table->tags[low];
    first->revoked_before = MAX(first->revoked_before, transaction + 1);
}

void replay_table_destroy(struct replay_table *table)
{
    free(table->tags);
    free(table->revokes);
}
