/* SPDX-License-Identifier: MIT */
/* Known answers from outside: published check values of the CRCs, debugfs's hashes, dumpe2fs's
 * names of features. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/casefold.h"
#include "format/crc.h"
#include "format/dirent.h"
#include "format/xattr.h"
#include "hash_vectors.h"

/* The check values of the catalogue of parametrised CRC algorithms, all for "123456789". */
static void crcs_match_published_check_values(void **state)
{
    static const char digits[] = "123456789";
    (void)state;
    assert_int_equal(~crc32c(~0u, digits, 9), 0xe3069283u); /* CRC-32/ISCSI */
    assert_int_equal(crc16(0xffff, digits, 9), 0x4b37);     /* CRC-16/MODBUS */
    assert_int_equal(crc16(0, digits, 9), 0xbb3d);          /* CRC-16/ARC */
    assert_int_equal(crc32_be(~0u, digits, 9), 0x0376e6e7); /* CRC-32/MPEG-2 */
    assert_int_equal(crc32c(17, digits, 0), 17);
    assert_int_equal(crc32_be(17, digits, 0), 17);
}

/* RFC 3720, B.4. */
static void crc32c_matches_rfc3720(void **state)
{
    uint8_t bytes[32];
    (void)state;
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(~crc32c(~0u, bytes, sizeof(bytes)), 0x8a9136aau);
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(~crc32c(~0u, bytes, sizeof(bytes)), 0x62a8ab43u);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(~crc32c(~0u, bytes, sizeof(bytes)), 0x46dd794eu);
}

static void crcs_continue_piecewise(void **state)
{
    uint8_t bytes[257];
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
    for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
        size_t rest = sizeof(bytes) - cut;
        assert_int_equal(crc32c(crc32c(~0u, bytes, cut), bytes + cut, rest),
                         crc32c(~0u, bytes, sizeof(bytes)));
        assert_int_equal(crc16(crc16(0xffff, bytes, cut), bytes + cut, rest),
                         crc16(0xffff, bytes, sizeof(bytes)));
        assert_int_equal(crc32_be(crc32_be(~0u, bytes, cut), bytes + cut, rest),
                         crc32_be(~0u, bytes, sizeof(bytes)));
    }
}

static void set_seed(struct superblock *sb, unsigned int seed)
{
    for (unsigned int i = 0; i < 4; i++)
        sb->hash_seed[i] = le32_at(hash_seeds[seed] + i * 4);
}

static void hashes_match_debugfs(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(hash_vectors); i++) {
        const struct hash_vector *vector = &hash_vectors[i];
        const char *name = hash_names[vector->name];
        struct superblock sb = {0};
        struct htree_hash hash;

        set_seed(&sb, vector->seed);
        assert_true(htree_hash_name(&sb, vector->version, name, strlen(name), &hash));
        assert_int_equal(hash.major, vector->major);
        assert_int_equal(hash.minor, vector->minor);
        if (vector->version >= HTREE_HASH_LEGACY_UNSIGNED) {
            /* The superblock's choice of signedness has the same effect. */
            sb.is_hash_unsigned = true;
            assert_true(htree_hash_name(&sb, vector->version - HTREE_HASH_LEGACY_UNSIGNED, name,
                                        strlen(name), &hash));
            assert_int_equal(hash.major, vector->major);
            assert_int_equal(hash.minor, vector->minor);
        }
    }
}

static void unknown_hashes_are_refused(void **state)
{
    struct superblock sb = {0};
    struct htree_hash hash;
    (void)state;
    for (unsigned int version = HTREE_HASH_SIPHASH; version < 256; version++)
        assert_false(htree_hash_name(&sb, (uint8_t)version, "name", 4, &hash));
}

/* debugfs: dx_hash -h half_md4 -c -e utf8-12.1 NAME. */
static void folded_names_hash_as_in_debugfs(void **state)
{
    static const struct {
        const char *name;
        uint32_t major, minor;
    } vectors[] = {
#include "casefold_vectors.inc"
    };
    struct superblock sb = {0};
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(vectors); i++) {
        char folded[1024];
        struct htree_hash hash;
        int length = casefold_name(vectors[i].name, strlen(vectors[i].name), folded, 1024);
        assert_true(length >= 0);
        assert_true(htree_hash_name(&sb, HTREE_HASH_HALF_MD4, folded, (size_t)length, &hash));
        if (hash.major != vectors[i].major || hash.minor != vectors[i].minor)
            fail_msg("'%s' folds to another name", vectors[i].name);
    }
}

