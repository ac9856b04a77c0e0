/* Stages inside: see pipeline.h. */
#ifndef WEFT_AUTOGRAD_STAGES_H
#define WEFT_AUTOGRAD_STAGES_H

#include "pipeline.h"

/* ---- Division (stage_nodes.c, stage_cuts.c) ---- */

/* What a node of the graph is to the stages. */
enum {
    NODE_UNUSED, /* no target needs it */
    NODE_COPIED, /* part of every stage that needs it */
    NODE_PLACED  /* part of one stage */
};

typedef struct stage_division {
    const weft_graph *whole;
    const weft_value *targets;
    size_t n_targets, n_nodes, n_values;
    int32_t size;
    uint8_t *kind;   /* by node */
    int32_t *stage;  /* by node: of a placed one; else -1 */
    int32_t *begins; /* by node, of states: the stage of the first reader; else -1 */
    uint8_t *reads;  /* [size][n_values]: whether the stage reads the value of a lower stage */
    uint8_t *differentiable; /* by value: gradients of the targets may flow through it */
} stage_division;

/* Fills *d; false with the error if that fails. weft__stages_free frees what it has in either case.
 * `like`: a stage that says where states begin; NULL: the cuts say. */
bool weft__stages_divide(stage_division *d, const weft_graph *whole, const weft_value *targets,
                         size_t n, int32_t size, const weft_stage *like, weft_error *error);
void weft__stages_free(stage_division *d);
/* Sets is_member[node] to whether the node is part of a stage. A target that is a copied node is
 * part of the last stage, whoever else needs it. */
void weft__stages_members(const stage_division *d, int32_t stage, uint8_t *is_member);

/* Sets d->stage of all placed nodes (stage_cuts.c). */
bool weft__stages_cut(stage_division *d, weft_error *error);

/* ---- One stage (stages.c, stage_grad.c) ---- */

/* A value that another stage sends or receives. */
typedef struct stage_crossing {
    uint32_t id;      /* in the whole graph */
    weft_value value; /* in the stage's; WEFT_NO_VALUE until it is received */
    int32_t peer, tag;
    bool returns; /* its gradient goes the other way */
    weft_flight flight, gradient;
} stage_crossing;

struct weft_stage {
    weft_graph *graph;
    bool graph_taken, training;
    weft_ranks ranks;
    uint32_t whole; /* the tag of the whole graph */
    size_t n_values;
    uint32_t *map;     /* by value of the whole: its id in the stage's graph; 0: none */
    int32_t *stage_of; /* by value of the whole */
    stage_crossing *received, *sent;
    size_t n_received, n_sent;
    int32_t first_gradient_tag; /* a gradient's tag is this plus its value's */
    size_t n_states;            /* of the whole */
    char **states;              /* their names */
    int32_t *begins;            /* [n_states]: as in the division */
    uint8_t *holds;             /* [n_states][size] */
};

/* Begins to send a value to a stage. */
weft_flight weft__stage_send(weft_stage *s, weft_value value, int32_t peer, int32_t tag);

#endif
