/* SPDX-License-Identifier: MIT */
/* Damaged bitmaps and descriptors, and calls that would free what must not be freed. */
#include "support.h"

/* Changes a byte of the image with the allocator not open. */
static void flip(struct image *image, uint64_t offset, uint8_t mask)
{
    FILE *file = fopen(image->path, "r+b");

    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_true(byte >= 0);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    fputc(byte ^ mask, file);
    fclose(file);
}

static struct group_descriptor read_group(struct image *image, uint32_t number)
{
    struct group_descriptor descriptor;

    assert_int_equal(volume_read_group(&image->volume, number, &descriptor), 0);
    return descriptor;
}

/* Reserves until nothing is left; returns the sum and the last error. */
static uint64_t exhaust(struct image *image, int *error)
{
    struct space_run run;
    uint64_t sum = 0;

    while ((*error = space_reserve(image->space, 0, 100000, SPACE_PRIVILEGED, NULL, &run)) == 0)
        sum += run.length_blocks;
    return sum;
}

enum damage { DAMAGE_CHECKSUM, DAMAGE_METADATA, DAMAGE_COUNT, DAMAGE_DESCRIPTOR };

static void damage_group(const char *shape, enum damage damage, const char *message)
{
    struct image *image = image_create(shape_find(shape));
    struct space_statistics statistics;
    struct space_usage usage;
    struct space_run run;
    int error;

    image_clear_messages();
    image_open(image, NULL);
    const struct superblock *sb = &image->volume.sb;
    uint32_t block_bytes = sb->block_bytes;
    struct group_descriptor descriptor = read_group(image, 0);
    uint64_t first = group_first_block(sb, 0);
    uint32_t offset;
    uint64_t descriptor_block = group_descriptor_block(sb, 0, 0, &offset);
    image_close(image);
    uint64_t bitmap = descriptor.block_bitmap * block_bytes;
    uint32_t bit = (uint32_t)(descriptor.inode_table - first);
    if (damage == DAMAGE_METADATA)
        flip(image, bitmap + bit / 8, (uint8_t)(1u << bit % 8));
    else if (damage == DAMAGE_DESCRIPTOR)
        flip(image, descriptor_block * block_bytes + offset + 3, 0xff);
    else
        flip(image, bitmap + sb->clusters_per_group / 8 - 1, 0x80);
    image_open(image, NULL);
    assert_int_equal(space_reserve(image->space, first + 100, 10, 0, NULL, &run), 0);
    assert_true(run.block >= group_first_block(sb, 1));
    uint64_t sum = run.length_blocks + exhaust(image, &error);
    assert_int_equal(sum, image->initial_free_clusters - descriptor.free_clusters);
    assert_int_equal(error, descriptor.free_clusters > 0 ? -EUCLEAN : -ENOSPC);
    if (strstr(image_messages(), message) == NULL)
        fail_msg("\"%s\" is not in: %s", message, image_messages());
    space_get_statistics(image->space, &statistics);
    assert_int_equal(statistics.groups_out_of_use, 1);
    assert_int_equal(space_get_usage(image->space, &usage), 0);
    assert_int_equal(usage.free_blocks, 0);
    image_close(image);
    image_destroy(image);
}

static void test_damaged_groups(void **state)
{
    (void)state;
    damage_group("uninit_bg", DAMAGE_METADATA, "blocks of the format are marked free");
    damage_group("ext2", DAMAGE_METADATA, "blocks of the format are marked free");
    damage_group("ext2", DAMAGE_COUNT, "number of free clusters");
    damage_group("ext4-1k", DAMAGE_CHECKSUM, "checksum does not match");
    damage_group("ext4-1k", DAMAGE_METADATA, "checksum does not match");
    damage_group("ext4-1k", DAMAGE_DESCRIPTOR, "group 0: descriptor");
    damage_group("ext2", DAMAGE_DESCRIPTOR, "group 0: descriptor");
}

