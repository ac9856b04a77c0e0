/* Convolution by Winograd's method (winograd.h) of images whose channels are innermost. O(result x
 * channels).
 *
 * A task takes some lines of tiles. It transforms what they read, as one matrix of rows [tile] and
 * columns [channel] for each position, into its workspace, which stays in the second-level cache.
 * Then it goes through the panels of the weights: for each one, the products of all positions
 * (kernels/panel_kernel.h), then the transform of their sums into pixels, with bias and bounds.
 * Vectors run over channels. */
#include "winograd.h"

#include "kernels/panel_kernel.h"
#include "kernels/winograd_tile.h"

/* Tiles of a task: about as many as have INPUT elements transformed, and a count between these. */
#define INPUT    (128 << 10)
#define MIN_ROWS 16
#define MAX_ROWS 96
/* Rows that lie a multiple of CONFLICT elements apart evict each other from the cache. */
#define CONFLICT 256
#define GAP      16

typedef struct winograd {
    conv_rows_sizes z;
    int64_t m, n;                   /* sides of a tile of the result, and transformed */
    int64_t across, down;           /* tiles of a line; lines of tiles of an image */
    int64_t lines, width;           /* of a task */
    int64_t parts;                  /* tasks of a line */
    int64_t rows, row;              /* tiles of a task at most; elements from one to the next */
    int64_t tasks_m, tasks_n, each; /* blocks of tiles; blocks of `each` panels */
} winograd;

static inline winograd winograd_of(const weft_call *call)
{
    winograd w = {.z = conv_rows_sizes_of(call)};
    const conv_rows_sizes *z = &w.z;
    const int64_t positions = call->in[1].shape.dim[1], panels = call->in[1].shape.dim[0];
    w.n = positions == 16 ? 4 : 6;
    w.m = w.n - 2;
    w.across = ceil_div(z->out[1], w.m);
    w.down = ceil_div(z->out[0], w.m);
    w.row = ceil_div(z->channels, 16) * 16;
    if (w.row % CONFLICT == 0) w.row += GAP; /* also without channels */
    const int64_t all = z->images * w.down;
    if (all == 0 || w.across == 0 || panels == 0) return w;
    int64_t rows = INPUT / (positions * w.row);
    rows = rows < MIN_ROWS ? MIN_ROWS : rows > MAX_ROWS ? MAX_ROWS : rows;
    w.lines = rows < w.across ? 1 : rows / w.across;
    w.lines = ceil_div(all, ceil_div(all, w.lines));
    w.parts = rows < w.across ? ceil_div(w.across, rows) : 1;
    w.width = ceil_div(w.across, w.parts);
    w.rows = w.lines * w.width;
    w.tasks_m = ceil_div(all, w.lines) * w.parts;
    const double flops =
        2.0 * (double)(all * w.across * positions) * (double)z->channels * (double)z->columns;
    const double affordable = flops / PANEL_MIN_FLOPS;
    const int64_t wanted = affordable < PANEL_TILES ? (int64_t)affordable : PANEL_TILES;
    w.tasks_n = w.tasks_m < wanted ? ceil_div(wanted, w.tasks_m) : 1;
    if (w.tasks_n > panels) w.tasks_n = panels;
    w.each = ceil_div(panels, w.tasks_n);
    w.tasks_n = ceil_div(panels, w.each);
    return w;
}

/* Elements of the transformed input of a task; the sums of one panel follow. */
static inline int64_t input_size(const winograd *w)
{
    return w->n * w->n * w->rows * w->row;
}

/* Tasks of the same tiles are neighbours. */
typedef struct winograd_task {
    int64_t line, lines, first, width; /* lines of tiles of all images; tiles of each line */
    int64_t panel, panels;
} winograd_task;

static inline winograd_task task_at(const winograd *w, int64_t index)
{
    const int64_t m = index / w->tasks_n, all = w->z.images * w->down;
    winograd_task t = {.line = m / w->parts * w->lines,
                       .first = m % w->parts * w->width,
                       .panel = index % w->tasks_n * w->each};
    const int64_t panels = panel_count(w->z.columns) - t.panel;
    t.lines = all - t.line < w->lines ? all - t.line : w->lines;
    t.width = w->across - t.first < w->width ? w->across - t.first : w->width;
    t.panels = panels < w->each ? panels : w->each;
    return t;
}

/* The first line of pixels of a line of tiles, of all images. */
static inline int64_t first_line(const winograd *w, int64_t line)
{
    return line / w->down * w->z.out[0] + line % w->down * w->m;
}

#ifdef WEFT_KERNEL_ISA

