/* Batch normalisation and its backward pass. See exact.h.
 *
 * The sums of a channel run over its elements, image by image, in pieces if channels are few and
 * large; within a piece, in rows of elements. If an image has one position, they are columns of a
 * matrix, 64 rows at a time. */
#include "exact_math.h"

#define BLOCK 4096

typedef struct plan {
    int64_t channels, volume, count; /* positions of an image; elements of a channel */
    int64_t pieces;
} plan;

static plan plan_of(const weft_shape *x)
{
    plan p = {.channels = x->dim[1], .volume = 1};
    for (int d = 2; d < x->rank; d++) p.volume *= x->dim[d];
    p.count = x->dim[0] * p.volume;
    const int64_t together = p.volume == 1 ? 64 : p.volume < 16 ? 16 : 1;
    int64_t each = TILE / (p.count ? p.count : 1); /* channels that a tile sums */
    if (each < together) each = together;
    const int64_t groups = (p.channels + each - 1) / each;
    p.pieces = groups ? (32 + groups - 1) / groups : 1;
    if (p.pieces > p.count / TILE) p.pieces = p.count / TILE;
    if (p.pieces < 1) p.pieces = 1;
    return p;
}

/* Element i of channel c. */
static int64_t element(const plan *p, int64_t c, int64_t i)
{
    return (i / p->volume * p->channels + c) * p->volume + i % p->volume;
}

/* How many elements from `from` on, up to `end`, are summed as one. */
static int64_t together(const plan *p, int64_t from, int64_t end)
{
    const int64_t left = end - from, image = p->volume - from % p->volume;
    if (p->volume == 1) return left < 64 ? left : 64;
    const int64_t n = image < left ? image : left;
    if (n >= BLOCK / 16) return n < BLOCK ? n : BLOCK;
    return left < BLOCK ? left : BLOCK;
}

/* The moments of channel c. */
static moments moments_of(const plan *p, const T *x, int64_t c)
{
    T row[BLOCK], space[BLOCK];
    moments all = {0, 0};
    for (int64_t piece = 0; piece < p->pieces; piece++) {
        const int64_t begin = p->count * piece / p->pieces,
                      end = p->count * (piece + 1) / p->pieces;
        moments m = {0, 0};
        for (int64_t from = begin, n; from < end; from += n) {
            n = together(p, from, end);
            for (int64_t i = 0; i < n; i++) row[i] = x[element(p, c, from + i)];
            m = merged(m, from - begin, exact_moments(p->volume == 1, row, n, space), n);
        }
        all = piece ? merged(all, begin, m, end - begin) : m;
    }
    return all;
}

EXACT(batch_norm)
{
    UNUSED;
    const plan p = plan_of(&in->shape);
    const double eps = *(const double *)attr;
    for (int64_t c = 0; c < p.channels; c++) {
        const moments m = moments_of(&p, data(in), c);
        const T mean = (T)m.mean, variance = (T)(m.square / (double)p.count);
        const double low = mean_is_far(mean, m.square, p.count) ? m.mean - (double)mean : 0;
        const double scale = (double)data(&in[1])[c] * (1 / sqrt((double)variance + eps));
        const T shift = (T)((double)data(&in[2])[c] - low * scale);
        for (int64_t i = 0; i < p.count; i++) {
            const int64_t k = element(&p, c, i);
            data(out)[k] = (data(in)[k] - mean) * (T)scale + shift;
        }
        data(&out[1])[c] = p.count ? mean : (T)NAN;
        data(&out[2])[c] = variance;
    }
}

/* The sums of dy, of dy (x - mean), and of x - mean if the mean is far from zero. */
typedef struct sums {
    double dy, product, deviation;
} sums;

static void add_rows(sums *s, bool column, const T *x, const T *dy, int64_t n, T mean, bool far)
{
    T space[BLOCK];
    for (int64_t i = 0; i < n; i++) space[i] = dy[i] * (x[i] - mean);
    if (column) {
        s->dy = add_column(s->dy, dy, n);
        s->product = add_column(s->product, space, n);
        for (int64_t i = 0; i < n; i++) space[i] = x[i] - mean;
        if (far) s->deviation = add_column(s->deviation, space, n);
        return;
    }
    s->dy += add_row(0, dy, n);
    s->product += add_row(0, space, n);
    if (far) s->deviation += sum_of_deviations(false, x, n, mean, space) / (double)n * (double)n;
}

static sums sums_of(const plan *p, const T *x, const T *dy, int64_t c, T mean, bool far)
{
    T row[BLOCK], dy_row[BLOCK];
    sums all = {0, 0, 0};
    for (int64_t piece = 0; piece < p->pieces; piece++) {
        sums s = {0, 0, 0};
        const int64_t begin = p->count * piece / p->pieces,
                      end = p->count * (piece + 1) / p->pieces;
        for (int64_t from = begin, n; from < end; from += n) {
            n = together(p, from, end);
            for (int64_t i = 0; i < n; i++) {
                row[i] = x[element(p, c, from + i)];
                dy_row[i] = dy[element(p, c, from + i)];
            }
            add_rows(&s, p->volume == 1, row, dy_row, n, mean, far);
        }
        all.dy += s.dy;
        all.product += s.product;
        all.deviation += s.deviation;
    }
    return all;
}

/* Of x, mean, variance, dy and gamma. */
EXACT(batch_norm_grad)
{
    UNUSED;
    const plan p = plan_of(&in->shape);
    const double eps = *(const double *)attr, fraction = p.count ? 1 / (double)p.count : 0;
    for (int64_t c = 0; c < p.channels; c++) {
        const T mean = data(&in[1])[c], variance = data(&in[2])[c];
        const sums s =
            sums_of(&p, data(in), data(&in[3]), c, mean, mean_is_far(mean, (double)variance, 1));
        const double rstd = 1 / sqrt((double)variance + eps);
        const double low = mean_rounding(mean, s.deviation * fraction);
        const double dgamma = (s.product - low * s.dy) * rstd, slope = dgamma * fraction * rstd;
        const T scale = (T)((double)data(&in[4])[c] * rstd);
        const T offset = (T)(s.dy * fraction - low * slope);
        for (int64_t i = 0; i < p.count; i++) {
            const int64_t k = element(&p, c, i);
            data(out)[k] = scale * (data(&in[3])[k] - offset - (data(in)[k] - mean) * (T)slope);
        }
        data(&out[1])[c] = (T)dgamma;
        data(&out[2])[c] = (T)s.dy;
    }
}

EXACT_TABLE(batch_norm) = {ROW(batch_norm), ROW(batch_norm_grad), {NULL, NULL}};
