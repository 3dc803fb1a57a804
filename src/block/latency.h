/* SPDX-License-Identifier: MIT */
/* A filter that makes a device as slow as asked for. */
#ifndef UEXT4_BLOCK_LATENCY_H
#define UEXT4_BLOCK_LATENCY_H

#include "block/device.h"

struct latency_options {
    uint64_t read_us;              /* service time of a read */
    uint64_t write_us;             /* of a write, with FUA or without */
    uint64_t flush_us;             /* of a flush; discards take none */
    uint64_t slots;                /* requests served at the same time; 0: any number */
    uint64_t bandwidth_per_second; /* bytes that all slots together transfer; 0: any number */
    double jitter;                 /* each service time varies by up to this fraction of it */
    uint64_t seed;                 /* of the jitter */
};

/* Stacks the filter on a device, which it then owns. On failure the device stays the caller's. */
int latency_open(struct device *lower, const struct latency_options *options, const struct log *log,
                 struct device **device) MUST_CHECK;

#endif
