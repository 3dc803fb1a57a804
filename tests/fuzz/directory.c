/* SPDX-License-Identifier: MIT */
/* Blocks of directories: rows of entries, and the nodes of the hash index. */
#include <stdlib.h>

#include "format/casefold.h"
#include "format/dirent.h"
#include "fuzz.h"

static void read_entries(const struct superblock *sb, const uint8_t *block, size_t size,
                         bool has_stored_hash)
{
    struct dirent_view entry;

    for (size_t offset = 0; offset < size; offset += entry.record_bytes) {
        struct htree_hash hash;
        char folded[1024];

        if (dirent_read(sb, block, size, offset, has_stored_hash, &entry) != NULL)
            return;
        FUZZ_REQUIRE(entry.record_bytes >= 8 && entry.record_bytes <= size - offset);
        if (entry.ino == 0)
            continue;
        FUZZ_REQUIRE(entry.ino <= sb->inode_count && entry.name_length > 0);
        fuzz_touch(entry.name, entry.name_length);
        dirent_name_is_valid(&entry);
        for (uint8_t version = 0; version < 8; version++)
            htree_hash_name(sb, version, entry.name, entry.name_length, &hash);
        int length = casefold_name(entry.name, entry.name_length, folded, sizeof(folded));
        FUZZ_REQUIRE(length <= (int)sizeof(folded));
        if (length > 0)
            fuzz_touch(folded, (size_t)length);
    }
}

static void read_index(const struct superblock *sb, const uint8_t *block, uint64_t blocks,
                       bool is_root)
{
    struct htree_root root = {0};
    const char *reason = is_root ? htree_root_check(sb, block, blocks, &root)
                                 : htree_node_check(sb, block, blocks);

    if (reason != NULL)
        return;
    unsigned int count = htree_count(block, is_root);
    FUZZ_REQUIRE(count > 0);
    FUZZ_REQUIRE(root.indirect_levels < HTREE_MAX_LEVELS);
    for (unsigned int i = 0; i < count; i++) {
        struct htree_entry entry = htree_entry_at(block, is_root, i);

        FUZZ_REQUIRE(entry.block < blocks);
        FUZZ_REQUIRE(htree_find(block, is_root, entry.hash) < count);
    }
    FUZZ_REQUIRE(htree_find(block, is_root, UINT32_MAX) < count);
    FUZZ_REQUIRE(htree_find(block, is_root, 0) < count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct superblock sb;
    uint32_t choices;

    fuzz_take(&data, &size, &choices, sizeof(choices));
    fuzz_make_superblock(choices, &sb);
    uint8_t *block = malloc(sb.block_bytes);
    fuzz_take(&data, &size, block, sb.block_bytes);
    read_entries(&sb, block, sb.block_bytes, (choices >> 16 & 1) != 0);
    dirent_block_checksum_matches(&sb, choices, block);
    for (int is_root = 0; is_root <= 1; is_root++) {
        read_index(&sb, block, (choices >> 17 & 1) != 0 ? UINT32_MAX : 64, is_root != 0);
        htree_node_checksum_matches(&sb, choices, block, is_root != 0);
    }
    free(block);

    /* Inline directories have areas of any size. */
    size_t area_bytes = (choices >> 18 & 0xff) < size ? choices >> 18 & 0xff : size;
    uint8_t *area = malloc(area_bytes > 0 ? area_bytes : 1);
    fuzz_take(&data, &size, area, area_bytes);
    read_entries(&sb, area, area_bytes, false);
    free(area);
    return 0;
}
