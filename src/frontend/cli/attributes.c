/* SPDX-License-Identifier: MIT */
/*
 * `uext4 chmod`, `uext4 chown`, `uext4 touch` and `uext4 truncate`: the commands that change what
 * an inode says of itself.
 *
 * Symbolic links are followed inside the image. A path that fails does not stop the others.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "mode.h"
#include "place.h"
#include "session.h"
#include "text.h"
#include "times.h"

#define NEW_FILE_MODE 0644

const char chmod_help[] =
    "Usage: uext4 chmod [OPTIONS] IMAGE MODE PATH...\n"
    "\n"
    "Changes the permissions of files in the image. MODE is octal, such as 0755, or\n"
    "symbolic, such as u+rwX,go=r; without a letter of u, g, o and a it is for all,\n"
    "and the umask plays no part. A MODE that begins with '-' goes behind '--'.\n"
    "Symbolic links are followed inside the image.\n"
    "\n" CLI_CHANGE_HELP "\n"
    "Examples:\n"
    "  uext4 chmod disk.img 4755 /usr/bin/sudo\n"
    "  uext4 chmod disk.img go-w,a+X /etc /srv\n";

const char chown_help[] =
    "Usage: uext4 chown [OPTIONS] IMAGE OWNER PATH...\n"
    "\n"
    "Changes the owners of files in the image. OWNER is UID, UID:GID or :GID:\n"
    "numbers, or names that the host knows. Names in the image's own /etc/passwd are\n"
    "not looked at. Set-user-ID and set-group-ID bits stay.\n"
    "\n"
    "  -h, --no-dereference\n"
    "                      change a symbolic link itself; else it is followed inside\n"
    "                      the image\n"
    "\n" CLI_CHANGE_HELP "\n"
    "Example:\n"
    "  uext4 chown disk.img 33:33 /var/www/html\n";

const char touch_help[] =
    "Usage: uext4 touch [OPTIONS] IMAGE PATH...\n"
    "\n"
    "Sets the times of last access and modification of files in the image, and makes\n"
    "empty files (mode 0644, owner 0:0) where there are none.\n"
    "\n"
    "  -d, --date TIME     this time and not now: @SECONDS since 1970, or\n"
    "                      'YYYY-MM-DD[ HH:MM[:SS[.N]]]', local or with Z or +HHMM\n"
    "  -a                  the time of access only\n"
    "  -m                  the time of modification only\n"
    "  -c, --no-create     make no files\n"
    "\n" CLI_CHANGE_HELP "\n"
    "Examples:\n"
    "  uext4 touch disk.img /forcefsck\n"
    "  uext4 touch -d '2024-05-06 07:08:09Z' disk.img /etc/passwd\n";

const char truncate_help[] =
    "Usage: uext4 truncate -s SIZE [OPTIONS] IMAGE PATH...\n"
    "\n"
    "Sets the size of files in the image; what is added is a hole. Files that do not\n"
    "exist are made (mode 0644, owner 0:0).\n"
    "\n"
    "  -s, --size SIZE     in bytes; may end in K, M, G, T (powers of 1024) or\n"
    "                      in s (512)\n"
    "  -c, --no-create     make no files\n"
    "\n" CLI_CHANGE_HELP "\n"
    "Example:\n"
    "  uext4 truncate -s 1G disk.img /var/swap\n";

/* What is to be done to each path. */
struct setting {
    struct session session;
    struct uext4_stat stat;
    unsigned int mask;    /* UEXT4_SET_* */
    const char *mode;     /* applied to each file's own */
    unsigned int walk;    /* flags */
    bool can_create;      /* a file that does not exist */
    bool is_missing_fine; /* else it is an error */
    bool has_size;
    uint64_t size;
};

/* Makes an empty file. Returns 0 or -errno, told. */
static int create(struct setting *setting, const char *path, struct uext4_inode **inode)
{
    static const struct uext4_new_inode what = {.mode = S_IFREG | NEW_FILE_MODE};
    struct place place;
    int result = place_find(&setting->session, path, false, &place);

    if (result < 0)
        return result;
    result = uext4_create(place.dir, place.name, place.length, &what, inode);
    place_release(&place);
    if (result < 0)
        session_error(&setting->session, path, result);
    return result;
}

static int change(struct setting *setting, struct uext4_inode *inode)
{
    struct uext4_stat stat = setting->stat;
    int result = 0;

    if (setting->has_size)
        result = uext4_truncate(inode, setting->size);
    if (result == 0 && setting->mode) {
        result = uext4_stat(inode, &stat);
        if (result == 0)
            mode_apply(setting->mode, &stat.mode);
    }
    if (result == 0 && setting->mask != 0)
        result = uext4_set_attributes(inode, &stat, setting->mask);
    return result;
}

