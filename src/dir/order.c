/* SPDX-License-Identifier: MIT */
/*
 * Reads directories in the order of their names' hashes, which stays as it is when blocks split:
 * those with an index, and those of one block or in their inode, as they may get one.
 *
 * A cookie with DIR_COOKIE_ORDERED is a position:
 *
 *   bits 31..61  the hash that orders the index (without its lowest bit, which is 0)
 *   bits 11..30  more hash, of the name as it is written
 *   bits  0..10  how many entries with the same two are before this one, in the order of a third
 *
 * One call sorts one block of entries at a time, or the run of blocks that share a hash. An entry
 * whose hash does not belong into its block (other versions of utf8 fold differently) counts as
 * having the nearest one that does; it keeps that when the block splits.
 *
 * Cookie 0 is before "." and "..", 1 is between them.
 *
 * Locks: the caller's on the directory; blocks under the visitor are held. Callers: iterate.c.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dir/index.h"

#define MAJOR_SHIFT   31
#define MIDDLE_SHIFT  11
#define RANK_MASK     ((UINT64_C(1) << MIDDLE_SHIFT) - 1)
#define HASH_MAX      0xfffffffeu
#define COOKIE_DOTDOT 1

/*
 * What is sorted at once: a run of blocks with one hash can be as long as the directory. The rest
 * of the run comes in another turn.
 */
#define MAX_KEYS 4096

struct order_key {
    uint64_t position; /* rank 0 */
    uint32_t tie;
    uint32_t place;  /* file block, or area of an inline directory */
    uint32_t offset; /* in it */
};

/* Hashes that the entries of a block can have. */
struct range {
    uint32_t low, high;
};

struct reader {
    struct inode *dir;
    uint8_t hash_version;
    uint64_t cookie; /* what is before it was visited */
    dir_visitor visit;
    void *context;
    struct dir_inline_areas *areas; /* NULL: entries lie in blocks */
    struct order_key *keys;
    size_t key_count, key_capacity;
    bool is_cut; /* keys behind `cut` were dropped */
    struct order_key cut;
    int first_error;
    unsigned int damaged_run;
};

bool dir_is_ordered(const struct inode *dir)
{
    const struct superblock *sb = &dir->volume->sb;

    return superblock_has_compat(sb, FEATURE_COMPAT_DIR_INDEX) &&
           (inode_has_flag(dir, INODE_INDEXED) || inode_is_inline(dir) ||
            dir->fields.size == sb->block_bytes);
}

/* Remembers an error. False if it is not worth going on. */
static bool reader_note(struct reader *reader, int error)
{
    if (reader->first_error == 0)
        reader->first_error = error;
    return error != -EIO && error != -ENOMEM && ++reader->damaged_run < DIR_MAX_DAMAGED_RUN;
}

/* ---- Collecting and sorting ----------------------------------------------------------------- */

