/* SPDX-License-Identifier: MIT */
/* Where inodes go, how many there are, and what is refused. */
#include "support.h"

static int allocate(struct image *image, uint32_t parent, bool is_dir, bool is_top, uint32_t *ino)
{
    struct handle handle;

    assert_int_equal(journal_start(image->journal, SPACE_ALLOCATE_INODE_CREDITS, &handle), 0);
    int error = space_allocate_inode(&handle, image->space, parent, is_dir, is_top, ino);
    assert_int_equal(journal_stop(&handle), 0);
    return error;
}

static int release(struct image *image, uint32_t ino, bool is_dir)
{
    struct handle handle;

    assert_int_equal(journal_start(image->journal, SPACE_FREE_INODE_CREDITS, &handle), 0);
    int error = space_free_inode(&handle, image->space, ino, is_dir);
    assert_int_equal(journal_stop(&handle), 0);
    return error;
}

static uint32_t group_of(const struct image *image, uint32_t ino)
{
    return (ino - 1) / image->volume.sb.inodes_per_group;
}

static uint64_t count_directories(struct image *image)
{
    uint64_t count = 0;

    for (uint32_t number = 0; number < image->volume.sb.group_count; number++) {
        struct group_descriptor descriptor;

        assert_int_equal(volume_read_group(&image->volume, number, &descriptor), 0);
        count += descriptor.used_directories;
    }
    return count;
}

static void exhaust_shape(const struct shape *shape)
{
    struct image *image = image_create(shape);
    const struct superblock *sb = &image->volume.sb;
    uint32_t ino, count = 0;
    int error;

    image_clear_messages();
    image_open(image, NULL);
    uint8_t *used = calloc(1, sb->inode_count + 1);
    uint64_t directories = count_directories(image);
    while ((error = allocate(image, 1 + count * 7 % sb->inode_count, count % 2 == 0, count % 4 == 0,
                             &ino)) == 0) {
        assert_in_range(ino, sb->first_ino, sb->inode_count);
        assert_int_equal(used[ino], 0);
        used[ino] = count % 2 == 0 ? 2 : 1;
        count++;
    }
    assert_int_equal(error, -ENOSPC);
    assert_int_equal(count, image->initial_free_inodes);
    assert_int_equal(count_directories(image), directories + (count + 1) / 2);
    for (uint32_t i = 1; i <= sb->inode_count; i++)
        if (used[i] != 0)
            assert_int_equal(release(image, i, used[i] == 2), 0);
    assert_int_equal(count_directories(image), directories);
    image_close(image);
    assert_string_equal(image_messages(), "");
    image_check(image);
    free(used);
    image_destroy(image);
}

