/* SPDX-License-Identifier: MIT */
/*
 * The first steps of a mount and of a recovery: the device, the superblock, the journal's place.
 *
 * Locks: none; nobody else knows the volume yet. Callers: mount.c, recover.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/fs.h"
#include "map/map.h"

#define FEATURE_NAMES_BYTES 512
#define MAX_JOURNAL_BLOCKS  UINT32_MAX
#define MAX_JOURNAL_PIECES  (1u << 18) /* bounds the memory for a journal that claims any size */

static void write_log(void *context, enum log_level level, const char *message)
{
    const struct uext4_mount_options *options = context;

    options->log(options->log_context, (enum uext4_log_level)level, message);
}

void fs_log_init(struct log *log, const struct uext4_mount_options *options)
{
    log->write = options->log != NULL ? write_log : NULL;
    log->context = (void *)(uintptr_t)options;
    log->max_level = (enum log_level)options->log_level;
}

static int open_device(const char *spec, const struct uext4_mount_options *options,
                       bool is_writable, uint32_t alignment_wanted, const struct log *log,
                       struct device **device)
{
    static const int direct_modes[] = {
        [UEXT4_DIRECT_AUTO] = -1, [UEXT4_DIRECT_OFF] = 0, [UEXT4_DIRECT_ON] = 1};
    struct device_open_options open_options = {
        .is_writable = is_writable,
        .direct = direct_modes[options->direct],
        .min_offset_alignment_wanted = alignment_wanted,
        .log = log,
    };

    return device_open(spec, &open_options, device);
}

/* Reads and checks the superblock on the open device. */
static int read_superblock(const struct uext4_mount_options *options, struct volume *volume)
{
    uint64_t offset = options->superblock == 0 ? SUPERBLOCK_OFFSET_BYTES
                                               : options->superblock << 10;
    uint64_t device_bytes = device_limits(volume->device)->size_bytes;
    uint8_t raw[SUPERBLOCK_BYTES];
    char names[FEATURE_NAMES_BYTES];
    const char *hint = options->superblock == 0 ? " (a backup may be good: sb=8193 or sb=32768)"
                                                : "";

    if (device_bytes < offset + sizeof(raw)) {
        log_error(volume->log, "the device has %llu bytes: too small for a superblock at %llu",
                  (unsigned long long)device_bytes, (unsigned long long)offset);
        return -EINVAL;
    }
    int error = device_read(volume->device, raw, sizeof(raw), offset);
    if (error != 0) {
        log_error(volume->log, "cannot read the superblock at offset %llu: %s",
                  (unsigned long long)offset, strerror(-error));
        return error;
    }
    if (!superblock_has_magic(raw)) {
        log_error(volume->log, "no ext2, ext3 or ext4 superblock at offset %llu%s",
                  (unsigned long long)offset, hint);
        return -EINVAL;
    }
    if (!options->skip_checksums && !superblock_checksum_matches(raw)) {
        log_error(volume->log, "superblock: checksum does not match%s", hint);
        return -EBADMSG;
    }
    const char *reason = superblock_parse(raw, device_bytes, &volume->sb);
    if (reason != NULL) {
        log_error(volume->log, "superblock: %s%s", reason, hint);
        return -EUCLEAN;
    }
    if (superblock_unsupported_features(&volume->sb, names, sizeof(names)) > 0) {
        log_error(volume->log, "features that are not supported: %s", names);
        return -EOPNOTSUPP;
    }
    if (options->superblock != 0) {
        uint64_t block = offset / volume->sb.block_bytes;

        volume->backup_group =
            (uint32_t)((block - volume->sb.first_data_block) / volume->sb.blocks_per_group);
        if (block < volume->sb.first_data_block || volume->backup_group >= volume->sb.group_count) {
            log_error(volume->log, "sb=%llu lies outside the file system",
                      (unsigned long long)options->superblock);
            return -EINVAL;
        }
    }
    return 0;
}

int fs_open_volume(const char *spec, const struct uext4_mount_options *options, bool is_writable,
                   const struct log *log, struct volume *volume)
{
    *volume = (struct volume){.log = log, .skip_checksums = options->skip_checksums};
    int error = open_device(spec, options, is_writable, 0, log, &volume->device);

    if (error != 0)
        return error;
    error = read_superblock(options, volume);
    /* Direct I/O in units larger than a block is of no use: open the device anew without it. */
    if (error == 0 && device_limits(volume->device)->offset_alignment > volume->sb.block_bytes) {
        device_close(volume->device);
        error = open_device(spec, options, is_writable, volume->sb.block_bytes, log,
                            &volume->device);
        if (error != 0)
            return error;
        error = read_superblock(options, volume);
    }
    if (error != 0)
        device_close(volume->device);
    return error;
}

