/* SPDX-License-Identifier: MIT */
/* Nodes of the extent tree, in a block and in an inode. */
#include "format/extent.h"

#include <stdlib.h>

#include "fuzz.h"

static void check_leaf(const struct superblock *sb, const void *node, unsigned int count)
{
    uint64_t free_from = 0;

    for (unsigned int i = 0; i < count; i++) {
        struct extent extent = extent_at(node, i);

        FUZZ_REQUIRE(extent.length_blocks > 0 && extent.length_blocks <= EXTENT_MAX_WRITTEN);
        FUZZ_REQUIRE(extent.file_block >= free_from);
        FUZZ_REQUIRE(extent.disk_block + extent.length_blocks <= sb->block_count);
        free_from = (uint64_t)extent.file_block + extent.length_blocks;
        FUZZ_REQUIRE(extent_find(node, extent.file_block) == (int)i);
    }
}

static void check_node(const struct superblock *sb, const void *node, size_t size, int depth)
{
    if (extent_node_check(sb, node, size, depth) != NULL)
        return;
    struct extent_header header = extent_node_header(node);

    extent_find(node, 0);
    extent_find(node, UINT32_MAX);
    if (header.depth == 0) {
        check_leaf(sb, node, header.entry_count);
        return;
    }
    FUZZ_REQUIRE(header.depth <= EXTENT_MAX_DEPTH && header.entry_count > 0);
    for (unsigned int i = 0; i < header.entry_count; i++) {
        struct extent_index index = extent_index_at(node, i);

        FUZZ_REQUIRE(index.disk_block < sb->block_count);
        FUZZ_REQUIRE(extent_find(node, index.file_block) == (int)i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct superblock sb;
    uint32_t choices;

    fuzz_take(&data, &size, &choices, sizeof(choices));
    fuzz_make_superblock(choices, &sb);
    size_t node_bytes = (choices >> 16 & 1) != 0 ? 60 : sb.block_bytes;
    uint8_t *node = malloc(node_bytes);
    fuzz_take(&data, &size, node, node_bytes);
    check_node(&sb, node, node_bytes, (int)((choices >> 17 & 7) % 7) - 1);
    if (node_bytes == sb.block_bytes && extent_node_check(&sb, node, node_bytes, -1) == NULL)
        extent_node_checksum_matches(&sb, choices, node);
    free(node);
    return 0;
}
