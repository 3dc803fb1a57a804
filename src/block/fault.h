/* SPDX-License-Identifier: MIT */
/* A filter that fails requests as told. */
#ifndef UEXT4_BLOCK_FAULT_H
#define UEXT4_BLOCK_FAULT_H

#include "block/device.h"

enum fault_kind {
    FAULT_ERROR, /* nothing is done; the request fails */
    FAULT_SHORT, /* the first `bytes` of a transfer are done; the request fails */
    FAULT_TORN,  /* the first `bytes` of a write are done; the request fails, or claims success */
};

/* As `operation`, next to the values of enum device_operation. */
#define FAULT_ANY_OPERATION (-1)

/*
 * A request matches if its operation does, and if it touches the range (flushes always do). A torn
 * fault matches writes only.
 */
struct fault_options {
    int operation;         /* of enum device_operation, or FAULT_ANY_OPERATION */
    uint64_t at;           /* the first matching request that fails; the first of all is 1 */
    uint64_t count;        /* how many matching requests fail from there on; 0: all */
    int kind;              /* of enum fault_kind */
    int error;             /* such as EIO, positive */
    uint64_t bytes;        /* rounded down to 512 and to what the lower device takes */
    int reports_success;   /* of a torn write */
    uint64_t offset_bytes; /* the range */
    uint64_t length_bytes; /* UINT64_MAX: to the end */
};

#define FAULT_OPTIONS_DEFAULT                                                \
    {                                                                        \
        .operation = FAULT_ANY_OPERATION, .at = 1, .count = 1, .error = EIO, \
        .length_bytes = UINT64_MAX                                           \
    }

/* Stacks the filter on a device, which it then owns. On failure the device stays the caller's. */
int fault_open(struct device *lower, const struct fault_options *options, const struct log *log,
               struct device **device) MUST_CHECK;

/* The fault filter in a stack of devices, the outermost of several; NULL if there is none. */
struct device *fault_find(struct device *device);

/* How many requests matched so far, and how many of these were made to fail. */
uint64_t fault_count(const struct device *fault);
uint64_t fault_injected(const struct device *fault);

/* Starts counting anew, with other options. No request may be under way. -EINVAL as fault_open. */
int fault_reset(struct device *fault, const struct fault_options *options) MUST_CHECK;

#endif
