/* SPDX-License-Identifier: MIT */
/*
 * Enters names into the hash index: where the hash leads, with splits at every level.
 *
 *   leaf has room                      the entry goes there
 *   leaf is full                       it splits; its new half needs an entry in the node above
 *   node above is full                 it splits; its new half needs an entry one level higher
 *   root is full, levels are left      its entries move to a new node below it
 *   root is full, no level is left     the full node gives entries to a neighbour with room, in
 *                                      place of its split; without one: -ENOSPC
 *
 * All splits are planned on copies (change.h). A damaged index is refused.
 *
 * Locks: the caller's on the directory, exclusively. Callers: insert.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dir/change.h"
#include "dir/index.h"
#include "format/dirent_disk.h"

/* A change of the index: the path to the leaf, and the entry that is to be there. */
struct index_change {
    struct plan plan;
    struct index_path path;
    const struct dirent_view *entry;
    uint8_t hash_version;
    uint32_t hash;
};

static bool hash_entry(void *context, const struct dirent_view *entry, struct htree_hash *hash)
{
    const struct index_change *change = context;

    return dir_entry_hash(change->plan.dir, change->hash_version, entry, hash);
}

static const struct superblock *superblock_of(const struct index_change *change)
{
    return &change->plan.dir->volume->sb;
}

static int insert_into(const struct index_change *change, struct plan_image *image)
{
    const struct superblock *sb = superblock_of(change);

    return dirent_insert(sb, image->data, dirent_block_room(sb), false, change->entry);
}

/*
 * Splits a leaf's copy, and puts the entry into one half. `*index_entry` is what the index needs
 * for the new one.
 */
static int split_leaf(struct index_change *change, struct plan_image *leaf,
                      struct htree_entry *index_entry)
{
    const struct superblock *sb = superblock_of(change);
    struct plan_image *upper;
    int error = plan_add_new(&change->plan, BLOCK_KIND_DIRECTORY_LEAF, &upper);

    if (error != 0)
        return error;
    error = dirent_split(sb, leaf->data, upper->data, false, hash_entry, change,
                         &index_entry->hash);
    if (error == -EUCLEAN)
        return dir_corrupt(change->plan.dir, leaf->file_block, "has a bad entry");
    if (error != 0)
        return error;
    index_entry->block = upper->file_block;
    bool belongs_up = change->hash >= (index_entry->hash & ~1u);
    error = insert_into(change, belongs_up ? upper : leaf);
    /* Names of the hash at which it was split may be in both. */
    if (error == -ENOSPC && change->hash == (index_entry->hash & ~1u) &&
        (index_entry->hash & 1) != 0)
        error = insert_into(change, leaf);
    return error;
}

/* The root is full: its entries move down, and the new one with them. */
static int push_down(struct index_change *change, struct plan_image *root, unsigned int position,
                     const struct htree_entry *entry)
{
    const struct superblock *sb = superblock_of(change);
    struct plan_image *node;

    if (change->path.root.indirect_levels >= htree_levels_max(sb))
        return -ENOSPC;
    int error = plan_add_new(&change->plan, BLOCK_KIND_HTREE_NODE, &node);
    if (error != 0)
        return error;
    htree_root_push_down(sb, root->data, node->data, node->file_block);
    htree_insert(sb, node->data, false, position + 1, entry);
    return 0;
}

/* Splits an inner node around the child at `position`; *entry becomes what its parent needs. */
static int split_node(struct index_change *change, struct plan_image *node, unsigned int position,
                      struct htree_entry *entry)
{
    const struct superblock *sb = superblock_of(change);
    struct plan_image *upper;
    int error = plan_add_new(&change->plan, BLOCK_KIND_HTREE_NODE, &upper);

