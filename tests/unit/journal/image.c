/* SPDX-License-Identifier: MIT */
/* See image.h. */
#include "image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/crc.h"

#define SAME_UUID 2
#define LAST_TAG  8

static const uint8_t magic[4] = {0xc0, 0x3b, 0x39, 0x98};
static const uint8_t uuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

void put_be16(uint8_t *place, uint16_t value)
{
    place[0] = (uint8_t)(value >> 8);
    place[1] = (uint8_t)value;
}

void put_be32(uint8_t *place, uint32_t value)
{
    put_be16(place, (uint16_t)(value >> 16));
    put_be16(place + 2, (uint16_t)value);
}

void put_be64(uint8_t *place, uint64_t value)
{
    put_be32(place, (uint32_t)(value >> 32));
    put_be32(place + 4, (uint32_t)value);
}

uint32_t get_be32(const uint8_t *place)
{
    return (uint32_t)place[0] << 24 | (uint32_t)place[1] << 16 | (uint32_t)place[2] << 8 | place[3];
}

/* ---- The device ----------------------------------------------------------------------------- */

static int image_readv(struct device *device, const struct iovec *iov, int iov_count,
                       uint64_t offset)
{
    struct image *image = container_of(device, struct image, device);
    uint64_t failing = image->failing_block * image->form.block_bytes;

    image->reads++;
    for (int i = 0; i < iov_count; i++) {
        if (failing != 0 && offset < failing + image->form.block_bytes &&
            offset + iov[i].iov_len > failing)
            return -EIO;
        memcpy(iov[i].iov_base, image->bytes + offset, iov[i].iov_len);
        offset += iov[i].iov_len;
    }
    return 0;
}

static int image_writev(struct device *device, const struct iovec *iov, int iov_count,
                        uint64_t offset, unsigned int flags)
{
    struct image *image = container_of(device, struct image, device);

    (void)flags;
    if (image->writes_left == 0)
        return -EIO;
    image->writes_left -= image->writes_left > 0;
    for (int i = 0; i < iov_count; i++) {
        memcpy(image->bytes + offset, iov[i].iov_base, iov[i].iov_len);
        offset += iov[i].iov_len;
    }
    return 0;
}

static void image_close(struct device *device)
{
    (void)device;
}

static const struct device_ops image_ops = {
    .name = "test image",
    .readv = image_readv,
    .writev = image_writev,
    .close = image_close,
};

static void keep_error(void *context, enum log_level level, const char *message)
{
    struct image *image = context;

    if (level != LOG_LEVEL_ERROR)
        return;
    image->errors_logged++;
    snprintf(image->last_error, sizeof(image->last_error), "%s", message);
}

/* ---- Making an image ------------------------------------------------------------------------ */

size_t image_form_count(void)
{
    return 4 * 2 * 2 * 2;
}

struct form image_form(size_t index)
{
    return (struct form){
        .checksum_version = (unsigned int)(index & 3),
        .is_64bit = (index & 4) != 0,
        .has_uuid_everywhere = (index & 8) != 0,
        .block_bytes = (index & 16) != 0 ? 4096 : 1024,
    };
}

static void write_superblock(struct image *image, uint32_t start)
{
    uint8_t *raw = image_journal(image, 0);
    uint32_t incompat = 1;

    if (image->form.is_64bit)
        incompat |= 2;
    if (image->form.is_async)
        incompat |= 4;
    if (image->form.checksum_version == 2)
        incompat |= 8;
    if (image->form.checksum_version == 3)
        incompat |= 0x10;
    memset(raw, 0, image->form.block_bytes);
    memcpy(raw, magic, sizeof(magic));
    put_be32(raw + 4, 4);
    put_be32(raw + 0xc, image->form.block_bytes);
    put_be32(raw + 0x10, image->journal_blocks);
    put_be32(raw + 0x14, IMAGE_FIRST_LOG);
    put_be32(raw + 0x18, image->sequence);
    put_be32(raw + 0x1c, start);
    put_be32(raw + 0x24, image->form.checksum_version == 1 ? 1 : 0);
    put_be32(raw + 0x28, incompat);
    memcpy(raw + 0x30, uuid, sizeof(uuid));
    raw[0x50] = image->form.checksum_version >= 2 ? 4 : 0;
    image_seal_superblock(image);
}

