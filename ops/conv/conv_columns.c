/* The kernel of conv_grad_input as a matrix product that is added to the image (conv_columns.h).
 * O(pixels of dy x taps x channels). The order of all sums follows from shapes, so that the bits do
 * not depend on threads. */
#include "conv_columns.h"

/* Pixels of dy whose product is added together, as many on every processor: the order of the sums
 * in dx depends on it. */
#define PIXELS 32

/* Neighbouring pixels of a row of dy that are added together. */
typedef struct segment {
    int64_t column, count;  /* among these pixels */
    int64_t at[PATCH_DIMS]; /* of the first pixel in dy, times the stride */
} segment;

/* A slab of the image, and where a row of the product is added to it. */
typedef struct slab {
    const conv_columns *c;
    T *dx;                                      /* the first channel of the group */
    int64_t begin[PATCH_DIMS], end[PATCH_DIMS]; /* in the image */
    int64_t channel, tap[PATCH_DIMS];           /* of the row */
    segment segments[PIXELS];
    int64_t n_segments;
} slab;

/* Packs a part of a group's weights, transposed, in blocks of rows. */
static void pack_weights(const weft_call *call, const conv_columns *c, int64_t tile)
{
    const int64_t group = tile / c->packs, part = tile % c->packs, depth = c->z.out_channels;
    const int64_t height = gemm_even_height(c->rows), blocks = ceil_div(c->rows, height);
    const int64_t first = part * blocks / c->packs * height;
    const int64_t end = (part + 1) * blocks / c->packs * height;
    gemm_pack(&(gemm_packing){.x = (const T *)call->in[1].data + group * depth * c->rows + first,
                              .inner = 1,
                              .outer = c->rows,
                              .rows = (end < c->rows ? end : c->rows) - first,
                              .height = height,
                              .k = depth,
                              .out = (T *)call->scratch + group * conv_columns_area(c) +
                                     first / height * depth * GEMM_STEP,
                              .block = depth * GEMM_STEP,
                              .step = GEMM_STEP});
}

static slab slab_at(const weft_call *call, const conv_columns *c, int64_t image, int64_t group,
                    int64_t index)
{
    const conv_sizes *z = &c->z;
    slab s = {.c = c,
              .dx = (T *)call->out[0].data +
                    (image * z->groups + group) * z->in_channels * z->in_volume};
    memcpy(s.end, z->in, sizeof s.end);
    s.begin[c->cut] = index * c->slab;
    if (s.begin[c->cut] + c->slab < s.end[c->cut]) s.end[c->cut] = s.begin[c->cut] + c->slab;
    return s;
}

static void clear(const slab *s)
{
    const conv_sizes *z = &s->c->z;
    const int64_t row = z->in_volume / z->in[s->c->cut];
    const int64_t begin = s->begin[s->c->cut], end = s->end[s->c->cut];
    for (int64_t c = 0; c < z->in_channels; c++)
        memset(s->dx + c * z->in_volume + begin * row, 0,
               (size_t)((end - begin) * row) * sizeof(T));
}

/* Sets the segments of pixels [first, first + n) of dy. */
static void find_segments(slab *s, int64_t first, int64_t n)
{
    const conv_sizes *z = &s->c->z;
    int64_t at[PATCH_DIMS];
    patch_coordinates(first, z->out, at);
    s->n_segments = 0;
    for (int64_t column = 0; column < n;) {
        segment *g = &s->segments[s->n_segments++];
        const int64_t left = z->out[PATCH_DIMS - 1] - at[PATCH_DIMS - 1];
        g->column = column;
        g->count = left < n - column ? left : n - column;
        for (int d = 0; d < PATCH_DIMS; d++) g->at[d] = at[d] * z->stride[d];
        column += g->count;
        patch_next_row(z->out, at);
    }
}

/* Adds n elements to every `step`th element of y. */
static inline void add_spread(const T *x, int64_t n, T *y, int64_t step)
{
    int64_t i = 0;
    if (step == 1)
        for (; i + SIMD_LANES <= n; i += SIMD_LANES)
            *(simd_vector *)(y + i) += *(const simd_vector *)(x + i);
    for (; i < n; i++) y[i * step] += x[i];
}

