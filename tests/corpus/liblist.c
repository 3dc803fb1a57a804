/*
 * liblist [--skip FIELD,...] [--threads N] IMAGE: the canonical listing of an image through the
 * library, public header only.
 *
 * Directories wait in a queue; N threads take them, list their entries and queue the directories
 * found. The queue's lock guards the queue, the count of threads at work and the count of failures.
 * The walk is over when the queue is empty and nobody works. In directories with an index every
 * name is looked up, elsewhere a part of them (a linear look-up costs the whole directory), and
 * the look-up must give the inode that readdir gave.
 */
#include <uext4.h>

#include "listing.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define READ_BYTES     (1U << 20)
#define MAX_PATH_BYTES (1U << 18)
#define MAX_THREADS    64
#define INDEX_FLAG     0x1000u
#define LINEAR_LOOKUPS 300

struct directory {
    struct directory *next;
    uint64_t ino;
    char *path;
};

struct name {
    uint64_t ino;
    uint8_t len;
    char bytes[256];
};

/* The names of one directory, copied so that no library call runs inside readdir's callback. */
struct names {
    struct name *items;
    size_t count;
    size_t room;
};

static struct {
    struct uext4 *fs;
    struct listing *listing;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct directory *queue;
    unsigned working;
    unsigned failures;
} walk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void report(const char *path, const char *what, int error)
{
    fprintf(stderr, "liblist: %s: %s: %s\n", path, what, strerror(-error));
    pthread_mutex_lock(&walk.lock);
    walk.failures++;
    pthread_mutex_unlock(&walk.lock);
}

static int collect_map(struct uext4_inode *inode, uint64_t size, struct listing_body *body)
{
    uint64_t position = 0;

    while (position < size) {
        int64_t start = uext4_seek_data(inode, position);
        int64_t end;

        if (start < 0)
            return start == -ENXIO ? 0 : (int)start;
        end = uext4_seek_hole(inode, (uint64_t)start);
        if (end < 0)
            return (int)end;
        if (end <= start)
            return -EUCLEAN;
        listing_body_add_range(body, (uint64_t)start, (uint64_t)(end - start));
        position = (uint64_t)end;
    }
    return 0;
}

static int hash_range(struct uext4_inode *inode, char *buffer, uint64_t start, uint64_t end,
                      uint64_t hash[2])
{
    start -= start % LISTING_CHUNK_BYTES;
    while (start < end) {
        size_t want = end - start < READ_BYTES ? (size_t)(end - start) : READ_BYTES;
        ssize_t got = uext4_read(inode, buffer, want, start);

        if (got < 0)
            return (int)got;
        if ((size_t)got != want)
            return -ENODATA;
        listing_hash_update(hash, start, buffer, want);
        start += want;
    }
    return 0;
}

static int hash_file(struct uext4_inode *inode, uint64_t size, struct listing_body *body)
{
    char *buffer;
    uint64_t total_bytes = 0;
    int result = 0;

    for (size_t i = 0; i < body->range_count; i++)
        total_bytes += body->ranges[i].len;
    if (total_bytes > LISTING_MAX_DATA_BYTES)
        return -EFBIG;
    /* No larger than the file needs: sanitizers pay for each byte. */
    buffer = listing_alloc(total_bytes < READ_BYTES ? (size_t)total_bytes + 1 : READ_BYTES);
    listing_hash_begin(body->hash);
    for (size_t i = 0; i < body->range_count && !result; i++)
        result = hash_range(inode, buffer, body->ranges[i].start,
                            body->ranges[i].start + body->ranges[i].len, body->hash);
    listing_hash_end(body->hash, size);
    free(buffer);
    return result;
}

static int collect_xattrs(struct uext4_inode *inode, struct listing_body *body)
{
    ssize_t names_len = uext4_listxattr(inode, NULL, 0);
    char *names = NULL;
    char *value = NULL;
    int result = 0;

    if (names_len <= 0)
        return (int)names_len;
    names = listing_alloc((size_t)names_len);
    value = listing_alloc(XATTR_SIZE_MAX);
    if (uext4_listxattr(inode, names, (size_t)names_len) != names_len) {
        result = -EUCLEAN;
        goto out;
    }
    for (ssize_t at = 0; at < names_len; at += (ssize_t)strlen(names + at) + 1) {
        ssize_t len = uext4_getxattr(inode, names + at, value, XATTR_SIZE_MAX);

        if (len < 0) {
            result = (int)len;
            goto out;
        }
        if (uext4_getxattr(inode, names + at, NULL, 0) != len) {
            result = -EUCLEAN;
            goto out;
        }
        listing_body_add_xattr(body, names + at, value, (size_t)len);
    }
out:
    free(names);
    free(value);
    return result;
}

