/* Choosing between elements by a mask, O(elements): where and masked_fill. */
#include "kernels/kernel.h"

typedef struct masked_fill_attr {
    double value;
} masked_fill_attr;

#ifdef WEFT_KERNEL_ISA

/* Writes out[i] by mask[i] for i of [0, n); declares i, which `first` and `second` read. Both are
 * read whatever the mask is: loads under a mask cost more than they save. */
#define SELECT_LOOP(first, second)                                                                 \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                            \
    {                                                                                              \
        const T yes = first, no = second;                                                          \
        out[i] = mask[i] ? yes : no;                                                               \
    }

static inline void copy_run(T *out, strided from, int64_t n)
{
    if (from.step == 1)
        memmove(out, from.x, (size_t)n * sizeof *out);
    else
        for (int64_t i = 0; i < n; i++) out[i] = from.x[i * from.step];
}

/* out = mask ? a : b. A mask that repeats one element makes the whole run a copy; operands that are
 * dense or repeat one element have loops of their own. */
static inline void select_run(T *out, const uint8_t *mask, int64_t mask_step, strided a, strided b,
                              int64_t n)
{
    if (mask_step == 0) {
        copy_run(out, mask[0] ? a : b, n);
    } else if (mask_step == 1 && a.step == 1 && b.step == 1) {
        SELECT_LOOP(a.x[i], b.x[i])
    } else if (mask_step == 1 && a.step == 1 && b.step == 0) {
        const T other = b.x[0];
        SELECT_LOOP(a.x[i], other)
    } else if (mask_step == 1 && a.step == 0 && b.step == 1) {
        const T other = a.x[0];
        SELECT_LOOP(other, b.x[i])
    } else {
        for (int64_t i = 0; i < n; i++)
            out[i] = mask[i * mask_step] ? a.x[i * a.step] : b.x[i * b.step];
    }
}

/* iterator_operand for the mask. */
static inline const uint8_t *iterator_mask(const weft_iterator *w, int k, const void *data,
                                           uint8_t *packed, int64_t *step)
{
    const int last = w->rank - 1;
    const int64_t row = w->dim[last], each = w->step[k];
    const uint8_t *mask = (const uint8_t *)data + w->offset[k];
    *step = each;
    if (w->rows == 1 || w->stride[k][last - 1] == row * each) return mask;
    *step = 1;
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t c = 0; c < row; c++)
            packed[r * row + c] = mask[r * w->stride[k][last - 1] + c * each];
    return packed;
}

KERNEL(where)
{
    T packed[2][PACKED_RUN];
    uint8_t packed_mask[PACKED_RUN];
    for (weft_iterator w = iterator_begin_narrow(call, tile); weft_iterator_next(&w);) {
        int64_t step;
        strided a, b;
        const uint8_t *mask = iterator_mask(&w, 1, call->in[0].data, packed_mask, &step);
        a.x = iterator_operand(&w, 2, call->in[1].data, packed[0], &a.step);
        b.x = iterator_operand(&w, 3, call->in[2].data, packed[1], &b.step);
        select_run((T *)call->out[0].data + w.offset[0], mask, step, a, b, w.count);
    }
}

KERNEL(masked_fill)
{
    const T value = (T)((const masked_fill_attr *)call->attr)->value;
    T packed[PACKED_RUN];
    uint8_t packed_mask[PACKED_RUN];
    for (weft_iterator w = iterator_begin_narrow(call, tile); weft_iterator_next(&w);) {
        int64_t step;
        strided x;
        const uint8_t *mask = iterator_mask(&w, 2, call->in[1].data, packed_mask, &step);
        x.x = iterator_operand(&w, 1, call->in[0].data, packed, &x.step);
        select_run((T *)call->out[0].data + w.offset[0], mask, step, (strided){&value, 0}, x,
                   w.count);
    }
}

#else

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

static bool infer_where(weft_infer *infer)
{
    char a[128], b[128], c[128];
    weft_shape joint;
    if (!weft_infer_dtype(infer, 0, WEFT_BOOL) || !weft_infer_same_dtype(infer, 1, 2)) return false;
    infer->out[0].dtype = infer->in[1].dtype;
    return (weft_shape_broadcast(infer->in[1].shape, infer->in[2].shape, &joint) &&
            weft_shape_broadcast(infer->in[0].shape, joint, &infer->out[0].shape)) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s, %s and %s do not broadcast",
                           weft_shape_text(infer->in[0].shape, a, sizeof a),
                           weft_shape_text(infer->in[1].shape, b, sizeof b),
                           weft_shape_text(infer->in[2].shape, c, sizeof c));
}

static void vjp_where(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value zero = weft_scalar(g, weft_dtype_of(g, v->grad_out[0]), 0.0);
    if (v->wanted[1]) v->grad_in[1] = weft_where(g, v->in[0], v->grad_out[0], zero);
    if (v->wanted[2]) v->grad_in[2] = weft_where(g, v->in[0], zero, v->grad_out[0]);
}

static void onnx_where(weft_export *e)
{
    weft_export_same(e, "Where");
}

static void source_where(weft_source *s)
{
    s->dtype = s->out[0].dtype;
    weft_source_each(s, NULL, "where_of", NULL, 0);
}

