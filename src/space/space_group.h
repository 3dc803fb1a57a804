/* SPDX-License-Identifier: MIT */
/* What the files of the allocator share: the space, and its groups in memory. */
#ifndef UEXT4_SPACE_SPACE_GROUP_H
#define UEXT4_SPACE_SPACE_GROUP_H

#include <stdatomic.h>

#include "base/lock.h"
#include "format/bitmap.h"
#include "space/allocate.h"

/*
 * A group that was used. `taken` and `blocked` exist together, or not (the group was not searched
 * yet, or they were dropped): taken = on the disk | reserved | freed and not committed; blocked =
 * taken | windows of streams.
 */
struct space_group {
    struct mutex mutex;
    uint32_t number;                           /* [immutable] */
    uint32_t cluster_count;                    /* [immutable] */
    uint32_t initial_clusters, initial_inodes; /* [immutable] free when the volume was opened */
    struct group_descriptor descriptor;        /* [mutex] as the running transaction has it */
    uint8_t *taken, *blocked;                  /* [mutex] one piece of memory */
    struct bitmap_run *metadata;               /* [mutex] runs that belong to the format */
    uint32_t metadata_count;                   /* [mutex] */
    uint32_t free;                             /* [mutex] zeros in `taken`, also without it */
    uint32_t windowed;                         /* [mutex] zeros in `taken`, ones in `blocked` */
    uint32_t held;                             /* [mutex] reserved, or freed and not committed */
    uint32_t longest;                          /* [mutex] no zero run of `blocked` is longer */
    uint32_t next;                             /* [mutex] where the next search begins */
    uint32_t window_epoch;                     /* [mutex] windows of an older one are gone */
    uint32_t next_inode;                       /* [mutex] bits before it are in use */
    bool has_metadata;                         /* [mutex] `metadata` was collected */
    bool has_bad_blocks, has_bad_inodes;       /* [mutex] out of use */
};

/* The runs that one transaction freed, to be released when it has committed. */
struct space_freed;

#define SPACE_HINT_UNKNOWN UINT32_MAX
#define SPACE_HINT_WINDOWS 0x80000000u /* beside a run's length: the group has windows too */

struct space {
    struct volume *volume;        /* [immutable] */
    struct journal *journal;      /* [immutable] */
    struct space_options options; /* [immutable] */
    int64_t root_clusters;        /* [immutable] kept for SPACE_PRIVILEGED */
    uint32_t max_bitmaps;         /* [immutable] groups that keep their bitmaps in memory idly */

    _Atomic(struct space_group *) *groups; /* [atomic] NULL: not used yet */
    _Atomic uint32_t *run_hints;   /* [atomic] no free run is longer; or SPACE_HINT_UNKNOWN */
    _Atomic uint32_t *inode_hints; /* [atomic] free inodes; or SPACE_HINT_UNKNOWN */
    _Atomic uint32_t cursor;       /* [atomic] group where requests without a goal begin */
    _Atomic uint32_t spread;       /* [atomic] counts directories that were spread */

    _Atomic int64_t usable;        /* [atomic] free clusters that may be reserved */
    _Atomic int64_t freed;         /* [atomic] clusters freed, and not committed */
    _Atomic int64_t out_of_use;    /* [atomic] free clusters in damaged groups */
    _Atomic int64_t cluster_delta; /* [atomic] free ones on the disk, against the opening */
    _Atomic int64_t inode_delta;   /* [atomic] */
    _Atomic bool has_bad_groups;   /* [atomic] damaged groups that may have had free clusters */
    _Atomic bool has_bad_inodes;   /* [atomic] */

    struct mutex count_mutex;         /* leaf */
    struct condition search_ended;    /* [count_mutex] */
    _Atomic unsigned int has_waiters; /* [atomic] */
    int64_t base_clusters;            /* [count_mutex] free at the opening */
    int64_t base_inodes;              /* [count_mutex] */
    _Atomic bool is_summed;           /* [atomic] the bases were summed up, or known */
    _Atomic uint64_t searches;        /* [atomic] started ones << 32, those under way below */

    struct mutex freed_mutex;
    struct space_freed *running_freed; /* [freed_mutex] of the running transaction */

    _Atomic uint64_t bitmaps_read, bitmaps_scanned, groups_locked; /* [atomic] */
    _Atomic uint64_t window_hits, windows_broken, discards;        /* [atomic] */
    _Atomic uint32_t bitmaps_in_memory, groups_out_of_use;         /* [atomic] */
    _Atomic bool has_discard;                                      /* [atomic] */
};

/* A run of clusters of a group: bits [from, to) of its bitmap. */
struct space_piece {
    uint32_t group;
    uint32_t from, to;
};

/* The first piece of a run, which must lie in the file system; *run becomes the rest. */
struct space_piece space_next_piece(const struct superblock *sb, struct space_run *run);

struct space_run space_piece_to_run(const struct superblock *sb, uint32_t group, uint32_t from,
                                    uint32_t to);

/* Gives a group's state, made when it is first asked for. Reads the descriptor then. */
int space_group_get(struct space *space, uint32_t number, struct space_group **group) MUST_CHECK;

/*
 * Locks a group with its bitmaps in memory, read and checked if need be; an error leaves it
 * unlocked. -EUCLEAN for a group that is out of use.
 */
int space_group_lock(struct space *space, struct space_group *group) MUST_CHECK;

/* Unlocks; drops the bitmaps if there are too many and nothing needs these. */
void space_group_unlock(struct space *space, struct space_group *group);

/* After a change of the counts: brings the hints of the group up to date. */
void space_group_update_hints_locked(struct space *space, struct space_group *group);

/* Takes the group's blocks out of use. */
void space_group_condemn_locked(struct space *space, struct space_group *group, const char *reason);

/* Gives up all windows. */
void space_group_clear_windows_locked(struct space *space, struct space_group *group);

/* Makes clusters free again that were reserved, or freed and committed. */
void space_group_release(struct space *space, struct space_piece piece);

/* A known bound of the longest free run, reading the descriptor if it is not known yet. */
int space_group_read_hints(struct space *space, uint32_t number) MUST_CHECK;

/* Sums up what was free at the opening, unless that was done. */
int space_sum(struct space *space) MUST_CHECK;

/* Searches hold part of `usable` that they may give back; others wait for them before ENOSPC. */
void space_begin_search(struct space *space);
void space_end_search(struct space *space);

/* Waits until none is under way, or at least one has ended. */
void space_wait_for_searches(struct space *space);

static inline uint32_t space_inodes_in_use_bound(const struct superblock *sb,
                                                 const struct group_descriptor *descriptor)
{
    if ((descriptor->flags & GROUP_INODE_UNINIT) != 0)
        return 0;
    return sb->inodes_per_group - descriptor->unused_inodes;
}

#endif
