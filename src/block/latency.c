/* SPDX-License-Identifier: MIT */
/*
 * The latency filter: a model of a device with a number of slots, each serving one request at a
 * time for a fixed service time.
 *
 * A request that arrives is given, in order of arrival, the slot that is free first. That fixes
 * when its service starts and ends:
 *     start = max(now, when the slot is free);  end = start + service time
 * and the slot is free again at that end, whenever the waiting thread happens to wake. So a late
 * wake-up does not slow down the requests behind it, nobody waits for anybody else's thread, and
 * requests that nobody has reaped yet hold no slot. A bandwidth limit is one more resource that
 * each request takes for its length, from its start on. The request ends at its computed end, or
 * when the lower device is done with it, if that is later.
 *
 * Locks: `mutex` over the schedule, held for the computation only. Callers: device.c, spec.c.
 */
#include "block/latency.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/list.h"
#include "base/lock.h"
#include "block/spec.h"

#define MAX_SLOTS      65536u
#define MAX_SERVICE_US 3600000000u /* an hour */
#define NS_PER_US      1000u
#define NS_PER_SECOND  1000000000u

struct latency_device {
    struct device device;
    struct latency_options options; /* [immutable] */
    struct mutex mutex;
    uint64_t *slot_free_ns;   /* [mutex] a heap: the slot that is free first is at its top */
    uint64_t bus_free_ns;     /* [mutex] */
    uint64_t request_counter; /* [mutex] */
};

static struct latency_device *to_latency(struct device *device)
{
    return container_of(device, struct latency_device, device);
}

/* ---- Time ----------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

/*
 * The kernel may add the thread's timer slack, by default 50 us, to each sleep. That is a large
 * part of a fast device's service time, so a thread that meets this filter gives it up.
 */
static void sleep_until(uint64_t deadline_ns)
{
    static _Thread_local bool has_no_slack;
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / NS_PER_SECOND),
                                .tv_nsec = (long)(deadline_ns % NS_PER_SECOND)};

    if (now_ns() >= deadline_ns)
        return;
    if (!has_no_slack) {
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
        has_no_slack = true;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR)
        continue;
}

/* ---- The schedule --------------------------------------------------------------------------- */

/* A fraction from 0 to 1 that depends on the seed and the request's number (splitmix64). */
static double random_fraction(uint64_t seed, uint64_t number)
{
    uint64_t x = seed + (number + 1) * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (double)(x >> 11) / (double)(UINT64_C(1) << 53);
}

static uint64_t service_ns_locked(struct latency_device *latency, enum device_operation operation)
{
    const struct latency_options *options = &latency->options;
    uint64_t number = latency->request_counter++;
    double base_ns = 0;

    switch (operation) {
    case DEVICE_READ:
        base_ns = (double)(options->read_us * NS_PER_US);
        break;
    case DEVICE_WRITE:
        base_ns = (double)(options->write_us * NS_PER_US);
        break;
    case DEVICE_FLUSH:
        base_ns = (double)(options->flush_us * NS_PER_US);
        break;
    case DEVICE_DISCARD:
        break;
    }
    if (options->jitter > 0)
        base_ns *= 1 + options->jitter * (2 * random_fraction(options->seed, number) - 1);
    return (uint64_t)base_ns;
}

/* Raises the top of the heap to `free_ns` and lets it sink to its place. */
static void occupy_first_slot_locked(struct latency_device *latency, uint64_t free_ns)
{
    uint64_t *heap = latency->slot_free_ns;
    size_t count = (size_t)latency->options.slots;
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (child >= count || heap[child] >= free_ns)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = free_ns;
}

struct service {
    uint64_t start_ns;
    uint64_t end_ns;
};

static struct service schedule(struct latency_device *latency, enum device_operation operation,
                               uint64_t length_bytes)
{
    const struct latency_options *options = &latency->options;
    struct service service;

    mutex_lock(&latency->mutex);
    service.start_ns = now_ns();
    if (options->slots > 0)
        service.start_ns = MAX(service.start_ns, latency->slot_free_ns[0]);
    service.end_ns = service.start_ns + service_ns_locked(latency, operation);
    if (options->bandwidth_per_second > 0 && length_bytes > 0) {
        double seconds = (double)length_bytes / (double)options->bandwidth_per_second;

        latency->bus_free_ns = MAX(latency->bus_free_ns, service.start_ns) +
                               (uint64_t)(seconds * (double)NS_PER_SECOND);
        service.end_ns = MAX(service.end_ns, latency->bus_free_ns);
    }
    if (options->slots > 0)
        occupy_first_slot_locked(latency, service.end_ns);
    mutex_unlock(&latency->mutex);
    return service;
}

