/* SPDX-License-Identifier: MIT */
/*
 * The text that names a device, and the tables by which each device takes its keys from it.
 * The grammar is in docs/device-spec.md.
 */
#ifndef UEXT4_BLOCK_SPEC_H
#define UEXT4_BLOCK_SPEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "block/device.h"

#define SPEC_TEXT_MAX 4096 /* bytes of a path or other text, with its terminator */

/* A part of a device spec. `spec` is the whole, so that messages can give the column. */
struct spec_part {
    const char *spec;
    const char *text; /* not terminated */
    size_t length;
};

enum spec_type {
    SPEC_SIZE,     /* uint64_t; a number with a suffix K, M, G or T, decimal or 0x */
    SPEC_NUMBER,   /* uint64_t */
    SPEC_FRACTION, /* double from 0 to 1 */
    SPEC_CHOICE,   /* int, one of `choices` */
    SPEC_TEXT,     /* char[SPEC_TEXT_MAX] */
};

struct spec_choice {
    const char *name; /* NULL ends the table */
    int value;
};

struct spec_key {
    const char *name;
    enum spec_type type;
    size_t offset;     /* of the value in the device's options */
    uint64_t min, max; /* of sizes and numbers; a max of 0 means no limit */
    const struct spec_choice *choices;
};

/* A device's keys; at most 32. */
struct spec_table {
    const char *owner; /* the device's name, for messages */
    const struct spec_key *keys;
    size_t key_count;
};

/*
 * Reads "key=value,key=value" into `options`, which holds the defaults. Returns 0, or -EINVAL after
 * logging the column and what is known there.
 */
int spec_parse_keys(const struct spec_part *part, const struct spec_table *table, void *options,
                    const struct log *log) MUST_CHECK;

/* Reads a size; false if the text is not one. */
bool spec_parse_size(const char *text, size_t length, uint64_t *value) MUST_CHECK;

/* What each device and filter gives to spec.c. On failure the lower device stays the caller's. */
int file_device_open_spec(const char *path, const struct spec_part *keys,
                          const struct device_open_options *options,
                          struct device **device) MUST_CHECK;
int memory_device_open_spec(const char *place, const struct spec_part *keys,
                            const struct device_open_options *options,
                            struct device **device) MUST_CHECK;
int latency_open_spec(struct device *lower, const struct spec_part *keys, const struct log *log,
                      struct device **device) MUST_CHECK;
int fault_open_spec(struct device *lower, const struct spec_part *keys, const struct log *log,
                    struct device **device) MUST_CHECK;
int record_open_spec(struct device *lower, const struct spec_part *keys, const struct log *log,
                     struct device **device) MUST_CHECK;

#endif
