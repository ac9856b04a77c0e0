/* The kernel of conv_grad_weight: at each tap, the product of dy's channels and of the image's,
 * summed over pixels (conv.h describes the tiles). One operand is transposed into panels, the other
 * is read where it lies. O(pixels x weights). Tiles and pieces follow from shapes, and each sum
 * runs over runs of pixels in order, so that the bits do not depend on threads. */
#include "conv_path.h"

/* ---- The micro-kernel ---- */

/* out [height, GEMM_COLUMNS] (+)= rows of one operand, read where they lie, times a panel of the
 * other, over runs of pixels. */
typedef struct run_block {
    const T *rows, *panel;
    int64_t row_step, pixel_step; /* from row to row, from pixel to pixel */
    const conv_run *runs;
    int64_t n_runs;
    T *out;
    int64_t out_row;
    bool add; /* to what out holds */
} run_block;

/* Height and vectors are constants at every call. */
SIMD_INLINE void sum_runs(const int height, const int vectors, const run_block *o)
{
    const conv_run *run = o->runs, *end = run + o->n_runs;
    int64_t at = 0; /* in the run */
    bool add = o->add;
    do { /* also once without runs */
        simd_vector sum[GEMM_ROWS * 2];
        SIMD_UNROLL(32)
        for (int i = 0; i < vectors * height; i++) sum[i] = (simd_vector){0};
        for (int64_t chain = SIMD_CHAIN; run < end && chain > 0;) {
            const int64_t n = run->n - at < chain ? run->n - at : chain;
            simd_add_product(height, vectors, 0,
                             (simd_operands){.a = o->rows + run->row + at * o->pixel_step,
                                             .b = o->panel + run->panel + at * GEMM_COLUMNS,
                                             .a_row = o->row_step,
                                             .a_step = o->pixel_step,
                                             .b_step = GEMM_COLUMNS,
                                             .depth = n},
                             sum);
            chain -= n;
            at += n;
            if (at < run->n) continue;
            at = 0;
            run++;
        }
        SIMD_UNROLL(16)
        for (int i = 0; i < height; i++) {
            SIMD_UNROLL(2)
            for (int v = 0; v < vectors; v++) {
                simd_vector *out = (simd_vector *)(o->out + i * o->out_row + v * SIMD_LANES);
                if (add) sum[vectors * i + v] += *out;
                *out = sum[vectors * i + v];
            }
        }
        add = true;
    } while (run < end);
}

/* The heights that have a kernel; 3, for images in colour. */
#define EACH_HEIGHT(X) X(3) GEMM_EACH(X)

typedef void run_function(const run_block *o);
#define DEFINE(height)                                                                             \
    static __attribute__((noinline)) void sum_whole_##height(const run_block *o)                   \
    {                                                                                              \
        sum_runs(height, 2, o);                                                                    \
    }                                                                                              \
    static __attribute__((noinline)) void sum_narrow_##height(const run_block *o)                  \
    {                                                                                              \
        sum_runs(height, 1, o);                                                                    \
    }
EACH_HEIGHT(DEFINE)
#undef DEFINE

/* The kernels of a whole panel and of its first vector alone, for as many of `left` rows as one
 * takes. */
typedef struct run_kernel {
    int64_t height;
    run_function *whole, *narrow;
} run_kernel;

