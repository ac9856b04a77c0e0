/* weft/decode.h - text from trained models: a decoder that takes one token of every row at a time,
 * and searches over it: greedy, beam, sampling. */
#ifndef WEFT_DECODE_H
#define WEFT_DECODE_H

#include <weft/models.h>
#include <weft/plan.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The decoder ---------------------------------------------------------------------------- */

/* Runs a model of the list over rows = sentences times beams at once. Keys and values, or recurrent
 * states, of earlier tokens are states of its graphs, so a step computes one position. It attends
 * to as many positions as the next of a few lengths holds (32, 48, 64, 96, ...); each length has a
 * plan, made when it is first needed, and so has each of a few numbers of sentences. A model
 * without steps is run as a whole for each token instead. */
typedef struct weft_decoder weft_decoder;

typedef struct weft_decoder_options {
    int64_t sentences, beams; /* the rows of sentence i are i beams .. i beams + beams-1; 0: 1 */
    int64_t max_len; /* positions of the decoder; 0: WEFT_DECODER_LEN, or fewer if the model has
                         learned positions for fewer */
    int64_t max_source_len; /* tokens of a source, likewise; not read for a model without one */
    int threads;            /* see weft_session_options; the results do not depend on it */
    bool recompute;         /* run the whole model for each token, even if it has steps */
} weft_decoder_options;

#define WEFT_DECODER_LEN 256

/* config->build is not read. The states are the decoder's own; `params`, which it only reads, must
 * outlive it. `options` may be NULL. NULL on failure: a model that is not decodable, lengths beyond
 * the model's learned positions, no memory. */
WEFT_API weft_decoder *weft_decoder_new(const weft_model_config *config, const weft_params *params,
                                        const weft_decoder_options *options, weft_error *error);
WEFT_API void weft_decoder_free(weft_decoder *decoder);

typedef struct weft_decoder_info {
    int64_t rows; /* of the sentences that are still decoded */
    int64_t vocab;
    bool has_source;                 /* it needs sources to start */
    bool has_steps;                  /* false: each token costs a pass over all before it */
    int64_t position;                /* of the next token */
    size_t plans;                    /* made so far */
    size_t arena_bytes, state_bytes; /* the shared arena; parameters and states of the last step */
    weft_plan_stats step;            /* of the plan that ran last */
} weft_decoder_info;
WEFT_API weft_decoder_info weft_decoder_get_info(const weft_decoder *decoder);

/* The length that sources of `length` tokens are padded to. Sentences of equal padded lengths that
 * are started together give the same bits in any company. */
WEFT_API int64_t weft_decoder_padded(const weft_decoder *decoder, int64_t length);

/* Begins anew with n <= sentences sources (for a model without: `sources` and `lengths` NULL). Rows
 * of missing sentences read padding. */
WEFT_API weft_status weft_decoder_start(weft_decoder *decoder, const int32_t *const *sources,
                                        const size_t *lengths, size_t n);
/* Reads tokens[rows] at the next position. Row i continues row parents[i] as it was after the step
 * before, which must be of the same sentence; `parents` NULL: itself. */
WEFT_API weft_status weft_decoder_step(weft_decoder *decoder, const int32_t *tokens,
                                       const int32_t *parents);
/* Reads tokens[sentences][length] at the next positions, all rows of a sentence its own: several
 * tokens in a run, without logits. Before the first step only. The steps after give the same as if
 * these tokens had been fed to steps. */
WEFT_API weft_status weft_decoder_read(weft_decoder *decoder, const int32_t *tokens, size_t length);
/* Retains n sentences until the next start: sentence i is the former sentences[i], which is i or a
 * later one. Steps then cost less. Not for a model without steps. */
WEFT_API weft_status weft_decoder_retain(weft_decoder *decoder, const int32_t *sentences, size_t n);
/* The results of the last step: [rows, vocab], of the model's dtype, valid until the next step or
 * retain. False before the first step. */
WEFT_API bool weft_decoder_logits(const weft_decoder *decoder, weft_tensor *logits);
WEFT_API bool weft_decoder_log_probs(const weft_decoder *decoder, weft_tensor *log_probs);
WEFT_API const weft_error *weft_decoder_error(const weft_decoder *decoder);

/* ---- Searches ------------------------------------------------------------------------------- */

/* What a search knows of a model. `step` works as weft_decoder_step and gives the natural
 * logarithms of probabilities, [rows, vocab], f32 or f64; it is called first with position 0. Where
 * the rows of every sentence have read the same, it may give [sentences, vocab]. `read` and
 * `retain` work as weft_decoder_read and weft_decoder_retain and make a search cheaper; either may
 * be NULL.
 */
