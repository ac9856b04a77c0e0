/* A model divided by layers among processes (pipeline parallelism).
 *
 * Every process builds the whole graph, which costs no memory for parameters, and cuts out its
 * stage: a graph of its own that receives values from lower stages and sends values to higher ones.
 * Its backward pass receives the gradients of what it sent, and sends those of what it received.
 * Stages can work on different batches at the same time: the program runs several sessions in turn,
 * each of which stops between its forward and backward pass (weft_session_run_before).
 */
#ifndef WEFT_DISTRIBUTED_PIPELINE_H
#define WEFT_DISTRIBUTED_PIPELINE_H

#include <weft/autograd.h>
#include <weft/parallel.h>

/* One process's stage of a graph. */
typedef struct weft_stage weft_stage;

/* Cuts the nodes that targets[0..n-1] need into ranks.size stages, and makes the graph of stage
 * ranks.rank. Stages are contiguous in the order of declaration, and chosen to minimise the work
 * (flops, and bytes to exchange) of the most expensive one; the choice is the same on all ranks.
 * Nodes that depend on no trainable parameter, such as masks, are part of every stage that needs
 * them, as are views of parameters; the last stage has those that are targets. A parameter that
 * several stages read is a parameter of each (weft__stage_holds). Values keep their names and
 * scopes, and random ops their numbers. `training`: weft__stage_grad will be called, so gradients
 * of the values that are sent come back. The whole graph may be freed afterwards; its values are
 * still names for the functions below. NULL on failure: for example if there are fewer nodes to
 * divide than ranks, or if a stage reads a state that only another one updates. */
weft_stage *weft__stage_new(const weft_graph *whole, const weft_value *targets, size_t n,
                            bool training, weft_ranks ranks, weft_error *error);
/* The same, but cut as `like`, a stage of the same model and rank: each stage begins at the first
 * reader of a parameter that begins in that stage of `like`. So the parameters of a stage are the
 * same for all shapes of a model. */
weft_stage *weft__stage_new_like(const weft_graph *whole, const weft_value *targets, size_t n,
                                 bool training, const weft_stage *like, weft_error *error);
/* Frees the stage, but not a graph that the caller has taken; NULL is accepted. */
void weft__stage_free(weft_stage *stage);
/* The graph, which the caller owns from the first call on. */
weft_graph *weft__stage_graph(weft_stage *stage);
/* The stage's value for a value of the whole graph, whether the stage computes it or receives it
 * from a lower stage; else WEFT_NO_VALUE. */
weft_value weft__stage_value(const weft_stage *stage, weft_value value);
/* The stage that computes a value of the whole graph, the lowest one if several do; -1 if none. */
int weft__stage_of(const weft_stage *stage, weft_value value);
/* Whether stage `rank` reads the parameter, or other state, of that name. */
bool weft__stage_holds(const weft_stage *stage, const char *param, int rank);

/* Adds the backward pass of the stage: as weft_grad_each for outputs of the whole graph, of which
 * each is read by the stage that computes it, as is its cotangent, and wrt[] of this stage's graph.
 * *pause (may be
 * NULL) becomes the value before whose node the forward pass is complete, for
 * weft_session_run_before; WEFT_NO_VALUE on a stage that sends nothing, such as the last one, whose
 * backward pass need not wait. Returns a target that is complete when all exchanges are. Call it
 * once. Errors are the graph's. */
weft_value weft__stage_grad(weft_stage *stage, const weft_grad_values *values, weft_value *grads,
                            const weft_grad_hooks *ready, weft_value *pause);
/* For a graph without a backward pass: a target that is complete when all values are sent. */
weft_value weft__stage_sent(weft_stage *stage);
#endif
