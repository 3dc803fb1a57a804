/* SPDX-License-Identifier: MIT */
/*
 * JSON output; see json.h. Called by info, stat and map.
 */
#include "json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

void json_put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

void json_put_number(json_t *object, const char *key, uint64_t value)
{
    json_put(object, key, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

void json_put_bool(json_t *object, const char *key, bool value)
{
    json_put(object, key, json_boolean(value));
}

void json_put_hex(json_t *object, const char *key, const void *bytes, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *at = bytes;
    char *text = malloc(length * 2 + 1);

    if (!text)
        return;
    for (size_t i = 0; i < length; i++) {
        text[i * 2] = digits[at[i] >> 4];
        text[i * 2 + 1] = digits[at[i] & 15];
    }
    json_put(object, key, json_stringn(text, length * 2));
    free(text);
}

void json_put_text(json_t *object, const char *key, const char *bytes, size_t length)
{
    json_t *value = json_stringn(bytes, length);
    char *escaped, hex_key[64];

    if (value) {
        json_put(object, key, value);
        return;
    }
    escaped = text_escape(bytes, length);
    json_put(object, key, json_string(escaped ? escaped : ""));
    free(escaped);
    snprintf(hex_key, sizeof(hex_key), "%s_hex", key);
    json_put_hex(object, hex_key, bytes, length);
}

void json_put_time(json_t *object, const char *key, const struct timespec *time)
{
    char ns_key[64];

    json_put(object, key, json_integer(time->tv_sec));
    snprintf(ns_key, sizeof(ns_key), "%s_ns", key);
    json_put(object, ns_key, json_integer(time->tv_nsec));
}

void json_finish(struct session *session, json_t *value)
{
    if (!value || json_dumpf(value, stdout, JSON_INDENT(2)) < 0)
        session_error(session, NULL, -ENOMEM);
    putchar('\n');
    json_decref(value);
}
