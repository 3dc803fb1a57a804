/* SPDX-License-Identifier: MIT */
/*
 * A queue of worker threads over a device's synchronous calls, for devices without a queue of their
 * own.
 *
 * A request moves from `pending` to a worker to `ended`; the owner takes it from there when it
 * reaps. A thread is started by a submission that finds none idle, so a queue that is never busy
 * has few, and one that is never used has none. Where the host gives us no thread at all, the
 * submission runs the request itself.
 *
 * Locks: one mutex over the lists; it is not held during a transfer nor during `done`.
 * Callers: device.c, and devices whose own queue is not available.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/lock.h"
#include "block/device.h"

#define MAX_THREADS 32u

struct request_list {
    struct device_request *first, *last;
};

struct thread_queue {
    struct device_queue queue;
    struct device *device;    /* [immutable] */
    unsigned int max_threads; /* [immutable] */
    struct mutex mutex;
    struct condition has_pending;
    struct condition has_ended;
    struct request_list pending; /* [mutex] */
    struct request_list ended;   /* [mutex] */
    unsigned int pending_count;  /* [mutex] */
    unsigned int idle_count;     /* [mutex] workers that wait for a request */
    unsigned int wanted;         /* [mutex] ended requests that the reaper waits for, 0: none */
    unsigned int ended_count;    /* [mutex] */
    bool is_closing;             /* [mutex] */
    unsigned int thread_count;   /* the owner's */
    pthread_t threads[MAX_THREADS];
};

static struct thread_queue *to_threads(struct device_queue *queue)
{
    return container_of(queue, struct thread_queue, queue);
}

static void append(struct request_list *list, struct device_request *request)
{
    request->next = NULL;
    if (list->first == NULL)
        list->first = request;
    else
        list->last->next = request;
    list->last = request;
}

static struct device_request *take(struct request_list *list)
{
    struct device_request *request = list->first;

    if (request != NULL)
        list->first = request->next;
    return request;
}

static void end_locked(struct thread_queue *queue, struct device_request *request)
{
    append(&queue->ended, request);
    queue->ended_count++;
    if (queue->wanted != 0 && queue->ended_count >= queue->wanted)
        condition_signal(&queue->has_ended);
}

static void *work(void *argument)
{
    struct thread_queue *queue = argument;

    mutex_lock(&queue->mutex);
    for (;;) {
        struct device_request *request = take(&queue->pending);

        if (request == NULL) {
            if (queue->is_closing)
                break;
            queue->idle_count++;
            condition_wait(&queue->has_pending, &queue->mutex);
            queue->idle_count--;
            continue;
        }
        queue->pending_count--;
        mutex_unlock(&queue->mutex);
        request->result = device_run_request(queue->device, request);
        mutex_lock(&queue->mutex);
        end_locked(queue, request);
    }
    mutex_unlock(&queue->mutex);
    return NULL;
}

/* Signals belong to the program's own threads. Returns whether there is any thread. */
static bool start_thread(struct thread_queue *queue)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&queue->threads[queue->thread_count], NULL, work, queue);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        queue->thread_count++;
    return queue->thread_count > 0;
}

static int thread_submit(struct device_queue *base, struct device_request *request)
{
    struct thread_queue *queue = to_threads(base);
    bool needs_thread;

    mutex_lock(&queue->mutex);
    needs_thread = queue->idle_count <= queue->pending_count &&
                   queue->thread_count < queue->max_threads;
    mutex_unlock(&queue->mutex);
    if (needs_thread && !start_thread(queue)) {
        request->result = device_run_request(queue->device, request);
        mutex_lock(&queue->mutex);
        end_locked(queue, request);
        mutex_unlock(&queue->mutex);
        return 0;
    }
    mutex_lock(&queue->mutex);
    append(&queue->pending, request);
    queue->pending_count++;
    condition_signal(&queue->has_pending);
    mutex_unlock(&queue->mutex);
    return 0;
}

static int thread_kick(struct device_queue *base)
{
    (void)base;
    return 0;
}

static int thread_reap(struct device_queue *base, unsigned int min, unsigned int max)
{
    struct thread_queue *queue = to_threads(base);
    struct device_request *request, *next;
    struct device_request *taken = NULL;
    struct device_request **end = &taken;
    unsigned int count = 0;

    mutex_lock(&queue->mutex);
    queue->wanted = min;
    while (queue->ended_count < min)
        condition_wait(&queue->has_ended, &queue->mutex);
    queue->wanted = 0;
    for (; count < max && (request = take(&queue->ended)) != NULL; count++) {
        queue->ended_count--;
        *end = request;
        end = &request->next;
    }
    *end = NULL;
    mutex_unlock(&queue->mutex);
    for (request = taken; request != NULL; request = next) {
        next = request->next;
        device_queue_end(base, request, request->result);
    }
    return (int)count;
}

static void thread_close(struct device_queue *base)
{
    struct thread_queue *queue = to_threads(base);

    mutex_lock(&queue->mutex);
    queue->is_closing = true;
    condition_broadcast(&queue->has_pending);
    mutex_unlock(&queue->mutex);
    for (unsigned int i = 0; i < queue->thread_count; i++)
        pthread_join(queue->threads[i], NULL);
    condition_destroy(&queue->has_ended);
    condition_destroy(&queue->has_pending);
    mutex_destroy(&queue->mutex);
    free(queue);
}

static const struct device_queue_ops thread_ops = {
    .submit = thread_submit,
    .kick = thread_kick,
    .reap = thread_reap,
    .close = thread_close,
};

int thread_queue_open(struct device *device, unsigned int depth, struct device_queue **queue)
{
    struct thread_queue *opened = calloc(1, sizeof(*opened));

    if (opened == NULL)
        return -ENOMEM;
    opened->queue.ops = &thread_ops;
    opened->device = device;
    opened->max_threads = MIN(depth, MAX_THREADS);
    mutex_init(&opened->mutex, LOCK_RANK_DEVICE_QUEUE, "thread queue");
    condition_init(&opened->has_pending);
    condition_init(&opened->has_ended);
    *queue = &opened->queue;
    return 0;
}
