/* SPDX-License-Identifier: MIT */
/* The file device: on tmpfs and on disk, odd sizes, locks, kinds of files, loop devices. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (1024u * 1024)

static const char *const parents[] = {"/dev/shm", "/tmp"};

static void read_all(struct device *device, uint64_t size)
{
    unsigned char *bytes = malloc(size);

    assert_non_null(bytes);
    assert_int_equal(device_limits(device)->size_bytes, size);
    assert_int_equal(device_read(device, bytes, size, 0), 0);
    assert_true(support_first_difference(bytes, size, 0) == UINT64_MAX);
    assert_int_equal(device_read(device, bytes, 1, size - 1), 0);
    assert_int_equal(bytes[0], support_byte(size - 1));
    assert_int_equal(device_read(device, bytes, 700, 100), 0);
    assert_true(support_first_difference(bytes, 700, 100) == UINT64_MAX);
    free(bytes);
}

static void test_read_write(void **state)
{
    static const char *const direct[] = {"auto", "on", "off"};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct support_folder folder = support_make_folder(parents[i / 3]);
        const char *path = support_path(&folder, "image");
        unsigned char bytes[3000], back[3000];
        struct device *device;
        char spec[256];

        support_make_file(path, SIZE);
        snprintf(spec, sizeof(spec), "%s,direct=%s", path, direct[i % 3]);
        device = support_open(spec, true);
        print_message("# %s: direct %d, alignment %u/%u\n", spec, device_limits(device)->is_direct,
                      device_limits(device)->offset_alignment,
                      device_limits(device)->memory_alignment);
        assert_int_equal(device_limits(device)->is_direct && i % 3 == 2, 0);
        assert_int_equal(!device_limits(device)->is_direct && i % 3 == 1, 0);
        read_all(device, SIZE);
        memset(bytes, 0x5a, sizeof(bytes));
        assert_int_equal(device_write(device, bytes, sizeof(bytes), 1234, DEVICE_FUA), 0);
        assert_int_equal(device_flush(device), 0);
        assert_int_equal(device_read(device, back, sizeof(back), 1234), 0);
        assert_memory_equal(back, bytes, sizeof(back));
        assert_int_equal(device_read(device, back, 1234, 0), 0);
        assert_true(support_first_difference(back, 1234, 0) == UINT64_MAX);
        assert_int_equal(device_discard(device, 65536, 65536), 0);
        assert_int_equal(device_read(device, back, 100, 70000), 0);
        memset(bytes, 0, 100);
        assert_memory_equal(back, bytes, 100);
        device_close(device);
        support_remove_folder(&folder);
    }
}

static void test_odd_size(void **state)
{
    static const uint64_t sizes[] = {1, 511, 513, 4095, 4097, SIZE - 1, SIZE + 1024};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(parents) * ARRAY_LENGTH(sizes); i++) {
        struct support_folder folder = support_make_folder(parents[i % 2]);
        const char *path = support_path(&folder, "image");
        uint64_t size = sizes[i / 2];
        struct device *device;
        char spec[256];
        unsigned char byte = 7;

        support_make_file(path, size);
        device = support_open(path, true);
        assert_int_equal(size % device_limits(device)->offset_alignment, 0);
        if (size > 1000)
            read_all(device, size);
        assert_int_equal(device_write(device, &byte, 1, size - 1, 0), 0);
        byte = 0;
        assert_int_equal(device_read(device, &byte, 1, size - 1), 0);
        assert_int_equal(byte, 7);
        device_close(device);
        if (size % 512 != 0 && i % 2 == 1) {
            snprintf(spec, sizeof(spec), "%s,direct=on", path);
            assert_int_equal(support_open_error(spec, false), -EINVAL);
            assert_non_null(strstr(support_messages(), "not a multiple"));
        }
        support_remove_folder(&folder);
    }
}

static void test_empty_file(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    struct device *device;
    char byte;

    (void)state;
    support_make_sparse_file(path, 0);
    device = support_open(path, false);
    assert_int_equal(device_limits(device)->size_bytes, 0);
    assert_int_equal(device_read(device, &byte, 1, 0), -EIO);
    device_close(device);
    support_remove_folder(&folder);
}

static void test_truncated_under_us(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    char bytes[4096];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct device *device;
        char spec[256];

        support_make_file(path, SIZE);
        snprintf(spec, sizeof(spec), "%s,direct=%s", path, i == 0 ? "on" : "off");
        device = support_open(spec, false);
        assert_int_equal(truncate(path, 6000), 0);
        support_clear_log();
        assert_int_equal(device_read(device, bytes, 4096, 4096), -EIO);
        assert_non_null(strstr(support_messages(), "failed"));
        assert_int_equal(device_read(device, bytes, 4096, 65536), -EIO);
        device_close(device);
    }
    support_remove_folder(&folder);
}

static void test_window(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    unsigned char bytes[2000];
    struct device *device;
    char spec[256];

    (void)state;
    support_make_file(path, SIZE);
    snprintf(spec, sizeof(spec), "file:%s,offset=64K,size=0x10000", path);
    device = support_open(spec, false);
    assert_int_equal(device_limits(device)->size_bytes, 65536);
    assert_int_equal(device_read(device, bytes, 2000, 500), 0);
    assert_true(support_first_difference(bytes, 2000, 65536 + 500) == UINT64_MAX);
    assert_int_equal(device_read(device, bytes, 2000, 65536 - 1999), -EIO);
    device_close(device);

    snprintf(spec, sizeof(spec), "%s,offset=1000", path);
    device = support_open(spec, false);
    assert_false(device_limits(device)->is_direct);
    assert_int_equal(device_limits(device)->size_bytes, SIZE - 1000);
    assert_int_equal(device_read(device, bytes, 2000, SIZE - 3000), 0);
    assert_true(support_first_difference(bytes, 2000, SIZE - 2000) == UINT64_MAX);
    device_close(device);

    snprintf(spec, sizeof(spec), "%s,offset=1M,size=1", path);
    assert_int_equal(support_open_error(spec, false), -EINVAL);
    snprintf(spec, sizeof(spec), "%s,offset=1,size=0x7fffffffffffffff", path);
    assert_int_equal(support_open_error(spec, false), -EINVAL);
    support_remove_folder(&folder);
}

static void test_coarse_alignment_refused(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    struct device_open_options options = {
        .direct = -1, .min_offset_alignment_wanted = 1, .log = &support_log};
    struct device *device;

    (void)state;
    support_make_file(path, SIZE);
    assert_int_equal(device_open(path, &options, &device), 0);
    assert_false(device_limits(device)->is_direct);
    assert_int_equal(device_limits(device)->offset_alignment, 1);
    device_close(device);
    support_remove_folder(&folder);
}

/* Opens in another process; gives what device_open returned there. */
static int open_elsewhere(const char *path, bool is_writable)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct device_open_options options = {.is_writable = is_writable, .direct = -1};
        struct device *device;
        int error = device_open(path, &options, &device);

        if (error == 0)
            device_close(device);
        _exit(-error);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

