/* The kernels of batch norm and of its backward pass, O(elements).
 *
 *     xhat = (x - mean) rstd,  y = xhat gamma + beta,  rstd = (variance + eps)^(-1/2)
 *     dx = gamma rstd (dy - mean(dy) - xhat mean(dy xhat))
 *     dgamma = sum of dy xhat,  dbeta = sum of dy, over the elements of a channel
 *
 * Phase 0 computes f64 numbers of each piece of a channel, which go to scratch: forward its
 * moments, backward the sums of dy, of dy (x - mean) and, where the mean is far from zero, of x -
 * mean, which is its rounding error (moments.h). Phase 1 adds up the pieces in order, which every
 * tile does for the channels that it needs, and writes y or dx. Backward, a tile that has all
 * elements of a channel writes its dx in phase 0, while x and dy are in the cache. Elements of
 * small images are packed, so that sums are of long rows. Of images of one position, which are rows
 * of a matrix, neighbouring channels are summed together, row by row. */
#include "batch_norm.h"

#include "kernels/moments.h"

/* ---- The elements of a channel ---- */

/* Elements [from, end) of channel c, image by image: where the first of them lies in x, and how
 * many follow it there. */
static inline int64_t span_of(const batch_norm_sizes *z, int64_t c, int64_t from, int64_t end,
                              int64_t *offset)
{
    const int64_t within = from % z->volume, rest = z->volume - within;
    *offset = (from / z->volume * z->channels + c) * z->volume + within;
    return rest < end - from ? rest : end - from;
}

/* Packs n elements of channel c, from element `from` on. */
static inline void pack_elements(const batch_norm_sizes *z, int64_t c, int64_t from, int64_t n,
                                 const T *x, T *packed)
{
    const T *image = x + (from / z->volume * z->channels + c) * z->volume;
    int64_t filled = 0;
    for (int64_t i = from % z->volume; filled < n; i = 0, image += z->channels * z->volume)
        for (; i < z->volume && filled < n; i++) packed[filled++] = image[i];
}

/* The next elements of channel c as a row: where they lie if they are enough, or packed. Returns
 * their number, which is the same for all tensors of this shape. */
static inline int64_t next_row(const batch_norm_sizes *z, int64_t c, int64_t from, int64_t end,
                               const T *x, T *packed, const T **row)
{
    int64_t offset, n = span_of(z, c, from, end, &offset);
    if (n >= BLOCK / 16 || n == end - from) {
        *row = x + offset;
        return n < BLOCK ? n : BLOCK;
    }
    n = end - from < BLOCK ? end - from : BLOCK;
    pack_elements(z, c, from, n, x, packed);
    *row = packed;
    return n;
}

static inline int64_t piece_begin(const batch_norm_sizes *z, int64_t piece)
{
    return z->count * piece / z->pieces;
}

/* The numbers of a piece of channel c. */
static inline double *numbers_of(const weft_call *call, const batch_norm_sizes *z, int64_t c,
                                 int64_t piece)
{
    return (double *)call->scratch + NUMBERS * (c * z->pieces + piece);
}

/* A loop over the channels of a tile of sums. Declares `c`. */
#define EACH_CHANNEL(z, tile, c)                                                                   \
    for (int64_t c = (tile) / (z).pieces * (z).each;                                               \
         c < (z).channels && c < ((tile) / (z).pieces + 1) * (z).each; c++)

/* ---- Blocks ---- */

/* Some neighbouring elements of a block: of one channel, or, by columns, one of each channel. */
typedef struct run {
    int64_t first, count, slot; /* slot: the channel's number among those of the block */
} run;

/* The channels of a block begin with `channel` and continue cyclically. */
typedef struct runs {
    weft_block block;
    int64_t channel, channels, plane, row;
} runs;

static inline runs runs_of(const batch_norm_sizes *z, int64_t tile)
{
    runs r = {.block = batch_norm_block(z, tile)};
    r.row = r.block.row;
    r.channel = r.block.column;
    r.channels = r.block.columns;
    if (!z->height) return r;
    r.plane = r.row / z->height;
    r.channel = r.plane % z->channels;
    r.channels = (r.row + r.block.rows - 1) / z->height - r.plane + 1;
    if (r.channels > z->channels) r.channels = z->channels;
    return r;
}

