/* SPDX-License-Identifier: MIT */
/*
 * The file device: a regular file or block device of the host, or a window of one.
 *
 * An aligned read or write is one preadv2 or pwritev2 in the caller's thread, on the caller's
 * buffers; a transfer that the host cuts short is continued. Flush is fdatasync, FUA is RWF_DSYNC.
 *
 * Direct I/O needs all of the window, its last block too, on the alignment that the host asks for.
 * A window that does not lie so (an image of odd size, a partition at sector 63 of a disk with
 * sectors of 4 KiB) is read and written through the page cache instead: mixing both kinds on one
 * file would leave it to the host to keep them coherent.
 * Invariant: everything in struct file_device is fixed after the open. Locks: none.
 */
#include "block/file_device.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "block/spec.h"
#include "block/window.h"

static struct file_device *to_file(struct device *device)
{
    return container_of(device, struct file_device, device);
}

int file_device_report(const struct file_device *file, enum device_operation operation,
                       uint64_t offset_bytes, int error)
{
    static const char *const names[] = {[DEVICE_READ] = "read",
                                        [DEVICE_WRITE] = "write",
                                        [DEVICE_FLUSH] = "flush",
                                        [DEVICE_DISCARD] = "discard"};

    log_error(file->device.log, "%s: %s at byte %" PRIu64 " failed: %s", file->path,
              names[operation], file->offset_bytes + offset_bytes, strerrordesc_np(-error));
    return error;
}

static ssize_t transfer_once(const struct file_device *file, enum device_operation operation,
                             const struct iovec *iov, int iov_count, uint64_t offset_bytes,
                             unsigned int flags)
{
    off_t place = (off_t)(file->offset_bytes + offset_bytes);

    if (operation == DEVICE_READ)
        return preadv2(file->file.fd, iov, iov_count, place, 0);
    return pwritev2(file->file.fd, iov, iov_count, place,
                    (flags & DEVICE_FUA) != 0 ? RWF_DSYNC : 0);
}

/*
 * Continues a transfer. Where it stopped inside an element, the rest of that one goes first, alone;
 * then the whole elements behind it. A direct transfer that stopped off the alignment steps back to
 * it, and fails if that leaves no progress.
 */
int file_device_transfer(struct file_device *file, enum device_operation operation,
                         const struct iovec *iov, int iov_count, uint64_t offset_bytes,
                         unsigned int flags, uint64_t done)
{
    uint64_t alignment = file->device.limits.offset_alignment;
    uint64_t element_start = 0; /* in the transfer */

    done = ROUND_DOWN(done, alignment);
    while (iov_count > 0) {
        struct iovec rest;
        const struct iovec *now = iov;
        int now_count = iov_count;
        ssize_t count;

        if (done - element_start >= iov->iov_len) {
            element_start += iov->iov_len;
            iov++;
            iov_count--;
            continue;
        }
        if (done > element_start) {
            rest.iov_base = (char *)iov->iov_base + (done - element_start);
            rest.iov_len = iov->iov_len - (size_t)(done - element_start);
            now = &rest;
            now_count = 1;
        }
        count = transfer_once(file, operation, now, now_count, offset_bytes + done, flags);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return file_device_report(file, operation, offset_bytes + done, -errno);
        if (ROUND_DOWN((uint64_t)count, alignment) == 0)
            return file_device_report(file, operation, offset_bytes + done, -EIO);
        done += ROUND_DOWN((uint64_t)count, alignment);
    }
    return 0;
}

static uint64_t vector_length(const struct iovec *iov, int iov_count)
{
    uint64_t length = 0;

    for (int i = 0; i < iov_count; i++)
        length += iov[i].iov_len;
    return length;
}

/* The first attempt is made apart from the continuation, to keep the common path short. */
static int transfer(struct device *device, enum device_operation operation, const struct iovec *iov,
                    int iov_count, uint64_t offset_bytes, unsigned int flags)
{
    struct file_device *file = to_file(device);
    ssize_t count = transfer_once(file, operation, iov, iov_count, offset_bytes, flags);

    if (count > 0 && (uint64_t)count == vector_length(iov, iov_count))
        return 0;
    if (count < 0 && errno != EINTR)
        return file_device_report(file, operation, offset_bytes, -errno);
    return file_device_transfer(file, operation, iov, iov_count, offset_bytes, flags,
                                count < 0 ? 0 : (uint64_t)count);
}

static int file_readv(struct device *device, const struct iovec *iov, int iov_count,
                      uint64_t offset)
{
    return transfer(device, DEVICE_READ, iov, iov_count, offset, 0);
}

static int file_writev(struct device *device, const struct iovec *iov, int iov_count,
                       uint64_t offset, unsigned int flags)
{
    return transfer(device, DEVICE_WRITE, iov, iov_count, offset, flags);
}

static int file_flush(struct device *device)
{
    struct file_device *file = to_file(device);

    while (fdatasync(file->file.fd) != 0)
        if (errno != EINTR)
            return file_device_report(file, DEVICE_FLUSH, 0, -errno);
    return 0;
}

/* A block device takes whole sectors only, so the parts of sectors at the ends stay as they are. */
static int discard_sectors(struct file_device *file, uint64_t place, uint64_t length)
{
    uint64_t sector = file->file.sector_bytes;
    uint64_t range[2] = {ROUND_UP(place, sector), ROUND_DOWN(place + length, sector)};

    if (range[0] >= range[1])
        return 0;
    range[1] -= range[0];
    return ioctl(file->file.fd, BLKDISCARD, range) == 0 ? 0 : -errno;
}

