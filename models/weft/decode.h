/* weft/decode.h - text from trained models: a decoder that reads a token of each row in a token
 * step, searches over it (greedy, beam, sampling), and a scorer of given texts. */
#ifndef WEFT_DECODE_H
#define WEFT_DECODE_H

#include <weft/models.h>
#include <weft/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The decoder ---------------------------------------------------------------------------- */

/* Runs a listed model over rows = sentences * beams at once. Keys and values of earlier tokens, or
 * recurrent states, are states of the decoder's graphs, so a token step computes one position.
 * Attention covers the smallest of a few lengths (32, 48, 64, 96, ...) that holds the position.
 * Each length, and each of a few numbers of sentences, has a plan of its own, made at its first
 * use. A model without token steps runs as a whole for each token instead. */
typedef struct weft_decoder weft_decoder;

typedef struct weft_decoder_options {
    int64_t sentences, beams; /* sentence i has rows i * beams .. (i + 1) * beams - 1; 0: 1 */
    int64_t max_len; /* positions of the target; 0: WEFT_DECODER_LEN, or the number of learned
                        positions if that is smaller */
    int64_t max_source_len; /* tokens of a source; 0: the same default; ignored without a source */
    bool recompute;         /* run the whole model for each token, even if it has token steps */
    /* Keys and values of attention layers are stored as the model's dtype (WEFT_F32, the default),
     * as WEFT_BF16, or as WEFT_U8: bytes with a scale for each position and head. The model must be
     * one of f32. States of other layers stay as they are. */
    weft_dtype cache;
    /* Of all sessions; weft/session.h says what may be set. Its allocator also allocates the keys
     * and values. Read by weft_decoder_new only. Results do not depend on it. */
    weft_session_options session;
} weft_decoder_options;

#define WEFT_DECODER_LEN 256

/* Makes a decoder, which owns its states and reads `params`; `params` must outlive it.
 * config->build is ignored; `options` may be NULL. Returns NULL on failure: the model is not
 * decodable, a parameter is missing, a length exceeds the learned positions, or out of memory. */
WEFT_API weft_decoder *weft_decoder_new(const weft_model_config *config, const weft_params *params,
                                        const weft_decoder_options *options, weft_error *error);
WEFT_API void weft_decoder_free(weft_decoder *decoder);

typedef struct weft_decoder_info {
    int64_t rows; /* beams of the sentences that are still decoded */
    int64_t vocab;
    bool has_source;  /* weft_decoder_start needs sources */
    bool has_steps;   /* false: each token costs a pass over all earlier ones */
    int64_t position; /* of the next token */
    size_t plans;     /* number made so far */
    size_t arena_bytes,
        state_bytes;      /* shared arena; parameters and states of the last token step */
    weft_plan_stats step; /* the plan of the last token step */
} weft_decoder_info;
WEFT_API weft_decoder_info weft_decoder_info_of(const weft_decoder *decoder);

/* The length to which a source of `length` tokens is padded. If all sources of a start have the
 * same padded length, no sentence's results depend on the others. */
WEFT_API int64_t weft_decoder_padded(const weft_decoder *decoder, int64_t length);

/* Restarts at position 0 with n <= sentences sources; sources[i] has lengths[i] tokens. A model
 * without a source takes NULL for both. The sources of missing sentences are padding. If a call
 * fails, all later ones fail with its error until the next start. */
WEFT_API weft_status weft_decoder_start(weft_decoder *decoder, const int32_t *const *sources,
                                        const size_t *lengths, size_t n, weft_error *error);
/* Reads tokens[rows] at the next position. Row i continues row parents[i] of the previous token
 * step, which must be of the same sentence. `parents` NULL: every row continues itself. */
WEFT_API weft_status weft_decoder_step(weft_decoder *decoder, const int32_t *tokens,
                                       const int32_t *parents, weft_error *error);
