/* Ops of ONNX that read an image at positions between its pixels, or write pixels to positions:
 * GridSample, AffineGrid, RoiAlign, MaxUnpool, Col2Im.
 *
 * A sample is a weighted sum over taps, the pixels around a position: along each axis one
 * (nearest), two (linear) or four (cubic), whose weights multiply. Each combination of taps is a term
 * of an embedding_bag, whose table has the channels of a pixel in a row, so gradients reach the
 * image and, through the weights, the positions. O(taps^dimensions) nodes. */
#include "onnx/import.h"
#include "onnx/ops.h"
#include "onnx/sample.h"

#include <string.h>

#define MAX_TAPS  4
#define MAX_TERMS (MAX_TAPS * MAX_TAPS * MAX_TAPS)

/* The taps of places along one axis of the image. */
typedef struct taps {
    int count;
    weft_value index[MAX_TAPS];  /* f64, in the image */
    weft_value weight[MAX_TAPS]; /* of the image's dtype, 0 where there is no pixel */
} taps;

/* The index of a tap mirrored at both ends of an axis, again and again. */
static weft_value reflect(weft_graph *g, weft_value index, int64_t size, bool align_corners)
{
    const double low = align_corners ? 0 : -0.5;
    const double span = (double)size - (align_corners ? 1 : 0);
    if (span <= 0) return weft_mul_scalar(g, index, 0);
    weft_value from_low = weft_add_scalar(g, index, -low);
    weft_value turns = weft_floor(g, weft_mul_scalar(g, from_low, 1 / (2 * span)));
    weft_value at = weft_sub(g, from_low, weft_mul_scalar(g, turns, 2 * span));
    weft_value back = weft_add_scalar(g, weft_neg(g, at), 2 * span);
    return weft_add_scalar(g, weft_minimum(g, at, back), low);
}

/* The weights of the taps floor(x) - 1 .. floor(x) + 2 at the fraction r of x: Keys 1981. */
static void cubic_weights(weft_graph *g, weft_value r, weft_value weight[4])
{
    const double a = -0.75;
    weft_value s = weft_add_scalar(g, weft_neg(g, r), 1);
    for (int k = 0; k < 2; k++) { /* by symmetry the other two are those of 1 - r */
        weft_value t = k ? s : r;
        weft_value near = weft_add_scalar(g, weft_mul_scalar(g, t, a + 2), -(a + 3));
        near = weft_add_scalar(g, weft_mul(g, weft_mul(g, near, t), t), 1);
        weft_value u = weft_add_scalar(g, t, 1);
        weft_value far = weft_add_scalar(g, weft_mul_scalar(g, u, a), -5 * a);
        far = weft_add_scalar(g, weft_mul(g, far, u), 8 * a);
        far = weft_add_scalar(g, weft_mul(g, far, u), -4 * a);
        weight[k ? 2 : 1] = near;
        weight[k ? 3 : 0] = far;
    }
}

/* The taps at coordinates `at`, in pixels, along an axis of `size` pixels. */
static taps find_taps(onnx_node *n, const sampler *s, weft_value at, int64_t size)
{
    weft_graph *g = n->graph;
    taps t = {.count = s->taps};
    const weft_dtype dtype = weft_dtype_of(g, s->image);
    weft_value first = s->taps == 1 ? weft_round(g, at) : weft_floor(g, at);
    weft_value r = weft_sub(g, at, first);
    t.weight[0] = weft_fill(g, dtype, weft_shape_of(g, at), 1);
    if (s->taps == 2) {
        t.weight[0] = weft_add_scalar(g, weft_neg(g, r), 1);
        t.weight[1] = r;
    }
    if (s->taps == 4) cubic_weights(g, r, t.weight);
    first = weft_cast(g, first, WEFT_F64);
    for (int k = 0; k < t.count; k++) {
        weft_value index = weft_add_scalar(g, first, k - (s->taps == 4));
        if (s->padding == PAD_REFLECTION) index = reflect(g, index, size, s->align_corners);
        weft_value inside = weft_clamp(g, index, 0, (double)size - 1);
        if (s->padding == PAD_ZEROS)
            t.weight[k] =
                weft_mul(g, t.weight[k], weft_cast(g, weft_equal(g, index, inside), dtype));
        t.index[k] = inside;
    }
    return t;
}

