/* What each input of a session holds: nothing yet, its default, or data of the program. */
#ifndef WEFT_GRAPH_FEEDS_H
#define WEFT_GRAPH_FEEDS_H

#include "plan/plan.h"

#include <weft/session.h>

typedef struct feeds {
    uint8_t *state; /* [value id of the plan's graph], of inputs only */
    size_t n_missing, n_default;
} feeds;

bool feeds_init(feeds *f, const weft_plan *plan); /* false when memory is out */
/* Writes the default of every input that still holds one; `memory` is the session's arena. */
void feeds_fill_defaults(const feeds *f, const weft_plan *plan, char *memory);
/* Call before the program writes input `id`. The input counts as fed from now on, and holds its
 * default, if it has one, until the program writes. */
void feeds_mark_fed(feeds *f, const weft_plan *plan, uint32_t id, char *memory);
/* WEFT_NOT_FOUND, with the name of the first input that holds nothing, if there is one. */
weft_status feeds_check(const feeds *f, const weft_plan *plan, weft_error *error);

#endif
