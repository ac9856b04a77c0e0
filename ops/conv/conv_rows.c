/* Convolution of images whose channels are innermost, as a product of rows with panels
 * (kernels/panel_kernel.h). O(result x taps x channels).
 *
 * The patches of a line of pixels lie at equal distances, and those of one pixel are a few runs of
 * dense elements, so the micro-kernel reads the image itself. Where the image is padded, a tile
 * first copies what it reads, with zeros around it, into its workspace. A kernel of one tap without
 * stride and padding is a product of all pixels. */
#include "conv_rows.h"

#include "kernels/panel_kernel.h"

/* Elements of an image that a tile copies at most, except for a few pixels. */
#define MAX_COPY (128 << 10)
/* Pixels that lie a multiple of CONFLICT elements apart evict each other from the cache; then the
 * copy has a gap of GAP elements between pixels. */
#define CONFLICT 256
#define GAP      16

/* How the result is cut: some images, or some lines of one, or a part of one line. */
typedef struct rows_product {
    conv_rows_sizes z;
    int64_t depth;
    int64_t images, lines, width; /* of a tile */
    int64_t tile_n;
    int64_t across, down, tiles_m, tiles_n; /* tiles of a line, of an image, and in all */
    bool copied;
    int64_t copy_lines, copy_width; /* of an image, for one tile */
    int64_t pixel;                  /* elements from one pixel to the next, of what is read */
} rows_product;

/* Sets the tile of about `rows` pixels. */
static inline void cut_rows(rows_product *p, int64_t rows)
{
    const conv_rows_sizes *z = &p->z;
    const int64_t image = z->out[0] * z->out[1];
    p->images = p->lines = 1;
    p->width = z->out[1];
    if (rows >= image) {
        p->images = ceil_div(z->images, ceil_div(z->images, rows / image));
        p->lines = z->out[0];
    } else if (rows >= z->out[1]) {
        p->lines = ceil_div(z->out[0], ceil_div(z->out[0], rows / z->out[1]));
    } else {
        p->width = ceil_div(z->out[1], ceil_div(z->out[1], rows));
        if (p->width > GEMM_EVEN_ROWS)
            p->width = ceil_div(p->width, GEMM_EVEN_ROWS) * GEMM_EVEN_ROWS;
    }
    p->copy_lines = (p->lines - 1) * z->stride[0] + (z->kernel[0] - 1) * z->dilation[0] + 1;
    p->copy_width = (p->width - 1) * z->stride[1] + (z->kernel[1] - 1) * z->dilation[1] + 1;
}

static inline double copy_size(const rows_product *p)
{
    return (double)p->images * (double)p->copy_lines * (double)p->copy_width * (double)p->pixel;
}

static inline rows_product rows_product_of(const weft_call *call)
{
    rows_product p = {.z = conv_rows_sizes_of(call)};
    conv_rows_sizes *z = &p.z;
    p.depth = z->kernel[0] * z->kernel[1] * z->channels;
    bool pointwise = true;
    for (int d = 0; d < 2; d++) {
        const int64_t last = (z->out[d] - 1) * z->stride[d] + (z->kernel[d] - 1) * z->dilation[d];
        p.copied |= z->begin[d] > 0 || last >= z->in[d];
        pointwise &= z->kernel[d] == 1 && z->stride[d] == 1 && z->in[d] == z->out[d];
    }
    p.pixel = z->channels;
    if (p.copied && z->channels && z->stride[1] * z->channels % CONFLICT == 0) p.pixel += GAP;
    if (z->images == 0 || z->out[0] == 0 || z->out[1] == 0 || z->columns == 0) return p;
    if (pointwise && !p.copied) {
        z->in[1] = z->out[1] = z->images * z->out[0] * z->out[1];
        z->images = z->in[0] = z->out[0] = 1;
    }
    const int64_t pixels = z->images * z->out[0] * z->out[1];
    const panel_tiles t = panel_tiles_of(pixels, p.depth, z->columns);
    int64_t rows = ceil_div(pixels, t.tiles_m);
    cut_rows(&p, rows);
    /* A part of a line reads little beyond it, unless it is short. */
    while (p.copied && rows > GEMM_EVEN_ROWS && copy_size(&p) > MAX_COPY) {
        rows -= ceil_div(rows, 8);
        cut_rows(&p, rows);
    }
    p.tile_n = t.tile_n;
    p.tiles_n = t.tiles_n;
    p.across = ceil_div(z->out[1], p.width);
    p.down = ceil_div(z->out[0], p.lines) * p.across;
    p.tiles_m = ceil_div(z->images, p.images) * p.down;
    return p;
}

