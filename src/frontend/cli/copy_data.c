/* SPDX-License-Identifier: MIT */
/*
 * Contents of files, by a pool of threads, so that the latencies of the device overlap.
 *
 * A job has an open descriptor of the host's new file, so that the pool needs no paths. Holes and
 * unwritten ranges are skipped and stay holes. The queue is short: it bounds open descriptors.
 * Locks: pool.lock guards the ring and is held across no I/O.
 * Called by copy.c and copy_node.c; the threads run pool_main.
 */
#include "copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"

#define BUFFER_BYTES     (1u << 20)
#define BUFFER_ALIGNMENT 4096

/* Returns 0 or -errno of the host. */
static int write_all(int fd, const char *bytes, size_t length, uint64_t offset)
{
    while (length > 0) {
        ssize_t count = pwrite(fd, bytes, length, (off_t)offset);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : -EIO;
        bytes += count;
        offset += (uint64_t)count;
        length -= (size_t)count;
    }
    return 0;
}

/* Copies [offset, end). Returns false after telling of an error. */
static bool copy_range(struct copy *copy, const struct copy_job *job, char *buffer, uint64_t offset,
                       uint64_t end)
{
    while (offset < end) {
        size_t wanted = end - offset < BUFFER_BYTES ? (size_t)(end - offset) : BUFFER_BYTES;
        ssize_t count;
        int result;

        if (atomic_fetch_add(&copy->data_bytes, wanted) + wanted > copy->data_limit) {
            session_fail(copy->session, job->path,
                         "more data than the image has: blocks are used twice; not copied");
            return false;
        }
        count = uext4_read(job->inode, buffer, wanted, offset);
        if (count <= 0) {
            session_error(copy->session, job->path, count < 0 ? (int)count : -EUCLEAN);
            return false;
        }
        result = write_all(job->fd, buffer, (size_t)count, offset);
        if (result < 0) {
            session_fail(copy->session, job->path, "cannot write: %s", message_error_text(result));
            return false;
        }
        offset += (uint64_t)count;
        progress_add(copy->progress, (uint64_t)count, 0);
    }
    return true;
}

/*
 * The next range that holds data: [*start, *end), *start == size if there is none. Returns false
 * after telling of an error.
 */
static bool find_data(struct copy *copy, const struct copy_job *job, uint64_t offset,
                      uint64_t *start, uint64_t *end)
{
    uint64_t size = job->stat.size;
    int64_t data = uext4_seek_data(job->inode, offset);
    int64_t hole;

    *start = *end = size;
    if (data == -ENXIO)
        return true;
    hole = data < 0 ? data : uext4_seek_hole(job->inode, (uint64_t)data);
    if (hole == -ENXIO)
        hole = (int64_t)size;
    if (hole >= 0 && (hole <= data || (uint64_t)data < offset))
        hole = -EUCLEAN;
    if (hole < 0) {
        session_error(copy->session, job->path, (int)hole);
        return false;
    }
    if ((uint64_t)data < size) {
        *start = (uint64_t)data;
        *end = (uint64_t)hole < size ? (uint64_t)hole : size;
    }
    return true;
}

/* After an error the file is left as long as it was copied. */
static void copy_contents(struct copy *copy, const struct copy_job *job, char *buffer)
{
    uint64_t size = job->stat.size, offset = 0, start = 0, end = 0;

    if (size > INT64_MAX) {
        session_error(copy->session, job->path, -EFBIG);
        return;
    }
    while (offset < size) {
        if (!find_data(copy, job, offset, &start, &end) ||
            !copy_range(copy, job, buffer, start, end))
            return;
        offset = end;
    }
    if (size > 0 && start == size && ftruncate(job->fd, (off_t)size) < 0)
        session_fail(copy->session, job->path, "cannot set the size: %s",
                     message_error_text(-errno));
}

static void run_job(struct copy *copy, struct copy_job *job, char *buffer)
{
    if (buffer)
        copy_contents(copy, job, buffer);
    else
        session_error(copy->session, job->path, -ENOMEM);
    copy_attributes(copy, job->inode, &job->stat, job->fd, -1, NULL, job->path);
    if (close(job->fd) < 0)
        session_fail(copy->session, job->path, "cannot write: %s", message_error_text(-errno));
    uext4_inode_put(job->inode);
    free(job->path);
    progress_add(copy->progress, 0, 1);
}

static char *make_buffer(void)
{
    void *buffer;

    return posix_memalign(&buffer, BUFFER_ALIGNMENT, BUFFER_BYTES) == 0 ? buffer : NULL;
}

static bool take_job(struct copy_pool *pool, struct copy_job *job)
{
    bool has_taken = false;

    pthread_mutex_lock(&pool->lock);
    while (pool->count == 0 && !pool->is_closing)
        pthread_cond_wait(&pool->has_job, &pool->lock);
    if (pool->count > 0) {
        *job = pool->jobs[pool->first];
        pool->first = (pool->first + 1) % COPY_QUEUE_MAX;
        pool->count--;
        pthread_cond_signal(&pool->has_room);
        has_taken = true;
    }
    pthread_mutex_unlock(&pool->lock);
    return has_taken;
}

static void *pool_main(void *context)
{
    struct copy *copy = context;
    char *buffer = make_buffer();
    struct copy_job job;

    while (take_job(&copy->pool, &job))
        run_job(copy, &job, buffer);
    free(buffer);
    return NULL;
}

void copy_pool_start(struct copy *copy)
{
    struct copy_pool *pool = &copy->pool;

    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->has_job, NULL);
    pthread_cond_init(&pool->has_room, NULL);
    while (pool->thread_count < copy->options.threads) {
        if (pthread_create(&pool->threads[pool->thread_count], NULL, pool_main, copy) != 0)
            break;
        pool->thread_count++;
    }
}

void copy_pool_submit(struct copy *copy, const struct copy_job *job)
{
    struct copy_pool *pool = &copy->pool;

    if (pool->thread_count == 0) {
        struct copy_job own = *job;
        char *buffer = make_buffer();

        run_job(copy, &own, buffer);
        free(buffer);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    while (pool->count >= 2 * (size_t)pool->thread_count)
        pthread_cond_wait(&pool->has_room, &pool->lock);
    pool->jobs[(pool->first + pool->count) % COPY_QUEUE_MAX] = *job;
    pool->count++;
    pthread_cond_signal(&pool->has_job);
    pthread_mutex_unlock(&pool->lock);
}

void copy_pool_wait(struct copy *copy)
{
    struct copy_pool *pool = &copy->pool;

    pthread_mutex_lock(&pool->lock);
    pool->is_closing = true;
    pthread_cond_broadcast(&pool->has_job);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned int i = 0; i < pool->thread_count; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->has_room);
    pthread_cond_destroy(&pool->has_job);
    pthread_mutex_destroy(&pool->lock);
}
