/* SPDX-License-Identifier: MIT */
/*
 * Exit statuses: those of mount(8) for its helpers, those of the uext4 command otherwise.
 */
#ifndef UEXT4_FUSE_MOUNT_STATUS_H
#define UEXT4_FUSE_MOUNT_STATUS_H

#include <stdbool.h>
#include <string.h>

/* Tells whether a program name has the form of a helper, such as "/sbin/mount.uext4". */
static inline bool mount_status_is_helper(const char *program, const char *prefix)
{
    const char *slash = strrchr(program, '/');

    return strncmp(slash != NULL ? slash + 1 : program, prefix, strlen(prefix)) == 0;
}

static inline int mount_status_usage(bool is_helper)
{
    return is_helper ? 1 : 2;
}

static inline int mount_status_failed(bool is_helper)
{
    return is_helper ? 32 : 1;
}

#endif
