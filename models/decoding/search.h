/* What searches share: options and sequences, a step of the model for all rows, the log
 * probabilities of a row, the result. */
#ifndef WEFT_MODELS_SEARCH_H
#define WEFT_MODELS_SEARCH_H

#include <weft/decode.h>

/* Log probabilities that are looked at together. */
#define BLOCK 64

typedef struct search {
    const weft_search_model *model;
    const weft_search_input *inputs;
    const weft_search_options *o; /* &filled */
    weft_search_options filled;
    weft_error *error;
    int64_t rows, vocab, n; /* n: sentences that are there */
    int64_t width;          /* most tokens of a sequence, prefix included */
    int64_t position;       /* of the tokens that the next step reads */
    int32_t *sequences;     /* [rows][width], prefix included */
    int32_t *spare;         /* as much, to reorder into */
    int32_t *parents;       /* [rows], of the next step */
    int32_t *fed;           /* [2][rows]: tokens and parents as the model has its rows */
    int32_t *place;         /* [n]: of a sentence in the model; -1: it has left */
    int32_t *there;         /* [n_there]: the sentence at a place of the model; -1: none */
    int32_t *left;          /* [sentences], room to tell what stays */
    int64_t n_there;
    bool *done;        /* [n] */
    uint8_t *banned;   /* [vocab], always */
    uint8_t *barred;   /* [vocab], for the row at hand */
    uint8_t *held;     /* [vocab], tokens of the row at hand, if there is a repetition penalty */
    double *log_probs; /* [vocab], penalised, of the row at hand, -inf where barred */
    double *top;       /* [blocks of vocab], their maxima */
    weft_tensor logs;  /* of the last step */
    weft_search_result *result;
} search;

/* Sets an error about the arguments; false. */
bool search_refuse(weft_error *error, const char *message);
/* calloc, of one element at least. */
void *search_zeros(size_t count, size_t size);
/* Checks options and inputs, takes memory, and reads what all prefixes have before their last
 * tokens. False after an error; search_finish frees in any case. */
bool search_begin(search *s, const weft_search_model *model, const weft_search_input *inputs,
                  size_t n, const weft_search_options *options, weft_error *error);
/* Reads the tokens at the position of all rows; rows of done sentences that are still there read
 * what is there. */
bool search_step(search *s);
/* Tokens that a sentence has found before the one that the last step tells of. Below 0: the prefix
 * goes on. */
int64_t search_found(const search *s, int64_t sentence);
/* Marks in s->barred the tokens that the row may not choose. */
void search_bar(search *s, int64_t row);
/* Finds the maximum of each block of the row's log probabilities, into s->top. False if one is NaN
 * or above what a probability can be. */
bool search_scan_row(search *s, int64_t row);
/* The row's log probabilities, penalised, -inf where barred, into s->log_probs. */
bool search_read_row(search *s, int64_t row);
/* Gives the sentence its next hypothesis: a copy of the tokens. Sentences come in order. */
bool search_add(search *s, int64_t sentence, const int32_t *tokens, int64_t length, double log_prob,
                double score, bool ended);
/* Takes the result if all went well. */
weft_search_result *search_finish(search *s, bool good);

/* Where the log probabilities of a row begin, in elements. */
static inline int64_t search_log_row(const search *s, int64_t row)
{
    const int64_t beams = s->model->beams, place = s->place[row / beams];
    bool narrow = s->logs.shape.dim[0] == s->n_there;
    return (narrow ? place : place * beams + row % beams) * s->logs.stride[0];
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
