/* SPDX-License-Identifier: MIT */
/*
 * Reads the blocks of a directory and checks what can be checked once per block: its checksum.
 * Entries are checked each time they are looked at (dirent_read).
 *
 * Locks: none. Callers: lookup.c, index.c, iterate.c.
 */
#include <errno.h>

#include "base/byteorder.h"
#include "dir/dir.h"
#include "map/map.h"

/* What is read in one request when a directory's blocks lie side by side. */
#define READ_AHEAD_BYTES (32u * 1024)

int dir_corrupt(const struct inode *dir, uint64_t file_block, const char *reason)
{
    log_error(dir->volume->log, "directory inode %u, block %llu: %s", dir->ino,
              (unsigned long long)file_block, reason);
    return -EUCLEAN;
}

int64_t dir_block_count(const struct inode *dir)
{
    const struct superblock *sb = &dir->volume->sb;
    uint64_t blocks = dir->fields.size / sb->block_bytes +
                      (dir->fields.size % sb->block_bytes != 0 ? 1 : 0);

    if (blocks > sb->block_count) {
        log_error(dir->volume->log, "directory inode %u: its size %llu is more than the disk's",
                  dir->ino, (unsigned long long)dir->fields.size);
        return -EUCLEAN;
    }
    return (int64_t)blocks;
}

int dir_get_block(struct inode *dir, uint64_t file_block, struct buffer **buffer,
                  uint64_t *hole_blocks)
{
    const struct volume *volume = dir->volume;
    struct mapping mapping;
    uint32_t window = MAX(READ_AHEAD_BYTES / volume->sb.block_bytes, 1u);
    int error = map_lookup(dir, file_block, &mapping);

    *buffer = NULL;
    if (error != 0)
        return error;
    if (mapping.kind != MAPPING_WRITTEN) {
        *hole_blocks = mapping.length_blocks;
        return 0;
    }
    error = buffer_get_window(volume->buffers, mapping.disk_block, mapping.disk_block,
                              (uint32_t)MIN(mapping.length_blocks, window), buffer);
    if (error != 0)
        log_error(volume->log, "directory inode %u: cannot read its block %llu from block %llu",
                  dir->ino, (unsigned long long)file_block, (unsigned long long)mapping.disk_block);
    return error;
}

/*
 * An inner node of the index looks like one empty entry that fills the block; the root hides behind
 * the ".." entry of block 0. Both end differently from a block of entries.
 */
static bool leaf_checksum_matches(const struct inode *dir, uint64_t file_block, const void *data)
{
    const struct superblock *sb = &dir->volume->sb;

    if (dirent_block_checksum_matches(sb, dir->checksum_seed, data))
        return true;
    if (!inode_has_flag(dir, INODE_INDEXED))
        return false;
    return htree_node_checksum_matches(sb, dir->checksum_seed, data, file_block == 0);
}

int dir_get_leaf(struct inode *dir, uint64_t file_block, struct buffer **buffer,
                 uint64_t *hole_blocks)
{
    const struct volume *volume = dir->volume;
    uint64_t tag = block_tag(BLOCK_KIND_DIRECTORY_LEAF, dir->ino, 0);
    int error = dir_get_block(dir, file_block, buffer, hole_blocks);

    if (error != 0 || *buffer == NULL || buffer_is_verified(*buffer, tag))
        return error;
    if (!volume->skip_checksums && !leaf_checksum_matches(dir, file_block, (*buffer)->data)) {
        log_error(volume->log, "directory inode %u, block %llu: checksum does not match", dir->ino,
                  (unsigned long long)file_block);
        buffer_put(*buffer);
        *buffer = NULL;
        return -EBADMSG;
    }
    buffer_set_verified(*buffer, tag);
    return 0;
}
