/* Elementwise arithmetic of two operands, which broadcast as in NumPy, and sums of many. Time
 * O(elements of the inputs). */
#include "kernels/kernel.h"
#include "kernels/sums.h"

/* name, doc, how the operands e->in become nodes of ONNX, expression of the elements x and y, range
 * of the samples (low, high) */
#define BINARY_OPS(X)                                                                              \
    X(add, "y = a + b", weft_export_same(e, "Add"), x + y, -2, 2)                                  \
    X(sub, "y = a - b", weft_export_same(e, "Sub"), x - y, -2, 2)                                  \
    X(mul, "y = a b", weft_export_same(e, "Mul"), x *y, -2, 2)                                     \
    X(div, "y = a / b", weft_export_same(e, "Div"), x / y, 0.5, 2)                                 \
    X(pow, "y = a^b; gradients need a > 0", weft_export_same(e, "Pow"),                            \
      (T)vm_pow_f64((double)x, (double)y), 0.5, 2)                                                 \
    X(maximum, "y = max(a, b), NaN if either is; a tie's gradient goes half to each",              \
      weft_export_same(e, "Max"), x > y || x != x ? x : y, -2, 2)                                  \
    X(minimum, "y = min(a, b), NaN if either is; a tie's gradient goes half to each",              \
      weft_export_same(e, "Min"), x < y || x != x ? x : y, -2, 2)                                  \
    X(relu_grad, "y = 0 where a <= 0, else b: relu's gradient b, passed on by its output a",       \
      onnx_mask_of_relu(e), x <= 0 ? 0 : y, -2, 2)

#ifdef WEFT_KERNEL_ISA
#include "base/vmath_pow.h"

#define BINARY_KERNEL(name, doc, onnx, expression, low, high)                                      \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        T packed[2][PACKED_RUN];                                                                   \
        int64_t ps, qs;                                                                            \
        for (weft_iterator w = iterator_begin_narrow(call, tile); weft_iterator_next(&w);) {       \
            const T *p = iterator_operand(&w, 1, call->in[0].data, packed[0], &ps);                \
            const T *q = iterator_operand(&w, 2, call->in[1].data, packed[1], &qs);                \
            T *out = (T *)call->out[0].data + w.offset[0];                                         \
            EACH_PAIR(p, ps, q, qs, out[i] = expression)                                           \
        }                                                                                          \
    }
BINARY_OPS(BINARY_KERNEL)

#define ADD_RUN 256

/* out += the sum of inputs [from, to), for `count` elements. */
static inline void add_block(const weft_call *call, size_t from, size_t to, int64_t offset,
                             int64_t count, T *out)
{
    T sum[ADD_RUN];
    for (int64_t run = 0; run < count; run += ADD_RUN) {
        const int64_t n = count - run < ADD_RUN ? count - run : ADD_RUN;
        for (size_t j = from; j < to; j++) {
            const T *x = (const T *)call->in[j].data + offset + run;
            for (int64_t k = 0; k < n; k++) sum[k] = j == from ? x[k] : sum[k] + x[k];
        }
        for (int64_t k = 0; k < n; k++) out[run + k] += sum[k];
    }
}

KERNEL(add_n)
{
    /* Inputs and output have the same layout, so one iterator serves all. */
    const weft_tensor *out_only[1] = {&call->out[0]};
    const int64_t n = numel_of(&call->out[0].shape), begin = tile * TILE;
    weft_iterator w = weft_iterator_range(out_only, 1, begin, begin + TILE < n ? begin + TILE : n);
    while (weft_iterator_next(&w)) {
        T *out = (T *)call->out[0].data + w.offset[0];
        const T *first = (const T *)call->in[0].data + w.offset[0];
        for (int64_t k = 0; k < w.count; k++) out[k] = first[k];
        for (size_t j = 1; j < call->n_in && j < SUM_BLOCK; j++) {
            const T *x = (const T *)call->in[j].data + w.offset[0];
            for (int64_t k = 0; k < w.count; k++) out[k] += x[k];
        }
        for (size_t j = SUM_BLOCK; j < call->n_in; j += SUM_BLOCK)
            add_block(call, j, j + SUM_BLOCK < call->n_in ? j + SUM_BLOCK : call->n_in, w.offset[0],
                      w.count, out);
    }
}

#else

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

static bool infer_binary(weft_infer *infer)
{
    char a[128], b[128];
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1)) return false;
    infer->out[0].dtype = infer->in[0].dtype;
    return weft_shape_broadcast(infer->in[0].shape, infer->in[1].shape, &infer->out[0].shape) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s and %s do not broadcast",
                           weft_shape_text(infer->in[0].shape, a, sizeof a),
                           weft_shape_text(infer->in[1].shape, b, sizeof b));
}

