/* SPDX-License-Identifier: MIT */
/* What the explorer cuts the power of. Each workload keeps to the directory of its domain. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "crash.h"

static unsigned int pick(struct domain *domain, unsigned int bound)
{
    return (unsigned int)rand_r(&domain->seed) % bound;
}

static const char *numbered(char path[MAX_PATH], const char *format, int number)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(path, MAX_PATH, format, number);
#pragma GCC diagnostic pop
    return path;
}

/* Creates, writes and fsyncs files, some of them not. */
static void run_create(struct domain *domain)
{
    char path[MAX_PATH];
    int object;

    for (int i = 0; i < 24; i++) {
        if (op_create(domain, numbered(path, "file-%d", i), &object) != 0)
            return;
        op_write(domain, object, 0, 1 + pick(domain, 12000));
        if (pick(domain, 3) != 0)
            op_fsync(domain, object, pick(domain, 2) == 0);
        op_close(domain, object);
    }
    op_sync(domain);
}

/* As editors save: new file, fsync, rename over the old one. */
static void run_editor(struct domain *domain)
{
    int object;

    for (int i = 0; i < 20; i++) {
        if (op_create(domain, "text.new", &object) != 0)
            return;
        op_write(domain, object, 0, 500 + pick(domain, 9000));
        op_fsync(domain, object, false);
        op_rename(domain, "text.new", "text", false);
        if (pick(domain, 2) == 0)
            op_fsync_directory(domain, "");
        op_close(domain, object);
    }
}

/* As editors that keep a backup by a hard link, and as those that exchange. */
static void run_backup(struct domain *domain)
{
    int object, old;

    if (op_create(domain, "text", &old) != 0)
        return;
    op_write(domain, old, 0, 3000);
    op_sync(domain);
    for (int i = 0; i < 14; i++) {
        op_link(domain, old, "text~");
        op_create(domain, "new", &object);
        op_write(domain, object, 0, 1 + pick(domain, 6000));
        op_fsync(domain, object, false);
        if (pick(domain, 2) == 0) {
            op_rename(domain, "new", "text", true);
            op_unlink(domain, "new");
        } else {
            op_rename(domain, "new", "text", false);
        }
        op_unlink(domain, "text~");
        op_close(domain, old);
        old = object;
        if (pick(domain, 3) == 0)
            op_sync(domain);
    }
}

/* A log: appends with fdatasync, to two files in turn. */
static void run_append(struct domain *domain)
{
    int objects[2];
    uint64_t sizes[2] = {0, 0};

    if (op_create(domain, "log-0", &objects[0]) != 0 ||
        op_create(domain, "log-1", &objects[1]) != 0)
        return;
    op_sync(domain);
    for (int i = 0; i < 50; i++) {
        unsigned int which = pick(domain, 2);
        int64_t count = op_write(domain, objects[which], sizes[which],
                                 1 + pick(domain, i % 8 == 0 ? 20000 : 900));

        sizes[which] += count > 0 ? (uint64_t)count : 0;
        if (pick(domain, 3) != 0)
            op_fsync(domain, objects[which], true);
    }
}

/* A database: pages overwritten in place, and holes filled. */
static void run_overwrite(struct domain *domain)
{
    int object;

    if (op_create(domain, "base", &object) != 0)
        return;
    op_write(domain, object, 0, 60000);
    op_write(domain, object, 120000, 30000);
    op_fsync(domain, object, false);
    for (int i = 0; i < 50; i++) {
        op_write(domain, object, pick(domain, 150000), 1 + pick(domain, 7000));
        if (pick(domain, 3) == 0)
            op_fsync(domain, object, pick(domain, 2) == 0);
    }
}

static void run_truncate(struct domain *domain)
{
    int object;

    if (op_create(domain, "file", &object) != 0)
        return;
    op_write(domain, object, 0, 80000);
    op_fsync(domain, object, false);
    for (int i = 0; i < 36; i++) {
        op_truncate(domain, object, pick(domain, 100000));
        if (pick(domain, 3) == 0)
            op_truncate(domain, object, pick(domain, 120000));
        if (pick(domain, 3) == 0)
            op_write(domain, object, pick(domain, 100000), 1 + pick(domain, 9000));
        if (pick(domain, 3) == 0)
            op_fsync(domain, object, false);
    }
}

