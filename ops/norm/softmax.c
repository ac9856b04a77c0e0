/* softmax and log_softmax along one axis, and their backward passes as ops of their own. A tile is
 * a range of lines: rows along the last dimension, else columns that are read together. */
#include "kernels/extreme.h"
#include "kernels/lines.h"
#include "kernels/sums.h"

typedef struct softmax_attr {
    int32_t back; /* the axis, counted from the last: 0 is the last */
} softmax_attr;

static inline lines lines_of_softmax(const weft_call *call)
{
    const weft_tensor *y = &call->out[0], *all[] = {y, &call->in[0], &call->in[call->n_in - 1]};
    return lines_along(all, 3, y->shape.rank - 1 - ((const softmax_attr *)call->attr)->back);
}

#ifdef WEFT_KERNEL_ISA
#include "base/vmath.h"

static inline T *line_at(const weft_tensor *t, const lines *l, int64_t index)
{
    return (T *)t->data + line_offset(t, l->axis, index);
}

/* What to subtract from the exponents of a line with this maximum. Where all are -inf it is 0, so
 * that each e^(-inf - 0) = 0. */
static inline T shift_of(T top)
{
    return top == (T)-INFINITY ? 0 : top;
}

/* ---- Rows ---- */

static inline T row_max(const T *x, int64_t n)
{
    T top = (T)-INFINITY;
    _Pragma("omp simd reduction(max : top)") for (int64_t i = 0; i < n; i++) top =
        x[i] > top ? x[i] : top;
    return extreme_of(top, (T)-INFINITY, x, n, 1);
}

/* y = e^(x - shift); the sum of y. */
static inline double exp_row(const T *x, T *y, int64_t n, T shift)
{
    double sum = 0;
    EACH_RANGE(from, to, n)
    {
        T partial[SUM_LANES] = {0};
        EACH_LANE(i, c, from, to, const T e = vm_exp_down(x[i] - shift); y[i] = e; partial[c] += e)
        sum += (double)sum_of_lanes(partial);
    }
    return sum;
}

/* Elements that are computed together: the rest of a row is padded with -infinity, which
 * adds nothing, for a short row's last elements one by one would take longer than all others. */
#define TOGETHER 16

static inline void softmax_row(const T *x, T *y, int64_t n)
{
    const int64_t whole = n / TOGETHER * TOGETHER, rest = n - whole;
    T last[TOGETHER];
    for (int64_t i = 0; i < TOGETHER; i++) last[i] = i < rest ? x[whole + i] : (T)-INFINITY;
    const T top = row_max(x, whole), last_top = row_max(last, TOGETHER);
    const T shift = shift_of(last_top > top ? last_top : top);
    const double sum = exp_row(x, y, whole, shift) + exp_row(last, last, TOGETHER, shift);
    /* A sum of 0 (all masked) must not divide. */
    const T scale = sum == 0 ? 0 : (T)(1 / sum);
    for (int64_t i = 0; i < whole; i++) y[i] *= scale;
    for (int64_t i = 0; i < rest; i++) y[whole + i] = last[i] * scale;
}

/* The maximum and the logarithm are subtracted one after the other: their sum, rounded, would cost
 * all digits that the logarithm has beyond those of the maximum. */
static inline void log_softmax_row(const T *x, T *y, int64_t n)
{
    const T shift = shift_of(row_max(x, n));
    double sum = 0;
    EACH_RANGE(from, to, n)
    {
        T partial[SUM_LANES] = {0};
        EACH_LANE(i, c, from, to, partial[c] += vm_exp_down(x[i] - shift))
        sum += (double)sum_of_lanes(partial);
    }
    const T logarithm = sum == 0 ? 0 : (T)vm_log_f64(sum);
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = (x[i] - shift) - logarithm;
}

static inline void softmax_grad_row(const T *y, const T *dy, T *dx, int64_t n)
{
    double total = 0;
#define TERM(i) (y[i] * dy[i])
    SUM_ROW(total, n, TERM)
#undef TERM
    const T sum = (T)total;
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - sum);
}