/* Tile `index`: a block of pixels and of columns. Tiles of the same pixels are neighbours. */
typedef struct rows_tile {
    int64_t image, images, line, lines, pixel, width;
    int64_t column, columns;
} rows_tile;

static inline rows_tile rows_tile_at(const rows_product *p, int64_t index)
{
    const conv_rows_sizes *z = &p->z;
    const int64_t m = index / p->tiles_n, in_image = m % p->down;
    rows_tile t = {.image = m / p->down * p->images,
                   .line = in_image / p->across * p->lines,
                   .pixel = in_image % p->across * p->width,
                   .column = index % p->tiles_n * p->tile_n};
    t.images = z->images - t.image < p->images ? z->images - t.image : p->images;
    t.lines = z->out[0] - t.line < p->lines ? z->out[0] - t.line : p->lines;
    t.width = z->out[1] - t.pixel < p->width ? z->out[1] - t.pixel : p->width;
    t.columns = z->columns - t.column < p->tile_n ? z->columns - t.column : p->tile_n;
    return t;
}

/* The first row of a tile in the result, as the matrix [pixels, columns]. */
static inline int64_t first_row(const rows_product *p, const rows_tile *t)
{
    return (t->image * p->z.out[0] + t->line) * p->z.out[1] + t->pixel;
}

#ifdef WEFT_KERNEL_ISA

/* One line of an image, from pixel `first` on, with zeros outside of it. `from` is NULL for a line
 * outside. */
static void copy_line(const rows_product *p, const T *from, int64_t first, T *to)
{
    const int64_t channels = p->z.channels, pixel = p->pixel, width = p->copy_width;
    int64_t begin = first < 0 ? -first : 0, end = p->z.in[1] - first;
    if (begin > width || !from) begin = width;
    if (end > width) end = width;
    if (end < begin) end = begin;
    memset(to, 0, (size_t)(begin * pixel) * sizeof *to);
    if (pixel == channels && end > begin)
        memcpy(to + begin * pixel, from + (first + begin) * channels,
               (size_t)((end - begin) * channels) * sizeof *to);
    for (int64_t i = begin; pixel != channels && i < end; i++)
        memcpy(to + i * pixel, from + (first + i) * channels, (size_t)channels * sizeof *to);
    memset(to + end * pixel, 0, (size_t)((width - end) * pixel) * sizeof *to);
}

/* Copies what a tile reads. */
static void copy_images(const rows_product *p, const rows_tile *t, const T *x, T *to)
{
    const conv_rows_sizes *z = &p->z;
    const int64_t first = t->line * z->stride[0] - z->begin[0];
    const int64_t pixel = t->pixel * z->stride[1] - z->begin[1], in = z->in[1] * z->channels;
    const int64_t n = p->copy_lines - (p->lines - t->lines) * z->stride[0];
    for (int64_t i = 0; i < t->images; i++)
        for (int64_t l = 0; l < n; l++) {
            const bool inside = first + l >= 0 && first + l < z->in[0];
            const T *from = x + ((t->image + i) * z->in[0] + (inside ? first + l : 0)) * in;
            copy_line(p, inside ? from : NULL, pixel,
                      to + (i * p->copy_lines + l) * p->copy_width * p->pixel);
        }
}

/* Windows [*begin, *end) along one dimension lie inside of the image. */
static void windows_inside(const conv_rows_sizes *z, int d, int64_t *begin, int64_t *end)
{
    const int64_t last = z->in[d] - 1 - (z->kernel[d] - 1) * z->dilation[d] + z->begin[d];
    *begin = ceil_div(z->begin[d], z->stride[d]);
    *end = last < 0 ? 0 : last / z->stride[d] + 1;
    if (*begin > z->out[d]) *begin = z->out[d];
    if (*end > z->out[d]) *end = z->out[d];
    if (*end < *begin) *end = *begin;
}