static inline bool next_run(const batch_norm_sizes *z, runs *r, run *out)
{
    const int64_t end = r->block.row + r->block.rows;
    int64_t last = r->row + 1;
    if (r->row >= end) return false;
    out->slot = 0;
    if (z->height) {
        const int64_t plane = r->row / z->height;
        out->slot = (plane - r->plane) % z->channels;
        last = (plane + 1) * z->height < end ? (plane + 1) * z->height : end;
    }
    out->first = r->row * z->width + r->block.column;
    out->count = (last - r->row - 1) * z->width + r->block.columns;
    r->row = last;
    return true;
}

static inline int64_t channel_of(const batch_norm_sizes *z, const runs *r, int64_t slot)
{
    return (r->channel + slot) % z->channels;
}

/* Whether the block has the first element of the channel in this slot. */
static inline bool has_first(const batch_norm_sizes *z, const runs *r, int64_t slot)
{
    const int64_t row = z->height ? channel_of(z, r, slot) * z->height : 0;
    return row >= r->block.row && row < r->block.row + r->block.rows &&
           (r->block.column == 0 || !z->height);
}

/* Rows of a matrix whose columns are summed together, and stay in the cache meanwhile. */
#define COLUMN_ROWS 64
/* The same, several at a time. Declares them: `n` channels from `c` on. */
#define EACH_CHANNELS(z, tile, c, n)                                                               \
    for (int64_t c = (tile) / (z).pieces * (z).each, n;                                            \
         (n = channels_together(&(z), tile, c)) > 0; c += n)

static inline int64_t channels_together(const batch_norm_sizes *z, int64_t tile, int64_t c)
{
    const int64_t end = (tile / z->pieces + 1) * z->each;
    const int64_t left = (end < z->channels ? end : z->channels) - c;
    return left < MOMENT_COLUMNS ? left : MOMENT_COLUMNS;
}

/* ---- Forward ---- */

/* Stores the moments of a piece of channel c. */
static inline void put_moments(const weft_call *call, const batch_norm_sizes *z, int64_t c,
                               int64_t piece, double mean, double squares)
{
    double *numbers = numbers_of(call, z, c, piece);
    numbers[0] = mean;
    numbers[1] = squares;
    if (z->pieces > 1) return;
    ((T *)call->out[1].data)[c] = (T)(z->count ? mean : (double)NAN);
    ((T *)call->out[2].data)[c] = (T)(squares / (double)z->count);
}

/* sum_moments for images of one position. */
static inline void sum_column_moments(const weft_call *call, const batch_norm_sizes *z,
                                      int64_t tile)
{
    const int64_t piece = tile % z->pieces, begin = piece_begin(z, piece);
    const int64_t end = piece_begin(z, piece + 1);
    EACH_CHANNELS(*z, tile, first, n)
    {
        const T *x = (const T *)call->in[0].data + first;
        double state[2 * MOMENT_COLUMNS] = {0}, more[2 * MOMENT_COLUMNS];
        for (int64_t from = begin, rows; from < end; from += rows) {
            rows = end - from < COLUMN_ROWS ? end - from : COLUMN_ROWS;
            moments_columns(x + from * z->channels, rows, z->channels, n, more);
            moments_merge(state, from - begin, more, rows, n);
        }
        for (int64_t i = 0; i < n; i++)
            put_moments(call, z, first + i, piece, state[i], state[n + i]);
    }
}

static inline void sum_moments(const weft_call *call, const batch_norm_sizes *z, int64_t tile)
{
    const int64_t piece = tile % z->pieces, begin = piece_begin(z, piece);
    T *packed = weft_call_workspace(call);
    EACH_CHANNEL(*z, tile, c)
    {
        double state[2] = {0, 0}, more[2];
        for (int64_t from = begin, end = piece_begin(z, piece + 1), n; from < end; from += n) {
            const T *row;
            n = next_row(z, c, from, end, call->in[0].data, packed, &row);
            moments_row(row, n, more);
            moments_merge(state, from - begin, more, n, 1);
        }
        put_moments(call, z, c, piece, state[0], state[1]);
    }
}

/* Mean and variance of channel c. Returns how far it is above `mean`, its rounded value, if it is
 * far from zero; else 0. */
