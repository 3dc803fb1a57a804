/* SPDX-License-Identifier: MIT */
/*
 * Changes of an inode's map: extent trees and the block map of ext2 and ext3 behind one set of
 * calls.
 *
 * Each call works within an open handle, takes the inode's map_lock, writes the inode (inode_write)
 * and keeps the mapping cache in step: when it returns, look-ups see the change. The blocks of the
 * tree itself are reserved, claimed and freed by these calls (volume->space), with the privilege to
 * use the reserved ones, as they are few and belong to data that has its place already; data blocks
 * are the caller's to claim before, and to free after, but for map_remove, which frees what it
 * unmaps. No call is for inodes with inline data.
 *
 * -EAGAIN, from any of them: end the handle, commit, and call again with a new one and fresh
 * map_credits. Either the handle's credits do not suffice, as other threads made the tree deeper,
 * or space for the tree comes free with the commit. What the call says of its state then holds.
 */
#ifndef UEXT4_MAP_EDIT_H
#define UEXT4_MAP_EDIT_H

#include "journal/journal.h"
#include "map/map.h"
#include "space/allocate.h"

/*
 * Credits that one call below needs at most, for a run of this length, as deep as the tree is now.
 * Very long runs count as shorter ones: map_remove and map_shift go in steps anyway, and the others
 * ask the journal for more, with -EAGAIN if there is none.
 */
uint32_t map_credits(const struct inode *inode, uint64_t length_blocks);

/*
 * Maps a run of file blocks, all of them holes, to a run of disk blocks; adds to i_blocks, but what
 * lies in clusters that the inode has already. Joins neighbours where it can. With bigalloc, a
 * block's place in its cluster is the same in the file and on the disk (else -EINVAL). An ext2/3
 * block map has no unwritten runs (-EOPNOTSUPP). -EEXIST if a block is mapped already, -ENOSPC or
 * -EAGAIN without room for the tree, -EFBIG past what the map can reach. On all of these nothing is
 * changed.
 */
int map_insert(struct handle *handle, struct inode *inode,
               const struct mapping *mapping) MUST_CHECK;

/*
 * Makes the unwritten parts of a run written. Parts that are written already stay; holes: -EUCLEAN.
 * On -ENOSPC and -EAGAIN a part from the start on may be done: the same call goes on with the rest.
 */
int map_convert(struct handle *handle, struct inode *inode, uint64_t file_block,
                uint64_t length_blocks) MUST_CHECK;

/* Makes the written parts of a run unwritten (zero range); holes stay holes. Errors as above. */
int map_unwrite(struct handle *handle, struct inode *inode, uint64_t file_block,
                uint64_t length_blocks) MUST_CHECK;

/*
 * Unmaps what lies in [first, end), from the end on, and frees it, tree blocks that become empty
 * too. The blocks of directories and symlinks are revoked, as they are metadata; with bigalloc a
 * cluster is freed with its last block. `flags` are those of space/allocate.h. It stops when the
 * handle's credits run short: *remaining_end is then where to go on with a new handle, else it
 * equals `first`. The map is sound at every stop, after an error too, where *remaining_end says how
 * far it came. -ENOSPC if a tree that must be split, as a hole is punched into one extent, has no
 * room.
 */
int map_remove(struct handle *handle, struct inode *inode, uint64_t first, uint64_t end,
               unsigned int flags, uint64_t *remaining_end) MUST_CHECK;

/*
 * Moves everything mapped from `first` on by `delta_blocks` (collapse range: negative, the room
 * must be a hole, else -EINVAL; insert range: positive, an extent that covers `first` is cut in
 * two). Extents only (-EOPNOTSUPP). -EFBIG, with nothing changed, if the end would not fit. With
 * bigalloc the delta is a number of clusters (-EINVAL).
 *
 * It stops as map_remove does. *next is MAP_SHIFT_START at the first call; while it is not
 * MAP_SHIFT_DONE afterwards, go on with the same arguments and a new handle.
 */
#define MAP_SHIFT_START UINT64_MAX
#define MAP_SHIFT_DONE  UINT64_C(0)
int map_shift(struct handle *handle, struct inode *inode, uint64_t first, int64_t delta_blocks,
              uint64_t *next) MUST_CHECK;

/* Puts an empty map into a new inode: an extent root or a block map, as the file system has it. */
void map_init(const struct superblock *sb, struct inode_fields *fields);

/* Where the next block of this file had best lie: behind the block before it, near its inode. */
uint64_t map_goal(struct inode *inode, uint64_t file_block);

#endif