static inline void log_softmax_grad_row(const T *y, const T *dy, T *dx, int64_t n)
{
    const T sum = (T)sum_of(dy, n);
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - vm_exp(y[i]) * sum;
}

/* ---- Columns: n of them, rows xs, ys, ... apart ---- */

static inline void column_shifts(const T *x, int64_t xs, int64_t length, int64_t n, T *shift)
{
    SIMD_FOR (c, n) shift[c] = (T)-INFINITY;
    for (int64_t i = 0; i < length; i++)
        SIMD_FOR (c, n) {
            const T v = x[i * xs + c];
            shift[c] = v > shift[c] ? v : shift[c];
        }
    SIMD_FOR (c, n) shift[c] = shift_of(shift[c]);
}

static inline void softmax_columns(const T *x, int64_t xs, T *y, int64_t ys, int64_t length,
                                   int64_t n)
{
    T shift[MAX_COLUMNS], scale[MAX_COLUMNS];
    double sum[MAX_COLUMNS] = {0};
    column_shifts(x, xs, length, n, shift);
    for (int64_t from = 0; from < length; from += 8) {
        const int64_t rows = length - from < 8 ? length - from : 8;
        const T *const in = x + from * xs;
        T *const out = y + from * ys;
        for (int64_t i = 0; i < rows; i++)
            SIMD_FOR (c, n) out[i * ys + c] = vm_exp_down(in[i * xs + c] - shift[c]);
#define TERM(i) out[(i)*ys + c]
        SUM_COLUMNS(sum, rows, n, TERM)
#undef TERM
    }
    SIMD_FOR (c, n) scale[c] = sum[c] == 0 ? 0 : (T)(1 / sum[c]);
    for (int64_t i = 0; i < length; i++)
        SIMD_FOR (c, n) {
            y[i * ys + c] *= scale[c];
        }
}

static inline void log_softmax_columns(const T *x, int64_t xs, T *y, int64_t ys, int64_t length,
                                       int64_t n)
{
    T shift[MAX_COLUMNS], logarithm[MAX_COLUMNS];
    double sum[MAX_COLUMNS] = {0};
    column_shifts(x, xs, length, n, shift);
    for (int64_t from = 0; from < length; from += SUM_ROWS) {
        T partial[MAX_COLUMNS] = {0};
        for (int64_t i = from; i < length && i < from + SUM_ROWS; i++)
            SIMD_FOR (c, n) partial[c] += vm_exp_down(x[i * xs + c] - shift[c]);
        SIMD_FOR (c, n) sum[c] += (double)partial[c];
    }
    SIMD_FOR (c, n) logarithm[c] = sum[c] == 0 ? 0 : (T)vm_log_f64(sum[c]);
    for (int64_t i = 0; i < length; i++)
        SIMD_FOR (c, n) {
            y[i * ys + c] = (x[i * xs + c] - shift[c]) - logarithm[c];
        }
}

static inline void softmax_grad_columns(strided y, strided dy, T *dx, int64_t dxs, int64_t length,
                                        int64_t n)
{
    T sum[MAX_COLUMNS];
    double total[MAX_COLUMNS] = {0};
#define TERM(i) (y.x[(i)*y.step + c] * dy.x[(i)*dy.step + c])
    SUM_COLUMNS(total, length, n, TERM)
#undef TERM
    SIMD_FOR (c, n) sum[c] = (T)total[c];
    for (int64_t i = 0; i < length; i++)
        SIMD_FOR (c, n) {
            dx[i * dxs + c] = y.x[i * y.step + c] * (dy.x[i * dy.step + c] - sum[c]);
        }
}

static inline void log_softmax_grad_columns(strided y, strided dy, T *dx, int64_t dxs,
                                            int64_t length, int64_t n)
{
    T sum[MAX_COLUMNS];
    double total[MAX_COLUMNS] = {0};
#define TERM(i) dy.x[(i)*dy.step + c]
    SUM_COLUMNS(total, length, n, TERM)
#undef TERM
    SIMD_FOR (c, n) sum[c] = (T)total[c];
    for (int64_t i = 0; i < length; i++)
        SIMD_FOR (c, n) {
            dx[i * dxs + c] = dy.x[i * dy.step + c] - vm_exp(y.x[i * y.step + c]) * sum[c];
        }
}