/* Reads tokens[sentences][length] at the next positions, for all rows of a sentence: several tokens
 * in a run, without logits. Later token steps return the same bits as if each token had been a
 * step. With several beams, allowed before the first token step only, or while the token steps of a
 * search have had the same tokens for all rows of each sentence. */
WEFT_API weft_status weft_decoder_read(weft_decoder *decoder, const int32_t *tokens, size_t length,
                                       weft_error *error);
/* Forgets the tokens from `position` on: the next token is read there, with the same bits as by a
 * decoder that has read only the tokens before it. So a text that changes or grows, such as a
 * conversation, is read again only from where it differs. Fails for a position that is not in [0,
 * position of the next token], and for a recurrent model with token steps unless nothing is
 * forgotten. */
WEFT_API weft_status weft_decoder_rewind(weft_decoder *decoder, int64_t position,
                                         weft_error *error);
/* Retains n sentences until the next start, so that token steps cost less: sentence i becomes the
 * former sentences[i], with sentences[i] >= i. Fails for a model without steps. */
WEFT_API weft_status weft_decoder_retain(weft_decoder *decoder, const int32_t *sentences, size_t n,
                                         weft_error *error);
/* Results of the last step: [rows, vocab] of the model's dtype, owned by the decoder and valid
 * until the next token step, read, rewind or retain. False if there are none. */
WEFT_API bool weft_decoder_logits(const weft_decoder *decoder, weft_tensor *logits);
WEFT_API bool weft_decoder_log_probs(const weft_decoder *decoder, weft_tensor *log_probs);

/* ---- Choosing a token ------------------------------------------------------------------------ */

/* Sets *allowed to whether `id` may follow the n new tokens of a row. An error ends the row. Tokens
 * are tried in the order of their choice, so usually few are. A token that is refused is left out, and
 * another one is drawn from the candidates that are left (those of temperature, top_k, top_p and min_p).
 * If none of them is allowed, the candidates are those of all allowed tokens. So the probabilities of
 * the candidates that are allowed are renormalised. After 64 tries all candidates are checked at once,
 * which does not change these probabilities. */
typedef weft_status weft_token_rule(void *context, const int32_t *tokens, size_t n, int32_t id,
                                    bool *allowed, weft_error *error);

/* How the next token of a row is chosen: what searches do for each row, for programs that drive a
 * decoder themselves. */
typedef struct weft_sampling_options {
    bool greedy; /* take the most likely token, of equals the lower id. Temperature, top_k, top_p,
                    min_p and seed have no effect */
    double temperature; /* > 0: divides the logits; 0: 1 */
    int64_t top_k;      /* choose among the k most likely tokens; 0: all */
    double top_p;       /* in (0, 1]: choose among the smallest set of most likely tokens whose
                           probabilities, after temperature and top_k, reach top_p in sum (Holtzman et al.
                           2020); 0: 1 */
    double min_p; /* in [0, 1]: of these, choose among tokens whose probability after temperature is
                     at least min_p times that of the most likely one (Nguyen et al. 2024); 0: all */
    uint64_t seed;
    double repetition_penalty; /* as in weft_search_options; 0: 1 */
    int64_t no_repeat_ngram;   /* n: no n-gram occurs twice in the row's tokens; 0: no limit */
    const int32_t *banned;     /* ids that are never chosen */
    size_t n_banned;
    const int32_t *ends; /* ids that are not chosen before there are min_len new tokens */
    size_t n_ends;
    int64_t min_len;
    /* A rule for the tokens of a text, such as weft_constrained_text_allows (weft/constraint.h): only
     * tokens for which it sets *allowed are chosen. NULL: all are allowed. */
    weft_token_rule *allows;
    void *allows_context;
} weft_sampling_options;

