/* SPDX-License-Identifier: MIT */
/*
 * Allocation of blocks and inodes.
 *
 * A block goes through these states:
 *
 *   free --space_reserve--> reserved --space_claim--> allocated --space_free--> freed
 *    ^                         |                                                |
 *    +----space_unreserve------+-------(the transaction has committed)----------+
 *
 * `reserved` and `freed` live in memory only, beside the bitmaps: what the disk shows is free or
 * allocated, and a crash leaks nothing. A freed block is not given out before the transaction that
 * freed it has committed, as a crash before that brings the old owner back. If the journal aborts,
 * it is not given out any more.
 *
 * Units are clusters inside, blocks outside: with bigalloc every run begins and ends at a cluster's
 * boundary (sb.cluster_blocks), or at the end of the file system.
 *
 * Memory in proportion to the groups that were used, not to the image (16 bytes a group): a group's
 * bitmap in memory is dropped when there are many and nothing in it is reserved or freed.
 *
 * A group whose bitmap or descriptor is damaged is taken out of use, with a message. Calls fail
 * with -EUCLEAN only if they cannot do without it.
 *
 * All calls from any thread. None waits for a journal but through the handle that it is given.
 */
#ifndef UEXT4_SPACE_ALLOCATE_H
#define UEXT4_SPACE_ALLOCATE_H

#include "journal/journal.h"
#include "space/volume.h"

struct space;

struct space_run {
    uint64_t block;
    uint32_t length_blocks;
};

struct space_options {
    bool discards;           /* freed runs are discarded once their transaction has committed */
    bool may_use_reserved;   /* every request counts as SPACE_PRIVILEGED */
    size_t max_bitmap_bytes; /* for bitmaps of groups where nothing is reserved; 0: 32 MiB */
    bool has_exact_counts; /* the superblock's free counts are right: it was closed cleanly. Without
                              it the first request sums up all descriptors. */
};

/*
 * Reads nothing. The volume's superblock must be the primary one. The space must be destroyed after
 * the journal was closed, as the last transactions give back what they freed; everything reserved
 * must have been given back before.
 */
int space_create(struct volume *volume, struct journal *journal,
                 const struct space_options *options, struct space **space) MUST_CHECK;
void space_destroy(struct space *space);

enum space_flags {
    SPACE_PRIVILEGED = 1u << 0, /* may use the blocks reserved for root */
    SPACE_METADATA = 1u << 1,   /* for extent nodes, directories and the like: takes the first free
                                   block behind the goal, big or small the hole */
};

/*
 * The memory of a stream of requests (an open file, a thread), kept by the caller, zeroed at first,
 * used by one thread at a time. The blocks behind the last ones that it got are kept for it, as
 * long as space is not short, so that streams that grow at the same time do not mix; as many more
 * as it goes on. space_end_stream lets go of them; a stream that is forgotten costs nothing worse
 * than that its blocks are given out last.
 */
struct space_stream {
    uint64_t next_block;       /* behind what it got last; 0: nothing yet */
    uint64_t window_end_block; /* next_block .. here is kept for it */
    uint32_t window_blocks;    /* how much to keep at the next refill */
    uint32_t window_epoch;
};

/*
 * Reserves up to `wanted` contiguous blocks, at least 1 (a cluster), all of one group. `stream` may
 * be NULL. If `goal` is free and not kept for another stream, the run begins there, if it has what
 * is wanted or 16 clusters; else in the stream's window; else behind the goal; or anywhere, if
 * there is no goal (0). Less than `wanted` comes only from the goal, from a window's end, or if
 * some bitmaps near by have no run of that length.
 *
 * May wait for the device. -ENOSPC exactly if nothing that the caller may use is free; -EAGAIN if
 * there will be something once the running transaction has committed; -EUCLEAN if there might be,
 * were it not for damaged groups. -EIO, -ENOMEM.
 */
int space_reserve(struct space *space, uint64_t goal, uint32_t wanted, unsigned int flags,
                  struct space_stream *stream, struct space_run *result) MUST_CHECK;

/* Gives back a reserved run or a part of one. */
void space_unreserve(struct space *space, struct space_run run);

/* Gives up the stream's window; the stream may go on. */
void space_end_stream(struct space *space, struct space_stream *stream);

/*
 * Credits that claiming or freeing a run takes: bitmap and descriptor of each group that it may
 * touch.
 */
uint32_t space_credits(const struct space *space, uint32_t blocks);

/*
 * Makes reserved blocks (a run or a part of one) allocated in the handle's transaction. On an error
 * they are still reserved, all of them.
 */
int space_claim(struct handle *handle, struct space *space, struct space_run run) MUST_CHECK;

/*
 * Frees allocated blocks. -EUCLEAN if one is free already or belongs to the format; then the part
 * of the run in the groups before that one is freed, and the caller stops the file system's
 * changes.
 */
int space_free(struct handle *handle, struct space *space, struct space_run run) MUST_CHECK;

/* Credits of the calls below. */
enum {
    SPACE_ALLOCATE_INODE_CREDITS = 4, /* bitmaps, descriptor, and the inode table's block */
    SPACE_FREE_INODE_CREDITS = 2,
    SPACE_SUPERBLOCK_CREDITS = 1,
};

/*
 * Allocates an inode near its parent; directories spread over the groups, and those in the root
 * (is_top_level) more so. The inode's bytes are initialised by the caller, whatever they are; its
 * block of the inode table is zeroed here, and then part of the transaction, if no inode in it was
 * ever used. -ENOSPC, or -EUCLEAN if only damaged groups might have one.
 */
int space_allocate_inode(struct handle *handle, struct space *space, uint32_t parent_ino,
                         bool is_dir, bool is_top_level, uint32_t *ino) MUST_CHECK;

/*
 * It may be given out at once, even in the same transaction. -EUCLEAN if it is free already, or
 * one of the reserved ones.
 */
int space_free_inode(struct handle *handle, struct space *space, uint32_t ino,
                     bool is_dir) MUST_CHECK;

struct space_usage {
    uint64_t free_blocks;      /* without those reserved in memory; freed ones count as free */
    uint64_t available_blocks; /* to callers without privilege */
    uint64_t free_inodes;
};

/* The first call may read all descriptors (see has_exact_counts). */
int space_get_usage(struct space *space, struct space_usage *usage) MUST_CHECK;

/*
 * Writes the summed free counts into the superblock; at sync, unmount. Exact if no other handle
 * claims or frees at the same time.
 */
int space_update_superblock(struct handle *handle, struct space *space) MUST_CHECK;

/*
 * Discards all free runs of at least `min_blocks` in a range (FITRIM), holding them meanwhile.
 * Returns how many blocks, or an error; -EOPNOTSUPP if the device cannot.
 */
int64_t space_trim(struct space *space, uint64_t first_block, uint64_t count, uint32_t min_blocks);

/* For tests and statistics. */
struct space_statistics {
    uint64_t bitmaps_read;    /* block bitmaps brought into memory */
    uint64_t bitmaps_scanned; /* searches of one group's bitmap for a run */
    uint64_t groups_locked;   /* by space_reserve */
    uint64_t window_hits;     /* requests served from a stream's window without a search */
    uint64_t windows_broken;  /* groups whose windows were given up as space was short */
    uint64_t discards;
    uint32_t bitmaps_in_memory; /* now */
    uint32_t groups_out_of_use;
};

void space_get_statistics(struct space *space, struct space_statistics *result);

#endif
