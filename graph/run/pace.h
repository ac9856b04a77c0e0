/* Whether the next run of a session uses its threads, or thread 0 alone.
 *
 * On a busy machine a run waits for preempted threads, so a short run may take longer than on one
 * thread. After a run in which thread 0 slept for a quarter of the time, the next run uses one
 * thread. If that was faster, so are the next ones: 1, 3, 7, ... up to 63, with a run of the team
 * after each series. Otherwise the team runs 16 times before the next trial. On an idle machine
 * threads wait less, and no run is a trial. Results do not depend on the choice. */
#ifndef WEFT_GRAPH_PACE_H
#define WEFT_GRAPH_PACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pace {
    uint64_t team_ns;  /* the last run of the team */
    uint32_t alone;    /* runs of thread 0 alone that are to come */
    uint32_t series;   /* length of the last series of these; 0: alone was not faster */
    uint32_t together; /* runs of the team before the next trial */
    bool reported;     /* that one thread was faster */
} pace;

/* The threads of the next run: `team`, or 1. */
static inline int pace_team(const pace *p, int team)
{
    return p->alone ? 1 : team;
}

/* Records a whole run: its duration, and for how long thread 0 slept. */
void weft__pace_record(pace *p, bool alone, uint64_t ns, uint64_t slept_ns);

#endif
