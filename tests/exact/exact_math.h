/* What the files of references share. Each is compiled for f32 and for f64: T is the type, FMA
 * multiplies and adds with one rounding. Here are the elements of tensors, and the orders in which
 * terms are added. */
#ifndef WEFT_TESTS_EXACT_MATH_H
#define WEFT_TESTS_EXACT_MATH_H

#include "base/vmath.h"
#include "exact_any.h"
#include "exact_bf16.h"

#include <weft/call.h>

#include <stdlib.h>

#define EXACT_T_f32 float
#define EXACT_T_f64 double
#ifdef __MINGW32__ /* whose fma rounds twice */
#define EXACT_FMA_f32 fma_f32
#define EXACT_FMA_f64 fma_f64
#else
#define EXACT_FMA_f32 fmaf
#define EXACT_FMA_f64 fma
#endif
#define EXACT_JOIN_(a, b) a##b
#define EXACT_JOIN(a, b)  EXACT_JOIN_(a, b)
#define T                 EXACT_JOIN(EXACT_T_, WEFT_KERNEL_DTYPE)
#define FMA               EXACT_JOIN(EXACT_FMA_, WEFT_KERNEL_DTYPE)

/* The table of a file. */
#define EXACT_TABLE_(name, dtype)  const exact_reference exact_##name##_##dtype[]
#define EXACT_TABLE__(name, dtype) EXACT_TABLE_(name, dtype)
#define EXACT_TABLE(name)          EXACT_TABLE__(name, WEFT_KERNEL_DTYPE)
/* ---- Elements ---- */

/* Elements of a tile of an elementwise op: some sums are cut there. */
#define TILE 16384

static inline int64_t last_dim(const weft_tensor *t)
{
    return t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
}

static inline int64_t round_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b * b;
}

/* Element i of t, or of the shape that t broadcasts to. */
static inline T at(const weft_tensor *t, int64_t i)
{
    return ((const T *)t->data)[offset_in(t, &t->shape, i)];
}
static inline T broadcast_at(const weft_tensor *t, const weft_shape *shape, int64_t i)
{
    return ((const T *)t->data)[offset_in(t, shape, i)];
}

static inline T *data(const weft_tensor *t)
{
    return t->data;
}

/* A line of a tensor: n elements, `step` apart. */
typedef struct line {
    const T *x;
    int64_t step;
} line;

static inline T of(line l, int64_t i)
{
    return l.x[i * l.step];
}

/* A product of bf16: chains of pairs, of which the last one may have a zero. A number that is not
 * stored as bf16 is rounded. */
static inline T dot_of_bf16(line a, line b, int64_t n)
{
    float total = 0;
    for (int64_t from = 0; from < n; from += BF16_CHAIN) {
        float sum = 0;
        for (int64_t i = from; i < n && i < from + BF16_CHAIN; i += 2) {
            float x[2] = {bf16_round((float)of(a, i)), 0}, y[2] = {bf16_round((float)of(b, i)), 0};
            if (i + 1 < n) x[1] = bf16_round((float)of(a, i + 1));
            if (i + 1 < n) y[1] = bf16_round((float)of(b, i + 1));
            sum = bf16_pair(x, y, sum);
        }
        total = from ? bf16_flush(total + sum) : sum;
    }
    return (T)total;
}

/* A product of bf16 by parts of 32 numbers, each of a chain of the first numbers of pairs and one of the
 * second ones. */
static inline T dot_of_tiles(line a, line b, int64_t n)
{
    float total = 0;
    for (int64_t from = 0; from < n; from += 32) {
        float chain[2] = {0, 0};
        for (int64_t i = from; i < from + 32; i++) {
            const float x = i < n ? bf16_round((float)of(a, i)) : 0;
            const float y = i < n ? bf16_round((float)of(b, i)) : 0;
            chain[i % 2] = bf16_step(x, y, chain[i % 2]);
        }
        total = bf16_flush(total + bf16_flush(chain[0] + chain[1]));
    }
    return (T)total;
}

/* ---- Sums ---- */

#define LANES 16

/* Eight terms, `step` apart, in pairs. */
static inline T sum_of_eight(const T *x, int64_t step)
{
    const T a = x[0] + x[step], b = x[2 * step] + x[3 * step];
    const T c = x[4 * step] + x[5 * step], d = x[6 * step] + x[7 * step];
    return (a + b) + (c + d);
}

/* Lane i and lane i + 8, then i and i + 4, and so on. */
static inline T sum_of_lanes(const T *lanes)
{
    T sum[LANES];
    memcpy(sum, lanes, sizeof sum);
    for (int half = LANES / 2; half; half /= 2)
        for (int c = 0; c < half; c++) sum[c] += sum[c + half];
    return sum[0];
}

/* total and the sum of neighbours: lane c has terms c, c + 16, and so on. Eight of a lane are added
 * in T, those sums in f64. The rest, fewer than 128
 * terms, has sums in T. */
