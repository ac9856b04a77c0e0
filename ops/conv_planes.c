/* Convolution of planes: each channel of the result reads one channel of the image ("depthwise").
 * O(pixels taps). A block of the result reads a slab of the image, which is copied with its padding
 * into the workspace, so that the sums run in whole vectors without a test for the edges. */
#include "conv_planes.h"

/* A block of the plane of a result. */
typedef struct plane_block {
    int64_t plane, row, rows, column, columns;
} plane_block;

static plane_block block_at(const conv_planes *p, int64_t index)
{
    const int64_t blocks = p->down * p->across, in_plane = index % blocks;
    plane_block b = {.plane = index / blocks,
                     .row = in_plane / p->across * p->rows,
                     .column = in_plane % p->across * p->columns};
    b.rows = b.row + p->rows < p->height ? p->rows : p->height - b.row;
    b.columns = b.column + p->columns < p->width ? p->columns : p->width - b.column;
    return b;
}

/* One row of a slab: elements [first, first + n) of a row of the source, spread out, with zeros
 * around them. */
static void fill_row(const T *from, int64_t width, int64_t spread, int64_t first, int64_t n, T *to)
{
    memset(to, 0, (size_t)n * sizeof *to);
    int64_t begin = first > 0 ? ceil_div(first, spread) : 0;
    int64_t end = first + n > 0 ? ceil_div(first + n, spread) : 0;
    if (end > width) end = width;
    if (begin >= end) return;
    if (spread == 1)
        memcpy(to + (begin - first), from + begin, (size_t)(end - begin) * sizeof *to);
    else
        for (int64_t i = begin; i < end; i++) to[i * spread - first] = from[i];
}

/* Copies what a block reads of the plane `from`. */
static void fill_slab(const conv_planes *p, const plane_block *b, const T *from, T *slab)
{
    const int64_t rows = (b->rows - 1) * p->step[0] + (p->taps[0] - 1) * p->dilation[0] + 1;
    const int64_t first = b->row * p->step[0] - p->begin[0];
    for (int64_t r = 0; r < rows; r++, slab += p->slab_width) {
        const int64_t at = first + r;
        if (at < 0 || at % p->spread[0] || at / p->spread[0] >= p->source[0])
            memset(slab, 0, (size_t)p->slab_width * sizeof *slab);
        else
            fill_row(from + at / p->spread[0] * p->source[1], p->source[1], p->spread[1],
                     b->column * p->step[1] - p->begin[1], p->slab_width, slab);
    }
}

#define EVEN(lane, unused) (2 * (lane))

/* Elements of a vector, `step` apart. The step is a constant at every call; 0: any. */
SIMD_INLINE simd_vector load(const T *from, const int step, int64_t any)
{
    simd_vector v;
    if (step == 1) return *(const simd_vector *)from;
    if (step == 2)
        return __builtin_shufflevector(*(const simd_vector *)from,
                                       *(const simd_vector *)(from + SIMD_LANES),
                                       SIMD_EACH(EVEN, 0));
    for (int64_t l = 0; l < SIMD_LANES; l++) v[l] = from[l * any];
    return v;
}

/* What a row of the result is computed from: its place in the slab, and the kernel, whose elements
 * are `w_step` apart. */
typedef struct plane_row {
    const conv_planes *p;
    const T *slab, *w;
    int64_t w_step;
    T bias;
} plane_row;

/* `vectors` vectors of a row, from column c on. */
SIMD_INLINE void sum_taps(const int step, const int vectors, const plane_row *o, int64_t c,
                          simd_vector *sum)
{
    const conv_planes *p = o->p;
    const int64_t any = p->step[1];
    const T *w = o->w;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sum[v] = o->bias - (simd_vector){0};
    for (int64_t i = 0; i < p->taps[0]; i++) {
        const T *x = o->slab + i * p->dilation[0] * p->slab_width + c * any;
        for (int64_t j = 0; j < p->taps[1]; j++, w += o->w_step, x += p->dilation[1]) {
            const simd_vector factor = *w - (simd_vector){0};
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[v] += factor * load(x + v * SIMD_LANES * any, step, any);
        }
    }
}

SIMD_INLINE void row_of_plane(const int step, const plane_row *o, int64_t columns, T *y)
{
    simd_vector sum[4];
    int64_t c = 0;
    for (; c + 4 * SIMD_LANES <= columns; c += 4 * SIMD_LANES) {
        sum_taps(step, 4, o, c, sum);
        memcpy(y + c, sum, sizeof sum);
    }
    for (; c < columns; c += SIMD_LANES) {
        const int64_t n = columns - c < SIMD_LANES ? columns - c : SIMD_LANES;
        sum_taps(step, 1, o, c, sum);
        memcpy(y + c, sum, (size_t)n * sizeof *y);
    }
}

