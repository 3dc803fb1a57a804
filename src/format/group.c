/* SPDX-License-Identifier: MIT */
/*
 * Group descriptors and the layout of a group's start. All arithmetic relies on the bounds that
 * superblock_parse checked; `group` is below sb->group_count. Pure functions without locks, called
 * by the space and fs layers.
 */
#include "format/group.h"

#include <string.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/bitmap.h"
#include "format/crc.h"

/* Layouts of 64 bytes and more have the upper halves. */
#define DESCRIPTOR_BYTES_WITH_HIGH_HALVES 64

struct disk_group {
    le32 block_bitmap_low;
    le32 inode_bitmap_low;
    le32 inode_table_low;
    le16 free_clusters_low;
    le16 free_inodes_low;
    le16 used_directories_low; /* 0x10 */
    le16 flags;
    le32 exclude_bitmap_low;
    le16 block_bitmap_checksum_low; /* 0x18 */
    le16 inode_bitmap_checksum_low;
    le16 unused_inodes_low;
    le16 checksum;
    le32 block_bitmap_high; /* 0x20 */
    le32 inode_bitmap_high;
    le32 inode_table_high;
    le16 free_clusters_high;
    le16 free_inodes_high;
    le16 used_directories_high; /* 0x30 */
    le16 unused_inodes_high;
    le32 exclude_bitmap_high;
    le16 block_bitmap_checksum_high; /* 0x38 */
    le16 inode_bitmap_checksum_high;
    le32 reserved;
};
_Static_assert(sizeof(struct disk_group) == DESCRIPTOR_BYTES_WITH_HIGH_HALVES, "descriptor");
_Static_assert(offsetof(struct disk_group, checksum) == 0x1e, "descriptor checksum");

static bool is_power_of(uint32_t value, uint32_t base)
{
    while (value % base == 0)
        value /= base;
    return value == 1;
}

bool group_has_superblock(const struct superblock *sb, uint32_t group)
{
    if (group == 0)
        return true;
    if (superblock_has_compat(sb, FEATURE_COMPAT_SPARSE_SUPER2))
        return group == sb->backup_groups[0] || group == sb->backup_groups[1];
    if (group == 1 || !superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_SPARSE_SUPER))
        return true;
    return is_power_of(group, 3) || is_power_of(group, 5) || is_power_of(group, 7);
}

uint64_t group_first_block(const struct superblock *sb, uint32_t group)
{
    return sb->first_data_block + (uint64_t)group * sb->blocks_per_group;
}

uint64_t group_block_count(const struct superblock *sb, uint32_t group)
{
    uint64_t left = sb->block_count - group_first_block(sb, group);
    return MIN(left, sb->blocks_per_group);
}

/*
 * True if block 0 lies in group 0 but in front of the superblock's block: blocks of 1 KiB with
 * clusters, where groups begin at block 0 to keep clusters aligned.
 */
static bool has_boot_block(const struct superblock *sb, uint32_t group)
{
    return group == 0 && sb->block_bytes == SUPERBLOCK_OFFSET_BYTES && sb->first_data_block == 0;
}

/* Block of a group's copy of the superblock, if it has one. */
static uint64_t superblock_copy_block(const struct superblock *sb, uint32_t group)
{
    return group_first_block(sb, group) + (has_boot_block(sb, group) ? 1 : 0);
}

static bool is_in_meta_bg(const struct superblock *sb, uint32_t descriptor_block_index)
{
    return superblock_has_incompat(sb, FEATURE_INCOMPAT_META_BG) &&
           descriptor_block_index >= sb->first_meta_bg;
}

uint64_t group_descriptor_block(const struct superblock *sb, uint32_t group, uint32_t backup_group,
                                uint32_t *offset_bytes)
{
    uint32_t index = group / sb->descriptors_per_block;
    *offset_bytes = group % sb->descriptors_per_block * sb->descriptor_bytes;
    if (!is_in_meta_bg(sb, index))
        return superblock_copy_block(sb, backup_group) + 1 + index;

    /* The groups whose descriptors fill one block keep it in their first, second and last group,
     * behind that group's superblock. */
    uint32_t holder = index * sb->descriptors_per_block;
    if (backup_group != 0 && sb->descriptors_per_block > 1 && sb->group_count - holder > 1)
        holder++;
    return superblock_copy_block(sb, holder) + (group_has_superblock(sb, holder) ? 1 : 0);
}

