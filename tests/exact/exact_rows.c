/* Ops along one axis: softmax and its relatives, cumsum, argmax. See exact.h.
 *
 * The sums of softmax depend on how the operands lie: lines along the last dimension are rows,
 * whose sums have lanes; others, and lines of at most 16 elements, are columns. */
#include "exact_math.h"

/* A loop over the lines of `out` along axis. Declares n, r, base and step: element i of line r is
 * element base + i * step of the shape. */
#define EACH_LINE(shape, axis)                                                                     \
    for (int64_t n = (shape)->dim[axis], step = step_of(shape, axis), r = 0, base = 0;             \
         n && r < weft_shape_numel(*(shape)) / n; r++, base = r / step * step * n + r % step)

static int64_t step_of(const weft_shape *shape, int axis)
{
    int64_t step = 1;
    for (int d = axis + 1; d < shape->rank; d++) step *= shape->dim[d];
    return step;
}

/* ---- softmax ---- */

/* Whether the lines of these tensors of one shape have the sums of columns: they are short, or lie
 * next to each other, or their elements lie apart. */
static bool by_columns(const weft_tensor *const *t, int n, int axis)
{
    const weft_shape *shape = &t[0]->shape;
    int last = shape->rank - 1;
    while (last > axis && shape->dim[last] == 1) last--;
    bool columns = axis < last, dense = true;
    for (int k = 0; k < n; k++) {
        columns &= t[k]->stride[last] == 1;
        dense &= t[k]->stride[axis] == 1;
    }
    return columns || !dense || shape->dim[axis] <= 16;
}

static int axis_of(const void *attr, const weft_tensor *t)
{
    return t->shape.rank - 1 - *(const int32_t *)attr;
}

/* The largest number of n; NaN does not count. 0 if it is -infinity. */
static T shift_of(const T *x, int64_t n)
{
    T top = (T)-INFINITY;
    for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    return top == (T)-INFINITY ? 0 : top;
}

/* The lines of `in`, each in an array of its own, go through `compute`. */
static void each_line(const void *attr, const weft_tensor *in, size_t n_in, weft_tensor *out,
                      void (*compute)(const T *x, T *y, int64_t n, bool column))
{
    const int axis = axis_of(attr, out);
    const weft_tensor *all[] = {out, &in[0], &in[n_in - 1]};
    const bool column = by_columns(all, 3, axis);
    EACH_LINE(&out->shape, axis)
    {
        T *x = malloc((size_t)(3 * n) * sizeof *x), *y = x + 2 * n;
        for (size_t k = 0; k < n_in; k++)
            for (int64_t i = 0; i < n; i++) x[(int64_t)k * n + i] = at(&in[k], base + i * step);
        compute(x, y, n, column);
        for (int64_t i = 0; i < n; i++) data(out)[base + i * step] = y[i];
        free(x);
    }
}

/* The sum of a row is that of its multiple of 16 elements and that of the rest. */
static void softmax_line(const T *x, T *y, int64_t n, bool column)
{
    const int64_t whole = n / 16 * 16;
    const T shift = shift_of(x, n);
    for (int64_t i = 0; i < n; i++) y[i] = vm_exp_down(x[i] - shift);
    const double sum = column ? add_column(0, y, n)
                              : sum_of_ranges(y, whole) + sum_of_ranges(y + whole, n - whole);
    const T scale = sum == 0 ? 0 : (T)(1 / sum);
    for (int64_t i = 0; i < n; i++) y[i] *= scale;
}
static void log_softmax_line(const T *x, T *y, int64_t n, bool column)
{
    const T shift = shift_of(x, n);
    for (int64_t i = 0; i < n; i++) y[i] = vm_exp_down(x[i] - shift);
    const double sum = column ? sum_of_rows(y, n) : sum_of_ranges(y, n);
    const T logarithm = sum == 0 ? 0 : (T)vm_log_f64(sum);
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - shift) - logarithm;
}
/* x is y [n] and dy [n]. */
static void softmax_grad_line(const T *x, T *dx, int64_t n, bool column)
{
    const T *y = x, *dy = x + n;
    for (int64_t i = 0; i < n; i++) dx[i] = y[i] * dy[i];
    const T sum = (T)add_terms(column, 0, dx, n);
    for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - sum);
}
static void log_softmax_grad_line(const T *x, T *dx, int64_t n, bool column)
{
    const T *y = x, *dy = x + n;
    const T sum = (T)add_terms(column, 0, dy, n);
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - vm_exp(y[i]) * sum;
}