sample_terms weft__sample_terms(onnx_node *n, const sampler *s, weft_value image,
                                const weft_value *at)
{
    weft_graph *g = n->graph;
    const int rank = s->shape.rank - 2;
    taps axis[SAMPLE_MAX_SPATIAL];
    weft_axes channels_last = {.count = s->shape.rank};
    weft_value rows[MAX_TERMS], weights[MAX_TERMS];
    size_t count = 1;
    for (int d = 0; d < rank; d++) {
        axis[d] = find_taps(n, s, at[d], s->shape.dim[2 + d]);
        count *= (size_t)s->taps;
        channels_last.axis[d + 1] = d + 2;
    }
    channels_last.axis[rank + 1] = 1;
    for (size_t c = 0; c < count && !weft__node_failed(n); c++) {
        weft_value row = image, weight = WEFT_NO_VALUE;
        size_t rest = c;
        for (int d = 0; d < rank; d++, rest /= (size_t)s->taps) {
            const size_t k = rest % (size_t)s->taps;
            row =
                weft_add(g, weft_mul_scalar(g, row, (double)s->shape.dim[2 + d]), axis[d].index[k]);
            weight = d ? weft_mul(g, weight, axis[d].weight[k]) : axis[d].weight[k];
        }
        rows[c] = weft_cast(g, row, WEFT_I32);
        weights[c] = weft_broadcast_to(g, weight, weft_shape_of(g, row));
    }
    if (weft__node_failed(n)) return (sample_terms){0};
    sample_terms t;
    t.table =
        weft_reshape(g, weft_permute(g, s->image, channels_last), WEFT_SHAPE(-1, s->shape.dim[1]));
    t.rows = weft_stack(g, rows, count, -1);
    t.weights = weft_stack(g, weights, count, -1);
    return t;
}

weft_value weft__sample(onnx_node *n, const sampler *s, weft_value image, const weft_value *at)
{
    const sample_terms t = weft__sample_terms(n, s, image, at);
    return weft_embedding_bag(n->graph, t.table, t.rows, t.weights);
}

/* Moves the last dimension, the channels, to axis 1. */
static weft_value channels_second(weft_graph *g, weft_value x)
{
    weft_axes axes = {.count = weft_rank_of(g, x)};
    for (int i = 2; i < axes.count; i++) axes.axis[i] = i - 1;
    if (axes.count > 1) axes.axis[1] = axes.count - 1;
    return weft_permute(g, x, axes);
}

weft_value weft__sample_numbers(weft_graph *g, int64_t count, int rank)
{
    weft_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dim[i] = i ? 1 : count;
    return weft_reshape(g, weft_arange(g, WEFT_F64, count, 0, 1), shape);
}

bool weft__sample_check(onnx_node *n, weft_shape s)
{
    if (weft__node_failed(n)) return false;
    const int64_t pixels = weft_shape_numel(s);
    if (s.rank >= 3 && s.rank <= 2 + SAMPLE_MAX_SPATIAL && pixels > 0 && pixels <= INT32_MAX)
        return true;
    weft__node_fail(
        n, WEFT_BAD_SHAPE,
        "needs an image [images, channels, ...] with 1 to 3 spatial dimensions and 1 to 2^31 - "
        "1 pixels");
    return false;
}

/* ---- GridSample ---- */

static bool read_grid_options(onnx_node *n, sampler *s)
{
    s->align_corners = weft__attr_int(n, "align_corners", 0) != 0;
    s->taps = weft__attr_is(n, "mode", "nearest", "linear") ? 1
              : weft__attr_is(n, "mode", "cubic", "linear") ||
                      weft__attr_is(n, "mode", "bicubic", "linear")
                  ? 4
                  : 2;
    s->padding = weft__attr_is(n, "padding_mode", "border", "zeros")       ? PAD_BORDER
                 : weft__attr_is(n, "padding_mode", "reflection", "zeros") ? PAD_REFLECTION
                                                                           : PAD_ZEROS;
    const bool known = s->taps != 2 || weft__attr_is(n, "mode", "linear", "linear") ||
                       weft__attr_is(n, "mode", "bilinear", "linear");
    if (!known || (s->padding == PAD_ZEROS && !weft__attr_is(n, "padding_mode", "zeros", "zeros")))
        weft__node_fail(n, WEFT_BAD_FILE, "has an unknown mode or padding_mode");
    return !weft__node_failed(n);
}

