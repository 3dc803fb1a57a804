/* SPDX-License-Identifier: MIT */
/*
 * Logs that the engine wrote into images of mke2fs, replayed by others: debugfs reads the log,
 * e2fsck and, as root, the kernel replay it, and all show the same content. The engine changes the
 * blocks of a file, so that the file system itself stays as mke2fs left it.
 */
#include "engine_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BLOCKS    200u
#define MAX_BLOCKS     65536u
#define FIRST_SEQUENCE 1u
#define TRANSACTIONS   30u
#define MANY_REVOKES   1200u

struct shape {
    const char *name;
    const char *options; /* of mke2fs */
    uint32_t block_bytes;
    uint32_t compat, incompat; /* of the journal */
};

static const struct shape shapes[] = {
    {"no checksums, 1k", "-t ext3 -b 1024", 1024, 0, 0},
    {"checksum v1, 4k", "-t ext4 -b 4096 -O ^metadata_csum,^64bit", 4096, 1, 0},
    {"csum v2, 1k", "-t ext4 -b 1024 -O ^metadata_csum,64bit", 1024, 0, 0x2 | 0x8},
    {"csum v3, 4k, 64bit", "-t ext4 -b 4096 -O metadata_csum,64bit", 4096, 0, 0x2 | 0x10},
    {"csum v3, 1k", "-t ext4 -b 1024 -O metadata_csum,^64bit", 1024, 0, 0x10},
    {"64bit without checksums, 4k", "-t ext4 -b 4096 -O ^metadata_csum,64bit", 4096, 0, 0x2},
};

struct fixture {
    char folder[64];
    char image[96], saved[96], expected[96], shown[96];
    const struct shape *shape;
    uint64_t *file_blocks;
    struct journal_extent *extents;
    struct journal_location location;
    uint8_t *content; /* of the file, as the last commit left it */
};

