/* Convolution of images of bytes, as a product of rows with panels of weights (conv_bytes.h,
 * bytes_kernel.h, bytes_tiles.h). O(result x taps x channels).
 *
 * As in conv_rows, the micro-kernel reads the image itself: the patches of a line of pixels lie at
 * equal distances. Where the image is padded, or four channels at a time do not make all of them, a
 * tile first copies what it reads into its workspace. A kernel of one tap without stride and padding
 * is a product of all pixels. */
#include "conv_bytes.h"

#include "bytes_copy.h"
#include "bytes_kernel.h"
#include "bytes_tiles.h"

/* Pixels of a tile at most, unless a line has more, and those of a tile that copies few channels, one
 * pixel after the other; tiles wanted; products of a tile at least. */
#define TILE_PIXELS  256
#define THIN_PIXELS  1024
#define WANTED_TILES 16
#define MIN_PRODUCTS (1 << 20)

typedef struct bytes_product {
    conv_rows_sizes z;
    int64_t steps;                          /* of a panel */
    int64_t lines, width;                   /* of a tile */
    int64_t panels, tile_panels;            /* of all columns, and of a tile */
    int64_t across, down, tiles_m, tiles_n; /* tiles of a line, of an image, and in all */
    bool copied;
    int64_t copy_lines, copy_width; /* for a tile */
    int64_t pixel;                  /* bytes from one pixel to the next, of what is read */
} bytes_product;

static inline void cut_columns(bytes_product *p)
{
    const double products =
        (double)p->lines * (double)p->width * (double)p->steps * (BYTES_EACH * BYTES_PANEL);
    int64_t wanted = ceil_div(WANTED_TILES, p->tiles_m), least = 1;
    if (products < MIN_PRODUCTS) least = (int64_t)(MIN_PRODUCTS / (products + 1)) + 1;
    if (wanted > p->panels) wanted = p->panels;
    p->tile_panels = ceil_div(p->panels, wanted);
    if (p->tile_panels < least) p->tile_panels = least < p->panels ? least : p->panels;
    p->tiles_n = ceil_div(p->panels, p->tile_panels);
}

static inline bytes_product bytes_product_of(const weft_call *call)
{
    bytes_product p = {.z = conv_rows_sizes_of(call)};
    conv_rows_sizes *z = &p.z;
    p.steps = call->in[1].shape.dim[1];
    p.copied = z->channels % BYTES_EACH != 0;
    p.pixel = ceil_div(z->channels, BYTES_EACH) * BYTES_EACH;
    bool pointwise = true;
    for (int d = 0; d < 2; d++) {
        const int64_t last = (z->out[d] - 1) * z->stride[d] + (z->kernel[d] - 1) * z->dilation[d];
        p.copied |= z->begin[d] > 0 || last >= z->in[d];
        pointwise &= z->kernel[d] == 1 && z->stride[d] == 1 && z->in[d] == z->out[d];
    }
    if (z->images == 0 || z->out[0] == 0 || z->out[1] == 0 || z->columns == 0) return p;
    if (pointwise && !p.copied) {
        z->in[1] = z->out[1] = z->images * z->out[0] * z->out[1];
        z->images = z->in[0] = z->out[0] = 1;
    }
    const int64_t most = p.pixel > z->channels && p.pixel <= 16 ? THIN_PIXELS : TILE_PIXELS;
    p.width = z->out[1] <= most ? z->out[1] : ceil_div(z->out[1], ceil_div(z->out[1], most));
    p.lines = most / p.width;
    p.lines = ceil_div(z->out[0], ceil_div(z->out[0], p.lines));
    p.copy_lines = (p.lines - 1) * z->stride[0] + (z->kernel[0] - 1) * z->dilation[0] + 1;
    p.copy_width = (p.width - 1) * z->stride[1] + (z->kernel[1] - 1) * z->dilation[1] + 1;
    p.across = ceil_div(z->out[1], p.width);
    p.down = ceil_div(z->out[0], p.lines) * p.across;
    p.tiles_m = z->images * p.down;
    p.panels = ceil_div(z->columns, BYTES_PANEL);
    cut_columns(&p);
    return p;
}