/* Inputs: the image and places [images, out..., spatial dimensions], of which -1 and 1 are the
 * ends of the image, the last axis first. Taps outside of the image are padded, as in PyTorch, also
 * those of cubic samples at the border. (Jaderberg et al. 2015.) */
void weft__map_GridSample(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value image = weft__in_value(n, 0);
    sampler s = {.image = image, .shape = weft__in_shape(n, 0)};
    const weft_shape places = weft__in_shape(n, 1);
    weft_value at[SAMPLE_MAX_SPATIAL];
    if (!weft__sample_check(n, s.shape) || !read_grid_options(n, &s)) return;
    const int rank = s.shape.rank - 2;
    if (places.rank != s.shape.rank || places.dim[0] != s.shape.dim[0] ||
        places.dim[rank + 1] != rank) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its grid does not fit the image");
        return;
    }
    const weft_value grid = weft_cast(g, weft__in_value(n, 1), weft_dtype_of(g, s.image));
    for (int d = 0; d < rank; d++) {
        const double size = (double)s.shape.dim[2 + d];
        weft_value x = weft_slice(g, grid, -1, rank - 1 - d, rank - d, 1);
        x = weft_add_scalar(g, weft_squeeze(g, x, -1), 1);
        at[d] = s.align_corners ? weft_mul_scalar(g, x, (size - 1) / 2)
                                : weft_add_scalar(g, weft_mul_scalar(g, x, size / 2), -0.5);
    }
    weft__set_out(
        n, 0,
        channels_second(g,
                        weft__sample(n, &s, weft__sample_numbers(g, places.dim[0], rank + 1), at)));
}

/* Coordinates from -1 to 1 of the pixels of an axis. */
static weft_value even_places(weft_graph *g, weft_dtype dtype, int64_t size, bool align_corners)
{
    const double step = align_corners ? (size > 1 ? 2 / ((double)size - 1) : 0) : 2 / (double)size;
    return weft_arange(g, dtype, size, align_corners ? -1 : -1 + step / 2, step);
}

/* The grid [images, out..., k] of places theta [images, k, k + 1] times (x, y, .., 1). */
void weft__map_AffineGrid(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value theta = weft__in_value(n, 0);
    const weft_shape t = weft__in_shape(n, 0);
    int64_t size[2 + SAMPLE_MAX_SPATIAL];
    const int k = weft__in_ints(n, 1, "size", size, 2 + SAMPLE_MAX_SPATIAL) - 2;
    if (weft__node_failed(n)) return;
    if (k < 2 || t.rank != 3 || t.dim[0] != size[0] || t.dim[1] != k || t.dim[2] != k + 1) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its matrices do not fit the size of its image");
        return;
    }
    weft_shape all = {.rank = k + 1}, grid = {.rank = k + 2};
    weft_value parts[SAMPLE_MAX_SPATIAL + 1];
    grid.dim[0] = size[0];
    for (int d = 0; d < k; d++) grid.dim[d + 1] = all.dim[d] = size[2 + d];
    all.dim[k] = 1;
    grid.dim[k + 1] = k;
    const weft_dtype dtype = weft_dtype_of(g, theta);
    for (int d = 0; d < k; d++) {
        weft_shape along = {.rank = k + 1};
        for (int i = 0; i <= k; i++) along.dim[i] = i == d ? size[2 + d] : 1;
        if (size[2 + d] < 1) {
            weft__node_fail(n, WEFT_BAD_SHAPE, "its size is not positive");
            return;
        }
        weft_value places =
            even_places(g, dtype, size[2 + d], weft__attr_int(n, "align_corners", 0));
        parts[k - 1 - d] = weft_broadcast_to(g, weft_reshape(g, places, along), all);
    }
    parts[k] = weft_fill(g, dtype, all, 1);
    weft_value base =
        weft_reshape(g, weft_concat(g, parts, (size_t)k + 1, -1), WEFT_SHAPE(-1, k + 1));
    weft_value y = weft_matmul(g, base, weft_transpose(g, theta, 1, 2));
    weft__set_out(n, 0, weft_reshape(g, y, grid));
}

