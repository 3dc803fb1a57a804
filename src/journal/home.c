/* SPDX-License-Identifier: MIT */
/*
 * Copies of blocks: their memory, and writing them to their places.
 *
 * Invariant: what is written home is a copy, never the content of a buffer, which may hold changes
 * of a transaction that has not committed.
 * Locks: the pool's, a leaf. home_write holds none and waits for the device.
 * Callers: handle.c, transaction.c, checkpoint.c; commit.c without a log.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal/engine.h"

#define POOL_MAX_COPIES    1024
#define MIN_ALIGNMENT      64u
#define HOME_QUEUE_DEPTH   32
#define HOME_RUN_BLOCKS    256u
#define MAX_PLAIN_REQUESTS 2 /* so few do not need a queue */

struct journal_copy *copy_allocate(struct journal *journal)
{
    struct journal_copy *copy = NULL;
    size_t alignment = MAX(device_limits(journal->device)->memory_alignment, MIN_ALIGNMENT);
    void *data;

    mutex_lock(&journal->pool_mutex);
    if (!list_is_empty(&journal->pool)) {
        copy = list_first(&journal->pool, struct journal_copy, link);
        list_remove(&copy->link);
        journal->pool_count--;
    }
    mutex_unlock(&journal->pool_mutex);
    if (copy == NULL) {
        copy = malloc(sizeof(*copy));
        if (copy == NULL)
            return NULL;
        if (posix_memalign(&data, alignment, journal->block_bytes) != 0) {
            free(copy);
            return NULL;
        }
        copy->data = data;
    }
    *copy = (struct journal_copy){.data = copy->data};
    list_init(&copy->link);
    return copy;
}

void copy_free(struct journal *journal, struct journal_copy *copy)
{
    bool is_kept;

    if (copy == NULL)
        return;
    mutex_lock(&journal->pool_mutex);
    is_kept = journal->pool_count < POOL_MAX_COPIES;
    if (is_kept) {
        list_add_first(&journal->pool, &copy->link);
        journal->pool_count++;
    }
    mutex_unlock(&journal->pool_mutex);
    if (!is_kept) {
        free(copy->data);
        free(copy);
    }
}

void copy_pool_destroy(struct journal *journal)
{
    list_for_each_safe (link, next, &journal->pool) {
        struct journal_copy *copy = list_entry(link, struct journal_copy, link);

        free(copy->data);
        free(copy);
    }
    list_init(&journal->pool);
}

/* ---- Writing home --------------------------------------------------------------------------- */

static int compare_blocks(const void *a, const void *b)
{
    const struct journal_copy *left = *(struct journal_copy *const *)a;
    const struct journal_copy *right = *(struct journal_copy *const *)b;

    return (left->block > right->block) - (left->block < right->block);
}

static void home_done(struct device_request *request)
{
    int *error = request->context;

    if (request->result != 0 && *error == 0)
        *error = request->result;
}

/* Makes one request of each run of neighbouring blocks. Returns how many there are. */
static size_t make_requests(const struct journal *journal, struct journal_copy **copies,
                            size_t count, struct iovec *iov, struct device_request *requests,
                            int *error)
{
    size_t max_run = MIN(device_limits(journal->device)->max_iov_count, HOME_RUN_BLOCKS);
    size_t request_count = 0;

    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && end - first < max_run &&
                          copies[end]->block == copies[first]->block + (end - first);
             end++)
            iov[end] = (struct iovec){.iov_base = copies[end]->data,
                                      .iov_len = journal->block_bytes};
        requests[request_count++] = (struct device_request){
            .operation = DEVICE_WRITE,
            .iov = &iov[first],
            .iov_count = (int)(end - first),
            .offset_bytes = copies[first]->block * journal->block_bytes,
            .length_bytes = (end - first) * (uint64_t)journal->block_bytes,
            .done = home_done,
            .context = error,
        };
    }
    return request_count;
}

static int run_plainly(struct journal *journal, struct device_request *requests, size_t count)
{
    int error = 0;

    for (size_t i = 0; i < count && error == 0; i++)
        error = device_run_request(journal->device, &requests[i]);
    return error;
}

/* `error` is where the requests' completions leave theirs. */
static int run_queued(struct journal *journal, struct device_request *requests, size_t count,
                      int *error)
{
    struct device_queue *queue = journal->home_queue;
    int own_error = 0;

    for (size_t i = 0; i < count && own_error == 0 && *error == 0; i++)
        own_error = device_queue_submit(queue, &requests[i]);
    while (queue->under_way > 0) {
        int reaped = device_queue_reap(queue, queue->under_way, queue->under_way);

        if (reaped < 0) {
            own_error = reaped;
            device_queue_close(queue);
            journal->home_queue = NULL;
            break;
        }
    }
    return *error != 0 ? *error : own_error;
}

static int write_requests(struct journal *journal, struct journal_copy **copies, size_t count)
{
    struct iovec *iov = calloc(count, sizeof(*iov));
    struct device_request *requests = calloc(count, sizeof(*requests));
    size_t request_count;
    int queue_error = 0;
    int error = -ENOMEM;

    if (iov == NULL || requests == NULL)
        goto out;
    request_count = make_requests(journal, copies, count, iov, requests, &queue_error);
    error = 0;
    if (request_count > MAX_PLAIN_REQUESTS && journal->home_queue == NULL)
        error = device_queue_open(journal->device, HOME_QUEUE_DEPTH, &journal->home_queue);
    if (error != 0)
        goto out;
    if (request_count > MAX_PLAIN_REQUESTS)
        error = run_queued(journal, requests, request_count, &queue_error);
    else
        error = run_plainly(journal, requests, request_count);
out:
    free(requests);
    free(iov);
    return error;
}

int home_write(struct journal *journal, struct journal_copy **copies, size_t count)
{
    int error = 0;

    if (count == 0)
        return 0;
    qsort(copies, count, sizeof(struct journal_copy *), compare_blocks);
    if (journal->can_write_vectored) {
        error = write_requests(journal, copies, count);
    } else {
        for (size_t i = 0; i < count && error == 0; i++)
            error = device_write(journal->device, copies[i]->data, journal->block_bytes,
                                 copies[i]->block * journal->block_bytes, 0);
    }
    if (error != 0)
        log_error(journal->log, "journal: cannot write %zu blocks from block %llu on home: %s",
                  count, (unsigned long long)copies[0]->block, strerrordesc_np(-error));
    else
        count_event(&journal->blocks_home, count);
    return error;
}
