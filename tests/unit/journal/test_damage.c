/* SPDX-License-Identifier: MIT */
/* Journals that are damaged, interrupted or hostile. */
#include "image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/crc.h"

#define JOURNAL_BLOCKS 48u

static const struct image_block first[] = {{30, 1, false, false}, {31, 2, false, false}};
static const struct image_block second[] = {{31, 3, false, false}, {32, 4, true, false}};

static struct image *make(unsigned int checksum_version, bool is_async)
{
    struct form form = {
        .checksum_version = checksum_version,
        .is_64bit = true,
        .is_async = is_async,
        .block_bytes = 1024,
    };

    return image_create(&form, JOURNAL_BLOCKS, 50, 40);
}

static void write_and_expect(struct image *image, const struct image_block *blocks, size_t count)
{
    image_write_transaction(image, blocks, count);
    for (size_t i = 0; i < count; i++)
        if (!blocks[i].is_broken)
            image_model_set(image, &blocks[i]);
}

static int scan_error(struct image *image)
{
    struct journal_superblock sb;
    struct journal_replay *replay = NULL;
    int error;

    assert_int_equal(image_open(image, &sb), 0);
    error = journal_scan(&image->location, &sb, &replay);
    journal_replay_free(replay);
    return error;
}

/* Scans and applies; the flag must be as told. Returns the journal's error afterwards. */
static int32_t recover_damaged(struct image *image, bool is_damaged)
{
    struct journal_superblock sb;
    struct journal_replay *replay = image_scan(image, &sb);

    assert_int_equal(replay->had_bad_blocks, is_damaged);
    assert_int_equal(image->errors_logged > 0, is_damaged);
    journal_replay_free(replay);
    image_recover(image);
    assert_int_equal(image_open(image, &sb), 0);
    return sb.error;
}

/* A broken block is left out, and nothing else; an older copy stays the newest. */
static void test_bad_data_block(void **state)
{
    const struct image_block older[] = {{30, 1, false, false}, {31, 2, true, false}};
    const struct image_block newer[] = {
        {31, 3, false, true}, {32, 4, true, true}, {33, 5, true, false}};

    (void)state;
    for (unsigned int version = 2; version <= 3; version++) {
        struct image *image = make(version, false);

        write_and_expect(image, older, 2);
        write_and_expect(image, newer, 3);
        assert_int_equal(recover_damaged(image, true), -EIO);
        image_destroy(image);
    }
}

/* Without checksums for data, nobody can tell. */
static void test_bad_data_block_without_checksum(void **state)
{
    const struct image_block blocks[] = {{31, 3, false, true}};
    struct image *image = make(0, false);

    (void)state;
    image_write_transaction(image, blocks, 1);
    image_model_set(image, blocks);
    image->model[31 * 1024 + 512] ^= 1;
    assert_int_equal(recover_damaged(image, false), 0);
    image_destroy(image);
}

/* A broken block that is revoked is not missed. */
static void test_bad_block_revoked(void **state)
{
    const struct image_block blocks[] = {{31, 3, false, true}, {32, 4, false, false}};
    const uint64_t revoked[] = {31};
    struct image *image = make(3, false);

    (void)state;
    write_and_expect(image, blocks, 2);
    image_write_revoke(image, revoked, 1);
    image_write_commit(image);
    assert_int_equal(recover_damaged(image, false), 0);
    image_destroy(image);
}

/* What the journal had as error before stays. */
static void test_error_is_kept(void **state)
{
    const struct image_block blocks[] = {{31, 3, false, true}};
    struct image *image = make(3, false);

    (void)state;
    put_be32(image_journal(image, 0) + 0x20, (uint32_t)-EROFS);
    image_seal_superblock(image);
    image_write_transaction(image, blocks, 1);
    assert_int_equal(recover_damaged(image, true), -EROFS);
    image_destroy(image);
}

/* A descriptor or revoke block with a wrong checksum: stale if time goes back, else damage. */
static void test_bad_tail(void **state)
{
    const uint64_t revoked[] = {30};

    (void)state;
    for (unsigned int variant = 0; variant < 8; variant++) {
        struct image *image = make(variant & 1 ? 2 : 3, false);
        bool is_stale = (variant & 2) != 0;
        uint32_t broken;

        write_and_expect(image, first, 2);
        if (is_stale)
            image->seconds -= 100;
        if (variant & 4) {
            broken = image_write_revoke(image, revoked, 1);
            image_write_descriptor(image, second, 2);
        } else {
            broken = image_write_descriptor(image, second, 2);
        }
        image_write_commit(image);
        image_journal(image, broken)[1000] ^= 0x10;
        if (is_stale)
            assert_int_equal(recover_damaged(image, false), 0);
        else
            assert_int_equal(scan_error(image), -EBADMSG);
        image_destroy(image);
    }
}

