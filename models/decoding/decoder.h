/* The parts of the decoder: setup, sources and retained sentences (decoder.c), token steps
 * (decoder_steps.c), graphs and plans (decoder_plans.c). */
#ifndef WEFT_MODELS_DECODER_H
#define WEFT_MODELS_DECODER_H

#include <weft/decode.h>

#include "run/plans.h"

/* The sizes of a plan. */
typedef struct decode_sizes {
    int64_t source_len, key_len; /* key_len 0: the encoder; both 0: model->prepare */
    int64_t sentences, beams;
    int64_t reads;      /* tokens per row to read without logits; 0: a token step with logits */
    bool own_positions; /* the position is one for each row, and there are no parents */
} decode_sizes;

typedef struct decode_plan {
    plan_entry plan; /* first member: the list frees it */
    decode_sizes sizes;
    weft_value source, token, position, parents, updated, logits, log_probs;
} decode_plan;

/* A state of the decoder that belongs to rows or sentences. */
typedef struct decode_state {
    char name[64];
    weft_cache_layout layout;
} decode_state;

struct weft_decoder {
    weft_model_config config;
    weft_model_traits traits;
    weft_decoder_options o;
    int64_t rows, position, source_len; /* source_len 0: not started */
    int64_t live; /* sentences that are still decoded, the first of the states */
    bool has_source, has_steps;
    bool quantized; /* some of the model's parameters are */
    /* All rows of each sentence have read the same tokens so far: row i of the states is sentence
     * i. */
    bool narrow;
    weft_params *store; /* the model's parameters, shared, and the decoder's states */
    decode_state *states;
    size_t n_states;
    plan_list plans;
    decode_plan *last;    /* the plan of the last token step */
    int32_t *source;      /* [sentences or, recomputing, rows][max_source_len] */
    int32_t *parents;     /* [rows]: rows of the states */
    int32_t *step_tokens; /* [rows]: tokens of a token step, with zeros for idle rows */
    int32_t *tokens;      /* recomputing: [2][rows][max_len], the second half for reordering */
    int32_t *fed;         /* recomputing: [rows][key_len], the tokens that a pass reads */
    weft_error error;
};

/* ---- Sizes of plans (decoder.c) ---- */

/* The number of positions that the plan for `length` positions attends to. */
int64_t weft__decoder_keys_for(const weft_decoder *d, int64_t length);
/* The number of sentences of the plan for n sentences. Models without token steps always run
 * all. */
int64_t weft__decoder_sentences_for(const weft_decoder *d, int64_t n);

/* ---- Graphs and plans (decoder_plans.c) ---- */

/* Begins a public call: false, with the caller's error, if the decoder is NULL. */
bool weft__decoder_begin(const weft_decoder *d, weft_error *error);
/* Each sets the decoder's error if it returns false or NULL. */
bool weft__decoder_fail(weft_decoder *d, weft_status status, const char *where,
                        const char *message);
/* Fails if a parameter of the model is not in the store. */
bool weft__decoder_check_params(weft_decoder *d);
/* Computes the states that depend on parameters only. */
bool weft__decoder_prepare(weft_decoder *d);
/* The plan of these sizes with an open session. */
decode_plan *weft__decoder_plan(weft_decoder *d, decode_sizes sizes);
bool weft__decoder_feed(weft_decoder *d, decode_plan *p, weft_value input, const int32_t *data,
                        int64_t n);
bool weft__decoder_run(weft_decoder *d, decode_plan *p);

#endif