#define LINES(name)                                                                                \
    EXACT(name)                                                                                    \
    {                                                                                              \
        each_line(attr, in, n_in, out, name##_line);                                               \
    }
LINES(softmax)
LINES(log_softmax)
LINES(softmax_grad)
LINES(log_softmax_grad)

/* ---- Scans ---- */

typedef struct scan_attr {
    int32_t axis;
    bool keepdims, reverse;
} scan_attr;

EXACT(cumsum)
{
    UNUSED;
    const scan_attr *a = attr;
    EACH_LINE(&in->shape, a->axis)
    {
        double total = 0;
        for (int64_t k = 0; k < n; k++) {
            const int64_t i = base + (a->reverse ? n - 1 - k : k) * step;
            total += (double)at(in, i);
            data(out)[i] = (T)total;
        }
    }
}

/* The first NaN, or else the first of the largest elements. */
static void best_of(const void *attr, const weft_tensor *in, weft_tensor *out, T sign)
{
    EACH_LINE(&in->shape, ((const scan_attr *)attr)->axis)
    {
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++) {
            const T x = sign * at(in, base + i * step), top = sign * at(in, base + best * step);
            if (top == top && (x > top || x != x)) best = i;
        }
        ((int32_t *)out->data)[r] = (int32_t)best;
    }
}
EXACT(argmax)
{
    UNUSED;
    best_of(attr, in, out, 1);
}
EXACT(argmin)
{
    UNUSED;
    best_of(attr, in, out, -1);
}

/* Of x [rows, n] and dy [rows]: the product of dy and the elements before each, times that of the
 * elements after it. That one begins with the products of blocks of 512, from the end. */
EXACT(prod_grad)
{
    UNUSED;
    const int64_t rows = in->shape.dim[0], n = in->shape.dim[1];
    for (int64_t r = 0; r < rows; r++) {
        double before = (double)at(&in[1], r), after = 1;
        double *later = malloc((size_t)(n + 1) * sizeof *later);
        for (int64_t end = n, from; end > 0; end = from) {
            from = (end - 1) / 512 * 512;
            double product = after;
            for (int64_t i = end - 1; i >= from; i--) {
                later[i] = product;
                product *= (double)at(in, r * n + i);
            }
            for (int64_t i = from; i < end; i++) after *= (double)at(in, r * n + i);
        }
        for (int64_t i = 0; i < n; i++) {
            data(out)[r * n + i] = (T)(before * later[i]);
            before *= (double)at(in, r * n + i);
        }
        free(later);
    }
}

/* ---- top_k ---- */

typedef struct top_k_attr {
    int64_t k;
    int32_t axis;
    bool largest;
} top_k_attr;

typedef struct candidate {
    T x;
    int32_t index;
} candidate;

/* The order of numbers; a NaN is larger than all of them. */
static int order_of(T a, T b)
{
    if (isnan(a) || isnan(b)) return (isnan(a) != 0) - (isnan(b) != 0);
    return (a > b) - (a < b);
}

static int smallest_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    const int order = order_of(x->x, y->x);
    return order ? order : x->index - y->index;
}

static int largest_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    const int order = order_of(y->x, x->x);
    return order ? order : x->index - y->index;
}

EXACT(top_k)
{
    UNUSED;
    const top_k_attr *a = attr;
    EACH_LINE(&in->shape, a->axis)
    {
        candidate *all = malloc((size_t)n * sizeof *all);
        for (int64_t i = 0; i < n; i++) all[i] = (candidate){at(in, base + i * step), (int32_t)i};
        qsort(all, (size_t)n, sizeof *all, a->largest ? largest_first : smallest_first);
        for (int64_t i = 0; i < a->k; i++) {
            const int64_t to = (r / step * a->k + i) * step + r % step;
            data(out)[to] = all[i].x;
            ((int32_t *)out[1].data)[to] = all[i].index;
        }
        free(all);
    }
}

/* ---- suppress ---- */

/* Intersection over union of two boxes, each two opposite corners. */
static double shared_part(const double *a, const double *b)
{
    double low[2][2], high[2][2], area[2], width[2];
    for (int i = 0; i < 2; i++) {
        const double *box = i ? b : a;
        for (int k = 0; k < 2; k++) {
            low[i][k] = box[2 + k] < box[k] ? box[2 + k] : box[k];
            high[i][k] = box[2 + k] > box[k] ? box[2 + k] : box[k];
        }
        area[i] = (high[i][0] - low[i][0]) * (high[i][1] - low[i][1]);
    }
    for (int k = 0; k < 2; k++) {
        const double from = low[0][k] > low[1][k] ? low[0][k] : low[1][k];
        const double to = high[0][k] < high[1][k] ? high[0][k] : high[1][k];
        if (!(to > from)) return -1;
        width[k] = to - from;
    }
    const double shared = width[0] * width[1];
    return shared / (area[0] + area[1] - shared);
}

EXACT(suppress)
{
    UNUSED;
    const double threshold = *(const double *)attr;
    const int64_t n = in->shape.dim[in->shape.rank - 2],
                  lists = n ? weft_shape_numel(in->shape) / 4 / n : 0;
    uint8_t *stays = out->data;
    for (int64_t i = 0; i < lists * n; i++) {
        double box[4], other[4];
        stays[i] = true;
        for (int64_t j = i - i % n; j < i; j++) {
            for (int k = 0; k < 4; k++) {
                box[k] = (double)at(in, 4 * i + k);
                other[k] = (double)at(in, 4 * j + k);
            }
            const double part = shared_part(other, box);
            if (stays[j] && part != -1 && part > threshold) stays[i] = false;
        }
    }
}

EXACT_TABLE(rows) = {
    ROW(softmax), ROW(log_softmax), ROW(softmax_grad), ROW(log_softmax_grad),
    ROW(cumsum),  ROW(argmax),      ROW(argmin),       ROW(prod_grad),
    ROW(top_k),   ROW(suppress),    {NULL, NULL},
};
