/* SPDX-License-Identifier: MIT */
/* Asynchronous queues: the same tests over the io_uring, thread, inline and latency queues. */
#include "support.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE     (4u * 1024 * 1024)
#define BLOCK    4096u
#define REQUESTS 64u

struct job {
    struct device_request request;
    struct iovec iov[2];
    unsigned char *buffer;
    unsigned int *done_count;
    unsigned int times_done;
    struct job *jobs;
    unsigned int *next_index;
    struct device_queue *queue;
};

static void done(struct device_request *request)
{
    struct job *job = request->context;

    job->times_done++;
    (*job->done_count)++;
}

static void prepare(struct job *job, enum device_operation operation, uint64_t offset,
                    unsigned int *done_count)
{
    job->iov[0] = (struct iovec){job->buffer, BLOCK};
    job->iov[1] = (struct iovec){job->buffer + BLOCK, BLOCK};
    job->done_count = done_count;
    job->times_done = 0;
    job->request = (struct device_request){.operation = operation,
                                           .iov = job->iov,
                                           .iov_count = 2,
                                           .offset_bytes = offset,
                                           .length_bytes = 2 * BLOCK,
                                           .result = -1,
                                           .done = done,
                                           .context = job};
}

static struct job *make_jobs(void)
{
    struct job *jobs = calloc(REQUESTS, sizeof(*jobs));

    assert_non_null(jobs);
    for (unsigned int i = 0; i < REQUESTS; i++) {
        void *buffer = NULL;

        assert_int_equal(posix_memalign(&buffer, BLOCK, 2 * BLOCK), 0);
        jobs[i].buffer = buffer;
    }
    return jobs;
}

static void free_jobs(struct job *jobs)
{
    for (unsigned int i = 0; i < REQUESTS; i++)
        free(jobs[i].buffer);
    free(jobs);
}

static void reap_all(struct device_queue *queue, unsigned int *done_count, unsigned int wanted)
{
    while (*done_count < wanted)
        assert_true(device_queue_reap(queue, 1, 16) >= 1);
    assert_int_equal(device_queue_reap(queue, 1, 16), 0);
    assert_int_equal(*done_count, wanted);
}

/* Writes every block, flushes, reads them back, with more requests than the depth. */
static void check_transfers(struct device *device, unsigned int depth)
{
    struct job *jobs = make_jobs();
    struct device_queue *queue;
    unsigned int done_count = 0;

    assert_int_equal(device_queue_open(device, depth, &queue), 0);
    for (unsigned int i = 0; i < REQUESTS; i++) {
        prepare(&jobs[i], DEVICE_WRITE, i * 2 * BLOCK, &done_count);
        memset(jobs[i].buffer, (int)i + 1, 2 * BLOCK);
        jobs[i].request.flags = i % 8 == 0 ? DEVICE_FUA : 0;
        assert_int_equal(device_queue_submit(queue, &jobs[i].request), 0);
        if (i % 5 == 0)
            assert_int_equal(device_queue_kick(queue), 0);
    }
    reap_all(queue, &done_count, REQUESTS);
    for (unsigned int i = 0; i < REQUESTS; i++) {
        assert_int_equal(jobs[i].times_done, 1);
        assert_int_equal(jobs[i].request.result, 0);
    }
    /* The synchronous calls see the same places. */
    for (unsigned int i = 0; i < REQUESTS; i += 9) {
        memset(jobs[i].buffer, 0, 2 * BLOCK);
        assert_int_equal(device_read(device, jobs[i].buffer, 2 * BLOCK, i * 2 * BLOCK), 0);
        assert_int_equal(jobs[i].buffer[0], (unsigned char)(i + 1));
        assert_int_equal(jobs[i].buffer[2 * BLOCK - 1], (unsigned char)(i + 1));
    }
    done_count = 0;
    prepare(&jobs[0], DEVICE_FLUSH, 0, &done_count);
    assert_int_equal(device_queue_submit(queue, &jobs[0].request), 0);
    reap_all(queue, &done_count, 1);
    assert_int_equal(jobs[0].request.result, 0);

    done_count = 0;
    for (unsigned int i = 0; i < REQUESTS; i++) {
        prepare(&jobs[i], DEVICE_READ, i * 2 * BLOCK, &done_count);
        if (i % 2 == 0) {
            jobs[i].iov[0].iov_len = 2 * BLOCK;
            jobs[i].request.iov_count = 1;
        }
        memset(jobs[i].buffer, 0xff, 2 * BLOCK);
        assert_int_equal(device_queue_submit(queue, &jobs[i].request), 0);
    }
    reap_all(queue, &done_count, REQUESTS);
    for (unsigned int i = 0; i < REQUESTS; i++) {
        assert_int_equal(jobs[i].times_done, 1);
        assert_int_equal(jobs[i].request.result, 0);
        for (unsigned int j = 0; j < 2 * BLOCK; j++)
            if (jobs[i].buffer[j] != (unsigned char)(i + 1))
                fail_msg("request %u, byte %u", i, j);
    }
    done_count = 0;
    prepare(&jobs[0], DEVICE_DISCARD, 0, &done_count);
    assert_int_equal(device_queue_submit(queue, &jobs[0].request), 0);
    /* Closing waits for it. */
    device_queue_close(queue);
    assert_int_equal(done_count, 1);
    assert_int_equal(jobs[0].request.result, 0);
    assert_int_equal(device_read(device, jobs[0].buffer, BLOCK, 0), 0);
    assert_int_equal(jobs[0].buffer[0], 0);
    free_jobs(jobs);
}

