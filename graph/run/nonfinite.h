/* Where a number that is not finite came from. */
#ifndef WEFT_GRAPH_NONFINITE_H
#define WEFT_GRAPH_NONFINITE_H

#include "plan/plan.h"

#include <weft/session.h>

/* Runs the steps again one by one, without the updates, until one makes a number that is not
 * finite, and tells which; `calls` are the session's, two a step (nonfinite.c). */
weft_status nonfinite_find(const weft_plan *plan, const weft_call *calls, weft_error *error);

#endif
