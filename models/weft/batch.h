/* weft/batch.h - many texts at a time from one model: requests join and leave at any token step. Of
 * the library weft-models. */
#ifndef WEFT_BATCH_H
#define WEFT_BATCH_H

#include <weft/decode.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Continues the prompts of requests. A token step computes one token for each request that has a
 * slot; a request takes a slot as soon as one is free, and its prompt is read in chunks between
 * token steps. Keys and values of earlier prompts and answers are used again.
 *
 * Tokens and log probabilities of a request have the bits that weft_search_sample or
 * weft_search_greedy computes for it alone, whatever the other requests are, when they come and go,
 * and what is in the prefix cache. (As for searches, a library of matrix products may break this.)
 *
 * For models whose states are keys and values by position: gpt, llama. One thread at a time may use
 * a batcher. */
typedef struct weft_batcher weft_batcher;

typedef struct weft_batcher_options {
    int64_t slots;   /* maximum number of requests in a token step; 0: 8 */
    int64_t max_len; /* positions of a request, prompt and answer; 0: as of a decoder */
    /* Limit of the prefix cache: keys and values of requests that have ended, of which the least
     * recently used go first. 0: none are retained, and only requests in progress share them. */
    size_t prefix_bytes;
    weft_dtype cache; /* of keys and values, as of a decoder */
    /* Of all sessions; weft/session.h says what may be set. Read by weft_batcher_new only. */
    weft_session_options session;
} weft_batcher_options;

/* `config` and `params` as for weft_decoder_new; `options` may be NULL. Returns NULL on failure: the
 * model is not decodable, reads a source or has other states, or what weft_decoder_new refuses. */
WEFT_API weft_batcher *weft_batcher_new(const weft_model_config *config, const weft_params *params,
                                        const weft_batcher_options *options, weft_error *error);
/* Requests that have not ended end without a call. */
WEFT_API void weft_batcher_free(weft_batcher *batcher);

/* Why a request has ended. */
typedef enum weft_batcher_end {
    WEFT_BATCHER_GOES_ON,
    WEFT_BATCHER_ENDED,    /* by one of `ends` */
    WEFT_BATCHER_LENGTH,   /* it has max_len tokens */
    WEFT_BATCHER_NO_TOKEN, /* none is allowed */
    WEFT_BATCHER_FAILED    /* a log probability is NaN or above 0, or `allows` failed */
} weft_batcher_end;

/* A new token of a request, or its end, or both. */
typedef struct weft_batcher_event {
    uint64_t request;
    int32_t token;   /* -1: none. An end token does not belong to the text */
    double log_prob; /* of the token: natural, before penalties; 0 without one */
    /* Of all tokens at this position, natural: [vocab], of the model's dtype. Valid during the
     * call; NULL without a token. */
    const weft_tensor *log_probs;
    weft_batcher_end end;
    /* Of weft_sampler_choose, if the end is WEFT_BATCHER_FAILED; otherwise NULL and WEFT_OK. */
    const char *message; /* valid during the call */
    weft_status status;
} weft_batcher_event;

typedef struct weft_batcher_request {
    const int32_t *prefix; /* the prompt, at least one token; copied */
    size_t prefix_len;
    int64_t max_len; /* maximum number of new tokens, the end included */
    uint64_t key;    /* identifies the text: random numbers depend on seed, key and `sample` */
    int64_t sample;  /* number of this text among several with the key, from 0 */
    /* How tokens are chosen, and `ends`, which end the text. Copied, with its lists. NULL: all are
     * zero. */
    const weft_sampling_options *options;
    /* Called by weft_batcher_step for each event, in the order of tokens. The last event of a
     * request has an end. Return false to end the request here; it has no other event. It must not
     * call functions of the batcher. May be NULL. */
    bool (*take)(void *context, const weft_batcher_event *event);
    void *context;
} weft_batcher_request;

/* Adds a request, which waits for a slot. *id, if not NULL, becomes its number: 1, 2, ... Fails with
 * WEFT_BAD_ARGUMENT for invalid options, ids outside the vocabulary, or more positions than the
 * batcher has. */
WEFT_API weft_status weft_batcher_add(weft_batcher *batcher, const weft_batcher_request *request,
                                      uint64_t *id, weft_error *error);
/* Ends a request without an event. WEFT_NOT_FOUND if it has ended, or never was. */
WEFT_API weft_status weft_batcher_cancel(weft_batcher *batcher, uint64_t id, weft_error *error);
/* Reads at most 64 tokens of prompts, then computes the next token of every request with a slot. Does
 * nothing without requests. After an error, such as out of memory, no request has lost anything: the
 * next step tries again. */
WEFT_API weft_status weft_batcher_step(weft_batcher *batcher, weft_error *error);

typedef struct weft_batcher_info {
    int64_t slots, max_len, vocab;
    size_t waiting, live;          /* requests without and with a slot */
    uint64_t steps;                /* token steps so far */
    uint64_t read_tokens;          /* of prompts, that were computed */
    uint64_t reused_tokens;        /* of prompts, whose keys and values were copied instead */
    uint64_t new_tokens;           /* of answers, with end tokens */
    size_t prefixes, prefix_bytes; /* in the prefix cache */
    size_t plans, arena_bytes, state_bytes; /* as in weft_decoder_info */
} weft_batcher_info;
WEFT_API weft_batcher_info weft_batcher_info_of(const weft_batcher *batcher);

#ifdef __cplusplus
}
#endif
#endif
