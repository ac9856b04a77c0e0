/* Linear probing in a table that doubles when it is half full; O(length of the name) expected.
 *
 * Names come from files, and a file could be made of names with one hash. So the hash has a secret
 * key, the addresses of the table: SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast
 * short-input PRF", 2012). Nothing that a program sees depends on the key, since tables have no
 * order. */
#include "name_table.h"

#include <stdlib.h>
#include <string.h>

/* ---- The hash ---- */

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void mix(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32) + v[3];
    v[2] += v[1];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static uint64_t hash_of(const uint64_t key[2], const char *name)
{
    const size_t length = strlen(name);
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    for (size_t i = 0; i <= length; i += 8) {
        const size_t n = length - i < 8 ? length - i : 8;
        uint64_t word = 0;
        memcpy(&word, name + i, n);
        if (n < 8) word ^= (uint64_t)length << 56; /* the last word has room for the length */
        v[3] ^= word;
        mix(v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- The table ---- */

/* The entry of a name, or the empty one that it would take; the table must have room. */
static name_entry *find(const name_table *table, const char *name, uint64_t hash)
{
    size_t i = hash & (table->capacity - 1);
    for (; table->entries[i].name; i = (i + 1) & (table->capacity - 1))
        if (table->entries[i].hash == hash && !strcmp(table->entries[i].name, name)) break;
    return &table->entries[i];
}

/* The addresses of the heap and of the stack, which differ from run to run. */
static void choose_key(name_table *table)
{
    table->key[0] = (uint64_t)(uintptr_t)table->entries * 0x9E3779B97F4A7C15u;
    table->key[1] = (uint64_t)(uintptr_t)&table * 0xC2B2AE3D27D4EB4Fu ^ table->key[0] >> 32;
}

bool weft__name_table_reserve(name_table *table, size_t more)
{
    const name_table old = *table;
    const size_t wanted = old.count + more;
    size_t capacity = old.capacity ? old.capacity : 16;
    if (more > SIZE_MAX / sizeof *old.entries / 8 - old.count) return false;
    while (capacity / 2 < wanted) capacity *= 2;
    if (capacity == old.capacity) return true;
    const size_t bytes = capacity * sizeof *old.entries;
    name_entry *entries = old.memory ? weft__arena_alloc(old.memory, bytes) : calloc(1, bytes);
    if (!entries) return false;
    table->entries = entries;
    table->capacity = capacity;
    if (!old.capacity) choose_key(table);
    for (size_t i = 0; i < old.capacity; i++) {
        const name_entry *e = &old.entries[i];
        size_t at = e->hash & (capacity - 1);
        if (!e->name) continue;
        while (entries[at].name) at = (at + 1) & (capacity - 1);
        entries[at] = *e;
    }
    if (!old.memory) free(old.entries);
    return true;
}

size_t *weft__name_table_find(const name_table *table, const char *name)
{
    if (!table->count) return NULL;
    name_entry *e = find(table, name, hash_of(table->key, name));
    return e->name ? &e->number : NULL;
}

size_t *weft__name_table_put(name_table *table, const char *name, size_t number)
{
    if (!weft__name_table_reserve(table, 1)) return NULL;
    const uint64_t hash = hash_of(table->key, name);
    name_entry *e = find(table, name, hash);
    if (e->name) return &e->number;
    *e = (name_entry){name, hash, number};
    table->count++;
    return &e->number;
}

void weft__name_table_clear(name_table *table)
{
    if (table->entries) memset(table->entries, 0, table->capacity * sizeof *table->entries);
    table->count = 0;
}

void weft__name_table_free(name_table *table)
{
    if (!table->memory) free(table->entries);
    *table = (name_table){.memory = table->memory};
}
