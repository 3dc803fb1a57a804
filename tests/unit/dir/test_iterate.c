/* SPDX-License-Identifier: MIT */
/*
 * Reading a directory in pieces while names come and go in between: those that stay must come
 * exactly once, whatever the directory turns into meanwhile.
 */
#include "support.h"

struct reading {
    struct inode *dir;
    const struct model *stays;
    struct model *others; /* all names that ever were there besides; `seen` counts */
    uint64_t cookie;
    size_t batch, taken, stayed, dots;
    uint32_t number;
};

static bool take_entry(void *context, const struct dirent_view *entry, uint64_t next_cookie)
{
    struct reading *reading = context;

    if (reading->taken == reading->batch)
        return false;
    reading->taken++;
    assert_true(next_cookie > reading->cookie && next_cookie <= INT64_MAX);
    reading->cookie = next_cookie;
    if (entry->name[0] == '.' && entry->name_length <= 2) {
        reading->dots++;
        return true;
    }
    struct model_name *name = model_find(reading->stays, entry->name, entry->name_length);
    if (name != NULL) {
        if (name->seen == reading->number)
            fail_msg("%.*s came twice", entry->name_length, entry->name);
        reading->stayed++;
    } else {
        name = model_find(reading->others, entry->name, entry->name_length);
        assert_non_null(name);
        if (name->seen == reading->number)
            fail_msg("%.*s, entered or removed meanwhile, came twice", entry->name_length,
                     entry->name);
    }
    name->seen = reading->number;
    return true;
}

struct change {
    struct rig *rig;
    struct model *stays, *others, *present;
    size_t max_length;
};

static void insert_other(struct change *change)
{
    const struct shape *plain = shape_find("4k");
    char name[256];
    size_t length = draw_name(plain, name, change->max_length);

    /* A name that was there before may come twice: each is new. */
    if (model_find(change->stays, name, length) != NULL ||
        model_find(change->others, name, length) != NULL)
        return;
    assert_int_equal(rig_insert(change->rig, name, length, change->rig->targets[0]), 0);
    model_add(change->others, name, length, change->rig->targets[0]);
    model_add(change->present, name, length, change->rig->targets[0]);
}

static void remove_other(struct change *change)
{
    if (change->present->count == 0)
        return;
    struct model_name *name = change->present->names[draw(change->present->count)];
    assert_int_equal(rig_remove(change->rig, name->text, name->length), 0);
    model_remove(change->present, name);
}

/*
 * `start` names stay; `between` more come, on average, between two pieces of one reading. Then
 * `present` of them go, so that the next reading begins small again.
 */
static void read_while_changing(const struct shape *shape, size_t start, size_t between,
                                size_t batch_max, size_t max_length)
{
    struct rig *rig = rig_create(shape);
    struct change change = {
        .rig = rig,
        .stays = model_create(),
        .others = model_create(),
        .present = model_create(),
        .max_length = max_length,
    };
    uint32_t number = 0;

    for (size_t i = 0; i < start; i++) {
        char name[256];
        size_t length = draw_name(shape_find("4k"), name, max_length);
        if (model_find(change.stays, name, length) != NULL)
            continue;
        assert_int_equal(rig_insert(rig, name, length, rig->targets[1]), 0);
        model_add(change.stays, name, length, rig->targets[1]);
    }
    for (int round = 0; round < 3; round++) {
        struct reading reading = {
            .dir = rig->dir,
            .stays = change.stays,
            .others = change.others,
            .number = ++number,
        };
        size_t pieces = 0;
        do {
            reading.batch = 1 + draw(batch_max);
            reading.taken = 0;
            assert_int_equal(dir_iterate(rig->dir, reading.cookie, take_entry, &reading), 0);
            for (size_t i = draw(2 * between + 1); i > 0 && pieces < 400; i--) {
                if (draw(3) != 0)
                    insert_other(&change);
                else
                    remove_other(&change);
            }
            pieces++;
        } while (reading.taken == reading.batch);
        assert_int_equal(reading.dots, 2);
        assert_int_equal(reading.stayed, change.stays->count);
    }
    for (size_t i = 0; i < change.stays->count; i++)
        model_add(change.present, change.stays->names[i]->text, change.stays->names[i]->length,
                  change.stays->names[i]->ino);
    model_compare(change.present, rig->dir, 64);
    assert_string_equal(messages(), "");
    rig_close(rig, change.present);
    rig_check(rig);
    model_destroy(change.stays);
    model_destroy(change.others);
    model_destroy(change.present);
    rig_destroy(rig);
}

static const char *const forms[] = {"4k",       "1k",        "1k-legacy",       "1k-no-index",
                                    "inline",   "inline-1k", "inline-no-index", "ext2-1k",
                                    "bigalloc", "64k"};

/* From a few names, so that the directory changes its form in the middle of the first reading. */
static void test_change_of_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        print_message("# %s\n", forms[i]);
        for (int round = 0; round < 12; round++)
            read_while_changing(shape_find(forms[i]), 1 + draw(20), 12, 3, 30);
    }
}

static void test_splits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        read_while_changing(shape_find(forms[i]), 1500, 40, 40, 255);
}

/* A cookie is good for going back, too, and nonsense is the end or some entries, not a fault. */
static bool count_entry(void *context, const struct dirent_view *entry, uint64_t next_cookie)
{
    (void)entry;
    (void)next_cookie;
    ++*(size_t *)context;
    return true;
}

