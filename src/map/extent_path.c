/* SPDX-License-Identifier: MIT */
/*
 * Paths in extent trees, and the changes at their end: entries of one leaf are replaced or removed,
 * and the nodes above are split, freed and corrected as that demands.
 *
 * Invariants after each change:
 *   - an index entry names the first file block of its child exactly (e2fsck insists),
 *   - no node below the root is empty, and an empty tree has depth 0,
 *   - checksums are right, and the nodes count as verified.
 *
 * A change is planned first: what may fail (credits, new blocks, the journal) comes before the
 * first byte is changed. It goes from the leaf upward; a new node's entry is carried up until a
 * level has room for it, or the root, which lies in the inode, is pushed down into a new node.
 *
 * Locks: the caller holds map_lock exclusively. Callers: extent_insert.c, extent_remove.c.
 */
#include "map/change.h"

#include <assert.h>
#include <errno.h>

#define MAX_NEW_NODES (EXTENT_MAX_DEPTH + 1)

/* ---- Finding -------------------------------------------------------------------------------- */

static int level_corrupt(const struct extent_path *path, unsigned int level, const char *reason)
{
    const struct buffer *buffer = path->levels[level].buffer;

    return extent_node_corrupt(path->change->inode, buffer != NULL ? buffer->block : 0, reason);
}

/* What the check of a single node cannot see. */
static int level_check(const struct extent_path *path, unsigned int level)
{
    const struct extent_level *it = &path->levels[level];
    struct extent_header header = extent_node_header(it->node);
    unsigned int capacity = level == 0 ? EXTENT_ROOT_CAPACITY
                                       : extent_block_capacity(&path->change->volume->sb);
    uint64_t first, end;

    if (header.entry_max + 2u < capacity)
        return level_corrupt(path, level, "capacity too small for changes");
    if (header.entry_count == 0)
        return 0;
    if (header.depth == 0) {
        struct extent last = extent_at(it->node, header.entry_count - 1u);

        first = extent_at(it->node, 0).file_block;
        end = (uint64_t)last.file_block + last.length_blocks;
    } else {
        first = extent_index_at(it->node, 0).file_block;
        end = extent_index_at(it->node, header.entry_count - 1u).file_block + UINT64_C(1);
    }
    if (first < it->low || end > it->high)
        return level_corrupt(path, level, "speaks of blocks outside its range");
    return 0;
}

/* Follows the entry that covers the block, or the first. */
static int path_descend(struct extent_path *path, unsigned int level, uint32_t file_block)
{
    struct extent_level *it = &path->levels[level];
    struct extent_level *below = &path->levels[level + 1];
    struct extent_header header = extent_node_header(it->node);
    int found = extent_find(it->node, file_block);

    it->position = MAX(found, 0);
    struct extent_index index = extent_index_at(it->node, (unsigned int)it->position);
    below->low = index.file_block;
    below->high = it->high;
    if (it->position + 1 < header.entry_count)
        below->high = extent_index_at(it->node, (unsigned int)it->position + 1).file_block;
    int error = extent_node_get(path->change->inode, index.disk_block, header.depth - 1u,
                                &below->buffer);
    if (error == 0)
        below->node = buffer_writable(below->buffer);
    return error;
}

int extent_path_find(struct map_change *change, uint64_t file_block, struct extent_path *path)
{
    const char *reason = extent_node_check(&change->volume->sb, change->root, INODE_BLOCK_BYTES,
                                           -1);
    int error = 0;

    assert(file_block < MAP_MAX_FILE_BLOCKS);
    if (reason != NULL)
        return extent_node_corrupt(change->inode, 0, reason);
    *path = (struct extent_path){.change = change, .depth = extent_node_header(change->root).depth};
    path->levels[0] = (struct extent_level){.node = change->root, .high = MAP_MAX_FILE_BLOCKS};
    for (unsigned int level = 0; error == 0; level++) {
        error = level_check(path, level);
        if (level == path->depth)
            break;
        if (error == 0)
            error = path_descend(path, level, (uint32_t)file_block);
    }
    if (error != 0) {
        extent_path_release(path);
        return error;
    }
    extent_path_leaf(path)->position = extent_find(extent_path_leaf(path)->node,
                                                   (uint32_t)file_block);
    return 0;
}

void extent_path_release(struct extent_path *path)
{
    for (unsigned int level = 1; level <= path->depth; level++) {
        buffer_put(path->levels[level].buffer);
        path->levels[level].buffer = NULL;
    }
}

/* ---- Small steps ---------------------------------------------------------------------------- */

static bool has_room(const void *node, unsigned int more)
{
    struct extent_header header = extent_node_header(node);

    return header.entry_count + more <= header.entry_max;
}

