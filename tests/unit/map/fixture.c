/* SPDX-License-Identifier: MIT */
/* The image and the engine under test, and the calls that stand in for others (--wrap). */
#include "fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "fs/fs.h"

_Atomic unsigned int fixture_errors;

/* ---- Interposed calls (--wrap) ---- */

unsigned int fail_reserve_in;
int fail_reserve_error = -ENOSPC;
unsigned int fail_modify_in;
bool is_modify_armed;
unsigned int extend_calls;
unsigned int refuse_extend_after;
unsigned int small_capacity;

int __real_space_reserve(struct space *space, uint64_t goal, uint32_t wanted, unsigned int flags,
                         struct space_stream *stream, struct space_run *result);
int __wrap_space_reserve(struct space *space, uint64_t goal, uint32_t wanted, unsigned int flags,
                         struct space_stream *stream, struct space_run *result);
int __real_journal_extend(struct handle *handle, uint32_t credits);
int __wrap_journal_extend(struct handle *handle, uint32_t credits);
unsigned int __real_extent_block_capacity(const struct superblock *sb);
unsigned int __wrap_extent_block_capacity(const struct superblock *sb);

void __real_extent_root_push_down(const struct superblock *sb, void *root, void *child,
                                  uint64_t child_block);
void __wrap_extent_root_push_down(const struct superblock *sb, void *root, void *child,
                                  uint64_t child_block);

int __wrap_space_reserve(struct space *space, uint64_t goal, uint32_t wanted, unsigned int flags,
                         struct space_stream *stream, struct space_run *result)
{
    if (fail_reserve_in > 0 && --fail_reserve_in == 0)
        return fail_reserve_error;
    return __real_space_reserve(space, goal, wanted, flags, stream, result);
}

int __real_journal_modify(struct handle *handle, struct buffer *buffer);
int __wrap_journal_modify(struct handle *handle, struct buffer *buffer);

int __wrap_journal_modify(struct handle *handle, struct buffer *buffer)
{
    uint64_t mark = UINT64_C(1) << 32 | journal_handle_sequence(handle);

    if (is_modify_armed && atomic_load(&buffer->private_mark) != mark && fail_modify_in > 0 &&
        --fail_modify_in == 0)
        return -ENOMEM;
    return __real_journal_modify(handle, buffer);
}

int __wrap_journal_extend(struct handle *handle, uint32_t credits)
{
    __atomic_fetch_add(&extend_calls, 1, __ATOMIC_RELAXED);
    if (refuse_extend_after > 0 && --refuse_extend_after == 0)
        return -ENOSPC;
    return __real_journal_extend(handle, credits);
}

unsigned int __wrap_extent_block_capacity(const struct superblock *sb)
{
    return small_capacity > 0 ? small_capacity : __real_extent_block_capacity(sb);
}

void __wrap_extent_root_push_down(const struct superblock *sb, void *root, void *child,
                                  uint64_t child_block)
{
    __real_extent_root_push_down(sb, root, child, child_block);
    if (small_capacity > 0) {
        le16 capacity = le16_make((uint16_t)small_capacity);

        memcpy((uint8_t *)child + 4, &capacity, sizeof(capacity)); /* entry_max */
    }
}

/* ---- Random numbers ---- */

uint64_t random_state;

uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 16) % below);
}

void start_random(void)
{
    const char *text = getenv("UEXT4_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);

    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    printf("# UEXT4_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
}

/* ---- The image ---- */

static void write_log(void *context, enum log_level level, const char *message)
{
    (void)context;
    if (level == LOG_LEVEL_ERROR) {
        atomic_fetch_add(&fixture_errors, 1);
        printf("# %s\n", message);
    }
}

static void run(const char *command)
{
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

static void open_journal(struct fixture *fixture)
{
    struct volume *volume = &fixture->volume;
    struct journal_options options = {.log = &fixture->log};
    struct journal_superblock sb;
    struct journal_location location;
    struct journal_extent *extents = NULL;

    if (!superblock_has_compat(&volume->sb, FEATURE_COMPAT_HAS_JOURNAL)) {
        assert_int_equal(journal_open(volume->buffers, volume->device, NULL, NULL, 1, &options,
                                      &volume->journal),
                         0);
        return;
    }
    assert_int_equal(fs_locate_journal(volume, &location, &extents), 0);
    assert_int_equal(journal_read_superblock(&location, &sb), 0);
    assert_int_equal(journal_open(volume->buffers, volume->device, &location, &sb, sb.sequence,
                                  &options, &volume->journal),
                     0);
    free(extents);
}

void fixture_open(struct fixture *fixture)
{
    struct uext4_mount_options options;
    struct space_options space_options = {.may_use_reserved = true};
    struct space_usage usage;

    uext4_mount_options_init(&options);
    options.direct = UEXT4_DIRECT_OFF;
    fixture->log = (struct log){.write = write_log, .max_level = LOG_LEVEL_WARNING};
    assert_int_equal(
        fs_open_volume(fixture->image, &options, true, &fixture->log, &fixture->volume), 0);
    assert_int_equal(buffer_cache_create(fixture->volume.device, fixture->volume.sb.block_bytes,
                                         1u << 20, &fixture->volume.buffers),
                     0);
    open_journal(fixture);
    assert_int_equal(space_create(&fixture->volume, fixture->volume.journal, &space_options,
                                  &fixture->volume.space),
                     0);
    assert_int_equal(inode_table_create(&fixture->volume, &fixture->inodes), 0);
    assert_int_equal(space_get_usage(fixture->volume.space, &usage), 0);
    fixture->free_at_start = usage.free_blocks;
}

void fixture_make(struct fixture *fixture, const char *mke2fs_arguments, const char *size)
{
    char command[512];

    memset(fixture, 0, sizeof(*fixture));
    strcpy(fixture->folder, "/tmp/uext4-map-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    snprintf(fixture->image, sizeof(fixture->image), "%s/image", fixture->folder);
    for (unsigned int i = 0; i < FIXTURE_FILES; i++) {
        snprintf(command, sizeof(command), "mkdir -p %s/tree; : >%s/tree/file%u", fixture->folder,
                 fixture->folder, i);
        run(command);
        fixture->ino[i] = 12 + i;
    }
    snprintf(command, sizeof(command), "mke2fs -q -F %s -d %s/tree %s %s >/dev/null",
             mke2fs_arguments, fixture->folder, fixture->image, size);
    run(command);
    fixture_open(fixture);
}

void fixture_check(struct fixture *fixture)
{
    char command[512];

    snprintf(command, sizeof(command),
             "e2fsck -fn %s >%s/e2fsck 2>&1 || { sed 's/^/# /' %s/e2fsck; false; }", fixture->image,
             fixture->folder, fixture->folder);
    run(command);
}

void fixture_close(struct fixture *fixture)
{
    struct volume *volume = &fixture->volume;
    struct handle handle;

    assert_int_equal(inode_table_count(fixture->inodes), 0);
    inode_table_destroy(fixture->inodes);
    assert_int_equal(journal_commit_all(volume->journal), 0);
    assert_int_equal(journal_start(volume->journal, SPACE_SUPERBLOCK_CREDITS, &handle), 0);
    assert_int_equal(space_update_superblock(&handle, volume->space), 0);
    assert_int_equal(journal_stop(&handle), 0);
    assert_int_equal(journal_close(volume->journal), 0);
    space_destroy(volume->space);
    buffer_cache_destroy(volume->buffers);
    device_close(volume->device);
}

void fixture_remove(struct fixture *fixture)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", fixture->folder);
    run(command);
}
