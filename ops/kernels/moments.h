/* Moments: the mean of some elements and the sum of their squared deviations from it, in f64. Those
 * of a row are computed in two passes, those of several rows by the rule of Chan, Golub & LeVeque
 * (1983).
 *
 * The error of a sum is in proportion to the elements. So a mean that is far from zero, compared
 * with the deviations, is not exact enough to subtract. Then the mean of the differences x - mean
 * is added to it; differences of neighbouring numbers have no error. The mean of equal numbers is
 * that number. */
#ifndef WEFT_OPS_KERNELS_MOMENTS_H
#define WEFT_OPS_KERNELS_MOMENTS_H

#include "sums.h"

#ifdef WEFT_KERNEL_ISA

/* Of n elements with this sum and this sum of squared deviations from `mean`, the rounded mean.
 * Subtracts what rounding added to the squares, but never more than there is. */
static inline void moments_state(double sum, T mean, double square, int64_t n, double *state,
                                 int64_t next)
{
    const double miss = n ? sum / (double)n - (double)mean : 0;
    state[0] = (double)mean + miss;
    const double rest = square - (double)n * miss * miss;
    state[next] = rest < 0 ? 0 : rest;
}

/* The sum of (x - mean)^2 over a row. */
static inline double squares_of(const T *x, int64_t n, T mean)
{
    double sum = 0;
#define TERM(i) ((x[i] - mean) * (x[i] - mean))
    SUM_ROW(sum, n, TERM)
#undef TERM
    return sum;
}

/* The mean of x - mean over a row. */
static inline double deviation_of(const T *x, int64_t n, T mean)
{
    double sum = 0;
#define TERM(i) (x[i] - mean)
    SUM_ROW(sum, n, TERM)
#undef TERM
    return sum / (double)n;
}

/* Whether the mean is more than four deviations from zero, given the sum of n squares. */
static inline bool mean_is_far(T mean, double square, int64_t n)
{
    return 16 * square < (double)n * (double)mean * (double)mean;
}

/* Corrects a mean that is far from zero, and its sum of squared deviations. Returns how far the
 * mean is above the corrected one, which is rounded. Rare, so the loops that call it stay small. */
__attribute__((noinline)) static double moments_correct(const T *x, int64_t n, T *mean,
                                                        double *square)
{
    *mean = (T)((double)*mean + deviation_of(x, n, *mean));
    const double low = deviation_of(x, n, *mean);
    const double rest = squares_of(x, n, *mean) - (double)n * low * low;
    *square = rest < 0 ? 0 : rest;
    return low;
}

/* `low` if a number that is so much above `mean` may be rounded to it; else 0: `mean` is another.
 */
static inline double mean_rounding(T mean, double low)
{
    const double unit = sizeof(T) == 4 ? 0x1p-23 : 0x1p-52;
    return fabs(low) <= unit * fabs((double)mean) ? low : 0;
}

static inline void moments_row(const T *x, int64_t n, double *state)
{
    const double sum = sum_of(x, n);
    T mean = n ? (T)(sum / (double)n) : 0;
    double square = squares_of(x, n, mean);
    if (!mean_is_far(mean, square, n)) {
        moments_state(sum, mean, square, n, state, 1);
        return;
    }
    state[0] = moments_correct(x, n, &mean, &square);
    state[0] += (double)mean;
    state[1] = square;
}

/* Adds to the moments of `before` elements those of `count` elements, for n of them side by side: n
 * means, and then n sums. */
static inline void moments_merge(double *state, int64_t before, const double *more, int64_t count,
                                 int64_t n)
{
    const double all = (double)(before + count), fraction = all > 0 ? (double)count / all : 0;
    _Pragma("omp simd") for (int64_t c = 0; c < n; c++)
    {
        const double apart = more[c] - state[c];
        state[c] += apart * fraction;
        state[n + c] += more[n + c] + apart * apart * ((double)before * fraction);
    }
}

#define MOMENT_COLUMNS 256
#define DEVIATION(i)   (x[(i)*step + c] - mean[c])
#define SQUARE(i)      (DEVIATION(i) * DEVIATION(i))

/* Of moments_columns, where some of the means are far from zero. `mean` is overwritten. */
__attribute__((noinline, unused)) static void
correct_columns(const T *x, int64_t rows, int64_t step, int64_t n, T *mean, double *state)
{
    double low[MOMENT_COLUMNS] = {0}, square[MOMENT_COLUMNS] = {0};
    T far[MOMENT_COLUMNS];
    SIMD_FOR (c, n) far[c] = mean_is_far(mean[c], state[n + c], rows);
    SIMD_FOR (c, n) moments_state(state[c], mean[c], state[n + c], rows, state + c, n);
    SUM_COLUMNS(low, rows, n, DEVIATION)
    SIMD_FOR (c, n) {
        mean[c] = (T)((double)mean[c] + low[c] / (double)rows);
        low[c] = 0;
    }
    SUM_COLUMNS(low, rows, n, DEVIATION)
    SUM_COLUMNS(square, rows, n, SQUARE)
    SIMD_FOR (c, n) {
        const double miss = low[c] / (double)rows, rest = square[c] - low[c] * miss;
        state[c] = far[c] != 0 ? (double)mean[c] + miss : state[c];
        state[n + c] = far[c] == 0 ? state[n + c] : rest < 0 ? 0 : rest;
    }
}

/* The moments of n neighbouring columns, n <= MOMENT_COLUMNS, over `rows` rows that are `step`
 * apart: n means, and then n sums. */
static inline void moments_columns(const T *x, int64_t rows, int64_t step, int64_t n, double *state)
{
    T mean[MOMENT_COLUMNS];
    double *square = state + n;
    int far = 0;
#define TERM(i) x[(i)*step + c]
    SIMD_FOR (c, n) state[c] = 0;
    SUM_COLUMNS(state, rows, n, TERM)
#undef TERM
    SIMD_FOR (c, n) {
        mean[c] = rows ? (T)(state[c] / (double)rows) : 0;
        square[c] = 0;
    }
    SUM_COLUMNS(square, rows, n, SQUARE)
    _Pragma("omp simd reduction(| : far)") for (int64_t c = 0; c < n; c++) far |=
        mean_is_far(mean[c], square[c], rows);
    if (far)
        correct_columns(x, rows, step, n, mean, state);
    else
        SIMD_FOR (c, n) moments_state(state[c], mean[c], square[c], rows, state + c, n);
}
#undef DEVIATION
#undef SQUARE

#endif
#endif
