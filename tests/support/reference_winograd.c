/* Naive references of convolution by Winograd's method: see reference.h. The matrices are those of
 * Cook and Toom for the points 0, p, -p, ... and infinity, and each sum is over all of a tile. */
#include "reference_data.h"

#define MAX_SIDE 6

/* The matrices of tiles of m: Bt [n, n], G [n, 3] and At [m, n]. */
typedef struct matrices {
    int m, n;
    double b[MAX_SIDE][MAX_SIDE], g[MAX_SIDE][3], a[4][MAX_SIDE];
} matrices;

/* Multiplies a polynomial of `degree` by (x - root). */
static void multiply(double *polynomial, int degree, double root)
{
    polynomial[degree + 1] = 0;
    for (int i = degree + 1; i > 0; i--) polynomial[i] = polynomial[i - 1] - root * polynomial[i];
    polynomial[0] *= -root;
}

/* The points of F(2x2) are 0, 1, -1, and those of F(4x4) 0, +-sqrt(1/2), +-sqrt 2. Row i of Bt is
 * the product of (x - p) over the other finite points p; row i of G is divided by its value at
 * point i. F(2x2) has the other sign at 0 and at infinity. */
static matrices matrices_of(int m)
{
    const double points[2][5] = {{0, 1, -1}, {0, sqrt(0.5), -sqrt(0.5), sqrt(2), -sqrt(2)}};
    const double *p = points[m == 4];
    matrices t = {.m = m, .n = m + 2};
    for (int i = 0; i < t.n; i++) {
        double norm = 1, row[MAX_SIDE + 1] = {1};
        int degree = 0;
        for (int k = 0; k < t.n - 1; k++) {
            if (k == i) continue;
            multiply(row, degree++, p[k]);
            if (i < t.n - 1) norm *= p[i] - p[k];
        }
        const bool last = i == t.n - 1;
        const double sign = m == 2 && (i == 0 || last) ? -1 : 1;
        for (int k = 0; k < t.n; k++) t.b[i][k] = sign * row[k];
        for (int k = 0; k < 3; k++) t.g[i][k] = last ? k == 2 : pow(p[i], k) / norm * sign;
        for (int k = 0; k < m; k++) t.a[k][i] = last ? sign * (k == m - 1) : pow(p[i], k);
    }
    return t;
}

REFERENCE(winograd_weights)
{
    UNUSED;
    const matrices t = matrices_of((int)*(const int64_t *)attr);
    const int64_t channels = in->shape.dim[1], n = t.n;
    for (int64_t e = 0; e < numel(out); e++) {
        const int64_t c = e / 32 % channels, p = e / 32 / channels % (n * n);
        const int64_t o = e / 32 / channels / (n * n) * 32 + e % 32;
        for (int64_t q = 0; q < 9 && o < in->shape.dim[0]; q++)
            data(out)[e] +=
                t.g[p / n][q / 3] * t.g[p % n][q % 3] * data(in)[(o * channels + c) * 9 + q];
    }
}

/* The sum of a position of the tile that begins at pixel `first` of an image. */
static double position(const matrices *t, const weft_tensor *in, int64_t image,
                       const int64_t *first, int64_t p, int64_t o)
{
    const int64_t n = t->n, channels = in->shape.dim[3];
    double sum = 0;
    for (int64_t q = 0; q < n * n; q++) {
        const int64_t i = first[0] + q / n, j = first[1] + q % n;
        const double factor = t->b[p / n][q / n] * t->b[p % n][q % n];
        if (i < 0 || i >= in->shape.dim[1] || j < 0 || j >= in->shape.dim[2]) continue;
        const double *x =
            data(in) + ((image * in->shape.dim[1] + i) * in->shape.dim[2] + j) * channels;
        const double *u = data(&in[1]) + (o / 32 * n * n + p) * channels * 32 + o % 32;
        for (int64_t c = 0; c < channels; c++) sum += factor * x[c] * u[c * 32];
    }
    return sum;
}

REFERENCE(conv_winograd)
{
    UNUSED;
    const conv_rows_attr *a = attr;
    const matrices t = matrices_of(in[1].shape.dim[1] == 16 ? 2 : 4);
    for (int64_t e = 0; e < numel(out); e++) {
        int64_t at[4];
        coordinates(out->shape, e, at);
        double sum = n_in > 2 ? data(&in[2])[at[3]] : 0;
        const int64_t first[2] = {at[1] / t.m * t.m - a->pad_begin.dim[0],
                                  at[2] / t.m * t.m - a->pad_begin.dim[1]};
        for (int64_t p = 0; p < t.n * t.n; p++)
            sum += t.a[at[1] % t.m][p / t.n] * t.a[at[2] % t.m][p % t.n] *
                   position(&t, in, at[0], first, p, at[3]);
        data(out)[e] = !a->bounded || isnan(sum) ? sum : fmin(fmax(sum, a->low), a->high);
    }
}

const reference references_winograd[] = {SAME(winograd_weights), SAME(conv_winograd), {NULL, NULL}};
