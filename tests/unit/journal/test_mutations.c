/* SPDX-License-Identifier: MIT */
/*
 * Random changes to journals. Whatever comes out, it came out after a bounded number of reads, and
 * every block of the replay is inside the file system and outside the journal.
 * UEXT4_TEST_SEED and UEXT4_TEST_ROUNDS repeat or lengthen a run.
 */
#include "image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define JOURNAL_BLOCKS 60u
#define ROUNDS         100000ul

static uint64_t random_state;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((random_state >> 33) % limit);
}

static unsigned long from_environment(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : strtoul(text, NULL, 0);
}

/* Transactions of random size that fill most of the log. */
static void fill_log(struct image *image)
{
    uint32_t left = JOURNAL_BLOCKS - 12;

    while (left > 12) {
        struct image_block blocks[8];
        uint64_t revoked[8];
        uint32_t count = 1 + random_below(8);

        for (uint32_t i = 0; i < count; i++) {
            memset(&blocks[i], 0, sizeof(blocks[i]));
            blocks[i].disk_block = 1 + random_below(30);
            blocks[i].fill = (uint8_t)random_below(256);
            blocks[i].has_magic = random_below(4) == 0;
            revoked[i] = 1 + random_below(30);
        }
        if (random_below(2) == 0) {
            image_write_revoke(image, revoked, count);
            left--;
        }
        image_write_transaction(image, blocks, count);
        left -= MIN(left, count + 2);
    }
}

static uint32_t interesting_value(void)
{
    static const uint32_t values[] = {
        0,    1,    2,    5,          12,         16,         50,     255,        256,
        1023, 1024, 1025, 0x7fffffff, 0x80000000, 0xffffffff, 0xffff, 0xc03b3998, JOURNAL_BLOCKS};

    if (random_below(3) == 0)
        return random_below(UINT32_MAX);
    return values[random_below(ARRAY_LENGTH(values))];
}

/* Changes a field or a bit; half of the time the checksums are then made to fit. */
static void mutate(struct image *image)
{
    uint32_t block = random_below(3) == 0 ? 0 : random_below(JOURNAL_BLOCKS);
    uint8_t *bytes = image_journal(image, block);
    bool has_magic = memcmp(bytes, journal_magic, 4) == 0;
    uint32_t place = random_below(2) == 0 ? 4 * random_below(24) : random_below(1020);

    if (random_below(2) == 0)
        put_be32(bytes + place, interesting_value());
    else
        bytes[place] ^= (uint8_t)(1u << random_below(8));
    if (random_below(2) == 0 || !has_magic)
        return;
    if (block == 0)
        image_seal_superblock(image);
    else if (get_be32(bytes + 4) == 2)
        image_seal_commit(image, block);
    else
        image_seal_tail(image, block);
}

static bool is_in_journal(const struct image *image, uint64_t block)
{
    for (size_t i = 0; i < image->location.extent_count; i++)
        if (block >= image->extents[i].disk_block &&
            block - image->extents[i].disk_block < image->extents[i].length_blocks)
            return true;
    return false;
}

static void check_replay(const struct image *image, const struct journal_replay *replay)
{
    assert_true(replay->entry_count <= JOURNAL_BLOCKS);
    for (size_t i = 0; i < replay->entry_count; i++) {
        const struct journal_replay_entry *entry = &replay->entries[i];

        assert_true(i == 0 || entry[-1].disk_block < entry->disk_block);
        assert_true(entry->disk_block >= 1 && entry->disk_block < IMAGE_BLOCKS);
        assert_false(is_in_journal(image, entry->disk_block));
        assert_true(is_in_journal(image, entry->source_block));
    }
}

/* Returns whether the journal could be scanned. */
static bool run_round(struct image *image)
{
    struct journal_superblock sb;
    struct journal_replay *replay = NULL;

    image->reads = 0;
    if (image_open(image, &sb) != 0 || journal_scan(&image->location, &sb, &replay) != 0)
        return false;
    /* Each block at most once in the scan and once in the revoke pass, and a retry for each. */
    assert_true(image->reads <= 4 * JOURNAL_BLOCKS);
    check_replay(image, replay);
    if (random_below(8) == 0)
        assert_int_equal(journal_replay_apply(&image->location, &sb, replay),
                         sb.ro_compat != 0 ? -EOPNOTSUPP : 0);
    journal_replay_free(replay);
    return true;
}

static void test_mutations(void **state)
{
    unsigned long seed = from_environment("UEXT4_TEST_SEED", 20240229);
    unsigned long rounds = from_environment("UEXT4_TEST_ROUNDS", ROUNDS);
    unsigned long scanned = 0;

    (void)state;
    print_message("# seed %lu, %lu rounds\n", seed, rounds);
    random_state = seed;
    for (unsigned long done = 0; done < rounds;) {
        struct form form = image_form(random_below(16)); /* the forms with blocks of 1024 bytes */
        uint32_t sequence = random_below(3) - 1u;
        uint32_t start = 1 + random_below(JOURNAL_BLOCKS - 1);
        struct image *image = image_create(&form, JOURNAL_BLOCKS, sequence, start);
        uint8_t *clean = malloc(IMAGE_BLOCKS * 1024);

        assert_non_null(clean);
        fill_log(image);
        memcpy(clean, image->bytes, IMAGE_BLOCKS * 1024);
        for (int i = 0; i < 100 && done < rounds; i++, done++) {
            memcpy(image->bytes, clean, IMAGE_BLOCKS * 1024);
            for (uint32_t changes = random_below(4); changes > 0; changes--)
                mutate(image);
            scanned += run_round(image);
        }
        free(clean);
        image_destroy(image);
    }
    print_message("# %lu of them could be scanned\n", scanned);
    assert_true(scanned > rounds / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
