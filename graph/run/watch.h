/* Watches: callbacks that see a value while a session runs (watch.c). */
#ifndef WEFT_GRAPH_WATCH_H
#define WEFT_GRAPH_WATCH_H

#include "execute.h"

#include <weft/session.h>

typedef struct watch {
    weft_watched seen; /* tensor: `bound`, or `copy` if `bound` is not contiguous */
    char *name;
    uint32_t id;       /* of the plan's graph */
    uint32_t interval; /* called before this interval runs; 0: at the start of a run */
    weft_tensor bound;
    void *copy; /* NULL: none is needed */
    weft_watch_fn callback;
    void *context;
} watch;

typedef struct watches {
    watch *list; /* in order of their intervals */
    size_t n;
    bool calling; /* a callback is running */
} watches;

/* Sets the interval before which the watch of w->id is called. False, with the error, if at no time
 * the buffer holds what the value's node computed. */
bool weft__watch_when(const weft_plan *plan, watch *w, weft_error *error);
/* Adds a watch whose id, interval, bound, seen.value, callback and context are set. */
weft_status weft__watches_add(watches *all, const weft_plan *plan, const watch *w,
                              weft_error *error);
/* Removes the watches of a value, or of all values for WEFT_NO_VALUE; returns how many. */
size_t weft__watches_remove(watches *all, weft_value value);
void weft__watches_free(watches *all);

/* weft__executor_run in several calls, with the callbacks in between. WEFT_CANCELLED if one returns
 * false. */
weft_status weft__watches_run(watches *all, executor *e, uint32_t until, int team,
                              weft_profile *profile, weft_error *error);

#endif
