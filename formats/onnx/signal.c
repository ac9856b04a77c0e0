/* Ops of ONNX for signals: windows and mel weights, which are constants, and Fourier transforms:
 * products with a constant matrix, and convolutions with one. O(length^2) for each transform. */
#include "onnx/import.h"
#include "onnx/ops.h"
#include "base/vmath_pow.h"
#include "base/vmath_sin.h"

#include <math.h>

/* The maximum number of elements of a constant. */
#define MAX_LENGTH ((int64_t)1 << 22)

/* ---- Windows ---- */

/* a - b cos(2 pi i / n) + c cos(4 pi i / n) */
static void map_window(onnx_node *n, double a, double b, double c)
{
    const int64_t length = (int64_t)weft__in_number(n, 0, "size", 0);
    const int type = (int)weft__attr_int(n, "output_datatype", ONNX_FLOAT);
    weft_dtype dtype;
    if (weft__node_failed(n) || weft__onnx_type_dtype(type, "a window", &dtype, &n->import->error))
        return;
    double *window = length < 0 || length > MAX_LENGTH
                         ? NULL
                         : weft__arena_alloc(&n->import->memory, (size_t)length * sizeof *window);
    if (!window) {
        weft__node_fail(n, WEFT_TOO_LARGE, "a window of %lld elements", (long long)length);
        return;
    }
    const double period = (double)(weft__attr_int(n, "periodic", 1) ? length : length - 1);
    for (int64_t i = 0; i < length; i++) {
        const double angle = 2 * M_PI * (double)i / period;
        window[i] = a - b * vm_cos_f64(angle) + c * vm_cos_f64(2 * angle);
    }
    weft__set_typed(n, 0, weft__doubles_value(n, window, WEFT_SHAPE(length), dtype), type);
}

void weft__map_HannWindow(onnx_node *n)
{
    map_window(n, 0.5, 0.5, 0);
}

void weft__map_HammingWindow(onnx_node *n)
{
    map_window(n, 25.0 / 46, 21.0 / 46, 0);
}

void weft__map_BlackmanWindow(onnx_node *n)
{
    map_window(n, 0.42, 0.5, 0.08);
}

/* ---- Mel weights ---- */

/* Triangles [dft_length / 2 + 1, bins], evenly spaced on the mel scale 2595 log10(1 + hertz / 700),
 * in the bins of a Fourier transform of dft_length. Fills the first `bins` + 2 of edges[]. */
static bool mel_edges(onnx_node *n, int64_t bins, int64_t dft_length, int64_t rows, double *edges)
{
    const double rate = weft__in_number(n, 2, "sample rate", 1);
    const double low = 2595 * vm_log_f64(1 + weft__in_number(n, 3, "lower edge", 0) / 700) / M_LN10;
    const double high =
        2595 * vm_log_f64(1 + weft__in_number(n, 4, "upper edge", 0) / 700) / M_LN10;
    for (int64_t i = 0; i < bins + 2; i++) {
        const double mel = low + (double)i * (high - low) / (double)(bins + 2);
        const double hertz = 700 * (vm_pow_f64(10, mel / 2595) - 1);
        edges[i] = floor((double)(dft_length + 1) * hertz / rate);
        if (!(edges[i] >= 0 && edges[i] < (double)rows && (i == 0 || edges[i] >= edges[i - 1])))
            return false;
    }
    return true;
}

void weft__map_MelWeightMatrix(onnx_node *n)
{
    const int64_t bins = (int64_t)weft__in_number(n, 0, "number of bins", 0);
    const int64_t dft_length = (int64_t)weft__in_number(n, 1, "length of the transform", 0);
    const int64_t rows = dft_length / 2 + 1;
    const int type = (int)weft__attr_int(n, "output_datatype", ONNX_FLOAT);
    weft_dtype dtype;
    if (weft__node_failed(n) ||
        weft__onnx_type_dtype(type, "MelWeightMatrix", &dtype, &n->import->error))
        return;
    const bool fits = bins >= 1 && rows >= 1 && bins < MAX_LENGTH && rows <= MAX_LENGTH / bins;
    double *edges =
        fits ? weft__arena_alloc(&n->import->memory, (size_t)(bins + 2) * sizeof *edges) : NULL;
    double *weight =
        fits ? weft__arena_alloc(&n->import->memory, (size_t)(rows * bins) * sizeof *weight) : NULL;
    if (!edges || !weight) {
        weft__node_fail(n, WEFT_TOO_LARGE, "%lld mel bins of %lld frequencies", (long long)bins,
                        (long long)rows);
        return;
    }
    if (!mel_edges(n, bins, dft_length, rows, edges)) {
        weft__node_fail(n, WEFT_BAD_ARGUMENT,
                        "its edges are not within the frequencies of the transform");
        return;
    }
    for (int64_t i = 0; i < bins; i++) {
        const double lower = edges[i], centre = edges[i + 1], upper = edges[i + 2];
        for (int64_t j = (int64_t)lower; j < (int64_t)centre; j++)
            weight[j * bins + i] = ((double)j - lower) / (centre - lower);
        weight[(int64_t)centre * bins + i] = 1;
        for (int64_t j = (int64_t)centre; j < (int64_t)upper; j++)
            weight[j * bins + i] = (upper - (double)j) / (upper - centre);
    }
    weft__set_typed(n, 0, weft__doubles_value(n, weight, WEFT_SHAPE(rows, bins), dtype), type);
}