/* A row whose next token is chosen. */
typedef struct weft_sampling_row {
    /* [rows, vocab], natural, f32 or f64, such as those of weft_decoder_log_probs */
    const weft_tensor *log_probs;
    int64_t row;           /* of log_probs */
    const int32_t *tokens; /* [length], those that the row has, prompt included */
    size_t length;
    size_t found;   /* number of new tokens among them */
    uint64_t key;   /* identifies the text. The random number depends on seed, key, sample and
                       `found` only */
    int64_t sample; /* number of this text among several with the key, from 0 */
} weft_sampling_row;

typedef struct weft_sampled_token {
    int32_t id;       /* -1: no token is allowed */
    double log_prob;  /* natural, of the model */
    double penalised; /* after the repetition penalty */
} weft_sampled_token;

/* The scratch memory of choosing, for one thread at a time and any number of rows. */
typedef struct weft_sampler weft_sampler;
/* NULL on failure: the vocabulary is empty or too large, or out of memory. */
WEFT_API weft_sampler *weft_sampler_new(int64_t vocab, weft_error *error);
WEFT_API void weft_sampler_free(weft_sampler *sampler);
/* Sets *chosen. The same token as that of weft_search_greedy, or of weft_search_sample, for the same
 * log probabilities, tokens, seed and key, and its row `sample`. `options` may be NULL. Fails with
 * WEFT_BAD_ARGUMENT: invalid options, ids outside the vocabulary, log probabilities of another
 * shape, or one that is NaN or above 0; and as `allows` fails. */
WEFT_API weft_status weft_sampler_choose(weft_sampler *sampler,
                                         const weft_sampling_options *options,
                                         const weft_sampling_row *row, weft_sampled_token *chosen,
                                         weft_error *error);
/* Computes the candidates of sampling: writes up to n ids and their probabilities, which add up to
 * 1, and returns their number. Tokens of -inf are never among them. The order is by falling
 * probability if top_k or top_p is used, else by id. Reads temperature, top_k, top_p and min_p of
 * the options only. */
WEFT_API size_t weft_search_candidates(const double *log_probs, size_t n,
                                       const weft_sampling_options *options, int32_t *ids,
                                       double *probs);

/* ---- Searches ------------------------------------------------------------------------------- */

/* A model as a search sees it. `step` works like weft_decoder_step and returns natural log
 * probabilities [rows, vocab], f32 or f64. The first call reads position 0. While all rows of each
 * sentence have read the same tokens, `step` may return [sentences, vocab]. `read` and `retain`
 * work like weft_decoder_read and weft_decoder_retain. They make a search cheaper, and may be NULL.
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
/* A decoder as a search model. Start it before the search. */
WEFT_API weft_search_model weft_decoder_search_model(weft_decoder *decoder);

/* Several models as one: the probability of a token is the mean of theirs, weighted by weights[i]
 * (finite, > 0, of any sum; NULL: equal weights). All models must have the same sentences, beams,
 * vocabulary size and positions. The caller starts the decoders among them, each with its own
 * source. The models' contexts must outlive the ensemble. The ensemble has `read` or `retain` if
 * every model has it; its token steps return f64. Returns NULL on failure: the models do not match,
 * or out of memory. */
typedef struct weft_ensemble weft_ensemble;
WEFT_API weft_ensemble *weft_ensemble_new(const weft_search_model *models, size_t n,
                                          const double *weights, weft_error *error);
WEFT_API void weft_ensemble_free(weft_ensemble *ensemble);
/* The ensemble as a search model, for any number of searches, one after another. It must not
 * outlive the ensemble. */
WEFT_API weft_search_model weft_ensemble_search_model(weft_ensemble *ensemble);

/* One sentence to continue. */
typedef struct weft_search_input {
    const int32_t *prefix; /* read first, at least one token: BOS, or a prompt */
    size_t prefix_len;
    int64_t max_len; /* maximum number of new tokens, the end included */
    uint64_t key; /* sampling: identifies the sentence; its random numbers depend on seed, key and
                     the row within the sentence only */
} weft_search_input;

