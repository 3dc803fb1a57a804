/* SPDX-License-Identifier: MIT */
/*
 * Counts the fast commits that are pending behind the log. They are not replayed here: who opens
 * the file system decides what to do about them.
 *
 * A fast commit is a row of tags from a head or from behind the tail before it, to a tail with the
 * sequence and the checksum of all of them; it may go on over blocks, a tag may not.
 * Invariant: each block of the area is read once; tags do not leave their block.
 * Locks: none. Callers: recovery.c.
 */
#include "format/crc.h"
#include "journal/scan.h"

struct fast_scan {
    uint32_t sequence;
    uint32_t crc;
    bool has_tail; /* the block just seen ended a fast commit */
};

/* Steps through a block's tags. False if the row of fast commits ends in it. */
static bool scan_fast_block(struct fast_scan *scan, const uint8_t *block, uint32_t block_bytes,
                            bool is_first)
{
    struct journal_fast_tag tag;
    uint32_t offset = 0;

    scan->has_tail = false;
    while (offset <= block_bytes - JOURNAL_FAST_TAG_BYTES) {
        if (!journal_fast_tag_parse(block, block_bytes, offset, &tag))
            return false;
        if (is_first && offset == 0 && tag.type != JOURNAL_FAST_TAG_HEAD)
            return false;
        if (tag.type == JOURNAL_FAST_TAG_HEAD && tag.sequence != scan->sequence)
            return false;
        scan->crc = crc32c(scan->crc, block + offset, tag.covered);
        if (tag.type == JOURNAL_FAST_TAG_TAIL) {
            if (tag.sequence != scan->sequence || tag.checksum != scan->crc)
                return false;
            scan->crc = 0;
            scan->has_tail = true;
        }
        offset += JOURNAL_FAST_TAG_BYTES + tag.length;
    }
    return true;
}

int journal_count_fast_commits(struct journal_reader *reader, const struct journal_superblock *sb,
                               uint32_t sequence, uint32_t *count)
{
    uint32_t first = sb->first_block + sb->log_blocks + 1;
    struct fast_scan scan = {.sequence = sequence};

    *count = 0;
    if (sb->fast_commit_blocks == 0)
        return 0;
    for (uint32_t block = first; block < sb->block_count; block++) {
        const uint8_t *data;
        bool goes_on;
        int error = journal_reader_get(reader, block, &data);

        if (error != 0)
            return error;
        goes_on = scan_fast_block(&scan, data, sb->block_bytes, block == first);
        if (scan.has_tail)
            *count = block - first + 1;
        if (!goes_on)
            break;
    }
    return 0;
}
