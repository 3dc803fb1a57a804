/* SPDX-License-Identifier: MIT */
/*
 * The superblock: from bytes of any content to host values that agree with each other. Everything
 * that other layers divide by or multiply with is bounded here, once; they rely on it. Pure
 * functions without locks; the caller reads the bytes and judges features (features.c).
 */
#include "format/superblock.h"

#include <string.h>

#include "base/compiler.h"
#include "format/crc.h"
#include "format/superblock_disk.h"

#define CHECKSUM_TYPE_CRC32C   1
#define FLAG_UNSIGNED_HASH     0x2
#define REV0_INODE_BYTES       128
#define FIRST_INO_MIN          11
#define BLOCK_BITS_MIN         10
#define LOG_BLOCK_MAX          6
#define DESCRIPTOR_BYTES_SMALL 32
#define DESCRIPTOR_BYTES_MIN   64 /* with 64bit */
#define DESCRIPTOR_BYTES_MAX   1024
#define BLOCK_COUNT_MAX        ((uint64_t)1 << 48) /* extents have 48 bits */

static uint64_t join(le32 low, uint64_t high)
{
    return high << 32 | le32_get(low);
}

static bool is_power_of_two(uint32_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

bool superblock_has_magic(const void *raw)
{
    const struct disk_superblock *disk = raw;
    return le16_get(disk->magic) == SUPERBLOCK_MAGIC;
}

bool superblock_checksum_matches(const void *raw)
{
    const struct disk_superblock *disk = raw;
    if ((le32_get(disk->ro_compat) & FEATURE_RO_COMPAT_METADATA_CSUM) == 0)
        return true;
    return superblock_checksum(raw) == le32_get(disk->checksum);
}

static const char *parse_revision_and_features(const struct disk_superblock *disk,
                                               struct superblock *sb)
{
    sb->revision = le32_get(disk->revision);
    sb->compat = le32_get(disk->compat);
    sb->incompat = le32_get(disk->incompat);
    sb->ro_compat = le32_get(disk->ro_compat);
    sb->checksum_type = disk->checksum_type;
    sb->has_metadata_csum = superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_METADATA_CSUM);
    sb->has_gdt_csum = superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_GDT_CSUM) &&
                       !sb->has_metadata_csum;
    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_JOURNAL_DEV))
        return "external journal device, not a file system";
    if (sb->revision > 1)
        return "unknown revision";
    if (sb->has_metadata_csum && sb->checksum_type != CHECKSUM_TYPE_CRC32C)
        return "unknown checksum type";
    return NULL;
}

static const char *parse_block_sizes(const struct disk_superblock *disk, struct superblock *sb)
{
    uint32_t log_block = le32_get(disk->log_block_size);
    uint32_t log_cluster = le32_get(disk->log_cluster_size);

    if (log_block > LOG_BLOCK_MAX)
        return "block size out of range";
    sb->block_bits = BLOCK_BITS_MIN + log_block;
    sb->block_bytes = (uint32_t)1 << sb->block_bits;
    sb->cluster_blocks = 1;
    if (superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_BIGALLOC)) {
        /* A cluster has to fit into 32 bits, and its bitmap needs at least one bit. */
        if (log_cluster < log_block || log_cluster > 31 - BLOCK_BITS_MIN)
            return "cluster size out of range";
        sb->cluster_blocks = (uint32_t)1 << (log_cluster - log_block);
    } else if (log_cluster != log_block) {
        return "cluster size differs from the block size";
    }
    sb->cluster_bytes = sb->block_bytes * sb->cluster_blocks;

    /* The superblock at byte 1024 needs a block of its own if blocks are that small. */
    sb->first_data_block = le32_get(disk->first_data_block);
    if (sb->first_data_block != (sb->block_bytes == 1024 && sb->cluster_blocks == 1 ? 1 : 0))
        return "wrong first data block";
    return NULL;
}

static const char *parse_block_counts(const struct disk_superblock *disk, uint64_t device_bytes,
                                      struct superblock *sb)
{
    bool has_high = superblock_has_incompat(sb, FEATURE_INCOMPAT_64BIT);
    sb->block_count = join(disk->block_count_low, has_high ? le32_get(disk->block_count_high) : 0);
    sb->reserved_block_count = join(disk->reserved_block_count_low,
                                    has_high ? le32_get(disk->reserved_block_count_high) : 0);
    sb->free_block_count = join(disk->free_block_count_low,
                                has_high ? le32_get(disk->free_block_count_high) : 0);
    sb->overhead_blocks = (uint64_t)le32_get(disk->overhead_clusters) * sb->cluster_blocks;