/* Tile `index`: a block of pixels of an image and of columns. Tiles of the same pixels are
 * neighbours. */
typedef struct bytes_tile {
    int64_t image, line, lines, pixel, width, column, columns;
} bytes_tile;

static inline bytes_tile bytes_tile_at(const bytes_product *p, int64_t index)
{
    const conv_rows_sizes *z = &p->z;
    const int64_t m = index / p->tiles_n, in_image = m % p->down;
    const int64_t columns = p->tile_panels * BYTES_PANEL;
    bytes_tile t = {.image = m / p->down,
                    .line = in_image / p->across * p->lines,
                    .pixel = in_image % p->across * p->width,
                    .column = index % p->tiles_n * columns};
    t.lines = z->out[0] - t.line < p->lines ? z->out[0] - t.line : p->lines;
    t.width = z->out[1] - t.pixel < p->width ? z->out[1] - t.pixel : p->width;
    t.columns = z->columns - t.column < columns ? z->columns - t.column : columns;
    return t;
}

/* The first row of a tile in the result, as the matrix [pixels, columns]. */
static inline int64_t first_row(const bytes_product *p, const bytes_tile *t)
{
    return (t->image * p->z.out[0] + t->line) * p->z.out[1] + t->pixel;
}

#ifdef WEFT_KERNEL_ISA

KERNEL(conv_bytes)
{
    const bytes_product p = bytes_product_of(call);
    const conv_bytes_attr *a = call->attr;
    const conv_rows_sizes *z = &p.z;
    const bytes_tile t = bytes_tile_at(&p, tile);
    const uint8_t *x = call->in[0].data;
    int64_t width = z->in[1];
    if (p.copied) {
        uint8_t *copy = weft_call_workspace(call);
        int64_t *tag = weft_call_panel_tag(call), name = 1 + tile / p.tiles_n;
        if (*tag != name)
            bytes_copy(&(bytes_window){.line = t.line * z->stride[0] - z->begin[0],
                                       .lines = p.copy_lines - (p.lines - t.lines) * z->stride[0],
                                       .pixel = t.pixel * z->stride[1] - z->begin[1],
                                       .width = p.copy_width,
                                       .channels = z->channels,
                                       .bytes = p.pixel,
                                       .zero = a->x_zero},
                       z, x + t.image * z->in[0] * z->in[1] * z->channels, copy);
        *tag = name;
        x = copy;
        width = p.copy_width;
    } else {
        x += ((t.image * z->in[0] + t.line * z->stride[0]) * width + t.pixel * z->stride[1]) *
             z->channels;
    }
    const int64_t line = width * p.pixel;
    const bool joined = z->dilation[1] == 1; /* the taps of a line are contiguous */
    const bytes_block block = {
        .x = x,
        .lines = t.lines,
        .width = t.width,
        .line_step = z->stride[0] * line,
        .runs = {.run = joined ? z->kernel[1] * p.pixel : p.pixel,
                 .taps = joined ? 1 : z->kernel[1],
                 .lines = z->kernel[0],
                 .tap_step = z->dilation[1] * p.pixel,
                 .line_step = z->dilation[0] * line,
                 .row = z->stride[1] * p.pixel},
        .panels = (const uint8_t *)call->in[1].data + t.column / BYTES_PANEL * p.steps * BYTES_STEP,
        .panels_end = (const uint8_t *)call->in[1].data + p.panels * p.steps * BYTES_STEP,
        .panel_bytes = p.steps * BYTES_STEP,
        .columns = t.columns,
        .result = bytes_result_of(call),
        .column = t.column,
        .y = (char *)call->out[0].data +
             (first_row(&p, &t) * z->columns + t.column) * bytes_size(a->dtype),
        .y_row = z->columns * bytes_size(a->dtype),
        .y_line = z->out[1] * z->columns * bytes_size(a->dtype)};
    if (!bytes_tiles_task(&block)) bytes_task(&block);
}