    if (error != 0)
        return error;
    uint32_t hash = htree_node_split(sb, node->data, upper->data);
    unsigned int kept = htree_count(node->data, false);
    if (position < kept)
        htree_insert(sb, node->data, false, position + 1, entry);
    else
        htree_insert(sb, upper->data, false, position - kept + 1, entry);
    *entry = (struct htree_entry){.hash = hash, .block = upper->file_block};
    return 0;
}

/* True if a node above `level` takes one more entry, or the index one more level. */
static bool can_split(const struct index_change *change, unsigned int level)
{
    const struct superblock *sb = superblock_of(change);

    for (unsigned int i = 0; i < level; i++)
        if (!htree_is_full(sb, change->path.frames[i].buffer->data, i == 0))
            return true;
    return change->path.root.indirect_levels < htree_levels_max(sb);
}

/* Two neighbours among the inner nodes, and what is above them. */
struct neighbours {
    struct plan_image *left, *right, *parent;
    bool parent_is_root;
    unsigned int right_position; /* of the right one's entry in the parent */
};

/*
 * Evens out the number of entries of two neighbours. Returns how many the left one has then, or a
 * negative error.
 */
static int even_out(const struct superblock *sb, const struct neighbours *pair)
{
    unsigned int left_count = htree_count(pair->left->data, false);
    unsigned int right_count = htree_count(pair->right->data, false);
    unsigned int kept = (left_count + right_count) / 2;
    uint8_t *place = pair->parent->data + htree_entries_offset(pair->parent_is_root) +
                     (size_t)pair->right_position * HTREE_ENTRY_BYTES;
    struct htree_entry right = htree_entry_at(pair->parent->data, pair->parent_is_root,
                                              pair->right_position);
    uint8_t *merged = malloc(sb->block_bytes);
    uint32_t hash;

    if (merged == NULL)
        return -ENOMEM;
    if (left_count > kept) {
        /* The upper entries of the left one, and behind them all of the right one. */
        hash = htree_node_split_at(sb, pair->left->data, kept, merged);
        for (unsigned int i = 0; i < right_count; i++) {
            struct htree_entry entry = htree_entry_at(pair->right->data, false, i);
            entry.hash = i == 0 ? right.hash : entry.hash;
            htree_insert(sb, merged, false, htree_count(merged, false), &entry);
        }
    } else {
        /* The lower entries of the right one go to the end of the left one. */
        unsigned int moved = kept - left_count;
        hash = htree_node_split_at(sb, pair->right->data, moved, merged);
        for (unsigned int i = 0; i < moved; i++) {
            struct htree_entry entry = htree_entry_at(pair->right->data, false, i);
            entry.hash = i == 0 ? right.hash : entry.hash;
            htree_insert(sb, pair->left->data, false, left_count + i, &entry);
        }
    }
    memcpy(pair->right->data, merged, sb->block_bytes);
    free(merged);
    struct disk_htree_entry disk = {.hash = le32_make(hash), .block = le32_make(right.block)};
    memcpy(place, &disk, sizeof(disk));
    return (int)kept;
}

/*
 * Makes room in a full node by means of the neighbour on one side, and enters the entry behind the
 * child at `position`. -ENOSPC if there is none, or it is as good as full.
 */