/* ---- RoiAlign ---- */

/* Coordinates [boxes, bins, samples] of one axis, whose columns of the boxes are first and last. */
static weft_value box_places(onnx_node *n, int first, int last, int64_t bins, int64_t samples,
                             int64_t size)
{
    weft_graph *g = n->graph;
    const double scale = weft__attr_float(n, "spatial_scale", 1);
    const bool half_pixel = n->opset >= 16 && weft__attr_is(n, "coordinate_transformation_mode",
                                                            "half_pixel", "half_pixel");
    const weft_value boxes = weft__in_value(n, 1);
    const weft_dtype dtype = weft_dtype_of(g, boxes);
    weft_value begin = weft_mul_scalar(g, weft_slice(g, boxes, 1, first, first + 1, 1), scale);
    weft_value end = weft_mul_scalar(g, weft_slice(g, boxes, 1, last, last + 1, 1), scale);
    weft_value length = weft_sub(g, end, begin);
    if (half_pixel)
        begin = weft_add_scalar(g, begin, -0.5);
    else
        length = weft_maximum(g, length, weft_scalar(g, dtype, 1));
    weft_value parts = weft_arange(g, dtype, bins * samples, 0.5 / (double)(bins * samples),
                                   1 / (double)(bins * samples));
    weft_value at = weft_add(g, begin, weft_mul(g, length, parts));
    /* One pixel around the image belongs to it; farther places have no pixels. */
    weft_value before = weft_less(g, at, weft_scalar(g, dtype, -1));
    weft_value after = weft_greater(g, at, weft_scalar(g, dtype, (double)size));
    weft_value outside = weft_logical_or(g, before, after);
    at = weft_clamp(g, at, 0, (double)size - 1);
    at = weft_masked_fill(g, at, outside, -2);
    return weft_cast(g, at, weft_dtype_of(g, weft__in_value(n, 0)));
}

/* Terms [boxes, rows of bins, samples, columns of bins, samples, taps], those of a bin side by
 * side: [boxes, rows of bins, columns of bins, samples^2 taps]. */
static weft_value terms_of_bins(weft_graph *g, weft_value terms, const int64_t *bins,
                                int64_t samples)
{
    const weft_shape s = weft_shape_of(g, terms);
    const int64_t count = s.dim[0], each = s.dim[s.rank - 1];
    terms = weft_reshape(g, terms, WEFT_SHAPE(count, bins[0], samples, bins[1], samples, each));
    terms = weft_permute(g, terms, WEFT_AXES(0, 1, 3, 2, 4, 5));
    return weft_reshape(g, terms, WEFT_SHAPE(count, bins[0], bins[1], samples * samples * each));
}

/* Inputs: the image, boxes [boxes, 4] as x1, y1, x2, y2, and their images [boxes]. The mean or the
 * largest of sampling_ratio^2 samples in each of output_height x output_width bins. (He et al.
 * 2017.) */
