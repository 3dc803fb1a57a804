/* SPDX-License-Identifier: MIT */
/*
 * Extended attributes in an inode or in a block. xattr_next checks a whole area when it starts at
 * its first entry, so that a walk ends within it and no value overlaps the entries. Pure functions
 * without locks, called by the inode layer.
 */
#include "format/xattr.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "format/crc.h"
#include "format/xattr_disk.h"

struct prefix {
    const char *text;
    bool is_whole_name;
};

static const struct prefix prefixes[] = {
    [XATTR_USER] = {"user.", false},
    [XATTR_ACL_ACCESS] = {"system.posix_acl_access", true},
    [XATTR_ACL_DEFAULT] = {"system.posix_acl_default", true},
    [XATTR_TRUSTED] = {"trusted.", false},
    [XATTR_SECURITY] = {"security.", false},
    [XATTR_SYSTEM] = {"system.", false},
    [XATTR_RICHACL] = {"system.richacl", true},
    [XATTR_HURD] = {"gnu.", false},
};

static size_t bytes_between(const void *from, const void *to)
{
    return (size_t)((const uint8_t *)to - (const uint8_t *)from);
}

bool xattr_inode_area(const struct superblock *sb, const void *raw_inode, uint32_t extra_isize,
                      struct xattr_area *area)
{
    uint32_t room_bytes = sb->inode_bytes - INODE_BASE_BYTES;
    /* The magic number and at least the mark of the end have to fit. */
    if (extra_isize == 0 || extra_isize > room_bytes || room_bytes - extra_isize < 2 * sizeof(le32))
        return false;
    const uint8_t *header = (const uint8_t *)raw_inode + INODE_BASE_BYTES + extra_isize;
    if (le32_at(header) != XATTR_MAGIC)
        return false;
    area->entries = header + sizeof(le32);
    area->base = area->entries;
    area->end = (const uint8_t *)raw_inode + sb->inode_bytes;
    return true;
}

const char *xattr_block_area(const struct superblock *sb, const void *block,
                             struct xattr_area *area)
{
    const struct disk_xattr_header *header = block;
    if (le32_get(header->magic) != XATTR_MAGIC)
        return "attribute block without its magic number";
    if (le32_get(header->block_count) != 1)
        return "attributes in more than one block";
    area->entries = (const uint8_t *)block + sizeof(*header);
    area->base = block;
    area->end = (const uint8_t *)block + sb->block_bytes;
    return NULL;
}

uint32_t xattr_block_checksum(const struct superblock *sb, uint64_t disk_block, const void *block)
{
    static const uint8_t zero[sizeof(le32)];
    const size_t offset = offsetof(struct disk_xattr_header, checksum);
    const uint8_t *bytes = block;
    le64 number = le64_make(disk_block);
    uint32_t crc = crc32c(sb->checksum_seed, &number, sizeof(number));

    crc = crc32c(crc, bytes, offset);
    crc = crc32c(crc, zero, sizeof(zero));
    return crc32c(crc, bytes + offset + sizeof(zero), sb->block_bytes - offset - sizeof(zero));
}

bool xattr_block_checksum_matches(const struct superblock *sb, uint64_t disk_block,
                                  const void *block)
{
    const struct disk_xattr_header *header = block;
    return !sb->has_metadata_csum ||
           xattr_block_checksum(sb, disk_block, block) == le32_get(header->checksum);
}

/*
 * Steps over one entry without looking at its value: 1, 0 at the end, or -EUCLEAN if the entry or
 * what has to follow it leaves the area.
 */
static int entry_step(const struct xattr_area *area, const uint8_t *position,
                      const uint8_t **following)
{
    const struct disk_xattr_entry *entry = (const void *)position;
    size_t room = bytes_between(position, area->end);

    if (room < sizeof(le32))
        return -EUCLEAN;
    if (le32_at(position) == 0)
        return 0;
    if (room < sizeof(*entry))
        return -EUCLEAN;
    size_t bytes = ROUND_UP(sizeof(*entry) + entry->name_length, XATTR_ALIGN);
    if (room < bytes + sizeof(le32))
        return -EUCLEAN;
    *following = position + bytes;
    return 1;
}

static const char *check_name(const struct disk_xattr_entry *entry)
{
    const char *name = (const char *)(entry + 1);
    bool is_whole_name;
    const char *prefix = xattr_prefix(entry->index, &is_whole_name);

    if (memchr(name, '\0', entry->name_length) != NULL)
        return "attribute's name contains a zero byte";
    if (prefix != NULL && is_whole_name && entry->name_length != 0)
        return "attribute's name too long for its index";
    if (prefix != NULL && !is_whole_name && entry->name_length == 0)
        return "attribute without a name";
    return NULL;
}

