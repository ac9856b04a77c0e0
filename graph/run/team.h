/* Parallel regions of one thread; see also weft_team in <weft/op.h>. */
#ifndef WEFT_GRAPH_TEAM_H
#define WEFT_GRAPH_TEAM_H

/* Calls run(data) in a parallel region of one thread, in which libraries create no threads. */
void weft__team_alone(void (*run)(void *), void *data);

#endif
