/* SPDX-License-Identifier: MIT */
/*
 * The fault filter: counts the requests that match, and fails those from `at` on.
 *
 * A partial transfer goes to the lower device as a shorter vector. It is rounded down to 512 bytes,
 * since a disk tears between sectors, and to the lower device's alignment.
 * Locks: none; the counters are atomic. Callers: device.c, spec.c, tests.
 */
#include "block/fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "block/spec.h"

#define TEAR_BYTES 512u

struct fault_device {
    struct device device;
    struct fault_options options;  /* changes only while no request is under way */
    _Atomic uint64_t match_count;  /* [atomic] */
    _Atomic uint64_t inject_count; /* [atomic] */
};

static const struct device_ops fault_ops;

static struct fault_device *to_fault(struct device *device)
{
    return container_of(device, struct fault_device, device);
}

static bool touches_range(const struct fault_options *options, uint64_t offset_bytes,
                          uint64_t length_bytes)
{
    if (offset_bytes < options->offset_bytes)
        return length_bytes > options->offset_bytes - offset_bytes;
    return offset_bytes - options->offset_bytes < options->length_bytes;
}

/* Counts the request if it matches, and says whether it is to fail. */
static bool is_faulty(struct fault_device *fault, enum device_operation operation,
                      uint64_t offset_bytes, uint64_t length_bytes)
{
    const struct fault_options *options = &fault->options;
    uint64_t number;

    if (options->operation != FAULT_ANY_OPERATION && options->operation != (int)operation)
        return false;
    if (options->kind == FAULT_TORN && operation != DEVICE_WRITE)
        return false;
    if (operation != DEVICE_FLUSH && !touches_range(options, offset_bytes, length_bytes))
        return false;
    number = atomic_fetch_add(&fault->match_count, 1) + 1;
    if (number < options->at || (options->count != 0 && number - options->at >= options->count))
        return false;
    atomic_fetch_add(&fault->inject_count, 1);
    return true;
}

static uint64_t vector_length(const struct iovec *iov, int iov_count)
{
    uint64_t length = 0;

    for (int i = 0; i < iov_count; i++)
        length += iov[i].iov_len;
    return length;
}

/* Does the first bytes of a transfer that the options let through. */
static int transfer_part(struct fault_device *fault, enum device_operation operation,
                         const struct iovec *iov, int iov_count, uint64_t offset,
                         unsigned int flags)
{
    struct device *lower = fault->device.lower;
    uint64_t granule = MAX(lower->limits.offset_alignment, TEAR_BYTES);
    uint64_t left = ROUND_DOWN(fault->options.bytes, granule);
    struct iovec *part;
    int part_count = 0;
    int error;

    part = calloc((size_t)iov_count, sizeof(*part));
    if (part == NULL)
        return -ENOMEM;
    for (; part_count < iov_count && left > 0; part_count++) {
        part[part_count] = iov[part_count];
        part[part_count].iov_len = (size_t)MIN((uint64_t)part[part_count].iov_len, left);
        left -= part[part_count].iov_len;
    }
    if (operation == DEVICE_READ)
        error = device_readv(lower, part, part_count, offset);
    else
        error = device_writev(lower, part, part_count, offset, flags);
    free(part);
    return error;
}

static int inject(struct fault_device *fault, enum device_operation operation,
                  const struct iovec *iov, int iov_count, uint64_t offset, unsigned int flags)
{
    const struct fault_options *options = &fault->options;
    int error = 0;

    if (options->kind != FAULT_ERROR)
        error = transfer_part(fault, operation, iov, iov_count, offset, flags);
    if (error != 0 || (options->kind == FAULT_TORN && options->reports_success))
        return error;
    return -options->error;
}

static int fault_readv(struct device *device, const struct iovec *iov, int iov_count,
                       uint64_t offset)
{
    struct fault_device *fault = to_fault(device);

    if (is_faulty(fault, DEVICE_READ, offset, vector_length(iov, iov_count)))
        return inject(fault, DEVICE_READ, iov, iov_count, offset, 0);
    return device_readv(device->lower, iov, iov_count, offset);
}

static int fault_writev(struct device *device, const struct iovec *iov, int iov_count,
                        uint64_t offset, unsigned int flags)
{
    struct fault_device *fault = to_fault(device);

    if (is_faulty(fault, DEVICE_WRITE, offset, vector_length(iov, iov_count)))
        return inject(fault, DEVICE_WRITE, iov, iov_count, offset, flags);
    return device_writev(device->lower, iov, iov_count, offset, flags);
}

static int fault_flush(struct device *device)
{
    struct fault_device *fault = to_fault(device);

    if (is_faulty(fault, DEVICE_FLUSH, 0, 0))
        return -fault->options.error;
    return device_flush(device->lower);
}