static void collect_body(struct uext4_inode *inode, const struct uext4_stat *stat,
                         struct listing_body *body)
{
    if (S_ISREG(stat->mode)) {
        body->map_error = collect_map(inode, stat->size, body);
        body->content_error = body->map_error ? body->map_error
                                              : hash_file(inode, stat->size, body);
    } else if (S_ISLNK(stat->mode)) {
        ssize_t len;

        body->target = listing_alloc(65536);
        len = uext4_readlink(inode, body->target, 65536);
        if (len < 0)
            body->content_error = (int)len;
        else
            body->target_len = (size_t)len;
    }
    body->xattr_error = collect_xattrs(inode, body);
}

static int list_inode(struct uext4_inode *inode, const char *path, struct uext4_stat *stat)
{
    struct listing_body body = {0};
    struct listing_entry entry = {0};
    int result = uext4_stat(inode, stat);

    if (result)
        return result;
    entry.path = path;
    entry.mode = stat->mode;
    entry.uid = stat->uid;
    entry.gid = stat->gid;
    entry.rdev_major = stat->rdev_major;
    entry.rdev_minor = stat->rdev_minor;
    entry.size = stat->size;
    entry.nlink = stat->link_count;
    entry.ino = stat->ino;
    entry.blocks = stat->allocated_sectors;
    entry.mtime = stat->modify_time;
    entry.ctime = stat->change_time;
    entry.atime = stat->access_time;
    if (!S_ISDIR(stat->mode) && stat->link_count > 1 &&
        listing_known_body(walk.listing, stat->ino)) {
        listing_add(walk.listing, &entry, NULL);
        return 0;
    }
    collect_body(inode, stat, &body);
    listing_add(walk.listing, &entry, &body);
    listing_body_free(&body);
    return 0;
}

static void enqueue(uint64_t ino, const char *path)
{
    struct directory *directory = listing_alloc(sizeof(*directory));

    directory->ino = ino;
    directory->path = strdup(path);
    pthread_mutex_lock(&walk.lock);
    directory->next = walk.queue;
    walk.queue = directory;
    pthread_cond_signal(&walk.changed);
    pthread_mutex_unlock(&walk.lock);
}

static bool take_name(void *context, const struct uext4_dirent *entry)
{
    struct names *names = context;
    struct name *name;

    if ((entry->name_length == 1 && entry->name[0] == '.') ||
        (entry->name_length == 2 && !memcmp(entry->name, "..", 2)))
        return true;
    if (names->count == names->room) {
        names->room = names->room * 2 + 64;
        names->items = listing_realloc(names->items, names->room * sizeof(names->items[0]));
    }
    name = &names->items[names->count++];
    name->ino = entry->ino;
    name->len = entry->name_length;
    memcpy(name->bytes, entry->name, name->len);
    name->bytes[name->len] = 0;
    return true;
}

static int get_inode(struct uext4_inode *dir, const struct name *name, bool is_by_name,
                     struct uext4_inode **inode)
{
    int result;

    if (!is_by_name)
        return uext4_inode_get(walk.fs, name->ino, inode);
    result = uext4_lookup(dir, name->bytes, name->len, inode);
    if (!result && uext4_inode_number(*inode) != name->ino) {
        uext4_inode_put(*inode);
        return -EUCLEAN;
    }
    return result;
}