    if (sb->block_count <= sb->first_data_block)
        return "no blocks";
    if (sb->block_count > BLOCK_COUNT_MAX ||
        sb->block_count > (uint64_t)INT64_MAX >> sb->block_bits)
        return "block count out of range";
    if (device_bytes != 0 && sb->block_count > device_bytes >> sb->block_bits)
        return "file system larger than its device";
    /* These only inform, and may be stale or wrong after a crash. */
    sb->reserved_block_count = MIN(sb->reserved_block_count, sb->block_count);
    sb->free_block_count = MIN(sb->free_block_count, sb->block_count);
    sb->overhead_blocks = MIN(sb->overhead_blocks, sb->block_count);
    return NULL;
}

static const char *parse_inode_sizes(const struct disk_superblock *disk, struct superblock *sb)
{
    sb->inode_bytes = sb->revision == 0 ? REV0_INODE_BYTES : le16_get(disk->inode_bytes);
    sb->first_ino = sb->revision == 0 ? FIRST_INO_MIN : le32_get(disk->first_ino);
    sb->inode_count = le32_get(disk->inode_count);
    if (sb->inode_bytes < REV0_INODE_BYTES || sb->inode_bytes > sb->block_bytes ||
        !is_power_of_two(sb->inode_bytes))
        return "inode size out of range";
    if (sb->first_ino < FIRST_INO_MIN || sb->first_ino > sb->inode_count)
        return "first inode out of range";
    sb->inodes_per_block = sb->block_bytes / sb->inode_bytes;
    sb->free_inode_count = MIN(le32_get(disk->free_inode_count), sb->inode_count);

    /* What does not fit is corrected to the fields known when the format was last extended. */
    uint32_t room_bytes = sb->inode_bytes - REV0_INODE_BYTES;
    sb->want_extra_isize = le16_get(disk->want_extra_isize);
    if (sb->want_extra_isize > room_bytes)
        sb->want_extra_isize = MIN(room_bytes, 32);
    return NULL;
}

static const char *parse_groups(const struct disk_superblock *disk, struct superblock *sb)
{
    const uint32_t bitmap_bits = 8 * sb->block_bytes;

    sb->blocks_per_group = le32_get(disk->blocks_per_group);
    sb->inodes_per_group = le32_get(disk->inodes_per_group);
    sb->clusters_per_group = superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_BIGALLOC)
                                 ? le32_get(disk->clusters_per_group)
                                 : sb->blocks_per_group;
    if (sb->clusters_per_group == 0 || sb->clusters_per_group > bitmap_bits)
        return "group size out of range";
    if (sb->blocks_per_group != (uint64_t)sb->clusters_per_group * sb->cluster_blocks)
        return "blocks and clusters per group disagree";
    if (sb->inodes_per_group < sb->inodes_per_block || sb->inodes_per_group > bitmap_bits)
        return "inodes per group out of range";
    sb->inode_table_blocks = (sb->inodes_per_group + sb->inodes_per_block - 1) /
                             sb->inodes_per_block;

    uint64_t group_count = (sb->block_count - sb->first_data_block + sb->blocks_per_group - 1) /
                           sb->blocks_per_group;
    /* Also bounds the number of groups to 32 bits. */
    if (group_count > UINT32_MAX || group_count * sb->inodes_per_group != sb->inode_count)
        return "inode count and number of groups disagree";
    sb->group_count = (uint32_t)group_count;

    uint32_t log_flex = disk->log_groups_per_flex;
    sb->flex_group_count = 1;
    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_FLEX_BG)) {
        if (log_flex > 31)
            return "flex_bg size out of range";
        sb->flex_group_count = (uint32_t)1 << log_flex;
    }
    sb->backup_groups[0] = le32_get(disk->backup_groups[0]);
    sb->backup_groups[1] = le32_get(disk->backup_groups[1]);
    return NULL;
}

static const char *parse_descriptors(const struct disk_superblock *disk, struct superblock *sb)
{
    sb->descriptor_bytes = DESCRIPTOR_BYTES_SMALL;
    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_64BIT)) {
        sb->descriptor_bytes = le16_get(disk->descriptor_bytes);
        if (sb->descriptor_bytes < DESCRIPTOR_BYTES_MIN ||
            sb->descriptor_bytes > DESCRIPTOR_BYTES_MAX || !is_power_of_two(sb->descriptor_bytes))
            return "group descriptor size out of range";
    }
    sb->descriptors_per_block = sb->block_bytes / sb->descriptor_bytes;
    sb->descriptor_block_count =
        (uint32_t)(((uint64_t)sb->group_count + sb->descriptors_per_block - 1) /
                   sb->descriptors_per_block);
    sb->reserved_descriptor_blocks = le16_get(disk->reserved_descriptor_blocks);
    /* Their numbers have to fit into one block of the resize inode. */
    if (sb->reserved_descriptor_blocks > sb->block_bytes / 4)
        return "too many reserved descriptor blocks";
    sb->first_meta_bg = le32_get(disk->first_meta_bg);
    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_META_BG) &&
        sb->first_meta_bg > sb->descriptor_block_count)
        return "first_meta_bg out of range";
    return NULL;
}

