/* SPDX-License-Identifier: MIT */
/*
 * The progress bar of a copy.
 *
 * A thread of its own scans the trees for their totals while the copy runs already; until it is
 * through, the line shows what is done and no bar. The line is drawn ten times a second at most,
 * by whichever thread comes by first. The scan goes over inode numbers with a stack and a table of
 * directories seen, so that no image can make it run for ever.
 */
#include "progress.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "inode_map.h"
#include "message.h"
#include "text.h"

#define INTERVAL_MS 100
#define BAR_WIDTH   24

struct scan {
    struct progress *progress;
    struct uext4 *fs;
    struct inode_map seen;
    uint64_t *stack;
    size_t count, capacity;
    uint64_t entries_left; /* in the directory at hand */
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Puts an inode on the stack unless it was there before. */
static void scan_push(struct scan *scan, uint64_t ino)
{
    if (ino == 0 || inode_map_add(&scan->seen, ino) != 1)
        return;
    if (scan->count == scan->capacity) {
        size_t capacity = scan->capacity ? scan->capacity * 2 : 256;
        void *grown = realloc(scan->stack, capacity * sizeof(*scan->stack));

        if (!grown)
            return;
        scan->stack = grown;
        scan->capacity = capacity;
    }
    scan->stack[scan->count++] = ino;
}

static void scan_file(struct scan *scan, const struct uext4_stat *stat)
{
    uint64_t bytes = S_ISREG(stat->mode) ? stat->allocated_sectors * 512 : 0;

    if (S_ISREG(stat->mode) && bytes > stat->size)
        bytes = stat->size;
    progress_add_total(scan->progress, bytes, 1);
}

static bool scan_entry(void *context, const struct uext4_dirent *entry)
{
    struct scan *scan = context;
    bool is_dots = entry->name[0] == '.' &&
                   (entry->name_length == 1 || (entry->name_length == 2 && entry->name[1] == '.'));

    if (scan->entries_left-- == 0 || atomic_load(&scan->progress->is_stopping))
        return false;
    if (is_dots)
        return true;
    if (entry->type == DT_DIR || entry->type == DT_REG || entry->type == DT_UNKNOWN)
        scan_push(scan, entry->ino);
    else
        progress_add_total(scan->progress, 0, 1);
    return true;
}

/* Errors are left to the copy: it meets them too. */
static void scan_inode(struct scan *scan, uint64_t ino)
{
    struct uext4_inode *inode;
    struct uext4_stat stat;

    if (uext4_inode_get(scan->fs, ino, &inode) < 0)
        return;
    if (uext4_stat(inode, &stat) == 0) {
        scan_file(scan, &stat);
        scan->entries_left = stat.size / 8 + 16;
        if (S_ISDIR(stat.mode))
            uext4_readdir(inode, 0, scan_entry, scan);
    }
    uext4_inode_put(inode);
}

void progress_scan_image(struct progress *progress, void *context)
{
    const struct progress_roots *roots = context;
    struct scan scan = {.progress = progress, .fs = roots->fs};

    for (size_t i = 0; i < roots->count; i++)
        scan_push(&scan, roots->inos[i]);
    while (scan.count > 0 && !atomic_load(&progress->is_stopping))
        scan_inode(&scan, scan.stack[--scan.count]);
    inode_map_clear(&scan.seen, false);
    free(scan.stack);
}

static void *scan_main(void *context)
{
    struct progress *progress = context;

    progress->scan(progress, progress->scan_context);
    atomic_store(&progress->is_scanned, true);
    return NULL;
}

void progress_begin(struct progress *progress, progress_scan_fn scan, void *context, bool is_wanted)
{
    memset(progress, 0, sizeof(*progress));
    progress->scan = scan;
    progress->scan_context = context;
    progress->is_shown = is_wanted && isatty(STDERR_FILENO);
    progress->start_ms = now_ms();
    atomic_store(&progress->next_ms, progress->start_ms + 3 * INTERVAL_MS);
    if (progress->is_shown && scan)
        progress->has_scanner = pthread_create(&progress->scanner, NULL, scan_main, progress) == 0;
}

void progress_add_total(struct progress *progress, uint64_t bytes, uint64_t files)
{
    atomic_fetch_add(&progress->total_bytes, bytes);
    atomic_fetch_add(&progress->total_files, files);
}

static void draw(struct progress *progress, int64_t elapsed_ms)
{
    uint64_t bytes = atomic_load(&progress->bytes), files = atomic_load(&progress->files);
    uint64_t total_bytes = atomic_load(&progress->total_bytes);
    uint64_t total_files = atomic_load(&progress->total_files);
    char done[32], rate[32], total[32], bar[BAR_WIDTH + 1], line[256];
    double share;
    int filled;

    text_long_size(bytes, done);
    text_long_size((uint64_t)((double)bytes * 1000 / (double)(elapsed_ms + 1)), rate);
    if (!progress->has_scanner || !atomic_load(&progress->is_scanned) || total_files == 0) {
        snprintf(line, sizeof(line), "%s, %" PRIu64 " files, %s/s", done, files, rate);
        message_status(line);
        return;
    }
    share = total_bytes > 0 ? (double)bytes / (double)total_bytes
                            : (double)files / (double)total_files;
    share = share > 1 ? 1 : share;
    filled = (int)(share * BAR_WIDTH);
    memset(bar, '#', (size_t)filled);
    memset(bar + filled, '.', (size_t)(BAR_WIDTH - filled));
    bar[BAR_WIDTH] = '\0';
    text_long_size(total_bytes, total);
    snprintf(line, sizeof(line), "[%s] %3d%% %s/%s %" PRIu64 "/%" PRIu64 " files %s/s", bar,
             (int)(share * 100), done, total, files, total_files, rate);
    message_status(line);
}

void progress_add(struct progress *progress, uint64_t bytes, uint64_t files)
{
    int64_t now;
    int_fast64_t due;

    atomic_fetch_add(&progress->bytes, bytes);
    atomic_fetch_add(&progress->files, files);
    if (!progress->is_shown)
        return;
    now = now_ms();
    due = atomic_load(&progress->next_ms);
    if (now >= due && atomic_compare_exchange_strong(&progress->next_ms, &due, now + INTERVAL_MS))
        draw(progress, now - progress->start_ms);
}

void progress_end(struct progress *progress)
{
    atomic_store(&progress->is_stopping, true);
    if (progress->has_scanner)
        pthread_join(progress->scanner, NULL);
    if (progress->is_shown)
        message_status_clear();
}
