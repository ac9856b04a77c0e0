/* What the suites of profiles share: a small model that trains, and an op that takes its time. */
#ifndef WEFT_TESTS_PROFILE_BENCH_H
#define WEFT_TESTS_PROFILE_BENCH_H

#include "tests.h"

/* Measured runs of profiled_runs. */
#define RUNS 5

typedef struct bench {
    weft_graph *graph;
    weft_params *params;
    weft_plan *plan;
    weft_session *session;
    weft_value loss;
} bench;

/* A Transformer with a training step, on this many threads; fails the test fatally. */
bench bench_open(int threads);
void bench_close(bench *b);
/* Runs once without a profile and RUNS times with one, which is returned. */
const weft_profile *profiled_runs(bench *b, size_t trace_runs);
/* The nodes that a run computes: all but leaves, views and groups. */
size_t computing_nodes(const weft_graph *g);

/* A program's own op whose single tile takes SLOW_SECONDS by the clock that profiles read. Its name
 * holds a quote, a backslash and a newline. */
#define SLOW_SECONDS 0.02
extern const weft_op slow;

#endif
