/* SPDX-License-Identifier: MIT */
/*
 * The blocks of a jbd2 journal: headers, descriptors with their tags, revoke records, commits and
 * the superblock. All integers are big-endian.
 * Source: Documentation/filesystems/ext4/journal.rst (kernel documentation).
 */
#ifndef UEXT4_FORMAT_JOURNAL_H
#define UEXT4_FORMAT_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOURNAL_MAGIC            0xc03b3998u
#define JOURNAL_HEADER_BYTES     12
#define JOURNAL_SUPERBLOCK_BYTES 1024
#define JOURNAL_MIN_BLOCK_BYTES  1024
#define JOURNAL_MAX_BLOCK_BYTES  65536

/* A fast-commit area is set aside only if this many blocks are left for the log. */
#define JOURNAL_MIN_LOG_BLOCKS             1024
#define JOURNAL_DEFAULT_FAST_COMMIT_BLOCKS 256

enum journal_block_type {
    JOURNAL_BLOCK_DESCRIPTOR = 1,
    JOURNAL_BLOCK_COMMIT = 2,
    JOURNAL_BLOCK_SUPERBLOCK_V1 = 3,
    JOURNAL_BLOCK_SUPERBLOCK_V2 = 4,
    JOURNAL_BLOCK_REVOKE = 5,
};

enum journal_tag_flags {
    JOURNAL_TAG_ESCAPED = 0x1,
    JOURNAL_TAG_SAME_UUID = 0x2,
    JOURNAL_TAG_DELETED = 0x4, /* no writer sets it and no reader minds it */
    JOURNAL_TAG_LAST = 0x8,
};

enum journal_checksum_type {
    JOURNAL_CHECKSUM_NONE = 0,
    JOURNAL_CHECKSUM_CRC32 = 1,
    JOURNAL_CHECKSUM_CRC32C = 4,
};

struct journal_header {
    uint32_t type;
    uint32_t sequence;
};

/* False if the block does not begin with the journal's magic number. */
bool journal_header_parse(const void *block, struct journal_header *result);

/* The superblock's fields as they are, unchecked. Version 1 has none from `compat` on: zeros. */
struct journal_superblock_fields {
    uint32_t type;
    uint32_t block_bytes;
    uint32_t block_count;
    uint32_t first_block;
    uint32_t sequence;
    uint32_t start_block;
    int32_t error;
    uint32_t compat, incompat, ro_compat;
    uint8_t uuid[16];
    uint8_t checksum_type;
    uint32_t fast_commit_blocks;
    uint32_t checksum;
};

/* False if the JOURNAL_SUPERBLOCK_BYTES are no journal superblock. */
bool journal_superblock_parse(const void *raw, struct journal_superblock_fields *result);

/* The checksum that the superblock should carry under csum v2 and v3. */
uint32_t journal_superblock_checksum(const void *raw);

/*
 * Changes the raw superblock to that of an empty log. `error` is stored unless it is 0, which
 * leaves the field as it is. The checksum is renewed if `has_checksum`.
 */
void journal_superblock_mark_empty(void *raw, uint32_t sequence, int32_t error, bool has_checksum);

/* How the blocks of one journal are laid out. */
struct journal_layout {
    uint32_t block_bytes;
    unsigned int checksum_version; /* 0, 2 or 3; the checksum of version 1 changes no layout */
    bool is_64bit;
    uint32_t tag_bytes;
    uint32_t tail_bytes; /* at the end of descriptors and revoke blocks */
    uint32_t revoke_record_bytes;
    uint32_t seed; /* of all checksums but the superblock's */
    uint8_t uuid[16];
};

void journal_layout_init(struct journal_layout *layout, uint32_t block_bytes,
                         unsigned int checksum_version, bool is_64bit, const uint8_t uuid[16]);

struct journal_tag {
    uint64_t disk_block;
    uint32_t flags;
    uint32_t checksum; /* 32 bits in version 3, 16 in version 2 */
};

/*
 * Steps through the tags of a descriptor: *offset begins as 0. False if there is no further tag,
 * after one with JOURNAL_TAG_LAST or when another has no room.
 */
bool journal_tag_next(const struct journal_layout *layout, const void *block, uint32_t *offset,
                      struct journal_tag *tag);

/* Whether the block's content, as it lies in the log, is the one that the tag was made for. */
bool journal_tag_checksum_matches(const struct journal_layout *layout,
                                  const struct journal_tag *tag, uint32_t sequence,
                                  const void *data);

