/* Where a number that is not finite came from. */
#ifndef WEFT_GRAPH_NONFINITE_H
#define WEFT_GRAPH_NONFINITE_H

#include "execute.h"

#include <weft/session.h>

/* Runs the steps again, one by one and without the updates, until one reads or writes a number that
 * is not finite. WEFT_OK if there is none, else WEFT_NOT_FINITE with the name of the node or state,
 * and the element. */
weft_status weft__nonfinite_find(const executor *e, weft_error *error);

#endif
