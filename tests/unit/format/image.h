/* SPDX-License-Identifier: MIT */
/* An image of a file system, for the tests that write to one. What goes wrong fails the test. */
#ifndef UEXT4_TESTS_FORMAT_IMAGE_H
#define UEXT4_TESTS_FORMAT_IMAGE_H

#include "format/group.h"
#include "format/inode.h"

/* A file system, mapped: what is written there is in the image. */
struct image {
    const char *name;
    char path[100];
    struct superblock sb;
    uint8_t *bytes;
    size_t size;
};

/* How much image_compare has met so far. */
extern struct image_met {
    unsigned long inodes, extent_nodes, attribute_blocks, attributes_hashed, values_in_inodes,
        bitmaps_synthesised, orphan_blocks;
} image_met;

/* `name` and `path` are set. */
void image_open(struct image *image);
void image_close(struct image *image);

uint8_t *image_block(const struct image *image, uint64_t block);
uint8_t *image_raw_group(const struct image *image, uint32_t group);
struct group_descriptor image_read_group(const struct image *image, uint32_t group);
void image_write_group(const struct image *image, uint32_t group,
                       const struct group_descriptor *descriptor);
uint8_t *image_raw_inode(const struct image *image, uint32_t ino);
struct inode_fields image_read_inode(const struct image *image, uint32_t ino);
void image_write_inode(const struct image *image, uint32_t ino, const struct inode_fields *inode);

/*
 * Reads every structure and writes it again, into copies: the bytes are the same, also after all
 * that is known was wiped; hashes of attributes, checksums of bitmaps and what group_init_*_bitmap
 * make are those that are there.
 */
void image_compare(const struct image *image);

#endif
