/* SPDX-License-Identifier: MIT */
/*
 * Reads a device spec and opens the devices that it names:
 *
 *     [FILTER(key=value,...):]...[DRIVER:]PLACE[,key=value...]
 *
 * One pass from left to right notes the filters (at most MAX_FILTERS), then the driver opens the
 * place, and the filters stack on it from the innermost out. A comma inside a value or a place is
 * written twice. Specs come from command lines and mount tables: their length and the nesting are
 * bounded, and nothing here recurses.
 * Locks: none. Callers: the library's mount calls, through device_open.
 */
#include "block/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_SPEC_LENGTH 16384u
#define MAX_FILTERS     8u
#define MAX_NAME        32u

struct filter {
    const char *name;
    int (*open)(struct device *lower, const struct spec_part *keys, const struct log *log,
                struct device **device);
};

struct driver {
    const char *name;
    int (*open)(const char *place, const struct spec_part *keys,
                const struct device_open_options *options, struct device **device);
};

static const struct filter filters[] = {
    {"latency", latency_open_spec},
    {"fault", fault_open_spec},
    {"record", record_open_spec},
};

static const struct driver drivers[] = {
    {"file", file_device_open_spec},
    {"memory", memory_device_open_spec},
};

static const char known_filters[] = "latency, fault, record";

/* ---- Messages ------------------------------------------------------------------------------- */

static size_t column(const struct spec_part *part, const char *place)
{
    return (size_t)(place - part->spec) + 1;
}

/* A piece of a spec for a message, cut where it is long. */
struct excerpt {
    char text[MAX_NAME + 4];
};

static struct excerpt excerpt(const char *text, size_t length)
{
    struct excerpt result;

    snprintf(result.text, sizeof(result.text), "%.*s%s", (int)MIN(length, (size_t)MAX_NAME), text,
             length > MAX_NAME ? "..." : "");
    return result;
}

/* Appends ", name" to a list in a buffer, or less if it is full. */
static void list_append(char *list, size_t size, const char *name)
{
    size_t length = strlen(list);

    snprintf(list + length, size - length, "%s%s", length == 0 ? "" : ", ", name);
}

/* ---- Values --------------------------------------------------------------------------------- */

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 16;
}

/* Reads a whole number, decimal or with 0x, and says how many characters it took; 0: none. */
static size_t parse_number(const char *text, size_t length, uint64_t *value)
{
    int base = 10;
    size_t start = 0;
    size_t i;

    if (length > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        base = 16;
        start = 2;
    }
    *value = 0;
    for (i = start; i < length && digit_value(text[i]) < base; i++) {
        uint64_t digit = (uint64_t)digit_value(text[i]);

        if (*value > (UINT64_MAX - digit) / (uint64_t)base)
            return 0;
        *value = *value * (uint64_t)base + digit;
    }
    return i > start ? i : 0;
}

bool spec_parse_size(const char *text, size_t length, uint64_t *value)
{
    static const char suffixes[] = "KMGT";
    size_t used = parse_number(text, length, value);
    const char *suffix;
    unsigned int shift;

    if (used == 0)
        return false;
    if (used == length)
        return *value <= INT64_MAX;
    if (used + 1 != length || text[used] == '\0')
        return false;
    suffix = strchr(suffixes, text[used] >= 'a' ? text[used] - 'a' + 'A' : text[used]);
    if (suffix == NULL)
        return false;
    shift = 10 * (unsigned int)(suffix - suffixes + 1);
    if (*value > (uint64_t)INT64_MAX >> shift)
        return false;
    *value <<= shift;
    return true;
}

/* Not strtod: that takes signs, exponents and `nan`, and looks for the locale's decimal mark. */
static bool parse_fraction(const char *text, size_t length, double *value)
{
    double number = 0;
    double divisor = 0; /* 0: before the point */
    size_t digit_count = 0;

    if (length > MAX_NAME)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '.' && divisor == 0) {
            divisor = 1;
        } else if (text[i] >= '0' && text[i] <= '9') {
            number = number * 10 + (text[i] - '0');
            divisor *= 10;
            digit_count++;
        } else {
            return false;
        }
    }
    *value = divisor == 0 ? number : number / divisor;
    return digit_count > 0 && *value <= 1;
}