/* Many extents: every second block, then cut. */
static void run_sparse(struct domain *domain)
{
    int object;

    for (int round = 0; round < 3; round++) {
        char path[MAX_PATH];

        if (op_create(domain, numbered(path, "sparse-%d", round), &object) != 0)
            return;
        for (int i = 0; i < 50; i++)
            op_write(domain, object, (uint64_t)i * 9000, 100 + pick(domain, 900));
        op_fsync(domain, object, false);
        op_truncate(domain, object, pick(domain, 200000));
        op_fsync(domain, object, false);
        if (round == 1)
            op_unlink(domain, path);
        op_close(domain, object);
    }
    op_sync(domain);
}

/* Files that lose their name while they are open; their space is used again by others. */
static void run_unlink_open(struct domain *domain)
{
    char path[MAX_PATH];
    int objects[4], other;

    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 4; i++) {
            if (op_create(domain, numbered(path, "open-%d", i), &objects[i]) != 0)
                return;
            op_write(domain, objects[i], 0, 1 + pick(domain, 20000));
        }
        op_sync(domain);
        for (int i = 0; i < 4; i++) {
            op_unlink(domain, numbered(path, "open-%d", i));
            if (pick(domain, 2) == 0)
                op_write(domain, objects[i], 20000, 3000);
            if (pick(domain, 2) == 0)
                op_fsync_directory(domain, "");
        }
        if (op_create(domain, numbered(path, "kept-%d", round), &other) != 0)
            return;
        for (int i = 0; i < 4; i++) {
            op_close(domain, objects[i]);
            op_write(domain, other, (uint64_t)i * 9000, 9000);
            if (pick(domain, 2) == 0)
                op_fsync(domain, other, false);
        }
        op_close(domain, other);
    }
}

static void run_mkdir_tree(struct domain *domain)
{
    char path[MAX_PATH];
    int object;

    for (int i = 0; i < 12; i++) {
        op_mkdir(domain, numbered(path, "dir-%d", i));
        op_mkdir(domain, numbered(path, "dir-%d/sub", i));
        if (op_create(domain, numbered(path, "dir-%d/sub/file", i), &object) == 0) {
            op_write(domain, object, 0, 1 + pick(domain, 3000));
            if (pick(domain, 2) == 0)
                op_fsync(domain, object, false);
            op_close(domain, object);
        }
        if (i >= 3 && pick(domain, 2) == 0) {
            op_unlink(domain, numbered(path, "dir-%d/sub/file", i - 2));
            op_rmdir(domain, numbered(path, "dir-%d/sub", i - 2));
            op_rmdir(domain, numbered(path, "dir-%d", i - 2));
        }
        if (pick(domain, 3) == 0)
            op_fsync_directory(domain, "");
    }
    op_sync(domain);
}

/* A directory that grows past several index splits and shrinks. */
static void run_many_names(struct domain *domain)
{
    char path[MAX_PATH];
    int object;

    for (int i = 0; i < 240; i++) {
        snprintf(path, sizeof(path), "a-rather-long-name-so-that-blocks-fill-up-soon-%04d", i);
        if (op_create(domain, path, &object) != 0)
            return;
        op_close(domain, object);
        if (i % 5 == 4) {
            snprintf(path, sizeof(path), "a-rather-long-name-so-that-blocks-fill-up-soon-%04d",
                     i - 3);
            op_unlink(domain, path);
        }
        if (pick(domain, 12) == 0)
            op_fsync_directory(domain, "");
    }
    op_sync(domain);
}

/* Files and directories move between directories. */
static void run_rename(struct domain *domain)
{
    char from[MAX_PATH], to[MAX_PATH];
    int object, sides[10] = {0};

    op_mkdir(domain, "left");
    op_mkdir(domain, "right");
    op_mkdir(domain, "left/tree");
    op_create(domain, "left/tree/leaf", &object);
    op_close(domain, object);
    for (int i = 0; i < 10; i++) {
        if (op_create(domain, numbered(from, "left/%d", i), &object) != 0)
            return;
        op_write(domain, object, 0, 1 + pick(domain, 2000));
        op_close(domain, object);
    }
    op_sync(domain);
    for (int i = 0; i < 60; i++) {
        int which = (int)pick(domain, 11);
        const char *const formats[2] = {"left/%d", "right/%d"};
        static const char *const trees[2] = {"left/tree", "right/tree"};

        if (which < 10) {
            numbered(from, formats[sides[which]], which);
            numbered(to, formats[1 - sides[which]], which);
            op_rename(domain, from, to, false);
            sides[which] = 1 - sides[which];
        } else {
            op_rename(domain, trees[domain->sizes[0] & 1], trees[1 - (domain->sizes[0] & 1)],
                      false);
            domain->sizes[0] ^= 1;
        }
        if (pick(domain, 6) == 0)
            op_fsync_directory(domain, pick(domain, 2) == 0 ? "left" : "right");
    }
}