#else

#include "conv_source.h"
#include "passes.h"
#include "samples.h"

#include <weft/ops.h>

/* ---- Shapes ---- */

static bool check_attr(weft_infer *infer)
{
    const conv_bytes_attr *a = infer->attr;
    const bool bytes = a->dtype == WEFT_U8;
    const double low = a->rows.bounded ? a->rows.low : 0, high = a->rows.bounded ? a->rows.high : 0;
    if (!bytes && a->dtype != WEFT_F32 && a->dtype != WEFT_I32)
        return weft_infer_fail(infer, WEFT_BAD_DTYPE, "results are %s, expected u8, f32 or i32",
                               weft_dtype_name(a->dtype));
    if (a->x_zero < 0 || a->x_zero > 255 || a->y_zero < 0 || a->y_zero > 255)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "zero points are %d and %d, expected 0 to 255", a->x_zero,
                               a->y_zero);
    return !bytes || (low >= 0 && high <= 255 && low <= high) ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                           "bounds are %g and %g, expected 0 to 255 in order", low, high);
}

bool weft__conv_bytes_infer(weft_infer *infer, int64_t groups)
{
    char text[128];
    const conv_bytes_attr *a = infer->attr;
    const weft_shape columns = WEFT_SHAPE(a->rows.columns);
    weft_shape y;
    for (size_t i = 0; i < 2; i++)
        if (!weft_infer_dtype(infer, i, WEFT_U8)) return false;
    if (!weft_infer_dtype(infer, 2, WEFT_I32) || !check_attr(infer)) return false;
    if ((infer->n_in == 3) != (a->dtype == WEFT_I32))
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "results of i32 have no scale, all others have one");
    if (!weft__conv_rows_output(infer, &a->rows, groups, &y)) return false;
    infer->out[0] = (weft_type){a->dtype, y};
    for (size_t i = 2; i < infer->n_in; i++)
        if (!weft_shape_equal(infer->in[i].shape, columns))
            return weft_infer_fail(infer, WEFT_BAD_SHAPE, "input %zu is %s, expected [%lld]", i,
                                   weft_shape_text(infer->in[i].shape, text, sizeof text),
                                   (long long)a->rows.columns);
    return infer->n_in < 4 || weft_infer_dtype(infer, 3, WEFT_F32);
}

static bool infer_conv_bytes(weft_infer *infer)
{
    char text[128];
    const conv_bytes_attr *a = infer->attr;
    const weft_shape x = infer->in[0].shape, panels = infer->in[1].shape;
    int64_t steps;
    if (!weft__conv_bytes_infer(infer, 1)) return false;
    if (__builtin_mul_overflow(a->rows.kernel.dim[0], a->rows.kernel.dim[1], &steps) ||
        __builtin_mul_overflow(steps, x.dim[3] / BYTES_EACH + (x.dim[3] % BYTES_EACH > 0), &steps))
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "the kernel has over 2^63 - 1 elements");
    const int64_t count = ceil_div(a->rows.columns, BYTES_PANEL);
    return weft_shape_equal(panels, WEFT_SHAPE(count, steps, BYTES_STEP)) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "panels %s, expected [%lld, %lld, %d]",
                           weft_shape_text(panels, text, sizeof text), (long long)count,
                           (long long)steps, BYTES_STEP);
}

/* ---- Tiles ---- */

static int64_t tiles_conv_bytes(const weft_call *call)
{
    const bytes_product p = bytes_product_of(call);
    return p.tiles_m * p.tiles_n;
}

static size_t workspace_conv_bytes(const weft_call *call)
{
    const bytes_product p = bytes_product_of(call);
    return p.copied ? (size_t)(p.copy_lines * p.copy_width * p.pixel) : 0;
}