/* Element [row, column] of the result, without the padding. */
static T sum_inside(const weft_call *call, const rows_product *p, int64_t row, int64_t column)
{
    const conv_rows_sizes *z = &p->z;
    const int64_t image = row / (z->out[0] * z->out[1]);
    const int64_t at[2] = {row / z->out[1] % z->out[0], row % z->out[1]};
    const T *w = (const T *)call->in[1].data + column / PANEL * p->depth * PANEL + column % PANEL;
    T sum = call->n_in > 2 ? ((const T *)call->in[2].data)[column] : 0;
    for (int64_t i = 0; i < z->kernel[0]; i++)
        for (int64_t j = 0; j < z->kernel[1]; j++, w += z->channels * PANEL) {
            const int64_t line = at[0] * z->stride[0] + i * z->dilation[0] - z->begin[0];
            const int64_t pixel = at[1] * z->stride[1] + j * z->dilation[1] - z->begin[1];
            if (line < 0 || line >= z->in[0] || pixel < 0 || pixel >= z->in[1]) continue;
            const T *x = (const T *)call->in[0].data +
                         ((image * z->in[0] + line) * z->in[1] + pixel) * z->channels;
            for (int64_t c = 0; c < z->channels; c++) sum = FMA(x[c], w[c * PANEL], sum);
        }
    return sum;
}

/* Whether all weights of a column of the result are finite. */
static bool column_is_finite(const weft_call *call, const rows_product *p, int64_t column)
{
    const T *w = (const T *)call->in[1].data + column / PANEL * p->depth * PANEL + column % PANEL;
    bool finite = true;
    for (int64_t k = 0; finite && k < p->depth; k++) finite = conv_all_finite(w + k * PANEL, 1);
    return finite;
}

/* Computes the NaN of a row of a tile again. */
static void mend_row(const weft_call *call, const rows_product *p, int64_t row, const rows_tile *t)
{
    const conv_rows_attr *a = call->attr;
    T *y = (T *)call->out[0].data + row * p->z.columns + t->column;
    if (!conv_has_nan(y, t->columns)) return;
    for (int64_t i = 0; i < t->columns; i++) {
        if (y[i] == y[i] || column_is_finite(call, p, t->column + i)) continue;
        const T sum = sum_inside(call, p, row, t->column + i);
        const T low = (T)a->low, high = (T)a->high;
        y[i] = !a->bounded ? sum : sum < low ? low : sum > high ? high : sum;
    }
}

/* Computes the NaN of a tile again (conv.h), where windows reach outside of the image. */
static void mend(const weft_call *call, const rows_product *p, const rows_tile *t)
{
    int64_t begin[2], end[2], row = first_row(p, t);
    for (int d = 0; d < 2; d++) windows_inside(&p->z, d, &begin[d], &end[d]);
    for (int64_t l = 0; l < t->images * t->lines; l++, row += t->width) {
        const int64_t line = t->line + l % t->lines;
        const bool inside = line >= begin[0] && line < end[0];
        for (int64_t i = 0; i < t->width; i++) {
            const int64_t pixel = t->pixel + i;
            if (inside && pixel >= begin[1] && pixel < end[1])
                i = end[1] - 1 - t->pixel; /* the last one inside */
            else
                mend_row(call, p, row + i, t);
        }
    }
}

KERNEL(conv_rows)
{
    const rows_product p = rows_product_of(call);
    const conv_rows_sizes *z = &p.z;
    const rows_tile t = rows_tile_at(&p, tile);
    const T *x = call->in[0].data;
    int64_t height = z->in[0], width = z->in[1];
    if (p.copied) {
        T *copy = weft_call_workspace(call);
        int64_t *tag = weft_call_panel_tag(call), name = 1 + tile / p.tiles_n;
        if (*tag != name) copy_images(&p, &t, x, copy);
        *tag = name;
        x = copy;
        height = p.copy_lines;
        width = p.copy_width;
    } else {
        x += ((t.image * height + t.line * z->stride[0]) * width + t.pixel * z->stride[1]) *
             z->channels;
    }
    const conv_rows_attr *a = call->attr;
    const T bounds[2] = {(T)a->low, (T)a->high};
    /* The taps of a line are contiguous, unless there are gaps. */
    const bool joined = z->dilation[1] == 1 && p.pixel == z->channels;
    const int64_t line = width * p.pixel;
    panel_tile(
        &(panel_task){.a = x,
                      .images = t.images,
                      .lines = t.lines,
                      .width = t.width,
                      .image_step = height * line,
                      .line_step = z->stride[0] * line,
                      .a_row = z->stride[1] * p.pixel,
                      .runs = {.run = joined ? z->kernel[1] * z->channels : z->channels,
                               .taps = joined ? 1 : z->kernel[1],
                               .tap_step = z->dilation[1] * p.pixel,
                               .line_step = z->dilation[0] * line},
                      .depth = p.depth,
                      .panels = (const T *)call->in[1].data + t.column * p.depth,
                      .columns = t.columns,
                      .bias = call->n_in > 2 ? (const T *)call->in[2].data + t.column : NULL,
                      .bounds = a->bounded ? bounds : NULL,
                      .c = (T *)call->out[0].data + first_row(&p, &t) * z->columns + t.column,
                      .c_row = z->columns});
    if (p.copied) mend(call, &p, &t);
}

