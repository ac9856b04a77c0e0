/* Depthwise convolution of images of bytes whose channels are innermost: each channel of the result
 * is the sum over the taps of the same channel of the image. O(result x taps).
 *
 * Vectors run over 64 channels. With AVX512_VNNI, bytes of four lines of the image are interleaved,
 * channel by channel, so that one instruction multiplies four taps of a column; neighbouring pixels
 * share what is interleaved. Where the image is padded, a tile first copies what it reads. */
#include "conv_bytes.h"

#include "bytes_copy.h"
#include "bytes_depthwise.h"

/* Bytes of the result of a tile, about; tiles wanted. */
#define TILE_BYTES   (48 << 10)
#define WANTED_TILES 8

/* A tile is some lines of an image, and some channels. */
typedef struct depthwise {
    conv_rows_sizes z;
    int64_t lines, channels, down, tiles_m, tiles_n;
    bool copied;
    int64_t copy_lines, copy_width;
} depthwise;

static inline depthwise depthwise_of(const weft_call *call)
{
    depthwise d = {.z = conv_rows_sizes_of(call)};
    const conv_rows_sizes *z = &d.z;
    for (int i = 0; i < 2; i++) {
        const int64_t last = (z->out[i] - 1) * z->stride[i] + (z->kernel[i] - 1) * z->dilation[i];
        d.copied |= z->begin[i] > 0 || last >= z->in[i];
    }
    if (z->images == 0 || z->out[0] == 0 || z->out[1] == 0 || z->channels == 0) return d;
    const int64_t line = z->out[1] * z->channels, groups = ceil_div(z->channels, BYTES_LANES);
    d.lines = TILE_BYTES / line < 1 ? 1 : TILE_BYTES / line;
    d.lines = ceil_div(z->out[0], ceil_div(z->out[0], d.lines));
    d.down = ceil_div(z->out[0], d.lines);
    d.tiles_m = z->images * d.down;
    const int64_t wanted = ceil_div(WANTED_TILES, d.tiles_m);
    d.channels = ceil_div(groups, wanted < groups ? wanted : groups) * BYTES_LANES;
    d.tiles_n = ceil_div(z->channels, d.channels);
    d.copy_lines = (d.lines - 1) * z->stride[0] + (z->kernel[0] - 1) * z->dilation[0] + 1;
    d.copy_width = (z->out[1] - 1) * z->stride[1] + (z->kernel[1] - 1) * z->dilation[1] + 1;
    return d;
}

static inline weft_block depthwise_block(const depthwise *d, int64_t tile)
{
    const conv_rows_sizes *z = &d->z;
    const int64_t m = tile / d->tiles_n, line = m % d->down * d->lines;
    const int64_t n = z->out[0] - line < d->lines ? z->out[0] - line : d->lines;
    weft_block b = {.row = (m / d->down * z->out[0] + line) * z->out[1],
                    .rows = n * z->out[1],
                    .column = tile % d->tiles_n * d->channels};
    b.columns = z->channels - b.column < d->channels ? z->channels - b.column : d->channels;
    return b;
}

#ifdef WEFT_KERNEL_ISA

KERNEL(conv_bytes_depthwise)
{
    const depthwise d = depthwise_of(call);
    const conv_bytes_attr *a = call->attr;
    const conv_rows_sizes *z = &d.z;
    const weft_block b = depthwise_block(&d, tile);
    const int64_t image = b.row / z->out[1] / z->out[0], line = b.row / z->out[1] % z->out[0];
    const int64_t n_lines = b.rows / z->out[1];
    const uint8_t *x =
        (const uint8_t *)call->in[0].data + image * z->in[0] * z->in[1] * z->channels;
    int64_t width = z->in[1], pixel = z->channels;
    if (d.copied) {
        uint8_t *copy = weft_call_workspace(call);
        bytes_copy(&(bytes_window){.line = line * z->stride[0] - z->begin[0],
                                   .lines = d.copy_lines - (d.lines - n_lines) * z->stride[0],
                                   .pixel = -z->begin[1],
                                   .width = d.copy_width,
                                   .channel = b.column,
                                   .channels = b.columns,
                                   .bytes = b.columns,
                                   .zero = a->x_zero},
                   z, x, copy);
        x = copy;
        width = d.copy_width;
        pixel = b.columns;
    } else {
        x += line * z->stride[0] * width * pixel + b.column;
    }
    const int64_t size = bytes_size(a->dtype);
    bytes_depthwise_task(&(bytes_depthwise){.x = x,
                                            .w = (const uint8_t *)call->in[1].data + b.column,
                                            .pixel = pixel,
                                            .line = width * pixel,
                                            .stride = {z->stride[0], z->stride[1]},
                                            .kernel = {z->kernel[0], z->kernel[1]},
                                            .dilation = {z->dilation[0], z->dilation[1]},
                                            .lines = n_lines,
                                            .width = z->out[1],
                                            .channels = b.columns,
                                            .all = z->channels,
                                            .result = bytes_result_of(call),
                                            .column = b.column,
                                            .size = size,
                                            .y = (char *)call->out[0].data +
                                                 (b.row * z->channels + b.column) * size});
}

