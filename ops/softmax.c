/* softmax and log_softmax over the last dimension, and their backward passes as ops of their own. A
 * part is a stretch of rows. */
#include "kernel.h"

static inline int64_t row_length(const weft_call *call)
{
    const weft_shape *s = &call->out[0].shape;
    return s->rank ? s->dim[s->rank - 1] : 1;
}

static inline int64_t rows_per_part(const weft_call *call)
{
    int64_t length = row_length(call), n = TILE / (length ? length : 1);
    return n ? n : 1;
}

#ifdef WEFT_KERNEL_ISA
#include "vmath.h"

/* The first element of row `index` of t, whose last dimension has stride 1. */
static inline T *row_at(const weft_tensor *t, int64_t index)
{
    int64_t offset = 0;
    for (int d = t->shape.rank - 2; d >= 0; d--) {
        offset += index % t->shape.dim[d] * t->stride[d];
        index /= t->shape.dim[d];
    }
    return (T *)t->data + offset;
}

#define EACH_ROW                                                                                   \
    const int64_t n = row_length(call), each = rows_per_part(call);                                \
    const int64_t rows = n ? numel_of(&call->out[0].shape) / n : 0;                                \
    for (int64_t r = part * each; r < rows && r < (part + 1) * each; r++)

static inline T row_max(const T *x, int64_t n)
{
    T top = (T)-INFINITY;
    _Pragma("omp simd reduction(max : top)") for (int64_t i = 0; i < n; i++) top =
        x[i] > top ? x[i] : top;
    return top;
}

/* y = e^(x - top); returns the sum. */
static inline T row_exp(const T *x, T *y, int64_t n, T top)
{
    T sum = 0;
    _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++)
    {
        const T e = vm_exp(x[i] - top);
        y[i] = e;
        sum += e;
    }
    return sum;
}

static inline T dot(const T *a, const T *b, int64_t n)
{
    T sum = 0;
    _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

KERNEL(softmax)
{
    EACH_ROW
    {
        const T *x = row_at(&call->in[0], r);
        T *y = row_at(&call->out[0], r), top = row_max(x, n);
        /* All masked: e^(-inf - 0) = 0 everywhere, and the sum 0 must not divide. */
        T sum = row_exp(x, y, n, top == (T)-INFINITY ? 0 : top), scale = sum == 0 ? 0 : 1 / sum;
        for (int64_t i = 0; i < n; i++) y[i] *= scale;
    }
}

KERNEL(log_softmax)
{
    EACH_ROW
    {
        const T *x = row_at(&call->in[0], r);
        T *y = row_at(&call->out[0], r), top = row_max(x, n), sum = 0;
        if (top == (T)-INFINITY) top = 0;
        _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum +=
            vm_exp(x[i] - top);
        T shift = sum == 0 ? 0 : top + (T)log((double)sum);
        for (int64_t i = 0; i < n; i++) y[i] = x[i] - shift;
    }
}

KERNEL(softmax_grad)
{
    EACH_ROW
    {
        const T *y = row_at(&call->in[0], r), *dy = row_at(&call->in[1], r);
        T *dx = row_at(&call->out[0], r), sum = dot(y, dy, n);
        for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - sum);
    }
}

KERNEL(log_softmax_grad)
{
    EACH_ROW
    {
        const T *y = row_at(&call->in[0], r), *dy = row_at(&call->in[1], r);
        T *dx = row_at(&call->out[0], r), sum = 0;
        _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum += dy[i];
        for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - vm_exp(y[i]) * sum;
    }
}

#else

#include <weft/ops.h>

static bool infer_rows(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0) && weft_infer_min_rank(infer, 0, 1);
}

static bool infer_grad(weft_infer *infer)
{
    char a[128], b[128];
    if (!infer_rows(infer) || !weft_infer_same_dtype(infer, 0, 1)) return false;
    return weft_shape_equal(infer->in[0].shape, infer->in[1].shape) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "y is %s, but its gradient %s",
                           weft_shape_text(infer->in[0].shape, a, sizeof a),
                           weft_shape_text(infer->in[1].shape, b, sizeof b));
}

static int64_t parts_rows(const weft_call *call)
{
    int64_t n = row_length(call);
    return n ? ceil_div(numel_of(&call->out[0].shape) / n, rows_per_part(call)) : 0;
}

static void cost_rows(const weft_call *call, weft_cost *cost)
{
    double n = (double)numel_of(&call->out[0].shape);
    cost->flops = 14 * n;
    cost->bytes = n * (double)((call->n_in + 1) * weft_dtype_bytes(call->out[0].dtype));
}

