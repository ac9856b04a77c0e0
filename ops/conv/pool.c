/* Pooling over windows of an image. max_pool has kernels, O(result x taps), and records the place
 * of each maximum, from which its gradient is a scatter_add. average_pool is a convolution of each
 * channel with a constant, so that its kernels and gradients are conv's. */
#include "conv.h"

/* A channel of x and of y as the image and the result of a convolution. */
static inline conv_sizes pool_sizes(const weft_call *call)
{
    const pool_attr *a = call->attr;
    weft_shape w = {2, {1, 1}};
    for (int d = 0; d < a->kernel.rank; d++) w.dim[w.rank++] = a->kernel.dim[d];
    return conv_sizes_of(&a->window, &call->in[0].shape, &w, &call->out[0].shape);
}

/* A tile is some rows of y, with about POOL_TILE elements. */
#define POOL_TILE    4096
#define POOL_COLUMNS 256 /* that are compared side by side */

static inline int64_t pool_rows(const conv_sizes *z)
{
    return z->out[2] < POOL_TILE ? POOL_TILE / (z->out[2] ? z->out[2] : 1) : 1;
}

#ifdef WEFT_KERNEL_ISA

/* Neighbouring elements of a row of y. */
typedef struct pool_run {
    int64_t first, n;
    T best[POOL_COLUMNS];
    int32_t index[POOL_COLUMNS]; /* -1: none yet */
} pool_run;

/* Compares with the pixels of one tap: column c is at x[first + c step], element `at` + that of the
 * channel. A NaN is larger than all numbers. */
static inline void compare_tap(const T *x, int64_t width, int64_t step, int64_t offset, int64_t at,
                               pool_run *r)
{
    const int64_t first = r->first * step + offset;
    const int64_t begin = first < 0 ? ceil_div(-first, step) : 0;
    int64_t end = first < width ? ceil_div(width - first, step) : 0;
    if (end > r->n) end = r->n;
    _Pragma("omp simd") for (int64_t c = begin; c < end; c++)
    {
        const T v = x[first + c * step], best = r->best[c];
        const bool wins = (v > best) | ((v != v) & (best == best)) | (r->index[c] < 0);
        r->best[c] = wins ? v : best;
        r->index[c] = wins ? (int32_t)(at + first + c * step) : r->index[c];
    }
}

/* The run's columns of row [i, j] of a channel of y. */
static void find_maxima(const conv_sizes *z, const T *x, int64_t i, int64_t j, pool_run *r)
{
    for (int64_t c = 0; c < r->n; c++) {
        r->best[c] = (T)-INFINITY;
        r->index[c] = -1;
    }
    for (int64_t p = 0; p < z->kernel[0]; p++) {
        const int64_t a = i * z->stride[0] + p * z->dilation[0] - z->begin[0];
        if (a < 0 || a >= z->in[0]) continue;
        for (int64_t q = 0; q < z->kernel[1]; q++) {
            const int64_t b = j * z->stride[1] + q * z->dilation[1] - z->begin[1];
            const int64_t row = (a * z->in[1] + b) * z->in[2];
            if (b < 0 || b >= z->in[1]) continue;
            for (int64_t s = 0; s < z->kernel[2]; s++)
                compare_tap(x + row, z->in[2], z->stride[2], s * z->dilation[2] - z->begin[2], row,
                            r);
        }
    }
}

KERNEL(max_pool)
{
    const weft_tensor *x = &call->in[0], *y = &call->out[0];
    const conv_sizes z = pool_sizes(call);
    const int64_t each = pool_rows(&z), in_channel = z.out[0] * z.out[1];
    const int64_t rows = x->shape.dim[0] * x->shape.dim[1] * in_channel;
    pool_run r;
    for (int64_t row = tile * each; row < (tile + 1) * each && row < rows; row++) {
        const T *from = (const T *)x->data + row / in_channel * z.in_volume;
        for (r.first = 0; r.first < z.out[2]; r.first += r.n) {
            r.n = z.out[2] - r.first < POOL_COLUMNS ? z.out[2] - r.first : POOL_COLUMNS;
            find_maxima(&z, from, row % in_channel / z.out[1], row % z.out[1], &r);
            const int64_t at = row * z.out[2] + r.first;
            memcpy((T *)y->data + at, r.best, (size_t)r.n * sizeof *r.best);
            memcpy((int32_t *)call->out[1].data + at, r.index, (size_t)r.n * sizeof *r.index);
        }
    }
}

#else

#include "conv_source.h"
#include "batch.h"
#include "samples.h"