static void test_damaged_inode_bitmap(void **state)
{
    struct image *image = image_create(shape_find("ext4-1k"));
    struct handle handle;
    uint32_t ino;

    (void)state;
    image_clear_messages();
    image_open(image, NULL);
    struct group_descriptor descriptor = read_group(image, 0);
    uint32_t block_bytes = image->volume.sb.block_bytes;
    image_close(image);
    flip(image, descriptor.inode_bitmap * block_bytes + 20, 1);
    image_open(image, NULL);
    assert_int_equal(journal_start(image->journal, 40, &handle), 0);
    for (uint32_t i = 0; i < image->initial_free_inodes - descriptor.free_inodes; i++) {
        assert_int_equal(space_allocate_inode(&handle, image->space, 2, false, false, &ino), 0);
        assert_true(ino > image->volume.sb.inodes_per_group);
        if (i % 5 == 0) {
            assert_int_equal(journal_stop(&handle), 0);
            assert_int_equal(journal_start(image->journal, 40, &handle), 0);
        }
    }
    assert_int_equal(space_allocate_inode(&handle, image->space, 2, false, false, &ino), -EUCLEAN);
    assert_int_equal(journal_stop(&handle), 0);
    assert_non_null(strstr(image_messages(), "inode bitmap"));
    image_close(image);
    image_destroy(image);
}

static void expect_refused(struct image *image, uint64_t block, uint32_t length, const char *why)
{
    image_clear_messages();
    assert_int_equal(image_free(image, (struct space_run){.block = block, .length_blocks = length}),
                     -EUCLEAN);
    if (strstr(image_messages(), why) == NULL)
        fail_msg("block %llu: \"%s\" is not in: %s", (unsigned long long)block, why,
                 image_messages());
}

/* Every block of the format is protected, wherever flex_bg or meta_bg put it. */
static void test_metadata_is_not_freed(void **state)
{
    const char *names[] = {"ext4-1k",       "no-flex_bg", "meta_bg",
                           "sparse_super2", "ext2",       "small-groups"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        struct image *image = image_create(shape_find(names[i]));

        image_open(image, NULL);
        const struct superblock *sb = &image->volume.sb;
        for (uint32_t number = 0; number < sb->group_count; number++) {
            struct group_descriptor descriptor = read_group(image, number);
            uint64_t first = group_first_block(sb, number);
            uint32_t base = group_base_metadata_blocks(sb, number);

            expect_refused(image, descriptor.block_bitmap, 1, "belongs to the format");
            expect_refused(image, descriptor.inode_bitmap, 1, "belongs to the format");
            expect_refused(image, descriptor.inode_table, 1, "belongs to the format");
            expect_refused(image, descriptor.inode_table + sb->inode_table_blocks - 1, 1,
                           "belongs to the format");
            if (base > 0)
                expect_refused(image, first + base - 1, 1, "belongs to the format");
        }
        expect_refused(image, sb->block_count - 1, 1, "is free already");
        expect_refused(image, sb->block_count, 1, "outside");
        expect_refused(image, sb->block_count - 1, 2, "outside");
        expect_refused(image, UINT64_MAX - 3, 8, "outside");
        image_close(image);
        image_check(image);
        image_destroy(image);
    }
}

static void test_double_free(void **state)
{
    struct image *image = image_create(shape_find("ext4"));
    struct space_run run;

    (void)state;
    image_open(image, NULL);
    assert_int_equal(space_reserve(image->space, 0, 100, 0, NULL, &run), 0);
    /* Reserved is not allocated. */
    expect_refused(image, run.block, 1, "is free already");
    image_claim(image, run);
    assert_int_equal(image_free(image, run), 0);
    expect_refused(image, run.block + 50, 1, "is free already");
    image_commit(image);
    expect_refused(image, run.block + 50, 1, "is free already");
    image_close(image);
    image_check(image);
    image_destroy(image);
}