static void set(weft_vjp *v, size_t i, weft_value gradient)
{
    v->grad_in[i] = gradient;
}

static void vjp_add(weft_vjp *v)
{
    set(v, 0, v->grad_out[0]);
    set(v, 1, v->grad_out[0]);
}

static void vjp_sub(weft_vjp *v)
{
    set(v, 0, v->grad_out[0]);
    if (v->wanted[1]) set(v, 1, weft_neg(v->graph, v->grad_out[0]));
}

static void vjp_mul(weft_vjp *v)
{
    for (size_t i = 0; i < 2; i++)
        if (v->wanted[i]) set(v, i, weft_mul(v->graph, v->grad_out[0], v->in[1 - i]));
}

/* d(a/b) = da / b - (y / b) db. In this form a y of 0 makes the gradient of b 0; as y (1 / b) it
 * would be NaN where 1 / b is infinite. */
static void vjp_div(weft_vjp *v)
{
    weft_graph *g = v->graph;
    if (v->wanted[0]) set(v, 0, weft_div(g, v->grad_out[0], v->in[1]));
    if (!v->wanted[1]) return;
    weft_value slope = weft_div(g, v->out[0], v->in[1]);
    set(v, 1, weft_neg(g, weft_mul(g, v->grad_out[0], slope)));
}

/* d(a^b) = b a^(b-1) da + y ln a db */
static void vjp_pow(weft_vjp *v)
{
    weft_graph *g = v->graph;
    if (v->wanted[0]) {
        weft_value slope = weft_pow(g, v->in[0], weft_add_scalar(g, v->in[1], -1.0));
        set(v, 0, weft_mul(g, v->grad_out[0], weft_mul(g, v->in[1], slope)));
    }
    if (v->wanted[1]) {
        weft_value slope = weft_mul(g, v->out[0], weft_log(g, v->in[0]));
        set(v, 1, weft_mul(g, v->grad_out[0], slope));
    }
}

/* The operand that was not chosen gets no gradient; at a tie each gets half; if either is NaN, both
 * get all of it. */
static void pass_extreme(weft_vjp *v, weft_value (*loses)(weft_graph *, weft_value, weft_value))
{
    weft_graph *g = v->graph;
    weft_value half = weft_mul_scalar(g, v->grad_out[0], 0.5);
    weft_value tie = weft_equal(g, v->in[0], v->in[1]);
    weft_value all = weft_where(g, tie, half, v->grad_out[0]);
    for (size_t i = 0; i < 2; i++)
        if (v->wanted[i])
            set(v, i, weft_masked_fill(g, all, loses(g, v->in[i], v->in[1 - i]), 0.0));
}

static void vjp_maximum(weft_vjp *v)
{
    pass_extreme(v, weft_less);
}

static void vjp_minimum(weft_vjp *v)
{
    pass_extreme(v, weft_greater);
}

/* Only the sign of a counts, so its gradient is zero. */
static void vjp_relu_grad(weft_vjp *v)
{
    if (v->wanted[1]) set(v, 1, weft_relu_grad(v->graph, v->in[0], v->grad_out[0]));
}

static void onnx_mask_of_relu(weft_export *e)
{
    const weft_operand zero = weft_export_scalar(e, e->in_type[0].dtype, 0);
    const weft_operand in[] = {weft_export_binary(e, "LessOrEqual", e->in[0], zero), zero,
                               e->in[1]};
    e->out[0] = weft_export_node(e, "Where", in, 3, 1);
}

