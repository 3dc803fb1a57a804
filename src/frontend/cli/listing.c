/* SPDX-License-Identifier: MIT */
/*
 * The table that `ls` prints: lines as of `ls -l`, columns, or names alone.
 *
 * Owners are numbers: the names of the host mean nothing inside an image. Entries whose inode
 * could not be read have mode 0 and show question marks.
 * Called by ls.c.
 */
#include "listing.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define XATTR_LIST_BYTES 65536
#define TARGET_BYTES     65536

/* Widths of the columns of long lines. */
struct widths {
    int ino, links, uid, gid, size;
};

int listing_add(struct listing *listing, const struct listing_entry *entry)
{
    struct listing_entry *slot;

    if (listing->count >= LISTING_MAX_ENTRIES)
        return -EFBIG;
    if (listing->count == listing->capacity) {
        size_t capacity = listing->capacity ? listing->capacity * 2 : 64;
        void *grown = realloc(listing->entries, capacity * sizeof(*listing->entries));

        if (!grown)
            return -ENOMEM;
        listing->entries = grown;
        listing->capacity = capacity;
    }
    slot = &listing->entries[listing->count];
    *slot = *entry;
    slot->name = malloc((size_t)entry->name_length + 1);
    if (!slot->name)
        return -ENOMEM;
    memcpy(slot->name, entry->name, entry->name_length);
    slot->name[entry->name_length] = '\0';
    listing->count++;
    return 0;
}

static bool has_acl(struct uext4_inode *inode)
{
    static const char prefix[] = "system.posix_acl_";
    ssize_t length = uext4_listxattr(inode, NULL, 0);
    bool is_found = false;
    char *names;

    if (length <= 0 || length > XATTR_LIST_BYTES)
        return false;
    names = malloc((size_t)length + 1);
    if (!names)
        return false;
    length = uext4_listxattr(inode, names, (size_t)length);
    if (length > 0) {
        names[length] = '\0';
        for (char *name = names; name < names + length && !is_found; name += strlen(name) + 1)
            is_found = strncmp(name, prefix, sizeof(prefix) - 1) == 0;
    }
    free(names);
    return is_found;
}

int listing_stat(struct session *session, struct listing_entry *entry)
{
    struct uext4_inode *inode;
    struct uext4_stat stat;
    int result = uext4_inode_get(session->fs, entry->ino, &inode);

    if (result < 0)
        return result;
    result = uext4_stat(inode, &stat);
    if (result == 0) {
        entry->size = stat.size;
        entry->modify_time = stat.modify_time.tv_sec;
        entry->mode = stat.mode;
        entry->uid = stat.uid;
        entry->gid = stat.gid;
        entry->link_count = stat.link_count;
        entry->rdev_major = stat.rdev_major;
        entry->rdev_minor = stat.rdev_minor;
        entry->type = (uint8_t)IFTODT(stat.mode);
        entry->has_acl = has_acl(inode);
    }
    uext4_inode_put(inode);
    return result;
}

static int compare_entries(const void *left, const void *right)
{
    const struct listing_entry *a = left, *b = right;
    size_t length = a->name_length < b->name_length ? a->name_length : b->name_length;
    int order = memcmp(a->name, b->name, length);

    return order ? order : (int)a->name_length - (int)b->name_length;
}

void listing_sort(struct listing *listing)
{
    if (listing->count > 1)
        qsort(listing->entries, listing->count, sizeof(*listing->entries), compare_entries);
}

/* The text of the size column: the size, or the numbers of a device. */
static void format_size(const struct listing_entry *entry, const struct listing_options *options,
                        char text[32])
{
    if (entry->mode == 0)
        snprintf(text, 32, "?");
    else if (S_ISCHR(entry->mode) || S_ISBLK(entry->mode))
        snprintf(text, 32, "%" PRIu32 ", %" PRIu32, entry->rdev_major, entry->rdev_minor);
    else if (options->is_human)
        text_short_size(entry->size, text);
    else
        snprintf(text, 32, "%" PRIu64, entry->size);
}

static void widen(int *width, int length)
{
    if (length > *width)
        *width = length;
}

static struct widths measure(const struct listing *listing, const struct listing_options *options)
{
    struct widths widths = {1, 1, 1, 1, 1};
    char text[32];

