/* global_norm: the Euclidean norm of many tensors as one vector. Phase 0 squares and sums tile by
 * tile into f64 partials, phase 1 adds them in order. square_sums and root_of_sum are the two
 * phases as ops, for tensors in pieces of whole tiles that several processes have: the same bits.
 */
#include "kernels/sums.h"

static inline int64_t tiles_of(const weft_tensor *t)
{
    return ceil_div(numel_of(&t->shape), TILE);
}

#ifdef WEFT_KERNEL_ISA

static inline double square_sum(const weft_call *call, int64_t tile)
{
    size_t i = 0;
    int64_t local = tile; /* of input i */
    while (local >= tiles_of(&call->in[i])) local -= tiles_of(&call->in[i++]);
    const T *x = (const T *)call->in[i].data + local * TILE;
    int64_t n = numel_of(&call->in[i].shape) - local * TILE;
    double sum[SUM_LANES] = {0};
    if (n > TILE) n = TILE;
    EACH_LANE(k, c, 0, n, sum[c] += (double)x[k] * (double)x[k])
    for (int64_t half = SUM_LANES / 2; half; half /= 2)
        for (int64_t c = 0; c < half; c++) sum[c] += sum[c + half];
    return sum[0];
}

KERNEL(global_norm)
{
    double *partial = call->scratch;
    if (call->phase == 1) {
        double total = 0;
        int64_t tiles = 0;
        for (size_t i = 0; i < call->n_in; i++) tiles += tiles_of(&call->in[i]);
        for (int64_t k = 0; k < tiles; k++) total += partial[k];
        *(T *)call->out[0].data = (T)sqrt(total);
        return;
    }
    partial[tile] = square_sum(call, tile);
}

KERNEL(square_sums)
{
    ((double *)call->out[0].data)[tile] = square_sum(call, tile);
}

/* Inputs: f64 sums, i32 their order. */
KERNEL(root_of_sum)
{
    const double *sums = call->in[0].data;
    const int32_t *order = call->in[1].data;
    const int64_t n = numel_of(&call->in[1].shape), limit = numel_of(&call->in[0].shape);
    double total = 0;
    (void)tile;
    for (int64_t k = 0; k < n; k++) {
        if (order[k] < 0 || order[k] >= limit)
            weft_call_fail(call, order[k], limit);
        else
            total += sums[order[k]];
    }
    *(T *)call->out[0].data = (T)sqrt(total);
}

#else

#include "batch.h"
#include "samples.h"

#include <weft/ops.h>
#include <weft/source.h>

static bool infer_global_norm(weft_infer *infer)
{
    for (size_t i = 0; i < infer->n_in; i++)
        if (!weft_infer_float(infer, i) || !weft_infer_same_dtype(infer, 0, i)) return false;
    infer->out[0] = (weft_type){infer->in[0].dtype, WEFT_SCALAR};
    return true;
}

static int64_t tiles_global_norm(const weft_call *call)
{
    int64_t tiles = 0;
    for (size_t i = 0; i < call->n_in; i++) tiles += tiles_of(&call->in[i]);
    return call->phase == 1 ? 1 : tiles;
}

static size_t scratch_global_norm(const weft_call *call)
{
    return ((size_t)tiles_global_norm(call) + 1) * sizeof(double);
}

static void cost_global_norm(const weft_call *call, weft_cost *cost)
{
    double n = 0;
    for (size_t i = 0; i < call->n_in; i++) n += (double)numel_of(&call->in[i].shape);
    cost->flops = 2 * n;
    cost->bytes = n * (double)weft_dtype_bytes(call->in[0].dtype);
}

/* x / norm; 0 where the norm is 0. */
static void vjp_global_norm(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_dtype dtype = weft_dtype_of(g, v->out[0]);
    weft_value zero = weft_scalar(g, dtype, 0.0);
    weft_value none = weft_equal(g, v->out[0], zero);
    weft_value slope = weft_div(g, v->grad_out[0], weft_masked_fill(g, v->out[0], none, 1.0));
    for (size_t i = 0; i < v->n_in; i++)
        if (v->wanted[i]) v->grad_in[i] = weft_mul(g, v->in[i], slope);
}

/* The sum is in the scratch memory. */
static void source_global_norm(weft_source *s)
{
    for (size_t i = 0; i < s->n_in; i++) {
        const weft_source_arg args[] = {WEFT_ARG_IN(i),
                                        WEFT_ARG_INT(weft_shape_numel(s->in[i].shape)),
                                        WEFT_ARG_SCRATCH, WEFT_ARG_INT(i == 0)};
        weft_source_call_of(s, "square_sum", args, 4);
    }
    weft_source_call_of(s, "root_of_sum",
                        (const weft_source_arg[]){WEFT_ARG_SCRATCH, WEFT_ARG_OUT(0)}, 2);
}

static const weft_sample samples_global_norm[] = {
    {NULL, 3, {FLOATS({2, {3, 4}}), FLOATS({1, {5}}), FLOATS({0, {0}})}},
    {NULL, 1, {FLOATS({1, {1}})}},
    {NULL, 2, {FLOATS({2, {0, 3}}), FLOATS({1, {4}})}},
};
DECLARE_KERNELS(global_norm);
extern const weft_op weft_op_global_norm;
/* The sum of squares of each example, input by input. */
static void batch_global_norm(weft_batch *b)
{
    weft_graph *g = b->graph;
    weft_value total = WEFT_NO_VALUE;
    for (size_t i = 0; i < b->n_in; i++) {
        const weft_value x = weft__batch_in(b, i);
        const weft_value sum = weft__batch_sums(g, weft_square(g, x));
        total = i ? weft_add(g, total, sum) : sum;
    }
    b->out[0] = weft_sqrt(g, total);
}

