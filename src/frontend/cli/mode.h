/* SPDX-License-Identifier: MIT */
/*
 * Permissions and owners as options and arguments have them.
 *
 * Threads: any.
 */
#ifndef UEXT4_CLI_MODE_H
#define UEXT4_CLI_MODE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Applies an octal ("0755") or symbolic ("u+rwX,go=r") mode to `mode`, type bits included, and
 * leaves those. Without a letter of u, g, o and a, a clause is for all; the host's umask is left
 * out of it. Returns false if `text` is none.
 */
bool mode_apply(const char *text, uint32_t *mode);

/* What "UID", "UID:GID" or ":GID" says; numbers, or names of the host. */
struct mode_owner {
    bool has_uid, has_gid;
    uint32_t uid, gid;
};

/* Returns false if `text` is none, or names nobody that the host knows. */
bool mode_parse_owner(const char *text, struct mode_owner *owner);

#endif
