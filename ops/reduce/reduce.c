/* Reductions over any axes of any layout: shape rules, gradients, descriptors and builders. The
 * kernels are in reduce_kernels.c. */
#include "reduce.h"
#include "batch.h"
#include "onnx.h"

#include <weft/ops.h>
#include <weft/source.h>

extern const weft_op weft_op_prod_grad;

static bool infer_reduce(weft_infer *infer)
{
    const reduce_attr *attr = infer->attr;
    weft_shape in = infer->in[0].shape, out = {0, {0}};
    if (!weft_infer_float(infer, 0)) return false;
    if (attr->count < 0 || attr->count > WEFT_MAX_RANK)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "%d axes", attr->count);
    for (int i = 0; i < attr->count; i++) {
        int ignored;
        if (!weft_infer_axis(infer, in.rank, attr->axis[i], &ignored)) return false;
        for (int k = 0; k < i; k++)
            if (attr->axis[k] == attr->axis[i])
                return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "axis %d is named twice",
                                       attr->axis[i]);
    }
    for (int d = 0; d < in.rank; d++) {
        if (!is_reduced(attr, d))
            out.dim[out.rank++] = in.dim[d];
        else if (attr->keepdims)
            out.dim[out.rank++] = 1;
    }
    infer->out[0] = (weft_type){infer->in[0].dtype, out};
    return true;
}

static int64_t tiles_reduce(const weft_call *call)
{
    const split s = split_of(call);
    const cut c = cut_of(&s, numel_of(&call->out[0].shape));
    if (call->phase) return c.pieces == 1 ? 0 : ceil_div(c.outputs, COLUMNS);
    return c.ranges * c.pieces;
}

static size_t scratch_reduce(const weft_call *call)
{
    const split s = split_of(call);
    const cut c = cut_of(&s, numel_of(&call->out[0].shape));
    return c.pieces == 1 ? 0 : (size_t)(c.pieces * c.outputs * NUMBERS) * sizeof(double);
}

/* Room for a block in f32 or f64: see source in reduce_kernels.c. */
static size_t workspace_reduce(const weft_call *call)
{
    const split s = split_of(call);
    const cut c = cut_of(&s, numel_of(&call->out[0].shape));
    const bool narrow = call->in[0].dtype == WEFT_BF16;
    const int64_t rows = c.length < c.block ? c.length : c.block;
    const int64_t outputs = c.outputs < COLUMNS ? c.outputs : COLUMNS;
    int64_t elements = narrow ? rows : 0;
    if (by_packed_columns(&s))
        elements = s.count * outputs;
    else if (by_columns(&s))
        elements = narrow ? rows * outputs : 0;
    else if (!by_dense_rows(&s))
        elements = rows;
    return (size_t)elements * weft_dtype_bytes(call->out[0].dtype);
}

static void cost_reduce(const weft_call *call, weft_cost *cost)
{
    double n = (double)numel_of(&call->in[0].shape);
    cost->flops = n;
    cost->bytes = n * (double)weft_dtype_bytes(call->in[0].dtype);
}

/* ---- Gradients ---- */

/* A value of the output's shape with reduced dimensions of size 1, so that it broadcasts to x. */
static weft_value kept(weft_vjp *v, weft_value y)
{
    weft_shape shape = weft_shape_of(v->graph, v->in[0]);
    for (int d = 0; d < shape.rank; d++)
        if (is_reduced(v->attr, d)) shape.dim[d] = 1;
    return weft_reshape(v->graph, y, shape);
}

static double folded_count(weft_vjp *v)
{
    double n = 1;
    weft_shape shape = weft_shape_of(v->graph, v->in[0]);
    for (int d = 0; d < shape.rank; d++)
        if (is_reduced(v->attr, d)) n *= (double)shape.dim[d];
    return n;
}

static weft_axes axes_of(const reduce_attr *attr)
{
    weft_axes axes = {attr->count, {0}};
    memcpy(axes.axis, attr->axis, sizeof axes.axis);
    return axes;
}

static void vjp_sum(weft_vjp *v)
{
    weft_shape shape = weft_shape_of(v->graph, v->in[0]);
    v->grad_in[0] = weft_broadcast_to(v->graph, kept(v, v->grad_out[0]), shape);
}

static void vjp_mean(weft_vjp *v)
{
    vjp_sum(v);
    v->grad_in[0] = weft_mul_scalar(v->graph, v->grad_in[0], 1.0 / folded_count(v));
}

/* The reduced axes become the last one, in which prod_grad multiplies the others of each element.
 */
