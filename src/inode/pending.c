/* SPDX-License-Identifier: MIT */
/*
 * Times that were changed in memory only (writes to mapped blocks need no transaction) and have to
 * reach the table before a sync ends.
 *
 * Locks: a shard's mutex to find the inodes; handles with no lock held. Callers: fs.
 */
#include <stdatomic.h>

#include "inode/table.h"

/* Finds an inode of the shard with unwritten fields, and takes a reference and the mark. */
static struct inode *take_pending(struct inode_shard *shard)
{
    struct inode *inode = NULL;

    mutex_lock(&shard->mutex);
    for (size_t i = 0; i < INODE_BUCKET_COUNT && inode == NULL; i++)
        for (inode = shard->buckets[i]; inode != NULL; inode = inode->chained)
            if (atomic_exchange_explicit(&inode->has_unwritten_fields, false, memory_order_acq_rel))
                break;
    if (inode != NULL)
        inode->references++;
    mutex_unlock(&shard->mutex);
    return inode;
}

static int write_one(struct inode *inode)
{
    struct handle handle;
    int error = journal_start(inode->volume->journal, INODE_WRITE_CREDITS, &handle);

    if (error != 0)
        return error;
    error = inode_write(&handle, inode);
    if (error == 0)
        inode_note_change(&handle, inode, false);
    int stop_error = journal_stop(&handle);
    return error != 0 ? error : stop_error;
}

int inode_write_pending(struct inode_table *table)
{
    int first_error = 0;

    for (unsigned int i = 0; i < INODE_SHARD_COUNT && first_error == 0; i++) {
        struct inode *inode;

        while (first_error == 0 && (inode = take_pending(&table->shards[i])) != NULL) {
            first_error = write_one(inode);
            inode_put(inode);
        }
    }
    return first_error;
}
