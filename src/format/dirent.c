/* SPDX-License-Identifier: MIT */
/*
 * Linear directory entries. dirent_read never looks outside of `size` and never returns a record
 * that does, nor one of less than 12 bytes, so that a walk always advances. Pure functions without
 * locks, called by the dir layer.
 */
#include "format/dirent.h"

#include <dirent.h>
#include <string.h>

#include "base/compiler.h"
#include "format/crc.h"
#include "format/dirent_disk.h"

static const uint8_t types[] = {DT_UNKNOWN, DT_REG,  DT_DIR,  DT_CHR,
                                DT_BLK,     DT_FIFO, DT_SOCK, DT_LNK};

/* 65536 does not fit into 16 bits: in blocks of that size 65535 and 0 stand for it. */
static uint32_t record_length(const struct superblock *sb, uint16_t stored)
{
    if (sb->block_bytes == 65536 && (stored == 65535 || stored == 0))
        return 65536;
    return stored;
}

bool dirent_is_dot_or_dotdot(const struct dirent_view *entry)
{
    return (entry->name_length == 1 && entry->name[0] == '.') ||
           (entry->name_length == 2 && entry->name[0] == '.' && entry->name[1] == '.');
}

/* The hash behind the name; "." and ".." and unused entries have none. */
static const char *read_stored_hash(struct dirent_view *entry)
{
    size_t offset = ROUND_UP((size_t)DIRENT_HEADER_BYTES + entry->name_length, 4);
    if (offset + DIRENT_STORED_HASH_BYTES > entry->record_bytes)
        return "directory entry too short for its hash";
    const char *place = entry->name - DIRENT_HEADER_BYTES + offset;
    entry->hash = le32_at(place);
    entry->minor_hash = le32_at(place + 4);
    entry->has_hash = true;
    return NULL;
}

const char *dirent_read(const struct superblock *sb, const void *area, size_t size, size_t offset,
                        bool has_stored_hash, struct dirent_view *result)
{
    if (offset > size || size - offset < DIRENT_RECORD_MIN_BYTES)
        return "no room for a directory entry";
    const uint8_t *place = (const uint8_t *)area + offset;
    const struct disk_dirent *disk = (const void *)place;

    *result = (struct dirent_view){
        .ino = le32_get(disk->ino),
        .record_bytes = record_length(sb, le16_get(disk->record_bytes)),
        .name_length = disk->name_length,
        .type = DT_UNKNOWN,
        .name = (const char *)place + DIRENT_HEADER_BYTES,
    };
    if (result->record_bytes < DIRENT_RECORD_MIN_BYTES)
        return "directory entry too short";
    if (result->record_bytes % 4 != 0)
        return "directory entry's length is not a multiple of 4";
    if (result->record_bytes > size - offset)
        return "directory entry leaves its block";
    if (DIRENT_HEADER_BYTES + (uint32_t)result->name_length > result->record_bytes)
        return "directory entry too short for its name";
    if (result->ino > sb->inode_count)
        return "directory entry's inode number out of range";
    if (result->ino == 0)
        return NULL;
    if (result->name_length == 0)
        return "directory entry without a name";
    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_FILETYPE) && disk->type < ARRAY_LENGTH(types))
        result->type = types[disk->type];
    if (has_stored_hash && !dirent_is_dot_or_dotdot(result))
        return read_stored_hash(result);
    return NULL;
}

bool dirent_name_is_valid(const struct dirent_view *entry)
{
    return entry->name_length > 0 && memchr(entry->name, '\0', entry->name_length) == NULL &&
           memchr(entry->name, '/', entry->name_length) == NULL;
}

bool dirent_block_checksum_matches(const struct superblock *sb, uint32_t inode_seed,
                                   const void *block)
{
    if (!sb->has_metadata_csum)
        return true;
    size_t covered_bytes = sb->block_bytes - DIRENT_TAIL_BYTES;
    const struct disk_dirent_tail *tail = (const void *)((const uint8_t *)block + covered_bytes);
    if (le32_get(tail->zero) != 0 || le16_get(tail->record_bytes) != DIRENT_TAIL_BYTES ||
        tail->zero_name_length != 0 || tail->type != DIRENT_TAIL_TYPE)
        return false;
    return crc32c(inode_seed, block, covered_bytes) == le32_get(tail->checksum);
}
