/* The decoder's parts: its graphs and plans (decoder_plans.c), and what a program calls
 * (decoder.c). */
#ifndef WEFT_MODELS_DECODER_H
#define WEFT_MODELS_DECODER_H

#include <weft/decode.h>

#include "run/plans.h"

/* The sizes of a plan. */
typedef struct decode_sizes {
    int64_t source_len, key_len; /* key_len 0: the encoder; both 0: model->prepare */
    int64_t sentences, beams;
    int64_t reads; /* tokens of each row to read only; 0: a step with logits */
} decode_sizes;

typedef struct decode_plan {
    plan_entry plan; /* first: the list frees it */
    decode_sizes z;
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
    int64_t live;                       /* sentences that are decoded: the first of the states */
    bool has_source, has_steps;
    /* The rows of a sentence have read the same so far: row i of the states is sentence i. */
    bool narrow;
    weft_params *store; /* the model's parameters, shared, and our states */
    decode_state *states;
    size_t n_states;
    plan_list plans;
    decode_plan *last; /* the step that ran last */
    int32_t *source;   /* [sentences or, recomputing, rows][max_source_len] */
    int32_t *parents;  /* [rows], of the states' rows */
    int32_t *few;      /* [rows], tokens: of a narrow step, or with those of idle rows */
    int32_t *tokens;   /* recomputing: [rows][max_len], then as much again to reorder into */
    int32_t *fed;      /* recomputing: [rows][max_len], as fed */
    weft_error error;
};

/* Each sets the decoder's error if it returns false or NULL. */
bool decoder_fail(weft_decoder *d, weft_status status, const char *where, const char *message);
/* Checks that every parameter of the model is in `params`. */
bool decoder_check_params(weft_decoder *d, const weft_params *params);
/* Computes the states that follow from the parameters alone. */
bool decoder_prepare(weft_decoder *d);
/* The plan of these sizes, ready to be fed. */
decode_plan *decoder_plan(weft_decoder *d, decode_sizes sizes);
bool decoder_feed(weft_decoder *d, decode_plan *p, weft_value input, const int32_t *data,
                  int64_t n);
bool decoder_run(weft_decoder *d, decode_plan *p);

#endif