static void invalid_utf8_does_not_fold(void **state)
{
    static const char *const names[] = {"\xff",     "a\x80",
                                        "\xc0\xaf", "\xed\xa0\x80",
                                        "\xe2\x82", "\xf4\x90\x80\x80",
                                        "abc\xc3",  "\xf8\x88\x80\x80\x80"};
    char folded[1024], name[300];
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        assert_int_equal(casefold_name(names[i], strlen(names[i]), folded, sizeof(folded)),
                         -EINVAL);
    memset(name, 'A', sizeof(name));
    assert_int_equal(casefold_name(name, 256, folded, sizeof(folded)), -ENAMETOOLONG);
    assert_int_equal(casefold_name(name, 255, folded, 254), -ENAMETOOLONG);
    assert_int_equal(casefold_name(name, 255, folded, 255), 255);
    assert_memory_equal(folded, "aaaa", 4);
}

static void features_have_their_names(void **state)
{
    char names[200];
    (void)state;
    struct superblock sb = {.incompat = FEATURE_INCOMPAT_COMPRESSION | 0x20 | 0x80000000u |
                                        FEATURE_INCOMPAT_EXTENTS | FEATURE_INCOMPAT_MMP,
                            .ro_compat = FEATURE_RO_COMPAT_READONLY | 1u << 20};
    assert_int_equal(superblock_unsupported_features(&sb, names, sizeof(names)), 3);
    assert_string_equal(names, "compression FEATURE_I5 FEATURE_I31");
    assert_int_equal(superblock_unwritable_features(&sb, names, sizeof(names)), 6);
    assert_string_equal(names, "compression FEATURE_I5 mmp FEATURE_I31 read-only FEATURE_R20");
    sb.ro_compat = 0;
    assert_int_equal(superblock_unwritable_features(&sb, names, sizeof(names)), 4);
    assert_string_equal(names, "compression FEATURE_I5 mmp FEATURE_I31");
    sb.incompat = FEATURE_INCOMPAT_EXTENTS;
    assert_int_equal(superblock_unwritable_features(&sb, names, sizeof(names)), 0);
    assert_string_equal(names, "");
    sb.ro_compat = FEATURE_RO_COMPAT_SHARED_BLOCKS;
    assert_int_equal(superblock_unwritable_features(&sb, names, sizeof(names)), 1);
    assert_string_equal(names, "shared_blocks");
    assert_string_equal(feature_name(FEATURE_SET_RO_COMPAT, 4), "uninit_bg");
    assert_string_equal(feature_name(FEATURE_SET_JOURNAL_INCOMPAT, 0), "journal_incompat_revoke");
    assert_null(feature_name(FEATURE_SET_COMPAT, 7));
    assert_null(feature_name(FEATURE_SET_COMPAT, 32));
}

static void feature_names_are_cut_off(void **state)
{
    struct superblock sb = {.incompat = UINT32_MAX, .ro_compat = UINT32_MAX};
    char whole[1000], names[1000];
    (void)state;
    unsigned int count = superblock_unwritable_features(&sb, whole, sizeof(whole));
    assert_int_equal(superblock_unwritable_features(&sb, NULL, 0), count);
    for (size_t size = 1; size < sizeof(names); size++) {
        memset(names, 'x', sizeof(names));
        assert_int_equal(superblock_unwritable_features(&sb, names, size), count);
        assert_true(strlen(names) < size);
        assert_memory_equal(names, whole, strlen(names));
        assert_int_equal(names[size], 'x');
    }
    assert_int_equal(names[strlen(names) - 1], whole[strlen(whole) - 1]);
}