#else

#include "conv_source.h"
#include "samples.h"

#include <weft/ops.h>

bool weft__conv_rows_output(weft_infer *infer, const conv_rows_attr *a, int64_t groups,
                            weft_shape *y)
{
    char text[128];
    const weft_shape x = infer->in[0].shape;
    if (x.rank != 4 || a->kernel.rank != 2 || a->columns < 0)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "image %s, kernel of rank %d, %lld columns: expected [images, "
                               "height, width, channels], rank 2 and at least 0 columns",
                               weft_shape_text(x, text, sizeof text), a->kernel.rank,
                               (long long)a->columns);
    const conv_attr attr = {.stride = a->stride,
                            .dilation = a->dilation,
                            .pad_begin = a->pad_begin,
                            .pad_end = a->pad_end,
                            .groups = groups};
    if (!weft__conv_infer_output(
            infer, &attr, WEFT_SHAPE(x.dim[0], x.dim[3], x.dim[1], x.dim[2]),
            WEFT_SHAPE(a->columns, groups > 1 ? 1 : x.dim[3], a->kernel.dim[0], a->kernel.dim[1]),
            y))
        return false;
    *y = WEFT_SHAPE(y->dim[0], y->dim[2], y->dim[3], a->columns);
    return true;
}

bool weft__conv_rows_infer(weft_infer *infer, int64_t groups)
{
    const conv_rows_attr *a = infer->attr;
    weft_shape y;
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1) ||
        !weft__conv_rows_output(infer, a, groups, &y))
        return false;
    infer->out[0] = (weft_type){infer->in[0].dtype, y};
    return infer->n_in < 3 || weft__conv_infer_bias(infer, a->columns);
}

static bool infer_conv_rows(weft_infer *infer)
{
    char text[128];
    const conv_rows_attr *a = infer->attr;
    const weft_shape panels = infer->in[1].shape;
    int64_t depth;
    if (!weft__conv_rows_infer(infer, 1)) return false;
    if (__builtin_mul_overflow(a->kernel.dim[0], a->kernel.dim[1], &depth) ||
        __builtin_mul_overflow(depth, infer->in[0].shape.dim[3], &depth))
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "the kernel has over 2^63 - 1 elements");
    return weft_shape_equal(panels, WEFT_SHAPE(panel_count(a->columns), depth, PANEL)) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "panels %s, expected [%lld, %lld, %d]",
                           weft_shape_text(panels, text, sizeof text),
                           (long long)panel_count(a->columns), (long long)depth, PANEL);
}

static int64_t tiles_conv_rows(const weft_call *call)
{
    const rows_product p = rows_product_of(call);
    return p.tiles_m * p.tiles_n;
}

static size_t workspace_conv_rows(const weft_call *call)
{
    const rows_product p = rows_product_of(call);
    return p.copied ? (size_t)copy_size(&p) * weft_dtype_bytes(call->out[0].dtype) : 0;
}

static void block_conv_rows(const weft_call *call, int64_t tile, weft_block *block)
{
    const rows_product p = rows_product_of(call);
    *block = (weft_block){0, 0, 0, 0};
    if (!p.tiles_m) return;
    const rows_tile t = rows_tile_at(&p, tile);
    *block = (weft_block){first_row(&p, &t), t.images * t.lines * t.width, t.column, t.columns};
}

static void cost_conv_rows(const weft_call *call, weft_cost *cost)
{
    const double y = (double)weft_shape_numel(call->out[0].shape);
    double numel = y;
    for (size_t i = 0; i < call->n_in; i++) numel += (double)weft_shape_numel(call->in[i].shape);
    cost->flops = 2 * y * (double)call->in[1].shape.dim[1];
    cost->bytes = numel * (double)weft_dtype_bytes(call->out[0].dtype);
}

