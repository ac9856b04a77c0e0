/* Resize and Upsample of ONNX. Every mode is separable: along an axis each output is a weighted sum
 * of a few inputs, so the axis is multiplied by a constant matrix [out, in], or, for the nearest
 * element, gathered. O(out in) for each row of an axis. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>
#include <string.h>

/* The most elements of a matrix. */
#define MAX_MATRIX ((int64_t)1 << 26)

/* One axis: its sizes, scale, and the part of the input that tf_crop_and_resize takes. */
typedef struct axis_plan {
    int64_t in, out;
    double scale, start, end;
} axis_plan;

static bool coordinates_are(const onnx_node *n, const char *mode)
{
    return attr_is(n, "coordinate_transformation_mode", mode,
                   n->opset >= 11 ? "half_pixel" : "asymmetric");
}

/* The input coordinate of output i. */
static double coordinate(const onnx_node *n, const axis_plan *p, int64_t i)
{
    const double x = (double)i, last = (double)p->in - 1;
    const double length = p->scale * (double)p->in;
    if (coordinates_are(n, "align_corners")) return length == 1 ? 0 : x * last / (length - 1);
    if (coordinates_are(n, "asymmetric")) return x / p->scale;
    if (coordinates_are(n, "half_pixel_symmetric")) /* the same part is cut at both ends */
        return (double)p->in / 2 * (1 - (double)p->out / length) + (x + 0.5) / p->scale - 0.5;
    if (coordinates_are(n, "tf_half_pixel_for_nn")) return (x + 0.5) / p->scale;
    if (coordinates_are(n, "pytorch_half_pixel"))
        return p->out > 1 ? (x + 0.5) / p->scale - 0.5 : 0;
    if (coordinates_are(n, "tf_crop_and_resize"))
        return p->out > 1 ? p->start * last + x * (p->end - p->start) * last / ((double)p->out - 1)
                          : 0.5 * (p->start + p->end) * last;
    return (x + 0.5) / p->scale - 0.5;
}

static bool is_cut_off(const onnx_node *n, const axis_plan *p, double x)
{
    return coordinates_are(n, "tf_crop_and_resize") && (x < 0 || x > (double)p->in - 1);
}

static int64_t within(double x, int64_t size)
{
    return x < 0 ? 0 : x > (double)size - 1 ? size - 1 : (int64_t)x;
}

static double nearest(const onnx_node *n, double x)
{
    static const char *const by_default = "round_prefer_floor";
    if (n->opset < 11 || attr_is(n, "nearest_mode", "floor", by_default)) return floor(x);
    if (attr_is(n, "nearest_mode", "ceil", by_default)) return ceil(x);
    if (attr_is(n, "nearest_mode", "round_prefer_ceil", by_default)) return floor(x + 0.5);
    return ceil(x - 0.5);
}

/* The weight of an element at distance t: a triangle, or the cubic kernel of Keys 1981. */
static double weigh(const onnx_node *n, double t)
{
    const double a = attr_float(n, "cubic_coeff_a", -0.75);
    t = fabs(t);
    if (!attr_is(n, "mode", "cubic", "nearest")) return t < 1 ? 1 - t : 0;
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/* Adds the weights of output i to its row of the matrix. To smooth what is made smaller
 * (antialias), the kernel is as much wider as the input. */
static void fill_row(const onnx_node *n, const axis_plan *p, int64_t i, double *row)
{
    const double x = coordinate(n, p, i), whole = floor(x), last = (double)p->in - 1;
    const bool inside_only = attr_int(n, "exclude_outside", 0);
    const bool smooths = attr_int(n, "antialias", 0) && p->scale < 1;
    const double shrink = smooths ? p->scale : 1, first = whole + floor(-2 / shrink) + 1;
    double sum = 0;
    if (is_cut_off(n, p, x)) return;
    for (double at = first; at <= 2 * whole + 1 - first; at++)
        if (!inside_only || (at >= 0 && at <= last)) sum += weigh(n, shrink * (at - x));
    for (double at = first; at <= 2 * whole + 1 - first; at++)
        if (!inside_only || (at >= 0 && at <= last))
            row[within(at, p->in)] +=
                weigh(n, shrink * (at - x)) / (inside_only || smooths ? sum : 1);
}

/* Elements outside of the input are extrapolation_value; the weights of later axes keep it. */
static weft_value interpolate(onnx_node *n, weft_value x, const axis_plan *p)
{
    const weft_dtype dtype = weft_dtype_of(n->graph, x);
    const double outside = attr_float(n, "extrapolation_value", 0);
    double *matrix =
        p->out > MAX_MATRIX / (p->in + 1)
            ? NULL
            : arena_alloc(&n->import->memory, (size_t)(p->out * (p->in + 1)) * sizeof *matrix);
    if (!matrix) return node_fail(n, WEFT_TOO_LARGE, "an axis is too large to be interpolated");
    double *added = matrix + p->out * p->in;
    for (int64_t i = 0; i < p->out; i++) {
        fill_row(n, p, i, matrix + i * p->in);
        added[i] = is_cut_off(n, p, coordinate(n, p, i)) ? outside : 0;
    }
    weft_value w = doubles_value(n, matrix, WEFT_SHAPE(p->out, p->in), dtype);
    weft_value y = weft_matmul(n->graph, w, x);
    if (outside == 0) return y;
    return weft_add(n->graph, y, doubles_value(n, added, WEFT_SHAPE(p->out, 1), dtype));
}

static weft_value pick(onnx_node *n, weft_value x, const axis_plan *p)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft_shape_of(g, x);
    int64_t *index = p->out > MAX_MATRIX
                         ? NULL
                         : arena_alloc(&n->import->memory, ((size_t)p->out + 1) * sizeof *index);
    if (!index) return node_fail(n, WEFT_TOO_LARGE, "an axis is too large");
    for (int64_t i = 0; i < p->out; i++) index[i] = within(nearest(n, coordinate(n, p, i)), p->in);
    weft_value rows = weft_reshape(g, weft_permute(g, x, WEFT_AXES(1, 0, 2)),
                                   WEFT_SHAPE(p->in, s.dim[0] * s.dim[2]));
    rows = weft_embedding(g, rows, ints_value(n, index, WEFT_SHAPE(p->out)), -1);
    rows = weft_reshape(g, rows, WEFT_SHAPE(p->out, s.dim[0], s.dim[2]));
    return weft_permute(g, rows, WEFT_AXES(1, 0, 2));
}

