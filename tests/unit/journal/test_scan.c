/* SPDX-License-Identifier: MIT */
/* What a whole journal is replayed to: tags of all forms, wrap-around, revokes, torn ends. */
#include "image.h"

#include <errno.h>
#include <string.h>

#define JOURNAL_BLOCKS 48u

static struct image *make(const struct form *form, uint32_t sequence, uint32_t start)
{
    return image_create(form, JOURNAL_BLOCKS, sequence, start);
}

static void write_and_expect(struct image *image, const struct image_block *blocks, size_t count)
{
    image_write_transaction(image, blocks, count);
    for (size_t i = 0; i < count; i++)
        image_model_set(image, &blocks[i]);
}

/* Three transactions that overlap, with escaped blocks, from a given place of the log. */
static void check_form(const struct form *form, uint32_t sequence, uint32_t start)
{
    const struct image_block first[] = {
        {10, 1, false, false}, {11, 2, true, false}, {12, 3, false, false}, {250, 4, true, false}};
    const struct image_block second[] = {{12, 5, true, false}, {13, 6, false, false}};
    const struct image_block third[] = {{11, 7, false, false}};
    struct image *image = make(form, sequence, start);
    struct journal_superblock sb;
    struct journal_replay *replay;

    write_and_expect(image, first, 4);
    write_and_expect(image, second, 2);
    write_and_expect(image, third, 1);
    replay = image_scan(image, &sb);
    assert_int_equal(replay->transactions, 3);
    assert_int_equal(replay->entry_count, 5);
    assert_int_equal(replay->next_sequence, sequence + 4);
    assert_false(replay->had_bad_blocks);
    for (size_t i = 1; i < replay->entry_count; i++)
        assert_true(replay->entries[i - 1].disk_block < replay->entries[i].disk_block);
    journal_replay_free(replay);
    image_recover(image);
    assert_int_equal(image->errors_logged, 0);
    image_destroy(image);
}

static void test_all_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < image_form_count(); i++) {
        struct form form = image_form(i);

        check_form(&form, 1, 1);
    }
}

static void test_log_wraps_everywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < image_form_count(); i++) {
        struct form form = image_form(i);

        for (uint32_t start = form.block_bytes == 1024 ? IMAGE_FIRST_LOG : JOURNAL_BLOCKS - 6;
             start < JOURNAL_BLOCKS; start++)
            check_form(&form, 77, start);
    }
}

static void test_sequence_wraps(void **state)
{
    (void)state;
    for (size_t i = 0; i < image_form_count(); i++) {
        struct form form = image_form(i);

        for (uint32_t back = 0; back < 5; back++)
            check_form(&form, 0u - back, 40);
    }
}

static void test_high_blocks(void **state)
{
    const uint64_t high_block = 0x123456789abcull;

    (void)state;
    for (size_t i = 0; i < image_form_count(); i++) {
        struct form form = image_form(i);
        const struct image_block blocks[] = {{high_block, 1, false, false},
                                             {0xfffffffe, 2, false, false}};
        struct image *image = make(&form, 5, 1);
        struct journal_superblock sb;
        struct journal_replay *replay;

        image->location.fs_block_count = high_block + 1;
        image_write_transaction(image, blocks, 2);
        replay = image_scan(image, &sb);
        assert_int_equal(replay->entry_count, 2);
        assert_int_equal(replay->entries[form.is_64bit ? 0 : 1].disk_block, 0xfffffffe);
        assert_int_equal(replay->entries[form.is_64bit ? 1 : 0].disk_block,
                         form.is_64bit ? high_block : (uint32_t)high_block);
        journal_replay_free(replay);
        image_destroy(image);
    }
}

/* Two descriptors and a revoke block in one transaction. */
static void test_many_blocks_in_a_transaction(void **state)
{
    const struct image_block first[] = {{20, 1, false, false}, {21, 2, true, false}};
    const struct image_block second[] = {{22, 3, false, false}, {20, 4, false, false}};
    const uint64_t revoked[] = {21, 150};

    (void)state;
    for (size_t i = 0; i < image_form_count(); i++) {
        struct form form = image_form(i);
        struct image *image = make(&form, 9, 45);
        struct journal_superblock sb;
        struct journal_replay *replay;

        image_write_descriptor(image, first, 2);
        image_write_revoke(image, revoked, 2);
        image_write_descriptor(image, second, 2);
        image_write_commit(image);
        image_model_set(image, &second[0]);
        image_model_set(image, &second[1]);
        replay = image_scan(image, &sb);
        assert_int_equal(replay->revoked_blocks, 1);
        assert_int_equal(replay->transactions, 1);
        journal_replay_free(replay);
        image_recover(image);
        image_destroy(image);
    }
}

/*
 * Block 30 is written in transactions 0, 1 and 2 and revoked in `revoked_in`: the copies up to that
 * transaction are dead.
 */
static void check_revoke(const struct form *form, uint32_t sequence, unsigned int revoked_in)
{
    const uint64_t revoked[] = {30};
    struct image *image = make(form, sequence, 30);
    struct journal_superblock sb;
    struct journal_replay *replay;

    for (unsigned int i = 0; i < 4; i++) {
        const struct image_block blocks[] = {
            {(uint64_t)(i < 3 ? 30 : 31), (uint8_t)(i + 1), false, false}};

        if (i == revoked_in)
            image_write_revoke(image, revoked, 1);
        image_write_transaction(image, blocks, 1);
        if (i == 3 || (i == 2 && revoked_in < 2))
            image_model_set(image, blocks);
    }
    replay = image_scan(image, &sb);
    assert_int_equal(replay->revoked_blocks, MIN(revoked_in + 1, 3u));
    assert_int_equal(replay->entry_count, revoked_in < 2 ? 2 : 1);
    journal_replay_free(replay);
    image_recover(image);
    image_destroy(image);
}