static run_kernel kernel_for(int64_t left)
{
    run_kernel k = {0, NULL, NULL};
#define FIND(rows)                                                                                 \
    if (left >= rows && rows > k.height)                                                           \
        k = (run_kernel){rows, sum_whole_##rows, sum_narrow_##rows};
    EACH_HEIGHT(FIND)
#undef FIND
    return k;
}

/* ---- A tile ---- */

/* An operand: the first channel that a tile reads, and the steps from channel to channel and from
 * image to image. */
typedef struct operand {
    const T *data;
    int64_t channel, image;
} operand;

typedef struct weight_tile {
    const conv_reduction *r;
    operand rows, columns;
    int64_t group, row, n_rows, column, n_columns, tap, n_taps, chunk;
    conv_run *runs; /* workspace */
    T *sums;        /* [n_rows, n_taps, tile_n] */
    T *panels;      /* [tile_n / GEMM_COLUMNS, piece, GEMM_COLUMNS] */
} weight_tile;

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

static weight_tile tile_at(const weft_call *call, const conv_reduction *r, int64_t index)
{
    const conv_sizes *z = &r->z;
    weight_tile t = {.r = r};
    t.tap = index % r->tiles_t * r->tile_t;
    index /= r->tiles_t;
    t.column = index % r->tiles_n * r->tile_n;
    index /= r->tiles_n;
    t.row = index % r->tiles_m * r->tile_m;
    index /= r->tiles_m;
    t.group = index % z->groups;
    t.chunk = index / z->groups;
    t.n_taps = at_most(z->taps - t.tap, r->tile_t);
    t.n_columns = at_most(r->columns - t.column, r->tile_n);
    t.n_rows = at_most(r->rows - t.row, r->tile_m);
    const operand x = {.data =
                           (const T *)call->in[0].data + t.group * z->in_channels * z->in_volume,
                       .channel = z->in_volume,
                       .image = z->groups * z->in_channels * z->in_volume};
    const operand dy = {.data =
                            (const T *)call->in[1].data + t.group * z->out_channels * z->out_volume,
                        .channel = z->out_volume,
                        .image = z->groups * z->out_channels * z->out_volume};
    t.rows = r->swapped ? dy : x;
    t.columns = r->swapped ? x : dy;
    t.rows.data += t.row * t.rows.channel;
    t.columns.data += t.column * t.columns.channel;
    t.runs = weft_call_workspace(call);
    t.sums = (T *)(t.runs + r->piece);
    t.panels = t.sums + r->tile_m * r->tile_t * r->tile_n;
    return t;
}

/* Prefetches the part [from, to) of `all` of pixels [first, first + n) of the columns. */
static void prefetch_columns(const weight_tile *t, int64_t first, int64_t n, int64_t from,
                             int64_t to, int64_t all)
{
    const int64_t volume = t->columns.channel;
    for (int64_t at = 0, count; at < n; at += count) {
        const int64_t image = (first + at) / volume, pixel = (first + at) % volume;
        const gemm_matrix x = {t->columns.data + image * t->columns.image, volume, 1};
        count = at_most(n - at, volume - pixel);
        gemm_prefetch(&x, (gemm_region){0, t->n_columns, pixel, count}, from, to, all);
    }
}

/* Transposes pixels [first, first + n) of the columns into panels, with zeros beyond the last. */
static void pack_pixels(const weight_tile *t, int64_t first, int64_t n)
{
    const int64_t volume = t->columns.channel;
    int64_t next = 0; /* to prefetch, a panel or two ahead */
    for (int64_t j = 0; j < t->n_columns; j += GEMM_COLUMNS) {
        const int64_t width = at_most(t->n_columns - j, GEMM_COLUMNS);
        const int64_t ahead = at_most(j + 2 * GEMM_COLUMNS, t->n_columns);
        prefetch_columns(t, first, n, next, ahead, t->n_columns);
        next = ahead;
        T *panel = t->panels + j * t->r->piece;
        if (width < GEMM_COLUMNS) memset(panel, 0, (size_t)(n * GEMM_COLUMNS) * sizeof *panel);
        for (int64_t at = 0, count; at < n; at += count) {
            const int64_t image = (first + at) / volume, pixel = (first + at) % volume;
            count = at_most(n - at, volume - pixel);
            simd_transpose(width, count,
                           t->columns.data + image * t->columns.image + j * volume + pixel, volume,
                           panel + at * GEMM_COLUMNS, GEMM_COLUMNS);
        }
    }
}

/* Appends a run, or makes the last one longer. */
static int64_t add_run(conv_run *runs, int64_t count, int64_t step, conv_run run)
{
    if (run.n <= 0) return count;
    conv_run *last = runs + count - 1;
    if (count && last->row + last->n * step == run.row &&
        last->panel + last->n * GEMM_COLUMNS == run.panel) {
        last->n += run.n;
        return count;
    }
    runs[count] = run;
    return count + 1;
}

/* The runs of pixels [first, first + n) of dy that read inside the image at a tap. */
static int64_t find_runs(const weight_tile *t, int64_t tap, int64_t first, int64_t n)
{
    const conv_sizes *z = &t->r->z;
    int64_t image = first / z->out_volume, at[PATCH_DIMS], shift[PATCH_DIMS], count = 0;
    patch_coordinates(first % z->out_volume, z->out, at);
    patch_coordinates(tap, z->kernel, shift);
    for (int d = 0; d < PATCH_DIMS; d++) shift[d] = shift[d] * z->dilation[d] - z->begin[d];
    /* Columns of dy that read inside the image are [begin, end). */
    const int64_t step = z->stride[2], width = z->in[2] - shift[2];
    const int64_t begin = shift[2] < 0 ? ceil_div(-shift[2], step) : 0;
    const int64_t end = width > 0 ? ceil_div(width, step) : 0;
    for (int64_t i = 0, length; i < n; i += length) {
        length = at_most(z->out[2] - at[2], n - i);
        const int64_t depth = at[0] * z->stride[0] + shift[0];
        const int64_t height = at[1] * z->stride[1] + shift[1];
        const int64_t from = at[2] > begin ? at[2] : begin, to = at_most(at[2] + length, end);
        if (depth >= 0 && depth < z->in[0] && height >= 0 && height < z->in[1])
            count = add_run(t->runs, count, step,
                            (conv_run){.row = image * t->rows.image +
                                              (depth * z->in[1] + height) * z->in[2] + from * step +
                                              shift[2],
                                       .panel = (i + from - at[2]) * GEMM_COLUMNS,
                                       .n = to - from});
        image += patch_next_row(z->out, at);
    }
    return count;
}

/* ---- What is read next arrives while sums are computed ---- */

/* Prefetches the runs of rows [first, end). */
static void prefetch_rows(const weight_tile *t, int64_t n_runs, int64_t first, int64_t end)
{
    const int64_t step = t->r->z.stride[2];
    for (int64_t i = first; i < end; i++)
        for (int64_t q = 0; q < n_runs; q++) {
            const T *from = t->rows.data + i * t->rows.channel + t->runs[q].row;
            for (int64_t at = 0; at < t->runs[q].n * step; at += LINE)
                __builtin_prefetch(from + at, 0, 2);
        }
}

/* Adds a tap's products of a piece, whose runs are in the workspace, to the sums. The next piece is
 * pixels [first, first + n). */
static void add_tap(const weight_tile *t, int64_t tap, int64_t n_runs, bool add, int64_t first,
                    int64_t n)
{
    const conv_reduction *r = t->r;
    run_block o = {.row_step = t->rows.channel,
                   .pixel_step = r->z.stride[2],
                   .runs = t->runs,
                   .n_runs = n_runs,
                   .out_row = t->n_taps * r->tile_n,
                   .add = add};
    for (int64_t i = 0; i < t->n_rows;) {
        const run_kernel kernel = kernel_for(t->n_rows - i);
        const int64_t end = i + kernel.height;
        o.rows = t->rows.data + i * t->rows.channel;
        if (tap == 0) {
            prefetch_rows(t, n_runs, end, at_most(end + kernel.height, t->n_rows));
            prefetch_columns(t, first, n, i, end, t->n_rows);
        }
        for (int64_t j = 0; j < t->n_columns; j += GEMM_COLUMNS) {
            o.panel = t->panels + j * r->piece;
            o.out = t->sums + (i * t->n_taps + tap) * r->tile_n + j;
            (t->n_columns - j <= SIMD_LANES ? kernel.narrow : kernel.whole)(&o);
        }
        i = end;
    }
}

/* Writes the sums of a tile to weights [out channels, in channels, taps] of its group. */
static void write_sums(const weight_tile *t, T *weights)
{
    const conv_reduction *r = t->r;
    const int64_t taps = r->z.taps;
    if (r->swapped) {
        for (int64_t i = 0; i < t->n_rows; i++)
            memcpy(weights + (t->row + i) * r->columns + t->column, t->sums + i * r->tile_n,
                   (size_t)t->n_columns * sizeof *weights);
        return;
    }
    /* With all taps the rows are those of one matrix. */
    const int64_t at_once = t->n_taps == taps ? t->n_rows : 1;
    T *out = weights + (t->column * r->rows + t->row) * taps + t->tap;
    /* A few columns at a time, so that few pages of the weights are written side by side. */
    for (int64_t j = 0; j < t->n_columns; j += SIMD_LANES)
        for (int64_t i = 0; i < t->n_rows; i += at_once)
            simd_transpose(at_once * t->n_taps, at_most(t->n_columns - j, SIMD_LANES),
                           t->sums + i * t->n_taps * r->tile_n + j, r->tile_n,
                           out + (j * r->rows + i) * taps, r->rows * taps);
}

static void sum_chunk(const weft_call *call, const conv_reduction *r, int64_t index)
{
    const weight_tile t = tile_at(call, r, index);
    const int64_t begin = t.chunk * r->chunk, end = at_most(begin + r->chunk, r->pixels);
    for (int64_t first = begin; first < end; first += r->piece) {
        const int64_t n = at_most(end - first, r->piece);
        pack_pixels(&t, first, n);
        for (int64_t tap = 0; tap < t.n_taps; tap++)
            add_tap(&t, tap, find_runs(&t, t.tap + tap, first, n), first > begin, first + n,
                    at_most(end - first - n, r->piece));
    }
    const int64_t group = r->rows * r->columns * r->z.taps, all = r->z.groups * group;
    T *weights = r->chunks == 1 ? call->out[0].data : (T *)call->scratch + t.chunk * all;
    write_sums(&t, weights + t.group * group);
}

/* Adds the chunks of one channel of dy. */
static void add_chunks(const weft_call *call, const conv_reduction *r, int64_t channel)
{
    const int64_t n = r->z.in_channels * r->z.taps, all = r->z.groups * r->z.out_channels * n;
    const T *chunk = (const T *)call->scratch + channel * n;
    T *out = (T *)call->out[0].data + channel * n;
    memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t q = 0; q < r->chunks; q++, chunk += all)
        for (int64_t i = 0; i < n; i++) out[i] += chunk[i];
}

KERNEL(conv_grad_weight)
{
    const weft_tensor *x = &call->in[0], *dy = &call->in[1], *dw = &call->out[0];
    const conv_sizes z = conv_sizes_of(call->attr, &x->shape, &dw->shape, &dy->shape);
    if (weft__conv_weight_is_direct(&z)) {
        KERNEL_NAME(conv_planes_weight)(call, tile);
        return;
    }
    const conv_reduction r = conv_reduction_of(z);
    if (call->phase == 0)
        sum_chunk(call, &r, tile);
    else
        add_chunks(call, &r, tile);
}