static void source_masked_fill(weft_source *s)
{
    const double value = ((const masked_fill_attr *)s->attr)->value;
    weft_source_each(s, NULL, "masked_fill_of", &WEFT_ARG_NUMBER(value), 1);
}

DECLARE_ANY_KERNELS(where);
static const weft_sample samples_where[] = {
    {NULL,
     3,
     {{WEFT_BOOL, {2, {3, 5}}, 0, 0.5, false},
      {WEFT_FLOAT, {2, {3, 5}}, -2, 2, false},
      {WEFT_FLOAT, {2, {3, 5}}, -2, 2, false}}},
    {NULL,
     3,
     {{WEFT_BOOL, {2, {3, 1}}, 0, 0.5, false},
      {WEFT_FLOAT, {1, {5}}, -2, 2, false},
      {WEFT_FLOAT, {0, {0}}, -2, 2, false}}},
    {NULL,
     3,
     {{WEFT_BOOL, {1, {6}}, 0, 0.5, false},
      {WEFT_I32, {1, {6}}, 0, 9, false},
      {WEFT_I32, {1, {1}}, 0, 9, false}}},
};
extern const weft_op weft_op_where;
const weft_op weft_op_where = {
    .name = "where",
    .doc = "y = a where the condition holds, else b. The three broadcast.",
    .inputs = "condition a b",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .infer = infer_where,
    .kernel = ANY_KERNELS(where),
    .elementwise = true,
    .key_output = true,
    .takes = WEFT_TAKES_ANY,
    .inplace = 6,
    .broadcasts = true,
    .onnx = onnx_where,
    .source = source_where,
    .vjp = vjp_where,
    .samples = samples_where,
    .n_samples = sizeof samples_where / sizeof *samples_where,
};

weft_value weft_where(weft_graph *graph, weft_value condition, weft_value a, weft_value b)
{
    return weft_apply(graph, &weft_op_where, NULL, (weft_value[]){condition, a, b}, 3, NULL);
}

static bool infer_masked_fill(weft_infer *infer)
{
    char a[128], b[128];
    weft_shape joint;
    infer->out[0] = infer->in[0];
    if (!weft_infer_dtype(infer, 1, WEFT_BOOL) ||
        !weft_infer_scalar(infer, "value", ((const masked_fill_attr *)infer->attr)->value,
                           infer->in[0].dtype))
        return false;
    return (weft_shape_broadcast(infer->in[0].shape, infer->in[1].shape, &joint) &&
            weft_shape_equal(joint, infer->in[0].shape)) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "the mask %s does not broadcast to %s",
                           weft_shape_text(infer->in[1].shape, b, sizeof b),
                           weft_shape_text(infer->in[0].shape, a, sizeof a));
}

static void vjp_masked_fill(weft_vjp *v)
{
    if (v->wanted[0]) v->grad_in[0] = weft_masked_fill(v->graph, v->grad_out[0], v->in[1], 0.0);
}

static void onnx_masked_fill(weft_export *e)
{
    const double value = ((const masked_fill_attr *)e->attr)->value;
    const weft_operand filled = weft_export_scalar(e, e->in_type[0].dtype, value);
    e->out[0] = weft_export_node(e, "Where", (weft_operand[]){e->in[1], filled, e->in[0]}, 3, 1);
}

DECLARE_ANY_KERNELS(masked_fill);
static const masked_fill_attr sample_fill = {-3.5}, sample_fill_int = {7};
static const weft_sample samples_masked_fill[] = {
    {&sample_fill,
     2,
     {{WEFT_FLOAT, {2, {3, 5}}, -2, 2, false}, {WEFT_BOOL, {2, {3, 5}}, 0, 0.4, false}}},
    {&sample_fill,
     2,
     {{WEFT_FLOAT, {3, {2, 3, 4}}, -2, 2, false}, {WEFT_BOOL, {2, {3, 1}}, 0, 0.4, false}}},
    {&sample_fill_int,
     2,
     {{WEFT_I32, {1, {6}}, 0, 9, false}, {WEFT_BOOL, {1, {6}}, 0, 0.5, false}}},
};
static const weft_attr_field masked_fill_fields[] = {
    {"value", WEFT_ATTR_DOUBLE, offsetof(masked_fill_attr, value)},
    {NULL, WEFT_ATTR_INT, 0},
};
extern const weft_op weft_op_masked_fill;
const weft_op weft_op_masked_fill = {
    .name = "masked_fill",
    .doc = "y = value where the mask holds, else x. The mask broadcasts to x.",
    .inputs = "x mask",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(masked_fill_attr),
    .attrs = masked_fill_fields,
    .infer = infer_masked_fill,
    .kernel = ANY_KERNELS(masked_fill),
    .elementwise = true,
    .takes = WEFT_TAKES_ANY,
    .inplace = 1,
    .onnx = onnx_masked_fill,
    .source = source_masked_fill,
    .vjp = vjp_masked_fill,
    .samples = samples_masked_fill,
    .n_samples = sizeof samples_masked_fill / sizeof *samples_masked_fill,
};

weft_value weft_masked_fill(weft_graph *graph, weft_value x, weft_value mask, double value)
{
    return weft_apply(graph, &weft_op_masked_fill, &(masked_fill_attr){value},
                      (weft_value[]){x, mask}, 2, NULL);
}

#endif
