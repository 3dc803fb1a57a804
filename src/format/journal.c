/* SPDX-License-Identifier: MIT */
/*
 * Reads, checks and makes the single blocks of a journal; knows nothing of their order.
 *
 * Invariant: nothing is touched outside the block, whatever it holds.
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

/* The features of csum v2 and csum v3. */
#define CHECKSUMS_INCOMPAT 0x18u

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
    memcpy(layout->uuid, uuid, sizeof(layout->uuid));
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
    return layout->checksum_version < 2 ||
           journal_tag_checksum(layout, sequence, data) == tag->checksum;
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

/* ---- Writing -------------------------------------------------------------------------------- */

static void header_write(void *block, uint32_t type, uint32_t sequence)
{
    struct raw_header raw = {.magic = be32_make(JOURNAL_MAGIC),
                             .type = be32_make(type),
                             .sequence = be32_make(sequence)};

    memcpy(block, &raw, sizeof(raw));
}

void journal_superblock_write(void *raw_bytes, const struct journal_superblock_update *update)
{
    struct raw_superblock raw;

    memcpy(&raw, raw_bytes, sizeof(raw));
    if (be32_get(raw.header.type) == JOURNAL_BLOCK_SUPERBLOCK_V1) {
        size_t first_new = offsetof(struct raw_superblock, compat);

        memset((uint8_t *)&raw + first_new, 0, sizeof(raw) - first_new);
        raw.header.type = be32_make(JOURNAL_BLOCK_SUPERBLOCK_V2);
        raw.user_count = be32_make(1);
    }
    raw.sequence = be32_make(update->sequence);
    raw.start_block = be32_make(update->start_block);
    if (update->error != 0)
        raw.error = be32_make((uint32_t)update->error);
    raw.compat = be32_make(update->compat);
    raw.incompat = be32_make(update->incompat);
    raw.ro_compat = be32_make(update->ro_compat);
    raw.checksum_type = update->checksum_type;
    if ((update->incompat & CHECKSUMS_INCOMPAT) != 0)
        raw.checksum = be32_make(journal_superblock_checksum(&raw));
    memcpy(raw_bytes, &raw, sizeof(raw));
}

bool journal_is_escape_needed(const void *data)
{
    return be32_at(data) == JOURNAL_MAGIC;
}

void journal_escape(void *data)
{
    memset(data, 0, sizeof(be32));
}

void journal_unescape(void *data)
{
    be32 magic = be32_make(JOURNAL_MAGIC);

    memcpy(data, &magic, sizeof(magic));
}

uint32_t journal_tag_checksum(const struct journal_layout *layout, uint32_t sequence,
                              const void *data)
{
    be32 disk_sequence = be32_make(sequence);
    uint32_t crc;

    if (layout->checksum_version < 2)
        return 0;
    crc = crc32c(layout->seed, &disk_sequence, sizeof(disk_sequence));
    crc = crc32c(crc, data, layout->block_bytes);
    return layout->checksum_version == 2 ? crc & 0xffff : crc;
}

uint32_t journal_descriptor_capacity(const struct journal_layout *layout)
{
    return (layout->block_bytes - JOURNAL_HEADER_BYTES - TAG_UUID_BYTES - layout->tail_bytes) /
           layout->tag_bytes;
}

void journal_descriptor_begin(struct journal_writer *writer, const struct journal_layout *layout,
                              void *block, uint32_t sequence)
{
    *writer = (struct journal_writer){
        .layout = layout, .block = block, .used_bytes = JOURNAL_HEADER_BYTES};
    memset(block, 0, layout->block_bytes);
    header_write(block, JOURNAL_BLOCK_DESCRIPTOR, sequence);
}

/* Writes a tag's fields; the layout's tag_bytes may be fewer or more than they need. */
static void tag_write(const struct journal_layout *layout, uint8_t *place,
                      const struct journal_tag *tag)
{
    be32 low = be32_make((uint32_t)tag->disk_block);
    be32 high = be32_make(layout->is_64bit ? (uint32_t)(tag->disk_block >> 32) : 0);

    if (layout->checksum_version == 3) {
        struct raw_tag_v3 raw = {.block_low = low,
                                 .flags = be32_make(tag->flags),
                                 .block_high = high,
                                 .checksum = be32_make(tag->checksum)};

        memcpy(place, &raw, sizeof(raw));
    } else {
        struct raw_tag raw = {.block_low = low,
                              .checksum = be16_make((uint16_t)tag->checksum),
                              .flags = be16_make((uint16_t)tag->flags),
                              .block_high = high};

        memcpy(place, &raw, MIN(sizeof(raw), (size_t)layout->tag_bytes));
    }
}

