/* SPDX-License-Identifier: MIT */
/*
 * `uext4 stat`: all about a file.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "json.h"
#include "session.h"
#include "text.h"

#define TARGET_BYTES     65536
#define XATTR_LIST_BYTES (1u << 20)
#define XATTR_BYTES      (1u << 20)
#define EXTENTS_MAX      1000000

const char stat_help[] =
    "Usage: uext4 stat [OPTIONS] IMAGE PATH...\n"
    "\n"
    "Shows all that the inode of a file holds: size, mode, owner, times, flags (in\n"
    "the letters of lsattr), generation, project, number of extents, and the names\n"
    "and sizes of its extended attributes. A PATH of the form '<12>' means inode\n"
    "number 12.\n"
    "\n"
    "  -L, --dereference   follow symbolic links\n"
    "      --json          print JSON, with the values of extended attributes in hex\n"
    "\n" CLI_COMMON_HELP "\n"
    "Examples:\n"
    "  uext4 stat disk.img /etc/passwd\n"
    "  uext4 stat --json disk.img '<2>'\n";

struct file_stat {
    struct session session;
    bool is_json;
    unsigned int walk_flags;
    enum text_style style;
    json_t *files;
};

/* One file under way. */
struct subject {
    const char *path;
    struct uext4_inode *inode;
    struct uext4_stat stat;
    char *target; /* of a symbolic link, else NULL */
    size_t target_length;
    uint64_t extent_count;
};

static const struct {
    uint32_t bit;
    char letter;
    const char *name;
} flag_names[] = {
    {0x00000001, 's', "secure_deletion"},
    {0x00000002, 'u', "undelete"},
    {0x00000008, 'S', "sync"},
    {0x00010000, 'D', "dirsync"},
    {0x00000010, 'i', "immutable"},
    {0x00000020, 'a', "append_only"},
    {0x00000040, 'd', "no_dump"},
    {0x00000080, 'A', "no_atime"},
    {0x00000004, 'c', "compression"},
    {0x00000800, 'E', "encrypted"},
    {0x00004000, 'j', "journaled_data"},
    {0x00001000, 'I', "indexed_directory"},
    {0x00008000, 't', "no_tail_merging"},
    {0x00020000, 'T', "top_directory"},
    {0x00080000, 'e', "extents"},
    {0x00800000, 'C', "no_cow"},
    {0x02000000, 'x', "dax"},
    {0x40000000, 'F', "casefold"},
    {0x10000000, 'N', "inline_data"},
    {0x20000000, 'P', "project_inherited"},
    {0x00100000, 'V', "verity"},
    {0x00000400, 'm', "no_compression"},
    {0x00040000, 'h', "huge_file"},
    {0x00200000, 'X', "ea_inode"},
};

#define FLAG_COUNT (sizeof(flag_names) / sizeof(flag_names[0]))

static void format_flags(uint32_t flags, char letters[FLAG_COUNT + 1])
{
    for (size_t i = 0; i < FLAG_COUNT; i++)
        letters[i] = flags & flag_names[i].bit ? flag_names[i].letter : '-';
    letters[FLAG_COUNT] = '\0';
}

/* Counts the extents that are no holes, up to EXTENTS_MAX. */
static int count_extents(struct uext4_inode *inode, uint64_t *count)
{
    struct uext4_extent extent;
    uint64_t offset = 0;
    int result;

    *count = 0;
    while ((result = uext4_map(inode, offset, &extent)) == 0 && *count < EXTENTS_MAX) {
        if (extent.length == 0 || extent.length > UINT64_MAX - offset)
            return -EUCLEAN;
        *count += extent.kind != UEXT4_EXTENT_HOLE;
        offset += extent.length;
    }
    return result == -ENXIO ? 0 : result;
}

static int read_target(struct subject *subject)
{
    ssize_t length;

    subject->target = malloc(TARGET_BYTES);
    if (!subject->target)
        return -ENOMEM;
    length = uext4_readlink(subject->inode, subject->target, TARGET_BYTES);
    if (length < 0)
        return (int)length;
    subject->target_length = length < TARGET_BYTES ? (size_t)length : TARGET_BYTES;
    return 0;
}

static bool has_map(uint32_t mode)
{
    return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode);
}

