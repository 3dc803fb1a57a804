/* SPDX-License-Identifier: MIT */
/*
 * Folding of names for casefolded directories, in a buffer on the stack. The format's tables are
 * those of Unicode 12.1, libutf8proc's are newer: letters that got their case pairs later, and
 * ignorable code points that were not assigned then, fold differently. No locks; called for
 * look-ups, and for hashing in casefolded directories.
 */
#include "format/casefold.h"

#include <errno.h>
#include <string.h>
#include <utf8proc.h>

#include "format/dirent.h"

/*
 * A code point decomposes canonically, after folding, into at most four. One more element is for
 * the terminator that the library writes.
 */
#define FOLDED_CODEPOINTS_MAX (4 * DIRENT_NAME_MAX)

int casefold_name(const char *name, size_t length, char *buffer, size_t size)
{
    utf8proc_int32_t codepoints[FOLDED_CODEPOINTS_MAX + 1];
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_CASEFOLD |
                                      UTF8PROC_IGNORE;

    if (length > DIRENT_NAME_MAX)
        return -ENAMETOOLONG;
    utf8proc_ssize_t count = utf8proc_decompose((const utf8proc_uint8_t *)name,
                                                (utf8proc_ssize_t)length, codepoints,
                                                FOLDED_CODEPOINTS_MAX, options);
    if (count < 0)
        return -EINVAL;
    if (count > FOLDED_CODEPOINTS_MAX)
        return -ENAMETOOLONG;
    utf8proc_ssize_t bytes = utf8proc_reencode(codepoints, count, options);
    if (bytes < 0)
        return -EINVAL;
    if ((size_t)bytes > size)
        return -ENAMETOOLONG;
    memcpy(buffer, codepoints, (size_t)bytes);
    return (int)bytes;
}
