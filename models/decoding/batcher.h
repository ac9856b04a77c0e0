/* The parts of a batcher: token steps (batcher.c), requests
 * (batcher_requests.c), rows of states (batcher_rows.c), the
 * prefix cache (batcher_prefix.c). */
#ifndef WEFT_MODELS_BATCHER_H
#define WEFT_MODELS_BATCHER_H

#include "decoder.h"
#include "sampler.h"

#include <weft/batch.h>

typedef struct batch_request {
    uint64_t id;
    int32_t *tokens; /* [prefix_len + max_len]: the prompt, then the answer */
    size_t n;        /* tokens so far */
    size_t read;     /* tokens whose keys and values the row has, from the first on */
    size_t prefix_len;
    int64_t max_len, sample;
    uint64_t key;
    weft_sampling_options options; /* filled; its lists follow the tokens, in the same allocation */
    bool (*take)(void *context, const weft_batcher_event *event);
    void *context;
    struct batch_request *next; /* in the queue */
} batch_request;

/* Keys and values of a request that has ended. */
typedef struct batch_prefix {
    struct batch_prefix *next; /* the next older one */
    int32_t *tokens;           /* [n] */
    char *states; /* of each state n positions, one state after the other; after the tokens, in the
                     same allocation */
    size_t n, bytes;
} batch_prefix;

struct weft_batcher {
    weft_decoder *d;
    int64_t slots;
    batch_request **rows; /* [slots]: row i of the states has the request rows[i], for i < live */
    size_t live;
    batch_request *first, **last; /* the queue */
    size_t waiting;
    uint64_t next_id;
    int32_t *fed; /* [2][slots]: tokens, positions */
    weft_sampler *sampler;
    weft_tensor logs;       /* log probabilities of the last token step */
    bool inside;            /* a step is in progress */
    batch_prefix *prefixes; /* the most recently used first */
    size_t n_prefixes, prefix_bytes, prefix_limit;
    uint64_t steps, read_tokens, reused_tokens, new_tokens;
};

/* ---- Requests (batcher_requests.c) ---- */

/* Checks a request; *filled becomes its options with defaults. */
bool weft__batch_check(const weft_batcher *b, const weft_batcher_request *r,
                       weft_sampling_options *filled, weft_error *error);
/* A copy of a request and its lists, in one allocation; NULL if there is no memory. */
batch_request *weft__batch_copy(const weft_batcher_request *in, const weft_sampling_options *o);

/* ---- Rows of states (batcher_rows.c) ---- */

/* Bytes of one position of a row, in all states. */
size_t weft__batch_position_bytes(const weft_batcher *b);
/* Copies the first n positions of a row to another. */
void weft__batch_copy_row(weft_batcher *b, size_t from, size_t to, size_t n);
/* Zeroes the first n positions of a row, so that nothing of a request outlives it. */
void weft__batch_clear_row(weft_batcher *b, size_t row, size_t n);
/* Copy the first n positions of a row to and from memory, where each state has `room` positions. */
void weft__batch_save_row(weft_batcher *b, size_t row, size_t n, char *to);
void weft__batch_load_row(weft_batcher *b, size_t row, size_t n, const char *from, size_t room);

/* ---- The prefix cache (batcher_prefix.c) ---- */

/* Copies to row 0 the keys and values of the longest beginning of the prompt that any other row or
 * the cache has, and sets r->read. The last token of a prompt is always read. */
void weft__batch_reuse_prefix(weft_batcher *b, batch_request *r);
/* Retains the keys and values of a row whose request ends. */
void weft__batch_retain_prefix(weft_batcher *b, size_t row);
void weft__batch_free_prefixes(weft_batcher *b);

#endif