/* ---- Fourier transforms ---- */

/* A transform of `inputs` numbers to `bins`, both of a period of `length`. The real results of a
 * onesided inverse need half of the frequencies; the others are their mirror images. */
typedef struct transform {
    int64_t length, inputs, bins;
    int parts, out_parts; /* 1 real, 2 complex */
    bool inverse;
} transform;

/* cos(2 pi k / n), exact at the quarters of a turn. */
static double cosine(int64_t k, int64_t n)
{
    k %= n;
    if (4 * k == n || 4 * k == 3 * n) return 0;
    return vm_cos_f64(2 * M_PI * (double)k / (double)n);
}

/* The matrix [bins, out_parts, parts, inputs] of a transform. NULL after a failure. */
static double *transform_matrix(onnx_node *n, const transform *t)
{
    const int64_t limit = MAX_LENGTH / 4, row = t->parts * t->inputs;
    const bool fits = t->length >= 1 && t->length <= limit && t->bins >= 1 && t->inputs >= 1 &&
                      t->inputs <= limit && t->bins <= MAX_LENGTH / (t->out_parts * row);
    double *matrix =
        fits ? weft__arena_alloc(&n->import->memory,
                                 (size_t)(t->bins * t->out_parts * row) * sizeof *matrix)
             : NULL;
    if (!matrix) {
        weft__node_fail(n, WEFT_TOO_LARGE, "transforms of %lld numbers to %lld are too large",
                        (long long)t->inputs, (long long)t->bins);
        return NULL;
    }
    for (int64_t bin = 0; bin < t->bins; bin++)
        for (int64_t i = 0; i < t->inputs; i++) {
            const int64_t turn = bin * i % t->length;
            const bool mirrored = t->out_parts == 1 && i > 0 && 2 * i != t->length;
            const double scale = (mirrored ? 2 : 1) / (t->inverse ? (double)t->length : 1);
            /* The sine is the cosine a quarter turn before; forwards e^(-i angle). */
            const double c = scale * cosine(4 * turn, 4 * t->length);
            double s = scale * cosine(4 * turn + 3 * t->length, 4 * t->length);
            if (!t->inverse) s = -s;
            double *re = matrix + bin * t->out_parts * row + i, *im = re + row;
            re[0] = c;
            if (t->parts == 2) re[t->inputs] = -s;
            if (t->out_parts == 1) continue;
            im[0] = s;
            if (t->parts == 2) im[t->inputs] = c;
        }
    return matrix;
}

/* Cuts an axis to `length` elements, or pads it with zeros. */
static weft_value fit_axis(weft_graph *g, weft_value x, int axis, int64_t length)
{
    const int64_t size = weft_dim_of(g, x, axis);
    int64_t before[WEFT_MAX_RANK] = {0}, after[WEFT_MAX_RANK] = {0};
    if (length <= size) return weft_slice(g, x, axis, 0, length, 1);
    after[axis] = length - size;
    return weft_pad(g, x, before, after, 0);
}

