/* What references of ops of any dtype share: elements as numbers, or as the bytes that they are. */
#ifndef WEFT_TESTS_EXACT_ANY_H
#define WEFT_TESTS_EXACT_ANY_H

#include "exact.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define EXACT(name)                                                                                \
    static void exact_##name(const void *attr, const weft_tensor *in, size_t n_in, weft_tensor *out)
#define UNUSED (void)attr, (void)in, (void)n_in, (void)out
#define ROW(name)                                                                                  \
    {                                                                                              \
#name, exact_##name                                                                        \
    }

static inline int64_t numel(const weft_tensor *t)
{
    return weft_shape_numel(t->shape);
}

/* The coordinates of element i of a shape, and back. */
static inline void place_of(const weft_shape *shape, int64_t i, int64_t *at)
{
    for (int d = shape->rank - 1; d >= 0; d--) {
        at[d] = i % shape->dim[d];
        i /= shape->dim[d];
    }
}
static inline int64_t index_of(const weft_shape *shape, const int64_t *at)
{
    int64_t i = 0;
    for (int d = 0; d < shape->rank; d++) i = i * shape->dim[d] + at[d];
    return i;
}

/* Where element i of `shape`, in row-major order, lies in t, which broadcasts to that shape. */
static inline int64_t offset_in(const weft_tensor *t, const weft_shape *shape, int64_t i)
{
    int64_t offset = 0;
    for (int d = shape->rank - 1; d >= 0; d--) {
        const int axis = d - (shape->rank - t->shape.rank);
        if (axis >= 0 && t->shape.dim[axis] != 1) offset += i % shape->dim[d] * t->stride[axis];
        i /= shape->dim[d];
    }
    return offset;
}

static inline double number_at(const weft_tensor *t, const weft_shape *shape, int64_t i)
{
    return weft_tensor_element(t, offset_in(t, shape, i));
}

/* Sets element i of a contiguous tensor. */
static inline void set(const weft_tensor *t, int64_t i, double x)
{
    if (t->dtype == WEFT_F32)
        ((float *)t->data)[i] = (float)x;
    else if (t->dtype == WEFT_F64)
        ((double *)t->data)[i] = x;
    else if (t->dtype == WEFT_I32)
        ((int32_t *)t->data)[i] = (int32_t)x;
    else
        ((uint8_t *)t->data)[i] = (uint8_t)x;
}

static inline void copy_element(const weft_tensor *to, int64_t i, const weft_tensor *from,
                                int64_t offset)
{
    const int64_t bytes = (int64_t)weft_dtype_bytes(to->dtype);
    memcpy((char *)to->data + i * bytes, (const char *)from->data + offset * bytes, (size_t)bytes);
}

#endif
