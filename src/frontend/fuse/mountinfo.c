/* SPDX-License-Identifier: MIT */
/*
 * The kernel's table of mounts. Its lines read
 *   ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS...] - TYPE SOURCE SUPER-OPTIONS
 * with blanks and backslashes in names as \ooo.
 */
#include "mountinfo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; to++) {
        unsigned int code;
        int used;

        if (sscanf(from, "\\%3o%n", &code, &used) == 1) {
            *to = (char)code;
            from += used;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static bool parse_line(char *line, struct mountinfo *entry)
{
    char *separator = strstr(line, " - ");
    const char *user;
    char options[1024] = "";

    if (separator == NULL)
        return false;
    if (sscanf(line, "%*d %*d %u:%u %*s %4095s", &entry->major, &entry->minor, entry->mountpoint) !=
        3)
        return false;
    if (sscanf(separator, " - %63s %*s %1023s", entry->type, options) < 1)
        return false;
    unescape(entry->mountpoint);
    user = strstr(options, "user_id=");
    entry->user = user != NULL ? (uid_t)strtoul(user + strlen("user_id="), NULL, 10) : 0;
    return true;
}

/* Gives the last entry that `matches` likes: the topmost one of mounts on one place. */
static int find_last(bool (*matches)(const struct mountinfo *entry, const void *key),
                     const void *key, struct mountinfo *result)
{
    FILE *table = fopen("/proc/self/mountinfo", "re");
    struct mountinfo *entry = malloc(sizeof(*entry));
    char *line = NULL;
    size_t size = 0;
    int rc = -ENOENT;

    if (table == NULL || entry == NULL) {
        rc = table == NULL ? -errno : -ENOMEM;
        goto out;
    }
    while (getline(&line, &size, table) > 0) {
        if (parse_line(line, entry) && matches(entry, key)) {
            *result = *entry;
            rc = 0;
        }
    }
out:
    free(line);
    free(entry);
    if (table != NULL)
        fclose(table);
    return rc;
}

static bool is_on_path(const struct mountinfo *entry, const void *key)
{
    return strcmp(entry->mountpoint, key) == 0;
}

int mountinfo_find(const char *mountpoint, struct mountinfo *result)
{
    return find_last(is_on_path, mountpoint, result);
}

struct device_key {
    unsigned int major, minor;
    const char *type;
};

static bool is_of_device(const struct mountinfo *entry, const void *data)
{
    const struct device_key *key = data;

    return entry->major == key->major && entry->minor == key->minor &&
           strncmp(entry->type, key->type, strlen(key->type)) == 0;
}

bool mountinfo_has_device(unsigned int major, unsigned int minor, const char *type)
{
    struct device_key key = {major, minor, type};
    struct mountinfo *found = malloc(sizeof(*found));
    bool has_device = found != NULL && find_last(is_of_device, &key, found) == 0;

    free(found);
    return has_device;
}