static int file_discard(struct device *device, uint64_t offset, uint64_t length)
{
    struct file_device *file = to_file(device);
    uint64_t place = file->offset_bytes + offset;
    int error;

    do {
        if (file->file.is_block_device)
            error = discard_sectors(file, place, length);
        else
            error = fallocate(file->file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              (off_t)place, (off_t)length) == 0
                        ? 0
                        : -errno;
    } while (error == -EINTR);
    if (error == -ENOSYS || error == -ENOTTY || error == -EOPNOTSUPP)
        return -EOPNOTSUPP;
    return error == 0 ? 0 : file_device_report(file, DEVICE_DISCARD, offset, error);
}

static void file_close(struct device *device)
{
    struct file_device *file = to_file(device);

    host_file_close(&file->file);
    free(file->path);
    free(file);
}

static const struct device_ops file_ops = {
    .name = "file",
    .readv = file_readv,
    .writev = file_writev,
    .flush = file_flush,
    .discard = file_discard,
    .close = file_close,
    .queue_open = file_queue_open,
};

/*
 * Decides between direct I/O and the page cache, and sets the alignment accordingly. `wanted` is
 * -1, 0 or 1 as in the open options.
 */
static int choose_direct(struct file_device *file, const struct device_open_options *options,
                         int wanted)
{
    struct device_limits *limits = &file->device.limits;
    struct host_file_direct direct;
    const char *problem = NULL;
    int error;

    limits->offset_alignment = 1;
    limits->memory_alignment = 1;
    if (wanted == 0)
        return 0;
    direct = host_file_direct(&file->file);
    if (direct.offset_alignment == 0)
        problem = "the host does not support it here";
    else if (((file->offset_bytes | limits->size_bytes) & (direct.offset_alignment - 1)) != 0)
        problem = "the image's size or offset is not a multiple of its alignment";
    else if (wanted < 0 && !direct.is_worthwhile)
        problem = "the image is in the host's memory";
    else if (wanted < 0 && options->min_offset_alignment_wanted != 0 &&
             direct.offset_alignment > options->min_offset_alignment_wanted)
        problem = "its alignment is too coarse";
    if (problem == NULL) {
        error = host_file_set_direct(&file->file, true);
        if (error == 0) {
            limits->offset_alignment = direct.offset_alignment;
            limits->memory_alignment = direct.memory_alignment;
            limits->is_direct = true;
            return 0;
        }
        problem = strerrordesc_np(-error);
    }
    if (wanted > 0) {
        log_error(file->device.log, "%s: direct I/O is not possible: %s (alignment %" PRIu32 ")",
                  file->path, problem, direct.offset_alignment);
        return -EINVAL;
    }
    log_debug(file->device.log, "%s: no direct I/O: %s (alignment %" PRIu32 ")", file->path,
              problem, direct.offset_alignment);
    return 0;
}

struct file_options {
    struct window_options window;
    int direct;
};

static const struct spec_choice direct_choices[] = {{"auto", -1}, {"on", 1}, {"off", 0}, {NULL, 0}};

static const struct spec_key file_keys[] = {
    {.name = "offset",
     .type = SPEC_SIZE,
     .offset = offsetof(struct file_options, window.offset_bytes)},
    {.name = "size",
     .type = SPEC_SIZE,
     .offset = offsetof(struct file_options, window.size_bytes),
     .min = 1},
    {.name = "partition",
     .type = SPEC_NUMBER,
     .offset = offsetof(struct file_options, window.partition),
     .min = 1,
     .max = 65535},
    {.name = "direct",
     .type = SPEC_CHOICE,
     .offset = offsetof(struct file_options, direct),
     .choices = direct_choices},
};

static const struct spec_table file_table = {"file", file_keys, ARRAY_LENGTH(file_keys)};

int file_device_open_spec(const char *path, const struct spec_part *keys,
                          const struct device_open_options *options, struct device **device)
{
    struct file_options wanted = {.window = {.size_bytes = WINDOW_REST}, .direct = options->direct};
    struct file_device *file = NULL;
    struct window window;
    int error = spec_parse_keys(keys, &file_table, &wanted, options->log);

    if (error != 0)
        return error;
    file = calloc(1, sizeof(*file));
    if (file == NULL)
        return -ENOMEM;
    file->file.fd = -1;
    file->path = strdup(path);
    if (file->path == NULL) {
        error = -ENOMEM;
        goto out;
    }
    error = host_file_open(path, options->is_writable, options->log, &file->file);
    if (error == 0)
        error = window_find(&file->file, path, &wanted.window, options->log, &window);
    if (error != 0)
        goto out;
    file->offset_bytes = window.offset_bytes;
    file->device.ops = &file_ops;
    file->device.log = options->log;
    file->device.limits = (struct device_limits){.size_bytes = window.size_bytes,
                                                 .max_iov_count = IOV_MAX,
                                                 .is_read_only = !options->is_writable,
                                                 .has_discard = options->is_writable};
    error = choose_direct(file, options, wanted.direct);
out:
    if (error != 0) {
        if (file->file.fd >= 0)
            host_file_close(&file->file);
        free(file->path);
        free(file);
        return error;
    }
    *device = &file->device;
    return 0;
}
