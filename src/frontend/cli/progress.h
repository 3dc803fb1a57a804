/* SPDX-License-Identifier: MIT */
/*
 * The bar that `uext4 get` shows on a terminal, and the scan that finds out how much there is.
 *
 * Threads: progress_add from any thread, the rest by one.
 */
#ifndef UEXT4_CLI_PROGRESS_H
#define UEXT4_CLI_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uext4.h>

struct progress {
    bool is_shown;                                 /* [immutable] */
    struct uext4 *fs;                              /* [immutable] */
    int64_t start_ms;                              /* [immutable] */
    atomic_uint_fast64_t bytes, files;             /* done */
    atomic_uint_fast64_t total_bytes, total_files; /* found by the scan so far */
    atomic_bool is_scanned;                        /* the totals are final */
    atomic_bool is_stopping;
    atomic_int_fast64_t next_ms; /* when to draw next */
    uint64_t *roots;             /* inodes that the scan starts from */
    size_t root_count;
    pthread_t scanner;
    bool has_scanner;
};

/* Takes a copy of `roots`. With `is_wanted` false, or without a terminal, nothing is shown. */
void progress_begin(struct progress *progress, struct uext4 *fs, const uint64_t *roots,
                    size_t root_count, bool is_wanted);
void progress_add(struct progress *progress, uint64_t bytes, uint64_t files);
void progress_end(struct progress *progress);

#endif
