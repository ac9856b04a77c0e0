/* Cases of emit_cases: a graph and its parameters, from which files and a driver are written. */
#ifndef WEFT_TESTS_EMIT_CASES_H
#define WEFT_TESTS_EMIT_CASES_H

#include "emit_random.h"

#include <weft/pass.h>

#define EMIT_TARGETS 64

/* A graph, what it computes, and its memory. Inputs of a random case have data. */
typedef struct test_case {
    char name[128];
    weft_graph *g;
    weft_params *params;
    weft_value targets[EMIT_TARGETS]; /* outputs, then what only has to run */
    size_t n_targets, n_outputs, n_samples;
    weft_value rate;
    const emit_random *random; /* NULL: inputs are drawn here */
    const weft_pass *pass;     /* of its plan; NULL: none */
    int64_t min_narrow; /* of its plan: values of as many elements are stored as bf16; 0: none */
    int64_t vocab;      /* integers are below it */
} test_case;

/* Emits the plan, runs it `steps` times, and writes the driver. A step runs once more after the states
 * have come from a file. */
void emit_write_case(const test_case *c, int steps);

/* emit_quantized.c: models with matrices of 8 and 4 bits. */
void emit_write_quantized(void);

/* emit_wide.c: gradients of larger values; see test_case.min_narrow. */
void emit_write_wide(int64_t min_narrow);

/* emit_loops.c: loops (weft_scan); one of 10, 1,000 and 100,000 steps. */
void emit_write_loops(int64_t min_narrow);
void emit_write_lengths(void);

#endif
