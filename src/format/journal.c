/* SPDX-License-Identifier: MIT */
/*
 * Reads and checks the single blocks of a journal, for recovery; knows nothing of their order.
 *
 * Invariant: nothing is read outside the block, whatever it holds.
 * Locks: none; every function works on its arguments alone.
 * Callers: src/journal.
 */
#include "format/journal.h"

#include <errno.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/crc.h"

struct raw_header {
    be32 magic;
    be32 type;
    be32 sequence;
};

struct raw_superblock {
    struct raw_header header;
    be32 block_bytes;
    be32 block_count;
    be32 first_block;
    be32 sequence;
    be32 start_block;
    be32 error;
    be32 compat;
    be32 incompat;
    be32 ro_compat;
    uint8_t uuid[16];
    be32 user_count;
    be32 dynamic_superblock;
    be32 max_transaction;
    be32 max_transaction_data;
    uint8_t checksum_type;
    uint8_t unused_1[3];
    be32 fast_commit_blocks;
    be32 head;
    uint8_t unused_2[160];
    be32 checksum;
    uint8_t users[768];
};

struct raw_tag { /* without csum v3 */
    be32 block_low;
    be16 checksum;
    be16 flags;
    be32 block_high; /* with 64bit */
};

struct raw_tag_v3 {
    be32 block_low;
    be32 flags;
    be32 block_high;
    be32 checksum;
};

struct raw_revoke {
    struct raw_header header;
    be32 used_bytes; /* this header and the records */
};

struct raw_commit {
    struct raw_header header;
    uint8_t checksum_type;
    uint8_t checksum_size;
    uint8_t unused[2];
    be32 checksum[8];
    be64 seconds;
    be32 nanoseconds;
};

struct raw_fast_head {
    le32 features;
    le32 sequence;
};

struct raw_fast_tail {
    le32 sequence;
    le32 checksum;
};

_Static_assert(sizeof(struct raw_header) == JOURNAL_HEADER_BYTES, "journal header");
_Static_assert(sizeof(struct raw_superblock) == JOURNAL_SUPERBLOCK_BYTES, "journal superblock");
_Static_assert(offsetof(struct raw_superblock, checksum) == 0xfc, "journal superblock checksum");
_Static_assert(sizeof(struct raw_tag) == 12, "journal tag");
_Static_assert(sizeof(struct raw_tag_v3) == 16, "journal tag of csum v3");
_Static_assert(sizeof(struct raw_revoke) == 16, "journal revoke header");
_Static_assert(sizeof(struct raw_commit) == 60, "journal commit");

/* A tag of csum v2 has two bytes behind its fields that nobody uses. */
#define TAG_V2_PADDING 2
#define TAG_HIGH_BYTES 4
#define TAG_UUID_BYTES 16
#define CHECKSUM_BYTES 4

/* The checksum of a block with its own 4 bytes of checksum taken as zeros. */
static uint32_t checksum_with_hole(uint32_t seed, const void *block, size_t length, size_t hole)
{
    static const uint8_t zeros[CHECKSUM_BYTES];
    const uint8_t *bytes = block;
    uint32_t crc = crc32c(seed, bytes, hole);

    crc = crc32c(crc, zeros, sizeof(zeros));
    return crc32c(crc, bytes + hole + CHECKSUM_BYTES, length - hole - CHECKSUM_BYTES);
}

bool journal_header_parse(const void *block, struct journal_header *result)
{
    struct raw_header raw;

    memcpy(&raw, block, sizeof(raw));
    if (be32_get(raw.magic) != JOURNAL_MAGIC)
        return false;
    result->type = be32_get(raw.type);
    result->sequence = be32_get(raw.sequence);
    return true;
}