/* Adds a row of the product of these pixels where it lies in the slab. */
static void add_row(const slab *s, const T *x)
{
    const conv_sizes *z = &s->c->z;
    const int64_t step = z->stride[2], begin = s->begin[2], end = s->end[2];
    int64_t shift[PATCH_DIMS];
    for (int d = 0; d < PATCH_DIMS; d++) shift[d] = s->tap[d] * z->dilation[d] - z->begin[d];
    T *dx = s->dx + s->channel * z->in_volume;
    for (int64_t i = 0; i < s->n_segments; i++) {
        const segment *g = &s->segments[i];
        const int64_t plane = g->at[0] + shift[0], row = g->at[1] + shift[1];
        if (plane < s->begin[0] || plane >= s->end[0] || row < s->begin[1] || row >= s->end[1])
            continue;
        const int64_t at = g->at[2] + shift[2];
        int64_t from = 0, to = g->count;
        if (at < begin) from = ceil_div(begin - at, step);
        if (at + (to - 1) * step >= end) to = at < end ? ceil_div(end - at, step) : 0;
        add_spread(x + g->column + from, to - from,
                   dx + (plane * z->in[1] + row) * z->in[2] + at + from * step, step);
    }
}

/* Advances to the next row of the product, in the order [channel, tap]. */
static void next_row(slab *s)
{
    for (int d = PATCH_DIMS - 1; d >= 0; d--) {
        if (++s->tap[d] < s->c->z.kernel[d]) return;
        s->tap[d] = 0;
    }
    s->channel++;
}

/* Adds the product of n <= PIXELS pixels of dy, which are packed in panels. */
static void add_pixels(slab *s, const T *packed, const T *panels, int64_t n, T *block)
{
    const int64_t rows = s->c->rows, depth = s->c->z.out_channels;
    const int64_t height = gemm_even_height(rows);
    memset(s->tap, 0, sizeof s->tap);
    s->channel = 0;
    for (int64_t i = 0; i < rows; i += height, packed += depth * GEMM_STEP) {
        const int64_t left = rows - i < height ? rows - i : height;
        const gemm_kernels sums = gemm_of_height(left);
        for (int64_t j = 0; j < n; j += GEMM_COLUMNS)
            for (int64_t k = 0; k < depth; k += GEMM_DEPTH)
                (n - j <= SIMD_LANES ? sums.narrow : sums.whole)(
                    depth - k < GEMM_DEPTH ? depth - k : GEMM_DEPTH, packed + k * GEMM_STEP,
                    panels + j * depth + k * GEMM_COLUMNS, GEMM_COLUMNS, block + j, PIXELS, k > 0,
                    NULL);
        for (int64_t r = 0; r < left; r++, next_row(s)) add_row(s, block + r * PIXELS);
    }
}

static void add_product(const weft_call *call, const conv_columns *c, int64_t tile)
{
    const conv_sizes *z = &c->z;
    const int64_t image = tile / c->slabs / z->groups, group = tile / c->slabs % z->groups;
    slab s = slab_at(call, c, image, group, tile % c->slabs);
    clear(&s);
    /* Rows of dy that reach the slab, and their pixels. */
    const int64_t reach = (z->kernel[c->cut] - 1) * z->dilation[c->cut];
    const int64_t low = s.begin[c->cut] + z->begin[c->cut] - reach, stride = z->stride[c->cut];
    int64_t end = (s.end[c->cut] - 1 + z->begin[c->cut]) / stride + 1;
    if (end > z->out[c->cut]) end = z->out[c->cut];
    const int64_t row = z->out_volume / z->out[c->cut];
    int64_t pixel = low > 0 ? ceil_div(low, stride) * row : 0;
    T *block = weft_call_workspace(call), *panels = block + GEMM_ROWS * PIXELS;
    const gemm_matrix dy = {(const T *)call->in[0].data +
                                (image * z->groups + group) * z->out_channels * z->out_volume,
                            z->out_volume, 1};
    for (int64_t n; pixel < end * row; pixel += n) {
        n = end * row - pixel < PIXELS ? end * row - pixel : PIXELS;
        gemm_pack_panels(&dy, pixel, pixel + n, z->out_channels, panels);
        find_segments(&s, pixel, n);
        add_pixels(&s, (const T *)call->scratch + group * conv_columns_area(c), panels, n, block);
    }
}

void KERNEL_NAME(conv_columns)(const weft_call *call, int64_t tile)
{
    const weft_shape *dy = &call->in[0].shape, *w = &call->in[1].shape, *dx = &call->out[0].shape;
    const conv_sizes z = conv_sizes_of(call->attr, dx, w, dy);
    const conv_columns c = conv_columns_of(&z);
    if (call->phase == 0)
        pack_weights(call, &c, tile);
    else
        add_product(call, &c, tile);
}