uint32_t group_base_metadata_blocks(const struct superblock *sb, uint32_t group)
{
    uint32_t index = group / sb->descriptors_per_block;
    uint32_t blocks = has_boot_block(sb, group) ? 1 : 0;

    if (group_has_superblock(sb, group))
        blocks++;
    if (is_in_meta_bg(sb, index)) {
        uint32_t position = group % sb->descriptors_per_block;
        if (position <= 1 || position == sb->descriptors_per_block - 1)
            blocks++;
    } else if (group_has_superblock(sb, group)) {
        blocks += superblock_has_incompat(sb, FEATURE_INCOMPAT_META_BG)
                      ? sb->first_meta_bg
                      : sb->descriptor_block_count;
        blocks += sb->reserved_descriptor_blocks;
    }
    return blocks;
}

static uint16_t metadata_checksum(const struct superblock *sb, le32 group, const void *raw)
{
    const size_t offset = offsetof(struct disk_group, checksum);
    static const uint8_t zero[sizeof(le16)];
    uint32_t crc = crc32c(sb->checksum_seed, &group, sizeof(group));
    crc = crc32c(crc, raw, offset);
    crc = crc32c(crc, zero, sizeof(zero));
    crc = crc32c(crc, (const uint8_t *)raw + offset + sizeof(zero),
                 sb->descriptor_bytes - offset - sizeof(zero));
    return crc & 0xffff;
}

/* Unlike the other, it leaves its own field out. */
static uint16_t gdt_checksum(const struct superblock *sb, le32 group, const void *raw)
{
    const size_t offset = offsetof(struct disk_group, checksum);
    uint16_t crc = crc16(UINT16_MAX, sb->uuid, sizeof(sb->uuid));
    crc = crc16(crc, &group, sizeof(group));
    crc = crc16(crc, raw, offset);
    return crc16(crc, (const uint8_t *)raw + offset + sizeof(le16),
                 sb->descriptor_bytes - offset - sizeof(le16));
}

bool group_descriptor_checksum_matches(const struct superblock *sb, uint32_t group, const void *raw)
{
    const struct disk_group *disk = raw;
    if (sb->has_metadata_csum)
        return metadata_checksum(sb, le32_make(group), raw) == le16_get(disk->checksum);
    if (sb->has_gdt_csum)
        return gdt_checksum(sb, le32_make(group), raw) == le16_get(disk->checksum);
    return true;
}

static uint32_t join16(le16 low, le16 high)
{
    return (uint32_t)le16_get(high) << 16 | le16_get(low);
}

static uint64_t join32(le32 low, le32 high)
{
    return (uint64_t)le32_get(high) << 32 | le32_get(low);
}

static bool is_range_valid(const struct superblock *sb, uint64_t start, uint64_t length)
{
    return start > sb->first_data_block && start < sb->block_count &&
           length <= sb->block_count - start;
}

const char *group_descriptor_parse(const struct superblock *sb, uint32_t group, const void *raw,
                                   struct group_descriptor *result)
{
    struct disk_group disk = {0}; /* short descriptors leave the upper halves 0 */
    memcpy(&disk, raw, MIN(sb->descriptor_bytes, sizeof(disk)));

    *result = (struct group_descriptor){
        .block_bitmap = join32(disk.block_bitmap_low, disk.block_bitmap_high),
        .inode_bitmap = join32(disk.inode_bitmap_low, disk.inode_bitmap_high),
        .inode_table = join32(disk.inode_table_low, disk.inode_table_high),
        .free_clusters = join16(disk.free_clusters_low, disk.free_clusters_high),
        .free_inodes = join16(disk.free_inodes_low, disk.free_inodes_high),
        .used_directories = join16(disk.used_directories_low, disk.used_directories_high),
        .block_bitmap_checksum = join16(disk.block_bitmap_checksum_low,
                                        disk.block_bitmap_checksum_high),
        .inode_bitmap_checksum = join16(disk.inode_bitmap_checksum_low,
                                        disk.inode_bitmap_checksum_high),
    };
    /* Without checksums of descriptors these fields mean nothing. */
    if (sb->has_metadata_csum || sb->has_gdt_csum) {
        result->unused_inodes = join16(disk.unused_inodes_low, disk.unused_inodes_high);
        result->flags = le16_get(disk.flags);
    }

    uint32_t clusters = group_cluster_count(sb, group);
    if (!is_range_valid(sb, result->block_bitmap, 1))
        return "block bitmap outside the file system";
    if (!is_range_valid(sb, result->inode_bitmap, 1))
        return "inode bitmap outside the file system";
    if (!is_range_valid(sb, result->inode_table, sb->inode_table_blocks))
        return "inode table outside the file system";
    if (result->free_clusters > clusters)
        return "more free clusters than the group has";
    if (result->free_inodes > sb->inodes_per_group)
        return "more free inodes than the group has";
    if (result->used_directories > sb->inodes_per_group)
        return "more directories than the group has inodes";
    if (result->unused_inodes > sb->inodes_per_group)
        return "more unused inodes than the group has";
    return NULL;
}

