/* Matrices of 8 or 4 bits, and rows stored in fewer bits. A group of elements of a row has a scale,
 * and a zero point, in `zero`, or a minimum; the other one of these is a null pointer. */

static int quantized_number(const uint8_t *row, int bits, int i)
{
    return bits == 8 ? row[i] : row[i / 2] >> (i % 2 * 4) & 15;
}

/* Block b of 32 elements of a row x: x = *scale q. `whole`: the elements are whole numbers. */
static void quantized_block(const T *x, int whole, int8_t *q, T *scale, int32_t *sum)
{
    T max = 0, by;
    int finite = 1, zero, i;
    for (i = 0; i < 32; i++) {
        const T size = x[i] < 0 ? -x[i] : x[i];
        finite &= x[i] - x[i] == 0;
        max = size > max ? size : max;
    }
    by = 127 / max;
    zero = !finite ||
           !((double)by <= (sizeof(T) == 4 ? 8.5070591730234616e37 : 4.4942328371557898e307));
    *sum = 0;
    for (i = 0; i < 32; i++) {
        const T bounded = x[i] > -128 ? x[i] < 127 ? x[i] : 127 : -128;
        const T product = whole ? bounded : zero ? 0 : x[i] * by;
        q[i] = (int8_t)rint((double)product);
        *sum += q[i];
    }
    *scale = whole ? 1 : !finite ? (T)NAN : zero ? 0 : max / 127;
}

/* The sum of the products of 32 numbers, which are in `row`, and q. */
static int32_t quantized_dot(const int8_t *q, const uint8_t *row, int bits)
{
    int32_t dot = 0;
    int c;
    for (c = 0; c < 32; c++) dot += q[c] * quantized_number(row, bits, c);
    return dot;
}

/* y [n] of x [k] and w [n, k]. `space` has room for x. */
static void quantized_row(const T *x, const uint8_t *w, const T *scale, const uint8_t *zero,
                          const T *minimum, T *y, double *space, int n, int k, int bits, int group,
                          int whole)
{
    const int blocks = k / 32, groups = k / group;
    T *x_scale = (T *)(void *)space;
    int32_t *x_sum = (int32_t *)(void *)(x_scale + blocks);
    int8_t *q = (int8_t *)(x_sum + blocks);
    int j, b;
    for (b = 0; b < blocks; b++)
        quantized_block(x + b * 32, whole, q + b * 32, x_scale + b, x_sum + b);
    for (j = 0; j < n; j++) {
        const uint8_t *row = w + j * (k / 8 * bits);
        T lane[8] = {0};
        for (b = 0; b < blocks; b++) {
            const int g = j * groups + b * 32 / group;
            const int32_t dot = quantized_dot(q + b * 32, row + b * 4 * bits, bits);
            const T by = x_scale[b] * scale[g];
            if (minimum) {
                const T products = by * (T)dot, least = x_scale[b] * minimum[g];
                lane[b % 8] += products + least * (T)x_sum[b];
            } else {
                lane[b % 8] += by * (T)(dot - zero[g] * x_sum[b]);
            }
        }
        y[j] = ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
               ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    }
}

/* y [m, n] of x [m, k] and w [n, k]. `space` has room for a row of x. */
static void matmul_quantized(const T *x, const uint8_t *w, const T *scale, const uint8_t *zero,
                             const T *minimum, T *y, double *space, int m, int n, int k, int bits,
                             int group, int whole)
{
    int i;
    for (i = 0; i < m; i++)
        quantized_row(x + i * k, w, scale, zero, minimum, y + i * n, space, n, k, bits, group,
                      whole);
}

/* 32 elements of row j of a matrix [., k], from `from` on. */
static void quantized_widen(const uint8_t *w, const T *scale, const uint8_t *zero, const T *minimum,
                            int j, int from, int k, int bits, int group, T *y)
{
    const int g = j * (k / group) + from / group;
    const uint8_t *row = w + j * (k / 8 * bits);
    int c;
    for (c = 0; c < 32; c++) {
        const int number = quantized_number(row, bits, from + c);
        y[c] = minimum ? scale[g] * (T)number + minimum[g] : scale[g] * (T)(number - zero[g]);
    }
}

