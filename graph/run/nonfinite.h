/* Where a number that is not finite came from. */
#ifndef WEFT_GRAPH_NONFINITE_H
#define WEFT_GRAPH_NONFINITE_H

#include "plan/plan.h"

#include <weft/session.h>

/* Runs the steps again, one by one and without the updates, until one reads or writes a number that
 * is not finite. `calls` are the session's, two a step. WEFT_OK if there is none; else
 * WEFT_NOT_FINITE, with the name of the node or state, and the element. */
weft_status nonfinite_find(const weft_plan *plan, const weft_call *calls, weft_error *error);

#endif