static void check_refusals(struct device *device)
{
    struct job *jobs = make_jobs();
    struct device_queue *queue;
    unsigned int done_count = 0;
    uint64_t size = device_limits(device)->size_bytes;

    assert_int_equal(device_queue_open(device, 0, &queue), -EINVAL);
    assert_int_equal(device_queue_open(device, 1u << 30, &queue), -EINVAL);
    assert_int_equal(device_queue_open(device, 2, &queue), 0);
    prepare(&jobs[0], DEVICE_READ, size, &done_count);
    assert_int_equal(device_queue_submit(queue, &jobs[0].request), -EIO);
    prepare(&jobs[0], DEVICE_WRITE, size - BLOCK, &done_count);
    assert_int_equal(device_queue_submit(queue, &jobs[0].request), -ENOSPC);
    prepare(&jobs[0], DEVICE_READ, 0, &done_count);
    jobs[0].request.length_bytes = 1;
    assert_int_equal(device_queue_submit(queue, &jobs[0].request), -EINVAL);
    jobs[0].request.iov_count = 0;
    jobs[0].request.length_bytes = 0;
    assert_int_equal(device_queue_submit(queue, &jobs[0].request), -EINVAL);
    jobs[0].request.operation = (enum device_operation)77;
    assert_int_equal(device_queue_submit(queue, &jobs[0].request), -EINVAL);
    assert_int_equal(device_queue_reap(queue, 0, 1), 0);
    device_queue_close(queue);
    assert_int_equal(done_count, 0);
    free_jobs(jobs);
}

/* Each end submits the next three jobs, so that far more are wanted than the depth allows. */
static void done_and_submit(struct device_request *request)
{
    struct job *job = request->context;

    job->times_done++;
    (*job->done_count)++;
    assert_int_equal(request->result, 0);
    assert_int_equal(device_queue_reap(job->queue, 1, 1), -EDEADLK);
    for (unsigned int i = 0; i < 3 && *job->next_index < REQUESTS; i++) {
        struct job *next = job->jobs + (*job->next_index)++;

        assert_int_equal(device_queue_submit(job->queue, &next->request), 0);
    }
}

static void check_submit_when_done(struct device *device, unsigned int depth)
{
    struct job *jobs = make_jobs();
    struct device_queue *queue;
    unsigned int next_index = 1;
    unsigned int done_count = 0;

    assert_int_equal(device_queue_open(device, depth, &queue), 0);
    for (unsigned int i = 0; i < REQUESTS; i++) {
        prepare(&jobs[i], DEVICE_READ, i * BLOCK, &done_count);
        jobs[i].request.done = done_and_submit;
        jobs[i].queue = queue;
        jobs[i].jobs = jobs;
        jobs[i].next_index = &next_index;
    }
    assert_int_equal(device_queue_submit(queue, &jobs[0].request), 0);
    while (device_queue_reap(queue, 1, 1) > 0)
        continue;
    assert_int_equal(done_count, REQUESTS);
    for (unsigned int i = 0; i < REQUESTS; i++)
        assert_int_equal(jobs[i].times_done, 1);
    device_queue_close(queue);
    free_jobs(jobs);
}

/* `min` is a minimum, `max` a maximum. */
static void check_min_max(struct device *device)
{
    struct job *jobs = make_jobs();
    struct device_queue *queue;
    unsigned int done_count = 0;
    int count;

    assert_int_equal(device_queue_open(device, 32, &queue), 0);
    for (unsigned int i = 0; i < 20; i++) {
        prepare(&jobs[i], DEVICE_READ, i * BLOCK, &done_count);
        assert_int_equal(device_queue_submit(queue, &jobs[i].request), 0);
    }
    count = device_queue_reap(queue, 7, 9);
    assert_in_range(count, 7, 9);
    assert_int_equal(done_count, count);
    count = device_queue_reap(queue, 3, 3);
    assert_int_equal(count, 3);
    count = device_queue_reap(queue, 0, 0);
    assert_int_equal(count, 0);
    while ((count = device_queue_reap(queue, 100, 100)) > 0)
        continue;
    assert_int_equal(count, 0);
    assert_int_equal(done_count, 20);
    device_queue_close(queue);
    free_jobs(jobs);
}