/* Writes the halves of a field; short descriptors have no upper half. */
static void split16(uint32_t value, le16 *low, le16 *high)
{
    *low = le16_make((uint16_t)value);
    *high = le16_make((uint16_t)(value >> 16));
}

static void split32(uint64_t value, le32 *low, le32 *high)
{
    *low = le32_make((uint32_t)value);
    *high = le32_make((uint32_t)(value >> 32));
}

void group_descriptor_format(const struct superblock *sb, uint32_t group,
                             const struct group_descriptor *descriptor, void *raw)
{
    const size_t bytes = MIN(sb->descriptor_bytes, sizeof(struct disk_group));
    struct disk_group disk = {0};

    memcpy(&disk, raw, bytes);
    split32(descriptor->block_bitmap, &disk.block_bitmap_low, &disk.block_bitmap_high);
    split32(descriptor->inode_bitmap, &disk.inode_bitmap_low, &disk.inode_bitmap_high);
    split32(descriptor->inode_table, &disk.inode_table_low, &disk.inode_table_high);
    split16(descriptor->free_clusters, &disk.free_clusters_low, &disk.free_clusters_high);
    split16(descriptor->free_inodes, &disk.free_inodes_low, &disk.free_inodes_high);
    split16(descriptor->used_directories, &disk.used_directories_low, &disk.used_directories_high);
    split16(descriptor->block_bitmap_checksum, &disk.block_bitmap_checksum_low,
            &disk.block_bitmap_checksum_high);
    split16(descriptor->inode_bitmap_checksum, &disk.inode_bitmap_checksum_low,
            &disk.inode_bitmap_checksum_high);
    if (sb->has_metadata_csum || sb->has_gdt_csum) {
        split16(descriptor->unused_inodes, &disk.unused_inodes_low, &disk.unused_inodes_high);
        disk.flags = le16_make(descriptor->flags);
    }
    memcpy(raw, &disk, bytes);

    le16 checksum;
    if (sb->has_metadata_csum)
        checksum = le16_make(metadata_checksum(sb, le32_make(group), raw));
    else if (sb->has_gdt_csum)
        checksum = le16_make(gdt_checksum(sb, le32_make(group), raw));
    else
        return;
    memcpy((uint8_t *)raw + offsetof(struct disk_group, checksum), &checksum, sizeof(checksum));
}

uint32_t group_cluster_count(const struct superblock *sb, uint32_t group)
{
    return (uint32_t)((group_block_count(sb, group) + sb->cluster_blocks - 1) / sb->cluster_blocks);
}

/* Sets the clusters of those blocks that lie in the group. */
static void mark_blocks(const struct superblock *sb, uint32_t group, uint64_t start,
                        uint64_t length, void *bitmap)
{
    uint64_t first = group_first_block(sb, group), end = first + group_block_count(sb, group);
    uint64_t from = MAX(start, first), to = MIN(start + length, end);

    if (from < to)
        bitmap_set(bitmap, (uint32_t)((from - first) / sb->cluster_blocks),
                   (uint32_t)((to - 1 - first) / sb->cluster_blocks + 1));
}

void group_init_block_bitmap(const struct superblock *sb, uint32_t group,
                             const struct group_descriptor *descriptor, void *bitmap)
{
    memset(bitmap, 0, sb->block_bytes);
    mark_blocks(sb, group, group_first_block(sb, group), group_base_metadata_blocks(sb, group),
                bitmap);
    mark_blocks(sb, group, descriptor->block_bitmap, 1, bitmap);
    mark_blocks(sb, group, descriptor->inode_bitmap, 1, bitmap);
    mark_blocks(sb, group, descriptor->inode_table, sb->inode_table_blocks, bitmap);
    bitmap_set(bitmap, group_cluster_count(sb, group), 8 * sb->block_bytes);
}

void group_init_inode_bitmap(const struct superblock *sb, void *bitmap)
{
    memset(bitmap, 0, sb->block_bytes);
    bitmap_set(bitmap, sb->inodes_per_group, 8 * sb->block_bytes);
}

static bool overlaps(uint64_t start, uint64_t length, uint64_t other_start, uint64_t other_length)
{
    return start < other_start + other_length && other_start < start + length;
}

bool group_owns_metadata(const struct superblock *sb, uint32_t group,
                         const struct group_descriptor *descriptor, uint64_t first_block,
                         uint64_t length_blocks)
{
    return overlaps(first_block, length_blocks, group_first_block(sb, group),
                    group_base_metadata_blocks(sb, group)) ||
           overlaps(first_block, length_blocks, descriptor->block_bitmap, 1) ||
           overlaps(first_block, length_blocks, descriptor->inode_bitmap, 1) ||
           overlaps(first_block, length_blocks, descriptor->inode_table, sb->inode_table_blocks);
}
