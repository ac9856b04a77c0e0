/* The common part of the searches: options and sequences, a token step of the model for all rows,
 * the log probabilities of a row, the result.
 *
 * The model holds its sentences in slots 0 .. n_slots - 1. A finished sentence is removed from the
 * model, and the last slot's sentence moves to its slot. The search's own rows do not move. */
#ifndef WEFT_MODELS_SEARCH_H
#define WEFT_MODELS_SEARCH_H

#include <weft/decode.h>

/* Log probabilities in a block, whose maximum is computed once. */
#define BLOCK 64

typedef struct search {
    const weft_search_model *model;
    const weft_search_input *inputs;
    const weft_search_options *o; /* &filled */
    weft_search_options filled;
    weft_error *error;
    int64_t rows, vocab, n; /* n: number of inputs */
    int64_t width;          /* maximum number of tokens of a sequence, prefix included */
    int64_t position;       /* of the tokens that the next token step reads */
    int32_t *sequences;     /* [rows][width], prefix included */
    int32_t *spare;         /* [rows][width], for reordering */
    int32_t *parents;       /* [rows], of the next token step */
    int32_t *fed;           /* [2][rows]: tokens and parents in the order of slots */
    int32_t *slot;          /* [n]: the slot of a sentence; -1: removed */
    int32_t *in_slot;       /* [n_slots]: the sentence in a slot; -1: none */
    int32_t *retained;      /* [sentences]: scratch, the former slots of those retained */
    int64_t n_slots;
    bool *done;        /* [n] */
    uint8_t *banned;   /* [vocab], always */
    uint8_t *barred;   /* [vocab], for the current row */
    uint8_t *ending;   /* [vocab], `eos` and the other ends */
    uint8_t *held;     /* [vocab], tokens of the current row, if there is a repetition penalty */
    double *log_probs; /* [vocab], penalised, of the current row, -inf where barred */
    double *top;       /* [blocks of vocab], maxima of log probabilities */
    weft_tensor logs;  /* of the last token step */
    weft_search_result *result;
} search;

/* Sets an error about the arguments; returns false. */
bool weft__search_refuse(weft_error *error, const char *message);
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
/* Marks in s->barred the tokens that the row may not choose. */
void weft__search_bar(search *s, int64_t row);
/* Finds the maximum of each block of the row's log probabilities, into s->top. False if one is NaN
 * or too large for a probability. */
bool weft__search_scan_row(search *s, int64_t row);
/* Writes the row's penalised log probabilities into s->log_probs, -inf where barred. */
bool weft__search_read_row(search *s, int64_t row);
/* Appends a hypothesis, with a copy of the tokens, to the result. Call in the order of sentences.
 */
bool weft__search_add(search *s, int64_t sentence, const int32_t *tokens, int64_t length,
                      double log_prob, double score, bool ended);
/* Frees the search. Returns the result if `good`, else frees it and returns NULL. */
weft_search_result *weft__search_finish(search *s, bool good);

/* Where the log probabilities of a row begin, in elements. */
static inline int64_t search_log_row(const search *s, int64_t row)
{
    const int64_t beams = s->model->beams, slot = s->slot[row / beams];
    bool narrow = s->logs.shape.dim[0] == s->n_slots;
    return (narrow ? slot : slot * beams + row % beams) * s->logs.stride[0];
}

static inline double search_log_prob(const search *s, int64_t row, int64_t id)
{
    const int64_t at = search_log_row(s, row) + id;
    return s->logs.dtype == WEFT_F64 ? ((const double *)s->logs.data)[at]
                                     : (double)((const float *)s->logs.data)[at];
}

static inline double search_penalised(const search *s, double log_prob, int64_t id)
{
    return s->held[id] ? log_prob * s->o->repetition_penalty : log_prob;
}

#endif
