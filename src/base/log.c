/* SPDX-License-Identifier: MIT */
/*
 * Formats a message into one line and hands it to the log's function.
 *
 * Names from the disk may be part of a message, so control characters are replaced: a hostile image
 * must not be able to steer a terminal.
 */
#include "base/log.h"

#include <stdio.h>

static void write_message(const struct log *log, enum log_level level, const char *format,
                          va_list arguments)
{
    char line[512];

    if (log == NULL || log->write == NULL || level > log->max_level)
        return;
    vsnprintf(line, sizeof(line), format, arguments);
    for (char *c = line; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    log->write(log->context, level, line);
}

#define LOG_FUNCTION(name, level)                             \
    void name(const struct log *log, const char *format, ...) \
    {                                                         \
        va_list arguments;                                    \
        va_start(arguments, format);                          \
        write_message(log, level, format, arguments);         \
        va_end(arguments);                                    \
    }

LOG_FUNCTION(log_error, LOG_LEVEL_ERROR)
LOG_FUNCTION(log_warning, LOG_LEVEL_WARNING)
LOG_FUNCTION(log_info, LOG_LEVEL_INFO)
LOG_FUNCTION(log_debug, LOG_LEVEL_DEBUG)
