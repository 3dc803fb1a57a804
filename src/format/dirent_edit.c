/* SPDX-License-Identifier: MIT */
/*
 * Changes of linear directory areas. An area is always filled with records end to end; room is the
 * difference between a record's length and what its name needs. Walks go through dirent_read, so a
 * damaged area is refused before anything in it changes. Pure functions without locks, called by
 * the dir layer.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "format/crc.h"
#include "format/dirent_disk.h"

#define FIRST_ENTRY_OF_BLOCK 0

static uint8_t type_to_disk(const struct superblock *sb, uint8_t type)
{
    static const uint8_t types[] = {[DT_REG] = 1,  [DT_DIR] = 2,  [DT_CHR] = 3, [DT_BLK] = 4,
                                    [DT_FIFO] = 5, [DT_SOCK] = 6, [DT_LNK] = 7};

    if (!superblock_has_incompat(sb, FEATURE_INCOMPAT_FILETYPE) || type >= ARRAY_LENGTH(types))
        return 0;
    return types[type];
}

/* In blocks of 64 KiB, 65535 stands for 65536. */
static le16 record_length_to_disk(uint32_t record_bytes)
{
    return le16_make(record_bytes == 65536 ? 65535 : (uint16_t)record_bytes);
}

static struct disk_dirent *place_of(void *area, size_t offset)
{
    return (void *)((uint8_t *)area + offset);
}

static bool stores_hash(bool has_stored_hash, const struct dirent_view *entry)
{
    return has_stored_hash && entry->ino != 0 && !dirent_is_dot_or_dotdot(entry);
}

/* What an entry that was read takes at least; 0 if it is not in use. */
static uint32_t used_bytes(const struct dirent_view *entry, bool has_stored_hash)
{
    return entry->ino == 0
               ? 0
               : dirent_needed_bytes(entry->name_length, stores_hash(has_stored_hash, entry));
}

static void write_entry(const struct superblock *sb, void *area, size_t offset,
                        uint32_t record_bytes, bool has_stored_hash,
                        const struct dirent_view *entry)
{
    struct disk_dirent *disk = place_of(area, offset);
    uint8_t *name = (uint8_t *)(disk + 1);

    assert(entry->ino != 0 && entry->name_length > 0);
    disk->ino = le32_make(entry->ino);
    disk->record_bytes = record_length_to_disk(record_bytes);
    disk->name_length = entry->name_length;
    disk->type = type_to_disk(sb, entry->type);
    /* The name may lie in the same block (compaction). */
    memmove(name, entry->name, entry->name_length);
    size_t padded = ROUND_UP((size_t)DIRENT_HEADER_BYTES + entry->name_length, 4);
    memset(name + entry->name_length, 0, padded - DIRENT_HEADER_BYTES - entry->name_length);
    if (stores_hash(has_stored_hash, entry)) {
        le32 hashes[2] = {le32_make(entry->hash), le32_make(entry->minor_hash)};
        memcpy((uint8_t *)disk + padded, hashes, sizeof(hashes));
    }
}

uint32_t dirent_needed_bytes(size_t name_length, bool has_stored_hash)
{
    return (uint32_t)ROUND_UP(DIRENT_HEADER_BYTES + name_length, 4) +
           (has_stored_hash ? DIRENT_STORED_HASH_BYTES : 0);
}

size_t dirent_block_room(const struct superblock *sb)
{
    return sb->block_bytes - (sb->has_metadata_csum ? DIRENT_TAIL_BYTES : 0);
}

void dirent_area_init(const struct superblock *sb, void *area, size_t size)
{
    (void)sb;
    assert(size >= DIRENT_RECORD_MIN_BYTES && size % 4 == 0 && size <= 65536);
    *place_of(area,
              0) = (struct disk_dirent){.record_bytes = record_length_to_disk((uint32_t)size)};
}

static void init_tail(const struct superblock *sb, void *block)
{
    struct disk_dirent_tail tail = {
        .record_bytes = le16_make(DIRENT_TAIL_BYTES),
        .type = DIRENT_TAIL_TYPE,
    };
    if (sb->has_metadata_csum)
        memcpy((uint8_t *)block + dirent_block_room(sb), &tail, sizeof(tail));
}

