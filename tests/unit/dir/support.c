/* SPDX-License-Identifier: MIT */
#include "support.h"

#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "map/map.h"
#include "space/allocate.h"

#define MAX_JOURNAL_EXTENTS 64
#define CACHE_BYTES         (64u << 20)

extern char **environ;

const struct shape shapes[] = {
    {"4k", "64M", "-t ext4 -b 4096", NULL, false},
    {"1k", "64M", "-t ext4 -b 1024", NULL, false},
    {"1k-tea", "64M", "-t ext4 -b 1024", "tea", false},
    {"1k-legacy", "64M", "-t ext4 -b 1024", "legacy", false},
    {"1k-large_dir", "128M", "-t ext4 -b 1024 -O large_dir", NULL, false},
    {"2k-no-csum", "64M", "-t ext4 -b 2048 -O ^metadata_csum", NULL, false},
    {"1k-no-filetype", "64M", "-t ext4 -b 1024 -O ^filetype", NULL, false},
    {"1k-no-index", "64M", "-t ext4 -b 1024 -O ^dir_index", NULL, false},
    {"ext2-1k", "64M", "-t ext2 -b 1024 -I 128", NULL, false},
    {"ext3-4k", "64M", "-t ext3 -b 4096", "tea", false},
    {"64k", "256M", "-t ext4 -b 65536", NULL, false},
    {"inline", "64M", "-t ext4 -b 4096 -O inline_data -I 256", NULL, false},
    {"inline-1k", "64M", "-t ext4 -b 1024 -O inline_data -I 1024", NULL, false},
    {"inline-no-index", "64M", "-t ext4 -b 1024 -O inline_data,^dir_index -I 512", NULL, false},
    {"bigalloc", "64M", "-t ext4 -b 1024 -O bigalloc -C 8192", NULL, false},
    {"casefold", "64M", "-t ext4 -b 1024 -O casefold -E encoding=utf8", NULL, true},
    {"casefold-strict", "64M", "-t ext4 -b 4096 -O casefold -E encoding=utf8,encoding_flags=strict",
     NULL, true},
};
const size_t shape_count = sizeof(shapes) / sizeof(shapes[0]);