static inline double add_row(double total, const T *x, int64_t n)
{
    const int64_t whole = n / (8 * LANES) * (8 * LANES);
    double lanes[LANES] = {0};
    T rest[LANES] = {0};
    for (int64_t i = 0; i < whole; i += 8 * LANES)
        for (int c = 0; c < LANES; c++) lanes[c] += (double)sum_of_eight(x + i + c, LANES);
    for (int c = 0; whole && c < LANES; c += 8)
        total += ((lanes[c] + lanes[c + 1]) + (lanes[c + 2] + lanes[c + 3])) +
                 ((lanes[c + 4] + lanes[c + 5]) + (lanes[c + 6] + lanes[c + 7]));
    for (int64_t i = whole; i < n; i++) rest[i % LANES] += x[i];
    return total + (double)sum_of_lanes(rest);
}

/* total and the sum of a column's terms: eight at a time, then one by one. */
static inline double add_column(double total, const T *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) total += (double)sum_of_eight(x + i, 1);
    for (; i < n; i++) total += (double)x[i];
    return total;
}

static inline double add_terms(bool column, double total, const T *x, int64_t n)
{
    return column ? add_column(total, x, n) : add_row(total, x, n);
}

/* The sum of neighbours that are computed as they are added: in lanes of T over 512 terms each, and
 * those sums in f64. */
static inline double sum_of_ranges(const T *x, int64_t n)
{
    double sum = 0;
    for (int64_t from = 0; from < n; from += 512) {
        T lanes[LANES] = {0};
        for (int64_t i = from; i < n && i < from + 512; i++) lanes[i % LANES] += x[i];
        sum += (double)sum_of_lanes(lanes);
    }
    return sum;
}

/* The same of a column: 32 terms at a time in T. */
static inline double sum_of_rows(const T *x, int64_t n)
{
    double sum = 0;
    for (int64_t from = 0; from < n; from += 32) {
        T partial = 0;
        for (int64_t i = from; i < n && i < from + 32; i++) partial += x[i];
        sum += (double)partial;
    }
    return sum;
}

/* ---- Random words ---- */

/* Word w of the node with this key, in the run of the tests. */
static inline uint32_t word_of(uint64_t key, uint64_t w)
{
    const uint32_t counter[4] = {(uint32_t)(w / 4), (uint32_t)(w / 4 >> 32), (uint32_t)EXACT_RUN,
                                 (uint32_t)(EXACT_RUN >> 32)};
    uint32_t words[4];
    weft_philox(counter, key ^ EXACT_SEED * 0xD1342543DE82EF95u, words);
    return words[w % 4];
}

/* Whether dropout with probability p keeps element i. */
static inline bool is_kept(double p, uint64_t key, int64_t i)
{
    return word_of(key, (uint64_t)i) >= (uint32_t)(p * 0x1p32);
}

/* ---- Moments: the mean, and the sum of the squared deviations from it ---- */

typedef struct moments {
    double mean, square;
} moments;

/* The moments of n elements of a column or a row. `space` has room for n. */
#define exact_moments EXACT_JOIN(exact_moments_, WEFT_KERNEL_DTYPE)
moments exact_moments(bool column, const T *x, int64_t n, T *space);

/* The moments of `before` elements and of `count` more (Chan, Golub & LeVeque 1983). */
static inline moments merged(moments a, int64_t before, moments b, int64_t count)
{
    const double all = (double)(before + count), fraction = all > 0 ? (double)count / all : 0;
    const double apart = b.mean - a.mean;
    a.mean += apart * fraction;
    a.square += b.square + apart * apart * ((double)before * fraction);
    return a;
}

static inline bool mean_is_far(T mean, double square, int64_t n)
{
    return 16 * square < (double)n * (double)mean * (double)mean;
}

/* Sums of x - mean and of its square. */
static inline double sum_of_deviations(bool column, const T *x, int64_t n, T mean, T *space)
{
    for (int64_t i = 0; i < n; i++) space[i] = x[i] - mean;
    return add_terms(column, 0, space, n);
}
static inline double sum_of_squares(bool column, const T *x, int64_t n, T mean, T *space)
{
    for (int64_t i = 0; i < n; i++) space[i] = (x[i] - mean) * (x[i] - mean);
    return add_terms(column, 0, space, n);
}

/* `low`, which is how far a mean lies above the exact one, if rounding the mean explains it. */
static inline double mean_rounding(T mean, double low)
{
    const double unit = sizeof(T) == 4 ? 0x1p-23 : 0x1p-52;
    return fabs(low) <= unit * fabs((double)mean) ? low : 0;
}

/* What correcting a mean that is far from zero makes of it, and of the sum of squares. Returns how
 * far the new mean is above the exact one. */
static inline double corrected(bool column, const T *x, int64_t n, T *mean, double *square,
                               T *space)
{
    *mean = (T)((double)*mean + sum_of_deviations(column, x, n, *mean, space) / (double)n);
    const double sum = sum_of_deviations(column, x, n, *mean, space), low = sum / (double)n;
    const double all = sum_of_squares(column, x, n, *mean, space);
    const double rest = all - (column ? sum * low : (double)n * low * low);
    *square = rest < 0 ? 0 : rest;
    return low;
}

#endif
