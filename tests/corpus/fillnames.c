/*
 * Directories: deep chains, odd and long names, indexes of two and three levels, deleted names.
 */
#include "filltree.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void fill_deep(int root)
{
    int fds[41];
    char name[40];

    fds[0] = fill_enter(root, "deep");
    for (unsigned i = 1; i <= 40; i++) {
        snprintf(name, sizeof(name), "level%02u", i);
        fds[i] = fill_enter(fds[i - 1], name);
        if (i % 4 == 0)
            fill_make_file(fds[i], "file", i * 10);
    }
    for (unsigned i = 40; i > 0; i--) {
        snprintf(name, sizeof(name), "level%02u", i);
        fill_leave(fds[i - 1], name, fds[i]);
    }
    fill_leave(root, "deep", fds[0]);
}

static void fill_odd(int root)
{
    static const char *const names[] = {" ",
                                        "  two",
                                        "new\nline",
                                        "tab\t",
                                        "\x01",
                                        "\x7f",
                                        "back\\slash",
                                        "\\x41",
                                        "-n",
                                        "--help",
                                        "*",
                                        "?",
                                        "quote\"'",
                                        "...",
                                        "..a",
                                        ".hidden",
                                        "\xff",
                                        "\x80\x81\xfe",
                                        "caf\xc3\xa9",
                                        "cafe\xcc\x81",
                                        "\xe6\xbc\xa2\xe5\xad\x97",
                                        "\xf0\x9f\x90\xa7",
                                        "Stra\303\237e",
                                        "colon:semi;",
                                        "percent%20",
                                        "a",
                                        "A"};
    int fd = fill_enter(root, "odd");
    char name[256];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        fill_make_file(fd, names[i], 10 * i);
    for (unsigned byte = 1; byte < 256; byte++) {
        if (byte == '/')
            continue;
        name[0] = 'b';
        name[1] = (char)byte;
        name[2] = 0;
        fill_make_file(fd, name, byte % 3);
    }
    for (unsigned len = 240; len <= 255; len++) {
        memset(name, 'a' + (int)(len - 240), len);
        name[len] = 0;
        fill_make_file(fd, name, 3);
    }
    fill_leave(root, "odd", fd);
}

/* Every third name is an inode of its own; the others are further names of the last one. */
static void fill_names(int root)
{
    int fd = fill_enter(root, "names");
    char name[64];
    char last[64] = "";

    for (unsigned i = 0; i < fill.names; i++) {
        snprintf(name, sizeof(name), "name-%u-%x", i, (unsigned)fill_random_below(1 << 20));
        if (i % 3) {
            fill_add_link(fd, last, fd, name);
            continue;
        }
        fill_make_file(fd, name, i % 60 ? 0 : 20);
        strcpy(last, name);
    }
    fill_leave(root, "names", fd);
}

/* Long names fill directory blocks quickly: the index gets a second level, or a third. */
static void fill_long_names(int root)
{
    int fd = fill_enter(root, "long");
    char name[256];
    char last[256] = "";

    for (unsigned i = 0; i < fill.long_names; i++) {
        size_t len = 235 + fill_random_below(21);
        int used = snprintf(name, sizeof(name), "%u-", i);

        memset(name + used, 'a' + (int)fill_random_below(26), len - (size_t)used);
        name[len] = 0;
        if (i % 5000) {
            fill_add_link(fd, last, fd, name);
            continue;
        }
        fill_make_file(fd, name, 50);
        strcpy(last, name);
    }
    fill_leave(root, "long", fd);
}

static void fill_deleted(int root)
{
    int fd = fill_enter(root, "deleted");
    int all = fill_enter(fd, "all");
    int most = fill_enter(fd, "most");
    char name[64];

    fill_make_file(fd, "keep", 1);
    for (unsigned i = 0; i < 1500; i++) {
        snprintf(name, sizeof(name), "some-name-to-delete-%u", i);
        fill_add_link(fd, "keep", all, name);
        fill_add_link(fd, "keep", most, name);
    }
    for (unsigned i = 0; i < 1500; i++) {
        snprintf(name, sizeof(name), "some-name-to-delete-%u", i);
        if (unlinkat(all, name, 0) || (i % 50 && unlinkat(most, name, 0)))
            fill_fail("unlink %s", name);
    }
    for (unsigned i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "renamed-%u", i);
        fill_make_file(most, name, i);
        if (renameat(most, name, all, name))
            fill_fail("rename %s", name);
    }
    fill.links -= 3000 - 30;
    fill_leave(fd, "most", most);
    fill_leave(fd, "all", all);
    fill_leave(root, "deleted", fd);
}

/* No two names here are equal when case is ignored, so the directory may be made case-folding. */
static void fill_folded(int root)
{
    int fd = fill_enter(root, "folded");
    char name[64];

    fill_make_file(fd, "Stra\303\237e", 30);
    fill_make_file(fd, "\xc3\x89T\xc3\x89", 31);
    for (unsigned i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "Mixed-Case-%c-%u", (int)('A' + i % 26), i);
        fill_make_file(fd, name, i % 5);
    }
    fill_leave(root, "folded", fd);
}

void fill_directories(int root)
{
    fill_deep(root);
    fill_odd(root);
    fill_names(root);
    fill_long_names(root);
    fill_deleted(root);
    fill_folded(root);
}
