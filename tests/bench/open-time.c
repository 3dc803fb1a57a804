/* SPDX-License-Identifier: MIT */
/*
 * open-time IMAGE1 IMAGE2: the time of a mount, a stat of the root and an unmount, of two images in
 * turn; medians, their difference, and the most memory that the process ever had.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include <uext4.h>

#define RUNS 31

static double open_once(const char *image)
{
    struct uext4_mount_options options;
    struct timespec start, end;
    struct uext4_inode *root;
    struct uext4_stat stat;
    struct uext4 *fs;

    uext4_mount_options_init(&options);
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (uext4_mount(image, &options, &fs) != 0 || uext4_inode_get(fs, UEXT4_ROOT_INO, &root) != 0) {
        fprintf(stderr, "open-time: %s: cannot be opened\n", image);
        exit(1);
    }
    uext4_stat(root, &stat);
    uext4_inode_put(root);
    uext4_unmount(fs);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6;
}

static int compare_doubles(const void *a, const void *b)
{
    double one = *(const double *)a, two = *(const double *)b;

    return one < two ? -1 : one > two;
}

int main(int argc, char **argv)
{
    double times[2][RUNS];
    struct rusage usage;

    if (argc != 3)
        return 2;
    for (unsigned int i = 0; i < RUNS; i++)
        for (unsigned int side = 0; side < 2; side++)
            times[side][i] = open_once(argv[1 + side]);
    for (unsigned int side = 0; side < 2; side++) {
        qsort(times[side], RUNS, sizeof(double), compare_doubles);
        printf("%s: median %.3f ms, range %.3f to %.3f\n", argv[1 + side], times[side][RUNS / 2],
               times[side][0], times[side][RUNS - 1]);
    }
    getrusage(RUSAGE_SELF, &usage);
    printf("difference of the medians %.3f ms; most memory %ld KiB\n",
           times[1][RUNS / 2] - times[0][RUNS / 2], usage.ru_maxrss);
    return 0;
}
