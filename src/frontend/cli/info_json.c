/* SPDX-License-Identifier: MIT */
/*
 * `uext4 info --json`: every field, sizes in bytes as numbers, times as seconds since 1970.
 */
#include "info.h"
#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* With more groups than this the list is cut, with an error: it is built in memory. */
#define JSON_GROUPS_MAX (1u << 18)

static json_t *make_default_options(uint32_t bits)
{
    static const struct {
        uint32_t mask, value;
        const char *name;
    } names[] = {
        {0x1, 0x1, "debug"},
        {0x2, 0x2, "bsdgroups"},
        {0x4, 0x4, "user_xattr"},
        {0x8, 0x8, "acl"},
        {0x10, 0x10, "uid16"},
        {0x60, 0x20, "journal_data"},
        {0x60, 0x40, "journal_data_ordered"},
        {0x60, 0x60, "journal_data_writeback"},
        {0x100, 0x100, "nobarrier"},
        {0x200, 0x200, "block_validity"},
        {0x400, 0x400, "discard"},
        {0x800, 0x800, "nodelalloc"},
    };
    json_t *array = json_array();

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if ((bits & names[i].mask) == names[i].value)
            json_array_append_new(array, json_string(names[i].name));
    }
    return array;
}

static json_t *make_feature_names(const struct info_features *set)
{
    json_t *array = json_array();
    char buffer[48];

    for (unsigned int bit = 0; bit < 32; bit++) {
        if (set->bits & 1u << bit)
            json_array_append_new(array, json_string(info_feature_name(set, bit, buffer)));
    }
    return array;
}

static json_t *make_features(const struct uext4_info *fs)
{
    struct info_features sets[INFO_FEATURE_SETS];
    json_t *object = json_object();

    info_get_features(fs, sets);
    for (int i = 0; i < 3; i++)
        json_put(object, sets[i].key, make_feature_names(&sets[i]));
    json_put_number(object, "compat_bits", fs->feature_compat);
    json_put_number(object, "incompat_bits", fs->feature_incompat);
    json_put_number(object, "ro_compat_bits", fs->feature_ro_compat);
    return object;
}

static void put_identity(json_t *root, const struct uext4_info *fs)
{
    char uuid[37];

    info_format_uuid(fs->uuid, uuid);
    json_put(root, "uuid", json_string(uuid));
    json_put_text(root, "volume_name", fs->volume_name, strlen(fs->volume_name));
    json_put_text(root, "last_mounted", fs->last_mounted, strlen(fs->last_mounted));
    json_put_number(root, "revision", fs->revision);
    json_put_number(root, "creator_os", fs->creator_os);
    json_put_number(root, "device_bytes", fs->device_bytes);
    json_put_bool(root, "is_direct", fs->is_direct);
    json_put_bool(root, "is_read_only", fs->is_read_only);
    json_put(root, "features", make_features(fs));
}

static json_t *make_geometry(const struct uext4_info *fs)
{
    json_t *object = json_object();

    json_put_number(object, "block_bytes", fs->block_bytes);
    json_put_number(object, "cluster_bytes", fs->cluster_bytes);
    json_put_number(object, "inode_bytes", fs->inode_bytes);
    json_put_number(object, "group_descriptor_bytes", fs->group_descriptor_bytes);
    json_put_number(object, "block_count", fs->block_count);
    json_put_number(object, "inode_count", fs->inode_count);
    json_put_number(object, "first_ino", fs->first_ino);
    json_put_number(object, "first_data_block", fs->first_data_block);
    json_put_number(object, "blocks_per_group", fs->blocks_per_group);
    json_put_number(object, "clusters_per_group", fs->clusters_per_group);
    json_put_number(object, "inodes_per_group", fs->inodes_per_group);
    json_put_number(object, "group_count", fs->group_count);
    json_put_number(object, "flex_group_count", fs->flex_group_count);
    json_put(object, "hash", json_string(info_hash_name(fs->default_hash_version)));
    json_put_number(object, "hash_version", fs->default_hash_version);
    json_put_number(object, "checksum_type", fs->checksum_type);
    json_put_number(object, "encoding", fs->encoding);
    return object;
}

static json_t *make_usage(const struct info *info)
{
    const struct uext4_info *fs = &info->fs;
    json_t *object = json_object();

    json_put_number(object, "free_block_count", fs->free_block_count);
    json_put_number(object, "reserved_block_count", fs->reserved_block_count);
    json_put_number(object, "overhead_block_count", fs->overhead_block_count);
    json_put_number(object, "free_inode_count", fs->free_inode_count);
    if (info->has_usage) {
        json_put_number(object, "data_block_count", info->usage.block_count);
        json_put_number(object, "data_free_blocks", info->usage.free_blocks);
        json_put_number(object, "data_available_blocks", info->usage.available_blocks);
        json_put_number(object, "fsid", info->usage.fsid);
    }
    return object;
}