static void check_locks(const char *path)
{
    struct device *first = support_open(path, true);
    struct device *second;

    assert_int_equal(support_open_error(path, true), -EBUSY);
    assert_non_null(strstr(support_messages(), "in use"));
    assert_int_equal(support_open_error(path, false), -EBUSY);
    assert_int_equal(open_elsewhere(path, true), -EBUSY);
    assert_int_equal(open_elsewhere(path, false), -EBUSY);
    device_close(first);

    first = support_open(path, false);
    second = support_open(path, false);
    assert_int_equal(open_elsewhere(path, false), 0);
    assert_int_equal(open_elsewhere(path, true), -EBUSY);
    assert_int_equal(support_open_error(path, true), -EBUSY);
    device_close(first);
    assert_int_equal(open_elsewhere(path, true), -EBUSY);
    device_close(second);
    assert_int_equal(open_elsewhere(path, true), 0);
}

static void test_locks(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(parents); i++) {
        struct support_folder folder = support_make_folder(parents[i]);
        const char *path = support_path(&folder, "image");

        support_make_file(path, 65536);
        check_locks(path);
        support_remove_folder(&folder);
    }
}

/* The lock must be gone when the close returns, also after an io_uring was in use. */
static void test_lock_gone_after_close(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");

    (void)state;
    support_make_file(path, 65536);
    for (int i = 0; i < 200; i++) {
        struct device *device = support_open(path, true);
        struct device_queue *queue;

        assert_int_equal(device_queue_open(device, 4, &queue), 0);
        device_queue_close(queue);
        device_close(device);
    }
    support_remove_folder(&folder);
}

/* As a user without rights, in a child: root may write everything. */
static int open_as_nobody(const char *path, bool is_writable)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct device_open_options options = {.is_writable = is_writable, .direct = -1};
        struct device *device;
        int error;

        if (geteuid() == 0 && (setegid(65534) != 0 || seteuid(65534) != 0))
            _exit(255);
        error = device_open(path, &options, &device);
        if (error == 0) {
            char bytes[1000];

            error = device_read(device, bytes, sizeof(bytes), 0);
            device_close(device);
        }
        _exit(-error);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return -WEXITSTATUS(status);
}

static void test_read_only_file(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");

    (void)state;
    support_make_file(path, 65536);
    assert_int_equal(chmod(folder.path, 0755), 0);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(open_as_nobody(path, false), 0);
    assert_int_equal(open_as_nobody(path, true), -EACCES);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(open_as_nobody(path, false), -EACCES);
    support_remove_folder(&folder);
}

