/* Rows of floats in fewer bits, and back: how keys and values of attention may be stored. */
#include "kernels/kernel.h"
#include "narrow_rows.h"

typedef struct narrow_rows_attr {
    weft_dtype dtype;
} narrow_rows_attr;

static inline int64_t row_length(const weft_tensor *t)
{
    return t->shape.dim[t->shape.rank - 1];
}

/* Rows that one tile converts; of `x`, which has the elements. */
static inline int64_t rows_of_tile(const weft_tensor *x)
{
    const int64_t n = row_length(x);
    return n < TILE ? TILE / (n ? n : 1) : 1;
}

static inline int64_t rows_of(const weft_tensor *x)
{
    int64_t n = 1;
    for (int d = 0; d < x->shape.rank - 1; d++) n *= x->shape.dim[d];
    return n;
}

#ifdef WEFT_KERNEL_ISA

/* 8 bits. A row with an element that is not finite has the scale NaN. */
static inline void to_bytes(const T *x, uint8_t *y, int64_t n)
{
    const float rounder = 0x1.8p23f; /* adding and subtracting it rounds to a whole number */
    float max = 0, bad = 0;
#pragma omp simd reduction(max : max) reduction(+ : bad)
    for (int64_t i = 0; i < n; i++) {
        const float size = x[i] <= 0 ? (float)(0 - x[i]) : (float)x[i]; /* of -0: 0 */
        max = size > max ? size : max;
        bad += (float)x[i] * 0;
    }
    const bool zero = bad != 0 || !(NARROW_MAX / max <= 0x1p126f);
    /* The bytes of one NaN: processors make different ones of infinity times zero. */
    const float by = zero ? 0 : NARROW_MAX / max, scale = bad != 0 ? (float)NAN
                                                          : zero   ? 0
                                                                   : max / NARROW_MAX;
    narrow_set_scale(y, scale);
    for (int64_t i = 0; i < n; i++) {
        const float whole = ((zero ? 0 : (float)x[i]) * by + rounder) - rounder;
        y[NARROW_SCALE + i] = (uint8_t)(NARROW_ZERO + (int32_t)whole);
    }
}

KERNEL(narrow_rows)
{
    const weft_tensor *x = &call->in[0], *y = &call->out[0];
    const int64_t n = row_length(x), width = row_length(y), each = rows_of_tile(x);
    for (int64_t r = tile * each; r < (tile + 1) * each && r < rows_of(x); r++) {
        const T *from = (const T *)x->data + r * n;
        if (y->dtype == WEFT_U8)
            to_bytes(from, (uint8_t *)y->data + r * width, n);
        else
            for (int64_t i = 0; i < n; i++)
                ((uint16_t *)y->data)[r * n + i] = half_to_bf16((float)from[i]);
    }
}

KERNEL(widen_rows)
{
    const weft_tensor *x = &call->in[0], *y = &call->out[0];
    const int64_t n = row_length(y), width = row_length(x), each = rows_of_tile(y);
    for (int64_t r = tile * each; r < (tile + 1) * each && r < rows_of(y); r++) {
        T *to = (T *)y->data + r * n;
        if (x->dtype == WEFT_U8) {
            const uint8_t *from = (const uint8_t *)x->data + r * width;
            const float scale = narrow_scale(from);
            for (int64_t i = 0; i < n; i++)
                to[i] = (T)(scale * (float)(from[NARROW_SCALE + i] - NARROW_ZERO));
        } else {
            for (int64_t i = 0; i < n; i++)
                to[i] = (T)half_from_bf16(((const uint16_t *)x->data)[r * n + i]);
        }
    }
}

#else

#include "batch.h"
#include "samples.h"

#include <weft/ops.h>
#include <weft/source.h>

_Static_assert(NARROW_SCALE == WEFT_NARROW_SCALE, "two names of one number");

static bool infer_narrow_rows(weft_infer *infer)
{
    const narrow_rows_attr *attr = infer->attr;
    if (!weft_infer_float(infer, 0) || !weft_infer_min_rank(infer, 0, 1)) return false;
    if (attr->dtype != WEFT_BF16 && attr->dtype != WEFT_U8)
        return weft_infer_fail(infer, WEFT_BAD_DTYPE, "rows of %s, expected bf16 or u8",
                               weft_dtype_name(attr->dtype));
    weft_shape y = infer->in[0].shape;
    if (attr->dtype == WEFT_U8) y.dim[y.rank - 1] += NARROW_SCALE;
    infer->out[0] = (weft_type){attr->dtype, y};
    return true;
}

