/* Several processes that train together: the functions that the trainer calls (processes.c), their
 * groups (mesh.c), messages besides the exchanges of graphs (ranks.c), graphs of divided models
 * (divided.c) and their gradients (gradients.c), updates of divided models (pipeline.c), and the
 * whole of them (whole.c). */
#ifndef WEFT_DISTRIBUTED_RANKS_H
#define WEFT_DISTRIBUTED_RANKS_H

#include <weft/distributed.h>

#include "training/trainer.h"
#include "mesh.h"
#include "pipeline.h"
#include "sharding.h"

typedef struct whole_model whole_model; /* see whole.c */

/* weft_trainer.processes: of a trainer with others. */
typedef struct trainer_processes {
    weft_trainer_processes o; /* checked, without zeros for defaults */
    mesh mesh;
    weft_shards *shards;    /* of parameters; NULL before the first graph */
    weft_stage *stage;      /* of the first batch; says which parameters this process has */
    whole_model *whole;     /* if this process has only a part of the model; else NULL */
    weft_model_split split; /* of the graph that is being built */
} trainer_processes;

/* ---- Messages (ranks.c) ---- */

/* See weft__ranks_agree. */
weft_status weft__ranks_exchange(weft_trainer *t, rank_report *report, double *numbers,
                                 rank_batches dealt, size_t n);
/* Fails unless all processes have the same model, data and options. */
weft_status weft__ranks_compare(weft_trainer *t);

/* ---- Divided models (divided.c) ---- */

/* Cuts the model into stages, by the shape of the first batch of all. */
weft_status weft__divided_begin(weft_trainer *t, weft_batch_shape shape);
/* The first graph decides how its parameters are cut; those that are tied are cut alone. */
weft_status weft__divided_shard(weft_trainer *t, const weft_graph *g, const weft_value *params,
                                const bool *tied, size_t n);
/* Replaces the whole model in a graph, which is built, by this process's stage; with zero 3, the
 * parameters by this process's pieces, gathered where they are read. */
weft_status weft__divided_cut(weft_trainer *t, trainer_graph *s);

/* ---- Gradients (gradients.c): see trainer_hooks ---- */

weft_status weft__gradients_list(weft_trainer *t, trainer_graph *s, graph_lists *l);
void weft__gradients_add(weft_trainer *t, trainer_graph *s, graph_lists *l, weft_value weight,
                         bool reduces);
weft_value weft__gradients_sum_tied(weft_trainer *t, trainer_graph *s, graph_lists *l);

/* ---- Updates of divided models (pipeline.c) ---- */

weft_status weft__pipeline_update(weft_trainer *t, weft_trainer_progress *progress, rank_report *r,
                                  double *numbers, weft_update_report *report,
                                  trainer_graph **last);

/* ---- The whole of a divided model (whole.c) ----
 * Every process must call these functions, except for weft__whole_saves and weft__whole_free. */

/* Finds which process has which states of a divided model, and replaces the whole model in the
 * store by what this process has of it. Sets `whole`. If one process fails, all fail. */
weft_status weft__whole_split_store(weft_trainer *t);
void weft__whole_free(whole_model *w);
/* Whether this process saves its states of a parameter, rather than another one that has the same.
 */
bool weft__whole_saves(const weft_trainer *t, const weft_state_key *key);
/* Gathers the model of t->params: all states of all stages, parts joined, in the store of the first
 * process. */
weft_status weft__whole_gather(weft_trainer *t, weft_params *to);
/* The same of the averaged model, if there are averages; if `everyone`, in all stores. */
weft_status weft__whole_averaged(weft_trainer *t, weft_params *to, bool everyone);
/* See trainer_hooks.gather_average. */
weft_status weft__whole_average(weft_trainer *t, const char *param, const weft_tensor *into,
                                bool *gathered);

#endif