/* A host without locks, as a system call filter has it: the image opens, with a warning. */
static void test_host_without_locks(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "image");
    struct sock_filter instructions[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fcntl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_OFD_SETLK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOLCK),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {ARRAY_LENGTH(instructions), instructions};
    int status;
    pid_t pid;

    (void)state;
    support_make_file(path, 65536);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct device_open_options options = {
            .is_writable = true, .direct = -1, .log = &support_log};
        struct device *device;

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
            _exit(77);
        support_clear_log();
        if (device_open(path, &options, &device) != 0)
            _exit(1);
        device_close(device);
        _exit(strstr(support_messages(), "cannot be locked") != NULL ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    support_remove_folder(&folder);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("# skipped: no seccomp filters here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_other_kinds(void **state)
{
    struct support_folder folder = support_make_folder("/tmp");
    const char *path = support_path(&folder, "fifo");

    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(support_open_error(path, false), -EINVAL);
    assert_non_null(strstr(support_messages(), "FIFO"));
    assert_int_equal(support_open_error(path, true), -EINVAL);
    assert_int_equal(support_open_error(folder.path, false), -EINVAL);
    assert_non_null(strstr(support_messages(), "directory"));
    assert_int_equal(support_open_error("/dev/null", false), -EINVAL);
    assert_non_null(strstr(support_messages(), "character device"));
    assert_int_equal(support_open_error("/nonexistent/image", false), -ENOENT);
    assert_non_null(strstr(support_messages(), "/nonexistent/image"));
    support_remove_folder(&folder);
}

/* ---- Loop devices --------------------------------------------------------------------------- */

/* The lock hangs on the node; O_EXCL is what keeps a writer with another node out. */
static void check_other_node(const struct support_folder *folder, const char *name)
{
    const char *node = support_path(folder, "node");
    struct stat status;

    assert_int_equal(stat(name, &status), 0);
    assert_int_equal(mknod(node, S_IFBLK | 0600, status.st_rdev), 0);
    assert_int_equal(support_open_error(node, true), -EBUSY);
}

static void test_loop_device(void **state)
{
    static const char *const sectors[] = {"512", "4096"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(sectors); i++) {
        struct support_folder folder = support_make_folder("/tmp");
        const char *path = support_path(&folder, "image");
        unsigned char bytes[3000], back[3000];
        struct device *device, *other;
        char name[64];

        support_make_file(path, SIZE);
        if (!support_attach_loop(path, sectors[i], name, sizeof(name))) {
            support_remove_folder(&folder);
            print_message("# skipped: no loop device (needs root)\n");
            skip();
        }
        device = support_open(name, true);
        print_message("# %s: direct %d, alignment %u/%u\n", name, device_limits(device)->is_direct,
                      device_limits(device)->offset_alignment,
                      device_limits(device)->memory_alignment);
        assert_true(device_limits(device)->is_direct);
        assert_int_equal(device_limits(device)->offset_alignment, atoi(sectors[i]));
        read_all(device, SIZE);
        memset(bytes, 0x77, sizeof(bytes));
        assert_int_equal(device_write(device, bytes, 3000, 7777, DEVICE_FUA), 0);
        assert_int_equal(device_read(device, back, 3000, 7777), 0);
        assert_memory_equal(bytes, back, 3000);
        assert_int_equal(device_flush(device), 0);
        assert_int_equal(device_discard(device, 65536, 65536), 0);
        assert_int_equal(device_read(device, back, 100, 70000), 0);
        memset(bytes, 0, 100);
        assert_memory_equal(bytes, back, 100);
        assert_int_equal(support_open_error(name, true), -EBUSY);
        assert_int_equal(open_elsewhere(name, true), -EBUSY);
        assert_int_equal(open_elsewhere(name, false), -EBUSY);
        check_other_node(&folder, name);
        device_close(device);

        struct device_open_options options = {
            .direct = -1, .min_offset_alignment_wanted = 1024, .log = &support_log};
        assert_int_equal(device_open(name, &options, &other), 0);
        assert_int_equal(device_limits(other)->is_direct, i == 0);
        device_close(other);
        support_detach_loop();
        support_remove_folder(&folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_write),     cmocka_unit_test(test_odd_size),
        cmocka_unit_test(test_empty_file),     cmocka_unit_test(test_truncated_under_us),
        cmocka_unit_test(test_window),         cmocka_unit_test(test_coarse_alignment_refused),
        cmocka_unit_test(test_locks),          cmocka_unit_test(test_lock_gone_after_close),
        cmocka_unit_test(test_read_only_file), cmocka_unit_test(test_host_without_locks),
        cmocka_unit_test(test_other_kinds),    cmocka_unit_test(test_loop_device),
    };

    return support_run_tests(tests);
}
