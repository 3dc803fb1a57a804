/* SPDX-License-Identifier: MIT */
/*
 * `uext4 info`: what the file system is, for people. info_json.c has the form for programs.
 */
#include "info.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#define LINE_WIDTH 78

/* Bits of uext4_info.state. */
enum { STATE_CLEAN = 1, STATE_ERRORS = 2, STATE_ORPHANS = 4 };

const char info_help[] =
    "Usage: uext4 info [OPTIONS] IMAGE\n"
    "\n"
    "Tells what the file system is: its identity, features, geometry and usage, the\n"
    "state of its journal, and what a reader gets to see of it.\n"
    "\n"
    "      --json          print all of it as JSON\n"
    "  -g, --groups        list the block groups too\n"
    "\n" CLI_COMMON_HELP "\n"
    "Examples:\n"
    "  uext4 info disk.img\n"
    "  uext4 info --json --partition 2 vm.raw | jq .journal.state\n";

void info_get_features(const struct uext4_info *fs, struct info_features sets[INFO_FEATURE_SETS])
{
    sets[0] = (struct info_features){"compat", UEXT4_FEATURE_COMPAT, fs->feature_compat};
    sets[1] = (struct info_features){"incompat", UEXT4_FEATURE_INCOMPAT, fs->feature_incompat};
    sets[2] = (struct info_features){"ro_compat", UEXT4_FEATURE_RO_COMPAT, fs->feature_ro_compat};
    sets[3] = (struct info_features){"journal_compat", UEXT4_FEATURE_JOURNAL_COMPAT,
                                     fs->journal_compat};
    sets[4] = (struct info_features){"journal_incompat", UEXT4_FEATURE_JOURNAL_INCOMPAT,
                                     fs->journal_incompat};
}

const char *info_feature_name(const struct info_features *set, unsigned int bit, char buffer[48])
{
    const char *name = uext4_feature_name(set->set, bit);

    if (name)
        return name;
    snprintf(buffer, 48, "unknown_%s_%u", set->key, bit);
    return buffer;
}

const char *info_journal_state(enum uext4_journal_state state)
{
    switch (state) {
    case UEXT4_JOURNAL_NONE:
        return "none";
    case UEXT4_JOURNAL_CLEAN:
        return "clean";
    case UEXT4_JOURNAL_REPLAYED:
        return "replayed";
    case UEXT4_JOURNAL_SKIPPED:
        return "skipped";
    case UEXT4_JOURNAL_EXTERNAL:
        return "external";
    }
    return "?";
}

const char *info_hash_name(uint8_t version)
{
    static const char *const names[] = {"legacy",          "half_md4",          "tea",
                                        "legacy_unsigned", "half_md4_unsigned", "tea_unsigned",
                                        "siphash"};

    return version < sizeof(names) / sizeof(names[0]) ? names[version] : "unknown";
}

void info_format_uuid(const uint8_t uuid[16], char text[37])
{
    size_t at = 0;

    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            text[at++] = '-';
        at += (size_t)snprintf(text + at, 37 - at, "%02x", uuid[i]);
    }
}

