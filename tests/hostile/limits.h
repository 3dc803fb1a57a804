/* SPDX-License-Identifier: MIT */
/*
 * What a run over one image may take: processor time, so that a busy machine fails nobody, and much
 * more of real time, so that a lock that nobody releases ends, too.
 */
#ifndef UEXT4_TESTS_HOSTILE_LIMITS_H
#define UEXT4_TESTS_HOSTILE_LIMITS_H

#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

#define LIMIT_SECONDS      10
#define LIMIT_REAL_SECONDS 120
#define LIMIT_MEBIBYTES    256

/* Begins anew, or ends with `seconds` 0. SIGPROF or SIGALRM ends a process that takes too long. */
static inline void limits_set_time(unsigned int seconds)
{
    struct itimerval timer = {.it_value = {.tv_sec = seconds}};

    setitimer(ITIMER_PROF, &timer, NULL);
    alarm(seconds == 0 ? 0 : LIMIT_REAL_SECONDS);
}

/*
 * The most memory that was resident, in KiB. AddressSanitizer's shadow makes a limit of the address
 * space useless, so that what is used is measured.
 */
static inline long limits_peak_kibibytes(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    long peak = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "VmHWM: %ld", &peak) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return peak;
}

/* Forgets the peak so far, and tells what is resident now. */
static inline long limits_begin_memory(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");

    if (file != NULL) {
        fputs("5", file);
        fclose(file);
    }
    return limits_peak_kibibytes();
}

#endif