#include <weft/ops.h>

#include <stdlib.h>

extern const weft_op weft_op_max_pool, weft_op_average_pool;

/* ---- Shapes ---- */

static bool in_range(weft_infer *infer, const char *name, int64_t value, int64_t least)
{
    if (value >= least && value <= INT32_MAX) return true;
    return weft_infer_fail(infer, value < least ? WEFT_BAD_ARGUMENT : WEFT_TOO_LARGE,
                           "%s is %lld, expected %lld to 2^31 - 1", name, (long long)value,
                           (long long)least);
}

/* Does each window along dimension d contain a pixel? Only windows that begin in the padding, and
 * the last one, may have none. */
static bool windows_see(const pool_attr *a, int d, int64_t in, int64_t out)
{
    const int64_t stride = a->window.stride.dim[d], dilation = a->window.dilation.dim[d];
    const int64_t begin = a->window.pad_begin.dim[d];
    for (int64_t i = 0; i < out; i = i * stride < begin || i == out - 1 ? i + 1 : out - 1) {
        const int64_t start = i * stride - begin;
        const int64_t tap = start < 0 ? ceil_div(-start, dilation) : 0;
        if (tap >= a->kernel.dim[d] || start + tap * dilation >= in) return false;
    }
    return true;
}

/* The size of dimension d of y. */
static bool pooled_size(weft_infer *infer, int d, int64_t in, int64_t *out)
{
    const pool_attr *a = infer->attr;
    const int64_t kernel = a->kernel.dim[d], stride = a->window.stride.dim[d];
    const int64_t dilation = a->window.dilation.dim[d];
    const int64_t begin = a->window.pad_begin.dim[d], end = a->window.pad_end.dim[d];
    if (!in_range(infer, "kernel", kernel, 1) || !in_range(infer, "stride", stride, 1) ||
        !in_range(infer, "dilation", dilation, 1) || !in_range(infer, "pad_begin", begin, 0) ||
        !in_range(infer, "pad_end", end, 0))
        return false;
    if (in > INT32_MAX)
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "a spatial dimension is over 2^31 - 1");
    const int64_t reach = (kernel - 1) * dilation + 1, padded = in + begin + end;
    if (padded < reach)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "spatial dimension %d is %lld with its padding, the window reaches "
                               "over %lld",
                               d, (long long)padded, (long long)reach);
    *out = (a->ceil_mode ? ceil_div(padded - reach, stride) : (padded - reach) / stride) + 1;
    /* A last window that begins after the leading padding and the image is left out. */
    if (a->ceil_mode && (*out - 1) * stride >= in + begin) (*out)--;
    return windows_see(a, d, in, *out) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE,
                           "a window along spatial dimension %d lies in the padding alone", d);
}

static bool infer_pool(weft_infer *infer)
{
    char text[128];
    const pool_attr *a = infer->attr;
    const weft_shape x = infer->in[0].shape;
    weft_shape y = x;
    if (!weft_infer_float(infer, 0)) return false;
    if (x.rank >= 2 && (x.dim[0] > INT32_MAX || x.dim[1] > INT32_MAX))
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "images or channels are over 2^31 - 1");
    if (x.rank < 3 || x.rank > 2 + PATCH_DIMS || a->kernel.rank != x.rank - 2 ||
        a->window.groups != 1)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "image %s, expected [images, channels, ...] with 1 to 3 spatial "
                               "dimensions, and a window of as many",
                               weft_shape_text(x, text, sizeof text));
    for (int d = 0; d < x.rank - 2; d++)
        if (!pooled_size(infer, d, x.dim[d + 2], &y.dim[d + 2])) return false;
    infer->out[0] = (weft_type){infer->in[0].dtype, y};
    return true;
}

static bool infer_max_pool(weft_infer *infer)
{
    if (!infer_pool(infer)) return false;
    weft_shape channel = {0, {0}};
    for (int d = 2; d < infer->in[0].shape.rank; d++)
        channel.dim[channel.rank++] = infer->in[0].shape.dim[d];
    const int64_t n = weft_shape_numel(channel);
    if (n < 0 || n > INT32_MAX)
        return weft_infer_fail(infer, WEFT_TOO_LARGE,
                               "a channel has more elements than an i32 index can count");
    infer->out[1] = (weft_type){WEFT_I32, infer->out[0].shape};
    return true;
}

/* ---- Work and gradient of max_pool ---- */

static int64_t tiles_max_pool(const weft_call *call)
{
    const conv_sizes z = pool_sizes(call);
    const int64_t channels = call->in[0].shape.dim[0] * call->in[0].shape.dim[1];
    return ceil_div(channels * z.out[0] * z.out[1], pool_rows(&z));
}

