/* resize: images of another size, built from other ops. Every mode is separable: along an axis each
 * output is a weighted sum of a few inputs, or, for the nearest element, gathered. Neighbouring
 * outputs read neighbouring inputs, so the weights are a narrow band of a matrix [out, in]. It is
 * cut into blocks of BAND outputs or more, at most MAX_BANDS of them, each of which is multiplied
 * by the inputs that it reads: O(out (BAND in / out + taps)) for each row of an axis, or out in /
 * MAX_BANDS if that is more. */
#include "resize.h"

#include "kernels/kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BAND      32
#define MAX_BANDS 64
/* The most weights, or indices, of an axis. */
#define MAX_WEIGHTS ((int64_t)1 << 26)

/* One axis: its sizes, scale, and the part of the input that WEFT_RESIZE_CROP takes. */
typedef struct axis_plan {
    const weft_resize_options *options;
    int64_t in, out;
    double scale, begin, end;
} axis_plan;

/* ---- Coordinates: where output x lies in the input ---- */

static double half_pixel(const axis_plan *p, double x)
{
    return (x + 0.5) / p->scale - 0.5;
}

static double align_corners(const axis_plan *p, double x)
{
    const double length = p->scale * (double)p->in;
    return length == 1 ? 0 : x * ((double)p->in - 1) / (length - 1);
}

static double asymmetric(const axis_plan *p, double x)
{
    return x / p->scale;
}

static double pytorch_half_pixel(const axis_plan *p, double x)
{
    return p->out > 1 ? half_pixel(p, x) : 0;
}

/* The same part is cut at both ends. */
static double half_pixel_symmetric(const axis_plan *p, double x)
{
    const double length = p->scale * (double)p->in;
    return (double)p->in / 2 * (1 - (double)p->out / length) + (x + 0.5) / p->scale - 0.5;
}

static double tf_half_pixel(const axis_plan *p, double x)
{
    return (x + 0.5) / p->scale;
}

static double crop(const axis_plan *p, double x)
{
    const double last = (double)p->in - 1;
    return p->out > 1 ? p->begin * last + x * (p->end - p->begin) * last / ((double)p->out - 1)
                      : 0.5 * (p->begin + p->end) * last;
}

static double (*const coordinates[])(const axis_plan *p, double x) = {
    [WEFT_RESIZE_HALF_PIXEL] = half_pixel,
    [WEFT_RESIZE_ALIGN_CORNERS] = align_corners,
    [WEFT_RESIZE_ASYMMETRIC] = asymmetric,
    [WEFT_RESIZE_PYTORCH_HALF_PIXEL] = pytorch_half_pixel,
    [WEFT_RESIZE_HALF_PIXEL_SYMMETRIC] = half_pixel_symmetric,
    [WEFT_RESIZE_TF_HALF_PIXEL] = tf_half_pixel,
    [WEFT_RESIZE_CROP] = crop,
};

static double coordinate(const axis_plan *p, int64_t i)
{
    return coordinates[p->options->coordinates](p, (double)i);
}

static bool is_outside(const axis_plan *p, int64_t i)
{
    const double x = coordinate(p, i);
    return p->options->coordinates == WEFT_RESIZE_CROP && (x < 0 || x > (double)p->in - 1);
}

/* The element at x, or that of the edge beyond it. */
static int64_t within(double x, int64_t size)
{
    return !(x > 0) ? 0 : x > (double)size - 1 ? size - 1 : (int64_t)x;
}

static double prefer_floor(double x)
{
    return ceil(x - 0.5);
}

static double prefer_ceil(double x)
{
    return floor(x + 0.5);
}

static double (*const roundings[])(double x) = {
    [WEFT_RESIZE_PREFER_FLOOR] = prefer_floor,
    [WEFT_RESIZE_PREFER_CEIL] = prefer_ceil,
    [WEFT_RESIZE_FLOOR] = floor,
    [WEFT_RESIZE_CEIL] = ceil,
};

/* ---- Weights ---- */