typedef enum weft_length_penalty {
    WEFT_PENALTY_WU,   /* ((5 + length) / 6)^alpha, Wu et al. 2016, eq. 14 */
    WEFT_PENALTY_POWER /* length^alpha */
} weft_length_penalty;

/* When the search of a sentence ends, other than by max_len or for lack of open hypotheses. */
typedef enum weft_beam_stop {
    WEFT_STOP_FIRST, /* once `beams` hypotheses have ended */
    WEFT_STOP_BOUND  /* once no open hypothesis can beat the `nbest` best. The bound of a hypothesis
                        is its log probability, which can only fall, divided by the larger penalty:
                        that of max_len or of one more token. WEFT_STOP_FIRST also stops then. */
} weft_beam_stop;

typedef struct weft_search_options {
    int32_t eos; /* with has_eos: the token that ends a hypothesis; else it must be <= 0, and no
                    token does */
    bool has_eos;
    const int32_t *banned; /* ids that the search never chooses */
    size_t n_banned;
    int64_t min_len;         /* number of tokens before an end is allowed */
    int64_t no_repeat_ngram; /* n: no n-gram occurs twice, prefix included; 0: no limit */
    /* Multiplies the log probability of each token that a row already has, prefix included, before
     * any other rule. Values above 1 make repetition rarer, values below 1 more frequent. The
     * remaining probabilities are not renormalised. (Keskar et al. 2019 divide logits by it. Log
     * probabilities are never positive, so multiplying is enough.) Finite and > 0; 0: 1. */
    double repetition_penalty;
    int64_t nbest; /* hypotheses per sentence in the result, at most `beams`; 0: 1 */
    /* beam search */
    weft_length_penalty penalty; /* 0: Wu et al. */
    double alpha; /* the score is the log probability divided by the penalty; 0: not divided */
    weft_beam_stop stop; /* 0: first */
    /* sampling */
    double temperature; /* > 0: divides the logits; 0: 1. For the limit of temperature 0 use
                           weft_search_greedy */
    int64_t top_k;
    double top_p, min_p; /* these three as in weft_sampling_options */
    uint64_t seed;
    /* Greedy search and sampling call this, if not NULL, after each new token except an end. `row`
     * counts from 0 within the sentence. tokens[n] are the row's tokens without the prefix, valid
     * during the call. Return false to end the row here. */
    bool (*found)(void *context, size_t sentence, size_t row, const int32_t *tokens, size_t n);
    void *found_context;
    const int32_t *ends; /* more tokens that end a hypothesis, as `eos` does; with or without it */
    size_t n_ends;
    /* A rule for the tokens of a row, as in weft_sampling_options; beam search refuses it. The context
     * of row k of a sentence is allows_contexts[sentence * nbest + k]. */
    weft_token_rule *allows;
    void *const *allows_contexts;
} weft_search_options;

typedef struct weft_hypothesis {
    const int32_t *tokens; /* without prefix and end; owned by the result */
    size_t length;
    double log_prob; /* natural, of the tokens and the end, before penalties */
    double score;    /* log_prob after the repetition penalty, divided by the length penalty, whose
                        length includes the end; beam search ranks by it */
    /* By `eos` or one of `ends`. False: cut at max_len, where no token was allowed, or by `found`.
     */
    bool ended;
    /* [length + ended]: the parts of log_prob, of each token and the end; owned by the result */
    const double *log_probs;
} weft_hypothesis;

/* Sentence i has hypotheses[first[i] .. first[i + 1] - 1]. */
typedef struct weft_search_result {
    size_t sentences;
    size_t *first;
    weft_hypothesis *hypotheses;
} weft_search_result;
WEFT_API void weft_search_result_free(weft_search_result *result);

