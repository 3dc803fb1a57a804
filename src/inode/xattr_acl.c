/* SPDX-License-Identifier: MIT */
/*
 * Access control lists and the permissions of inodes. The group's permissions are those of the mask
 * if there is one: it bounds what named users, named groups and the owning group have.
 *
 * Pure functions without locks, on lists that acl_to_disk found valid. Callers: fs.
 */
#include <string.h>

#include "base/byteorder.h"
#include "inode/xattr_edit.h"

#define ACL_HEADER_BYTES 4
#define OWNER_SHIFT      6
#define GROUP_SHIFT      3
#define OTHERS_SHIFT     0

enum acl_tag {
    ACL_TAG_OWNER = 0x01,
    ACL_TAG_OWNING_GROUP = 0x04,
    ACL_TAG_MASK = 0x10,
    ACL_TAG_OTHERS = 0x20,
};

struct acl_entry {
    le16 tag;
    le16 permissions;
    le32 id;
};
_Static_assert(sizeof(struct acl_entry) == 8, "ACL entry of the interface");

/* The entries that stand for permissions of the mode; `group` is the mask's where there is one. */
struct acl_core {
    struct acl_entry *owner, *group, *others;
    bool is_equivalent;
};

static struct acl_core core_of(void *acl, size_t size)
{
    struct acl_entry *entries = (void *)((uint8_t *)acl + ACL_HEADER_BYTES);
    size_t count = (size - ACL_HEADER_BYTES) / sizeof(*entries);
    struct acl_core core = {.is_equivalent = true};

    for (size_t i = 0; i < count; i++) {
        switch (le16_get(entries[i].tag)) {
        case ACL_TAG_OWNER:
            core.owner = &entries[i];
            break;
        case ACL_TAG_OWNING_GROUP:
            core.group = &entries[i];
            break;
        case ACL_TAG_MASK: /* comes behind the group's */
            core.group = &entries[i];
            core.is_equivalent = false;
            break;
        case ACL_TAG_OTHERS:
            core.others = &entries[i];
            break;
        default:
            core.is_equivalent = false;
            break;
        }
    }
    return core;
}

static uint32_t permissions_of(const struct acl_core *core)
{
    return (uint32_t)le16_get(core->owner->permissions) << OWNER_SHIFT |
           (uint32_t)le16_get(core->group->permissions) << GROUP_SHIFT |
           (uint32_t)le16_get(core->others->permissions) << OTHERS_SHIFT;
}

static void set_core(const struct acl_core *core, uint32_t permissions)
{
    core->owner->permissions = le16_make((uint16_t)(permissions >> OWNER_SHIFT & 7));
    core->group->permissions = le16_make((uint16_t)(permissions >> GROUP_SHIFT & 7));
    core->others->permissions = le16_make((uint16_t)(permissions >> OTHERS_SHIFT & 7));
}

uint32_t acl_permissions(const void *acl, size_t size, bool *is_equivalent)
{
    struct acl_core core = core_of((void *)(uintptr_t)acl, size);

    *is_equivalent = core.is_equivalent;
    return permissions_of(&core);
}

bool acl_restrict(void *acl, size_t size, uint32_t *mode)
{
    struct acl_core core = core_of(acl, size);

    *mode &= permissions_of(&core) | ~0777u;
    set_core(&core, *mode);
    return !core.is_equivalent;
}
