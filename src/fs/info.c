/* SPDX-License-Identifier: MIT */
/*
 * What the file system is, and how full.
 *
 * The free counts come from the group descriptors, as kernel ext4 takes them: those of the
 * superblock are old after a crash. They and the overhead are summed once, at the first statfs.
 *
 * Locks: usage_mutex, over the first sum. Callers: mount.c; front ends through the public header.
 */
#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "fs/fs.h"
#include "space/allocate.h"

/* Kernel ext4 keeps a fiftieth of the clusters, 4096 at most, for extent trees that must grow. */
#define RESERVED_SHARE        50
#define RESERVED_MAX_CLUSTERS 4096

void fs_fill_info(const struct volume *volume, struct uext4_info *info)
{
    const struct superblock *sb = &volume->sb;
    const struct device_limits *limits = device_limits(volume->device);

    memcpy(info->uuid, sb->uuid, sizeof(info->uuid));
    memcpy(info->volume_name, sb->volume_name, sizeof(info->volume_name));
    memcpy(info->last_mounted, sb->last_mounted, sizeof(info->last_mounted));
    info->revision = sb->revision;
    info->creator_os = sb->creator_os;
    info->block_bytes = sb->block_bytes;
    info->cluster_bytes = sb->cluster_bytes;
    info->inode_bytes = sb->inode_bytes;
    info->group_descriptor_bytes = sb->descriptor_bytes;
    info->block_count = sb->block_count;
    info->free_block_count = sb->free_block_count;
    info->reserved_block_count = sb->reserved_block_count;
    info->overhead_block_count = sb->overhead_blocks;
    info->inode_count = sb->inode_count;
    info->free_inode_count = sb->free_inode_count;
    info->first_ino = sb->first_ino;
    info->first_data_block = sb->first_data_block;
    info->blocks_per_group = sb->blocks_per_group;
    info->clusters_per_group = sb->clusters_per_group;
    info->inodes_per_group = sb->inodes_per_group;
    info->group_count = sb->group_count;
    info->flex_group_count = sb->flex_group_count;
    info->feature_compat = sb->compat;
    info->feature_incompat = sb->incompat;
    info->feature_ro_compat = sb->ro_compat;
    info->state = sb->state;
    info->mount_count = sb->mount_count;
    info->max_mount_count = sb->max_mount_count;
    info->error_count = sb->error_count;
    info->default_hash_version = sb->default_hash_version;
    info->checksum_type = sb->checksum_type;
    info->encoding = sb->encoding;
    info->created = (time_t)sb->created;
    info->mounted = (time_t)sb->mounted;
    info->written = (time_t)sb->written;
    info->checked = (time_t)sb->checked;
    info->kib_written = sb->kib_written;
    info->default_mount_options = sb->default_mount_options;
    info->orphan_list_head = sb->last_orphan;
    info->has_orphan_file_entries = superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_ORPHAN_PRESENT);
    info->device_bytes = limits->size_bytes;
    info->is_direct = limits->is_direct;
    info->is_read_only = volume->journal == NULL;
}

void uext4_get_info(struct uext4 *fs, struct uext4_info *info)
{
    *info = fs->info;
}

const char *uext4_feature_name(enum uext4_feature_set set, unsigned int bit)
{
    return bit < 32 ? feature_name((enum feature_set)set, bit) : NULL;
}

int uext4_get_group(struct uext4 *fs, uint32_t number, struct uext4_group *result)
{
    const struct superblock *sb = &fs->volume.sb;
    struct group_descriptor group;
    int error = volume_read_group(&fs->volume, number, &group);

    if (error != 0)
        return error;
    *result = (struct uext4_group){
        .first_block = group_first_block(sb, number),
        .block_count = group_block_count(sb, number),
        .block_bitmap = group.block_bitmap,
        .inode_bitmap = group.inode_bitmap,
        .inode_table = group.inode_table,
        .free_clusters = group.free_clusters,
        .free_inodes = group.free_inodes,
        .used_directories = group.used_directories,
        .unused_inodes = group.unused_inodes,
        .is_block_uninit = (group.flags & GROUP_BLOCK_UNINIT) != 0,
        .is_inode_uninit = (group.flags & GROUP_INODE_UNINIT) != 0,
        .is_inode_table_zeroed = (group.flags & GROUP_INODE_ZEROED) != 0,
        .has_superblock = group_has_superblock(sb, number),
    };
    return 0;
}

static int sum_usage(struct uext4 *fs, struct usage *usage)
{
    const struct superblock *sb = &fs->volume.sb;
    uint64_t overhead = sb->first_data_block;

    *usage = (struct usage){.is_known = true};
    for (uint32_t number = 0; number < sb->group_count; number++) {
        struct group_descriptor group;
        int error = volume_read_group(&fs->volume, number, &group);

        if (error != 0)
            return error;
        usage->free_blocks += (uint64_t)group.free_clusters * sb->cluster_blocks;
        usage->free_inodes += group.free_inodes;
        overhead += group_base_metadata_blocks(sb, number) + sb->inode_table_blocks + 2;
    }
    if (superblock_has_compat(sb, FEATURE_COMPAT_HAS_JOURNAL) && sb->journal_ino != 0)
        overhead += fs->info.journal_block_count;
    usage->overhead_blocks = sb->overhead_blocks != 0 ? sb->overhead_blocks : overhead;
    return 0;
}

int uext4_statfs(struct uext4 *fs, struct uext4_statfs *statfs)
{
    const struct superblock *sb = &fs->volume.sb;
    uint64_t reserved = sb->reserved_block_count;
    struct usage usage;
    int error = 0;

    mutex_lock(&fs->usage_mutex);
    if (!fs->usage.is_known)
        error = sum_usage(fs, &fs->usage);
    if (error != 0)
        fs->usage.is_known = false;
    usage = fs->usage;
    mutex_unlock(&fs->usage_mutex);
    /* Where something may change, the allocator knows better. */
    if (error == 0 && fs->volume.space != NULL) {
        struct space_usage now;

        error = space_get_usage(fs->volume.space, &now);
        usage.free_blocks = now.free_blocks;
        usage.free_inodes = now.free_inodes;
    }
    if (error != 0)
        return error;

    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_EXTENTS)) {
        uint64_t clusters = sb->block_count / sb->cluster_blocks / RESERVED_SHARE;

        reserved += MIN(clusters, RESERVED_MAX_CLUSTERS) * sb->cluster_blocks;
    }
    *statfs = (struct uext4_statfs){
        .block_bytes = sb->block_bytes,
        .block_count = sb->block_count - MIN(usage.overhead_blocks, sb->block_count),
        .free_blocks = usage.free_blocks,
        .available_blocks = usage.free_blocks - MIN(reserved, usage.free_blocks),
        .inode_count = sb->inode_count,
        .free_inodes = usage.free_inodes,
        .name_max = UEXT4_NAME_MAX,
    };
    le64 halves[2];
    memcpy(halves, sb->uuid, sizeof(halves));
    statfs->fsid = le64_get(halves[0]) ^ le64_get(halves[1]);
    return 0;
}