const weft_op weft_op_global_norm = {
    .name = "global_norm",
    .doc = "y = (sum of x^2 over all elements of all inputs)^(1/2).",
    .min_in = 1,
    .max_in = WEFT_VARIADIC,
    .n_out = 1,
    .infer = infer_global_norm,
    .kernel = FLOAT_KERNELS(global_norm),
    .takes = WEFT_TAKES_DENSE,
    .phases = 2,
    .tiles = tiles_global_norm,
    .scratch = scratch_global_norm,
    .cost = cost_global_norm,
    .source = source_global_norm,
    .vjp = vjp_global_norm,
    .batch = batch_global_norm,
    .samples = samples_global_norm,
    .n_samples = sizeof samples_global_norm / sizeof *samples_global_norm,
};

weft_value weft_global_norm(weft_graph *graph, const weft_value *x, size_t n)
{
    return weft_apply(graph, &weft_op_global_norm, NULL, x, n, NULL);
}

/* ---- Its phases as ops ---- */

typedef struct root_attr {
    weft_dtype dtype;
} root_attr;

static int64_t tiles_square_sums(const weft_call *call)
{
    int64_t tiles = 0;
    for (size_t i = 0; i < call->n_in; i++) tiles += tiles_of(&call->in[i]);
    return tiles;
}

static bool infer_square_sums(weft_infer *infer)
{
    int64_t tiles = 0;
    for (size_t i = 0; i < infer->n_in; i++) {
        if (!weft_infer_float(infer, i) || !weft_infer_same_dtype(infer, 0, i)) return false;
        tiles += ceil_div(weft_shape_numel(infer->in[i].shape), TILE);
    }
    infer->out[0] = (weft_type){WEFT_F64, {1, {tiles}}};
    return true;
}

static bool infer_root_of_sum(weft_infer *infer)
{
    const root_attr *attr = infer->attr;
    if (!weft_infer_dtype(infer, 0, WEFT_F64) || !weft_infer_dtype(infer, 1, WEFT_I32))
        return false;
    if (!weft_dtype_is_float(attr->dtype))
        return weft_infer_fail(infer, WEFT_BAD_DTYPE, "the result is %s, expected f32 or f64",
                               weft_dtype_name(attr->dtype));
    infer->out[0] = (weft_type){attr->dtype, WEFT_SCALAR};
    return true;
}

static int64_t one_tile(const weft_call *call)
{
    (void)call;
    return 1;
}

static void source_square_sums(weft_source *s)
{
    int64_t tiles = 0;
    for (size_t i = 0; i < s->n_in; i++) {
        const int64_t n = weft_shape_numel(s->in[i].shape);
        const weft_source_arg args[] = {WEFT_ARG_IN(i), WEFT_ARG_INT(n), WEFT_ARG_OUT_AT(0, tiles)};
        weft_source_call_of(s, "square_sums", args, 3);
        tiles += ceil_div(n, TILE);
    }
}

static void source_root_of_sum(weft_source *s)
{
    const weft_source_arg args[] = {WEFT_ARG_IN(0), WEFT_ARG_IN(1), WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(weft_shape_numel(s->in[1].shape)),
                                    WEFT_ARG_INT(weft_shape_numel(s->in[0].shape))};
    weft_source_try(s, "root_in_order", args, 5);
}

static const root_attr root_f64 = {WEFT_F64};
static const weft_sample samples_root_of_sum[] = {
    {&root_f64, 2, {{WEFT_F64, {1, {5}}, 0, 2, false}, INDICES(5, {1, {4}})}},
    {&root_f64, 2, {{WEFT_F64, {1, {1}}, 0, 2, false}, INDICES(1, {1, {3}})}},
};
static const weft_attr_field root_fields[] = {
    {"dtype", WEFT_ATTR_DTYPE, offsetof(root_attr, dtype)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_KERNELS(square_sums);
DECLARE_KERNELS(root_of_sum);
extern const weft_op weft_op_square_sums, weft_op_root_of_sum;
const weft_op weft_op_square_sums = {
    .name = "square_sums",
    .doc = "The sum of x^2 of each block of WEFT_TILE elements of each input, in f64.",
    .min_in = 1,
    .max_in = WEFT_VARIADIC,
    .n_out = 1,
    .infer = infer_square_sums,
    .kernel = FLOAT_KERNELS(square_sums),
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_square_sums,
    .cost = cost_global_norm,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_square_sums,
    .samples = samples_global_norm,
    .n_samples = sizeof samples_global_norm / sizeof *samples_global_norm,
};
const weft_op weft_op_root_of_sum = {
    .name = "root_of_sum",
    .doc = "y = (sum over k of sums[order[k]])^(1/2), added in f64 in this order.",
    .inputs = "sums order",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(root_attr),
    .attrs = root_fields,
    .infer = infer_root_of_sum,
    .kernel = FLOAT_KERNELS(root_of_sum),
    .key_output = true,
    .takes = WEFT_TAKES_DENSE,
    .tiles = one_tile,
    .can_fail = true,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_root_of_sum,
    .samples = samples_root_of_sum,
    .n_samples = sizeof samples_root_of_sum / sizeof *samples_root_of_sum,
};

weft_value weft_square_sums(weft_graph *graph, const weft_value *x, size_t n)
{
    return weft_apply(graph, &weft_op_square_sums, NULL, x, n, NULL);
}

weft_value weft_root_of_sum(weft_graph *graph, weft_value sums, weft_value order, weft_dtype dtype)
{
    root_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = dtype;
    return weft_apply(graph, &weft_op_root_of_sum, &attr, (weft_value[]){sums, order}, 2, NULL);
}

#endif
