/* SPDX-License-Identifier: MIT */
/*
 * The calls that every device shares: checks of range and alignment, aligned bounce buffers for the
 * plain calls, and the bounding of queues by their depth.
 *
 * Invariant: an implementation sees only requests that lie inside the device, are aligned as its
 * limits ask, and are not empty. A size and an offset never overflow when they are added.
 * Locks: none. A queue belongs to one thread at a time, so its fields need none.
 * Callers: everything that stores blocks; the functions of queues are called by queues.
 */
#include "block/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BOUNCE_BYTES    (1024u * 1024u)
#define MAX_QUEUE_DEPTH 4096u

const struct device_limits *device_limits(const struct device *device)
{
    return &device->limits;
}

static bool is_inside(const struct device *device, uint64_t offset_bytes, uint64_t length)
{
    uint64_t size = device->limits.size_bytes;

    return offset_bytes <= size && length <= size - offset_bytes;
}

static int check_write(const struct device *device, uint64_t offset_bytes, uint64_t length)
{
    if (device->limits.is_read_only)
        return -EROFS;
    return is_inside(device, offset_bytes, length) ? 0 : -ENOSPC;
}

/* Checks the addresses and lengths of a vector, and adds up the lengths. */
static int check_vector(const struct device *device, const struct iovec *iov, int iov_count,
                        uint64_t offset_bytes, uint64_t *length)
{
    uint64_t offset_mask = device->limits.offset_alignment - 1;
    uint64_t memory_mask = device->limits.memory_alignment - 1;
    uint64_t all_offsets = offset_bytes;
    uint64_t all_addresses = 0;
    uint64_t sum = 0;

    if (iov_count < 0 || (uint32_t)iov_count > device->limits.max_iov_count)
        return -EINVAL;
    for (int i = 0; i < iov_count; i++) {
        if (iov[i].iov_len > (uint64_t)INT64_MAX - sum)
            return -EINVAL;
        sum += iov[i].iov_len;
        all_offsets |= iov[i].iov_len;
        all_addresses |= (uintptr_t)iov[i].iov_base;
    }
    if ((all_offsets & offset_mask) != 0 || (all_addresses & memory_mask) != 0)
        return -EINVAL;
    *length = sum;
    return 0;
}

int device_readv(struct device *device, const struct iovec *iov, int iov_count,
                 uint64_t offset_bytes)
{
    uint64_t length;
    int error = check_vector(device, iov, iov_count, offset_bytes, &length);

    if (error != 0)
        return error;
    if (!is_inside(device, offset_bytes, length))
        return -EIO;
    if (length == 0)
        return 0;
    return device->ops->readv(device, iov, iov_count, offset_bytes);
}

int device_writev(struct device *device, const struct iovec *iov, int iov_count,
                  uint64_t offset_bytes, unsigned int flags)
{
    uint64_t length;
    int error = check_vector(device, iov, iov_count, offset_bytes, &length);

    if (error == 0)
        error = check_write(device, offset_bytes, length);
    if (error != 0 || length == 0)
        return error;
    return device->ops->writev(device, iov, iov_count, offset_bytes, flags);
}

static bool is_aligned(const struct device *device, const void *buffer, size_t length,
                       uint64_t offset_bytes)
{
    return ((offset_bytes | length) & (device->limits.offset_alignment - 1)) == 0 &&
           ((uintptr_t)buffer & (device->limits.memory_alignment - 1)) == 0;
}

/*
 * A bounce buffer for one call. Its capacity is a multiple of the offset alignment, and no larger
 * than the call needs or than BOUNCE_BYTES (an alignment above that gets one block).
 */
static void *bounce_allocate(const struct device *device, uint64_t start, uint64_t end,
                             size_t *capacity)
{
    uint64_t alignment = device->limits.offset_alignment;
    uint64_t needed = ROUND_UP(end, alignment) - ROUND_DOWN(start, alignment);
    void *buffer = NULL;

    *capacity = (size_t)MIN(needed, MAX(alignment, (uint64_t)BOUNCE_BYTES));
    if (posix_memalign(&buffer, MAX(device->limits.memory_alignment, sizeof(void *)), *capacity) !=
        0)
        return NULL;
    return buffer;
}

