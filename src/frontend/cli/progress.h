/* SPDX-License-Identifier: MIT */
/*
 * The bar that long commands show on a terminal, and the scan that finds out how much there is.
 *
 * Threads: progress_add and progress_add_total from any thread, the rest by one.
 */
#ifndef UEXT4_CLI_PROGRESS_H
#define UEXT4_CLI_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uext4.h>

struct progress;

/*
 * Finds the totals, with progress_add_total, on a thread of its own; stops early if
 * progress->is_stopping.
 */
typedef void (*progress_scan_fn)(struct progress *progress, void *context);

struct progress {
    bool is_shown;                                 /* [immutable] */
    progress_scan_fn scan;                         /* [immutable] */
    void *scan_context;                            /* [immutable] */
    int64_t start_ms;                              /* [immutable] */
    atomic_uint_fast64_t bytes, files;             /* done */
    atomic_uint_fast64_t total_bytes, total_files; /* found by the scan so far */
    atomic_bool is_scanned;                        /* the totals are final */
    atomic_bool is_stopping;
    atomic_int_fast64_t next_ms; /* when to draw next */
    pthread_t scanner;
    bool has_scanner;
};

/* Inodes of an image that a scan of it starts from. */
struct progress_roots {
    struct uext4 *fs;
    const uint64_t *inos;
    size_t count;
};

/* A progress_scan_fn for trees of an image; `context` is a struct progress_roots. */
void progress_scan_image(struct progress *progress, void *context);

/*
 * With `is_wanted` false, or without a terminal, nothing is shown and `scan` is not called. `scan`
 * may be NULL, and `context` must last until the end.
 */
void progress_begin(struct progress *progress, progress_scan_fn scan, void *context,
                    bool is_wanted);
void progress_add_total(struct progress *progress, uint64_t bytes, uint64_t files);
void progress_add(struct progress *progress, uint64_t bytes, uint64_t files);
void progress_end(struct progress *progress);

#endif
