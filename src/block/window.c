/* SPDX-License-Identifier: MIT */
/*
 * Works out which bytes of an image a device shows.
 *
 * Devices add the window's offset to each request themselves, so a window costs them nothing else.
 * Partition tables are read by libblkid, which only reads and takes any file descriptor. A file
 * does not say what its sector size is, so a GPT is looked for with 512 and then 4096 bytes.
 * Callers: the file and memory devices.
 */
#include "block/window.h"

#include <blkid/blkid.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TABLE_SECTOR_BYTES 512u /* libblkid's unit, whatever the sector size is */
#define MAX_LISTED         64

/* Narrows the window to a part of itself; false if the part does not fit. */
static bool narrow(struct window *window, uint64_t offset_bytes, uint64_t size_bytes)
{
    if (offset_bytes > window->size_bytes)
        return false;
    if (size_bytes == WINDOW_REST)
        size_bytes = window->size_bytes - offset_bytes;
    if (size_bytes > window->size_bytes - offset_bytes)
        return false;
    window->offset_bytes += offset_bytes;
    window->size_bytes = size_bytes;
    return true;
}

/* The numbers of the partitions there are, for the message that the wanted one is not among them.
 */
static void list_numbers(blkid_partlist list, char *text, size_t size)
{
    int count = blkid_partlist_numof_partitions(list);
    size_t length = 0;

    snprintf(text, size, "none");
    for (int i = 0; i < count && i < MAX_LISTED && length < size; i++) {
        blkid_partition entry = blkid_partlist_get_partition(list, i);
        int number = entry == NULL ? -1 : blkid_partition_get_partno(entry);
        int added = snprintf(text + length, size - length, "%s%d", length == 0 ? "" : ", ", number);

        if (added < 0)
            return;
        length += (size_t)added;
    }
}

static int take_partition(blkid_partlist list, const char *path, uint64_t number,
                          const struct log *log, struct window *window)
{
    blkid_partition entry = blkid_partlist_get_partition_by_partno(list, (int)number);
    uint64_t start, size;
    char numbers[160];

    if (entry == NULL) {
        list_numbers(list, numbers, sizeof(numbers));
        log_error(log, "%s: has no partition %" PRIu64 "; there are: %s", path, number, numbers);
        return -EINVAL;
    }
    start = (uint64_t)blkid_partition_get_start(entry);
    size = (uint64_t)blkid_partition_get_size(entry);
    if (start > INT64_MAX / TABLE_SECTOR_BYTES || size > INT64_MAX / TABLE_SECTOR_BYTES ||
        !narrow(window, start * TABLE_SECTOR_BYTES, size * TABLE_SECTOR_BYTES)) {
        log_error(log,
                  "%s: partition %" PRIu64 " (%" PRIu64 " sectors from %" PRIu64
                  ") reaches past the end of the image",
                  path, number, size, start);
        return -EINVAL;
    }
    return 0;
}

/* Returns 1 if the image has no partition table when seen with this sector size. */
static int find_partition(const struct host_file *file, const char *path, uint64_t number,
                          uint32_t sector_bytes, const struct log *log, struct window *window)
{
    blkid_probe probe = blkid_new_probe();
    blkid_partlist list = NULL;
    int result = 1;

    if (probe == NULL)
        return -ENOMEM;
    if (blkid_probe_set_device(probe, file->fd, 0, (blkid_loff_t)file->size_bytes) != 0 ||
        blkid_probe_set_sectorsize(probe, sector_bytes) != 0 ||
        blkid_probe_enable_superblocks(probe, 0) != 0 ||
        blkid_probe_enable_partitions(probe, 1) != 0) {
        log_error(log, "%s: the partition table cannot be read", path);
        result = -EIO;
        goto out;
    }
    list = blkid_probe_get_partitions(probe);
    if (list != NULL && blkid_partlist_numof_partitions(list) > 0)
        result = take_partition(list, path, number, log, window);
out:
    blkid_free_probe(probe);
    return result;
}

static int enter_partition(const struct host_file *file, const char *path, uint64_t number,
                           const struct log *log, struct window *window)
{
    uint32_t sector = MAX(file->sector_bytes, 512u);
    int result = find_partition(file, path, number, sector, log, window);

    if (result > 0 && !file->is_block_device)
        result = find_partition(file, path, number, 4096, log, window);
    if (result > 0) {
        log_error(log, "%s: has no partition table", path);
        result = -EINVAL;
    }
    return result;
}

int window_find(const struct host_file *file, const char *path,
                const struct window_options *options, const struct log *log, struct window *window)
{
    int error = 0;

    *window = (struct window){.size_bytes = file->size_bytes};
    if (options->partition != 0)
        error = enter_partition(file, path, options->partition, log, window);
    if (error != 0)
        return error;
    if (!narrow(window, options->offset_bytes, options->size_bytes)) {
        log_error(log, "%s: offset or size goes past the end, which is at %" PRIu64 " bytes", path,
                  window->size_bytes);
        return -EINVAL;
    }
    return 0;
}
