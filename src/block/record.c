/* SPDX-License-Identifier: MIT */
/*
 * The record filter: see record.h for what is recorded when.
 *
 * The data of a write is copied, and its share of the bound taken, before the lower device gets the
 * write, so that nothing reaches the disk that the record does not have. A flush takes its place
 * in the record when it begins, as RECORD_NOTHING, and becomes RECORD_FLUSH when it has succeeded.
 * Locks: `mutex` over the entries; it is not held while the lower device works. Entries only grow
 * in number until the reset, and their data does not move.
 * Callers: device.c, spec.c, tests.
 */
#include "block/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "base/lock.h"
#include "block/spec.h"

#define DEFAULT_MAX_BYTES  (UINT64_C(1) << 30)
#define MIN_SECTOR_BYTES   512u
#define MAX_ENTRIES        (UINT32_C(1) << 26)
#define MAX_MARK_LENGTH    256u
#define REPLAY_ZEROS_BYTES 65536u

/* The dm-log-writes format. */
#define LOG_MAGIC        UINT64_C(0x6a736677736872)
#define LOG_VERSION      1u
#define LOG_FLAG_FLUSH   1u
#define LOG_FLAG_FUA     2u
#define LOG_FLAG_DISCARD 4u
#define LOG_FLAG_MARK    8u

struct log_superblock {
    le64 magic;
    le64 version;
    le64 entry_count;
    le32 sector_bytes;
};

struct log_entry {
    le64 sector;
    le64 sector_count;
    le64 flags;
    le64 data_length; /* of a mark, whose name follows in the same sector */
};

struct record_device {
    struct device device;
    char *log_path;     /* [immutable] or NULL */
    uint64_t max_bytes; /* [immutable] */
    struct mutex mutex;
    struct record_entry *entries; /* [mutex] */
    size_t entry_count;           /* [mutex] */
    size_t entry_capacity;        /* [mutex] */
    uint64_t data_bytes;          /* [mutex] of all entries, and of writes under way */
};

static struct record_device *to_record(struct device *device)
{
    return container_of(device, struct record_device, device);
}

/* ---- Entries -------------------------------------------------------------------------------- */

/* Makes room for one more entry. */
static int reserve_locked(struct record_device *record)
{
    size_t capacity = MAX(record->entry_capacity * 2, (size_t)64);
    struct record_entry *entries;

    if (record->entry_count < record->entry_capacity)
        return 0;
    if (record->entry_count >= MAX_ENTRIES)
        return -ENOMEM;
    entries = realloc(record->entries, capacity * sizeof(*entries));
    if (entries == NULL)
        return -ENOMEM;
    record->entries = entries;
    record->entry_capacity = capacity;
    return 0;
}

/* Takes over the entry's data if it succeeds. Gives the entry's index. */
static int append(struct record_device *record, const struct record_entry *entry, size_t *index)
{
    int error;

    mutex_lock(&record->mutex);
    error = reserve_locked(record);
    if (error == 0) {
        *index = record->entry_count;
        record->entries[record->entry_count++] = *entry;
    }
    mutex_unlock(&record->mutex);
    return error;
}

static int take_bytes(struct record_device *record, uint64_t count)
{
    bool fits;

    mutex_lock(&record->mutex);
    fits = count <= record->max_bytes - record->data_bytes;
    if (fits)
        record->data_bytes += count;
    mutex_unlock(&record->mutex);
    if (!fits) {
        log_error(record->device.log, "record: full: it may hold %" PRIu64 " bytes of data",
                  record->max_bytes);
        return -ENOMEM;
    }
    return 0;
}

static void give_back_bytes(struct record_device *record, uint64_t count)
{
    mutex_lock(&record->mutex);
    record->data_bytes -= count;
    mutex_unlock(&record->mutex);
}

/* ---- The device ----------------------------------------------------------------------------- */

static int record_readv(struct device *device, const struct iovec *iov, int iov_count,
                        uint64_t offset)
{
    return device_readv(device->lower, iov, iov_count, offset);
}

static int record_writev(struct device *device, const struct iovec *iov, int iov_count,
                         uint64_t offset, unsigned int flags)
{
    struct record_device *record = to_record(device);
    struct record_entry entry = {.kind = RECORD_WRITE, .flags = flags, .offset_bytes = offset};
    char *copy = NULL;
    size_t index;
    int error;

    for (int i = 0; i < iov_count; i++)
        entry.length_bytes += iov[i].iov_len;
    error = take_bytes(record, entry.length_bytes);
    if (error != 0)
        return error;
    copy = malloc((size_t)entry.length_bytes);
    if (copy == NULL) {
        error = -ENOMEM;
        goto out;
    }
    for (size_t i = 0, used = 0; i < (size_t)iov_count; used += iov[i].iov_len, i++)
        if (iov[i].iov_len > 0)
            memcpy(copy + used, iov[i].iov_base, iov[i].iov_len);
    error = device_writev(device->lower, iov, iov_count, offset, flags);
    if (error != 0)
        goto out;
    entry.data = copy;
    error = append(record, &entry, &index);
out:
    if (error != 0) {
        free(copy);
        give_back_bytes(record, entry.length_bytes);
    }
    return error;
}

