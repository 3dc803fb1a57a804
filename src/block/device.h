/* SPDX-License-Identifier: MIT */
/*
 * One table for everything that stores blocks: files, block devices, memory, and the filters that
 * stack on any of them.
 *
 * Threads    All calls may run at the same time from any thread. A device holds no lock while a
 *            transfer is under way.
 * Alignment  device_read and device_write take any buffer, offset and length and go through an
 *            aligned buffer where the device needs one (a write of part of a block reads it first;
 *            the caller keeps others from that block). The vectored and the asynchronous calls pass
 *            requests on as they are: offset and lengths must be multiples of
 *            limits.offset_alignment, addresses of limits.memory_alignment, else -EINVAL.
 * Errors     0 or -errno. Reads and writes are whole or fail: a device that ends early gives -EIO.
 *            A request outside the device gives -EIO for reads and -ENOSPC for writes and discards;
 *            writes and discards to a read-only device give -EROFS.
 * Durability A write is durable after a device_flush that began after the write ended, or when it
 *            ends with DEVICE_FUA.
 */
#ifndef UEXT4_BLOCK_DEVICE_H
#define UEXT4_BLOCK_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"
#include "base/log.h"

struct device;
struct device_queue;

/* Facts of an open device. A filter passes its lower device's on unless it changes them. */
struct device_limits {
    uint64_t size_bytes;       /* a multiple of offset_alignment */
    uint32_t offset_alignment; /* of offsets and lengths; a power of two, 1: any */
    uint32_t memory_alignment; /* of buffer addresses; a power of two, 1: any */
    uint32_t max_iov_count;    /* of one vectored request */
    bool is_read_only;
    bool is_direct;   /* transfers bypass the host's page cache */
    bool has_discard; /* the host may still refuse with -EOPNOTSUPP */
};

enum device_write_flags {
    DEVICE_FUA = 1u << 0, /* durable when the write returns */
};

enum device_operation { DEVICE_READ, DEVICE_WRITE, DEVICE_FLUSH, DEVICE_DISCARD };

/*
 * One asynchronous request. The caller owns it and everything it points to, and leaves both alone
 * from the submission until `done` is called.
 */
struct device_request {
    enum device_operation operation;
    unsigned int flags;      /* enum device_write_flags */
    const struct iovec *iov; /* reads and writes */
    int iov_count;
    uint64_t offset_bytes;
    uint64_t length_bytes;                        /* discards; for transfers the sum of iov > 0 */
    int result;                                   /* set before done: 0 or -errno */
    void (*done)(struct device_request *request); /* called from device_queue_reap, no lock held */
    void *context;                                /* the caller's */
    struct device_request *next;                  /* the queue's */
    uint64_t device_private[2];                   /* the queue's */
};

/* ---- Using a device ------------------------------------------------------------------------- */

const struct device_limits *device_limits(const struct device *device);

int device_read(struct device *device, void *buffer, size_t length,
                uint64_t offset_bytes) MUST_CHECK;
int device_write(struct device *device, const void *buffer, size_t length, uint64_t offset_bytes,
                 unsigned int flags) MUST_CHECK;

/* As device_read and device_write, for aligned requests only (see above): nothing is copied. */
int device_readv(struct device *device, const struct iovec *iov, int iov_count,
                 uint64_t offset_bytes) MUST_CHECK;
int device_writev(struct device *device, const struct iovec *iov, int iov_count,
                  uint64_t offset_bytes, unsigned int flags) MUST_CHECK;

int device_flush(struct device *device) MUST_CHECK;

/* Tells the device that a range holds nothing of use. -EOPNOTSUPP without has_discard. */
int device_discard(struct device *device, uint64_t offset_bytes, uint64_t length_bytes) MUST_CHECK;

/* Closes the device and all that it stacks on. No call may be running, no queue open. */
void device_close(struct device *device);

/* ---- Asynchronous queues -------------------------------------------------------------------- */

/*
 * A queue belongs to one thread at a time; a device may have any number of them. `depth` bounds the
 * requests under way: a submission past it reaps first.
 */
int device_queue_open(struct device *device, unsigned int depth,
                      struct device_queue **queue) MUST_CHECK;