static void print_time(const char *name, const struct timespec *time)
{
    char text[TEXT_TIME_SIZE] = "-";

    if (time->tv_sec != 0 || time->tv_nsec != 0)
        text_time_full(time, text);
    printf("%10s: %s\n", name, text);
}

static void print_head(const struct file_stat *run, const struct subject *subject)
{
    const struct uext4_stat *stat = &subject->stat;
    char mode[11], letters[FLAG_COUNT + 1];

    printf("%10s: ", "File");
    text_write(stdout, subject->path, strlen(subject->path), run->style);
    if (subject->target) {
        fputs(" -> ", stdout);
        text_write(stdout, subject->target, subject->target_length, run->style);
    }
    printf("\n%10s: %s", "Type", text_type(stat->mode));
    if (S_ISCHR(stat->mode) || S_ISBLK(stat->mode))
        printf(" %" PRIu32 ", %" PRIu32, stat->rdev_major, stat->rdev_minor);
    printf("\n%10s: %" PRIu64 "\n", "Size", stat->size);
    printf("%10s: %" PRIu64 " sectors of 512 bytes\n", "Allocated", stat->allocated_sectors);
    printf("%10s: %" PRIu64 " (generation %" PRIu32 ")\n", "Inode", stat->ino, stat->generation);
    printf("%10s: %" PRIu32 "\n", "Links", stat->link_count);
    text_mode(stat->mode, mode);
    printf("%10s: %04" PRIo32 " (%s)\n", "Mode", stat->mode & 07777, mode);
    printf("%10s: uid %" PRIu32 ", gid %" PRIu32 ", project %" PRIu32 "\n", "Owner", stat->uid,
           stat->gid, stat->project_id);
    format_flags(stat->flags, letters);
    printf("%10s: %s (0x%" PRIx32 ")\n", "Flags", letters, stat->flags);
    print_time("Access", &stat->access_time);
    print_time("Modify", &stat->modify_time);
    print_time("Change", &stat->change_time);
    print_time("Birth", &stat->birth_time);
    if (has_map(stat->mode))
        printf("%10s: %" PRIu64 "%s\n", "Extents", subject->extent_count,
               subject->extent_count >= EXTENTS_MAX ? " or more" : "");
}

static void print_xattr(const struct file_stat *run, const char *name, ssize_t length)
{
    printf("%10s: ", "Xattr");
    text_write(stdout, name, strlen(name), run->style);
    printf(" (%zd bytes)\n", length);
}

static void add_xattr(json_t *array, const char *name, const char *value, size_t length)
{
    json_t *object = json_object();

    json_put_text(object, "name", name, strlen(name));
    json_put_number(object, "length", length);
    json_put_hex(object, "value_hex", value, length);
    json_array_append_new(array, object);
}

/* Prints the attributes, or adds them to `array`. Returns 0 or -errno of the list. */
static int walk_xattrs(struct file_stat *run, struct subject *subject, json_t *array)
{
    ssize_t list_length = uext4_listxattr(subject->inode, NULL, 0);
    char *names, *value = NULL;

    if (list_length <= 0 || list_length > XATTR_LIST_BYTES)
        return list_length <= 0 ? (int)list_length : -E2BIG;
    names = malloc((size_t)list_length + 1);
    list_length = names ? uext4_listxattr(subject->inode, names, (size_t)list_length) : -ENOMEM;
    if (list_length > 0)
        names[list_length] = '\0';
    for (char *name = names; list_length > 0 && name < names + list_length;
         name += strlen(name) + 1) {
        ssize_t length = uext4_getxattr(subject->inode, name, NULL, 0);

        if (length > XATTR_BYTES)
            length = -E2BIG;
        if (length >= 0 && array) {
            value = malloc((size_t)length + 1);
            length = value ? uext4_getxattr(subject->inode, name, value, (size_t)length) : -ENOMEM;
        }
        if (length < 0)
            session_error(&run->session, subject->path, (int)length);
        else if (array)
            add_xattr(array, name, value, (size_t)length);
        else
            print_xattr(run, name, length);
        free(value);
        value = NULL;
    }
    free(names);
    return list_length < 0 ? (int)list_length : 0;
}

static json_t *make_flags(uint32_t flags)
{
    json_t *array = json_array();

    for (size_t i = 0; i < FLAG_COUNT; i++) {
        if (flags & flag_names[i].bit)
            json_array_append_new(array, json_string(flag_names[i].name));
    }
    return array;
}

