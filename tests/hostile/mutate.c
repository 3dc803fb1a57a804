/* SPDX-License-Identifier: MIT */
/*
 * mutate [--seed N] [--count N] [--jobs N] [--keep FOLDER] IMAGE...: damages good images and walks
 * through each result in all modes.
 *
 * Mutation number i is made from the seed N + i alone, given the same images in the same order, so
 * "--seed S --count 1" repeats it. A batch of mutations runs in a process of its own; one that ends
 * it (crash, sanitizer, time, memory) is reported with its seed and kept as an image. Leaks are
 * looked for at the end of each batch; then its seeds are run one by one.
 *
 * Output: TAP, one test for each image.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "limits.h"
#include "target.h"
#include "walk.h"

#define BATCH           50
#define IMAGES_MAX      128
#define IMAGE_BYTES_MAX (48u << 20)
#define EXIT_MEMORY     9

struct image {
    const char *path;
    struct target *target;
};

struct options {
    uint64_t seed, count;
    unsigned int jobs;
    const char *keep;
    struct image images[IMAGES_MAX];
    unsigned int image_count;
};

/* In memory that all processes share. */
struct shared {
    uint64_t current[64]; /* the mutation that a job is at */
    unsigned int failures[IMAGES_MAX], runs[IMAGES_MAX], mounted[IMAGES_MAX];
};

static struct shared *shared;

/* ---- Numbers -------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t value = *state += UINT64_C(0x9e3779b97f4a7c15);

    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

static uint64_t below(uint64_t *state, uint64_t limit)
{
    return limit == 0 ? 0 : next_random(state) % limit;
}

/* Values that checks like to get wrong; among them blocks of other metadata. */
static uint64_t extreme(uint64_t *state, const struct target *target, unsigned int bytes)
{
    enum place_kind kind = (enum place_kind)below(state, PLACE_KINDS);
    uint64_t top = UINT64_C(1) << (8 * bytes - 1);

    switch (below(state, 10)) {
    case 0:
        return 0;
    case 1:
        return 1 + below(state, 3);
    case 2:
        return top - 1;
    case 3:
        return UINT64_MAX;
    case 4:
        return UINT64_MAX - below(state, 16);
    case 5:
        return UINT64_C(1) << below(state, 8 * bytes);
    case 6:
        return target->sb.block_count - below(state, 2);
    case 7:
        return target->sb.inode_count + below(state, 2);
    case 8:
        return target->counts[kind] == 0
                   ? top
                   : target->places[kind][below(state, target->counts[kind])].block;
    default:
        return (UINT64_C(1) << below(state, 8 * bytes)) - 1;
    }
}

/* ---- Mutations ------------------------------------------------------------------------------ */

static enum place_kind pick_kind(uint64_t *state, const struct target *target)
{
    enum place_kind kind;

    do
        kind = (enum place_kind)below(state, PLACE_KINDS);
    while (target->counts[kind] == 0);
    return kind;
}

/* Changes bytes in [area, area + size). */
static void damage(uint64_t *state, const struct target *target, uint8_t *area, size_t size)
{
    unsigned int bytes = 1u << below(state, 4);
    size_t offset = below(state, size / bytes) * bytes;
    uint64_t value;

    switch (below(state, 8)) {
    case 0:
        for (unsigned int i = 0; i < 1 + below(state, 8); i++)
            area[below(state, size)] = (uint8_t)next_random(state);
        break;
    case 1:
        area[below(state, size)] ^= (uint8_t)(1u << below(state, 8));
        break;
    case 2:
        offset = below(state, size);
        memset(area + offset, below(state, 2) == 0 ? 0 : 0xff, 1 + below(state, size - offset));
        break;
    case 3: {
        size_t from = below(state, size - 4), length = 4 + below(state, 60);
        length = length < size - from ? length : size - from;
        offset = below(state, size - length + 1);
        memmove(area + offset, area + from, length);
        break;
    }
    default:
        value = extreme(state, target, bytes);
        memcpy(area + offset, &value, bytes);
        break;
    }
}

/* Where in its block the damage shall be: inodes in use, the superblock proper. */
static void pick_area(uint64_t *state, const struct target *target, enum place_kind kind,
                      uint8_t *image, const struct place *place, uint8_t **area, size_t *size)
{
    *area = image + (size_t)place->block * target->sb.block_bytes;
    *size = target->sb.block_bytes;
    if (kind == PLACE_SUPERBLOCK) {
        *area = image + SUPERBLOCK_OFFSET_BYTES;
        *size = below(state, 8) == 0 ? SUPERBLOCK_BYTES : 0x180;
    } else if (kind == PLACE_INODES) {
        uint8_t *block = *area;

        *size = target->sb.inode_bytes;
        for (int i = 0; i < 8; i++) {
            *area = block + below(state, target->sb.inodes_per_block) * *size;
            if ((*area)[0] != 0 || (*area)[1] != 0)
                break;
        }
    } else if (below(state, 2) == 0) {
        *size = 128;
    }
}