typedef struct weft_search_model {
    weft_status (*step)(void *context, const int32_t *tokens, const int32_t *parents,
                        weft_tensor *log_probs, weft_error *error);
    weft_status (*read)(void *context, const int32_t *tokens, size_t length, weft_error *error);
    weft_status (*retain)(void *context, const int32_t *sentences, size_t n, weft_error *error);
    void *context;
    int64_t sentences, beams, vocab;
    int64_t max_len; /* positions */
} weft_search_model;
/* A decoder, which must have been started. */
WEFT_API weft_search_model weft_decoder_search_model(weft_decoder *decoder);

/* Several models as one: the probability of a token is the mean of theirs, weighted by weights[i]
 * (finite, > 0, whatever their sum; NULL: equal ones). All must have the same sentences, beams,
 * vocabulary size and positions. Decoders among them are started by the caller, each with its own
 * source. The contexts of the models must outlive it. It reads at once and keeps where all of them
 * do. A step gives f64. NULL on failure: models that do not fit, no memory. */
typedef struct weft_ensemble weft_ensemble;
WEFT_API weft_ensemble *weft_ensemble_new(const weft_search_model *models, size_t n,
                                          const double *weights, weft_error *error);
WEFT_API void weft_ensemble_free(weft_ensemble *ensemble);
/* The model to search with, of any number of searches in turn. It must not outlive the ensemble. */
WEFT_API weft_search_model weft_ensemble_search_model(weft_ensemble *ensemble);

/* One sentence to go on with. */
typedef struct weft_search_input {
    const int32_t *prefix; /* read first, at least one token: the beginning of sentence, a prompt */
    size_t prefix_len;
    int64_t max_len; /* most tokens to find, the end included */
    uint64_t key;    /* sampling: names the sentence; its stream depends on seed and key alone */
} weft_search_input;

typedef enum weft_length_penalty {
    WEFT_PENALTY_WU,   /* ((5 + length) / 6)^alpha, Wu et al. 2016, eq. 14 */
    WEFT_PENALTY_POWER /* length^alpha */
} weft_length_penalty;

/* When a sentence is done, beside that nothing is left or the most tokens are reached. */
typedef enum weft_beam_stop {
    WEFT_STOP_FIRST, /* once as many hypotheses have ended as there are beams */
    WEFT_STOP_BOUND  /* once no open hypothesis can still reach the `nbest` best: its log
                        probability, which can only fall, divided by the penalty that favours it
                        most,  at the most tokens or at one more. WEFT_STOP_FIRST stops then, too. */
} weft_beam_stop;

typedef struct weft_search_options {
    int32_t eos; /* ends a hypothesis if has_eos is set; without it none does, and this must not be
                    above 0 */
    bool has_eos;
    const int32_t *banned; /* ids that are never chosen */
    size_t n_banned;
    int64_t min_len;         /* tokens before `eos` may come */
    int64_t no_repeat_ngram; /* n: no n tokens in a row occur twice, prefix included; 0: may */
    /* The log probability of each token that a row already holds, prefix included, is multiplied by
     * this before anything else (after Keskar et al. 2019, who divide logits by it; a log
     * probability is never above 0, so that to multiply is the whole rule). Above 1 tokens repeat
     * less, below 1 more; the remaining probabilities are not renormalised. Finite and > 0; 0: 1.
     */
    double repetition_penalty;
    int64_t nbest; /* hypotheses to give for each sentence, at most beams; 0: 1 */
    /* beam search */
    weft_length_penalty penalty; /* 0: Wu et al. */
    double alpha;        /* a hypothesis scores its log probability divided by it; 0: just that */
    weft_beam_stop stop; /* 0: first */
    /* sampling */
    double temperature; /* > 0: logits are divided by it; 0: 1 (greedy search is what a temperature
                           of 0 would be) */
    int64_t top_k;      /* only the k most likely; 0: all */
    double top_p;       /* in (0, 1]: only the fewest most likely whose probabilities, after
                           temperature and top_k, reach it (Holtzman et al. 2020); 0: 1 */
    uint64_t seed;
    /* Greedy search and sampling call this, if it is not NULL, after each token that row `row`
     * (from 0, of its sentence) has found: tokens[n] are all that it found so far, without prefix,
     * valid during the call. False ends the row there. An end is not a token. */
    bool (*found)(void *context, size_t sentence, size_t row, const int32_t *tokens, size_t n);
    void *found_context;
} weft_search_options;

typedef struct weft_hypothesis {
    const int32_t *tokens; /* without prefix and end */
    size_t length;
    double log_prob; /* natural, of the tokens and the end, as the model has them */
    double score; /* the same after the repetition penalty, divided by the length's penalty, which
                     counts the end: what beam search compares */
    bool ended;   /* by `eos`; if not, it was cut: at max_len, where no token could follow, or by
                        the options' `found` */
} weft_hypothesis;

/* hypotheses[first[i] .. first[i + 1] - 1] are those of sentence i. */
typedef struct weft_search_result {
    size_t sentences;
    size_t *first;
    weft_hypothesis *hypotheses;
} weft_search_result;
WEFT_API void weft_search_result_free(weft_search_result *result);

