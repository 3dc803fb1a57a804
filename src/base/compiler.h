/* SPDX-License-Identifier: MIT */
/* What the compilers offer beyond the language: attributes and small helpers. */
#ifndef UEXT4_BASE_COMPILER_H
#define UEXT4_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#define container_of(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#define MUST_CHECK             __attribute__((warn_unused_result))
#define PRINTF(fmt, arguments) __attribute__((format(printf, fmt, arguments)))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Rounds to a multiple of a power of two. */
#define ROUND_DOWN(value, power) ((value) & ~((__typeof__(value))(power)-1))
#define ROUND_UP(value, power)   ROUND_DOWN((value) + (__typeof__(value))(power)-1, power)

/*
 * Clang's thread-safety analysis, checked by `make tidy`; other compilers see nothing.
 * https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
 */
#if defined(__clang__)
#define THREAD_ANNOTATION(x) __attribute__((x))
#else
#define THREAD_ANNOTATION(x)
#endif
#define CAPABILITY(name)       THREAD_ANNOTATION(capability(name))
#define ACQUIRE(...)           THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...)    THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...)           THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...)    THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define REQUIRES(...)          THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_CHECK THREAD_ANNOTATION(no_thread_safety_analysis)

#endif
