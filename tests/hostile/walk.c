/* SPDX-License-Identifier: MIT */
/*
 * Mounts an image that nobody vouches for and calls everything that the public header has on it:
 * info, groups, directories to the bottom, stat, links, attributes, maps, data.
 *
 * What the library cannot know, its caller has to bound: an inode is visited once; the data of all
 * files together is no more than the device, since ext4 shares no blocks; the names are no more
 * than the device has room for. Each of these has a further limit that keeps a run short.
 *
 * Invariant: whatever the image, the library's answers keep to the contract of the header; if not,
 * the process aborts with a message. Called by hostile-walk, mutate and the fuzz targets.
 */
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GROUPS_MAX      4096
#define NAMES_MAX       200000
#define INODES_MAX      100000
#define DATA_BYTES_MAX  (UINT64_C(256) << 20)
#define LOOKUP_WORK_MAX 100000 /* blocks of directories that look-ups may search */
#define EXTENTS_MAX     2000   /* asked for in one file */
#define MAP_ERRORS_MAX  3      /* after which a file's map is given up */
#define ATTRIBUTES_MAX  64     /* read of one inode */
#define BATCH_NAMES     256
#define BUFFER_BYTES    (1u << 20)
#define XATTR_BYTES     65536

#define REQUIRE(condition)                                                                   \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: broken contract: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                         \
        }                                                                                    \
    } while (0)

/* Inode numbers, by open addressing; 0 is an empty place. */
struct ino_set {
    uint64_t *places;
    size_t count, capacity;
};

struct name {
    uint64_t ino, next_cookie;
    uint8_t type, length;
    char text[UEXT4_NAME_MAX + 1];
};

struct walk {
    struct uext4 *fs;
    struct uext4_info info;
    struct walk_result *result;
    bool verbose;
    struct ino_set seen;
    uint64_t *directories; /* still to be read */
    size_t directory_count, directory_capacity;
    uint64_t data_left, names_left, lookup_work_left;
    struct name *batch;
    size_t batch_count;
    char *buffer; /* BUFFER_BYTES */
};

static void *allocate(size_t size)
{
    void *memory = malloc(size);

    if (memory == NULL) {
        fprintf(stderr, "walk: out of memory\n");
        exit(3);
    }
    return memory;
}

static void note_message(void *context, enum uext4_log_level level, const char *message)
{
    struct walk *walk = context;

    walk->result->messages++;
    REQUIRE(strchr(message, '\n') == NULL);
    if (walk->verbose)
        fprintf(stderr, "  [%d] %s\n", (int)level, message);
}

/* Counts an error; they are what damaged images are expected to give. */
static int64_t note(struct walk *walk, int64_t result)
{
    REQUIRE(result > -4096);
    if (result < 0)
        walk->result->errors++;
    return result;
}

static void ino_set_grow(struct ino_set *set)
{
    struct ino_set grown = {.capacity = set->capacity == 0 ? 1024 : set->capacity * 2};

    grown.places = allocate(grown.capacity * sizeof(*grown.places));
    memset(grown.places, 0, grown.capacity * sizeof(*grown.places));
    for (size_t i = 0; i < set->capacity; i++) {
        size_t place = set->places[i] * UINT64_C(0x9e3779b97f4a7c15) % grown.capacity;

        if (set->places[i] == 0)
            continue;
        while (grown.places[place] != 0)
            place = (place + 1) % grown.capacity;
        grown.places[place] = set->places[i];
    }
    grown.count = set->count;
    free(set->places);
    *set = grown;
}

/* True if the number was not in the set. */
static bool ino_set_add(struct ino_set *set, uint64_t ino)
{
    if (set->count * 2 >= set->capacity)
        ino_set_grow(set);
    size_t place = ino * UINT64_C(0x9e3779b97f4a7c15) % set->capacity;
    while (set->places[place] != 0) {
        if (set->places[place] == ino)
            return false;
        place = (place + 1) % set->capacity;
    }
    set->places[place] = ino;
    set->count++;
    return true;
}

static void push_directory(struct walk *walk, uint64_t ino)
{
    if (walk->directory_count == walk->directory_capacity) {
        size_t capacity = walk->directory_capacity == 0 ? 64 : walk->directory_capacity * 2;
        uint64_t *grown = realloc(walk->directories, capacity * sizeof(*grown));

        REQUIRE(grown != NULL);
        walk->directories = grown;
        walk->directory_capacity = capacity;
    }
    walk->directories[walk->directory_count++] = ino;
}

/* ---- One inode ------------------------------------------------------------------------------ */

