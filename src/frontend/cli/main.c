/* SPDX-License-Identifier: MIT */
/*
 * The `uext4` program: `uext4 COMMAND [OPTIONS] IMAGE [PATH...]`.
 *
 * The commands stand in one table. Called by the names of mount(8)'s helpers (mount.uext4 and so
 * on) the program is `uext4 mount` or `uext4 umount`.
 */
#include <stdio.h>
#include <string.h>

#include <uext4.h>

#include "cli.h"
#include "message.h"
#include "mount.h"

static int mount_run(const struct command *command, int argc, char **argv)
{
    (void)command;
    return mount_main(argc, argv);
}

static int umount_run(const struct command *command, int argc, char **argv)
{
    (void)command;
    return umount_main(argc, argv);
}

static int version_run(const struct command *command, int argc, char **argv);
static int help_run(const struct command *command, int argc, char **argv);

static const char version_help[] =
    "Usage: uext4 version\n\nPrints the version of the program and of the library.\n";

static const char help_help[] = "Usage: uext4 help [COMMAND]\n\n"
                                "Prints the list of commands, or what COMMAND does and takes.\n";

static const struct command commands[] = {
    {"info", "what the file system is: features, usage, journal", info_run, info_help},
    {"ls", "list directories", ls_run, ls_help},
    {"stat", "show all about a file", stat_run, stat_help},
    {"cat", "write files to standard output", cat_run, cat_help},
    {"get", "copy files and trees to the host", get_run, get_help},
    {"map", "show where the data of a file lies", map_run, map_help},
    {"put", "copy files and trees of the host into the image", put_run, put_help},
    {"mkdir", "make directories", mkdir_run, mkdir_help},
    {"rm", "remove files and trees", rm_run, rm_help},
    {"mv", "rename files and directories", mv_run, mv_help},
    {"ln", "make hard and symbolic links", ln_run, ln_help},
    {"chmod", "change permissions", chmod_run, chmod_help},
    {"chown", "change owners", chown_run, chown_help},
    {"touch", "change times, make empty files", touch_run, touch_help},
    {"truncate", "set the size of files", truncate_run, truncate_help},
    {"recover", "replay the journal into the image", recover_run, recover_help},
    {"mount", "mount the image with FUSE", mount_run, NULL},
    {"umount", "unmount it, and wait until the image is closed", umount_run, NULL},
    {"version", "print the version", version_run, version_help},
    {"help", "print this text, or that of a command", help_run, help_help},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static const char intro[] =
    "Usage: uext4 COMMAND [OPTIONS] IMAGE [PATH...]\n"
    "\n"
    "Reads and changes ext2, ext3 and ext4 images and disks without the kernel's\n"
    "driver.\n"
    "\n"
    "Commands:\n";

static const char outro[] =
    "\n"
    "IMAGE is a file or a block device, or a device spec; see uext4-device-spec(7).\n"
    "'uext4 COMMAND --help' tells what a command takes.\n"
    "\n"
    "Examples:\n"
    "  uext4 info disk.img                  what is in this image?\n"
    "  uext4 ls -lR disk.img /etc           list a tree\n"
    "  uext4 get disk.img /etc ./etc        copy it to the host\n"
    "  uext4 put disk.img ./etc /etc        copy it into the image\n"
    "  uext4 cat --partition 2 vm.raw /etc/fstab\n"
    "                                       a file of the second partition\n"
    "  uext4 mount disk.img /mnt            look around with other programs\n"
    "\n"
    "Exit codes: 0 good; 1 something failed; 2 wrong command line.\n";

static void print_commands(FILE *stream)
{
    fputs(intro, stream);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(stream, "  %-10s%s\n", commands[i].name, commands[i].summary);
    fputs(outro, stream);
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static int flush_stdout(void)
{
    return message_flush_stdout() ? CLI_GOOD : CLI_FAILED;
}

static int version_run(const struct command *command, int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        fputs(command->help, stdout);
    else
        printf("uext4 %s (library %s)\n", UEXT4_VERSION, uext4_version());
    return flush_stdout();
}

static int unknown_command(const char *name)
{
    message_print(NULL, NULL, "'%s' is no command", name);
    message_print(NULL, NULL, "try 'uext4 --help'");
    return CLI_USAGE;
}

static int help_run(const struct command *command, int argc, char **argv)
{
    const struct command *wanted;

    if (argc > 1 && strcmp(argv[1], "--help") != 0) {
        char help_option[] = "--help";
        char *arguments[] = {argv[1], help_option, NULL};

        wanted = find_command(argv[1]);
        if (!wanted)
            return unknown_command(argv[1]);
        if (!wanted->help)
            return wanted->run(wanted, 2, arguments);
        fputs(wanted->help, stdout);
    } else if (argc > 1) {
        fputs(command->help, stdout);
    } else {
        print_commands(stdout);
    }
    return flush_stdout();
}

int main(int argc, char **argv)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *program = argc > 0 ? slash ? slash + 1 : argv[0] : "uext4";
    const struct command *command;

    if (strcmp(program, "mount.uext4") == 0 || strcmp(program, "mount.fuse.uext4") == 0)
        return mount_main(argc, argv);
    if (strcmp(program, "umount.uext4") == 0 || strcmp(program, "umount.fuse.uext4") == 0)
        return umount_main(argc, argv);

    if (argc < 2) {
        print_commands(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_commands(stdout);
        return flush_stdout();
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        command = find_command("version");
    else
        command = find_command(argv[1]);
    if (!command)
        return unknown_command(argv[1]);
    return command->run(command, argc - 1, argv + 1);
}