static void swap_blocks(uint64_t *state, const struct target *target, uint8_t *image)
{
    enum place_kind kinds[2] = {pick_kind(state, target), pick_kind(state, target)};
    size_t block_bytes = target->sb.block_bytes;
    uint8_t *blocks[2];

    for (int i = 0; i < 2; i++)
        blocks[i] = image +
                    block_bytes *
                        target->places[kinds[i]][below(state, target->counts[kinds[i]])].block;
    for (size_t i = 0; i < block_bytes; i++) {
        uint8_t byte = blocks[0][i];
        blocks[0][i] = blocks[1][i];
        blocks[1][i] = byte;
    }
}

/* Damages the image as the seed says. Returns how long it is then. */
static size_t mutate(uint64_t seed, const struct target *target, uint8_t *image)
{
    uint64_t state = seed;
    unsigned int count = 1 + (unsigned int)(below(&state, 2) == 0 ? 0 : below(&state, 6));
    bool is_repaired = below(&state, 2) == 0;
    size_t bytes = target->bytes;

    next_random(&state);
    for (unsigned int i = 0; i < count; i++) {
        uint64_t choice = below(&state, 100);

        if (choice < 3) {
            swap_blocks(&state, target, image);
        } else if (choice < 4) {
            bytes = below(&state, 2) == 0 ? below(&state, bytes) : below(&state, 65536);
            bytes = bytes < target->bytes ? bytes : target->bytes;
        } else {
            enum place_kind kind = pick_kind(&state, target);
            const struct place *place = &target->places[kind][below(&state, target->counts[kind])];
            uint8_t *area;
            size_t size;

            pick_area(&state, target, kind, image, place, &area, &size);
            damage(&state, target, area, size);
            if (is_repaired)
                target_repair(target, image, kind, place);
        }
    }
    return bytes;
}

/* ---- Running -------------------------------------------------------------------------------- */

/* The image in memory, to be changed at will; munmap it. */
static uint8_t *load(const char *path, size_t *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    void *image = MAP_FAILED;

    if (size > 0 && size <= (off_t)IMAGE_BYTES_MAX)
        image = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        close(fd);
    *bytes = (size_t)size;
    return image == MAP_FAILED ? NULL : image;
}

static unsigned int image_of(const struct options *options, uint64_t seed)
{
    uint64_t state = ~seed;

    return (unsigned int)below(&state, options->image_count);
}

/* Writes the mutation to a file. */
static bool make(const struct options *options, uint64_t seed, int fd)
{
    const struct image *image = &options->images[image_of(options, seed)];
    size_t bytes;
    uint8_t *content = load(image->path, &bytes);
    bool is_good = content != NULL && bytes == image->target->bytes;

    if (is_good) {
        size_t left = mutate(seed, image->target, content);
        is_good = ftruncate(fd, 0) == 0 && pwrite(fd, content, left, 0) == (ssize_t)left;
    }
    if (content != NULL)
        munmap(content, bytes);
    return is_good;
}

static void run_one(const struct options *options, uint64_t seed, int fd)
{
    unsigned int number = image_of(options, seed);
    char path[64];

    if (!make(options, seed, fd)) {
        fprintf(stderr, "cannot make mutation %llu\n", (unsigned long long)seed);
        exit(1);
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    limits_set_time(LIMIT_SECONDS);
    long before = limits_begin_memory();
    for (unsigned int mode = WALK_NORMAL; mode <= WALK_NOCHECKSUM; mode <<= 1) {
        struct walk_result result;

        walk_image(path, (enum walk_mode)mode, false, &result);
        if (result.mount_error == 0)
            __atomic_fetch_add(&shared->mounted[number], 1, __ATOMIC_RELAXED);
    }
    limits_set_time(0);
    __atomic_fetch_add(&shared->runs[number], 1, __ATOMIC_RELAXED);
    if (limits_peak_kibibytes() - before > LIMIT_MEBIBYTES * 1024L)
        _exit(EXIT_MEMORY);
}

/* Runs seeds first, first + step, ... in a process. Returns its status as of waitpid. */
static int run_batch(const struct options *options, uint64_t first, uint64_t count, uint64_t step,
                     unsigned int job)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        int fd = memfd_create("mutation", 0);

        for (uint64_t i = 0; i < count; i++) {
            shared->current[job] = first + i * step;
            run_one(options, first + i * step, fd);
        }
        shared->current[job] = 0;
        close(fd);
        exit(0);
    }
    if (pid > 0)
        waitpid(pid, &status, 0);
    return status;
}

