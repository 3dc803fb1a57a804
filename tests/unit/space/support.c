/* SPDX-License-Identifier: MIT */
/* See support.h. */
#include "support.h"

#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define CACHE_BYTES (16u << 20)

const struct shape shapes[] = {
    {"ext4", "160M", "-t ext4 -b 4096 -E lazy_itable_init=1"},
    {"ext4-1k", "48M", "-t ext4 -b 1024 -E lazy_itable_init=1"},
    {"zeroed", "48M", "-t ext4 -b 1024 -E lazy_itable_init=0"},
    {"bigalloc", "512M", "-t ext4 -b 4096 -O bigalloc -C 65536"},
    {"bigalloc-1k", "256M", "-t ext4 -b 1024 -O bigalloc -C 16384"},
    {"no-flex_bg", "40M", "-t ext4 -b 1024 -O ^flex_bg,^resize_inode"},
    {"meta_bg", "40M", "-t ext4 -b 1024 -O meta_bg,^resize_inode"},
    {"partial", "20780", "-t ext4 -b 1024"},
    {"small-groups", "8M", "-t ext4 -b 1024 -g 512 -G 4"},
    {"ext2", "20M", "-t ext2 -b 1024"},
    {"uninit_bg", "40M", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg"},
    {"sparse_super2", "40M", "-t ext4 -b 1024 -O sparse_super2"},
    {"no-64bit", "40M", "-t ext4 -b 2048 -O ^64bit -I 128"},
    {"64k", "300M", "-t ext4 -b 65536 -F"},
};
const size_t shape_count = ARRAY_LENGTH(shapes);

const struct shape *shape_find(const char *name)
{
    for (size_t i = 0; i < shape_count; i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    fail_msg("no shape %s", name);
    return NULL;
}

/* ---- Messages ------------------------------------------------------------------------------- */

static pthread_mutex_t message_mutex = PTHREAD_MUTEX_INITIALIZER;
static char messages[16384];

static void collect(void *context, enum log_level level, const char *message)
{
    (void)context;
    (void)level;
    pthread_mutex_lock(&message_mutex);
    size_t length = strlen(messages);
    snprintf(messages + length, sizeof(messages) - length, "%s\n", message);
    pthread_mutex_unlock(&message_mutex);
}

static const struct log test_log = {.write = collect, .max_level = LOG_LEVEL_WARNING};

const char *image_messages(void)
{
    return messages;
}

void image_clear_messages(void)
{
    messages[0] = 0;
}

/* ---- Programs ------------------------------------------------------------------------------- */

int run_program(const char *const arguments[], char *text, size_t size)
{
    posix_spawn_file_actions_t actions;
    int pipe_ends[2], status;
    pid_t pid;
    size_t length = 0;
    char buffer[4096];
    ssize_t count;

    assert_int_equal(pipe(pipe_ends), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
    posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
    assert_int_equal(
        posix_spawnp(&pid, arguments[0], &actions, NULL, (char *const *)arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_ends[1]);
    while ((count = read(pipe_ends[0], buffer, sizeof(buffer))) > 0)
        for (ssize_t i = 0; i < count && text != NULL && length + 1 < size; i++)
            text[length++] = buffer[i];
    if (text != NULL)
        text[length] = 0;
    close(pipe_ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- Images --------------------------------------------------------------------------------- */

static char current_path[128];

/* A test that failed leaves its image behind. */
static void remove_current(void)
{
    if (current_path[0] != 0)
        unlink(current_path);
}

struct image *image_create(const struct shape *shape)
{
    static bool is_registered;
    struct image *image = calloc(1, sizeof(*image));
    const char *arguments[32] = {"mke2fs", "-q", "-F"};
    char options[256], text[1024], *place = options;
    const char *folder = getenv("TMPDIR");
    size_t count = 3;

    assert_non_null(image);
    snprintf(image->path, sizeof(image->path), "%s/uext4-space-XXXXXX",
             folder != NULL ? folder : "/tmp");
    int fd = mkstemp(image->path);
    assert_true(fd >= 0);
    close(fd);
    remove_current();
    memcpy(current_path, image->path, sizeof(current_path));
    if (!is_registered)
        is_registered = atexit(remove_current) == 0;
    snprintf(options, sizeof(options), "%s", shape->options);
    for (char *word; (word = strsep(&place, " ")) != NULL;)
        arguments[count++] = word;
    arguments[count++] = image->path;
    arguments[count++] = shape->size;
    if (run_program(arguments, text, sizeof(text)) != 0)
        fail_msg("mke2fs for %s: %s", shape->name, text);
    image_note_initial(image);
    return image;
}

static void open_volume(struct image *image)
{
    struct device_open_options device_options = {.is_writable = true, .log = &test_log};
    struct volume *volume = &image->volume;
    uint8_t raw[SUPERBLOCK_BYTES];

    *volume = (struct volume){.log = &test_log};
    assert_int_equal(device_open(image->path, &device_options, &volume->device), 0);
    assert_int_equal(device_read(volume->device, raw, sizeof(raw), SUPERBLOCK_OFFSET_BYTES), 0);
    const char *reason = superblock_parse(raw, device_limits(volume->device)->size_bytes,
                                          &volume->sb);
    if (reason != NULL)
        fail_msg("superblock: %s", reason);
    assert_int_equal(
        buffer_cache_create(volume->device, volume->sb.block_bytes, CACHE_BYTES, &volume->buffers),
        0);
}

static void close_volume(struct image *image)
{
    buffer_cache_destroy(image->volume.buffers);
    device_close(image->volume.device);
}

void image_note_initial(struct image *image)
{
    struct volume *volume = &image->volume;
    const struct superblock *sb = &volume->sb;

    open_volume(image);
    free(image->initial);
    image->initial = calloc(1, sb->block_count / 8 + 9);
    uint8_t *bitmap = malloc(sb->block_bytes);
    assert_non_null(image->initial);
    assert_non_null(bitmap);
    image->initial_free_clusters = image->initial_free_inodes = 0;
    for (uint32_t number = 0; number < sb->group_count; number++) {
        struct group_descriptor descriptor;

        assert_int_equal(volume_read_group(volume, number, &descriptor), 0);
        image->initial_free_clusters += descriptor.free_clusters;
        image->initial_free_inodes += descriptor.free_inodes;
        if ((descriptor.flags & GROUP_BLOCK_UNINIT) != 0)
            group_init_block_bitmap(sb, number, &descriptor, bitmap);
        else
            assert_int_equal(device_read(volume->device, bitmap, sb->block_bytes,
                                         descriptor.block_bitmap * sb->block_bytes),
                             0);
        for (uint64_t i = 0; i < group_block_count(sb, number); i++) {
            uint64_t block = group_first_block(sb, number) + i;

            if (bitmap_test(bitmap, (uint32_t)(i / sb->cluster_blocks)))
                image->initial[block / 8] |= (uint8_t)(1u << block % 8);
        }
    }
    free(bitmap);
    close_volume(image);
}

bool image_was_free(const struct image *image, uint64_t block)
{
    return (image->initial[block / 8] >> block % 8 & 1) == 0;
}

void image_open(struct image *image, const struct space_options *options)
{
    static const struct space_options no_options;
    struct journal_options journal_options = {.commit_interval_ms = 3600000, .log = &test_log};

    open_volume(image);
    assert_int_equal(journal_open(image->volume.buffers, image->volume.device, NULL, NULL, 1,
                                  &journal_options, &image->journal),
                     0);
    assert_int_equal(space_create(&image->volume, image->journal,
                                  options != NULL ? options : &no_options, &image->space),
                     0);
}

void image_close(struct image *image)
{
    struct handle handle;

    assert_int_equal(journal_start(image->journal, SPACE_SUPERBLOCK_CREDITS, &handle), 0);
    assert_int_equal(space_update_superblock(&handle, image->space), 0);
    assert_int_equal(journal_stop(&handle), 0);
    assert_int_equal(journal_close(image->journal), 0);
    space_destroy(image->space);
    close_volume(image);
}

void image_check(struct image *image)
{
    const char *arguments[] = {"e2fsck", "-fn", image->path, NULL};
    char text[8192];

    if (run_program(arguments, text, sizeof(text)) != 0)
        fail_msg("e2fsck: %s", text);
}

void image_destroy(struct image *image)
{
    unlink(image->path);
    free(image->initial);
    free(image);
}

bool image_disk_bit(struct image *image, uint64_t block)
{
    const struct superblock *sb = &image->volume.sb;
    uint64_t offset = block - sb->first_data_block;
    uint32_t group = (uint32_t)(offset / sb->blocks_per_group);
    uint32_t bit = (uint32_t)(offset % sb->blocks_per_group / sb->cluster_blocks);
    struct group_descriptor descriptor;
    uint8_t byte;

    assert_int_equal(volume_read_group(&image->volume, group, &descriptor), 0);
    assert_int_equal(device_read(image->volume.device, &byte, 1,
                                 descriptor.block_bitmap * sb->block_bytes + bit / 8),
                     0);
    return (byte >> bit % 8 & 1) != 0;
}

void image_claim(struct image *image, struct space_run run)
{
    struct handle handle;

    assert_int_equal(
        journal_start(image->journal, space_credits(image->space, run.length_blocks), &handle), 0);
    assert_int_equal(space_claim(&handle, image->space, run), 0);
    assert_int_equal(journal_stop(&handle), 0);
}

int image_free(struct image *image, struct space_run run)
{
    struct handle handle;

    assert_int_equal(
        journal_start(image->journal, space_credits(image->space, run.length_blocks), &handle), 0);
    int error = space_free(&handle, image->space, run);
    assert_int_equal(journal_stop(&handle), 0);
    return error;
}

void image_commit(struct image *image)
{
    assert_int_equal(journal_commit_all(image->journal), 0);
}

/* ---- Random numbers ------------------------------------------------------------------------- */

uint64_t test_seed(void)
{
    const char *text = getenv("UEXT4_SEED");
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0)
                                 : (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20;
    print_message("# UEXT4_SEED=%llu\n", (unsigned long long)seed);
    return seed | 1;
}

uint64_t test_random(uint64_t *state, uint64_t bound)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (*state >> 11) % bound;
}
