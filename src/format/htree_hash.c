/* SPDX-License-Identifier: MIT */
/*
 * The hash functions of the directory index: legacy, half MD4, TEA, each with the names' bytes
 * taken as signed or unsigned. They are part of the format; all arithmetic is modulo 2^32. Pure
 * functions without locks, called by the dir layer.
 */
#include <string.h>

#include "base/compiler.h"
#include "format/dirent.h"

#define HALF_MD4_WORDS 8
#define TEA_WORDS      4

/* Readers of directories use the largest hash as the end of the directory. */
#define HASH_END 0xfffffffeu

static uint32_t byte_value(char byte, bool is_unsigned)
{
    return is_unsigned ? (uint32_t)(unsigned char)byte : (uint32_t)(int32_t)(signed char)byte;
}

static uint32_t rotate_left(uint32_t value, unsigned int bits)
{
    return value << bits | value >> (32 - bits);
}

static uint32_t legacy_hash(const char *name, size_t length, bool is_unsigned)
{
    uint32_t current = 0x12a3fe2d, previous = 0x37abe8f9;
    for (size_t i = 0; i < length; i++) {
        uint32_t next = previous + (current ^ (byte_value(name[i], is_unsigned) * 7152373u));
        if ((next & 0x80000000u) != 0)
            next -= 0x7fffffffu;
        previous = current;
        current = next;
    }
    return current << 1;
}

/*
 * Packs a piece of the name into words, first byte highest. Words that the name does not fill are
 * padded with the length (of all that is left of the name) repeated in every byte.
 */
static void pack_words(const char *name, size_t length, bool is_unsigned, uint32_t *words,
                       size_t word_count)
{
    uint32_t padding = (uint32_t)length * 0x01010101u;
    if (length > word_count * 4)
        length = word_count * 4;
    for (size_t word = 0; word < word_count; word++) {
        uint32_t value = padding;
        for (size_t i = word * 4; i < length && i < word * 4 + 4; i++)
            value = (value << 8) + byte_value(name[i], is_unsigned);
        words[word] = value;
    }
}

/* Three rounds of eight steps of MD4 instead of sixteen: order of words and shifts of each. */
static void half_md4(uint32_t state[4], const uint32_t words[HALF_MD4_WORDS])
{
    static const uint8_t order[3][HALF_MD4_WORDS] = {
        {0, 1, 2, 3, 4, 5, 6, 7}, {1, 3, 5, 7, 0, 2, 4, 6}, {3, 7, 2, 6, 1, 5, 0, 4}};
    static const uint8_t shifts[3][4] = {{3, 7, 11, 19}, {3, 5, 9, 13}, {3, 9, 11, 15}};
    static const uint32_t constants[3] = {0, 0x5a827999, 0x6ed9eba1};
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];

    for (unsigned int round = 0; round < 3; round++) {
        for (unsigned int step = 0; step < HALF_MD4_WORDS; step++) {
            uint32_t mixed;
            if (round == 0)
                mixed = (b & c) | (~b & d);
            else if (round == 1)
                mixed = (b & c) | (b & d) | (c & d);
            else
                mixed = b ^ c ^ d;
            uint32_t sum = a + mixed + words[order[round][step]] + constants[round];
            a = d;
            d = c;
            c = b;
            b = rotate_left(sum, shifts[round][step % 4]);
        }
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

/* Sixteen cycles of the Tiny Encryption Algorithm; the words are the key. */
static void tea(uint32_t state[4], const uint32_t key[TEA_WORDS])
{
    uint32_t left = state[0], right = state[1], sum = 0;
    for (unsigned int cycle = 0; cycle < 16; cycle++) {
        sum += 0x9e3779b9;
        left += ((right << 4) + key[0]) ^ (right + sum) ^ ((right >> 5) + key[1]);
        right += ((left << 4) + key[2]) ^ (left + sum) ^ ((left >> 5) + key[3]);
    }
    state[0] += left;
    state[1] += right;
}

static void initial_state(const struct superblock *sb, uint32_t state[4])
{
    static const uint32_t builtin[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    const uint32_t *seed = sb->hash_seed;
    bool has_seed = (seed[0] | seed[1] | seed[2] | seed[3]) != 0;
    memcpy(state, has_seed ? seed : builtin, sizeof(builtin));
}

bool htree_hash_name(const struct superblock *sb, uint8_t version, const char *name, size_t length,
                     struct htree_hash *result)
{
    uint32_t words[MAX(HALF_MD4_WORDS, TEA_WORDS)], state[4];
    bool is_unsigned = sb->is_hash_unsigned;

    if (version >= HTREE_HASH_LEGACY_UNSIGNED && version <= HTREE_HASH_TEA_UNSIGNED) {
        version -= HTREE_HASH_LEGACY_UNSIGNED;
        is_unsigned = true;
    }
    initial_state(sb, state);
    switch (version) {
    case HTREE_HASH_LEGACY:
        result->major = legacy_hash(name, length, is_unsigned);
        result->minor = 0;
        break;
    case HTREE_HASH_HALF_MD4:
        for (size_t done = 0; done < length; done += HALF_MD4_WORDS * 4) {
            pack_words(name + done, length - done, is_unsigned, words, HALF_MD4_WORDS);
            half_md4(state, words);
        }
        result->major = state[1];
        result->minor = state[2];
        break;
    case HTREE_HASH_TEA:
        for (size_t done = 0; done < length; done += TEA_WORDS * 4) {
            pack_words(name + done, length - done, is_unsigned, words, TEA_WORDS);
            tea(state, words);
        }
        result->major = state[0];
        result->minor = state[1];
        break;
    default:
        return false;
    }
    result->major &= ~1u;
    if (result->major == HASH_END)
        result->major = HASH_END - 2;
    return true;
}