/* y [n, k]: rows of a table [rows, k]. 1 if an index is out of range; its row is then 0. */
static int embedding_quantized(const uint8_t *w, const T *scale, const uint8_t *zero,
                               const T *minimum, const int32_t *index, T *y, int rows, int n, int k,
                               int bits, int group)
{
    int i, c, bad = 0;
    for (i = 0; i < n; i++, y += k) {
        const int outside = index[i] < 0 || index[i] >= rows;
        for (c = 0; c < k; c += 32)
            if (!outside)
                quantized_widen(w, scale, zero, minimum, index[i], c, k, bits, group, y + c);
        for (c = 0; outside && c < k; c++) y[c] = 0;
        bad |= outside;
    }
    return bad;
}

/* dx [m, k] of dy [m, n] and w [n, k]: chains of 128 rows of the matrix. */
static void matmul_quantized_grad(const T *dy, const uint8_t *w, const T *scale,
                                  const uint8_t *zero, const T *minimum, T *dx, int m, int n, int k,
                                  int bits, int group)
{
    int i, j, from, first, c;
    for (i = 0; i < m; i++, dy += n, dx += k)
        for (from = 0; from < k; from += 32) {
            for (c = 0; c < 32; c++) dx[from + c] = 0;
            for (first = 0; first < n; first += 128) {
                T chain[32] = {0}, row[32];
                for (j = first; j < n && j < first + 128; j++) {
                    quantized_widen(w, scale, zero, minimum, j, from, k, bits, group, row);
                    for (c = 0; c < 32; c++) chain[c] = fma(dy[j], row[c], chain[c]);
                }
                for (c = 0; c < 32; c++) dx[from + c] = first ? chain[c] + dx[from + c] : chain[c];
            }
        }
}

/* ---- Rows in fewer bits ---- */

static void rows_to_bf16(const T *x, uint16_t *y, int n)
{
    int i;
    for (i = 0; i < n; i++) {
        const float number = (float)x[i];
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        y[i] = (uint16_t)(number != number ? bits >> 16 | 64
                                           : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static void rows_from_bf16(const uint16_t *x, T *y, int n)
{
    int i;
    for (i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)x[i] << 16;
        float number;
        memcpy(&number, &bits, sizeof number);
        y[i] = (T)number;
    }
}

/* The scale from its lowest byte on, then 128 + x / scale. */
static void rows_to_bytes(const T *x, uint8_t *y, int rows, int n)
{
    int r, i;
    for (r = 0; r < rows; r++, x += n, y += n + 4) {
        float max = 0, by, scale;
        int finite = 1, zero;
        uint32_t bits;
        for (i = 0; i < n; i++) {
            const float number = (float)x[i], size = number < 0 ? -number : number;
            finite &= number - number == 0;
            max = size > max ? size : max;
        }
        by = 127 / max;
        zero = !finite || !((double)by <= 8.5070591730234616e37);
        scale = zero ? 0 : max / 127;
        memcpy(&bits, &scale, sizeof bits);
        if (!finite) bits = 0x7fc00000;
        for (i = 0; i < 4; i++) y[i] = (uint8_t)(bits >> (8 * i) & 255);
        for (i = 0; i < n; i++) {
            const float product = zero ? 0 : (float)x[i] * by;
            y[4 + i] = (uint8_t)(128 + (int)rint((double)product));
        }
    }
}

/* The scale of a row of bytes. */
static float narrow_scale(const uint8_t *row)
{
    const uint32_t bits =
        row[0] | (uint32_t)row[1] << 8 | (uint32_t)row[2] << 16 | (uint32_t)row[3] << 24;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

static void rows_from_bytes(const uint8_t *x, T *y, int rows, int n)
{
    int r, i;
    for (r = 0; r < rows; r++, x += n + 4, y += n) {
        const float scale = narrow_scale(x);
        for (i = 0; i < n; i++) y[i] = (T)(scale * (float)(x[4 + i] - 128));
    }
}