static void report(const struct options *options, uint64_t seed, int status)
{
    unsigned int number = image_of(options, seed);
    char path[4096], what[64];

    snprintf(what, sizeof(what), WIFSIGNALED(status) ? "signal %d" : "exit %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGALRM))
        snprintf(what, sizeof(what), "more than %d s", LIMIT_SECONDS);
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_MEMORY)
        snprintf(what, sizeof(what), "more than %d MiB", LIMIT_MEBIBYTES);
    snprintf(path, sizeof(path), "%s/mutation-%llu.img", options->keep, (unsigned long long)seed);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool is_kept = fd >= 0 && make(options, seed, fd);
    if (fd >= 0)
        close(fd);
    printf("# FAILED: --seed %llu (%s): %s%s%s\n", (unsigned long long)seed,
           options->images[number].path, what, is_kept ? ", kept as " : "", is_kept ? path : "");
    fflush(stdout);
    __atomic_fetch_add(&shared->failures[number], 1, __ATOMIC_RELAXED);
}

/* All mutations of one job: every `jobs`-th. */
static void run_job(const struct options *options, unsigned int job)
{
    uint64_t step = options->jobs;
    uint64_t seed = options->seed + job, end = options->seed + options->count;

    while (seed < end) {
        uint64_t left = (end - seed + step - 1) / step;
        uint64_t count = left < BATCH ? left : BATCH;
        int status = run_batch(options, seed, count, step, job);
        uint64_t failed = shared->current[job];

        if (status != 0 && failed != 0) {
            report(options, failed, status);
            seed = failed + step;
            continue;
        }
        /* It failed at its end, so something leaks: find out which. */
        for (uint64_t i = 0; status != 0 && i < count; i++) {
            int single = run_batch(options, seed + i * step, 1, step, job);

            if (single != 0)
                report(options, seed + i * step, single);
        }
        seed += count * step;
    }
}

static int run_all(const struct options *options)
{
    unsigned int failures = 0;

    for (unsigned int job = 0; job < options->jobs; job++) {
        pid_t pid = fork();

        if (pid == 0) {
            run_job(options, job);
            fflush(stdout);
            _exit(0);
        }
        if (pid < 0)
            return 1;
    }
    for (unsigned int job = 0; job < options->jobs; job++) {
        int status;

        if (wait(&status) < 0 || status != 0)
            failures++;
    }
    printf("1..%u\n", options->image_count);
    for (unsigned int i = 0; i < options->image_count; i++) {
        const char *name = strrchr(options->images[i].path, '/');

        printf("%sok %u - %s: %u mutations, %u of %u mounts\n",
               shared->failures[i] == 0 ? "" : "not ", i + 1,
               name != NULL ? name + 1 : options->images[i].path, shared->runs[i],
               shared->mounted[i], 3 * shared->runs[i]);
        failures += shared->failures[i];
    }
    return failures == 0 ? 0 : 1;
}

static void add_image(struct options *options, const char *path)
{
    struct target *target = malloc(sizeof(*target));
    size_t bytes;
    uint8_t *content = load(path, &bytes);

    if (target != NULL && content != NULL && options->image_count < IMAGES_MAX &&
        target_scan(target, content, bytes))
        options->images[options->image_count++] = (struct image){path, target};
    else
        free(target);
    if (content != NULL)
        munmap(content, bytes);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"seed", required_argument, NULL, 's'},
                                          {"count", required_argument, NULL, 'c'},
                                          {"jobs", required_argument, NULL, 'j'},
                                          {"keep", required_argument, NULL, 'k'},
                                          {0}};
    struct options options = {
        .seed = (uint64_t)time(NULL) * 1000000, .count = 1000, .jobs = 2, .keep = "/tmp"};
    int option;

    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (option == 's')
            options.seed = strtoull(optarg, NULL, 0);
        else if (option == 'c')
            options.count = strtoull(optarg, NULL, 0);
        else if (option == 'j')
            options.jobs = (unsigned int)strtoul(optarg, NULL, 0);
        else if (option == 'k')
            options.keep = optarg;
        else
            return 2;
    }
    for (int i = optind; i < argc; i++)
        add_image(&options, argv[i]);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (options.image_count == 0 || options.jobs == 0 || options.jobs > 64 || options.seed == 0 ||
        shared == MAP_FAILED) {
        fprintf(stderr, "usage: mutate [--seed N] [--count N] [--jobs N] [--keep FOLDER] IMAGE\n");
        return 2;
    }
    printf("# seeds %llu to %llu over %u images\n", (unsigned long long)options.seed,
           (unsigned long long)(options.seed + options.count - 1), options.image_count);
    fflush(stdout);
    int result = run_all(&options);
    for (unsigned int i = 0; i < options.image_count; i++)
        free(options.images[i].target);
    return result;
}