/* Short lines are columns of a packed block, each with the sums of a column. */
#define FORWARD_KERNEL(name)                                                                       \
    static void name##_short(const weft_call *call, const lines *l, int64_t tile)                  \
    {                                                                                              \
        T packed[SHORT_LINE * SHORT_LINES];                                                        \
        EACH_SHORT_LINES(*l, tile, line, n)                                                        \
        {                                                                                          \
            lines_pack(&call->in[0], l, line, n, packed);                                          \
            name##_columns(packed, n, packed, n, l->length, n);                                    \
            lines_unpack(packed, &call->out[0], l, line, n);                                       \
        }                                                                                          \
    }                                                                                              \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        const lines l = lines_of_softmax(call);                                                    \
        const weft_tensor *in = &call->in[0], *out = &call->out[0], *all[] = {in, out};            \
        if (lines_are_short(&l)) {                                                                 \
            name##_short(call, &l, tile);                                                          \
            return;                                                                                \
        }                                                                                          \
        EACH_LINES(l, tile, line, n)                                                               \
        {                                                                                          \
            const T *x = line_at(in, &l, line);                                                    \
            T *y = line_at(out, &l, line);                                                         \
            if (l.columns || !lines_are_dense(&l, all, 2))                                         \
                name##_columns(x, in->stride[l.axis], y, out->stride[l.axis], l.length, n);        \
            else                                                                                   \
                name##_row(x, y, l.length);                                                        \
        }                                                                                          \
    }
FORWARD_KERNEL(softmax)
FORWARD_KERNEL(log_softmax)

#define BACKWARD_KERNEL(name)                                                                      \
    static void name##_short(const weft_call *call, const lines *l, int64_t tile)                  \
    {                                                                                              \
        T packed[2][SHORT_LINE * SHORT_LINES];                                                     \
        EACH_SHORT_LINES(*l, tile, line, n)                                                        \
        {                                                                                          \
            lines_pack(&call->in[0], l, line, n, packed[0]);                                       \
            lines_pack(&call->in[1], l, line, n, packed[1]);                                       \
            name##_columns((strided){packed[0], n}, (strided){packed[1], n}, packed[0], n,         \
                           l->length, n);                                                          \
            lines_unpack(packed[0], &call->out[0], l, line, n);                                    \
        }                                                                                          \
    }                                                                                              \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        const lines l = lines_of_softmax(call);                                                    \
        const weft_tensor *in = call->in, *out = &call->out[0], *all[] = {in, in + 1, out};        \
        if (lines_are_short(&l)) {                                                                 \
            name##_short(call, &l, tile);                                                          \
            return;                                                                                \
        }                                                                                          \
        EACH_LINES(l, tile, line, n)                                                               \
        {                                                                                          \
            const T *y = line_at(&in[0], &l, line), *dy = line_at(&in[1], &l, line);               \
            T *dx = line_at(out, &l, line);                                                        \
            if (l.columns || !lines_are_dense(&l, all, 3))                                         \
                name##_columns((strided){y, in[0].stride[l.axis]},                                 \
                               (strided){dy, in[1].stride[l.axis]}, dx, out->stride[l.axis],       \
                               l.length, n);                                                       \
            else                                                                                   \
                name##_row(y, dy, dx, l.length);                                                   \
        }                                                                                          \
    }
BACKWARD_KERNEL(softmax_grad)
BACKWARD_KERNEL(log_softmax_grad)

#else

#include "batch.h"
#include "passes.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

static bool infer_rows(weft_infer *infer)
{
    int ignored;
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0) && weft_infer_min_rank(infer, 0, 1) &&
           weft_infer_axis(infer, infer->in[0].shape.rank,
                           ((const softmax_attr *)infer->attr)->back, &ignored);
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

