/* state.h - a tokeniser as its file describes it. It does not change; a call gets its memory from
 * `works`. Not installed. */
#ifndef WEFT_TOKENIZERS_STATE_H
#define WEFT_TOKENIZERS_STATE_H

#include "regex.h"
#include "trie.h"
#include "vocabulary.h"
#include "work.h"

#include <stdatomic.h>

/* ---- Normalisers ---- */

typedef struct tk_normalizer tk_normalizer;
/* Appends to w->next_text what bytes [begin, end) of w->text become. */
typedef void tk_normalize(const tk_normalizer *self, tk_work *w, size_t begin, size_t end);

tk_normalize weft__tk_clean, weft__tk_space_ideographs, weft__tk_drop_nonspacing,
    weft__tk_drop_marks, weft__tk_lower, weft__tk_nmt, weft__tk_strip, weft__tk_replace,
    weft__tk_prepend, weft__tk_form, weft__tk_map_characters, weft__tk_level;

/* SentencePiece's map of characters: a double array, and the texts that its values point to. */
typedef struct tk_charsmap {
    uint32_t *units;
    size_t n_units;
    char *texts;
    size_t n_texts;
} tk_charsmap;

struct tk_normalizer {
    tk_normalize *apply;      /* NULL: the texts do not change */
    bool left, right;         /* Strip */
    bool compatible, compose; /* the forms of Unicode */
    tk_regex *pattern;        /* Replace */
    char *content;            /* Replace, Prepend */
    tk_charsmap charsmap;
};

/* ---- Pre-tokenisers ---- */

typedef struct tk_splitter tk_splitter;
/* Makes w->next_pieces of w->pieces. */
typedef void tk_split(const tk_splitter *self, tk_work *w);

typedef enum tk_behavior {
    TK_REMOVED,
    TK_ISOLATED,
    TK_MERGED_WITH_PREVIOUS,
    TK_MERGED_WITH_NEXT,
    TK_CONTIGUOUS,
} tk_behavior;

typedef enum tk_prepend { TK_PREPEND_ALWAYS, TK_PREPEND_FIRST, TK_PREPEND_NEVER } tk_prepend;

tk_split weft__tk_split_pattern, weft__tk_split_level, weft__tk_split_metaspace;

struct tk_splitter {
    tk_split *apply;
    tk_regex *pattern;
    bool (*is_match)(uint32_t character); /* without a pattern */
    tk_behavior behavior;
    bool invert;
    bool prefix_space, use_regex; /* ByteLevel */
    tk_prepend prepend;           /* Metaspace */
    bool split;
    char replacement[8];
};

/* ---- Models ---- */

typedef struct tk_model tk_model;
struct tk_model {
    /* Appends the tokens of bytes [begin, end) of w->text. */
    weft_status (*encode)(const tk_model *self, tk_work *w, size_t begin, size_t end);
    tk_vocabulary vocabulary; /* and the added tokens */
    char *texts;              /* of the model's pieces */
    int32_t own_size;         /* ids of the model's pieces are below */
    const char *type;
    int32_t unk; /* -1: none */
    bool byte_fallback, fuse_unk, ignore_merges;
    int32_t byte_ids[256];  /* of <0x00> ... <0xFF>, or byte level; -1: none */
    int32_t level_ids[256]; /* of the characters that bytes are mapped to; -1: none */
    bool has_level;         /* all of these exist, and nothing is added to them */
    char *prefix, *suffix;  /* of continuing pieces, of the end of a word; or NULL */
    struct tk_pair *pairs;  /* BPE: a hash table */
    size_t n_pairs;         /* a power of two */
    size_t max_characters;  /* WordPiece */
    size_t longest;         /* bytes of the longest piece */
    tk_trie trie;           /* Unigram */
    double *scores;
    double unk_score;
};

/* ---- Added tokens ---- */

typedef struct tk_added {
    char *content;
    char *decoded; /* what an id is decoded to: the normalised content; or NULL */
    int32_t id;
    bool single_word, left, right, normalized, special;
} tk_added;

typedef struct tk_added_set {
    tk_trie trie;    /* of the contents; values are indices of tk_state.added */
    bool first[256]; /* bytes that one begins with */
    bool any;
} tk_added_set;

/* ---- Post-processors ---- */

/* A part of a template: a text, or ids. */
typedef struct tk_part {
    int source; /* 0, 1: the text, the pair; -1: ids */
    int32_t *ids;
    size_t n_ids;
    int32_t type;
} tk_part;

typedef struct tk_template {
    tk_part *parts;
    size_t n;
} tk_template;

typedef struct tk_processor {
    bool trims, prefix_space; /* ByteLevel, RobertaProcessing */
    bool has_template;
    tk_template single, pair;
} tk_processor;

/* ---- Decoders ---- */

typedef struct tk_decoder tk_decoder;
/* Makes w->next_chain of w->chain. */
typedef void tk_decode(const tk_decoder *self, tk_work *w);
struct tk_decoder {
    tk_decode *apply;
    char *prefix; /* of WordPiece, the suffix of BPEDecoder, the content of Replace and Strip */
    tk_regex *pattern;
    bool cleanup, keeps_first;
    size_t start, stop; /* Strip */
    uint32_t character; /* Strip, Metaspace */
};

#define TK_WORKS 16
typedef struct tk_state {
    tk_normalizer *normalizers;
    size_t n_normalizers;
    tk_splitter *splitters;
    size_t n_splitters;
    tk_model model;
    tk_added *added;
    size_t n_added;
    tk_added_set raw, normalized; /* of texts as they are, and after normalisation */
    tk_processor *processors;
    size_t n_processors;
    tk_decoder *decoders;
    size_t n_decoders;
    uint8_t *roles;       /* [vocabulary.size] */
    const char **decoded; /* [vocabulary.size]: what to decode instead of a piece; or NULL */
    _Atomic(tk_work *) works[TK_WORKS];
} tk_state;

void weft__tk_state_free(tk_state *s);

/* A work for one call; NULL if out of memory. */
tk_work *weft__tk_take_work(tk_state *s, weft_error *error);
/* Gives it back. The status of what was done: WEFT_NO_MEMORY if w->failed. */
weft_status weft__tk_return_work(tk_state *s, tk_work *w, weft_status status);

/* ---- Stages (split.c, added.c, normalize.c, ...) ---- */

void weft__tk_find_added(const tk_state *s, const tk_added_set *set, tk_work *w, bool with_special);
/* Normalises the pieces that are text. */
void weft__tk_normalize_pieces(const tk_state *s, tk_work *w);
void weft__tk_split_pieces(const tk_state *s, tk_work *w);
/* w->text becomes the text after normalisation. */
weft_status weft__tk_normalized_text(const tk_state *s, tk_work *w, const char *text);
/* w->tokens become those of the text, without special ones that a processor adds. */
weft_status weft__tk_encode_text(const tk_state *s, tk_work *w, const char *text,
                                 bool with_special);

weft_status weft__tk_bpe_encode(const tk_model *m, tk_work *w, size_t begin, size_t end);
weft_status weft__tk_wordpiece_encode(const tk_model *m, tk_work *w, size_t begin, size_t end);
weft_status weft__tk_wordlevel_encode(const tk_model *m, tk_work *w, size_t begin, size_t end);
weft_status weft__tk_unigram_encode(const tk_model *m, tk_work *w, size_t begin, size_t end);

#endif