#else

#include "passes.h"
#include "samples.h"

#include <weft/ops.h>

static bool infer_depthwise(weft_infer *infer)
{
    char got[128], expected[128];
    const conv_bytes_attr *a = infer->attr;
    const weft_shape x = infer->in[0].shape, w = infer->in[1].shape;
    if (x.rank == 4 && a->rows.columns != x.dim[3])
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "columns is %lld, expected the number of channels, %lld",
                               (long long)a->rows.columns, (long long)x.dim[3]);
    if (!weft__conv_bytes_infer(infer, a->rows.columns > 0 ? a->rows.columns : 1)) return false;
    const weft_shape wanted = WEFT_SHAPE(a->rows.kernel.dim[0], a->rows.kernel.dim[1], x.dim[3]);
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

static size_t workspace_depthwise(const weft_call *call)
{
    const depthwise d = depthwise_of(call);
    const int64_t channels = d.channels < d.z.channels ? d.channels : d.z.channels;
    return d.copied ? (size_t)(d.copy_lines * d.copy_width * channels) : 0;
}

static void block_depthwise(const weft_call *call, int64_t tile, weft_block *block)
{
    const depthwise d = depthwise_of(call);
    *block = d.tiles_m ? depthwise_block(&d, tile) : (weft_block){0, 0, 0, 0};
}

static const conv_bytes_attr
    padded = {.rows = CONV_ROWS(CONV_PAIR(3, 3), CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(1, 1),
                                CONV_PAIR(1, 1), 3),
              .dtype = WEFT_U8,
              .x_zero = 9,
              .y_zero = 128},
    strided = {.rows = CONV_ROWS(CONV_PAIR(3, 3), CONV_PAIR(2, 2), CONV_PAIR(1, 1), CONV_PAIR(1, 1),
                                 CONV_PAIR(1, 1), 67, .bounded = true, .low = 20, .high = 240),
               .dtype = WEFT_U8,
               .x_zero = 128,
               .y_zero = 20},
    uneven = {.rows = CONV_ROWS(CONV_PAIR(3, 2), CONV_PAIR(2, 3), CONV_PAIR(1, 2), CONV_PAIR(1, 2),
                                CONV_PAIR(0, 3), 1),
              .dtype = WEFT_I32,
              .x_zero = 7},
    floats = {.rows = CONV_ROWS(CONV_PAIR(5, 5), CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(2, 2),
                                CONV_PAIR(2, 2), 5),
              .dtype = WEFT_F32},
    none = {.rows = CONV_ROWS(CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(0, 0),
                              CONV_PAIR(0, 0), 0),
            .dtype = WEFT_U8};
static const weft_sample samples_depthwise[] = {
    {&padded, 4, {IMAGE(2, 4, 5, 3), BYTES({3, {3, 3, 3}}), BIAS(3), SCALE(3)}},
    {&strided, 4, {IMAGE(1, 5, 9, 67), BYTES({3, {3, 3, 67}}), BIAS(67), SCALE(67)}},
    {&uneven, 3, {IMAGE(2, 5, 4, 1), BYTES({3, {3, 2, 1}}), BIAS(1)}},
    {&floats, 4, {IMAGE(1, 5, 4, 5), BYTES({3, {5, 5, 5}}), BIAS(5), SCALE(5)}},
    {&padded, 4, {IMAGE(0, 4, 5, 3), BYTES({3, {3, 3, 3}}), BIAS(3), SCALE(3)}},
    {&none, 4, {IMAGE(2, 2, 2, 0), BYTES({3, {1, 1, 0}}), BIAS(0), SCALE(0)}},
};

static void source_conv_bytes_depthwise(weft_source *s)
{
    weft__conv_bytes_source(s, "conv_bytes_depthwise");
}

DECLARE_KERNEL_(conv_bytes_depthwise, f32);
const weft_op weft_op_conv_bytes_depthwise = {
    .name = "conv_bytes_depthwise",
    .doc =
        "y [n, h, w, c] = depthwise conv of x [n, h, w, c], bytes less x_zero, channels innermost, "
        "with weights [tap row, tap column, c] of an i8; the rest as in conv_bytes.",
    .inputs = "x w bias scale",
    .min_in = 3,
    .max_in = 4,
    .n_out = 1,
    .attr_size = sizeof(conv_bytes_attr),
    .attrs = weft__conv_bytes_fields,
    .infer = infer_depthwise,
    .kernel = BYTES_KERNELS(conv_bytes_depthwise, ),
    .tiles = tiles_depthwise,
    .workspace = workspace_depthwise,
    .cost = weft__conv_bytes_cost,
    .block = block_depthwise,
    .passes = weft__conv_bytes_passes,
    .gradient = WEFT_GRADIENT_ZERO,
    .source = source_conv_bytes_depthwise,
    .samples = samples_depthwise,
    .n_samples = sizeof samples_depthwise / sizeof *samples_depthwise,
};

#endif
