/*
 * Canonical listing lines: rendering, content hash, sorting.
 *
 * Both listers (hostlist over a host directory, liblist over the library) fill the same structures,
 * so a difference between two listings is a difference between the trees and not of formatting.
 * The lock guards the array of lines and the table of remembered bodies. Lines are kept in memory
 * until printed, since threads add them in any order.
 */
#include "listing.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Values up to this length are printed in full, longer ones as length and hash. */
#define XATTR_SHOWN_BYTES 64

#define BODY_BUCKETS 4096

static const char *const field_names[] = {
    "path",  "type",  "mode", "uid",    "gid",     "size",   "nlink", "rdev",    "mtime",
    "ctime", "atime", "ino",  "blocks", "content", "xattrs", "map",   "dirsize", "dirnlink"};
#define FIELD_COUNT (sizeof(field_names) / sizeof(field_names[0]))

struct line {
    char *path;
    char *text;
};

struct known_body {
    struct known_body *next;
    uint64_t ino;
    char *text;
};

struct listing {
    pthread_mutex_t lock;
    uint32_t skip_mask;
    struct line *lines;
    size_t line_count;
    size_t line_room;
    struct known_body *bodies[BODY_BUCKETS];
};

struct text {
    char *bytes;
    size_t len;
    size_t room;
};

void *listing_realloc(void *old, size_t size)
{
    void *memory = realloc(old, size ? size : 1);

    if (!memory) {
        fprintf(stderr, "listing: out of memory\n");
        exit(2);
    }
    return memory;
}

void *listing_alloc(size_t size)
{
    void *memory = listing_realloc(NULL, size);

    memset(memory, 0, size);
    return memory;
}

static void text_reserve(struct text *text, size_t more)
{
    if (text->len + more + 1 > text->room) {
        text->room = (text->len + more + 1) * 2;
        text->bytes = listing_realloc(text->bytes, text->room);
    }
}

__attribute__((format(printf, 2, 3))) static void text_add(struct text *text, const char *format,
                                                           ...)
{
    va_list arguments;
    int len;

    text_reserve(text, 128);
    va_start(arguments, format);
    len = vsnprintf(text->bytes + text->len, text->room - text->len, format, arguments);
    va_end(arguments);
    if (len < 0 || (size_t)len > 127) {
        fprintf(stderr, "listing: a field is longer than expected\n");
        exit(2);
    }
    text->len += (size_t)len;
}

static void text_add_escaped(struct text *text, const char *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";

    text_reserve(text, len * 4);
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)bytes[i];

        if (byte < 0x21 || byte > 0x7e || byte == '\\') {
            text->bytes[text->len++] = '\\';
            text->bytes[text->len++] = 'x';
            text->bytes[text->len++] = digits[byte >> 4];
            text->bytes[text->len++] = digits[byte & 15];
        } else {
            text->bytes[text->len++] = (char)byte;
        }
    }
    text->bytes[text->len] = 0;
}

static int field_index(const char *name, size_t len)
{
    for (size_t i = 1; i < FIELD_COUNT; i++) {
        if (strlen(field_names[i]) == len && !memcmp(field_names[i], name, len))
            return (int)i;
    }
    return -1;
}

struct listing *listing_create(const char *skip)
{
    struct listing *listing = listing_alloc(sizeof(*listing));

    pthread_mutex_init(&listing->lock, NULL);
    while (skip && *skip) {
        size_t len = strcspn(skip, ",");
        int index = field_index(skip, len);

        if (index < 0) {
            listing_destroy(listing);
            return NULL;
        }
        listing->skip_mask |= 1U << index;
        skip += len;
        if (*skip == ',')
            skip++;
    }
    return listing;
}

