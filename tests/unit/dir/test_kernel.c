/* SPDX-License-Identifier: MIT */
/* What was written is what the kernel sees: names, and what they refer to. Needs root. */
#include "support.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static bool can_mount;

static bool mount_image(const struct rig *rig, char *place, size_t size)
{
    snprintf(place, size, "%s/mnt", rig->folder);
    assert_int_equal(mkdir(place, 0755), 0);
    const char *arguments[] = {"mount", "-o", "loop,ro", rig->path, place, NULL};
    return run_program(arguments, NULL, 0) == 0;
}

static void check_by_kernel(const struct rig *rig, const struct model *model)
{
    char place[160], path[600];
    size_t found = 0;

    assert_true(mount_image(rig, place, sizeof(place)));
    snprintf(path, sizeof(path), "%s/d", place);
    DIR *listing = opendir(path);
    bool is_good = listing != NULL;
    int folder = is_good ? dirfd(listing) : -1;
    for (struct dirent *entry; is_good && (entry = readdir(listing)) != NULL;) {
        struct model_name *name = model_find(model, entry->d_name, strlen(entry->d_name));
        struct stat stat;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        is_good = name != NULL && name->ino == entry->d_ino;
        found++;
        if (is_good)
            is_good = fstatat(folder, entry->d_name, &stat, AT_SYMLINK_NOFOLLOW) == 0 &&
                      stat.st_ino == name->ino;
    }
    if (listing != NULL)
        closedir(listing);
    umount2(place, 0);
    assert_true(is_good);
    assert_int_equal(found, model->count);
}

static void run_shape(const struct shape *shape)
{
    struct rig *rig = rig_create(shape);
    struct model *model = model_create();

    print_message("# %s\n", shape->name);
    for (size_t i = 0; i < 4000; i++) {
        char name[256];
        size_t length = draw_name(shape, name, i % 8 == 0 ? 255 : 40);

        if (model->count > 0 && draw(4) == 0) {
            struct model_name *gone = model->names[draw(model->count)];
            assert_int_equal(rig_remove(rig, gone->text, gone->length), 0);
            model_remove(model, gone);
        } else if (model_find(model, name, length) == NULL) {
            uint32_t ino = rig->targets[draw(TARGET_COUNT)];
            assert_int_equal(rig_insert(rig, name, length, ino), 0);
            model_add(model, name, length, ino);
        }
        if (i == 3 || i == 40 || i == 3999) {
            rig_close(rig, model);
            rig_check(rig);
            check_by_kernel(rig, model);
            char place[160];
            snprintf(place, sizeof(place), "%s/mnt", rig->folder);
            rmdir(place);
            rig_open(rig);
        }
    }
    rig_close(rig, NULL);
    model_destroy(model);
    rig_destroy(rig);
}

static void test_kernel(void **state)
{
    (void)state;
    if (!can_mount)
        skip();
    for (size_t i = 0; i < shape_count; i++)
        if (!shapes[i].is_casefolded && strstr(shapes[i].options, "65536") == NULL)
            run_shape(&shapes[i]);
}

static bool try_mount(void)
{
    struct rig *rig = rig_create(shape_find("4k"));
    char place[160];

    rig_close(rig, NULL);
    bool is_mounted = geteuid() == 0 && mount_image(rig, place, sizeof(place));
    if (is_mounted)
        umount2(place, 0);
    rig_destroy(rig);
    return is_mounted;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernel)};

    can_mount = try_mount();
    if (!can_mount)
        print_message("# skipped: images cannot be mounted here (root and loop devices)\n");
    test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
