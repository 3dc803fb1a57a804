/* SPDX-License-Identifier: MIT */
/* The model: changes made to it and to the map together, and all that is compared afterwards. */
#include <errno.h>
#include <inttypes.h>

#include "base/byteorder.h"
#include "fixture.h"

int __real_space_reserve(struct space *space, uint64_t goal, uint32_t wanted, unsigned int flags,
                         struct space_stream *stream, struct space_run *result);

void model_init(struct model *model, struct fixture *fixture, uint32_t ino, uint64_t count)
{
    *model = (struct model){.fixture = fixture, .count = count};
    model->blocks = calloc(count, sizeof(*model->blocks));
    assert_non_null(model->blocks);
    assert_int_equal(inode_get(fixture->inodes, ino, &model->inode), 0);
}

void model_destroy(struct model *model)
{
    inode_put(model->inode);
    free(model->blocks);
}

static void start(struct model *model, uint32_t credits, struct handle *handle)
{
    assert_int_equal(journal_start(model->fixture->volume.journal, credits, handle), 0);
}

void model_start(struct model *model, uint64_t length, struct handle *handle)
{
    start(model,
          map_credits(model->inode, length) +
              space_credits(model->fixture->volume.space, (uint32_t)length),
          handle);
}

/* ---- Changes ---- */

/* The disk block that the cluster's other blocks give a file block, or 0. */
static uint64_t from_cluster(const struct model *model, uint64_t file_block)
{
    uint32_t size = model->fixture->volume.sb.cluster_blocks;
    uint64_t first = ROUND_DOWN(file_block, size);

    for (uint64_t i = first; i < first + size && i < model->count; i++)
        if (model->blocks[i].disk_block != 0)
            return model->blocks[i].disk_block + file_block - i;
    return 0;
}

/* Disk blocks for a run or the start of it, and what of them must be claimed. */
static uint64_t find_room(const struct model *model, uint64_t first, uint64_t *length,
                          bool is_scattered, struct space_run *claimed)
{
    uint32_t size = model->fixture->volume.sb.cluster_blocks;
    uint64_t block = from_cluster(model, first);
    uint64_t in_cluster = first % size;
    uint64_t goal = is_scattered ? 1 + draw((uint32_t)model->fixture->volume.sb.block_count - 1)
                                 : map_goal(model->inode, first);

    *claimed = (struct space_run){0};
    if (block != 0) {
        *length = MIN(*length, size - in_cluster);
        return block;
    }
    for (uint64_t i = 1; i < *length; i++)
        if ((first + i) % size == 0 && from_cluster(model, first + i) != 0)
            *length = i;
    assert_int_equal(__real_space_reserve(model->fixture->volume.space, goal,
                                          (uint32_t)(in_cluster + *length), 0, NULL, claimed),
                     0);
    *length = MIN(*length, claimed->length_blocks - in_cluster);
    return claimed->block + in_cluster;
}

int model_insert(struct model *model, uint64_t first, uint64_t length, bool is_unwritten,
                 bool is_scattered)
{
    struct space *space = model->fixture->volume.space;

    while (length > 0) {
        uint64_t part = length;
        struct space_run run;
        struct handle handle;
        uint64_t block = find_room(model, first, &part, is_scattered, &run);
        unsigned int extends = extend_calls;

        model_start(model, part, &handle);
        if (run.length_blocks > 0)
            assert_int_equal(space_claim(&handle, space, run), 0);
        struct mapping mapping = {.file_block = first,
                                  .length_blocks = part,
                                  .disk_block = block,
                                  .kind = is_unwritten ? MAPPING_UNWRITTEN : MAPPING_WRITTEN};
        is_modify_armed = true;
        int error = map_insert(&handle, model->inode, &mapping);
        is_modify_armed = false;
        if (error != 0 && run.length_blocks > 0)
            assert_int_equal(space_free(&handle, space, run), 0);
        assert_int_equal(journal_stop(&handle), 0);
        if (error != 0)
            return error;
        assert_int_equal(extend_calls, extends);
        for (uint64_t i = 0; i < part; i++)
            model->blocks[first + i] = (struct model_block){.disk_block = (uint32_t)(block + i),
                                                            .is_unwritten = is_unwritten};
        first += part;
        length -= part;
    }
    return 0;
}

