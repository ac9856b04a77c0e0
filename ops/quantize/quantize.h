/* Which states of a graph can be quantised, and the names of their quantised forms: for the store
 * (quantize_params.c) and the pass (passes/quantized.c). */
#ifndef WEFT_OPS_QUANTIZE_H
#define WEFT_OPS_QUANTIZE_H

#include <weft/quantize.h>

#include "base/private.h"

/* A node that can read the quantised form of a state of f32: a product with the state [k, n] on the
 * right, whose form has the state's columns as rows; or a product with the transpose of the state
 * [n, k], or a lookup in it, whose form has its rows. */
typedef struct quantized_use {
    weft_value state;
    bool lookup, by_rows;
    int64_t n, k; /* the form: n rows of k elements */
} quantized_use;

/* Whether the node is one. */
WEFT_PRIVATE_API bool weft__quantized_use_of(const weft_graph *graph, const weft_node_info *node,
                                             quantized_use *use);

#define QUANTIZED_NAME 640 /* bytes */
/* Writes the name of one of the three tensors, "q", "scale" and "zero" or "min", of a state's
 * quantised form; returns `name`, or NULL if it is too long. */
WEFT_PRIVATE_API const char *weft__quantized_name(char name[QUANTIZED_NAME], const char *state,
                                                  bool by_rows, const char *tensor);

/* Fails if the store is quantised, in the name of `where`: for what needs parameters in f32. */
WEFT_PRIVATE_API weft_status weft__quantized_refuse(const weft_params *params, const char *where,
                                                    weft_error *error);

/* The gradient of a matmul_quantized with regard to its x: in[] are dy, and then its weight, scale
 * and zero. */
weft_value weft__matmul_quantized_grad(weft_graph *graph, const weft_value *in, int bits,
                                       int group);

/* The arrays of a quantised matrix: either zero or min is NULL. */
typedef struct quantized_arrays {
    const uint8_t *q, *zero;
    const float *scale, *min;
    int bits;
    int64_t group;
} quantized_arrays;

/* Element `at` of the rows, which follow each other: scale (q - zero), or scale q + min. */
static inline float quantized_element(const quantized_arrays *m, int64_t at)
{
    const int64_t g = at / m->group;
    const int number = m->bits == 8 ? m->q[at] : m->q[at / 2] >> at % 2 * 4 & 15;
    return m->min ? m->scale[g] * (float)number + m->min[g]
                  : m->scale[g] * (float)(number - m->zero[g]);
}

/* Making a store of another one. */
typedef struct quantized_change {
    const weft_params *params;
    const weft_graph *graph;
    const weft_params_filter *filter; /* the states, by name; NULL: all */
    weft_params *out;
    bool *replaced; /* by index in params: the tensor is not in `out` */
    /* Adds what a use needs to `out`, and marks what that replaces; false after an error. */
    bool (*take)(struct quantized_change *c, const quantized_use *use);
    void *context;
    weft_error *error;
} quantized_change;

/* Takes each use of a selected state in the graph, then copies the tensors that are not replaced, and
 * the metadata. Sets `out` and `replaced`, and returns `out`; NULL on failure, in the name of
 * `where`. */
weft_params *weft__quantized_change(quantized_change *c, const char *where);

/* Checks bits and groups; fails in the name of `where`. */
weft_status weft__quantized_check(int bits, int group, const char *where, weft_error *error);

#endif
