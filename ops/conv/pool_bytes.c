/* max_pool_bytes: the maxima of windows of an image of bytes whose channels are innermost. With one
 * scale, the largest byte is that of the largest number. O(result x taps). */
#include "conv_bytes.h"
#include "kernels/kernel.h"

/* Bytes of the result of a tile, about. */
#define TILE_BYTES (16 << 10)

/* Lines of the result that a tile has. */
static inline int64_t tile_lines(const conv_rows_sizes *z)
{
    const int64_t line = z->out[1] * z->channels;
    return line > 0 && line < TILE_BYTES ? TILE_BYTES / line : 1;
}

#ifdef WEFT_KERNEL_ISA

/* The taps [begin, end) of a window that lie inside of a dimension; `first` is where tap 0 lies. */
typedef struct pool_taps {
    int64_t first, begin, end;
} pool_taps;

static inline pool_taps taps_of(const conv_rows_sizes *z, int d, int64_t i)
{
    const int64_t step = z->dilation[d];
    pool_taps t = {.first = i * z->stride[d] - z->begin[d], .end = z->kernel[d]};
    if (t.first < 0) t.begin = ceil_div(-t.first, step);
    if (t.first + (t.end - 1) * step >= z->in[d])
        t.end = t.first < z->in[d] ? ceil_div(z->in[d] - t.first, step) : 0;
    return t;
}

/* A pixel of the result, of the image x. */
static inline void pool_pixel(const conv_rows_sizes *z, pool_taps rows, pool_taps columns,
                              const uint8_t *x, uint8_t *y)
{
    const int64_t channels = z->channels;
    memset(y, 0, (size_t)channels);
    for (int64_t i = rows.begin; i < rows.end; i++)
        for (int64_t j = columns.begin; j < columns.end; j++) {
            const int64_t line = rows.first + i * z->dilation[0];
            const uint8_t *from =
                x + (line * z->in[1] + columns.first + j * z->dilation[1]) * channels;
            SIMD_FOR (c, channels) y[c] = y[c] > from[c] ? y[c] : from[c];
        }
}

KERNEL(max_pool_bytes)
{
    const conv_rows_sizes z = conv_rows_sizes_of(call);
    const int64_t each = tile_lines(&z), all = z.images * z.out[0];
    const uint8_t *x = call->in[0].data;
    uint8_t *y = call->out[0].data;
    for (int64_t l = tile * each; l < (tile + 1) * each && l < all; l++) {
        const uint8_t *image = x + l / z.out[0] * z.in[0] * z.in[1] * z.channels;
        const pool_taps rows = taps_of(&z, 0, l % z.out[0]);
        for (int64_t i = 0; i < z.out[1]; i++)
            pool_pixel(&z, rows, taps_of(&z, 1, i), image, y + (l * z.out[1] + i) * z.channels);
    }
}

#else

#include "bytes.h"
#include "samples.h"

static bool infer_max_pool_bytes(weft_infer *infer)
{
    const conv_rows_attr *a = infer->attr;
    weft_shape y;
    if (!weft_infer_dtype(infer, 0, WEFT_U8) ||
        !weft__conv_rows_output(infer, a, a->columns > 0 ? a->columns : 1, &y))
        return false;
    infer->out[0] = (weft_type){WEFT_U8, y};
    return true;
}

static int64_t tiles_max_pool_bytes(const weft_call *call)
{
    const conv_rows_sizes z = conv_rows_sizes_of(call);
    return ceil_div(z.images * z.out[0], tile_lines(&z));
}

static void cost_max_pool_bytes(const weft_call *call, weft_cost *cost)
{
    const conv_rows_attr *a = call->attr;
    const double out = (double)weft_shape_numel(call->out[0].shape);
    cost->flops = out * (double)a->kernel.dim[0] * (double)a->kernel.dim[1];
    cost->bytes = out + (double)weft_shape_numel(call->in[0].shape);
}

static const conv_rows_attr padded = CONV_ROWS(CONV_PAIR(3, 3), CONV_PAIR(2, 2), CONV_PAIR(1, 1),
                                               CONV_PAIR(1, 1), CONV_PAIR(1, 1), 67),
                            uneven = CONV_ROWS(CONV_PAIR(2, 3), CONV_PAIR(1, 2), CONV_PAIR(2, 1),
                                               CONV_PAIR(3, 0), CONV_PAIR(0, 2), 3);
static const weft_sample samples_max_pool_bytes[] = {
    {&padded, 1, {IMAGE(2, 5, 6, 67)}},
    {&uneven, 1, {IMAGE(1, 4, 5, 3)}},
    {&uneven, 1, {IMAGE(0, 4, 5, 3)}},
};

DECLARE_KERNEL_(max_pool_bytes, f32);
const weft_op weft_op_max_pool_bytes = {
    .name = "max_pool_bytes",
    .doc = "y [n, h, w, c] = maxima of windows of bytes x [n, h, w, c], channels innermost; 0 in a "
           "window that lies in the padding alone.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(conv_rows_attr),
    .attrs = weft__conv_rows_fields,
    .infer = infer_max_pool_bytes,
    .kernel = BYTES_KERNELS(max_pool_bytes, ),
    .tiles = tiles_max_pool_bytes,
    .cost = cost_max_pool_bytes,
    .passes = weft__conv_bytes_passes,
    .gradient = WEFT_GRADIENT_ZERO,
    .source = weft__max_pool_bytes_source,
    .samples = samples_max_pool_bytes,
    .n_samples = sizeof samples_max_pool_bytes / sizeof *samples_max_pool_bytes,
};

weft_value weft__max_pool_bytes(weft_graph *graph, weft_value x, const conv_rows_attr *window)
{
    return weft_apply(graph, &weft_op_max_pool_bytes, window, &x, 1, NULL);
}

#endif
