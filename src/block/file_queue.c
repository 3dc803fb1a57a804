/* SPDX-License-Identifier: MIT */
/*
 * The queue of the file device: one io_uring per queue.
 *
 * A submission fills an entry of the ring; the kick, or the reap that waits, hands all filled ones
 * to the kernel in one io_uring_enter. A transfer that the kernel cuts short is continued by the
 * synchronous calls while it is reaped: rare, and not worth a state machine. A block device takes
 * discards only by ioctl, so these run when they are submitted.
 *
 * The ring is created without flags that tie it to one task: a queue may move between threads.
 * Neither is the file registered with it, since a ring that is being torn down keeps registered
 * files open for a while.
 * Locks: none; a queue belongs to one thread at a time. Callers: device.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/falloc.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "block/file_device.h"

struct file_queue {
    struct device_queue queue;
    struct file_device *file;
    struct io_uring ring;
    struct device_request *ended_first, *ended_last; /* ended without the ring */
};

static struct file_queue *to_queue(struct device_queue *queue)
{
    return container_of(queue, struct file_queue, queue);
}

static int submit_to_kernel(struct file_queue *queue)
{
    while (io_uring_sq_ready(&queue->ring) > 0) {
        int result = io_uring_submit(&queue->ring);

        if (result == -EINTR)
            continue;
        /* The kernel wants completions reaped first; the entries stay in the ring until then. */
        if (result == -EAGAIN || result == -EBUSY || result == 0)
            return 0;
        if (result < 0)
            return result;
    }
    return 0;
}

static struct io_uring_sqe *get_entry(struct file_queue *queue)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&queue->ring);

    if (entry == NULL && submit_to_kernel(queue) == 0)
        entry = io_uring_get_sqe(&queue->ring);
    return entry;
}

static void end_without_ring(struct file_queue *queue, struct device_request *request)
{
    request->next = NULL;
    if (queue->ended_first == NULL)
        queue->ended_first = request;
    else
        queue->ended_last->next = request;
    queue->ended_last = request;
}

static void prepare_transfer(struct io_uring_sqe *entry, const struct file_device *file,
                             const struct device_request *request)
{
    const struct iovec *iov = request->iov;
    uint64_t place = file->offset_bytes + request->offset_bytes;
    unsigned int count = (unsigned int)request->iov_count;
    bool is_single = count == 1 && iov->iov_len <= INT_MAX;
    int fd = file->file.fd;

    if (request->operation == DEVICE_READ) {
        if (is_single)
            io_uring_prep_read(entry, fd, iov->iov_base, (unsigned int)iov->iov_len, place);
        else
            io_uring_prep_readv(entry, fd, iov, count, place);
        return;
    }
    if (is_single)
        io_uring_prep_write(entry, fd, iov->iov_base, (unsigned int)iov->iov_len, place);
    else
        io_uring_prep_writev(entry, fd, iov, count, place);
    if ((request->flags & DEVICE_FUA) != 0)
        entry->rw_flags = RWF_DSYNC;
}

static int queue_submit(struct device_queue *base, struct device_request *request)
{
    struct file_queue *queue = to_queue(base);
    struct file_device *file = queue->file;
    struct io_uring_sqe *entry;

    if (request->operation == DEVICE_DISCARD && file->file.is_block_device) {
        request->result = device_run_request(&file->device, request);
        end_without_ring(queue, request);
        return 0;
    }
    entry = get_entry(queue);
    if (entry == NULL)
        return -EAGAIN;
    switch (request->operation) {
    case DEVICE_READ:
    case DEVICE_WRITE:
        prepare_transfer(entry, file, request);
        break;
    case DEVICE_FLUSH:
        io_uring_prep_fsync(entry, file->file.fd, IORING_FSYNC_DATASYNC);
        break;
    case DEVICE_DISCARD:
        io_uring_prep_fallocate(entry, file->file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                (off_t)(file->offset_bytes + request->offset_bytes),
                                (off_t)request->length_bytes);
        break;
    }
    io_uring_sqe_set_data(entry, request);
    return 0;
}

