/* The common part of the searches: options and sequences, a token step of the model for all rows,
 * the log probabilities of a row, the result.
 *
 * The model holds its sentences in slots 0 .. n_slots - 1. A finished sentence is removed from the
 * model, and the last slot's sentence moves to its slot. The search's own rows do not move. */
#ifndef WEFT_MODELS_SEARCH_H
#define WEFT_MODELS_SEARCH_H

#include "sampler.h"

typedef struct search {
    const weft_search_model *model;
    const weft_search_input *inputs;
    const weft_search_options *o; /* &filled */
    weft_search_options filled;
    weft_sampling_options sampling; /* of `filled`, greedy */
    weft_sampler *sampler;
    weft_error *error;
    int64_t rows, vocab, n; /* n: number of inputs */
    int64_t width;          /* maximum number of tokens of a sequence, prefix included */
    int64_t position;       /* of the tokens that the next token step reads */
    int32_t *sequences;     /* [rows][width], prefix included */
    double *token_logs;     /* [rows][width], the log probabilities of tokens, prefix excluded */
    int32_t *spare;         /* [rows][width], for reordering */
    int32_t *parents;       /* [rows], of the next token step */
    int32_t *fed;           /* [2][rows]: tokens and parents in the order of slots */
    int32_t *slot;          /* [n]: the slot of a sentence; -1: removed */
    int32_t *in_slot;       /* [n_slots]: the sentence in a slot; -1: none */
    int32_t *retained;      /* [sentences]: scratch, the former slots of those retained */
    int64_t n_slots;
    bool *done;       /* [n] */
    uint8_t *ending;  /* [vocab], `eos` and the other ends */
    int32_t *ends;    /* the same, in a list */
    weft_tensor logs; /* of the last token step */
    weft_search_result *result;
} search;

/* Sets an error about the arguments; returns false. */
bool weft__search_refuse(weft_error *error, const char *message);
/* The options of choosing a token, with zeros for defaults. */
weft_sampling_options weft__search_sampling(const weft_search_options *o);
/* calloc, of one element at least. */
void *weft__search_zeros(size_t count, size_t size);
/* Checks options and inputs, allocates, and reads the tokens that every prefix has before its last.
 * False after an error. Call weft__search_finish in either case. */
bool weft__search_begin(search *s, const weft_search_model *model, const weft_search_input *inputs,
                        size_t n, const weft_search_options *options, weft_error *error);
/* Steps the model with the tokens of all rows at the current position; idle rows read token 0. */
bool weft__search_step(search *s);
/* The number of new tokens that a sentence has before the one that the last token step predicts.
 * Below 0: the next token is in the prefix. */
int64_t weft__search_found(const search *s, int64_t sentence);
/* The row as the sampler sees it. */
weft_sampling_row weft__search_row(const search *s, int64_t row);
/* Scans the log probabilities of a row (weft__sampler_scan); false after an error. */
bool weft__search_scan_row(search *s, const weft_sampling_row *row, int64_t sentence);
/* Appends a copy of a hypothesis to the result. Call in the order of sentences. */
bool weft__search_add(search *s, int64_t sentence, const weft_hypothesis *h);
/* Frees the search. Returns the result if `good`, else frees it and returns NULL. */
weft_search_result *weft__search_finish(search *s, bool good);

#endif
