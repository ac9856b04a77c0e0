/* The merges of a SentencePiece vocabulary, from the scores of its pieces: two pieces are merged if
 * together they are a piece, those of a higher score first. Where a piece has several pairs, the
 * order is that of generate_merges in transformers, convert_slow_tokenizer.py. O(bytes of the
 * pieces x MAX_PIECE_BYTES + n log n). */
#include "tokenizer.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* Longer ones are refused, because they would take O(bytes^2). */
#define MAX_PIECE_BYTES 256

typedef struct merge {
    double score;
    size_t whole, left, right; /* ids */
    int left_length, right_length;
} merge;

typedef struct merges {
    const gguf_pieces *pieces;
    name_table ids;
    merge *at;
    size_t n, capacity;
} merges;

static bool add(merges *m, merge one)
{
    if (m->n == m->capacity) {
        const size_t capacity = m->capacity ? 2 * m->capacity : 1024;
        merge *grown = realloc(m->at, capacity * sizeof *grown);
        if (!grown) return false;
        m->at = grown;
        m->capacity = capacity;
    }
    m->at[m->n++] = one;
    return true;
}

/* Adds the pairs of a piece; false if out of memory. */
static bool split(merges *m, size_t id)
{
    char left[MAX_PIECE_BYTES + 1];
    const char *piece = m->pieces->at[id];
    weft_gguf_value score;
    weft_gguf_value_item(m->pieces->scores, id, &score);
    for (size_t at = weft__text_character_bytes(piece), bytes; piece[at]; at += bytes) {
        bytes = weft__text_character_bytes(piece + at);
        memcpy(left, piece, at);
        left[at] = 0;
        const size_t *a = weft__name_table_find(&m->ids, left),
                     *b = a ? weft__name_table_find(&m->ids, piece + at) : NULL;
        const merge one = {.score = score.number, .whole = id};
        if (!b) continue;
        merge pair = one;
        pair.left = *a;
        pair.right = *b;
        pair.left_length = weft__text_length(left);
        pair.right_length = weft__text_length(piece + at);
        if (!add(m, pair)) return false;
    }
    return true;
}

static int by_rank(const void *x, const void *y)
{
    const merge *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    if (a->left_length != b->left_length) return b->left_length - a->left_length;
    if (a->right_length != b->right_length) return b->right_length - a->right_length;
    if (a->whole != b->whole) return a->whole < b->whole ? -1 : 1;
    return (a->left > b->left) - (a->left < b->left);
}

/* Finds all pairs, in the order of their ranks. */
static bool find_all(gguf_text *t, merges *m)
{
    const gguf_pieces *p = m->pieces;
    for (size_t i = 0; i < p->n; i++)
        if (!weft__name_table_put(&m->ids, p->at[i], i)) return false;
    for (size_t i = 0; i < p->n && t->status == WEFT_OK; i++) {
        weft_gguf_value type = {.integer = 1};
        if (p->types) weft_gguf_value_item(p->types, i, &type);
        if (type.integer != 1) continue; /* neither special nor a byte */
        if (strlen(p->at[i]) > MAX_PIECE_BYTES)
            weft__gguf_refuse(t, WEFT_BAD_FILE, "piece %zu has %zu bytes; expected at most %d", i,
                              strlen(p->at[i]), MAX_PIECE_BYTES);
        else if (!split(m, i))
            return false;
    }
    if (m->n) qsort(m->at, m->n, sizeof *m->at, by_rank);
    return true;
}

void weft__gguf_put_merges(gguf_text *t, const gguf_pieces *pieces)
{
    merges m = {.pieces = pieces};
    if (t->status == WEFT_OK && !find_all(t, &m)) weft__gguf_refuse(t, WEFT_NO_MEMORY, "no memory");
    for (size_t i = 0; i < m.n && t->status == WEFT_OK; i++) {
        weft__gguf_put(t, i ? ",[" : "[");
        weft__gguf_put_string(t, pieces->at[m.at[i].left], "");
        weft__gguf_put(t, ",");
        weft__gguf_put_string(t, pieces->at[m.at[i].right], "");
        weft__gguf_put(t, "]");
    }
    free(m.at);
    weft__name_table_free(&m.ids);
}
