/* base/hash.h - FNV-1a, 64 bits (Fowler, Noll and Vo; draft-eastlake-fnv).
 *
 * It detects data that changed by accident: two different contents have the same hash with
 * probability 2^-64. It does not resist an attacker, who can construct a collision. It is
 * specified, short, and needs no library. Not installed.
 */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_START ((uint64_t)0xcbf29ce484222325u)

/* Continues `hash`, which is HASH_START at first, with more data. */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* The hash of a text, without its NUL. */
static inline uint64_t hash_text(const char *text)
{
    return hash_bytes(HASH_START, text, strlen(text));
}

/* Continues `hash` with a number's bytes, the lowest first on every machine. */
static inline uint64_t hash_number(uint64_t hash, uint64_t number)
{
    for (int i = 0; i < 8; i++) hash = (hash ^ (number >> 8 * i & 0xFF)) * 0x100000001b3u;
    return hash;
}

#endif