bool journal_superblock_parse(const void *raw_bytes, struct journal_superblock_fields *result)
{
    struct journal_header header;
    struct raw_superblock raw;

    if (!journal_header_parse(raw_bytes, &header) ||
        (header.type != JOURNAL_BLOCK_SUPERBLOCK_V1 && header.type != JOURNAL_BLOCK_SUPERBLOCK_V2))
        return false;
    memcpy(&raw, raw_bytes, sizeof(raw));
    memset(result, 0, sizeof(*result));
    result->type = header.type;
    result->block_bytes = be32_get(raw.block_bytes);
    result->block_count = be32_get(raw.block_count);
    result->first_block = be32_get(raw.first_block);
    result->sequence = be32_get(raw.sequence);
    result->start_block = be32_get(raw.start_block);
    result->error = (int32_t)be32_get(raw.error);
    if (header.type == JOURNAL_BLOCK_SUPERBLOCK_V1)
        return true;
    result->compat = be32_get(raw.compat);
    result->incompat = be32_get(raw.incompat);
    result->ro_compat = be32_get(raw.ro_compat);
    memcpy(result->uuid, raw.uuid, sizeof(result->uuid));
    result->checksum_type = raw.checksum_type;
    result->fast_commit_blocks = be32_get(raw.fast_commit_blocks);
    result->checksum = be32_get(raw.checksum);
    return true;
}

uint32_t journal_superblock_checksum(const void *raw)
{
    return checksum_with_hole(~0u, raw, JOURNAL_SUPERBLOCK_BYTES,
                              offsetof(struct raw_superblock, checksum));
}

void journal_superblock_mark_empty(void *raw_bytes, uint32_t sequence, int32_t error,
                                   bool has_checksum)
{
    struct raw_superblock raw;

    memcpy(&raw, raw_bytes, sizeof(raw));
    raw.sequence = be32_make(sequence);
    raw.start_block = be32_make(0);
    if (error != 0)
        raw.error = be32_make((uint32_t)error);
    if (has_checksum)
        raw.checksum = be32_make(journal_superblock_checksum(&raw));
    memcpy(raw_bytes, &raw, sizeof(raw));
}

void journal_layout_init(struct journal_layout *layout, uint32_t block_bytes,
                         unsigned int checksum_version, bool is_64bit, const uint8_t uuid[16])
{
    layout->block_bytes = block_bytes;
    layout->checksum_version = checksum_version;
    layout->is_64bit = is_64bit;
    layout->tail_bytes = checksum_version >= 2 ? CHECKSUM_BYTES : 0;
    layout->revoke_record_bytes = is_64bit ? sizeof(be64) : sizeof(be32);
    layout->seed = crc32c(~0u, uuid, 16);
    layout->tag_bytes = sizeof(struct raw_tag_v3);
    if (checksum_version < 3) {
        layout->tag_bytes = sizeof(struct raw_tag);
        if (checksum_version == 2)
            layout->tag_bytes += TAG_V2_PADDING;
        if (!is_64bit)
            layout->tag_bytes -= TAG_HIGH_BYTES;
    }
}

/* Reads one tag; `place` has room for the layout's tag_bytes. */
static void tag_parse(const struct journal_layout *layout, const uint8_t *place,
                      struct journal_tag *tag)
{
    uint32_t block_high;

    if (layout->checksum_version == 3) {
        struct raw_tag_v3 raw;

        memcpy(&raw, place, sizeof(raw));
        tag->disk_block = be32_get(raw.block_low);
        block_high = be32_get(raw.block_high);
        tag->flags = be32_get(raw.flags);
        tag->checksum = be32_get(raw.checksum);
    } else {
        struct raw_tag raw = {0};

        memcpy(&raw, place, MIN(sizeof(raw), (size_t)layout->tag_bytes));
        tag->disk_block = be32_get(raw.block_low);
        block_high = be32_get(raw.block_high);
        tag->flags = be16_get(raw.flags);
        tag->checksum = be16_get(raw.checksum);
    }
    if (layout->is_64bit)
        tag->disk_block |= (uint64_t)block_high << 32;
}

bool journal_tag_next(const struct journal_layout *layout, const void *block, uint32_t *offset,
                      struct journal_tag *tag)
{
    uint32_t place = *offset == 0 ? JOURNAL_HEADER_BYTES : *offset;

    if (place + layout->tag_bytes > layout->block_bytes - layout->tail_bytes)
        return false;
    tag_parse(layout, (const uint8_t *)block + place, tag);
    place += layout->tag_bytes;
    if ((tag->flags & JOURNAL_TAG_SAME_UUID) == 0)
        place += TAG_UUID_BYTES;
    if ((tag->flags & JOURNAL_TAG_LAST) != 0)
        place = layout->block_bytes;
    *offset = place;
    return true;
}