/* Each searches for n <= sentences; `options` may be NULL. NULL on failure: options that do not
 * fit, `found` for a beam, a step that fails, log probabilities that are NaN, more rows or ids than
 * 2^31 - 1 or more tokens than memory has (WEFT_TOO_LARGE). Room is taken for prefix and max_len of
 * all rows. Among equals the lower row and id come first.
 *
 * greedy: the most likely token each time; one hypothesis a sentence, from the first of its rows.
 *   Where no token can follow it is cut, as in sampling.
 * beam: of all continuations of the open hypotheses of a sentence, best first, those by `eos` end
 *   and the others stay open, until `beams` of these are found. Gives the nbest best scores, best
 *   first; hypotheses cut at max_len count as they are. One that no token can follow (all are
 *   banned, repeat an n-gram or have probability 0) is left out while others can go on; once none
 *   can, all that are open are cut, and count as they are.
 * sample: each row draws its own; a sentence gets nbest of them, in the order of rows. */
WEFT_API weft_search_result *weft_search_greedy(const weft_search_model *model,
                                                const weft_search_input *inputs, size_t n,
                                                const weft_search_options *options,
                                                weft_error *error);
WEFT_API weft_search_result *weft_search_beam(const weft_search_model *model,
                                              const weft_search_input *inputs, size_t n,
                                              const weft_search_options *options,
                                              weft_error *error);
WEFT_API weft_search_result *weft_search_sample(const weft_search_model *model,
                                                const weft_search_input *inputs, size_t n,
                                                const weft_search_options *options,
                                                weft_error *error);

/* What sampling draws from: fills ids[n] and probs[n] (summing to 1) and returns how many are kept.
 * Most likely first if top_k or top_p choose among them, else in order of ids; those of -inf are
 * left out. Temperature, top_k, top_p as above. */
WEFT_API size_t weft_sample_candidates(const double *log_probs, size_t n, double temperature,
                                       int64_t top_k, double top_p, int32_t *ids, double *probs);
/* The penalty's value for a length; 1 for none. */
WEFT_API double weft_length_penalty_value(weft_length_penalty penalty, double alpha, size_t length);

/* ---- Scores of given texts ------------------------------------------------------------------ */

/* Says of tokens that are known how likely a model finds them, or where it looks in the source for
 * each: whole passes of the model without dropout, over rows of like length at once. A plan is made
 * for each shape when it is first needed. What a row gets does not depend on the other rows, on
 * their number or on the threads. */
typedef struct weft_scorer weft_scorer;

typedef struct weft_scorer_options {
    int64_t rows;    /* at a time, at most; fewer where they are long; 0: 16 */
    int64_t context; /* tokens that a model without a source attends to; 0: as many as it has
                        positions for. A longer row is read in windows, as `weft generate` does:
                        each goes on from the last half of these tokens. */
    int threads;     /* see weft_session_options */
    bool weights;    /* score by attention weights, not by log probabilities */
    int64_t layer;   /* of the weights, from 1; 0: the last that looks at the source */
    int64_t head;    /* of the weights, from 1; 0: the mean of all */
} weft_scorer_options;

/* A text to score. Token 0, such as the beginning of sentence, is read only. */
typedef struct weft_scorer_row {
    const int32_t *source; /* of a model with a source: at least one token */
    size_t source_len;
    const int32_t *tokens; /* with what should begin and end the text */
    size_t length;
    /* Filled. Log probabilities: natural, [length - 1], of token i + 1 after tokens 0 .. i.
     * Weights: [length - 1, source_len], of the source's tokens where token i + 1 is predicted; of
     * each i they add up to 1. */
    double *scores;
} weft_scorer_row;

/* `config` and `params` as for weft_decoder_new. `options` may be NULL. NULL on failure: a model
 * that is not decodable, weights of a model without a source, a context beyond the learned
 * positions, no memory. */
WEFT_API weft_scorer *weft_scorer_new(const weft_model_config *config, const weft_params *params,
                                      const weft_scorer_options *options, weft_error *error);
WEFT_API void weft_scorer_free(weft_scorer *scorer);
/* Fails if a row lacks something (WEFT_BAD_ARGUMENT), has more tokens beside a source, or more in
 * it, than the model has learned positions (WEFT_TOO_LARGE), or an id that the model does not have
 * (WEFT_BAD_INDEX); if a parameter or the layer of the weights is missing (WEFT_NOT_FOUND), or the
 * head (WEFT_BAD_ARGUMENT); if a score is NaN (WEFT_NOT_FINITE). Scores are then unspecified, and
 * the scorer can be used again. */
WEFT_API weft_status weft_scorer_run(weft_scorer *scorer, const weft_scorer_row *rows, size_t n,
                                     weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