static void get_attribute(struct walk *walk, struct uext4_inode *inode, const char *name)
{
    ssize_t length = uext4_getxattr(inode, name, NULL, 0);
    char *value = walk->buffer;

    walk->result->xattrs++;
    if (note(walk, length) < 0)
        return;
    REQUIRE(length <= 16 << 20);
    if (length > (ssize_t)BUFFER_BYTES)
        value = allocate((size_t)length);
    if (length > 1)
        REQUIRE(uext4_getxattr(inode, name, value, (size_t)length - 1) < 0);
    ssize_t again = uext4_getxattr(inode, name, value, length == 0 ? 1 : (size_t)length);
    REQUIRE(note(walk, again) <= length);
    if (value != walk->buffer)
        free(value);
}

static void list_attributes(struct walk *walk, struct uext4_inode *inode)
{
    ssize_t length = uext4_listxattr(inode, NULL, 0);
    char *names;

    note(walk, uext4_getxattr(inode, "user.no such name", walk->buffer, 16));
    note(walk, uext4_getxattr(inode, "system.posix_acl_access", walk->buffer, BUFFER_BYTES));
    note(walk, uext4_getxattr(inode, "system.data", walk->buffer, BUFFER_BYTES));
    if (note(walk, length) <= 0)
        return;
    /* The longest prefix, 24 bytes, may stand for entries of 16. */
    REQUIRE(length <= 16 * XATTR_BYTES);
    names = allocate((size_t)length);
    REQUIRE(uext4_listxattr(inode, names, (size_t)length) == length);
    REQUIRE(names[length - 1] == '\0');
    unsigned int count = 0;
    for (ssize_t at = 0; at < length && count < ATTRIBUTES_MAX;
         at += (ssize_t)strlen(names + at) + 1, count++)
        get_attribute(walk, inode, names + at);
    free(names);
}

static void map_inode(struct walk *walk, struct uext4_inode *inode)
{
    unsigned int errors = 0;
    uint64_t offset = 0;

    for (unsigned int i = 0; i < EXTENTS_MAX; i++) {
        struct uext4_extent extent;
        int error = uext4_map(inode, offset, &extent);

        if (error == -ENXIO)
            break;
        if (note(walk, error) < 0) {
            /* Beyond what is damaged there may be more. */
            if (++errors == MAP_ERRORS_MAX)
                break;
            offset += UINT64_C(1) << (20 + i % 24);
            continue;
        }
        REQUIRE(extent.offset == offset && extent.length > 0);
        REQUIRE(extent.offset + extent.length > offset);
        if (extent.kind == UEXT4_EXTENT_WRITTEN || extent.kind == UEXT4_EXTENT_UNWRITTEN)
            REQUIRE(extent.device_offset < walk->info.device_bytes &&
                    extent.length <= walk->info.device_bytes - extent.device_offset);
        offset += extent.length;
    }
}

static void read_vectored(struct walk *walk, struct uext4_inode *inode, uint64_t size)
{
    struct iovec iov[3] = {{walk->buffer, 1}, {walk->buffer + 4097, 6000}, {walk->buffer + 1, 512}};
    const uint64_t places[] = {0,    1,        size / 2,  size - (size > 700 ? 700 : size),
                               size, size + 1, INT64_MAX, UINT64_MAX};

    for (unsigned int i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        ssize_t count = uext4_readv(inode, iov, 3, places[i]);

        REQUIRE(note(walk, count) <= 6513);
        REQUIRE(count <= 0 || (uint64_t)count <= size - places[i]);
    }
}

static void seek_around(struct walk *walk, struct uext4_inode *inode, uint64_t size)
{
    const uint64_t places[] = {0, size / 3, size - (size > 0), size, UINT64_MAX};

    /* A huge file may need as many steps as the file system has blocks. */
    unsigned int step = size > walk->info.device_bytes / 2 ? 4 : 1;
    for (unsigned int i = 0; i < sizeof(places) / sizeof(places[0]); i += step) {
        int64_t hole = note(walk, uext4_seek_hole(inode, places[i]));
        int64_t data = note(walk, uext4_seek_data(inode, places[i]));

        REQUIRE(hole < 0 || ((uint64_t)hole >= places[i] && (uint64_t)hole <= size));
        REQUIRE(data < 0 || ((uint64_t)data >= places[i] && (uint64_t)data < size));
    }
}

/* Reads one piece of data. Returns where it ends. */
static uint64_t read_piece(struct walk *walk, struct uext4_inode *inode, uint64_t offset,
                           uint64_t end)
{
    while (offset < end && walk->data_left > 0) {
        uint64_t wanted = end - offset < BUFFER_BYTES ? end - offset : BUFFER_BYTES;
        ssize_t count = uext4_read(inode, walk->buffer, wanted, offset);

        if (note(walk, count) > 0) {
            REQUIRE((uint64_t)count == wanted);
            walk->result->bytes_read += (uint64_t)count;
        }
        offset += wanted;
        walk->data_left -= walk->data_left < wanted ? walk->data_left : wanted;
    }
    return offset;
}

