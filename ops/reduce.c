/* Reductions over any axes of any layout. The dimensions are split into kept and reduced ones,
 * those that lie behind each other joined. If the last kept dimension has stride 1 and the last
 * reduced one has not, sums run over whole stretches of columns at a time (column path); else each
 * output folds its own elements. f32 sums run in blocks, which are summed in f64. */
#include "kernel.h"

typedef struct reduce_attr {
    int32_t count;
    int32_t axis[WEFT_MAX_RANK];
    bool keepdims;
    int32_t correction;
} reduce_attr;

#define COLUMNS 64

/* The dimensions of x, kept and reduced, outermost first. */
typedef struct split {
    int n_kept, n_folded;
    int64_t kept[WEFT_MAX_RANK], kept_stride[WEFT_MAX_RANK];
    int64_t folded[WEFT_MAX_RANK], folded_stride[WEFT_MAX_RANK];
    int64_t count; /* elements folded into one output */
} split;

static inline bool is_reduced(const reduce_attr *attr, int axis)
{
    if (attr->count == 0) return true;
    for (int i = 0; i < attr->count; i++)
        if (attr->axis[i] == axis) return true;
    return false;
}

static inline void split_add(int *n, int64_t *dims, int64_t *strides, int64_t dim, int64_t stride)
{
    if (dim == 1) return;
    if (*n && strides[*n - 1] == dim * stride) {
        dims[*n - 1] *= dim;
        strides[*n - 1] = stride;
        return;
    }
    dims[*n] = dim;
    strides[(*n)++] = stride;
}

static inline split split_of(const weft_call *call)
{
    const weft_tensor *x = &call->in[0];
    split s = {0};
    s.count = 1;
    for (int d = 0; d < x->shape.rank; d++) {
        if (is_reduced(call->attr, d)) {
            s.count *= x->shape.dim[d];
            split_add(&s.n_folded, s.folded, s.folded_stride, x->shape.dim[d], x->stride[d]);
        } else {
            split_add(&s.n_kept, s.kept, s.kept_stride, x->shape.dim[d], x->stride[d]);
        }
    }
    return s;
}

static inline bool by_columns(const split *s)
{
    return s->n_kept && s->kept_stride[s->n_kept - 1] == 1 && s->n_folded &&
           s->folded_stride[s->n_folded - 1] != 1;
}

/* Outputs of one part. */
static inline int64_t outputs_per_part(const split *s)
{
    int64_t wanted = TILE / (s->count ? s->count : 1), least = by_columns(s) ? COLUMNS : 4;
    return wanted < least ? least : wanted;
}

#ifdef WEFT_KERNEL_ISA
#include "vmath.h"

/* Offset of output `index`'s first element. */
static inline int64_t base_of(const split *s, int64_t index)
{
    int64_t offset = 0;
    for (int d = s->n_kept - 1; d >= 0; d--) {
        offset += index % s->kept[d] * s->kept_stride[d];
        index /= s->kept[d];
    }
    return offset;
}

/* Offset of row `index` of the folded elements: a run along the last folded dimension. */
static inline int64_t row_of(const split *s, int64_t index)
{
    int64_t offset = 0;
    for (int d = s->n_folded - 2; d >= 0; d--) {
        offset += index % s->folded[d] * s->folded_stride[d];
        index /= s->folded[d];
    }
    return offset;
}

#define EACH_ROW(x)                                                                                \
    int64_t length = s->n_folded ? s->folded[s->n_folded - 1] : 1;                                 \
    int64_t step = s->n_folded ? s->folded_stride[s->n_folded - 1] : 1;                            \
    int64_t rows = s->count == 0 ? 0 : s->count / length;                                          \
    for (int64_t r = 0; r < rows; r++)                                                             \
        for (const T *row = (x) + row_of(s, r), *once = row; once; once = NULL)

/* The sum of f(v) over one output's elements, v each element. */
#define FOLD_SUM(x, total, f)                                                                      \
    EACH_ROW(x)                                                                                    \
    {                                                                                              \
        for (int64_t from = 0; from < length; from += 4096) {                                      \
            int64_t to = from + 4096 < length ? from + 4096 : length;                              \
            T block = 0;                                                                           \
            if (step == 1) {                                                                       \
                _Pragma("omp simd reduction(+ : block)") for (int64_t i = from; i < to; i++)       \
                {                                                                                  \
                    const T v = row[i];                                                            \
                    block += f;                                                                    \
                }                                                                                  \
            } else {                                                                               \
                for (int64_t i = from; i < to; i++) {                                              \
                    const T v = row[i * step];                                                     \
                    block += f;                                                                    \
                }                                                                                  \
            }                                                                                      \
            total += (double)block;                                                                \
        }                                                                                          \
    }

