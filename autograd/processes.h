/* What several processes change in an update: weft_optimizer.shards and .model. The library
 * weft-distributed defines both, each with a pointer to its functions as its first member, so that
 * this library calls nothing of it. */
#ifndef WEFT_AUTOGRAD_PROCESSES_H
#define WEFT_AUTOGRAD_PROCESSES_H

#include <weft/autograd.h>

struct weft_shards;
struct weft_model_split;

/* The gradients of a step whose norm is wanted. */
typedef struct update_gradients {
    const struct weft_shards *shards;     /* NULL: the gradients are whole */
    const struct weft_model_split *model; /* NULL: the model is whole; one of the two is not NULL */
    const bool *counted; /* of a split model, by gradient: whether the norm has it */
    weft_gradients of;   /* this process's; `loss` is WEFT_NO_VALUE if it has none */
} update_gradients;

typedef struct update_processes {
    /* Whether these are all parameters that are cut, or this rank's pieces of them. */
    bool (*match)(const struct weft_shards *shards, const weft_graph *graph,
                  const weft_value *params, size_t n);
    /* The name of a parameter, for its own name or that of a piece; NULL if it is not cut. */
    const char *(*param)(const struct weft_shards *shards, const char *name);
    /* The first element of this rank's piece of a parameter. */
    int64_t (*first)(const struct weft_shards *shards, const char *param);
    /* weft__shards_key and weft__shards_slice. */
    weft_state_key (*key)(const struct weft_shards *shards, const char *param);
    weft_value (*slice)(weft_graph *graph, const struct weft_shards *shards, const char *param,
                        weft_value value);
    /* Replaces updated[i], of which this rank's piece is new, by the whole new parameter. */
    void (*gather)(weft_graph *graph, const struct weft_shards *shards, const weft_value *params,
                   weft_value *updated, size_t n);
    /* The norm of the gradients of all processes, with the bits of weft_global_norm of the whole
     * gradients, and *losses, the sum of all losses in f64: WEFT_NO_VALUE if the loss is and the
     * model is whole, and the loss itself if no other process has one. */
    weft_value (*norm)(weft_graph *graph, const update_gradients *gradients, weft_value *losses);
    /* counted of a split model. */
    const bool *(*counted)(const struct weft_model_split *model);
} update_processes;

/* The functions of weft_shards or weft_model_split. */
static inline const update_processes *processes_of(const void *shards_or_model)
{
    return *(const update_processes *const *)shards_or_model;
}

#endif
