/* SPDX-License-Identifier: MIT */
/*
 * Common options, opening of the image, and errors; see session.h.
 *
 * The log function may run on any of the library's threads; it reads only what does not change any
 * more once the image is taken.
 */
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "text.h"

#define OPTIONS_MAX 48

/* Values of the common options without a letter; those of the commands start at 0x100. */
enum { OPTION_OFFSET = 0x1000, OPTION_PARTITION, OPTION_NOLOAD, OPTION_HELP };

static const struct option common_options[] = {
    {"offset", required_argument, NULL, OPTION_OFFSET},
    {"partition", required_argument, NULL, OPTION_PARTITION},
    {"options", required_argument, NULL, 'o'},
    {"noload", no_argument, NULL, OPTION_NOLOAD},
    {"verbose", no_argument, NULL, 'v'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, OPTION_HELP},
};

#define COMMON_COUNT (sizeof(common_options) / sizeof(common_options[0]))

void session_begin(struct session *session, const struct command *command)
{
    memset(session, 0, sizeof(*session));
    session->command = command;
    uext4_mount_options_init(&session->mount);
    session->mount.direct = UEXT4_DIRECT_OFF;
    atomic_init(&session->has_failed, false);
    atomic_init(&session->has_logged, false);
}

void session_begin_change(struct session *session, const struct command *command)
{
    session_begin(session, command);
    session->is_changing = true;
    session->mount.is_read_only = false;
}

_Noreturn void session_usage(const struct session *session, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    message_print(NULL, session->command->name, "%s", text);
    message_print(NULL, NULL, "try 'uext4 %s --help'", session->command->name);
    exit(CLI_USAGE);
}

static _Noreturn void print_help(const struct session *session)
{
    fputs(session->command->help, stdout);
    exit(message_flush_stdout() ? CLI_GOOD : CLI_FAILED);
}

static uint64_t parse_number(const struct session *session, const char *option, const char *text)
{
    uint64_t value;

    if (!text_parse_size(text, &value) || value > INT64_MAX)
        session_usage(session, "--%s: '%s' is not a number", option, text);
    return value;
}

/* Takes a common option; returns false for one of the command's own. */
static bool take_common(struct session *session, int option)
{
    char error[256] = "";

    switch (option) {
    case OPTION_OFFSET:
        session->offset = parse_number(session, "offset", optarg);
        session->has_offset = true;
        return true;
    case OPTION_PARTITION:
        session->partition = parse_number(session, "partition", optarg);
        if (session->partition == 0)
            session_usage(session, "--partition: partitions count from 1");
        return true;
    case 'o':
        if (uext4_mount_options_parse(&session->mount, optarg, error, sizeof(error)) < 0)
            session_usage(session, "-o %s: %s", optarg, error);
        return true;
    case OPTION_NOLOAD:
        session->mount.skip_journal_replay = true;
        return true;
    case 'v':
        session->verbosity++;
        return true;
    case 'q':
        session->is_quiet = true;
        return true;
    case OPTION_HELP:
        print_help(session);
    default:
        return false;
    }
}

int session_option(struct session *session, int argc, char **argv, const char *shorts,
                   const struct option *longs)
{
    struct option all[OPTIONS_MAX] = {0};
    char letters[64];
    size_t count = 0;
    int option;

    while (longs && longs[count].name && count < OPTIONS_MAX - COMMON_COUNT - 1) {
        all[count] = longs[count];
        count++;
    }
    memcpy(all + count, common_options, sizeof(common_options));
    snprintf(letters, sizeof(letters), ":o:vq%s", shorts);

    opterr = 0;
    for (;;) {
        const char *word = optind < argc ? argv[optind] : "";

        option = getopt_long(argc, argv, letters, all, NULL);
        if (option == -1)
            return -1;
        if (option == ':')
            session_usage(session, "option '%s' needs a value", argv[optind - 1]);
        if (option == '?' && optopt > 0 && optopt < 0x100)
            session_usage(session, "unknown option '-%c'", optopt);
        if (option == '?')
            session_usage(session, "unknown or ambiguous option '%s'",
                          optind > 0 ? argv[optind - 1] : word);
        if (!take_common(session, option))
            return option;
    }
}

static void log_message(void *context, enum uext4_log_level level, const char *message)
{
    struct session *session = context;
    const char *kind = level == UEXT4_LOG_WARNING ? "warning: " : "";
    size_t length = strlen(session->image);

    /* Messages of the device name the file: once is enough. */
    if (strncmp(message, session->image, length) == 0 && strncmp(message + length, ": ", 2) == 0)
        message += length + 2;
    if (level == UEXT4_LOG_ERROR)
        atomic_store(&session->has_logged, true);
    message_print(session->image, NULL, "%s%s", kind, message);
}