/* ---- Synchronous calls ---------------------------------------------------------------------- */

static uint64_t vector_length(const struct iovec *iov, int iov_count)
{
    uint64_t length = 0;

    for (int i = 0; i < iov_count; i++)
        length += iov[i].iov_len;
    return length;
}

static int latency_readv(struct device *device, const struct iovec *iov, int iov_count,
                         uint64_t offset)
{
    struct service service = schedule(to_latency(device), DEVICE_READ,
                                      vector_length(iov, iov_count));
    int error;

    sleep_until(service.start_ns);
    error = device_readv(device->lower, iov, iov_count, offset);
    sleep_until(service.end_ns);
    return error;
}

static int latency_writev(struct device *device, const struct iovec *iov, int iov_count,
                          uint64_t offset, unsigned int flags)
{
    struct service service = schedule(to_latency(device), DEVICE_WRITE,
                                      vector_length(iov, iov_count));
    int error;

    sleep_until(service.start_ns);
    error = device_writev(device->lower, iov, iov_count, offset, flags);
    sleep_until(service.end_ns);
    return error;
}

static int latency_flush(struct device *device)
{
    struct service service = schedule(to_latency(device), DEVICE_FLUSH, 0);
    int error;

    sleep_until(service.start_ns);
    error = device_flush(device->lower);
    sleep_until(service.end_ns);
    return error;
}

static int latency_discard(struct device *device, uint64_t offset, uint64_t length)
{
    struct service service = schedule(to_latency(device), DEVICE_DISCARD, 0);
    int error;

    sleep_until(service.start_ns);
    error = device_discard(device->lower, offset, length);
    sleep_until(service.end_ns);
    return error;
}

/* ---- The queue ------------------------------------------------------------------------------ */

/*
 * Requests go to a queue of the lower device at once, and are held back here until the end of their
 * service. All that are under way stand in `ordered` by that end, so the reaper sleeps until the
 * first one's end, and only then waits for the lower device, if it must.
 */
struct latency_request {
    struct device_request lower; /* the copy that the lower queue has */
    struct device_request *original;
    uint64_t end_ns;
    bool has_ended_below;
    struct list link; /* in `ordered` or `unused` */
};

struct latency_queue {
    struct device_queue queue;
    struct latency_device *latency;
    struct device_queue *lower;
    struct list ordered;
    struct list unused;
    struct latency_request requests[]; /* as many as the depth */
};

static struct latency_queue *to_latency_queue(struct device_queue *queue)
{
    return container_of(queue, struct latency_queue, queue);
}

static void ended_below(struct device_request *request)
{
    container_of(request, struct latency_request, lower)->has_ended_below = true;
}

static void insert_ordered(struct latency_queue *queue, struct latency_request *request)
{
    struct list *position = &queue->ordered;

    while (position->previous != &queue->ordered &&
           list_entry(position->previous, struct latency_request, link)->end_ns > request->end_ns)
        position = position->previous;
    list_insert_before(position, &request->link);
}

static int queue_submit(struct device_queue *base, struct device_request *original)
{
    struct latency_queue *queue = to_latency_queue(base);
    struct latency_request *request = list_first(&queue->unused, struct latency_request, link);
    bool is_transfer = original->operation == DEVICE_READ || original->operation == DEVICE_WRITE;
    int error;

    request->lower = *original;
    request->lower.done = ended_below;
    request->original = original;
    request->has_ended_below = false;
    request->end_ns = schedule(queue->latency, original->operation,
                               is_transfer ? original->length_bytes : 0)
                          .end_ns;
    error = device_queue_submit(queue->lower, &request->lower);
    if (error != 0)
        return error;
    list_remove(&request->link);
    insert_ordered(queue, request);
    return 0;
}

static int queue_kick(struct device_queue *base)
{
    return device_queue_kick(to_latency_queue(base)->lower);
}

/* Ends what is due and done; stops at the first that is not due. */
static unsigned int end_due(struct latency_queue *queue, unsigned int max)
{
    unsigned int count = 0;
    uint64_t now = now_ns();

    while (count < max) {
        struct latency_request *due = NULL;

        list_for_each (link, &queue->ordered) {
            struct latency_request *request = list_entry(link, struct latency_request, link);

            if (request->end_ns > now)
                break;
            if (request->has_ended_below) {
                due = request;
                break;
            }
        }
        if (due == NULL)
            break;
        list_remove(&due->link);
        list_add_first(&queue->unused, &due->link);
        count++;
        device_queue_end(&queue->queue, due->original, due->lower.result);
    }
    return count;
}