static weft_value resize_axis(onnx_node *n, weft_value x, int axis, const axis_plan *p)
{
    weft_graph *g = n->graph;
    weft_shape s = weft_shape_of(g, x);
    int64_t before = 1, rest = 1;
    for (int i = 0; i < s.rank; i++) {
        if (i < axis) before *= s.dim[i];
        if (i > axis) rest *= s.dim[i];
    }
    x = weft_reshape(g, x, WEFT_SHAPE(before, p->in, rest));
    x = attr_is(n, "mode", "nearest", "nearest") ? pick(n, x, p) : interpolate(n, x, p);
    s.dim[axis] = p->out;
    return weft_reshape(g, x, s);
}

/* ---- Sizes ---- */

/* Numbers of an input, if it is there and not empty; their number, or -1 after a failure. */
static int numbers(onnx_node *n, size_t i, const char *what, double *values)
{
    if (!has_in(n, i)) return 0;
    const onnx_tensor *t = in_tensor(n, i, what);
    const int64_t count = t ? weft_shape_numel(t->shape) : 0;
    if (!t || count > 2 * WEFT_MAX_RANK || t->dtype == WEFT_BOOL) {
        node_fail(n, WEFT_BAD_SHAPE, "its %s do not fit the rank of its input", what);
        return -1;
    }
    for (int64_t k = 0; k < count; k++)
        values[k] = t->dtype == WEFT_F32   ? (double)((const float *)t->data)[k]
                    : t->dtype == WEFT_F64 ? ((const double *)t->data)[k]
                                           : ((const int32_t *)t->data)[k];
    return (int)count;
}

/* One scale for all axes that are given sizes: the largest of which no axis, or the smallest of
 * which every axis, is larger than its size. */
static bool keep_ratio(onnx_node *n, const double *sizes, int n_sizes, axis_plan *const *axes)
{
    const bool larger = attr_is(n, "keep_aspect_ratio_policy", "not_smaller", "stretch");
    if (attr_is(n, "keep_aspect_ratio_policy", "stretch", "stretch")) return true;
    if (!larger && !attr_is(n, "keep_aspect_ratio_policy", "not_larger", "stretch"))
        return node_fail(n, WEFT_BAD_FILE, "has an unknown keep_aspect_ratio_policy"), false;
    double scale = 0;
    for (int i = 0; i < n_sizes; i++) {
        const double one = sizes[i] / (double)axes[i]->in;
        if (i == 0 || (larger ? one > scale : one < scale)) scale = one;
    }
    for (int i = 0; i < n_sizes; i++) {
        axes[i]->scale = scale;
        axes[i]->out = (int64_t)floor(scale * (double)axes[i]->in + 0.5);
        if (axes[i]->out < 1 || axes[i]->out >= INT32_MAX)
            return node_fail(n, WEFT_BAD_SHAPE, "a size is not positive"), false;
    }
    return true;
}