static void list_name(struct uext4_inode *dir, const char *dir_path, const struct name *name,
                      bool is_by_name)
{
    size_t path_size = strlen(dir_path) + name->len + 2;
    char *path = listing_alloc(path_size);
    struct uext4_inode *inode;
    struct uext4_stat stat = {0};
    int result;

    snprintf(path, path_size, "%s/%s", strcmp(dir_path, "/") ? dir_path : "", name->bytes);
    result = get_inode(dir, name, is_by_name, &inode);
    if (result) {
        report(path, is_by_name ? "look-up" : "inode", result);
        free(path);
        return;
    }
    result = list_inode(inode, path, &stat);
    uext4_inode_put(inode);
    if (result)
        report(path, "stat", result);
    else if (S_ISDIR(stat.mode) && path_size > MAX_PATH_BYTES)
        report(path, "path", -ENAMETOOLONG);
    else if (S_ISDIR(stat.mode))
        enqueue(stat.ino, path);
    free(path);
}

static void list_directory(const struct directory *directory)
{
    struct names names = {0};
    struct uext4_inode *dir;
    struct uext4_stat stat;
    size_t stride;
    int result = uext4_inode_get(walk.fs, directory->ino, &dir);

    if (result) {
        report(directory->path, "inode", result);
        return;
    }
    result = uext4_stat(dir, &stat);
    if (!result)
        result = uext4_readdir(dir, 0, take_name, &names);
    if (result)
        report(directory->path, "readdir", result);
    stride = !result && (stat.flags & INDEX_FLAG) ? 1 : names.count / LINEAR_LOOKUPS + 1;
    for (size_t i = 0; i < names.count; i++)
        list_name(dir, directory->path, &names.items[i], i % stride == 0);
    free(names.items);
    uext4_inode_put(dir);
}

static void *work(void *unused)
{
    pthread_mutex_lock(&walk.lock);
    for (;;) {
        struct directory *directory;

        while (!walk.queue && walk.working)
            pthread_cond_wait(&walk.changed, &walk.lock);
        if (!walk.queue)
            break;
        directory = walk.queue;
        walk.queue = directory->next;
        walk.working++;
        pthread_mutex_unlock(&walk.lock);
        list_directory(directory);
        free(directory->path);
        free(directory);
        pthread_mutex_lock(&walk.lock);
        walk.working--;
        pthread_cond_broadcast(&walk.changed);
    }
    pthread_mutex_unlock(&walk.lock);
    return unused;
}

static int list_tree(unsigned threads)
{
    pthread_t ids[MAX_THREADS];
    struct uext4_inode *root;
    struct uext4_stat stat;
    unsigned started = 0;
    int result = uext4_inode_get(walk.fs, UEXT4_ROOT_INO, &root);

    if (result)
        return result;
    result = list_inode(root, "/", &stat);
    uext4_inode_put(root);
    if (result)
        return result;
    enqueue(UEXT4_ROOT_INO, "/");
    while (started < threads && !result) {
        result = -pthread_create(&ids[started], NULL, work, NULL);
        if (!result)
            started++;
    }
    while (started)
        pthread_join(ids[--started], NULL);
    return result;
}

static void print_log(void *context, enum uext4_log_level level, const char *message)
{
    (void)context;
    (void)level;
    fprintf(stderr, "liblist: %s\n", message);
}

static int list_image(const char *image, unsigned threads)
{
    struct uext4_mount_options options;
    int result;

    uext4_mount_options_init(&options);
    options.log = print_log;
    result = uext4_mount(image, &options, &walk.fs);
    if (result) {
        report(image, "mount", result);
        return result;
    }
    result = list_tree(threads);
    if (result)
        report("/", "root", result);
    uext4_unmount(walk.fs);
    return result;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"skip", required_argument, NULL, 's'}, {"threads", required_argument, NULL, 't'}, {0}};
    const char *skip = NULL;
    long threads = 1;
    int option;
    int result;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's')
            skip = optarg;
        else if (option == 't')
            threads = strtol(optarg, NULL, 10);
        else
            return 2;
    }
    if (optind + 1 != argc || threads < 1 || threads > MAX_THREADS) {
        fprintf(stderr, "usage: liblist [--skip FIELD,...] [--threads 1..%d] IMAGE\n", MAX_THREADS);
        return 2;
    }
    walk.listing = listing_create(skip);
    if (!walk.listing) {
        fprintf(stderr, "liblist: unknown field in --skip %s\n", skip);
        return 2;
    }
    result = list_image(argv[optind], (unsigned)threads);
    if (!result)
        result = listing_print(walk.listing, stdout);
    listing_destroy(walk.listing);
    return result || walk.failures ? 1 : 0;
}
