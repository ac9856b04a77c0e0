/* What the inputs of a session hold. */
#ifndef WEFT_GRAPH_FEEDS_H
#define WEFT_GRAPH_FEEDS_H

#include "plan/plan.h"

#include <weft/session.h>

typedef struct feeds {
    uint8_t *state; /* by value id of the plan's graph, of inputs */
    size_t n_missing, n_default;
} feeds;

bool feeds_init(feeds *f, const weft_plan *plan); /* false when memory is out */
void feeds_fill_defaults(const feeds *f, const weft_plan *plan, char *base);
/* From now on the input holds what the program writes; until it does, the default if there is one.
 */
void feeds_give(feeds *f, const weft_plan *plan, uint32_t id, char *base);
/* WEFT_NOT_FOUND, with the name of an input, while one holds nothing. */
weft_status feeds_check(const feeds *f, const weft_plan *plan, weft_error *error);

#endif
