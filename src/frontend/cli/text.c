/* SPDX-License-Identifier: MIT */
/*
 * Writing of names, modes, sizes and times; reading of sizes.
 *
 * Escaping keeps printable UTF-8. Control characters (C0, DEL, C1), line separators, the marks
 * that turn the direction of a text, and bytes that are not UTF-8 become octal escapes.
 */
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum text_style text_style_for(FILE *stream)
{
    return isatty(fileno(stream)) ? TEXT_ESCAPED : TEXT_RAW;
}

static bool is_harmless(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7f && code < 0xa0))
        return false;
    if (code == 0x061c || code == 0x200e || code == 0x200f || code == 0xfeff)
        return false;
    return !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069);
}

/*
 * The length of the character at `bytes`. Sets *is_plain if it can be written as it is; otherwise
 * the length is 1.
 */
static size_t next_character(const unsigned char *bytes, size_t length, bool *is_plain)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t count = bytes[0] < 0x80 ? 1 : bytes[0] < 0xc0 ? 0 : bytes[0] < 0xe0 ? 2 : 3;
    uint32_t code;

    if (bytes[0] >= 0xf0)
        count = bytes[0] < 0xf8 ? 4 : 0;
    *is_plain = false;
    if (count == 0 || count > length)
        return 1;
    code = count == 1 ? bytes[0] : bytes[0] & (0xffu >> (count + 1));
    for (size_t i = 1; i < count; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 1;
        code = code << 6 | (bytes[i] & 0x3f);
    }
    if (code < smallest[count] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 1;
    *is_plain = is_harmless(code);
    return *is_plain ? count : 1;
}

void text_write(FILE *stream, const char *bytes, size_t length, enum text_style style)
{
    const unsigned char *at = (const unsigned char *)bytes;

    if (style == TEXT_RAW) {
        fwrite(bytes, 1, length, stream);
        return;
    }
    while (length > 0) {
        bool is_plain;
        size_t count = next_character(at, length, &is_plain);

        if (!is_plain)
            fprintf(stream, "\\%03o", at[0]);
        else if (at[0] == '\\' && style == TEXT_ESCAPED)
            fputs("\\\\", stream);
        else
            fwrite(at, 1, count, stream);
        at += count;
        length -= count;
    }
}

size_t text_width(const char *bytes, size_t length, enum text_style style)
{
    const unsigned char *at = (const unsigned char *)bytes;
    size_t width = 0;

    while (length > 0) {
        bool is_plain;
        size_t count = next_character(at, length, &is_plain);

        if (!is_plain && style != TEXT_RAW)
            width += 4;
        else
            width += at[0] == '\\' && style == TEXT_ESCAPED ? 2 : 1;
        at += count;
        length -= count;
    }
    return width;
}

char *text_escape(const char *bytes, size_t length)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);

    if (!stream)
        return NULL;
    text_write(stream, bytes, length, TEXT_ESCAPED);
    if (fclose(stream) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static char type_letter(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return '-';
    case S_IFDIR:
        return 'd';
    case S_IFLNK:
        return 'l';
    case S_IFCHR:
        return 'c';
    case S_IFBLK:
        return 'b';
    case S_IFIFO:
        return 'p';
    case S_IFSOCK:
        return 's';
    default:
        return '?';
    }
}

void text_mode(uint32_t mode, char text[11])
{
    static const char letters[] = "rwxrwxrwx";

    text[0] = type_letter(mode);
    for (int i = 0; i < 9; i++)
        text[i + 1] = mode & (0400u >> i) ? letters[i] : '-';
    if (mode & S_ISUID)
        text[3] = mode & S_IXUSR ? 's' : 'S';
    if (mode & S_ISGID)
        text[6] = mode & S_IXGRP ? 's' : 'S';
    if (mode & S_ISVTX)
        text[9] = mode & S_IXOTH ? 't' : 'T';
    text[10] = '\0';
}

const char *text_type(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "regular file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symbolic link";
    case S_IFCHR:
        return "character device";
    case S_IFBLK:
        return "block device";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    default:
        return "unknown type";
    }
}

/* Divides down to below 1024 and returns the index of the unit. */
static unsigned int scale_size(uint64_t bytes, double *value)
{
    unsigned int unit = 0;

    *value = (double)bytes;
    while (*value >= 1023.95) {
        *value /= 1024;
        unit++;
    }
    return unit;
}

void text_short_size(uint64_t bytes, char text[16])
{
    double value;
    unsigned int unit = scale_size(bytes, &value);

    if (unit == 0)
        snprintf(text, 16, "%u", (unsigned int)bytes);
    else
        snprintf(text, 16, "%.*f%c", value < 9.95 ? 1 : 0, value, "BKMGTPE"[unit]);
}

void text_long_size(uint64_t bytes, char text[32])
{
    double value;
    unsigned int unit = scale_size(bytes, &value);

    if (unit == 0)
        snprintf(text, 32, "%u bytes", (unsigned int)bytes);
    else
        snprintf(text, 32, "%.1f %ciB", value, "BKMGTPE"[unit]);
}

/* Breaks a time down; writes the bare seconds and returns false if the calendar cannot hold it. */
static bool break_down(int64_t seconds, struct tm *tm, char text[TEXT_TIME_SIZE])
{
    time_t time = seconds;

    if (localtime_r(&time, tm) && tm->tm_year >= -1900 && tm->tm_year < 9999 - 1900)
        return true;
    snprintf(text, TEXT_TIME_SIZE, "@%lld", (long long)seconds);
    return false;
}

void text_time_minutes(int64_t seconds, char text[TEXT_TIME_SIZE])
{
    struct tm tm;

    if (break_down(seconds, &tm, text))
        strftime(text, TEXT_TIME_SIZE, "%Y-%m-%d %H:%M", &tm);
}

void text_time_seconds(int64_t seconds, char text[TEXT_TIME_SIZE])
{
    struct tm tm;

    if (break_down(seconds, &tm, text))
        strftime(text, TEXT_TIME_SIZE, "%Y-%m-%d %H:%M:%S %z", &tm);
}

void text_time_full(const struct timespec *time, char text[TEXT_TIME_SIZE])
{
    struct tm tm;
    size_t length;

    if (!break_down(time->tv_sec, &tm, text))
        return;
    length = strftime(text, TEXT_TIME_SIZE, "%Y-%m-%d %H:%M:%S", &tm);
    length += (size_t)snprintf(text + length, TEXT_TIME_SIZE - length, ".%09u ",
                               (unsigned int)((uint64_t)time->tv_nsec % 1000000000u));
    strftime(text + length, TEXT_TIME_SIZE - length, "%z", &tm);
}

bool text_parse_size(const char *text, uint64_t *value)
{
    static const char units[] = "KMGT";
    unsigned int shift = 0;
    bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    unsigned long long number;
    const char *unit;
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    number = strtoull(text, &end, is_hex ? 16 : 10);
    if (errno != 0 || end == text)
        return false;
    unit = *end ? strchr(units, *end) : NULL;
    if (unit)
        shift = 10 * (unsigned int)(unit - units + 1);
    else if (*end == 's')
        shift = 9;
    if (shift > 0)
        end++;
    if (*end || number > UINT64_MAX >> shift)
        return false;
    *value = (uint64_t)number << shift;
    return true;
}