static int shift_to_neighbour(struct index_change *change, unsigned int level,
                              struct plan_image *node, bool to_right,
                              const struct htree_entry *entry)
{
    const struct superblock *sb = superblock_of(change);
    const struct index_frame *above = &change->path.frames[level - 1];
    unsigned int position = change->path.frames[level].position;
    struct neighbours pair = {.parent_is_root = level == 1,
                              .right_position = above->position + (to_right ? 1 : 0)};
    struct plan_image *other;
    struct buffer *buffer;

    if (pair.right_position == 0 || pair.right_position >= above->count)
        return -ENOSPC;
    uint32_t other_block = htree_entry_at(above->buffer->data, level == 1,
                                          pair.right_position - (to_right ? 0 : 1))
                               .block;
    int error = index_get_node(&change->path, other_block, &buffer);
    if (error != 0)
        return error;
    unsigned int other_count = htree_count(buffer->data, false);
    if (other_count + 2 > htree_limit(sb, false))
        error = -ENOSPC;
    if (error == 0)
        error = plan_add(&change->plan, buffer, other_block, BLOCK_KIND_HTREE_NODE, &other);
    if (error == 0)
        error = plan_add(&change->plan, above->buffer, above->file_block,
                         level == 1 ? BLOCK_KIND_HTREE_ROOT : BLOCK_KIND_HTREE_NODE, &pair.parent);
    buffer_put(buffer);
    if (error != 0)
        return error;
    pair.left = to_right ? node : other;
    pair.right = to_right ? other : node;
    int kept = even_out(sb, &pair);
    if (kept < 0)
        return kept;
    position += to_right ? 0 : other_count;
    if (position < (unsigned int)kept)
        htree_insert(sb, pair.left->data, false, position + 1, entry);
    else
        htree_insert(sb, pair.right->data, false, position - (unsigned int)kept + 1, entry);
    return 0;
}

/* Puts the entry for a new leaf into the index, behind the leaf that the path leads to. */
static int insert_index_entry(struct index_change *change, struct htree_entry entry)
{
    const struct superblock *sb = superblock_of(change);

    for (unsigned int level = change->path.frame_count; level-- > 0;) {
        const struct index_frame *frame = &change->path.frames[level];
        bool is_root = level == 0;
        struct plan_image *node;
        int error = plan_add(&change->plan, frame->buffer, frame->file_block,
                             is_root ? BLOCK_KIND_HTREE_ROOT : BLOCK_KIND_HTREE_NODE, &node);

        if (error != 0)
            return error;
        if (!htree_is_full(sb, node->data, is_root)) {
            htree_insert(sb, node->data, is_root, frame->position + 1, &entry);
            return 0;
        }
        if (is_root)
            return push_down(change, node, frame->position, &entry);
        if (!can_split(change, level)) {
            error = shift_to_neighbour(change, level, node, true, &entry);
            if (error == -ENOSPC)
                error = shift_to_neighbour(change, level, node, false, &entry);
            if (error != -ENOSPC)
                return error;
        }
        error = split_node(change, node, frame->position, &entry);
        if (error != 0)
            return error;
    }
    return -ENOSPC;
}

/* A leaf whose room is scattered over unused records: the entries move together. 0 or -ENOSPC. */
static int compact_leaf(struct index_change *change, struct plan_image *leaf,
                        const struct buffer *buffer)
{
    const struct superblock *sb = superblock_of(change);
    int error;

    dirent_block_init(sb, leaf->data);
    error = dirent_copy_entries(sb, buffer->data, dirent_block_room(sb), leaf->data,
                                dirent_block_room(sb), false);
    return error != 0 ? error : insert_into(change, leaf);
}

/* The leaf has no room as it is. */
static int make_room(struct handle *handle, struct index_change *change, struct buffer *buffer,
                     uint32_t file_block)
{
    struct htree_entry index_entry;
    struct plan_image *leaf;
    int error = plan_add(&change->plan, buffer, file_block, BLOCK_KIND_DIRECTORY_LEAF, &leaf);

    if (error == 0)
        error = compact_leaf(change, leaf, buffer);
    if (error == -ENOSPC) {
        memcpy(leaf->data, buffer->data, superblock_of(change)->block_bytes);
        error = split_leaf(change, leaf, &index_entry);
        if (error == 0)
            error = insert_index_entry(change, index_entry);
    }
    return error != 0 ? error : plan_apply(handle, &change->plan);
}

