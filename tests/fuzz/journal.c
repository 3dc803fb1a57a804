/* SPDX-License-Identifier: MIT */
/*
 * A whole journal in pieces on a memory device: its superblock, scan, revokes and replay, fast
 * commits, and writing home.
 */
#include <stdlib.h>
#include <string.h>

#include "format/journal.h"
#include "fuzz.h"
#include "journal/recovery.h"

#define DISK_BLOCKS     4096u
#define JOURNAL_BLOCKS  1536u /* enough for an area of fast commits */
#define CHECKSUM_OFFSET 0xfc
#define DISK_SPEC       "memory:8M"

/* Where the pieces of the journal begin on the disk, out of order. */
static const struct journal_extent pieces[] = {
    {.journal_block = 0, .length_blocks = 7, .disk_block = 2000},
    {.journal_block = 7, .length_blocks = 1, .disk_block = 40},
    {.journal_block = 8, .length_blocks = 100, .disk_block = 100},
    {.journal_block = 108, .length_blocks = JOURNAL_BLOCKS - 108, .disk_block = 2400},
};

static void write_journal(struct device *device, uint32_t block_bytes, const uint8_t *data,
                          size_t size)
{
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        size_t start = (size_t)pieces[i].journal_block * block_bytes;
        size_t length = (size_t)pieces[i].length_blocks * block_bytes;

        if (start >= size)
            return;
        length = length < size - start ? length : size - start;
        FUZZ_REQUIRE(
            device_write(device, data + start, length, pieces[i].disk_block * block_bytes, 0) == 0);
    }
}

/* Puts the right checksum into the journal's superblock, so that more of it is looked at. */
static void repair_superblock(struct device *device, uint32_t block_bytes)
{
    uint8_t raw[JOURNAL_SUPERBLOCK_BYTES];
    uint64_t offset = pieces[0].disk_block * block_bytes;

    FUZZ_REQUIRE(device_read(device, raw, sizeof(raw), offset) == 0);
    uint32_t checksum = journal_superblock_checksum(raw);
    for (int i = 0; i < 4; i++)
        raw[CHECKSUM_OFFSET + i] = (uint8_t)(checksum >> (24 - 8 * i));
    FUZZ_REQUIRE(device_write(device, raw, sizeof(raw), offset, 0) == 0);
}

static void check_replay(const struct journal_location *location,
                         const struct journal_replay *replay)
{
    for (size_t i = 0; i < replay->entry_count; i++) {
        const struct journal_replay_entry *entry = &replay->entries[i];

        FUZZ_REQUIRE(entry->disk_block < DISK_BLOCKS && entry->source_block < DISK_BLOCKS);
        FUZZ_REQUIRE(i == 0 || entry->disk_block > replay->entries[i - 1].disk_block);
        for (size_t k = 0; k < location->extent_count; k++)
            FUZZ_REQUIRE(entry->disk_block < pieces[k].disk_block ||
                         entry->disk_block >= pieces[k].disk_block + pieces[k].length_blocks);
    }
}

static void recover(const struct journal_location *location, bool writes)
{
    struct journal_superblock sb;
    struct journal_replay *replay;

    if (journal_read_superblock(location, &sb) != 0 || journal_scan(location, &sb, &replay) != 0)
        return;
    check_replay(location, replay);
    if (writes && journal_replay_apply(location, &sb, replay) == 0) {
        journal_replay_free(replay);
        FUZZ_REQUIRE(journal_read_superblock(location, &sb) == 0 && sb.start_block == 0);
        return;
    }
    journal_replay_free(replay);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct device_open_options options = {.is_writable = true};
    struct device *device;
    uint32_t choices;

    fuzz_take(&data, &size, &choices, sizeof(choices));
    uint32_t block_bytes = (choices & 1) != 0 ? 2048 : 1024;
    if (device_open(DISK_SPEC, &options, &device) != 0)
        return 0;
    struct journal_location location = {
        .device = device,
        .block_bytes = block_bytes,
        .block_count = JOURNAL_BLOCKS,
        .fs_block_count = DISK_BLOCKS,
        .fs_first_data_block = block_bytes == 1024 ? 1 : 0,
        .extents = pieces,
        .extent_count = sizeof(pieces) / sizeof(pieces[0]),
    };
    write_journal(device, block_bytes, data, size);
    if ((choices & 2) != 0)
        repair_superblock(device, block_bytes);
    recover(&location, (choices & 4) != 0);
    device_close(device);
    return 0;
}
