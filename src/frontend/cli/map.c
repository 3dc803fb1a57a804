/* SPDX-License-Identifier: MIT */
/*
 * `uext4 map`: where the data of a file lies.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "json.h"
#include "session.h"
#include "text.h"

/* More than any sane file has; it bounds what a hostile one can cost. */
#define EXTENTS_MAX 10000000
/* JSON is built in memory, so its bound is lower. */
#define JSON_EXTENTS_MAX 1000000

const char map_help[] =
    "Usage: uext4 map [OPTIONS] IMAGE PATH...\n"
    "\n"
    "Shows the extents of files, directories or symbolic links: the offset in the\n"
    "file, the length, the offset in the file system, all in bytes, and the kind:\n"
    "data, unwritten (allocated, reads as zeros), hole, or inline (in the inode).\n"
    "A PATH of the form '<12>' means inode number 12.\n"
    "\n"
    "  -b, --blocks        count in blocks of the file system\n"
    "  -P, --no-dereference\n"
    "                      show a symbolic link itself, not what it points to\n"
    "      --json          print JSON\n"
    "\n" CLI_COMMON_HELP "\n"
    "Example:\n"
    "  uext4 map --blocks disk.img /var/log/journal\n";

struct map {
    struct session session;
    bool is_in_blocks, is_json;
    unsigned int walk_flags;
    uint32_t block_bytes;
    json_t *files;
};

static const char *kind_name(enum uext4_extent_kind kind)
{
    switch (kind) {
    case UEXT4_EXTENT_HOLE:
        return "hole";
    case UEXT4_EXTENT_WRITTEN:
        return "data";
    case UEXT4_EXTENT_UNWRITTEN:
        return "unwritten";
    case UEXT4_EXTENT_INLINE:
        return "inline";
    }
    return "?";
}

static void print_extent(const struct map *map, const struct uext4_extent *extent)
{
    uint64_t unit = map->is_in_blocks ? map->block_bytes : 1;
    uint64_t length = extent->length / unit + (extent->length % unit != 0);

    printf("%16" PRIu64 " %16" PRIu64 " ", extent->offset / unit, length);
    if (extent->kind == UEXT4_EXTENT_WRITTEN || extent->kind == UEXT4_EXTENT_UNWRITTEN)
        printf("%18" PRIu64, extent->device_offset / unit);
    else
        printf("%18s", "-");
    printf("  %s\n", kind_name(extent->kind));
}

static void add_extent(json_t *extents, const struct uext4_extent *extent)
{
    json_t *object = json_object();

    json_put_number(object, "offset", extent->offset);
    json_put_number(object, "length", extent->length);
    if (extent->kind == UEXT4_EXTENT_WRITTEN || extent->kind == UEXT4_EXTENT_UNWRITTEN)
        json_put_number(object, "device_offset", extent->device_offset);
    json_put(object, "kind", json_string(kind_name(extent->kind)));
    json_array_append_new(extents, object);
}

static void show_extent(const struct map *map, const struct uext4_extent *extent, json_t *extents)
{
    if (extents)
        add_extent(extents, extent);
    else
        print_extent(map, extent);
}

/*
 * Goes over the extents that begin before the end of the file, and those allocated behind it. What
 * lies behind the last extent and before the end of a regular file is a hole too.
 */
static int walk_extents(const struct map *map, struct uext4_inode *inode, uint64_t size,
                        json_t *extents)
{
    unsigned int limit = extents ? JSON_EXTENTS_MAX : EXTENTS_MAX;
    struct uext4_extent extent;
    uint64_t offset = 0;
    int result;

    while ((result = uext4_map(inode, offset, &extent)) == 0) {
        if (extent.length == 0 || extent.length > UINT64_MAX - offset)
            return -EUCLEAN;
        if (extent.kind == UEXT4_EXTENT_HOLE && offset >= size) {
            offset += extent.length;
            continue;
        }
        if (limit-- == 0)
            return -EFBIG;
        show_extent(map, &extent, extents);
        offset += extent.length;
    }
    if (result == -ENXIO && offset < size) {
        extent = (struct uext4_extent){
            .kind = UEXT4_EXTENT_HOLE, .offset = offset, .length = size - offset};
        show_extent(map, &extent, extents);
    }
    return result == -ENXIO ? 0 : result;
}

static void map_file(struct map *map, const char *path)
{
    struct uext4_inode *inode;
    struct uext4_stat stat;
    uint64_t end = 0; /* up to here holes are shown */
    int result = session_walk(&map->session, path, map->walk_flags, &inode);

    if (result < 0) {
        session_error(&map->session, path, result);
        return;
    }
    result = uext4_stat(inode, &stat);
    if (result == 0 && S_ISREG(stat.mode))
        end = stat.size;
    if (result == 0 && map->is_json) {
        json_t *file = json_object(), *extents = json_array();

        json_put_text(file, "path", path, strlen(path));
        json_put_number(file, "inode", stat.ino);
        json_put_number(file, "size", stat.size);
        result = walk_extents(map, inode, end, extents);
        json_put(file, "extents", extents);
        json_array_append_new(map->files, file);
    } else if (result == 0) {
        text_write(stdout, path, strlen(path), text_style_for(stdout));
        printf(": inode %" PRIu64 ", %" PRIu64 " bytes%s\n", stat.ino, stat.size,
               map->is_in_blocks ? ", extents in blocks" : "");
        printf("%16s %16s %18s  %s\n", "offset", "length", "on device", "kind");
        result = walk_extents(map, inode, end, NULL);
    }
    if (result == -EFBIG)
        session_fail(&map->session, path, "too many extents; the rest is not shown");
    else if (result < 0)
        session_error(&map->session, path, result);
    uext4_inode_put(inode);
}

static void parse_options(struct map *map, int argc, char **argv)
{
    static const struct option longs[] = {
        {"blocks", no_argument, NULL, 'b'},
        {"no-dereference", no_argument, NULL, 'P'},
        {"json", no_argument, NULL, 0x100},
        {0},
    };
    int option;

    while ((option = session_option(&map->session, argc, argv, "bP", longs)) != -1) {
        if (option == 'b')
            map->is_in_blocks = true;
        else if (option == 'P')
            map->walk_flags = UEXT4_WALK_NOFOLLOW;
        else
            map->is_json = true;
    }
    if (map->is_json && map->is_in_blocks)
        session_usage(&map->session, "--json counts in bytes; it excludes --blocks");
}

int map_run(const struct command *command, int argc, char **argv)
{
    struct map map = {0};
    struct uext4_info info;

    session_begin(&map.session, command);
    parse_options(&map, argc, argv);
    session_take_image(&map.session, argc, argv);
    if (optind >= argc)
        session_usage(&map.session, "no path given");
    if (session_open(&map.session) < 0)
        return session_end(&map.session);
    uext4_get_info(map.session.fs, &info);
    map.block_bytes = info.block_bytes ? info.block_bytes : 1;
    map.files = map.is_json ? json_array() : NULL;
    for (; optind < argc; optind++)
        map_file(&map, argv[optind]);
    if (map.is_json)
        json_finish(&map.session, map.files);
    return session_end(&map.session);
}