static void cost_max_pool(const weft_call *call, weft_cost *cost)
{
    const double out = (double)weft_shape_numel(call->out[0].shape);
    const double size = (double)weft_dtype_bytes(call->out[0].dtype);
    cost->flops = out * (double)pool_sizes(call).taps;
    cost->bytes = size * (double)weft_shape_numel(call->in[0].shape) + (size + 4) * out;
}

/* Each channel as one row. */
static weft_value flat(weft_graph *g, weft_value x)
{
    const weft_shape s = weft_shape_of(g, x);
    int64_t n = 1;
    for (int d = 2; d < s.rank; d++) n *= s.dim[d];
    return weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], n));
}

static void vjp_max_pool(weft_vjp *v)
{
    weft_graph *g = v->graph;
    const weft_shape shape = weft_shape_of(g, v->in[0]);
    if (!weft_is_value(v->grad_out[0])) return;
    weft_value zeros = flat(g, weft_fill(g, weft_dtype_of(g, v->in[0]), shape, 0));
    weft_value taken = flat(g, v->out[1]);
    weft_value dx = weft_scatter_add(g, zeros, taken, flat(g, v->grad_out[0]), 2);
    v->grad_in[0] = weft_reshape(g, dx, shape);
}

/* ---- average_pool as a convolution ---- */

/* The number of elements that window i of dimension d averages. */
static int64_t window_count(const pool_attr *a, int d, int64_t in, int64_t i)
{
    const int64_t begin = a->count_pad ? 0 : a->window.pad_begin.dim[d];
    const int64_t size =
        in + (a->count_pad ? a->window.pad_begin.dim[d] + a->window.pad_end.dim[d] : 0);
    const int64_t dilation = a->window.dilation.dim[d];
    const int64_t start = i * a->window.stride.dim[d] - begin;
    const int64_t first = start < 0 ? ceil_div(-start, dilation) : 0;
    int64_t end = start < size ? ceil_div(size - start, dilation) : 0;
    if (end > a->kernel.dim[d]) end = a->kernel.dim[d];
    return end - first;
}

/* y times 1 / count along dimension d; y itself if all windows are whole, which the weights know.
 */
static weft_value divide(weft_graph *g, const pool_attr *a, weft_value y, int d, int64_t in)
{
    const weft_shape shape = weft_shape_of(g, y);
    const int64_t n = shape.dim[d + 2], kernel = a->kernel.dim[d];
    bool whole = true;
    for (int64_t i = 0; i < n; i++) whole &= window_count(a, d, in, i) == kernel;
    if (whole) return y;
    double *factors = malloc((size_t)n * sizeof *factors);
    if (!factors) {
        weft_graph_fail_in(g, "average_pool", WEFT_NO_MEMORY, "no memory for %lld counts",
                           (long long)n);
        return WEFT_NO_VALUE;
    }
    for (int64_t i = 0; i < n; i++) factors[i] = (double)kernel / (double)window_count(a, d, in, i);
    weft_shape along = {0, {0}};
    for (int k = d + 2; k < shape.rank; k++) along.dim[along.rank++] = k == d + 2 ? n : 1;
    weft_value by = weft_constant(g, WEFT_F64, along, factors);
    free(factors);
    return weft_mul(g, y, weft_cast(g, by, weft_dtype_of(g, y)));
}

static void expand_average_pool(weft_expand *e)
{
    weft_graph *g = e->graph;
    const pool_attr *a = e->attr;
    const weft_shape x = weft_shape_of(g, e->in[0]);
    weft_conv_options o = {.groups = x.dim[1]};
    weft_shape w = WEFT_SHAPE(x.dim[1], 1);
    weft_infer infer = {.attr = a, .error = &(weft_error){0}};
    int64_t size[PATCH_DIMS] = {0};
    double taps = 1;
    for (int d = 0; d < a->kernel.rank; d++) {
        const int64_t in = x.dim[d + 2];
        w.dim[w.rank++] = a->kernel.dim[d];
        taps *= (double)a->kernel.dim[d];
        o.stride[d] = a->window.stride.dim[d];
        o.dilation[d] = a->window.dilation.dim[d];
        o.pad_begin[d] = a->window.pad_begin.dim[d];
        if (!pooled_size(&infer, d, in, &size[d])) return;
        /* In ceil mode the last window may reach further than the padding. */
        const int64_t last =
            (size[d] - 1) * o.stride[d] + (a->kernel.dim[d] - 1) * o.dilation[d] + 1;
        const int64_t needed = last - in - o.pad_begin[d];
        o.pad_end[d] = needed > 0 ? needed : 0;
    }
    if (x.dim[1] == 0) {
        weft_shape y = x;
        for (int d = 0; d < a->kernel.rank; d++) y.dim[d + 2] = size[d];
        e->out[0] = weft_reshape(g, e->in[0], y);
        return;
    }
    weft_value y = weft_conv(g, e->in[0], weft_fill(g, weft_dtype_of(g, e->in[0]), w, 1 / taps),
                             WEFT_NO_VALUE, &o);
    for (int d = 0; d < a->kernel.rank; d++) y = divide(g, a, y, d, x.dim[d + 2]);
    e->out[0] = y;
}

