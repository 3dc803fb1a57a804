/* SPDX-License-Identifier: MIT */
/*
 * The superblock as it is written back. Only fields that change while a file system is in use are
 * touched, so that what this version does not know survives. Pure functions without locks; called
 * by the layers that own the superblock's buffer, and by recovery.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "format/crc.h"
#include "format/superblock_disk.h"

#define ERROR_CODE_UNKNOWN 1

uint32_t superblock_checksum(const void *raw)
{
    return crc32c(UINT32_MAX, raw, offsetof(struct disk_superblock, checksum));
}

static void set_checksum(struct disk_superblock *disk)
{
    if ((le32_get(disk->ro_compat) & FEATURE_RO_COMPAT_METADATA_CSUM) != 0)
        disk->checksum = le32_make(superblock_checksum(disk));
}

void superblock_mark_recovered(void *raw, bool has_errors)
{
    struct disk_superblock *disk = raw;

    disk->incompat = le32_make(le32_get(disk->incompat) & ~(uint32_t)FEATURE_INCOMPAT_RECOVER);
    if (has_errors)
        disk->state = le16_make(le16_get(disk->state) | SUPERBLOCK_STATE_ERRORS);
    set_checksum(disk);
}

/* Times have 32 bits and, elsewhere, 8 more. */
static void put_time(uint64_t time, le32 *low, uint8_t *high)
{
    *low = le32_make((uint32_t)time);
    *high = (uint8_t)(time >> 32);
}

static void put_errors(const struct superblock *sb, struct disk_superblock *disk)
{
    const struct superblock_error *first = &sb->first_error, *last = &sb->last_error;

    disk->error_count = le32_make(sb->error_count);
    put_time(first->time, &disk->first_error_time, &disk->first_error_time_high);
    disk->first_error_ino = le32_make(first->ino);
    disk->first_error_block = le64_make(first->block);
    disk->first_error_line = le32_make(first->line);
    disk->first_error_code = first->code;
    memcpy(disk->first_error_function, first->function, SUPERBLOCK_ERROR_FUNCTION_BYTES);

    put_time(last->time, &disk->last_error_time, &disk->last_error_time_high);
    disk->last_error_ino = le32_make(last->ino);
    disk->last_error_block = le64_make(last->block);
    disk->last_error_line = le32_make(last->line);
    disk->last_error_code = last->code;
    memcpy(disk->last_error_function, last->function, SUPERBLOCK_ERROR_FUNCTION_BYTES);
}

void superblock_format(const struct superblock *sb, void *raw)
{
    struct disk_superblock *disk = raw;

    disk->free_block_count_low = le32_make((uint32_t)sb->free_block_count);
    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_64BIT))
        disk->free_block_count_high = le32_make((uint32_t)(sb->free_block_count >> 32));
    disk->free_inode_count = le32_make(sb->free_inode_count);
    disk->compat = le32_make(sb->compat);
    disk->incompat = le32_make(sb->incompat);
    disk->ro_compat = le32_make(sb->ro_compat);
    disk->flags = le32_make(sb->flags);
    disk->state = le16_make(sb->state);
    disk->mount_count = le16_make(sb->mount_count);
    put_time(sb->mounted, &disk->mounted, &disk->mounted_high);
    put_time(sb->written, &disk->written, &disk->written_high);
    memcpy(disk->last_mounted, sb->last_mounted, sizeof(disk->last_mounted));
    memcpy(disk->volume_name, sb->volume_name, sizeof(disk->volume_name));
    disk->kib_written = le64_make(sb->kib_written);
    disk->last_orphan = le32_make(sb->last_orphan);
    put_errors(sb, disk);
    set_checksum(disk);
}

void superblock_format_copy(const void *primary, uint32_t group, void *copy)
{
    struct disk_superblock *disk = copy;

    memmove(copy, primary, sizeof(*disk));
    /* The number has 16 bits; groups beyond that have it cut off, as everywhere. */
    disk->block_group = le16_make((uint16_t)group);
    disk->incompat = le32_make(le32_get(disk->incompat) & ~(uint32_t)FEATURE_INCOMPAT_RECOVER);
    disk->state = le16_make(le16_get(disk->state) & (uint16_t)~SUPERBLOCK_STATE_CLEAN);
    set_checksum(disk);
}

uint8_t superblock_error_code(int error)
{
    /* The code is the place in the table. EUCLEAN and EBADMSG are damage and a bad checksum. */
    static const int errors[] = {0,         0,      EIO,     ENOMEM,    EBADMSG,   EUCLEAN,
                                 ENOSPC,    ENOKEY, EROFS,   EFBIG,     EEXIST,    ERANGE,
                                 EOVERFLOW, EBUSY,  ENOTDIR, ENOTEMPTY, ESHUTDOWN, EFAULT};
    error = abs(error);
    for (uint8_t code = ERROR_CODE_UNKNOWN + 1; code < ARRAY_LENGTH(errors); code++)
        if (errors[code] == error)
            return code;
    return ERROR_CODE_UNKNOWN;
}

void superblock_add_error(struct superblock *sb, uint64_t time, int error, uint32_t ino,
                          uint64_t block, const char *function, uint32_t line)
{
    struct superblock_error *last = &sb->last_error;

    *last = (struct superblock_error){.time = time,
                                      .block = block,
                                      .ino = ino,
                                      .line = line,
                                      .code = superblock_error_code(error)};
    memcpy(last->function, function, strnlen(function, SUPERBLOCK_ERROR_FUNCTION_BYTES));
    if (sb->error_count == 0 || sb->first_error.time == 0)
        sb->first_error = *last;
    if (sb->error_count < UINT32_MAX)
        sb->error_count++;
    sb->state |= SUPERBLOCK_STATE_ERRORS;
}
