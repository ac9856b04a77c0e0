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
 * around them. Zeros go up to a vector beyond n. */
static inline void fill_row(const T *from, int64_t width, int64_t spread, int64_t first, int64_t n,
                            T *to)
{
    for (int64_t i = 0; i < n; i += SIMD_LANES) *(simd_vector *)(to + i) = (simd_vector){0};
    if (!from) return;
    int64_t begin = 0, end = first + n;
    if (spread == 1) {
        begin = first > 0 ? first : 0;
        if (end > width) end = width;
        T *out = to - first;
        int64_t i = begin;
        for (; i + SIMD_LANES <= end; i += SIMD_LANES)
            *(simd_vector *)(out + i) = *(const simd_vector *)(from + i);
        for (; i < end; i++) out[i] = from[i];
        return;
    }
    begin = first > 0 ? ceil_div(first, spread) : 0;
    end = end > 0 ? ceil_div(end, spread) : 0;
    if (end > width) end = width;
    for (int64_t i = begin; i < end; i++) to[i * spread - first] = from[i];
}

/* Copies what a block reads of the plane `from`. */
static void fill_slab(const conv_planes *p, const plane_block *b, const T *from, T *slab)
{
    const int64_t rows = (b->rows - 1) * p->step[0] + (p->taps[0] - 1) * p->dilation[0] + 1;
    const int64_t first = b->row * p->step[0] - p->begin[0], spread = p->spread[0];
    for (int64_t r = 0; r < rows; r++, slab += p->slab_width) {
        const int64_t at = first + r;
        const bool inside = at >= 0 && (spread == 1 || at % spread == 0);
        const int64_t row = spread == 1 || !inside ? at : at / spread;
        fill_row(inside && row < p->source[0] ? from + row * p->source[1] : NULL, p->source[1],
                 p->spread[1], b->column * p->step[1] - p->begin[1], p->slab_width, slab);
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

/* offset[t]: of tap t in the slab, from the first tap's place. */
static void tap_offsets(const conv_planes *p, int64_t *offset)
{
    for (int64_t i = 0; i < p->taps[0]; i++)
        for (int64_t j = 0; j < p->taps[1]; j++)
            *offset++ = i * p->dilation[0] * p->slab_width + j * p->dilation[1];
}

/* What a block of the result is computed from: the slab, and the kernel, whose elements are w_step
 * apart. */
typedef struct plane_sum {
    const conv_planes *p;
    const T *slab, *w;
    const int64_t *offset;
    int64_t taps, w_step;
    T bias;
} plane_sum;

/* Vectors whose sums are computed side by side, so that one does not wait for another. */
#define SIDE 4

/* A block of the result, y. Vectors are numbered row by row; at the end the first of four replaces
 * missing ones. */
SIMD_INLINE void sum_block(const int step, const plane_sum *o, const plane_block *b, T *y)
{
    const conv_planes *p = o->p;
    const int64_t any = p->step[1], across = ceil_div(b->columns, SIMD_LANES);
    int64_t row = 0, column = 0; /* of the next vector */
    while (row < b->rows) {
        const T *x[SIDE];
        T *out[SIDE];
        int64_t count[SIDE];
        simd_vector sum[SIDE];
        const T *at = o->slab;
        int n = 0;
        for (int v = 0; v < SIDE; v++) {
            if (row < b->rows) {
                const int64_t left = b->columns - column * SIMD_LANES;
                at = o->slab + row * p->step[0] * p->slab_width + column * SIMD_LANES * any;
                out[v] = y + row * p->width + column * SIMD_LANES;
                count[v] = left < SIMD_LANES ? left : SIMD_LANES;
                n++;
                if (++column == across) {
                    column = 0;
                    row++;
                }
            }
            x[v] = at;
            sum[v] = o->bias - (simd_vector){0};
        }
        const T *w = o->w;
        for (int64_t t = 0; t < o->taps; t++, w += o->w_step) {
            const simd_vector factor = *w - (simd_vector){0};
            SIMD_UNROLL(4)
            for (int v = 0; v < SIDE; v++)
                sum[v] = simd_fma(factor, load(x[v] + o->offset[t], step, any), sum[v]);
        }
        for (int v = 0; v < n; v++) {
            if (count[v] == SIMD_LANES)
                *(simd_vector *)out[v] = sum[v];
            else
                for (int64_t q = 0; q < count[v]; q++) out[v][q] = sum[v][q];
        }
    }
}

/* Element [row, column] of the plane of the result, without the padding; `from` is the plane of the
 * source. */
static T sum_inside(const plane_sum *o, const T *from, int64_t row, int64_t column)
{
    const conv_planes *p = o->p;
    T sum = o->bias;
    for (int64_t t = 0; t < o->taps; t++) {
        const int64_t at[2] = {row * p->step[0] + t / p->taps[1] * p->dilation[0] - p->begin[0],
                               column * p->step[1] + t % p->taps[1] * p->dilation[1] - p->begin[1]};
        bool inside = true;
        for (int d = 0; d < 2; d++)
            inside &=
                at[d] >= 0 && at[d] % p->spread[d] == 0 && at[d] / p->spread[d] < p->source[d];
        if (inside)
            sum = FMA(o->w[t * o->w_step],
                      from[at[0] / p->spread[0] * p->source[1] + at[1] / p->spread[1]], sum);
    }
    return sum;
}

/* Computes the NaN of a block again (conv.h). */
static void mend(const plane_sum *o, const plane_block *b, const T *from, T *y)
{
    for (int64_t r = 0; r < b->rows; r++, y += o->p->width)
        for (int64_t c = 0; c < b->columns; c++)
            if (y[c] != y[c]) y[c] = sum_inside(o, from, b->row + r, b->column + c);
}

/* Whether the weights of planes [first, end) are finite. */
static bool weights_are_finite(const T *w, int64_t channels, int64_t taps, int64_t first,
                               int64_t end)
{
    const bool all = first % channels + end - first > channels;
    const int64_t from = all ? 0 : first % channels, n = all ? channels : end - first;
    return conv_all_finite(w + from * taps, n * taps);
}

void KERNEL_NAME(conv_planes)(const weft_call *call, int64_t tile)
{
    const conv_attr *attr = call->attr;
    const bool transposed = attr->size.rank > 0;
    const weft_tensor *source = &call->in[0], *w = &call->in[1], *result = &call->out[0];
    const conv_sizes z = transposed
                             ? conv_sizes_of(attr, &result->shape, &w->shape, &source->shape)
                             : conv_sizes_of(attr, &source->shape, &w->shape, &result->shape);
    const conv_planes p = conv_planes_of(&z, transposed);
    const T *bias = call->n_in > 2 ? call->in[2].data : NULL;
    const int64_t area = p.source[0] * p.source[1], channels = p.planes / z.images;
    int64_t *offset = weft_call_workspace(call);
    T *slab = (T *)(offset + z.taps);
    tap_offsets(&p, offset);
    const int64_t first = tile * p.each, blocks = p.down * p.across;
    const bool finite = weights_are_finite(w->data, channels, z.taps, first / blocks,
                                           (first + p.each - 1) / blocks + 1);
    for (int64_t i = first; i < (tile + 1) * p.each; i++) {
        const plane_block b = block_at(&p, i);
        if (b.plane >= p.planes) return;
        const int64_t image = b.plane / channels, channel = b.plane % channels;
        const int64_t from = image * z.groups + channel / (channels / z.groups);
        const T *x = (const T *)source->data + from * area;
        fill_slab(&p, &b, x, slab);
        const plane_sum o = {.p = &p,
                             .slab = slab,
                             .w = (const T *)w->data + channel * z.taps +
                                  (transposed ? z.taps - 1 : 0),
                             .offset = offset,
                             .taps = z.taps,
                             .w_step = transposed ? -1 : 1,
                             .bias = bias ? bias[channel] : 0};
        T *y = (T *)result->data + (b.plane * p.height + b.row) * p.width + b.column;
        if (p.step[1] == 1)
            sum_block(1, &o, &b, y);
        else if (p.step[1] == 2)
            sum_block(2, &o, &b, y);
        else
            sum_block(0, &o, &b, y);
        if (!finite) mend(&o, &b, x, y);
    }
}

/* ---- The gradient of the kernel: at each tap, the product of dy and the plane there ---- */

/* dy's block in rows of whole vectors, with zeros after each row. */
static void copy_block(const conv_planes *p, const plane_block *b, const T *dy, T *out)
{
    memset(out, 0, (size_t)(b->rows * p->padded) * sizeof *out);
    for (int64_t r = 0; r < b->rows; r++)
        memcpy(out + r * p->padded, dy + (b->row + r) * p->width + b->column,
               (size_t)b->columns * sizeof *out);
}

/* Taps whose sums run side by side. */
#define TAPS 3

/* Adds to sum[0 .. n-1] the products of a block of dy and of the slab at n <= TAPS taps. */
SIMD_INLINE void dot_block(const int step, const plane_sum *o, int64_t rows, const T *dy,
                           int64_t first, double *total)
{
    const conv_planes *p = o->p;
    const int n = o->taps - first < TAPS ? (int)(o->taps - first) : TAPS;
    const T *x[TAPS];
    simd_vector sum[TAPS][SIMD_PARTS];
    for (int t = 0; t < TAPS; t++) { /* the last tap replaces missing ones */
        x[t] = o->slab + o->offset[first + (t < n ? t : n - 1)];
        for (int v = 0; v < SIMD_PARTS; v++) sum[t][v] = (simd_vector){0};
    }
    for (int64_t r = 0; r < rows; r++, dy += p->padded)
        for (int64_t c = 0; c < p->padded; c += SIMD_SPAN) {
            SIMD_UNROLL(4)
            for (int v = 0; v < SIMD_PARTS; v++) {
                const int64_t column = c + v * SIMD_LANES;
                const simd_vector factor = *(const simd_vector *)(dy + column);
                const int64_t at = r * p->step[0] * p->slab_width + column * p->step[1];
                SIMD_UNROLL(3)
                for (int t = 0; t < TAPS; t++)
                    sum[t][v] = simd_fma(factor, load(x[t] + at, step, p->step[1]), sum[t][v]);
            }
        }
    for (int t = 0; t < n; t++)
        for (int64_t l = 0; l < SIMD_SPAN; l++)
            total[first + t] += (double)sum[t][l / SIMD_LANES][l % SIMD_LANES];
}

/* The sum of a tap, without the padding; x and dy are the first planes of the channel. */
static double tap_inside(const conv_sizes *z, const conv_planes *p, const T *x, int64_t x_image,
                         const T *dy, int64_t dy_image, int64_t tap)
{
    double sum = 0;
    for (int64_t n = 0; n < z->images; n++, x += x_image, dy += dy_image)
        for (int64_t i = 0; i < p->height; i++) {
            const int64_t row = i * p->step[0] + tap / p->taps[1] * p->dilation[0] - p->begin[0];
            if (row < 0 || row >= p->source[0]) continue;
            for (int64_t j = 0; j < p->width; j++) {
                const int64_t column =
                    j * p->step[1] + tap % p->taps[1] * p->dilation[1] - p->begin[1];
                if (column >= 0 && column < p->source[1])
                    sum += (double)x[row * p->source[1] + column] * (double)dy[i * p->width + j];
            }
        }
    return sum;
}

void KERNEL_NAME(conv_planes_weight)(const weft_call *call, int64_t tile)
{
    const weft_tensor *x = &call->in[0], *dy = &call->in[1], *dw = &call->out[0];
    const conv_sizes z = conv_sizes_of(call->attr, &x->shape, &dw->shape, &dy->shape);
    const conv_planes p = conv_planes_of(&z, false);
    const int64_t blocks = p.down * p.across, channels = z.groups * z.out_channels;
    const int64_t group = tile / z.out_channels;
    int64_t *offset = weft_call_workspace(call);
    double *sum = (double *)(offset + z.taps);
    T *block = (T *)(sum + z.taps), *slab = block + p.rows * p.padded;
    const plane_sum o = {.p = &p, .slab = slab, .offset = offset, .taps = z.taps};
    tap_offsets(&p, offset);
    memset(sum, 0, (size_t)z.taps * sizeof *sum);
    for (int64_t i = 0; i < z.images * blocks; i++) {
        const plane_block b = block_at(&p, i);
        fill_slab(&p, &b, (const T *)x->data + (b.plane * z.groups + group) * z.in_volume, slab);
        copy_block(&p, &b, (const T *)dy->data + (b.plane * channels + tile) * z.out_volume, block);
        for (int64_t t = 0; t < z.taps; t += TAPS)
            if (p.step[1] == 1)
                dot_block(1, &o, b.rows, block, t, sum);
            else if (p.step[1] == 2)
                dot_block(2, &o, b.rows, block, t, sum);
            else
                dot_block(0, &o, b.rows, block, t, sum);
    }
    T *out = (T *)dw->data + tile * z.taps;
    for (int64_t t = 0; t < z.taps; t++) {
        if (isnan(sum[t])) /* perhaps of the padding alone (conv.h) */
            sum[t] =
                tap_inside(&z, &p, (const T *)x->data + group * z.in_volume, z.groups * z.in_volume,
                           (const T *)dy->data + tile * z.out_volume, channels * z.out_volume, t);
        out[t] = (T)sum[t];
    }
}