static int record_flush(struct device *device)
{
    struct record_device *record = to_record(device);
    struct record_entry entry = {.kind = RECORD_NOTHING};
    size_t index;
    int error = append(record, &entry, &index);

    if (error == 0)
        error = device_flush(device->lower);
    if (error == 0) {
        mutex_lock(&record->mutex);
        record->entries[index].kind = RECORD_FLUSH;
        mutex_unlock(&record->mutex);
    }
    return error;
}

static int record_discard(struct device *device, uint64_t offset, uint64_t length)
{
    struct record_entry entry = {
        .kind = RECORD_DISCARD, .offset_bytes = offset, .length_bytes = length};
    size_t index;
    int error = device_discard(device->lower, offset, length);

    return error != 0 ? error : append(to_record(device), &entry, &index);
}

static void record_close(struct device *device)
{
    struct record_device *record = to_record(device);

    if (record->log_path != NULL && record_save(device, record->log_path) != 0)
        log_error(device->log, "record: the log %s is not complete", record->log_path);
    record_reset(device);
    device_close(device->lower);
    mutex_destroy(&record->mutex);
    free(record->entries);
    free(record->log_path);
    free(record);
}

static const struct device_ops record_ops = {
    .name = "record",
    .readv = record_readv,
    .writev = record_writev,
    .flush = record_flush,
    .discard = record_discard,
    .close = record_close,
};

/* ---- Using the record ----------------------------------------------------------------------- */

struct device *record_find(struct device *device)
{
    while (device != NULL && device->ops != &record_ops)
        device = device->lower;
    return device;
}

size_t record_count(struct device *device)
{
    struct record_device *record = to_record(device);
    size_t count;

    mutex_lock(&record->mutex);
    count = record->entry_count;
    mutex_unlock(&record->mutex);
    return count;
}

int record_get(struct device *device, size_t index, struct record_entry *entry)
{
    struct record_device *record = to_record(device);
    int error = -ENOENT;

    mutex_lock(&record->mutex);
    if (index < record->entry_count) {
        *entry = record->entries[index];
        error = 0;
    }
    mutex_unlock(&record->mutex);
    return error;
}

int record_mark(struct device *device, const char *name)
{
    struct record_entry entry = {.kind = RECORD_MARK, .length_bytes = strlen(name)};
    char *copy;
    size_t index;
    int error;

    if (entry.length_bytes > MAX_MARK_LENGTH)
        return -EINVAL;
    copy = strdup(name);
    if (copy == NULL)
        return -ENOMEM;
    entry.data = copy;
    error = append(to_record(device), &entry, &index);
    if (error != 0)
        free(copy);
    return error;
}

void record_reset(struct device *device)
{
    struct record_device *record = to_record(device);

    mutex_lock(&record->mutex);
    for (size_t i = 0; i < record->entry_count; i++)
        free((void *)(uintptr_t)record->entries[i].data);
    record->entry_count = 0;
    record->data_bytes = 0;
    mutex_unlock(&record->mutex);
}

static int replay_discard(struct device *target, uint64_t offset_bytes, uint64_t length_bytes)
{
    static const char zeros[REPLAY_ZEROS_BYTES];
    int error = 0;

    while (error == 0 && length_bytes > 0) {
        size_t step = (size_t)MIN(length_bytes, (uint64_t)sizeof(zeros));

        error = device_write(target, zeros, step, offset_bytes, 0);
        offset_bytes += step;
        length_bytes -= step;
    }
    return error;
}

int record_replay(struct device *device, size_t first, size_t end, struct device *target)
{
    int error = 0;

    for (size_t i = first; i < end && error == 0; i++) {
        struct record_entry entry;

        error = record_get(device, i, &entry);
        if (error == 0 && entry.kind == RECORD_WRITE)
            error = device_write(target, entry.data, (size_t)entry.length_bytes, entry.offset_bytes,
                                 0);
        if (error == 0 && entry.kind == RECORD_DISCARD)
            error = replay_discard(target, entry.offset_bytes, entry.length_bytes);
    }
    return error == 0 ? device_flush(target) : error;
}

/* ---- The log file --------------------------------------------------------------------------- */

static int write_all(int fd, const void *data, size_t length, uint64_t *place)
{
    const char *bytes = data;

    while (length > 0) {
        ssize_t count = pwrite(fd, bytes, length, (off_t)*place);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : -EIO;
        bytes += count;
        length -= (size_t)count;
        *place += (uint64_t)count;
    }
    return 0;
}

static uint64_t log_flags(const struct record_entry *entry)
{
    switch (entry->kind) {
    case RECORD_WRITE:
        return (entry->flags & DEVICE_FUA) != 0 ? LOG_FLAG_FUA : 0;
    case RECORD_FLUSH:
        return LOG_FLAG_FLUSH;
    case RECORD_DISCARD:
        return LOG_FLAG_DISCARD;
    case RECORD_MARK:
        return LOG_FLAG_MARK;
    case RECORD_NOTHING:
        break;
    }
    return 0;
}