void weft__map_RoiAlign(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    sampler s = {.image = x, .shape = weft__in_shape(n, 0), .taps = 2};
    const weft_shape boxes = weft__in_shape(n, 1), of = weft__in_shape(n, 2);
    const int64_t ratio = weft__attr_int(n, "sampling_ratio", 0);
    const int64_t bins[2] = {weft__attr_int(n, "output_height", 1),
                             weft__attr_int(n, "output_width", 1)};
    if (!weft__sample_check(n, s.shape)) return;
    if (s.shape.rank != 4 || boxes.rank != 2 || boxes.dim[1] != 4 || of.rank != 1 ||
        of.dim[0] != boxes.dim[0]) {
        weft__node_fail(n, WEFT_BAD_SHAPE,
                        "needs an image with two spatial dimensions, and boxes [n, 4]");
        return;
    }
    if (ratio < 1 || ratio > 64 || bins[0] < 1 || bins[0] > 4096 || bins[1] < 1 || bins[1] > 4096) {
        weft__node_fail(
            n, WEFT_NO_KERNEL,
            "needs a sampling_ratio of 1 to 64 (0, for a number that depends on data, is not "
            "supported), and 1 to 4096 bins");
        return;
    }
    const int64_t rows = bins[0] * ratio, columns = bins[1] * ratio, count = boxes.dim[0];
    weft_value at[2];
    at[0] = box_places(n, 1, 3, bins[0], ratio, s.shape.dim[2]);
    at[0] = weft_reshape(g, at[0], WEFT_SHAPE(count, rows, 1));
    at[1] = box_places(n, 0, 2, bins[1], ratio, s.shape.dim[3]);
    at[1] = weft_reshape(g, at[1], WEFT_SHAPE(count, 1, columns));
    weft_value image =
        weft_reshape(g, weft_cast(g, weft__in_value(n, 2), WEFT_F64), WEFT_SHAPE(count, 1, 1));
    const sample_terms t = weft__sample_terms(n, &s, image, at);
    if (weft__node_failed(n)) return;
    const weft_value pixels = terms_of_bins(g, t.rows, bins, ratio);
    weft_value weights = terms_of_bins(g, t.weights, bins, ratio), y;
    if (weft__attr_is(n, "mode", "max", "avg")) { /* the largest of the weighted pixels */
        y = weft_embedding(g, t.table, pixels, -1);
        y = weft_max(g, weft_mul(g, y, weft_expand_dims(g, weights, -1)), WEFT_AXES(-2), false);
    } else {
        weights = weft_mul_scalar(g, weights, 1 / (double)(ratio * ratio));
        y = weft_embedding_bag(g, t.table, pixels, weights);
    }
    weft__set_out(n, 0, channels_second(g, y));
}

/* ---- Writing pixels ---- */

bool weft__sample_sizes(onnx_node *n, const char *name, int rank, int64_t value, int64_t least,
                        int64_t *sizes)
{
    int64_t list[2 * SAMPLE_MAX_SPATIAL];
    const int count = weft__attr_ints(n, name, list, 2 * SAMPLE_MAX_SPATIAL);
    if (count < 0) return false;
    bool good = count == 0 || count == rank;
    for (int i = 0; good && i < rank; i++) {
        sizes[i] = count ? list[i] : value;
        good = sizes[i] >= least && sizes[i] < 1 << 30;
    }
    if (!good)
        weft__node_fail(n, WEFT_BAD_ARGUMENT, "%s must be %d numbers from %d on", name, rank,
                        (int)least);
    return good;
}

/* Puts each element where MaxPool found it, among zeros. The indices count the elements of the
 * shape that the attributes imply; output_shape may be larger. */
void weft__map_MaxUnpool(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    int64_t kernel[SAMPLE_MAX_SPATIAL], stride[SAMPLE_MAX_SPATIAL], pads[2 * SAMPLE_MAX_SPATIAL],
        wanted[WEFT_MAX_RANK];
    int64_t before[WEFT_MAX_RANK] = {0}, after[WEFT_MAX_RANK] = {0};
    if (!weft__sample_check(n, s)) return;
    const int rank = s.rank - 2,
              n_wanted = weft__in_ints(n, 2, "output_shape", wanted, WEFT_MAX_RANK);
    if (n_wanted < 0 || !weft__sample_sizes(n, "kernel_shape", rank, 1, 1, kernel) ||
        !weft__sample_sizes(n, "strides", rank, 1, 1, stride) ||
        !weft__sample_sizes(n, "pads", 2 * rank, 0, 0, pads))
        return;
    weft_shape full = s;
    for (int d = 0; d < rank; d++)
        full.dim[2 + d] = (s.dim[2 + d] - 1) * stride[d] + kernel[d] - pads[d] - pads[rank + d];
    bool good = weft_shape_equal(weft__in_shape(n, 1), s) && (!n_wanted || n_wanted == s.rank);
    for (int i = 0; i < s.rank; i++) {
        if (n_wanted && good) after[i] = wanted[i] - full.dim[i];
        good = good && full.dim[i] >= 1 && after[i] >= 0;
    }
    if (!good) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its indices or output_shape do not fit the image");
        return;
    }
    weft_value flat = weft_reshape(g, x, WEFT_SHAPE(-1));
    weft_value index = weft_reshape(g, weft__in_value(n, 1), WEFT_SHAPE(-1));
    const weft_dtype dtype = weft_dtype_of(g, x);
    const weft_value zeros = weft_fill(g, dtype, WEFT_SHAPE(weft_shape_numel(full)), 0);
    /* Windows that overlap may have found the same element: it is written once. */
    weft_value ones = weft_fill(g, dtype, weft_shape_of(g, flat), 1);
    weft_value times = weft_scatter_add(g, zeros, index, ones, 0);
    times = weft_maximum(g, times, weft_scalar(g, dtype, 1));
    weft_value y = weft_div(g, weft_scatter_add(g, zeros, index, flat, 0), times);
    weft__set_out(n, 0, weft_pad(g, weft_reshape(g, y, full), before, after, 0));
}

