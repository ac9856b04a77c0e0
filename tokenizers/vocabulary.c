/* A hash table with open addressing, from pieces to ids. */
#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

/* Eight bytes a step, mixed by a multiplication of 64 bits to 128 (as wyhash does, Wang Yi). */
static uint64_t mix(uint64_t a, uint64_t b)
{
    a *= 0x9E3779B97F4A7C15u;
    a ^= a >> 32;
    b = (b ^ a) * 0xD6E8FEB86659FD93u;
    return b ^ b >> 29;
}

uint64_t weft__tk_hash(uint64_t seed, const char *bytes, size_t n)
{
    uint64_t h = seed ^ n;
    for (; n >= 8; n -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = mix(word, h);
    }
    uint64_t rest = 0;
    for (size_t i = 0; i < n; i++) rest |= (uint64_t)(unsigned char)bytes[i] << 8 * i;
    return mix(rest, h);
}

/* The slot of a piece, or the empty one where it belongs. */
static size_t find_slot(const tk_vocabulary *v, const char *bytes, size_t n)
{
    size_t at = weft__tk_hash(v->seed, bytes, n) & (v->n_slots - 1);
    for (; v->slots[at]; at = (at + 1) & (v->n_slots - 1)) {
        const tk_entry *e = &v->entries[v->slots[at] - 1];
        if (e->bytes == n && !memcmp(e->piece, bytes, n)) break;
    }
    return at;
}

static bool grow_slots(tk_vocabulary *v)
{
    const size_t n = v->n_slots ? 2 * v->n_slots : 1024;
    int32_t *slots = calloc(n, sizeof *slots);
    if (!slots) return false;
    if (!v->seed) v->seed = (uint64_t)(uintptr_t)slots * 0x9E3779B97F4A7C15u;
    free(v->slots);
    v->slots = slots;
    v->n_slots = n;
    for (int32_t id = 0; id < v->size; id++)
        if (v->entries[id].piece)
            slots[find_slot(v, v->entries[id].piece, v->entries[id].bytes)] = id + 1;
    return true;
}

bool weft__tk_vocabulary_add(tk_vocabulary *v, const char *piece, int32_t id)
{
    if (2 * (v->n + 1) > v->n_slots && !grow_slots(v)) return false;
    if ((size_t)id >= v->capacity) {
        size_t capacity = v->capacity < 256 ? 256 : 2 * v->capacity;
        if (capacity <= (size_t)id) capacity = (size_t)id + 1;
        tk_entry *entries = realloc(v->entries, capacity * sizeof *entries);
        if (!entries) return false;
        memset(entries + v->capacity, 0, (capacity - v->capacity) * sizeof *entries);
        v->entries = entries;
        v->capacity = capacity;
    }
    const size_t n = strlen(piece), slot = find_slot(v, piece, n);
    v->entries[id] = (tk_entry){piece, (uint32_t)n};
    v->slots[slot] = id + 1;
    v->n++;
    if (id >= v->size) v->size = id + 1;
    return true;
}

int32_t weft__tk_vocabulary_find(const tk_vocabulary *v, const char *bytes, size_t n)
{
    return v->n_slots ? v->slots[find_slot(v, bytes, n)] - 1 : -1;
}

const char *weft__tk_vocabulary_piece(const tk_vocabulary *v, int32_t id)
{
    return id >= 0 && id < v->size && v->entries[id].piece ? v->entries[id].piece : "";
}

void weft__tk_vocabulary_free(tk_vocabulary *v)
{
    free(v->entries);
    free(v->slots);
}
