/* Convolutions by Winograd's method. See exact.h. */
#include "exact_math.h"

typedef struct conv_rows_attr {
    weft_shape kernel, stride, dilation, pad_begin, pad_end;
    int64_t columns;
    bool bounded;
    double low, high;
} conv_rows_attr;

#define PANEL 32
#define CHAIN 128
#define ROOT  0.70710678118654752

/* ---- Lines of a tile, elements `step` apart ---- */

static void input_line(int m, const T *d, int64_t step, T *v)
{
    T x[6] = {0};
    for (int i = 0; i < m + 2; i++) x[i] = d[i * step];
    if (m == 2) {
        const T y[4] = {x[0] - x[2], x[1] + x[2], x[2] - x[1], x[1] - x[3]};
        for (int i = 0; i < 4; i++) v[i * step] = y[i];
        return;
    }
    const T a = (T)ROOT, b = (T)(2 * ROOT), half = (T)0.5, two_and_half = (T)2.5;
    const T near = x[4] - 2 * x[2], far = x[4] - half * x[2];
    const T near_odd = a * (x[3] - 2 * x[1]), far_odd = b * (x[3] - half * x[1]);
    const T y[6] = {(x[0] - two_and_half * x[2]) + x[4],
                    near + near_odd,
                    near - near_odd,
                    far + far_odd,
                    far - far_odd,
                    (x[1] - two_and_half * x[3]) + x[5]};
    for (int i = 0; i < 6; i++) v[i * step] = y[i];
}

static void output_line(int m, const T *s, int64_t step, T *y)
{
    T x[6] = {0};
    for (int i = 0; i < m + 2; i++) x[i] = s[i * step];
    if (m == 2) {
        y[0] = (x[0] + x[1]) + x[2];
        y[step] = (x[1] - x[2]) - x[3];
        return;
    }
    const T a = (T)ROOT, b = (T)(2 * ROOT), half = (T)0.5;
    const T near = x[1] + x[2], near_odd = x[1] - x[2], far = x[3] + x[4], far_odd = x[3] - x[4];
    y[0] = (x[0] + near) + far;
    y[step] = a * near_odd + b * far_odd;
    y[2 * step] = half * near + 2 * far;
    y[3 * step] = (half * a * near_odd + 2 * b * far_odd) + x[5];
}

/* ---- Ops ---- */

EXACT(winograd_weights)
{
    UNUSED;
    const int64_t m = *(const int64_t *)attr, n = m + 2, channels = in->shape.dim[1];
    static const double two[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
    static const double four[6][3] = {{1, 0, 0},
                                      {-2 / 3.0, ROOT * -2 / 3.0, -1 / 3.0},
                                      {-2 / 3.0, ROOT * 2 / 3.0, -1 / 3.0},
                                      {1 / 6.0, ROOT * 2 / 6.0, 1 / 3.0},
                                      {1 / 6.0, ROOT * -2 / 6.0, 1 / 3.0},
                                      {0, 0, 1}};
    const double(*rows)[3] = m == 2 ? two : four;
    for (int64_t e = 0; e < numel(out); e++) {
        const int64_t c = e / PANEL % channels, p = e / PANEL / channels % (n * n);
        const int64_t o = e / PANEL / channels / (n * n) * PANEL + e % PANEL;
        const double *a = rows[p / n], *b = rows[p % n];
        double taps[3];
        for (int64_t q = 0; q < 3; q++) {
            double g[3] = {0}; /* beyond the last column, which decides the sign of zeros */
            for (int64_t i = 0; i < 3 && o < in->shape.dim[0]; i++)
                g[i] = (double)data(in)[(o * channels + c) * 9 + 3 * i + q];
            taps[q] = (a[0] * g[0] + a[1] * g[1]) + a[2] * g[2];
        }
        data(out)[e] = (T)((b[0] * taps[0] + b[1] * taps[1]) + b[2] * taps[2]);
    }
}

/* v = the tile of channel c, from pixel [i, j] of an image on, transformed. */
static void input_tile(int m, const weft_tensor *x, int64_t image, const int64_t *first, int64_t c,
                       T *v)
{
    const int64_t n = m + 2, height = x->shape.dim[1], width = x->shape.dim[2];
    for (int64_t p = 0; p < n * n; p++) {
        const int64_t i = first[0] + p / n, j = first[1] + p % n;
        const bool inside = i >= 0 && i < height && j >= 0 && j < width;
        v[p] = inside ? data(x)[((image * height + i) * width + j) * x->shape.dim[3] + c] : (T)0;
    }
    for (int64_t j = 0; j < n; j++) input_line(m, v + j, n, v + j);
    for (int64_t i = 0; i < n; i++) input_line(m, v + i * n, 1, v + i * n);
}

/* The chain over channels at each position; u is the first weight of a column. */
static void sums_of(int m, const weft_tensor *x, const T *u, int64_t image, const int64_t *first,
                    T *total)
{
    const int64_t positions = (m + 2) * (m + 2), channels = x->shape.dim[3];
    T part[36] = {0}, v[36];
    for (int64_t c = 0; c < channels; c++) {
        input_tile(m, x, image, first, c, v);
        for (int64_t p = 0; p < positions; p++) {
            if (c && c % CHAIN == 0) {
                total[p] = c == CHAIN ? part[p] : total[p] + part[p];
                part[p] = 0;
            }
            part[p] = FMA(v[p], u[(p * channels + c) * PANEL], part[p]);
        }
    }
    for (int64_t p = 0; p < positions; p++)
        total[p] = channels > CHAIN ? total[p] + part[p] : part[p];
}

EXACT(conv_winograd)
{
    UNUSED;
    const conv_rows_attr *a = attr;
    const int m = in[1].shape.dim[1] == 16 ? 2 : 4;
    const int64_t n = m + 2, depth = n * n * in->shape.dim[3];
    const int64_t height = out->shape.dim[1], width = out->shape.dim[2];
    for (int64_t e = 0; e < numel(out); e++) {
        const int64_t o = e % a->columns, pixel = e / a->columns, i = pixel / width % height,
                      j = pixel % width;
        const int64_t first[2] = {i / m * m - a->pad_begin.dim[0], j / m * m - a->pad_begin.dim[1]};
        T total[36] = {0}, down[24], y[24];
        sums_of(m, in, data(&in[1]) + o / PANEL * depth * PANEL + o % PANEL, pixel / width / height,
                first, total);
        for (int64_t k = 0; k < n; k++) output_line(m, total + k, n, down + k);
        for (int64_t k = 0; k < m; k++) output_line(m, down + k * n, 1, y + k * m);
        T sum = y[i % m * m + j % m];
        if (n_in > 2) sum = sum + data(&in[2])[o];
        if (a->bounded) sum = sum < (T)a->low ? (T)a->low : sum > (T)a->high ? (T)a->high : sum;
        data(out)[e] = sum;
    }
}

EXACT_TABLE(winograd) = {ROW(winograd_weights), ROW(conv_winograd), {NULL, NULL}};
