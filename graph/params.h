/* The parameter store's inside, for its files. */
#ifndef WEFT_GRAPH_PARAMS_H
#define WEFT_GRAPH_PARAMS_H

#include "internal.h"

typedef struct param {
    char *name;
    weft_tensor tensor; /* dense; data are 64-byte aligned and never move */
    bool shared;        /* the data are another store's */
} param;

typedef struct meta {
    char *key, *text;
} meta;

struct weft_params {
    param *params;
    size_t n, capacity;
    arena data;
    uint32_t *index; /* hash table of positions + 1, by name */
    size_t index_capacity;
    meta *metas;
    size_t n_meta;
};

static inline size_t param_bytes(const weft_tensor *t)
{
    return (size_t)weft_shape_numel(t->shape) * weft_dtype_bytes(t->dtype);
}

/* Forgets the tensors from position n on: for an addition that failed half-way. */
void params_truncate(weft_params *params, size_t n);

#endif
