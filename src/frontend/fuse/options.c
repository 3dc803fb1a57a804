/* SPDX-License-Identifier: MIT */
/*
 * Sorts mount options. Those of the kernel become mount(2) flags, those about the image and the
 * access to it are kept here, those of mount(8) alone are dropped, and the library gets the rest:
 * it knows which of them are valid, and says so.
 */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#include "mount_log.h"

#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif

static const struct {
    const char *name;
    unsigned long set, clear;
} flag_table[] = {
    {"suid", 0, MS_NOSUID},
    {"nosuid", MS_NOSUID, 0},
    {"dev", 0, MS_NODEV},
    {"nodev", MS_NODEV, 0},
    {"exec", 0, MS_NOEXEC},
    {"noexec", MS_NOEXEC, 0},
    {"async", 0, MS_SYNCHRONOUS},
    {"sync", MS_SYNCHRONOUS, 0},
    {"dirsync", MS_DIRSYNC, 0},
    {"atime", 0, MS_NOATIME},
    {"noatime", MS_NOATIME, 0},
    {"diratime", 0, MS_NODIRATIME},
    {"nodiratime", MS_NODIRATIME, 0},
    {"relatime", MS_RELATIME, 0},
    {"norelatime", 0, MS_RELATIME},
    {"strictatime", MS_STRICTATIME, 0},
    {"nostrictatime", 0, MS_STRICTATIME},
    {"symfollow", 0, MS_NOSYMFOLLOW},
    {"nosymfollow", MS_NOSYMFOLLOW, 0},
    /* What mount(8) lets these users mount is harmless by default; options behind them undo it. */
    {"user", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0},
    {"users", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0},
    {"owner", MS_NOSUID | MS_NODEV, 0},
    {"group", MS_NOSUID | MS_NODEV, 0},
};

/* Options of mount(8), systemd and FUSE that ask for nothing, or for what is always so. */
static const char *const ignored[] = {
    "defaults",   "ro",       "auto",     "noauto",
    "nofail",     "_netdev",  "nouser",   "noowner",
    "loop",       "nogroup",  "silent",   "loud",
    "mand",       "nomand",   "nonempty", "default_permissions",
    "nolazytime", "lazytime",
};

static const char *const ignored_prefixes[] = {
    "x-", "X-", "comment=", "subtype=", "user=", "uhelper=", "helper=",
};

void options_init(struct options *options)
{
    *options = (struct options){.mount_flags = MS_RDONLY};
}

void options_clear(struct options *options)
{
    free(options->source_name);
    free(options->library);
    options_init(options);
}

static bool is_ignored(const char *option)
{
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        if (strcmp(option, ignored[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof(ignored_prefixes) / sizeof(ignored_prefixes[0]); i++)
        if (strncmp(option, ignored_prefixes[i], strlen(ignored_prefixes[i])) == 0)
            return true;
    return false;
}

static bool take_flag(struct options *options, const char *option)
{
    for (size_t i = 0; i < sizeof(flag_table) / sizeof(flag_table[0]); i++) {
        if (strcmp(option, flag_table[i].name) == 0) {
            options->mount_flags |= flag_table[i].set;
            options->mount_flags &= ~flag_table[i].clear;
            return true;
        }
    }
    return false;
}

bool options_parse_size(const char *text, uint64_t *size)
{
    static const char units[] = "KMGT";
    const char *unit;
    unsigned int shift = 0;
    char *end;

    errno = 0;
    *size = strtoull(text, &end, 0);
    if (errno != 0 || end == text || text[0] == '-')
        return false;
    if (*end == 's')
        shift = 9;
    else if (*end != '\0' && (unit = strchr(units, *end)) != NULL)
        shift = 10 * (unsigned int)(unit - units + 1);
    else if (*end != '\0')
        return false;
    if ((shift != 0 && end[1] != '\0') || *size > UINT64_MAX >> shift)
        return false;
    *size <<= shift;
    return true;
}

bool options_parse_partition(const char *text, unsigned int *partition)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number == 0 || number > 65535)
        return false;
    *partition = (unsigned int)number;
    return true;
}

/* Replaces `*text` by a copy. Returns false without memory. */
static bool set_text(char **text, const char *value)
{
    free(*text);
    *text = strdup(value);
    return *text != NULL;
}

static bool pass_on(struct options *options, const char *option)
{
    char *longer;

    if (asprintf(&longer, "%s%s%s", options->library, options->library[0] != '\0' ? "," : "",
                 option) < 0)
        return false;
    free(options->library);
    options->library = longer;
    return true;
}

static const char *value_of(const char *option, const char *key)
{
    size_t length = strlen(key);

    return strncmp(option, key, length) == 0 ? option + length : NULL;
}

static bool take_option(struct options *options, const char *option)
{
    const char *value;

    if (option[0] == '\0' || is_ignored(option) || take_flag(options, option))
        return true;
    if (strcmp(option, "rw") == 0) {
        options->is_writing_asked = true;
    } else if (strcmp(option, "remount") == 0) {
        options->is_remount_asked = true;
    } else if (strcmp(option, "allow_other") == 0) {
        options->access = OPTIONS_ACCESS_ALL;
    } else if (strcmp(option, "noallow_other") == 0) {
        options->access = OPTIONS_ACCESS_OWNER;
    } else if ((value = value_of(option, "fsname=")) != NULL) {
        return set_text(&options->source_name, value);
    } else if ((value = value_of(option, "offset=")) != NULL) {
        options->has_offset = true;
        if (options_parse_size(value, &options->offset))
            return true;
        mount_log_print(UEXT4_LOG_ERROR, "offset=%s is not a size", value);
        return false;
    } else if ((value = value_of(option, "partition=")) != NULL) {
        if (options_parse_partition(value, &options->partition))
            return true;
        mount_log_print(UEXT4_LOG_ERROR, "partition=%s is not a partition number", value);
        return false;
    } else {
        return pass_on(options, option);
    }
    return true;
}

bool options_add(struct options *options, const char *list)
{
    char *copy = strdup(list);
    char *rest = copy, *option;
    bool is_good = copy != NULL;

    if (options->library == NULL)
        options->library = strdup("");
    if (options->library == NULL)
        is_good = false;
    while (is_good && (option = strsep(&rest, ",")) != NULL)
        is_good = take_option(options, option);
    free(copy);
    return is_good;
}
