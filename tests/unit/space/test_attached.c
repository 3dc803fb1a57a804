/* SPDX-License-Identifier: MIT */
/*
 * What was allocated, given to files, so that e2fsck can judge bitmaps, counts, flags and checksums
 * while it is in use: inodes are written by hand with the runs in them, and debugfs gives them
 * names. Before that, whatever mkfs left uninitialised is filled with garbage.
 */
#include <sys/stat.h>

#include "format/extent.h"
#include "format/inode.h"
#include "support.h"

#define FILES 60

static void put_le16(uint8_t *place, uint32_t value)
{
    place[0] = (uint8_t)value;
    place[1] = (uint8_t)(value >> 8);
}

static void put_le32(uint8_t *place, uint32_t value)
{
    put_le16(place, value);
    put_le16(place + 2, value >> 16);
}

/* Fills with garbage all that the descriptors say nobody may look at. */
static unsigned int spoil(struct image *image)
{
    struct volume *volume = &image->volume;
    const struct superblock *sb = &volume->sb;
    uint8_t *garbage = malloc(sb->block_bytes);
    unsigned int spoiled = 0;

    memset(garbage, 0xa5, sb->block_bytes);
    for (uint32_t number = 0; number < sb->group_count; number++) {
        struct group_descriptor descriptor;
        uint64_t blocks[64];
        unsigned int count = 0;

        assert_int_equal(volume_read_group(volume, number, &descriptor), 0);
        if ((descriptor.flags & GROUP_BLOCK_UNINIT) != 0)
            blocks[count++] = descriptor.block_bitmap;
        if ((descriptor.flags & GROUP_INODE_UNINIT) != 0)
            blocks[count++] = descriptor.inode_bitmap;
        uint32_t bound = sb->inodes_per_group - descriptor.unused_inodes;
        uint32_t first = (bound + sb->inodes_per_block - 1) / sb->inodes_per_block;
        if ((descriptor.flags & GROUP_INODE_ZEROED) == 0)
            for (uint32_t i = first; i < sb->inode_table_blocks && count < 64; i++)
                blocks[count++] = descriptor.inode_table + i;
        for (unsigned int i = 0; i < count; i++)
            assert_int_equal(device_write(volume->device, garbage, sb->block_bytes,
                                          blocks[i] * sb->block_bytes, 0),
                             0);
        spoiled += count;
    }
    free(garbage);
    return spoiled;
}

/* Reserves up to 4 runs (12 blocks without extents) and puts them into i_block. */
static void give_blocks(struct image *image, uint64_t *random, struct inode_fields *fields)
{
    const struct superblock *sb = &image->volume.sb;
    bool has_extents = superblock_has_incompat(sb, FEATURE_INCOMPAT_EXTENTS);
    uint64_t goal = 1 + test_random(random, sb->block_count - 1);
    uint32_t logical = 0, most = sb->block_count > 10000 ? 40 : 8;

    if (has_extents) {
        put_le16(fields->block, 0xf30a);
        put_le16(fields->block + 2, 4);
        put_le16(fields->block + 4, 4);
        fields->flags = INODE_EXTENTS;
    }
    for (unsigned int i = 0; i < 4; i++) {
        uint32_t wanted = has_extents ? 1 + (uint32_t)test_random(random, most) : 3;
        struct space_run run;

        assert_int_equal(space_reserve(image->space, goal, wanted, 0, NULL, &run), 0);
        image_claim(image, run);
        if (has_extents) {
            uint8_t *entry = fields->block + 12 + 12 * i;

            put_le32(entry, logical);
            put_le16(entry + 4, run.length_blocks);
            put_le16(entry + 6, (uint32_t)(run.block >> 32));
            put_le32(entry + 8, (uint32_t)run.block);
        } else {
            for (uint32_t k = 0; k < run.length_blocks; k++)
                put_le32(fields->block + 4 * (logical + k), (uint32_t)(run.block + k));
        }
        logical += run.length_blocks;
        goal = run.block + 2 * sb->cluster_blocks * (1 + test_random(random, 100));
    }
    fields->size = (uint64_t)logical * sb->block_bytes;
    fields->allocated_sectors = (uint64_t)logical * (sb->block_bytes / 512);
}

static uint32_t make_file(struct image *image, uint64_t *random)
{
    const struct superblock *sb = &image->volume.sb;
    struct inode_fields fields = {.mode = S_IFREG | 0644, .link_count = 1};
    struct group_descriptor descriptor;
    struct handle handle;
    struct buffer *buffer;
    uint32_t ino, parent = 1 + (uint32_t)test_random(random, sb->inode_count);

    give_blocks(image, random, &fields);
    assert_int_equal(journal_start(image->journal, SPACE_ALLOCATE_INODE_CREDITS + 1, &handle), 0);
    assert_int_equal(space_allocate_inode(&handle, image->space, parent, false, false, &ino), 0);
    uint32_t index = (ino - 1) % sb->inodes_per_group;
    assert_int_equal(
        volume_read_group(&image->volume, (ino - 1) / sb->inodes_per_group, &descriptor), 0);
    assert_int_equal(buffer_get(image->volume.buffers,
                                descriptor.inode_table + index / sb->inodes_per_block, &buffer),
                     0);
    assert_int_equal(journal_modify(&handle, buffer), 0);
    uint8_t *raw = (uint8_t *)journal_data(&handle, buffer) +
                   index % sb->inodes_per_block * sb->inode_bytes;
    fields.extra_isize = inode_init_raw(sb, raw);
    assert_int_equal(inode_format(sb, ino, &fields, raw), 0);
    buffer_put(buffer);
    assert_int_equal(journal_stop(&handle), 0);
    return ino;
}

static void name_files(struct image *image, const uint32_t *inodes)
{
    char path[160], text[4096];
    const char *arguments[] = {"debugfs", "-w", "-f", path, image->path, NULL};

    snprintf(path, sizeof(path), "%s.names", image->path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (unsigned int i = 0; i < FILES; i++)
        fprintf(file, "ln <%u> f%u\n", inodes[i], i);
    fclose(file);
    assert_int_equal(run_program(arguments, text, sizeof(text)), 0);
    remove(path);
}

static void attach_shape(const struct shape *shape, uint64_t seed)
{
    struct image *image = image_create(shape);
    uint32_t inodes[FILES];

    image_clear_messages();
    image_open(image, &(struct space_options){.may_use_reserved = true});
    unsigned int spoiled = spoil(image);
    for (unsigned int i = 0; i < FILES; i++)
        inodes[i] = make_file(image, &seed);
    image_close(image);
    print_message("# %s: %u blocks spoiled before\n", shape->name, spoiled);
    name_files(image, inodes);
    image_check(image);
    assert_string_equal(image_messages(), "");
    image_destroy(image);
}

static void test_allocated_is_consistent(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
    for (size_t i = 0; i < shape_count; i++)
        attach_shape(&shapes[i], seed + 2 * i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocated_is_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
