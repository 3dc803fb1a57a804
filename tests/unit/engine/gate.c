/* SPDX-License-Identifier: MIT */
/* The gate: one mutex and condition over its counters; the lower device is called outside. */
#include "gate.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "base/lock.h"

#define TIMEOUT_NS UINT64_C(10000000000)

struct gate {
    struct device device;
    struct device *lower;
    struct mutex mutex;
    struct condition changed;
    unsigned int reads, in_flight, max_in_flight, timeouts; /* [mutex] */
    unsigned int held_for, waiting, generation;             /* [mutex] */
    uint64_t fail_offset, fail_length;                      /* [mutex] */
    int fail_error;                                         /* [mutex] */
};

static struct gate *gate_of(struct device *device)
{
    return container_of(device, struct gate, device);
}

/* Waits for company. All that wait go on together when the last one comes. */
static void wait_for_others_locked(struct gate *gate) REQUIRES(&gate->mutex)
{
    struct timespec now;
    unsigned int generation = gate->generation;

    if (gate->held_for <= 1)
        return;
    if (++gate->waiting == gate->held_for) {
        gate->waiting = 0;
        gate->generation++;
        condition_broadcast(&gate->changed);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t deadline = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + TIMEOUT_NS;
    while (gate->generation == generation) {
        if (condition_wait_until(&gate->changed, &gate->mutex, deadline) != 0) {
            gate->timeouts++;
            return;
        }
    }
}

static int gate_readv(struct device *device, const struct iovec *iov, int iov_count,
                      uint64_t offset)
{
    struct gate *gate = gate_of(device);
    uint64_t length = 0;
    int error = 0;

    for (int i = 0; i < iov_count; i++)
        length += iov[i].iov_len;
    mutex_lock(&gate->mutex);
    gate->reads++;
    gate->in_flight++;
    gate->max_in_flight = MAX(gate->max_in_flight, gate->in_flight);
    wait_for_others_locked(gate);
    if (offset < gate->fail_offset + gate->fail_length && gate->fail_offset < offset + length)
        error = gate->fail_error;
    mutex_unlock(&gate->mutex);
    if (error == 0)
        error = device_readv(gate->lower, iov, iov_count, offset);
    mutex_lock(&gate->mutex);
    gate->in_flight--;
    mutex_unlock(&gate->mutex);
    return error;
}

static void gate_close(struct device *device)
{
    struct gate *gate = gate_of(device);

    device_close(gate->lower);
    condition_destroy(&gate->changed);
    mutex_destroy(&gate->mutex);
    free(gate);
}

static const struct device_ops gate_ops = {
    .name = "gate",
    .readv = gate_readv,
    .close = gate_close,
};

struct device *gate_open(struct device *lower)
{
    struct gate *gate = calloc(1, sizeof(*gate));

    assert(gate != NULL);
    gate->device.ops = &gate_ops;
    gate->device.limits = *device_limits(lower);
    gate->lower = lower;
    mutex_init(&gate->mutex, LOCK_RANK_DEVICE, "gate");
    condition_init(&gate->changed);
    return &gate->device;
}

void gate_hold(struct device *device, unsigned int count)
{
    struct gate *gate = gate_of(device);

    mutex_lock(&gate->mutex);
    gate->held_for = count;
    gate->waiting = 0;
    gate->generation++;
    condition_broadcast(&gate->changed);
    mutex_unlock(&gate->mutex);
}

void gate_fail(struct device *device, uint64_t offset, uint64_t length, int error)
{
    struct gate *gate = gate_of(device);

    mutex_lock(&gate->mutex);
    gate->fail_offset = offset;
    gate->fail_length = error == 0 ? 0 : length;
    gate->fail_error = error;
    mutex_unlock(&gate->mutex);
}

static unsigned int read_counter(struct device *device, size_t offset)
{
    struct gate *gate = gate_of(device);
    unsigned int value;

    mutex_lock(&gate->mutex);
    value = *(const unsigned int *)(const void *)((const char *)gate + offset);
    mutex_unlock(&gate->mutex);
    return value;
}

unsigned int gate_reads(struct device *device)
{
    return read_counter(device, offsetof(struct gate, reads));
}

unsigned int gate_max_in_flight(struct device *device)
{
    return read_counter(device, offsetof(struct gate, max_in_flight));
}

unsigned int gate_timeouts(struct device *device)
{
    return read_counter(device, offsetof(struct gate, timeouts));
}