/* Three extents whose order on the disk is not that in the journal. */
static void place_journal(struct image *image, uint32_t blocks)
{
    uint32_t third = blocks / 3;

    image->extents[0] = (struct journal_extent){0, third, 100};
    image->extents[1] = (struct journal_extent){third, third, 40};
    image->extents[2] = (struct journal_extent){2 * third, blocks - 2 * third, 200};
    image->location = (struct journal_location){
        .device = &image->device,
        .block_bytes = image->form.block_bytes,
        .block_count = blocks,
        .fs_block_count = IMAGE_BLOCKS,
        .fs_first_data_block = image->form.block_bytes == 1024 ? 1 : 0,
        .extents = image->extents,
        .extent_count = 3,
        .log = &image->log,
    };
    memcpy(image->location.fs_uuid, uuid, sizeof(uuid));
}

struct image *image_create(const struct form *form, uint32_t journal_blocks, uint32_t sequence,
                           uint32_t start)
{
    struct image *image = calloc(1, sizeof(*image));
    size_t size = (size_t)IMAGE_BLOCKS * form->block_bytes;

    assert_non_null(image);
    assert_true(journal_blocks <= IMAGE_MAX_JOURNAL);
    image->bytes = malloc(size);
    image->model = malloc(size);
    assert_non_null(image->bytes);
    assert_non_null(image->model);
    for (uint32_t i = 0; i < IMAGE_BLOCKS; i++)
        memset(image->bytes + (size_t)i * form->block_bytes, (int)(i ^ 0x5a), form->block_bytes);
    memcpy(image->model, image->bytes, size);
    image->device.ops = &image_ops;
    image->device.limits = (struct device_limits){
        .size_bytes = size,
        .offset_alignment = 1,
        .memory_alignment = 1,
        .max_iov_count = 16,
    };
    image->log = (struct log){keep_error, image, LOG_LEVEL_DEBUG};
    image->writes_left = -1;
    image->form = *form;
    image->journal_blocks = journal_blocks;
    image->sequence = sequence;
    image->log_block = start;
    image->seconds = IMAGE_FIRST_SECOND;
    image->data_crc = ~0u;
    place_journal(image, journal_blocks);
    write_superblock(image, start);
    return image;
}

void image_destroy(struct image *image)
{
    free(image->bytes);
    free(image->model);
    free(image);
}

uint8_t *image_journal(struct image *image, uint32_t journal_block)
{
    for (size_t i = 0; i < image->location.extent_count; i++) {
        const struct journal_extent *extent = &image->extents[i];

        if (journal_block >= extent->journal_block &&
            journal_block - extent->journal_block < extent->length_blocks)
            return image->bytes + (extent->disk_block + journal_block - extent->journal_block) *
                                      image->form.block_bytes;
    }
    fail_msg("journal block %u", journal_block);
    return NULL;
}

/* ---- Checksums ------------------------------------------------------------------------------ */

static void seal(struct image *image, uint8_t *bytes, size_t length, size_t place, uint32_t seed)
{
    if (image->form.checksum_version < 2)
        return;
    put_be32(bytes + place, 0);
    put_be32(bytes + place, crc32c(seed, bytes, length));
}

static uint32_t log_seed(void)
{
    return crc32c(~0u, uuid, sizeof(uuid));
}

void image_seal_superblock(struct image *image)
{
    seal(image, image_journal(image, 0), 1024, 0xfc, ~0u);
}