const weft_attr_field weft__conv_rows_fields[] = {
    {"kernel", WEFT_ATTR_INT64S, offsetof(conv_rows_attr, kernel)},
    {"stride", WEFT_ATTR_INT64S, offsetof(conv_rows_attr, stride)},
    {"dilation", WEFT_ATTR_INT64S, offsetof(conv_rows_attr, dilation)},
    {"pad_begin", WEFT_ATTR_INT64S, offsetof(conv_rows_attr, pad_begin)},
    {"pad_end", WEFT_ATTR_INT64S, offsetof(conv_rows_attr, pad_end)},
    {"columns", WEFT_ATTR_INT64, offsetof(conv_rows_attr, columns)},
    {"bounded", WEFT_ATTR_BOOL, offsetof(conv_rows_attr, bounded)},
    {"low", WEFT_ATTR_DOUBLE, offsetof(conv_rows_attr, low)},
    {"high", WEFT_ATTR_DOUBLE, offsetof(conv_rows_attr, high)},
    {NULL, WEFT_ATTR_INT, 0},
};

static const conv_rows_attr plain = CONV_ROWS(CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(1, 1),
                                              CONV_PAIR(0, 0), CONV_PAIR(0, 0), 5),
                            padded = CONV_ROWS(CONV_PAIR(3, 3), CONV_PAIR(1, 1), CONV_PAIR(1, 1),
                                               CONV_PAIR(1, 1), CONV_PAIR(1, 1), 35),
                            uneven = CONV_ROWS(CONV_PAIR(3, 2), CONV_PAIR(2, 3), CONV_PAIR(1, 2),
                                               CONV_PAIR(1, 2), CONV_PAIR(0, 3), 3),
                            strided = CONV_ROWS(CONV_PAIR(1, 1), CONV_PAIR(2, 2), CONV_PAIR(1, 1),
                                                CONV_PAIR(0, 0), CONV_PAIR(0, 0), 32),
                            bounded = CONV_ROWS(CONV_PAIR(3, 3), CONV_PAIR(1, 1), CONV_PAIR(1, 1),
                                                CONV_PAIR(1, 1), CONV_PAIR(1, 1), 35,
                                                .bounded = true, .low = -0.5, .high = 0.75),
                            none = CONV_ROWS(CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR(1, 1),
                                             CONV_PAIR(0, 0), CONV_PAIR(0, 0), 0);
#define IMAGE(...) UNIT_FLOATS({4, {__VA_ARGS__}})
static const weft_sample samples_conv_rows[] = {
    {&plain, 3, {IMAGE(2, 2, 3, 3), UNIT_FLOATS({3, {1, 3, PANEL}}), UNIT_FLOATS({1, {5}})}},
    {&padded, 3, {IMAGE(2, 4, 5, 2), UNIT_FLOATS({3, {2, 18, PANEL}}), UNIT_FLOATS({1, {35}})}},
    {&bounded, 3, {IMAGE(2, 4, 5, 2), UNIT_FLOATS({3, {2, 18, PANEL}}), UNIT_FLOATS({1, {35}})}},
    {&uneven, 2, {IMAGE(2, 5, 4, 1), UNIT_FLOATS({3, {1, 6, PANEL}})}},
    {&strided, 2, {IMAGE(1, 4, 3, 2), UNIT_FLOATS({3, {1, 2, PANEL}})}},
    {&padded, 2, {IMAGE(0, 4, 4, 2), UNIT_FLOATS({3, {2, 18, PANEL}})}},
    {&plain, 3, {IMAGE(2, 2, 3, 0), UNIT_FLOATS({3, {1, 0, PANEL}}), UNIT_FLOATS({1, {5}})}},
    {&none, 2, {IMAGE(1, 2, 2, 3), UNIT_FLOATS({3, {0, 3, PANEL}})}},
};
static void source_conv_rows(weft_source *s)
{
    weft__conv_source_rows(s, "conv_rows");
}

DECLARE_KERNELS(conv_rows);
const weft_op weft_op_conv_rows = {
    .name = "conv_rows",
    .doc = "y [n, h, w, o] = conv of x [n, h, w, c], channels innermost, with weights [(tap row, "
           "tap column, c), o] as panels, and bias [o]; bounded: min(max(y, low), high). Passes "
           "replace conv by this op; the sums are the same.",
    .inputs = "x panels bias",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attr_size = sizeof(conv_rows_attr),
    .attrs = weft__conv_rows_fields,
    .infer = infer_conv_rows,
    .kernel = FLOAT_KERNELS(conv_rows),
    .tiles = tiles_conv_rows,
    .workspace = workspace_conv_rows,
    .cost = cost_conv_rows,
    .block = block_conv_rows,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_conv_rows,
    .samples = samples_conv_rows,
    .n_samples = sizeof samples_conv_rows / sizeof *samples_conv_rows,
};

#endif
