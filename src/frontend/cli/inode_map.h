/* SPDX-License-Identifier: MIT */
/*
 * A hash table from inode numbers to pointers: which directories were visited, and where the first
 * name of a hard-linked file went.
 *
 * Threads: one at a time.
 */
#ifndef UEXT4_CLI_INODE_MAP_H
#define UEXT4_CLI_INODE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inode_map_slot {
    uint64_t ino; /* 0: free */
    void *value;
};

struct inode_map {
    struct inode_map_slot *slots;
    size_t capacity; /* 0 or a power of two */
    size_t count;
};

/* Adds `ino` (not 0), or does nothing if it is there. Returns 1 if it was added, 0, or -ENOMEM. */
int inode_map_add(struct inode_map *map, uint64_t ino);

/* Where the value of `ino` stands, until the next addition, or NULL if it is not there. */
void **inode_map_find(const struct inode_map *map, uint64_t ino);

/* Frees the table, and with `has_owned_values` the values by free(). */
void inode_map_clear(struct inode_map *map, bool has_owned_values);

#endif
