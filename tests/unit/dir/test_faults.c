/* SPDX-License-Identifier: MIT */
/*
 * Every call that an insertion makes for room or memory fails in turn: the directory, its inode and
 * the free space must be as before, and the same insertion works afterwards. The linker puts the
 * functions below in front of the real ones.
 */
#include "support.h"

#include "format/crc.h"
#include "map/edit.h"
#include "space/allocate.h"

static unsigned int calls, failing_call; /* 0: none fails */
static bool is_armed;
static int failure;

static bool fails(void)
{
    return is_armed && ++calls == failing_call;
}

/* The linker's names for the real ones, and for those in front of them. */
#define WRAP(type, name, parameters, arguments, error)      \
    type __real_##name parameters;                          \
    type __wrap_##name parameters;                          \
    type __wrap_##name parameters                           \
    {                                                       \
        return fails() ? (error) : __real_##name arguments; \
    }

WRAP(int, space_reserve,
     (struct space * space, uint64_t goal, uint32_t wanted, unsigned int flags,
      struct space_stream *stream, struct space_run *run),
     (space, goal, wanted, flags, stream, run), failure)
WRAP(int, space_claim, (struct handle * handle, struct space *space, struct space_run run),
     (handle, space, run), -ENOMEM)
WRAP(int, map_insert, (struct handle * handle, struct inode *inode, const struct mapping *mapping),
     (handle, inode, mapping), failure)
WRAP(int, journal_create, (struct handle * handle, uint64_t block, struct buffer **buffer),
     (handle, block, buffer), -ENOMEM)
WRAP(void *, malloc, (size_t size), (size), NULL)
WRAP(void *, calloc, (size_t count, size_t size), (count, size), NULL)

struct state {
    uint32_t crc, flags; /* no padding: compared as bytes */
    uint64_t size, sectors, free_blocks;
};

static struct state take_state(struct rig *rig)
{
    struct inode *dir = rig->dir;
    struct space_usage usage;
    struct state state = {
        .size = dir->fields.size,
        .sectors = dir->fields.allocated_sectors,
        .flags = dir->fields.flags,
    };
    struct buffer *buffer;

    assert_int_equal(space_get_usage(rig->space, &usage), 0);
    state.free_blocks = usage.free_blocks;
    if (inode_is_inline(dir)) {
        struct inline_data data;
        assert_int_equal(inode_read_inline(dir, &data), 0);
        state.crc = crc32c(crc32c(0, data.head, data.head_bytes), data.tail, data.tail_bytes);
        buffer_put(data.buffer);
    }
    for (uint64_t i = 0; !inode_is_inline(dir) && i < dir->fields.size >> rig->volume.sb.block_bits;
         i++) {
        struct mapping mapping;
        uint64_t hole;

        assert_int_equal(map_lookup(dir, i, &mapping), 0);
        state.crc = crc32c(state.crc, &mapping.disk_block, sizeof(mapping.disk_block));
        assert_int_equal(dir_get_block(dir, i, &buffer, &hole), 0);
        state.crc = crc32c(state.crc, buffer->data, rig->volume.sb.block_bytes);
        buffer_put(buffer);
    }
    return state;
}

static void insert_with_failures(struct rig *rig, const char *name, size_t length, size_t *failures)
{
    for (failing_call = 1;; failing_call++) {
        struct state before = take_state(rig);
        struct handle handle;

        failure = failing_call % 2 != 0 ? -ENOSPC : -EAGAIN;
        assert_int_equal(journal_start(rig->journal, dir_credits(rig->dir), &handle), 0);
        calls = 0;
        is_armed = true;
        int error = dir_insert(&handle, rig->dir, name, length, rig->targets[0], DT_REG);
        is_armed = false;
        assert_int_equal(journal_stop(&handle), 0);
        if (calls < failing_call) {
            assert_int_equal(error, 0);
            return;
        }
        assert_true(error == -ENOSPC || error == -ENOMEM || error == -EAGAIN || error == 0);
        if (error == 0)
            return; /* a cache that could not grow */
        struct state after = take_state(rig);
        if (memcmp(&before, &after, sizeof(before)) != 0)
            fail_msg("%s: call %u failed with %d and left a change: size %llu -> %llu, sectors "
                     "%llu -> %llu, free %llu -> %llu, flags %x -> %x",
                     rig->shape->name, failing_call, error, (unsigned long long)before.size,
                     (unsigned long long)after.size, (unsigned long long)before.sectors,
                     (unsigned long long)after.sectors, (unsigned long long)before.free_blocks,
                     (unsigned long long)after.free_blocks, before.flags, after.flags);
        if (!inode_is_inline(rig->dir)) {
            struct mapping behind;
            assert_int_equal(
                map_lookup(rig->dir, rig->dir->fields.size >> rig->volume.sb.block_bits, &behind),
                0);
            assert_int_equal(behind.kind, MAPPING_HOLE);
        }
        ++*failures;
    }
}

static void run(const char *shape, size_t count, size_t length)
{
    struct rig *rig = rig_create(shape_find(shape));
    struct model *model = model_create();
    size_t failures = 0;

    for (size_t i = 0; i < count; i++) {
        char name[256];

        snprintf(name, sizeof(name), "%0*zu", (int)length, i);
        insert_with_failures(rig, name, length, &failures);
        model_add(model, name, length, rig->targets[0]);
        if (i % 16 == 0)
            model_compare(model, rig->dir, 50);
    }
    print_message("# %s: %zu names, %zu failures, %llu blocks\n", shape, count, failures,
                  (unsigned long long)(rig->dir->fields.size / rig->volume.sb.block_bytes));
    assert_true(failures >= 10);
    model_compare(model, rig->dir, 50);
    rig_close(rig, model);
    rig_check(rig);
    model_destroy(model);
    rig_destroy(rig);
}

static void test_failures(void **state)
{
    (void)state;
    run("1k", 480, 200); /* past the root's first level */
    run("1k-large_dir", 480, 200);
    run("1k-no-index", 200, 200);
    run("ext2-1k", 300, 200);
    run("inline", 120, 30);
    run("inline-1k", 120, 60);
    run("inline-no-index", 120, 30);
    run("bigalloc", 120, 200);
    run("64k", 400, 250);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failures)};

    test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