void dirent_block_init(const struct superblock *sb, void *block)
{
    memset(block, 0, sb->block_bytes);
    dirent_area_init(sb, block, dirent_block_room(sb));
    init_tail(sb, block);
}

void dirent_block_init_dots(const struct superblock *sb, void *block, uint32_t ino,
                            uint32_t parent_ino)
{
    struct dirent_view dot = {.ino = ino, .type = DT_DIR, .name = ".", .name_length = 1};
    struct dirent_view dotdot = {.ino = parent_ino, .type = DT_DIR, .name = "..", .name_length = 2};

    dirent_block_init(sb, block);
    dirent_insert_at(sb, block, 0, false, &dot);
    dirent_insert_at(sb, block, 0, false, &dotdot);
}

bool dirent_block_has_tail(const struct superblock *sb, const void *block)
{
    const struct disk_dirent_tail *tail =
        (const void *)((const uint8_t *)block + sb->block_bytes - DIRENT_TAIL_BYTES);
    return le32_get(tail->zero) == 0 && le16_get(tail->record_bytes) == DIRENT_TAIL_BYTES &&
           tail->zero_name_length == 0 && tail->type == DIRENT_TAIL_TYPE;
}

void dirent_block_set_checksum(const struct superblock *sb, uint32_t inode_seed, void *block)
{
    if (!sb->has_metadata_csum)
        return;
    size_t covered_bytes = dirent_block_room(sb);
    struct disk_dirent_tail *tail = (void *)((uint8_t *)block + covered_bytes);
    tail->checksum = le32_make(crc32c(inode_seed, block, covered_bytes));
}

int dirent_find_room(const struct superblock *sb, const void *area, size_t size,
                     bool has_stored_hash, uint32_t needed_bytes, size_t *offset)
{
    struct dirent_view entry;
    bool is_found = false;

    /* The walk goes on to the end, so that nothing is put into a damaged area. */
    for (size_t at = 0; at < size; at += entry.record_bytes) {
        if (dirent_read(sb, area, size, at, has_stored_hash, &entry) != NULL)
            return -EUCLEAN;
        if (is_found ||
            entry.record_bytes - MIN(used_bytes(&entry, has_stored_hash), entry.record_bytes) <
                needed_bytes)
            continue;
        is_found = true;
        *offset = at;
    }
    return is_found ? 0 : -ENOSPC;
}

size_t dirent_insert_at(const struct superblock *sb, void *area, size_t offset,
                        bool has_stored_hash, const struct dirent_view *entry)
{
    /* The record ends where it says, or its reader would have refused it; 65536 is the most. */
    struct dirent_view before;
    const char *problem = dirent_read(sb, area, offset + 65536, offset, has_stored_hash, &before);
    uint32_t record_bytes = before.record_bytes, kept = used_bytes(&before, has_stored_hash);

    assert(problem == NULL);
    (void)problem;
    assert(record_bytes >=
           kept + dirent_needed_bytes(entry->name_length, stores_hash(has_stored_hash, entry)));
    if (kept > 0)
        place_of(area, offset)->record_bytes = record_length_to_disk(kept);
    write_entry(sb, area, offset + kept, record_bytes - kept, has_stored_hash, entry);
    return offset + kept;
}

int dirent_insert(const struct superblock *sb, void *area, size_t size, bool has_stored_hash,
                  const struct dirent_view *entry)
{
    uint32_t needed = dirent_needed_bytes(entry->name_length, stores_hash(has_stored_hash, entry));
    size_t offset;
    int error = dirent_find_room(sb, area, size, has_stored_hash, needed, &offset);

    if (error == 0)
        dirent_insert_at(sb, area, offset, has_stored_hash, entry);
    return error;
}