void listing_destroy(struct listing *listing)
{
    for (size_t i = 0; i < listing->line_count; i++) {
        free(listing->lines[i].path);
        free(listing->lines[i].text);
    }
    free(listing->lines);
    for (size_t i = 0; i < BODY_BUCKETS; i++) {
        while (listing->bodies[i]) {
            struct known_body *body = listing->bodies[i];

            listing->bodies[i] = body->next;
            free(body->text);
            free(body);
        }
    }
    pthread_mutex_destroy(&listing->lock);
    free(listing);
}

bool listing_wants(const struct listing *listing, const char *field)
{
    int index = field_index(field, strlen(field));

    return index < 0 || !(listing->skip_mask & (1U << index));
}

static const char *find_body_locked(const struct listing *listing, uint64_t ino)
{
    const struct known_body *body = listing->bodies[ino % BODY_BUCKETS];

    while (body && body->ino != ino)
        body = body->next;
    return body ? body->text : NULL;
}

const char *listing_known_body(struct listing *listing, uint64_t ino)
{
    const char *text;

    pthread_mutex_lock(&listing->lock);
    text = find_body_locked(listing, ino);
    pthread_mutex_unlock(&listing->lock);
    return text;
}

static void remember_body(struct listing *listing, uint64_t ino, const char *text)
{
    struct known_body *body;

    pthread_mutex_lock(&listing->lock);
    if (!find_body_locked(listing, ino)) {
        body = listing_alloc(sizeof(*body));
        body->ino = ino;
        body->text = strdup(text);
        body->next = listing->bodies[ino % BODY_BUCKETS];
        listing->bodies[ino % BODY_BUCKETS] = body;
    }
    pthread_mutex_unlock(&listing->lock);
}

static int compare_xattrs(const void *left, const void *right)
{
    return strcmp(((const struct listing_xattr *)left)->name,
                  ((const struct listing_xattr *)right)->name);
}

static void render_xattrs(struct text *text, struct listing_body *body)
{
    if (body->xattr_error) {
        text_add(text, "error:%d", body->xattr_error);
        return;
    }
    if (!body->xattr_count) {
        text_add(text, "-");
        return;
    }
    qsort(body->xattrs, body->xattr_count, sizeof(body->xattrs[0]), compare_xattrs);
    for (size_t i = 0; i < body->xattr_count; i++) {
        const struct listing_xattr *xattr = &body->xattrs[i];

        if (i)
            text_add(text, ",");
        text_add_escaped(text, xattr->name, strlen(xattr->name));
        text_add(text, "=");
        if (xattr->len > XATTR_SHOWN_BYTES) {
            uint64_t hash[2];

            listing_hash_begin(hash);
            listing_hash_update(hash, 0, xattr->value, xattr->len);
            listing_hash_end(hash, xattr->len);
            text_add(text, "#%zu:%016llx%016llx", xattr->len, (unsigned long long)hash[0],
                     (unsigned long long)hash[1]);
            continue;
        }
        for (size_t j = 0; j < xattr->len; j++)
            text_add(text, "%02x", ((const unsigned char *)xattr->value)[j]);
    }
}

static void render_map(struct text *text, const struct listing_body *body, uint32_t mode)
{
    if (body->map_error)
        text_add(text, "error:%d", body->map_error);
    else if (!S_ISREG(mode) || !body->range_count)
        text_add(text, "-");
    else
        for (size_t i = 0; i < body->range_count; i++)
            text_add(text, "%s%llu+%llu", i ? "," : "", (unsigned long long)body->ranges[i].start,
                     (unsigned long long)body->ranges[i].len);
}

