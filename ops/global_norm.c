/* global_norm: the Euclidean norm of many tensors as one vector. Phase 0 squares and sums tile by
 * tile into f64 partials, phase 1 adds them in order. */
#include "kernels/kernel.h"

static inline int64_t tiles_of(const weft_tensor *t)
{
    return ceil_div(numel_of(&t->shape), TILE);
}

#ifdef WEFT_KERNEL_ISA

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
    size_t i = 0;
    int64_t local = tile; /* of input i */
    while (local >= tiles_of(&call->in[i])) local -= tiles_of(&call->in[i++]);
    const T *x = (const T *)call->in[i].data + local * TILE;
    int64_t n = numel_of(&call->in[i].shape) - local * TILE;
    double sum = 0;
    if (n > TILE) n = TILE;
    _Pragma("omp simd reduction(+ : sum)") for (int64_t k = 0; k < n; k++) sum +=
        (double)x[k] * (double)x[k];
    partial[tile] = sum;
}

#else

#include "samples.h"

#include <weft/ops.h>

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

static const weft_sample samples_global_norm[] = {
    {NULL, 3, {FLOATS({2, {3, 4}}), FLOATS({1, {5}}), FLOATS({0, {0}})}},
    {NULL, 1, {FLOATS({1, {1}})}},
    {NULL, 2, {FLOATS({2, {0, 3}}), FLOATS({1, {4}})}},
};
DECLARE_KERNELS(global_norm);
extern const weft_op weft_op_global_norm;
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
    .vjp = vjp_global_norm,
    .samples = samples_global_norm,
    .n_samples = sizeof samples_global_norm / sizeof *samples_global_norm,
};

weft_value weft_global_norm(weft_graph *graph, const weft_value *x, size_t n)
{
    return weft_apply(graph, &weft_op_global_norm, NULL, x, n, NULL);
}

#endif