/* Of descriptors and revoke blocks; true without csum v2 or v3. */
bool journal_tail_checksum_matches(const struct journal_layout *layout, const void *block);

/* The number of records of a revoke block, or -EUCLEAN if its count does not fit the block. */
int journal_revoke_count(const struct journal_layout *layout, const void *block);

uint64_t journal_revoke_record(const struct journal_layout *layout, const void *block, int index);

struct journal_commit {
    uint8_t checksum_type, checksum_size; /* of version 1 */
    uint32_t checksum;
    uint64_t seconds;
};

void journal_commit_parse(const void *block, struct journal_commit *result);

/*
 * The commit block's own checksum (csum v2 and v3; true without). It also matches if only the
 * header arrived on the disk: a writer leaves zeros behind it, and an older block's content there
 * says nothing about this commit.
 */
bool journal_commit_checksum_matches(const struct journal_layout *layout, const void *block);

/* ---- Writing --------------------------------------------------------------------------------
 *
 * A log block is begun, filled and ended; what is not used of it holds zeros.
 */

/* What changes in a superblock while the journal is in use. */
struct journal_superblock_update {
    uint32_t sequence;
    uint32_t start_block;
    int32_t error;                        /* 0 leaves the field as it is */
    uint32_t compat, incompat, ro_compat; /* change only while the log is empty */
    uint8_t checksum_type;
};

/*
 * Changes the raw superblock, and renews its checksum if `incompat` has csum v2 or v3. One of
 * version 1, which has no features, becomes one of version 2. All other changes lie in its first
 * 512 bytes.
 */
void journal_superblock_write(void *raw, const struct journal_superblock_update *update);

/* Whether a data block has to be escaped: its first 4 bytes are the magic number. */
bool journal_is_escape_needed(const void *data);

/* Sets these 4 bytes to zeros, as the log holds them, or back to the magic number. */
void journal_escape(void *data);
void journal_unescape(void *data);

/* The checksum for the tag of a data block as it lies in the log; 0 without csum v2 or v3. */
uint32_t journal_tag_checksum(const struct journal_layout *layout, uint32_t sequence,
                              const void *data);

/* The number of tags that one descriptor holds. */
uint32_t journal_descriptor_capacity(const struct journal_layout *layout);

/* A descriptor or revoke block being filled. */
struct journal_writer {
    const struct journal_layout *layout;
    uint8_t *block;
    uint32_t used_bytes;
    uint32_t last_tag; /* offset of the last tag of a descriptor, 0: none */
};

void journal_descriptor_begin(struct journal_writer *writer, const struct journal_layout *layout,
                              void *block, uint32_t sequence);

/* False, with nothing added, if the block is full. `tag->flags` has at most the escape. */
bool journal_descriptor_add(struct journal_writer *writer, const struct journal_tag *tag);

void journal_descriptor_end(struct journal_writer *writer);

/* The number of records that one revoke block holds. */
uint32_t journal_revoke_capacity(const struct journal_layout *layout);

void journal_revoke_begin(struct journal_writer *writer, const struct journal_layout *layout,
                          void *block, uint32_t sequence);
bool journal_revoke_add(struct journal_writer *writer, uint64_t disk_block);
void journal_revoke_end(struct journal_writer *writer);

/*
 * Fills a commit block. `data_crc` is the checksum of version 1, crc32_be over the descriptors and
 * the data blocks as they follow in the log, NULL without it.
 */
void journal_commit_write(const struct journal_layout *layout, void *block, uint32_t sequence,
                          uint64_t seconds, uint32_t nanoseconds, const uint32_t *data_crc);

/* ---- Fast commits: little-endian, a row of tags that goes on over block borders ---------------
 */

enum journal_fast_tag_type {
    JOURNAL_FAST_TAG_ADD_RANGE = 1,
    JOURNAL_FAST_TAG_TAIL = 8,
    JOURNAL_FAST_TAG_HEAD = 9,
};

#define JOURNAL_FAST_TAG_BYTES 4

struct journal_fast_tag {
    uint16_t type;
    uint16_t length;   /* of the value */
    uint32_t sequence; /* of heads and tails */
    uint32_t checksum; /* of tails */
    uint32_t covered;  /* bytes from the tag's start that a commit's checksum covers */
};

/* Reads the tag at an offset. False if it has no room in the block, or if its type is unknown. */
bool journal_fast_tag_parse(const void *block, uint32_t block_bytes, uint32_t offset,
                            struct journal_fast_tag *result);

#endif