/* Without a commit behind it, a broken descriptor is just the end. */
static void test_bad_tail_without_commit(void **state)
{
    struct image *image = make(3, false);

    (void)state;
    write_and_expect(image, first, 2);
    image_journal(image, image_write_descriptor(image, second, 2))[1000] ^= 0x10;
    assert_int_equal(recover_damaged(image, false), 0);
    image_destroy(image);
}

/* A broken commit ends the log before its transaction, and says so unless it is stale. */
static void test_bad_commit(void **state)
{
    (void)state;
    for (unsigned int variant = 0; variant < 6; variant++) {
        struct image *image = make(1 + variant % 3, false);
        bool is_stale = variant >= 3;
        uint32_t commit;

        write_and_expect(image, first, 2);
        if (is_stale)
            image->seconds -= 100;
        image_write_descriptor(image, second, 2);
        commit = image_write_commit(image);
        image_journal(image, commit)[0x11] ^= 0x10;
        image_write_transaction(image, first, 2);
        assert_int_equal(recover_damaged(image, !is_stale), is_stale ? 0 : -EIO);
        image_destroy(image);
    }
}

/* An asynchronous commit may arrive before its data: that is no damage, unless others follow. */
static void test_bad_asynchronous_commit(void **state)
{
    (void)state;
    for (unsigned int variant = 0; variant < 6; variant++) {
        struct image *image = make(1 + variant % 3, true);
        bool has_next = variant >= 3;
        uint32_t commit;

        write_and_expect(image, first, 2);
        image_write_descriptor(image, second, 2);
        commit = image_write_commit(image);
        image_journal(image, commit)[0x11] ^= 0x10;
        if (has_next)
            image_write_transaction(image, first, 2);
        assert_int_equal(recover_damaged(image, has_next), has_next ? -EIO : 0);
        image_destroy(image);
    }
}

/* The first sector of a commit is enough: behind its header it only ever holds zeros. */
static void test_commit_written_in_part(void **state)
{
    struct image *image = make(3, false);
    uint32_t commit;

    (void)state;
    write_and_expect(image, first, 2);
    image_write_descriptor(image, second, 2);
    commit = image_write_commit(image);
    image_model_set(image, &second[0]);
    image_model_set(image, &second[1]);
    memset(image_journal(image, commit) + 512, 0xaa, 512);
    assert_int_equal(recover_damaged(image, false), 0);
    image_destroy(image);
}

/* Checksums of version 1: of all blocks of the transaction, in the commit. */
static void test_transaction_checksum(void **state)
{
    (void)state;
    for (unsigned int variant = 0; variant < 5; variant++) {
        struct image *image = make(1, false);
        uint8_t *commit;
        uint32_t descriptor;

        write_and_expect(image, first, 2);
        descriptor = image_write_descriptor(image, second, 2);
        commit = image_journal(image, image_write_commit(image));
        if (variant == 0)
            image_journal(image, descriptor)[1023] ^= 1;
        else if (variant == 1)
            image_journal(image, descriptor + 2)[1023] ^= 1;
        else if (variant == 2)
            commit[12] = 2;
        else if (variant == 3)
            memset(commit + 12, 0, 24); /* a writer without checksums */
        if (variant >= 3) {
            image_model_set(image, &second[0]);
            image_model_set(image, &second[1]);
        }
        assert_int_equal(recover_damaged(image, variant < 3), variant < 3 ? -EIO : 0);
        image_destroy(image);
    }
}

static void test_revoke_lengths(void **state)
{
    static const struct {
        uint32_t used_bytes;
        int error;
    } cases[] = {{0, -EUCLEAN},
                 {15, -EUCLEAN},
                 {16, 0},
                 {17, 0},
                 {24, 0},
                 {1020, 0},
                 {1021, -EUCLEAN},
                 {1024, -EUCLEAN},
                 {1 << 30, -EUCLEAN},
                 {0xffffffff, -EUCLEAN}};
    const uint64_t revoked[] = {99};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct image *image = make(3, false);
        uint32_t block = image_write_revoke(image, revoked, 1);

        put_be32(image_journal(image, block) + 12, cases[i].used_bytes);
        image_seal_tail(image, block);
        image_write_commit(image);
        assert_int_equal(scan_error(image), cases[i].error);
        image_destroy(image);
    }
}

