/* SPDX-License-Identifier: MIT */
/* Extended attributes in a block, and ACLs. */
#include "format/xattr.h"

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static void convert_acl(const void *raw, size_t raw_bytes)
{
    int64_t length = acl_from_disk(raw, raw_bytes, NULL, 0);

    if (length < 0)
        return;
    uint8_t *buffer = malloc((size_t)length + 1);
    FUZZ_REQUIRE(acl_from_disk(raw, raw_bytes, buffer, (size_t)length) == length);
    fuzz_touch(buffer, (size_t)length);
    if (length > 1)
        FUZZ_REQUIRE(acl_from_disk(raw, raw_bytes, buffer, (size_t)length - 1) < 0);
    free(buffer);
}

static void walk_area(const struct superblock *sb, const struct xattr_area *area)
{
    const void *position = area->entries;
    struct xattr_view view;
    const char *reason;
    bool is_whole_name;

    while (xattr_next(sb, area, position, &view, &reason) > 0) {
        FUZZ_REQUIRE((const uint8_t *)view.following > (const uint8_t *)position);
        FUZZ_REQUIRE((const uint8_t *)view.following <= (const uint8_t *)area->end);
        fuzz_touch(view.name, view.name_length);
        xattr_prefix(view.index, &is_whole_name);
        if (view.value != NULL) {
            fuzz_touch(view.value, view.value_bytes);
            convert_acl(view.value, view.value_bytes);
        }
        position = view.following;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct superblock sb;
    struct xattr_area area;
    uint32_t choices;
    char name[32];
    const char *rest;

    fuzz_take(&data, &size, &choices, sizeof(choices));
    fuzz_make_superblock(choices, &sb);
    fuzz_take(&data, &size, name, sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    xattr_split_name(name, &rest);
    uint8_t *block = malloc(sb.block_bytes);
    fuzz_take(&data, &size, block, sb.block_bytes);
    if (xattr_block_area(&sb, block, &area) == NULL) {
        walk_area(&sb, &area);
        xattr_block_checksum_matches(&sb, choices, block);
    }
    free(block);
    return 0;
}