static int bounce_read(struct device *device, char *buffer, size_t length, uint64_t offset_bytes)
{
    uint64_t alignment = device->limits.offset_alignment;
    uint64_t end = offset_bytes + length;
    size_t capacity;
    char *bounce = bounce_allocate(device, offset_bytes, end, &capacity);
    int error = bounce == NULL ? -ENOMEM : 0;

    while (error == 0 && offset_bytes < end) {
        uint64_t start = ROUND_DOWN(offset_bytes, alignment);
        uint64_t stop = MIN(start + capacity, ROUND_UP(end, alignment));
        size_t usable = (size_t)(MIN(stop, end) - offset_bytes);
        struct iovec iov = {.iov_base = bounce, .iov_len = (size_t)(stop - start)};

        error = device->ops->readv(device, &iov, 1, start);
        if (error != 0)
            break;
        memcpy(buffer, bounce + (offset_bytes - start), usable);
        buffer += usable;
        offset_bytes += usable;
    }
    free(bounce);
    return error;
}

int device_read(struct device *device, void *buffer, size_t length, uint64_t offset_bytes)
{
    struct iovec iov = {.iov_base = buffer, .iov_len = length};

    if (!is_inside(device, offset_bytes, length))
        return -EIO;
    if (length == 0)
        return 0;
    if (!is_aligned(device, buffer, length, offset_bytes))
        return bounce_read(device, buffer, length, offset_bytes);
    return device->ops->readv(device, &iov, 1, offset_bytes);
}

/* Reads the blocks of an aligned range that a write from `first` to `last` covers only in part. */
static int read_partial_blocks(struct device *device, char *bounce, uint64_t start, uint64_t stop,
                               uint64_t first, uint64_t last)
{
    uint64_t alignment = device->limits.offset_alignment;
    struct iovec iov = {.iov_base = bounce, .iov_len = (size_t)alignment};
    uint64_t last_block = stop - alignment;
    bool is_first_partial = first != start || last < start + alignment;
    bool is_last_partial = last != stop && (last_block != start || !is_first_partial);
    int error = 0;

    if (is_first_partial)
        error = device->ops->readv(device, &iov, 1, start);
    if (error == 0 && is_last_partial) {
        iov.iov_base = bounce + (last_block - start);
        error = device->ops->readv(device, &iov, 1, last_block);
    }
    return error;
}

static int bounce_write(struct device *device, const char *buffer, size_t length,
                        uint64_t offset_bytes, unsigned int flags)
{
    uint64_t alignment = device->limits.offset_alignment;
    uint64_t end = offset_bytes + length;
    size_t capacity;
    char *bounce = bounce_allocate(device, offset_bytes, end, &capacity);
    int error = bounce == NULL ? -ENOMEM : 0;

    while (error == 0 && offset_bytes < end) {
        uint64_t start = ROUND_DOWN(offset_bytes, alignment);
        uint64_t stop = MIN(start + capacity, ROUND_UP(end, alignment));
        size_t usable = (size_t)(MIN(stop, end) - offset_bytes);
        struct iovec iov = {.iov_base = bounce, .iov_len = (size_t)(stop - start)};

        error = read_partial_blocks(device, bounce, start, stop, offset_bytes,
                                    offset_bytes + usable);
        if (error != 0)
            break;
        memcpy(bounce + (offset_bytes - start), buffer, usable);
        error = device->ops->writev(device, &iov, 1, start, flags);
        buffer += usable;
        offset_bytes += usable;
    }
    free(bounce);
    return error;
}

int device_write(struct device *device, const void *buffer, size_t length, uint64_t offset_bytes,
                 unsigned int flags)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buffer, .iov_len = length};
    int error = check_write(device, offset_bytes, length);

    if (error != 0 || length == 0)
        return error;
    if (!is_aligned(device, buffer, length, offset_bytes))
        return bounce_write(device, buffer, length, offset_bytes, flags);
    return device->ops->writev(device, &iov, 1, offset_bytes, flags);
}

int device_flush(struct device *device)
{
    if (device->ops->flush == NULL || device->limits.is_read_only)
        return 0;
    return device->ops->flush(device);
}

static int check_discard(const struct device *device, uint64_t offset_bytes, uint64_t length_bytes)
{
    if (device->limits.is_read_only)
        return -EROFS;
    if (device->ops->discard == NULL || !device->limits.has_discard)
        return -EOPNOTSUPP;
    if (((offset_bytes | length_bytes) & (device->limits.offset_alignment - 1)) != 0)
        return -EINVAL;
    return check_write(device, offset_bytes, length_bytes);
}

int device_discard(struct device *device, uint64_t offset_bytes, uint64_t length_bytes)
{
    int error = check_discard(device, offset_bytes, length_bytes);

    if (error != 0 || length_bytes == 0)
        return error;
    return device->ops->discard(device, offset_bytes, length_bytes);
}

void device_close(struct device *device)
{
    if (device != NULL)
        device->ops->close(device);
}

/* ---- Queues --------------------------------------------------------------------------------- */

