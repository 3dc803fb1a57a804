/* SPDX-License-Identifier: MIT */
/*
 * read-file IMAGE PATH: writes a file of an image to standard output.
 *
 * cc read-file.c $(pkg-config --cflags --libs uext4)
 */
#include <stdio.h>
#include <string.h>

#include <uext4.h>

static void print_message(void *context, enum uext4_log_level level, const char *message)
{
    (void)level;
    fprintf(stderr, "%s: %s\n", (const char *)context, message);
}

static int copy_to_stdout(struct uext4_inode *file)
{
    static char buffer[1 << 16];
    uint64_t offset = 0;
    ssize_t count;

    while ((count = uext4_read(file, buffer, sizeof(buffer), offset)) > 0) {
        if (fwrite(buffer, 1, (size_t)count, stdout) != (size_t)count)
            return -1;
        offset += (uint64_t)count;
    }
    return (int)count;
}

int main(int argc, char **argv)
{
    struct uext4_mount_options options;
    struct uext4_inode *file;
    struct uext4 *fs;
    int error;

    if (argc != 3) {
        fprintf(stderr, "usage: read-file IMAGE PATH\n");
        return 2;
    }
    uext4_mount_options_init(&options);
    options.log = print_message;
    options.log_context = argv[1];
    error = uext4_mount(argv[1], &options, &fs);
    if (error == 0) {
        error = uext4_walk(fs, argv[2], 0, &file);
        if (error == 0) {
            error = copy_to_stdout(file);
            uext4_inode_put(file);
        }
        uext4_unmount(fs);
    }
    if (error != 0)
        fprintf(stderr, "read-file: %s: %s\n", argv[2], strerror(-error));
    return error == 0 ? 0 : 1;
}
