/* The loops of a run: what moves from step to step. The executor runs the steps (execute.c). */
#ifndef WEFT_GRAPH_LOOP_H
#define WEFT_GRAPH_LOOP_H

#include "execute.h"

/* An operand of the body in a buffer that is given. */
typedef struct loop_operand {
    uint32_t operand, buffer;
    size_t offset; /* in bytes, in that buffer */
} loop_operand;

/* Where a value of the body lies after a step. */
typedef struct loop_value {
    const char *at; /* NULL: in a buffer that is given */
    uint32_t buffer;
    size_t offset;
} loop_value;

typedef struct loop_run {
    const plan_loop *loop;
    executor body;
    const weft_call *call; /* of the scan */
    weft_tensor *tensors;  /* the body's operands */
    loop_operand *moving;
    size_t n_moving;
    char **base;       /* by buffer of the body: where a given one lies in this step */
    loop_value *value; /* by output of the scan */
    char **carry;      /* by carry: where the last step has left it */
    /* Of a loop that threads share: a step that runs is a turn, which is a phase of the loop, whose
     * work is one. */
    phase_progress turn;
    int64_t step;     /* of the turn that has begun last */
    atomic_bool over; /* no more step runs, or one has failed */
} loop_run;

/* Allocates what a loop needs, apart from `body`. False if out of memory. */
bool weft__loop_init(loop_run *l, const plan_loop *loop);
void weft__loop_free(loop_run *l);
/* Resolves the operands of the loop of a step whose own are bound, and of the loops in its body. */
void weft__loop_bind(executor *e, uint32_t step);
/* Forgets the last run of all loops. */
void weft__loops_reset(executor *e);

/* The first step from `step` on that runs; the number of steps if none does. Those before it pass the
 * carries on. */
int64_t weft__loop_next(loop_run *l, int64_t step);
/* Before a step of the loop: makes the operands of the body those of this step. */
void weft__loop_move(loop_run *l, int64_t step);
/* After it: copies what the body could not write where it belongs. */
void weft__loop_collect(loop_run *l, int64_t step);

#endif