static void test_blocks_that_may_not_be_written(void **state)
{
    static const struct {
        uint64_t block;
        int error;
    } cases[] = {{0, -EUCLEAN},  {1, 0},   {39, 0},         {40, -EUCLEAN},
                 {55, -EUCLEAN}, {56, 0},  {99, 0},         {100, -EUCLEAN},
                 {116, 0},       {199, 0}, {200, -EUCLEAN}, {215, -EUCLEAN},
                 {216, 0},       {255, 0}, {256, -EUCLEAN}, {UINT64_MAX, -EUCLEAN}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct image_block blocks[] = {{5, 1, false, false},
                                             {cases[i].block, 2, false, false}};
        struct image *image = make(3, false);

        image_write_transaction(image, blocks, 2);
        assert_int_equal(scan_error(image), cases[i].error);
        image_destroy(image);
        /* In a transaction that did not commit it does not matter. */
        image = make(3, false);
        image_write_descriptor(image, blocks, 2);
        assert_int_equal(scan_error(image), 0);
        image_destroy(image);
    }
}

/* A log of nothing but descriptors has no end of its own. */
static void test_endless_log(void **state)
{
    (void)state;
    for (unsigned int type = 1; type <= 5; type += 4) {
        struct image *image = make(0, false);

        for (uint32_t block = IMAGE_FIRST_LOG; block < JOURNAL_BLOCKS; block++) {
            uint8_t *bytes = image_journal(image, block);

            memset(bytes, 0, 1024);
            memcpy(bytes, journal_magic, 4);
            put_be32(bytes + 4, type);
            put_be32(bytes + 8, 50);
            if (type == 1)
                bytes[12 + 7] = 8 | 2;
        }
        assert_int_equal(scan_error(image), 0);
        assert_true(image->reads < 10);
        image_recover(image);
        image_destroy(image);
    }
}

/* Tags without a last one: as many blocks as fit the descriptor, more than the log has. */
static void test_descriptor_longer_than_log(void **state)
{
    struct image *image = make(0, false);
    uint8_t *bytes;

    (void)state;
    write_and_expect(image, first, 2);
    bytes = image_journal(image, image_write_descriptor(image, second, 2));
    for (size_t place = 12; place + 12 <= 1024; place += 12)
        put_be32(bytes + place + 4, 2);
    image_write_commit(image);
    assert_int_equal(recover_damaged(image, false), 0);
    image_destroy(image);
}

/* A bad sector ahead of the log's end does not matter; one in it does. */
static void test_read_errors(void **state)
{
    struct image *image = make(3, false);

    (void)state;
    write_and_expect(image, first, 2);
    image->failing_block = 208; /* journal block 40, where the log starts */
    assert_int_equal(scan_error(image), -EIO);
    image->failing_block = 214;
    assert_int_equal(scan_error(image), 0);
    image->failing_block = 0;
    image_recover(image);
    image_destroy(image);
}

/* ---- Fast commits --------------------------------------------------------------------------- */

#define FAST_BLOCKS 8u
#define ALL_BLOCKS  (1024u + FAST_BLOCKS)

static uint8_t *put_fast_tag(uint8_t *place, uint8_t type, uint32_t length)
{
    place[0] = type;
    place[1] = 0;
    place[2] = (uint8_t)length;
    place[3] = (uint8_t)(length >> 8);
    return place + 4;
}

static void put_le32(uint8_t *place, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        place[i] = (uint8_t)(value >> (8 * i));
}

/* A fast commit in a block of its own: head or not, an inode, tail. */
static void write_fast_block(uint8_t *block, uint32_t sequence, bool has_head)
{
    uint8_t *place = block;

    memset(block, 0, 1024);
    if (has_head) {
        place = put_fast_tag(place, 9, 8);
        put_le32(place + 4, sequence);
        place += 8;
    }
    place = put_fast_tag(place, 6, 100) + 100;
    put_fast_tag(place, 8, (uint32_t)(block + 1024 - place - 4));
    put_le32(place + 4, sequence);
    put_le32(place + 8, crc32c(0, block, (size_t)(place + 8 - block)));
}

/* An image whose journal lies behind the file system and is large enough to have the area. */
struct fast_image {
    struct image *image;
    uint8_t *fast;
};

static struct fast_image make_fast(void)
{
    struct form form = {.checksum_version = 0, .block_bytes = 1024};
    struct fast_image result = {.image = image_create(&form, JOURNAL_BLOCKS, 50, 1)};
    struct image *image = result.image;
    uint8_t *bytes = calloc(ALL_BLOCKS + 256, 1024);

    assert_non_null(bytes);
    image_write_transaction(image, first, 2);
    for (uint32_t i = 0; i < JOURNAL_BLOCKS; i++)
        memcpy(bytes + (size_t)(256 + i) * 1024, image_journal(image, i), 1024);
    put_be32(bytes + 256 * 1024 + 0x10, ALL_BLOCKS);
    put_be32(bytes + 256 * 1024 + 0x28, 0x20);
    put_be32(bytes + 256 * 1024 + 0x54, FAST_BLOCKS);
    result.fast = bytes + (size_t)(256 + 1024 + 1) * 1024;
    image->device.limits.size_bytes = (uint64_t)(ALL_BLOCKS + 256) * 1024;
    image->extents[0] = (struct journal_extent){0, ALL_BLOCKS, 256};
    image->location.extent_count = 1;
    image->location.block_count = ALL_BLOCKS;
    free(image->bytes);
    image->bytes = bytes;
    return result;
}

