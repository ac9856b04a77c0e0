/* Which states of a graph can be quantised, and the names of their quantised forms: for the store
 * (quantize_params.c) and the pass (passes/quantized.c). */
#ifndef WEFT_OPS_QUANTIZE_H
#define WEFT_OPS_QUANTIZE_H

#include <weft/quantize.h>

/* A product of f32 with a state on the right: [k, n], or [n, k] that is transposed. */
typedef struct quantized_use {
    weft_value state;
    bool transposed;
    int64_t n, k;
} quantized_use;

/* Whether the node is such a product. */
bool quantized_use_of(const weft_graph *graph, const weft_node_info *node, quantized_use *use);

#define QUANTIZED_NAME 640 /* bytes */
/* Writes the name of one of the three tensors, "q", "scale" or "zero", of a state's quantised form;
 * returns `name`, or NULL if it is too long. */
const char *quantized_name(char name[QUANTIZED_NAME], const char *state, bool transposed,
                           const char *tensor);

/* Checks bits and groups; fails in the name of `where`. */
weft_status quantized_check(int bits, int group, const char *where, weft_error *error);

#endif
