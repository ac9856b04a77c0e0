/* The parts of a training update on several processes: the pieces of parameters
 * that each process updates, and the exchanges of gradients and parameters.
 *
 * Every process computes gradients of some batches of an update. The gradient of a piece of a
 * parameter is summed on the process that owns the piece, which alone has its moments and updates
 * it; then all processes get the updated pieces (ZeRO, stage 1: Rajbhandari et al. 2020). Sums are
 * made in an order over batches and never over processes, and pieces begin at multiples of
 * WEFT_TILE, so the bits do not depend on the number of processes.
 */
#ifndef WEFT_DISTRIBUTED_SHARDING_H
#define WEFT_DISTRIBUTED_SHARDING_H

#include "pieces.h"

#include <weft/autograd.h>
#include <weft/parallel.h>

/* ---- Pieces of parameters ------------------------------------------------------------------- */

/* The pieces of all ranks. */
typedef struct weft_shards weft_shards;

typedef struct weft_shards_options {
    const bool *alone; /* [n]: parameter i is a bucket of its own, which is cut the same whatever
                          the other parameters are; NULL: none */
    const weft_optimizer *optimizer; /* parameters that it does not train are not cut; NULL: none */
    size_t bucket_bytes;             /* 0: 4 MiB, or 256 KiB for each rank if that is more */
} weft_shards_options;
/* Cuts params[0..n-1], as declared in the graph, into pieces. Parameters form buckets of about
 * options->bucket_bytes, the last declared first, since their gradients are complete first; of each
 * bucket every rank owns a contiguous part. `options` may be NULL. NULL on
 * failure: WEFT_BAD_ARGUMENT if a name is that of a training's state or of a piece
 * (weft_state_key_read). */
weft_shards *weft__shards_new(const weft_graph *graph, const weft_value *params, size_t n,
                              weft_ranks ranks, const weft_shards_options *options,
                              weft_error *error);
void weft__shards_free(weft_shards *shards);
weft_ranks weft__shards_ranks(const weft_shards *shards);
/* The elements [*first, *end) of a parameter that a rank owns, perhaps none; false if the parameter
 * is not cut. */
bool weft__shards_piece(const weft_shards *shards, const char *param, int rank, int64_t *first,
                        int64_t *end);
/* The key of this rank's piece of a parameter, or of the whole if the parameter is not cut; with
 * another kind it is the key of such a state of the piece. It points to `param` or into the
 * shards. */
weft_state_key weft__shards_key(const weft_shards *shards, const char *param);

/* ---- Parameters in pieces -------------------------------------------------------------------- */

/* A graph in which a process has its pieces of the parameters only, as states PARAM[first:end]
 * (ZeRO, stage 3). A bucket of parameters is gathered before its first reader, and again in the
 * backward pass, so that not all of them are there at a time. */
typedef struct weft_gathered weft_gathered;
/* Copies a graph, such as a forward pass; the parameters that are cut become gathered values of
 * their names. The graph may be freed afterwards; its values are still names for
 * weft__gathered_value. The shards must outlive the result. NULL on failure. */
weft_gathered *weft__gathered_new(const weft_graph *whole, const weft_shards *shards,
                                  weft_error *error);
/* Frees the copy, but not a graph that the caller has taken; NULL is accepted. */
void weft__gathered_free(weft_gathered *gathered);
/* The copy, which the caller owns from the first call on. */
weft_graph *weft__gathered_graph(weft_gathered *gathered);
/* The copy's value for a value of the graph; for a parameter that is cut, the gathered value, with
 * respect to which weft_grad differentiates. */
weft_value weft__gathered_value(const weft_gathered *gathered, weft_value value);
/* The array of *count gathered parameters, in order of declaration; `count` may be NULL. */
const weft_value *weft__gathered_params(const weft_gathered *gathered, size_t *count);
/* This rank's piece of a parameter. */
weft_value weft__gathered_piece(const weft_gathered *gathered, const char *param);
/* For weft_grad_hooks.again: a parameter of the copy, gathered another time; any other value
 * itself. */
weft_value weft__gathered_again(weft_gathered *gathered, weft_value value);

/* ---- Models of several processes ------------------------------------------------------------ */

/* Processes that together have one model, each with parameters of its own (weft_optimizer.model).
 * Norm, clipping and guard are those of the whole model, with the same bits on all of them. */
typedef struct weft_model_split {
    const void *functions; /* of the library: weft__model_split_of sets it */
    weft_ranks ranks;
    /* By index in the list of parameters that the update is given: whether this process counts the
     * gradient in the norm. Exactly one process counts each. Processes that share the gradients of
     * the same parameters in pieces must count the same. */
    const bool *counted;
} weft_model_split;
/* The split, whose list must live as long as the graph is built. */
weft_model_split weft__model_split_of(weft_ranks ranks, const bool *counted);

/* ---- Sums of gradients ---------------------------------------------------------------------- */

/* The exchanges of one training update, while its graph is built. */
typedef struct weft_reducer weft_reducer;

/* `batches`: of the update, on all ranks; at least one on each. Errors are the graph's. */
weft_reducer *weft__reducer_new(weft_graph *graph, const weft_shards *shards, uint32_t batches);
void weft__reducer_free(weft_reducer *reducer);
/* Takes the gradient of a parameter: its sums over each of weft__sum_nodes of this rank's batches.
 * As soon as a bucket is complete, its exchange begins; so call it from weft_grad_each. Parameters
 * that are not cut are ignored. */
void weft__reducer_add(weft_reducer *reducer, weft_value param, const weft_value *sums);
/* Ends the exchanges, and sets pieces[i] to the sum over all batches of this rank's piece of the
 * gradient of params[i]: one dimension, WEFT_NO_VALUE if it is not cut. For weft_apply_gradients
 * with optimizer.shards. */
void weft__reducer_finish(weft_reducer *reducer, const weft_value *params, size_t n,
                          weft_value *pieces);
/* This rank's piece of a parameter, or of a value of its shape, in one dimension. */
weft_value weft__shards_slice(weft_graph *graph, const weft_shards *shards, const char *param,
                              weft_value value);
#endif