/* Runs a shell command; its output goes to a log in the folder. */
static int run(struct fixture *fixture, const char *format, ...)
{
    char command[1024];
    va_list arguments;
    int length, status;

    va_start(arguments, format);
    length = vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    assert_true(length > 0 && (size_t)length < sizeof(command) - 96);
    snprintf(command + length, sizeof(command) - (size_t)length, " >>%s/log 2>&1", fixture->folder);
    status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The blocks of a file, in their order. */
static size_t list_blocks(struct fixture *fixture, const char *file, uint64_t *blocks, size_t max)
{
    char command[256];
    unsigned long long block;
    size_t count = 0;
    FILE *pipe;

    snprintf(command, sizeof(command), "debugfs -R 'blocks %s' %s 2>/dev/null", file,
             fixture->image);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    while (count < max && fscanf(pipe, "%llu", &block) == 1)
        blocks[count++] = block;
    pclose(pipe);
    return count;
}

static void write_file(const char *path, const uint8_t *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

/* ext3's journal is mapped by indirect blocks, which debugfs lists too: the log skips them. */
static void locate(struct fixture *fixture)
{
    uint64_t *blocks = malloc(MAX_BLOCKS * sizeof(*blocks));
    size_t count;

    assert_non_null(blocks);
    count = list_blocks(fixture, "<8>", blocks, MAX_BLOCKS);
    assert_true(count >= 1024);
    if (strstr(fixture->shape->options, "ext3") != NULL) {
        /* 12 direct blocks, the indirect one, 256 more, the double one, each 256 with their own. */
        size_t kept = 0;

        for (size_t i = 0; i < count; i++) {
            bool is_map = i == 12 || i == 269 || (i > 269 && (i - 270) % 257 == 0);

            if (!is_map)
                blocks[kept++] = blocks[i];
        }
        count = kept;
    }
    fixture->extents = calloc(count, sizeof(struct journal_extent));
    assert_non_null(fixture->extents);
    for (size_t i = 0; i < count; i++) /* one extent a block: as fragmented as can be */
        fixture->extents[i] = (struct journal_extent){(uint32_t)i, 1, blocks[i]};
    fixture->location =
        (struct journal_location){.block_bytes = fixture->shape->block_bytes,
                                  .block_count = (uint32_t)count,
                                  .fs_block_count = UINT32_MAX,
                                  .fs_first_data_block = fixture->shape->block_bytes == 1024,
                                  .extents = fixture->extents,
                                  .extent_count = count};
    free(blocks);
}

static void create(struct fixture *fixture, const struct shape *shape)
{
    size_t bytes = FILE_BLOCKS * (size_t)shape->block_bytes;

    memset(fixture, 0, sizeof(*fixture));
    strcpy(fixture->folder, "/tmp/uext4-engine-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    snprintf(fixture->image, sizeof(fixture->image), "%s/image", fixture->folder);
    snprintf(fixture->saved, sizeof(fixture->saved), "%s/saved", fixture->folder);
    snprintf(fixture->expected, sizeof(fixture->expected), "%s/expected", fixture->folder);
    snprintf(fixture->shown, sizeof(fixture->shown), "%s/shown", fixture->folder);
    fixture->shape = shape;
    fixture->content = calloc(1, bytes);
    fixture->file_blocks = calloc(FILE_BLOCKS * 2, sizeof(uint64_t));
    assert_non_null(fixture->content);
    assert_non_null(fixture->file_blocks);
    memset(fixture->content, 'x', bytes);
    write_file(fixture->expected, fixture->content, bytes);
    assert_int_equal(run(fixture, "truncate -s 64M %s && mke2fs -q -F -J size=8 %s %s",
                         fixture->image, shape->options, fixture->image),
                     0);
    assert_int_equal(
        run(fixture, "debugfs -w -R 'write %s f' %s", fixture->expected, fixture->image), 0);
    assert_true(list_blocks(fixture, "/f", fixture->file_blocks, FILE_BLOCKS * 2) >= FILE_BLOCKS);
    locate(fixture);
}

static void destroy(struct fixture *fixture)
{
    (void)run(fixture, "true");
    if (fixture->folder[0] != '\0') {
        char command[128];

        snprintf(command, sizeof(command), "rm -rf %s", fixture->folder);
        assert_int_equal(system(command), 0);
    }
    free(fixture->extents);
    free(fixture->file_blocks);
    free(fixture->content);
}

/* The block of a file's place; an ext3 file of this size has one map block behind its first 12. */
static uint64_t file_block(const struct fixture *fixture, unsigned int index)
{
    bool has_map = strstr(fixture->shape->options, "ext3") != NULL;

    return fixture->file_blocks[index + (has_map && index >= 12)];
}

static void change_block(struct fixture *fixture, struct buffer_cache *buffers,
                         struct handle *handle, unsigned int index, uint64_t stamp)
{
    uint32_t block_bytes = fixture->shape->block_bytes;
    uint8_t *content = fixture->content + (size_t)index * block_bytes;
    struct buffer *buffer;

    rig_fill(index, stamp, content, block_bytes);
    assert_int_equal(buffer_get(buffers, file_block(fixture, index), &buffer), 0);
    assert_int_equal(journal_modify(handle, buffer), 0);
    memcpy(journal_data(handle, buffer), content, block_bytes);
    buffer_put(buffer);
}

/* Changes the file in transactions, some with revokes of blocks that are journaled again. */
static void change(struct fixture *fixture, struct journal *journal, struct buffer_cache *buffers)
{
    uint64_t random = 99;
    uint64_t last_block = (64u << 20) / fixture->shape->block_bytes - 1;
    struct handle all;

    /* More than a descriptor and a revoke block hold. */
    assert_int_equal(journal_start(journal, FILE_BLOCKS, &all), 0);
    for (unsigned int i = 0; i < FILE_BLOCKS; i++)
        change_block(fixture, buffers, &all, i, 5000 + i);
    assert_int_equal(journal_forget(&all, last_block - MANY_REVOKES, MANY_REVOKES), 0);
    all.wants_sync = true;
    assert_int_equal(journal_stop(&all), 0);
    for (unsigned int i = 0; i < TRANSACTIONS; i++) {
        struct handle handle;

        assert_int_equal(journal_start(journal, 12, &handle), 0);
        if (i % 3 == 1) {
            unsigned int index = (unsigned int)(random_next(&random) % FILE_BLOCKS);

            assert_int_equal(journal_forget(&handle, file_block(fixture, index), 1), 0);
            handle.wants_sync = true;
            assert_int_equal(journal_stop(&handle), 0);
            assert_int_equal(journal_start(journal, 12, &handle), 0);
            change_block(fixture, buffers, &handle, index, i * 8);
        }
        for (unsigned int k = 0; k < 8; k++)
            change_block(fixture, buffers, &handle,
                         (unsigned int)(random_next(&random) % FILE_BLOCKS), i * 16 + k);
        handle.wants_sync = true;
        assert_int_equal(journal_stop(&handle), 0);
    }
}

/* Works on the image; a copy of it is saved as a crash would leave it. */
static void use_engine(struct fixture *fixture)
{
    struct device_open_options open_options = {.is_writable = true, .direct = 0};
    struct journal_options options = {.commit_interval_ms = 1000000};
    struct buffer_cache *buffers;
    struct journal_superblock sb;
    struct journal *journal;
    struct device *device;

    assert_int_equal(device_open(fixture->image, &open_options, &device), 0);
    fixture->location.device = device;
    assert_int_equal(journal_read_superblock(&fixture->location, &sb), 0);
    assert_int_equal(sb.start_block, 0);
    sb.compat = fixture->shape->compat;
    sb.incompat = fixture->shape->incompat;
    assert_int_equal(buffer_cache_create(device, fixture->shape->block_bytes, 1 << 20, &buffers),
                     0);
    assert_int_equal(journal_open(buffers, device, &fixture->location, &sb,
                                  sb.sequence + FIRST_SEQUENCE, &options, &journal),
                     0);
    change(fixture, journal, buffers);
    assert_int_equal(run(fixture, "cp --sparse=always %s %s", fixture->image, fixture->saved), 0);
    assert_int_equal(journal_close(journal), 0);
    buffer_cache_destroy(buffers);
    device_close(device);
    write_file(fixture->expected, fixture->content,
               FILE_BLOCKS * (size_t)fixture->shape->block_bytes);
}

/* Whether the file in an image has the content that the last commit left. */
static bool shows_content(struct fixture *fixture, const char *image)
{
    return run(fixture, "debugfs -R 'dump /f %s' %s && cmp %s %s", fixture->shown, image,
               fixture->expected, fixture->shown) == 0;
}

static void check_by_e2fsprogs(struct fixture *fixture)
{
    assert_int_equal(run(fixture, "debugfs -w -R 'feature needs_recovery' %s", fixture->saved), 0);
    assert_int_equal(run(fixture, "cp --sparse=always %s %s.fsck", fixture->saved, fixture->saved),
                     0);
    assert_false(shows_content(fixture, fixture->saved));
    assert_int_equal(run(fixture,
                         "test $(debugfs -R 'logdump -a' %s 2>&1 | grep -c 'type 2') -ge %u",
                         fixture->saved, TRANSACTIONS),
                     0);
    assert_int_equal(run(fixture, "e2fsck -fy %s.fsck", fixture->saved) & ~1, 0);
    assert_int_equal(run(fixture, "e2fsck -fn %s.fsck", fixture->saved), 0);
    char replayed[128];
    snprintf(replayed, sizeof(replayed), "%s.fsck", fixture->saved);
    assert_true(shows_content(fixture, replayed));
    /* And what was closed needs no replay. */
    assert_int_equal(run(fixture, "e2fsck -fn %s", fixture->image), 0);
    assert_true(shows_content(fixture, fixture->image));
}

/* False: the kernel cannot be asked here. */
static bool check_by_kernel(struct fixture *fixture)
{
    if (geteuid() != 0 || run(fixture, "mkdir %s/mount", fixture->folder) != 0)
        return false;
    if (run(fixture, "mount -o loop %s %s/mount", fixture->image, fixture->folder) != 0)
        return false;
    assert_int_equal(run(fixture, "umount %s/mount", fixture->folder), 0);
    assert_int_equal(run(fixture, "mount -o loop %s %s/mount", fixture->saved, fixture->folder), 0);
    int status = run(fixture, "cmp %s/mount/f %s", fixture->folder, fixture->expected);
    assert_int_equal(run(fixture, "umount %s/mount", fixture->folder), 0);
    assert_int_equal(status, 0);
    assert_int_equal(run(fixture, "e2fsck -fn %s", fixture->saved), 0);
    return true;
}

static void test_shapes(void **state)
{
    (void)state;
    if (system("command -v mke2fs debugfs e2fsck >/dev/null 2>&1") != 0) {
        printf("# skipped: e2fsprogs is not installed\n");
        skip();
    }
    for (size_t i = 0; i < ARRAY_LENGTH(shapes); i++) {
        struct fixture fixture;
        bool has_kernel;

        printf("# %s\n", shapes[i].name);
        create(&fixture, &shapes[i]);
        use_engine(&fixture);
        check_by_e2fsprogs(&fixture);
        has_kernel = check_by_kernel(&fixture);
        if (!has_kernel)
            printf("# without the kernel: it takes root and loop devices\n");
        destroy(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
