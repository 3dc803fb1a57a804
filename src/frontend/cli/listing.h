/* SPDX-License-Identifier: MIT */
/*
 * A table of files as `ls` prints it: collect, sort, print.
 *
 * Threads: one at a time.
 */
#ifndef UEXT4_CLI_LISTING_H
#define UEXT4_CLI_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session.h"
#include "text.h"

/* A listing takes no more entries than this: it bounds the memory that a hostile image can cost. */
#define LISTING_MAX_ENTRIES 1000000

struct listing_options {
    bool is_long;
    bool has_inode; /* print inode numbers */
    bool is_human;  /* sizes with units */
    bool is_unsorted;
    bool is_one_per_line;
    size_t line_width; /* for columns */
    enum text_style style;
};

struct listing_entry {
    char *name;
    uint64_t ino;
    uint64_t size;
    int64_t modify_time;
    uint32_t mode; /* 0 if the inode could not be read, or was not wanted */
    uint32_t uid, gid;
    uint32_t link_count;
    uint32_t rdev_major, rdev_minor;
    uint16_t name_length; /* paths given by the user may be longer than a name */
    uint8_t type;         /* DT_*, or DT_UNKNOWN */
    bool has_acl;
};

struct listing {
    struct listing_entry *entries;
    size_t count, capacity;
};

/* Adds a copy of `entry` and of its name. Returns 0, -ENOMEM, or -EFBIG for one too many. */
int listing_add(struct listing *listing, const struct listing_entry *entry);

/* Fills in what a long line needs, and the type, from the inode of the entry. 0 or -errno. */
int listing_stat(struct session *session, struct listing_entry *entry);

void listing_sort(struct listing *listing);
void listing_print(struct session *session, const struct listing *listing,
                   const struct listing_options *options);
void listing_clear(struct listing *listing);

#endif