static void print_field(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void print_field(const char *name, const char *format, ...)
{
    va_list arguments;

    printf("  %-17s", name);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

static void print_text_field(const char *name, const char *text)
{
    if (!text[0])
        return;
    printf("  %-17s", name);
    text_write(stdout, text, strlen(text), text_style_for(stdout));
    putchar('\n');
}

static void print_bytes_field(const char *name, uint64_t blocks, uint64_t block_bytes)
{
    char size[32];

    text_long_size(blocks * block_bytes, size);
    print_field(name, "%s (%" PRIu64 " blocks)", size, blocks);
}

static void print_time_field(const char *name, int64_t time)
{
    char text[TEXT_TIME_SIZE];

    if (time == 0)
        return;
    text_time_seconds(time, text);
    print_field(name, "%s", text);
}

static const char *generation_name(const struct uext4_info *fs)
{
    struct info_features sets[INFO_FEATURE_SETS];
    char buffer[48];
    bool has_journal = false;

    info_get_features(fs, sets);
    for (int set = 1; set <= 2; set++) {
        for (unsigned int bit = 0; bit < 32; bit++) {
            static const char old[] = " filetype needs_recovery sparse_super large_file "
                                      "journal_dev meta_bg ";
            char padded[64];

            if (!(sets[set].bits & 1u << bit))
                continue;
            snprintf(padded, sizeof(padded), " %s ", info_feature_name(&sets[set], bit, buffer));
            if (!strstr(old, padded))
                return "ext4";
        }
    }
    for (unsigned int bit = 0; bit < 32; bit++) {
        if (sets[0].bits & 1u << bit)
            has_journal |= strcmp(info_feature_name(&sets[0], bit, buffer), "has_journal") == 0;
    }
    return has_journal ? "ext3" : "ext2";
}

static void print_identity(const struct info *info)
{
    static const char *const systems[] = {"Linux", "Hurd", "Masix", "FreeBSD", "Lites"};
    const struct uext4_info *fs = &info->fs;
    char uuid[37], size[32];

    info_format_uuid(fs->uuid, uuid);
    text_long_size(fs->device_bytes, size);
    printf("File system\n");
    print_field("kind", "%s (revision %" PRIu32 ")", generation_name(fs), fs->revision);
    print_text_field("label", fs->volume_name);
    print_field("uuid", "%s", uuid);
    print_text_field("last mounted on", fs->last_mounted);
    print_field("creator", "%s", fs->creator_os < 5 ? systems[fs->creator_os] : "unknown");
    print_field("device", "%s, %s, %s", size, fs->is_direct ? "direct I/O" : "buffered I/O",
                fs->is_read_only ? "read-only" : "writable");
}

/* Prints words in lines of LINE_WIDTH, indented to the fields' second column. */
static void print_word(const char *word, size_t *column)
{
    size_t length = strlen(word);

    if (*column > 0 && *column + 1 + length > LINE_WIDTH) {
        printf("\n%19s", "");
        *column = 19;
    } else if (*column > 19) {
        putchar(' ');
        (*column)++;
    }
    fputs(word, stdout);
    *column += length;
}

static void print_features(const struct info *info)
{
    static const char *const titles[] = {"compatible", "incompatible", "read-only comp.",
                                         "journal comp.", "journal incomp."};
    struct info_features sets[INFO_FEATURE_SETS];

    info_get_features(&info->fs, sets);
    printf("\nFeatures\n");
    for (int i = 0; i < INFO_FEATURE_SETS; i++) {
        size_t column = 19;
        char buffer[48];

        if (i >= 3 && sets[i].bits == 0)
            continue;
        printf("  %-17s", titles[i]);
        for (unsigned int bit = 0; bit < 32; bit++) {
            if (sets[i].bits & 1u << bit)
                print_word(info_feature_name(&sets[i], bit, buffer), &column);
        }
        puts(sets[i].bits ? "" : "-");
    }
}

static void print_geometry(const struct info *info)
{
    const struct uext4_info *fs = &info->fs;

    printf("\nGeometry\n");
    print_field("block size", "%" PRIu32, fs->block_bytes);
    if (fs->cluster_bytes != fs->block_bytes)
        print_field("cluster size", "%" PRIu32, fs->cluster_bytes);
    print_field("inode size", "%" PRIu32, fs->inode_bytes);
    print_bytes_field("size", fs->block_count, fs->block_bytes);
    print_field("inodes", "%" PRIu64 " (the first free for use is %" PRIu32 ")", fs->inode_count,
                fs->first_ino);
    print_field(
        "groups",
        "%" PRIu32 " of %" PRIu32 " blocks, %" PRIu32 " inodes; descriptors of %" PRIu32 " bytes",
        fs->group_count, fs->blocks_per_group, fs->inodes_per_group, fs->group_descriptor_bytes);
    if (fs->flex_group_count > 1)
        print_field("flex groups", "of %" PRIu32, fs->flex_group_count);
    print_field("directory hash", "%s", info_hash_name(fs->default_hash_version));
    print_field("checksums", "%s", fs->checksum_type == 1 ? "crc32c" : "none or of old form");
    if (fs->encoding != 0)
        print_field("name encoding", "%s", fs->encoding == 1 ? "utf8 12.1" : "unknown");
}

static void print_usage(const struct info *info)
{
    const struct uext4_info *fs = &info->fs;
    const struct uext4_statfs *usage = &info->usage;

    printf("\nUsage\n");
    if (info->has_usage) {
        uint64_t used = usage->block_count > usage->free_blocks
                            ? usage->block_count - usage->free_blocks
                            : 0;

        print_bytes_field("for data", usage->block_count, usage->block_bytes);
        print_bytes_field("used", used, usage->block_bytes);
        print_bytes_field("free", usage->free_blocks, usage->block_bytes);
        print_bytes_field("free for users", usage->available_blocks, usage->block_bytes);
    } else {
        print_bytes_field("free", fs->free_block_count, fs->block_bytes);
    }
    print_bytes_field("reserved", fs->reserved_block_count, fs->block_bytes);
    print_field("inodes used", "%" PRIu64 " of %" PRIu64,
                fs->inode_count > fs->free_inode_count ? fs->inode_count - fs->free_inode_count : 0,
                fs->inode_count);
}

static void print_times(const struct info *info)
{
    const struct uext4_info *fs = &info->fs;
    char size[32];

    printf("\nHistory\n");
    print_time_field("created", fs->created);
    print_time_field("last mounted", fs->mounted);
    print_time_field("last written", fs->written);
    print_time_field("last checked", fs->checked);
    if (fs->max_mount_count != 0 && fs->max_mount_count != 0xffff)
        print_field("mounts", "%u since the check, which is due at %u", fs->mount_count,
                    fs->max_mount_count);
    else
        print_field("mounts", "%u since the check", fs->mount_count);
    if (fs->kib_written > 0 && fs->kib_written < UINT64_MAX >> 10) {
        text_long_size(fs->kib_written << 10, size);
        print_field("written so far", "%s", size);
    }
    if (fs->error_count > 0)
        print_field("errors recorded", "%" PRIu32, fs->error_count);
}

static void print_sentence(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints a paragraph, wrapped and indented. */
static void print_sentence(const char *format, ...)
{
    char text[1024], *save = NULL;
    size_t column = 0;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        if (column > 0 && column + 1 + strlen(word) > LINE_WIDTH) {
            putchar('\n');
            column = 0;
        }
        printf("%s%s", column > 0 ? " " : "  ", word);
        column += strlen(word) + (column > 0 ? 1 : 2);
    }
    putchar('\n');
}

static void print_journal_sentence(const struct uext4_info *fs)
{
    switch (fs->journal_state) {
    case UEXT4_JOURNAL_NONE:
        print_sentence("There is no journal: whoever wrote this last either closed it cleanly or "
                       "left it as the moment had it, and only a check can tell.");
        break;
    case UEXT4_JOURNAL_CLEAN:
        print_sentence("The journal is clean: everything committed is in its place.");
        break;
    case UEXT4_JOURNAL_REPLAYED:
        print_sentence("The image needs recovery. It is shown here as it is after the replay of "
                       "%" PRIu32 " transaction%s (%" PRIu64 " blocks, %" PRIu64 " revoked); the "
                       "image itself is unchanged. 'uext4 recover' writes the replay to it.",
                       fs->replayed_transactions, fs->replayed_transactions == 1 ? "" : "s",
                       fs->replayed_blocks, fs->revoked_blocks);
        break;
    case UEXT4_JOURNAL_SKIPPED:
        print_sentence("The image needs recovery, and the replay was skipped: what is shown here "
                       "lacks committed changes and may contradict itself.");
        break;
    case UEXT4_JOURNAL_EXTERNAL:
        print_sentence("The journal lies on another device and was not looked at.");
        break;
    }
}

static void print_journal(const struct info *info)
{
    const struct uext4_info *fs = &info->fs;

    printf("\nJournal and state\n");
    print_field("journal", "%s", info_journal_state(fs->journal_state));
    if (fs->journal_block_count > 0) {
        print_bytes_field("journal size", fs->journal_block_count, fs->block_bytes);
        print_field("next sequence", "%" PRIu32, fs->journal_first_sequence);
    }
    print_field("state", "%s%s%s", fs->state & STATE_CLEAN ? "clean" : "not clean",
                fs->state & STATE_ERRORS ? ", with errors" : "",
                fs->state & STATE_ORPHANS ? ", orphans being processed" : "");
    print_field("fast commits", "%" PRIu32 " blocks pending", fs->pending_fast_commit_blocks);
    if (fs->orphan_list_head != 0)
        print_field("orphans", "a list from inode %" PRIu32 " on%s", fs->orphan_list_head,
                    fs->has_orphan_file_entries ? ", and the orphan file" : "");
    else
        print_field("orphans", "%s", fs->has_orphan_file_entries ? "in the orphan file" : "none");
    putchar('\n');
    print_journal_sentence(fs);
    if (fs->pending_fast_commit_blocks > 0)
        print_sentence("Fast commits are pending and are not replayed: the newest synced changes "
                       "are missing from what is shown.");
    if (fs->orphan_list_head != 0 || fs->has_orphan_file_entries)
        print_sentence("Files that were deleted while open, or being truncated, still hold space "
                       "until a writer works the orphans off.");
    if (fs->state & STATE_ERRORS || fs->error_count > 0)
        print_sentence("The kernel has recorded errors: have e2fsck look at it.");
}

static void print_groups(struct info *info)
{
    printf("\nGroups\n%8s %14s %9s %14s %14s %14s %9s %9s %7s  %s\n", "group", "first block",
           "blocks", "block bitmap", "inode bitmap", "inode table", "free cl.", "free ino", "dirs",
           "notes");
    for (uint32_t i = 0; i < info->fs.group_count && i < INFO_GROUPS_MAX; i++) {
        struct uext4_group group;
        int result = uext4_get_group(info->session.fs, i, &group);

        if (result < 0) {
            session_fail(&info->session, NULL, "group %" PRIu32 " cannot be read", i);
            return;
        }
        printf("%8" PRIu32 " %14" PRIu64 " %9" PRIu64 " %14" PRIu64 " %14" PRIu64 " %14" PRIu64
               " %9" PRIu32 " %9" PRIu32 " %7" PRIu32 "  %s%s%s%s\n",
               i, group.first_block, group.block_count, group.block_bitmap, group.inode_bitmap,
               group.inode_table, group.free_clusters, group.free_inodes, group.used_directories,
               group.has_superblock ? "superblock " : "",
               group.is_block_uninit ? "block-uninit " : "",
               group.is_inode_uninit ? "inode-uninit " : "",
               group.is_inode_table_zeroed ? "zeroed" : "");
    }
}

static void print_human(struct info *info)
{
    print_identity(info);
    print_features(info);
    print_geometry(info);
    print_usage(info);
    print_times(info);
    print_journal(info);
    if (info->has_groups)
        print_groups(info);
}

int info_run(const struct command *command, int argc, char **argv)
{
    static const struct option longs[] = {
        {"json", no_argument, NULL, 0x100}, {"groups", no_argument, NULL, 'g'}, {0}};
    struct info info = {0};
    int option, result;

    session_begin(&info.session, command);
    while ((option = session_option(&info.session, argc, argv, "g", longs)) != -1) {
        if (option == 'g')
            info.has_groups = true;
        else
            info.is_json = true;
    }
    session_take_image(&info.session, argc, argv);
    if (optind < argc)
        session_usage(&info.session, "one image at a time");
    if (session_open(&info.session) < 0)
        return session_end(&info.session);

    uext4_get_info(info.session.fs, &info.fs);
    result = uext4_statfs(info.session.fs, &info.usage);
    info.has_usage = result == 0;
    if (result < 0)
        session_fail(&info.session, NULL, "the usage cannot be counted");
    if (info.is_json)
        info_print_json(&info);
    else
        print_human(&info);
    return session_end(&info.session);
}
