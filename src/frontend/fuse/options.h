/* SPDX-License-Identifier: MIT */
/*
 * What a mount command line asks for, sorted by who acts on it: the kernel, this program, or the
 * library.
 */
#ifndef UEXT4_FUSE_OPTIONS_H
#define UEXT4_FUSE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "uext4.h"

enum options_access {
    OPTIONS_ACCESS_DEFAULT, /* all users if root mounts, else the mounting user */
    OPTIONS_ACCESS_ALL,     /* allow_other */
    OPTIONS_ACCESS_OWNER,   /* noallow_other */
};

struct options {
    unsigned long mount_flags; /* MS_*, as mount(2) takes them */
    enum options_access access;
    bool is_writing_asked;  /* `rw` */
    bool is_remount_asked;  /* `remount` */
    bool has_offset;        /* of the file system in the image */
    uint64_t offset;        /* in bytes */
    unsigned int partition; /* 0: none */
    char *source_name;      /* `fsname=`, or NULL */
    char *library;          /* the rest, for uext4_mount_options_parse; never NULL after add */
};

void options_init(struct options *options);
void options_clear(struct options *options);

/* Takes one -o list in. Returns false after saying what is wrong. */
bool options_add(struct options *options, const char *list);

/* Reads a size in bytes, with K, M, G, T or s (sectors of 512 bytes) behind it. */
bool options_parse_size(const char *text, uint64_t *size);

/* Reads the number of a partition, from 1. */
bool options_parse_partition(const char *text, unsigned int *partition);

#endif