const struct shape *shape_find(const char *name)
{
    for (size_t i = 0; i < shape_count; i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    fail_msg("no shape %s", name);
    return NULL;
}

/* ---- Messages ------------------------------------------------------------------------------- */

static char message_text[4096];

static void keep_message(void *context, enum log_level level, const char *message)
{
    size_t used = strlen(message_text);

    (void)context;
    (void)level;
    snprintf(message_text + used, sizeof(message_text) - used, "%s\n", message);
}

static const struct log test_log = {.write = keep_message, .max_level = LOG_LEVEL_WARNING};

const char *messages(void)
{
    return message_text;
}

void clear_messages(void)
{
    message_text[0] = 0;
}

/* ---- Programs ------------------------------------------------------------------------------- */

int run_program(const char *const arguments[], char *text, size_t size)
{
    posix_spawn_file_actions_t actions;
    int ends[2], status;
    size_t length = 0;
    char buffer[4096];
    ssize_t count;
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    int error = posix_spawnp(&pid, arguments[0], &actions, NULL, (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    while (error == 0 && (count = read(ends[0], buffer, sizeof(buffer))) > 0)
        for (ssize_t i = 0; i < count && text != NULL && length + 1 < size; i++)
            text[length++] = buffer[i];
    if (text != NULL)
        text[length] = 0;
    close(ends[0]);
    if (error != 0)
        return -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void run_or_fail(const char *const arguments[])
{
    char text[2048];

    if (run_program(arguments, text, sizeof(text)) != 0)
        fail_msg("%s: %s", arguments[0], text);
}

/* ---- Images --------------------------------------------------------------------------------- */

static void make_file(const char *folder, const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    assert_true(fd >= 0);
    close(fd);
}

/* The tree that the image begins with: an empty directory, and the targets. */
static void make_tree(const struct rig *rig, char *tree, size_t size)
{
    char path[256];

    snprintf(tree, size, "%s/tree", rig->folder);
    assert_int_equal(mkdir(tree, 0755), 0);
    snprintf(path, sizeof(path), "%s/d", tree);
    assert_int_equal(mkdir(path, 0755), 0);
    for (int i = 0; i < TARGET_COUNT; i++) {
        char name[8];
        snprintf(name, sizeof(name), "f%d", i);
        make_file(tree, name);
    }
}

struct rig *rig_create(const struct shape *shape)
{
    const char *arguments[32] = {"mke2fs", "-q", "-F", "-N", "2048"};
    const char *folder = getenv("TMPDIR");
    struct rig *rig = calloc(1, sizeof(*rig));
    char options[256], tree[128], *place = options;
    size_t count = 5;

    assert_non_null(rig);
    rig->shape = shape;
    snprintf(rig->folder, sizeof(rig->folder), "%s/uext4-dir-XXXXXX",
             folder != NULL ? folder : "/tmp");
    assert_non_null(mkdtemp(rig->folder));
    snprintf(rig->path, sizeof(rig->path), "%s/image", rig->folder);
    make_tree(rig, tree, sizeof(tree));
    snprintf(options, sizeof(options), "%s", shape->options);
    for (char *word; (word = strsep(&place, " ")) != NULL;)
        arguments[count++] = word;
    const char *rest[] = {"-d", tree, rig->path, shape->size};
    memcpy(arguments + count, rest, sizeof(rest));
    run_or_fail(arguments);
    if (shape->hash != NULL) {
        char option[64];
        snprintf(option, sizeof(option), "hash_alg=%s", shape->hash);
        const char *tune[] = {"tune2fs", "-E", option, rig->path, NULL};
        run_or_fail(tune);
    }
    if (shape->is_casefolded) {
        const char *debugfs[] = {"debugfs", "-w", "-R", "set_inode_field /d flags 0x40080000",
                                 rig->path, NULL};
        run_or_fail(debugfs);
    }
    rig_open(rig);
    return rig;
}

/* Opens the journal that the image has, or one without a log. */
static void open_journal(struct rig *rig)
{
    struct journal_options options = {.commit_interval_ms = 3600000, .log = &test_log};
    struct volume *volume = &rig->volume;
    const struct superblock *sb = &volume->sb;
    struct journal_extent extents[MAX_JOURNAL_EXTENTS];
    struct journal_location location = {
        .device = volume->device,
        .block_bytes = sb->block_bytes,
        .fs_block_count = sb->block_count,
        .fs_first_data_block = sb->first_data_block,
        .extents = extents,
        .log = &test_log,
    };
    struct journal_superblock journal_sb;
    struct inode *inode;

    if (!superblock_has_compat(sb, FEATURE_COMPAT_HAS_JOURNAL)) {
        assert_int_equal(
            journal_open(volume->buffers, volume->device, NULL, NULL, 1, &options, &rig->journal),
            0);
        return;
    }
    memcpy(location.fs_uuid, sb->uuid, sizeof(location.fs_uuid));
    assert_int_equal(inode_get(rig->inodes, sb->journal_ino, &inode), 0);
    location.block_count = (uint32_t)(inode->fields.size / sb->block_bytes);
    for (uint64_t block = 0; block < location.block_count;) {
        struct mapping mapping;
        assert_int_equal(map_lookup_joined(inode, block, location.block_count - block, &mapping),
                         0);
        assert_true(location.extent_count < MAX_JOURNAL_EXTENTS);
        extents[location.extent_count++] = (struct journal_extent){
            .journal_block = (uint32_t)block,
            .length_blocks = (uint32_t)mapping.length_blocks,
            .disk_block = mapping.disk_block,
        };
        block += mapping.length_blocks;
    }
    inode_put(inode);
    assert_int_equal(journal_read_superblock(&location, &journal_sb), 0);
    assert_int_equal(journal_open(volume->buffers, volume->device, &location, &journal_sb,
                                  journal_sb.sequence, &options, &rig->journal),
                     0);
}

static uint32_t find_in_root(struct rig *rig, const char *name)
{
    struct inode *root;
    uint32_t ino;

    assert_int_equal(inode_get(rig->inodes, INODE_ROOT, &root), 0);
    assert_int_equal(dir_lookup(root, name, strlen(name), &ino), 0);
    inode_put(root);
    return ino;
}

void rig_open(struct rig *rig)
{
    static const struct space_options space_options = {.may_use_reserved = true};
    struct device_open_options device_options = {.is_writable = true, .log = &test_log};
    struct volume *volume = &rig->volume;
    uint8_t raw[SUPERBLOCK_BYTES];

    clear_messages();
    *volume = (struct volume){.log = &test_log};
    assert_int_equal(device_open(rig->path, &device_options, &volume->device), 0);
    assert_int_equal(device_read(volume->device, raw, sizeof(raw), SUPERBLOCK_OFFSET_BYTES), 0);
    const char *reason = superblock_parse(raw, device_limits(volume->device)->size_bytes,
                                          &volume->sb);
    if (reason != NULL)
        fail_msg("superblock: %s", reason);
    assert_int_equal(
        buffer_cache_create(volume->device, volume->sb.block_bytes, CACHE_BYTES, &volume->buffers),
        0);
    assert_int_equal(inode_table_create(volume, &rig->inodes), 0);
    open_journal(rig);
    volume->journal = rig->journal;
    assert_int_equal(space_create(volume, rig->journal, &space_options, &rig->space), 0);
    volume->space = rig->space;
    for (int i = 0; i < TARGET_COUNT; i++) {
        char name[8];
        snprintf(name, sizeof(name), "f%d", i);
        rig->targets[i] = find_in_root(rig, name);
    }
    rig->dir_ino = find_in_root(rig, "d");
    assert_int_equal(inode_get(rig->inodes, rig->dir_ino, &rig->dir), 0);
}

static void set_link_counts(struct rig *rig, const struct model *model)
{
    for (int i = 0; i < TARGET_COUNT; i++) {
        struct handle handle;
        struct inode *inode;
        uint32_t links = 1;

        for (size_t j = 0; j < model->count; j++)
            links += model->names[j]->ino == rig->targets[i];
        assert_int_equal(inode_get(rig->inodes, rig->targets[i], &inode), 0);
        assert_int_equal(journal_start(rig->journal, INODE_WRITE_CREDITS, &handle), 0);
        inode->fields.link_count = links;
        assert_int_equal(inode_write(&handle, inode), 0);
        assert_int_equal(journal_stop(&handle), 0);
        inode_put(inode);
    }
}

void rig_close(struct rig *rig, const struct model *model)
{
    struct handle handle;

    if (model != NULL)
        set_link_counts(rig, model);
    inode_put(rig->dir);
    rig->dir = NULL;
    assert_int_equal(journal_start(rig->journal, SPACE_SUPERBLOCK_CREDITS, &handle), 0);
    assert_int_equal(space_update_superblock(&handle, rig->space), 0);
    assert_int_equal(journal_stop(&handle), 0);
    assert_int_equal(journal_close(rig->journal), 0);
    inode_table_destroy(rig->inodes);
    space_destroy(rig->space);
    buffer_cache_destroy(rig->volume.buffers);
    device_close(rig->volume.device);
}

void rig_check(const struct rig *rig)
{
    const char *arguments[] = {"e2fsck", "-fn", rig->path, NULL};
    char text[8192];

    if (run_program(arguments, text, sizeof(text)) != 0)
        fail_msg("%s: e2fsck: %s", rig->shape->name, text);
}

static int remove_path(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat;
    (void)type;
    (void)walk;
    return remove(path);
}

void rig_destroy(struct rig *rig)
{
    nftw(rig->folder, remove_path, 16, FTW_DEPTH | FTW_PHYS);
    free(rig);
}

/* ---- Changes -------------------------------------------------------------------------------- */

int rig_insert(struct rig *rig, const char *name, size_t length, uint32_t ino)
{
    struct handle handle;

    assert_int_equal(journal_start(rig->journal, dir_credits(rig->dir), &handle), 0);
    int error = dir_insert(&handle, rig->dir, name, length, ino, DT_REG);
    assert_int_equal(journal_stop(&handle), 0);
    return error;
}

int rig_remove(struct rig *rig, const char *name, size_t length)
{
    struct handle handle;

    assert_int_equal(journal_start(rig->journal, dir_credits(rig->dir), &handle), 0);
    int error = dir_remove(&handle, rig->dir, name, length);
    assert_int_equal(journal_stop(&handle), 0);
    return error;
}

int rig_replace(struct rig *rig, const char *name, size_t length, uint32_t ino)
{
    struct handle handle;

    assert_int_equal(journal_start(rig->journal, dir_credits(rig->dir), &handle), 0);
    uint8_t type = length == 2 && memcmp(name, "..", 2) == 0 ? DT_DIR : DT_REG;
    int error = dir_replace(&handle, rig->dir, name, length, ino, type);
    assert_int_equal(journal_stop(&handle), 0);
    return error;
}

/* ---- The model ------------------------------------------------------------------------------ */

static struct model_name **bucket_of(const struct model *model, const char *name, size_t length)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    return (struct model_name **)&model->buckets[(hash ^ hash >> 16) & 0xffff];
}

struct model *model_create(void)
{
    struct model *model = calloc(1, sizeof(*model));

    assert_non_null(model);
    return model;
}

void model_destroy(struct model *model)
{
    for (size_t i = 0; i < model->count; i++)
        free(model->names[i]);
    free(model->names);
    free(model);
}

struct model_name *model_find(const struct model *model, const char *name, size_t length)
{
    struct model_name *found = *bucket_of(model, name, length);

    while (found != NULL && (found->length != length || memcmp(found->text, name, length) != 0))
        found = found->chained;
    return found;
}

struct model_name *model_add(struct model *model, const char *name, size_t length, uint32_t ino)
{
    struct model_name **bucket = bucket_of(model, name, length);
    struct model_name *added = calloc(1, sizeof(*added));

    assert_non_null(added);
    if (model->count == model->capacity) {
        model->capacity = model->capacity * 2 + 64;
        model->names = realloc(model->names, model->capacity * sizeof(model->names[0]));
        assert_non_null(model->names);
    }
    added->ino = ino;
    added->length = length;
    memcpy(added->text, name, length);
    added->chained = *bucket;
    *bucket = added;
    added->index = model->count;
    model->names[model->count++] = added;
    return added;
}

void model_remove(struct model *model, struct model_name *name)
{
    struct model_name **link = bucket_of(model, name->text, name->length);

    while (*link != name)
        link = &(*link)->chained;
    *link = name->chained;
    model->names[name->index] = model->names[--model->count];
    model->names[name->index]->index = name->index;
    free(name);
}

struct comparison {
    struct model *model;
    struct inode *dir;
    uint64_t cookie;
    size_t batch, taken, total, dots;
    uint32_t reading;
};

static bool compare_entry(void *context, const struct dirent_view *entry, uint64_t next_cookie)
{
    struct comparison *comparison = context;

    if (comparison->taken == comparison->batch)
        return false;
    comparison->taken++;
    assert_true(next_cookie > comparison->cookie && next_cookie <= INT64_MAX);
    comparison->cookie = next_cookie;
    if (entry->name[0] == '.' && entry->name_length <= 2) {
        assert_int_equal(++comparison->dots, entry->name_length);
        if (entry->name_length == 1)
            assert_int_equal(entry->ino, comparison->dir->ino);
        return true;
    }
    struct model_name *name = model_find(comparison->model, entry->name, entry->name_length);
    if (name == NULL)
        fail_msg("unknown name %.*s", entry->name_length, entry->name);
    assert_int_equal(name->ino, entry->ino);
    assert_true(name->seen != comparison->reading);
    bool has_type = superblock_has_incompat(&comparison->dir->volume->sb,
                                            FEATURE_INCOMPAT_FILETYPE);
    assert_int_equal(entry->type, has_type ? DT_REG : DT_UNKNOWN);
    name->seen = comparison->reading;
    comparison->total++;
    return true;
}

void model_compare(struct model *model, struct inode *dir, size_t batch)
{
    static uint32_t readings = 1;
    struct comparison comparison = {
        .model = model, .dir = dir, .batch = batch, .reading = ++readings};

    do {
        comparison.taken = 0;
        assert_int_equal(dir_iterate(dir, comparison.cookie, compare_entry, &comparison), 0);
    } while (comparison.taken == batch);
    assert_int_equal(comparison.dots, 2);
    assert_int_equal(comparison.total, model->count);
}

/* ---- Random numbers ------------------------------------------------------------------------- */

static uint64_t random_state;

uint64_t test_seed(void)
{
    const char *text = getenv("UEXT4_SEED");
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0)
                                 : ((uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20) % 1000000;
    print_message("# UEXT4_SEED=%llu\n", (unsigned long long)seed);
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    return seed;
}

uint64_t draw(uint64_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % bound;
}

size_t draw_name(const struct shape *shape, char *name, size_t max_length)
{
    static const char *const letters[] = {
        "a", "B", "c", "D", "é", "É", "ß", "e", "\xcc\x81", "\xe2\x80\x8b", "日", "1"};
    size_t wanted = 1 + draw(draw(4) == 0 ? max_length : max_length / 8 + 1), length = 0;

    if (shape->is_casefolded) {
        while (length < wanted) {
            const char *letter = letters[draw(sizeof(letters) / sizeof(letters[0]))];
            if (length + strlen(letter) > max_length)
                break;
            memcpy(name + length, letter, strlen(letter));
            length += strlen(letter);
        }
        return length;
    }
    while (length < wanted) {
        char letter = (char)draw(256);
        if (letter != 0 && letter != '/')
            name[length++] = letter;
    }
    if (length <= 2 && name[0] == '.')
        name[0] = '_';
    return length;
}