static int compare_keys(const void *left, const void *right)
{
    const struct order_key *a = left, *b = right;

    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    if (a->tie != b->tie)
        return a->tie < b->tie ? -1 : 1;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static void sort_keys(struct reader *reader)
{
    if (reader->key_count > 1)
        qsort(reader->keys, reader->key_count, sizeof(reader->keys[0]), compare_keys);
}

/* Makes room for a key: more memory, or the upper half is dropped for now. */
static int reader_make_room(struct reader *reader)
{
    if (reader->key_capacity < MAX_KEYS) {
        size_t capacity = MAX(reader->key_capacity * 2, (size_t)256);
        struct order_key *keys = realloc(reader->keys, capacity * sizeof(*keys));

        if (keys == NULL)
            return -ENOMEM;
        reader->keys = keys;
        reader->key_capacity = capacity;
        return 0;
    }
    sort_keys(reader);
    reader->key_count /= 2;
    reader->cut = reader->keys[reader->key_count - 1];
    reader->is_cut = true;
    return 0;
}

/* A hash of the name's bytes, for order among names whose other hash is the same. */
static uint32_t mix_name(const char *name, size_t length)
{
    uint64_t mixed = length;

    while (length > 0) {
        size_t step = MIN(length, sizeof(uint64_t));
        uint64_t word = 0;

        memcpy(&word, name, step);
        mixed = (mixed ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        mixed ^= mixed >> 29;
        name += step;
        length -= step;
    }
    return (uint32_t)(mixed >> 32 ^ mixed);
}

static bool make_key(const struct reader *reader, const struct dirent_view *entry,
                     struct range range, struct order_key *key)
{
    struct htree_hash hash;
    uint32_t mixed = mix_name(entry->name, entry->name_length);

    if (!dir_entry_hash(reader->dir, reader->hash_version, entry, &hash))
        return false;
    uint64_t major = MIN(MAX(hash.major & ~1u, range.low), range.high) / 2;
    uint64_t middle = (hash.minor ^ mixed) >> (32 - (MAJOR_SHIFT - MIDDLE_SHIFT));
    key->position = DIR_COOKIE_ORDERED | major << MAJOR_SHIFT | middle << MIDDLE_SHIFT;
    key->tie = mixed;
    return true;
}

static bool is_dots(const struct dirent_view *entry)
{
    return entry->name[0] == '.' &&
           (entry->name_length == 1 || (entry->name_length == 2 && entry->name[1] == '.'));
}

/* Adds the entries of an area from the cookie on. 0, or -EUCLEAN if not all of it can be read. */
static int collect_area(struct reader *reader, const void *area, size_t size, uint32_t place,
                        struct range range)
{
    struct dirent_view entry;

    for (size_t offset = 0; offset < size; offset += entry.record_bytes) {
        struct order_key key = {.place = place, .offset = (uint32_t)offset};
        const char *reason = dirent_read(&reader->dir->volume->sb, area, size, offset, false,
                                         &entry);

        if (reason == NULL && entry.ino != 0 && !is_dots(&entry) &&
            !make_key(reader, &entry, range, &key))
            reason = "a name cannot be hashed";
        if (reason != NULL)
            return dir_corrupt(reader->dir, reader->areas != NULL ? 0 : place, reason);
        if (entry.ino == 0 || is_dots(&entry) || (key.position | RANK_MASK) < reader->cookie)
            continue;
        if (reader->key_count == reader->key_capacity) {
            int error = reader_make_room(reader);

            if (error != 0)
                return error;
        }
        /* Also what the making of room has just put behind the cut. */
        if (reader->is_cut && compare_keys(&key, &reader->cut) > 0)
            continue;
        reader->keys[reader->key_count++] = key;
    }
    return 0;
}

static int collect_block(struct reader *reader, uint32_t file_block, struct range range)
{
    struct buffer *buffer;
    uint64_t hole_blocks;
    int error = dir_get_leaf(reader->dir, file_block, &buffer, &hole_blocks);

    if (error != 0)
        return error;
    if (buffer == NULL)
        return dir_corrupt(reader->dir, file_block, "the index points to a hole");
    error = collect_area(reader, buffer->data, reader->dir->volume->sb.block_bytes, file_block,
                         range);
    buffer_put(buffer);
    return error;
}

/* ---- Visiting ------------------------------------------------------------------------------- */

/* Gives the area that a key lies in; *held keeps its block. */
static int open_place(struct reader *reader, uint32_t place, struct buffer **held,
                      const void **area, size_t *size)
{
    uint64_t hole_blocks;

    if (reader->areas != NULL) {
        *area = reader->areas->area[place].start;
        *size = reader->areas->area[place].size;
        return 0;
    }
    buffer_put(*held);
    *held = NULL;
    int error = dir_get_leaf(reader->dir, place, held, &hole_blocks);
    if (error == 0 && *held == NULL)
        error = -EUCLEAN;
    if (error == 0) {
        *area = (*held)->data;
        *size = reader->dir->volume->sb.block_bytes;
    }
    return error;
}

/* Visits what was collected, in order. 1 to go on, 0 when stopped, or an error that ends it. */
static int visit_keys(struct reader *reader)
{
    const struct inode *dir = reader->dir;
    struct buffer *held = NULL;
    const void *area = NULL;
    size_t size = 0, rank = 0;
    int result = 1;

    sort_keys(reader);
    for (size_t i = 0; i < reader->key_count && result == 1; i++) {
        const struct order_key *key = &reader->keys[i];
        struct dirent_view entry;

        rank = i > 0 && key->position == reader->keys[i - 1].position ? rank + 1 : 0;
        if ((key->position | MIN(rank, RANK_MASK)) < reader->cookie)
            continue;
        if (area == NULL || key->place != reader->keys[i - 1].place) {
            result = open_place(reader, key->place, &held, &area, &size);
            if (result != 0)
                break;
            result = 1;
        }
        if (dirent_read(&dir->volume->sb, area, size, key->offset, false, &entry) != NULL)
            continue;
        if (rank > RANK_MASK)
            reader_note(reader, dir_corrupt(dir, 0, "too many names with the same hashes"));
        else if (!dirent_name_is_valid(&entry))
            reader_note(reader, dir_corrupt(dir, 0, "a name has a slash or a NUL in it"));
        else if (!reader->visit(reader->context, &entry, (key->position | rank) + 1))
            result = 0;
        else
            reader->cookie = (key->position | rank) + 1;
    }
    buffer_put(held);
    reader->key_count = 0;
    return result;
}

/* ---- "." and ".." --------------------------------------------------------------------------- */

/* 1 to go on, 0 when stopped, -EAGAIN if the directory does not begin with them, or an error. */
static int visit_dots(struct reader *reader)
{
    struct inode *dir = reader->dir;
    const struct superblock *sb = &dir->volume->sb;
    struct dirent_view dot = {.ino = dir->ino, .name_length = 1, .name = ".", .type = DT_DIR};
    struct dirent_view dotdot = {.name_length = 2, .name = "..", .type = DT_DIR};
    struct buffer *buffer = NULL;
    uint64_t hole_blocks;
    int result = 1;

    if (reader->areas != NULL) {
        dotdot.ino = reader->areas->parent;
        if (dotdot.ino == 0 || dotdot.ino > sb->inode_count)
            return -EAGAIN;
    } else {
        int error = dir_get_leaf(dir, 0, &buffer, &hole_blocks);

        if (error != 0 || buffer == NULL)
            return -EAGAIN;
        if (dirent_read(sb, buffer->data, sb->block_bytes, 0, false, &dot) != NULL ||
            dot.ino == 0 || dot.name_length != 1 || !is_dots(&dot) ||
            dirent_read(sb, buffer->data, sb->block_bytes, dot.record_bytes, false, &dotdot) !=
                NULL ||
            dotdot.ino == 0 || dotdot.name_length != 2 || !is_dots(&dotdot))
            result = -EAGAIN;
    }
    if (result == 1 && reader->cookie == 0 && !reader->visit(reader->context, &dot, COOKIE_DOTDOT))
        result = 0;
    if (result == 1 && !reader->visit(reader->context, &dotdot, DIR_COOKIE_ORDERED))
        result = 0;
    buffer_put(buffer);
    reader->cookie = DIR_COOKIE_ORDERED;
    return result;
}

/* ---- Whole directories ---------------------------------------------------------------------- */

static int read_small(struct reader *reader)
{
    static const struct range all = {0, HASH_MAX};
    int error = 0;

    do {
        reader->is_cut = false;
        if (reader->areas == NULL)
            error = collect_block(reader, 0, all);
        for (uint32_t i = 0; reader->areas != NULL && i < ARRAY_LENGTH(reader->areas->area); i++) {
            int area_error = collect_area(reader, reader->areas->area[i].start,
                                          reader->areas->area[i].size, i, all);
            error = error != 0 ? error : area_error;
        }
        if (error != 0)
            reader_note(reader, error);
        int result = visit_keys(reader);
        if (result <= 0)
            return result;
    } while (reader->is_cut);
    return reader->first_error;
}

/* The hashes that the block under the path can have; `low` bounds them from below. */
static struct range leaf_range(const struct index_path *path, uint32_t low)
{
    uint32_t next;
    struct range range = {MAX(index_leaf(path).hash & ~1u, low), HASH_MAX};

    /* What goes on in the next block can be in both. */
    if (index_peek_next(path, &next))
        range.high = (next & 1) != 0 ? next & ~1u : next - MIN(next, 2u);
    range.high = MAX(range.high, range.low);
    return range;
}

/*
 * Collects the block under the path, and those that go on with its last hash. The path then stands
 * on the last of them. False if nothing behind can be read.
 */
static bool collect_run(struct reader *reader, struct index_path *path, uint32_t *low,
                        uint64_t *leaves)
{
    uint32_t next;

    for (;;) {
        struct range range = leaf_range(path, *low);
        int error = collect_block(reader, index_leaf(path).block, range);

        *low = range.high;
        if (error != 0 && !reader_note(reader, error))
            return false;
        reader->damaged_run = error != 0 ? reader->damaged_run : 0;
        if (!index_peek_next(path, &next) || (next & 1) == 0)
            return true;
        if (++*leaves >= path->block_count)
            return false;
        int moved = index_next(path);
        if (moved <= 0) {
            if (moved < 0)
                reader_note(reader, moved);
            return false;
        }
    }
}

static int read_leaves(struct reader *reader, struct index_path *path)
{
    uint32_t start = (uint32_t)(reader->cookie >> MAJOR_SHIFT) << 1;
    uint32_t low = 0;
    uint64_t leaves = 0;
    int result = index_descend(path, start);

    while (result == 0) {
        bool goes_on = collect_run(reader, path, &low, &leaves);

        result = visit_keys(reader);
        if (result <= 0)
            return result;
        if (reader->is_cut) {
            /* The run has more names than are sorted at once: from its beginning, for the rest. */
            reader->is_cut = false;
            index_close(path);
            result = index_open(reader->dir, path);
            if (result == 0)
                result = index_descend(path, (uint32_t)(reader->cookie >> MAJOR_SHIFT) << 1);
            low = 0;
            continue;
        }
        if (!goes_on || ++leaves > path->block_count)
            return reader->first_error;
        result = index_next(path);
        if (result == 0)
            return reader->first_error;
        result = result > 0 ? 0 : result;
    }
    return reader->first_error != 0 ? reader->first_error : result;
}

static int read_indexed(struct reader *reader)
{
    struct index_path path;
    int error;

    if (reader->cookie == 0) {
        error = index_check(reader->dir);
        if (error < 0)
            return error;
        if (error == 0) {
            log_warning(reader->dir->volume->log, "directory inode %u: read without its index",
                        reader->dir->ino);
            return -EAGAIN;
        }
    }
    if (reader->cookie < DIR_COOKIE_ORDERED) {
        int result = visit_dots(reader);
        if (result <= 0)
            return result;
    }
    error = index_open(reader->dir, &path);
    if (error != 0)
        return error;
    reader->hash_version = path.root.hash_version;
    error = read_leaves(reader, &path);
    index_close(&path);
    return error;
}

int dir_order_iterate(struct inode *dir, uint64_t cookie, dir_visitor visit, void *context)
{
    struct dir_inline_areas areas;
    struct reader reader = {
        .dir = dir,
        .hash_version = dir_default_hash_version(&dir->volume->sb),
        .cookie = cookie,
        .visit = visit,
        .context = context,
    };
    int result = 1;

    if (inode_is_inline(dir)) {
        result = dir_inline_open(dir, &areas);
        if (result != 0)
            return result;
        reader.areas = &areas;
    }
    if (inode_has_flag(dir, INODE_INDEXED)) {
        result = read_indexed(&reader);
    } else {
        result = cookie < DIR_COOKIE_ORDERED ? visit_dots(&reader) : 1;
        if (result > 0)
            result = read_small(&reader);
    }
    if (reader.areas != NULL)
        buffer_put(areas.data.buffer);
    free(reader.keys);
    return result;
}
