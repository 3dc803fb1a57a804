/* SPDX-License-Identifier: MIT */
/* What the engine asks of the buffer cache: blocks without reading, finding, forgetting. */
#include "engine_rig.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 1024u
#define BLOCKS      64u

/* A disk whose reads wait while the gate is closed. */
struct gated_disk {
    struct device device;
    uint8_t bytes[BLOCKS * BLOCK_BYTES];
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    bool is_closed;
    unsigned int waiting, reads;
};

static int gated_readv(struct device *device, const struct iovec *iov, int iov_count,
                       uint64_t offset)
{
    struct gated_disk *disk = container_of(device, struct gated_disk, device);

    for (int i = 0; i < iov_count; offset += iov[i].iov_len, i++)
        memcpy(iov[i].iov_base, disk->bytes + offset, iov[i].iov_len);
    pthread_mutex_lock(&disk->mutex);
    disk->reads++;
    disk->waiting++;
    pthread_cond_broadcast(&disk->condition);
    while (disk->is_closed)
        pthread_cond_wait(&disk->condition, &disk->mutex);
    disk->waiting--;
    pthread_mutex_unlock(&disk->mutex);
    return 0;
}

static void gated_close(struct device *device)
{
    (void)device;
}

static const struct device_ops gated_ops = {
    .name = "gated disk", .readv = gated_readv, .close = gated_close};

static struct gated_disk disk;
static struct buffer_cache *cache;

static int setup(void **state)
{
    (void)state;
    memset(&disk, 0, sizeof(disk));
    disk.device.ops = &gated_ops;
    disk.device.limits = (struct device_limits){.size_bytes = sizeof(disk.bytes),
                                                .offset_alignment = 1,
                                                .memory_alignment = 1,
                                                .max_iov_count = 16};
    memset(disk.bytes, 1, sizeof(disk.bytes));
    pthread_mutex_init(&disk.mutex, NULL);
    pthread_cond_init(&disk.condition, NULL);
    return buffer_cache_create(&disk.device, BLOCK_BYTES, 1, &cache);
}

static int teardown(void **state)
{
    (void)state;
    buffer_cache_destroy(cache);
    pthread_cond_destroy(&disk.condition);
    pthread_mutex_destroy(&disk.mutex);
    return 0;
}

static uint8_t first_byte(const struct buffer *buffer)
{
    return *(const uint8_t *)buffer->data;
}

static void test_create(void **state)
{
    struct buffer *created, *found;

    (void)state;
    assert_null(buffer_find(cache, 3));
    assert_int_equal(buffer_create(cache, 3, &created), 0);
    assert_int_equal(disk.reads, 0);
    assert_int_equal(first_byte(created), 0);
    assert_null(created->private);
    memset(buffer_writable(created), 9, BLOCK_BYTES);
    found = buffer_find(cache, 3);
    assert_ptr_equal(found, created);
    buffer_put(found);
    buffer_hold(created);
    buffer_put(created);
    buffer_put(created);
    assert_int_equal(buffer_create(cache, 3, &created), 0);
    assert_int_equal(first_byte(created), 9);
    buffer_put(created);
}

static void test_forget(void **state)
{
    struct buffer *held, *read;

    (void)state;
    buffer_forget(cache, 4);
    assert_int_equal(buffer_get(cache, 4, &held), 0);
    buffer_set_verified(held, 5);
    disk.bytes[4 * BLOCK_BYTES] = 2;
    buffer_forget(cache, 4);
    assert_null(buffer_find(cache, 4));
    assert_int_equal(buffer_get(cache, 4, &read), 0);
    assert_ptr_not_equal(read, held);
    assert_int_equal(first_byte(held), 1);
    assert_int_equal(first_byte(read), 2);
    assert_false(buffer_is_verified(read, 5));
    buffer_put(held);
    buffer_put(read);
    buffer_forget(cache, 4);
    assert_null(buffer_find(cache, 4));
}

static void *get_block(void *argument)
{
    return buffer_get(cache, 5, argument) == 0 ? argument : NULL;
}

/* A read that began before the block was forgotten does not bring it back. */
static void test_forget_while_reading(void **state)
{
    struct buffer *old, *new;
    pthread_t thread;
    void *result;

    (void)state;
    disk.is_closed = true;
    assert_int_equal(pthread_create(&thread, NULL, get_block, &old), 0);
    pthread_mutex_lock(&disk.mutex);
    while (disk.waiting == 0)
        pthread_cond_wait(&disk.condition, &disk.mutex);
    disk.bytes[5 * BLOCK_BYTES] = 2;
    buffer_forget(cache, 5);
    disk.is_closed = false;
    pthread_cond_broadcast(&disk.condition);
    pthread_mutex_unlock(&disk.mutex);
    pthread_join(thread, &result);
    assert_non_null(result);
    assert_int_equal(first_byte(old), 1);
    assert_int_equal(buffer_get(cache, 5, &new), 0);
    assert_int_equal(first_byte(new), 2);
    buffer_put(old);
    buffer_put(new);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_create, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forget, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forget_while_reading, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
