/* SPDX-License-Identifier: MIT */
/* The bytes of the superblock, for the files that convert them. */
#ifndef UEXT4_FORMAT_SUPERBLOCK_DISK_H
#define UEXT4_FORMAT_SUPERBLOCK_DISK_H

#include "base/byteorder.h"
#include "format/superblock.h"

struct disk_superblock {
    le32 inode_count;
    le32 block_count_low;
    le32 reserved_block_count_low;
    le32 free_block_count_low;
    le32 free_inode_count; /* 0x10 */
    le32 first_data_block;
    le32 log_block_size;
    le32 log_cluster_size;
    le32 blocks_per_group; /* 0x20 */
    le32 clusters_per_group;
    le32 inodes_per_group;
    le32 mounted;
    le32 written; /* 0x30 */
    le16 mount_count;
    le16 max_mount_count;
    le16 magic;
    le16 state;
    le16 errors_behaviour;
    le16 minor_revision;
    le32 checked; /* 0x40 */
    le32 check_interval;
    le32 creator_os;
    le32 revision;
    le16 default_uid; /* 0x50 */
    le16 default_gid;
    le32 first_ino;
    le16 inode_bytes;
    le16 block_group;
    le32 compat;
    le32 incompat; /* 0x60 */
    le32 ro_compat;
    uint8_t uuid[16];     /* 0x68 */
    char volume_name[16]; /* 0x78 */
    char last_mounted[64];
    le32 compression_algorithms; /* 0xc8 */
    uint8_t preallocated_blocks;
    uint8_t preallocated_directory_blocks;
    le16 reserved_descriptor_blocks;
    uint8_t journal_uuid[16]; /* 0xd0 */
    le32 journal_ino;
    le32 journal_device;
    le32 last_orphan;
    le32 hash_seed[4]; /* 0xec */
    uint8_t default_hash_version;
    uint8_t journal_backup_type;
    le16 descriptor_bytes;
    le32 default_mount_options; /* 0x100 */
    le32 first_meta_bg;
    le32 created;
    le32 journal_blocks[17];
    le32 block_count_high; /* 0x150 */
    le32 reserved_block_count_high;
    le32 free_block_count_high;
    le16 min_extra_isize;
    le16 want_extra_isize;
    le32 flags; /* 0x160 */
    le16 raid_stride;
    le16 mmp_interval;
    le64 mmp_block;
    le32 raid_stripe_width; /* 0x170 */
    uint8_t log_groups_per_flex;
    uint8_t checksum_type;
    le16 padding;
    le64 kib_written;
    le32 snapshot_ino; /* 0x180 */
    le32 snapshot_id;
    le64 snapshot_reserved_blocks;
    le32 snapshot_list; /* 0x190 */
    le32 error_count;
    le32 first_error_time;
    le32 first_error_ino;
    le64 first_error_block; /* 0x1a0 */
    uint8_t first_error_function[32];
    le32 first_error_line;
    le32 last_error_time;
    le32 last_error_ino; /* 0x1d0 */
    le32 last_error_line;
    le64 last_error_block;
    uint8_t last_error_function[32]; /* 0x1e0 */
    uint8_t mount_options[64];       /* 0x200 */
    le32 usr_quota_ino;              /* 0x240 */
    le32 grp_quota_ino;
    le32 overhead_clusters;
    le32 backup_groups[2];
    uint8_t encryption_algorithms[4]; /* 0x254 */
    uint8_t encryption_salt[16];
    le32 lost_found_ino; /* 0x268 */
    le32 prj_quota_ino;
    le32 checksum_seed; /* 0x270 */
    uint8_t written_high;
    uint8_t mounted_high;
    uint8_t created_high;
    uint8_t checked_high;
    uint8_t first_error_time_high;
    uint8_t last_error_time_high;
    uint8_t first_error_code;
    uint8_t last_error_code;
    le16 encoding;
    le16 encoding_flags;
    le32 orphan_file_ino; /* 0x280 */
    le32 reserved[94];
    le32 checksum;
};
_Static_assert(sizeof(struct disk_superblock) == SUPERBLOCK_BYTES, "superblock");
_Static_assert(offsetof(struct disk_superblock, uuid) == 0x68, "superblock uuid");
_Static_assert(offsetof(struct disk_superblock, hash_seed) == 0xec, "superblock hash seed");
_Static_assert(offsetof(struct disk_superblock, block_count_high) == 0x150, "superblock counts");
_Static_assert(offsetof(struct disk_superblock, mount_options) == 0x200, "superblock options");
_Static_assert(offsetof(struct disk_superblock, orphan_file_ino) == 0x280, "superblock orphans");

/* The checksum as it should be, whatever the features say. */
uint32_t superblock_checksum(const void *raw);

#endif
