/* SPDX-License-Identifier: MIT */
/*
 * Messages of the mount, its library and libfuse, on stderr or in syslog.
 */
#define FUSE_USE_VERSION 312

#include "mount_log.h"

#include <fuse_log.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

static atomic_bool is_syslog_used;
static atomic_bool has_error;

void mount_log_use_syslog(void)
{
    openlog("uext4", LOG_PID, LOG_DAEMON);
    atomic_store(&is_syslog_used, true);
}

static void print_line(enum uext4_log_level level, const char *line)
{
    static const int priority[] = {
        [UEXT4_LOG_ERROR] = LOG_ERR,
        [UEXT4_LOG_WARNING] = LOG_WARNING,
        [UEXT4_LOG_INFO] = LOG_INFO,
        [UEXT4_LOG_DEBUG] = LOG_DEBUG,
    };

    if (level == UEXT4_LOG_ERROR)
        atomic_store(&has_error, true);
    if (atomic_load(&is_syslog_used))
        syslog(priority[level], "%s", line);
    else
        fprintf(stderr, "uext4: %s\n", line);
}

bool mount_log_has_error(void)
{
    return atomic_load(&has_error);
}

void mount_log_print(enum uext4_log_level level, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    print_line(level, line);
}

void mount_log_from_library(void *context, enum uext4_log_level level, const char *message)
{
    (void)context;
    print_line(level, message);
}

static void print_from_libfuse(enum fuse_log_level level, const char *format, va_list args)
{
    char line[1024];

    vsnprintf(line, sizeof(line), format, args);
    line[strcspn(line, "\n")] = '\0';
    if (line[0] == '\0')
        return;
    if (level <= FUSE_LOG_ERR)
        print_line(UEXT4_LOG_ERROR, line);
    else if (level == FUSE_LOG_WARNING)
        print_line(UEXT4_LOG_WARNING, line);
    else
        print_line(UEXT4_LOG_INFO, line);
}

void mount_log_take_libfuse(void)
{
    fuse_set_log_func(print_from_libfuse);
}