void KERNEL_NAME(conv_planes)(const weft_call *call, int64_t tile)
{
    const conv_attr *attr = call->attr;
    const bool transposed = attr->size.rank > 0;
    const weft_tensor *source = &call->in[0], *result = &call->out[0];
    const conv_sizes z =
        transposed ? conv_sizes_of(attr, &result->shape, &call->in[1].shape, &source->shape)
                   : conv_sizes_of(attr, &source->shape, &call->in[1].shape, &result->shape);
    const conv_planes p = conv_planes_of(&z, transposed);
    const T *bias = call->n_in > 2 ? call->in[2].data : NULL;
    const int64_t area = p.source[0] * p.source[1], taps = p.taps[0] * p.taps[1];
    const int64_t channels = p.planes / z.images;
    T *slab = weft_call_workspace(call);
    for (int64_t i = tile * p.each; i < (tile + 1) * p.each; i++) {
        const plane_block b = block_at(&p, i);
        if (b.plane >= p.planes) return;
        const int64_t image = b.plane / channels, channel = b.plane % channels;
        const int64_t from = image * z.groups + channel / (channels / z.groups);
        fill_slab(&p, &b, (const T *)source->data + from * area, slab);
        plane_row o = {.p = &p,
                       .w = (const T *)call->in[1].data + channel * taps +
                            (transposed ? taps - 1 : 0),
                       .w_step = transposed ? -1 : 1,
                       .bias = bias ? bias[channel] : 0};
        T *y = (T *)result->data + (b.plane * p.height + b.row) * p.width + b.column;
        for (int64_t r = 0; r < b.rows; r++, y += p.width) {
            o.slab = slab + r * p.step[0] * p.slab_width;
            if (p.step[1] == 1)
                row_of_plane(1, &o, b.columns, y);
            else if (p.step[1] == 2)
                row_of_plane(2, &o, b.columns, y);
            else
                row_of_plane(0, &o, b.columns, y);
        }
    }
}

/* ---- The gradient of the kernel: for each tap, the product of dy and the plane at that tap ----
 */

/* dy's block in rows of whole vectors, with zeros behind each row. */
static void copy_block(const conv_planes *p, const plane_block *b, const T *dy, T *out)
{
    memset(out, 0, (size_t)(b->rows * p->padded) * sizeof *out);
    for (int64_t r = 0; r < b->rows; r++)
        memcpy(out + r * p->padded, dy + (b->row + r) * p->width + b->column,
               (size_t)b->columns * sizeof *out);
}

/* The product of a block of dy and of the slab from `x` on. */
SIMD_INLINE double dot_block(const int step, const conv_planes *p, int64_t rows, const T *dy,
                             const T *x)
{
    simd_vector sum[2] = {{0}, {0}};
    for (int64_t r = 0; r < rows; r++, dy += p->padded, x += p->step[0] * p->slab_width)
        for (int64_t c = 0; c < p->padded; c += SIMD_LANES)
            sum[c / SIMD_LANES % 2] +=
                *(const simd_vector *)(dy + c) * load(x + c * p->step[1], step, p->step[1]);
    double total = 0;
    for (int64_t l = 0; l < SIMD_LANES; l++) total += (double)sum[0][l] + (double)sum[1][l];
    return total;
}

void KERNEL_NAME(conv_planes_weight)(const weft_call *call, int64_t tile)
{
    const weft_tensor *x = &call->in[0], *dy = &call->in[1], *dw = &call->out[0];
    const conv_sizes z = conv_sizes_of(call->attr, &x->shape, &dw->shape, &dy->shape);
    const conv_planes p = conv_planes_of(&z, false);
    const int64_t blocks = p.down * p.across, channels = z.groups * z.out_channels;
    const int64_t group = tile / z.out_channels;
    double *sum = weft_call_workspace(call);
    T *block = (T *)(sum + z.taps), *slab = block + p.rows * p.padded;
    memset(sum, 0, (size_t)z.taps * sizeof *sum);
    for (int64_t i = 0; i < z.images * blocks; i++) {
        const plane_block b = block_at(&p, i);
        fill_slab(&p, &b, (const T *)x->data + (b.plane * z.groups + group) * z.in_volume, slab);
        copy_block(&p, &b, (const T *)dy->data + (b.plane * channels + tile) * z.out_volume, block);
        for (int64_t t = 0; t < z.taps; t++) {
            const T *at =
                slab + t / p.taps[1] * p.dilation[0] * p.slab_width + t % p.taps[1] * p.dilation[1];
            sum[t] += p.step[1] == 1   ? dot_block(1, &p, b.rows, block, at)
                      : p.step[1] == 2 ? dot_block(2, &p, b.rows, block, at)
                                       : dot_block(0, &p, b.rows, block, at);
        }
    }
    T *out = (T *)dw->data + tile * z.taps;
    for (int64_t t = 0; t < z.taps; t++) out[t] = (T)sum[t];
}