/* A node's bytes were changed. */
static void path_seal(struct extent_path *path, unsigned int level)
{
    struct map_change *change = path->change;

    if (level == 0)
        change->is_root_changed = true;
    else
        extent_node_set_checksum(&change->volume->sb, change->inode->checksum_seed,
                                 path->levels[level].node);
}

/* A new node has its content. */
static void seal_new(struct map_change *change, struct tree_block *new)
{
    extent_node_set_checksum(&change->volume->sb, change->inode->checksum_seed,
                             buffer_writable(new->buffer));
    buffer_set_verified(new->buffer, block_tag(BLOCK_KIND_EXTENT_NODE, change->inode->ino,
                                               extent_node_header(new->buffer->data).depth));
}

/* The highest level that changes if the first entry of the node at `level` gets another key. */
static unsigned int first_key_reach(const struct extent_path *path, unsigned int level)
{
    while (level > 0) {
        level--;
        if (path->levels[level].position > 0)
            break;
    }
    return level;
}

/* Tells the nodes above that the first entry of the node at `level` has a new key. */
static void set_first_key(struct extent_path *path, unsigned int level, uint32_t file_block)
{
    while (level > 0) {
        level--;
        struct extent_level *it = &path->levels[level];
        unsigned int position = (unsigned int)it->position;
        struct extent_index index = extent_index_at(it->node, position);

        index.file_block = file_block;
        extent_index_set(it->node, position, &index);
        path_seal(path, level);
        if (position > 0)
            break;
    }
}

/* Makes the nodes of levels [top, bottom] part of the transaction. */
static int path_modify(const struct extent_path *path, unsigned int top, unsigned int bottom)
{
    for (unsigned int level = MAX(top, 1u); level <= bottom; level++) {
        int error = journal_modify(path->change->handle, path->levels[level].buffer);

        if (error != 0)
            return error;
    }
    return 0;
}

uint32_t extent_replace_credits(const struct superblock *sb, unsigned int depth)
{
    unsigned int new_nodes = MIN(depth + 1, (unsigned int)EXTENT_MAX_DEPTH);

    return depth + new_nodes + map_block_credits(sb, new_nodes) + INODE_WRITE_CREDITS;
}

uint32_t extent_remove_credits(const struct superblock *sb, unsigned int depth)
{
    /* The way up, and as many nodes again when the tree is flattened. */
    return depth + map_block_credits(sb, 2 * depth) + INODE_WRITE_CREDITS;
}

/* ---- Replacing ------------------------------------------------------------------------------ */

struct plan {
    unsigned int new_count; /* nodes to allocate */
    unsigned int top;       /* highest level that changes */
    bool has_new_first;     /* the leaf's first key changes */
    uint32_t new_first;
};

static int plan_replacement(const struct extent_path *path,
                            const struct extent_replacement *replacement, struct plan *plan)
{
    const void *leaf = path->levels[path->depth].node;
    unsigned int level = path->depth;
    unsigned int count = extent_node_header(leaf).entry_count;

    assert(replacement->removed <= count && replacement->position <= count - replacement->removed);
    *plan = (struct plan){.top = level};
    if (count - replacement->removed + replacement->added > extent_node_header(leaf).entry_max) {
        do {
            plan->new_count++;
            if (level == 0) {
                if (path->depth == EXTENT_MAX_DEPTH) {
                    log_error(path->change->volume->log,
                              "inode %u: its extent tree cannot grow any more",
                              path->change->inode->ino);
                    return -EFBIG;
                }
                break;
            }
            level--;
        } while (!has_room(path->levels[level].node, 1));
        plan->top = level;
    }
    if (replacement->position == 0 && path->depth > 0) {
        plan->new_first = replacement->added > 0 ? replacement->entries[0].file_block
                                                 : extent_at(leaf, replacement->removed).file_block;
        plan->has_new_first = plan->new_first != path->levels[path->depth].low;
        if (plan->has_new_first)
            plan->top = MIN(plan->top, first_key_reach(path, path->depth));
    }
    return 0;
}

static void replace_in_node(void *node, const struct extent_replacement *replacement,
                            unsigned int position)
{
    unsigned int common = MIN(replacement->removed, replacement->added);

    for (unsigned int i = 0; i < common; i++)
        extent_set(node, position + i, &replacement->entries[i]);
    if (replacement->removed > common)
        extent_remove(node, position + common, replacement->removed - common);
    for (unsigned int i = common; i < replacement->added; i++)
        extent_insert(node, position + i, &replacement->entries[i]);
}

/*
 * Splits the leaf into itself and an empty node and replaces in whichever of both it concerns. What
 * goes behind everything gets a leaf of its own: files that grow have full leaves.
 */
