/* What the suites that hold weft against PyTorch's numbers share. */
#ifndef WEFT_TESTS_GOLDEN_H
#define WEFT_TESTS_GOLDEN_H

#include "tests.h"

#define GOLDEN(file) WEFT_GOLDEN_DIR "/" file

/* Norm-wise relative errors that are let pass. PyTorch computed the numbers in f64; the files have
 * them in f32, which rounds each by up to 2^-24 = 6e-8. In f64, where weft's own rounding is far
 * smaller, 5e-7 is eight times that. In f32, 1e-4 is 1700 roundings of 6e-8; most errors are below
 * 5e-6, but that of a small gradient, next to the floor below, reaches 0.6 of the limit. */
typedef struct golden_precision {
    weft_dtype dtype;
    double limit;
} golden_precision;
#define GOLDEN_PRECISIONS 2
extern const golden_precision golden_precisions[GOLDEN_PRECISIONS];

/* A new store with the tensors of the file whose names begin with `prefix`, without it, floating
 * ones in `dtype`. */
weft_params *golden_load(const char *path, const char *prefix, weft_dtype dtype);
/* A tensor of the store as a state of the graph; false if there is none of that name. */
bool golden_state(weft_graph *g, const weft_params *store, const char *name, weft_value *value);
/* Element i of a contiguous floating tensor. */
double golden_element(const weft_tensor *t, int64_t i);
/* The norm of all tensors grad.* of the store, of which there must be `n`. Some gradients are zero
 * but for rounding (softmax does not see a bias of the keys). Their error has no relation to their
 * own norm but to that of all: tests add GOLDEN_FLOOR of it, times the limit. In f32 that is 1e-7
 * of the norm, one or two roundings. */
#define GOLDEN_FLOOR 1e-3
double golden_gradient_norm(const weft_params *store, size_t n);
/* |got - wanted| <= limit |wanted| + floor; false, with a line that says so, for other shapes and
 * for any NaN. */
bool golden_agrees(const char *what, const weft_tensor *got, const weft_tensor *wanted,
                   double limit, double floor);
/* The same for a target of a session and a tensor of the store, which must be there. */
void golden_target(weft_session *s, const weft_params *store, weft_value value, const char *name,
                   double limit, double floor);

#endif
