/* Depthwise convolution of images whose channels are innermost: each channel of the result is the
 * sum over the taps of the same channel of the image. O(result x taps). Vectors run over channels;
 * a few neighbouring pixels are summed side by side, so that each weight is read once for all of
 * them. Taps outside of the image are skipped. */
#include "conv_rows.h"

/* Elements of a tile, about; channels of a tile at most. */
#define TILE_ELEMENTS 24576
#define MAX_CHANNELS  1024
#define WANTED_TILES  16
#define MIN_TILE      1024 /* elements, where there are fewer tiles than wanted */

/* A tile is some lines of all images, and some channels. */
typedef struct depthwise {
    conv_rows_sizes z;
    int64_t lines, channels, tiles_m, tiles_n;
} depthwise;

static inline depthwise depthwise_of(const weft_call *call)
{
    depthwise d = {.z = conv_rows_sizes_of(call)};
    const conv_rows_sizes *z = &d.z;
    const int64_t all = z->images * z->out[0];
    if (all == 0 || z->out[1] == 0 || z->channels == 0) return d;
    const int64_t numel = all * z->out[1] * z->channels;
    int64_t each = ceil_div(numel, WANTED_TILES);
    each = each < MIN_TILE ? MIN_TILE : each > TILE_ELEMENTS ? TILE_ELEMENTS : each;
    d.tiles_n = ceil_div(z->channels, MAX_CHANNELS);
    d.channels = ceil_div(ceil_div(z->channels, d.tiles_n), 32) * 32;
    d.lines = each / (z->out[1] * (d.channels < z->channels ? d.channels : z->channels));
    if (d.lines < 1) d.lines = 1;
    d.tiles_n = ceil_div(z->channels, d.channels);
    d.tiles_m = ceil_div(all, d.lines);
    return d;
}

static inline weft_block depthwise_block(const depthwise *d, int64_t tile)
{
    const conv_rows_sizes *z = &d->z;
    const int64_t line = tile / d->tiles_n * d->lines, left = z->images * z->out[0] - line;
    weft_block b = {.row = line * z->out[1],
                    .rows = (left < d->lines ? left : d->lines) * z->out[1],
                    .column = tile % d->tiles_n * d->channels};
    b.columns = z->channels - b.column < d->channels ? z->channels - b.column : d->channels;
    return b;
}

#ifdef WEFT_KERNEL_ISA

/* Pixels that are summed side by side. */
#define SIDE (SIMD_REGISTERS / 4)

/* Neighbouring pixels of a line that have the same taps inside the image: rows taps [0], [1] of
 * the kernel. */
typedef struct depthwise_run {
    const T *x, *w, *bias; /* of the first tap, and the first channel */
    const T *bounds;       /* of the sums: the least and the greatest; NULL: none */
    T *y;
    int64_t taps[2];
    int64_t x_step[2], w_step; /* from tap to tap, of a row and of the next row; of w: from row */
    int64_t pixel_step, channels;
    int64_t columns;
} depthwise_run;

/* `pixels` is a constant at every call. */
SIMD_INLINE void sum_pixels(const int pixels, const depthwise_run *given)
{
    const depthwise_run o = *given;
    int64_t c = 0;
    for (; c + SIMD_LANES <= o.columns; c += SIMD_LANES) {
        simd_vector sum[SIDE];
        const simd_vector first = o.bias ? *(const simd_vector *)(o.bias + c) : (simd_vector){0};
        SIMD_UNROLL(8)
        for (int p = 0; p < pixels; p++) sum[p] = first;
        for (int64_t i = 0; i < o.taps[0]; i++) {
            const T *x = o.x + i * o.x_step[0] + c, *w = o.w + i * o.w_step + c;
            for (int64_t j = 0; j < o.taps[1]; j++, x += o.x_step[1], w += o.channels) {
                const simd_vector factor = *(const simd_vector *)w;
                SIMD_UNROLL(8)
                for (int p = 0; p < pixels; p++)
                    sum[p] = simd_fma(factor, *(const simd_vector *)(x + p * o.pixel_step), sum[p]);
            }
        }
        SIMD_UNROLL(8)
        for (int p = 0; p < pixels; p++) {
            if (o.bounds) sum[p] = simd_bound(sum[p], o.bounds[0], o.bounds[1]);
            *(simd_vector *)(o.y + p * o.channels + c) = sum[p];
        }
    }
    for (; c < o.columns; c++)
        for (int p = 0; p < pixels; p++) {
            T sum = o.bias ? o.bias[c] : 0;
            for (int64_t i = 0; i < o.taps[0]; i++)
                for (int64_t j = 0; j < o.taps[1]; j++)
                    sum = FMA(o.w[i * o.w_step + j * o.channels + c],
                              o.x[i * o.x_step[0] + j * o.x_step[1] + p * o.pixel_step + c], sum);
            if (o.bounds)
                sum = sum < o.bounds[0] ? o.bounds[0] : sum > o.bounds[1] ? o.bounds[1] : sum;
            o.y[p * o.channels + c] = sum;
        }
}

