/* SPDX-License-Identifier: MIT */
/*
 * The orphan list on the disk: inodes that lost their last name while somebody used them, or whose
 * truncation spans transactions. The superblock names the first; each inode's deletion time names
 * the next. A recovery frees those without links and truncates the others to their size.
 *
 * In memory the list is kept in the same order, so that an inode can be taken out of the middle:
 * the one before it is then pointed past it. File systems with an orphan file know this list too.
 *
 * Locks: orphans_mutex, inside a handle, held while the few blocks concerned are changed.
 * Callers: fs.
 */
#include <errno.h>

#include "inode/table.h"

static void set_head(struct superblock *sb, void *context)
{
    sb->last_orphan = *(const uint32_t *)context;
}

static int point_head_at(struct handle *handle, const struct volume *volume, uint32_t ino)
{
    return volume_change_superblock(handle, volume, set_head, &ino);
}

static int point_at(struct handle *handle, struct inode *inode, uint32_t next)
{
    mutex_lock(&inode->fields_mutex);
    inode->fields.deletion_time = next;
    mutex_unlock(&inode->fields_mutex);
    return inode_write(handle, inode);
}

/* The number that the list goes on with behind a link; 0 at its end. */
static uint32_t number_behind(const struct inode_table *table, const struct list *link)
{
    return link->next == &table->orphans ? 0
                                         : list_entry(link->next, struct inode, orphan_link)->ino;
}

int orphan_add(struct handle *handle, struct inode *inode)
{
    struct inode_table *table = inode->table;
    int error = 0;

    mutex_lock(&table->orphans_mutex);
    if (!inode->is_orphan) {
        error = point_at(handle, inode, number_behind(table, &table->orphans));
        if (error == 0)
            error = point_head_at(handle, inode->volume, inode->ino);
        if (error == 0) {
            list_add_first(&table->orphans, &inode->orphan_link);
            inode->is_orphan = true;
        }
    }
    mutex_unlock(&table->orphans_mutex);
    return error;
}

int orphan_remove(struct handle *handle, struct inode *inode)
{
    struct inode_table *table = inode->table;
    int error = 0;

    mutex_lock(&table->orphans_mutex);
    if (inode->is_orphan) {
        uint32_t next = number_behind(table, &inode->orphan_link);

        if (inode->orphan_link.previous == &table->orphans)
            error = point_head_at(handle, inode->volume, next);
        else
            error = point_at(
                handle, list_entry(inode->orphan_link.previous, struct inode, orphan_link), next);
        if (error == 0)
            error = point_at(handle, inode, 0);
        if (error == 0) {
            list_remove(&inode->orphan_link);
            inode->is_orphan = false;
        }
    }
    mutex_unlock(&table->orphans_mutex);
    return error;
}

void orphan_adopt(struct inode *inode)
{
    struct inode_table *table = inode->table;

    mutex_lock(&table->orphans_mutex);
    if (!inode->is_orphan) {
        list_add_first(&table->orphans, &inode->orphan_link);
        inode->is_orphan = true;
    }
    mutex_unlock(&table->orphans_mutex);
}
