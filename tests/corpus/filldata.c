/*
 * Files by their data: sizes around every edge, holes, unwritten ranges, extent trees of depth 2
 * and more on small blocks, offsets that need double and triple indirect blocks.
 */
#include "filltree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/falloc.h>

/* The file with the many extents takes at most this much. */
#define MANY_EXTENTS_BYTES (6U << 20)
#define MANY_EXTENTS       1500

static void fill_sizes(int root)
{
    static const unsigned sizes[] = {
        0,     1,     59,     60,     61,     99,     100,     101,     127,     128,    129,
        156,   159,   160,    161,    255,    256,    400,     511,     512,     513,    800,
        1023,  1024,  1025,   2047,   2048,   2049,   4095,    4096,    4097,    8191,   8192,
        8193,  12287, 12288,  12289,  16383,  16384,  16385,   49151,   49152,   49153,  65535,
        65536, 65537, 262144, 274432, 280000, 500000, 1048575, 1048576, 1048577, 2500001};
    int fd = fill_enter(root, "sizes");

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char name[32];

        snprintf(name, sizeof(name), "%07u", sizes[i]);
        fill_make_file(fd, name, sizes[i]);
    }
    fill_leave(root, "sizes", fd);
}

static size_t small_size(void)
{
    uint64_t kind = fill_random_below(100);

    if (kind < 20)
        return 0;
    if (kind < 60)
        return 1 + fill_random_below(170);
    if (kind < 92)
        return 170 + fill_random_below(2000);
    return 2000 + fill_random_below(20000);
}

static void fill_many(int root)
{
    int fd = fill_enter(root, "many");

    for (unsigned i = 0; i < 40; i++) {
        char dir_name[16];
        int sub;

        snprintf(dir_name, sizeof(dir_name), "dir%02u", i);
        sub = fill_enter(fd, dir_name);
        for (unsigned j = 0; j < 45; j++) {
            char name[80];

            snprintf(name, sizeof(name), "file-%02u-%0*x", j, (int)fill_random_below(50),
                     (unsigned)fill_random_below(0xffff));
            fill_make_file(sub, name, small_size());
            if (fchmodat(sub, name, (mode_t)fill_random_below(01000), 0) ||
                fchownat(sub, name, (uid_t)fill_random_below(5000), (gid_t)fill_random_below(5000),
                         AT_SYMLINK_NOFOLLOW))
                fill_fail("owner of %s", name);
        }
        fill_leave(fd, dir_name, sub);
    }
    fill_leave(root, "many", fd);
}

static void make_sparse(int dir_fd, const char *name, const uint64_t *offsets, unsigned count,
                        uint64_t size)
{
    int fd = fill_create(dir_fd, name);

    for (unsigned i = 0; i < count; i++)
        fill_put_at(fd, offsets[i], 700 + fill_random_below(6000));
    if (size && ftruncate(fd, (off_t)size))
        fill_refuse("truncate");
    close(fd);
    fill_settle(dir_fd, name);
}

static void fill_sparse(int root)
{
    static const uint64_t start_hole[] = {1 << 20};
    static const uint64_t end_hole[] = {0};
    static const uint64_t middle_hole[] = {0, 3000000};
    static const uint64_t many_holes[] = {100, 70000, 150000, 400000, 401000, 900000, 5000000};
    /* For indirect blocks: direct, single, double and, with 1 KiB blocks, triple. */
    static const uint64_t indirect[] = {0,       11 << 10, 12 << 10, 267 << 10, 268 << 10,
                                        5 << 20, 64 << 20, 66 << 20, 67 << 20,  300 << 20};
    static const uint64_t far4g[] = {0, (4ULL << 30) - 8192, (4ULL << 30) - 1, (4ULL << 30) + 4096};
    static const uint64_t far[] = {5ULL << 30,          (4ULL << 30) + (5 << 20),
                                   (14ULL << 30) + 77,  (16ULL << 30) + (70 << 20),
                                   (64ULL << 30) + 111, 1ULL << 40,
                                   (3ULL << 40) + 555};
    int fd = fill_enter(root, "sparse");

    make_sparse(fd, "start", start_hole, 1, 0);
    make_sparse(fd, "end", end_hole, 1, 10000001);
    make_sparse(fd, "middle", middle_hole, 2, 0);
    make_sparse(fd, "holes", many_holes, 7, 7000003);
    make_sparse(fd, "all-hole", NULL, 0, 123456789);
    make_sparse(fd, "small-hole", NULL, 0, 5000);
    make_sparse(fd, "tiny-hole", NULL, 0, 50);
    make_sparse(fd, "indirect", indirect, 10, 0);
    if (!fill.is_plain) {
        make_sparse(fd, "hole-1g", NULL, 0, 1ULL << 30);
        make_sparse(fd, "far-4g", far4g, 4, 0);
        make_sparse(fd, "far", far, 7, 0);
        make_sparse(fd, "far-hole", far, 3, 15ULL << 30);
    }
    fill_leave(root, "sparse", fd);
}

