/*
 * The canonical listing: one line per directory entry, so that two trees are compared with diff.
 *
 * A line has tab-separated fields: path, type, mode, uid, gid, size, nlink, rdev, mtime, ctime,
 * atime, ino, blocks, content, xattrs, map. Bytes outside 0x21..0x7e and the backslash are written
 * as \xHH. Lines are sorted by the raw bytes of their paths; the root's path is "/".
 *
 * Threads: listing_add may be called from any thread; everything else by one thread at a time.
 */
#ifndef CORPUS_LISTING_H
#define CORPUS_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

/* Content is hashed in chunks of this size; a chunk of zeros counts the same as a hole. */
#define LISTING_CHUNK_BYTES 1024

/* A file with more data than this is not read: it shows as an error in its content field. */
#define LISTING_MAX_DATA_BYTES (512ULL << 20)

struct listing_xattr {
    char *name;
    void *value;
    size_t len;
};

struct listing_range {
    uint64_t start;
    uint64_t len;
};

/* What stands behind an inode's last three fields. `error` is a negative errno or 0. */
struct listing_body {
    char *target; /* symbolic links only; not terminated */
    size_t target_len;
    uint64_t hash[2];
    struct listing_xattr *xattrs;
    size_t xattr_count;
    struct listing_range *ranges;
    size_t range_count;
    int content_error;
    int xattr_error;
    int map_error;
};

struct listing_entry {
    const char *path;
    uint32_t mode; /* as in st_mode */
    uint32_t uid;
    uint32_t gid;
    uint32_t rdev_major;
    uint32_t rdev_minor;
    uint64_t size;
    uint64_t nlink;
    uint64_t ino;
    uint64_t blocks; /* units of 512 bytes */
    struct timespec mtime;
    struct timespec ctime;
    struct timespec atime;
};

struct listing;

/*
 * `skip` names fields to be printed as "-", separated by commas; NULL or "" skips none. "dirsize"
 * and "dirnlink" skip a field of directories alone. Returns NULL for an unknown field name.
 */
struct listing *listing_create(const char *skip);
void listing_destroy(struct listing *listing);

/* False if the field (by name) is skipped, so that the caller need not collect it. */
bool listing_wants(const struct listing *listing, const char *field);

/*
 * The rendered last three fields of an inode with several names, kept so that its data is read
 * once (on a kernel mount a second look would also see what the first has left in the page cache).
 * Returns NULL if the inode is not known. The string belongs to the listing.
 */
const char *listing_known_body(struct listing *listing, uint64_t ino);

/* Adds a line. With `body` NULL the inode's remembered body is printed. */
void listing_add(struct listing *listing, const struct listing_entry *entry,
                 struct listing_body *body);

/* Sorts and writes all lines. Returns 0 or -errno. */
int listing_print(struct listing *listing, FILE *out);

void listing_body_free(struct listing_body *body);
void listing_body_add_range(struct listing_body *body, uint64_t start, uint64_t len);
void listing_body_add_xattr(struct listing_body *body, const char *name, const void *value,
                            size_t len);

/* Content hash: begin, any number of updates at ascending offsets (multiples of a chunk), end. */
void listing_hash_begin(uint64_t hash[2]);
void listing_hash_update(uint64_t hash[2], uint64_t offset_bytes, const void *data, size_t len);
void listing_hash_end(uint64_t hash[2], uint64_t size_bytes);

/* Fails the program when memory is out; these are test tools. */
void *listing_alloc(size_t size);
void *listing_realloc(void *old, size_t size);

#endif
