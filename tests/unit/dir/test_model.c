/* SPDX-License-Identifier: MIT */
/* Random changes of directories of every form, against a set of names. */
#include "support.h"

#include "format/casefold.h"
#include "map/edit.h"

/* Names that a casefolded directory takes for one have one key. */
static size_t make_key(const struct shape *shape, const char *name, size_t length, char *key)
{
    if (shape->is_casefolded) {
        char folded[1024];
        int folded_length = casefold_name(name, length, folded, sizeof(folded));
        assert_true(folded_length >= 0);
        if (folded_length > 250)
            return 0;
        memcpy(key, folded, (size_t)folded_length);
        return (size_t)folded_length;
    }
    memcpy(key, name, length);
    return length;
}

/* One random change. `keys` has the names by key; `shown` as they were written. */
static void change_once(struct rig *rig, struct model *keys, struct model *shown, size_t goal)
{
    char name[256], key[256];
    bool picks_known = shown->count > 0 && draw(3) == 0;
    size_t length = draw_name(rig->shape, name, 255);

    if (picks_known) {
        struct model_name *known = shown->names[draw(shown->count)];
        length = known->length;
        memcpy(name, known->text, length);
    }
    size_t key_length = make_key(rig->shape, name, length, key);
    if (key_length == 0)
        return;
    struct model_name *known = model_find(keys, key, key_length);
    uint32_t ino = rig->targets[draw(TARGET_COUNT)], found;
    int error = dir_lookup(rig->dir, name, length, &found);
    assert_int_equal(error, known != NULL ? 0 : -ENOENT);
    if (known == NULL) {
        assert_int_equal(rig_remove(rig, name, length), -ENOENT);
        assert_int_equal(rig_replace(rig, name, length, ino), -ENOENT);
        if (shown->count < goal || draw(2) == 0) {
            assert_int_equal(rig_insert(rig, name, length, ino), 0);
            /* The key remembers which name it was written as, by number in `shown`. */
            model_add(keys, key, key_length, ino);
            model_add(shown, name, length, ino);
        }
        return;
    }
    assert_int_equal(found, known->ino);
    /* Which spelling is there, in a casefolded directory. */
    struct model_name *spelling = NULL;
    for (size_t i = 0; spelling == NULL && i < shown->count; i++) {
        char other[256];
        if (!rig->shape->is_casefolded)
            spelling = model_find(shown, name, length);
        else if (make_key(rig->shape, shown->names[i]->text, shown->names[i]->length, other) ==
                     key_length &&
                 memcmp(other, key, key_length) == 0)
            spelling = shown->names[i];
    }
    assert_non_null(spelling);
    if (draw(shown->count < goal ? 4 : 2) != 0) {
        assert_int_equal(rig_replace(rig, name, length, ino), 0);
        known->ino = spelling->ino = ino;
    } else {
        assert_int_equal(rig_remove(rig, name, length), 0);
        model_remove(keys, known);
        model_remove(shown, spelling);
    }
}

static void check_lookups(struct rig *rig, const struct model *shown)
{
    for (size_t i = 0; i < shown->count; i++) {
        uint32_t ino;
        assert_int_equal(dir_lookup(rig->dir, shown->names[i]->text, shown->names[i]->length, &ino),
                         0);
        assert_int_equal(ino, shown->names[i]->ino);
    }
}