static int insert_at_leaf(struct handle *handle, struct index_change *change)
{
    struct inode *dir = change->plan.dir;
    const struct superblock *sb = superblock_of(change);
    uint32_t file_block = index_leaf(&change->path).block;
    uint64_t hole_blocks;
    struct buffer *buffer;
    size_t offset;
    int error = dir_get_leaf(dir, file_block, &buffer, &hole_blocks);

    if (error != 0)
        return error;
    if (buffer == NULL)
        return dir_corrupt(dir, file_block, "the index points to a hole");
    error = dir_check_tail(dir, buffer, file_block);
    if (error == 0)
        error = dirent_find_room(sb, buffer->data, dirent_block_room(sb), false,
                                 dirent_needed_bytes(change->entry->name_length, false), &offset);
    if (error == -ENOSPC) {
        error = make_room(handle, change, buffer, file_block);
    } else if (error == -EUCLEAN) {
        dir_corrupt(dir, file_block, "has a bad entry");
    } else if (error == 0) {
        error = journal_modify(handle, buffer);
        if (error == 0) {
            void *data = journal_data(handle, buffer);
            dirent_insert_at(sb, data, offset, false, change->entry);
            dir_finish_leaf(dir, data);
        }
    }
    buffer_put(buffer);
    return error;
}

int dir_index_insert(struct handle *handle, struct inode *dir, const struct dir_name *name,
                     const struct dirent_view *entry)
{
    struct index_change change = {.entry = entry};
    struct htree_hash hash;
    int error = plan_begin(&change.plan, dir);

    if (error == 0)
        error = index_open(dir, &change.path);
    if (error != 0)
        return error;
    change.hash_version = change.path.root.hash_version;
    if (!dir_name_hash(dir, change.hash_version, name, &hash)) {
        error = dir_corrupt(dir, 0, "the index has an unknown hash");
    } else {
        change.hash = hash.major;
        error = index_descend(&change.path, hash.major);
    }
    if (error == 0)
        error = insert_at_leaf(handle, &change);
    plan_end(&change.plan);
    index_close(&change.path);
    return error;
}

static int plan_creation(struct index_change *change, struct buffer *buffer)
{
    const struct superblock *sb = superblock_of(change);
    struct plan_image *root, *leaf;
    struct htree_entry index_entry;
    int error = plan_add(&change->plan, buffer, 0, BLOCK_KIND_HTREE_ROOT, &root);

    if (error == 0)
        error = plan_add_new(&change->plan, BLOCK_KIND_DIRECTORY_LEAF, &leaf);
    if (error != 0)
        return error;
    error = htree_make_root(sb, root->data, leaf->data, leaf->file_block, change->hash_version,
                            false);
    if (error == -EUCLEAN)
        return dir_corrupt(change->plan.dir, 0, "does not begin with \".\" and \"..\"");
    /* Without "." and "..", and tightly, the entries may leave room for one more. */
    if (error == 0)
        error = insert_into(change, leaf);
    if (error != -ENOSPC)
        return error;
    error = split_leaf(change, leaf, &index_entry);
    if (error == 0)
        htree_insert(sb, root->data, true, 1, &index_entry);
    return error;
}

int dir_index_create(struct handle *handle, struct inode *dir, const struct dir_name *name,
                     const struct dirent_view *entry)
{
    struct index_change change = {
        .entry = entry,
        .hash_version = dir_default_hash_version(&dir->volume->sb),
    };
    struct htree_hash hash;
    struct buffer *buffer;
    uint64_t hole_blocks;
    int error = plan_begin(&change.plan, dir);

    if (error == 0)
        error = dir_get_leaf(dir, 0, &buffer, &hole_blocks);
    if (error != 0)
        return error;
    if (buffer == NULL)
        return dir_corrupt(dir, 0, "is a hole");
    if (!dir_name_hash(dir, change.hash_version, name, &hash)) {
        error = -EINVAL;
    } else {
        change.hash = hash.major;
        change.plan.sets_flags = INODE_INDEXED;
        error = plan_creation(&change, buffer);
    }
    if (error == 0)
        error = plan_apply(handle, &change.plan);
    plan_end(&change.plan);
    buffer_put(buffer);
    return error;
}