static void split_leaf(void *leaf, const struct extent_replacement *replacement, void *new_leaf,
                       unsigned int capacity)
{
    unsigned int count = extent_node_header(leaf).entry_count;
    unsigned int from = replacement->position, to = from + replacement->removed;
    unsigned int middle = from == count ? count : count / 2;

    /* What is replaced stays together. */
    if (middle > from && middle < to)
        middle = from > 0 ? from : to;
    extent_node_init(new_leaf, capacity, 0);
    extent_move_last(leaf, middle, new_leaf);
    if (from >= middle)
        replace_in_node(new_leaf, replacement, from - middle);
    else
        replace_in_node(leaf, replacement, from);
}

/* Splits a full inner node and puts an entry at `position` into one of both. */
static void split_inner(void *node, unsigned int position, const struct extent_index *index,
                        void *new_node, unsigned int capacity)
{
    unsigned int count = extent_node_header(node).entry_count;
    unsigned int middle = position == count ? count : count / 2;

    extent_node_init(new_node, capacity, extent_node_header(node).depth);
    extent_move_last(node, middle, new_node);
    if (position > middle || middle == count)
        extent_index_insert(new_node, position - middle, index);
    else
        extent_index_insert(node, position, index);
}

/* Enters a new node behind its left neighbour, which is on the path at `level` + 1. */
static void carry_up(struct extent_path *path, unsigned int level, struct extent_index index,
                     struct tree_block *new)
{
    const struct superblock *sb = &path->change->volume->sb;

    for (;; level--) {
        void *node = path->levels[level].node;
        unsigned int position = (unsigned int)path->levels[level].position + 1;

        if (has_room(node, 1)) {
            extent_index_insert(node, position, &index);
            path_seal(path, level);
            return;
        }
        void *new_node = buffer_writable(new->buffer);
        if (level == 0) {
            extent_root_push_down(sb, node, new_node, new->block);
            extent_index_insert(new_node, position, &index);
            path_seal(path, 0);
            seal_new(path->change, new);
            return;
        }
        split_inner(node, position, &index, new_node, extent_block_capacity(sb));
        path_seal(path, level);
        seal_new(path->change, new);
        index.file_block = extent_index_at(new_node, 0).file_block;
        index.disk_block = new->block;
        new ++;
    }
}

/* Nothing can fail here. */
static void apply_replacement(struct extent_path *path,
                              const struct extent_replacement *replacement, const struct plan *plan,
                              struct tree_block *new)
{
    const struct superblock *sb = &path->change->volume->sb;
    void *leaf = extent_path_leaf(path)->node;

    if (plan->has_new_first)
        set_first_key(path, path->depth, plan->new_first);
    if (plan->new_count == 0) {
        replace_in_node(leaf, replacement, replacement->position);
        path_seal(path, path->depth);
        return;
    }
    void *new_leaf = buffer_writable(new->buffer);
    if (path->depth == 0) {
        extent_root_push_down(sb, leaf, new_leaf, new->block);
        replace_in_node(new_leaf, replacement, replacement->position);
        struct extent_index index = {.file_block = extent_at(new_leaf, 0).file_block,
                                     .disk_block = new->block};
        extent_index_set(leaf, 0, &index);
        path_seal(path, 0);
        seal_new(path->change, new);
        return;
    }
    split_leaf(leaf, replacement, new_leaf, extent_block_capacity(sb));
    path_seal(path, path->depth);
    seal_new(path->change, new);
    struct extent_index index = {.file_block = extent_at(new_leaf, 0).file_block,
                                 .disk_block = new->block};
    carry_up(path, path->depth - 1, index, new + 1);
}

int extent_path_replace(struct extent_path *path, const struct extent_replacement *replacement,
                        int64_t blocks)
{
    struct map_change *change = path->change;
    const struct superblock *sb = &change->volume->sb;
    const struct buffer *leaf = extent_path_leaf(path)->buffer;
    struct tree_block new[MAX_NEW_NODES];
    struct plan plan;
    int error = plan_replacement(path, replacement, &plan);

    if (error == 0)
        error = map_change_need(change, path->depth - MAX(plan.top, 1u) + 1 + plan.new_count +
                                            map_block_credits(sb, plan.new_count) +
                                            INODE_WRITE_CREDITS);
    if (error == 0)
        error = map_change_create_blocks(change, leaf != NULL ? leaf->block + 1 : 0, new,
                                         plan.new_count);
    if (error != 0)
        return error;
    blocks += (int64_t)plan.new_count * sb->cluster_blocks;
    error = path_modify(path, plan.top, path->depth);
    if (error == 0 && (blocks != 0 || plan.top == 0))
        error = map_change_prepare_inode(change, blocks);
    if (error != 0) {
        map_change_drop_blocks(change, new, plan.new_count);
        return error;
    }
    apply_replacement(path, replacement, &plan, new);
    for (unsigned int i = 0; i < plan.new_count; i++)
        buffer_put(new[i].buffer);
    return 0;
}

