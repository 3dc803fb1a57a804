/* SPDX-License-Identifier: MIT */
/* A whole image, with checksums and without. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../hostile/walk.h"
#include "fuzz.h"

#define IMAGE_BYTES_MAX (4u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct walk_result result;
    char path[64];

    if (size < 4096 || size > IMAGE_BYTES_MAX)
        return 0;
    if (fd < 0)
        fd = memfd_create("image", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    walk_image(path, WALK_NORMAL, false, &result);
    walk_image(path, WALK_NOCHECKSUM, false, &result);
    return 0;
}
