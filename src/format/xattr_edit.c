/* SPDX-License-Identifier: MIT */
/*
 * Changes of extended attributes. Entries grow from the start of an area, values from its end, each
 * padded to four bytes; what lies between is free. In blocks, entries are sorted by index, length
 * of the name, name, and carry hashes; in inodes, they come as they were added. Every change first
 * checks the whole area. Pure functions without locks, called by the inode layer.
 */
#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "format/xattr_disk.h"

#define INODE_BASE_BYTES 128

#define NAME_HASH_SHIFT  5
#define VALUE_HASH_SHIFT 16

static uint32_t entry_bytes(size_t name_length)
{
    return (uint32_t)ROUND_UP(sizeof(struct disk_xattr_entry) + name_length, XATTR_ALIGN);
}

static uint32_t value_room(uint32_t value_bytes)
{
    return ROUND_UP(value_bytes, XATTR_ALIGN);
}

bool xattr_inode_place(const struct superblock *sb, void *raw_inode, uint32_t extra_isize,
                       struct xattr_place *place)
{
    uint32_t room_bytes = sb->inode_bytes - INODE_BASE_BYTES;
    uint8_t *header = (uint8_t *)raw_inode + INODE_BASE_BYTES + extra_isize;

    if (extra_isize == 0 || extra_isize > room_bytes || room_bytes - extra_isize < 2 * sizeof(le32))
        return false;
    *place = (struct xattr_place){
        .header = header,
        .entries = header + sizeof(le32),
        .base = header + sizeof(le32),
        .end = (uint8_t *)raw_inode + sb->inode_bytes,
    };
    /* Without the magic number, anything may be there. */
    if (le32_at(header) != XATTR_MAGIC)
        memset(header, 0, room_bytes - extra_isize);
    return true;
}

void xattr_block_place(const struct superblock *sb, void *block, struct xattr_place *place)
{
    *place = (struct xattr_place){
        .header = block,
        .entries = (uint8_t *)block + sizeof(struct disk_xattr_header),
        .base = block,
        .end = (uint8_t *)block + sb->block_bytes,
        .is_block = true,
    };
}

void xattr_block_init(const struct superblock *sb, void *block)
{
    memset(block, 0, sb->block_bytes);
    *(struct disk_xattr_header *)block = (struct disk_xattr_header){
        .magic = le32_make(XATTR_MAGIC),
        .reference_count = le32_make(1),
        .block_count = le32_make(1),
    };
}

struct xattr_area xattr_area_of(const struct xattr_place *place)
{
    return (struct xattr_area){.entries = place->entries, .base = place->base, .end = place->end};
}

uint32_t xattr_needed_bytes(size_t name_length, uint32_t value_bytes)
{
    return entry_bytes(name_length) + value_room(value_bytes);
}

uint32_t xattr_place_capacity(const struct xattr_place *place)
{
    return (uint32_t)(place->end - place->entries) - (uint32_t)sizeof(le32);
}

bool xattr_place_is_empty(const struct xattr_place *place)
{
    return le32_at(place->entries) == 0;
}

/* ---- Looking ----------------------------------------------------------------------------------
 */

/* An area, checked and measured, with the place of one attribute in it. */
struct layout {
    uint8_t *found;     /* the entry of that name, or NULL */
    uint8_t *insert_at; /* where an entry of that name belongs */
    uint8_t *end_mark;  /* behind the last entry: four zero bytes */
    uint8_t *values;    /* the lowest value; place->end without one */
};

static uint32_t free_bytes(const struct layout *layout)
{
    return (uint32_t)(layout->values - layout->end_mark) - (uint32_t)sizeof(le32);
}

/* Where the value of an entry lies, with its padding. False if it does not lie in the area. */
static bool get_value_range(const struct disk_xattr_entry *entry, size_t *from, size_t *to)
{
    uint32_t bytes = le32_get(entry->value_bytes);

    *from = le16_get(entry->value_offset);
    *to = *from + value_room(bytes);
    return le32_get(entry->value_ino) == 0 && bytes > 0;
}

/*
 * True if values are aligned, padded inside the area, and none overlaps another: moving them about
 * would damage others, or worse. The area passed its check, but for reading that does not matter.
 */
static bool can_be_changed(const struct xattr_place *place)
{
    const struct disk_xattr_entry *entry, *other;
    size_t from, to, other_from, other_to, size = (size_t)(place->end - place->base);

    for (const uint8_t *a = place->entries; le32_at(a) != 0; a += entry_bytes(entry->name_length)) {
        entry = (const void *)a;
        if (!get_value_range(entry, &from, &to))
            continue;
        if (from % XATTR_ALIGN != 0 || to > size)
            return false;
        for (const uint8_t *b = place->entries; b != a; b += entry_bytes(other->name_length)) {
            other = (const void *)b;
            if (get_value_range(other, &other_from, &other_to) && from < other_to &&
                other_from < to)
                return false;
        }
    }
    return true;
}