static void change_path(struct setting *setting, const char *path)
{
    struct uext4_inode *inode = NULL;
    int result = session_walk(&setting->session, path, setting->walk, &inode);

    if (result == -ENOENT && setting->can_create) {
        if (create(setting, path, &inode) < 0)
            return;
        result = 0;
    } else if (result == -ENOENT && setting->is_missing_fine) {
        return;
    }
    if (result == 0) {
        result = change(setting, inode);
        uext4_inode_put(inode);
    }
    if (result < 0)
        session_error(&setting->session, path, result);
}

static int run(struct setting *setting, int argc, char **argv)
{
    if (optind >= argc)
        session_usage(&setting->session, "a path in the image is needed");
    if (session_open(&setting->session) == 0) {
        for (int i = optind; i < argc; i++)
            change_path(setting, argv[i]);
    }
    return session_end(&setting->session);
}

int chmod_run(const struct command *command, int argc, char **argv)
{
    struct setting setting = {.mask = UEXT4_SET_MODE};
    uint32_t trial = S_IFREG;

    session_begin_change(&setting.session, command);
    while (session_option(&setting.session, argc, argv, "", NULL) != -1)
        ;
    session_take_image(&setting.session, argc, argv);
    if (optind >= argc)
        session_usage(&setting.session, "a mode is needed");
    setting.mode = argv[optind++];
    if (!mode_apply(setting.mode, &trial))
        session_usage(&setting.session, "'%s' is no mode", setting.mode);
    return run(&setting, argc, argv);
}

int chown_run(const struct command *command, int argc, char **argv)
{
    static const struct option longs[] = {{"no-dereference", no_argument, NULL, 'h'}, {0}};
    struct setting setting = {0};
    struct mode_owner owner;

    session_begin_change(&setting.session, command);
    while (session_option(&setting.session, argc, argv, "h", longs) != -1)
        setting.walk = UEXT4_WALK_NOFOLLOW;
    session_take_image(&setting.session, argc, argv);
    if (optind >= argc)
        session_usage(&setting.session, "an owner is needed");
    if (!mode_parse_owner(argv[optind], &owner))
        session_usage(&setting.session, "'%s' is no owner", argv[optind]);
    optind++;
    setting.mask = (owner.has_uid ? UEXT4_SET_UID : 0) | (owner.has_gid ? UEXT4_SET_GID : 0);
    setting.stat.uid = owner.uid;
    setting.stat.gid = owner.gid;
    return run(&setting, argc, argv);
}

int touch_run(const struct command *command, int argc, char **argv)
{
    static const struct option longs[] = {
        {"date", required_argument, NULL, 'd'},
        {"no-create", no_argument, NULL, 'c'},
        {0},
    };
    struct setting setting = {.can_create = true, .is_missing_fine = true};
    struct timespec now;
    int option;

    clock_gettime(CLOCK_REALTIME, &now);
    session_begin_change(&setting.session, command);
    while ((option = session_option(&setting.session, argc, argv, "d:amc", longs)) != -1) {
        if (option == 'a')
            setting.mask |= UEXT4_SET_ACCESS_TIME;
        else if (option == 'm')
            setting.mask |= UEXT4_SET_MODIFY_TIME;
        else if (option == 'c')
            setting.can_create = false;
        else if (!times_parse(optarg, &now))
            session_usage(&setting.session, "'%s' is no time", optarg);
    }
    if (setting.mask == 0)
        setting.mask = UEXT4_SET_ACCESS_TIME | UEXT4_SET_MODIFY_TIME;
    setting.stat.access_time = setting.stat.modify_time = now;
    session_take_image(&setting.session, argc, argv);
    return run(&setting, argc, argv);
}

int truncate_run(const struct command *command, int argc, char **argv)
{
    static const struct option longs[] = {
        {"size", required_argument, NULL, 's'},
        {"no-create", no_argument, NULL, 'c'},
        {0},
    };
    struct setting setting = {.can_create = true, .is_missing_fine = true};
    int option;

    session_begin_change(&setting.session, command);
    while ((option = session_option(&setting.session, argc, argv, "s:c", longs)) != -1) {
        if (option == 'c') {
            setting.can_create = false;
        } else {
            if (!text_parse_size(optarg, &setting.size) || setting.size > INT64_MAX)
                session_usage(&setting.session, "'%s' is no size", optarg);
            setting.has_size = true;
        }
    }
    session_take_image(&setting.session, argc, argv);
    if (!setting.has_size)
        session_usage(&setting.session, "-s SIZE is needed");
    return run(&setting, argc, argv);
}
