/* Random calls of ops, as the suite exact draws them: shapes of every path, layouts, attributes, values
 * that are not finite. */
#ifndef WEFT_TESTS_EMIT_RANDOM_H
#define WEFT_TESTS_EMIT_RANDOM_H

#include <weft/op.h>
#include <weft/store.h>

enum { EMIT_RANDOM_INPUTS = 640, EMIT_RANDOM_TARGETS = 64 };

/* A graph of such calls. Its inputs have data, which the caller frees. */
typedef struct emit_random {
    weft_graph *g;
    weft_params *params; /* of states that the calls update */
    weft_value input[EMIT_RANDOM_INPUTS], target[EMIT_RANDOM_TARGETS];
    void *data[EMIT_RANDOM_INPUTS];
    size_t n_inputs, n_targets, n_calls;
    bool bf16; /* see emit_between */
} emit_random;

/* With `bf16`, -x of an x in f32: a value that a node computes, and that may be stored as bf16, where an
 * input, a state and a target may not. Otherwise x. */
weft_value emit_between(weft_graph *g, weft_value x, bool bf16);

/* Adds the call of this seed; false if it is too large, or nothing is drawn for the op and dtype. */
bool emit_random_add(emit_random *r, const weft_op *op, weft_dtype dtype, uint64_t seed);

#endif