static inline double moments_of_channel(const weft_call *call, const batch_norm_sizes *z, int64_t c,
                                        T *mean, T *variance)
{
    double state[2];
    memcpy(state, numbers_of(call, z, c, 0), sizeof state);
    for (int64_t p = 1; p < z->pieces; p++) {
        const int64_t begin = piece_begin(z, p);
        moments_merge(state, begin, numbers_of(call, z, c, p), piece_begin(z, p + 1) - begin, 1);
    }
    *mean = (T)state[0];
    *variance = (T)(state[1] / (double)z->count);
    return mean_is_far(*mean, state[1], z->count) ? state[0] - (double)*mean : 0;
}

static inline double rstd_of(const weft_call *call, T variance)
{
    const batch_norm_attr *attr = call->attr;
    return 1 / sqrt((double)variance + attr->eps);
}

static inline void normalise(const weft_call *call, const batch_norm_sizes *z, int64_t tile)
{
    const int64_t room = batch_norm_block_channels(z);
    const T *x = call->in[0].data, *gamma = call->in[1].data, *beta = call->in[2].data;
    T *y = call->out[0].data, *means = weft_call_workspace(call);
    T *scales = means + room, *shifts = scales + room;
    runs r = runs_of(z, tile);
    for (int64_t i = 0; i < r.channels; i++) {
        const int64_t c = channel_of(z, &r, i);
        T variance;
        const double low = moments_of_channel(call, z, c, &means[i], &variance);
        const double scale = (double)gamma[c] * rstd_of(call, variance);
        scales[i] = (T)scale;
        shifts[i] = (T)((double)beta[c] - low * scale);
        if (z->pieces == 1 || !has_first(z, &r, i)) continue;
        ((T *)call->out[1].data)[c] = means[i];
        ((T *)call->out[2].data)[c] = variance;
    }
    for (run s; next_run(z, &r, &s);) {
        const T *from = x + s.first, mean = means[s.slot], scale = scales[s.slot];
        const T shift = shifts[s.slot];
        T *to = y + s.first;
        if (z->height)
            for (int64_t i = 0; i < s.count; i++) to[i] = (from[i] - mean) * scale + shift;
        else
            for (int64_t i = 0; i < s.count; i++)
                to[i] = (from[i] - means[i]) * scales[i] + shifts[i];
    }
}

KERNEL(batch_norm)
{
    const batch_norm_sizes z = batch_norm_sizes_of(&call->in[0].shape);
    if (call->phase == 0)
        (z.volume == 1 ? sum_column_moments : sum_moments)(call, &z, tile);
    else
        normalise(call, &z, tile);
}

/* ---- Backward: inputs x, mean, variance, dy, gamma; outputs dx, dgamma, dbeta ---- */

/* Of a channel: dx = scale (dy - offset - (x - mean) slope). */
typedef struct backward {
    T mean, scale, offset, slope;
} backward;

/* From the sums of dy, dy (x - mean) and x - mean. Writes dgamma and dbeta if asked to. */
static inline backward backward_of(const weft_call *call, const batch_norm_sizes *z, int64_t c,
                                   const double *sums, bool write)
{
    const double rstd = rstd_of(call, ((const T *)call->in[2].data)[c]);
    const double fraction = z->count ? 1 / (double)z->count : 0;
    const double low = mean_rounding(((const T *)call->in[1].data)[c], sums[2] * fraction);
    const double dgamma = (sums[1] - low * sums[0]) * rstd, slope = dgamma * fraction * rstd;
    if (write) {
        ((T *)call->out[1].data)[c] = (T)dgamma;
        ((T *)call->out[2].data)[c] = (T)sums[0];
    }
    return (backward){((const T *)call->in[1].data)[c],
                      (T)((double)((const T *)call->in[4].data)[c] * rstd),
                      (T)(sums[0] * fraction - low * slope), (T)slope};
}

static inline void backward_row(int64_t n, const T *x, const T *dy, T *dx, backward b)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = b.scale * (dy[i] - b.offset - (x[i] - b.mean) * b.slope);
}

/* Adds to sums the row's sums of dy, dy (x - mean) and, of a mean far from zero, x - mean. */
static inline void add_row(const T *x, const T *dy, int64_t n, T mean, bool far, double *sums)
{
    double product = 0;
#define TERM(i) (dy[i] * (x[i] - mean))
    SUM_ROW(product, n, TERM)
#undef TERM
    sums[0] += sum_of(dy, n);
    sums[1] += product;
    if (far) sums[2] += deviation_of(x, n, mean) * (double)n;
}