void image_seal_tail(struct image *image, uint32_t journal_block)
{
    uint32_t block_bytes = image->form.block_bytes;

    seal(image, image_journal(image, journal_block), block_bytes, block_bytes - 4, log_seed());
}

void image_seal_commit(struct image *image, uint32_t journal_block)
{
    seal(image, image_journal(image, journal_block), image->form.block_bytes, 0x10, log_seed());
}

/* ---- Writing the log ------------------------------------------------------------------------ */

/* The next block of the log, with its header. */
static uint8_t *next_block(struct image *image, uint32_t type, uint32_t *journal_block)
{
    uint8_t *bytes = image_journal(image, image->log_block);

    *journal_block = image->log_block++;
    if (image->log_block == image->journal_blocks)
        image->log_block = IMAGE_FIRST_LOG;
    memset(bytes, 0, image->form.block_bytes);
    if (type != 0) {
        memcpy(bytes, magic, sizeof(magic));
        put_be32(bytes + 4, type);
        put_be32(bytes + 8, image->sequence);
    }
    return bytes;
}

static void fill_block(const struct image *image, const struct image_block *block, uint8_t *bytes)
{
    memset(bytes, block->fill, image->form.block_bytes);
    if (block->has_magic)
        memcpy(bytes, magic, sizeof(magic));
}

static uint32_t write_data(struct image *image, const struct image_block *block)
{
    uint8_t disk_sequence[4];
    uint32_t journal_block;
    uint8_t *bytes = next_block(image, 0, &journal_block);
    uint32_t crc;

    fill_block(image, block, bytes);
    if (block->has_magic)
        memset(bytes, 0, sizeof(magic));
    put_be32(disk_sequence, image->sequence);
    crc = crc32c(log_seed(), disk_sequence, sizeof(disk_sequence));
    crc = crc32c(crc, bytes, image->form.block_bytes);
    image->data_crc = crc32_be(image->data_crc, bytes, image->form.block_bytes);
    if (block->is_broken)
        bytes[image->form.block_bytes / 2] ^= 1;
    return crc;
}

/* Writes one tag; returns its length, with the UUID that follows. */
static size_t put_tag(const struct image *image, uint8_t *place, const struct image_block *block,
                      uint32_t flags, uint32_t crc)
{
    uint32_t high = (uint32_t)(block->disk_block >> 32);
    size_t length;

    put_be32(place, (uint32_t)block->disk_block);
    if (image->form.checksum_version == 3) {
        put_be32(place + 4, flags);
        put_be32(place + 8, high);
        put_be32(place + 12, crc);
        length = 16;
    } else {
        length = 8;
        put_be16(place + 4, image->form.checksum_version == 2 ? (uint16_t)crc : 0);
        put_be16(place + 6, (uint16_t)flags);
        if (image->form.is_64bit) {
            put_be32(place + 8, high);
            length += 4;
        }
        if (image->form.checksum_version == 2)
            length += 2;
    }
    if ((flags & SAME_UUID) == 0) {
        memcpy(place + length, uuid, sizeof(uuid));
        length += sizeof(uuid);
    }
    return length;
}

uint32_t image_write_descriptor(struct image *image, const struct image_block *blocks, size_t count)
{
    uint32_t journal_block;
    uint8_t *bytes = next_block(image, 1, &journal_block);
    uint32_t crc_before = image->data_crc;
    size_t place = 12;

    for (size_t i = 0; i < count; i++) {
        uint32_t flags = blocks[i].has_magic ? 1 : 0;

        if (i > 0 && !image->form.has_uuid_everywhere)
            flags |= SAME_UUID;
        if (i + 1 == count)
            flags |= LAST_TAG;
        place += put_tag(image, bytes + place, &blocks[i], flags, write_data(image, &blocks[i]));
        assert_true(place <= image->form.block_bytes - 4);
    }
    image_seal_tail(image, journal_block);
    /* The checksum of version 1 runs over the descriptor before its data. */
    image->data_crc = crc32_be(crc_before, bytes, image->form.block_bytes);
    for (size_t i = 0; i < count; i++) {
        uint32_t data_block = journal_block + 1 + (uint32_t)i;

        if (data_block >= image->journal_blocks)
            data_block -= image->journal_blocks - IMAGE_FIRST_LOG;
        if (blocks[i].is_broken)
            image_journal(image, data_block)[image->form.block_bytes / 2] ^= 1;
        image->data_crc = crc32_be(image->data_crc, image_journal(image, data_block),
                                   image->form.block_bytes);
        if (blocks[i].is_broken)
            image_journal(image, data_block)[image->form.block_bytes / 2] ^= 1;
    }
    return journal_block;
}

