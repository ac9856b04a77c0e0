/* Ops that move, choose, compare or make elements of any dtype. See exact.h. Numbers are f64 here,
 * which has those of all dtypes. */
#include "exact_any.h"

/* ---- Elementwise ---- */

EXACT(where)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) {
        const weft_tensor *from = &in[number_at(&in[0], &out->shape, i) != 0 ? 1 : 2];
        copy_element(out, i, from, offset_in(from, &out->shape, i));
    }
}

EXACT(masked_fill)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) {
        if (number_at(&in[1], &out->shape, i) != 0)
            set(out, i, *(const double *)attr);
        else
            copy_element(out, i, &in[0], offset_in(&in[0], &out->shape, i));
    }
}

/* Rounds towards zero and saturates; NaN becomes 0. */
static double whole(double x)
{
    if (x != x) return 0;
    return x >= INT32_MAX ? INT32_MAX : x <= INT32_MIN ? INT32_MIN : trunc(x);
}

EXACT(cast)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) {
        const double x = number_at(in, &out->shape, i);
        set(out, i, out->dtype == WEFT_I32 ? whole(x) : out->dtype == WEFT_BOOL ? x != 0 : x);
    }
}

EXACT(bitcast)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++)
        memcpy((char *)out->data + 4 * i,
               (const char *)in->data + 4 * offset_in(in, &out->shape, i), 4);
}

#define COMPARE(name, expression)                                                                  \
    EXACT(name)                                                                                    \
    {                                                                                              \
        UNUSED;                                                                                    \
        for (int64_t i = 0; i < numel(out); i++) {                                                 \
            const double x = number_at(&in[0], &out->shape, i);                                    \
            const double y = number_at(&in[n_in - 1], &out->shape, i);                             \
            (void)y;                                                                               \
            set(out, i, expression);                                                               \
        }                                                                                          \
    }
COMPARE(equal, x == y)
COMPARE(not_equal, x != y)
COMPARE(less, x < y)
COMPARE(less_equal, x <= y)
COMPARE(greater, x > y)
COMPARE(greater_equal, x >= y)
COMPARE(logical_and, x != 0 && y != 0)
COMPARE(logical_or, x != 0 || y != 0)
COMPARE(logical_not, x == 0)

EXACT(contiguous)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) copy_element(out, i, in, offset_in(in, &in->shape, i));
}

/* ---- Numbers that are made ---- */

typedef struct generate_attr {
    weft_dtype dtype;
    weft_shape shape;
    double start, step;
} generate_attr;

EXACT(arange)
{
    UNUSED;
    const generate_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) set(out, i, a->start + (double)i * a->step);
}

EXACT(tril_mask)
{
    UNUSED;
    const generate_attr *a = attr;
    const int64_t n = out->shape.dim[1];
    for (int64_t i = 0; i < numel(out); i++)
        set(out, i, (double)(i % n) <= (double)(i / n) + a->start);
}

EXACT(one_hot)
{
    UNUSED;
    const int64_t classes = *(const int64_t *)attr;
    for (int64_t i = 0; i < numel(out); i++)
        set(out, i, ((const int32_t *)in->data)[i / classes] == i % classes);
}

/* ---- Parts of tensors ---- */

typedef struct slice_attr {
    int32_t axis;
    int64_t begin, step, count, size;
} slice_attr;

EXACT(slice_scatter)
{
    UNUSED;
    const slice_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) set(out, i, 0);
    for (int64_t i = 0; i < numel(in); i++) {
        int64_t at[WEFT_MAX_RANK];
        place_of(&in->shape, i, at);
        at[a->axis] = a->begin + at[a->axis] * a->step;
        copy_element(out, index_of(&out->shape, at), in, i);
    }
}

EXACT(concat)
{
    UNUSED;
    const int axis = *(const int32_t *)attr;
    int64_t before = 0;
    for (size_t k = 0; k < n_in; before += in[k++].shape.dim[axis])
        for (int64_t i = 0; i < numel(&in[k]); i++) {
            int64_t at[WEFT_MAX_RANK];
            place_of(&in[k].shape, i, at);
            at[axis] += before;
            copy_element(out, index_of(&out->shape, at), &in[k], i);
        }
}

typedef struct pad_attr {
    weft_shape before, after;
    double value;
} pad_attr;

EXACT(pad)
{
    UNUSED;
    const pad_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) set(out, i, a->value);
    for (int64_t i = 0; i < numel(in); i++) {
        int64_t at[WEFT_MAX_RANK];
        place_of(&in->shape, i, at);
        for (int d = 0; d < in->shape.rank; d++) at[d] += a->before.dim[d];
        copy_element(out, index_of(&out->shape, at), in, offset_in(in, &in->shape, i));
    }
}

/* ---- Elements at indices ---- */

EXACT(embedding)
{
    UNUSED;
    const int64_t n = in->shape.dim[1];
    for (int64_t i = 0; i < numel(out); i++)
        copy_element(out, i, in, ((const int32_t *)in[1].data)[i / n] * n + i % n);
}

EXACT(gather)
{
    UNUSED;
    const int axis = *(const int32_t *)attr;
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK];
        place_of(&out->shape, i, at);
        at[axis] = ((const int32_t *)in[1].data)[i];
        copy_element(out, i, in, index_of(&in->shape, at));
    }
}

/* ---- States ---- */

EXACT(assign)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) copy_element(out, i, &in[1], i);
}

EXACT(require_finite)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) copy_element(out, i, in, i);
}

/* state[i, position + j, ...] = value[i, j, ...] */
EXACT(cache_write)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) copy_element(out, i, in, i);
    for (int64_t i = 0; i < numel(&in[1]); i++) {
        int64_t at[WEFT_MAX_RANK];
        place_of(&in[1].shape, i, at);
        at[1] += ((const int32_t *)in[2].data)[in[2].shape.rank ? at[0] : 0];
        copy_element(out, index_of(&out->shape, at), &in[1], i);
    }
}

/* state[i, j, ...] = old state[parents[i], j, ...] for j < length */
EXACT(cache_reorder)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK];
        place_of(&out->shape, i, at);
        if (at[0] < numel(&in[1]) && at[1] < *(const int32_t *)in[2].data)
            at[0] = ((const int32_t *)in[1].data)[at[0]];
        copy_element(out, i, in, index_of(&out->shape, at));
    }
}

const exact_reference exact_move[] = {
    ROW(where),         ROW(masked_fill),   ROW(cast),
    ROW(bitcast),       ROW(equal),         ROW(not_equal),
    ROW(less),          ROW(less_equal),    ROW(greater),
    ROW(greater_equal), ROW(logical_and),   ROW(logical_or),
    ROW(logical_not),   ROW(contiguous),    ROW(arange),
    ROW(tril_mask),     ROW(one_hot),       ROW(slice_scatter),
    ROW(concat),        ROW(pad),           ROW(embedding),
    ROW(gather),        ROW(assign),        ROW(require_finite),
    ROW(cache_write),   ROW(cache_reorder), {"fill", exact_arange},
    {NULL, NULL},
};