/* The weight of an element at distance t: a triangle, or the cubic kernel of Keys 1981. */
static double weigh(const weft_resize_options *o, double t)
{
    const double a = o->cubic_coeff ? *o->cubic_coeff : -0.75;
    t = fabs(t);
    if (o->mode != WEFT_RESIZE_CUBIC) return t < 1 ? 1 - t : 0;
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/* How much wider the kernel is, to smooth what is made smaller (antialias). */
static double shrink_of(const axis_plan *p)
{
    return p->options->antialias && p->scale < 1 ? p->scale : 1;
}

/* The first and last of the elements, inside or outside, that output i may read. */
static void find_taps(const axis_plan *p, int64_t i, double *first, double *last)
{
    const double whole = floor(coordinate(p, i));
    *first = whole + floor(-2 / shrink_of(p)) + 1;
    *last = 2 * whole + 1 - *first;
}

/* Outputs [first, end) of an axis, and the inputs [from, to) that they read. */
typedef struct band {
    int64_t first, end, from, to;
} band;

static band band_at(const axis_plan *p, int64_t first)
{
    const int64_t rows = p->out > BAND * MAX_BANDS ? (p->out - 1) / MAX_BANDS + 1 : BAND;
    band b = {first, first + rows < p->out ? first + rows : p->out, p->in - 1, 1};
    for (int64_t i = first; i < b.end; i++) {
        double tap, last;
        find_taps(p, i, &tap, &last);
        if (!(tap <= last)) continue; /* not a number */
        const int64_t from = within(tap, p->in), to = within(last, p->in) + 1;
        if (from < b.from) b.from = from;
        if (to > b.to) b.to = to;
    }
    if (b.to <= b.from) b.from = b.to - 1;
    return b;
}

/* The weights of all bands, or a number above MAX_WEIGHTS. */
static int64_t count_weights(const axis_plan *p)
{
    int64_t total = 0;
    for (int64_t i = 0; i < p->out && p->out + total <= MAX_WEIGHTS;) {
        const band b = band_at(p, i);
        total += (b.end - b.first) * (b.to - b.from);
        i = b.end;
    }
    return p->out + total > MAX_WEIGHTS ? MAX_WEIGHTS + 1 : total;
}

/* Adds the weights of output i to its row, which begins with those of input `from`. */
static void fill_row(const axis_plan *p, int64_t i, int64_t from, double *row)
{
    const double x = coordinate(p, i), end = (double)p->in - 1, shrink = shrink_of(p);
    const bool inside_only = p->options->exclude_outside;
    double sum = 0, first, last;
    if (is_outside(p, i)) return;
    find_taps(p, i, &first, &last);
    for (double at = first; at <= last; at++)
        if (!inside_only || (at >= 0 && at <= end)) sum += weigh(p->options, shrink * (at - x));
    for (double at = first; at <= last; at++)
        if (!inside_only || (at >= 0 && at <= end))
            row[within(at, p->in) - from] +=
                weigh(p->options, shrink * (at - x)) / (inside_only || shrink < 1 ? sum : 1);
}

static void *no_memory(weft_graph *g, int64_t n)
{
    weft_graph_fail_in(g, "resize", WEFT_NO_MEMORY, "no memory for %lld numbers", (long long)n);
    return NULL;
}

/* The weights of a band, [outputs, inputs]. */
static weft_value weights(weft_graph *g, const axis_plan *p, const band *b, weft_dtype dtype)
{
    const int64_t rows = b->end - b->first, width = b->to - b->from;
    double *matrix = calloc((size_t)(rows * width), sizeof *matrix);
    if (!matrix) return no_memory(g, rows * width), WEFT_NO_VALUE;
    for (int64_t i = 0; i < rows; i++) fill_row(p, b->first + i, b->from, matrix + i * width);
    const weft_value w = weft_constant(g, WEFT_F64, WEFT_SHAPE(rows, width), matrix);
    free(matrix);
    return weft_cast(g, w, dtype);
}

/* ---- One axis: x is [before, in, rest] ---- */

/* y = x times the weights. Where nothing follows the axis, x is a matrix of rows. */
static weft_value interpolate(weft_graph *g, weft_value x, const axis_plan *p)
{
    const weft_shape s = weft_shape_of(g, x);
    const bool last = s.dim[2] == 1;
    weft_value pieces[MAX_BANDS];
    size_t count = 0;
    if (last) x = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], p->in));
    for (int64_t i = 0; i < p->out; count++) {
        const band b = band_at(p, i);
        const weft_value w = weights(g, p, &b, weft_dtype_of(g, x));
        if (!weft_is_value(w)) return w;
        const weft_value read = weft_slice(g, x, 1, b.from, b.to, 1);
        pieces[count] =
            last ? weft_matmul(g, read, weft_transpose(g, w, 0, 1)) : weft_matmul(g, w, read);
        i = b.end;
    }
    const weft_value y = count == 1 ? pieces[0] : weft_concat(g, pieces, count, 1);
    return weft_reshape(g, y, WEFT_SHAPE(s.dim[0], p->out, s.dim[2]));
}

