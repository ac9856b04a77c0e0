/* States that only the first run of a session reads, whose memory it gives back
 * (weft_session_options.release_states). */
#ifndef WEFT_GRAPH_RELEASE_H
#define WEFT_GRAPH_RELEASE_H

#include "execute.h"

#include <weft/weft.h>

typedef struct released_state {
    uint32_t interval; /* the last one that reads it */
    uint32_t root;     /* value id in the plan's graph */
} released_state;

typedef struct releases {
    released_state *list; /* in order of their intervals */
    size_t n;
    bool begun; /* the memory of some is gone */
} releases;

/* Lists the states that only intervals of the first run read, and which are not targets. False: no
 * memory. */
bool weft__releases_init(releases *r, const weft_plan *plan);
void weft__releases_free(releases *r);
/* Runs the intervals of the first run, and gives the memory of states of `params` back once they have
 * been read. If this succeeds and the plan has other intervals, the executor is paused before
 * them. */
weft_status weft__releases_run(releases *r, weft_params *params, executor *e, int team,
                               weft_profile *profile, weft_error *error);

#endif
