/* SPDX-License-Identifier: MIT */
/*
 * The table in which mount(8) keeps what the kernel does not know of a mount, /run/mount/utab.
 *
 * umount(8) asks the kernel only for the kind of file system, "fuse", and calls our helper, which
 * waits for the server, only if the table names it. mount(8) and umount(8) themselves do the
 * editing, in their mode that changes nothing else; only root may.
 */
#ifndef UEXT4_FUSE_UTAB_H
#define UEXT4_FUSE_UTAB_H

#include <stdbool.h>

/* Enters a mount that is about to be made. Returns false if that failed. */
bool utab_enter(const char *source, const char *mountpoint);

/* Removes the entry of a mount that has ended. */
void utab_remove(const char *mountpoint);

#endif