int model_set_kind(struct model *model, uint64_t first, uint64_t length, bool is_unwritten)
{
    int result = 0, error = -EAGAIN;

    /* A part may have been done before an error: the same call goes on with the rest. */
    for (unsigned int tries = 0; tries < 2 && error != 0; tries++) {
        struct handle handle;

        model_start(model, length, &handle);
        error = is_unwritten ? map_unwrite(&handle, model->inode, first, length)
                             : map_convert(&handle, model->inode, first, length);
        assert_int_equal(journal_stop(&handle), 0);
        result = result != 0 ? result : error;
    }
    if (error != 0)
        return error;
    for (uint64_t i = first; i < first + length; i++)
        model->blocks[i].is_unwritten = is_unwritten && model->blocks[i].disk_block != 0;
    return result;
}

static void model_clear(struct model *model, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < MIN(end, model->count); i++)
        model->blocks[i] = (struct model_block){0};
}

int model_remove(struct model *model, uint64_t first, uint64_t end)
{
    while (end > first) {
        struct handle handle;
        uint64_t remaining_end;

        start(model, map_credits(model->inode, end - first), &handle);
        int error = map_remove(&handle, model->inode, first, end, 0, &remaining_end);
        assert_int_equal(journal_stop(&handle), 0);
        assert_in_range(remaining_end, first, end);
        model_clear(model, remaining_end, end);
        if (error != 0)
            return error;
        assert_true(remaining_end < end);
        end = remaining_end;
    }
    return 0;
}

int model_shift(struct model *model, uint64_t first, int64_t delta)
{
    uint64_t next = MAP_SHIFT_START, count = model->count;

    while (next != MAP_SHIFT_DONE) {
        struct handle handle;

        start(model, map_credits(model->inode, 1), &handle);
        int error = map_shift(&handle, model->inode, first, delta, &next);
        assert_int_equal(journal_stop(&handle), 0);
        if (error != 0)
            return error;
    }
    if (delta < 0) {
        uint64_t distance = (uint64_t)-delta;

        memmove(&model->blocks[first - distance], &model->blocks[first],
                (count - first) * sizeof(*model->blocks));
        model_clear(model, count - distance, count);
    } else {
        memmove(&model->blocks[first + (uint64_t)delta], &model->blocks[first],
                (count - first - (uint64_t)delta) * sizeof(*model->blocks));
        model_clear(model, first, first + (uint64_t)delta);
    }
    return 0;
}

void model_set_size(struct model *model)
{
    struct handle handle;
    uint64_t end = model->count;

    while (end > 0 && model->blocks[end - 1].disk_block == 0)
        end--;
    start(model, INODE_WRITE_CREDITS, &handle);
    mutex_lock(&model->inode->fields_mutex);
    model->inode->fields.size = end * model->fixture->volume.sb.block_bytes;
    mutex_unlock(&model->inode->fields_mutex);
    assert_int_equal(inode_write(&handle, model->inode), 0);
    assert_int_equal(journal_stop(&handle), 0);
}

/* ---- Comparing ---- */

static void compare_mapping(const struct model *model, const struct mapping *mapping)
{
    for (uint64_t i = 0; i < mapping->length_blocks && mapping->file_block + i < model->count;
         i++) {
        const struct model_block *block = &model->blocks[mapping->file_block + i];
        uint64_t disk_block = mapping->kind == MAPPING_HOLE ? 0 : mapping->disk_block + i;

        if (block->disk_block != disk_block ||
            block->is_unwritten != (mapping->kind == MAPPING_UNWRITTEN))
            fail_msg("file block %" PRIu64 ": %u%s, found %" PRIu64 "%s", mapping->file_block + i,
                     block->disk_block, block->is_unwritten ? " unwritten" : "", disk_block,
                     mapping->kind == MAPPING_UNWRITTEN ? " unwritten" : "");
    }
}