/* Values begin at or behind `values_start`. */
static const char *check_value(const struct superblock *sb, const struct xattr_area *area,
                               const struct disk_xattr_entry *entry, const uint8_t *values_start)
{
    uint32_t bytes = le32_get(entry->value_bytes), ino = le32_get(entry->value_ino);
    size_t offset = le16_get(entry->value_offset);
    size_t area_bytes = bytes_between(area->base, area->end);

    if (ino != 0) {
        if (!superblock_has_incompat(sb, FEATURE_INCOMPAT_EA_INODE))
            return "attribute's value in an inode without the feature";
        if (ino > sb->inode_count)
            return "attribute's inode number out of range";
        if (bytes > XATTR_VALUE_INODE_MAX)
            return "attribute's value too large";
        return NULL;
    }
    if (bytes == 0)
        return NULL;
    if (offset > area_bytes || bytes > area_bytes - offset)
        return "attribute's value outside its area";
    if (offset < bytes_between(area->base, values_start))
        return "attribute's value overlaps the entries";
    return NULL;
}

/* Checks all entries and their values. */
static const char *check_area(const struct superblock *sb, const struct xattr_area *area)
{
    const uint8_t *position, *following = area->entries;
    int step;

    do {
        position = following;
        step = entry_step(area, position, &following);
        if (step < 0)
            return "attribute entry leaves its area";
    } while (step > 0);
    const uint8_t *values_start = position + sizeof(le32);

    following = area->entries;
    for (;;) {
        position = following;
        if (entry_step(area, position, &following) <= 0)
            return NULL;
        const struct disk_xattr_entry *entry = (const void *)position;
        const char *problem = check_name(entry);
        if (problem == NULL)
            problem = check_value(sb, area, entry, values_start);
        if (problem != NULL)
            return problem;
    }
}

int xattr_next(const struct superblock *sb, const struct xattr_area *area, const void *position,
               struct xattr_view *result, const char **reason)
{
    const uint8_t *following;

    *reason = position == area->entries ? check_area(sb, area) : NULL;
    if (*reason != NULL)
        return -EUCLEAN;
    int step = entry_step(area, position, &following);
    if (step <= 0) {
        if (step < 0)
            *reason = "attribute entry leaves its area";
        return step;
    }
    const struct disk_xattr_entry *entry = position;
    *reason = check_name(entry);
    if (*reason == NULL)
        *reason = check_value(sb, area, entry, following + sizeof(le32));
    if (*reason != NULL)
        return -EUCLEAN;

    uint32_t value_bytes = le32_get(entry->value_bytes), value_ino = le32_get(entry->value_ino);
    size_t value_offset = value_bytes > 0 ? le16_get(entry->value_offset) : 0;
    *result = (struct xattr_view){
        .index = entry->index,
        .name_length = entry->name_length,
        .name = (const char *)(entry + 1),
        .value_bytes = value_bytes,
        .value = value_ino != 0 ? NULL : (const uint8_t *)area->base + value_offset,
        .value_ino = value_ino,
        .hash = le32_get(entry->hash),
        .following = following,
    };
    return 1;
}

const char *xattr_prefix(uint8_t index, bool *is_whole_name)
{
    *is_whole_name = false;
    if (index >= ARRAY_LENGTH(prefixes))
        return NULL;
    *is_whole_name = prefixes[index].is_whole_name;
    return prefixes[index].text;
}

uint8_t xattr_split_name(const char *full_name, const char **rest)
{
    /* Whole names come first, for "system." is a prefix of theirs. */
    for (int whole = 1; whole >= 0; whole--) {
        for (unsigned int i = 0; i < ARRAY_LENGTH(prefixes); i++) {
            const struct prefix *prefix = &prefixes[i];
            if (prefix->text == NULL || prefix->is_whole_name != (whole == 1))
                continue;
            size_t length = strlen(prefix->text);
            if (strncmp(full_name, prefix->text, length) != 0)
                continue;
            /* Nothing may follow a whole name, something has to follow the others. */
            if ((full_name[length] == '\0') != prefix->is_whole_name)
                continue;
            *rest = full_name + length;
            return i;
        }
    }
    return 0;
}

uint32_t xattr_value_inode_hash(const struct superblock *sb, const void *value, size_t length)
{
    return crc32c(sb->checksum_seed, value, length);
}
