/* SPDX-License-Identifier: MIT */
/* Messages to whoever opened the file system. A NULL log drops them. */
#ifndef UEXT4_BASE_LOG_H
#define UEXT4_BASE_LOG_H

#include <stdarg.h>

#include "base/compiler.h"

/* The values equal those of enum uext4_log_level in the public header. */
enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log {
    void (*write)(void *context, enum log_level level, const char *message); /* [immutable] */
    void *context;                                                           /* [immutable] */
    enum log_level max_level;                                                /* [immutable] */
};

void log_error(const struct log *log, const char *format, ...) PRINTF(2, 3);
void log_warning(const struct log *log, const char *format, ...) PRINTF(2, 3);
void log_info(const struct log *log, const char *format, ...) PRINTF(2, 3);
void log_debug(const struct log *log, const char *format, ...) PRINTF(2, 3);

#endif
