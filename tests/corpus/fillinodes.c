/*
 * Everything else that an inode holds: attributes, access control lists, links, device nodes,
 * symbolic links, modes, owners, times, flags.
 */
#include "filltree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <linux/fs.h>

static bool set_xattr(int dir_fd, const char *file, const char *name, const void *value, size_t len)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir_fd, file);
    if (lsetxattr(path, name, value, len, 0)) {
        fill_refuse("xattr");
        return false;
    }
    fill.xattrs++;
    return true;
}

static bool set_random_xattr(int dir_fd, const char *file, const char *name, size_t len)
{
    static unsigned char value[XATTR_SIZE_MAX];

    for (size_t i = 0; i < len; i++)
        value[i] = (unsigned char)fill_random_next();
    return set_xattr(dir_fd, file, name, value, len);
}

static void fill_xattrs(int root)
{
    /* struct vfs_cap_data: version 2 with the effective bit, then permitted and inheritable. */
    static const unsigned char capability[20] = {1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 1};
    static const char shared_value[400] = "the same value in many files shares one block";
    size_t largest = (fill.block_bytes < 4096 ? fill.block_bytes : 4096) - 200;
    int fd = fill_enter(root, "xattrs");
    char name[300];

    for (unsigned i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "shared%02u", i);
        fill_make_file(fd, name, i);
        set_xattr(fd, name, "user.shared", shared_value, sizeof(shared_value));
    }
    for (unsigned i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "small%02u", i);
        fill_make_file(fd, name, i * 5);
        set_random_xattr(fd, name, "user.s", i);
    }
    fill_make_file(fd, "large", 100);
    set_random_xattr(fd, "large", "user.large", largest);
    fill_make_file(fd, "both", 100);
    set_random_xattr(fd, "both", "user.in-inode", 20);
    set_random_xattr(fd, "both", "user.in-block", largest - 100);
    fill_make_file(fd, "several", 10);
    for (unsigned i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "%s.name%u", i % 3 ? "user" : "trusted", i * i);
        set_random_xattr(fd, "several", name, i);
    }
    fill_make_file(fd, "long-name", 10);
    memcpy(name, "user.", 6);
    memset(name + 5, 'n', 245);
    name[250] = 0;
    set_random_xattr(fd, "long-name", name, 5);
    fill_make_file(fd, "empty-value", 10);
    set_random_xattr(fd, "empty-value", "user.empty", 0);
    set_random_xattr(fd, "empty-value", "user.odd \xc3\xa9\xff", 3);
    fill_make_file(fd, "capability", 77);
    set_xattr(fd, "capability", "security.capability", capability, sizeof(capability));
    set_random_xattr(fd, "capability", "security.other", 30);
    fill_make_file(fd, "replaced", 10);
    set_random_xattr(fd, "replaced", "user.a", 300);
    set_random_xattr(fd, "replaced", "user.a", 10);
    set_random_xattr(fd, "replaced", "user.b", 200);
    if (symlinkat("target", fd, "symlink"))
        fill_fail("symlink");
    set_random_xattr(fd, "symlink", "trusted.on-symlink", 9);
    fill_settle(fd, "symlink");
    if (mknodat(fd, "fifo", S_IFIFO | 0600, 0))
        fill_fail("fifo");
    set_random_xattr(fd, "fifo", "trusted.on-fifo", 90);
    fill_settle(fd, "fifo");
    set_random_xattr(root, "xattrs", "user.on-directory", 40);
    fill_leave(root, "xattrs", fd);
}

/* Values that only some file systems take, apart so that a comparison can leave them out. */
static void fill_big_xattrs(int root)
{
    static const unsigned sizes[] = {1000, 4000, 5000, 16000, 40000, 60000, 65536};
    int fd = fill_enter(root, "bigxattr");
    char name[32];

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        snprintf(name, sizeof(name), "size%u", sizes[i]);
        fill_make_file(fd, name, i);
        set_random_xattr(fd, name, "user.big", sizes[i]);
    }
    fill_make_file(fd, "same-big1", 1);
    fill_make_file(fd, "same-big2", 2);
    for (unsigned i = 1; i <= 2; i++) {
        static char value[20000];

        memset(value, 'v', sizeof(value));
        snprintf(name, sizeof(name), "same-big%u", i);
        set_xattr(fd, name, "trusted.same", value, sizeof(value));
    }
    fill_make_file(fd, "until-full", 10);
    for (unsigned i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "user.%u", i);
        if (!set_random_xattr(fd, "until-full", name, 150))
            break;
    }
    fill_leave(root, "bigxattr", fd);
}

struct acl_entry {
    uint16_t tag;
    uint16_t permissions;
    uint32_t id;
};

