/* SPDX-License-Identifier: MIT */
/*
 * hostile-walk [-v] [-m MODES] IMAGE: goes through an image in every way of mounting it. Prints a
 * line for each, and exits with 0 unless the library crashes, breaks its contract, takes too long
 * or too much memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "limits.h"
#include "walk.h"

int main(int argc, char **argv)
{
    static const char *const names[] = {"normal", "noload", "nochecksum", "backup"};
    unsigned int modes = WALK_ALL;
    bool verbose = false;
    int option;

    while ((option = getopt(argc, argv, "vm:")) != -1) {
        if (option == 'v')
            verbose = true;
        else if (option == 'm')
            modes = (unsigned int)strtoul(optarg, NULL, 0);
        else
            return 2;
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: hostile-walk [-v] [-m MODES] IMAGE\n");
        return 2;
    }
    for (unsigned int i = 0; i < 4; i++) {
        struct walk_result result;

        if ((modes >> i & 1) == 0)
            continue;
        limits_set_time(LIMIT_SECONDS);
        walk_image(argv[optind], (enum walk_mode)(1u << i), verbose, &result);
        limits_set_time(0);
        if (result.mount_error != 0)
            printf("%s: %s\n", names[i], strerror(-result.mount_error));
        else
            printf("%s: %llu names, %llu inodes, %llu bytes, %llu attributes, %llu errors\n",
                   names[i], (unsigned long long)result.names, (unsigned long long)result.inodes,
                   (unsigned long long)result.bytes_read, (unsigned long long)result.xattrs,
                   (unsigned long long)result.errors);
        if (limits_peak_kibibytes() > LIMIT_MEBIBYTES * 1024L) {
            fprintf(stderr, "more than %d MiB of memory\n", LIMIT_MEBIBYTES);
            return 4;
        }
    }
    return 0;
}