static void vjp_prod(weft_vjp *v)
{
    weft_graph *g = v->graph;
    const weft_shape shape = weft_shape_of(g, v->in[0]);
    weft_axes order = {0, {0}}, back = {shape.rank, {0}};
    for (int reduced = 0; reduced < 2; reduced++)
        for (int d = 0; d < shape.rank; d++)
            if (is_reduced(v->attr, d) == reduced) order.axis[order.count++] = d;
    for (int d = 0; d < shape.rank; d++) back.axis[order.axis[d]] = d;
    weft_value x = weft_permute(g, v->in[0], order);
    weft_value dy = weft_reshape(g, v->grad_out[0], WEFT_SHAPE(-1));
    weft_value rows =
        weft_reshape(g, x, WEFT_SHAPE(weft_dim_of(g, dy, 0), (int64_t)folded_count(v)));
    weft_value dx = weft_apply(g, &weft_op_prod_grad, NULL, (weft_value[]){rows, dy}, 2, NULL);
    v->grad_in[0] = weft_permute(g, weft_reshape(g, dx, weft_shape_of(g, x)), back);
}

static void vjp_extreme(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value x = v->in[0];
    weft_value best = weft_cast(g, weft_equal(g, x, kept(v, v->out[0])), weft_dtype_of(g, x));
    weft_value ties = weft_sum(g, best, axes_of(v->attr), true);
    v->grad_in[0] = weft_mul(g, best, weft_div(g, kept(v, v->grad_out[0]), ties));
}
#define vjp_max vjp_extreme
#define vjp_min vjp_extreme

/* 2 (x - mean) / max(n - correction, 0). Subtracting the mean of the differences removes the error
 * of a mean that is far from zero. */
static void vjp_variance(weft_vjp *v)
{
    weft_graph *g = v->graph;
    const reduce_attr *attr = v->attr;
    const weft_axes axes = axes_of(attr);
    const double divisor = fmax(0, folded_count(v) - attr->correction);
    weft_value apart = weft_sub(g, v->in[0], weft_mean(g, v->in[0], axes, true));
    apart = weft_sub(g, apart, weft_mean(g, apart, axes, true));
    weft_value scaled = weft_mul_scalar(g, kept(v, v->grad_out[0]), 2.0 / divisor);
    v->grad_in[0] = weft_mul(g, apart, scaled);
}

/* e^(x - y) / sum e^(x - y): the sum is 1 but for the rounding of y. Where y is infinite, 1
 * replaces the sum: for y = inf, the result is NaN where x is inf, else 0. Where y is -inf every x
 * is, and 0 replaces y, so that the result is 0. */
static void vjp_logsumexp(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value y = kept(v, v->out[0]), low = weft_scalar(g, weft_dtype_of(g, y), -INFINITY);
    weft_value none = weft_equal(g, y, low);
    weft_value e = weft_exp(g, weft_sub(g, v->in[0], weft_masked_fill(g, y, none, 0.0)));
    weft_value high = weft_equal(g, y, weft_scalar(g, weft_dtype_of(g, y), INFINITY));
    weft_value sum = weft_sum(g, e, axes_of(v->attr), true);
    sum = weft_masked_fill(g, sum, weft_logical_or(g, none, high), 1.0);
    v->grad_in[0] = weft_mul(g, e, weft_div(g, kept(v, v->grad_out[0]), sum));
}

/* ---- Batches ---- */

/* A scalar gets an axis to be reduced, since no axes are all axes. */
static void batch_reduce(weft_batch *b)
{
    const int rank = weft_rank_of(b->graph, b->one_in[0]);
    weft_value x = b->in[0];
    reduce_attr attr;
    memcpy(&attr, b->attr, sizeof attr);
    attr.count = 0;
    for (int d = 0; d < rank; d++)
        if (is_reduced(b->attr, d)) attr.axis[attr.count++] = d + 1;
    for (int d = attr.count; d < WEFT_MAX_RANK; d++) attr.axis[d] = 0;
    if (!rank) {
        x = weft_reshape(b->graph, x, WEFT_SHAPE(b->size, 1));
        attr.axis[attr.count++] = 1;
        attr.keepdims = false;
    }
    b->out[0] = weft_apply(b->graph, b->op, &attr, &x, 1, NULL);
}

/* ---- ONNX ---- */

/* The axes as int64; returns their number. */
static size_t int64_axes(const reduce_attr *attr, int64_t axes[WEFT_MAX_RANK])
{
    for (int i = 0; i < attr->count; i++) axes[i] = attr->axis[i];
    return (size_t)attr->count;
}