/*
 * Accepts a request; it may start at once or with the next kick. An error means that it was not
 * accepted and `done` is not called. `done` of another request may submit (past the depth, the
 * request waits for room), but neither reap nor close.
 */
int device_queue_submit(struct device_queue *queue, struct device_request *request) MUST_CHECK;

/* Starts everything accepted so far, in one system call where the device can. */
int device_queue_kick(struct device_queue *queue) MUST_CHECK;

/*
 * Kicks, then waits until at least `min` of the requests under way have ended (or none is left) and
 * calls `done` for all that have, at most `max`. Returns how many, or -errno.
 */
int device_queue_reap(struct device_queue *queue, unsigned int min, unsigned int max);

/* Waits for all requests under way, calls their `done`, and frees the queue. */
void device_queue_close(struct device_queue *queue);

/* ---- Opening -------------------------------------------------------------------------------- */

struct device_open_options {
    bool is_writable; /* takes an exclusive lock on the image, else a shared one */
    int direct;       /* -1: where the device can, 0: never, 1: always (-EINVAL if it cannot) */
    uint32_t min_offset_alignment_wanted; /* 0, or the largest offset alignment that the caller can
                                             live with: automatic direct I/O is not used on a device
                                             that needs a coarser one */
    const struct log *log;                /* must outlive the device; may be NULL */
};

/*
 * Opens what a device spec names; spec.c and docs/device-spec.md have the grammar.
 * Also -EINVAL for a spec that does not parse (logged with the place), -EBUSY for a locked image,
 * -ENOENT, -EACCES.
 */
int device_open(const char *spec, const struct device_open_options *options,
                struct device **device) MUST_CHECK;

/* ---- Making a device ------------------------------------------------------------------------ */

/*
 * What a device implements. `flush`, `discard` may be NULL (nothing to do; not supported), the
 * queue calls too: then worker threads make a queue of the synchronous calls.
 */
struct device_ops {
    const char *name;
    int (*readv)(struct device *device, const struct iovec *iov, int iov_count, uint64_t offset);
    int (*writev)(struct device *device, const struct iovec *iov, int iov_count, uint64_t offset,
                  unsigned int flags);
    int (*flush)(struct device *device);
    int (*discard)(struct device *device, uint64_t offset, uint64_t length);
    void (*close)(struct device *device); /* frees the device */
    int (*queue_open)(struct device *device, unsigned int depth, struct device_queue **queue);
};

/* The head of every device; its implementation embeds it and fills it in before it hands it out. */
struct device {
    const struct device_ops *ops; /* [immutable] */
    struct device_limits limits;  /* [immutable] */
    const struct log *log;        /* [immutable] */
    struct device *lower;         /* [immutable] what a filter stacks on, else NULL */
};

/*
 * What a queue implements. device.c checks the requests and bounds their number by the depth;
 * `reap` hands each ended request to device_queue_end, outside all locks, after it has forgotten
 * it: the request's `done` may submit again. `close` finds no request under way, unless `reap`
 * failed.
 */
struct device_queue_ops {
    int (*submit)(struct device_queue *queue, struct device_request *request);
    int (*kick)(struct device_queue *queue);
    int (*reap)(struct device_queue *queue, unsigned int min, unsigned int max);
    void (*close)(struct device_queue *queue);
};

/* The head of every queue. Its implementation sets `ops`; the rest belongs to device.c. */
struct device_queue {
    const struct device_queue_ops *ops; /* [immutable] */
    struct device *device;              /* [immutable] */
    unsigned int depth;                 /* [immutable] */
    unsigned int under_way;             /* requests that the implementation has */
    bool is_reaping;
    struct device_request *waiting_first, *waiting_last; /* accepted past the depth */
};

/* Called by a queue's `reap` for a request that has ended. */
void device_queue_end(struct device_queue *queue, struct device_request *request, int result);

/* The queue of a device without one of its own: worker threads over its synchronous calls. */
int thread_queue_open(struct device *device, unsigned int depth,
                      struct device_queue **queue) MUST_CHECK;

/* The queue of a device that never waits: each request runs when it is submitted. */
int inline_queue_open(struct device *device, unsigned int depth,
                      struct device_queue **queue) MUST_CHECK;

/* Carries out a request by the synchronous calls of the device. */
int device_run_request(struct device *device, const struct device_request *request) MUST_CHECK;

#endif