    for (size_t i = 0; i < listing->count; i++) {
        const struct listing_entry *entry = &listing->entries[i];

        if (options->has_inode)
            widen(&widths.ino, snprintf(text, sizeof(text), "%" PRIu64, entry->ino));
        if (!options->is_long)
            continue;
        widen(&widths.links, snprintf(text, sizeof(text), "%" PRIu32, entry->link_count));
        widen(&widths.uid, snprintf(text, sizeof(text), "%" PRIu32, entry->uid));
        widen(&widths.gid, snprintf(text, sizeof(text), "%" PRIu32, entry->gid));
        format_size(entry, options, text);
        widen(&widths.size, (int)strlen(text));
    }
    return widths;
}

static void print_target(struct session *session, const struct listing_entry *entry,
                         const struct listing_options *options)
{
    struct uext4_inode *inode;
    char *target;
    ssize_t length;
    int result = uext4_inode_get(session->fs, entry->ino, &inode);

    if (result < 0) {
        session_error(session, entry->name, result);
        return;
    }
    target = malloc(TARGET_BYTES);
    length = target ? uext4_readlink(inode, target, TARGET_BYTES) : -ENOMEM;
    if (length < 0) {
        session_error(session, entry->name, (int)length);
    } else {
        fputs(" -> ", stdout);
        text_write(stdout, target, length < TARGET_BYTES ? (size_t)length : TARGET_BYTES,
                   options->style);
    }
    free(target);
    uext4_inode_put(inode);
}

static void print_long_line(struct session *session, const struct listing_entry *entry,
                            const struct listing_options *options, const struct widths *widths)
{
    char mode[11] = "?????????", size[32], when[TEXT_TIME_SIZE] = "?";

    format_size(entry, options, size);
    if (entry->mode == 0) {
        printf("?????????? %*s %*s %*s %*s %16s ", widths->links, "?", widths->uid, "?",
               widths->gid, "?", widths->size, size, when);
    } else {
        text_mode(entry->mode, mode);
        text_time_minutes(entry->modify_time, when);
        printf("%s%s %*" PRIu32 " %*" PRIu32 " %*" PRIu32 " %*s %16s ", mode,
               entry->has_acl ? "+" : "", widths->links, entry->link_count, widths->uid, entry->uid,
               widths->gid, entry->gid, widths->size, size, when);
    }
    text_write(stdout, entry->name, entry->name_length, options->style);
    if (S_ISLNK(entry->mode))
        print_target(session, entry, options);
    putchar('\n');
}

static void print_name(const struct listing_entry *entry, const struct listing_options *options,
                       const struct widths *widths)
{
    if (options->has_inode)
        printf("%*" PRIu64 " ", widths->ino, entry->ino);
    text_write(stdout, entry->name, entry->name_length, options->style);
}

/* As many equal columns as the line holds, filled downwards. */
static void print_columns(const struct listing *listing, const struct listing_options *options,
                          const struct widths *widths)
{
    size_t prefix = options->has_inode ? (size_t)widths->ino + 1 : 0;
    size_t widest = 0, columns, rows;

    for (size_t i = 0; i < listing->count; i++) {
        const struct listing_entry *entry = &listing->entries[i];
        size_t width = text_width(entry->name, entry->name_length, options->style);

        if (width > widest)
            widest = width;
    }
    widest += prefix + 2;
    columns = options->line_width / widest > 0 ? options->line_width / widest : 1;
    rows = (listing->count + columns - 1) / columns;
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = row; i < listing->count; i += rows) {
            const struct listing_entry *entry = &listing->entries[i];
            size_t width = text_width(entry->name, entry->name_length, options->style) + prefix;

            print_name(entry, options, widths);
            if (i + rows < listing->count)
                printf("%*s", (int)(widest - width), "");
        }
        putchar('\n');
    }
}

void listing_print(struct session *session, const struct listing *listing,
                   const struct listing_options *options)
{
    struct widths widths;

    if (listing->count == 0)
        return;
    widths = measure(listing, options);
    if (!options->is_long && !options->is_one_per_line) {
        print_columns(listing, options, &widths);
        return;
    }
    for (size_t i = 0; i < listing->count; i++) {
        const struct listing_entry *entry = &listing->entries[i];

        if (options->is_long) {
            if (options->has_inode)
                printf("%*" PRIu64 " ", widths.ino, entry->ino);
            print_long_line(session, entry, options, &widths);
        } else {
            print_name(entry, options, &widths);
            putchar('\n');
        }
    }
}

void listing_clear(struct listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        free(listing->entries[i].name);
    free(listing->entries);
    *listing = (struct listing){0};
}
