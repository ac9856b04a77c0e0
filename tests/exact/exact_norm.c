/* Normalisation over the last dimension, and its backward pass. See exact.h. */
#include "exact_math.h"

typedef struct norm_attr {
    double eps;
    bool rms, gamma, beta;
} norm_attr;

/* y = (x - mean) rstd gamma + beta, the mean rounded to T; if it is far from zero, what rounding
 * removed is subtracted too. Returns rstd. */
static T normalise_row(const norm_attr *attr, const T *given, int64_t n, const T *gamma,
                       const T *beta, T *mean_out, T *y)
{
    const double fraction = 1 / (double)n;
    T *x = malloc((size_t)(2 * n + 1) * sizeof *x), *space = x + n;
    memcpy(x, given, (size_t)n * sizeof *x);
    T mean = mean_out ? (T)(add_row(0, x, n) * fraction) : 0;
    double square = sum_of_squares(false, x, n, mean, space);
    const bool far = mean_out && mean_is_far(mean, square, n);
    const double low = far ? corrected(false, x, n, &mean, &square, space) : 0;
    if (mean_out) *mean_out = mean;
    const T rstd = (T)(1 / sqrt(square * fraction + attr->eps));
    for (int64_t i = 0; i < n; i++) {
        T centred = x[i] - mean;
        if (far) centred = (centred - (T)low) - 0;
        y[i] = centred * rstd;
        if (gamma) y[i] *= gamma[i];
        if (beta || !gamma) y[i] += beta ? beta[i] : 0;
    }
    free(x);
    return rstd;
}

static void normalise(const void *attr, const weft_tensor *in, T *means, T *rstds, weft_tensor *out)
{
    const norm_attr *a = attr;
    const int64_t n = last_dim(in);
    const T *gamma = a->gamma ? data(&in[1]) : NULL,
            *beta = a->beta ? data(&in[1 + a->gamma]) : NULL;
    for (int64_t r = 0; n && r < numel(in) / n; r++)
        rstds[r] = normalise_row(a, data(in) + r * n, n, gamma, beta, means ? &means[r] : NULL,
                                 data(out) + r * n);
}

EXACT(layer_norm)
{
    UNUSED;
    normalise(attr, in, data(&out[1]), data(&out[2]), out);
}
EXACT(rms_norm)
{
    UNUSED;
    normalise(attr, in, NULL, data(&out[1]), out);
}

/* ---- Backward ---- */

/* A row of x, and of dy; gamma and the mean are NULL where there is none. */
typedef struct row {
    const T *x, *dy, *gamma, *mean;
    T rstd;
} row;

/* dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma. Adds the row's terms to `sums`, those
 * of dgamma and then those of dbeta. */
static void backward_row(const row *r, int64_t n, T *dx, T *sums)
{
    const T *x = r->x, *dy = r->dy;
    T *xhat = malloc((size_t)(3 * n) * sizeof *xhat), *g = xhat + n, *product = g + n;
    const T mean = r->mean ? *r->mean : 0;
    const bool far = r->mean && mean_is_far(mean, 1 / ((double)r->rstd * (double)r->rstd), 1);
    const double sum = far ? sum_of_deviations(false, x, n, mean, xhat) : 0;
    const T low = far ? (T)mean_rounding(mean, sum / (double)n) : 0;
    for (int64_t i = 0; i < n; i++) {
        xhat[i] = (far ? (x[i] - mean) - low : x[i] - mean) * r->rstd;
        g[i] = r->gamma ? dy[i] * r->gamma[i] : dy[i];
        product[i] = g[i] * xhat[i];
        sums[i] += dy[i] * xhat[i];
        sums[n + i] += dy[i];
    }
    const T g_mean = r->mean ? (T)(sum_of_ranges(g, n) / (double)n) : 0;
    const T along = (T)(sum_of_ranges(product, n) / (double)n);
    for (int64_t i = 0; i < n; i++) dx[i] = r->rstd * (g[i] - g_mean - xhat[i] * along);
    free(xhat);
}

/* The sums over rows: 32 rows at a time in T, those of a tile in f64, then the tiles. */
static void backward(const weft_tensor *in, const T *means, const T *rstds, const weft_tensor *dys,
                     const T *gamma, weft_tensor *out)
{
    const int64_t n = last_dim(in), rows = n ? numel(in) / n : 0;
    int64_t each = TILE / (n ? n : 1) + 1;
    if (each < (rows + 31) / 32) each = (rows + 31) / 32;
    T *some = malloc((size_t)(2 * n + 1) * sizeof *some);
    double *tile = malloc((size_t)(4 * n + 1) * sizeof *tile), *total = tile + 2 * n;
    for (int64_t i = 0; i < 2 * n; i++) total[i] = tile[i] = some[i] = 0;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t within = r % each;
        const row given = {data(in) + r * n, data(dys) + r * n, gamma, means ? &means[r] : NULL,
                           rstds[r]};
        backward_row(&given, n, data(out) + r * n, some);
        const bool tile_ends = within == each - 1 || r == rows - 1;
        for (int64_t i = 0; i < 2 * n && (tile_ends || within % 32 == 31); i++) {
            tile[i] += (double)some[i];
            some[i] = 0;
        }
        for (int64_t i = 0; i < 2 * n && tile_ends; i++) {
            total[i] += tile[i];
            tile[i] = 0;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        data(&out[1])[i] = (T)total[i];
        if (means) data(&out[2])[i] = (T)total[n + i];
    }
    free(some);
    free(tile);
}

EXACT(layer_norm_grad)
{
    UNUSED;
    const bool gamma = ((const norm_attr *)attr)->gamma;
    backward(in, data(&in[1]), data(&in[2]), &in[3], gamma ? data(&in[4]) : NULL, out);
}
EXACT(rms_norm_grad)
{
    UNUSED;
    const bool gamma = ((const norm_attr *)attr)->gamma;
    backward(in, NULL, data(&in[1]), &in[2], gamma ? data(&in[3]) : NULL, out);
}

EXACT_TABLE(norm) = {
    ROW(layer_norm), ROW(rms_norm), ROW(layer_norm_grad), ROW(rms_norm_grad), {NULL, NULL}};