/* `sector` is a buffer of one sector. */
static int save_entry(int fd, const struct record_entry *entry, char *sector, size_t sector_bytes,
                      uint64_t *place)
{
    bool is_mark = entry->kind == RECORD_MARK;
    struct log_entry head = {
        .sector = le64_make(is_mark ? 0 : entry->offset_bytes / sector_bytes),
        .sector_count = le64_make(is_mark ? 0 : entry->length_bytes / sector_bytes),
        .flags = le64_make(log_flags(entry)),
        .data_length = le64_make(is_mark ? entry->length_bytes : 0),
    };
    int error;

    memset(sector, 0, sector_bytes);
    memcpy(sector, &head, sizeof(head));
    if (is_mark)
        memcpy(sector + sizeof(head), entry->data, (size_t)entry->length_bytes);
    error = write_all(fd, sector, sector_bytes, place);
    if (error == 0 && entry->kind == RECORD_WRITE)
        error = write_all(fd, entry->data, (size_t)entry->length_bytes, place);
    return error;
}

/* The superblock goes last, so that a log that was cut short is not taken for a whole one. */
static int save_entries(struct device *device, int fd)
{
    size_t sector_bytes = device->limits.offset_alignment;
    char *sector = calloc(1, sector_bytes);
    uint64_t place = sector_bytes;
    uint64_t saved = 0;
    size_t count = record_count(device);
    int error = sector == NULL ? -ENOMEM : 0;
    struct log_superblock head;

    for (size_t i = 0; i < count && error == 0; i++) {
        struct record_entry entry;

        error = record_get(device, i, &entry);
        if (error != 0 || entry.kind == RECORD_NOTHING)
            continue;
        error = save_entry(fd, &entry, sector, sector_bytes, &place);
        saved++;
    }
    if (error == 0) {
        head = (struct log_superblock){.magic = le64_make(LOG_MAGIC),
                                       .version = le64_make(LOG_VERSION),
                                       .entry_count = le64_make(saved),
                                       .sector_bytes = le32_make((uint32_t)sector_bytes)};
        memset(sector, 0, sector_bytes);
        memcpy(sector, &head, sizeof(head));
        place = 0;
        error = write_all(fd, sector, sector_bytes, &place);
    }
    free(sector);
    return error;
}

int record_save(struct device *device, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int error = fd < 0 ? -errno : save_entries(device, fd);

    if (fd >= 0 && close(fd) != 0 && error == 0)
        error = -errno;
    if (error != 0)
        log_error(device->log, "record: %s cannot be written: %s", path, strerrordesc_np(-error));
    return error;
}

/* ---- Opening -------------------------------------------------------------------------------- */

int record_open(struct device *lower, const char *log_path, uint64_t max_bytes,
                const struct log *log, struct device **device)
{
    uint32_t sector_bytes = MAX(lower->limits.offset_alignment, MIN_SECTOR_BYTES);
    struct record_device *record;

    if (lower->limits.size_bytes % sector_bytes != 0) {
        log_error(log, "record: the device's size is not a multiple of %" PRIu32 " bytes",
                  sector_bytes);
        return -EINVAL;
    }
    record = calloc(1, sizeof(*record));
    if (record == NULL)
        return -ENOMEM;
    if (log_path != NULL) {
        record->log_path = strdup(log_path);
        if (record->log_path == NULL) {
            free(record);
            return -ENOMEM;
        }
    }
    mutex_init(&record->mutex, LOCK_RANK_DEVICE, "record");
    record->max_bytes = max_bytes == 0 ? DEFAULT_MAX_BYTES : max_bytes;
    record->device.ops = &record_ops;
    record->device.limits = lower->limits;
    record->device.limits.offset_alignment = sector_bytes;
    record->device.log = log;
    record->device.lower = lower;
    *device = &record->device;
    return 0;
}

struct record_options {
    uint64_t max_bytes;
    char log_path[SPEC_TEXT_MAX];
};

static const struct spec_key record_keys[] = {
    {.name = "log", .type = SPEC_TEXT, .offset = offsetof(struct record_options, log_path)},
    {.name = "max",
     .type = SPEC_SIZE,
     .offset = offsetof(struct record_options, max_bytes),
     .min = 1},
};

static const struct spec_table record_table = {"record", record_keys, ARRAY_LENGTH(record_keys)};

int record_open_spec(struct device *lower, const struct spec_part *keys, const struct log *log,
                     struct device **device)
{
    struct record_options *options = calloc(1, sizeof(*options));
    int error;

    if (options == NULL)
        return -ENOMEM;
    error = spec_parse_keys(keys, &record_table, options, log);
    if (error == 0)
        error = record_open(lower, options->log_path[0] == '\0' ? NULL : options->log_path,
                            options->max_bytes, log, device);
    free(options);
    return error;
}