static json_t *make_object(const struct subject *subject)
{
    const struct uext4_stat *stat = &subject->stat;
    json_t *object = json_object();
    char mode[11];

    text_mode(stat->mode, mode);
    json_put_text(object, "path", subject->path, strlen(subject->path));
    if (subject->target)
        json_put_text(object, "target", subject->target, subject->target_length);
    json_put(object, "type", json_string(text_type(stat->mode)));
    json_put_number(object, "inode", stat->ino);
    json_put_number(object, "generation", stat->generation);
    json_put_number(object, "mode", stat->mode);
    json_put(object, "mode_text", json_string(mode));
    json_put_number(object, "uid", stat->uid);
    json_put_number(object, "gid", stat->gid);
    json_put_number(object, "project_id", stat->project_id);
    json_put_number(object, "link_count", stat->link_count);
    json_put_number(object, "size", stat->size);
    json_put_number(object, "allocated_bytes", stat->allocated_sectors * 512);
    json_put_number(object, "block_bytes", stat->block_bytes);
    if (S_ISCHR(stat->mode) || S_ISBLK(stat->mode)) {
        json_put_number(object, "rdev_major", stat->rdev_major);
        json_put_number(object, "rdev_minor", stat->rdev_minor);
    }
    json_put_number(object, "flag_bits", stat->flags);
    json_put(object, "flags", make_flags(stat->flags));
    json_put_time(object, "access_time", &stat->access_time);
    json_put_time(object, "modify_time", &stat->modify_time);
    json_put_time(object, "change_time", &stat->change_time);
    json_put_time(object, "birth_time", &stat->birth_time);
    if (has_map(stat->mode))
        json_put_number(object, "extent_count", subject->extent_count);
    return object;
}

static void show_subject(struct file_stat *run, struct subject *subject)
{
    json_t *object = NULL, *array = NULL;
    int result;

    if (run->is_json) {
        object = make_object(subject);
        array = json_array();
    } else {
        print_head(run, subject);
    }
    result = walk_xattrs(run, subject, array);
    if (result < 0)
        session_error(&run->session, subject->path, result);
    if (run->is_json) {
        json_put(object, "xattrs", array);
        json_array_append_new(run->files, object);
    }
}

static void stat_file(struct file_stat *run, const char *path)
{
    struct subject subject = {.path = path};
    int result = session_walk(&run->session, path, run->walk_flags, &subject.inode);

    if (result < 0) {
        session_error(&run->session, path, result);
        return;
    }
    result = uext4_stat(subject.inode, &subject.stat);
    if (result == 0) {
        int body_result = 0;

        if (S_ISLNK(subject.stat.mode))
            body_result = read_target(&subject);
        if (body_result == 0 && has_map(subject.stat.mode))
            body_result = count_extents(subject.inode, &subject.extent_count);
        if (body_result < 0)
            session_error(&run->session, path, body_result);
        show_subject(run, &subject);
    } else {
        session_error(&run->session, path, result);
    }
    free(subject.target);
    uext4_inode_put(subject.inode);
}

int stat_run(const struct command *command, int argc, char **argv)
{
    static const struct option longs[] = {
        {"dereference", no_argument, NULL, 'L'}, {"json", no_argument, NULL, 0x100}, {0}};
    struct file_stat run = {.walk_flags = UEXT4_WALK_NOFOLLOW};
    int option, first;

    session_begin(&run.session, command);
    while ((option = session_option(&run.session, argc, argv, "L", longs)) != -1) {
        if (option == 'L')
            run.walk_flags = 0;
        else
            run.is_json = true;
    }
    session_take_image(&run.session, argc, argv);
    if (optind >= argc)
        session_usage(&run.session, "no path given");
    if (session_open(&run.session) < 0)
        return session_end(&run.session);
    run.style = text_style_for(stdout);
    run.files = run.is_json ? json_array() : NULL;
    first = optind;
    for (; optind < argc; optind++) {
        if (optind > first && !run.is_json)
            putchar('\n');
        stat_file(&run, argv[optind]);
    }
    if (run.is_json)
        json_finish(&run.session, run.files);
    return session_end(&run.session);
}