/* ---- The input ---- */

/* Copies `columns` channels of the n x n pixels from [i, j] of an image on, with zeros outside of it
 * and in the rest of the vectors. */
static void copy_patch(const conv_rows_sizes *z, const T *image, int64_t n, const int64_t *at,
                       int64_t columns, T *to)
{
    memset(to, 0, (size_t)(n * n * SIMD_LANES) * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++, to += SIMD_LANES) {
            const int64_t line = at[0] + i, pixel = at[1] + j;
            if (line < 0 || line >= z->in[0] || pixel < 0 || pixel >= z->in[1]) continue;
            memcpy(to, image + (line * z->in[1] + pixel) * z->channels,
                   (size_t)columns * sizeof *to);
        }
}

/* All channels of the tile whose first pixel is `at`. */
SIMD_INLINE void input_channels(const int m, const winograd *w, const T *image, const int64_t *at,
                                T *out)
{
    const conv_rows_sizes *z = &w->z;
    const int64_t n = m + 2, pixel = z->channels, line = z->in[1] * pixel, step = w->rows * w->row;
    const bool inside = at[0] >= 0 && at[1] >= 0 && at[0] + n <= z->in[0] && at[1] + n <= z->in[1];
    const T *x = image + at[0] * line + at[1] * pixel;
    int64_t c = 0;
    if (inside)
        for (; c + SIMD_LANES <= z->channels; c += SIMD_LANES)
            winograd_input_tile(m, x + c, line, pixel, out + c, step);
    for (; c < z->channels; c += SIMD_LANES) {
        T patch[WINOGRAD_SIDE * WINOGRAD_SIDE * SIMD_WIDTH];
        const int64_t left = z->channels - c;
        copy_patch(z, image + c, n, at, left < SIMD_LANES ? left : SIMD_LANES, patch);
        winograd_input_tile(m, patch, n * SIMD_LANES, SIMD_LANES, out + c, step);
    }
}

/* All tiles of a task. */
SIMD_INLINE void input_tiles(const int m, const winograd *w, const winograd_task *t, const T *x,
                             T *out)
{
    const conv_rows_sizes *z = &w->z;
    for (int64_t l = t->line; l < t->line + t->lines; l++) {
        const T *image = x + l / w->down * z->in[0] * z->in[1] * z->channels;
        for (int64_t q = t->first; q < t->first + t->width; q++, out += w->row) {
            const int64_t at[2] = {l % w->down * m - z->begin[0], q * m - z->begin[1]};
            input_channels(m, w, image, at, out);
        }
    }
}

/* ---- The output ---- */

/* What the transform of the sums of one panel reads and writes. */
typedef struct output_panel {
    const T *sums; /* [position, tile, PANEL] */
    int64_t step;  /* from one position to the next */
    const T *bias; /* PANEL; NULL: none */
    const T *bounds;
    T *y; /* its first column, of the first pixel */
    int64_t columns;
} output_panel;

/* The pixels of one tile, of which height x width are in the result; y is the first one. */
SIMD_INLINE void output_pixels(const int m, const winograd *w, const output_panel *o, const T *sums,
                               T *y, int64_t height, int64_t width)
{
    for (int64_t k = 0; k < o->columns; k += SIMD_LANES) {
        const int64_t left = o->columns - k;
        simd_vector pixels[16];
        winograd_output_tile(m, sums + k, o->step, pixels);
        for (int64_t i = 0; i < height; i++)
            for (int64_t j = 0; j < width; j++) {
                T *to = y + (i * w->z.out[1] + j) * w->z.columns + k;
                simd_vector x = pixels[i * m + j];
                if (o->bias) x += *(const simd_vector *)(o->bias + k);
                if (o->bounds) x = simd_bound(x, o->bounds[0], o->bounds[1]);
                if (left >= SIMD_LANES)
                    *(simd_vector *)to = x;
                else
                    memcpy(to, &x, (size_t)left * sizeof *to);
            }
    }
}

/* All tiles of a task and one panel. */
SIMD_INLINE void output_tiles(const int m, const winograd *w, const winograd_task *t,
                              const output_panel *o)
{
    const conv_rows_sizes *z = &w->z;
    const T *sums = o->sums;
    for (int64_t l = t->line; l < t->line + t->lines; l++) {
        const int64_t height = z->out[0] - l % w->down * m;
        for (int64_t q = t->first; q < t->first + t->width; q++, sums += PANEL) {
            const int64_t width = z->out[1] - q * m;
            output_pixels(m, w, o, sums, o->y + (first_line(w, l) * z->out[1] + q * m) * z->columns,
                          height < m ? height : m, width < m ? width : m);
        }
    }
}