/* One pixel for each place of a block of `size` pixels: [channels size, 1, block...]. */
static weft_value one_pixel_blocks(weft_graph *g, weft_dtype dtype, int64_t channels, int64_t size,
                                   const int64_t *block, int rank)
{
    weft_shape shape = {.rank = rank + 2, .dim = {channels * size, 1}};
    memcpy(shape.dim + 2, block, (size_t)rank * sizeof *block);
    weft_value one = weft_one_hot(g, weft_arange(g, WEFT_I32, size, 0, 1), size, dtype);
    one = weft_broadcast_to(g, weft_reshape(g, one, WEFT_SHAPE(1, size, size)),
                            WEFT_SHAPE(channels, size, size));
    return weft_reshape(g, one, shape);
}

/* Adds blocks [images, channels block, blocks] up to an image: a transposed convolution, of which
 * each channel's kernels have one pixel. */
void weft__map_Col2Im(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    int64_t image[SAMPLE_MAX_SPATIAL], block[SAMPLE_MAX_SPATIAL], stride[SAMPLE_MAX_SPATIAL],
        dilation[SAMPLE_MAX_SPATIAL];
    int64_t pads[2 * SAMPLE_MAX_SPATIAL], size = 1, blocks = 1;
    const int rank = weft__in_ints(n, 1, "image_shape", image, SAMPLE_MAX_SPATIAL);
    bool good = weft__in_ints(n, 2, "block_shape", block, SAMPLE_MAX_SPATIAL) == rank &&
                rank >= 1 && s.rank == 3;
    if (weft__node_failed(n)) return;
    if (good && (!weft__sample_sizes(n, "strides", rank, 1, 1, stride) ||
                 !weft__sample_sizes(n, "dilations", rank, 1, 1, dilation) ||
                 !weft__sample_sizes(n, "pads", 2 * rank, 0, 0, pads)))
        return;
    weft_shape rows = {.rank = rank + 2};
    weft_conv_options o = {.groups = 0};
    for (int d = 0; good && d < rank; d++) {
        const int64_t reach = (block[d] - 1) * dilation[d] + 1;
        const int64_t room = image[d] + pads[d] + pads[rank + d] - reach;
        good = block[d] >= 1 && block[d] < 65536 && room >= 0;
        if (!good) break;
        rows.dim[2 + d] = room / stride[d] + 1;
        size *= block[d];
        blocks *= rows.dim[2 + d];
        good = size < 65536 && blocks <= INT32_MAX;
        o.stride[d] = stride[d];
        o.dilation[d] = dilation[d];
        o.pad_begin[d] = pads[d];
        o.pad_end[d] = pads[rank + d];
        o.output_pad[d] = room % stride[d];
    }
    if (!good || s.dim[1] % size || s.dim[2] != blocks || s.dim[1] == 0) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its image_shape and block_shape do not fit its input");
        return;
    }
    rows.dim[0] = s.dim[0];
    rows.dim[1] = s.dim[1];
    o.groups = s.dim[1] / size;
    weft_value kernels = one_pixel_blocks(g, weft_dtype_of(g, x), o.groups, size, block, rank);
    weft__set_out(n, 0,
                  weft_conv_transpose(g, weft_reshape(g, x, rows), kernels, WEFT_NO_VALUE, &o));
}
