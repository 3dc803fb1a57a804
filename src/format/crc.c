/* SPDX-License-Identifier: MIT */
/*
 * Checksums. The 32-bit ones come from ISA-L, whose lengths are of type int and whose conventions
 * differ: crc32_iscsi inverts nothing, crc32_ieee inverts the seed and the result. No state, no
 * locks; called by everything that verifies or writes metadata.
 */
#include "format/crc.h"

#include <isa-l/crc.h>

#include "base/compiler.h"

/* The largest piece given to ISA-L at once; its lengths are signed. */
#define PIECE_BYTES ((size_t)1 << 30)

/* Remainders of the 16 values of four bits for the reflected polynomial 0xa001. */
static const uint16_t crc16_nibbles[16] = {
    0x0000, 0xcc01, 0xd801, 0x1400, 0xf001, 0x3c00, 0x2800, 0xe401,
    0xa001, 0x6c00, 0x7800, 0xb401, 0x5000, 0x9c01, 0x8801, 0x4400,
};

uint32_t crc32c(uint32_t crc, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    while (length > 0) {
        size_t piece = MIN(length, PIECE_BYTES);
        /* The library does not write to the buffer, but its prototype lacks the const. */
        crc = crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)piece, crc);
        bytes += piece;
        length -= piece;
    }
    return crc;
}

uint16_t crc16(uint16_t crc, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++) {
        crc = (uint16_t)((crc >> 4) ^ crc16_nibbles[(crc ^ bytes[i]) & 0xf]);
        crc = (uint16_t)((crc >> 4) ^ crc16_nibbles[(crc ^ (bytes[i] >> 4)) & 0xf]);
    }
    return crc;
}

uint32_t crc32_be(uint32_t crc, const void *data, size_t length)
{
    return ~crc32_ieee(~crc, data, length);
}