static void xattr_names_split_and_join(void **state)
{
    static const struct {
        const char *name;
        uint8_t index;
        const char *rest;
    } vectors[] = {
        {"user.x", XATTR_USER, "x"},
        {"user.", 0, NULL},
        {"trusted.a.b", XATTR_TRUSTED, "a.b"},
        {"security.selinux", XATTR_SECURITY, "selinux"},
        {"system.posix_acl_access", XATTR_ACL_ACCESS, ""},
        {"system.posix_acl_default", XATTR_ACL_DEFAULT, ""},
        {"system.posix_acl_default2", XATTR_SYSTEM, "posix_acl_default2"},
        {"system.richacl", XATTR_RICHACL, ""},
        {"system.data", XATTR_SYSTEM, "data"},
        {"gnu.author", XATTR_HURD, "author"},
        {"", 0, NULL},
        {"User.x", 0, NULL},
        {"userx", 0, NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(vectors); i++) {
        const char *rest = NULL;
        uint8_t index = xattr_split_name(vectors[i].name, &rest);
        assert_int_equal(index, vectors[i].index);
        if (index == 0)
            continue;
        assert_string_equal(rest, vectors[i].rest);
        bool is_whole_name;
        const char *prefix = xattr_prefix(index, &is_whole_name);
        assert_int_equal(is_whole_name, rest[0] == '\0');
        assert_memory_equal(prefix, vectors[i].name, strlen(prefix));
    }
}

/* u::rw-, u:1000:r-x, g::r--, g:70000:rwx, m::rwx, o::---: from setfacl on ext4 and getxattr. */
static void acls_convert(void **state)
{
    static const uint8_t disk[] = {1, 0, 0, 0, 1, 0, 6,    0,    2, 0, 5,  0, 0xe8, 3, 0,  0, 4, 0,
                                   4, 0, 8, 0, 7, 0, 0x70, 0x11, 1, 0, 16, 0, 7,    0, 32, 0, 0, 0};
    static const uint8_t interface[] = {
        2,    0,    0,    0,    1,    0,  6,    0,    0xff, 0xff, 0xff, 0xff, 2,
        0,    5,    0,    0xe8, 3,    0,  0,    4,    0,    4,    0,    0xff, 0xff,
        0xff, 0xff, 8,    0,    7,    0,  0x70, 0x11, 1,    0,    16,   0,    7,
        0,    0xff, 0xff, 0xff, 0xff, 32, 0,    0,    0,    0xff, 0xff, 0xff, 0xff};
    uint8_t buffer[sizeof(interface) + 1];
    (void)state;

    assert_int_equal(acl_from_disk(disk, sizeof(disk), NULL, 0), sizeof(interface));
    for (size_t size = 1; size < sizeof(interface); size++)
        assert_int_equal(acl_from_disk(disk, sizeof(disk), buffer, size), -ERANGE);
    buffer[sizeof(interface)] = 'x';
    assert_int_equal(acl_from_disk(disk, sizeof(disk), buffer, sizeof(interface)),
                     sizeof(interface));
    assert_memory_equal(buffer, interface, sizeof(interface));
    assert_int_equal(buffer[sizeof(interface)], 'x');
    static const size_t ends[] = {4, 8, 16, 20, 28, 32, 36}; /* where entries end */
    for (size_t length = 0, next = 0; length <= sizeof(disk); length++) {
        bool is_end = length == ends[next];
        next += is_end;
        assert_true((acl_from_disk(disk, length, NULL, 0) < 0) == !is_end);
    }
    uint8_t damaged[sizeof(disk)];
    static const size_t places[] = {0, 4, 6, 7};
    for (size_t i = 0; i < ARRAY_LENGTH(places); i++) {
        memcpy(damaged, disk, sizeof(disk));
        damaged[places[i]] = 0x80;
        assert_int_equal(acl_from_disk(damaged, sizeof(disk), NULL, 0), -EUCLEAN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crcs_match_published_check_values),
        cmocka_unit_test(crc32c_matches_rfc3720),
        cmocka_unit_test(crcs_continue_piecewise),
        cmocka_unit_test(hashes_match_debugfs),
        cmocka_unit_test(unknown_hashes_are_refused),
        cmocka_unit_test(folded_names_hash_as_in_debugfs),
        cmocka_unit_test(invalid_utf8_does_not_fold),
        cmocka_unit_test(features_have_their_names),
        cmocka_unit_test(feature_names_are_cut_off),
        cmocka_unit_test(xattr_names_split_and_join),
        cmocka_unit_test(acls_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
