/*
 * hostlist [--skip FIELD,...] DIR: the canonical listing of a host directory tree.
 *
 * Used on kernel mounts, on FUSE mounts and on extracted trees. Everything is opened relative to
 * its directory and without updating access times. A file's data map is taken before its data is
 * read, and its data is read without read-ahead, because pages in the cache make the kernel call an
 * unwritten range data. Reads touch data ranges only, so files of terabytes cost nothing.
 * Single-threaded. An entry that cannot be read shows its error in the field concerned.
 */
#include "listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define READ_BYTES (1U << 20)
#define MAX_DEPTH  1000

/* The access time that a symbolic link with several names had before it was first read. */
struct link_time {
    uint64_t ino;
    struct timespec atime;
};

struct walk {
    struct listing *listing;
    struct link_time *link_times;
    size_t link_time_count;
    char *buffer; /* READ_BYTES */
    int failures;
};

static int collect_map(int fd, uint64_t size, struct listing_body *body)
{
    off_t position = 0;

    while ((uint64_t)position < size) {
        off_t start = lseek(fd, position, SEEK_DATA);
        off_t end;

        if (start < 0)
            return errno == ENXIO ? 0 : -errno;
        end = lseek(fd, start, SEEK_HOLE);
        if (end < 0)
            return -errno;
        if (end <= start)
            return -EUCLEAN;
        listing_body_add_range(body, (uint64_t)start, (uint64_t)(end - start));
        position = end;
    }
    return 0;
}

static int hash_range(struct walk *walk, int fd, uint64_t start, uint64_t end, uint64_t hash[2])
{
    start -= start % LISTING_CHUNK_BYTES;
    while (start < end) {
        size_t want = end - start < READ_BYTES ? (size_t)(end - start) : READ_BYTES;
        size_t have = 0;

        while (have < want) {
            ssize_t got = pread(fd, walk->buffer + have, want - have, (off_t)(start + have));

            if (got < 0)
                return -errno;
            if (!got)
                return -ENODATA;
            have += (size_t)got;
        }
        listing_hash_update(hash, start, walk->buffer, want);
        start += want;
    }
    return 0;
}

static int hash_file(struct walk *walk, int fd, uint64_t size, struct listing_body *body)
{
    uint64_t total_bytes = 0;
    int result = 0;

    for (size_t i = 0; i < body->range_count; i++)
        total_bytes += body->ranges[i].len;
    if (total_bytes > LISTING_MAX_DATA_BYTES)
        return -EFBIG;
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    listing_hash_begin(body->hash);
    for (size_t i = 0; i < body->range_count && !result; i++)
        result = hash_range(walk, fd, body->ranges[i].start,
                            body->ranges[i].start + body->ranges[i].len, body->hash);
    listing_hash_end(body->hash, size);
    return result;
}

static void collect_file(struct walk *walk, int dir_fd, const char *name, uint64_t size,
                         struct listing_body *body)
{
    int fd;

    if (!listing_wants(walk->listing, "content") && !listing_wants(walk->listing, "map"))
        return;
    listing_hash_begin(body->hash);
    listing_hash_end(body->hash, size);
    if (!size)
        return;
    fd = openat(dir_fd, name, O_RDONLY | O_NOATIME | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        body->content_error = body->map_error = -errno;
        return;
    }
    body->map_error = collect_map(fd, size, body);
    body->content_error = body->map_error ? body->map_error : hash_file(walk, fd, size, body);
    close(fd);
}