/* Copies a text and makes each doubled comma one; false if it is too long. */
static bool copy_text(const char *text, size_t length, char copy[SPEC_TEXT_MAX])
{
    size_t used = 0;

    for (size_t i = 0; i < length; i++) {
        if (used + 1 >= SPEC_TEXT_MAX)
            return false;
        copy[used++] = text[i];
        if (text[i] == ',' && i + 1 < length && text[i + 1] == ',')
            i++;
    }
    copy[used] = '\0';
    return true;
}

static bool parse_choice(const struct spec_choice *choices, const char *text, size_t length,
                         int *value)
{
    for (; choices->name != NULL; choices++) {
        if (strlen(choices->name) == length && memcmp(choices->name, text, length) == 0) {
            *value = choices->value;
            return true;
        }
    }
    return false;
}

static void describe_values(const struct spec_key *key, char *text, size_t size)
{
    text[0] = '\0';
    switch (key->type) {
    case SPEC_SIZE:
        snprintf(text, size, "a number of bytes, such as 4096, 0x1000 or 4K (K, M, G, T)");
        break;
    case SPEC_NUMBER:
        snprintf(text, size, "a whole number");
        break;
    case SPEC_FRACTION:
        snprintf(text, size, "a fraction from 0 to 1, such as 0.25");
        break;
    case SPEC_TEXT:
        snprintf(text, size, "a text of 1 to %d bytes", SPEC_TEXT_MAX - 1);
        break;
    case SPEC_CHOICE:
        for (const struct spec_choice *choice = key->choices; choice->name != NULL; choice++)
            list_append(text, size, choice->name);
        break;
    }
}

static bool parse_value(const struct spec_key *key, const char *text, size_t length, void *options)
{
    void *place = (char *)options + key->offset;
    uint64_t number = 0;

    switch (key->type) {
    case SPEC_CHOICE:
        return parse_choice(key->choices, text, length, place);
    case SPEC_TEXT:
        return length > 0 && copy_text(text, length, place);
    case SPEC_FRACTION:
        return parse_fraction(text, length, place);
    case SPEC_SIZE:
        if (!spec_parse_size(text, length, &number))
            return false;
        break;
    case SPEC_NUMBER:
        if (length == 0 || parse_number(text, length, &number) != length)
            return false;
        break;
    }
    memcpy(place, &number, sizeof(number));
    return true;
}

static int check_range(const struct spec_part *part, const struct spec_table *table,
                       const struct spec_key *key, const char *value, const void *options,
                       const struct log *log)
{
    uint64_t max = key->max == 0 ? INT64_MAX : key->max;
    uint64_t number;

    if (key->type != SPEC_SIZE && key->type != SPEC_NUMBER)
        return 0;
    memcpy(&number, (const char *)options + key->offset, sizeof(number));
    if (number >= key->min && number <= max)
        return 0;
    log_error(log, "device spec, column %zu: %s of %s must be from %llu to %llu",
              column(part, value), key->name, table->owner, (unsigned long long)key->min,
              (unsigned long long)max);
    return -EINVAL;
}

/* ---- Lists of keys -------------------------------------------------------------------------- */

/* The end of an item: the next comma that stands alone. */
static const char *find_comma(const char *text, const char *end)
{
    for (; text < end; text++) {
        if (*text != ',')
            continue;
        if (text + 1 == end || text[1] != ',')
            return text;
        text++;
    }
    return end;
}

static const struct spec_key *find_key(const struct spec_table *table, const char *name,
                                       size_t length)
{
    for (size_t i = 0; i < table->key_count; i++)
        if (strlen(table->keys[i].name) == length && memcmp(table->keys[i].name, name, length) == 0)
            return &table->keys[i];
    return NULL;
}

