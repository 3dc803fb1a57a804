/* SPDX-License-Identifier: MIT */
/*
 * POSIX ACLs: on the disk, entries that name nobody are short (4 bytes instead of 8); the
 * interface's form has entries of one size. Pure functions without locks, called by the inode
 * layer when such an attribute is read.
 */
#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/xattr.h"

#define ACL_DISK_VERSION      1
#define ACL_INTERFACE_VERSION 2
#define ACL_UNDEFINED_ID      UINT32_MAX
#define ACL_PERMISSIONS       7

enum acl_tag {
    ACL_TAG_USER_OBJ = 0x01,
    ACL_TAG_USER = 0x02,
    ACL_TAG_GROUP_OBJ = 0x04,
    ACL_TAG_GROUP = 0x08,
    ACL_TAG_MASK = 0x10,
    ACL_TAG_OTHER = 0x20,
};

struct disk_acl_header {
    le32 version;
};

struct disk_acl_short_entry {
    le16 tag;
    le16 permissions;
};
_Static_assert(sizeof(struct disk_acl_short_entry) == 4, "short ACL entry");

/* On the disk for named users and groups; in the interface for all. */
struct disk_acl_entry {
    le16 tag;
    le16 permissions;
    le32 id;
};
_Static_assert(sizeof(struct disk_acl_entry) == 8, "ACL entry");

/* Reads one entry; returns its bytes on the disk, or 0 if it is not valid. */
static size_t read_entry(const uint8_t *place, size_t room, struct disk_acl_entry *entry)
{
    if (room < sizeof(struct disk_acl_short_entry))
        return 0;
    memcpy(entry, place, sizeof(struct disk_acl_short_entry));
    entry->id = le32_make(ACL_UNDEFINED_ID);
    if (le16_get(entry->permissions) > ACL_PERMISSIONS)
        return 0;
    switch (le16_get(entry->tag)) {
    case ACL_TAG_USER_OBJ:
    case ACL_TAG_GROUP_OBJ:
    case ACL_TAG_MASK:
    case ACL_TAG_OTHER:
        return sizeof(struct disk_acl_short_entry);
    case ACL_TAG_USER:
    case ACL_TAG_GROUP:
        if (room < sizeof(*entry))
            return 0;
        memcpy(entry, place, sizeof(*entry));
        return sizeof(*entry);
    default:
        return 0;
    }
}

int64_t acl_from_disk(const void *raw, size_t raw_length, void *buffer, size_t size)
{
    const struct disk_acl_header interface_header = {le32_make(ACL_INTERFACE_VERSION)};
    const uint8_t *place = raw;
    uint8_t *output = buffer;
    size_t offset = sizeof(struct disk_acl_header), length = sizeof(interface_header);

    if (raw_length < offset || le32_at(place) != ACL_DISK_VERSION)
        return -EUCLEAN;
    if (size > 0 && size < length)
        return -ERANGE;
    if (size > 0)
        memcpy(output, &interface_header, sizeof(interface_header));
    while (offset < raw_length) {
        struct disk_acl_entry entry;
        size_t bytes = read_entry(place + offset, raw_length - offset, &entry);
        if (bytes == 0)
            return -EUCLEAN;
        if (size > 0) {
            if (size - length < sizeof(entry))
                return -ERANGE;
            memcpy(output + length, &entry, sizeof(entry));
        }
        offset += bytes;
        length += sizeof(entry);
    }
    return (int64_t)length;
}

/* The order of entries: each tag has to come at this stage, and leads to this or the next. */
static int stage_of(uint16_t tag)
{
    switch (tag) {
    case ACL_TAG_USER_OBJ:
        return 1;
    case ACL_TAG_USER:
        return 2;
    case ACL_TAG_GROUP_OBJ:
        return 3;
    case ACL_TAG_GROUP:
        return 4;
    case ACL_TAG_MASK:
        return 5;
    case ACL_TAG_OTHER:
        return 6;
    default:
        return 0;
    }
}

static bool is_named(uint16_t tag)
{
    return tag == ACL_TAG_USER || tag == ACL_TAG_GROUP;
}

static bool is_acl_valid(const struct disk_acl_entry *entries, size_t count)
{
    unsigned int seen = 0;
    int stage = 0;

    for (size_t i = 0; i < count; i++) {
        uint16_t tag = le16_get(entries[i].tag);
        int next = stage_of(tag);
        if (next == 0 || next < stage || (next == stage && !is_named(tag)))
            return false;
        if (le16_get(entries[i].permissions) > ACL_PERMISSIONS)
            return false;
        if (is_named(tag) && le32_get(entries[i].id) == ACL_UNDEFINED_ID)
            return false;
        seen |= tag;
        stage = next;
    }
    const unsigned int always = ACL_TAG_USER_OBJ | ACL_TAG_GROUP_OBJ | ACL_TAG_OTHER;
    bool needs_mask = (seen & (ACL_TAG_USER | ACL_TAG_GROUP)) != 0;
    return (seen & always) == always && (!needs_mask || (seen & ACL_TAG_MASK) != 0);
}

int64_t acl_to_disk(const void *buffer, size_t length, void *raw, size_t size)
{
    const struct disk_acl_header disk_header = {le32_make(ACL_DISK_VERSION)};
    const struct disk_acl_entry *entries =
        (const void *)((const uint8_t *)buffer + sizeof(struct disk_acl_header));
    uint8_t *output = raw;
    size_t used = sizeof(disk_header);

    if (length < sizeof(disk_header) || le32_at(buffer) != ACL_INTERFACE_VERSION ||
        (length - sizeof(disk_header)) % sizeof(*entries) != 0)
        return -EINVAL;
    size_t count = (length - sizeof(disk_header)) / sizeof(*entries);
    if (count == 0)
        return 0;
    if (!is_acl_valid(entries, count))
        return -EINVAL;
    if (size > 0 && size < used)
        return -ERANGE;
    if (size > 0)
        memcpy(output, &disk_header, sizeof(disk_header));
    for (size_t i = 0; i < count; i++) {
        size_t bytes = is_named(le16_get(entries[i].tag)) ? sizeof(struct disk_acl_entry)
                                                          : sizeof(struct disk_acl_short_entry);
        if (size > 0 && size - used < bytes)
            return -ERANGE;
        if (size > 0)
            memcpy(output + used, &entries[i], bytes);
        used += bytes;
    }
    return (int64_t)used;
}