static int collect_xattrs(int dir_fd, const char *name, struct listing_body *body)
{
    char path[PATH_MAX];
    char *names = listing_alloc(XATTR_LIST_MAX);
    char *value = listing_alloc(XATTR_SIZE_MAX);
    ssize_t names_len;
    int result = 0;

    /* Linux has no xattr calls relative to a directory before 6.13; /proc gives the same. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir_fd, name);
    names_len = llistxattr(path, names, XATTR_LIST_MAX);
    if (names_len < 0) {
        result = errno == EOPNOTSUPP ? 0 : -errno;
        goto out;
    }
    for (ssize_t at = 0; at < names_len; at += (ssize_t)strlen(names + at) + 1) {
        ssize_t len = lgetxattr(path, names + at, value, XATTR_SIZE_MAX);

        if (len < 0) {
            result = -errno;
            goto out;
        }
        listing_body_add_xattr(body, names + at, value, (size_t)len);
    }
out:
    free(names);
    free(value);
    return result;
}

static void collect_body(struct walk *walk, int dir_fd, const char *name, const struct stat *st,
                         struct listing_body *body)
{
    if (S_ISREG(st->st_mode)) {
        collect_file(walk, dir_fd, name, (uint64_t)st->st_size, body);
    } else if (S_ISLNK(st->st_mode) && listing_wants(walk->listing, "content")) {
        ssize_t len;

        body->target = listing_alloc(65536);
        len = readlinkat(dir_fd, name, body->target, 65536);
        if (len < 0)
            body->content_error = -errno;
        else
            body->target_len = (size_t)len;
    }
    if (listing_wants(walk->listing, "xattrs"))
        body->xattr_error = collect_xattrs(dir_fd, name, body);
}

/* No flag keeps readlink from updating the access time where the mount is writable. */
static void recall_atime(struct walk *walk, struct stat *st)
{
    struct link_time *link_time;

    for (size_t i = 0; i < walk->link_time_count; i++) {
        if (walk->link_times[i].ino == st->st_ino) {
            st->st_atim = walk->link_times[i].atime;
            return;
        }
    }
    walk->link_times = listing_realloc(walk->link_times,
                                       (walk->link_time_count + 1) * sizeof(walk->link_times[0]));
    link_time = &walk->link_times[walk->link_time_count++];
    link_time->ino = st->st_ino;
    link_time->atime = st->st_atim;
}

static void list_entry(struct walk *walk, int dir_fd, const char *name, const char *path,
                       struct stat *st)
{
    struct listing_body body = {0};
    struct listing_entry entry = {0};

    if (fstatat(dir_fd, name, st, AT_SYMLINK_NOFOLLOW)) {
        fprintf(stderr, "hostlist: %s: stat: %s\n", path, strerror(errno));
        walk->failures++;
        memset(st, 0, sizeof(*st));
        return;
    }
    if (S_ISLNK(st->st_mode) && st->st_nlink > 1)
        recall_atime(walk, st);
    entry.path = path;
    entry.mode = st->st_mode;
    entry.uid = st->st_uid;
    entry.gid = st->st_gid;
    entry.rdev_major = major(st->st_rdev);
    entry.rdev_minor = minor(st->st_rdev);
    entry.size = (uint64_t)st->st_size;
    entry.nlink = st->st_nlink;
    entry.ino = st->st_ino;
    entry.blocks = (uint64_t)st->st_blocks;
    entry.mtime = st->st_mtim;
    entry.ctime = st->st_ctim;
    entry.atime = st->st_atim;
    if (!S_ISDIR(st->st_mode) && st->st_nlink > 1 &&
        listing_known_body(walk->listing, st->st_ino)) {
        listing_add(walk->listing, &entry, NULL);
        return;
    }
    collect_body(walk, dir_fd, name, st, &body);
    listing_add(walk->listing, &entry, &body);
    listing_body_free(&body);
}

static void list_directory(struct walk *walk, int dir_fd, const char *path, int depth)
{
    DIR *dir = dir_fd >= 0 ? fdopendir(dir_fd) : NULL;
    struct dirent *item;

    if (!dir || depth > MAX_DEPTH) {
        fprintf(stderr, "hostlist: %s: %s\n", path, dir ? "too deep" : strerror(errno));
        walk->failures++;
        if (dir)
            closedir(dir);
        return;
    }
    while (errno = 0, (item = readdir(dir)) != NULL) {
        struct stat st;
        char *child;

        if (!strcmp(item->d_name, ".") || !strcmp(item->d_name, ".."))
            continue;
        child = listing_alloc(strlen(path) + strlen(item->d_name) + 2);
        sprintf(child, "%s/%s", depth ? path : "", item->d_name);
        list_entry(walk, dirfd(dir), item->d_name, child, &st);
        if (S_ISDIR(st.st_mode))
            list_directory(walk,
                           openat(dirfd(dir), item->d_name,
                                  O_RDONLY | O_DIRECTORY | O_NOATIME | O_NOFOLLOW | O_CLOEXEC),
                           child, depth + 1);
        free(child);
    }
    if (errno) {
        fprintf(stderr, "hostlist: %s: readdir: %s\n", path, strerror(errno));
        walk->failures++;
    }
    closedir(dir);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"skip", required_argument, NULL, 's'}, {0}};
    const char *skip = NULL;
    struct walk walk = {0};
    struct stat st;
    int option;
    int fd;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option != 's')
            return 2;
        skip = optarg;
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: hostlist [--skip FIELD,...] DIR\n");
        return 2;
    }
    walk.listing = listing_create(skip);
    if (!walk.listing) {
        fprintf(stderr, "hostlist: unknown field in --skip %s\n", skip);
        return 2;
    }
    walk.buffer = listing_alloc(READ_BYTES);
    fd = open(argv[optind], O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "hostlist: %s: %s\n", argv[optind], strerror(errno));
        return 1;
    }
    list_entry(&walk, fd, ".", "/", &st);
    list_directory(&walk, fd, "/", 0);
    if (listing_print(walk.listing, stdout))
        walk.failures++;
    free(walk.link_times);
    free(walk.buffer);
    listing_destroy(walk.listing);
    return walk.failures ? 1 : 0;
}