static bool infer_widen_rows(weft_infer *infer)
{
    const narrow_rows_attr *attr = infer->attr;
    const weft_dtype from = infer->in[0].dtype;
    if (!weft_infer_min_rank(infer, 0, 1)) return false;
    weft_shape y = infer->in[0].shape;
    if (from != WEFT_BF16 && from != WEFT_U8)
        return weft_infer_fail(infer, WEFT_BAD_DTYPE, "rows of %s, expected bf16 or u8",
                               weft_dtype_name(from));
    if (!weft_dtype_is_float(attr->dtype))
        return weft_infer_fail(infer, WEFT_BAD_DTYPE, "rows as %s, expected f32 or f64",
                               weft_dtype_name(attr->dtype));
    if (from == WEFT_U8) y.dim[y.rank - 1] -= NARROW_SCALE;
    if (y.dim[y.rank - 1] < 0)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "rows of %lld bytes, expected %d or more",
                               (long long)y.dim[y.rank - 1] + NARROW_SCALE, NARROW_SCALE);
    infer->out[0] = (weft_type){attr->dtype, y};
    return true;
}

static int64_t tiles_narrow_rows(const weft_call *call)
{
    return ceil_div(rows_of(&call->in[0]), rows_of_tile(&call->in[0]));
}

static int64_t tiles_widen_rows(const weft_call *call)
{
    return ceil_div(rows_of(&call->out[0]), rows_of_tile(&call->out[0]));
}

/* Rows of bytes have a scale, and so a function of their own. */
static void source_rows(weft_source *s, const weft_tensor *x, const char *bytes, const char *halves)
{
    const bool narrow = s->in[0].dtype == WEFT_U8 || s->out[0].dtype == WEFT_U8;
    const weft_source_arg args[] = {WEFT_ARG_IN(0), WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(narrow ? rows_of(x) : weft_shape_numel(x->shape)),
                                    WEFT_ARG_INT(row_length(x))};
    weft_source_call_of(s, narrow ? bytes : halves, args, narrow ? 4 : 3);
}

static void source_narrow_rows(weft_source *s)
{
    source_rows(s, &s->in[0], "rows_to_bytes", "rows_to_bf16");
}

static void source_widen_rows(weft_source *s)
{
    source_rows(s, &s->out[0], "rows_from_bytes", "rows_from_bf16");
}

DECLARE_KERNELS(narrow_rows);
DECLARE_KERNELS(widen_rows);
static const narrow_rows_attr as_bf16 = {WEFT_BF16}, as_bytes = {WEFT_U8}, as_f32 = {WEFT_F32};
static const weft_sample samples_narrow_rows[] = {
    {&as_bf16, 1, {UNIT_FLOATS({3, {2, 3, 5}})}},
    {&as_bytes, 1, {UNIT_FLOATS({4, {2, 3, 2, 16}})}},
    {&as_bytes, 1, {UNIT_FLOATS({2, {2000, 7}})}},
    {&as_bytes, 1, {UNIT_FLOATS({2, {0, 7}})}},
};
static const weft_sample samples_widen_rows[] = {
    {&as_f32, 1, {{WEFT_U8, {2, {3, 4}}, 0, 0, false}}},
};
static const weft_attr_field narrow_rows_fields[] = {
    {"dtype", WEFT_ATTR_DTYPE, offsetof(narrow_rows_attr, dtype)},
    {NULL, WEFT_ATTR_INT, 0},
};
extern const weft_op weft_op_narrow_rows, weft_op_widen_rows;
const weft_op weft_op_narrow_rows = {
    .name = "narrow_rows",
    .doc = "y = x in fewer bits: bf16, or u8, where a row of n elements takes n + 4 bytes: its "
           "scale, an f32, then 128 + x / scale for each. For keys and values of attention.",
    .inputs = "x",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(narrow_rows_attr),
    .attrs = narrow_rows_fields,
    .infer = infer_narrow_rows,
    .kernel = FLOAT_KERNELS(narrow_rows),
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_narrow_rows,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_narrow_rows,
    .batch = weft__batch_front,
    .samples = samples_narrow_rows,
    .n_samples = sizeof samples_narrow_rows / sizeof *samples_narrow_rows,
};
const weft_op weft_op_widen_rows = {
    .name = "widen_rows",
    .doc = "y = the floats of rows that narrow_rows made.",
    .inputs = "x",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(narrow_rows_attr),
    .attrs = narrow_rows_fields,
    .infer = infer_widen_rows,
    .kernel = FLOAT_KERNELS(widen_rows),
    .key_output = true,
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_widen_rows,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_widen_rows,
    .batch = weft__batch_front,
    .samples = samples_widen_rows,
    .n_samples = sizeof samples_widen_rows / sizeof *samples_widen_rows,
};

weft_value weft_narrow_rows(weft_graph *graph, weft_value x, weft_dtype dtype)
{
    return weft_apply(graph, &weft_op_narrow_rows, &(narrow_rows_attr){dtype}, &x, 1, NULL);
}

weft_value weft_widen_rows(weft_graph *graph, weft_value x, weft_dtype dtype)
{
    return weft_apply(graph, &weft_op_widen_rows, &(narrow_rows_attr){dtype}, &x, 1, NULL);
}

#endif
