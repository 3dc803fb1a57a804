/* SPDX-License-Identifier: MIT */
/*
 * A queue for devices that never wait, such as memory: a request runs when it is submitted, and its
 * end is reported by the next reap.
 *
 * Locks: none; a queue belongs to one thread at a time. Callers: device.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "block/device.h"

struct inline_queue {
    struct device_queue queue;
    struct device *device;
    struct device_request *ended_first, *ended_last;
};

static struct inline_queue *to_inline(struct device_queue *queue)
{
    return container_of(queue, struct inline_queue, queue);
}

static int inline_submit(struct device_queue *base, struct device_request *request)
{
    struct inline_queue *queue = to_inline(base);

    request->result = device_run_request(queue->device, request);
    request->next = NULL;
    if (queue->ended_first == NULL)
        queue->ended_first = request;
    else
        queue->ended_last->next = request;
    queue->ended_last = request;
    return 0;
}

static int inline_kick(struct device_queue *base)
{
    (void)base;
    return 0;
}

static int inline_reap(struct device_queue *base, unsigned int min, unsigned int max)
{
    struct inline_queue *queue = to_inline(base);
    unsigned int count = 0;

    (void)min;
    while (count < max && queue->ended_first != NULL) {
        struct device_request *request = queue->ended_first;

        queue->ended_first = request->next;
        count++;
        device_queue_end(base, request, request->result);
    }
    return (int)count;
}

static void inline_close(struct device_queue *base)
{
    free(to_inline(base));
}

static const struct device_queue_ops inline_ops = {
    .submit = inline_submit,
    .kick = inline_kick,
    .reap = inline_reap,
    .close = inline_close,
};

int inline_queue_open(struct device *device, unsigned int depth, struct device_queue **queue)
{
    struct inline_queue *opened = calloc(1, sizeof(*opened));

    (void)depth;
    if (opened == NULL)
        return -ENOMEM;
    opened->queue.ops = &inline_ops;
    opened->device = device;
    *queue = &opened->queue;
    return 0;
}
