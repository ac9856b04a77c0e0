/* The order in which one process adds the gradients of its batches of an update: the running sum,
 * and a stack of stored sums that wait for their other half of the tree (pieces.h). */
#ifndef WEFT_MODELS_SUMS_H
#define WEFT_MODELS_SUMS_H

#include "pieces.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is done with the gradient of one batch. */
typedef struct sum_action {
    int store; /* the slot in which the running sum is stored first; -1: it is not */
    bool adds; /* the gradient is added to the running sum; false: it becomes the running sum */
    int slots; /* stored sums then */
    int pops;  /* how many of them, the last ones, are added to the running sum afterwards */
} sum_action;

typedef struct sum_schedule {
    uint32_t n;          /* batches of this process */
    sum_action *actions; /* [n] */
} sum_schedule;

/* Plans the sums of the batches `own` among `total` of an update. False if out of memory. */
bool weft__sums_schedule(sum_schedule *s, uint32_t total, weft_sum_node own);
void weft__sums_free(sum_schedule *s);

#endif
