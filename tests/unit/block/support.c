/* SPDX-License-Identifier: MIT */
/* See support.h. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Results -------------------------------------------------------------------------------- */

static FILE *plain_output;

static ssize_t write_mended(void *context, const char *text, size_t size)
{
    (void)context;
    if (text == NULL)
        return 0;
    const char *end = text + size;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *next = newline == NULL ? end : newline + 1;
        size_t length = (size_t)(next - text);

        if (length > 7 && memcmp(text, "not ok ", 7) == 0 &&
            memmem(text, length, " # SKIP", 7) != NULL)
            text += 4;
        fwrite(text, 1, (size_t)(next - text), plain_output);
        text = next;
    }
    fflush(plain_output);
    return (ssize_t)size;
}

void support_mend_skips(void)
{
    cookie_io_functions_t functions = {.write = write_mended};

    plain_output = stdout;
    stdout = fopencookie(NULL, "w", functions);
    assert_non_null(stdout);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
}

/* ---- Log ------------------------------------------------------------------------------------ */

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static char messages[8192];
static size_t messages_length;

static void collect(void *context, enum log_level level, const char *message)
{
    int added;

    (void)context;
    (void)level;
    pthread_mutex_lock(&log_mutex);
    added = snprintf(messages + messages_length, sizeof(messages) - messages_length, "%s\n",
                     message);
    messages_length = MIN(messages_length + (size_t)MAX(added, 0), sizeof(messages) - 1);
    pthread_mutex_unlock(&log_mutex);
}

const struct log support_log = {.write = collect, .max_level = LOG_LEVEL_DEBUG};

const char *support_messages(void)
{
    return messages;
}

void support_clear_log(void)
{
    messages[0] = '\0';
    messages_length = 0;
}

/* ---- Files ---------------------------------------------------------------------------------- */

struct support_folder support_make_folder(const char *parent)
{
    struct support_folder folder;

    snprintf(folder.path, sizeof(folder.path), "%s/uext4-test-XXXXXX", parent);
    assert_non_null(mkdtemp(folder.path));
    return folder;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *position)
{
    (void)status;
    (void)type;
    (void)position;
    return remove(path);
}

