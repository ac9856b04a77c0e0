/* The records of the parameter store, for store/ itself. */
#ifndef WEFT_GRAPH_PARAMS_H
#define WEFT_GRAPH_PARAMS_H

#include "ir/ir.h"

#include <weft/store.h>

#include "base/private.h"

typedef struct param {
    char *name;
    weft_state_key key; /* of the name */
    weft_tensor tensor; /* dense; data are 64-byte aligned and never move */
    bool shared;        /* the data belong to another store, or to the program */
    bool fixed;    /* the memory cannot be released: it is another store's, or an allocator's */
    bool released; /* the memory was given back: the store has no data */
} param;

typedef struct meta {
    char *key, *text;
} meta;

struct weft_params {
    param *params;
    size_t n, capacity;
    arena data;
    name_table names; /* positions in params */
    meta *metas;
    size_t n_meta, meta_capacity;
    name_table keys; /* positions in metas */
    char *source;    /* the file that it was loaded from; NULL: none, or it may lack states */
};

/* Whether a filter, or none, selects a tensor. */
static inline bool params_selects(const weft_params_filter *filter, const char *name)
{
    return !filter || !filter->selects || filter->selects(filter->context, name);
}

static inline size_t param_bytes(const param *p)
{
    return weft_tensor_bytes(p->tensor.dtype, p->tensor.shape);
}

/* The name of a file in memory for messages. */
static inline const char *memory_file_name(const weft_memory_file *file)
{
    return file->name ? file->name : "memory";
}

/* Continues a hash, HASH_START of base/hash.h at first, with a dense tensor's numbers, each from its
 * lowest byte on. */
uint64_t weft__tensor_hash(uint64_t hash, const weft_tensor *tensor);
/* An empty store with the same allocator, or weft's own for NULL; NULL if out of memory. */
WEFT_PRIVATE_API weft_params *weft__params_like(const weft_params *params);
/* Adds a tensor whose data belong to the caller, who must retain them for as long as the store lives:
 * dense, 64-byte aligned, and writable if they are to be trained. WEFT_BAD_ARGUMENT if the data are
 * not aligned, or the store has a tensor of that name. The numbers of one that is not `fixed` may be
 * lost: see weft__params_release. */
WEFT_PRIVATE_API weft_status weft__params_lend(weft_params *params, const char *name,
                                               const weft_tensor *tensor, bool fixed,
                                               weft_error *error);
/* Gives the memory of a large tensor back to the system, unless it belongs to another store or to an
 * allocator of the program. The store then has no data of that name (weft_params_find), and takes no
 * new ones. Returns whether it has done so. */
bool weft__params_release(weft_params *params, const char *name);
/* WEFT_NOT_FOUND if it has. */
weft_status weft__params_check(const weft_params *params, const char *name, weft_error *error);
/* A copy of a text, which the caller frees; NULL if out of memory. */
char *weft__params_copy_text(const char *text);
/* Makes room for `more` entries of metadata; false if out of memory. */
bool weft__params_reserve_metas(weft_params *params, size_t more);
/* Moves the metadata of one store into another, which must have room; entries of equal keys are
 * replaced. */
void weft__params_move_metas(weft_params *to, weft_params *from);
/* Exchanges the tensors of two stores, but not their metadata. */
WEFT_PRIVATE_API void weft__params_swap_tensors(weft_params *a, weft_params *b);
/* Removes the tensors from position n on, to undo an addition that failed half-way. */
void weft__params_truncate(weft_params *params, size_t n);

#endif
