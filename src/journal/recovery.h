/* SPDX-License-Identifier: MIT */
/*
 * Recovery of a jbd2 journal: finding out what it holds for which disk block, and writing that
 * home. Format: Documentation/filesystems/ext4/journal.rst.
 *
 * The three passes (scan, revoke, replay) end in a table "disk block -> journal block"; a read-only
 * mount lays it over the device, a recovery writes it home.
 */
#ifndef UEXT4_JOURNAL_RECOVERY_H
#define UEXT4_JOURNAL_RECOVERY_H

#include "block/device.h"

/* A run of journal blocks on the device. */
struct journal_extent {
    uint32_t journal_block;
    uint32_t length_blocks;
    uint64_t disk_block;
};

/* Where a journal lies. Its inode may be fragmented; the extents are sorted and without gaps. */
struct journal_location {
    struct device *device;
    uint32_t block_bytes;    /* of the file system; the journal must have the same */
    uint32_t block_count;    /* of the journal's inode */
    uint64_t fs_block_count; /* bounds the blocks that it may write */
    uint32_t fs_first_data_block;
    uint8_t fs_uuid[16];
    const struct journal_extent *extents;
    size_t extent_count;
    const struct log *log;
};

/* The journal's superblock, checked. */
struct journal_superblock {
    uint32_t version; /* 1 or 2 */
    uint32_t block_bytes;
    uint32_t block_count; /* bounded by the location's */
    uint32_t first_block; /* first block of the log itself */
    uint32_t sequence;    /* of the first transaction in the log */
    uint32_t start_block; /* 0: the log is empty */
    int32_t error;        /* set by an aborted journal */
    uint32_t compat, incompat, ro_compat;
    uint8_t uuid[16];
    uint8_t checksum_type;
    uint32_t fast_commit_blocks; /* at the end of the journal; 0 without fast_commit */
    uint32_t log_blocks;         /* blocks first_block .. first_block + log_blocks - 1 wrap */
};

enum journal_incompat {
    JOURNAL_INCOMPAT_REVOKE = 0x1,
    JOURNAL_INCOMPAT_64BIT = 0x2,
    JOURNAL_INCOMPAT_ASYNC_COMMIT = 0x4,
    JOURNAL_INCOMPAT_CSUM_V2 = 0x8,
    JOURNAL_INCOMPAT_CSUM_V3 = 0x10,
    JOURNAL_INCOMPAT_FAST_COMMIT = 0x20,
};

enum journal_compat {
    JOURNAL_COMPAT_CHECKSUM = 0x1,
};

struct journal_replay_entry {
    uint64_t disk_block;
    uint64_t source_block; /* disk block that holds the content (inside the journal) */
    bool is_escaped;       /* its first 4 bytes are the journal's magic number */
};

struct journal_replay {
    struct journal_replay_entry *entries; /* sorted by disk block, each once: the newest wins */
    size_t entry_count;
    uint32_t transactions;
    uint32_t next_sequence;      /* what the journal must go on with: one past the first that is
                                    missing, so that what is left of that one never matches */
    uint64_t revoked_blocks;     /* blocks not replayed because of a revoke */
    uint32_t fast_commit_blocks; /* blocks with pending fast commits on top of this replay */
    bool had_bad_blocks;         /* a checksum did not match: of a data block, which was left out,
                                    or of a commit, which ended the log */
};

/*
 * Reads and checks the superblock. -EUCLEAN, -EBADMSG, -EOPNOTSUPP (unknown incompatible feature,
 * named in the log), -EINVAL for no journal superblock at all.
 */
int journal_read_superblock(const struct journal_location *location,
                            struct journal_superblock *result) MUST_CHECK;

/*
 * Runs scan, revoke and replay without writing. A log whose end is torn is replayed up to the last
 * whole transaction. The result must be freed with journal_replay_free. Memory in proportion to the
 * blocks in the log. Returns 0 also with had_bad_blocks. -EUCLEAN (a block outside the file system
 * or inside the journal, a revoke block's length), -EBADMSG (a descriptor's checksum, in a
 * committed transaction), -EIO, -ENOMEM.
 */
int journal_scan(const struct journal_location *location, const struct journal_superblock *sb,
                 struct journal_replay **result) MUST_CHECK;

void journal_replay_free(struct journal_replay *replay);

/*
 * Writes the blocks home, flushes, marks the journal empty with the next sequence, flushes. The
 * file system's own needs_recovery bit is the caller's, and must be cleared after this. Repeating
 * after a crash anywhere in it gives the same result. `had_bad_blocks` sets the journal's error as
 * jbd2 does. -EOPNOTSUPP, with nothing written, for unknown read-only compatible features.
 */
int journal_replay_apply(const struct journal_location *location,
                         const struct journal_superblock *sb,
                         const struct journal_replay *replay) MUST_CHECK;

/* 4 bytes at the start of every journal block, as they lie on the disk. */
extern const uint8_t journal_magic[4];

#endif