static void parse_errors(const struct disk_superblock *disk, struct superblock *sb)
{
    sb->error_count = le32_get(disk->error_count);
    sb->first_error = (struct superblock_error){
        .time = join(disk->first_error_time, disk->first_error_time_high),
        .block = le64_get(disk->first_error_block),
        .ino = le32_get(disk->first_error_ino),
        .line = le32_get(disk->first_error_line),
        .code = disk->first_error_code,
    };
    sb->last_error = (struct superblock_error){
        .time = join(disk->last_error_time, disk->last_error_time_high),
        .block = le64_get(disk->last_error_block),
        .ino = le32_get(disk->last_error_ino),
        .line = le32_get(disk->last_error_line),
        .code = disk->last_error_code,
    };
    memcpy(sb->first_error.function, disk->first_error_function, SUPERBLOCK_ERROR_FUNCTION_BYTES);
    memcpy(sb->last_error.function, disk->last_error_function, SUPERBLOCK_ERROR_FUNCTION_BYTES);
}

static void parse_description(const struct disk_superblock *disk, struct superblock *sb)
{
    sb->creator_os = le32_get(disk->creator_os);
    sb->flags = le32_get(disk->flags);
    sb->state = le16_get(disk->state);
    sb->errors_behaviour = le16_get(disk->errors_behaviour);
    sb->mount_count = le16_get(disk->mount_count);
    sb->max_mount_count = le16_get(disk->max_mount_count);
    sb->default_uid = le16_get(disk->default_uid);
    sb->default_gid = le16_get(disk->default_gid);
    sb->created = join(disk->created, disk->created_high);
    sb->mounted = join(disk->mounted, disk->mounted_high);
    sb->written = join(disk->written, disk->written_high);
    sb->checked = join(disk->checked, disk->checked_high);
    sb->kib_written = le64_get(disk->kib_written);
    parse_errors(disk, sb);
    sb->default_mount_options = le32_get(disk->default_mount_options);
    memcpy(sb->uuid, disk->uuid, sizeof(sb->uuid));
    memcpy(sb->volume_name, disk->volume_name, sizeof(disk->volume_name));
    memcpy(sb->last_mounted, disk->last_mounted, sizeof(disk->last_mounted));
    sb->encoding = le16_get(disk->encoding);
    sb->encoding_flags = le16_get(disk->encoding_flags);
    sb->mmp_interval = le16_get(disk->mmp_interval);
    sb->mmp_block = le64_get(disk->mmp_block);
}

static void parse_references(const struct disk_superblock *disk, struct superblock *sb)
{
    sb->journal_ino = le32_get(disk->journal_ino);
    sb->journal_device = le32_get(disk->journal_device);
    memcpy(sb->journal_uuid, disk->journal_uuid, sizeof(sb->journal_uuid));
    sb->journal_backup_type = disk->journal_backup_type;
    for (unsigned int i = 0; i < ARRAY_LENGTH(sb->journal_blocks); i++)
        sb->journal_blocks[i] = le32_get(disk->journal_blocks[i]);
    sb->last_orphan = le32_get(disk->last_orphan);
    sb->orphan_file_ino = le32_get(disk->orphan_file_ino);
    sb->usr_quota_ino = le32_get(disk->usr_quota_ino);
    sb->grp_quota_ino = le32_get(disk->grp_quota_ino);
    sb->prj_quota_ino = le32_get(disk->prj_quota_ino);
}

static void parse_hash_and_seed(const struct disk_superblock *disk, struct superblock *sb)
{
    for (unsigned int i = 0; i < ARRAY_LENGTH(sb->hash_seed); i++)
        sb->hash_seed[i] = le32_get(disk->hash_seed[i]);
    sb->default_hash_version = disk->default_hash_version;
    sb->is_hash_unsigned = (sb->flags & FLAG_UNSIGNED_HASH) != 0;
    sb->checksum_seed = superblock_has_incompat(sb, FEATURE_INCOMPAT_CSUM_SEED)
                            ? le32_get(disk->checksum_seed)
                            : crc32c(UINT32_MAX, disk->uuid, sizeof(disk->uuid));
}

const char *superblock_parse(const void *raw, uint64_t device_bytes, struct superblock *result)
{
    const struct disk_superblock *disk = raw;
    const char *problem;

    *result = (struct superblock){0};
    if (!superblock_has_magic(raw))
        return "no magic number";
    if ((problem = parse_revision_and_features(disk, result)) != NULL)
        return problem;
    if ((problem = parse_block_sizes(disk, result)) != NULL)
        return problem;
    if ((problem = parse_block_counts(disk, device_bytes, result)) != NULL)
        return problem;
    if ((problem = parse_inode_sizes(disk, result)) != NULL)
        return problem;
    if ((problem = parse_groups(disk, result)) != NULL)
        return problem;
    if ((problem = parse_descriptors(disk, result)) != NULL)
        return problem;
    parse_description(disk, result);
    parse_references(disk, result);
    parse_hash_and_seed(disk, result);
    return NULL;
}
