/* SPDX-License-Identifier: MIT */
/*
 * Group descriptors, read through the buffer cache when they are asked for: opening a file system
 * costs nothing in proportion to its size.
 *
 * Callers: inode, fs. Locks: none of its own.
 */
#include "space/volume.h"

#include <errno.h>

int volume_read_group(const struct volume *volume, uint32_t group, struct group_descriptor *result)
{
    const struct superblock *sb = &volume->sb;
    struct buffer *buffer;
    uint32_t offset;

    if (group >= sb->group_count)
        return -ERANGE;
    uint64_t block = group_descriptor_block(sb, group, volume->backup_group, &offset);
    if (!volume_has_blocks(volume, block, 1)) {
        log_error(volume->log, "group %u: its descriptor lies outside the file system", group);
        return -EUCLEAN;
    }
    int error = buffer_get(volume->buffers, block, &buffer);
    if (error != 0) {
        log_error(volume->log, "group %u: cannot read its descriptor in block %llu", group,
                  (unsigned long long)block);
        return error;
    }
    const void *raw = (const char *)buffer->data + offset;
    const char *reason = group_descriptor_parse(sb, group, raw, result);
    if (reason != NULL) {
        log_error(volume->log, "group %u: descriptor in block %llu: %s", group,
                  (unsigned long long)block, reason);
        error = -EUCLEAN;
    } else if (!volume->skip_checksums && !group_descriptor_checksum_matches(sb, group, raw)) {
        log_error(volume->log, "group %u: descriptor in block %llu: checksum does not match", group,
                  (unsigned long long)block);
        error = -EBADMSG;
    }
    buffer_put(buffer);
    return error;
}
