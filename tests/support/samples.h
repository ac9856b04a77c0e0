/* Runs one sample of an op: a graph of one node. */
#ifndef WEFT_TESTS_SAMPLES_H
#define WEFT_TESTS_SAMPLES_H

#include <weft/op.h>

/* How a sample is run. */
typedef struct variant {
    weft_dtype dtype;
    int threads;
    bool strided;  /* inputs are every other element of a larger tensor */
    bool expanded; /* the op's expansion instead of the op */
} variant;

typedef struct outputs {
    size_t n;
    weft_tensor tensor[WEFT_MAX_OUTPUTS]; /* dense, own data */
} outputs;

/* The dtype of input i where the floating type under test is `dtype`, and its values, which the
 * caller frees; those of f32 are f64's rounded, so that dtypes can be compared. */
weft_dtype input_dtype(const weft_sample *sample, size_t i, weft_dtype dtype);
weft_tensor input_data(const weft_sample *sample, size_t i, weft_dtype dtype);

/* Builds a graph of the sample's one node, runs it, and copies the outputs, which the caller frees
 * with free_outputs. */
bool run_sample(const weft_op *op, const weft_sample *sample, variant v, outputs *out,
                weft_error *error);
void free_outputs(outputs *o);

#endif
