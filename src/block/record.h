/* SPDX-License-Identifier: MIT */
/*
 * A filter that remembers every write, flush and discard with its data, for power-cut tests: what a
 * disk may hold after a cut is worked out from the record.
 *
 * Order: a write or discard is recorded when it has ended on the lower device. A flush is recorded
 * at the place where it began: it covers all records before it, and those that ended while it ran
 * come after it. An index stays valid until record_reset.
 */
#ifndef UEXT4_BLOCK_RECORD_H
#define UEXT4_BLOCK_RECORD_H

#include "block/device.h"

enum record_kind {
    RECORD_WRITE,
    RECORD_FLUSH,
    RECORD_DISCARD,
    RECORD_MARK,
    RECORD_NOTHING, /* a flush that failed or still runs: it promises nothing */
};

struct record_entry {
    enum record_kind kind;
    unsigned int flags; /* enum device_write_flags */
    uint64_t offset_bytes;
    uint64_t length_bytes; /* of a write its data's, of a mark its name's */
    const void *data;      /* of a write; of a mark its terminated name; the filter's until reset */
};

/*
 * Stacks the filter on a device, which it then owns. Writes fail with -ENOMEM once the record holds
 * `max_bytes` of data; 0 takes a default of 1 GiB. With a `log_path` the record is also written
 * there when the device is closed, as by record_save. On failure the device stays the caller's.
 * The record's sectors have 512 bytes, or the lower device's alignment if that is larger; the
 * device's size must be a multiple of it (-EINVAL).
 */
int record_open(struct device *lower, const char *log_path, uint64_t max_bytes,
                const struct log *log, struct device **device) MUST_CHECK;

/* The record filter in a stack of devices, the outermost of several; NULL if there is none. */
struct device *record_find(struct device *device);

/* May be called while requests are under way. */
size_t record_count(struct device *record);
int record_get(struct device *record, size_t index, struct record_entry *entry) MUST_CHECK;
int record_mark(struct device *record, const char *name) MUST_CHECK;

/* Forgets all entries. No request may be under way. */
void record_reset(struct device *record);

/*
 * Carries out the entries from `first` up to and without `end` on another device: writes and
 * discards (by writing zeros where the device has no discard), ending with a flush.
 */
int record_replay(struct device *record, size_t first, size_t end,
                  struct device *target) MUST_CHECK;

/*
 * Writes the record to a file in the format of the kernel's dm-log-writes target, for its
 * replay-log tool. The file is replaced.
 */
int record_save(struct device *record, const char *path) MUST_CHECK;

#endif