/* The last three fields, with the tabs between them. */
static char *render_body(const struct listing *listing, struct listing_body *body, uint32_t mode)
{
    struct text text = {0};

    if (!listing_wants(listing, "content"))
        text_add(&text, "-");
    else if (body->content_error)
        text_add(&text, "error:%d", body->content_error);
    else if (S_ISLNK(mode))
        text_add_escaped(&text, body->target, body->target_len);
    else if (S_ISREG(mode))
        text_add(&text, "%016llx%016llx", (unsigned long long)body->hash[0],
                 (unsigned long long)body->hash[1]);
    else
        text_add(&text, "-");
    text_add(&text, "\t");
    if (listing_wants(listing, "xattrs"))
        render_xattrs(&text, body);
    else
        text_add(&text, "-");
    text_add(&text, "\t");
    if (listing_wants(listing, "map"))
        render_map(&text, body, mode);
    else
        text_add(&text, "-");
    return text.bytes;
}

static char type_letter(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return 'f';
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

static void render_number(struct text *text, bool is_wanted, uint64_t number)
{
    if (is_wanted)
        text_add(text, "\t%llu", (unsigned long long)number);
    else
        text_add(text, "\t-");
}

static void render_time(struct text *text, bool is_wanted, const struct timespec *when)
{
    if (is_wanted)
        text_add(text, "\t%lld.%09ld", (long long)when->tv_sec, when->tv_nsec);
    else
        text_add(text, "\t-");
}

static void render_inode(struct text *text, const struct listing *listing,
                         const struct listing_entry *entry)
{
    bool is_dir = S_ISDIR(entry->mode);

    if (listing_wants(listing, "type"))
        text_add(text, "\t%c", type_letter(entry->mode));
    else
        text_add(text, "\t-");
    if (listing_wants(listing, "mode"))
        text_add(text, "\t%04o", entry->mode & 07777);
    else
        text_add(text, "\t-");
    render_number(text, listing_wants(listing, "uid"), entry->uid);
    render_number(text, listing_wants(listing, "gid"), entry->gid);
    render_number(text,
                  listing_wants(listing, "size") && !(is_dir && !listing_wants(listing, "dirsize")),
                  entry->size);
    render_number(
        text, listing_wants(listing, "nlink") && !(is_dir && !listing_wants(listing, "dirnlink")),
        entry->nlink);
    if (listing_wants(listing, "rdev") && (S_ISCHR(entry->mode) || S_ISBLK(entry->mode)))
        text_add(text, "\t%u:%u", entry->rdev_major, entry->rdev_minor);
    else
        text_add(text, "\t-");
    render_time(text, listing_wants(listing, "mtime"), &entry->mtime);
    render_time(text, listing_wants(listing, "ctime"), &entry->ctime);
    render_time(text, listing_wants(listing, "atime"), &entry->atime);
    render_number(text, listing_wants(listing, "ino"), entry->ino);
    render_number(text, listing_wants(listing, "blocks"), entry->blocks);
}

void listing_add(struct listing *listing, const struct listing_entry *entry,
                 struct listing_body *body)
{
    struct text text = {0};
    char *rendered = body ? render_body(listing, body, entry->mode) : NULL;
    const char *tail = rendered ? rendered : listing_known_body(listing, entry->ino);

    text_add_escaped(&text, entry->path, strlen(entry->path));
    render_inode(&text, listing, entry);
    text_reserve(&text, strlen(tail) + 1);
    text.bytes[text.len++] = '\t';
    memcpy(text.bytes + text.len, tail, strlen(tail) + 1);

    if (rendered && entry->nlink > 1 && !S_ISDIR(entry->mode))
        remember_body(listing, entry->ino, rendered);
    free(rendered);

    pthread_mutex_lock(&listing->lock);
    if (listing->line_count == listing->line_room) {
        listing->line_room = listing->line_room * 2 + 1024;
        listing->lines = listing_realloc(listing->lines,
                                         listing->line_room * sizeof(listing->lines[0]));
    }
    listing->lines[listing->line_count].path = strdup(entry->path);
    listing->lines[listing->line_count].text = text.bytes;
    listing->line_count++;
    pthread_mutex_unlock(&listing->lock);
}

static int compare_lines(const void *left, const void *right)
{
    const struct line *a = left;
    const struct line *b = right;
    int order = strcmp(a->path, b->path);

    /* A directory that shows one name twice gives two lines; keep their order stable. */
    return order ? order : strcmp(a->text, b->text);
}

int listing_print(struct listing *listing, FILE *out)
{
    if (listing->line_count)
        qsort(listing->lines, listing->line_count, sizeof(listing->lines[0]), compare_lines);
    for (size_t i = 0; i < listing->line_count; i++) {
        if (fputs(listing->lines[i].text, out) < 0 || fputc('\n', out) < 0)
            return -EIO;
    }
    return fflush(out) ? -errno : 0;
}

void listing_body_free(struct listing_body *body)
{
    for (size_t i = 0; i < body->xattr_count; i++) {
        free(body->xattrs[i].name);
        free(body->xattrs[i].value);
    }
    free(body->xattrs);
    free(body->ranges);
    free(body->target);
}

void listing_body_add_range(struct listing_body *body, uint64_t start, uint64_t len)
{
    /* Grows by doubling at powers of two: a file may have thousands of ranges. */
    if (!(body->range_count & (body->range_count - 1)))
        body->ranges = listing_realloc(body->ranges,
                                       (body->range_count * 2 + 1) * sizeof(body->ranges[0]));
    body->ranges[body->range_count].start = start;
    body->ranges[body->range_count].len = len;
    body->range_count++;
}

void listing_body_add_xattr(struct listing_body *body, const char *name, const void *value,
                            size_t len)
{
    struct listing_xattr *xattr;

    body->xattrs = listing_realloc(body->xattrs, (body->xattr_count + 1) * sizeof(body->xattrs[0]));
    xattr = &body->xattrs[body->xattr_count++];
    xattr->name = strdup(name);
    xattr->value = listing_alloc(len + 1);
    xattr->len = len;
    memcpy(xattr->value, value, len);
}

static uint64_t rotate(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

static void absorb(uint64_t hash[2], uint64_t word)
{
    hash[0] = rotate(hash[0] ^ word, 29) * 0x9fb21c651e98df25ULL;
    hash[1] = (rotate(hash[1], 23) + word) * 0xd6e8feb86659fd93ULL + 1;
}

static uint64_t finish_lane(uint64_t word)
{
    word = (word ^ word >> 32) * 0xd6e8feb86659fd93ULL;
    word = (word ^ word >> 29) * 0x9fb21c651e98df25ULL;
    return word ^ word >> 32;
}

void listing_hash_begin(uint64_t hash[2])
{
    hash[0] = 0x243f6a8885a308d3ULL;
    hash[1] = 0x13198a2e03707344ULL;
}

static void hash_chunk(uint64_t hash[2], uint64_t offset_bytes, const void *data, size_t len)
{
    uint64_t words[LISTING_CHUNK_BYTES / 8] = {0};
    uint64_t any = 0;

    memcpy(words, data, len);
    for (size_t i = 0; i < LISTING_CHUNK_BYTES / 8; i++)
        any |= words[i];
    if (!any)
        return;
    absorb(hash, offset_bytes);
    for (size_t i = 0; i < LISTING_CHUNK_BYTES / 8; i++)
        absorb(hash, words[i]);
}

void listing_hash_update(uint64_t hash[2], uint64_t offset_bytes, const void *data, size_t len)
{
    for (size_t done = 0; done < len; done += LISTING_CHUNK_BYTES) {
        size_t chunk = len - done < LISTING_CHUNK_BYTES ? len - done : LISTING_CHUNK_BYTES;

        hash_chunk(hash, offset_bytes + done, (const char *)data + done, chunk);
    }
}

void listing_hash_end(uint64_t hash[2], uint64_t size_bytes)
{
    uint64_t first;

    absorb(hash, size_bytes);
    first = finish_lane(hash[0] + rotate(hash[1], 17));
    hash[1] = finish_lane(hash[1] ^ first);
    hash[0] = first;
}