/* Reads all data, from one piece of it to the next. */
static void read_file(struct walk *walk, struct uext4_inode *inode, uint64_t size)
{
    uint64_t offset = 0;

    while (offset < size && walk->data_left > 0) {
        int64_t data = uext4_seek_data(inode, offset);

        if (data == -ENXIO)
            break;
        if (note(walk, data) < 0) {
            offset += BUFFER_BYTES;
            walk->data_left -= walk->data_left < BUFFER_BYTES ? walk->data_left : BUFFER_BYTES;
            continue;
        }
        REQUIRE((uint64_t)data >= offset && (uint64_t)data < size);
        int64_t hole = note(walk, uext4_seek_hole(inode, (uint64_t)data));
        REQUIRE(hole < 0 || (hole > data && (uint64_t)hole <= size));
        offset = read_piece(walk, inode, (uint64_t)data, hole < 0 ? size : (uint64_t)hole);
    }
}

static void visit_inode(struct walk *walk, struct uext4_inode *inode)
{
    struct uext4_stat stat;

    walk->result->inodes++;
    if (note(walk, uext4_stat(inode, &stat)) < 0)
        return;
    REQUIRE(stat.ino == uext4_inode_number(inode) && stat.ino <= walk->info.inode_count);
    REQUIRE(stat.size <= INT64_MAX);
    REQUIRE(stat.access_time.tv_nsec < 1000000000 && stat.modify_time.tv_nsec < 1000000000);
    ssize_t length = note(walk, uext4_readlink(inode, walk->buffer, 4096));
    REQUIRE(length <= 65536 && (length < 0 || S_ISLNK(stat.mode)));
    REQUIRE(uext4_readlink(inode, walk->buffer, 0) <= 65536);
    list_attributes(walk, inode);
    map_inode(walk, inode);
    read_vectored(walk, inode, stat.size);
    seek_around(walk, inode, stat.size);
    if (S_ISREG(stat.mode))
        read_file(walk, inode, stat.size);
    if (S_ISDIR(stat.mode))
        push_directory(walk, stat.ino);
}

/* ---- Directories ---------------------------------------------------------------------------- */

static bool take_name(void *context, const struct uext4_dirent *entry)
{
    struct walk *walk = context;

    if (walk->batch_count == BATCH_NAMES)
        return false;
    struct name *name = &walk->batch[walk->batch_count++];
    name->ino = entry->ino;
    name->next_cookie = entry->next_cookie;
    name->type = entry->type;
    name->length = entry->name_length;
    memcpy(name->text, entry->name, entry->name_length);
    name->text[entry->name_length] = '\0';
    REQUIRE(entry->name_length > 0);
    REQUIRE(entry->ino > 0 && entry->ino <= walk->info.inode_count);
    return true;
}

static void visit_name(struct walk *walk, struct uext4_inode *dir, const struct name *name,
                       uint64_t lookup_work)
{
    struct uext4_inode *inode;

    if (walk->lookup_work_left >= lookup_work) {
        walk->lookup_work_left -= lookup_work;
        if (note(walk, uext4_lookup(dir, name->text, name->length, &inode)) == 0)
            uext4_inode_put(inode);
    }
    if (walk->seen.count >= INODES_MAX || !ino_set_add(&walk->seen, name->ino))
        return;
    if (note(walk, uext4_inode_get(walk->fs, name->ino, &inode)) == 0) {
        visit_inode(walk, inode);
        uext4_inode_put(inode);
    }
}

static void look_up_strangers(struct walk *walk, struct uext4_inode *dir)
{
    static const char *const names[] = {".", "..", "no such name", "a", "\xff\xfe", ""};
    struct uext4_inode *inode;

    for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (note(walk, uext4_lookup(dir, names[i], strlen(names[i]), &inode)) == 0)
            uext4_inode_put(inode);
}

