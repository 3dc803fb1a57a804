/* SPDX-License-Identifier: MIT */
/*
 * A directory in memory that grows as a file system would do it, for the tests of format/: one
 * linear block, then a hash index whose leaves and nodes split. What goes wrong fails the test.
 */
#ifndef UEXT4_TESTS_FORMAT_DIRECTORY_H
#define UEXT4_TESTS_FORMAT_DIRECTORY_H

#include "format/dirent.h"

struct directory {
    struct superblock sb;
    uint32_t seed; /* of the inode, for checksums */
    uint8_t *blocks;
    uint32_t count, count_max;
    bool is_indexed;
    struct htree_root root;
    uint32_t hash_mask; /* fewer bits: more names of the same hash */
    unsigned int leaf_splits, node_splits, push_downs, continued;
};

/* `sb` and `seed` are set; allocates `blocks`, which the caller frees. */
void directory_start(struct directory *dir, uint32_t blocks_max, uint32_t ino, uint32_t parent_ino);

uint8_t *directory_block(const struct directory *dir, uint32_t block);

/* 0, or -ENOSPC if the index is full. */
int directory_add(struct directory *dir, const struct dirent_view *entry);

/* The offset of a name in `*block`, or SIZE_MAX. */
size_t directory_find(struct directory *dir, const struct dirent_view *entry, uint32_t *block);

/* A dirent_hash_function; the context is the directory. */
bool directory_hash(void *context, const struct dirent_view *entry, struct htree_hash *hash);

void directory_set_checksums(struct directory *dir);

#endif