static void set_log(struct session *session)
{
    session->mount.log = log_message;
    session->mount.log_context = session;
    if (session->is_quiet)
        session->mount.log_level = UEXT4_LOG_ERROR;
    else if (session->verbosity > 0)
        session->mount.log_level = session->verbosity == 1 ? UEXT4_LOG_INFO : UEXT4_LOG_DEBUG;
}

/* The image as a spec: a file of just that name is taken for what it is, commas and colons too. */
static void write_place(FILE *stream, const char *image)
{
    if (strpbrk(image, ",:") == NULL || access(image, F_OK) != 0) {
        fputs(image, stream);
        return;
    }
    fputs("file:", stream);
    for (; *image; image++) {
        if (*image == ',')
            putc(',', stream);
        putc(*image, stream);
    }
}

static char *make_spec(const struct session *session)
{
    char *spec = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&spec, &size);

    if (!stream)
        return NULL;
    write_place(stream, session->image);
    if (session->has_offset)
        fprintf(stream, ",offset=%" PRIu64, session->offset);
    else if (session->partition != 0)
        fprintf(stream, ",partition=%" PRIu64, session->partition);
    if (fclose(stream) != 0) {
        free(spec);
        return NULL;
    }
    return spec;
}

void session_take_image(struct session *session, int argc, char **argv)
{
    if (optind >= argc || !argv[optind][0])
        session_usage(session, "no image given");
    if (session->has_offset && session->partition != 0)
        session_usage(session, "--offset and --partition exclude each other");
    if (session->is_changing && session->mount.is_read_only)
        session_usage(session, "-o ro makes no sense for a command that changes the image");
    if (session->is_changing && session->mount.skip_journal_replay)
        session_usage(session, "noload makes no sense for a command that changes the image");
    session->image = argv[optind++];
    session->spec = make_spec(session);
    if (!session->spec) {
        message_print(session->image, NULL, "%s", message_error_text(-ENOMEM));
        exit(CLI_FAILED);
    }
    set_log(session);
}

void session_open_error(struct session *session, int error)
{
    atomic_store(&session->has_failed, true);
    if (!atomic_load(&session->has_logged))
        session_error(session, NULL, error);
}

int session_open(struct session *session)
{
    int result;

    /* "rw" among the options of mount must not make a reader open the image for writing. */
    session->mount.is_read_only = !session->is_changing;
    result = uext4_mount(session->spec, &session->mount, &session->fs);
    if (result == -EINVAL)
        session_fail(session, NULL, "not an ext2, ext3 or ext4 file system, or a wrong spec");
    else if (result < 0)
        session_open_error(session, result);
    return result;
}

int session_end(struct session *session)
{
    if (session->fs && session->is_changing) {
        int result = uext4_sync(session->fs);

        if (result < 0)
            session_fail(session, NULL, "the changes are not on the disk: %s",
                         message_error_text(result));
    }
    if (session->fs)
        uext4_unmount(session->fs);
    session->fs = NULL;
    /* Unmounting returns nothing: what it could not write is told by the library's log alone. */
    if (session->is_changing && atomic_load(&session->has_logged))
        atomic_store(&session->has_failed, true);
    free(session->spec);
    session->spec = NULL;
    if (!message_flush_stdout())
        return CLI_FAILED;
    return atomic_load(&session->has_failed) ? CLI_FAILED : CLI_GOOD;
}

void session_error(struct session *session, const char *path, int error)
{
    session_fail(session, path, "%s", message_error_text(error));
}

void session_fail(struct session *session, const char *path, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    message_print(session->image, path, "%s", text);
    atomic_store(&session->has_failed, true);
}

void session_warn(const struct session *session, const char *path, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    if (session->is_quiet)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    message_print(session->image, path, "%s", text);
}

int session_walk(struct session *session, const char *path, unsigned int flags,
                 struct uext4_inode **inode)
{
    size_t length = strlen(path);

    if (length > 2 && path[0] == '<' && path[length - 1] == '>' &&
        strspn(path + 1, "0123456789") == length - 2) {
        errno = 0;
        uint64_t ino = strtoull(path + 1, NULL, 10);
        return errno ? -ENOENT : uext4_inode_get(session->fs, ino, inode);
    }
    return uext4_walk(session->fs, path, flags, inode);
}