static uint32_t count_fast(struct image *image)
{
    struct journal_superblock sb;
    struct journal_replay *replay = image_scan(image, &sb);
    uint32_t count = replay->fast_commit_blocks;

    assert_int_equal(sb.fast_commit_blocks, FAST_BLOCKS);
    assert_int_equal(sb.log_blocks, 1023);
    assert_int_equal(replay->transactions, 1);
    journal_replay_free(replay);
    return count;
}

static void test_fast_commits(void **state)
{
    struct fast_image fast = make_fast();
    uint8_t *block = fast.fast;

    (void)state;
    assert_int_equal(count_fast(fast.image), 0);
    write_fast_block(block, 51, true);
    assert_int_equal(count_fast(fast.image), 1);
    write_fast_block(block + 1024, 51, false);
    assert_int_equal(count_fast(fast.image), 2);
    write_fast_block(block + 2048, 51, true);
    assert_int_equal(count_fast(fast.image), 3);
    /* One of another transaction ends the row. */
    write_fast_block(block + 3072, 52, true);
    assert_int_equal(count_fast(fast.image), 3);
    /* So does one with a wrong checksum. */
    block[1024 + 50] ^= 1;
    assert_int_equal(count_fast(fast.image), 1);
    block[50] ^= 1;
    assert_int_equal(count_fast(fast.image), 0);
    image_destroy(fast.image);
}

static void test_fast_commits_of_others(void **state)
{
    struct fast_image fast = make_fast();

    (void)state;
    for (int distance = -2; distance <= 2; distance++) {
        write_fast_block(fast.fast, (uint32_t)(51 + distance), true);
        assert_int_equal(count_fast(fast.image), distance == 0 ? 1 : 0);
    }
    write_fast_block(fast.fast, 51, false);
    assert_int_equal(count_fast(fast.image), 0);
    /* A head of another transaction, with all else as it should be. */
    write_fast_block(fast.fast, 51, true);
    put_le32(fast.fast + 8, 50);
    put_le32(fast.fast + 124, crc32c(0, fast.fast, 124));
    assert_int_equal(count_fast(fast.image), 0);
    put_le32(fast.fast + 8, 51);
    put_le32(fast.fast + 124, crc32c(0, fast.fast, 124));
    assert_int_equal(count_fast(fast.image), 1);
    image_destroy(fast.image);
}

/* The area full to its last block, and tags that leave their block. */
static void test_fast_commit_bounds(void **state)
{
    struct fast_image fast = make_fast();

    (void)state;
    for (uint32_t i = 0; i < FAST_BLOCKS - 1; i++)
        write_fast_block(fast.fast + i * 1024, 51, i == 0);
    assert_int_equal(count_fast(fast.image), FAST_BLOCKS - 1);
    put_fast_tag(fast.fast + 12, 6, 1009);
    assert_int_equal(count_fast(fast.image), 0);
    put_fast_tag(fast.fast + 12, 6, 0xffff);
    assert_int_equal(count_fast(fast.image), 0);
    put_fast_tag(fast.fast + 12, 77, 4);
    assert_int_equal(count_fast(fast.image), 0);
    put_fast_tag(fast.fast + 12, 8, 7);
    assert_int_equal(count_fast(fast.image), 0);
    image_destroy(fast.image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_data_block),
        cmocka_unit_test(test_bad_data_block_without_checksum),
        cmocka_unit_test(test_bad_block_revoked),
        cmocka_unit_test(test_error_is_kept),
        cmocka_unit_test(test_bad_tail),
        cmocka_unit_test(test_bad_tail_without_commit),
        cmocka_unit_test(test_bad_commit),
        cmocka_unit_test(test_bad_asynchronous_commit),
        cmocka_unit_test(test_commit_written_in_part),
        cmocka_unit_test(test_transaction_checksum),
        cmocka_unit_test(test_revoke_lengths),
        cmocka_unit_test(test_blocks_that_may_not_be_written),
        cmocka_unit_test(test_endless_log),
        cmocka_unit_test(test_descriptor_longer_than_log),
        cmocka_unit_test(test_read_errors),
        cmocka_unit_test(test_fast_commits),
        cmocka_unit_test(test_fast_commits_of_others),
        cmocka_unit_test(test_fast_commit_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
