/* SPDX-License-Identifier: MIT */
/*
 * Messages of the mount: to stderr, and from the moment that the mount serves in the background to
 * syslog. All calls may come from any thread.
 */
#ifndef UEXT4_FUSE_MOUNT_LOG_H
#define UEXT4_FUSE_MOUNT_LOG_H

#include <stdbool.h>

#include "uext4.h"

__attribute__((format(printf, 2, 3))) void mount_log_print(enum uext4_log_level level,
                                                           const char *format, ...);

/* From here on, messages go to syslog. */
void mount_log_use_syslog(void);

/* Tells whether an error has been printed, so that its consequences need no words of their own. */
bool mount_log_has_error(void);

/* A uext4_log_fn. */
void mount_log_from_library(void *context, enum uext4_log_level level, const char *message);

/* Routes what libfuse has to say through mount_log_print. */
void mount_log_take_libfuse(void);

#endif