/* Runs over several groups are claimed and freed as one. */
static void test_run_over_groups(void **state)
{
    struct image *image = image_create(shape_find("small-groups"));
    struct space_run run, whole = {0};

    (void)state;
    image_open(image, &(struct space_options){.may_use_reserved = true});
    uint64_t goal = group_first_block(&image->volume.sb, 9);
    for (unsigned int i = 0; i < 2; i++) {
        assert_int_equal(space_reserve(image->space, goal, 512, 0, NULL, &run), 0);
        if (whole.length_blocks == 0 || run.block == whole.block + whole.length_blocks) {
            whole.block = whole.length_blocks == 0 ? run.block : whole.block;
            whole.length_blocks += run.length_blocks;
        }
        goal = run.block + run.length_blocks;
    }
    assert_true(whole.length_blocks > 512);
    image_claim(image, whole);
    assert_int_equal(image_free(image, whole), 0);
    image_commit(image);
    image_close(image);
    image_check(image);
    image_destroy(image);
}

/* After an abort nothing that was freed is given out. */
static void test_abort(void **state)
{
    struct image *image = image_create(shape_find("ext4-1k"));
    struct handle handle;
    struct space_run run, other;
    uint64_t sum = 0;

    (void)state;
    image_open(image, &(struct space_options){.may_use_reserved = true});
    assert_int_equal(space_reserve(image->space, 0, 100, 0, NULL, &run), 0);
    image_claim(image, run);
    image_commit(image);
    assert_int_equal(journal_start(image->journal, 8, &handle), 0);
    assert_int_equal(space_free(&handle, image->space, run), 0);
    journal_abort(image->journal, -EIO);
    assert_int_equal(journal_stop(&handle), -EROFS);
    assert_true(journal_close(image->journal) != 0);
    while (space_reserve(image->space, 0, 100000, 0, NULL, &other) == 0) {
        assert_true(other.block + other.length_blocks <= run.block ||
                    other.block >= run.block + run.length_blocks);
        sum += other.length_blocks;
    }
    assert_int_equal(sum, image->initial_free_clusters - run.length_blocks);
    space_destroy(image->space);
    buffer_cache_destroy(image->volume.buffers);
    device_close(image->volume.device);
    image_destroy(image);
}

static void test_trim(void **state)
{
    struct image *image = image_create(shape_find("ext4-1k"));
    struct space_statistics statistics;
    struct space_usage usage;
    struct space_run run;

    (void)state;
    image_open(image, NULL);
    if (!device_limits(image->volume.device)->has_discard) {
        assert_int_equal(space_trim(image->space, 0, UINT64_MAX, 1), -EOPNOTSUPP);
    } else {
        assert_int_equal(space_trim(image->space, 0, UINT64_MAX, 1), image->initial_free_clusters);
        assert_int_equal(space_reserve(image->space, 0, 1000, 0, NULL, &run), 0);
        assert_int_equal(space_trim(image->space, 0, UINT64_MAX, 1),
                         image->initial_free_clusters - 1000);
        assert_int_equal(space_trim(image->space, run.block, 500, 1), 0);
        assert_int_equal(space_trim(image->space, image->volume.sb.block_count - 10, 5, 1), 5);
        assert_int_equal(space_trim(image->space, image->volume.sb.block_count - 10, 5, 6), 0);
        space_unreserve(image->space, run);
    }
    space_get_statistics(image->space, &statistics);
    print_message("# %llu discards\n", (unsigned long long)statistics.discards);
    assert_int_equal(space_get_usage(image->space, &usage), 0);
    assert_int_equal(usage.free_blocks, image->initial_free_clusters);
    image_close(image);
    image_check(image);
    image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_groups),
        cmocka_unit_test(test_damaged_inode_bitmap),
        cmocka_unit_test(test_metadata_is_not_freed),
        cmocka_unit_test(test_double_free),
        cmocka_unit_test(test_run_over_groups),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_trim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
