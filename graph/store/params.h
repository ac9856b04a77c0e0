/* The parameter store's inside, for its files. */
#ifndef WEFT_GRAPH_PARAMS_H
#define WEFT_GRAPH_PARAMS_H

#include "ir/ir.h"

#include <weft/store.h>

typedef struct param {
    char *name;
    weft_tensor tensor; /* dense; data are 64-byte aligned and never move */
    bool shared;        /* the data are another store's */
} param;

typedef struct meta {
    char *key, *text;
} meta;

/* A hash table of the elements of an array that begin with their names, by these. */
typedef struct name_index {
    uint32_t *slots; /* positions + 1, 0 where empty */
    size_t capacity; /* a power of two, or 0 */
} name_index;

struct weft_params {
    param *params;
    size_t n, capacity;
    arena data;
    name_index names; /* of params */
    meta *metas;
    size_t n_meta, meta_capacity;
    name_index keys; /* of metas */
};

static inline size_t param_bytes(const param *p)
{
    return weft_tensor_bytes(p->tensor.dtype, p->tensor.shape);
}

/* The text in memory of its own; NULL when memory is out. */
char *params_copy_text(const char *text);
/* Makes room for `more` entries of metadata; false when memory is out. */
bool params_reserve_metas(weft_params *params, size_t more);
/* Moves the metadata of one store into another, which has room for them. */
void params_move_metas(weft_params *to, weft_params *from);
/* Forgets the tensors from position n on: for an addition that failed half-way. */
void params_truncate(weft_params *params, size_t n);

#endif