static int unknown_key(const struct spec_part *part, const struct spec_table *table,
                       const char *name, size_t length, const struct log *log)
{
    char known[200] = "";

    for (size_t i = 0; i < table->key_count; i++)
        list_append(known, sizeof(known), table->keys[i].name);
    log_error(log, "device spec, column %zu: unknown key '%s' of %s; known: %s", column(part, name),
              excerpt(name, length).text, table->owner, table->key_count == 0 ? "none" : known);
    return -EINVAL;
}

static int parse_item(const struct spec_part *part, const struct spec_table *table,
                      const char *item, const char *item_end, void *options, uint32_t *seen,
                      const struct log *log)
{
    size_t length = (size_t)(item_end - item);
    const char *equals = memchr(item, '=', length);
    const char *value = equals == NULL ? item_end : equals + 1;
    size_t name_length = equals == NULL ? length : (size_t)(equals - item);
    const struct spec_key *key = find_key(table, item, name_length);
    uint32_t bit;
    char known[200];

    if (key == NULL)
        return unknown_key(part, table, item, name_length, log);
    bit = UINT32_C(1) << (key - table->keys);
    if ((*seen & bit) != 0) {
        log_error(log, "device spec, column %zu: %s is given twice", column(part, item), key->name);
        return -EINVAL;
    }
    *seen |= bit;
    if (!parse_value(key, value, (size_t)(item_end - value), options)) {
        describe_values(key, known, sizeof(known));
        log_error(log, "device spec, column %zu: %s of %s cannot be '%s'; known: %s",
                  column(part, value), key->name, table->owner,
                  excerpt(value, (size_t)(item_end - value)).text, known);
        return -EINVAL;
    }
    return check_range(part, table, key, value, options, log);
}

int spec_parse_keys(const struct spec_part *part, const struct spec_table *table, void *options,
                    const struct log *log)
{
    const char *item = part->text;
    const char *end = part->text + part->length;
    uint32_t seen = 0;

    if (part->length == 0)
        return 0;
    for (;;) {
        const char *item_end = find_comma(item, end);
        int error = parse_item(part, table, item, item_end, options, &seen, log);

        if (error != 0)
            return error;
        if (item_end == end)
            return 0;
        item = item_end + 1;
    }
}

/* ---- The spec ------------------------------------------------------------------------------- */

struct stacked_filter {
    const struct filter *filter;
    struct spec_part keys;
};

struct parsed_spec {
    struct stacked_filter filters[MAX_FILTERS]; /* outermost first */
    size_t filter_count;
    const struct driver *driver;
    struct spec_part keys;
    char place[SPEC_TEXT_MAX];
};

static size_t name_length(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyz_-0123456789");
}

static const struct filter *find_filter(const char *name, size_t length)
{
    for (size_t i = 0; i < ARRAY_LENGTH(filters); i++)
        if (strlen(filters[i].name) == length && memcmp(filters[i].name, name, length) == 0)
            return &filters[i];
    return NULL;
}

/*
 * Finds out whether a filter stands at `*position`, and steps behind it. Returns 1 if so, 0 if not:
 * then it is the driver or the place.
 */
static int take_filter(const char *spec, const char **position, struct stacked_filter *stacked,
                       const struct log *log)
{
    const char *name = *position;
    size_t length = name_length(name);
    const char *after = name + length;
    const char *close;

    stacked->keys = (struct spec_part){.spec = spec, .text = after};
    stacked->filter = find_filter(name, length);
    if (length == 0)
        return 0;
    if (*after == ':' && stacked->filter != NULL) {
        *position = after + 1;
        return 1;
    }
    if (*after != '(')
        return 0;
    close = strstr(after, "):");
    if (close == NULL && stacked->filter == NULL)
        return 0;
    if (stacked->filter == NULL) {
        log_error(log, "device spec, column %zu: unknown filter '%s'; known: %s",
                  column(&stacked->keys, name), excerpt(name, length).text, known_filters);
        return -EINVAL;
    }
    if (close == NULL) {
        log_error(log, "device spec, column %zu: the parenthesis has no '):' that ends it",
                  column(&stacked->keys, after));
        return -EINVAL;
    }
    stacked->keys.text = after + 1;
    stacked->keys.length = (size_t)(close - (after + 1));
    *position = close + 2;
    return 1;
}

