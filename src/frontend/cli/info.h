/* SPDX-License-Identifier: MIT */
/*
 * What the two forms of `uext4 info` share.
 */
#ifndef UEXT4_CLI_INFO_H
#define UEXT4_CLI_INFO_H

#include <stdbool.h>

#include "session.h"

/* The most groups that --groups shows; more than the format's block numbers can need. */
#define INFO_GROUPS_MAX (1u << 24)

struct info {
    struct session session;
    bool is_json, has_groups;
    struct uext4_info fs;
    struct uext4_statfs usage;
    bool has_usage; /* uext4_statfs has worked */
};

/* One set of feature bits. */
struct info_features {
    const char *key; /* in JSON */
    enum uext4_feature_set set;
    uint32_t bits;
};

#define INFO_FEATURE_SETS 5

void info_get_features(const struct uext4_info *fs, struct info_features sets[INFO_FEATURE_SETS]);

/* The name of a feature bit, or "unknown_<set>_<bit>" in `buffer`. */
const char *info_feature_name(const struct info_features *set, unsigned int bit, char buffer[48]);

const char *info_journal_state(enum uext4_journal_state state);
const char *info_hash_name(uint8_t version);

/* "8f2e...-...": terminated. */
void info_format_uuid(const uint8_t uuid[16], char text[37]);

void info_print_json(struct info *info);

#endif