static inline double fold_sum(const split *s, const T *x)
{
    double total = 0;
    FOLD_SUM(x, total, v)
    return total;
}

static inline double fold_variance(const split *s, const T *x, int correction)
{
    double total = 0;
    T mean = (T)(fold_sum(s, x) / (double)s->count);
    FOLD_SUM(x, total, (v - mean) * (v - mean))
    return total / (double)(s->count - correction);
}

static inline T fold_max(const split *s, const T *x)
{
    T best = (T)-INFINITY;
    bool nan = false;
    EACH_ROW(x)
    {
        for (int64_t i = 0; i < length; i++) {
            T v = row[i * step];
            best = v > best ? v : best;
            nan |= v != v;
        }
    }
    return nan ? (T)NAN : best;
}

static inline T fold_min(const split *s, const T *x)
{
    T best = (T)INFINITY;
    bool nan = false;
    EACH_ROW(x)
    {
        for (int64_t i = 0; i < length; i++) {
            T v = row[i * step];
            best = v < best ? v : best;
            nan |= v != v;
        }
    }
    return nan ? (T)NAN : best;
}

static inline T fold_logsumexp(const split *s, const T *x)
{
    T top = fold_max(s, x);
    double total = 0;
    if (top == (T)-INFINITY || top == (T)INFINITY || top != top) return top;
    FOLD_SUM(x, total, vm_exp(v - top))
    return top + (T)log(total);
}

/* Sums of outputs [begin, end), columns of one stretch at a time. */
static inline void column_sums(const split *s, const T *x, T *y, int64_t begin, int64_t end,
                               double scale)
{
    int64_t width = s->kept[s->n_kept - 1], length = s->folded[s->n_folded - 1];
    int64_t step = s->folded_stride[s->n_folded - 1], rows = s->count == 0 ? 0 : s->count / length;
    while (begin < end) {
        int64_t n = width - begin % width;
        if (n > COLUMNS) n = COLUMNS;
        if (n > end - begin) n = end - begin;
        double total[COLUMNS] = {0};
        const T *base = x + base_of(s, begin);
        for (int64_t r = 0; r < rows; r++) {
            const T *row = base + row_of(s, r);
            for (int64_t from = 0; from < length; from += 512) {
                int64_t to = from + 512 < length ? from + 512 : length;
                T block[COLUMNS] = {0};
                for (int64_t i = from; i < to; i++)
                    for (int64_t c = 0; c < n; c++) block[c] += row[i * step + c];
                for (int64_t c = 0; c < n; c++) total[c] += (double)block[c];
            }
        }
        for (int64_t c = 0; c < n; c++) y[begin + c] = (T)(total[c] * scale);
        begin += n;
    }
}

#define REDUCE_KERNEL(name, columns, scale, expression)                                            \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        const split split_all = split_of(call), *s = &split_all;                                   \
        const reduce_attr *attr = call->attr;                                                      \
        const T *x = call->in[0].data;                                                             \
        T *y = call->out[0].data;                                                                  \
        int64_t each = outputs_per_part(s), n = numel_of(&call->out[0].shape);                     \
        int64_t begin = part * each, end = begin + each < n ? begin + each : n;                    \
        (void)attr;                                                                                \
        if ((columns) && by_columns(s) && s->count) {                                              \
            column_sums(s, x, y, begin, end, scale);                                               \
            return;                                                                                \
        }                                                                                          \
        for (int64_t o = begin; o < end; o++) {                                                    \
            const T *from = x + base_of(s, o);                                                     \
            y[o] = (T)(expression);                                                                \
        }                                                                                          \
    }
REDUCE_KERNEL(sum, true, 1.0, fold_sum(s, from))
REDUCE_KERNEL(mean, true, 1.0 / (double)s->count, fold_sum(s, from) / (double)s->count)
REDUCE_KERNEL(max, false, 1.0, fold_max(s, from))
REDUCE_KERNEL(min, false, 1.0, fold_min(s, from))
REDUCE_KERNEL(variance, false, 1.0, fold_variance(s, from, attr->correction))
REDUCE_KERNEL(logsumexp, false, 1.0, fold_logsumexp(s, from))

#else

#include <weft/ops.h>

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

static int64_t parts_reduce(const weft_call *call)
{
    split s = split_of(call);
    return ceil_div(numel_of(&call->out[0].shape), outputs_per_part(&s));
}