static void transform_input(const winograd *w, const winograd_task *t, const T *x, T *out)
{
    if (w->m == 2)
        input_tiles(2, w, t, x, out);
    else
        input_tiles(4, w, t, x, out);
}

static void transform_output(const winograd *w, const winograd_task *t, const output_panel *o)
{
    if (w->m == 2)
        output_tiles(2, w, t, o);
    else
        output_tiles(4, w, t, o);
}

/* The sums of one panel at all positions. */
static void multiply(const winograd *w, const winograd_task *t, const T *input, const T *u,
                     int64_t columns, T *sums)
{
    const int64_t depth = w->z.channels, positions = w->n * w->n;
    for (int64_t p = 0; p < positions; p++)
        panel_tile(&(panel_task){.a = input + p * w->rows * w->row,
                                 .images = 1,
                                 .lines = 1,
                                 .width = t->lines * t->width,
                                 .a_row = w->row,
                                 .runs = {.run = depth, .taps = 1},
                                 .depth = depth,
                                 .panels = u + p * depth * PANEL,
                                 .columns = columns,
                                 .more = p + 1 < positions,
                                 .c = sums + p * w->rows * PANEL,
                                 .c_row = PANEL});
}

KERNEL(conv_winograd)
{
    const winograd w = winograd_of(call);
    const conv_rows_attr *a = call->attr;
    const winograd_task t = task_at(&w, tile);
    const T bounds[2] = {(T)a->low, (T)a->high};
    T *input = weft_call_workspace(call), *sums = input + input_size(&w);
    int64_t *tag = weft_call_panel_tag(call), name = 1 + tile / w.tasks_n;
    if (*tag != name) transform_input(&w, &t, call->in[0].data, input);
    *tag = name;
    for (int64_t p = t.panel; p < t.panel + t.panels; p++) {
        const int64_t first = p * PANEL, left = w.z.columns - first;
        const int64_t columns = left < PANEL ? left : PANEL;
        const T *u = (const T *)call->in[1].data + first * w.n * w.n * w.z.channels;
        T bias[PANEL] = {0};
        if (call->n_in > 2)
            memcpy(bias, (const T *)call->in[2].data + first, (size_t)columns * sizeof *bias);
        multiply(&w, &t, input, u, columns, sums);
        transform_output(&w, &t,
                         &(output_panel){.sums = sums,
                                         .step = w.rows * PANEL,
                                         .bias = call->n_in > 2 ? bias : NULL,
                                         .bounds = a->bounded ? bounds : NULL,
                                         .y = (T *)call->out[0].data + first,
                                         .columns = columns});
    }
}

#else

#include "conv_source.h"
#include "samples.h"

static bool infer_conv_winograd(weft_infer *infer)
{
    char text[128];
    const conv_rows_attr *a = infer->attr;
    const weft_shape u = infer->in[1].shape;
    if (!weft__conv_rows_infer(infer, 1)) return false;
    for (int d = 0; d < 2; d++)
        if (a->kernel.dim[d] != 3 || a->stride.dim[d] != 1 || a->dilation.dim[d] != 1)
            return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                                   "kernel %lld, stride %lld, dilation %lld: expected 3, 1 and 1",
                                   (long long)a->kernel.dim[d], (long long)a->stride.dim[d],
                                   (long long)a->dilation.dim[d]);
    const int64_t panels = panel_count(a->columns), channels = infer->in[0].shape.dim[3];
    return weft_shape_equal(u, WEFT_SHAPE(panels, 16, channels, PANEL)) ||
           weft_shape_equal(u, WEFT_SHAPE(panels, 36, channels, PANEL)) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "weights %s, expected [%lld, 16 or 36, %lld, %d]",
                           weft_shape_text(u, text, sizeof text), (long long)panels,
                           (long long)channels, PANEL);
}

static int64_t tiles_conv_winograd(const weft_call *call)
{
    const winograd w = winograd_of(call);
    return w.tasks_m * w.tasks_n;
}

static size_t workspace_conv_winograd(const weft_call *call)
{
    const winograd w = winograd_of(call);
    const int64_t sums = w.n * w.n * w.rows * PANEL;
    return (size_t)(input_size(&w) + sums) * weft_dtype_bytes(call->out[0].dtype);
}