static void check_all(const char *spec)
{
    static const unsigned int depths[] = {1, 3, 16, 128};
    struct device *device = support_open(spec, true);

    print_message("# %s\n", spec);
    for (size_t i = 0; i < ARRAY_LENGTH(depths); i++) {
        check_transfers(device, depths[i]);
        check_submit_when_done(device, depths[i]);
    }
    check_min_max(device);
    check_refusals(device);
    device_close(device);
}

static void test_all_devices(void **state)
{
    struct support_folder disk = support_make_folder("/tmp");
    struct support_folder memory = support_make_folder("/dev/shm");
    const char *on_disk = support_path(&disk, "image");
    const char *in_memory = support_path(&memory, "image");
    char specs[9][200];

    (void)state;
    support_make_file(on_disk, SIZE);
    support_make_file(in_memory, SIZE);
    snprintf(specs[0], sizeof(specs[0]), "%s", on_disk);
    snprintf(specs[1], sizeof(specs[1]), "%s,direct=off", on_disk);
    snprintf(specs[2], sizeof(specs[2]), "%s", in_memory);
    snprintf(specs[3], sizeof(specs[3]), "memory:4M");
    snprintf(specs[4], sizeof(specs[4]), "fault(at=1000000):memory:4M");
    snprintf(specs[5], sizeof(specs[5]), "latency(read_us=50,write_us=20,slots=4):memory:4M");
    snprintf(specs[6], sizeof(specs[6]), "latency(read_us=50,jitter=1,seed=3):%s", on_disk);
    snprintf(specs[7], sizeof(specs[7]),
             "latency(read_us=50,slots=3):record:latency(flush_us=5):%s", on_disk);
    snprintf(specs[8], sizeof(specs[8]), "%s,offset=12K,size=1M", on_disk);
    for (size_t i = 0; i < ARRAY_LENGTH(specs); i++)
        check_all(specs[i]);
    support_remove_folder(&disk);
    support_remove_folder(&memory);
}

/* A truncated file: the kernel's transfer comes up short, and the request fails. */
static void test_short_file(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    struct job *jobs = make_jobs();

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct device_queue *queue;
        unsigned int done_count = 0;
        struct device *device;
        char spec[200];

        support_make_file(path, SIZE);
        snprintf(spec, sizeof(spec), "%s,direct=%s", path, i == 0 ? "on" : "off");
        device = support_open(spec, true);
        assert_int_equal(device_queue_open(device, 4, &queue), 0);
        assert_int_equal(truncate(path, BLOCK + 100), 0);
        prepare(&jobs[0], DEVICE_READ, 0, &done_count);
        assert_int_equal(device_queue_submit(queue, &jobs[0].request), 0);
        reap_all(queue, &done_count, 1);
        assert_int_equal(jobs[0].request.result, -EIO);
        device_queue_close(queue);
        device_close(device);
    }
    free_jobs(jobs);
    support_remove_folder(&folder);
}

/* Worker threads must be as many at once as the depth, not one after the other. */
static void test_threads_work_at_once(void **state)
{
    struct strict_device *strict = strict_device_create(SIZE, 512, 512);
    struct job *jobs = make_jobs();
    struct device_queue *queue;
    unsigned int done_count = 0;

    (void)state;
    strict->hold_until = 8;
    assert_int_equal(device_queue_open(&strict->device, 8, &queue), 0);
    for (unsigned int i = 0; i < REQUESTS; i++) {
        prepare(&jobs[i], DEVICE_WRITE, i * 2 * BLOCK, &done_count);
        assert_int_equal(device_queue_submit(queue, &jobs[i].request), 0);
    }
    reap_all(queue, &done_count, REQUESTS);
    assert_int_equal(strict->max_inside, 8);
    assert_int_equal(strict->writes, REQUESTS);
    device_queue_close(queue);
    device_close(&strict->device);
    free_jobs(jobs);
}

/* ---- Without io_uring ----------------------------------------------------------------------- */

static bool forbid_io_uring(int error)
{
    struct sock_filter instructions[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {ARRAY_LENGTH(instructions), instructions};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* The last test of the program, since the filter stays. */
static void test_without_io_uring(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");

    (void)state;
    if (!forbid_io_uring(ENOSYS)) {
        support_remove_folder(&folder);
        print_message("# skipped: no seccomp filters here\n");
        skip();
    }
    support_make_file(path, SIZE);
    support_clear_log();
    check_all(path);
    assert_non_null(strstr(support_messages(), "io_uring is not available"));
    support_remove_folder(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_devices),
        cmocka_unit_test(test_short_file),
        cmocka_unit_test(test_threads_work_at_once),
        cmocka_unit_test(test_without_io_uring),
    };

    return support_run_tests(tests);
}