static json_t *make_history(const struct uext4_info *fs)
{
    json_t *object = json_object();

    json_put(object, "created", json_integer(fs->created));
    json_put(object, "mounted", json_integer(fs->mounted));
    json_put(object, "written", json_integer(fs->written));
    json_put(object, "checked", json_integer(fs->checked));
    json_put_number(object, "mount_count", fs->mount_count);
    json_put_number(object, "max_mount_count", fs->max_mount_count);
    json_put_number(object, "error_count", fs->error_count);
    json_put_number(object, "kib_written", fs->kib_written);
    json_put(object, "default_mount_options", make_default_options(fs->default_mount_options));
    json_put_number(object, "default_mount_option_bits", fs->default_mount_options);
    return object;
}

static json_t *make_journal(const struct uext4_info *fs)
{
    struct info_features sets[INFO_FEATURE_SETS];
    json_t *object = json_object();

    info_get_features(fs, sets);
    json_put(object, "state", json_string(info_journal_state(fs->journal_state)));
    json_put_number(object, "block_count", fs->journal_block_count);
    json_put_number(object, "first_sequence", fs->journal_first_sequence);
    json_put(object, "compat", make_feature_names(&sets[3]));
    json_put(object, "incompat", make_feature_names(&sets[4]));
    json_put_number(object, "ro_compat_bits", fs->journal_ro_compat);
    json_put_number(object, "replayed_transactions", fs->replayed_transactions);
    json_put_number(object, "replayed_blocks", fs->replayed_blocks);
    json_put_number(object, "revoked_blocks", fs->revoked_blocks);
    json_put_number(object, "pending_fast_commit_blocks", fs->pending_fast_commit_blocks);
    return object;
}

static json_t *make_group(const struct uext4_group *group, uint32_t number)
{
    json_t *object = json_object();

    json_put_number(object, "group", number);
    json_put_number(object, "first_block", group->first_block);
    json_put_number(object, "block_count", group->block_count);
    json_put_number(object, "block_bitmap", group->block_bitmap);
    json_put_number(object, "inode_bitmap", group->inode_bitmap);
    json_put_number(object, "inode_table", group->inode_table);
    json_put_number(object, "free_clusters", group->free_clusters);
    json_put_number(object, "free_inodes", group->free_inodes);
    json_put_number(object, "used_directories", group->used_directories);
    json_put_number(object, "unused_inodes", group->unused_inodes);
    json_put_bool(object, "is_block_uninit", group->is_block_uninit);
    json_put_bool(object, "is_inode_uninit", group->is_inode_uninit);
    json_put_bool(object, "is_inode_table_zeroed", group->is_inode_table_zeroed);
    json_put_bool(object, "has_superblock", group->has_superblock);
    return object;
}

static json_t *make_groups(struct info *info)
{
    json_t *array = json_array();
    uint32_t i;

    for (i = 0; i < info->fs.group_count && i < JSON_GROUPS_MAX; i++) {
        struct uext4_group group;

        if (uext4_get_group(info->session.fs, i, &group) < 0) {
            session_fail(&info->session, NULL, "group %" PRIu32 " cannot be read", i);
            return array;
        }
        json_array_append_new(array, make_group(&group, i));
    }
    if (i < info->fs.group_count)
        session_fail(&info->session, NULL, "only the first %u groups are listed", JSON_GROUPS_MAX);
    return array;
}

void info_print_json(struct info *info)
{
    const struct uext4_info *fs = &info->fs;
    json_t *root = json_object();

    put_identity(root, fs);
    json_put(root, "geometry", make_geometry(fs));
    json_put(root, "usage", make_usage(info));
    json_put(root, "history", make_history(fs));
    json_put(root, "journal", make_journal(fs));
    json_put_number(root, "state_bits", fs->state);
    json_put_bool(root, "is_clean", fs->state & 1);
    json_put_bool(root, "has_errors", fs->state & 2);
    json_put_number(root, "orphan_list_head", fs->orphan_list_head);
    json_put_bool(root, "has_orphan_file_entries", fs->has_orphan_file_entries);
    if (info->has_groups)
        json_put(root, "groups", make_groups(info));
    json_finish(&info->session, root);
}