static void cost_reduce(const weft_call *call, weft_cost *cost)
{
    double n = (double)numel_of(&call->in[0].shape);
    cost->flops = n;
    cost->bytes = n * (double)weft_dtype_bytes(call->in[0].dtype);
}

/* ---- Gradients ---- */

/* An output-shaped value as if the reduced dimensions had been kept, so that it broadcasts to x. */
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
    v->grad_in[0] = weft_scale(v->graph, v->grad_in[0], 1.0 / folded_count(v));
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

/* 2 (x - mean) / (n - correction) */
static void vjp_variance(weft_vjp *v)
{
    weft_graph *g = v->graph;
    const reduce_attr *attr = v->attr;
    weft_value mean = weft_mean(g, v->in[0], axes_of(attr), true);
    weft_value scaled =
        weft_scale(g, kept(v, v->grad_out[0]), 2.0 / (folded_count(v) - attr->correction));
    v->grad_in[0] = weft_mul(g, weft_sub(g, v->in[0], mean), scaled);
}

/* e^(x - y); where y is -inf every x is, and 0 stands in for y so that the difference is -inf. */
static void vjp_logsumexp(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value y = kept(v, v->out[0]), low = weft_scalar(g, weft_dtype_of(g, y), -INFINITY);
    weft_value shift = weft_masked_fill(g, y, weft_equal(g, y, low), 0.0);
    weft_value p = weft_exp(g, weft_sub(g, v->in[0], shift));
    v->grad_in[0] = weft_mul(g, p, kept(v, v->grad_out[0]));
}

/* ---- Descriptors and builders ---- */

static const reduce_attr reduce_last = {1, {1}, false, 0}, reduce_first = {1, {0}, true, 1},
                         reduce_all = {0, {0}, false, 0}, reduce_outer = {2, {0, 2}, true, 0};
static const weft_attr_field reduce_fields[] = {
    {"axes", WEFT_ATTR_INT, offsetof(reduce_attr, count)},
    {"axis", WEFT_ATTR_INT, offsetof(reduce_attr, axis)},
    {"keepdims", WEFT_ATTR_BOOL, offsetof(reduce_attr, keepdims)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define REDUCE_OP(op, text)                                                                        \
    DECLARE_KERNELS(op);                                                                           \
    static const weft_sample samples_##op[] = {                                                    \
        {&reduce_last, 1, {{WEFT_FLOAT, {2, {3, 6}}, -2, 2, true}}},                               \
        {&reduce_first, 1, {{WEFT_FLOAT, {2, {4, 5}}, -2, 2, true}}},                              \
        {&reduce_all, 1, {{WEFT_FLOAT, {3, {2, 3, 4}}, -2, 2, true}}},                             \
        {&reduce_outer, 1, {{WEFT_FLOAT, {4, {3, 2, 2, 3}}, -2, 2, true}}},                        \
        {&reduce_last, 1, {{WEFT_FLOAT, {2, {0, 3}}, -2, 2, true}}},                               \
    };                                                                                             \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text,                                                                               \
        .min_in = 1,                                                                               \
        .max_in = 1,                                                                               \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(reduce_attr),                                                          \
        .attrs = reduce_fields,                                                                    \
        .infer = infer_reduce,                                                                     \
        .kernel = FLOAT_KERNELS(op),                                                               \
        .takes = WEFT_TAKES_ANY,                                                                   \
        .parts = parts_reduce,                                                                     \
        .cost = cost_reduce,                                                                       \
        .vjp = vjp_##op,                                                                           \
        .broadcasts = true,                                                                        \
        .samples = samples_##op,                                                                   \
        .n_samples = sizeof samples_##op / sizeof *samples_##op,                                   \
    };
REDUCE_OP(sum, "y = sum of x over the axes; 0 over no elements.")
REDUCE_OP(mean, "y = sum of x over the axes / their number.")
REDUCE_OP(max, "y = largest x over the axes; NaN if one is; ties share the gradient evenly.")
REDUCE_OP(min, "y = smallest x over the axes; NaN if one is; ties share the gradient evenly.")
REDUCE_OP(variance, "y = sum (x - mean)^2 / (n - correction) over the axes.")
REDUCE_OP(logsumexp, "y = ln sum e^x over the axes, shifted by the largest x.")

static weft_value reduce(weft_graph *graph, const weft_op *op, weft_value x, weft_axes axes,
                         bool keepdims, int correction)
{
    reduce_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.count = axes.count;
    attr.keepdims = keepdims;
    attr.correction = correction;
    int rank = weft_rank(graph, x);
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

#endif