bool fs_has_external_journal(const struct superblock *sb)
{
    return superblock_has_compat(sb, FEATURE_COMPAT_HAS_JOURNAL) && sb->journal_ino == 0;
}

static int compare_disk_blocks(const void *a, const void *b)
{
    const struct journal_extent *left = a, *right = b;

    return (left->disk_block > right->disk_block) - (left->disk_block < right->disk_block);
}

/* Blocks that stand for many would make the log as long as they like. */
static int check_no_overlap(const struct inode *inode, const struct journal_extent *extents,
                            size_t count)
{
    struct journal_extent *sorted = malloc(count * sizeof(*sorted));
    int error = 0;

    if (sorted == NULL)
        return -ENOMEM;
    memcpy(sorted, extents, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_disk_blocks);
    for (size_t i = 1; i < count && error == 0; i++) {
        if (sorted[i].disk_block - sorted[i - 1].disk_block >= sorted[i - 1].length_blocks)
            continue;
        log_error(inode->volume->log, "the journal (inode %u) has block %llu twice", inode->ino,
                  (unsigned long long)sorted[i].disk_block);
        error = -EUCLEAN;
    }
    free(sorted);
    return error;
}

static int collect_extents(struct inode *inode, uint32_t block_count,
                           struct journal_extent **result, size_t *result_count)
{
    struct journal_extent *extents = NULL;
    size_t count = 0, capacity = 0;
    uint32_t block = 0;

    while (block < block_count) {
        struct mapping mapping;
        int error = map_lookup_joined(inode, block, block_count - block, &mapping);

        if (error == 0 && mapping.kind != MAPPING_WRITTEN) {
            log_error(inode->volume->log, "the journal (inode %u) has a hole at block %u",
                      inode->ino, block);
            error = -EUCLEAN;
        }
        if (error == 0 && count == MAX_JOURNAL_PIECES) {
            log_error(inode->volume->log, "the journal (inode %u) lies in more than %u pieces",
                      inode->ino, MAX_JOURNAL_PIECES);
            error = -EUCLEAN;
        }
        if (error == 0 && count == capacity) {
            size_t grown_capacity = capacity == 0 ? 16 : capacity * 2;
            struct journal_extent *grown = realloc(extents, grown_capacity * sizeof(*grown));

            if (grown == NULL) {
                error = -ENOMEM;
            } else {
                extents = grown;
                capacity = grown_capacity;
            }
        }
        if (error != 0) {
            free(extents);
            return error;
        }
        extents[count++] = (struct journal_extent){.journal_block = block,
                                                   .length_blocks = (uint32_t)mapping.length_blocks,
                                                   .disk_block = mapping.disk_block};
        block += (uint32_t)mapping.length_blocks;
    }
    int error = check_no_overlap(inode, extents, count);
    if (error != 0) {
        free(extents);
        return error;
    }
    *result = extents;
    *result_count = count;
    return 0;
}

/* Works on an inode table of its own: what it reads may be older than what the journal holds. */
int fs_locate_journal(const struct volume *volume, struct journal_location *location,
                      struct journal_extent **extents)
{
    const struct superblock *sb = &volume->sb;
    struct inode_table *table;
    struct inode *inode = NULL;

    if (!superblock_has_compat(sb, FEATURE_COMPAT_HAS_JOURNAL))
        return -ENOENT;
    if (fs_has_external_journal(sb))
        return -EOPNOTSUPP;
    int error = inode_table_create(volume, &table);
    if (error != 0)
        return error;
    error = inode_get(table, sb->journal_ino, &inode);
    if (error != 0) {
        log_error(volume->log, "the journal's inode %u cannot be used", sb->journal_ino);
        goto out;
    }
    uint64_t block_count = inode->fields.size / sb->block_bytes;
    if (!S_ISREG(inode->fields.mode) || inode_is_inline(inode) || block_count == 0 ||
        block_count > MIN(sb->block_count, MAX_JOURNAL_BLOCKS)) {
        log_error(volume->log, "inode %u is no journal: its type or size is wrong",
                  sb->journal_ino);
        error = -EUCLEAN;
        goto out;
    }
    *location = (struct journal_location){
        .device = volume->device,
        .block_bytes = sb->block_bytes,
        .block_count = (uint32_t)block_count,
        .fs_block_count = sb->block_count,
        .fs_first_data_block = sb->first_data_block,
        .log = volume->log,
    };
    memcpy(location->fs_uuid, sb->uuid, sizeof(location->fs_uuid));
    error = collect_extents(inode, (uint32_t)block_count, extents, &location->extent_count);
    location->extents = *extents;
out:
    inode_put(inode);
    inode_table_destroy(table);
    return error;
}