/* Each continues n <= sentences inputs; `options` may be NULL. The caller frees the result. Among
 * equals the lower row and id come first. A search allocates for prefix and max_len of all rows at
 * its start.
 *
 * Returns NULL on failure: invalid options, `found` or `allows` in a beam search, a token step or a
 * rule that fails, a log probability that is NaN or above 0, rows or ids above 2^31 - 1, or tokens that do not fit
 * into memory (WEFT_TOO_LARGE).
 *
 * greedy: takes the most likely token at each token step, and returns one hypothesis per sentence,
 * from
 *   its first row. A row for which no token is allowed is cut, also in sampling.
 * beam: ranks all continuations of a sentence's open hypotheses. Those by an end token end, the
 *   others stay open, best first, until `beams` are open. Returns the nbest best scores, best first;
 *   hypotheses cut at max_len compete with the others. A hypothesis that no token can continue
 *   (each is banned, repeats an n-gram or has probability 0) is dropped while others can be
 *   continued. If none can, all open ones are cut and compete.
 * sample: each row draws its own tokens; a sentence has nbest of them, in the order of rows. */
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

/* The length penalty of a length; 1 if alpha or the length is 0. */
WEFT_API double weft_length_penalty_value(weft_length_penalty penalty, double alpha, size_t length);

/* ---- Scores of given texts ------------------------------------------------------------------ */

/* Computes the log probabilities of given tokens, or the attention weights over the source for
 * each: whole passes of the model without dropout, over batches of rows of similar length. Each
 * shape has a plan, made at its first use. A row's scores depend neither on the other rows nor on
 * the number of threads. */
typedef struct weft_scorer weft_scorer;

typedef struct weft_scorer_options {
    int64_t rows;    /* maximum per batch; long rows have smaller batches; 0: 16 */
    int64_t context; /* window of a model without a source, in tokens; 0: its number of positions. A
                        longer row is read in several windows, as in `weft generate`: each begins
                        with the last half of the previous one. */
    bool weights;    /* the scores are attention weights instead of log probabilities */
    int64_t layer;   /* of the weights, from 1; 0: the last layer that attends to the source */
    int64_t head;    /* of the weights, from 1; 0: the mean over heads */
    /* Of all sessions; weft/session.h says what may be set. Read by weft_scorer_new only. */
    weft_session_options session;
} weft_scorer_options;

/* A text to score. Token 0, such as BOS, has no score. */
typedef struct weft_scorer_row {
    const int32_t *source; /* for a model with a source: at least one token */
    size_t source_len;
    const int32_t *tokens; /* with BOS and EOS, if the model was trained with them */
    size_t length;
    /* Output, owned by the caller. Log probabilities: [length - 1], natural, element i for token i
     * + 1 after tokens 0 .. i. Weights: [length - 1, source_len], row i for the prediction of token
     * i + 1; each row adds up to 1. */
    double *scores;
} weft_scorer_row;

/* `config` and `params` as for weft_decoder_new; `options` may be NULL. Returns NULL on failure:
 * the model is not decodable, weights are wanted of a model without a source, the context exceeds
 * the learned positions, or out of memory. */
WEFT_API weft_scorer *weft_scorer_new(const weft_model_config *config, const weft_params *params,
                                      const weft_scorer_options *options, weft_error *error);
WEFT_API void weft_scorer_free(weft_scorer *scorer);
/* Fills rows[i].scores. Errors:
 * - WEFT_BAD_ARGUMENT: a row has no tokens, source or scores; the model has no such head
 * - WEFT_TOO_LARGE: a source, or a row that has one, is longer than the model has positions
 * - WEFT_BAD_INDEX: an id is outside the vocabulary
 * - WEFT_NOT_FOUND: a parameter or the layer of the weights is missing
 * - WEFT_NOT_FINITE: a score is NaN
 * After an error all scores are unspecified; the scorer can be used again. */
WEFT_API weft_status weft_scorer_run(weft_scorer *scorer, const weft_scorer_row *rows, size_t n,
                                     weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
