/* Pairs of values that should have the same numbers. */
#include "value_pairs.h"

#include "tests.h"

#include <weft/autograd.h>

#include <stdlib.h>
#include <string.h>

weft_value random_like(weft_graph *g, weft_value value, uint64_t seed)
{
    const weft_dtype dtype = weft_dtype_of(g, value);
    const weft_sample_input numbers = {dtype, weft_shape_of(g, value), -1, 1, false};
    void *data = malloc(weft_tensor_bytes(dtype, numbers.shape) + 8);
    weft_sample_input_fill(&numbers, dtype, seed, data);
    const weft_value constant = weft_constant(g, dtype, numbers.shape, data);
    free(data);
    return constant;
}

/* The largest distance of floats, relative to the largest number or 1; for others, whether a byte
 * differs. 0: the same bits. */
static double distance(weft_dtype dtype, const void *a, const void *b, size_t bytes)
{
    double worst = 0, scale = 1;
    if (!memcmp(a, b, bytes)) return 0;
    if (!weft_dtype_is_float(dtype)) return INFINITY;
    for (size_t k = 0; k < bytes / weft_dtype_bytes(dtype); k++) {
        const bool wide = dtype == WEFT_F64;
        const double x = wide ? ((const double *)a)[k] : (double)((const float *)a)[k];
        const double y = wide ? ((const double *)b)[k] : (double)((const float *)b)[k];
        if (isfinite(y)) scale = fmax(scale, fabs(y));
        if (x == y || (isnan(x) && isnan(y))) continue;
        if (!(fabs(x - y) <= worst)) worst = fabs(x - y);
    }
    return worst / scale;
}

double pairs_off(weft_graph *g, weft_session *s, const weft_value *targets, size_t n_pairs)
{
    double worst = 0;
    for (size_t k = 0; k < n_pairs; k++) {
        const weft_value *pair = &targets[2 * k];
        const weft_dtype dtype = weft_dtype_of(g, pair[0]);
        const weft_shape shape = weft_shape_of(g, pair[0]);
        const size_t bytes = weft_tensor_bytes(dtype, shape);
        void *data[2] = {malloc(bytes + 8), malloc(bytes + 8)};
        CU_ASSERT_TRUE(weft_shape_equal(shape, weft_shape_of(g, pair[1])));
        for (int i = 0; i < 2; i++)
            CU_ASSERT_EQUAL(weft_session_fetch(s, pair[i], data[i], bytes, NULL), WEFT_OK);
        worst = fmax(worst, distance(dtype, data[0], data[1], bytes));
        free(data[0]);
        free(data[1]);
    }
    return worst;
}