int extent_path_shift(struct extent_path *path, unsigned int position, unsigned int last,
                      int64_t delta)
{
    struct map_change *change = path->change;
    void *leaf = extent_path_leaf(path)->node;
    unsigned int top = path->depth;

    if (position == 0)
        top = first_key_reach(path, path->depth);
    int error = map_change_need(change, path->depth - MAX(top, 1u) + 1 + INODE_WRITE_CREDITS);
    if (error == 0)
        error = path_modify(path, top, path->depth);
    if (error == 0 && top == 0)
        error = map_change_prepare_inode(change, 0);
    if (error != 0)
        return error;
    for (unsigned int i = position; i <= last; i++) {
        struct extent extent = extent_at(leaf, i);

        extent.file_block = (uint32_t)((int64_t)extent.file_block + delta);
        extent_set(leaf, i, &extent);
    }
    if (position == 0)
        set_first_key(path, path->depth, extent_at(leaf, 0).file_block);
    path_seal(path, path->depth);
    return 0;
}

/* ---- Removing ------------------------------------------------------------------------------- */

/* Frees the nodes of levels (kept, depth], which were forgotten. */
static int free_nodes(struct extent_path *path, unsigned int kept)
{
    int error = 0;

    for (unsigned int level = path->depth; level > kept && error == 0; level--)
        error = map_change_free_tree_block(path->change, path->levels[level].buffer->block);
    return error;
}

/* Removes the leaf, which is to be empty. */
static int remove_leaf(struct extent_path *path)
{
    struct map_change *change = path->change;
    unsigned int kept = path->depth - 1; /* the lowest level that keeps an entry, or the root */

    while (kept > 0 && extent_node_header(path->levels[kept].node).entry_count == 1)
        kept--;
    struct extent_level *it = &path->levels[kept];
    unsigned int position = (unsigned int)it->position;
    bool has_new_first = position == 0 && extent_node_header(it->node).entry_count > 1;
    unsigned int top = has_new_first ? first_key_reach(path, kept) : kept;

    int error = map_change_need(
        change, path->depth + map_block_credits(&change->volume->sb, path->depth - kept) +
                    INODE_WRITE_CREDITS);
    if (error == 0)
        error = map_change_prepare_inode(change, 0);
    if (error == 0)
        error = path_modify(path, top, kept);
    for (unsigned int level = kept + 1; level <= path->depth && error == 0; level++)
        error = map_change_forget(change, path->levels[level].buffer->block, 1);
    if (error != 0)
        return error;
    extent_remove(it->node, position, 1);
    struct extent_header header = extent_node_header(it->node);
    if (header.entry_count == 0)
        extent_node_init(it->node, header.entry_max, 0);
    else if (has_new_first)
        set_first_key(path, kept, extent_index_at(it->node, 0).file_block);
    path_seal(path, kept);
    return free_nodes(path, kept);
}

int extent_path_remove(struct extent_path *path, unsigned int position, unsigned int count)
{
    struct extent_replacement replacement = {.position = position, .removed = count};

    if (path->depth > 0 && count == extent_path_count(path))
        return remove_leaf(path);
    return extent_path_replace(path, &replacement, 0);
}

/* True if the root's only child may take its place. */
static bool may_pull_up(struct map_change *change, struct buffer *child, uint64_t low)
{
    struct extent_header header = extent_node_header(child->data);

    if (header.entry_count == 0 || header.entry_count > extent_node_header(change->root).entry_max)
        return false;
    uint32_t first = header.depth == 0 ? extent_at(child->data, 0).file_block
                                       : extent_index_at(child->data, 0).file_block;
    return first >= low && change->forgotten < MAP_MAX_FORGOTTEN &&
           map_change_need(change,
                           map_block_credits(&change->volume->sb, 1) + INODE_WRITE_CREDITS) == 0 &&
           map_change_prepare_inode(change, 0) == 0 &&
           map_change_forget(change, child->block, 1) == 0;
}

int extent_tree_flatten(struct map_change *change)
{
    struct extent_header header = extent_node_header(change->root);

    while (header.depth > 0 && header.entry_count == 1) {
        struct extent_index index = extent_index_at(change->root, 0);
        struct buffer *child;

        if (extent_node_get(change->inode, index.disk_block, header.depth - 1u, &child) != 0)
            return 0;
        bool is_pulled_up = may_pull_up(change, child, index.file_block) &&
                            extent_root_pull_up(change->root, child->data);
        buffer_put(child);
        if (!is_pulled_up)
            return 0;
        change->is_root_changed = true;
        int error = map_change_free_tree_block(change, index.disk_block);
        if (error != 0)
            return error;
        header = extent_node_header(change->root);
    }
    return 0;
}
