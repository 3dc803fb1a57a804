/* SPDX-License-Identifier: MIT */
/*
 * Opens, locks and measures files and block devices of the host.
 *
 * Locks on the image: an OFD lock over the whole file. It belongs to the open file description, so
 * it excludes a second open in the same process as well as other processes (a POSIX lock would not,
 * and would vanish with any close); unlike flock it also excludes programs that lock byte ranges,
 * such as virtual machine monitors, it works over NFS, and it does not meet the short flocks that
 * udev takes while it probes a block device. A lock on a block device hangs on the node that was
 * opened, so a writable block device is opened with O_EXCL too: the kernel then refuses a device
 * that is mounted, held by another driver, or so opened through another node.
 *
 * Callers: the file and memory devices.
 */
#include "block/host_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MAX_DIRECT_ALIGNMENT 65536u

static const char *kind_name(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "a directory";
    case S_IFIFO:
        return "a FIFO";
    case S_IFCHR:
        return "a character device";
    case S_IFSOCK:
        return "a socket";
    default:
        return "of an unknown kind";
    }
}

static bool is_image_kind(mode_t mode)
{
    return S_ISREG(mode) || S_ISBLK(mode);
}

static int lock_file(const char *path, bool is_writable, const struct log *log, int fd)
{
    struct flock lock = {.l_type = is_writable ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};
    int error;

    if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
        return 0;
    error = errno;
    if (error == EAGAIN || error == EACCES) {
        log_error(log, "%s: in use: another program or mount holds a lock on it", path);
        return -EBUSY;
    }
    log_warning(log, "%s: cannot be locked here (%s); nothing keeps other programs from it", path,
                strerrordesc_np(error));
    return 0;
}

static int measure(const char *path, const struct log *log, const struct stat *status,
                   struct host_file *file)
{
    int sector = 0;

    if (!file->is_block_device) {
        file->size_bytes = (uint64_t)status->st_size;
        return 0;
    }
    if (ioctl(file->fd, BLKGETSIZE64, &file->size_bytes) != 0 ||
        ioctl(file->fd, BLKSSZGET, &sector) != 0) {
        int error = errno;

        log_error(log, "%s: size unknown: %s", path, strerrordesc_np(error));
        return -error;
    }
    if (sector < 512 || sector > (int)MAX_DIRECT_ALIGNMENT || (sector & (sector - 1)) != 0) {
        log_error(log, "%s: a sector size of %d bytes is not supported", path, sector);
        return -EINVAL;
    }
    file->sector_bytes = (uint32_t)sector;
    return 0;
}

/*
 * The kind is checked before the open, since opening a FIFO or a tape has effects, and after it,
 * since the path may have changed in between; O_NONBLOCK makes even that case harmless. It is
 * cleared by host_file_set_direct.
 */
static int open_path(const char *path, bool is_writable, const struct log *log, struct stat *status)
{
    int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (is_writable ? O_RDWR : O_RDONLY);
    int fd = -1;
    int error;

    if (stat(path, status) != 0)
        goto failed;
    if (!is_image_kind(status->st_mode))
        goto wrong_kind;
    if (S_ISBLK(status->st_mode) && is_writable)
        flags |= O_EXCL;
    fd = open(path, flags);
    if (fd < 0 || fstat(fd, status) != 0)
        goto failed;
    if (!is_image_kind(status->st_mode))
        goto wrong_kind;
    return fd;

wrong_kind:
    log_error(log, "%s: is %s; an image is a regular file or a block device", path,
              kind_name(status->st_mode));
    if (fd >= 0)
        close(fd);
    return -EINVAL;

failed:
    error = errno;
    if (error == EBUSY)
        log_error(log, "%s: in use: mounted, or held by another program or driver", path);
    else
        log_error(log, "%s: cannot be opened for %s: %s", path, is_writable ? "writing" : "reading",
                  strerrordesc_np(error));
    if (fd >= 0)
        close(fd);
    return -error;
}

int host_file_open(const char *path, bool is_writable, const struct log *log,
                   struct host_file *file)
{
    struct stat status;
    int error;

    *file = (struct host_file){.fd = open_path(path, is_writable, log, &status)};
    if (file->fd < 0)
        return file->fd;
    file->is_block_device = S_ISBLK(status.st_mode);
    error = lock_file(path, is_writable, log, file->fd);
    /* The size may have changed until the lock was ours. */
    if (error == 0 && fstat(file->fd, &status) != 0)
        error = -errno;
    if (error == 0)
        error = measure(path, log, &status, file);
    if (error == 0)
        error = host_file_set_direct(file, false);
    if (error != 0)
        host_file_close(file);
    return error;
}

void host_file_close(struct host_file *file)
{
    /* The kernel may keep the file a moment longer for an io_uring that is being torn down. */
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

    fcntl(file->fd, F_OFD_SETLK, &lock);
    close(file->fd);
    file->fd = -1;
}

int host_file_set_direct(const struct host_file *file, bool is_direct)
{
    int flags = fcntl(file->fd, F_GETFL);

    if (flags < 0)
        return -errno;
    flags &= ~(O_NONBLOCK | O_DIRECT);
    if (fcntl(file->fd, F_SETFL, flags | (is_direct ? O_DIRECT : 0)) != 0)
        return -errno;
    return 0;
}

/* Reads the first `alignment` bytes directly, to see whether the host takes such a request. */
static bool try_direct_read(const struct host_file *file, uint32_t alignment)
{
    void *buffer = NULL;
    ssize_t count;

    if (file->size_bytes < alignment || posix_memalign(&buffer, alignment, alignment) != 0)
        return false;
    do
        count = pread(file->fd, buffer, alignment, 0);
    while (count < 0 && errno == EINTR);
    free(buffer);
    return count == (ssize_t)alignment;
}

static uint32_t find_alignment_by_trial(const struct host_file *file)
{
    uint32_t smallest = MAX(file->sector_bytes, 512u);
    uint32_t found = 0;

    if (host_file_set_direct(file, true) != 0)
        return 0;
    for (uint32_t alignment = smallest; alignment <= 4096 && found == 0; alignment *= 2)
        if (try_direct_read(file, alignment))
            found = alignment;
    if (host_file_set_direct(file, false) != 0)
        return 0;
    return found;
}

static bool is_valid_alignment(uint32_t alignment)
{
    return alignment != 0 && alignment <= MAX_DIRECT_ALIGNMENT &&
           (alignment & (alignment - 1)) == 0;
}

/* True if the kernel says what direct I/O needs, or that there is none. */
static bool ask_kernel(const struct host_file *file, struct host_file_direct *direct)
{
#ifdef STATX_DIOALIGN
    struct statx status = {0};

    if (statx(file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) != 0 ||
        (status.stx_mask & STATX_DIOALIGN) == 0)
        return false;
    if (is_valid_alignment(status.stx_dio_offset_align) &&
        is_valid_alignment(status.stx_dio_mem_align)) {
        direct->offset_alignment = MAX(status.stx_dio_offset_align, file->sector_bytes);
        direct->memory_alignment = status.stx_dio_mem_align;
    }
    return true;
#else
    (void)file;
    (void)direct;
    return false;
#endif
}

struct host_file_direct host_file_direct(const struct host_file *file)
{
    struct host_file_direct direct = {.is_worthwhile = true};
    struct statfs system;

    if (!file->is_block_device && fstatfs(file->fd, &system) == 0 &&
        (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC))
        direct.is_worthwhile = false;
    if (!ask_kernel(file, &direct)) {
        direct.offset_alignment = find_alignment_by_trial(file);
        direct.memory_alignment = direct.offset_alignment;
    }
    return direct;
}
