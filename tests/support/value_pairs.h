/* Pairs of values that should have the same numbers, such as a batch and a loop over its examples. */
#ifndef WEFT_TESTS_VALUE_PAIRS_H
#define WEFT_TESTS_VALUE_PAIRS_H

#include <weft/weft.h>

/* A constant of random numbers in [-1, 1) of the type of a value. */
weft_value random_like(weft_graph *g, weft_value value, uint64_t seed);
/* The largest distance between targets[2 k] and targets[2 k + 1] after a run, for k < n_pairs, relative to
 * the largest number or 1; infinity if values of other types than floats differ. 0: the same bits. */
double pairs_off(weft_graph *g, weft_session *s, const weft_value *targets, size_t n_pairs);

#endif
