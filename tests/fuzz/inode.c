/* SPDX-License-Identifier: MIT */
/* Inodes, and the extended attributes behind their fields. */
#include "format/inode.h"

#include <stdlib.h>
#include <string.h>

#include "format/extent.h"
#include "format/xattr.h"
#include "fuzz.h"

static void walk_attributes(const struct superblock *sb, const uint8_t *raw,
                            const struct inode_fields *fields)
{
    struct xattr_area area;
    struct xattr_view view;
    const char *reason;

    if (!xattr_inode_area(sb, raw, fields->extra_isize, &area))
        return;
    const void *position = area.entries;
    while (xattr_next(sb, &area, position, &view, &reason) > 0) {
        fuzz_touch(view.name, view.name_length);
        if (view.value != NULL)
            fuzz_touch(view.value, view.value_bytes);
        position = view.following;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct inode_fields fields;
    struct superblock sb;
    uint32_t choices, ino;

    fuzz_take(&data, &size, &choices, sizeof(choices));
    fuzz_take(&data, &size, &ino, sizeof(ino));
    fuzz_make_superblock(choices, &sb);
    uint8_t *raw = malloc(sb.inode_bytes);
    fuzz_take(&data, &size, raw, sb.inode_bytes);
    inode_checksum_matches(&sb, ino, raw);
    if (inode_parse(&sb, raw, &fields) == NULL) {
        FUZZ_REQUIRE(fields.size <= INT64_MAX);
        FUZZ_REQUIRE(fields.extra_isize <= sb.inode_bytes - 128);
        FUZZ_REQUIRE(fields.access_time.tv_nsec < 1000000000);
        FUZZ_REQUIRE(!inode_is_fast_symlink(&sb, &fields) || fields.size < INODE_BLOCK_BYTES);
        walk_attributes(&sb, raw, &fields);
        extent_node_check(&sb, fields.block, INODE_BLOCK_BYTES, -1);
    }
    free(raw);
    return 0;
}
