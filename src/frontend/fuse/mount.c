/* SPDX-License-Identifier: MIT */
/*
 * The mount command: reads the command line, opens the image, mounts and serves it.
 *
 * In the background form a child does all of it from the start, because the library may have
 * threads, which a later fork would lose. Its messages go to the caller's terminal until the kernel
 * has greeted the session; then it lets go of the terminal and tells the waiting parent.
 */
#include "mount.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach.h"
#include "mount_log.h"
#include "mount_status.h"
#include "options.h"
#include "server.h"

struct request {
    const char *spec; /* as given */
    const char *mountpoint;
    struct options options;
    bool is_helper; /* called by mount(8) */
    bool is_foreground;
    bool is_fake;
    bool is_sloppy;
    bool is_quiet;
    unsigned int verbosity;
};

static const char usage[] =
    "Usage: uext4 mount [OPTIONS] IMAGE MOUNTPOINT\n"
    "Mounts an ext2, ext3 or ext4 image or device read-only through FUSE.\n"
    "\n"
    "  -f, --foreground    stay in the foreground, with messages on stderr\n"
    "  -o, --options LIST  mount options, separated by commas; see uext4-mount(8)\n"
    "      --offset N      the file system begins N bytes into the image; N may end\n"
    "                      in K, M, G, T or in s (sectors of 512 bytes)\n"
    "      --partition N   it lies in partition N of the image (1 is the first)\n"
    "      --noload        do not replay the journal\n"
    "  -v, --verbose       say more; twice: still more\n"
    "  -q, --quiet         say errors only\n"
    "      --help          print this text\n"
    "\n"
    "Unmount with `uext4 umount MOUNTPOINT` or umount(8): both wait until the image\n"
    "is closed.\n";

enum { OPTION_OFFSET = 256, OPTION_PARTITION, OPTION_NOLOAD, OPTION_HELP };