/* ---- Descriptors and builders ---- */

#define WINDOW(rank, strides, dilations, begin, end)                                               \
    {                                                                                              \
        {rank, strides}, {rank, dilations}, {rank, begin}, {rank, end}, {0, {0}}, 1                \
    }
#define LIST(...)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
static const pool_attr
    halves = {WINDOW(2, LIST(2, 2), LIST(1, 1), LIST(0, 0), LIST(0, 0)), {2, {2, 2}}, false, false},
    uneven = {WINDOW(2, LIST(2, 1), LIST(1, 2), LIST(1, 0), LIST(0, 1)), {2, {3, 2}}, true, false},
    counted = {WINDOW(2, LIST(2, 2), LIST(1, 1), LIST(1, 1), LIST(1, 1)), {2, {3, 3}}, true, true},
    line = {WINDOW(1, LIST(3), LIST(1), LIST(0), LIST(1)), {1, {2}}, true, false},
    volume = {WINDOW(3, LIST(1, 2, 1), LIST(1, 1, 1), LIST(0, 0, 1), LIST(0, 0, 0)),
              {3, {2, 2, 2}},
              false,
              false};
#define DISTINCT(...)                                                                              \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, -2, 2, true                                                       \
    }
static const weft_sample samples_pool[] = {
    {&halves, 1, {DISTINCT({4, {2, 2, 4, 5}})}},    {&uneven, 1, {DISTINCT({4, {1, 3, 4, 4}})}},
    {&counted, 1, {DISTINCT({4, {2, 1, 4, 4}})}},   {&line, 1, {DISTINCT({3, {2, 2, 6}})}},
    {&volume, 1, {DISTINCT({5, {1, 2, 2, 3, 3}})}}, {&halves, 1, {DISTINCT({4, {0, 2, 2, 2}})}},
    {&halves, 1, {DISTINCT({4, {2, 0, 2, 2}})}},
};
static const weft_attr_field pool_fields[] = {
    {"kernel", WEFT_ATTR_INT64S, offsetof(pool_attr, kernel)},
    {"stride", WEFT_ATTR_INT64S, offsetof(pool_attr, window.stride)},
    {"dilation", WEFT_ATTR_INT64S, offsetof(pool_attr, window.dilation)},
    {"pad_begin", WEFT_ATTR_INT64S, offsetof(pool_attr, window.pad_begin)},
    {"pad_end", WEFT_ATTR_INT64S, offsetof(pool_attr, window.pad_end)},
    {"groups", WEFT_ATTR_INT64, offsetof(pool_attr, window.groups)},
    {"ceil_mode", WEFT_ATTR_BOOL, offsetof(pool_attr, ceil_mode)},
    {"count_pad", WEFT_ATTR_BOOL, offsetof(pool_attr, count_pad)},
    {NULL, WEFT_ATTR_INT, 0},
};
/* ---- ONNX ---- */

/* ceil_mode becomes padding at the end, as opsets before 22 count the windows in another way. */
static weft_operand onnx_pool_node(weft_export *e, const char *type, size_t n_out)
{
    const pool_attr *a = e->attr;
    int64_t pad_end[PATCH_DIMS];
    for (int d = 0; d < a->kernel.rank; d++) {
        const int64_t reach = (a->kernel.dim[d] - 1) * a->window.dilation.dim[d] + 1;
        const int64_t last = (e->out_type[0].shape.dim[d + 2] - 1) * a->window.stride.dim[d];
        const int64_t more =
            last + reach - e->in_type[0].shape.dim[d + 2] - a->window.pad_begin.dim[d];
        pad_end[d] = !a->ceil_mode ? a->window.pad_end.dim[d] : more > 0 ? more : 0;
    }
    const weft_operand y = weft_export_node(e, type, e->in, 1, n_out);
    weft_export_ints(e, "kernel_shape", a->kernel.dim, (size_t)a->kernel.rank);
    weft__conv_export_window(e, &a->window, pad_end);
    return y;
}