bool journal_tag_checksum_matches(const struct journal_layout *layout,
                                  const struct journal_tag *tag, uint32_t sequence,
                                  const void *data)
{
    be32 disk_sequence = be32_make(sequence);
    uint32_t crc;

    if (layout->checksum_version < 2)
        return true;
    crc = crc32c(layout->seed, &disk_sequence, sizeof(disk_sequence));
    crc = crc32c(crc, data, layout->block_bytes);
    if (layout->checksum_version == 2)
        crc &= 0xffff;
    return crc == tag->checksum;
}

bool journal_tail_checksum_matches(const struct journal_layout *layout, const void *block)
{
    size_t hole = layout->block_bytes - CHECKSUM_BYTES;

    if (layout->checksum_version < 2)
        return true;
    return checksum_with_hole(layout->seed, block, layout->block_bytes, hole) ==
           be32_at((const uint8_t *)block + hole);
}

int journal_revoke_count(const struct journal_layout *layout, const void *block)
{
    struct raw_revoke raw;
    uint32_t used_bytes;

    memcpy(&raw, block, sizeof(raw));
    used_bytes = be32_get(raw.used_bytes);
    if (used_bytes < sizeof(raw) || used_bytes > layout->block_bytes - layout->tail_bytes)
        return -EUCLEAN;
    return (int)((used_bytes - sizeof(raw)) / layout->revoke_record_bytes);
}

uint64_t journal_revoke_record(const struct journal_layout *layout, const void *block, int index)
{
    const uint8_t *place = (const uint8_t *)block + sizeof(struct raw_revoke) +
                           (size_t)index * layout->revoke_record_bytes;
    be64 value;

    if (!layout->is_64bit)
        return be32_at(place);
    memcpy(&value, place, sizeof(value));
    return be64_get(value);
}

void journal_commit_parse(const void *block, struct journal_commit *result)
{
    struct raw_commit raw;

    memcpy(&raw, block, sizeof(raw));
    result->checksum_type = raw.checksum_type;
    result->checksum_size = raw.checksum_size;
    result->checksum = be32_get(raw.checksum[0]);
    result->seconds = be64_get(raw.seconds);
}

bool journal_commit_checksum_matches(const struct journal_layout *layout, const void *block)
{
    static const uint8_t zeros[256];
    size_t hole = offsetof(struct raw_commit, checksum);
    size_t left = layout->block_bytes - sizeof(struct raw_commit);
    uint32_t stored = be32_at((const uint8_t *)block + hole);
    uint32_t crc;

    if (layout->checksum_version < 2)
        return true;
    if (checksum_with_hole(layout->seed, block, layout->block_bytes, hole) == stored)
        return true;
    crc = checksum_with_hole(layout->seed, block, sizeof(struct raw_commit), hole);
    for (size_t part; left > 0; left -= part) {
        part = MIN(left, sizeof(zeros));
        crc = crc32c(crc, zeros, part);
    }
    return crc == stored;
}

bool journal_fast_tag_parse(const void *block, uint32_t block_bytes, uint32_t offset,
                            struct journal_fast_tag *result)
{
    const uint8_t *place = (const uint8_t *)block + offset;
    const uint8_t *value = place + JOURNAL_FAST_TAG_BYTES;

    if (offset > block_bytes - JOURNAL_FAST_TAG_BYTES)
        return false;
    memset(result, 0, sizeof(*result));
    result->type = le16_at(place);
    result->length = le16_at(place + sizeof(le16));
    if (result->type < JOURNAL_FAST_TAG_ADD_RANGE || result->type > JOURNAL_FAST_TAG_HEAD ||
        result->length > block_bytes - JOURNAL_FAST_TAG_BYTES - offset)
        return false;
    result->covered = JOURNAL_FAST_TAG_BYTES + (uint32_t)result->length;
    if (result->type == JOURNAL_FAST_TAG_HEAD) {
        if (result->length < sizeof(struct raw_fast_head))
            return false;
        result->sequence = le32_at(value + offsetof(struct raw_fast_head, sequence));
    } else if (result->type == JOURNAL_FAST_TAG_TAIL) {
        if (result->length < sizeof(struct raw_fast_tail))
            return false;
        result->sequence = le32_at(value + offsetof(struct raw_fast_tail, sequence));
        result->checksum = le32_at(value + offsetof(struct raw_fast_tail, checksum));
        result->covered = JOURNAL_FAST_TAG_BYTES + offsetof(struct raw_fast_tail, checksum);
    }
    return true;
}
