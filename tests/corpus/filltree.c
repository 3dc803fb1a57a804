/*
 * filltree [--seed N] [--names N] [--long-names N] [--plain] DIR: fills a directory with one of
 * everything that a kernel ext2/3/4 can hold, so that a reader can be compared with the kernel.
 *
 * The same seed and numbers give the same tree. What the file system refuses (a feature that it
 * lacks, a file too large for its mapping, no room for an attribute) is skipped and counted; any
 * other error ends the program. --plain leaves out what `mke2fs -d` cannot copy from a host tree:
 * times outside 1970..2037, sub-second times, inode flags, files beyond 4 GiB, symbolic links with
 * several names.
 * Runs as root. Subtrees: sizes many sparse unwritten extents xattrs bigxattr acl links nodes
 * symlinks modes times flags deep odd names long deleted folded.
 */
#include "filltree.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct fill fill = {.names = 20000, .long_names = 6000};

uint64_t fill_random_next(void)
{
    uint64_t word = fill.random_state += 0x9e3779b97f4a7c15ULL;

    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ULL;
    word = (word ^ word >> 27) * 0x94d049bb133111ebULL;
    return word ^ word >> 31;
}

uint64_t fill_random_below(uint64_t limit)
{
    return fill_random_next() % limit;
}

void fill_fail(const char *format, ...)
{
    int error = errno;
    va_list arguments;

    fprintf(stderr, "filltree: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, ": %s\n", strerror(error));
    exit(1);
}

/* Counts what the file system will not have, or fails if errno says something else. */
void fill_refuse(const char *what)
{
    char note[80];

    if (errno != EOPNOTSUPP && errno != EFBIG && errno != ENOSPC && errno != EINVAL &&
        errno != ENAMETOOLONG && errno != E2BIG && errno != EMLINK && errno != ENOTTY &&
        errno != ERANGE)
        fill_fail("%s", what);
    fill.refused++;
    snprintf(note, sizeof(note), " %s:%s", what, strerrorname_np(errno));
    if (!strstr(fill.refusals, note) &&
        strlen(fill.refusals) + strlen(note) < sizeof(fill.refusals))
        strcat(fill.refusals, note);
}

/* Times, so that no two runs differ but in ctime. */
void fill_set_times(int dir_fd, const char *name, int64_t seconds, long nanoseconds)
{
    struct timespec times[2] = {{.tv_sec = seconds + 86400, .tv_nsec = nanoseconds / 2},
                                {.tv_sec = seconds, .tv_nsec = nanoseconds}};

    if (utimensat(dir_fd, name, times, AT_SYMLINK_NOFOLLOW))
        fill_fail("times of %s", name);
}

void fill_settle(int dir_fd, const char *name)
{
    fill_set_times(dir_fd, name, 1000000000 + (int64_t)fill_random_below(700000000),
                   fill.is_plain ? 0 : (long)fill_random_below(1000000000));
}

int fill_enter(int parent_fd, const char *name)
{
    int fd;

    if (mkdirat(parent_fd, name, 0755))
        fill_fail("mkdir %s", name);
    fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        fill_fail("open %s", name);
    fill.directories++;
    return fd;
}

void fill_leave(int parent_fd, const char *name, int fd)
{
    close(fd);
    fill_settle(parent_fd, name);
}

int fill_create(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (fd < 0)
        fill_fail("create %s", name);
    fill.files++;
    return fd;
}

/* False if the file system cannot map that offset; the file is then as it was. */
bool fill_put_at(int fd, uint64_t offset, size_t len)
{
    static uint64_t words[(1U << 20) / 8];
    size_t done = 0;

    while (done < len) {
        size_t part = len - done < sizeof(words) ? len - done : sizeof(words);
        ssize_t written;

        for (size_t i = 0; i < (part + 7) / 8; i++)
            words[i] = fill_random_next();
        written = pwrite(fd, words, part, (off_t)(offset + done));
        if (written < 0 && errno == EFBIG) {
            fill_refuse("write");
            return false;
        }
        if (written <= 0)
            fill_fail("write at %" PRIu64, offset + done);
        done += (size_t)written;
    }
    return true;
}

void fill_make_file(int dir_fd, const char *name, size_t len)
{
    int fd = fill_create(dir_fd, name);

    fill_put_at(fd, 0, len);
    close(fd);
    fill_settle(dir_fd, name);
}

void fill_add_link(int from_fd, const char *from, int to_fd, const char *to)
{
    if (linkat(from_fd, from, to_fd, to, 0))
        fill_fail("link %s", to);
    fill.links++;
}

static unsigned number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 0);

    if (*end || end == text || value > 1000000) {
        errno = EINVAL;
        fill_fail("number %s", text);
    }
    return (unsigned)value;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"names", required_argument, NULL, 'n'},
                                            {"long-names", required_argument, NULL, 'l'},
                                            {"plain", no_argument, NULL, 'p'},
                                            {0}};
    unsigned seed = 1;
    struct statvfs fs;
    int option;
    int root;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's')
            seed = number(optarg);
        else if (option == 'n')
            fill.names = number(optarg);
        else if (option == 'l')
            fill.long_names = number(optarg);
        else if (option == 'p')
            fill.is_plain = true;
        else
            return 2;
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: filltree [--seed N] [--names N] [--long-names N] [--plain] DIR\n");
        return 2;
    }
    umask(0);
    fill.random_state = seed;
    root = open(argv[optind], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || fstatvfs(root, &fs))
        fill_fail("%s", argv[optind]);
    fill.block_bytes = (unsigned)fs.f_bsize;
    fill_data(root);
    fill_inodes(root);
    fill_directories(root);
    fill_settle(root, ".");
    printf("filltree: seed %u, %u files, %u directories, %u further links, %u symlinks, %u nodes, "
           "%u xattrs; refused %u%s\n",
           seed, fill.files, fill.directories, fill.links, fill.symlinks, fill.nodes, fill.xattrs,
           fill.refused, fill.refusals);
    return 0;
}
