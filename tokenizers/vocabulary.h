/* vocabulary.h - the pieces of a tokeniser and their ids. Not installed. */
#ifndef WEFT_TOKENIZERS_VOCABULARY_H
#define WEFT_TOKENIZERS_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tk_entry {
    const char *piece; /* NULL: no piece has this id */
    uint32_t bytes;
} tk_entry;

typedef struct tk_vocabulary {
    tk_entry *entries; /* [size], by id */
    int32_t size;
    size_t capacity;
    int32_t *slots; /* a hash table of ids + 1 */
    size_t n_slots, n;
    uint64_t seed;
} tk_vocabulary;

uint64_t weft__tk_hash(uint64_t seed, const char *bytes, size_t n);

/* Adds a piece, which must outlive the vocabulary; another with the same id or name must not be
 * there. False if out of memory. */
bool weft__tk_vocabulary_add(tk_vocabulary *v, const char *piece, int32_t id);
/* The id of n bytes; -1 if they are not a piece. */
int32_t weft__tk_vocabulary_find(const tk_vocabulary *v, const char *bytes, size_t n);
/* The piece of an id; "" if there is none. */
const char *weft__tk_vocabulary_piece(const tk_vocabulary *v, int32_t id);
void weft__tk_vocabulary_free(tk_vocabulary *v);

#endif