int dirent_remove(const struct superblock *sb, void *area, size_t size, bool has_stored_hash,
                  size_t offset)
{
    struct dirent_view entry, before = {0};
    size_t before_at = 0, at = 0;

    while (at < size) {
        if (dirent_read(sb, area, size, at, has_stored_hash, &entry) != NULL)
            return -EUCLEAN;
        if (at >= offset)
            break;
        before = entry;
        before_at = at;
        at += entry.record_bytes;
    }
    if (at != offset || at >= size || entry.ino == 0)
        return -ENOENT;
    if (at == FIRST_ENTRY_OF_BLOCK)
        place_of(area, at)->ino = le32_make(0);
    else
        place_of(area, before_at)->record_bytes =
            record_length_to_disk(before.record_bytes + entry.record_bytes);
    return 0;
}

void dirent_replace(const struct superblock *sb, void *area, size_t offset, uint32_t ino,
                    uint8_t type)
{
    struct disk_dirent *disk = place_of(area, offset);

    disk->ino = le32_make(ino);
    disk->type = type_to_disk(sb, type);
}

int dirent_area_is_empty(const struct superblock *sb, const void *area, size_t size,
                         bool has_stored_hash)
{
    struct dirent_view entry;
    bool is_empty = true;

    for (size_t at = 0; at < size; at += entry.record_bytes) {
        if (dirent_read(sb, area, size, at, has_stored_hash, &entry) != NULL)
            return -EUCLEAN;
        if (entry.ino != 0 && !dirent_is_dot_or_dotdot(&entry))
            is_empty = false;
    }
    return is_empty ? 1 : 0;
}

/* ---- Many entries at once ------------------------------------------------------------------- */

/* Packs entries into an area that is made anew; the last one gets what is left. */
struct packer {
    const struct superblock *sb;
    uint8_t *area;
    size_t size, used, last;
    bool has_stored_hash;
};

static bool pack(struct packer *packer, const struct dirent_view *entry)
{
    uint32_t needed = used_bytes(entry, packer->has_stored_hash);

    if (packer->size - packer->used < needed)
        return false;
    packer->last = packer->used;
    packer->used += needed;
    write_entry(packer->sb, packer->area, packer->last, needed, packer->has_stored_hash, entry);
    return true;
}

static void finish_packing(struct packer *packer)
{
    if (packer->used == 0)
        dirent_area_init(packer->sb, packer->area, packer->size);
    else
        place_of(packer->area, packer->last)->record_bytes =
            record_length_to_disk((uint32_t)(packer->size - packer->last));
}

int dirent_copy_entries(const struct superblock *sb, const void *from, size_t from_size, void *to,
                        size_t to_size, bool has_stored_hash)
{
    struct packer packer = {
        .sb = sb, .area = to, .size = to_size, .has_stored_hash = has_stored_hash};
    struct dirent_view entry;

    for (size_t at = 0; at < from_size; at += entry.record_bytes) {
        if (dirent_read(sb, from, from_size, at, has_stored_hash, &entry) != NULL)
            return -EUCLEAN;
        if (entry.ino != 0 && !dirent_is_dot_or_dotdot(&entry) && !pack(&packer, &entry))
            return -ENOSPC;
    }
    finish_packing(&packer);
    return 0;
}

/* An entry of the leaf that is split. The table of them lies in the upper block until it is filled:
 * a record has 12 bytes at least. */
struct split_key {
    uint32_t hash;
    uint16_t place; /* offset / 4 */
    uint16_t bytes; /* used */
};
_Static_assert(sizeof(struct split_key) <= DIRENT_RECORD_MIN_BYTES, "fits the upper block");

static struct split_key key_at(const void *keys, size_t position)
{
    struct split_key key;
    memcpy(&key, (const uint8_t *)keys + position * sizeof(key), sizeof(key));
    return key;
}

static void set_key(void *keys, size_t position, struct split_key key)
{
    memcpy((uint8_t *)keys + position * sizeof(key), &key, sizeof(key));
}

/* By hash; entries of the same hash as they lie in the block. */
static bool is_before(struct split_key a, struct split_key b)
{
    return a.hash != b.hash ? a.hash < b.hash : a.place < b.place;
}

/* Lets the key at `root` sink to its place in a heap with the last key on top. */
static void sift_down(void *keys, size_t root, size_t count)
{
    struct split_key sinking = key_at(keys, root);

    for (size_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && is_before(key_at(keys, child), key_at(keys, child + 1)))
            child++;
        if (!is_before(sinking, key_at(keys, child)))
            break;
        set_key(keys, root, key_at(keys, child));
        root = child;
    }
    set_key(keys, root, sinking);
}