static void read_directory(struct walk *walk, struct uext4_inode *dir)
{
    struct uext4_stat stat;
    uint64_t cookie = 0;

    if (note(walk, uext4_stat(dir, &stat)) < 0)
        return;
    uint64_t lookup_work = stat.size / stat.block_bytes + 1;
    if (walk->lookup_work_left >= 6 * lookup_work) {
        walk->lookup_work_left -= 6 * lookup_work;
        look_up_strangers(walk, dir);
    }
    while (walk->names_left > 0) {
        walk->batch_count = 0;
        int error = uext4_readdir(dir, cookie, take_name, walk);
        note(walk, error);
        if (walk->batch_count == 0)
            break;
        for (size_t i = 0; i < walk->batch_count; i++) {
            const struct name *name = &walk->batch[i];

            REQUIRE(name->next_cookie > cookie);
            cookie = name->next_cookie;
            visit_name(walk, dir, name, lookup_work);
        }
        walk->result->names += walk->batch_count;
        walk->names_left -= walk->names_left < walk->batch_count ? walk->names_left
                                                                 : walk->batch_count;
    }
    note(walk, uext4_readdir(dir, UINT64_MAX, take_name, walk));
    walk->batch_count = 0;
    note(walk, uext4_readdir(dir, cookie | 5, take_name, walk));
}

/* ---- The file system ------------------------------------------------------------------------ */

static void visit_groups(struct walk *walk)
{
    struct uext4_statfs statfs;
    struct uext4_group group;

    note(walk, uext4_statfs(walk->fs, &statfs));
    for (uint32_t i = 0; i < walk->info.group_count && i < GROUPS_MAX; i++)
        note(walk, uext4_get_group(walk->fs, i, &group));
    REQUIRE(uext4_get_group(walk->fs, walk->info.group_count, &group) == -ERANGE);
}

static void visit_numbers(struct walk *walk)
{
    const uint64_t numbers[] = {0, walk->info.inode_count, walk->info.inode_count + 1, UINT64_MAX};
    struct uext4_inode *inode;

    for (unsigned int i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (note(walk, uext4_inode_get(walk->fs, numbers[i], &inode)) == 0)
            uext4_inode_put(inode);
    /* Those that no directory names: the journal, quota files and the like. */
    for (uint64_t ino = 1; ino <= 16 && ino <= walk->info.inode_count; ino++) {
        if (!ino_set_add(&walk->seen, ino))
            continue;
        if (note(walk, uext4_inode_get(walk->fs, ino, &inode)) == 0) {
            visit_inode(walk, inode);
            uext4_inode_put(inode);
        }
    }
}

static void visit_paths(struct walk *walk)
{
    static const char *const paths[] = {"/",         "",     "lost+found", "/lost+found/../.",
                                        "a/b/../c",  "link", "links/long", "loop/loop",
                                        "links/loop"};
    struct uext4_inode *inode;

    for (unsigned int i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        for (unsigned int flags = 0; flags <= UEXT4_WALK_NOFOLLOW; flags++)
            if (note(walk, uext4_walk(walk->fs, paths[i], flags, &inode)) == 0)
                uext4_inode_put(inode);
}

static void visit_all(struct walk *walk)
{
    uext4_get_info(walk->fs, &walk->info);
    REQUIRE(memchr(walk->info.volume_name, 0, sizeof(walk->info.volume_name)) != NULL);
    walk->data_left = walk->info.device_bytes < DATA_BYTES_MAX ? walk->info.device_bytes
                                                               : DATA_BYTES_MAX;
    walk->names_left = walk->info.device_bytes / 12 < NAMES_MAX ? walk->info.device_bytes / 12
                                                                : NAMES_MAX;
    walk->lookup_work_left = LOOKUP_WORK_MAX;
    visit_groups(walk);
    visit_paths(walk);
    visit_numbers(walk);
    while (walk->directory_count > 0) {
        uint64_t ino = walk->directories[--walk->directory_count];
        struct uext4_inode *dir;

        if (note(walk, uext4_inode_get(walk->fs, ino, &dir)) == 0) {
            read_directory(walk, dir);
            uext4_inode_put(dir);
        }
    }
}

void walk_image(const char *spec, enum walk_mode mode, bool verbose, struct walk_result *result)
{
    struct walk walk = {.result = result, .verbose = verbose};
    struct uext4_mount_options options;

    *result = (struct walk_result){0};
    uext4_mount_options_init(&options);
    options.direct = UEXT4_DIRECT_OFF;
    options.log = note_message;
    options.log_context = &walk;
    options.log_level = UEXT4_LOG_DEBUG;
    options.skip_journal_replay = mode != WALK_NORMAL;
    options.skip_checksums = mode == WALK_NOCHECKSUM;
    options.superblock = mode == WALK_BACKUP ? 8193 : 0;
    result->mount_error = uext4_mount(spec, &options, &walk.fs);
    REQUIRE(result->mount_error <= 0);
    if (result->mount_error != 0)
        return;
    walk.batch = allocate(BATCH_NAMES * sizeof(*walk.batch));
    walk.buffer = allocate(BUFFER_BYTES);
    visit_all(&walk);
    uext4_unmount(walk.fs);
    free(walk.buffer);
    free(walk.batch);
    free(walk.directories);
    free(walk.seen.places);
}
