/* What adds low-rank products (LoRA) to a graph: the pass of a training (lora.c), and that of
 * quantised matrices, whose stores may have adapters (quantized.c). */
#ifndef WEFT_OPS_LORA_H
#define WEFT_OPS_LORA_H

#include "quantize/quantize.h"

#define LORA_META "lora" /* metadata: rank, alpha, dropout and patterns */

/* The context of the pass of a training. */
typedef struct lora_context {
    const weft_params *base;      /* quantised matrices that products read; NULL: none */
    const weft_params_filter *on; /* the matrices, by name; NULL: all that only products read */
    int64_t rank;
    double scale, dropout;
    size_t added; /* products so far */
} lora_context;

/* The pass: states are no longer trained, and products with them are added to. Its context is a
 * lora_context. */
WEFT_PRIVATE_API bool weft__lora_visit(weft_rewrite *r);
/* Writes the name of one of the two matrices of a state, "a" or "b"; NULL if it is too long. */
WEFT_PRIVATE_API const char *weft__lora_name(char name[QUANTIZED_NAME], const char *state,
                                             const char *matrix);
/* What the metadata of a store say about its adapters. */
typedef struct lora_note {
    double rank, alpha, dropout;
} lora_note;
/* False if the store has no such metadata, or damaged ones. */
WEFT_PRIVATE_API bool weft__lora_read(const weft_params *params, lora_note *note);
/* alpha / rank of them. */
WEFT_PRIVATE_API bool weft__lora_scale(const weft_params *params, double *scale);
/* Whether a state can have an adapter: only products read it, all as it is or all transposed. Else
 * merging the adapter would change what others read, as lookups in a tied embedding. */
WEFT_PRIVATE_API bool weft__lora_allows(const weft_graph *graph, weft_value state);

/* y + scale (x a) b. */
weft_value weft__lora_add(weft_graph *graph, weft_value x, weft_value y, const weft_value *ab,
                          double scale);
/* Replaces a product or lookup by that of the quantised form that `params` has; false if there is
 * none. (quantized.c) */
bool weft__quantized_replace(weft_rewrite *r, const weft_params *params);

#endif
