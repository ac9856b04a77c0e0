/* Sums over the steps of a loop that nodes after it compute: see scan_lift.c. */
#ifndef WEFT_AUTOGRAD_SCAN_LIFT_H
#define WEFT_AUTOGRAD_SCAN_LIFT_H

#include "scan.h"

typedef struct scan_lift {
    weft_graph *graph; /* of the loop */
    const weft_graph *body;
    int64_t n;                          /* steps */
    const weft_value *each, *sequences; /* [n_each]: of the body, and of the graph */
    const weft_value *shared;           /* [n_shared] of the body */
    size_t n_each, n_shared;
    weft_value *out; /* what the loop stacks: the lift appends to it, up to max_out values */
    size_t n_out, max_out;
    const weft_value *stacks; /* [n_out]: of the graph, once the loop is in it */
    uint8_t *lifted; /* by value of the body, 0 at first: a term that is left to the graph */
} scan_lift;

/* Decides which terms of a value of the body, to be summed over all steps, nodes after the loop
 * sum up. Returns the value of the body that the loop still has to add up, or WEFT_NO_VALUE. */
weft_value weft__scan_lift_plan(scan_lift *l, weft_graph *body, weft_value sum);
/* The sum over all steps, in the graph, from `left`: what the loop added up, or WEFT_NO_VALUE. */
weft_value weft__scan_lift_sum(const scan_lift *l, weft_value sum, weft_value left);

#endif
