/* Batch normalisation by the statistics of the batch, and its backward pass: the descriptors,
 * gradients and the builder. The formulas are in batch_norm_kernels.c. */
#include "batch_norm.h"
#include "samples.h"

#include "onnx.h"
#include "source_bits.h"

#include <weft/ops.h>
#include <weft/source.h>

extern const weft_op weft_op_batch_norm, weft_op_batch_norm_grad;

/* ---- Shapes ---- */

static bool check_shape(weft_infer *infer, size_t i, weft_shape want)
{
    char name[96], a[128], b[128];
    if (!weft_infer_same_dtype(infer, 0, i)) return false;
    return weft_shape_equal(infer->in[i].shape, want) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s must be %s, got %s",
                           weft_infer_input(infer, i, name, sizeof name),
                           weft_shape_text(want, a, sizeof a),
                           weft_shape_text(infer->in[i].shape, b, sizeof b));
}

/* y or dx is like x; all else is [channels], except dy, which is input 3 of backward. */
static bool infer_batch_norm(weft_infer *infer)
{
    if (!weft_infer_float(infer, 0) || !weft_infer_min_rank(infer, 0, 2)) return false;
    const weft_type x = infer->in[0];
    const weft_type vector = {x.dtype, WEFT_SHAPE(x.shape.dim[1])};
    for (size_t i = 1; i < infer->n_in; i++)
        if (!check_shape(infer, i, i == 3 ? x.shape : vector.shape)) return false;
    infer->out[0] = x;
    infer->out[1] = infer->out[2] = vector;
    return true;
}

/* ---- Tiles ---- */

static batch_norm_sizes sizes_of(const weft_call *call)
{
    return batch_norm_sizes_of(&call->in[0].shape);
}

static int64_t tiles_batch_norm(const weft_call *call)
{
    const batch_norm_sizes z = sizes_of(call);
    return call->phase ? batch_norm_blocks(&z) : batch_norm_sum_tiles(&z);
}

static int64_t tiles_batch_norm_grad(const weft_call *call)
{
    const batch_norm_sizes z = sizes_of(call);
    return call->phase && z.whole ? 0 : tiles_batch_norm(call);
}

static size_t scratch_batch_norm(const weft_call *call)
{
    const batch_norm_sizes z = sizes_of(call);
    return (size_t)(NUMBERS * z.channels * z.pieces) * sizeof(double);
}

/* Packed rows of x, and of dy, or up to four numbers of each channel of a block. */
static size_t workspace_batch_norm(const weft_call *call)
{
    const batch_norm_sizes z = sizes_of(call);
    const int64_t numbers = 4 * batch_norm_block_channels(&z), runs = 2 * batch_norm_run(&z);
    return (size_t)(numbers > runs ? numbers : runs) * weft_dtype_bytes(call->in[0].dtype);
}

static void block_batch_norm(const weft_call *call, int64_t tile, weft_block *block)
{
    const batch_norm_sizes z = sizes_of(call);
    const weft_shape *x = &call->in[0].shape;
    *block = batch_norm_block(&z, tile);
    /* Images of one position: other nodes see rows of one element. */
    if (x->rank > 2 && z.volume == 1)
        *block =
            (weft_block){block->row * z.width + block->column, block->rows * block->columns, 0, 1};
}

/* Of `flops` for each element of x, and `tensors` as large as x that are read or written. */
static weft_cost cost_of(const weft_call *call, int flops, int tensors)
{
    const double n = (double)numel_of(&call->in[0].shape);
    return (weft_cost){flops * n, tensors * n * (double)weft_dtype_bytes(call->in[0].dtype)};
}

static void cost_batch_norm(const weft_call *call, weft_cost *cost)
{
    *cost = cost_of(call, 7, 2);
}

static void cost_batch_norm_grad(const weft_call *call, weft_cost *cost)
{
    *cost = cost_of(call, 9, 3);
}

/* ---- Gradients ---- */

static weft_axes all_but_channels(weft_graph *g, weft_value x)
{
    weft_axes axes = {1, {0}};
    for (int d = 2; d < weft_rank_of(g, x); d++) axes.axis[axes.count++] = d;
    return axes;
}

/* v [channels] as [1, channels, 1, ...], to broadcast over x. */
static weft_value per_channel(weft_graph *g, weft_value v, weft_value x)
{
    weft_shape shape = {.rank = weft_rank_of(g, x)};
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = d == 1 ? weft_dim_of(g, x, 1) : 1;
    return weft_reshape(g, v, shape);
}

static double elements_of_channel(weft_graph *g, weft_value x)
{
    const weft_shape shape = weft_shape_of(g, x);
    return shape.dim[1] ? (double)(weft_shape_numel(shape) / shape.dim[1]) : 0;
}

static weft_value rstd_of(weft_graph *g, weft_value variance, const batch_norm_attr *attr)
{
    return weft_rsqrt(g, weft_add_scalar(g, variance, attr->eps));
}

