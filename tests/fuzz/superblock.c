/* SPDX-License-Identifier: MIT */
/*
 * Superblock and group descriptors: whatever passes the superblock's check must carry the
 * arithmetic that the layers above do with it.
 */
#include <stdlib.h>
#include <string.h>

#include "format/group.h"
#include "fuzz.h"

static void check_group(const struct superblock *sb, uint32_t group, const uint8_t *data,
                        size_t size)
{
    uint8_t raw[1024];
    struct group_descriptor descriptor;
    uint32_t offset;

    FUZZ_REQUIRE(group_first_block(sb, group) < sb->block_count);
    FUZZ_REQUIRE(group_block_count(sb, group) <= sb->blocks_per_group);
    group_descriptor_block(sb, group, 0, &offset);
    FUZZ_REQUIRE(offset + sb->descriptor_bytes <= sb->block_bytes);
    group_descriptor_block(sb, group, sb->group_count - 1, &offset);
    group_base_metadata_blocks(sb, group);
    fuzz_take(&data, &size, raw, sizeof(raw));
    uint8_t *exact = malloc(sb->descriptor_bytes);
    memcpy(exact, raw, sb->descriptor_bytes);
    group_descriptor_checksum_matches(sb, group, exact);
    if (group_descriptor_parse(sb, group, exact, &descriptor) == NULL) {
        FUZZ_REQUIRE(descriptor.inode_table + sb->inode_table_blocks <= sb->block_count);
        FUZZ_REQUIRE(descriptor.block_bitmap < sb->block_count);
        FUZZ_REQUIRE(descriptor.inode_bitmap < sb->block_count);
        FUZZ_REQUIRE(descriptor.unused_inodes <= sb->inodes_per_group);
    }
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *raw = malloc(SUPERBLOCK_BYTES);
    uint32_t device_mebibytes = 0;
    struct superblock sb;
    char names[64];

    fuzz_take(&data, &size, raw, SUPERBLOCK_BYTES);
    fuzz_take(&data, &size, &device_mebibytes, sizeof(device_mebibytes));
    superblock_has_magic(raw);
    superblock_checksum_matches(raw);
    if (superblock_parse(raw, (uint64_t)device_mebibytes << 20, &sb) == NULL) {
        FUZZ_REQUIRE(sb.inode_bytes >= 128 && sb.inode_bytes <= sb.block_bytes);
        FUZZ_REQUIRE((uint64_t)sb.group_count * sb.inodes_per_group == sb.inode_count);
        FUZZ_REQUIRE(sb.block_count <= (uint64_t)INT64_MAX / sb.block_bytes);
        FUZZ_REQUIRE(sb.descriptors_per_block > 0 && sb.inodes_per_block > 0);
        superblock_unsupported_features(&sb, names, sizeof(names));
        superblock_unwritable_features(&sb, names, 1);
        feature_list_names(FEATURE_SET_COMPAT, sb.compat, names, sizeof(names));
        check_group(&sb, 0, data, size);
        check_group(&sb, sb.group_count / 2, data, size);
        check_group(&sb, sb.group_count - 1, data, size);
    }
    superblock_mark_recovered(raw, size % 2 != 0);
    free(raw);
    return 0;
}
