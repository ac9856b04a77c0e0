/* The plan inside: its records, and the functions of the files that make it. */
#ifndef WEFT_GRAPH_PLAN_H
#define WEFT_GRAPH_PLAN_H

#include "ir/scan.h"
#include "passes/fuse.h"
#include "passes/passes.h"

#include <weft/plan.h>

#include "base/private.h"

/* ---- Fused groups (fused.c) ---- */

/* Elements of a block in f32 of an operand that is stored as bf16, or a row if that is longer. */
#define NARROW_BLOCK 4096

/* May the node at `position`, in the fused group of `head`, overwrite a storage? storage[root of a
 * value] is what the value lies in. */
bool weft__fused_may_overwrite(const weft_graph *g, const schedule *s, uint32_t head,
                               uint32_t position, const uint32_t *storage, uint32_t overwritten);
/* Sets what the executor needs to run a head and the next n_fused steps tile by tile. */
void weft__fused_set_steps(weft_plan *plan, uint32_t head, uint32_t n_fused);

/* ---- The plan (plan.c) ---- */

typedef enum storage_kind { STORAGE_ARENA, STORAGE_STATE, STORAGE_CONSTANT } storage_kind;

/* Where an operand lies: an offset in bytes in the arena, a state or a constant. */
typedef struct place {
    storage_kind kind;
    uint32_t root; /* value id of the state or constant */
    size_t offset; /* of element [0, ..., 0] */
} place;

/* A scan and the plan of its body. What the body reads of the scan's operands, and what it writes
 * there, has buffers of that plan that are given: they lie beyond its arena, and the loop says
 * where, step by step (run/loop.c). */
typedef struct plan_loop {
    uint32_t node;
    const scan_attr *scan;
    weft_plan *body;
    bool shared;     /* all threads run each step of the loop; otherwise one runs the whole loop */
    size_t scratch;  /* bytes: the arena of the body, and the second buffers of its carries */
    size_t *spare;   /* [n_carry]: the offset of its second buffer */
    uint32_t *in;    /* by input of the body: index + 1 of its buffer; 0: no step reads it */
    uint32_t *value; /* by output: its id in the body's plan */
    size_t *bytes;   /* by input, then by output: of its value in one step */
    bool *direct;    /* by output: the body writes it where it belongs; otherwise it is copied */
    bool *stacked;   /* by carry: it is also an output that is stacked directly, and read there */
} plan_loop;

typedef struct plan_step {
    uint32_t node;      /* of the plan's graph */
    weft_kernel kernel; /* NULL for a scan */
    plan_loop *loop;    /* NULL unless the node is a scan */
    uint32_t superstep; /* of its interval */
    uint8_t phases;
    int64_t tiles[2];
    int64_t tile_work[2];    /* of one tile with all fused steps: about its nanoseconds */
    uint32_t first_operand;  /* of plan->tensors and ->places: inputs, then outputs */
    size_t scratch;          /* offset in the arena */
    uint32_t scratch_buffer; /* index + 1; 0: the step has no scratch */
    /* Of the head of a fused group: how many of the next steps run on each of its tiles, right
     * after the tile; they have no tiles of their own. */
    uint32_t n_fused;
    bool fused;      /* runs on the tiles of a head */
    bool by_block;   /* of a head: its tiles, and what is fused with it, run block by block */
    bool widens;     /* operands are stored as bf16, but the kernel is one of f32 */
    bool whole_rows; /* of a head: a fused step needs whole rows */
    /* Of a head whose op has no blocks: its output, and the block of it that a tile writes. */
    int64_t rows, columns, block_rows, block_columns;
} plan_step;

typedef struct plan_interval {
    uint32_t first_step, n_steps;
    uint32_t superstep; /* intervals of one superstep have no barrier between them */
    uint8_t phases;
    int64_t work[2]; /* nanoseconds of all tiles of a phase; a barrier separates phases that have
                        some */
    bool serial;     /* so little work that one thread runs it */
    uint32_t loop;   /* index + 1 of its only step, a shared loop, which has no phases; 0: none */
} plan_interval;