static weft_value pick(weft_graph *g, weft_value x, const axis_plan *p)
{
    const weft_shape s = weft_shape_of(g, x);
    int32_t *index = malloc((size_t)p->out * sizeof *index);
    if (!index) return no_memory(g, p->out), WEFT_NO_VALUE;
    for (int64_t i = 0; i < p->out; i++)
        index[i] = (int32_t)within(roundings[p->options->rounding](coordinate(p, i)), p->in);
    const weft_value indices = weft_constant(g, WEFT_I32, WEFT_SHAPE(p->out), index);
    free(index);
    weft_value rows = weft_reshape(g, weft_permute(g, x, WEFT_AXES(1, 0, 2)),
                                   WEFT_SHAPE(p->in, s.dim[0] * s.dim[2]));
    rows = weft_embedding(g, rows, indices, -1);
    rows = weft_reshape(g, rows, WEFT_SHAPE(p->out, s.dim[0], s.dim[2]));
    return weft_permute(g, rows, WEFT_AXES(1, 0, 2));
}

/* Outputs outside of the input are `outside`; the weights of later axes keep it. */
static weft_value fill_outside(weft_graph *g, weft_value y, const axis_plan *p)
{
    bool *mask = malloc((size_t)p->out * sizeof *mask), any = false;
    if (!mask) return no_memory(g, p->out), WEFT_NO_VALUE;
    for (int64_t i = 0; i < p->out; i++) any |= mask[i] = is_outside(p, i);
    if (any)
        y = weft_masked_fill(g, y, weft_constant(g, WEFT_BOOL, WEFT_SHAPE(p->out, 1), mask),
                             p->options->outside);
    free(mask);
    return y;
}

static weft_value resize_axis(weft_graph *g, weft_value x, int axis, const axis_plan *p)
{
    weft_shape s = weft_shape_of(g, x);
    int64_t before = 1, rest = 1;
    for (int i = 0; i < s.rank; i++) {
        if (i < axis) before *= s.dim[i];
        if (i > axis) rest *= s.dim[i];
    }
    x = weft_reshape(g, x, WEFT_SHAPE(before, p->in, rest));
    x = p->options->mode == WEFT_RESIZE_NEAREST ? pick(g, x, p) : interpolate(g, x, p);
    if (p->options->coordinates == WEFT_RESIZE_CROP) x = fill_outside(g, x, p);
    s.dim[axis] = p->out;
    return weft_reshape(g, x, s);
}

/* ---- Options ---- */

static bool refuse(weft_graph *g, const char *expected, int axis, double number)
{
    weft_graph_fail_in(g, "resize", WEFT_BAD_ARGUMENT, "axis %d: %s, got %.12g", axis, expected,
                       number);
    return false;
}

/* Plans an axis of x by its size or scale. */
static bool plan_axis(weft_graph *g, int axis, int64_t size, double scale, axis_plan *p)
{
    const double in = (double)p->in, length = scale * in;
    if (p->in < 1) return refuse(g, "x must have 1 element or more", axis, in);
    if (size == 0 && scale == 0)
        return refuse(g, "a size or a scale is required, above 0", axis, scale);
    if (size < 0 || size >= INT32_MAX)
        return refuse(g, "the size must be 1 to 2^31 - 2", axis, (double)size);
    if (size == 0 && !(length >= 1 && length < INT32_MAX))
        return refuse(g, "the scale must lead to a size of 1 to 2^31 - 2", axis, scale);
    if (size != 0 && scale != 0 && !(length + 0.5 >= (double)size && length < (double)size + 1))
        return refuse(g, "the size must be the scaled one, rounded down or to the nearest", axis,
                      (double)size);
    p->out = size ? size : (int64_t)floor(length);
    p->scale = scale != 0 ? scale : (double)size / in;
    return true;
}

static bool plan_crop(weft_graph *g, const weft_resize_options *o, int axis, int i, int count,
                      axis_plan *p)
{
    p->begin = o->crop[i];
    p->end = o->crop[count + i];
    return isfinite(p->begin + p->end) || refuse(g, "crop must be finite", axis, p->begin + p->end);
}