/* Heap sort: no memory, no recursion, and no order of hashes makes it slow. */
static void sort_keys(void *keys, size_t count)
{
    for (size_t i = count / 2; i-- > 0;)
        sift_down(keys, i, count);
    for (size_t end = count; end-- > 1;) {
        struct split_key last = key_at(keys, 0);
        set_key(keys, 0, key_at(keys, end));
        set_key(keys, end, last);
        sift_down(keys, 0, end);
    }
}

/* Returns the number of keys, or -EUCLEAN. */
static int collect_keys(const struct superblock *sb, const void *leaf, void *keys,
                        bool has_stored_hash, dirent_hash_function hash_entry, void *context,
                        size_t *total_bytes)
{
    const size_t size = dirent_block_room(sb);
    struct dirent_view entry;
    struct htree_hash hash;
    int count = 0;

    *total_bytes = 0;
    for (size_t at = 0; at < size; at += entry.record_bytes) {
        if (dirent_read(sb, leaf, size, at, has_stored_hash, &entry) != NULL)
            return -EUCLEAN;
        if (entry.ino == 0)
            continue;
        if (!hash_entry(context, &entry, &hash))
            return -EUCLEAN;
        uint32_t bytes = used_bytes(&entry, has_stored_hash);
        set_key(keys, (size_t)count++,
                (struct split_key){
                    .hash = hash.major, .place = (uint16_t)(at / 4), .bytes = (uint16_t)bytes});
        *total_bytes += bytes;
    }
    return count;
}

/* Which entries move up: those of a greater hash, and those of the same behind a place. */
struct split_point {
    uint32_t hash;
    uint16_t place;
    bool is_continued; /* entries of the same hash stay */
};

static struct split_point choose_split_point(const void *keys, size_t count, size_t total_bytes)
{
    size_t position = 0, below = 0;

    /* What has its middle in the lower half stays; one entry at least goes to either side. */
    while (position < count - 1 &&
           (position == 0 || 2 * below + key_at(keys, position).bytes <= total_bytes))
        below += key_at(keys, position++).bytes;
    struct split_key key = key_at(keys, position);
    return (struct split_point){.hash = key.hash,
                                .place = key.place,
                                .is_continued = key_at(keys, position - 1).hash == key.hash};
}

int dirent_split(const struct superblock *sb, void *leaf, void *upper, bool has_stored_hash,
                 dirent_hash_function hash_entry, void *context, uint32_t *hash)
{
    const size_t size = dirent_block_room(sb);
    size_t total_bytes;
    int count = collect_keys(sb, leaf, upper, has_stored_hash, hash_entry, context, &total_bytes);

    if (count < 0)
        return count;
    if (count < 2)
        return -ENOSPC;
    sort_keys(upper, (size_t)count);
    struct split_point point = choose_split_point(upper, (size_t)count, total_bytes);

    /* Entries that stay only move towards the front, over what was read already. */
    struct packer low = {.sb = sb, .area = leaf, .size = size, .has_stored_hash = has_stored_hash};
    struct packer high = {
        .sb = sb, .area = upper, .size = size, .has_stored_hash = has_stored_hash};
    struct dirent_view entry;
    for (size_t at = 0; at < size; at += entry.record_bytes) {
        struct htree_hash own = {0};
        bool is_fit = dirent_read(sb, leaf, size, at, has_stored_hash, &entry) == NULL;
        if (is_fit && entry.ino != 0) {
            is_fit = hash_entry(context, &entry, &own);
            bool moves = own.major != point.hash ? own.major > point.hash : at / 4 >= point.place;
            is_fit = is_fit && pack(moves ? &high : &low, &entry);
        }
        assert(is_fit);
        (void)is_fit;
    }
    finish_packing(&low);
    finish_packing(&high);
    init_tail(sb, leaf);
    init_tail(sb, upper);
    *hash = point.hash | (point.is_continued ? 1 : 0);
    return 0;
}
