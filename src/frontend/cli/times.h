/* SPDX-License-Identifier: MIT */
/*
 * Times as options have them.
 *
 * Threads: any.
 */
#ifndef UEXT4_CLI_TIMES_H
#define UEXT4_CLI_TIMES_H

#include <stdbool.h>
#include <time.h>

/*
 * Reads "@SECONDS" since 1970, maybe negative, or "YYYY-MM-DD[ HH:MM[:SS]]", with T in place of the
 * space as well; local time, or UTC with Z behind it, or with +HHMM or -HHMM the time there. The
 * seconds may have up to nine decimals. Returns false if `text` is none.
 */
bool times_parse(const char *text, struct timespec *time);

/* Reads whole seconds since 1970, with or without "@". Returns false if `text` is none. */
bool times_parse_seconds(const char *text, struct timespec *time);

#endif