static void block_conv_bytes(const weft_call *call, int64_t tile, weft_block *block)
{
    const bytes_product p = bytes_product_of(call);
    *block = (weft_block){0, 0, 0, 0};
    if (!p.tiles_m) return;
    const bytes_tile t = bytes_tile_at(&p, tile);
    *block = (weft_block){first_row(&p, &t), t.lines * t.width, t.column, t.columns};
}

void weft__conv_bytes_cost(const weft_call *call, weft_cost *cost)
{
    const conv_bytes_attr *a = call->attr;
    const double y = (double)weft_shape_numel(call->out[0].shape);
    cost->flops = 2 * y * (double)a->rows.kernel.dim[0] * (double)a->rows.kernel.dim[1];
    if (call->in[1].shape.dim[2] == BYTES_STEP && call->in[1].shape.rank == 3)
        cost->flops = 2 * y * (double)call->in[1].shape.dim[1] * BYTES_EACH;
    cost->bytes = y * (double)weft_dtype_bytes(a->dtype);
    for (size_t i = 0; i < call->n_in; i++)
        cost->bytes += (double)weft_tensor_bytes(call->in[i].dtype, call->in[i].shape);
}

/* ---- Building ---- */

void weft__conv_bytes_pack(const int8_t *w, int64_t columns, int64_t taps, int64_t channels,
                           uint8_t *panels)
{
    const int64_t each = ceil_div(channels, BYTES_EACH), steps = taps * each;
    memset(panels, 0, (size_t)(ceil_div(columns, BYTES_PANEL) * steps * BYTES_STEP));
    for (int64_t o = 0; o < columns; o++)
        for (int64_t k = 0; k < taps * channels; k++) {
            const int64_t c = k % channels, step = k / channels * each + c / BYTES_EACH;
            panels[(o / BYTES_PANEL * steps + step) * BYTES_STEP + o % BYTES_PANEL * BYTES_EACH +
                   c % BYTES_EACH] = (uint8_t)w[o * taps * channels + k];
        }
}

weft_value weft__conv_bytes(weft_graph *graph, const weft_value *in, size_t n_in,
                            const conv_bytes_attr *attr, bool depthwise)
{
    return weft_apply(graph, depthwise ? &weft_op_conv_bytes_depthwise : &weft_op_conv_bytes, attr,
                      in, n_in, NULL);
}

#define ROWS_FIELD(name, kind)                                                                     \
    {                                                                                              \
#name, kind, offsetof(conv_bytes_attr, rows.name)                                          \
    }
const weft_attr_field weft__conv_bytes_fields[] = {
    ROWS_FIELD(kernel, WEFT_ATTR_INT64S),
    ROWS_FIELD(stride, WEFT_ATTR_INT64S),
    ROWS_FIELD(dilation, WEFT_ATTR_INT64S),
    ROWS_FIELD(pad_begin, WEFT_ATTR_INT64S),
    ROWS_FIELD(pad_end, WEFT_ATTR_INT64S),
    ROWS_FIELD(columns, WEFT_ATTR_INT64),
    ROWS_FIELD(bounded, WEFT_ATTR_BOOL),
    ROWS_FIELD(low, WEFT_ATTR_DOUBLE),
    ROWS_FIELD(high, WEFT_ATTR_DOUBLE),
    {"dtype", WEFT_ATTR_DTYPE, offsetof(conv_bytes_attr, dtype)},
    {"x_zero", WEFT_ATTR_INT, offsetof(conv_bytes_attr, x_zero)},
    {"y_zero", WEFT_ATTR_INT, offsetof(conv_bytes_attr, y_zero)},
    {NULL, WEFT_ATTR_INT, 0},
};
const weft_pass *const weft__conv_bytes_passes[] = {&weft__pass_channels_last, NULL};

