/* SPDX-License-Identifier: MIT */
/*
 * Reading of times; see times.h.
 * Called by attributes.c and put.c.
 */
#include "times.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Reads ".123" if it is there, as nanoseconds. */
static bool read_fraction(const char **at, long *nanoseconds)
{
    long unit = 100000000;

    *nanoseconds = 0;
    if (**at != '.')
        return true;
    (*at)++;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        *nanoseconds += unit * (**at - '0');
        unit /= 10;
    }
    return true;
}

static bool read_seconds(const char **at, int64_t *seconds)
{
    char *end;
    const char *digits = *at + (**at == '-');

    if (*digits < '0' || *digits > '9')
        return false;
    errno = 0;
    *seconds = strtoll(*at, &end, 10);
    *at = end;
    return errno == 0;
}

/* "Z", "+0200", "+02:00" or nothing, which leaves *has_zone false. */
static bool read_zone(const char *at, bool *has_zone, long *east_seconds)
{
    char digits[5] = "";
    long number;

    *has_zone = *at != '\0';
    *east_seconds = 0;
    if (!*at || strcmp(at, "Z") == 0)
        return true;
    if ((*at != '+' && *at != '-') || strspn(at + 1, "0123456789:") != strlen(at + 1))
        return false;
    if (strlen(at) == 6 && at[3] == ':') {
        memcpy(digits, at + 1, 2);
        memcpy(digits + 2, at + 4, 2);
    } else if (strlen(at) == 5) {
        memcpy(digits, at + 1, 4);
    }
    if (strspn(digits, "0123456789") != 4)
        return false;
    number = strtol(digits, NULL, 10);
    *east_seconds = (number / 100 * 60 + number % 100) * 60 * (*at == '-' ? -1 : 1);
    return true;
}

static bool parse_date(const char *text, struct timespec *time)
{
    struct tm tm = {.tm_isdst = -1};
    const char *at = strptime(text, "%Y-%m-%d", &tm), *after;
    long east_seconds;
    bool has_zone;

    time->tv_nsec = 0;
    if (at && (*at == ' ' || *at == 'T')) {
        after = strptime(at + 1, "%H:%M:%S", &tm);
        at = after ? after : strptime(at + 1, "%H:%M", &tm);
        if (at && after && !read_fraction(&at, &time->tv_nsec))
            return false;
    }
    if (at && *at == ' ')
        at++;
    if (!at || !read_zone(at, &has_zone, &east_seconds))
        return false;
    errno = 0;
    tm.tm_isdst = -1;
    time->tv_sec = has_zone ? timegm(&tm) - east_seconds : mktime(&tm);
    return time->tv_sec != -1 || errno == 0;
}

bool times_parse(const char *text, struct timespec *time)
{
    const char *at = text + 1;
    int64_t seconds;

    if (text[0] != '@')
        return parse_date(text, time);
    if (!read_seconds(&at, &seconds) || !read_fraction(&at, &time->tv_nsec) || *at)
        return false;
    if (text[1] == '-' && time->tv_nsec > 0) {
        seconds--;
        time->tv_nsec = 1000000000 - time->tv_nsec;
    }
    time->tv_sec = seconds;
    return true;
}

bool times_parse_seconds(const char *text, struct timespec *time)
{
    const char *at = text + (text[0] == '@');
    int64_t seconds;

    if (!read_seconds(&at, &seconds) || *at)
        return false;
    *time = (struct timespec){.tv_sec = seconds};
    return true;
}