static void run_shape(const struct shape *shape, size_t goal, size_t changes)
{
    struct rig *rig = rig_create(shape);
    struct model *keys = model_create(), *shown = model_create();

    print_message("# %s: %zu changes\n", shape->name, changes);
    for (size_t i = 0; i < changes; i++) {
        change_once(rig, keys, shown, goal);
        if (i < 60 || i % 997 == 0)
            model_compare(shown, rig->dir, 1 + draw(200));
        if (i % 2503 == 2502) {
            rig_close(rig, shown);
            rig_check(rig);
            rig_open(rig);
            check_lookups(rig, shown);
        }
    }
    check_lookups(rig, shown);
    model_compare(shown, rig->dir, 100);
    assert_int_equal(dir_is_empty(rig->dir), shown->count == 0 ? 1 : 0);
    rig_close(rig, shown);
    rig_check(rig);

    /* All names go, in another life; their room is used again. */
    rig_open(rig);
    uint64_t size = rig->dir->fields.size;
    while (shown->count > 0) {
        struct model_name *name = shown->names[draw(shown->count)];
        assert_int_equal(rig_remove(rig, name->text, name->length), 0);
        model_remove(shown, name);
    }
    assert_int_equal(dir_is_empty(rig->dir), 1);
    assert_int_equal(rig->dir->fields.size, size);
    model_compare(shown, rig->dir, 2);
    assert_int_equal(rig_insert(rig, "again", 5, rig->targets[0]), 0);
    model_add(shown, "again", 5, rig->targets[0]);
    assert_int_equal(rig->dir->fields.size, size);
    assert_string_equal(messages(), "");
    rig_close(rig, shown);
    rig_check(rig);
    model_destroy(keys);
    model_destroy(shown);
    rig_destroy(rig);
}

static void test_all_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < shape_count; i++) {
        bool is_slow = shapes[i].is_casefolded || strstr(shapes[i].name, "no-index") != NULL ||
                       strcmp(shapes[i].name, "ext2-1k") == 0;
        run_shape(&shapes[i], is_slow ? 600 : 3000, is_slow ? 3000 : 12000);
    }
}

/* 100,000 short names on blocks of 1 KiB, where an index of two levels is full before the end. */
static void fill(const struct shape *shape, size_t count, size_t length, bool may_fill_up)
{
    struct rig *rig = rig_create(shape);
    struct model *model = model_create();
    int error = 0;
    size_t i;

    for (i = 0; i < count && error == 0; i++) {
        char name[256];
        uint32_t ino = rig->targets[i % TARGET_COUNT];
        /* 7919 and 10 have no common divisor: all are different. */
        snprintf(name, sizeof(name), "%0*zu", (int)length, i * 7919 % 10000000);
        error = rig_insert(rig, name, length, ino);
        if (error == 0)
            model_add(model, name, length, ino);
    }
    print_message("# %s: %zu names of %zu bytes, %llu blocks\n", shape->name, model->count, length,
                  (unsigned long long)(rig->dir->fields.size / rig->volume.sb.block_bytes));
    if (may_fill_up)
        assert_true(error == 0 || error == -ENOSPC);
    else
        assert_int_equal(error, 0);
    if (error == -ENOSPC) {
        /* What another leaf has room for still goes in. */
        size_t more = 0;
        for (size_t j = 0; j < 200; j++) {
            char name[256];
            snprintf(name, sizeof(name), "%0*zu", (int)length, 10000000 + j);
            uint32_t ino = rig->targets[0];
            int next = rig_insert(rig, name, length, ino);
            assert_true(next == 0 || next == -ENOSPC);
            if (next == 0) {
                model_add(model, name, length, ino);
                more++;
            }
        }
        assert_true(more > 0);
    }
    model_compare(model, rig->dir, 150);
    check_lookups(rig, model);
    rig_close(rig, model);
    rig_check(rig);
    rig_open(rig);
    model_compare(model, rig->dir, 1000);
    check_lookups(rig, model);
    rig_close(rig, NULL);
    model_destroy(model);
    rig_destroy(rig);
}

static void test_many_names(void **state)
{
    (void)state;
    fill(shape_find("1k"), 100000, 8, false);
    fill(shape_find("1k-large_dir"), 100000, 8, false);
    fill(shape_find("4k"), 100000, 12, false);
    fill(shape_find("64k"), 20000, 40, false);
}

static void test_full_index(void **state)
{
    (void)state;
    /* About 15,000 leaves of four names are what two levels hold. */
    fill(shape_find("1k"), 48000, 255, true);
    fill(shape_find("1k-large_dir"), 60000, 255, false);
}

