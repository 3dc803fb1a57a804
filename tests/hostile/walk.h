/* SPDX-License-Identifier: MIT */
/* Does to a file system all that a reader can do, by the public header alone. */
#ifndef UEXT4_TESTS_HOSTILE_WALK_H
#define UEXT4_TESTS_HOSTILE_WALK_H

#include <stdint.h>

#include "uext4.h"

enum walk_mode {
    WALK_NORMAL = 1u << 0,
    WALK_NOLOAD = 1u << 1,
    WALK_NOCHECKSUM = 1u << 2, /* noload, too: the journal knows no nochecksum */
    WALK_BACKUP = 1u << 3,     /* the superblock of the second group of 8192 blocks of 1 KiB */
    WALK_ALL = 0xf,
};

struct walk_result {
    int mount_error; /* 0 or -errno */
    uint64_t names, inodes, bytes_read, xattrs;
    uint64_t errors; /* calls that gave an error, which is as good a result as any */
    uint64_t messages;
};

/*
 * Mounts the file system and goes through all of it. Ends the process with a message if the
 * library breaks its contract. `verbose` prints the library's messages to stderr.
 */
void walk_image(const char *spec, enum walk_mode mode, bool verbose, struct walk_result *result);

#endif