static bool check(weft_graph *g, weft_value x, const weft_resize_options *o)
{
    const weft_dtype dtype = weft_dtype_of(g, x);
    const char *wrong =
        !o                                      ? "options are NULL"
        : (unsigned)o->mode > WEFT_RESIZE_CUBIC ? "the mode is unknown"
        : (unsigned)o->coordinates > WEFT_RESIZE_CROP
            ? "the transformation of coordinates is unknown"
        : (unsigned)o->rounding > WEFT_RESIZE_CEIL           ? "the rounding is unknown"
        : o->axes.count < 0 || o->axes.count > WEFT_MAX_RANK ? "the number of axes is out of range"
        : o->coordinates == WEFT_RESIZE_CROP && !o->crop     ? "WEFT_RESIZE_CROP needs `crop`"
        : o->cubic_coeff && !isfinite(*o->cubic_coeff)       ? "cubic_coeff must be finite"
                                                             : NULL;
    if (wrong)
        weft_graph_fail_in(g, "resize", WEFT_BAD_ARGUMENT, "%s", wrong);
    else if (!o->axes.count && weft_rank_of(g, x) < 3)
        weft_graph_fail_in(g, "resize", WEFT_BAD_SHAPE,
                           "without `axes`, x must be [images, channels, spatial...], its rank is "
                           "%d",
                           weft_rank_of(g, x));
    else if (o->mode != WEFT_RESIZE_NEAREST && dtype != WEFT_F32 && dtype != WEFT_F64)
        weft_graph_fail_in(g, "resize", WEFT_BAD_DTYPE,
                           "x is %s, expected f32 or f64; only the nearest mode takes any dtype",
                           weft_dtype_name(dtype));
    return weft_graph_status(g) == WEFT_OK;
}

/* Plans every axis of x, also those that stay. */
static bool plan_axes(weft_graph *g, weft_value x, const weft_resize_options *o, axis_plan *plans)
{
    if (!check(g, x, o)) return false;
    const int rank = weft_rank_of(g, x), count = o->axes.count ? o->axes.count : rank - 2;
    bool taken[WEFT_MAX_RANK] = {false};
    for (int i = 0; i < rank; i++)
        plans[i] = (axis_plan){o, weft_dim_of(g, x, i), weft_dim_of(g, x, i), 1, 0, 1};
    for (int i = 0; i < count; i++) {
        const int axis = o->axes.count ? axis_from_front(o->axes.axis[i], rank) : i + 2;
        if (axis < 0 || axis >= rank || taken[axis]) {
            weft_graph_fail_in(g, "resize", WEFT_BAD_ARGUMENT, "axis %d %s %d", axis,
                               axis < 0 || axis >= rank ? "is outside of rank"
                                                        : "is named twice in axes of rank",
                               rank);
            return false;
        }
        taken[axis] = true;
        axis_plan *p = &plans[axis];
        if (!plan_axis(g, axis, o->size[i], o->scale[i], p)) return false;
        if (o->coordinates == WEFT_RESIZE_CROP && !plan_crop(g, o, axis, i, count, p)) return false;
    }
    return true;
}

static bool changes(const axis_plan *p)
{
    return p->in != p->out || p->scale != 1 || p->begin != 0 || p->end != 1;
}

/* The elements of an axis's constants, or a number above MAX_WEIGHTS. */
static int64_t count_constants(const axis_plan *p)
{
    return p->options->mode == WEFT_RESIZE_NEAREST ? p->out : count_weights(p);
}

size_t weft__resize_constant_bytes(weft_graph *graph, weft_value x,
                                   const weft_resize_options *options)
{
    axis_plan plans[WEFT_MAX_RANK];
    size_t n = 0;
    if (!plan_axes(graph, x, options, plans)) return 0;
    for (int i = 0; i < weft_rank_of(graph, x); i++)
        if (changes(&plans[i])) n += (size_t)count_constants(&plans[i]);
    return n * (options->mode == WEFT_RESIZE_NEAREST ? sizeof(int32_t) : sizeof(double));
}

weft_value weft_resize(weft_graph *graph, weft_value x, const weft_resize_options *options)
{
    axis_plan plans[WEFT_MAX_RANK];
    if (!plan_axes(graph, x, options, plans)) return WEFT_NO_VALUE;
    for (int i = 0; i < weft_rank_of(graph, x); i++) {
        if (!changes(&plans[i])) continue;
        if (count_constants(&plans[i]) > MAX_WEIGHTS) {
            weft_graph_fail_in(graph, "resize", WEFT_TOO_LARGE,
                               "axis %d, from %lld to %lld elements, needs more than %lld weights",
                               i, (long long)plans[i].in, (long long)plans[i].out,
                               (long long)MAX_WEIGHTS);
            return WEFT_NO_VALUE;
        }
        x = resize_axis(graph, x, i, &plans[i]);
    }
    return weft_graph_status(graph) == WEFT_OK ? x : WEFT_NO_VALUE;
}