static int64_t tiles_rows(const weft_call *call)
{
    const lines l = lines_of_softmax(call);
    return l.length ? lines_tiles(&l) : 0;
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
    v->grad_in[0] = weft_apply(v->graph, &weft_op_softmax_grad, v->attr,
                               (weft_value[]){v->out[0], v->grad_out[0]}, 2, NULL);
}

static void vjp_log_softmax(weft_vjp *v)
{
    v->grad_in[0] = weft_apply(v->graph, &weft_op_log_softmax_grad, v->attr,
                               (weft_value[]){v->out[0], v->grad_out[0]}, 2, NULL);
}

static weft_axes axes_of(const weft_expand *e)
{
    return WEFT_AXES(-1 - ((const softmax_attr *)e->attr)->back);
}

static void expand_softmax_grad(weft_expand *e)
{
    weft_value y = e->in[0], dy = e->in[1];
    weft_value sum = weft_sum(e->graph, weft_mul(e->graph, y, dy), axes_of(e), true);
    e->out[0] = weft_mul(e->graph, y, weft_sub(e->graph, dy, sum));
}

static void expand_log_softmax_grad(weft_expand *e)
{
    weft_value sum = weft_sum(e->graph, e->in[1], axes_of(e), true);
    weft_value p = weft_exp(e->graph, e->in[0]);
    e->out[0] = weft_sub(e->graph, e->in[1], weft_mul(e->graph, p, sum));
}

static const softmax_attr last = {0}, second_last = {1};
static const weft_attr_field softmax_fields[] = {
    {"back", WEFT_ATTR_INT, offsetof(softmax_attr, back)},
    {NULL, WEFT_ATTR_INT, 0},
};
static const weft_sample samples_rows[] = {
    {&second_last, 1, {{WEFT_FLOAT, {3, {2, 4, 3}}, -3, 3, false}}},
    {&last, 1, {{WEFT_FLOAT, {2, {3, 7}}, -3, 3, false}}},
    {&last, 1, {{WEFT_FLOAT, {3, {2, 3, 1}}, -3, 3, false}}},
    {&last, 1, {{WEFT_FLOAT, {1, {5}}, -3, 3, false}}},
    {&last, 1, {{WEFT_FLOAT, {2, {0, 4}}, -3, 3, false}}},
};
static const weft_sample samples_grad[] = {
    {&second_last,
     2,
     {{WEFT_FLOAT, {3, {2, 3, 4}}, -1, 1, false}, {WEFT_FLOAT, {3, {2, 3, 4}}, -1, 1, false}}},
    {&last, 2, {{WEFT_FLOAT, {2, {3, 7}}, -1, 1, false}, {WEFT_FLOAT, {2, {3, 7}}, -1, 1, false}}},
    {&last, 2, {{WEFT_FLOAT, {1, {4}}, -1, 1, false}, {WEFT_FLOAT, {1, {4}}, -1, 1, false}}},
};

/* Along the last axis only; all inputs are rows. */
static unsigned rowwise_softmax(const void *attr)
{
    return ((const softmax_attr *)attr)->back == 0 ? ~0u : 0;
}

static void onnx_rows(weft_export *e, const char *type)
{
    weft_export_same(e, type);
    weft_export_int(e, "axis", -1 - ((const softmax_attr *)e->attr)->back);
}

static void onnx_softmax(weft_export *e)
{
    onnx_rows(e, "Softmax");
}

static void onnx_log_softmax(weft_export *e)
{
    onnx_rows(e, "LogSoftmax");
}

/* ---- C ---- */

