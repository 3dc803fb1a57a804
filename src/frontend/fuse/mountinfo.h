/* SPDX-License-Identifier: MIT */
/*
 * Reads the kernel's table of mounts, /proc/self/mountinfo. Looking there instead of at the mounts
 * themselves never waits for a file-system server, not even for a dead one.
 */
#ifndef UEXT4_FUSE_MOUNTINFO_H
#define UEXT4_FUSE_MOUNTINFO_H

#include <stdbool.h>
#include <sys/types.h>

struct mountinfo {
    unsigned int major, minor; /* st_dev of what is mounted */
    uid_t user;                /* who mounted a FUSE file system; 0 where it is not said */
    char type[64];             /* such as "fuse.uext4" */
    char mountpoint[4096];
};

/* The topmost mount on an absolute path without symbolic links; or -ENOENT, -errno. */
int mountinfo_find(const char *mountpoint, struct mountinfo *result);

/* Tells whether a device is mounted with a file-system type that starts with `type`. */
bool mountinfo_has_device(unsigned int major, unsigned int minor, const char *type);

#endif