extern const weft_op weft_op_softmax, weft_op_softmax_grad, weft_op_log_softmax,
    weft_op_log_softmax_grad;

static void vjp_softmax(weft_vjp *v)
{
    v->grad_in[0] = weft_apply(v->graph, &weft_op_softmax_grad, NULL,
                               (weft_value[]){v->out[0], v->grad_out[0]}, 2, NULL);
}

static void vjp_log_softmax(weft_vjp *v)
{
    v->grad_in[0] = weft_apply(v->graph, &weft_op_log_softmax_grad, NULL,
                               (weft_value[]){v->out[0], v->grad_out[0]}, 2, NULL);
}

static void expand_softmax_grad(weft_expand *e)
{
    weft_value y = e->in[0], dy = e->in[1];
    weft_value sum = weft_sum(e->graph, weft_mul(e->graph, y, dy), WEFT_AXES(-1), true);
    e->out[0] = weft_mul(e->graph, y, weft_sub(e->graph, dy, sum));
}

static void expand_log_softmax_grad(weft_expand *e)
{
    weft_value sum = weft_sum(e->graph, e->in[1], WEFT_AXES(-1), true);
    weft_value p = weft_exp(e->graph, e->in[0]);
    e->out[0] = weft_sub(e->graph, e->in[1], weft_mul(e->graph, p, sum));
}

static const weft_sample samples_rows[] = {
    {NULL, 1, {{WEFT_FLOAT, {2, {3, 7}}, -3, 3, false}}},
    {NULL, 1, {{WEFT_FLOAT, {3, {2, 3, 1}}, -3, 3, false}}},
    {NULL, 1, {{WEFT_FLOAT, {1, {5}}, -3, 3, false}}},
    {NULL, 1, {{WEFT_FLOAT, {2, {0, 4}}, -3, 3, false}}},
};
static const weft_sample samples_grad[] = {
    {NULL, 2, {{WEFT_FLOAT, {2, {3, 7}}, -1, 1, false}, {WEFT_FLOAT, {2, {3, 7}}, -1, 1, false}}},
    {NULL, 2, {{WEFT_FLOAT, {1, {4}}, -1, 1, false}, {WEFT_FLOAT, {1, {4}}, -1, 1, false}}},
};

#define ROW_OP(op, text, inputs, shape_rule, sample_list, ...)                                     \
    DECLARE_KERNELS(op);                                                                           \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .min_in = inputs,                                                \
                                  .max_in = inputs,                                                \
                                  .n_out = 1,                                                      \
                                  .infer = shape_rule,                                             \
                                  .kernel = FLOAT_KERNELS(op),                                     \
                                  .takes = WEFT_TAKES_ROWS,                                        \
                                  .parts = parts_rows,                                             \
                                  .cost = cost_rows,                                               \
                                  .inplace = (1 << (inputs)) - 1,                                  \
                                  .rowwise = (1 << (inputs)) - 1,                                  \
                                  .samples = sample_list,                                          \
                                  .n_samples = sizeof sample_list / sizeof *sample_list,           \
                                  __VA_ARGS__};
ROW_OP(softmax, "y = e^x / sum e^x over the last dimension; zeros where every x is -inf.", 1,
       infer_rows, samples_rows, .vjp = vjp_softmax)
ROW_OP(log_softmax, "y = x - ln sum e^x over the last dimension.", 1, infer_rows, samples_rows,
       .vjp = vjp_log_softmax)
ROW_OP(softmax_grad, "dx = y (dy - sum y dy) over the last dimension: softmax backward.", 2,
       infer_grad, samples_grad, .expand = expand_softmax_grad)
ROW_OP(log_softmax_grad, "dx = dy - e^y sum dy over the last dimension: log_softmax backward.", 2,
       infer_grad, samples_grad, .expand = expand_log_softmax_grad)

/* The op works on the last dimension: another is moved there and back. */
static weft_value along(weft_graph *graph, const weft_op *op, weft_value x, int axis)
{
    int rank = weft_rank(graph, x);
    if (axis == -1 || axis == rank - 1) return weft_apply(graph, op, NULL, &x, 1, NULL);
    x = weft_transpose(graph, x, axis, -1);
    return weft_transpose(graph, weft_apply(graph, op, NULL, &x, 1, NULL), axis, -1);
}

weft_value weft_softmax(weft_graph *graph, weft_value x, int axis)
{
    return along(graph, &weft_op_softmax, x, axis);
}

weft_value weft_log_softmax(weft_graph *graph, weft_value x, int axis)
{
    return along(graph, &weft_op_log_softmax, x, axis);
}

#endif