static void test_strict_names(void **state)
{
    struct rig *rig = rig_create(shape_find("casefold-strict"));
    struct model *model = model_create();
    uint32_t ino;

    (void)state;
    assert_int_equal(rig_insert(rig, "\xff\xfe", 2, rig->targets[0]), -EINVAL);
    assert_int_equal(rig_insert(rig, "Straße", 7, rig->targets[0]), 0);
    model_add(model, "Straße", 7, rig->targets[0]);
    assert_int_equal(dir_lookup(rig->dir, "STRASSE", 7, &ino), 0);
    model_compare(model, rig->dir, 10);
    rig_close(rig, model);
    rig_check(rig);
    rig_destroy(rig);

    rig = rig_create(shape_find("casefold"));
    assert_int_equal(rig_insert(rig, "\xff\xfe", 2, rig->targets[0]), 0);
    assert_int_equal(dir_lookup(rig->dir, "\xff\xfe", 2, &ino), 0);
    rig_close(rig, NULL);
    rig_destroy(rig);
    model_destroy(model);
}

/* ---- Names of one hash ---------------------------------------------------------------------- */

/*
 * Makes names whose legacy hashes are all equal: for prefixes one after the other, and each next to
 * last byte, the last byte that leads to the wanted hash is solved for, where there is one.
 */
struct legacy {
    uint32_t current, previous;
};

static struct legacy legacy_step(struct legacy state, uint32_t value)
{
    uint32_t next = state.previous + (state.current ^ (value * 7152373u));

    if ((next & 0x80000000u) != 0)
        next -= 0x7fffffffu;
    return (struct legacy){next, state.current};
}

static uint8_t byte_of_product[1 << 16]; /* by the low half of the product; 0: none */

static size_t next_collision(uint32_t wanted, uint64_t *prefix, char *name)
{
    for (;; ++*prefix) {
        struct legacy state = {0x12a3fe2d, 0x37abe8f9};
        size_t length = (size_t)sprintf(name, "%040llu", (unsigned long long)*prefix);

        for (size_t i = 0; i < length; i++)
            state = legacy_step(state, (uint8_t)name[i]);
        for (uint32_t value = 1; value < 128; value++) {
            struct legacy last = legacy_step(state, value);

            for (uint32_t carry = 0; value != '/' && carry < 2; carry++) {
                uint32_t sum = wanted + (carry != 0 ? 0x7fffffffu : 0);
                uint32_t product = (sum - last.previous) ^ last.current;
                uint8_t byte = byte_of_product[product & 0xffff];
                if (byte != 0 && byte != '/' && byte * 7152373u == product &&
                    legacy_step(last, byte).current == wanted) {
                    name[length] = (char)value;
                    name[length + 1] = (char)byte;
                    ++*prefix;
                    return length + 2;
                }
            }
        }
    }
}

static void test_collisions(void **state)
{
    struct rig *rig = rig_create(shape_find("1k-legacy"));
    struct model *model = model_create();
    uint64_t prefix = draw(1000000);
    struct htree_hash first, hash;
    char name[256];

    (void)state;
    for (uint32_t i = 1; i < 128; i++)
        byte_of_product[(i * 7152373u) & 0xffff] = (uint8_t)i;
    for (size_t i = 0; i < 90; i++) {
        size_t length = next_collision(0x2345678, &prefix, name);
        assert_true(htree_hash_name(&rig->volume.sb, HTREE_HASH_LEGACY, name, length, &hash));
        if (i == 0)
            first = hash;
        assert_int_equal(hash.major, first.major);
        assert_int_equal(rig_insert(rig, name, length, rig->targets[0]), 0);
        model_add(model, name, length, rig->targets[0]);
        for (size_t other = 0; other < 4; other++) {
            size_t other_length = draw_name(rig->shape, name, 100);
            if (model_find(model, name, other_length) != NULL)
                continue;
            assert_int_equal(rig_insert(rig, name, other_length, rig->targets[1]), 0);
            model_add(model, name, other_length, rig->targets[1]);
        }
        model_compare(model, rig->dir, 1 + draw(20));
    }
    check_lookups(rig, model);
    rig_close(rig, model);
    rig_check(rig);
    rig_open(rig);
    while (model->count > 0) {
        struct model_name *gone = model->names[draw(model->count)];
        assert_int_equal(rig_remove(rig, gone->text, gone->length), 0);
        model_remove(model, gone);
        if (model->count % 16 == 0)
            model_compare(model, rig->dir, 7);
    }
    rig_close(rig, model);
    rig_check(rig);
    rig_destroy(rig);
    model_destroy(model);
}

