/* weft/distributed.h - training on several processes: all of the library weft-distributed. */
#ifndef WEFT_DISTRIBUTED_H
#define WEFT_DISTRIBUTED_H

#include <weft/communicator.h>
#include <weft/parallel.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Ranks in one process ------------------------------------------------------------------- */

/* `size` ranks in one process, for tests: sets all[r] to the communicator that the thread of rank r
 * uses. Free each of them. `seconds` as in the table. */
WEFT_API weft_status weft_communicator_new_threads(int size, double seconds,
                                                   weft_communicator **all, weft_error *error);

/* ---- Trainers ------------------------------------------------------------------------------- */

/* The processes that train together: weft_trainer_options.processes (weft/train.h). All make the
 * same trainer with the same data, and call the same functions in the same order. They share the
 * batches of an update, so there must not be more processes than `accumulate`; results have the
 * same bits on any number of them. Each has the optimiser's states of a part of the parameters
 * only. */
typedef struct weft_trainer_processes {
    const void *functions;           /* of the library: weft_trainer_processes_of sets it */
    weft_communicator *communicator; /* must outlive the trainer; NULL: this process alone */
    /* What the processes shard: each holds only its part (ZeRO: Rajbhandari et al. 2020). 1: the
     * optimiser's states. 2: also the sums of gradients; then the processes exchange the gradients
     * of every batch instead of their sums, and their number must be a power of two that divides
     * `accumulate`. 3: also the parameters. The results are the same. 0: 1. */
    int zero;
    /* Into how many parts the processes divide the model; 0: 1. `tensor` neighbours divide its
     * attention and feed-forward layers (the option of the layers, which the builder must have),
     * `stages` groups of these its layers, and only the remaining factor of the
     * number of processes shares the batches of an update. The results equal those of the whole
     * model except for rounding. The store has the whole model when the trainer is made, or nothing
     * of it, and from then on what this process has of it only. Checkpoints have the whole model,
     * and resume with any other numbers. */
    int tensor, stages;
    size_t bucket_bytes; /* of gradients that travel together; 0: 4 MiB, or 256 KiB for each process
                            if that is more */
} weft_trainer_processes;
/* The processes of a communicator; all other fields are 0, the defaults. */
WEFT_API weft_trainer_processes weft_trainer_processes_of(weft_communicator *communicator);

/* ---- Stores of split models ----------------------------------------------------------------- */

/* Copies from `whole`, the store of a model that is not split, to `params`, the store of one that
 * is: every state that the graph declares and `whole` has; of a state declared as a part
 * (weft_part), only this part. States that `params` lacks are added. WEFT_BAD_SHAPE if a tensor of
 * `whole` has another dtype or shape than the whole of the state. */
WEFT_API weft_status weft_params_take_parts(weft_params *params, const weft_graph *graph,
                                            const weft_params *whole, weft_error *error);
/* The same within one store, such as that of a whole model: cuts its tensors to the parts, and
 * removes all tensors that the graph does not declare, except those that `also` selects (NULL:
 * none). Tensors of the store have other addresses afterwards. On failure the store does not
 * change. */
WEFT_API weft_status weft_params_keep_parts(weft_params *params, const weft_graph *graph,
                                            const weft_params_filter *also, weft_error *error);
/* The inverse of weft_params_take_parts, which all ranks of the communicator must call with their
 * graphs and stores: copies every state that the graph declares to `whole`, and gathers the ranks'
 * parts, so that every rank has the store of the model that is not split. Fails on all ranks if it
 * fails on one: WEFT_NOT_FOUND if `params` lacks a state, WEFT_BAD_SHAPE if the ranks' parts, in
 * their order, do not form the whole. */
WEFT_API weft_status weft_params_join_parts(weft_params *whole, const weft_graph *graph,
                                            const weft_params *params,
                                            weft_communicator *communicator, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