static int fault_discard(struct device *device, uint64_t offset, uint64_t length)
{
    struct fault_device *fault = to_fault(device);

    if (is_faulty(fault, DEVICE_DISCARD, offset, length))
        return -fault->options.error;
    return device_discard(device->lower, offset, length);
}

static void fault_close(struct device *device)
{
    device_close(device->lower);
    free(to_fault(device));
}

static const struct device_ops fault_ops = {
    .name = "fault",
    .readv = fault_readv,
    .writev = fault_writev,
    .flush = fault_flush,
    .discard = fault_discard,
    .close = fault_close,
};

struct device *fault_find(struct device *device)
{
    while (device != NULL && device->ops != &fault_ops)
        device = device->lower;
    return device;
}

uint64_t fault_count(const struct device *fault)
{
    return atomic_load(&container_of(fault, const struct fault_device, device)->match_count);
}

uint64_t fault_injected(const struct device *fault)
{
    return atomic_load(&container_of(fault, const struct fault_device, device)->inject_count);
}

static bool is_valid(const struct fault_options *options)
{
    return options->at > 0 && options->error > 0 && options->kind >= FAULT_ERROR &&
           options->kind <= FAULT_TORN && options->operation >= FAULT_ANY_OPERATION &&
           options->operation <= (int)DEVICE_DISCARD;
}

int fault_reset(struct device *device, const struct fault_options *options)
{
    struct fault_device *fault = to_fault(device);

    if (!is_valid(options))
        return -EINVAL;
    fault->options = *options;
    atomic_store(&fault->match_count, 0);
    atomic_store(&fault->inject_count, 0);
    return 0;
}

int fault_open(struct device *lower, const struct fault_options *options, const struct log *log,
               struct device **device)
{
    struct fault_device *fault;

    if (!is_valid(options))
        return -EINVAL;
    fault = calloc(1, sizeof(*fault));
    if (fault == NULL)
        return -ENOMEM;
    fault->options = *options;
    fault->device.ops = &fault_ops;
    fault->device.limits = lower->limits;
    fault->device.log = log;
    fault->device.lower = lower;
    *device = &fault->device;
    return 0;
}

static const struct spec_choice operations[] = {
    {"read", DEVICE_READ},       {"write", DEVICE_WRITE},      {"flush", DEVICE_FLUSH},
    {"discard", DEVICE_DISCARD}, {"any", FAULT_ANY_OPERATION}, {NULL, 0}};
static const struct spec_choice kinds[] = {
    {"error", FAULT_ERROR}, {"short", FAULT_SHORT}, {"torn", FAULT_TORN}, {NULL, 0}};
static const struct spec_choice errors[] = {{"EIO", EIO},
                                            {"ENOSPC", ENOSPC},
                                            {"EROFS", EROFS},
                                            {"ENOMEM", ENOMEM},
                                            {"ETIMEDOUT", ETIMEDOUT},
                                            {"EREMOTEIO", EREMOTEIO},
                                            {"EOPNOTSUPP", EOPNOTSUPP},
                                            {"EACCES", EACCES},
                                            {"ENODEV", ENODEV},
                                            {"EAGAIN", EAGAIN},
                                            {NULL, 0}};
static const struct spec_choice reports[] = {{"error", 0}, {"success", 1}, {NULL, 0}};

#define KEY(key_name, key_type, field, ...)                                                  \
    {                                                                                        \
        .name = key_name, .type = key_type, .offset = offsetof(struct fault_options, field), \
        __VA_ARGS__                                                                          \
    }

static const struct spec_key fault_keys[] = {
    KEY("op", SPEC_CHOICE, operation, .choices = operations),
    KEY("at", SPEC_NUMBER, at, .min = 1),
    KEY("count", SPEC_NUMBER, count, .min = 0),
    KEY("kind", SPEC_CHOICE, kind, .choices = kinds),
    KEY("errno", SPEC_CHOICE, error, .choices = errors),
    KEY("bytes", SPEC_SIZE, bytes, .min = 0),
    KEY("report", SPEC_CHOICE, reports_success, .choices = reports),
    KEY("offset", SPEC_SIZE, offset_bytes, .min = 0),
    KEY("length", SPEC_SIZE, length_bytes, .min = 1),
};

static const struct spec_table fault_table = {"fault", fault_keys, ARRAY_LENGTH(fault_keys)};

int fault_open_spec(struct device *lower, const struct spec_part *keys, const struct log *log,
                    struct device **device)
{
    struct fault_options options = FAULT_OPTIONS_DEFAULT;
    int error = spec_parse_keys(keys, &fault_table, &options, log);

    return error != 0 ? error : fault_open(lower, &options, log, device);
}
