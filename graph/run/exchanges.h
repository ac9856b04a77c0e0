/* The exchanges of a session's runs with other processes. */
#ifndef WEFT_GRAPH_EXCHANGES_H
#define WEFT_GRAPH_EXCHANGES_H

#include "plan/plan.h"

#include <weft/communicator.h>

#include <stdatomic.h>

/* An exchange that a step has started; `communicator` is NULL once it has completed. */
typedef struct flight {
    weft_communicator *communicator;
    void *request;
    double start; /* clock_seconds */
} flight;

typedef struct exchanges {
    flight *flights;     /* by step that starts one; NULL if the plan has none */
    uint64_t *waited_ns; /* by step that waits, since the profile was switched on */
    size_t n_flights;
    weft_communicator **communicators; /* by group */
    size_t n_communicators;
    atomic_int under_way, ended; /* of this run */
    atomic_bool failed;          /* one of this run could not begin, so none begins after it */
} exchanges;

/* Allocates for a plan. False if out of memory. */
bool weft__exchanges_init(exchanges *e, const weft_plan *plan);
void weft__exchanges_free(exchanges *e);
/* Copies the list of communicators. */
weft_status weft__exchanges_bind(exchanges *e, weft_communicator *const *communicators, size_t n,
                                 weft_error *error);
/* Before a run. */
void weft__exchanges_begin(exchanges *e);
/* Advances exchanges under way. */
void weft__exchanges_progress(exchanges *e);
/* After a failed run of a plan with exchanges: warns the other processes, which wait for exchanges
 * that this one did not begin, and abandons pending ones. No warning is sent if a number is not
 * finite after all pending exchanges have ended: the other processes found the same number, and
 * their runs end at the same node. */
void weft__exchanges_abandon(exchanges *e, const weft_error *error);

#endif