/* Plans all axes from scales and sizes; false after a failure. */
static bool plan_axes(onnx_node *n, weft_shape s, const double *scales, int n_scales,
                      const double *sizes, int n_sizes, axis_plan *plans)
{
    const int given = n_sizes > 0 ? n_sizes : n_scales;
    int64_t axes[WEFT_MAX_RANK];
    const int n_axes = attr_ints(n, "axes", axes, WEFT_MAX_RANK);
    if (node_failed(n)) return false;
    for (int i = 0; i < s.rank; i++) plans[i] = (axis_plan){s.dim[i], s.dim[i], 1, 0, 1};
    if (given < 1 || given != (n_axes ? n_axes : s.rank))
        return node_fail(n, WEFT_BAD_SHAPE, "has %d scales or sizes for rank %d", given, s.rank),
               false;
    axis_plan *at[WEFT_MAX_RANK];
    for (int i = 0; i < given; i++) {
        axis_plan *p = at[i] = &plans[n_axes ? node_axis(n, axes[i], s.rank) : i];
        p->scale = n_sizes > 0 ? sizes[i] / (double)p->in : scales[i];
        const double size = n_sizes > 0 ? sizes[i] : floor(scales[i] * (double)p->in);
        if (!(p->scale > 0) || !(size >= 1 && size < INT32_MAX) || p->in < 1)
            return node_fail(n, WEFT_BAD_SHAPE, "a scale or a size is not positive"), false;
        p->out = (int64_t)size;
    }
    return keep_ratio(n, sizes, n_sizes, at) && !node_failed(n);
}

static void resize(onnx_node *n, const axis_plan *plans)
{
    const weft_value input = in_value(n, 0);
    const int rank = in_shape(n, 0).rank;
    const bool picks = attr_is(n, "mode", "nearest", "nearest");
    weft_value x = picks ? input : widen(n, input);
    for (int i = 0; i < rank && !node_failed(n); i++) {
        const axis_plan *p = &plans[i];
        if (p->in != p->out || p->scale != 1 || p->start != 0 || p->end != 1)
            x = resize_axis(n, x, i, p);
    }
    if (weft_dtype_of(n->graph, input) == WEFT_I32 && !picks) x = narrow(n, x, in_type(n, 0));
    set_typed(n, 0, x, in_type(n, 0));
}

static bool known_coordinates(const onnx_node *n)
{
    static const char *const modes[] = {
        "half_pixel",           "align_corners",      "asymmetric",         "tf_half_pixel_for_nn",
        "half_pixel_symmetric", "pytorch_half_pixel", "tf_crop_and_resize",
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (coordinates_are(n, modes[i])) return true;
    return false;
}

/* Inputs: x, region, scales, sizes; before opset 11 x and scales. */
void map_Resize(onnx_node *n)
{
    const weft_shape s = in_shape(n, 0);
    double region[2 * WEFT_MAX_RANK], scales[2 * WEFT_MAX_RANK], sizes[2 * WEFT_MAX_RANK];
    axis_plan plans[WEFT_MAX_RANK];
    const bool old = n->opset < 11;
    const int n_scales = numbers(n, old ? 1 : 2, "scales", scales);
    const int n_sizes = old ? 0 : numbers(n, 3, "sizes", sizes);
    if (!known_coordinates(n) ||
        (attr_is(n, "mode", "nearest", "nearest") && coordinates_are(n, "tf_crop_and_resize"))) {
        node_fail(n, WEFT_NO_KERNEL,
                  "weft does not know its coordinate_transformation_mode for its mode");
        return;
    }
    if (!plan_axes(n, s, scales, n_scales, sizes, n_sizes, plans)) return;
    if (!old && coordinates_are(n, "tf_crop_and_resize")) {
        int64_t axes[WEFT_MAX_RANK];
        const int n_axes = attr_ints(n, "axes", axes, WEFT_MAX_RANK);
        const int count = n_axes > 0 ? n_axes : s.rank;
        if (numbers(n, 1, "region", region) != 2 * count) {
            node_fail(n, WEFT_BAD_SHAPE, "needs a region of %d numbers", 2 * count);
            return;
        }
        for (int i = 0; i < count; i++) {
            axis_plan *p = &plans[n_axes > 0 ? node_axis(n, axes[i], s.rank) : i];
            p->start = region[i];
            p->end = region[count + i];
        }
    }
    resize(n, plans);
}

/* Scales are an attribute before opset 9, then an input. */
void map_Upsample(onnx_node *n)
{
    double scales[2 * WEFT_MAX_RANK];
    axis_plan plans[WEFT_MAX_RANK];
    int count = 0;
    const WeftOnnx__AttributeProto *a = attr_find(n, "scales");
    if (n->opset >= 9)
        count = numbers(n, 1, "scales", scales);
    else
        for (; a && count < WEFT_MAX_RANK && (size_t)count < a->n_floats; count++)
            scales[count] = (double)a->floats[count];
    if (plan_axes(n, in_shape(n, 0), scales, count, NULL, 0, plans)) resize(n, plans);
}
