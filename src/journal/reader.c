/* SPDX-License-Identifier: MIT */
/*
 * Read-ahead over the journal: a request brings the blocks that follow on the disk along.
 *
 * Invariant: an error of read-ahead never shows; the wanted block alone is tried again.
 * Locks: none; a reader belongs to one thread.
 * Callers: the scan, the revoke pass and the count of fast commits.
 */
#include "journal/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal/location.h"

#define READ_AHEAD_BYTES (256u * 1024u)
#define BUFFER_ALIGNMENT 4096u

int journal_reader_init(struct journal_reader *reader, const struct journal_location *location)
{
    uint32_t blocks = MAX(READ_AHEAD_BYTES / location->block_bytes, 1u);
    void *buffer;

    if (posix_memalign(&buffer, BUFFER_ALIGNMENT, (size_t)blocks * location->block_bytes) != 0)
        return -ENOMEM;
    *reader = (struct journal_reader){
        .location = location,
        .buffer = buffer,
        .capacity_blocks = blocks,
    };
    return 0;
}

void journal_reader_destroy(struct journal_reader *reader)
{
    free(reader->buffer);
    reader->buffer = NULL;
}

static int fill(struct journal_reader *reader, uint32_t journal_block)
{
    const struct journal_location *location = reader->location;
    uint32_t run;
    uint64_t disk_block = journal_location_find(location, journal_block, &run);
    uint64_t offset = disk_block * location->block_bytes;
    uint32_t count = MIN(MIN(run, location->block_count - journal_block), reader->capacity_blocks);
    int error;

    reader->block_count = 0;
    error = device_read(location->device, reader->buffer, (size_t)count * location->block_bytes,
                        offset);
    if (error != 0 && count > 1) {
        count = 1;
        error = device_read(location->device, reader->buffer, location->block_bytes, offset);
    }
    if (error != 0) {
        log_error(location->log, "journal: cannot read its block %u (disk block %llu): %s",
                  journal_block, (unsigned long long)disk_block, strerrordesc_np(-error));
        return error;
    }
    reader->first_block = journal_block;
    reader->block_count = count;
    return 0;
}

int journal_reader_get(struct journal_reader *reader, uint32_t journal_block, const uint8_t **data)
{
    if (journal_block >= reader->location->block_count)
        return -EUCLEAN;
    if (journal_block < reader->first_block ||
        journal_block - reader->first_block >= reader->block_count) {
        int error = fill(reader, journal_block);

        if (error != 0)
            return error;
    }
    *data = reader->buffer +
            (size_t)(journal_block - reader->first_block) * reader->location->block_bytes;
    return 0;
}