/* Writes into the last free blocks, deletes, and writes again. */
static void run_full(struct domain *domain)
{
    char path[MAX_PATH];
    int object;

    for (int round = 0; round < 4; round++) {
        int made = 0;
        bool is_full = false;

        while (!is_full && made < 12) {
            if (op_create(domain, numbered(path, "fill-%d", round * 100 + made), &object) != 0)
                break;
            made++;
            is_full = op_write(domain, object, 0, 40000 + pick(domain, 40000)) < 40000;
            if (pick(domain, 2) == 0)
                op_fsync(domain, object, false);
            op_close(domain, object);
        }
        for (int i = 0; i < made; i++)
            if (i % 4 != 3 || pick(domain, 2) == 0)
                op_unlink(domain, numbered(path, "fill-%d", round * 100 + i));
        if (pick(domain, 2) == 0)
            op_sync(domain);
    }
}

/* More metadata than the log holds: it wraps, and its tail moves. Blocks change their use. */
static void run_wrap(struct domain *domain)
{
    char path[MAX_PATH];
    int object;

    for (int i = 0; i < 130; i++) {
        numbered(path, "wrap-%d", i % 9);
        if (i >= 9 && pick(domain, 4) != 0) {
            op_unlink(domain, path);
            if (op_create(domain, path, &object) != 0)
                return;
            op_write(domain, object, 0, 1 + pick(domain, 5000));
            op_fsync(domain, object, false);
            op_close(domain, object);
        } else if (i < 9) {
            if (op_create(domain, path, &object) != 0)
                return;
            op_close(domain, object);
        }
        if (i % 6 == 0)
            op_mkdir(domain, "dir");
        if (i % 6 == 2)
            op_rmdir(domain, "dir");
        op_fsync_directory(domain, "");
    }
}

/* Any of all that, as one thread or two. */
static void run_mixed(struct domain *domain)
{
    char path[MAX_PATH];
    int objects[8] = {0};

    for (int i = 0; i < 130; i++) {
        int which = (int)pick(domain, 8);
        int object = objects[which];

        numbered(path, "mixed-%d", which);
        if (object == 0) {
            if (op_create(domain, path, &objects[which]) != 0)
                return;
            continue;
        }
        switch (pick(domain, 7)) {
        case 0:
            op_unlink(domain, path);
            op_close(domain, object);
            objects[which] = 0;
            break;
        case 1:
            op_truncate(domain, object, pick(domain, 40000));
            break;
        case 2:
        case 3:
            op_fsync(domain, object, pick(domain, 2) == 0);
            break;
        case 4:
            op_write(domain, object, domain->sizes[object] % 100000, 1 + pick(domain, 3000));
            break;
        default:
            op_write(domain, object, pick(domain, 40000), 1 + pick(domain, 6000));
        }
    }
}

const struct workload workloads[] = {
    {"create", NULL, 1, false, run_create},
    {"editor", NULL, 1, false, run_editor},
    {"backup", NULL, 1, false, run_backup},
    {"append", NULL, 1, false, run_append},
    {"overwrite", NULL, 1, false, run_overwrite},
    {"truncate", NULL, 1, false, run_truncate},
    {"sparse", NULL, 1, false, run_sparse},
    {"unlink-open", NULL, 1, false, run_unlink_open},
    {"mkdir", NULL, 1, false, run_mkdir_tree},
    {"many-names", NULL, 1, false, run_many_names},
    {"rename", NULL, 1, false, run_rename},
    {"full", NULL, 1, true, run_full},
    {"wrap", "-b 1024 -J size=1", 1, false, run_wrap},
    {"mixed", NULL, 1, false, run_mixed},
    {"threads", NULL, 2, false, run_mixed},
};
const unsigned int workload_count = ARRAY_LENGTH(workloads);