static int queue_reap(struct device_queue *base, unsigned int min, unsigned int max)
{
    struct latency_queue *queue = to_latency_queue(base);
    unsigned int wait_below = 0;
    unsigned int count = 0;

    for (;;) {
        int result = device_queue_reap(queue->lower, wait_below, queue->queue.depth);
        const struct latency_request *first;

        if (result < 0)
            return count > 0 ? (int)count : result;
        count += end_due(queue, max - count);
        if (count >= min || list_is_empty(&queue->ordered))
            return (int)count;
        first = list_first(&queue->ordered, struct latency_request, link);
        sleep_until(first->end_ns);
        wait_below = first->has_ended_below ? 0 : 1;
    }
}

static void queue_close(struct device_queue *base)
{
    struct latency_queue *queue = to_latency_queue(base);

    device_queue_close(queue->lower);
    free(queue);
}

static const struct device_queue_ops queue_ops = {
    .submit = queue_submit,
    .kick = queue_kick,
    .reap = queue_reap,
    .close = queue_close,
};

static int latency_queue_open(struct device *device, unsigned int depth,
                              struct device_queue **queue)
{
    struct latency_queue *opened = calloc(1,
                                          sizeof(*opened) + depth * sizeof(struct latency_request));
    int error;

    if (opened == NULL)
        return -ENOMEM;
    error = device_queue_open(device->lower, depth, &opened->lower);
    if (error != 0) {
        free(opened);
        return error;
    }
    opened->queue.ops = &queue_ops;
    opened->latency = to_latency(device);
    list_init(&opened->ordered);
    list_init(&opened->unused);
    for (unsigned int i = 0; i < depth; i++)
        list_add_last(&opened->unused, &opened->requests[i].link);
    *queue = &opened->queue;
    return 0;
}

/* ---- Opening -------------------------------------------------------------------------------- */

static void latency_close(struct device *device)
{
    struct latency_device *latency = to_latency(device);

    device_close(device->lower);
    mutex_destroy(&latency->mutex);
    free(latency->slot_free_ns);
    free(latency);
}

static const struct device_ops latency_ops = {
    .name = "latency",
    .readv = latency_readv,
    .writev = latency_writev,
    .flush = latency_flush,
    .discard = latency_discard,
    .close = latency_close,
    .queue_open = latency_queue_open,
};

int latency_open(struct device *lower, const struct latency_options *options, const struct log *log,
                 struct device **device)
{
    struct latency_device *latency;

    if (options->slots > MAX_SLOTS || options->read_us > MAX_SERVICE_US ||
        options->write_us > MAX_SERVICE_US || options->flush_us > MAX_SERVICE_US ||
        !(options->jitter >= 0 && options->jitter <= 1))
        return -EINVAL;
    latency = calloc(1, sizeof(*latency));
    if (latency == NULL)
        return -ENOMEM;
    if (options->slots > 0) {
        latency->slot_free_ns = calloc((size_t)options->slots, sizeof(uint64_t));
        if (latency->slot_free_ns == NULL) {
            free(latency);
            return -ENOMEM;
        }
    }
    mutex_init(&latency->mutex, LOCK_RANK_DEVICE, "latency schedule");
    latency->options = *options;
    latency->device.ops = &latency_ops;
    latency->device.limits = lower->limits;
    latency->device.log = log;
    latency->device.lower = lower;
    *device = &latency->device;
    return 0;
}

#define TIME_KEY(field)                                                                         \
    {                                                                                           \
        .name = #field, .type = SPEC_NUMBER, .offset = offsetof(struct latency_options, field), \
        .max = MAX_SERVICE_US                                                                   \
    }

static const struct spec_key latency_keys[] = {
    TIME_KEY(read_us),
    TIME_KEY(write_us),
    TIME_KEY(flush_us),
    {.name = "slots",
     .type = SPEC_NUMBER,
     .offset = offsetof(struct latency_options, slots),
     .min = 1,
     .max = MAX_SLOTS},
    {.name = "bandwidth",
     .type = SPEC_SIZE,
     .offset = offsetof(struct latency_options, bandwidth_per_second),
     .min = 1},
    {.name = "jitter", .type = SPEC_FRACTION, .offset = offsetof(struct latency_options, jitter)},
    {.name = "seed", .type = SPEC_NUMBER, .offset = offsetof(struct latency_options, seed)},
};

static const struct spec_table latency_table = {"latency", latency_keys,
                                                ARRAY_LENGTH(latency_keys)};

int latency_open_spec(struct device *lower, const struct spec_part *keys, const struct log *log,
                      struct device **device)
{
    struct latency_options options = {0};
    int error = spec_parse_keys(keys, &latency_table, &options, log);

    return error != 0 ? error : latency_open(lower, &options, log, device);
}