/* The taps [*begin, *end) of one dimension that lie inside, of the pixel that begins at `at`. */
static inline void taps_inside(int64_t at, int64_t in, int64_t taps, int64_t dilation,
                               int64_t *begin, int64_t *end)
{
    *begin = at < 0 ? ceil_div(-at, dilation) : 0;
    *end = at < in ? ceil_div(in - at, dilation) : 0;
    if (*begin > taps) *begin = taps;
    if (*end > taps) *end = taps;
    if (*end < *begin) *end = *begin;
}

/* One line of the result, of the image and with the result, weights, bias, bounds and columns of
 * `tile`; all pointers are at the tile's first channel. */
static void sum_line(const conv_rows_sizes *z, int64_t line, const depthwise_run *tile)
{
    const int64_t channels = z->channels, top = line * z->stride[0] - z->begin[0];
    int64_t begin[2], end[2];
    taps_inside(top, z->in[0], z->kernel[0], z->dilation[0], &begin[0], &end[0]);
    depthwise_run run = *tile;
    run.x_step[0] = z->dilation[0] * z->in[1] * channels;
    run.x_step[1] = z->dilation[1] * channels;
    run.w_step = z->kernel[1] * channels;
    run.pixel_step = z->stride[1] * channels;
    run.channels = channels;
    for (int64_t i = 0, n; i < z->out[1]; i += n) {
        const int64_t left = i * z->stride[1] - z->begin[1];
        taps_inside(left, z->in[1], z->kernel[1], z->dilation[1], &begin[1], &end[1]);
        n = 1;
        if (left >= 0) { /* how many pixels have all taps */
            const int64_t reach = (z->kernel[1] - 1) * z->dilation[1] + left;
            int64_t inside = reach < z->in[1] ? (z->in[1] - 1 - reach) / z->stride[1] + 1 : 1;
            if (inside > z->out[1] - i) inside = z->out[1] - i;
            while (2 * n <= SIDE && 2 * n <= inside) n *= 2;
        }
        run.taps[0] = end[0] - begin[0];
        run.taps[1] = end[1] - begin[1];
        run.w = tile->w + (begin[0] * z->kernel[1] + begin[1]) * channels;
        run.x = tile->x;
        if (run.taps[0] && run.taps[1])
            run.x +=
                ((top + begin[0] * z->dilation[0]) * z->in[1] + left + begin[1] * z->dilation[1]) *
                channels;
        run.y = tile->y + i * channels;
        if (n == SIDE)
            sum_pixels(SIDE, &run);
        else if (n == 4)
            sum_pixels(4, &run);
        else if (n == 2)
            sum_pixels(2, &run);
        else
            sum_pixels(1, &run);
    }
}

KERNEL(conv_rows_depthwise)
{
    const depthwise d = depthwise_of(call);
    const conv_rows_sizes *z = &d.z;
    const weft_block b = depthwise_block(&d, tile);
    const T *x = (const T *)call->in[0].data + b.column;
    const conv_rows_attr *a = call->attr;
    const T bounds[2] = {(T)a->low, (T)a->high};
    depthwise_run run = {.w = (const T *)call->in[1].data + b.column,
                         .bias = call->n_in > 2 ? (const T *)call->in[2].data + b.column : NULL,
                         .bounds = a->bounded ? bounds : NULL,
                         .y = (T *)call->out[0].data + b.row * z->channels + b.column,
                         .columns = b.columns};
    const int64_t first = b.row / z->out[1], line = z->out[1] * z->channels;
    for (int64_t l = first; l < first + b.rows / z->out[1]; l++, run.y += line) {
        run.x = x + l / z->out[0] * z->in[0] * z->in[1] * z->channels;
        sum_line(z, l % z->out[0], &run);
    }
}

#else

#include "conv_source.h"
#include "samples.h"

#include <weft/ops.h>

static bool infer_depthwise(weft_infer *infer)
{
    char got[128], expected[128];
    const conv_rows_attr *a = infer->attr;
    const weft_shape x = infer->in[0].shape, w = infer->in[1].shape;
    if (x.rank == 4 && a->columns != x.dim[3])
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "columns is %lld, expected the number of channels, %lld",
                               (long long)a->columns, (long long)x.dim[3]);
    if (!weft__conv_rows_infer(infer, a->columns > 0 ? a->columns : 1)) return false;
    const weft_shape wanted = WEFT_SHAPE(a->kernel.dim[0], a->kernel.dim[1], x.dim[3]);
    return weft_shape_equal(w, wanted) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "weights %s, expected %s",
                           weft_shape_text(w, got, sizeof got),
                           weft_shape_text(wanted, expected, sizeof expected));
}

