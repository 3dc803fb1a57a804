/* SPDX-License-Identifier: MIT */
/*
 * The memory device: zeros of a given size, or a private copy of an image.
 *
 * The memory is an anonymous mapping, so that a page which was never written costs nothing; holes
 * and zeros of an image are not copied into it. Requests that overlap are the caller's to order, as
 * on a disk. Locks: none.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "block/device.h"
#include "block/host_file.h"
#include "block/spec.h"
#include "block/window.h"

#define COPY_BYTES 65536u

struct memory_device {
    struct device device;
    char *bytes;          /* [immutable] the mapping */
    size_t mapping_bytes; /* [immutable] */
};

static struct memory_device *to_memory(struct device *device)
{
    return container_of(device, struct memory_device, device);
}

static int memory_readv(struct device *device, const struct iovec *iov, int iov_count,
                        uint64_t offset)
{
    const char *from = to_memory(device)->bytes + offset;

    for (int i = 0; i < iov_count; i++) {
        if (iov[i].iov_len > 0)
            memcpy(iov[i].iov_base, from, iov[i].iov_len);
        from += iov[i].iov_len;
    }
    return 0;
}

static int memory_writev(struct device *device, const struct iovec *iov, int iov_count,
                         uint64_t offset, unsigned int flags)
{
    char *to = to_memory(device)->bytes + offset;

    (void)flags;
    for (int i = 0; i < iov_count; i++) {
        if (iov[i].iov_len > 0)
            memcpy(to, iov[i].iov_base, iov[i].iov_len);
        to += iov[i].iov_len;
    }
    return 0;
}

/* Zeros the range, and gives the whole pages in it back to the host. */
static int memory_discard(struct device *device, uint64_t offset, uint64_t length)
{
    struct memory_device *memory = to_memory(device);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t end = offset + length;
    uint64_t first_page = MIN(ROUND_UP(offset, page), end);
    uint64_t last_page = MAX(ROUND_DOWN(end, page), first_page);

    memset(memory->bytes + offset, 0, first_page - offset);
    memset(memory->bytes + last_page, 0, end - last_page);
    if (last_page > first_page &&
        madvise(memory->bytes + first_page, last_page - first_page, MADV_DONTNEED) != 0)
        memset(memory->bytes + first_page, 0, last_page - first_page);
    return 0;
}

static void memory_close(struct device *device)
{
    struct memory_device *memory = to_memory(device);

    munmap(memory->bytes, memory->mapping_bytes);
    free(memory);
}

static const struct device_ops memory_ops = {
    .name = "memory",
    .readv = memory_readv,
    .writev = memory_writev,
    .discard = memory_discard,
    .close = memory_close,
    .queue_open = inline_queue_open,
};

static int create(uint64_t size_bytes, const struct device_open_options *options,
                  struct memory_device **created)
{
    struct memory_device *memory = calloc(1, sizeof(*memory));
    void *bytes = MAP_FAILED;

    if (memory == NULL)
        return -ENOMEM;
    if (size_bytes > 0 && size_bytes <= SIZE_MAX / 2)
        bytes = mmap(NULL, (size_t)size_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) {
        log_error(options->log, "memory device: %" PRIu64 " bytes cannot be mapped", size_bytes);
        free(memory);
        return size_bytes == 0 ? -EINVAL : -ENOMEM;
    }
    memory->bytes = bytes;
    memory->mapping_bytes = (size_t)size_bytes;
    memory->device.ops = &memory_ops;
    memory->device.log = options->log;
    memory->device.limits = (struct device_limits){.size_bytes = size_bytes,
                                                   .offset_alignment = 1,
                                                   .memory_alignment = 1,
                                                   .max_iov_count = IOV_MAX,
                                                   .is_read_only = !options->is_writable,
                                                   .has_discard = options->is_writable};
    *created = memory;
    return 0;
}

static bool is_zero(const char *bytes, size_t length)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

/* Copies a range of the file to the same place of the window, but for pieces that are all zero. */
static int load_range(struct memory_device *memory, const struct host_file *file,
                      const struct window *window, uint64_t start, uint64_t end, char *buffer)
{
    while (start < end) {
        size_t wanted = (size_t)MIN(end - start, (uint64_t)COPY_BYTES);
        ssize_t count = pread(file->fd, buffer, wanted, (off_t)start);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : -EIO;
        if (!is_zero(buffer, (size_t)count))
            memcpy(memory->bytes + (start - window->offset_bytes), buffer, (size_t)count);
        start += (uint64_t)count;
    }
    return 0;
}

static int load(struct memory_device *memory, const struct host_file *file,
                const struct window *window)
{
    uint64_t place = window->offset_bytes;
    uint64_t end = place + window->size_bytes;
    char *buffer = malloc(COPY_BYTES);
    int error = buffer == NULL ? -ENOMEM : 0;

    while (error == 0 && place < end) {
        off_t data = lseek(file->fd, (off_t)place, SEEK_DATA);
        off_t hole = data < 0 ? -1 : lseek(file->fd, data, SEEK_HOLE);

        if (data < 0 && errno == ENXIO && !file->is_block_device)
            break;
        if (data < (off_t)place || hole <= data) {
            data = (off_t)place;
            hole = (off_t)end;
        }
        error = load_range(memory, file, window, MIN((uint64_t)data, end), MIN((uint64_t)hole, end),
                           buffer);
        place = (uint64_t)hole;
    }
    free(buffer);
    return error;
}

static int open_copy(const char *path, const struct window_options *wanted,
                     const struct device_open_options *options, struct memory_device **memory)
{
    struct host_file file;
    struct window window;
    int error = host_file_open(path, false, options->log, &file);

    if (error != 0)
        return error;
    error = window_find(&file, path, wanted, options->log, &window);
    if (error == 0)
        error = create(window.size_bytes, options, memory);
    if (error == 0) {
        error = load(*memory, &file, &window);
        if (error != 0) {
            log_error(options->log, "%s: cannot be copied to memory: %s", path,
                      strerrordesc_np(-error));
            memory_close(&(*memory)->device);
        }
    }
    host_file_close(&file);
    return error;
}

static const struct spec_key copy_keys[] = {
    {.name = "offset", .type = SPEC_SIZE, .offset = offsetof(struct window_options, offset_bytes)},
    {.name = "size",
     .type = SPEC_SIZE,
     .offset = offsetof(struct window_options, size_bytes),
     .min = 1},
    {.name = "partition",
     .type = SPEC_NUMBER,
     .offset = offsetof(struct window_options, partition),
     .min = 1,
     .max = 65535},
};

static const struct spec_table copy_table = {"memory (copy of an image)", copy_keys,
                                             ARRAY_LENGTH(copy_keys)};
static const struct spec_table zero_table = {"memory (of a given size)", NULL, 0};

int memory_device_open_spec(const char *place, const struct spec_part *keys,
                            const struct device_open_options *options, struct device **device)
{
    struct window_options window = {.size_bytes = WINDOW_REST};
    struct memory_device *memory = NULL;
    uint64_t size_bytes = 0;
    bool is_size = spec_parse_size(place, strlen(place), &size_bytes);
    int error = spec_parse_keys(keys, is_size ? &zero_table : &copy_table, &window, options->log);

    if (error == 0 && is_size)
        error = create(size_bytes, options, &memory);
    else if (error == 0)
        error = open_copy(place, &window, options, &memory);
    if (error == 0)
        *device = &memory->device;
    return error;
}