#define BINARY_OP(op, text, nodes, expression, from, to)                                           \
    DECLARE_KERNELS(op);                                                                           \
    static void onnx_##op(weft_export *e)                                                          \
    {                                                                                              \
        nodes;                                                                                     \
    }                                                                                              \
    static void source_##op(weft_source *s)                                                        \
    {                                                                                              \
        weft_source_each(s, WEFT_SOURCE_BINARY(#op "_of", #expression), #op "_of", NULL, 0);       \
    }                                                                                              \
    static const weft_sample samples_##op[] = {                                                    \
        {NULL,                                                                                     \
         2,                                                                                        \
         {{WEFT_FLOAT, {2, {3, 5}}, from, to, true}, {WEFT_FLOAT, {2, {3, 5}}, from, to, true}}},  \
        {NULL,                                                                                     \
         2,                                                                                        \
         {{WEFT_FLOAT, {3, {2, 1, 5}}, from, to, true},                                            \
          {WEFT_FLOAT, {2, {3, 1}}, from, to, true}}},                                             \
        {NULL,                                                                                     \
         2,                                                                                        \
         {{WEFT_FLOAT, {0, {0}}, from, to, true}, {WEFT_FLOAT, {1, {4}}, from, to, true}}},        \
        {NULL,                                                                                     \
         2,                                                                                        \
         {{WEFT_FLOAT, {2, {0, 3}}, from, to, true}, {WEFT_FLOAT, {1, {3}}, from, to, true}}},     \
    };                                                                                             \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text ". The operands broadcast.",                                                   \
        .min_in = 2,                                                                               \
        .max_in = 2,                                                                               \
        .n_out = 1,                                                                                \
        .infer = infer_binary,                                                                     \
        .kernel = FLOAT_KERNELS(op),                                                               \
        .elementwise = true,                                                                       \
        .takes = WEFT_TAKES_ANY,                                                                   \
        .inplace = 3,                                                                              \
        .broadcasts = true,                                                                        \
        .onnx = onnx_##op,                                                                         \
        .source = source_##op,                                                                     \
        .vjp = vjp_##op,                                                                           \
        .samples = samples_##op,                                                                   \
        .n_samples = sizeof samples_##op / sizeof *samples_##op,                                   \
    };                                                                                             \
    weft_value weft_##op(weft_graph *graph, weft_value a, weft_value b)                            \
    {                                                                                              \
        return weft_apply(graph, &weft_op_##op, NULL, (weft_value[]){a, b}, 2, NULL);              \
    }
BINARY_OPS(BINARY_OP)

weft_value weft_mul_scalar(weft_graph *graph, weft_value x, double factor)
{
    return weft_mul(graph, x, weft_scalar(graph, weft_dtype_of(graph, x), factor));
}

weft_value weft_add_scalar(weft_graph *graph, weft_value x, double addend)
{
    return weft_add(graph, x, weft_scalar(graph, weft_dtype_of(graph, x), addend));
}

weft_value weft_pow_scalar(weft_graph *graph, weft_value x, double exponent)
{
    return weft_pow(graph, x, weft_scalar(graph, weft_dtype_of(graph, x), exponent));
}

/* ---- add_n ---- */

static bool infer_add_n(weft_infer *infer)
{
    char a[128], b[128];
    infer->out[0] = infer->in[0];
    if (!weft_infer_float(infer, 0)) return false;
    for (size_t i = 1; i < infer->n_in; i++) {
        if (!weft_infer_same_dtype(infer, 0, i)) return false;
        if (!weft_shape_equal(infer->in[0].shape, infer->in[i].shape))
            return weft_infer_fail(infer, WEFT_BAD_SHAPE, "input 0 is %s, but input %zu is %s",
                                   weft_shape_text(infer->in[0].shape, a, sizeof a), i,
                                   weft_shape_text(infer->in[i].shape, b, sizeof b));
    }
    return true;
}

static void onnx_add_n(weft_export *e)
{
    weft_export_same(e, "Sum");
    e->note = true; /* Sum adds in no certain order */
}

static void vjp_add_n(weft_vjp *v)
{
    for (size_t i = 0; i < v->n_in; i++) v->grad_in[i] = v->grad_out[0];
}

static void source_add_n(weft_source *s)
{
    const weft_source_arg args[] = {WEFT_ARG_OUT(0), WEFT_ARG_TERMS, WEFT_ARG_INT(s->n_in),
                                    WEFT_ARG_INT(weft_shape_numel(s->out[0].shape))};
    weft_source_call_of(s, "add_n", args, 4);
}

DECLARE_KERNELS(add_n);
static const weft_sample samples_add_n[] = {
    {NULL, 1, {{WEFT_FLOAT, {1, {4}}, -2, 2, false}}},
    {NULL,
     3,
     {{WEFT_FLOAT, {2, {2, 3}}, -2, 2, false},
      {WEFT_FLOAT, {2, {2, 3}}, -2, 2, false},
      {WEFT_FLOAT, {2, {2, 3}}, -2, 2, false}}},
};
extern const weft_op weft_op_add_n;
const weft_op weft_op_add_n = {
    .name = "add_n",
    .doc = "y = x0 + x1 + ..., in this order; all of one shape. Autodiff sums the gradients of a "
           "value with it.",
    .min_in = 1,
    .max_in = WEFT_VARIADIC,
    .n_out = 1,
    .infer = infer_add_n,
    .kernel = FLOAT_KERNELS(add_n),
    .elementwise = true,
    .takes = WEFT_TAKES_DENSE,
    .inplace = 1,
    .onnx = onnx_add_n,
    .source = source_add_n,
    .vjp = vjp_add_n,
    .samples = samples_add_n,
    .n_samples = sizeof samples_add_n / sizeof *samples_add_n,
};

weft_value weft_add_n(weft_graph *graph, const weft_value *x, size_t n)
{
    if (n == 1 && x) return x[0];
    return weft_apply(graph, &weft_op_add_n, NULL, x, n, NULL);
}

#endif