int device_queue_open(struct device *device, unsigned int depth, struct device_queue **queue)
{
    struct device_queue *opened = NULL;
    int error;

    if (depth == 0 || depth > MAX_QUEUE_DEPTH)
        return -EINVAL;
    if (device->ops->queue_open != NULL)
        error = device->ops->queue_open(device, depth, &opened);
    else
        error = thread_queue_open(device, depth, &opened);
    if (error != 0)
        return error;
    opened->device = device;
    opened->depth = depth;
    opened->under_way = 0;
    opened->is_reaping = false;
    opened->waiting_first = NULL;
    opened->waiting_last = NULL;
    *queue = opened;
    return 0;
}

static int check_request(const struct device *device, const struct device_request *request)
{
    uint64_t length = 0;
    int error;

    switch (request->operation) {
    case DEVICE_FLUSH:
        return 0;
    case DEVICE_DISCARD:
        error = check_discard(device, request->offset_bytes, request->length_bytes);
        if (error == 0 && request->length_bytes == 0)
            error = -EINVAL;
        return error;
    case DEVICE_READ:
    case DEVICE_WRITE:
        break;
    default:
        return -EINVAL;
    }
    error = check_vector(device, request->iov, request->iov_count, request->offset_bytes, &length);
    if (error != 0)
        return error;
    if (length == 0 || length != request->length_bytes)
        return -EINVAL;
    if (request->operation == DEVICE_WRITE)
        return check_write(device, request->offset_bytes, length);
    return is_inside(device, request->offset_bytes, length) ? 0 : -EIO;
}

static int give_to_implementation(struct device_queue *queue, struct device_request *request)
{
    int error;

    queue->under_way++;
    error = queue->ops->submit(queue, request);
    if (error != 0)
        queue->under_way--;
    return error;
}

int device_queue_submit(struct device_queue *queue, struct device_request *request)
{
    int error = check_request(queue->device, request);

    if (error != 0)
        return error;
    if (queue->is_reaping && queue->under_way >= queue->depth) {
        request->next = NULL;
        if (queue->waiting_first == NULL)
            queue->waiting_first = request;
        else
            queue->waiting_last->next = request;
        queue->waiting_last = request;
        return 0;
    }
    if (queue->under_way >= queue->depth) {
        error = device_queue_reap(queue, 1, queue->depth);
        if (error < 0)
            return error;
    }
    return give_to_implementation(queue, request);
}

int device_queue_kick(struct device_queue *queue)
{
    return queue->ops->kick(queue);
}

void device_queue_end(struct device_queue *queue, struct device_request *request, int result)
{
    queue->under_way--;
    request->result = result;
    request->done(request);
}

/* Lets requests that were accepted past the depth go as far as there is room. */
static void start_waiting(struct device_queue *queue)
{
    while (queue->waiting_first != NULL && queue->under_way < queue->depth) {
        struct device_request *request = queue->waiting_first;
        int error;

        queue->waiting_first = request->next;
        error = give_to_implementation(queue, request);
        if (error != 0) {
            request->result = error;
            request->done(request);
        }
    }
}

int device_queue_reap(struct device_queue *queue, unsigned int min, unsigned int max)
{
    unsigned int count = 0;
    int result = 0;

    if (queue->is_reaping)
        return -EDEADLK;
    queue->is_reaping = true;
    min = MIN(min, max);
    do {
        unsigned int wanted = MIN(min - count, queue->under_way);

        result = queue->ops->reap(queue, wanted, max - count);
        if (result < 0)
            break;
        count += (unsigned int)result;
        start_waiting(queue);
    } while (count < min && queue->under_way > 0);
    if (result >= 0 && count > 0)
        result = queue->ops->kick(queue);
    queue->is_reaping = false;
    return count > 0 ? (int)count : MIN(result, 0);
}

void device_queue_close(struct device_queue *queue)
{
    if (queue == NULL)
        return;
    while (queue->under_way > 0)
        if (device_queue_reap(queue, queue->under_way, queue->under_way) < 0)
            break;
    queue->ops->close(queue);
}

int device_run_request(struct device *device, const struct device_request *request)
{
    switch (request->operation) {
    case DEVICE_READ:
        return device_readv(device, request->iov, request->iov_count, request->offset_bytes);
    case DEVICE_WRITE:
        return device_writev(device, request->iov, request->iov_count, request->offset_bytes,
                             request->flags);
    case DEVICE_FLUSH:
        return device_flush(device);
    case DEVICE_DISCARD:
        return device_discard(device, request->offset_bytes, request->length_bytes);
    }
    return -EINVAL;
}