static const struct option command_options[] = {
    {"foreground", no_argument, NULL, 'f'},
    {"options", required_argument, NULL, 'o'},
    {"offset", required_argument, NULL, OPTION_OFFSET},
    {"partition", required_argument, NULL, OPTION_PARTITION},
    {"noload", no_argument, NULL, OPTION_NOLOAD},
    {"verbose", no_argument, NULL, 'v'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

/* Takes one option of the command's form. Returns false if it is wrong. */
static bool take_command_option(struct request *request, int option)
{
    char text[64];

    switch (option) {
    case 'f':
        request->is_foreground = true;
        return true;
    case 'q':
        request->is_quiet = true;
        return true;
    case OPTION_OFFSET:
    case OPTION_PARTITION:
        snprintf(text, sizeof(text), "%s=%s", option == OPTION_OFFSET ? "offset" : "partition",
                 optarg);
        return options_add(&request->options, text);
    case OPTION_NOLOAD:
        return options_add(&request->options, "noload");
    case OPTION_HELP:
        fputs(usage, stdout);
        exit(EXIT_SUCCESS);
    default:
        return false;
    }
}

/* Takes one option of the form that mount(8) uses for its helpers. */
static bool take_helper_option(struct request *request, int option)
{
    switch (option) {
    case 'f':
        request->is_fake = true;
        return true;
    case 's':
        request->is_sloppy = true;
        return true;
    case 'n': /* no table of mounts is kept anyway */
    case 't': /* the type that we were called for */
        return true;
    case 'N':
        mount_log_print(UEXT4_LOG_ERROR, "mounting in another namespace is not supported");
        return false;
    default:
        return false;
    }
}

static bool read_command_line(struct request *request, int argc, char **argv)
{
    int option;

    optind = 1;
    for (;;) {
        if (request->is_helper)
            option = getopt(argc, argv, "sfnvN:o:t:");
        else
            option = getopt_long(argc, argv, "fo:vq", command_options, NULL);
        if (option == -1)
            break;
        if (option == 'v')
            request->verbosity++;
        else if (option == 'o'        ? !options_add(&request->options, optarg)
                 : request->is_helper ? !take_helper_option(request, option)
                                      : !take_command_option(request, option))
            return false;
    }
    if (argc - optind != 2) {
        mount_log_print(UEXT4_LOG_ERROR, "an image and a mountpoint are needed");
        return false;
    }
    request->spec = argv[optind];
    request->mountpoint = argv[optind + 1];
    if (request->options.has_offset && request->options.partition != 0) {
        mount_log_print(UEXT4_LOG_ERROR, "an offset and a partition exclude each other");
        return false;
    }
    return true;
}

/*
 * Makes the device spec. What exists as a file is taken as a path, whatever is in its name, and is
 * made absolute: the name is shown in the table of mounts. Anything else is a spec already.
 */
static char *make_spec(const struct request *request, struct attachment *attachment,
                       char **absolute)
{
    const struct options *options = &request->options;
    struct stat image;
    bool is_file = stat(request->spec, &image) == 0;
    char *spec, *at;
    size_t size;

    if (is_file) {
        attachment->is_block_device = S_ISBLK(image.st_mode);
        *absolute = realpath(request->spec, NULL);
    } else {
        *absolute = strdup(request->spec);
    }
    if (*absolute == NULL)
        return NULL;
    size = 2 * strlen(*absolute) + 64;
    spec = malloc(size);
    if (spec == NULL)
        return NULL;
    if (is_file) {
        at = stpcpy(spec, "file:");
        for (const char *from = *absolute; *from != '\0'; from++) {
            if (*from == ',')
                *at++ = ',';
            *at++ = *from;
        }
        *at = '\0';
    } else {
        at = stpcpy(spec, *absolute);
    }
    if (options->has_offset)
        snprintf(at, size - (size_t)(at - spec), ",offset=%" PRIu64, options->offset);
    else if (options->partition != 0)
        snprintf(at, size - (size_t)(at - spec), ",partition=%u", options->partition);
    attachment->is_part = options->partition != 0 || (options->has_offset && options->offset != 0);
    return spec;
}

static bool make_library_options(const struct request *request, struct uext4_mount_options *library)
{
    char error[256];

    uext4_mount_options_init(library);
    library->log = mount_log_from_library;
    if (request->is_quiet)
        library->log_level = UEXT4_LOG_ERROR;
    else if (request->verbosity != 0)
        library->log_level = request->verbosity == 1 ? UEXT4_LOG_INFO : UEXT4_LOG_DEBUG;
    if (uext4_mount_options_parse(library, request->options.library, error, sizeof(error)) == 0)
        return true;
    if (request->is_sloppy)
        return true;
    mount_log_print(UEXT4_LOG_ERROR, "%s", error);
    return false;
}

static bool open_image(const struct request *request, const char *spec, struct uext4 **fs)
{
    struct uext4_mount_options library;
    int rc;

    if (!make_library_options(request, &library))
        return false;
    rc = uext4_mount(spec, &library, fs);
    if (rc == 0 || mount_log_has_error())
        return rc == 0;
    if (rc == -EINVAL)
        mount_log_print(UEXT4_LOG_ERROR, "%s: no ext2, ext3 or ext4 file system", request->spec);
    else if (rc == -EBUSY)
        mount_log_print(UEXT4_LOG_ERROR, "%s: a writer has it open", request->spec);
    else
        mount_log_print(UEXT4_LOG_ERROR, "%s: %s", request->spec, strerror(-rc));
    return false;
}

/* Makes the session around an open file system, which it takes over. */
static struct server *start_server(const struct request *request, struct attachment *attachment,
                                   struct uext4 *fs)
{
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    struct server *server = NULL;
    struct uext4_info info;
    int rc = -ENOMEM;

    uext4_get_info(fs, &info);
    attachment->block_bytes = info.block_bytes;
    if (attach_make_arguments(attachment, &request->options, &args))
        rc = server_create(fs, &args, &server);
    else
        uext4_unmount(fs);
    if (rc != 0)
        mount_log_print(UEXT4_LOG_ERROR, "%s: cannot start: %s", request->spec, strerror(-rc));
    fuse_opt_free_args(&args);
    return server;
}

/* Mounts and serves until the unmount. `ready_fd` gets a byte once the mount is usable; or -1. */
static int serve(struct request *request, int ready_fd)
{
    struct attachment attachment = {.is_privileged = geteuid() == 0, .lifeline = -1};
    struct server *server = NULL;
    char *spec = NULL, *absolute = NULL;
    struct uext4 *fs;
    int status = mount_status_failed(request->is_helper);
    int rc;

    if (!attach_check(&attachment, request->mountpoint))
        goto out;
    spec = make_spec(request, &attachment, &absolute);
    if (spec == NULL || !open_image(request, spec, &fs))
        goto out;
    attachment.source = request->options.source_name != NULL ? request->options.source_name
                                                             : absolute;
    server = start_server(request, &attachment, fs);
    if (server == NULL)
        goto out;
    if (fuse_set_signal_handlers(server->session) != 0 ||
        !attach_begin(&attachment, &request->options, server))
        goto out;
    server->ready_fd = ready_fd;
    rc = server_run(server);
    if (rc == 0)
        status = 0;
    else
        mount_log_print(UEXT4_LOG_ERROR, "%s: the connection to the kernel failed: %s",
                        attachment.mountpoint, strerror(-rc));
    fuse_remove_signal_handlers(server->session);
out:
    if (server != NULL)
        attach_end(&attachment, server);
    free(spec);
    free(absolute);
    return status;
}

/* Waits until the child serves or has ended, and returns the status to exit with. */
static int wait_for_child(const struct request *request, pid_t child, int ready_fd)
{
    ssize_t count;
    int status;
    char byte;

    do {
        count = read(ready_fd, &byte, 1);
    } while (count < 0 && errno == EINTR);
    if (count == 1)
        return 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        return WEXITSTATUS(status);
    mount_log_print(UEXT4_LOG_ERROR, "%s: the server ended before the mount was usable",
                    request->spec);
    return mount_status_failed(request->is_helper);
}

static int serve_in_background(struct request *request)
{
    int ends[2];
    pid_t child;
    int status;

    if (pipe2(ends, O_CLOEXEC) != 0 || (child = fork()) < 0) {
        mount_log_print(UEXT4_LOG_ERROR, "cannot go to the background: %s", strerror(errno));
        return mount_status_failed(request->is_helper);
    }
    if (child == 0) {
        close(ends[0]);
        return serve(request, ends[1]);
    }
    close(ends[1]);
    status = wait_for_child(request, child, ends[0]);
    close(ends[0]);
    return status;
}

int mount_main(int argc, char **argv)
{
    struct request request = {.is_helper = mount_status_is_helper(argv[0], "mount.")};
    int status;

    options_init(&request.options);
    mount_log_take_libfuse();
    if (!options_add(&request.options, "") || !read_command_line(&request, argc, argv)) {
        fputs("Try `uext4 mount --help`.\n", stderr);
        status = mount_status_usage(request.is_helper);
    } else if (request.options.is_remount_asked) {
        mount_log_print(UEXT4_LOG_ERROR, "remounting is not supported; unmount and mount again");
        status = mount_status_failed(request.is_helper);
    } else {
        if (request.options.is_writing_asked && !request.is_quiet)
            mount_log_print(UEXT4_LOG_WARNING,
                            "%s: mounting read-only, as this version does not write", request.spec);
        if (request.is_fake)
            status = 0;
        else
            status = request.is_foreground ? serve(&request, -1) : serve_in_background(&request);
    }
    options_clear(&request.options);
    return status;
}
