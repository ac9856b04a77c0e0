/* Matrices of 8 or 4 bits, and rows stored in fewer bits. See exact.h. */
#include "exact_math.h"

typedef struct quantized_attr {
    int32_t bits, group;
    bool whole;
} quantized_attr;

#define BLOCK 32

/* A block of a row of x: x = scale q. */
typedef struct block {
    int32_t q[BLOCK];
    T scale;
} block;

static block rounded(const T *x)
{
    block b = {{0}, 0};
    T max = 0;
    bool finite = true;
    for (int i = 0; i < BLOCK; i++) {
        finite &= isfinite(x[i]) != 0;
        if (x[i] > max || -x[i] > max) max = x[i] < 0 ? -x[i] : x[i];
    }
    const T by = 127 / max;
    if (!finite) b.scale = (T)NAN;
    if (!finite || !(by <= (sizeof(T) == 4 ? (T)0x1p126 : (T)0x1p1022))) return b;
    for (int i = 0; i < BLOCK; i++) {
        const T product = x[i] * by;
        b.q[i] = (int32_t)rint((double)product);
    }
    b.scale = max / 127;
    return b;
}

/* Whole numbers as they are, others as the nearest of [-128, 127]. */
static block whole(const T *x)
{
    block b = {{0}, 1};
    for (int i = 0; i < BLOCK; i++)
        b.q[i] = (int32_t)rint((double)(x[i] > -128 ? x[i] < 127 ? x[i] : 127 : -128));
    return b;
}

static int32_t number(const weft_tensor *w, int32_t bits, int64_t row, int64_t i)
{
    const uint8_t *q = (const uint8_t *)w->data + row * w->shape.dim[1];
    return bits == 8 ? q[i] : q[i / 2] >> i % 2 * 4 & 15;
}

/* Sums of blocks are whole numbers, which are added in eight lanes, and these in halves. */
EXACT(matmul_quantized)
{
    UNUSED;
    const quantized_attr *a = attr;
    const int64_t k = last_dim(in), n = last_dim(out), groups = k / a->group;
    for (int64_t o = 0; o < numel(out); o++) {
        T lane[8] = {0};
        for (int64_t b = 0; b < k / BLOCK; b++) {
            const T *from = data(in) + o / n * k + b * BLOCK;
            const block x = a->whole ? whole(from) : rounded(from);
            const int64_t g = o % n * groups + b * BLOCK / a->group;
            int32_t dot = 0, sum = 0;
            for (int i = 0; i < BLOCK; i++) {
                dot += x.q[i] * number(&in[1], a->bits, o % n, b * BLOCK + i);
                sum += x.q[i];
            }
            if (in[3].dtype == WEFT_U8) {
                const int32_t zero = ((const uint8_t *)in[3].data)[g];
                const T scale = x.scale * data(&in[2])[g], term = scale * (T)(dot - zero * sum);
                lane[b % 8] += term;
            } else {
                const T scale = x.scale * data(&in[2])[g], minimum = x.scale * data(&in[3])[g];
                const T products = scale * (T)dot, minima = minimum * (T)sum;
                lane[b % 8] += products + minima;
            }
        }
        for (int half = 4; half; half /= 2)
            for (int c = 0; c < half; c++) lane[c] += lane[c + half];
        data(out)[o] = lane[0];
    }
}

/* Element [row, column] of a matrix, whose scales and zero points follow it; k are its columns. */
static T widened(const weft_tensor *w, const quantized_attr *a, int64_t row, int64_t column,
                 int64_t k)
{
    const int64_t g = row * (k / a->group) + column / a->group;
    const int32_t q = number(w, a->bits, row, column);
    if (w[2].dtype == WEFT_U8) return data(&w[1])[g] * (T)(q - ((const uint8_t *)w[2].data)[g]);
    const T product = data(&w[1])[g] * (T)q;
    return product + data(&w[2])[g];
}

EXACT(embedding_quantized)
{
    UNUSED;
    const int64_t n = last_dim(out);
    for (int64_t o = 0; o < numel(out); o++)
        data(out)[o] = widened(in, attr, ((const int32_t *)in[3].data)[o / n], o % n, n);
}

/* Chains of 128 rows of the matrix. */
EXACT(matmul_quantized_grad)
{
    UNUSED;
    const int64_t n = last_dim(in), k = last_dim(out);
    for (int64_t o = 0; o < numel(out); o++) {
        T dx = 0;
        for (int64_t first = 0; first < n; first += 128) {
            T chain = 0;
            for (int64_t j = first; j < n && j < first + 128; j++)
                chain = FMA(data(in)[o / k * n + j], widened(&in[1], attr, j, o % k, k), chain);
            dx = first ? chain + dx : chain;
        }
        data(out)[o] = dx;
    }
}

/* ---- Rows in fewer bits ---- */

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x)) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The scale from its lowest byte on, then 128 + x / scale. */
static void to_bytes(const T *x, int64_t n, uint8_t *y)
{
    float max = 0, scale = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf((float)x[i]);
        finite &= isfinite(size) != 0;
        max = size > max ? size : max;
    }
    const float by = 127 / max;
    const bool zero = !finite || !(by <= 0x1p126f);
    if (!zero) scale = max / 127;
    for (int64_t i = 0; i < n; i++) {
        const float product = zero ? 0 : (float)x[i] * by;
        y[4 + i] = (uint8_t)(128 + (int)rintf(product));
    }
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    if (!finite) bits = 0x7fc00000; /* one NaN */
    for (int b = 0; b < 4; b++) y[b] = (uint8_t)(bits >> 8 * b);
}

EXACT(narrow_rows)
{
    UNUSED;
    const int64_t n = last_dim(in), width = last_dim(out);
    if (out->dtype == WEFT_BF16)
        for (int64_t i = 0; i < numel(in); i++)
            ((uint16_t *)out->data)[i] = bf16_of((float)data(in)[i]);
    else
        for (int64_t r = 0; r < numel(out) / width; r++)
            to_bytes(data(in) + r * n, n, (uint8_t *)out->data + r * width);
}

EXACT(widen_rows)
{
    UNUSED;
    const int64_t n = last_dim(out), width = last_dim(in);
    for (int64_t i = 0; i < numel(out); i++) {
        uint32_t bits = 0;
        float scale;
        if (in->dtype == WEFT_BF16) {
            bits = (uint32_t)((const uint16_t *)in->data)[i] << 16;
            memcpy(&scale, &bits, sizeof scale);
            data(out)[i] = (T)scale;
            continue;
        }
        const uint8_t *row = (const uint8_t *)in->data + i / n * width;
        for (int b = 0; b < 4; b++) bits |= (uint32_t)row[b] << 8 * b;
        memcpy(&scale, &bits, sizeof scale);
        data(out)[i] = (T)(scale * (float)(row[4 + i % n] - 128));
    }
}

EXACT_TABLE(quantized) = {
    ROW(matmul_quantized),    ROW(matmul_quantized_grad),
    ROW(embedding_quantized), ROW(narrow_rows),
    ROW(widen_rows),          {NULL, NULL},
};