static const struct driver *take_driver(const char **position)
{
    for (size_t i = 0; i < ARRAY_LENGTH(drivers); i++) {
        size_t length = strlen(drivers[i].name);

        if (strncmp(*position, drivers[i].name, length) == 0 && (*position)[length] == ':') {
            *position += length + 1;
            return &drivers[i];
        }
    }
    return &drivers[0];
}

static int parse_spec(const char *spec, const struct log *log, struct parsed_spec *parsed)
{
    const char *position = spec;
    const char *end = spec + strlen(spec);
    const char *place_end;
    struct stacked_filter stacked;
    int found;

    while ((found = take_filter(spec, &position, &stacked, log)) > 0) {
        if (parsed->filter_count == MAX_FILTERS) {
            log_error(log, "device spec, column %zu: more than %u filters",
                      column(&stacked.keys, stacked.keys.text), MAX_FILTERS);
            return -EINVAL;
        }
        parsed->filters[parsed->filter_count++] = stacked;
    }
    if (found < 0)
        return found;
    parsed->driver = take_driver(&position);
    place_end = find_comma(position, end);
    parsed->keys = (struct spec_part){.spec = spec, .text = place_end};
    if (place_end == position) {
        log_error(log, "device spec, column %zu: nothing follows; a path or size was expected",
                  column(&parsed->keys, position));
        return -EINVAL;
    }
    if (!copy_text(position, (size_t)(place_end - position), parsed->place)) {
        log_error(log, "device spec, column %zu: the path is longer than %d bytes",
                  column(&parsed->keys, position), SPEC_TEXT_MAX - 1);
        return -ENAMETOOLONG;
    }
    if (place_end < end) {
        parsed->keys.text = place_end + 1;
        parsed->keys.length = (size_t)(end - (place_end + 1));
        if (parsed->keys.length == 0) {
            log_error(log, "device spec, column %zu: a key was expected after the comma",
                      column(&parsed->keys, end));
            return -EINVAL;
        }
    }
    return 0;
}

/* A path that exists is meant as it stands, whatever its name looks like. */
static bool is_plain_path(const char *spec, struct parsed_spec *parsed)
{
    struct stat status;

    if (strlen(spec) >= SPEC_TEXT_MAX || stat(spec, &status) != 0)
        return false;
    parsed->driver = &drivers[0];
    parsed->keys = (struct spec_part){.spec = spec, .text = spec};
    strcpy(parsed->place, spec);
    return true;
}

static int stack_filters(const struct parsed_spec *parsed, const struct log *log,
                         struct device **device)
{
    for (size_t i = parsed->filter_count; i-- > 0;) {
        const struct stacked_filter *stacked = &parsed->filters[i];
        struct device *filter = NULL;
        int error = stacked->filter->open(*device, &stacked->keys, log, &filter);

        if (error != 0) {
            device_close(*device);
            return error;
        }
        *device = filter;
    }
    return 0;
}

int device_open(const char *spec, const struct device_open_options *options, struct device **device)
{
    struct parsed_spec *parsed;
    struct device *opened = NULL;
    int error = 0;

    if (strlen(spec) > MAX_SPEC_LENGTH) {
        log_error(options->log, "device spec: longer than %u bytes", MAX_SPEC_LENGTH);
        return -EINVAL;
    }
    parsed = calloc(1, sizeof(*parsed));
    if (parsed == NULL)
        return -ENOMEM;
    if (!is_plain_path(spec, parsed))
        error = parse_spec(spec, options->log, parsed);
    if (error == 0)
        error = parsed->driver->open(parsed->place, &parsed->keys, options, &opened);
    if (error == 0)
        error = stack_filters(parsed, options->log, &opened);
    if (error == 0)
        *device = opened;
    free(parsed);
    return error;
}
