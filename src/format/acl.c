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
