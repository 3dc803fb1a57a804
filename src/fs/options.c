/* SPDX-License-Identifier: MIT */
/*
 * Mount options: defaults, and the comma-separated form of mount(8).
 *
 * Locks: none. Callers: the front ends, through the public header.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "uext4.h"

#define DEFAULT_CACHE_BYTES (32u << 20)
#define MAX_OPTION_BYTES    256

void uext4_mount_options_init(struct uext4_mount_options *options)
{
    *options = (struct uext4_mount_options){
        .is_read_only = true,
        .metadata_cache_bytes = DEFAULT_CACHE_BYTES,
        .log_level = UEXT4_LOG_WARNING,
    };
}

/* Parses a number with an optional K, M or G. False if it is none, or too large. */
static bool parse_size(const char *text, uint64_t *result)
{
    static const char suffixes[] = "KMG";
    char *end;

    if (text == NULL || *text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (errno != 0)
        return false;
    if (*end != '\0') {
        const char *suffix = strchr(suffixes, *end & ~0x20);
        unsigned int shift;

        if (suffix == NULL || *suffix == '\0' || end[1] != '\0')
            return false;
        shift = 10 * (unsigned int)(suffix - suffixes + 1);
        if (value > UINT64_MAX >> shift)
            return false;
        value <<= shift;
    }
    *result = value;
    return true;
}

static bool set_read_only(struct uext4_mount_options *options, const char *value)
{
    options->is_read_only = true;
    return value == NULL;
}

static bool set_read_write(struct uext4_mount_options *options, const char *value)
{
    options->is_read_only = false;
    return value == NULL;
}

static bool set_noload(struct uext4_mount_options *options, const char *value)
{
    options->skip_journal_replay = true;
    return value == NULL;
}

static bool set_nochecksum(struct uext4_mount_options *options, const char *value)
{
    options->skip_checksums = true;
    return value == NULL;
}

static bool set_direct(struct uext4_mount_options *options, const char *value)
{
    static const char *const names[] = {
        [UEXT4_DIRECT_AUTO] = "auto", [UEXT4_DIRECT_ON] = "on", [UEXT4_DIRECT_OFF] = "off"};

    for (unsigned int i = 0; value != NULL && i < ARRAY_LENGTH(names); i++) {
        if (strcmp(value, names[i]) == 0) {
            options->direct = (enum uext4_direct)i;
            return true;
        }
    }
    return false;
}

static bool set_superblock(struct uext4_mount_options *options, const char *value)
{
    return parse_size(value, &options->superblock) && options->superblock < UINT64_MAX >> 10;
}

static bool set_cache(struct uext4_mount_options *options, const char *value)
{
    uint64_t bytes;

    if (!parse_size(value, &bytes) || bytes > SIZE_MAX)
        return false;
    options->metadata_cache_bytes = (size_t)bytes;
    return true;
}

static bool accept(struct uext4_mount_options *options, const char *value)
{
    (void)options;
    (void)value;
    return true;
}

/* The options that mean something here, and those of mount(8) and ext4 that change no reading. */
static const struct {
    const char *name;
    bool (*set)(struct uext4_mount_options *options, const char *value);
} known_options[] = {
    {"ro", set_read_only},
    {"rw", set_read_write},
    {"noload", set_noload},
    {"norecovery", set_noload},
    {"nochecksum", set_nochecksum},
    {"direct", set_direct},
    {"sb", set_superblock},
    {"cache", set_cache},
    {"defaults", accept},
    {"auto", accept},
    {"noauto", accept},
    {"user", accept},
    {"users", accept},
    {"nouser", accept},
    {"owner", accept},
    {"group", accept},
    {"nofail", accept},
    {"_netdev", accept},
    {"atime", accept},
    {"noatime", accept},
    {"diratime", accept},
    {"nodiratime", accept},
    {"relatime", accept},
    {"norelatime", accept},
    {"strictatime", accept},
    {"nostrictatime", accept},
    {"lazytime", accept},
    {"nolazytime", accept},
    {"sync", accept},
    {"async", accept},
    {"dirsync", accept},
    {"acl", accept},
    {"noacl", accept},
    {"user_xattr", accept},
    {"nouser_xattr", accept},
    {"errors", accept},
    {"data", accept},
    {"commit", accept},
    {"barrier", accept},
    {"nobarrier", accept},
    {"delalloc", accept},
    {"nodelalloc", accept},
    {"discard", accept},
    {"nodiscard", accept},
    {"dioread_lock", accept},
    {"dioread_nolock", accept},
    {"inode_readahead_blks", accept},
    {"journal_checksum", accept},
    {"nojournal_checksum", accept},
    {"journal_async_commit", accept},
    {"auto_da_alloc", accept},
    {"noauto_da_alloc", accept},
    {"block_validity", accept},
    {"noblock_validity", accept},
    {"init_itable", accept},
    {"noinit_itable", accept},
    {"max_batch_time", accept},
    {"min_batch_time", accept},
    {"stripe", accept},
    {"usrquota", accept},
    {"grpquota", accept},
    {"prjquota", accept},
    {"quota", accept},
    {"noquota", accept},
    {"minixdf", accept},
    {"bsddf", accept},
    {"debug", accept},
    {"nombcache", accept},
    {"prefetch_block_bitmaps", accept},
    {"no_prefetch_block_bitmaps", accept},
};

static int set_option(struct uext4_mount_options *options, char *text, char *error,
                      size_t error_size)
{
    char *value = strchr(text, '=');

    if (value != NULL)
        *value++ = '\0';
    if (strncmp(text, "x-", 2) == 0 || strncmp(text, "X-", 2) == 0 || strcmp(text, "comment") == 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LENGTH(known_options); i++) {
        if (strcmp(text, known_options[i].name) != 0)
            continue;
        if (known_options[i].set(options, value))
            return 0;
        if (value != NULL)
            snprintf(error, error_size, "option %s: bad value '%s'", text, value);
        else
            snprintf(error, error_size, "option %s needs a value", text);
        return -EINVAL;
    }
    snprintf(error, error_size, "unknown option '%s'", text);
    return -EINVAL;
}

int uext4_mount_options_parse(struct uext4_mount_options *options, const char *list, char *error,
                              size_t error_size)
{
    if (error_size > 0)
        error[0] = '\0';
    while (*list != '\0') {
        char text[MAX_OPTION_BYTES];
        size_t length = strcspn(list, ",");

        if (length >= sizeof(text)) {
            snprintf(error, error_size, "an option is longer than %d bytes", MAX_OPTION_BYTES - 1);
            return -EINVAL;
        }
        memcpy(text, list, length);
        text[length] = '\0';
        if (length > 0 && set_option(options, text, error, error_size) != 0)
            return -EINVAL;
        list += length;
        list += *list == ',' ? 1 : 0;
    }
    return 0;
}
