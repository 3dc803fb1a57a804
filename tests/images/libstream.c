/* SPDX-License-Identifier: MIT */
/*
 * libstream IMAGE: writes every entry of an image, read through the library, to standard output: a
 * line with type, mode, uid, gid, size, link count, mtime, length of the path, length of what
 * follows, then the path, then the target of a link or the content of a file.
 *
 * Directories that the library refuses are reported as "!error" entries, so that the reader of the
 * stream decides whether that was right.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <uext4.h>

#define CHUNK_BYTES (1u << 20)

struct entry {
    uint64_t ino;
    char *path;
};

/* Directories still to be read. */
static struct {
    struct entry *entries;
    size_t count, capacity;
} queue;

static struct uext4 *fs;

static void log_message(void *context, enum uext4_log_level level, const char *message)
{
    (void)context;
    (void)level;
    fprintf(stderr, "libstream: %s\n", message);
}

static void *checked(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "libstream: out of memory\n");
        exit(2);
    }
    return memory;
}

static void push(uint64_t ino, char *path)
{
    if (queue.count == queue.capacity) {
        queue.capacity = queue.capacity == 0 ? 64 : queue.capacity * 2;
        queue.entries = checked(realloc(queue.entries, queue.capacity * sizeof(struct entry)));
    }
    queue.entries[queue.count++] = (struct entry){ino, path};
}

static void write_error(const char *path, int error)
{
    printf("! 0 0 0 0 0 0.0 %zu %zu\n%s%s", strlen(path), strlen(strerror(-error)), path,
           strerror(-error));
}

static void write_head(char type, const struct uext4_stat *st, const char *path, uint64_t length)
{
    printf("%c %o %u %u %llu %u %lld.%09ld %zu %llu\n%s", type, st->mode & 07777, st->uid, st->gid,
           (unsigned long long)st->size, st->link_count, (long long)st->modify_time.tv_sec,
           st->modify_time.tv_nsec, strlen(path), (unsigned long long)length, path);
}

static void write_content(struct uext4_inode *inode, const struct uext4_stat *st, const char *path)
{
    static char chunk[CHUNK_BYTES];
    ssize_t count = uext4_read(inode, chunk, sizeof(chunk), 0);

    if (count < 0) {
        write_error(path, (int)count);
        return;
    }
    write_head('f', st, path, st->size);
    for (uint64_t offset = 0; count > 0; count = uext4_read(inode, chunk, sizeof(chunk), offset)) {
        fwrite(chunk, 1, (size_t)count, stdout);
        offset += (uint64_t)count;
    }
    if (count < 0) {
        fprintf(stderr, "libstream: %s: %s\n", path, strerror((int)-count));
        exit(1);
    }
}

static void write_entry(struct uext4_inode *inode, char *path)
{
    struct uext4_stat st;
    char target[65536];
    ssize_t length;

    uext4_stat(inode, &st);
    switch (st.mode & S_IFMT) {
    case S_IFDIR:
        write_head('d', &st, path, 0);
        push(st.ino, path);
        return;
    case S_IFREG:
        write_content(inode, &st, path);
        break;
    case S_IFLNK:
        length = uext4_readlink(inode, target, sizeof(target));
        if (length < 0) {
            write_error(path, (int)length);
        } else {
            write_head('l', &st, path, (uint64_t)length);
            fwrite(target, 1, (size_t)length, stdout);
        }
        break;
    default:
        write_head(S_ISCHR(st.mode)    ? 'c'
                   : S_ISBLK(st.mode)  ? 'b'
                   : S_ISFIFO(st.mode) ? 'p'
                                       : 's',
                   &st, path, 0);
        break;
    }
    free(path);
}

static bool visit(void *context, const struct uext4_dirent *dirent)
{
    const struct entry *dir = context;
    struct uext4_inode *inode;
    char *path;
    int error;

    if (dirent->name[0] == '.' &&
        (dirent->name_length == 1 || (dirent->name_length == 2 && dirent->name[1] == '.')))
        return true;
    path = checked(malloc(strlen(dir->path) + dirent->name_length + 2));
    sprintf(path, "%s/%.*s", dir->path, dirent->name_length, dirent->name);
    error = uext4_inode_get(fs, dirent->ino, &inode);
    if (error != 0) {
        write_error(path, error);
        free(path);
        return true;
    }
    write_entry(inode, path);
    uext4_inode_put(inode);
    return true;
}

int main(int argc, char **argv)
{
    struct uext4_mount_options options;

    uext4_mount_options_init(&options);
    options.log = log_message;
    if (argc != 2 || uext4_mount(argv[1], &options, &fs) != 0)
        return 2;
    push(UEXT4_ROOT_INO, checked(strdup(".")));
    while (queue.count > 0) {
        struct entry dir = queue.entries[--queue.count];
        struct uext4_inode *inode;
        int error = uext4_inode_get(fs, dir.ino, &inode);

        if (error == 0) {
            error = uext4_readdir(inode, 0, visit, &dir);
            uext4_inode_put(inode);
        }
        if (error != 0)
            write_error(dir.path, error);
        free(dir.path);
    }
    free(queue.entries);
    uext4_unmount(fs);
    return 0;
}