static int queue_kick(struct device_queue *base)
{
    return submit_to_kernel(to_queue(base));
}

/* Turns what the kernel says into the request's result, and finishes what it left undone. */
static int result_of(struct file_queue *queue, const struct device_request *request, int kernel)
{
    if (request->operation == DEVICE_READ || request->operation == DEVICE_WRITE) {
        if (kernel > 0 && (uint64_t)kernel == request->length_bytes)
            return 0;
        if (kernel >= 0 || kernel == -EINTR || kernel == -EAGAIN)
            return file_device_transfer(queue->file, request->operation, request->iov,
                                        request->iov_count, request->offset_bytes, request->flags,
                                        kernel > 0 ? (uint64_t)kernel : 0);
    } else if (kernel == 0 || kernel == -EINTR || kernel == -EAGAIN) {
        return kernel == 0 ? 0 : device_run_request(&queue->file->device, request);
    }
    if (kernel == -EOPNOTSUPP && request->operation == DEVICE_DISCARD)
        return kernel;
    return file_device_report(queue->file, request->operation, request->offset_bytes, kernel);
}

/* Ends what has ended already, at most `max`. */
static unsigned int end_ready(struct file_queue *queue, unsigned int max)
{
    struct io_uring_cqe *completion;
    unsigned int count = 0;

    while (count < max && queue->ended_first != NULL) {
        struct device_request *request = queue->ended_first;

        queue->ended_first = request->next;
        count++;
        device_queue_end(&queue->queue, request, request->result);
    }
    while (count < max && io_uring_peek_cqe(&queue->ring, &completion) == 0) {
        struct device_request *request = io_uring_cqe_get_data(completion);
        int result = completion->res;

        io_uring_cqe_seen(&queue->ring, completion);
        count++;
        device_queue_end(&queue->queue, request, result_of(queue, request, result));
    }
    return count;
}

static int queue_reap(struct device_queue *base, unsigned int min, unsigned int max)
{
    struct file_queue *queue = to_queue(base);
    bool is_kicked = io_uring_sq_ready(&queue->ring) == 0;
    unsigned int count = 0;

    /* Otherwise one system call below both starts and waits. */
    if (!is_kicked && (min == 0 || queue->ended_first != NULL)) {
        int error = submit_to_kernel(queue);

        if (error != 0)
            return error;
        is_kicked = true;
    }
    for (;;) {
        int result;

        if (is_kicked)
            count += end_ready(queue, max - count);
        if (count >= min)
            return (int)count;
        result = io_uring_submit_and_wait(&queue->ring, min - count);
        if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
            return count > 0 ? (int)count : result;
        is_kicked = true;
    }
}

static void queue_close(struct device_queue *base)
{
    struct file_queue *queue = to_queue(base);

    io_uring_queue_exit(&queue->ring);
    free(queue);
}

static const struct device_queue_ops queue_ops = {
    .submit = queue_submit,
    .kick = queue_kick,
    .reap = queue_reap,
    .close = queue_close,
};

int file_queue_open(struct device *device, unsigned int depth, struct device_queue **queue)
{
    struct file_device *file = container_of(device, struct file_device, device);
    struct file_queue *opened = calloc(1, sizeof(*opened));
    int error;

    if (opened == NULL)
        return -ENOMEM;
    error = io_uring_queue_init(depth, &opened->ring, 0);
    if (error != 0) {
        free(opened);
        log_debug(device->log, "%s: io_uring is not available (%s); using threads", file->path,
                  strerrordesc_np(-error));
        return thread_queue_open(device, depth, queue);
    }
    opened->queue.ops = &queue_ops;
    opened->file = file;
    *queue = &opened->queue;
    return 0;
}