static int compare(const struct xattr_view *view, uint8_t index, const char *name, size_t length)
{
    if (view->index != index)
        return view->index < index ? -1 : 1;
    if (view->name_length != length)
        return view->name_length < length ? -1 : 1;
    return memcmp(view->name, name, length);
}

static int measure(const struct superblock *sb, const struct xattr_place *place, uint8_t index,
                   const char *name, size_t length, struct layout *layout)
{
    struct xattr_area area = xattr_area_of(place);
    struct xattr_view view = {.following = place->entries};
    const char *reason;
    uint8_t *position = place->entries;
    int step;

    *layout = (struct layout){.values = place->end};
    while ((step = xattr_next(sb, &area, position, &view, &reason)) > 0) {
        int order = compare(&view, index, name, length);
        if (order == 0)
            layout->found = position;
        if (order > 0 && place->is_block && layout->insert_at == NULL)
            layout->insert_at = position;
        if (view.value_ino == 0 && view.value_bytes > 0) {
            uint8_t *value = position + ((const uint8_t *)view.value - position);
            layout->values = MIN(layout->values, value);
        }
        position += entry_bytes(view.name_length);
    }
    layout->end_mark = position;
    if (layout->insert_at == NULL)
        layout->insert_at = position;
    return step < 0 ? step : can_be_changed(place) ? 0 : -EUCLEAN;
}

int64_t xattr_place_free(const struct superblock *sb, const struct xattr_place *place)
{
    struct layout layout;
    int error = measure(sb, place, 0, "", 0, &layout);

    if (error != 0)
        return error;
    return free_bytes(&layout);
}

/* ---- Hashes -----------------------------------------------------------------------------------
 */

static uint32_t rotate_left(uint32_t value, unsigned int bits)
{
    return value << bits | value >> (32 - bits);
}

uint32_t xattr_entry_hash(const struct xattr_new *attribute)
{
    uint32_t hash = 0;

    for (unsigned int i = 0; i < attribute->name_length; i++)
        hash = rotate_left(hash, NAME_HASH_SHIFT) ^ (uint8_t)attribute->name[i];
    if (attribute->value_ino != 0)
        return rotate_left(hash, VALUE_HASH_SHIFT) ^ attribute->value_hash;
    for (uint32_t done = 0; done < attribute->value_bytes; done += XATTR_ALIGN) {
        le32 word = {0};
        memcpy(&word, (const uint8_t *)attribute->value + done,
               MIN(attribute->value_bytes - done, XATTR_ALIGN));
        hash = rotate_left(hash, VALUE_HASH_SHIFT) ^ le32_get(word);
    }
    return hash;
}

/* The hash of all; an entry without one makes the block one that is not shared. */
static void update_block_hash(const struct xattr_place *place)
{
    struct disk_xattr_header *header = (void *)place->header;
    uint32_t hash = 0;

    for (const uint8_t *position = place->entries; le32_at(position) != 0;) {
        const struct disk_xattr_entry *entry = (const void *)position;
        uint32_t own = le32_get(entry->hash);
        if (own == 0) {
            hash = 0;
            break;
        }
        hash = rotate_left(hash, VALUE_HASH_SHIFT) ^ own;
        position += entry_bytes(entry->name_length);
    }
    header->hash = le32_make(hash);
}

/* What has to follow every change. */
static void finish(const struct xattr_place *place)
{
    le32 magic = le32_make(xattr_place_is_empty(place) ? 0 : XATTR_MAGIC);

    if (place->is_block)
        update_block_hash(place);
    else
        memcpy(place->header, &magic, sizeof(magic));
}

/* ---- Changing ---------------------------------------------------------------------------------
 */

/* Adds `by` to the offsets of all values in the area that lie below `limit`. */
static void move_offsets(const struct xattr_place *place, size_t limit, size_t by)
{
    for (uint8_t *position = place->entries; le32_at(position) != 0;) {
        struct disk_xattr_entry *entry = (void *)position;
        size_t offset = le16_get(entry->value_offset);
        if (le32_get(entry->value_ino) == 0 && le32_get(entry->value_bytes) > 0 && offset < limit)
            entry->value_offset = le16_make((uint16_t)(offset + by));
        position += entry_bytes(entry->name_length);
    }
}

/* Takes the value of the entry at `position` out; the values below it move up. */
static void remove_value(const struct xattr_place *place, struct layout *layout,
                         struct disk_xattr_entry *entry)
{
    uint32_t bytes = value_room(le32_get(entry->value_bytes));

    if (le32_get(entry->value_ino) != 0 || bytes == 0)
        return;
    size_t offset = le16_get(entry->value_offset);
    uint8_t *value = place->base + offset;
    memmove(layout->values + bytes, layout->values, (size_t)(value - layout->values));
    memset(layout->values, 0, bytes);
    entry->value_bytes = le32_make(0);
    entry->value_offset = le16_make(0);
    move_offsets(place, offset, bytes);
    layout->values += bytes;
}

