/* SPDX-License-Identifier: MIT */
/*
 * Integers as they lie on the disk. They are structures, so that the compiler refuses to mix them
 * with host integers; all have alignment 1, so that they may be laid over any buffer.
 */
#ifndef UEXT4_BASE_BYTEORDER_H
#define UEXT4_BASE_BYTEORDER_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define BYTEORDER_TYPE(type, host, convert_to_host, convert_to_disk) \
    typedef struct {                                                 \
        uint8_t bytes[sizeof(host)];                                 \
    } type;                                                          \
    static inline host type##_get(type value)                        \
    {                                                                \
        host raw;                                                    \
        memcpy(&raw, value.bytes, sizeof(raw));                      \
        return convert_to_host(raw);                                 \
    }                                                                \
    static inline type type##_make(host value)                       \
    {                                                                \
        type result;                                                 \
        host raw = convert_to_disk(value);                           \
        memcpy(result.bytes, &raw, sizeof(raw));                     \
        return result;                                               \
    }

BYTEORDER_TYPE(le16, uint16_t, le16toh, htole16)
BYTEORDER_TYPE(le32, uint32_t, le32toh, htole32)
BYTEORDER_TYPE(le64, uint64_t, le64toh, htole64)
BYTEORDER_TYPE(be16, uint16_t, be16toh, htobe16)
BYTEORDER_TYPE(be32, uint32_t, be32toh, htobe32)
BYTEORDER_TYPE(be64, uint64_t, be64toh, htobe64)

/* Reads from a place in a buffer, of any alignment. */
static inline uint16_t le16_at(const void *place)
{
    le16 value;
    memcpy(&value, place, sizeof(value));
    return le16_get(value);
}

static inline uint32_t le32_at(const void *place)
{
    le32 value;
    memcpy(&value, place, sizeof(value));
    return le32_get(value);
}

static inline uint32_t be32_at(const void *place)
{
    be32 value;
    memcpy(&value, place, sizeof(value));
    return be32_get(value);
}

#endif