/* Input x [..., length, ..., 1 or 2]: real, or real and imaginary parts. */
void weft__map_DFT(onnx_node *n)
{
    weft_graph *g = n->graph;
    weft_value x = weft__in_value(n, 0);
    weft_shape s = weft__in_shape(n, 0);
    const int64_t given =
        n->opset >= 20 ? (int64_t)weft__in_number(n, 2, "axis", -2) : weft__attr_int(n, "axis", 1);
    const int axis = weft__node_axis(n, given, s.rank);
    const bool onesided = weft__attr_int(n, "onesided", 0);
    transform t = {.inverse = weft__attr_int(n, "inverse", 0), .out_parts = 2};
    if (weft__node_failed(n)) return;
    if (s.rank < 2 || axis == s.rank - 1 || s.dim[s.rank - 1] < 1 || s.dim[s.rank - 1] > 2) {
        weft__node_fail(n, WEFT_BAD_SHAPE,
                        "needs an input [..., 1 or 2] with another axis to transform");
        return;
    }
    const bool to_reals = onesided && t.inverse;
    const int64_t whole = to_reals ? 2 * (s.dim[axis] - 1) : s.dim[axis];
    t.parts = (int)s.dim[s.rank - 1];
    t.length = (int64_t)weft__in_number(n, 1, "length", (double)whole);
    t.inputs = to_reals ? t.length / 2 + 1 : t.length;
    t.bins = onesided && !to_reals ? t.length / 2 + 1 : t.length;
    if (to_reals) t.out_parts = 1;
    const double *matrix = weft__node_failed(n) ? NULL : transform_matrix(n, &t);
    if (!matrix) return;
    int64_t before = 1, after = 1;
    for (int i = 0; i < s.rank - 1; i++)
        if (i != axis) *(i < axis ? &before : &after) *= s.dim[i];
    x = weft_reshape(g, fit_axis(g, x, axis, t.inputs),
                     WEFT_SHAPE(before, t.inputs, after, t.parts));
    x = weft_reshape(g, weft_permute(g, x, WEFT_AXES(0, 3, 1, 2)),
                     WEFT_SHAPE(before, t.parts * t.inputs, after));
    weft_value w = weft__doubles_value(
        n, matrix, WEFT_SHAPE(t.bins * t.out_parts, t.parts * t.inputs), weft_dtype_of(g, x));
    weft_value y =
        weft_reshape(g, weft_matmul(g, w, x), WEFT_SHAPE(before, t.bins, t.out_parts, after));
    s.dim[axis] = t.bins;
    s.dim[s.rank - 1] = t.out_parts;
    weft__set_out(n, 0, weft_reshape(g, weft_permute(g, y, WEFT_AXES(0, 1, 3, 2)), s));
}

/* The transforms of frames of a signal [batch, length, 1 or 2], `step` apart: a convolution whose
 * kernels are the rows of the matrix times the window. */
void weft__map_STFT(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    const int64_t step = (int64_t)weft__in_number(n, 1, "frame step", 0);
    transform t = {.parts = s.rank == 3 ? (int)s.dim[2] : 1, .out_parts = 2};
    if (weft__node_failed(n)) return;
    const weft_shape window = has_in(n, 2) ? weft__in_shape(n, 2) : WEFT_SHAPE(0);
    t.length = has_in(n, 3) ? (int64_t)weft__in_number(n, 3, "frame length", 0) : window.dim[0];
    t.inputs = t.length;
    t.bins = weft__attr_int(n, "onesided", 1) ? t.length / 2 + 1 : t.length;
    if (weft__node_failed(n)) return;
    if (s.rank < 2 || s.rank > 3 || t.parts < 1 || t.parts > 2 || step < 1 || step > INT32_MAX ||
        (has_in(n, 2) && (window.rank != 1 || window.dim[0] != t.length)) || s.dim[1] < t.length) {
        weft__node_fail(
            n, WEFT_BAD_SHAPE,
            "needs a signal [batch, length, 1 or 2], a positive step, and a window as long as "
            "a frame");
        return;
    }
    const double *matrix = transform_matrix(n, &t);
    if (!matrix) return;
    weft_value w = weft__doubles_value(n, matrix, WEFT_SHAPE(2 * t.bins, t.parts, t.length),
                                       weft_dtype_of(g, x));
    if (has_in(n, 2)) w = weft_mul(g, w, weft_cast(g, weft__in_value(n, 2), weft_dtype_of(g, x)));
    weft_value signal = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], t.parts));
    signal = weft_permute(g, signal, WEFT_AXES(0, 2, 1));
    const weft_conv_options o = {.stride = {step}};
    weft_value y = weft_conv(g, signal, w, WEFT_NO_VALUE, &o);
    y = weft_reshape(g, y, WEFT_SHAPE(s.dim[0], t.bins, 2, -1));
    weft__set_out(n, 0, weft_permute(g, y, WEFT_AXES(0, 3, 1, 2)));
}