static void test_any_cookie(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct rig *rig = rig_create(shape_find(forms[i]));

        for (int j = 0; j < 700; j++) {
            char name[16];
            size_t length = (size_t)sprintf(name, "n%d", j), count = 0;

            assert_int_equal(rig_insert(rig, name, length, rig->targets[0]), 0);
            uint64_t cookie = draw(UINT64_MAX) << 11 ^ draw(UINT64_MAX);
            cookie >>= draw(64);
            assert_int_equal(dir_iterate(rig->dir, cookie, count_entry, &count), 0);
            assert_true(count <= (size_t)j + 3);
            count = 0;
            assert_int_equal(dir_iterate(rig->dir, INT64_MAX, count_entry, &count), 0);
            assert_int_equal(count, 0);
            assert_int_equal(dir_iterate(rig->dir, 0, count_entry, &count), 0);
            assert_int_equal(count, j + 3);
        }
        rig_close(rig, NULL);
        rig_destroy(rig);
    }
}

/* More names in one block than are sorted at once. */
static void test_large_block(void **state)
{
    struct rig *rig = rig_create(shape_find("64k"));
    struct model *model = model_create();

    (void)state;
    while (model->count < 5200) {
        char name[8];
        size_t length = (size_t)sprintf(name, "%x", (unsigned int)draw(65536));

        if (model_find(model, name, length) != NULL)
            continue;
        assert_int_equal(rig_insert(rig, name, length, rig->targets[0]), 0);
        model_add(model, name, length, rig->targets[0]);
    }
    assert_int_equal(rig->dir->fields.size, rig->volume.sb.block_bytes);
    for (size_t i = 0; i < 400; i++) {
        struct model_name *gone = model->names[draw(model->count)];

        if (i % 40 == 0)
            model_compare(model, rig->dir, i == 0 ? 100 : 10000);
        assert_int_equal(rig_remove(rig, gone->text, gone->length), 0);
        model_remove(model, gone);
    }
    rig_close(rig, model);
    rig_check(rig);
    rig_destroy(rig);
    model_destroy(model);
}

/* ---- Threads -------------------------------------------------------------------------------- */

#define THREAD_NAMES 3000

/* Held while a thread waits for the directory's lock, so that readers do not keep the writer out.
 */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

struct reader_thread {
    pthread_t thread;
    struct inode *dir;
    struct model *stays; /* not changed */
    uint32_t number;
    _Atomic bool *is_done;
    size_t readings;
    bool is_wrong;
};

struct thread_reading {
    struct reader_thread *reader;
    uint64_t cookie;
    size_t taken, stayed;
};

static bool take_in_thread(void *context, const struct dirent_view *entry, uint64_t next_cookie)
{
    struct thread_reading *reading = context;

    if (reading->taken == 100)
        return false;
    reading->taken++;
    reading->cookie = next_cookie;
    if (model_find(reading->reader->stays, entry->name, entry->name_length) != NULL)
        reading->stayed++;
    return true;
}

static void *read_in_thread(void *context)
{
    struct reader_thread *reader = context;

    while (!*reader->is_done) {
        struct thread_reading reading = {.reader = reader};
        do {
            reading.taken = 0;
            pthread_mutex_lock(&turn);
            rwlock_read_lock(&reader->dir->names_lock);
            pthread_mutex_unlock(&turn);
            if (dir_iterate(reader->dir, reading.cookie, take_in_thread, &reading) != 0)
                reader->is_wrong = true;
            const struct model_name *name = reader->stays->names[reading.stayed % 200];
            uint32_t ino;
            if (dir_lookup(reader->dir, name->text, name->length, &ino) != 0 || ino != name->ino)
                reader->is_wrong = true;
            rwlock_read_unlock(&reader->dir->names_lock);
        } while (reading.taken == 100);
        if (reading.stayed != reader->stays->count)
            reader->is_wrong = true;
        reader->readings++;
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct rig *rig = rig_create(shape_find("1k"));
    struct model *stays = model_create(), *all = model_create();
    struct reader_thread readers[3];
    _Atomic bool is_done = false;

    (void)state;
    for (size_t i = 0; i < THREAD_NAMES; i++) {
        char name[32];
        size_t length = (size_t)sprintf(name, "name %zu", i);

        pthread_mutex_lock(&turn);
        rwlock_write_lock(&rig->dir->names_lock);
        pthread_mutex_unlock(&turn);
        assert_int_equal(rig_insert(rig, name, length, rig->targets[0]), 0);
        rwlock_write_unlock(&rig->dir->names_lock);
        model_add(all, name, length, rig->targets[0]);
        if (i < 200)
            model_add(stays, name, length, rig->targets[0]);
        for (size_t j = 0; i == 199 && j < 3; j++) {
            readers[j] =
                (struct reader_thread){.dir = rig->dir, .stays = stays, .is_done = &is_done};
            assert_int_equal(pthread_create(&readers[j].thread, NULL, read_in_thread, &readers[j]),
                             0);
        }
        if (i % 500 == 499)
            assert_int_equal(journal_commit_all(rig->journal), 0);
    }
    is_done = true;
    for (size_t j = 0; j < 3; j++) {
        assert_int_equal(pthread_join(readers[j].thread, NULL), 0);
        assert_false(readers[j].is_wrong);
    }
    model_compare(all, rig->dir, 100);
    rig_close(rig, all);
    rig_check(rig);
    rig_destroy(rig);
    model_destroy(all);
    model_destroy(stays);
}

int main(int count, char *arguments[])
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_change_of_form), cmocka_unit_test(test_splits),
        cmocka_unit_test(test_any_cookie),     cmocka_unit_test(test_large_block),
        cmocka_unit_test(test_threads),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