static inline void sum_backward(const weft_call *call, const batch_norm_sizes *z, int64_t tile)
{
    const T *x = call->in[0].data, *means = call->in[1].data, *variances = call->in[2].data;
    const T *dy = call->in[3].data;
    const int64_t piece = tile % z->pieces, begin = piece_begin(z, piece);
    const int64_t end = piece_begin(z, piece + 1);
    T *packed = weft_call_workspace(call), *dx = call->out[0].data;
    EACH_CHANNEL(*z, tile, c)
    {
        double sums[NUMBERS] = {0};
        const bool far = mean_is_far(means[c], (double)variances[c], 1);
        for (int64_t from = begin, n; from < end; from += n) {
            const T *row, *dy_row;
            n = next_row(z, c, from, end, x, packed, &row);
            next_row(z, c, from, end, dy, packed + batch_norm_run(z), &dy_row);
            add_row(row, dy_row, n, means[c], far, sums);
        }
        memcpy(numbers_of(call, z, c, piece), sums, sizeof sums);
        if (z->pieces > 1) continue;
        const backward b = backward_of(call, z, c, sums, true);
        for (int64_t from = 0, n, at; z->whole && from < end; from += n) {
            n = span_of(z, c, from, end, &at);
            backward_row(n, x + at, dy + at, dx + at, b);
        }
    }
}

/* sum_backward for images of one position. */
static inline void sum_column_backward(const weft_call *call, const batch_norm_sizes *z,
                                       int64_t tile)
{
    const int64_t piece = tile % z->pieces, end = piece_begin(z, piece + 1), row = z->channels;
    EACH_CHANNELS(*z, tile, first, n)
    {
        const T *mean = (const T *)call->in[1].data + first,
                *variance = (const T *)call->in[2].data + first;
        double sums[NUMBERS][MOMENT_COLUMNS] = {{0}};
        int far = 0;
        for (int64_t i = 0; i < n; i++) far |= mean_is_far(mean[i], (double)variance[i], 1);
        for (int64_t from = piece_begin(z, piece), rows; from < end; from += rows) {
            const T *x = (const T *)call->in[0].data + from * row + first;
            const T *dy = (const T *)call->in[3].data + from * row + first;
            rows = end - from < COLUMN_ROWS ? end - from : COLUMN_ROWS;
#define DY(i)        dy[(i)*row + c]
#define DEVIATION(i) (x[(i)*row + c] - mean[c])
#define PRODUCT(i)   (DY(i) * DEVIATION(i))
            SUM_COLUMNS(sums[0], rows, n, DY)
            SUM_COLUMNS(sums[1], rows, n, PRODUCT)
            if (far) SUM_COLUMNS(sums[2], rows, n, DEVIATION)
        }
        for (int64_t i = 0; i < n; i++) {
            double *numbers = numbers_of(call, z, first + i, piece);
            const bool own = mean_is_far(mean[i], (double)variance[i], 1);
            for (int k = 0; k < NUMBERS; k++) numbers[k] = k < 2 || own ? sums[k][i] : 0;
            if (z->pieces == 1) backward_of(call, z, first + i, numbers, true);
        }
    }
}

static inline void write_dx(const weft_call *call, const batch_norm_sizes *z, int64_t tile)
{
    const T *x = call->in[0].data, *dy = call->in[3].data;
    T *dx = call->out[0].data;
    backward *of = weft_call_workspace(call);
    runs r = runs_of(z, tile);
    for (int64_t i = 0; i < r.channels; i++) {
        const int64_t c = channel_of(z, &r, i);
        double sums[NUMBERS] = {0};
        for (int64_t p = 0; p < z->pieces; p++)
            for (int k = 0; k < NUMBERS; k++) sums[k] += numbers_of(call, z, c, p)[k];
        of[i] = backward_of(call, z, c, sums, z->pieces > 1 && has_first(z, &r, i));
    }
    for (run s; next_run(z, &r, &s);) {
        if (z->height)
            backward_row(s.count, x + s.first, dy + s.first, dx + s.first, of[s.slot]);
        else
            for (int64_t i = 0; i < s.count; i++)
                backward_row(1, x + s.first + i, dy + s.first + i, dx + s.first + i, of[i]);
    }
}

KERNEL(batch_norm_grad)
{
    const batch_norm_sizes z = batch_norm_sizes_of(&call->in[0].shape);
    if (call->phase == 0)
        (z.volume == 1 ? sum_column_backward : sum_backward)(call, &z, tile);
    else
        write_dx(call, &z, tile);
}