struct weft_plan {
    weft_graph *graph;
    arena arena;
    plan_step *steps;
    weft_plan_step *listed; /* the steps as programs see them */
    size_t n_steps;
    plan_interval *intervals;
    size_t n_intervals;
    uint32_t fixed_intervals; /* the first fixed_intervals run in a session's first run only; of a
                                 body, in the first step of its loop */
    weft_tensor *tensors;     /* data NULL */
    place *places;
    operand_matrix *matrices; /* of the operands of fused steps */
    size_t n_operands;
    weft_plan_buffer *buffers;
    size_t n_buffers;
    uint32_t *buffer_of; /* by value id: index + 1 of the buffer of its storage, or 0 */
    uint32_t *map;       /* from value ids of the user's graph */
    uint8_t *kinds;      /* by value id of the user's graph: VALUE_INPUT | ... */
    size_t n_map;
    uint32_t user_tag;
    uint8_t *readable; /* by value id: a target or an input */
    plan_target *targets;
    size_t n_targets;
    size_t op_workspace; /* of each thread, for kernels; the blocks in f32 follow it */
    plan_loop *loops;
    size_t n_loops;
    uint8_t *given; /* of a body, by buffer: see plan_loop; NULL: the plan is not one of a body */
    const scan_body *body; /* that the plan is of; NULL: of none */
    size_t given_bytes;
    weft_plan_stats stats;
};

/* ---- What makes it ---- */

/* order.c: fills in the nodes with kernels in an order in which they can run. */
bool weft__order_nodes(const weft_graph *g, const plan_target *targets, size_t n_targets,
                       schedule *s, weft_error *error);
/* Moves what only the first run computes to the beginning of the order. False: no memory. */
bool weft__order_fixed(const weft_plan *plan, schedule *s);
/* intervals.c: cuts the plan's steps, whose tiles are known, into intervals, the longest runs of steps
 * that may run in parallel, and counts their work. The first n_fixed steps run in the first run
 * only. The nodes of alone[] (by node; may be NULL) share no interval. May be called again. */
bool weft__intervals_cut(weft_plan *plan, const uint32_t *storage, size_t n_fixed,
                         const uint8_t *alone, weft_error *error);
/* Then puts the steps of each interval in the order in which threads take them, and counts
 * barriers. */
bool weft__intervals_finish(weft_plan *plan, weft_error *error);

/* storage.c: fills in storage[value id], the value in whose storage the value lies. False if there
 * is no memory. */
bool weft__storage_assign(const weft_graph *g, const schedule *order, const plan_target *targets,
                          size_t n_targets, bool no_reuse, uint32_t *storage);
/* The bytes of a value of its own storage, rounded up to an alignment of 64. */
size_t weft__storage_bytes(const weft_graph *g, uint32_t id);

/* loop.c: fills in the rest of a loop whose body is planned. */
bool weft__loop_finish(weft_plan *plan, plan_loop *loop, weft_error *error);
/* Whether a value is all that its storage holds, so that it can be written where it belongs. */
bool weft__loop_covers(const weft_graph *body, uint32_t id);

/* steps.c: makes a step of each node of the schedule. */
bool weft__steps_make(weft_plan *plan, const schedule *s, weft_error *error);
/* The work of one call of a step. */
WEFT_PRIVATE_API weft_cost weft__plan_step_cost(const weft_plan *plan, const plan_step *step);

/* buffers.c: makes the buffers of storages and scratch, with lifetimes in intervals. */
bool weft__buffers_make(weft_plan *plan, const uint32_t *storage, bool no_reuse, weft_error *error);
/* The first interval in which most bytes are alive, and how many. False if out of memory. */
bool weft__buffers_peak(const weft_plan *plan, uint32_t *interval, size_t *bytes);
/* Packs the buffers into an arena, and fills in where each operand lies. */
bool weft__buffers_place(weft_plan *plan, weft_error *error);
/* Where a value lies; offset 0 of the arena if it has no buffer. */
place weft__plan_place(const weft_plan *plan, uint32_t id);

/* Sets the error "no memory"; returns false. */
static inline bool plan_no_memory(weft_error *error)
{
    weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for the plan");
    return false;
}

#endif