/* Whole lines of pixels, unless lines of tiles are cut. */
static void block_conv_winograd(const weft_call *call, int64_t tile, weft_block *block)
{
    const winograd w = winograd_of(call);
    const conv_rows_sizes *z = &w.z;
    *block = (weft_block){0, 0, 0, z->columns};
    if (w.parts != 1) return;
    const winograd_task t = task_at(&w, tile);
    const int64_t first = first_line(&w, t.line);
    int64_t end = first_line(&w, t.line + t.lines);
    block->row = first * z->out[1];
    block->rows = (end - first) * z->out[1];
    block->column = t.panel * PANEL;
    block->columns = z->columns - block->column;
    if (block->columns > t.panels * PANEL) block->columns = t.panels * PANEL;
}

static void cost_conv_winograd(const weft_call *call, weft_cost *cost)
{
    const winograd w = winograd_of(call);
    const double tiles = (double)(w.z.images * w.down) * (double)w.across;
    double numel = (double)weft_shape_numel(call->out[0].shape);
    for (size_t i = 0; i < call->n_in; i++) numel += (double)weft_shape_numel(call->in[i].shape);
    cost->flops = 2 * tiles * (double)(w.n * w.n) * (double)w.z.channels * (double)w.z.columns;
    cost->bytes = numel * (double)weft_dtype_bytes(call->out[0].dtype);
}

static void source_conv_winograd(weft_source *s)
{
    weft__conv_source_winograd(s);
}

#define THREE_BY_THREE(pad, ...)                                                                   \
    CONV_ROWS(CONV_PAIR(3, 3), CONV_PAIR(1, 1), CONV_PAIR(1, 1), CONV_PAIR pad, CONV_PAIR pad,     \
              __VA_ARGS__)
static const conv_rows_attr padded = THREE_BY_THREE((1, 1), 5), plain = THREE_BY_THREE((0, 0), 35),
                            wide = THREE_BY_THREE((2, 4), 3),
                            bounded = THREE_BY_THREE((1, 1), 35, .bounded = true, .low = -0.5,
                                                     .high = 0.75),
                            none = THREE_BY_THREE((1, 1), 0);
#define IMAGE(...)   UNIT_FLOATS({4, {__VA_ARGS__}})
#define WEIGHTS(...) UNIT_FLOATS({4, {__VA_ARGS__, PANEL}})
static const weft_sample samples_conv_winograd[] = {
    {&padded, 3, {IMAGE(2, 5, 6, 3), WEIGHTS(1, 16, 3), UNIT_FLOATS({1, {5}})}},
    {&padded, 3, {IMAGE(2, 5, 9, 3), WEIGHTS(1, 36, 3), UNIT_FLOATS({1, {5}})}},
    {&plain, 2, {IMAGE(1, 7, 4, 2), WEIGHTS(2, 16, 2)}},
    {&plain, 2, {IMAGE(1, 7, 10, 2), WEIGHTS(2, 36, 2)}},
    {&wide, 2, {IMAGE(1, 2, 3, 2), WEIGHTS(1, 36, 2)}},
    {&bounded, 3, {IMAGE(1, 4, 5, 2), WEIGHTS(2, 16, 2), UNIT_FLOATS({1, {35}})}},
    {&bounded, 3, {IMAGE(1, 4, 5, 2), WEIGHTS(2, 36, 2), UNIT_FLOATS({1, {35}})}},
    {&padded, 2, {IMAGE(0, 4, 4, 2), WEIGHTS(1, 16, 2)}},
    {&padded, 3, {IMAGE(1, 4, 4, 0), WEIGHTS(1, 36, 0), UNIT_FLOATS({1, {5}})}},
    {&none, 2, {IMAGE(1, 3, 3, 2), WEIGHTS(0, 16, 2)}},
};
DECLARE_KERNELS(conv_winograd);
const weft_op weft_op_conv_winograd = {
    .name = "conv_winograd",
    .doc = "y [n, h, w, o] = conv of x [n, h, w, c], channels innermost, with weights u that "
           "winograd_weights made of 3 x 3 taps, and bias [o]; bounded: min(max(y, low), high). "
           "Passes replace conv by this op, which needs fewer multiplications and rounds "
           "differently.",
    .inputs = "x u bias",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attr_size = sizeof(conv_rows_attr),
    .attrs = weft__conv_rows_fields,
    .infer = infer_conv_winograd,
    .kernel = FLOAT_KERNELS(conv_winograd),
    .tiles = tiles_conv_winograd,
    .workspace = workspace_conv_winograd,
    .cost = cost_conv_winograd,
    .block = block_conv_winograd,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_conv_winograd,
    .samples = samples_conv_winograd,
    .n_samples = sizeof samples_conv_winograd / sizeof *samples_conv_winograd,
};

#endif