/* ---- New directories and ".." --------------------------------------------------------------- */

static void begin_directory(const struct shape *shape, bool wants_inline)
{
    struct rig *rig = rig_create(shape);
    struct model *model = model_create();
    struct inode *root = NULL;

    /* The empty /d is begun anew: it gives up what it has. */
    struct handle handle;
    uint32_t ino;
    assert_int_equal(inode_get(rig->inodes, INODE_ROOT, &root), 0);
    assert_int_equal(journal_start(rig->journal, 2 * dir_credits(root) + 8, &handle), 0);
    assert_int_equal(space_allocate_inode(&handle, rig->space, INODE_ROOT, true, true, &ino), 0);
    struct inode_fields fields = rig->dir->fields;
    fields.size = fields.allocated_sectors = 0;
    fields.flags = 0;
    memset(fields.block, 0, sizeof(fields.block));
    map_init(&rig->volume.sb, &fields);
    if (wants_inline)
        fields.flags |= INODE_INLINE_DATA;
    inode_put(rig->dir);
    assert_int_equal(inode_create(&handle, rig->inodes, ino, &fields, &rig->dir), 0);
    assert_int_equal(dir_init(&handle, rig->dir, INODE_ROOT), 0);
    assert_int_equal(dir_insert(&handle, root, "new", 3, ino, DT_DIR), 0);
    root->fields.link_count++;
    assert_int_equal(inode_write(&handle, root), 0);
    assert_int_equal(journal_stop(&handle), 0);
    inode_put(root);
    assert_int_equal(inode_is_inline(rig->dir), wants_inline);
    assert_int_equal(dir_is_empty(rig->dir), 1);
    model_compare(model, rig->dir, 10);
    for (int i = 0; i < 400; i++) {
        char name[32];
        size_t length = (size_t)sprintf(name, "a name of some length %d", i);
        uint32_t parent;

        assert_int_equal(rig_insert(rig, name, length, rig->targets[0]), 0);
        model_add(model, name, length, rig->targets[0]);
        assert_int_equal(rig_replace(rig, "..", 2, rig->dir_ino), 0);
        assert_int_equal(dir_lookup(rig->dir, "..", 2, &parent), 0);
        assert_int_equal(parent, rig->dir_ino);
        assert_int_equal(rig_replace(rig, "..", 2, INODE_ROOT), 0);
        assert_int_equal(rig_remove(rig, "..", 2), -EINVAL);
    }
    model_compare(model, rig->dir, 10);
    assert_string_equal(messages(), "");
    rig_close(rig, model);
    rig_check(rig);
    model_destroy(model);
    rig_destroy(rig);
}

static void test_new_directories(void **state)
{
    (void)state;
    for (size_t i = 0; i < shape_count; i++) {
        begin_directory(&shapes[i], false);
        if (strstr(shapes[i].options, "inline_data") != NULL)
            begin_directory(&shapes[i], true);
    }
}

int main(int count, char *arguments[])
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_directories), cmocka_unit_test(test_strict_names),
        cmocka_unit_test(test_all_shapes),      cmocka_unit_test(test_collisions),
        cmocka_unit_test(test_many_names),      cmocka_unit_test(test_full_index),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