static void remove_entry(struct layout *layout)
{
    struct disk_xattr_entry *entry = (void *)layout->found;
    uint32_t bytes = entry_bytes(entry->name_length);

    /* The mark of the end moves along. */
    memmove(layout->found, layout->found + bytes,
            (size_t)(layout->end_mark - layout->found) + sizeof(le32) - bytes);
    memset(layout->end_mark + sizeof(le32) - bytes, 0, bytes);
    if (layout->insert_at > layout->found)
        layout->insert_at -= bytes;
    layout->end_mark -= bytes;
    layout->found = NULL;
}

static void add(const struct xattr_place *place, struct layout *layout,
                const struct xattr_new *attribute)
{
    uint32_t bytes = entry_bytes(attribute->name_length), offset = 0;
    bool has_value = attribute->value_ino == 0 && attribute->value_bytes > 0;

    if (has_value) {
        uint32_t room = value_room(attribute->value_bytes);
        layout->values -= room;
        memset(layout->values + room - XATTR_ALIGN, 0, XATTR_ALIGN);
        memcpy(layout->values, attribute->value, attribute->value_bytes);
        offset = (uint32_t)(layout->values - place->base);
    }
    memmove(layout->insert_at + bytes, layout->insert_at,
            (size_t)(layout->end_mark - layout->insert_at));
    memset(layout->end_mark + bytes, 0, sizeof(le32));

    struct disk_xattr_entry entry = {
        .name_length = attribute->name_length,
        .index = attribute->index,
        .value_offset = le16_make((uint16_t)offset),
        .value_ino = le32_make(attribute->value_ino),
        .value_bytes = le32_make(attribute->value_bytes),
    };
    /* Nobody looks at the hashes of values inside of inodes. */
    if (place->is_block || attribute->value_ino != 0)
        entry.hash = le32_make(xattr_entry_hash(attribute));
    memset(layout->insert_at, 0, bytes);
    memcpy(layout->insert_at, &entry, sizeof(entry));
    memcpy(layout->insert_at + sizeof(entry), attribute->name, attribute->name_length);
}

int xattr_set(const struct superblock *sb, const struct xattr_place *place,
              const struct xattr_new *attribute)
{
    struct layout layout;
    int error = measure(sb, place, attribute->index, attribute->name, attribute->name_length,
                        &layout);

    if (error != 0)
        return error;
    uint32_t value_bytes = attribute->value_ino != 0 ? 0 : attribute->value_bytes;
    uint32_t needed = xattr_needed_bytes(attribute->name_length, MIN(value_bytes, 1u << 20));
    uint32_t gained = 0;
    if (layout.found != NULL) {
        const struct disk_xattr_entry *old = (const void *)layout.found;
        gained = xattr_needed_bytes(old->name_length,
                                    le32_get(old->value_ino) != 0 ? 0 : le32_get(old->value_bytes));
    }
    if (free_bytes(&layout) + gained < needed)
        return -ENOSPC;
    if (layout.found != NULL) {
        remove_value(place, &layout, (void *)layout.found);
        remove_entry(&layout);
    }
    add(place, &layout, attribute);
    finish(place);
    return 0;
}

int xattr_remove(const struct superblock *sb, const struct xattr_place *place, uint8_t index,
                 const char *name, size_t name_length)
{
    struct layout layout;
    int error = measure(sb, place, index, name, name_length, &layout);

    if (error != 0)
        return error;
    if (layout.found == NULL)
        return -ENODATA;
    remove_value(place, &layout, (void *)layout.found);
    remove_entry(&layout);
    finish(place);
    return 0;
}

/* ---- Blocks -----------------------------------------------------------------------------------
 */

uint32_t xattr_block_references(const void *block)
{
    const struct disk_xattr_header *header = block;
    return le32_get(header->reference_count);
}

void xattr_block_set_references(void *block, uint32_t references)
{
    struct disk_xattr_header *header = block;
    header->reference_count = le32_make(references);
}

uint32_t xattr_block_hash(const void *block)
{
    const struct disk_xattr_header *header = block;
    return le32_get(header->hash);
}

bool xattr_blocks_are_equal(const struct superblock *sb, const void *a, const void *b)
{
    const size_t header_bytes = sizeof(struct disk_xattr_header);
    return xattr_block_hash(a) == xattr_block_hash(b) &&
           memcmp((const uint8_t *)a + header_bytes, (const uint8_t *)b + header_bytes,
                  sb->block_bytes - header_bytes) == 0;
}

void xattr_block_set_checksum(const struct superblock *sb, uint64_t disk_block, void *block)
{
    struct disk_xattr_header *header = block;
    if (sb->has_metadata_csum)
        header->checksum = le32_make(xattr_block_checksum(sb, disk_block, block));
}
