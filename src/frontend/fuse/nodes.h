/* SPDX-License-Identifier: MIT */
/*
 * The inodes that the kernel remembers, and how often it has looked each of them up.
 *
 * The id of a node is the number of its inode, so that all names of an inode give one node, and an
 * id that the kernel has forgotten (NFS clients keep them) can still be resolved. The root is the
 * exception: FUSE fixes its id as 1, and inode 1 holds bad blocks and is never handed out.
 *
 * All calls may run at the same time from any thread.
 */
#ifndef UEXT4_FUSE_NODES_H
#define UEXT4_FUSE_NODES_H

#include <stdbool.h>
#include <stdint.h>

#include "uext4.h"

struct nodes;

/* Takes the root's inode from `fs`. */
int nodes_create(struct uext4 *fs, struct nodes **nodes);

/* Releases all inodes, however often they have been looked up. */
void nodes_destroy(struct nodes *nodes);

/* Gives a reference to the inode of a node. Returns also what uext4_inode_get does. */
int nodes_get(struct nodes *nodes, uint64_t node, struct uext4_inode **inode);

/*
 * Counts a look-up of an inode before its id goes to the kernel. Returns also -EUCLEAN for an inode
 * that cannot be handed out.
 */
int nodes_remember(struct nodes *nodes, struct uext4_inode *inode, uint64_t *node);

/*
 * How busy the look-up of names in a directory is: nodes_count_search counts one, and
 * nodes_is_searched tells whether there were more than a few lately. The start of a new listing
 * makes half of them forgotten.
 */
void nodes_count_search(struct nodes *nodes, uint64_t dir);
bool nodes_is_searched(struct nodes *nodes, uint64_t dir, bool is_listing_start);

/* Takes back `count` look-ups. */
void nodes_forget(struct nodes *nodes, uint64_t node, uint64_t count);

#endif