uint32_t image_write_revoke(struct image *image, const uint64_t *blocks, size_t count)
{
    size_t record = image->form.is_64bit ? 8 : 4;
    uint32_t journal_block;
    uint8_t *bytes = next_block(image, 5, &journal_block);

    put_be32(bytes + 12, (uint32_t)(16 + count * record));
    for (size_t i = 0; i < count; i++) {
        if (image->form.is_64bit)
            put_be64(bytes + 16 + i * record, blocks[i]);
        else
            put_be32(bytes + 16 + i * record, (uint32_t)blocks[i]);
    }
    image_seal_tail(image, journal_block);
    return journal_block;
}

uint32_t image_write_commit(struct image *image)
{
    uint32_t journal_block;
    uint8_t *bytes = next_block(image, 2, &journal_block);

    if (image->form.checksum_version == 1) {
        bytes[12] = 1;
        bytes[13] = 4;
        put_be32(bytes + 0x10, image->data_crc);
    }
    put_be64(bytes + 0x30, image->seconds);
    image_seal_commit(image, journal_block);
    image->seconds++;
    image->sequence++;
    image->data_crc = ~0u;
    return journal_block;
}

void image_write_transaction(struct image *image, const struct image_block *blocks, size_t count)
{
    image_write_descriptor(image, blocks, count);
    image_write_commit(image);
}

/* ---- Checking ------------------------------------------------------------------------------- */

void image_model_set(struct image *image, const struct image_block *block)
{
    fill_block(image, block, image->model + block->disk_block * image->form.block_bytes);
}

static bool is_journal(const struct image *image, uint64_t block)
{
    for (size_t i = 0; i < image->location.extent_count; i++)
        if (block >= image->extents[i].disk_block &&
            block - image->extents[i].disk_block < image->extents[i].length_blocks)
            return true;
    return false;
}

void image_assert_model(const struct image *image)
{
    size_t block_bytes = image->form.block_bytes;

    for (uint32_t i = 0; i < IMAGE_BLOCKS; i++)
        if (!is_journal(image, i) && memcmp(image->bytes + i * block_bytes,
                                            image->model + i * block_bytes, block_bytes) != 0)
            fail_msg("block %u is not as it should be (checksums %u, 64bit %d)", i,
                     image->form.checksum_version, image->form.is_64bit);
}

int image_open(struct image *image, struct journal_superblock *sb)
{
    return journal_read_superblock(&image->location, sb);
}

struct journal_replay *image_scan(struct image *image, struct journal_superblock *sb)
{
    struct journal_replay *replay = NULL;

    assert_int_equal(image_open(image, sb), 0);
    assert_int_equal(journal_scan(&image->location, sb, &replay), 0);
    return replay;
}

void image_recover(struct image *image)
{
    struct journal_superblock sb;
    struct journal_replay *replay = image_scan(image, &sb);
    uint32_t next = replay->next_sequence;

    assert_int_equal(journal_replay_apply(&image->location, &sb, replay), 0);
    journal_replay_free(replay);
    image_assert_model(image);
    replay = image_scan(image, &sb);
    assert_int_equal(sb.start_block, 0);
    assert_int_equal(sb.sequence, next);
    assert_int_equal(replay->entry_count, 0);
    journal_replay_free(replay);
}