static const conv_bytes_attr
    plain = {.rows = CONV_ROWS(CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(0, 0),
                               CONV_PAIR(0, 0), 5),
             .dtype = WEFT_U8,
             .x_zero = 128,
             .y_zero = 100},
    padded = {.rows = CONV_ROWS(CONV_PAIR(3, 3), CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(1, 1),
                                CONV_PAIR(1, 1), 35, .bounded = true, .low = 10, .high = 250),
              .dtype = WEFT_U8,
              .x_zero = 3,
              .y_zero = 10},
    uneven = {.rows = CONV_ROWS(CONV_PAIR(3, 2), CONV_PAIR(2, 3), CONV_PAIR(1, 2), CONV_PAIR(1, 2),
                                CONV_PAIR(0, 3), 3),
              .dtype = WEFT_I32,
              .x_zero = 7},
    floats = {.rows = CONV_ROWS(CONV_PAIR(1, 1), CONV_PAIR(2, 2), CONV_PAIR(1, 1), CONV_PAIR(0, 0),
                                CONV_PAIR(0, 0), 32, .bounded = true, .low = -100, .high = 150),
              .dtype = WEFT_F32},
    none = {.rows = CONV_ROWS(CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(0, 0),
                              CONV_PAIR(0, 0), 0),
            .dtype = WEFT_U8};
static const weft_sample samples_conv_bytes[] = {
    {&plain, 4, {IMAGE(2, 2, 3, 8), BYTES({3, {1, 2, BYTES_STEP}}), BIAS(5), SCALE(5)}},
    {&padded, 4, {IMAGE(2, 4, 5, 3), BYTES({3, {2, 9, BYTES_STEP}}), BIAS(35), SCALE(35)}},
    {&uneven, 3, {IMAGE(2, 5, 4, 5), BYTES({3, {1, 12, BYTES_STEP}}), BIAS(3)}},
    {&floats, 4, {IMAGE(1, 5, 3, 4), BYTES({3, {1, 1, BYTES_STEP}}), BIAS(32), SCALE(32)}},
    {&plain, 4, {IMAGE(2, 2, 3, 0), BYTES({3, {1, 0, BYTES_STEP}}), BIAS(5), SCALE(5)}},
    {&plain, 4, {IMAGE(0, 2, 3, 8), BYTES({3, {1, 2, BYTES_STEP}}), BIAS(5), SCALE(5)}},
    {&none, 4, {IMAGE(1, 2, 2, 4), BYTES({3, {0, 1, BYTES_STEP}}), BIAS(0), SCALE(0)}},
};

static void source_conv_bytes(weft_source *s)
{
    weft__conv_bytes_source(s, "conv_bytes");
}

DECLARE_KERNEL_(conv_bytes, f32);
#ifdef WEFT_KERNEL_AMX
void WEFT_JOIN(conv_bytes, f32, v4_amx)(const weft_call *, int64_t);
#define AMX_ROW , [WEFT_ISA_V4_AMX] = {KERNEL_ROW_(conv_bytes, v4_amx, WEFT_U8, f32)}
#else
#define AMX_ROW
#endif
const weft_op weft_op_conv_bytes = {
    .name = "conv_bytes",
    .doc =
        "y [n, h, w, o] = conv of x [n, h, w, c], bytes less x_zero, channels innermost, with "
        "weights of an i8 as panels. sum = bias [o] + the products, in i32, which wraps around; y "
        "is the sum, sum scale [o] in f32, or that rounded, plus y_zero, as a byte within bounds.",
    .inputs = "x panels bias scale",
    .min_in = 3,
    .max_in = 4,
    .n_out = 1,
    .attr_size = sizeof(conv_bytes_attr),
    .attrs = weft__conv_bytes_fields,
    .infer = infer_conv_bytes,
    .kernel = BYTES_KERNELS(conv_bytes, AMX_ROW),
    .tiles = tiles_conv_bytes,
    .workspace = workspace_conv_bytes,
    .cost = weft__conv_bytes_cost,
    .block = block_conv_bytes,
    .passes = weft__conv_bytes_passes,
    .gradient = WEFT_GRADIENT_ZERO,
    .source = source_conv_bytes,
    .samples = samples_conv_bytes,
    .n_samples = sizeof samples_conv_bytes / sizeof *samples_conv_bytes,
};

#endif
