/* work.h - what one call of a tokeniser works on: texts that remember where their bytes come from,
 * the pieces that they are split into, and tokens. A call takes one from its tokeniser and puts it
 * back, so its memory is used again. Not installed. */
#ifndef WEFT_TOKENIZERS_WORK_H
#define WEFT_TOKENIZERS_WORK_H

#include <weft/text.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* UTF-8, and for each byte the bytes of the original text that it stands for. */
typedef struct tk_text {
    char *bytes;
    weft_text_span *spans;
    size_t n, capacity;
} tk_text;

/* Bytes [begin, end) of the current text. */
typedef struct tk_piece {
    size_t begin, end;
    int32_t id; /* of an added token; -1: text that the model reads */
} tk_piece;

/* A range that a pattern matched, or one between two of these. */
typedef struct tk_match {
    size_t begin, end;
    bool is_match;
} tk_match;

/* A character of a text that replaces another: `change` is 1 for one that is inserted, 0 for one
 * that replaces one, and -n for one that replaces n + 1. */
typedef struct tk_change {
    uint32_t character;
    int32_t change;
    uint32_t order; /* before characters were put in canonical order */
} tk_change;

typedef struct tk_token {
    int32_t id;
    weft_text_span span; /* in the original text */
    /* Spaces at its ends, which may be left out of the span; -1: those of its piece. */
    int32_t leading, trailing;
} tk_token;

/* A symbol of BPE, in a list of those that remain. */
typedef struct tk_symbol {
    int32_t id;
    int32_t previous, next; /* -1: none */
    uint32_t bytes;         /* 0: merged into another */
} tk_symbol;

typedef struct tk_merge {
    uint32_t rank;
    int32_t position, id;
} tk_merge;

/* A node of the best path of Unigram, which ends at a byte. */
typedef struct tk_node {
    double score;
    size_t begin;
    int32_t id; /* -1: no path ends here */
} tk_node;

/* A word that BPE has read before. */
typedef struct tk_cached {
    uint64_t hash;
    uint32_t offset; /* in tk_cache.memory: the tokens, then the word */
    uint16_t bytes, tokens;
} tk_cached;

typedef struct tk_cache {
    tk_cached *words;
    int32_t *memory;
    size_t n, capacity; /* of the memory, in units of 4 bytes */
} tk_cache;

/* Tokens on their way to a text: the bytes of all, who owns each, and where each token ends. */
typedef struct tk_chain {
    char *bytes;
    uint32_t *owners; /* the index of the id that a byte comes from */
    size_t n, capacity;
    size_t *ends;
    size_t n_tokens, tokens_capacity;
} tk_chain;

typedef struct tk_work tk_work;

/* Puts a piece of the text into the next text. */
typedef void tk_copy(const void *self, tk_work *w, tk_piece p);

struct tk_work {
    bool failed;           /* what was pushed is incomplete: memory ran out, or */
    const char *too_large; /* what was too large; else NULL */
    bool mapped; /* the pieces are bytes, which the model maps to characters (byte level) */
    tk_text text, next_text;
    tk_piece *pieces, *next_pieces;
    size_t n_pieces, pieces_capacity, n_next, next_capacity;
    tk_match *matches;
    size_t n_matches, matches_capacity;
    tk_change *changes;
    size_t n_changes, changes_capacity;
    tk_token *tokens;
    size_t n_tokens, tokens_capacity;
    tk_symbol *symbols;
    size_t n_symbols, symbols_capacity;
    tk_merge *heap;
    size_t n_heap, heap_capacity;
    tk_node *path;
    size_t path_capacity;
    char *buffer; /* of a piece that is looked up */
    size_t buffer_capacity;
    tk_cache cache;
    tk_chain chain, next_chain;
    bool raw;         /* decoded bytes that are not UTF-8 stay, instead of becoming U+FFFD */
    void *match_data; /* of PCRE2 */
    weft_error *error;
};

void weft__tk_work_free(tk_work *w);

/* Makes room for `need` elements of `size` bytes in the array *array; false, and w->failed, if
 * memory is out. */
bool weft__tk_reserve(tk_work *w, void *array, size_t *capacity, size_t need, size_t size);

/* ---- Texts ---- */

void weft__tk_put(tk_work *w, tk_text *t, const char *bytes, size_t n, weft_text_span span);
/* Appends bytes of another text with the spans that they have there. */
void weft__tk_copy(tk_work *w, tk_text *t, const tk_text *from, size_t begin, size_t end);
/* Appends bytes [begin, end) of w->text to w->next_text with w->changes instead of their
 * characters; the first `skipped` of these are left out. */
void weft__tk_transform(tk_work *w, size_t begin, size_t end, size_t skipped);
void weft__tk_change(tk_work *w, uint32_t character, int32_t change);
/* w->next_text becomes w->text, and empty. */
void weft__tk_swap_texts(tk_work *w);
/* Writes the next text: pieces with an id as they are, and for the others what `copy` puts there.
 * It becomes the text, and its pieces the pieces. */
void weft__tk_rewrite(tk_work *w, tk_copy *copy, const void *self);

void weft__tk_piece(tk_work *w, size_t begin, size_t end, int32_t id);
/* w->next_pieces become w->pieces. */
void weft__tk_swap_pieces(tk_work *w);
void weft__tk_match(tk_work *w, size_t begin, size_t end, bool is_match);
/* Appends the token of bytes [begin, end) of w->text. */
void weft__tk_token(tk_work *w, int32_t id, size_t begin, size_t end);

#endif
