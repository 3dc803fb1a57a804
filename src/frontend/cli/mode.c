/* SPDX-License-Identifier: MIT */
/*
 * Reading of permissions and owners; see mode.h.
 * Called by attributes.c, names.c and put.c.
 */
#include "mode.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PERMISSIONS 07777u

/* The permission bits of all classes that `letters` [u, g, o, as 1, 2, 4] chooses. */
static uint32_t bits_of_classes(unsigned int classes)
{
    return (classes & 1 ? S_ISUID | S_IRWXU : 0) | (classes & 2 ? S_ISGID | S_IRWXG : 0) |
           (classes & 4 ? S_ISVTX | S_IRWXO : 0);
}

/* Spreads three bits rwx to all classes. */
static uint32_t spread(uint32_t three)
{
    return three << 6 | three << 3 | three;
}

/* The bits that the letters behind an operator mean, before the classes choose among them. */
static uint32_t read_letters(const char **at, uint32_t mode)
{
    uint32_t bits = 0;

    if (**at == 'u' || **at == 'g' || **at == 'o') {
        unsigned int shift = **at == 'u' ? 6 : **at == 'g' ? 3 : 0;

        (*at)++;
        return spread(mode >> shift & 7);
    }
    for (;; (*at)++) {
        switch (**at) {
        case 'r':
            bits |= spread(4);
            break;
        case 'w':
            bits |= spread(2);
            break;
        case 'x':
            bits |= spread(1);
            break;
        case 'X':
            bits |= S_ISDIR(mode) || (mode & spread(1)) ? spread(1) : 0;
            break;
        case 's':
            bits |= S_ISUID | S_ISGID;
            break;
        case 't':
            bits |= S_ISVTX;
            break;
        default:
            return bits;
        }
    }
}

static unsigned int read_classes(const char **at)
{
    unsigned int classes = 0;

    for (; **at && strchr("ugoa", **at); (*at)++)
        classes |= **at == 'u' ? 1 : **at == 'g' ? 2 : **at == 'o' ? 4 : 7;
    return classes ? classes : 7;
}

/* One clause, up to a comma or the end. */
static bool apply_clause(const char **at, uint32_t *mode)
{
    uint32_t allowed = bits_of_classes(read_classes(at));

    if (!**at || !strchr("+-=", **at))
        return false;
    while (**at && strchr("+-=", **at)) {
        char action = *(*at)++;
        uint32_t letters = read_letters(at, *mode), bits = letters & allowed;
        /* A directory keeps these unless they are named, as with the host's chmod. */
        bool has_kept = S_ISDIR(*mode) && !(letters & (S_ISUID | S_ISGID));
        uint32_t kept = has_kept ? S_ISUID | S_ISGID : 0;

        if (action == '-')
            *mode &= ~bits;
        else if (action == '+')
            *mode |= bits;
        else
            *mode = (*mode & (~allowed | kept)) | bits;
    }
    return true;
}

bool mode_apply(const char *text, uint32_t *mode)
{
    const char *at = text;
    uint32_t result = *mode;

    if (text[0] >= '0' && text[0] <= '7') {
        size_t length = strspn(text, "01234567");
        unsigned long value = strtoul(text, NULL, 8);

        if (text[length] || length > 8 || value > PERMISSIONS)
            return false;
        *mode = (*mode & S_IFMT) | (uint32_t)value;
        return true;
    }
    for (;;) {
        if (!apply_clause(&at, &result))
            return false;
        if (!*at)
            break;
        if (*at++ != ',')
            return false;
    }
    *mode = result;
    return true;
}

/* A number, or else what `find` makes of the name. */
static bool parse_id(const char *text, bool (*find)(const char *name, uint32_t *id), uint32_t *id)
{
    unsigned long long number;
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return find(text, id);
    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno != 0 || *end || number > UINT32_MAX)
        return false;
    *id = (uint32_t)number;
    return true;
}

static bool find_user(const char *name, uint32_t *id)
{
    const struct passwd *entry = getpwnam(name);

    if (entry)
        *id = entry->pw_uid;
    return entry != NULL;
}

static bool find_group(const char *name, uint32_t *id)
{
    const struct group *entry = getgrnam(name);

    if (entry)
        *id = entry->gr_gid;
    return entry != NULL;
}

bool mode_parse_owner(const char *text, struct mode_owner *owner)
{
    const char *colon = strchr(text, ':');
    char *user = colon ? strndup(text, (size_t)(colon - text)) : strdup(text);
    bool is_good = user != NULL;

    *owner = (struct mode_owner){.has_uid = user && user[0], .has_gid = colon && colon[1]};
    if (is_good && owner->has_uid)
        is_good = parse_id(user, find_user, &owner->uid);
    if (is_good && owner->has_gid)
        is_good = parse_id(colon + 1, find_group, &owner->gid);
    free(user);
    return is_good && (owner->has_uid || owner->has_gid);
}