static void expand_batch_norm(weft_expand *e)
{
    weft_graph *g = e->graph;
    const weft_value x = e->in[0];
    const weft_axes axes = all_but_channels(g, x);
    e->out[1] = weft_mean(g, x, axes, false);
    e->out[2] = weft_variance(g, x, axes, false, 0);
    const weft_value scale = weft_mul(g, e->in[1], rstd_of(g, e->out[2], e->attr));
    const weft_value centred = weft_sub(g, x, per_channel(g, e->out[1], x));
    const weft_value scaled = weft_mul(g, centred, per_channel(g, scale, x));
    e->out[0] = weft_add(g, scaled, per_channel(g, e->in[2], x));
}

/* Mean and variance are inputs like any other. */
static void expand_batch_norm_grad(weft_expand *e)
{
    weft_graph *g = e->graph;
    const weft_value x = e->in[0], dy = e->in[3];
    const weft_axes axes = all_but_channels(g, x);
    const double n = elements_of_channel(g, x);
    const weft_value rstd = rstd_of(g, e->in[2], e->attr);
    const weft_value deviation = weft_sub(g, x, per_channel(g, e->in[1], x));
    const weft_value xhat = weft_mul(g, deviation, per_channel(g, rstd, x));
    e->out[1] = weft_sum(g, weft_mul(g, dy, xhat), axes, false);
    e->out[2] = weft_sum(g, dy, axes, false);
    const weft_value along =
        weft_mul(g, xhat, per_channel(g, weft_mul_scalar(g, e->out[1], 1 / n), x));
    const weft_value centred =
        weft_sub(g, dy, per_channel(g, weft_mul_scalar(g, e->out[2], 1 / n), x));
    const weft_value scale = weft_mul(g, e->in[4], rstd);
    const weft_value difference = weft_sub(g, centred, along);
    e->out[0] = weft_mul(g, difference, per_channel(g, scale, x));
}

/* Adds to dx what reaches x through a statistic. */
static void add_to_dx(weft_vjp *v, weft_value more)
{
    weft_value *dx = &v->grad_in[0];
    *dx = weft_is_value(*dx) ? weft_add(v->graph, *dx, more) : more;
}

static void vjp_batch_norm(weft_vjp *v)
{
    weft_graph *g = v->graph;
    const weft_value x = v->in[0], dmean = v->grad_out[1], dvariance = v->grad_out[2];
    const double n = elements_of_channel(g, x);
    if (weft_is_value(v->grad_out[0])) {
        const weft_value in[] = {x, v->out[1], v->out[2], v->grad_out[0], v->in[1]};
        weft_apply(g, &weft_op_batch_norm_grad, v->attr, in, 5, v->grad_in);
    }
    if (!v->wanted[0]) return;
    if (weft_is_value(dmean))
        add_to_dx(v, weft_broadcast_to(g, per_channel(g, weft_mul_scalar(g, dmean, 1 / n), x),
                                       weft_shape_of(g, x)));
    if (weft_is_value(dvariance)) {
        const weft_value centred = weft_sub(g, x, per_channel(g, v->out[1], x));
        add_to_dx(v, weft_mul(g, centred, per_channel(g, weft_mul_scalar(g, dvariance, 2 / n), x)));
    }
}

/* ---- ONNX ---- */

/* Plain nodes: ONNX Runtime's BatchNormalization does not train on CPUs. */
static void onnx_batch_norm(weft_export *e)
{
    const batch_norm_attr *attr = e->attr;
    const weft_type *x = &e->in_type[0];
    int64_t axes[WEFT_MAX_RANK] = {0};
    size_t n = 1;
    weft_shape column = {.rank = x->shape.rank - 1, .dim = {x->shape.dim[1]}};
    for (int d = 2; d < x->shape.rank; d++) {
        axes[n++] = d;
        column.dim[d - 1] = 1;
    }
    const weft_operand mean = onnx_reduce(e, "ReduceMean", e->in[0], axes, n, true, false);
    const weft_operand centred = weft_export_binary(e, "Sub", e->in[0], mean);
    weft_operand variance = weft_export_binary(e, "Mul", centred, centred);
    variance = onnx_reduce(e, "ReduceMean", variance, axes, n, true, false);
    const weft_operand eps = weft_export_scalar(e, x->dtype, attr->eps);
    weft_operand y = weft_export_unary(e, "Sqrt", weft_export_binary(e, "Add", variance, eps));
    y = weft_export_binary(e, "Div", centred, y);
    y = weft_export_binary(e, "Mul", y, onnx_reshape(e, e->in[1], column));
    e->out[0] = weft_export_binary(e, "Add", y, onnx_reshape(e, e->in[2], column));
    if (e->wanted[1]) e->out[1] = onnx_reshape(e, mean, e->out_type[1].shape);
    if (e->wanted[2]) e->out[2] = onnx_reshape(e, variance, e->out_type[2].shape);
}

/* ---- C ---- */

static size_t source_sizes(weft_source *s, weft_source_arg *args, size_t n)
{
    const batch_norm_sizes z = batch_norm_sizes_of(&s->in[0].shape);
    args[n++] = WEFT_ARG_INT(z.channels);
    args[n++] = WEFT_ARG_INT(z.volume);
    args[n++] = WEFT_ARG_INT(z.count);
    args[n++] = WEFT_ARG_INT(z.pieces);
    args[n++] = WEFT_ARG_KEY(source_bits(((const batch_norm_attr *)s->attr)->eps));
    return n;
}

