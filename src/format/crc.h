/* SPDX-License-Identifier: MIT */
/* The two checksums of the format; both may be continued piece by piece. */
#ifndef UEXT4_FORMAT_CRC_H
#define UEXT4_FORMAT_CRC_H

#include <stddef.h>
#include <stdint.h>

/* crc32c (Castagnoli), neither inverted at the start nor at the end: start with ~0u. */
uint32_t crc32c(uint32_t crc, const void *data, size_t length);

/* crc16 (polynomial 0x8005, reflected), as gdt_csum uses it: start with 0xffff. */
uint16_t crc16(uint16_t crc, const void *data, size_t length);

/* crc32 (IEEE, big-endian bit order), as the journal's checksum v1 uses it: start with ~0u. */
uint32_t crc32_be(uint32_t crc, const void *data, size_t length);

#endif