static void onnx_reduction(weft_export *e, const char *type, bool axes_input)
{
    int64_t axes[WEFT_MAX_RANK];
    const reduce_attr *attr = e->attr;
    const size_t n = int64_axes(attr, axes);
    e->out[0] = onnx_reduce(e, type, e->in[0], axes, n, attr->keepdims, axes_input);
}

/* The sum of squares of the distances from the mean, divided by their number less the correction.
 */
static void onnx_spread(weft_export *e)
{
    int64_t axes[WEFT_MAX_RANK];
    const reduce_attr *attr = e->attr;
    const size_t n = int64_axes(attr, axes);
    const weft_type *x = &e->in_type[0];
    double count = 1;
    for (int d = 0; d < x->shape.rank; d++)
        if (is_reduced(attr, d)) count *= (double)x->shape.dim[d];
    weft_operand mean = onnx_reduce(e, "ReduceMean", e->in[0], axes, n, true, false);
    weft_operand distance = weft_export_binary(e, "Sub", e->in[0], mean);
    weft_operand square = weft_export_binary(e, "Mul", distance, distance);
    weft_operand sum = onnx_reduce(e, "ReduceSum", square, axes, n, attr->keepdims, true);
    weft_operand divisor = weft_export_scalar(e, x->dtype, fmax(count - attr->correction, 0));
    e->out[0] = weft_export_binary(e, "Div", sum, divisor);
}

/* ---- C ---- */

/* How the call is cut, as a reduce_cut of emit/plain/reduce.h. */
static void source_reduction(weft_source *s, const char *function)
{
    const weft_call call = {.attr = s->attr, .in = s->in, .out = s->out, .n_in = 1, .n_out = 1};
    const split d = split_of(&call);
    const cut c = cut_of(&d, numel_of(&s->out[0].shape));
    const bool packed = by_packed_columns(&d);
    int64_t numbers[11 + 4 * WEFT_MAX_RANK] = {c.outputs,
                                               d.count,
                                               packed || by_columns(&d),
                                               packed,
                                               packed ? d.count : c.length,
                                               packed ? d.count : c.block,
                                               packed ? d.count > 0 : c.per_row,
                                               packed ? d.count > 0 : c.blocks,
                                               packed ? 1 : c.pieces,
                                               d.n_kept,
                                               d.n_folded};
    int64_t *dims = numbers + 11;
    for (int i = 0; i < d.n_kept; i++) {
        dims[i] = d.kept[i];
        dims[d.n_kept + i] = d.kept_stride[i];
    }
    dims += 2 * d.n_kept;
    for (int i = 0; i < d.n_folded; i++) {
        dims[i] = d.folded[i];
        dims[d.n_folded + i] = d.folded_stride[i];
    }
    const weft_source_arg args[] = {
        WEFT_ARG_IN(0), WEFT_ARG_OUT(0), WEFT_ARG_INTS(numbers, sizeof numbers / sizeof *numbers),
        WEFT_ARG_INT(((const reduce_attr *)s->attr)->correction), WEFT_ARG_SPACE(d.count)};
    weft_source_call_of(s, function, args, s->in[0].dtype == WEFT_BF16 ? 5 : 4);
}

/* ---- Descriptors and builders ---- */

static const reduce_attr reduce_last = {1, {1}, false, 0}, reduce_first = {1, {0}, true, 1},
                         reduce_all = {0, {0}, false, 0}, reduce_outer = {2, {0, 2}, true, 0};
static const weft_attr_field reduce_fields[] = {
    {"axes", WEFT_ATTR_INTS, offsetof(reduce_attr, count)},
    {"keepdims", WEFT_ATTR_BOOL, offsetof(reduce_attr, keepdims)},
    {NULL, WEFT_ATTR_INT, 0},
};