static void test_every_inode_once(void **state)
{
    const char *names[] = {"ext4-1k", "small-groups", "ext2", "uninit_bg", "bigalloc", "partial"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        exhaust_shape(shape_find(names[i]));
}

/* Directories of the root spread over the flex_bgs; others and files stay with their parents. */
static void test_placement(void **state)
{
    const struct shape shape = {"spread", "256M", "-t ext4 -b 1024 -G 4"};
    struct image *image = image_create(&shape);
    uint32_t top[8], ino;
    bool is_used[8] = {0};
    unsigned int flexes = 0;

    (void)state;
    image_open(image, NULL);
    assert_int_equal(image->volume.sb.flex_group_count, 4);
    for (unsigned int i = 0; i < 8; i++) {
        assert_int_equal(allocate(image, 2, true, true, &top[i]), 0);
        unsigned int flex = group_of(image, top[i]) / 4;
        assert_in_range(flex, 0, 7);
        flexes += is_used[flex] ? 0 : 1;
        is_used[flex] = true;
    }
    print_message("# 8 directories in %u of 8 flex_bgs\n", flexes);
    assert_true(flexes >= 7);
    for (unsigned int i = 0; i < 8; i++) {
        assert_int_equal(allocate(image, top[i], true, false, &ino), 0);
        assert_int_equal(group_of(image, ino) / 4, group_of(image, top[i]) / 4);
        uint32_t last = top[i];
        for (unsigned int k = 0; k < 20; k++) {
            assert_int_equal(allocate(image, top[i], false, false, &ino), 0);
            assert_int_equal(group_of(image, ino), group_of(image, top[i]));
            assert_true(ino > last);
            last = ino;
        }
    }
    image_close(image);
    image_destroy(image);
}

static void test_refusals(void **state)
{
    struct image *image = image_create(shape_find("ext4-1k"));
    uint32_t ino;

    (void)state;
    image_open(image, NULL);
    image_clear_messages();
    assert_int_equal(allocate(image, image->volume.sb.inodes_per_group + 1, false, false, &ino), 0);
    assert_int_equal(release(image, ino, true), -EUCLEAN);
    assert_non_null(strstr(image_messages(), "is a directory"));
    assert_int_equal(release(image, ino, false), 0);
    assert_int_equal(release(image, ino, false), -EUCLEAN);
    assert_non_null(strstr(image_messages(), "is free already"));
    assert_int_equal(release(image, 2, true), -EUCLEAN);
    assert_int_equal(release(image, 0, true), -EUCLEAN);
    assert_int_equal(release(image, image->volume.sb.inode_count + 1, false), -EUCLEAN);
    assert_int_equal(release(image, image->volume.sb.inode_count, false), -EUCLEAN);
    assert_int_equal(allocate(image, 0, false, false, &ino), -EINVAL);
    assert_int_equal(allocate(image, image->volume.sb.inode_count + 1, false, false, &ino),
                     -EINVAL);
    image_close(image);
    image_check(image);
    image_destroy(image);
}

/* A block of the table that was in use before is left alone: its other inodes stay. */
static void test_table_blocks_in_use_stay(void **state)
{
    struct image *image = image_create(shape_find("ext4-1k"));
    const struct superblock *sb = &image->volume.sb;
    struct group_descriptor descriptor;
    uint32_t first, ino;
    uint8_t garbage[4096];
    struct handle handle;
    struct buffer *buffer;

    (void)state;
    image_open(image, NULL);
    /* What lies where no inode ever was is not to be shown. */
    assert_int_equal(volume_read_group(&image->volume, 1, &descriptor), 0);
    memset(garbage, 0x55, sizeof(garbage));
    assert_int_equal(device_write(image->volume.device, garbage, sizeof(garbage),
                                  descriptor.inode_table * sb->block_bytes, 0),
                     0);
    assert_int_equal(allocate(image, sb->inodes_per_group + 1, false, false, &first), 0);
    assert_int_equal(group_of(image, first), 1);
    assert_int_equal(volume_read_group(&image->volume, 1, &descriptor), 0);
    assert_int_equal(descriptor.flags & (GROUP_INODE_UNINIT | GROUP_BLOCK_UNINIT), 0);
    assert_int_equal(descriptor.unused_inodes, sb->inodes_per_group - 1);
    assert_int_equal(buffer_get(image->volume.buffers, descriptor.inode_table, &buffer), 0);
    assert_int_equal(journal_start(image->journal, 1, &handle), 0);
    assert_int_equal(journal_modify(&handle, buffer), 0);
    memset(journal_data(&handle, buffer), 0x77, sb->inode_bytes);
    assert_int_equal(journal_stop(&handle), 0);
    for (uint32_t i = 1; i < sb->inodes_per_block * 2; i++) {
        assert_int_equal(allocate(image, first, false, false, &ino), 0);
        assert_int_equal(ino, first + i);
    }
    assert_int_equal(((const uint8_t *)buffer->data)[0], 0x77);
    assert_int_equal(((const uint8_t *)buffer->data)[sb->inode_bytes], 0);
    buffer_put(buffer);
    assert_int_equal(volume_read_group(&image->volume, 1, &descriptor), 0);
    assert_int_equal(descriptor.unused_inodes, sb->inodes_per_group - sb->inodes_per_block * 2);
    /* Freeing does not give back the part of the table that is in use. */
    assert_int_equal(release(image, ino, false), 0);
    assert_int_equal(volume_read_group(&image->volume, 1, &descriptor), 0);
    assert_int_equal(descriptor.unused_inodes, sb->inodes_per_group - sb->inodes_per_block * 2);
    uint32_t again;
    assert_int_equal(allocate(image, first, false, false, &again), 0);
    assert_int_equal(again, ino);
    image_close(image);
    image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_inode_once),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_table_blocks_in_use_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