static void compare_lookups(const struct model *model)
{
    for (uint64_t place = 0; place < model->count;) {
        struct mapping mapping;

        assert_int_equal(map_lookup(model->inode, place, &mapping), 0);
        assert_int_equal(mapping.file_block, place);
        assert_true(mapping.length_blocks > 0);
        compare_mapping(model, &mapping);
        place += mapping.length_blocks;
    }
}

struct walk {
    const struct model *model;
    uint64_t tree_blocks, mapped;
    uint64_t end; /* of the last extent */
};

static void walk_leaf(struct walk *walk, const void *node)
{
    for (unsigned int i = 0; i < extent_node_header(node).entry_count; i++) {
        struct extent extent = extent_at(node, i);
        struct mapping mapping = {.file_block = extent.file_block,
                                  .length_blocks = extent.length_blocks,
                                  .disk_block = extent.disk_block,
                                  .kind = extent.is_unwritten ? MAPPING_UNWRITTEN
                                                              : MAPPING_WRITTEN};

        assert_true(extent.file_block >= walk->end);
        assert_true(extent.file_block + extent.length_blocks <= walk->model->count);
        compare_mapping(walk->model, &mapping);
        walk->end = extent.file_block + extent.length_blocks;
        walk->mapped += extent.length_blocks;
    }
}

static void walk_node(struct walk *walk, const void *node, unsigned int depth)
{
    const struct volume *volume = &walk->model->fixture->volume;
    struct inode *inode = walk->model->inode;

    if (depth == 0) {
        walk_leaf(walk, node);
        return;
    }
    for (unsigned int i = 0; i < extent_node_header(node).entry_count; i++) {
        struct extent_index index = extent_index_at(node, i);
        struct buffer *buffer;

        assert_int_equal(buffer_get(volume->buffers, index.disk_block, &buffer), 0);
        assert_null(
            extent_node_check(&volume->sb, buffer->data, volume->sb.block_bytes, (int)depth - 1));
        assert_true(extent_node_checksum_matches(&volume->sb, inode->checksum_seed, buffer->data));
        assert_true(extent_node_header(buffer->data).entry_count > 0);
        assert_int_equal(index.file_block, depth == 1
                                               ? extent_at(buffer->data, 0).file_block
                                               : extent_index_at(buffer->data, 0).file_block);
        walk->tree_blocks++;
        walk_node(walk, buffer->data, depth - 1);
        buffer_put(buffer);
    }
}

/* Indirect blocks: none may be empty. */
static void walk_indirect(struct walk *walk, uint32_t block, unsigned int levels, uint64_t first)
{
    const struct volume *volume = &walk->model->fixture->volume;
    uint32_t count = volume->sb.block_bytes / 4;
    uint64_t reach = 1;
    struct buffer *buffer;
    bool is_empty = true;

    if (block == 0)
        return;
    if (levels == 0) {
        assert_int_equal(walk->model->blocks[first].disk_block, block);
        walk->mapped++;
        return;
    }
    walk->tree_blocks++;
    for (unsigned int i = 1; i < levels; i++)
        reach *= count;
    assert_int_equal(buffer_get(volume->buffers, block, &buffer), 0);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t entry = le32_at((const uint8_t *)buffer->data + 4 * (size_t)i);

        is_empty = is_empty && entry == 0;
        walk_indirect(walk, entry, levels - 1, first + i * reach);
    }
    assert_false(is_empty);
    buffer_put(buffer);
}

static void walk_block_map(struct walk *walk)
{
    const uint8_t *root = walk->model->inode->fields.block;
    uint64_t count = walk->model->fixture->volume.sb.block_bytes / 4;

    for (unsigned int i = 0; i < 12; i++)
        walk_indirect(walk, le32_at(root + 4 * (size_t)i), 0, i);
    walk_indirect(walk, le32_at(root + 48), 1, 12);
    walk_indirect(walk, le32_at(root + 52), 2, 12 + count);
    walk_indirect(walk, le32_at(root + 56), 3, 12 + count + count * count);
}

