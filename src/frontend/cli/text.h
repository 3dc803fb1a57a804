/* SPDX-License-Identifier: MIT */
/*
 * How names, modes, sizes and times are written. Names and texts from an image are hostile: on a
 * terminal, bytes that could command it are written as octal escapes.
 */
#ifndef UEXT4_CLI_TEXT_H
#define UEXT4_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum text_style {
    TEXT_RAW,     /* the bytes as they are */
    TEXT_ESCAPED, /* \ooo for all that is not printable UTF-8, and \\ for a backslash */
    TEXT_MESSAGE, /* the same, but a backslash stays as it is */
};

/* TEXT_ESCAPED if the stream is a terminal, else TEXT_RAW. */
enum text_style text_style_for(FILE *stream);

void text_write(FILE *stream, const char *bytes, size_t length, enum text_style style);

/* How many characters text_write writes; a multi-byte character counts as one. */
size_t text_width(const char *bytes, size_t length, enum text_style style);

/* The TEXT_ESCAPED form as a new string, or NULL without memory. */
char *text_escape(const char *bytes, size_t length);

/* "-rw-r--r--", terminated. */
void text_mode(uint32_t mode, char text[11]);

/* "regular file" and so on, by the type in a mode. */
const char *text_type(uint32_t mode);

/* "1.5K" up to "15E", plain below 1024: as `ls -h` has it. */
void text_short_size(uint64_t bytes, char text[16]);

/* "1.5 GiB", or "812 bytes". */
void text_long_size(uint64_t bytes, char text[32]);

#define TEXT_TIME_SIZE 64

/* Local time: "2024-05-06 07:08", or "@seconds" for what the calendar cannot hold. */
void text_time_minutes(int64_t seconds, char text[TEXT_TIME_SIZE]);

/* Local time: "2024-05-06 07:08:09 +0200". */
void text_time_seconds(int64_t seconds, char text[TEXT_TIME_SIZE]);

/* Local time: "2024-05-06 07:08:09.000000000 +0200". */
void text_time_full(const struct timespec *time, char text[TEXT_TIME_SIZE]);

/*
 * A number as options take it: decimal or 0x hexadecimal, maybe with K, M, G, T (powers of 1024)
 * or s (512). Returns false if `text` is none or too large.
 */
bool text_parse_size(const char *text, uint64_t *value);

#endif