void support_remove_folder(const struct support_folder *folder)
{
    assert_int_equal(nftw(folder->path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

const char *support_path(const struct support_folder *folder, const char *name)
{
    static char paths[4][160];
    static unsigned int next;
    char *path = paths[next++ % ARRAY_LENGTH(paths)];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder->path, name);
    return path;
}

unsigned char support_byte(uint64_t place)
{
    return (unsigned char)((place * UINT64_C(0x9e3779b97f4a7c15)) >> 56) | 1;
}

uint64_t support_first_difference(const void *memory, size_t length, uint64_t place)
{
    const unsigned char *bytes = memory;

    for (size_t i = 0; i < length; i++)
        if (bytes[i] != support_byte(place + i))
            return place + i;
    return UINT64_MAX;
}

void support_make_file(const char *path, uint64_t size)
{
    unsigned char *bytes = malloc(size + 1);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_non_null(bytes);
    assert_true(fd >= 0);
    for (uint64_t i = 0; i < size; i++)
        bytes[i] = support_byte(i);
    assert_int_equal(pwrite(fd, bytes, size, 0), size);
    close(fd);
    free(bytes);
}

void support_make_sparse_file(const char *path, uint64_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

int support_run(const char *const arguments[], const char *standard_input)
{
    int ends[2];
    int status;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);

        dup2(ends[0], 0);
        dup2(null, 1);
        dup2(null, 2);
        close(ends[1]);
        execvp(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    close(ends[0]);
    if (standard_input != NULL)
        assert_int_equal(write(ends[1], standard_input, strlen(standard_input)),
                         strlen(standard_input));
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) != 127 ? WEXITSTATUS(status) : -1;
}

/*
 * A loop device that is detached while it is open goes away with its last user. So none is left
 * behind, however the test ends.
 */
static int loop_fd;

bool support_attach_loop(const char *path, const char *sector, char *name, size_t size)
{
    const char *const detach[] = {"losetup", "-d", name, NULL};
    char command[256];
    FILE *output;
    bool is_attached;

    if (geteuid() != 0)
        return false;
    snprintf(command, sizeof(command), "losetup -b %s --show -f %s 2>/dev/null", sector, path);
    output = popen(command, "r");
    if (output == NULL)
        return false;
    is_attached = fgets(name, (int)size, output) != NULL;
    name[strcspn(name, "\n")] = '\0';
    if (pclose(output) != 0 || !is_attached)
        return false;
    loop_fd = open(name, O_RDONLY | O_CLOEXEC);
    assert_true(loop_fd >= 0);
    assert_int_equal(support_run(detach, NULL), 0);
    return true;
}

void support_detach_loop(void)
{
    close(loop_fd);
}

/* ---- Devices -------------------------------------------------------------------------------- */

struct device *support_open(const char *spec, bool is_writable)
{
    struct device_open_options options = {
        .is_writable = is_writable, .direct = -1, .log = &support_log};
    struct device *device = NULL;
    int error = device_open(spec, &options, &device);

    if (error != 0)
        fail_msg("cannot open %s: error %d: %s", spec, error, support_messages());
    return device;
}

int support_open_error(const char *spec, bool is_writable)
{
    struct device_open_options options = {
        .is_writable = is_writable, .direct = -1, .log = &support_log};
    struct device *device = NULL;
    int error;

    support_clear_log();
    error = device_open(spec, &options, &device);
    device_close(device);
    return error;
}

uint64_t support_seed(void)
{
    const char *given = getenv("UEXT4_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)getpid() * 2654435761u;

    print_message("# UEXT4_SEED=%llu\n", (unsigned long long)seed);
    return seed | 1;
}

uint64_t support_random(uint64_t *state, uint64_t bound)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % bound;
}

/* ---- Strict device -------------------------------------------------------------------------- */

static struct strict_device *to_strict(struct device *device)
{
    return container_of(device, struct strict_device, device);
}

static void enter(struct strict_device *strict)
{
    mutex_lock(&strict->mutex);
    strict->inside++;
    strict->max_inside = MAX(strict->max_inside, strict->inside);
    condition_broadcast(&strict->changed);
    while (strict->max_inside < strict->hold_until)
        condition_wait(&strict->changed, &strict->mutex);
    mutex_unlock(&strict->mutex);
}

static void leave(struct strict_device *strict, unsigned int *counter)
{
    mutex_lock(&strict->mutex);
    strict->inside--;
    (*counter)++;
    mutex_unlock(&strict->mutex);
}

static void check(struct strict_device *strict, const struct iovec *iov, int iov_count,
                  uint64_t offset)
{
    const struct device_limits *limits = &strict->device.limits;
    uint64_t end = offset;
    bool is_good = iov_count > 0 && offset % limits->offset_alignment == 0;

    for (int i = 0; i < iov_count; i++) {
        end += iov[i].iov_len;
        is_good = is_good && iov[i].iov_len % limits->offset_alignment == 0 &&
                  (uintptr_t)iov[i].iov_base % limits->memory_alignment == 0;
    }
    if (!is_good || end == offset || end > limits->size_bytes) {
        mutex_lock(&strict->mutex);
        strict->violations++;
        mutex_unlock(&strict->mutex);
    }
}

static int strict_readv(struct device *device, const struct iovec *iov, int iov_count,
                        uint64_t offset)
{
    struct strict_device *strict = to_strict(device);

    check(strict, iov, iov_count, offset);
    enter(strict);
    for (int i = 0; i < iov_count; offset += iov[i].iov_len, i++)
        memcpy(iov[i].iov_base, strict->bytes + offset, iov[i].iov_len);
    leave(strict, &strict->reads);
    return 0;
}

static int strict_writev(struct device *device, const struct iovec *iov, int iov_count,
                         uint64_t offset, unsigned int flags)
{
    struct strict_device *strict = to_strict(device);

    check(strict, iov, iov_count, offset);
    enter(strict);
    for (int i = 0; i < iov_count; offset += iov[i].iov_len, i++)
        memcpy(strict->bytes + offset, iov[i].iov_base, iov[i].iov_len);
    mutex_lock(&strict->mutex);
    strict->last_flags = flags;
    mutex_unlock(&strict->mutex);
    leave(strict, &strict->writes);
    return 0;
}

static int strict_flush(struct device *device)
{
    struct strict_device *strict = to_strict(device);

    enter(strict);
    leave(strict, &strict->flushes);
    return 0;
}

static int strict_discard(struct device *device, uint64_t offset, uint64_t length)
{
    struct strict_device *strict = to_strict(device);

    enter(strict);
    memset(strict->bytes + offset, 0, length);
    leave(strict, &strict->discards);
    return 0;
}

static void strict_close(struct device *device)
{
    struct strict_device *strict = to_strict(device);

    condition_destroy(&strict->changed);
    mutex_destroy(&strict->mutex);
    free(strict->bytes);
    free(strict);
}

static const struct device_ops strict_ops = {
    .name = "strict",
    .readv = strict_readv,
    .writev = strict_writev,
    .flush = strict_flush,
    .discard = strict_discard,
    .close = strict_close,
};

struct strict_device *strict_device_create(uint64_t size_bytes, uint32_t offset_alignment,
                                           uint32_t memory_alignment)
{
    struct strict_device *strict = calloc(1, sizeof(*strict));

    assert_non_null(strict);
    strict->bytes = calloc(1, size_bytes);
    assert_non_null(strict->bytes);
    mutex_init(&strict->mutex, LOCK_RANK_DEVICE, "strict device");
    condition_init(&strict->changed);
    strict->device.ops = &strict_ops;
    strict->device.log = &support_log;
    strict->device.limits = (struct device_limits){.size_bytes = size_bytes,
                                                   .offset_alignment = offset_alignment,
                                                   .memory_alignment = memory_alignment,
                                                   .max_iov_count = 16,
                                                   .has_discard = true};
    return strict;
}
