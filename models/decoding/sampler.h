/* How a row's next token is chosen. The searches and weft_sampler_choose share these functions. */
#ifndef WEFT_MODELS_SAMPLER_H
#define WEFT_MODELS_SAMPLER_H

#include <weft/decode.h>

/* Log probabilities in a block, whose maximum is computed once. */
#define BLOCK 64

struct weft_sampler {
    int64_t vocab;
    uint8_t *barred;   /* [vocab], tokens that the current row may not choose */
    uint8_t *held;     /* [vocab], tokens of the current row, if there is a repetition penalty */
    double *log_probs; /* [vocab], penalised, of the current row, -inf where barred */
    double *top;       /* [blocks of vocab], maxima of log probabilities */
    int32_t *ids;      /* [vocab], candidates */
    double *probs;     /* [vocab], of the candidates */
};

/* The options with defaults for zeros; `options` may be NULL. */
weft_sampling_options weft__sampling_filled(const weft_sampling_options *options);
/* Check filled options: ids and penalty, and what only drawing needs. False after an error, which
 * begins with `where`. */
bool weft__sampling_check(const weft_sampling_options *o, int64_t vocab, const char *where,
                          weft_error *error);
bool weft__sampling_check_draws(const weft_sampling_options *o, const char *where,
                                weft_error *error);
/* Finds the maximum of each block of the row's log probabilities, into s->top. False, with the id in
 * *bad, if one is NaN or too large for a probability. */
bool weft__sampler_scan(weft_sampler *s, const weft_sampling_row *row, int64_t *bad);
/* Marks in s->barred the tokens that the row may not choose, and in s->held those that it has. */
void weft__sampler_bar(weft_sampler *s, const weft_sampling_options *o,
                       const weft_sampling_row *row);
/* weft_sampler_choose without its checks, for a row that was scanned. Fails as o->allows does. */
weft_status weft__sampler_choose(weft_sampler *s, const weft_sampling_options *o,
                                 const weft_sampling_row *row, weft_sampled_token *chosen,
                                 weft_error *error);

/* The id of the largest of n log probabilities; -1 if all are -inf. */
int64_t weft__sampler_argmax(const double *log_probs, int64_t n);
/* The random number in [0, 1) of a row's next token; others if it is drawn again. */
double weft__sampler_uniform(const weft_sampling_options *o, const weft_sampling_row *row,
                             uint64_t tries);
/* Sets *id to the choice among tokens that o->allows, by s->log_probs; -1 if there is none. */
weft_status weft__sampler_choose_allowed(weft_sampler *s, const weft_sampling_options *o,
                                         const weft_sampling_row *row, int64_t *id,
                                         weft_error *error);

/* The model's log probability of an id. */
static inline double sampling_log_prob(const weft_sampling_row *row, int64_t id)
{
    const weft_tensor *t = row->log_probs;
    const int64_t at = row->row * t->stride[0] + id;
    return t->dtype == WEFT_F64 ? ((const double *)t->data)[at]
                                : (double)((const float *)t->data)[at];
}

static inline double sampling_penalised(const weft_sampler *s, const weft_sampling_options *o,
                                        double log_prob, int64_t id)
{
    return s->held[id] ? log_prob * o->repetition_penalty : log_prob;
}

/* Sets the error WEFT_BAD_ARGUMENT; returns false. */
static inline bool sampling_refuse(const char *where, const char *message, weft_error *error)
{
    weft_error_set(error, WEFT_BAD_ARGUMENT, where, "%s", message);
    return false;
}

static inline bool sampling_are_ids(const int32_t *ids, size_t n, int64_t vocab)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab) return false;
    return true;
}

#endif
