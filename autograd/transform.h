/* What forward mode (transform.c) offers the Jacobians (jacobian.c). */
#ifndef WEFT_AUTOGRAD_TRANSFORM_H
#define WEFT_AUTOGRAD_TRANSFORM_H

#include "grad.h"

#include <weft/transform.h>

/* The gradients of `wrt` as functions of the cotangents of the outputs, which no run computes. */
typedef struct linear_map {
    weft_graph *graph;
    const char *function;  /* for messages */
    weft_value *start;     /* [n_outputs]: the cotangents */
    weft_value *gradients; /* [n] */
    size_t n_outputs, n;
    uint32_t *made_by; /* see grad_purpose; [n_nodes] */
    size_t n_nodes;
} linear_map;

/* Builds it. On failure the graph has an error. Close it in either case. */
bool weft__linear_map_open(linear_map *map, weft_graph *graph, const char *function,
                           const weft_grad_values *values);
/* Its transpose: the derivatives of the outputs along the tangents. */
void weft__linear_map_transpose(const linear_map *map, const weft_value *tangents,
                                weft_value *derivatives);
void weft__linear_map_close(linear_map *map);

/* The results of a call that fails; `values` may be NULL. */
static inline void clear_values(weft_value *values, size_t n)
{
    for (size_t i = 0; values && i < n; i++) values[i] = WEFT_NO_VALUE;
}

#endif