static int64_t tiles_depthwise(const weft_call *call)
{
    const depthwise d = depthwise_of(call);
    return d.tiles_m * d.tiles_n;
}

static void block_depthwise(const weft_call *call, int64_t tile, weft_block *block)
{
    const depthwise d = depthwise_of(call);
    *block = d.tiles_m ? depthwise_block(&d, tile) : (weft_block){0, 0, 0, 0};
}

static void cost_depthwise(const weft_call *call, weft_cost *cost)
{
    const conv_rows_attr *a = call->attr;
    const double y = (double)weft_shape_numel(call->out[0].shape);
    double numel = y;
    for (size_t i = 0; i < call->n_in; i++) numel += (double)weft_shape_numel(call->in[i].shape);
    cost->flops = 2 * y * (double)a->kernel.dim[0] * (double)a->kernel.dim[1];
    cost->bytes = numel * (double)weft_dtype_bytes(call->out[0].dtype);
}

static const conv_rows_attr padded = CONV_ROWS(CONV_PAIR(3, 3), CONV_PAIR(1, 1), CONV_PAIR(1, 1),
                                               CONV_PAIR(1, 1), CONV_PAIR(1, 1), 3),
                            strided = CONV_ROWS(CONV_PAIR(3, 3), CONV_PAIR(2, 2), CONV_PAIR(1, 1),
                                                CONV_PAIR(1, 1), CONV_PAIR(1, 1), 33),
                            uneven = CONV_ROWS(CONV_PAIR(3, 2), CONV_PAIR(2, 3), CONV_PAIR(1, 2),
                                               CONV_PAIR(1, 2), CONV_PAIR(0, 3), 1),
                            bounded = CONV_ROWS(CONV_PAIR(3, 3), CONV_PAIR(1, 1), CONV_PAIR(1, 1),
                                                CONV_PAIR(1, 1), CONV_PAIR(1, 1), 33,
                                                .bounded = true, .low = -0.25, .high = 0.5),
                            none = CONV_ROWS(CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(1, 1),
                                             CONV_PAIR(0, 0), CONV_PAIR(0, 0), 0);
#define IMAGE(...) UNIT_FLOATS({4, {__VA_ARGS__}})
static const weft_sample samples_depthwise[] = {
    {&padded, 3, {IMAGE(2, 4, 5, 3), UNIT_FLOATS({3, {3, 3, 3}}), UNIT_FLOATS({1, {3}})}},
    {&strided, 3, {IMAGE(1, 5, 4, 33), UNIT_FLOATS({3, {3, 3, 33}}), UNIT_FLOATS({1, {33}})}},
    {&bounded, 3, {IMAGE(2, 5, 4, 33), UNIT_FLOATS({3, {3, 3, 33}}), UNIT_FLOATS({1, {33}})}},
    {&uneven, 2, {IMAGE(2, 5, 4, 1), UNIT_FLOATS({3, {3, 2, 1}})}},
    {&padded, 2, {IMAGE(0, 4, 5, 3), UNIT_FLOATS({3, {3, 3, 3}})}},
    {&none, 2, {IMAGE(2, 2, 2, 0), UNIT_FLOATS({3, {1, 1, 0}})}},
};
static void source_conv_rows_depthwise(weft_source *s)
{
    weft__conv_source_rows(s, "conv_rows_depthwise");
}

DECLARE_KERNELS(conv_rows_depthwise);
const weft_op weft_op_conv_rows_depthwise = {
    .name = "conv_rows_depthwise",
    .doc = "y [n, h, w, c] = depthwise conv of x [n, h, w, c], channels innermost, with weights "
           "[tap row, tap column, c] and bias [c]; bounded: min(max(y, low), high). Passes replace "
           "conv by this op; the sums are the same, but taps outside of the image are skipped.",
    .inputs = "x w bias",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attr_size = sizeof(conv_rows_attr),
    .attrs = weft__conv_rows_fields,
    .infer = infer_depthwise,
    .kernel = FLOAT_KERNELS(conv_rows_depthwise),
    .tiles = tiles_depthwise,
    .cost = cost_depthwise,
    .block = block_depthwise,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_conv_rows_depthwise,
    .samples = samples_depthwise,
    .n_samples = sizeof samples_depthwise / sizeof *samples_depthwise,
};

#endif