static uint64_t model_clusters(const struct model *model, uint64_t *mapped)
{
    uint32_t size = model->fixture->volume.sb.cluster_blocks;
    uint64_t clusters = 0;

    *mapped = 0;
    for (uint64_t first = 0; first < model->count; first += size) {
        bool is_used = false;

        for (uint64_t i = first; i < MIN(first + size, model->count); i++)
            if (model->blocks[i].disk_block != 0) {
                is_used = true;
                ++*mapped;
            }
        clusters += is_used;
    }
    return clusters;
}

unsigned int model_compare_map(const struct model *model, uint64_t *sectors)
{
    const struct superblock *sb = &model->fixture->volume.sb;
    struct walk walk = {.model = model};
    unsigned int depth = 0;
    uint64_t mapped, clusters = model_clusters(model, &mapped);

    compare_lookups(model);
    if (inode_has_flag(model->inode, INODE_EXTENTS)) {
        const void *root = model->inode->fields.block;

        assert_null(extent_node_check(sb, root, INODE_BLOCK_BYTES, -1));
        depth = extent_node_header(root).depth;
        if (extent_node_header(root).entry_count == 0)
            assert_int_equal(depth, 0);
        walk_node(&walk, root, depth);
    } else {
        walk_block_map(&walk);
    }
    assert_int_equal(walk.mapped, mapped);
    *sectors = (clusters + walk.tree_blocks) * sb->cluster_bytes / 512;
    assert_int_equal(model->inode->fields.allocated_sectors, *sectors);
    return depth;
}

unsigned int model_compare(const struct model *model)
{
    struct space_usage usage;
    uint64_t sectors;
    unsigned int depth = model_compare_map(model, &sectors);

    assert_int_equal(space_get_usage(model->fixture->volume.space, &usage), 0);
    assert_int_equal(model->fixture->free_at_start - usage.free_blocks,
                     sectors / (model->fixture->volume.sb.block_bytes / 512));
    return depth;
}

/* ---- debugfs ---- */

/* "(3-5):100-102", "(7[u]):9", "(IND):8", "(ETB0):9" */
static uint64_t compare_token(const struct model *model, const char *token)
{
    uint64_t first, last, disk_block;
    bool is_unwritten = strstr(token, "[u]") != NULL;
    char *end;

    if (token[0] != '(' || token[1] < '0' || token[1] > '9')
        return 0;
    first = last = strtoull(token + 1, &end, 10);
    if (strncmp(end, "[u]", 3) == 0)
        end += 3;
    if (*end == '-')
        last = strtoull(end + 1, &end, 10);
    end = strchr(end, ':');
    assert_non_null(end);
    disk_block = strtoull(end + 1, NULL, 10);
    struct mapping mapping = {.file_block = first,
                              .length_blocks = last - first + 1,
                              .disk_block = disk_block,
                              .kind = is_unwritten ? MAPPING_UNWRITTEN : MAPPING_WRITTEN};
    compare_mapping(model, &mapping);
    return last - first + 1;
}

void model_compare_debugfs(const struct model *model, uint32_t ino)
{
    char command[256], *line = NULL;
    size_t size = 0;
    uint64_t seen = 0, mapped;
    FILE *pipe;

    snprintf(command, sizeof(command), "debugfs -R 'stat <%u>' %s 2>/dev/null", ino,
             model->fixture->image);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    while (getline(&line, &size, pipe) >= 0) {
        char *rest = line, *token;

        while ((token = strsep(&rest, " ,\n")) != NULL)
            seen += compare_token(model, token);
    }
    free(line);
    assert_int_equal(pclose(pipe), 0);
    model_clusters(model, &mapped);
    assert_int_equal(seen, mapped);
}