static const weft_attr_field variance_fields[] = {
    {"axes", WEFT_ATTR_INTS, offsetof(reduce_attr, count)},
    {"keepdims", WEFT_ATTR_BOOL, offsetof(reduce_attr, keepdims)},
    {"correction", WEFT_ATTR_INT, offsetof(reduce_attr, correction)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define REDUCE_OP(op, text, fields, nodes)                                                         \
    DECLARE_KERNELS(op);                                                                           \
    static void onnx_##op(weft_export *e)                                                          \
    {                                                                                              \
        nodes;                                                                                     \
    }                                                                                              \
    static const weft_sample samples_##op[] = {                                                    \
        {&reduce_last, 1, {{WEFT_FLOAT, {2, {3, 6}}, -2, 2, true}}},                               \
        {&reduce_first, 1, {{WEFT_FLOAT, {2, {4, 5}}, -2, 2, true}}},                              \
        {&reduce_all, 1, {{WEFT_FLOAT, {3, {2, 3, 4}}, -2, 2, true}}},                             \
        {&reduce_outer, 1, {{WEFT_FLOAT, {4, {3, 2, 2, 3}}, -2, 2, true}}},                        \
        {&reduce_last, 1, {{WEFT_FLOAT, {2, {0, 3}}, -2, 2, true}}},                               \
    };                                                                                             \
    static void source_##op(weft_source *s)                                                        \
    {                                                                                              \
        source_reduction(s, "reduce_" #op);                                                        \
    }                                                                                              \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text,                                                                               \
        .min_in = 1,                                                                               \
        .max_in = 1,                                                                               \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(reduce_attr),                                                          \
        .attrs = fields,                                                                           \
        .infer = infer_reduce,                                                                     \
        .kernel = {NARROW_ROWS(op, op)},                                                           \
        .narrow_in = 1,                                                                            \
        .takes = WEFT_TAKES_ANY,                                                                   \
        .phases = 2,                                                                               \
        .tiles = tiles_reduce,                                                                     \
        .scratch = scratch_reduce,                                                                 \
        .workspace = workspace_reduce,                                                             \
        .cost = cost_reduce,                                                                       \
        .onnx = onnx_##op,                                                                         \
        .source = source_##op,                                                                     \
        .batch = batch_reduce,                                                                     \
        .vjp = vjp_##op,                                                                           \
        .broadcasts = true,                                                                        \
        .samples = samples_##op,                                                                   \
        .n_samples = sizeof samples_##op / sizeof *samples_##op,                                   \
    };
REDUCE_OP(sum, "y = sum of x over the axes; 0 over no elements.", reduce_fields,
          onnx_reduction(e, "ReduceSum", true))
REDUCE_OP(mean, "y = sum of x over the axes / their number.", reduce_fields,
          onnx_reduction(e, "ReduceMean", false))
REDUCE_OP(prod, "y = product of x over the axes, in f64; 1 over no elements.", reduce_fields,
          onnx_reduction(e, "ReduceProd", false))
REDUCE_OP(max, "y = largest x over the axes; NaN if one is; ties share the gradient evenly.",
          reduce_fields, onnx_reduction(e, "ReduceMax", false))
REDUCE_OP(min, "y = smallest x over the axes; NaN if one is; ties share the gradient evenly.",
          reduce_fields, onnx_reduction(e, "ReduceMin", false))
REDUCE_OP(variance, "y = sum (x - mean)^2 / max(n - correction, 0) over the axes.", variance_fields,
          onnx_spread(e))
REDUCE_OP(logsumexp, "y = ln sum e^x over the axes, shifted by the largest x.", reduce_fields,
          onnx_reduction(e, "ReduceLogSumExp", false))

static weft_value reduce(weft_graph *graph, const weft_op *op, weft_value x, weft_axes axes,
                         bool keepdims, int correction)
{
    reduce_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.count = axes.count;
    attr.keepdims = keepdims;
    attr.correction = correction;
    int rank = weft_rank_of(graph, x);
    for (int i = 0; i < axes.count && i < WEFT_MAX_RANK; i++)
        attr.axis[i] = axis_from_front(axes.axis[i], rank);
    return weft_apply(graph, op, &attr, &x, 1, NULL);
}

#define REDUCE_BUILDER(op)                                                                         \
    weft_value weft_##op(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims)           \
    {                                                                                              \
        return reduce(graph, &weft_op_##op, x, axes, keepdims, 0);                                 \
    }
REDUCE_BUILDER(sum)
REDUCE_BUILDER(mean)
REDUCE_BUILDER(prod)
REDUCE_BUILDER(max)
REDUCE_BUILDER(min)
REDUCE_BUILDER(logsumexp)

weft_value weft_variance(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims,
                         int correction)
{
    return reduce(graph, &weft_op_variance, x, axes, keepdims, correction);
}

weft_value weft_sum_to(weft_graph *graph, weft_value x, weft_shape shape)
{
    weft_shape from = weft_shape_of(graph, x);
    weft_axes axes = {0, {0}};
    if (weft_shape_equal(from, shape) || !weft_is_value(x)) return x;
    int extra = from.rank - shape.rank;
    for (int d = 0; d < from.rank; d++)
        if (d < extra || (shape.dim[d - extra] == 1 && from.dim[d] != 1))
            axes.axis[axes.count++] = d;
    if (axes.count) x = weft_sum(graph, x, axes, true);
    return weft_reshape(graph, x, shape);
}