bool journal_descriptor_add(struct journal_writer *writer, const struct journal_tag *tag)
{
    const struct journal_layout *layout = writer->layout;
    bool is_first = writer->last_tag == 0;
    uint32_t needed = layout->tag_bytes + (is_first ? TAG_UUID_BYTES : 0);
    struct journal_tag own = *tag;

    if (writer->used_bytes + needed > layout->block_bytes - layout->tail_bytes)
        return false;
    if (!is_first)
        own.flags |= JOURNAL_TAG_SAME_UUID;
    tag_write(layout, writer->block + writer->used_bytes, &own);
    if (is_first)
        memcpy(writer->block + writer->used_bytes + layout->tag_bytes, layout->uuid,
               TAG_UUID_BYTES);
    writer->last_tag = writer->used_bytes;
    writer->used_bytes += needed;
    return true;
}

static void tail_write(const struct journal_writer *writer)
{
    size_t hole = writer->layout->block_bytes - CHECKSUM_BYTES;
    be32 checksum;

    if (writer->layout->tail_bytes == 0)
        return;
    checksum = be32_make(
        checksum_with_hole(writer->layout->seed, writer->block, writer->layout->block_bytes, hole));
    memcpy(writer->block + hole, &checksum, sizeof(checksum));
}

void journal_descriptor_end(struct journal_writer *writer)
{
    struct journal_tag last;

    tag_parse(writer->layout, writer->block + writer->last_tag, &last);
    last.flags |= JOURNAL_TAG_LAST;
    tag_write(writer->layout, writer->block + writer->last_tag, &last);
    tail_write(writer);
}

uint32_t journal_revoke_capacity(const struct journal_layout *layout)
{
    return (layout->block_bytes - (uint32_t)sizeof(struct raw_revoke) - layout->tail_bytes) /
           layout->revoke_record_bytes;
}

void journal_revoke_begin(struct journal_writer *writer, const struct journal_layout *layout,
                          void *block, uint32_t sequence)
{
    *writer = (struct journal_writer){
        .layout = layout, .block = block, .used_bytes = sizeof(struct raw_revoke)};
    memset(block, 0, layout->block_bytes);
    header_write(block, JOURNAL_BLOCK_REVOKE, sequence);
}

bool journal_revoke_add(struct journal_writer *writer, uint64_t disk_block)
{
    const struct journal_layout *layout = writer->layout;
    be32 low = be32_make((uint32_t)disk_block);
    be64 whole = be64_make(disk_block);

    if (writer->used_bytes + layout->revoke_record_bytes > layout->block_bytes - layout->tail_bytes)
        return false;
    if (layout->is_64bit)
        memcpy(writer->block + writer->used_bytes, &whole, sizeof(whole));
    else
        memcpy(writer->block + writer->used_bytes, &low, sizeof(low));
    writer->used_bytes += layout->revoke_record_bytes;
    return true;
}

void journal_revoke_end(struct journal_writer *writer)
{
    be32 used_bytes = be32_make(writer->used_bytes);

    memcpy(writer->block + offsetof(struct raw_revoke, used_bytes), &used_bytes,
           sizeof(used_bytes));
    tail_write(writer);
}

void journal_commit_write(const struct journal_layout *layout, void *block, uint32_t sequence,
                          uint64_t seconds, uint32_t nanoseconds, const uint32_t *data_crc)
{
    struct raw_commit raw = {.seconds = be64_make(seconds), .nanoseconds = be32_make(nanoseconds)};
    size_t hole = offsetof(struct raw_commit, checksum);
    be32 checksum;

    if (data_crc != NULL) {
        raw.checksum_type = JOURNAL_CHECKSUM_CRC32;
        raw.checksum_size = sizeof(be32);
        raw.checksum[0] = be32_make(*data_crc);
    }
    memset(block, 0, layout->block_bytes);
    memcpy(block, &raw, sizeof(raw));
    header_write(block, JOURNAL_BLOCK_COMMIT, sequence);
    if (layout->checksum_version < 2)
        return;
    checksum = be32_make(checksum_with_hole(layout->seed, block, layout->block_bytes, hole));
    memcpy((uint8_t *)block + hole, &checksum, sizeof(checksum));
}

/* ---- Fast commits --------------------------------------------------------------------------- */

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
