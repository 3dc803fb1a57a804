/* SPDX-License-Identifier: MIT */
/*
 * Small things about paths, of the host and of an image.
 *
 * Threads: any.
 */
#ifndef UEXT4_CLI_PATH_H
#define UEXT4_CLI_PATH_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The last name of a path, not terminated, or NULL if it has none of its own ("/", or one that ends
 * in "." or ".."). Sets its length.
 */
const char *path_last_name(const char *path, size_t *length);

bool path_ends_in_slash(const char *path);

/* Asks the host for as many descriptors as a deep tree takes: one a level, and some more. */
void path_raise_descriptor_limit(void);

#endif