static void reserve(int fd, int mode, uint64_t offset, uint64_t len)
{
    if (fallocate(fd, mode, (off_t)offset, (off_t)len))
        fill_refuse("fallocate");
}

static void fill_unwritten(int root)
{
    uint64_t block = fill.block_bytes;
    int fd = fill_enter(root, "unwritten");
    int file = fill_create(fd, "whole");

    reserve(file, 0, 0, 300000);
    close(file);
    file = fill_create(fd, "past-eof");
    fill_put_at(file, 0, 5000);
    reserve(file, FALLOC_FL_KEEP_SIZE, 5000, 500000);
    close(file);
    file = fill_create(fd, "empty-with-blocks");
    reserve(file, FALLOC_FL_KEEP_SIZE, 0, 100000);
    close(file);
    file = fill_create(fd, "mixed");
    reserve(file, 0, 0, 64 * block);
    for (unsigned i = 0; i < 64; i += 3)
        fill_put_at(file, i * block, i % 2 ? 100 : block);
    close(file);
    file = fill_create(fd, "written-middle");
    reserve(file, 0, 0, 100 * block + 10);
    fill_put_at(file, 40 * block, 20 * block);
    close(file);
    file = fill_create(fd, "after-data");
    fill_put_at(file, 0, 10 * block);
    reserve(file, 0, 10 * block, 10 * block);
    fill_put_at(file, 30 * block, block);
    close(file);
    file = fill_create(fd, "zeroed");
    fill_put_at(file, 0, 40 * block);
    reserve(file, FALLOC_FL_ZERO_RANGE, 10 * block, 10 * block);
    reserve(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 25 * block + 1, 5 * block);
    close(file);
    file = fill_create(fd, "collapsed");
    fill_put_at(file, 0, 48 * block);
    if (fsync(file))
        fill_fail("fsync");
    reserve(file, FALLOC_FL_COLLAPSE_RANGE, 16 * block, 16 * block);
    reserve(file, FALLOC_FL_INSERT_RANGE, 16 * block, 16 * block);
    close(file);
    file = fill_create(fd, "hole-then-unwritten");
    reserve(file, 0, 200 * block, 50 * block);
    fill_put_at(file, 400 * block, 1);
    close(file);
    for (const char *const *name =
             (const char *const[]){"whole", "past-eof", "empty-with-blocks", "mixed",
                                   "written-middle", "after-data", "zeroed", "collapsed",
                                   "hole-then-unwritten", NULL};
         *name; name++)
        fill_settle(fd, *name);
    fill_leave(root, "unwritten", fd);
}

/* Every other block written, so that each is an extent: the tree grows to depth 2 and more. */
static void fill_extents(int root)
{
    uint64_t block = fill.block_bytes;
    unsigned count = MANY_EXTENTS_BYTES / fill.block_bytes;
    int fd = fill_enter(root, "extents");
    int file = fill_create(fd, "every-other-block");

    if (count > MANY_EXTENTS)
        count = MANY_EXTENTS;
    for (unsigned i = 0; i < count; i++)
        fill_put_at(file, i * 2 * block, i % 7 ? block : 300);
    close(file);
    fill_settle(fd, "every-other-block");
    file = fill_create(fd, "backwards");
    for (unsigned i = 400; i-- > 0;)
        fill_put_at(file, i * 3 * block, 200);
    close(file);
    fill_settle(fd, "backwards");
    file = fill_create(fd, "punched");
    fill_put_at(file, 0, 500 * (block > 4096 ? 4096 : block));
    for (unsigned i = 1; i < 500 && i * block < 2000000; i += 2)
        reserve(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * block, block);
    close(file);
    fill_settle(fd, "punched");
    fill_leave(root, "extents", fd);
}

void fill_data(int root)
{
    fill_sizes(root);
    fill_many(root);
    fill_sparse(root);
    fill_unwritten(root);
    fill_extents(root);
}
