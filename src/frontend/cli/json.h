/* SPDX-License-Identifier: MIT */
/*
 * JSON output, over jansson. Building never fails half-way: without memory the object lacks a key,
 * and json_finish tells of it.
 */
#ifndef UEXT4_CLI_JSON_H
#define UEXT4_CLI_JSON_H

#include <jansson.h>
#include <stdint.h>
#include <time.h>

#include "session.h"

void json_put(json_t *object, const char *key, json_t *value);
void json_put_number(json_t *object, const char *key, uint64_t value);
void json_put_bool(json_t *object, const char *key, bool value);

/*
 * Bytes that are UTF-8 become a string. Others become one with octal escapes, and KEY_hex has the
 * exact bytes.
 */
void json_put_text(json_t *object, const char *key, const char *bytes, size_t length);

void json_put_hex(json_t *object, const char *key, const void *bytes, size_t length);

/* Seconds since 1970 as an integer, and KEY_ns. */
void json_put_time(json_t *object, const char *key, const struct timespec *time);

/* Prints and frees the value. */
void json_finish(struct session *session, json_t *value);

#endif
