/* What each input of a session holds: its default, data of the program, or nothing (never fed,
 * refused or lost). */
#ifndef WEFT_GRAPH_FEEDS_H
#define WEFT_GRAPH_FEEDS_H

#include "plan/plan.h"

#include <weft/session.h>

typedef enum feed_state {
    FEED_NONE,    /* never fed */
    FEED_REFUSED, /* the last feed was refused, so the data before it are out of date */
    FEED_LOST,    /* another session has overwritten it in a shared arena */
    FEED_DEFAULT,
    FEED_DATA
} feed_state;

typedef struct feeds {
    uint32_t *inputs; /* ids in the plan's graph */
    uint8_t *state;   /* feed_state of each */
    size_t n, n_missing, n_default;
} feeds;

bool weft__feeds_init(feeds *f, const weft_plan *plan); /* false if out of memory */
void weft__feeds_free(feeds *f);
/* Writes the default of every input that still holds one; `memory` is the session's arena. */
void weft__feeds_fill_defaults(const feeds *f, const weft_plan *plan, char *memory);
/* Call before the program writes input `id`. The input counts as fed from now on, and holds its
 * default, if it has one, until the program writes. */
void weft__feeds_mark_fed(feeds *f, const weft_plan *plan, uint32_t id, char *memory);
/* A feed of input `id` was refused. */
void weft__feeds_mark_refused(feeds *f, uint32_t id);
/* Another session has used the arena. */
void weft__feeds_lose(feeds *f, const weft_plan *plan);
/* WEFT_NOT_FOUND, with the name of the first input that holds nothing, if there is one; of input
 * `id` alone, if that is not 0. */
weft_status weft__feeds_check(const feeds *f, const weft_plan *plan, uint32_t id,
                              weft_error *error);

#endif
