/* What the files of references share: elements of tensors of any dtype, and coordinates. Attribute
 * structs are declared again in those files as the ops' files declare them. */
#ifndef WEFT_TESTS_REFERENCE_DATA_H
#define WEFT_TESTS_REFERENCE_DATA_H

#include "reference.h"

#include <weft/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A reference of an op; a table of them ends with a NULL op. */
typedef struct reference {
    const char *op;
    reference_function *compute;
} reference;
extern const reference references_elementwise[], references_reduce[], references_shape[],
    references_training[], references_conv[], references_winograd[];

#define REFERENCE(name)                                                                            \
    static void ref_##name(const void *attr, const weft_tensor *in, size_t n_in, weft_tensor *out)
#define UNUSED (void)attr, (void)in, (void)n_in, (void)out

static inline double *data(const weft_tensor *t)
{
    return t->data;
}
static inline int64_t numel(const weft_tensor *t)
{
    return weft_shape_numel(t->shape);
}
static inline double get(const weft_tensor *t, int64_t i)
{
    return weft_tensor_element(t, i);
}
static inline void put(weft_tensor *t, int64_t i, double x)
{
    switch (t->dtype) {
    case WEFT_F32:
        ((float *)t->data)[i] = (float)x;
        break;
    case WEFT_F64:
        ((double *)t->data)[i] = x;
        break;
    case WEFT_I32:
        ((int32_t *)t->data)[i] = (int32_t)x;
        break;
    case WEFT_U8:
        ((uint8_t *)t->data)[i] = (uint8_t)x;
        break;
    default:
        ((uint8_t *)t->data)[i] = x != 0;
        break;
    }
}

/* The coordinates of element i, and the element of t (which broadcasts to `shape`) at coordinates.
 */
static inline void coordinates(weft_shape shape, int64_t i, int64_t *at)
{
    for (int d = shape.rank - 1; d >= 0; d--) {
        at[d] = i % shape.dim[d];
        i /= shape.dim[d];
    }
}
static inline int64_t index_at(const weft_tensor *t, weft_shape shape, const int64_t *at)
{
    int64_t i = 0;
    for (int d = 0; d < t->shape.rank; d++) {
        int64_t c = at[d + shape.rank - t->shape.rank];
        i = i * t->shape.dim[d] + (t->shape.dim[d] == 1 ? 0 : c);
    }
    return i;
}
static inline double broadcast(const weft_tensor *t, weft_shape shape, int64_t i)
{
    int64_t at[WEFT_MAX_RANK];
    coordinates(shape, i, at);
    return get(t, index_at(t, shape, at));
}

static inline int64_t row_length(const weft_tensor *t)
{
    return t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
}
/* A loop over the rows of `in`. Declares r, and n, their length. */
#define ROWS(n) for (int64_t n = row_length(in), r = 0; n && r < numel(in) / n; r++)

#define SAME(name)                                                                                 \
    {                                                                                              \
#name, ref_##name                                                                          \
    }

#endif