static void fill_acl(int root)
{
    /* In memory form of Linux: version 2, then tag, permissions, id in little-endian order. */
    static const struct {
        uint32_t version;
        struct acl_entry entries[6];
    } access = {2,
                {{0x01, 6, UINT32_MAX},
                 {0x02, 5, 1000},
                 {0x02, 4, 70000},
                 {0x04, 4, UINT32_MAX},
                 {0x10, 7, UINT32_MAX},
                 {0x20, 4, UINT32_MAX}}},
      by_group = {2,
                  {{0x01, 7, UINT32_MAX},
                   {0x04, 5, UINT32_MAX},
                   {0x08, 6, 123456},
                   {0x08, 1, 4000000000U},
                   {0x10, 7, UINT32_MAX},
                   {0x20, 0, UINT32_MAX}}};
    int fd = fill_enter(root, "acl");
    int sub;

    fill_make_file(fd, "access", 10);
    set_xattr(fd, "access", "system.posix_acl_access", &access, sizeof(access));
    fill_make_file(fd, "groups", 10);
    set_xattr(fd, "groups", "system.posix_acl_access", &by_group, sizeof(by_group));
    fill_make_file(fd, "with-user", 10);
    set_xattr(fd, "with-user", "system.posix_acl_access", &access, sizeof(access));
    set_random_xattr(fd, "with-user", "user.beside", 100);
    sub = fill_enter(fd, "directory");
    set_xattr(fd, "directory", "system.posix_acl_access", &access, sizeof(access));
    set_xattr(fd, "directory", "system.posix_acl_default", &by_group, sizeof(by_group));
    fill_make_file(sub, "inherits", 10);
    close(fill_enter(sub, "inherits-too"));
    fill_settle(sub, "inherits-too");
    fill_leave(fd, "directory", sub);
    fill_leave(root, "acl", fd);
}

static void fill_links(int root)
{
    int fd = fill_enter(root, "links");
    int other = fill_enter(fd, "other");
    char name[32];

    fill_make_file(fd, "first", 12345);
    fill_add_link(fd, "first", fd, "second");
    fill_add_link(fd, "first", other, "third");
    fill_make_file(fd, "many", 10);
    for (unsigned i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "many%03u", i);
        fill_add_link(fd, "many", i % 2 ? fd : other, name);
    }
    if (symlinkat("many", fd, "symlink") || mknodat(fd, "fifo", S_IFIFO | 0640, 0))
        fill_fail("links");
    fill_settle(fd, "symlink");
    fill_settle(fd, "fifo");
    if (!fill.is_plain)
        fill_add_link(fd, "symlink", other, "symlink");
    fill_add_link(fd, "fifo", other, "fifo");
    fill_leave(fd, "other", other);
    fill_leave(root, "links", fd);
}

static void fill_nodes(int root)
{
    static const struct {
        const char *name;
        mode_t mode;
        unsigned major, minor;
    } nodes[] = {{"null", S_IFCHR | 0666, 1, 3},          {"tty", S_IFCHR | 0620, 4, 255},
                 {"minor256", S_IFCHR | 0600, 4, 256},    {"disk", S_IFBLK | 0660, 8, 0},
                 {"disk300", S_IFBLK | 0660, 8, 300},     {"major259", S_IFBLK | 0660, 259, 7},
                 {"largest", S_IFBLK | 0, 4095, 1048575}, {"zero", S_IFCHR | 0600, 0, 0},
                 {"edge", S_IFCHR | 0600, 255, 255},      {"edge-major", S_IFCHR | 0600, 256, 0},
                 {"fifo", S_IFIFO | 0644, 0, 0},          {"socket", S_IFSOCK | 0755, 0, 0}};
    int fd = fill_enter(root, "nodes");

    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        if (mknodat(fd, nodes[i].name, nodes[i].mode, makedev(nodes[i].major, nodes[i].minor)))
            fill_fail("mknod %s", nodes[i].name);
        if (fchmodat(fd, nodes[i].name, nodes[i].mode & 07777, 0))
            fill_fail("mode of %s", nodes[i].name);
        fill.nodes++;
        fill_settle(fd, nodes[i].name);
    }
    fill_leave(root, "nodes", fd);
}

static void fill_symlinks(int root)
{
    static const unsigned lengths[] = {1,    2,    30,   58,   59,   60,   61,   100,
                                       155,  160,  255,  500,  1000, 1022, 1023, 1024,
                                       1025, 2047, 2048, 3000, 4000, 4094, 4095};
    int fd = fill_enter(root, "symlinks");
    char target[4096];
    char name[32];

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (unsigned j = 0; j < lengths[i]; j++)
            target[j] = j % 40 == 7 ? '/' : (char)('a' + fill_random_below(26));
        target[lengths[i]] = 0;
        snprintf(name, sizeof(name), "length%04u", lengths[i]);
        if (symlinkat(target, fd, name)) {
            fill_refuse("symlink");
            continue;
        }
        fill.symlinks++;
        fill_settle(fd, name);
    }
    for (unsigned i = 0; i < 30; i++) {
        snprintf(name, sizeof(name), "relative%02u", i);
        snprintf(target, sizeof(target), "../sizes/%07u", i);
        if (symlinkat(target, fd, name) ||
            fchownat(fd, name, i * 1000, i * 3000, AT_SYMLINK_NOFOLLOW))
            fill_fail("symlink %s", name);
        fill.symlinks++;
        fill_settle(fd, name);
    }
    if (symlinkat("no where\n\xff\\", fd, "odd-target") || symlinkat("/", fd, "root"))
        fill_fail("symlink");
    fill_settle(fd, "odd-target");
    fill_settle(fd, "root");
    fill_leave(root, "symlinks", fd);
}