static void source_batch_norm(weft_source *s)
{
    weft_source_arg args[12] = {WEFT_ARG_IN(0),  WEFT_ARG_IN(1),  WEFT_ARG_IN(2),
                                WEFT_ARG_OUT(0), WEFT_ARG_OUT(1), WEFT_ARG_OUT(2)};
    weft_source_call_of(s, "batch_norm", args, source_sizes(s, args, 6));
}

static void source_batch_norm_grad(weft_source *s)
{
    weft_source_arg args[16] = {WEFT_ARG_IN(0), WEFT_ARG_IN(1),  WEFT_ARG_IN(2),  WEFT_ARG_IN(3),
                                WEFT_ARG_IN(4), WEFT_ARG_OUT(0), WEFT_ARG_OUT(1), WEFT_ARG_OUT(2)};
    weft_source_call_of(s, "batch_norm_grad", args, source_sizes(s, args, 8));
}

/* ---- Descriptors and the builder ---- */

#define POSITIVE(...)                                                                              \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, 0.5, 1.5, false                                                   \
    }
static const batch_norm_attr sample_attr = {1e-5};
static const weft_sample samples_batch_norm[] = {
    {&sample_attr, 3, {FLOATS({4, {3, 2, 2, 3}}), FLOATS({1, {2}}), FLOATS({1, {2}})}},
    {&sample_attr, 3, {FLOATS({2, {5, 3}}), FLOATS({1, {3}}), FLOATS({1, {3}})}},
    {&sample_attr, 3, {FLOATS({3, {2, 2, 17}}), FLOATS({1, {2}}), FLOATS({1, {2}})}},
    {&sample_attr, 3, {FLOATS({3, {2, 0, 3}}), FLOATS({1, {0}}), FLOATS({1, {0}})}},
};
static const weft_sample samples_batch_norm_grad[] = {
    {&sample_attr,
     5,
     {FLOATS({4, {3, 2, 2, 2}}), FLOATS({1, {2}}), POSITIVE({1, {2}}), FLOATS({4, {3, 2, 2, 2}}),
      FLOATS({1, {2}})}},
    {&sample_attr,
     5,
     {FLOATS({2, {4, 3}}), FLOATS({1, {3}}), POSITIVE({1, {3}}), FLOATS({2, {4, 3}}),
      FLOATS({1, {3}})}},
    {&sample_attr,
     5,
     {FLOATS({3, {2, 2, 17}}), FLOATS({1, {2}}), POSITIVE({1, {2}}), FLOATS({3, {2, 2, 17}}),
      FLOATS({1, {2}})}},
};
static const weft_attr_field batch_norm_fields[] = {
    {"eps", WEFT_ATTR_DOUBLE, offsetof(batch_norm_attr, eps)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define BATCH_NORM_OP(op, inputs_, words, text, ...)                                               \
    DECLARE_KERNELS(op);                                                                           \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .min_in = inputs_,                                               \
                                  .max_in = inputs_,                                               \
                                  .n_out = 3,                                                      \
                                  .inputs = words,                                                 \
                                  .attr_size = sizeof(batch_norm_attr),                            \
                                  .attrs = batch_norm_fields,                                      \
                                  .infer = infer_batch_norm,                                       \
                                  .kernel = FLOAT_KERNELS(op),                                     \
                                  .takes = WEFT_TAKES_DENSE,                                       \
                                  .phases = 2,                                                     \
                                  .tiles = tiles_##op,                                             \
                                  .scratch = scratch_batch_norm,                                   \
                                  .workspace = workspace_batch_norm,                               \
                                  .cost = cost_##op,                                               \
                                  .source = source_##op,                                           \
                                  .expand = expand_##op,                                           \
                                  .samples = samples_##op,                                         \
                                  .n_samples = sizeof samples_##op / sizeof *samples_##op,         \
                                  __VA_ARGS__};
BATCH_NORM_OP(batch_norm, 3, "x gamma beta",
              "y = (x - mean) (variance + eps)^(-1/2) gamma + beta for each channel of x [images, "
              "channels, ...]; also returns mean and population variance, [channels].",
              .block = block_batch_norm, .inplace = 1, .vjp = vjp_batch_norm,
              .onnx = onnx_batch_norm)
BATCH_NORM_OP(batch_norm_grad, 5, "x mean variance dy gamma",
              "dx, dgamma, dbeta from x, mean, variance, dy and gamma: batch_norm backward.",
              .inplace = 1 | 1 << 3)

weft_value weft_batch_norm(weft_graph *graph, weft_value x, weft_value gamma, weft_value beta,
                           double eps, weft_value *mean, weft_value *variance)
{
    const weft_value in[] = {x, gamma, beta};
    const batch_norm_attr attr = {eps};
    weft_value out[3];
    weft_apply(graph, &weft_op_batch_norm, &attr, in, 3, out);
    if (mean) *mean = out[1];
    if (variance) *variance = out[2];
    return out[0];
}
