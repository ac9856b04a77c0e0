/* The cases whose sums have an error bound: see sums_test.c. */
#ifndef WEFT_TESTS_SUMS_CASES_H
#define WEFT_TESTS_SUMS_CASES_H

#include "tests.h"

/* A result, and the sum of the magnitudes of its terms (WEFT_NO_VALUE: the result's own). */
typedef struct outcome {
    weft_value y, magnitude;
} outcome;

typedef struct sums_case {
    const char *name;
    outcome (*build)(weft_graph *g, weft_dtype dtype);
    double bound; /* in units of 2^-24 of the sum of the magnitudes */
} sums_case;
extern const sums_case sums_cases[];
extern const size_t sums_n_cases;

#endif
