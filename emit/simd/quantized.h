/* Products with matrices of 8 or 4 bits: rows of x side by side. Sums of a block's integers are exact in T, whatever
 * their order: each is below 2^24. See plain/quantized.h. */

static void quantized_block(const T *x, int whole, int8_t *q, T *scale, int32_t *sum)
{
    const T big = sizeof(T) == 4 ? (T)12582912.0 : (T)6755399441055744.0; /* rounds to integers */
    T top[16] = {0}, max = 0, by;
    int finite = 1, all = 0, zero, i, c;
    for (i = 0; i < 32; i += 16)
        for (c = 0; c < 16; c++) {
            const T size = x[i + c] < 0 ? -x[i + c] : x[i + c];
            finite &= x[i + c] - x[i + c] == 0;
            top[c] = size > top[c] ? size : top[c];
        }
    for (c = 0; c < 16; c++) max = top[c] > max ? top[c] : max;
    by = 127 / max;
    zero = !finite ||
           !((double)by <= (sizeof(T) == 4 ? 8.5070591730234616e37 : 4.4942328371557898e307));
    for (i = 0; whole && i < 32; i++) {
        const T bounded = x[i] > -128 ? x[i] < 127 ? x[i] : 127 : -128;
        q[i] = (int8_t)((bounded + big) - big);
    }
    for (i = 0; !whole && i < 32; i++) q[i] = (int8_t)(zero ? 0 : (x[i] * by + big) - big);
    for (i = 0; i < 32; i++) all += q[i];
    *sum = all;
    *scale = whole ? 1 : !finite ? (T)NAN : zero ? 0 : max / 127;
}

/* Of 4 bits, even ones first. */
static int32_t quantized_dot(const int8_t *q, const uint8_t *row, int bits)
{
    int16_t number[32], other[32]; /* which compilers multiply and add in one instruction */
    int32_t dot = 0;
    int c;
    if (bits == 8)
        for (c = 0; c < 32; c++) {
            number[c] = row[c];
            other[c] = q[c];
        }
    else
        for (c = 0; c < 16; c++) {
            number[c] = row[c] & 15;
            number[16 + c] = row[c] >> 4;
            other[c] = q[2 * c];
            other[16 + c] = q[2 * c + 1];
        }
    for (c = 0; c < 32; c++) dot += number[c] * other[c];
    return dot;
}

/* Rows of the matrix that share blocks of x. */
enum { simd_matrix_rows = 64 };

/* Up to simd_width rows of x times up to simd_matrix_rows of the matrix: sums are [matrix rows, 8, rows of x]. */
typedef struct simd_quantized {
    int rows, columns, at[32];
    T scale[simd_width], sum[simd_width]; /* of a block of each row of x */
    T panel[32 * simd_width];             /* its integers */
    T number[simd_rows * 32];             /* of a block of rows of the matrix */
    T lane[simd_matrix_rows * 8 * simd_width];
} simd_quantized;

/* Block b of the rows of x, which have k elements. */
static void simd_quantize(const T *x, int k, int b, int whole, simd_quantized *s)
{
    int r, c;
    for (r = 0; r < s->rows; r++) {
        int8_t q[32];
        int32_t sum;
        quantized_block(x + r * k + b * 32, whole, q, s->scale + r, &sum);
        s->sum[r] = (T)sum;
        for (c = 0; c < 32; c++) s->panel[c * simd_width + r] = (T)q[c];
    }
}

/* Adds what the block of x and that of up to simd_rows rows of the matrix, from number j on, contribute. */
static void simd_add_block(simd_quantized *s, const uint8_t *w, int w_step, int bits, int j,
                           const T *scale, const uint8_t *zero, const T *minimum, int g_step, int b)
{
    const int some = s->columns - j < simd_rows ? s->columns - j : simd_rows;
    T sum[simd_rows * simd_width] = {0};
    int i, c, r;
    for (i = 0; i < some; i++) {
        const uint8_t *row = w + (j + i) * w_step;
        T *to = s->number + i * 32;
        for (c = 0; bits == 8 && c < 32; c++) to[c] = (T)row[c];
        for (c = 0; bits != 8 && c < 16; c++) {
            to[c] = (T)(row[c] & 15);
            to[16 + c] = (T)(row[c] >> 4);
        }
    }
    simd_block(s->number, 32, s->at, s->panel, simd_width, some, 32, sum);
    for (i = 0; i < some; i++) {
        const int g = (j + i) * g_step;
        const T by = scale[g], least = minimum ? minimum[g] : 0, from = zero ? (T)zero[g] : 0;
        const T *dot = sum + i * simd_width;
        T *lane = s->lane + ((j + i) * 8 + b % 8) * simd_width;
        for (r = 0; minimum && r < simd_width; r++)
            lane[r] += s->scale[r] * by * dot[r] + s->scale[r] * least * s->sum[r];
        for (r = 0; !minimum && r < simd_width; r++)
            lane[r] += s->scale[r] * by * (dot[r] - from * s->sum[r]);
    }
}

static void matmul_quantized(const T *x, const uint8_t *w, const T *scale, const uint8_t *zero,
                             const T *minimum, T *y, double *space, int m, int n, int k, int bits,
                             int group, int whole)
{
    const int groups = k / group, step = k / 8 * bits;
    simd_quantized s;
    int i, j, b, c, r;
    memset(&s, 0, sizeof s);
    for (c = 0; c < 32; c++) s.at[c] = bits == 8 ? c : c % 2 * 16 + c / 2;
    for (i = 0; i < m; i += s.rows) {
        const T *own = x + i * k;
        s.rows = m - i < 4 ? 1 : m - i < simd_width ? m - i : simd_width;
        if (s.rows == 1)
            quantized_row(own, w, scale, zero, minimum, y + i * n, space, n, k, bits, group, whole);
        for (j = 0; s.rows > 1 && j < n; j += s.columns) {
            s.columns = n - j < simd_matrix_rows ? n - j : simd_matrix_rows;
            memset(s.lane, 0, sizeof s.lane);
            for (b = 0; b < k / 32; b++) {
                const int g = j * groups + b * 32 / group;
                simd_quantize(own, k, b, whole, &s);
                for (c = 0; c < s.columns; c += simd_rows)
                    simd_add_block(&s, w + j * step + b * 4 * bits, step, bits, c, scale + g,
                                   zero ? zero + g : 0, minimum ? minimum + g : 0, groups, b);
            }
            for (c = 0; c < s.columns; c++)
                for (r = 0; r < s.rows; r++) {
                    const T *l = s.lane + c * 8 * simd_width + r;
                    y[(i + r) * n + j + c] =
                        ((l[0] + l[4 * simd_width]) + (l[2 * simd_width] + l[6 * simd_width])) +
                        ((l[simd_width] + l[5 * simd_width]) +
                         (l[3 * simd_width] + l[7 * simd_width]));
                }
        }
    }
}
