/* Convolution by Winograd's method (ops/conv/winograd.h): its weights, and a tile of pixels at a
 * time. */

static void winograd_weights(const T *w, T *u, int results, int channels, int m)
{
    static const double root = 0.70710678118654752;
    const double two[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
    const double four[6][3] = {{1, 0, 0},
                               {-2 / 3.0, root * -2 / 3.0, -1 / 3.0},
                               {-2 / 3.0, root * 2 / 3.0, -1 / 3.0},
                               {1 / 6.0, root * 2 / 6.0, 1 / 3.0},
                               {1 / 6.0, root * -2 / 6.0, 1 / 3.0},
                               {0, 0, 1}};
    const double(*const rows)[3] = m == 2 ? two : four;
    const int n = m + 2;
    int o, c, i, j, q;
    for (o = 0; o < (results + 31) / 32 * 32; o++)
        for (c = 0; c < channels; c++)
            for (i = 0; i < n; i++) {
                double line[3];
                for (q = 0; q < 3; q++) {
                    double g[3] = {0, 0, 0};
                    for (j = 0; j < 3 && o < results; j++)
                        g[j] = (double)w[(o * channels + c) * 9 + 3 * j + q];
                    line[q] = (rows[i][0] * g[0] + rows[i][1] * g[1]) + rows[i][2] * g[2];
                }
                for (j = 0; j < n; j++)
                    u[((o / 32 * n * n + i * n + j) * channels + c) * 32 + o % 32] =
                        (T)((rows[j][0] * line[0] + rows[j][1] * line[1]) + rows[j][2] * line[2]);
            }
}

/* v = Bt d; elements lie `step` apart. */
static void winograd_input_line(int m, const T *d, int step, T *v)
{
    const T a = (T)0.70710678118654752, b = 2 * a;
    const T *d1 = d + step, *d2 = d + 2 * step, *d3 = d + 3 * step, *d4 = d + 4 * step;
    if (m == 2) {
        v[0] = *d - *d2;
        v[step] = *d1 + *d2;
        v[2 * step] = *d2 - *d1;
        v[3 * step] = *d1 - *d3;
    } else {
        const T even_a = *d4 - 2 * *d2, odd_a = a * (*d3 - 2 * *d1);
        const T even_b = *d4 - (T)0.5 * *d2, odd_b = b * (*d3 - (T)0.5 * *d1);
        v[0] = (*d - (T)2.5 * *d2) + *d4;
        v[step] = even_a + odd_a;
        v[2 * step] = even_a - odd_a;
        v[3 * step] = even_b + odd_b;
        v[4 * step] = even_b - odd_b;
        v[5 * step] = (*d1 - (T)2.5 * *d3) + d[5 * step];
    }
}

/* y = At s. */
static void winograd_output_line(int m, const T *s, int step, T *y)
{
    const T a = (T)0.70710678118654752, b = 2 * a;
    const T *s1 = s + step, *s2 = s + 2 * step, *s3 = s + 3 * step, *s4 = s + 4 * step;
    if (m == 2) {
        y[0] = (*s + *s1) + *s2;
        y[step] = (*s1 - *s2) - *s3;
    } else {
        const T even_a = *s1 + *s2, odd_a = *s1 - *s2, even_b = *s3 + *s4, odd_b = *s3 - *s4;
        y[0] = (*s + even_a) + even_b;
        y[step] = a * odd_a + b * odd_b;
        y[2 * step] = (T)0.5 * even_a + 2 * even_b;
        y[3 * step] = ((T)0.5 * a * odd_a + 2 * b * odd_b) + s[5 * step];
    }
}

typedef struct winograd_shape {
    int images, in[2], out[2], channels, columns, begin[2], m;
} winograd_shape;

/* v = the transform of channel c of the tile that reads from [row, column] of the image on. */
static void winograd_input(const winograd_shape *s, const T *image, int row, int column, int c,
                           T v[36])
{
    const int n = s->m + 2;
    T d[36], down[36];
    int i, j;
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++) {
            const int inside =
                row + i >= 0 && row + i < s->in[0] && column + j >= 0 && column + j < s->in[1];
            d[i * n + j] =
                inside ? image[((row + i) * s->in[1] + column + j) * s->channels + c] : 0;
        }
    for (j = 0; j < n; j++) winograd_input_line(s->m, d + j, n, down + j);
    for (i = 0; i < n; i++) winograd_input_line(s->m, down + i * n, 1, v + i * n);
}

/* The pixels of one tile in a column of the result; u is the column's first weight. */
static void winograd_sums(const winograd_shape *s, const T *image, const T *u, int row, int column,
                          T y[24])
{
    const int n = s->m + 2;
    T total[36] = {0}, part[36] = {0}, down[24], v[36];
    int c, i, j, p;
    for (c = 0; c < s->channels; c++) {
        winograd_input(s, image, row, column, c, v);
        for (p = 0; p < n * n; p++) {
            if (c % 128 == 0) {
                total[p] = c > 128 ? total[p] + part[p] : part[p];
                part[p] = 0;
            }
            part[p] = fma(v[p], u[(p * s->channels + c) * 32], part[p]);
        }
    }
    for (p = 0; p < n * n && s->channels > 128; p++) part[p] = total[p] + part[p];
    for (j = 0; j < n; j++) winograd_output_line(s->m, part + j, n, down + j);
    for (i = 0; i < s->m; i++) winograd_output_line(s->m, down + i * n, 1, y + i * s->m);
}

/* `bias` may be NULL. */
static void conv_winograd(const T *x, const T *u, const T *bias, T *y, const void *shape,
                          int bounded, T low, T high)
{
    const winograd_shape *s = (const winograd_shape *)(const void *)shape;
    const int m = s->m, positions = (m + 2) * (m + 2);
    int image, i, j, o, p;
    for (image = 0; image < s->images; image++, x += s->in[0] * s->in[1] * s->channels)
        for (i = 0; i < s->out[0]; i += m)
            for (j = 0; j < s->out[1]; j += m)
                for (o = 0; o < s->columns; o++) {
                    T tile[24];
                    winograd_sums(s, x, u + o / 32 * positions * s->channels * 32 + o % 32,
                                  i - s->begin[0], j - s->begin[1], tile);
                    for (p = 0; p < m * m; p++) {
                        const int row = i + p / m, column = j + p % m;
                        if (row >= s->out[0] || column >= s->out[1]) continue;
                        y[((image * s->out[0] + row) * s->out[1] + column) * s->columns + o] =
                            conv_bounded(bias ? tile[p] + bias[o] : tile[p], bounded, low, high);
                    }
                }
}
