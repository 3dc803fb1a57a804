/* SPDX-License-Identifier: MIT */
/*
 * The calls of the public header on one inode: references, attributes, data.
 *
 * Locks: none across the device. Callers: front ends.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "data/data.h"
#include "fs/change.h"
#include "map/map.h"

/* The longest target that a symbolic link can have is one block; the kernel stops at its PATH_MAX.
 */
#define MAX_LINK_BYTES 65536

int uext4_inode_get(struct uext4 *fs, uint64_t ino, struct uext4_inode **result)
{
    struct inode *inode;
    int error = inode_get(fs->inodes, ino, &inode);

    if (error == 0)
        *result = inode_to_public(inode);
    return error;
}

struct uext4_inode *uext4_inode_ref(struct uext4_inode *inode)
{
    inode_ref(inode_from_public(inode));
    return inode;
}

void uext4_inode_put(struct uext4_inode *public)
{
    struct inode *inode = inode_from_public(public);

    if (inode == NULL)
        return;
    struct uext4 *fs = fs_of(inode);
    if (fs->volume.journal != NULL)
        change_write_times(inode);
    inode_put(inode);
    change_reap(fs);
}

uint64_t uext4_inode_number(const struct uext4_inode *inode)
{
    return inode_from_public(inode)->ino;
}

int uext4_stat(struct uext4_inode *public, struct uext4_stat *stat)
{
    struct inode *inode = inode_from_public(public);
    const struct inode_fields *fields = &inode->fields;
    const struct device_limits *limits = device_limits(inode->volume->device);

    mutex_lock(&inode->fields_mutex);
    *stat = (struct uext4_stat){
        .ino = inode->ino,
        .generation = fields->generation,
        .mode = fields->mode,
        .uid = fields->uid,
        .gid = fields->gid,
        .link_count = fields->link_count,
        .rdev_major = fields->rdev_major,
        .rdev_minor = fields->rdev_minor,
        .size = S_ISREG(fields->mode) ? atomic_load_explicit(&inode->size, memory_order_acquire)
                                      : fields->size,
        .allocated_sectors = fields->allocated_sectors,
        .block_bytes = inode->volume->sb.block_bytes,
        .access_time = fields->access_time,
        .modify_time = fields->modify_time,
        .change_time = fields->change_time,
        .birth_time = fields->birth_time,
        .flags = fields->flags,
        .project_id = fields->project_id,
        .direct_memory_alignment = limits->memory_alignment,
        .direct_offset_alignment = limits->offset_alignment,
    };
    mutex_unlock(&inode->fields_mutex);
    /* Kernel ext4 counts the inline data of a regular file as sectors, beside its blocks. */
    if (inode_is_inline(inode) && S_ISREG(fields->mode))
        stat->allocated_sectors += (fields->size + 511) / 512;
    return 0;
}

ssize_t uext4_readlink(struct uext4_inode *public, char *buffer, size_t size)
{
    struct inode *inode = inode_from_public(public);
    uint64_t length = inode->fields.size;

    if (!S_ISLNK(inode->fields.mode))
        return -EINVAL;
    if (inode_has_flag(inode, INODE_ENCRYPTED))
        return -ENOKEY;
    if (inode_is_fast_symlink(&inode->volume->sb, &inode->fields)) {
        if (length >= INODE_BLOCK_BYTES) {
            log_error(inode->volume->log, "inode %u: symbolic link of %llu bytes in the inode",
                      inode->ino, (unsigned long long)length);
            return -EUCLEAN;
        }
        memcpy(buffer, inode->fields.block, MIN(size, length));
        return (ssize_t)length;
    }
    if (length > MIN(inode->volume->sb.block_bytes, MAX_LINK_BYTES)) {
        log_error(inode->volume->log, "inode %u: symbolic link of %llu bytes", inode->ino,
                  (unsigned long long)length);
        return -EUCLEAN;
    }
    ssize_t count = data_read_buffer(inode, buffer, MIN(size, length), 0);
    return count < 0 ? count : (ssize_t)length;
}

static int check_readable(const struct inode *inode)
{
    if (S_ISDIR(inode->fields.mode))
        return -EISDIR;
    if (!S_ISREG(inode->fields.mode))
        return -EINVAL;
    return inode_has_flag(inode, INODE_ENCRYPTED) ? -ENOKEY : 0;
}

ssize_t uext4_readv(struct uext4_inode *public, const struct iovec *iov, int iov_count,
                    uint64_t offset)
{
    struct inode *inode = inode_from_public(public);
    int error = check_readable(inode);

    return error != 0 ? error : data_read(inode, iov, iov_count, offset);
}

ssize_t uext4_read(struct uext4_inode *inode, void *buffer, size_t length, uint64_t offset)
{
    struct iovec iov = {.iov_base = buffer, .iov_len = length};

    return uext4_readv(inode, &iov, 1, offset);
}

int64_t uext4_seek_data(struct uext4_inode *public, uint64_t offset)
{
    struct inode *inode = inode_from_public(public);
    int error = check_readable(inode);

    /* Where the data of an encrypted file lies is no secret. */
    return error != 0 && error != -ENOKEY ? error : data_seek(inode, offset, true);
}

int64_t uext4_seek_hole(struct uext4_inode *public, uint64_t offset)
{
    struct inode *inode = inode_from_public(public);
    int error = check_readable(inode);

    return error != 0 && error != -ENOKEY ? error : data_seek(inode, offset, false);
}

/* True for an inode that keeps a block map or an extent tree. */
static bool is_mapped(const struct inode *inode)
{
    mode_t mode = inode->fields.mode;

    return S_ISREG(mode) || S_ISDIR(mode) ||
           (S_ISLNK(mode) && !inode_is_fast_symlink(&inode->volume->sb, &inode->fields));
}

int uext4_map(struct uext4_inode *public, uint64_t offset, struct uext4_extent *extent)
{
    static const enum uext4_extent_kind kinds[] = {
        [MAPPING_HOLE] = UEXT4_EXTENT_HOLE,
        [MAPPING_WRITTEN] = UEXT4_EXTENT_WRITTEN,
        [MAPPING_UNWRITTEN] = UEXT4_EXTENT_UNWRITTEN,
    };
    struct inode *inode = inode_from_public(public);
    const struct superblock *sb = &inode->volume->sb;
    struct mapping mapping;

    if (inode_is_inline(inode)) {
        if (offset >= inode->fields.size)
            return -ENXIO;
        *extent = (struct uext4_extent){
            .kind = UEXT4_EXTENT_INLINE, .offset = offset, .length = inode->fields.size - offset};
        return 0;
    }
    uint64_t file_block = offset >> sb->block_bits;
    if (!is_mapped(inode) || file_block >= MAP_MAX_FILE_BLOCKS)
        return -ENXIO;
    int error = map_lookup_joined(inode, file_block, MAP_MAX_FILE_BLOCKS, &mapping);
    if (error != 0)
        return error;
    if (mapping.kind == MAPPING_HOLE &&
        mapping.file_block + mapping.length_blocks >= MAP_MAX_FILE_BLOCKS)
        return -ENXIO;
    uint64_t skipped = offset & (sb->block_bytes - 1);
    *extent = (struct uext4_extent){
        .kind = kinds[mapping.kind],
        .offset = offset,
        .length = (mapping.length_blocks << sb->block_bits) - skipped,
        .device_offset =
            mapping.kind == MAPPING_HOLE ? 0 : (mapping.disk_block << sb->block_bits) + skipped,
    };
    return 0;
}
