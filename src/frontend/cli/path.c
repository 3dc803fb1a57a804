/* SPDX-License-Identifier: MIT */
/*
 * Small things about paths; see path.h. Called by the commands that copy or change names.
 */
#include "path.h"

#include <string.h>
#include <sys/resource.h>

#define DESCRIPTORS 4096

const char *path_last_name(const char *path, size_t *length)
{
    size_t end = strlen(path), start;

    while (end > 0 && path[end - 1] == '/')
        end--;
    start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    *length = end - start;
    if (end == start ||
        (path[start] == '.' && (*length == 1 || (*length == 2 && path[start + 1] == '.'))))
        return NULL;
    return path + start;
}

bool path_ends_in_slash(const char *path)
{
    size_t length = strlen(path);

    return length > 0 && path[length - 1] == '/';
}

void path_raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= DESCRIPTORS)
        return;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
    setrlimit(RLIMIT_NOFILE, &limit);
}
