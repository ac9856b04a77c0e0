/* Parallel regions. */
#ifndef WEFT_GRAPH_TEAM_H
#define WEFT_GRAPH_TEAM_H

#include <weft/session.h>

#include "base/private.h"

/* Whether weft was built with OpenMP. Without it a team is the calling thread. */
WEFT_PRIVATE_API bool weft__team_has_openmp(void);

/* Sets *team to the number of threads, `threads` at most, that the calling thread's next region may
 * have without OpenMP ending the process or waiting forever: see "Threads" in <weft/session.h>. If
 * the threads' stacks are too small, *team is 1 and the result WEFT_NO_MEMORY. */
weft_status weft__team(int threads, int *team, weft_error *error);

/* Calls run(data) in a parallel region of one thread, in which libraries create no threads. */
void weft__team_alone(void (*run)(void *), void *data);

/* What thread `thread` of `threads` does in a region. */
typedef void (*team_function)(void *data, int thread, int threads);
/* Calls run(data, thread, threads) on each thread of a region: of the pool, or of OpenMP if it has
 * no function; weft__team has granted those. In a pool the calls may come one after another.
 * WEFT_BAD_ARGUMENT if the pool makes wrong calls; all correct ones are made then too. */
weft_status weft__team_run(const weft_thread_pool *pool, int threads, team_function run, void *data,
                           weft_error *error);

#endif
