/* SPDX-License-Identifier: MIT */
/*
 * parallel-read SPEC PATH...: how much faster 8 threads read than one, through the library.
 *
 * Each thread reads 4 KiB blocks of its own file (`files`) or of one shared file (`shared`) for
 * half a second. Runs with one and with 8 threads alternate; printed are the median ratio and its
 * range. A device spec such as latency(read_us=1000):disk.img makes the device the only thing to
 * wait for.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <uext4.h>

#define THREADS    8
#define RUNS       7
#define READ_BYTES 4096
#define RUN_NS     500000000u

struct reader {
    struct uext4_inode *inode;
    uint64_t size, first; /* bytes of the file; where this reader starts */
    uint64_t reads;
    bool has_failed;
};

static atomic_bool must_stop;

static void *read_until_stopped(void *context)
{
    struct reader *reader = context;
    void *buffer = aligned_alloc(READ_BYTES, READ_BYTES);
    uint64_t offset = reader->first;

    reader->has_failed = buffer == NULL;
    while (!atomic_load_explicit(&must_stop, memory_order_relaxed) && !reader->has_failed) {
        reader->has_failed = uext4_read(reader->inode, buffer, READ_BYTES, offset) != READ_BYTES;
        reader->reads++;
        offset = (offset + (uint64_t)READ_BYTES * THREADS) % reader->size;
    }
    free(buffer);
    return NULL;
}

/* Reads per second of `count` readers. */
static double run(struct reader *readers, unsigned int count)
{
    pthread_t threads[THREADS];
    struct timespec start, end, duration = {.tv_nsec = RUN_NS};
    uint64_t reads = 0;

    atomic_store(&must_stop, false);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (unsigned int i = 0; i < count; i++) {
        readers[i].reads = 0;
        if (pthread_create(&threads[i], NULL, read_until_stopped, &readers[i]) != 0)
            exit(1);
    }
    nanosleep(&duration, NULL);
    atomic_store(&must_stop, true);
    for (unsigned int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        reads += readers[i].reads;
        if (readers[i].has_failed) {
            fprintf(stderr, "parallel-read: a read failed\n");
            exit(1);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)reads /
           ((double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
}

static int compare_doubles(const void *a, const void *b)
{
    double one = *(const double *)a, two = *(const double *)b;

    return one < two ? -1 : one > two;
}

static void measure(const char *name, struct reader *readers)
{
    double ratios[RUNS], single = 0, many = 0;

    for (unsigned int i = 0; i < RUNS; i++) {
        single = run(readers, 1);
        many = run(readers, THREADS);
        ratios[i] = many / single;
    }
    qsort(ratios, RUNS, sizeof(ratios[0]), compare_doubles);
    printf("%s: %d threads / 1 thread: median %.2f, range %.2f to %.2f (last run: %.0f and %.0f "
           "reads per second)\n",
           name, THREADS, ratios[RUNS / 2], ratios[0], ratios[RUNS - 1], many, single);
}

int main(int argc, char **argv)
{
    struct uext4_mount_options options;
    struct reader files[THREADS] = {0}, shared[THREADS] = {0};
    struct uext4 *fs;

    uext4_mount_options_init(&options);
    if (argc < 2 + THREADS || uext4_mount(argv[1], &options, &fs) != 0) {
        fprintf(stderr, "usage: parallel-read SPEC PATH1 ... PATH%d\n", THREADS);
        return 2;
    }
    for (unsigned int i = 0; i < THREADS; i++) {
        struct uext4_stat stat;

        if (uext4_walk(fs, argv[2 + i], 0, &files[i].inode) != 0 ||
            uext4_stat(files[i].inode, &stat) != 0 || stat.size < READ_BYTES * THREADS) {
            fprintf(stderr, "parallel-read: %s: cannot be used\n", argv[2 + i]);
            return 1;
        }
        files[i].size = stat.size / (READ_BYTES * THREADS) * (READ_BYTES * THREADS);
    }
    for (unsigned int i = 0; i < THREADS; i++) {
        shared[i].inode = files[0].inode;
        shared[i].size = files[0].size;
        shared[i].first = i * READ_BYTES;
    }
    measure("8 files", files);
    measure("one file", shared);
    for (unsigned int i = 0; i < THREADS; i++)
        uext4_inode_put(files[i].inode);
    uext4_unmount(fs);
    return 0;
}
