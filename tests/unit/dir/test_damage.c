/* SPDX-License-Identifier: MIT */
/*
 * Damaged directories: changes are refused with -EUCLEAN or -EBADMSG and alter nothing, look-ups
 * and readings go on without the index where they can.
 */
#include "support.h"

#include "format/dirent.h"
#include "map/map.h"

#define NAME_COUNT 800

static size_t make_name(char *name, size_t number)
{
    return (size_t)sprintf(name, "a name of a middling length %zu", number);
}

static struct rig *make_indexed(const char *shape, struct model *model)
{
    struct rig *rig = rig_create(shape_find(shape));

    for (size_t i = 0; i < NAME_COUNT; i++) {
        char name[64];
        size_t length = make_name(name, i);
        assert_int_equal(rig_insert(rig, name, length, rig->targets[0]), 0);
        model_add(model, name, length, rig->targets[0]);
    }
    assert_true(inode_has_flag(rig->dir, INODE_INDEXED));
    return rig;
}

/* Writes over a block of the directory behind the cache's back, with the image closed and opened.
 */
static void damage(struct rig *rig, uint64_t file_block, size_t offset, const void *bytes,
                   size_t length)
{
    struct mapping mapping;
    uint32_t block_bytes = rig->volume.sb.block_bytes;

    assert_int_equal(map_lookup(rig->dir, file_block, &mapping), 0);
    rig_close(rig, NULL);
    FILE *file = fopen(rig->path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(mapping.disk_block * block_bytes + offset), SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    rig_open(rig);
}

static bool is_damage(int error)
{
    return error == -EUCLEAN || error == -EBADMSG;
}

/* Names that can still be changed, of all; none of them lost. */
static size_t change_all(struct rig *rig)
{
    size_t changed = 0;

    for (size_t i = 0; i < NAME_COUNT; i++) {
        char name[64], other[80];
        size_t length = make_name(name, i);
        size_t other_length = (size_t)sprintf(other, "%s, new", name);
        int error = rig_replace(rig, name, length, rig->targets[1]);
        assert_true(error == 0 || is_damage(error));
        changed += error == 0;
        error = rig_insert(rig, other, other_length, rig->targets[1]);
        assert_true(error == 0 || is_damage(error));
        if (error == 0)
            assert_int_equal(rig_remove(rig, other, other_length), 0);
    }
    return changed;
}

static size_t found_names(struct rig *rig)
{
    size_t found = 0;

    for (size_t i = 0; i < NAME_COUNT; i++) {
        char name[64];
        uint32_t ino;
        found += dir_lookup(rig->dir, name, make_name(name, i), &ino) == 0;
    }
    return found;
}

struct names {
    uint64_t cookie;
    size_t count, taken, batch;
};

static bool count_name(void *context, const struct dirent_view *entry, uint64_t next_cookie)
{
    struct names *names = context;

    if (names->taken++ == names->batch)
        return false;
    assert_true(next_cookie > names->cookie);
    names->cookie = next_cookie;
    names->count += entry->name_length > 2;
    return true;
}

static size_t read_names(struct rig *rig, bool *had_error)
{
    struct names names = {.batch = 50};

    do {
        names.taken = 0;
        int error = dir_iterate(rig->dir, names.cookie, count_name, &names);
        assert_true(error == 0 || is_damage(error));
    } while (names.taken > names.batch);
    /* Only who reads all at once is sure to be told. */
    struct names all = {.batch = SIZE_MAX};
    *had_error = is_damage(dir_iterate(rig->dir, 0, count_name, &all));
    assert_int_equal(all.count, names.count);
    return names.count;
}

static void test_root(void **state)
{
    static const uint8_t junk[64] = {0xa5, 0x5a, 0xff};
    struct model *model = model_create();
    bool had_error;

    (void)state;
    /* The root's entries, with and without checksums. */
    for (int i = 0; i < 2; i++) {
        struct rig *rig = make_indexed(i == 0 ? "1k-legacy" : "2k-no-csum", model);
        damage(rig, 0, 40, junk, sizeof(junk));
        assert_int_equal(change_all(rig), 0);
        assert_int_equal(found_names(rig), NAME_COUNT);
        assert_int_equal(read_names(rig, &had_error), NAME_COUNT);
        rig_close(rig, NULL);
        rig_destroy(rig);
        model_destroy(model);
        model = model_create();
    }
    model_destroy(model);
}

static void test_leaf(void **state)
{
    static const uint8_t junk[8] = {0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0};
    static const char *const names[] = {"1k", "2k-no-csum", "1k-no-index"};
    bool had_error;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct model *model = model_create();
        struct rig *rig;

        if (i < 2) {
            rig = make_indexed(names[i], model);
        } else {
            rig = rig_create(shape_find(names[i]));
            for (size_t j = 0; j < NAME_COUNT; j++) {
                char name[64];
                assert_int_equal(rig_insert(rig, name, make_name(name, j), rig->targets[0]), 0);
            }
        }
        damage(rig, 2, 0, junk, sizeof(junk));
        size_t found = found_names(rig), read = read_names(rig, &had_error);
        assert_true(had_error);
        assert_true(found < NAME_COUNT && found > NAME_COUNT / 2);
        assert_int_equal(read, found);
        size_t changed = change_all(rig);
        assert_int_equal(changed, found);
        rig_close(rig, NULL);
        rig_destroy(rig);
        model_destroy(model);
    }
}

/* Random bytes anywhere in the directory: errors, but no fault, and no name twice. */
static void test_random_damage(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        static const char *const names[] = {"2k-no-csum", "ext2-1k", "1k", "ext3-4k"};
        struct model *model = model_create();
        struct rig *rig = make_indexed(names[draw(4)], model);
        bool had_error;

        for (uint64_t i = 1 + draw(6); i > 0; i--) {
            uint8_t bytes[4] = {(uint8_t)draw(256), (uint8_t)draw(256), (uint8_t)draw(256),
                                (uint8_t)draw(256)};
            uint32_t block_bytes = rig->volume.sb.block_bytes;
            uint64_t blocks = rig->dir->fields.size / block_bytes;
            uint64_t block = draw(2) == 0 ? 0 : draw(blocks);
            size_t range = draw(2) == 0 ? 128 : block_bytes - 4;
            damage(rig, block, draw(range), bytes, 1 + draw(4));
        }
        read_names(rig, &had_error);
        found_names(rig);
        for (size_t i = 0; i < 300; i++) {
            char name[64];
            size_t length = make_name(name, i);
            uint64_t size = rig->dir->fields.size;
            int error = rig_remove(rig, name, length);
            assert_true(error == 0 || error == -ENOENT || error == -EINVAL || is_damage(error));
            error = rig_insert(rig, name, length, rig->targets[1]);
            assert_true(error == 0 || error == -ENOSPC || is_damage(error));
            if (error != 0)
                assert_int_equal(rig->dir->fields.size, size);
        }
        read_names(rig, &had_error);
        rig_close(rig, NULL);
        rig_destroy(rig);
        model_destroy(model);
    }
}

int main(int count, char *arguments[])
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_root),
        cmocka_unit_test(test_leaf),
        cmocka_unit_test(test_random_damage),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
