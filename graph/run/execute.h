/* The executor: runs the steps of a plan on a team of threads (execute.c). */
#ifndef WEFT_GRAPH_EXECUTE_H
#define WEFT_GRAPH_EXECUTE_H

#include "ir/call.h"
#include "ir/convert.h"
#include "plan/plan.h"
#include "exchanges.h"
#include "pace.h"
#include "profile.h"
#include "progress.h"

typedef struct executor {
    const weft_plan *plan;
    weft_call *calls;     /* two for each step: one a phase; they point to `run` */
    weft_run_context run; /* seed, number, and the workspaces of all threads, one after another */
    fault fault;          /* of the last run */
    convert convert;      /* of blocks that are stored as bf16 */
    exchanges exchanges;
    phase_progress
        *progress; /* three for each interval: its phases, and the poison of its buffers */
    sleepers sleepers;
    bool can_sleep;     /* sleepers exist */
    atomic_ullong left; /* threads that have left the last run */
    uint64_t spin_ns;   /* how long its threads spin when they wait */
    uint64_t slept_ns;  /* how long thread 0 slept in the last run */
    pace pace;
    uint32_t begin, end;   /* of the intervals that the last call ran */
    uint32_t first;        /* interval of a run: those before it have run once for all runs */
    weft_thread_pool pool; /* whose threads run; none: OpenMP's */
    char *arena;
    bool poison;            /* fill buffers with 0xFF before their first writer */
    struct loop_run *loops; /* [plan->n_loops] */
} executor;

/* Slots of progress for each interval: its two phases, and one for the poison of its buffers. */
#define N_PHASES 3
#define POISON   2

/* Allocates what a run needs. The caller binds calls and sets arena and workspaces. False when
 * out of memory. */
bool weft__executor_init(executor *e, const weft_plan *plan);
void weft__executor_free(executor *e);

/* The threads that can have work in a run of the plan, `threads` at most; 0 is the default. */
int weft__executor_threads(const weft_plan *plan, int threads);

/* Runs the plan's intervals before `until`, and only the rest of them if the last call did not
 * reach the end, on `team` threads of the pool or that weft__team has granted. `profile` may be
 * NULL. Returns WEFT_BAD_INDEX or WEFT_NOT_FINITE, with the node's name, if a kernel reports a
 * fault. */
weft_status weft__executor_run(executor *e, uint32_t until, int team, weft_profile *profile,
                               weft_error *error);
/* Runs a fused step, or a head whose op has no blocks of its own, on one block of its outputs
 * (blocks.c). */
void weft__run_block(const executor *e, const plan_step *step, const weft_block *b);
/* Runs one step on the calling thread. */
void weft__executor_run_step(const executor *e, uint32_t index);
static inline void executor_clear_progress(executor *e, uint32_t begin, uint32_t end)
{
    for (size_t i = N_PHASES * (size_t)begin; i < N_PHASES * (size_t)end; i++)
        e->progress[i] = (phase_progress){0};
}
static inline void executor_clear_fault(executor *e)
{
    atomic_store(&e->fault.step, NO_FAULT);
    e->fault.index = e->fault.limit = 0;
}
/* Fills the call of a phase of a step, whose operands are among the plan's, with data. */
static inline void executor_set_call(executor *e, uint32_t index, int phase,
                                     const weft_tensor *tensors)
{
    const plan_step *step = &e->plan->steps[index];
    const node_record *node = &e->plan->graph->nodes[step->node];
    e->calls[2 * (size_t)index + (size_t)phase] =
        (weft_call){.attr = node->attr,
                    .in = tensors + step->first_operand,
                    .out = tensors + step->first_operand + node->n_in,
                    .n_in = node->n_in,
                    .n_out = node->op->n_out,
                    .scratch = e->arena + step->scratch,
                    .tiles = step->tiles[phase],
                    .phase = phase,
                    .run = &e->run,
                    .node = index};
}
/* Whether the last run stopped before the end of the plan. */
static inline bool executor_paused(const executor *e)
{
    return e->end > 0 && e->end < e->plan->n_intervals;
}

#endif