static void fill_modes(int root)
{
    static const uid_t owners[] = {0, 1, 65534, 65535, 65536, 70000, 2147483647, 4294967294U};
    int fd = fill_enter(root, "modes");
    char name[32];

    for (unsigned i = 0; i < 64; i++) {
        snprintf(name, sizeof(name), "mode%02u", i);
        fill_make_file(fd, name, i);
        if (fchownat(fd, name, owners[i % 8], owners[i / 8], 0) ||
            fchmodat(fd, name, (mode_t)(i << 6 | i * 2654435761U >> 26), 0))
            fill_fail("mode of %s", name);
    }
    for (unsigned i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "directory%u", i);
        close(fill_enter(fd, name));
        fill_settle(fd, name);
        if (fchownat(fd, name, owners[i], owners[7 - i], 0) ||
            fchmodat(fd, name, (mode_t)(i << 9 | 0755), 0))
            fill_fail("mode of %s", name);
    }
    fill_leave(root, "modes", fd);
}

static void fill_times(int root)
{
    static const int64_t seconds[] = {-2147483648LL,
                                      -2147483647LL,
                                      -86400 * 365LL,
                                      -86401,
                                      -1,
                                      0,
                                      1,
                                      2147483646LL,
                                      2147483647LL,
                                      2147483648LL,
                                      2147483649LL,
                                      4294967295LL,
                                      4294967296LL,
                                      4400000000LL,
                                      6442450943LL,
                                      6442450944LL,
                                      8589934591LL,
                                      10737418239LL,
                                      13569465600LL,
                                      15032385535LL,
                                      15032385536LL,
                                      -2147483649LL};
    static const long nanoseconds[] = {0, 1, 500000000, 999999999};
    int fd;
    char name[40];

    if (fill.is_plain)
        return;
    fd = fill_enter(root, "times");
    for (size_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++) {
        for (unsigned j = 0; j < 4; j++) {
            snprintf(name, sizeof(name), "%" PRId64 ".%09ld", seconds[i], nanoseconds[j]);
            if (j == 1) {
                close(fill_enter(fd, name));
            } else {
                close(fill_create(fd, name));
            }
            fill_set_times(fd, name, seconds[i], nanoseconds[j]);
        }
    }
    fill_leave(root, "times", fd);
}

static void set_flags(int dir_fd, const char *name, int flags)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    int old = 0;

    if (fd < 0)
        fill_fail("open %s", name);
    if (ioctl(fd, FS_IOC_GETFLAGS, &old))
        fill_refuse("getflags");
    flags |= old;
    if (ioctl(fd, FS_IOC_SETFLAGS, &flags)) {
        /* A container's root may lack the capability that a flag asks for. */
        if (errno == EPERM)
            errno = EOPNOTSUPP;
        fill_refuse("setflags");
    }
    close(fd);
}

static void set_project(int dir_fd, const char *name, uint32_t project)
{
    struct fsxattr attributes;
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        fill_fail("open %s", name);
    if (ioctl(fd, FS_IOC_FSGETXATTR, &attributes))
        fill_refuse("project");
    attributes.fsx_projid = project;
    if (ioctl(fd, FS_IOC_FSSETXATTR, &attributes))
        fill_refuse("project");
    close(fd);
}

static void fill_flags(int root)
{
    static const struct {
        const char *name;
        int flags;
    } files[] = {
        {"nodump", FS_NODUMP_FL},      {"noatime", FS_NOATIME_FL},      {"sync", FS_SYNC_FL},
        {"secrm", FS_SECRM_FL},        {"journal", FS_JOURNAL_DATA_FL}, {"append", FS_APPEND_FL},
        {"immutable", FS_IMMUTABLE_FL}};
    int fd;

    if (fill.is_plain)
        return;
    fd = fill_enter(root, "flags");
    fill_make_file(fd, "project1", 100);
    set_project(fd, "project1", 42);
    fill_make_file(fd, "project2", 100);
    set_project(fd, "project2", 4000000000U);
    close(fill_enter(fd, "topdir"));
    set_flags(fd, "topdir", FS_TOPDIR_FL | FS_DIRSYNC_FL);
    fill_settle(fd, "topdir");
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        fill_make_file(fd, files[i].name, 100 * i);
        set_flags(fd, files[i].name, files[i].flags);
    }
    fill_leave(root, "flags", fd);
}

void fill_inodes(int root)
{
    fill_xattrs(root);
    fill_big_xattrs(root);
    fill_acl(root);
    fill_links(root);
    fill_nodes(root);
    fill_symlinks(root);
    fill_modes(root);
    fill_times(root);
    fill_flags(root);
}