/* Lines of the inputs and the output, with the sums of columns or of rows as the kernels choose. */
static void source_lines(weft_source *s, const char *function)
{
    const weft_call call = {
        .attr = s->attr, .in = s->in, .out = s->out, .n_in = s->n_in, .n_out = 1};
    const lines l = lines_of_softmax(&call);
    const weft_tensor *all[] = {&s->in[0], &s->in[s->n_in - 1], &s->out[0]};
    const bool columns = lines_are_short(&l) || l.columns || !lines_are_dense(&l, all, 3);
    int64_t size[WEFT_MAX_RANK], stride[3][WEFT_MAX_RANK];
    weft_source_arg args[16];
    size_t n = 0, rank = 0;
    for (int d = 0; d < s->out[0].shape.rank; d++) {
        if (d == l.axis || s->out[0].shape.dim[d] == 1) continue;
        size[rank] = s->out[0].shape.dim[d];
        for (int k = 0; k < 3; k++) stride[k][rank] = all[k]->stride[d];
        rank++;
    }
    for (size_t i = 0; i < s->n_in; i++) args[n++] = WEFT_ARG_IN(i);
    args[n++] = WEFT_ARG_OUT(0);
    args[n++] = WEFT_ARG_INT(l.length ? l.count : 0);
    args[n++] = WEFT_ARG_INT(l.length);
    for (size_t k = 3 - s->n_in - 1; k < 3; k++) args[n++] = WEFT_ARG_INT(all[k]->stride[l.axis]);
    args[n++] = WEFT_ARG_INT(columns);
    args[n++] = WEFT_ARG_INT(rank);
    args[n++] = WEFT_ARG_INTS(size, rank);
    for (size_t k = 3 - s->n_in - 1; k < 3; k++) args[n++] = WEFT_ARG_INTS(stride[k], rank);
    weft_source_call_of(s, function, args, n);
}

#define ROW_OP(op, text, inputs, shape_rule, sample_list, ...)                                     \
    DECLARE_KERNELS(op);                                                                           \
    static void source_##op(weft_source *s)                                                        \
    {                                                                                              \
        source_lines(s, #op "_lines");                                                             \
    }                                                                                              \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .min_in = inputs,                                                \
                                  .max_in = inputs,                                                \
                                  .n_out = 1,                                                      \
                                  .attr_size = sizeof(softmax_attr),                               \
                                  .attrs = softmax_fields,                                         \
                                  .infer = shape_rule,                                             \
                                  .kernel = FLOAT_KERNELS(op),                                     \
                                  .takes = WEFT_TAKES_ROWS,                                        \
                                  .tiles = tiles_rows,                                             \
                                  .cost = cost_rows,                                               \
                                  .inplace = (1 << (inputs)) - 1,                                  \
                                  .rowwise = rowwise_softmax,                                      \
                                  .narrow_out = 1,                                                 \
                                  .source = source_##op,                                           \
                                  .batch = weft__batch_front,                                      \
                                  .samples = sample_list,                                          \
                                  .n_samples = sizeof sample_list / sizeof *sample_list,           \
                                  __VA_ARGS__};
ROW_OP(softmax, "y = e^x / sum e^x along the axis; zeros where every x is -inf.", 1, infer_rows,
       samples_rows, .vjp = vjp_softmax, .onnx = onnx_softmax, PASSES(&weft__pass_attention))
ROW_OP(log_softmax, "y = x - ln sum e^x along the axis.", 1, infer_rows, samples_rows,
       .vjp = vjp_log_softmax, .onnx = onnx_log_softmax)
ROW_OP(softmax_grad, "dx = y (dy - sum y dy) along the axis: softmax backward.", 2, infer_grad,
       samples_grad, .expand = expand_softmax_grad)
ROW_OP(log_softmax_grad, "dx = dy - e^y sum dy along the axis: log_softmax backward.", 2,
       infer_grad, samples_grad, .expand = expand_log_softmax_grad)

static weft_value along(weft_graph *graph, const weft_op *op, weft_value x, int axis)
{
    /* An axis outside the rank stays as it is, for the shape rule to refuse. */
    const int rank = weft_rank_of(graph, x), from_front = axis_from_front(axis, rank);
    const bool inside = from_front >= 0 && from_front < rank;
    const softmax_attr attr = {inside ? rank - 1 - from_front : from_front};
    return weft_apply(graph, op, &attr, &x, 1, NULL);
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
