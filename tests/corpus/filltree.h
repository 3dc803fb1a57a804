/*
 * What the parts of filltree share: the state and the calls that make entries.
 *
 * Calls end the program with a message where the file system fails; what it merely refuses goes
 * through fill_refuse. Single-threaded.
 */
#ifndef CORPUS_FILLTREE_H
#define CORPUS_FILLTREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fill {
    uint64_t random_state;
    unsigned names;
    unsigned long_names;
    bool is_plain; /* only what `mke2fs -d` can copy */
    unsigned block_bytes;
    unsigned files, directories, links, symlinks, nodes, xattrs, refused;
    char refusals[1024];
};

extern struct fill fill;

uint64_t fill_random_next(void);
uint64_t fill_random_below(uint64_t limit);

/* Prints the message with errno's text and exits. */
__attribute__((format(printf, 1, 2), noreturn)) void fill_fail(const char *format, ...);

/* Counts what the file system will not have, or fails if errno says something else. */
void fill_refuse(const char *what);

/* The time of last change; the access time is a day later. */
void fill_set_times(int dir_fd, const char *name, int64_t seconds, long nanoseconds);

/* Gives an entry that is complete a time from the seed, so that runs differ in ctime only. */
void fill_settle(int dir_fd, const char *name);

/* Makes and opens a directory; leave closes and settles it. */
int fill_enter(int parent_fd, const char *name);
void fill_leave(int parent_fd, const char *name, int fd);

int fill_create(int dir_fd, const char *name);

/* Writes seeded bytes. False if the file system cannot map that offset. */
bool fill_put_at(int fd, uint64_t offset, size_t len);

void fill_make_file(int dir_fd, const char *name, size_t len);
void fill_add_link(int from_fd, const char *from, int to_fd, const char *to);

/* The parts; each makes its own directories below the root. */
void fill_data(int root);
void fill_inodes(int root);
void fill_directories(int root);

#endif