static void test_revoke_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < image_form_count(); i++) {
        struct form form = image_form(i);

        for (unsigned int revoked_in = 0; revoked_in < 4; revoked_in++) {
            check_revoke(&form, 1000, revoked_in);
            check_revoke(&form, 0xffffffffu, revoked_in);
            check_revoke(&form, 0xfffffffeu, revoked_in);
        }
    }
}

/* A revoke whose transaction never committed counts for nothing. */
static void test_uncommitted_revoke(void **state)
{
    const struct image_block blocks[] = {{30, 1, false, false}};
    const uint64_t revoked[] = {30};

    (void)state;
    for (size_t i = 0; i < image_form_count(); i++) {
        struct form form = image_form(i);
        struct image *image = make(&form, 3, 1);

        write_and_expect(image, blocks, 1);
        image_write_revoke(image, revoked, 1);
        image_recover(image);
        image_destroy(image);
    }
}

/* The last transaction is lost with its descriptor or its commit, and with nothing else. */
static void test_torn_end(void **state)
{
    const struct image_block first[] = {{30, 1, false, false}, {31, 2, false, false}};
    const struct image_block second[] = {{31, 3, false, false}, {32, 4, false, false}};

    (void)state;
    for (size_t i = 0; i < image_form_count() * 2; i++) {
        struct form form = image_form(i / 2);
        struct image *image = make(&form, 3, 44);
        uint32_t lost;

        write_and_expect(image, first, 2);
        lost = image_write_descriptor(image, second, 2);
        if (i % 2 == 1)
            lost = image_write_commit(image);
        else
            image_write_commit(image);
        memset(image_journal(image, lost), 0xee, form.block_bytes);
        image_recover(image);
        image_destroy(image);
    }
}

/* What an earlier life of the log left behind its end has other sequences. */
static void test_stale_transactions(void **state)
{
    const struct image_block live[] = {{30, 1, false, false}};
    const struct image_block stale[] = {{31, 2, false, false}};

    (void)state;
    for (int distance = -3; distance <= 3; distance++) {
        struct form form = image_form(0);
        struct image *image;

        if (distance == 0)
            continue;
        image = make(&form, 100, 1);
        write_and_expect(image, live, 1);
        image->sequence += (uint32_t)distance;
        image_write_transaction(image, stale, 1);
        image_recover(image);
        image_destroy(image);
    }
}

static void test_clean_log(void **state)
{
    const struct image_block blocks[] = {{30, 1, false, false}};
    struct form form = image_form(3);
    struct image *image = make(&form, 100, 1);
    struct journal_superblock sb;
    struct journal_replay *replay;

    (void)state;
    image_write_transaction(image, blocks, 1);
    put_be32(image_journal(image, 0) + 0x1c, 0);
    image_seal_superblock(image);
    replay = image_scan(image, &sb);
    assert_int_equal(replay->entry_count, 0);
    assert_int_equal(replay->transactions, 0);
    journal_replay_free(replay);
    image_assert_model(image);
    image_destroy(image);
}

/* Version 1 has no fields from the features on: what lies there is not looked at. */
static void test_superblock_version_1(void **state)
{
    const struct image_block blocks[] = {{30, 1, true, false}, {31, 2, false, false}};
    struct form form = image_form(0);
    struct image *image = make(&form, 100, 40);
    struct journal_superblock sb;
    uint8_t *raw = image_journal(image, 0);

    (void)state;
    put_be32(raw + 4, 3);
    memset(raw + 0x24, 0xff, 1024 - 0x24);
    write_and_expect(image, blocks, 2);
    assert_int_equal(image_open(image, &sb), 0);
    assert_int_equal(sb.version, 1);
    assert_int_equal(sb.incompat, 0);
    image_recover(image);
    image_destroy(image);
}

/* The whole log in use, to the block before its start. */
static void test_full_log(void **state)
{
    (void)state;
    for (uint32_t left = 0; left < 3; left++) {
        struct form form = image_form(7);
        struct image *image = make(&form, 100, 7);
        struct image_block blocks[JOURNAL_BLOCKS];
        size_t count = JOURNAL_BLOCKS - IMAGE_FIRST_LOG - 2 - left;

        for (size_t i = 0; i < count; i++)
            blocks[i] = (struct image_block){(i < 20 ? 10 : 140) + i, (uint8_t)i, false, false};
        write_and_expect(image, blocks, count);
        image_recover(image);
        image_destroy(image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_forms),
        cmocka_unit_test(test_log_wraps_everywhere),
        cmocka_unit_test(test_sequence_wraps),
        cmocka_unit_test(test_high_blocks),
        cmocka_unit_test(test_many_blocks_in_a_transaction),
        cmocka_unit_test(test_revoke_rules),
        cmocka_unit_test(test_uncommitted_revoke),
        cmocka_unit_test(test_torn_end),
        cmocka_unit_test(test_stale_transactions),
        cmocka_unit_test(test_clean_log),
        cmocka_unit_test(test_superblock_version_1),
        cmocka_unit_test(test_full_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
