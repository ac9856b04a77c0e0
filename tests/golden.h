/* What PyTorch computed, in files under golden/, and the comparison with it. Errors are relative
 * and norm-wise. */
#ifndef WEFT_TESTS_GOLDEN_H
#define WEFT_TESTS_GOLDEN_H

#include "tests.h"

#define GOLDEN(file) WEFT_GOLDEN_DIR "/" file

typedef struct golden_precision {
    weft_dtype dtype;
    double limit; /* the files are f32, so f64 cannot agree better than rounding to it allows */
} golden_precision;
#define GOLDEN_PRECISIONS 2
extern const golden_precision golden_precisions[GOLDEN_PRECISIONS];

double golden_element(const weft_tensor *t, int64_t i);
/* |got - wanted| <= limit |wanted| + floor; false, with a line that says so, for other shapes and
 * for any NaN. */
bool golden_agrees(const char *what, const weft_tensor *got, const weft_tensor *wanted,
                   double limit, double floor);
/* Loads a file, and copies it into a store whose floating tensors are of `dtype`. */
weft_params *golden_load(const char *path, weft_dtype dtype);
/* A tensor of the store as a state of the graph; false if there is none of that name. */
bool golden_state(weft_graph *g, const weft_params *store, const char *name, weft_value *value);
/* Holds a target of the session against the tensor of that name. */
void golden_check(const weft_session *s, const weft_params *store, weft_value value,
                  const char *name, double limit);

#endif
