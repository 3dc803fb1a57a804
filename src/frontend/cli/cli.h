/* SPDX-License-Identifier: MIT */
/*
 * What the commands of the `uext4` program share: the table's entry and the exit codes.
 */
#ifndef UEXT4_CLI_H
#define UEXT4_CLI_H

/* Exit codes of the program; the manual page documents them. */
enum { CLI_GOOD = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct command {
    const char *name;
    const char *summary; /* one line for the list of commands */
    /* argv[0] is the command's name. Returns an exit code. */
    int (*run)(const struct command *command, int argc, char **argv);
    const char *help; /* the whole text of --help; NULL: `run` answers --help itself */
};

/* The options that every command on an image takes, for the end of a help text. */
#define CLI_COMMON_HELP                                                                \
    "Options of the image:\n"                                                          \
    "      --offset N      the file system begins N bytes into the image; N may end\n" \
    "                      in K, M, G, T or in s (sectors of 512 bytes)\n"             \
    "      --partition N   it lies in partition N of the image (1 is the first)\n"     \
    "  -o, --options LIST  mount options, separated by commas: noload, nochecksum,\n"  \
    "                      sb=N, direct=auto|on|off, cache=SIZE\n"                     \
    "      --noload        do not replay the journal\n"                                \
    "  -v, --verbose       say more; twice: still more\n"                              \
    "  -q, --quiet         say errors only\n"                                          \
    "      --help          print this text\n"

/* The same for the commands that change the image, which take no --noload. */
#define CLI_CHANGE_HELP                                                                \
    "Options of the image:\n"                                                          \
    "      --offset N      the file system begins N bytes into the image; N may end\n" \
    "                      in K, M, G, T or in s (sectors of 512 bytes)\n"             \
    "      --partition N   it lies in partition N of the image (1 is the first)\n"     \
    "  -o, --options LIST  mount options, separated by commas: nochecksum,\n"          \
    "                      direct=auto|on|off, cache=SIZE\n"                           \
    "  -v, --verbose       say more; twice: still more\n"                              \
    "  -q, --quiet         say errors only\n"                                          \
    "      --help          print this text\n"

int info_run(const struct command *command, int argc, char **argv);
int ls_run(const struct command *command, int argc, char **argv);
int stat_run(const struct command *command, int argc, char **argv);
int cat_run(const struct command *command, int argc, char **argv);
int get_run(const struct command *command, int argc, char **argv);
int map_run(const struct command *command, int argc, char **argv);
int put_run(const struct command *command, int argc, char **argv);
int mkdir_run(const struct command *command, int argc, char **argv);
int rm_run(const struct command *command, int argc, char **argv);
int mv_run(const struct command *command, int argc, char **argv);
int ln_run(const struct command *command, int argc, char **argv);
int chmod_run(const struct command *command, int argc, char **argv);
int chown_run(const struct command *command, int argc, char **argv);
int touch_run(const struct command *command, int argc, char **argv);
int truncate_run(const struct command *command, int argc, char **argv);
int recover_run(const struct command *command, int argc, char **argv);

extern const char info_help[], ls_help[], stat_help[], cat_help[], get_help[], map_help[],
    put_help[], mkdir_help[], rm_help[], mv_help[], ln_help[], chmod_help[], chown_help[],
    touch_help[], truncate_help[], recover_help[];

#endif