/* ONNX counts places in all of x. Those in a channel are the remainders. */
static void onnx_max_pool(weft_export *e)
{
    const weft_shape *x = &e->in_type[0].shape;
    int64_t area = 1;
    for (int d = 2; d < x->rank; d++) area *= x->dim[d];
    e->out[0] = onnx_pool_node(e, "MaxPool", e->wanted[1] ? 2 : 1);
    if (!e->wanted[1]) return;
    weft_operand places = {e->out[0].id + 1};
    weft_operand size = weft_export_constant(e, WEFT_ONNX_INT64, WEFT_SCALAR, &area);
    e->out[1] = weft_export_unary(e, "Cast", weft_export_binary(e, "Mod", places, size));
    weft_export_int(e, "to", WEFT_ONNX_INT32);
}

/* Dilations are an attribute since opset 19; and a padding that counts must not grow. Otherwise the
 * expansion is exported. */
static void onnx_average_pool(weft_export *e)
{
    const pool_attr *a = e->attr;
    bool dilated = false;
    for (int d = 0; d < a->window.dilation.rank; d++) dilated |= a->window.dilation.dim[d] != 1;
    if ((dilated && e->opset < 19) || (a->ceil_mode && a->count_pad)) return;
    e->out[0] = onnx_pool_node(e, "AveragePool", 1);
    weft_export_int(e, "count_include_pad", a->count_pad);
}

DECLARE_KERNELS(max_pool);
const weft_op weft_op_max_pool = {
    .name = "max_pool",
    .doc = "The largest element of each window, the first NaN if there is one; and its place in "
           "the channel of x, the first one of equals.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 2,
    .attr_size = sizeof(pool_attr),
    .attrs = pool_fields,
    .infer = infer_max_pool,
    .kernel = FLOAT_KERNELS(max_pool),
    .tiles = tiles_max_pool,
    .cost = cost_max_pool,
    .onnx = onnx_max_pool,
    .source = weft__conv_source_max_pool,
    .batch = weft__batch_first,
    .vjp = vjp_max_pool,
    .samples = samples_pool,
    .n_samples = sizeof samples_pool / sizeof *samples_pool,
};
const weft_op weft_op_average_pool = {
    .name = "average_pool",
    .doc = "The mean of each window, of its elements in the image or (count_pad) also of the zeros "
           "of the padding. Becomes a convolution with a constant.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(pool_attr),
    .attrs = pool_fields,
    .infer = infer_pool,
    .expand = expand_average_pool,
    .batch = weft__batch_first,
    .onnx = onnx_average_pool,
    .samples = samples_pool,
    .n_samples = sizeof samples_pool / sizeof *samples_pool,
};

static weft_value pool(weft_graph *g, const weft_op *op, weft_value x,
                       const weft_pool_options *options, weft_value *outputs)
{
    static const weft_pool_options defaults;
    const weft_pool_options *o = options ? options : &defaults;
    const int rank = weft_rank_of(g, x) - 2;
    pool_attr a;
    memset(&a, 0, sizeof a);
    a.window.groups = 1;
    a.ceil_mode = o->ceil_mode;
    a.count_pad = o->count_pad;
    for (int d = 0; d < rank && d < PATCH_DIMS; d++) {
        const int64_t kernel = o->kernel[d] ? o->kernel[d] : 1;
        a.kernel.dim[a.kernel.rank++] = kernel;
        a.window.stride.dim[a.window.stride.rank++] = o->stride[d] ? o->stride[d] : kernel;
        a.window.dilation.dim[a.window.dilation.rank++] = o->dilation[d] ? o->dilation[d] : 1;
        a.window.pad_begin.dim[a.window.pad_begin.rank++] = o->pad_begin[d];
        a.window.pad_end.dim[a.window.pad_end.rank++] = o->pad_end[d];
    }
    return weft_apply(g, op, &a, &x, 1, outputs);
}

weft_value weft_max_pool(weft_graph *graph, weft_value x, const weft_pool_options *options,
                         weft_value *indices)
{
    weft_value out[2];
    weft_value y = pool(graph, &weft_op_max_pool, x, options, out);
    if (indices) *indices = out[1];
    return y;
}

weft_value weft_average_pool(weft_graph *graph, weft_value x, const weft_pool_options *options)
{
    return pool(graph, &weft_op_average_pool, x, options, NULL);
}

#endif
