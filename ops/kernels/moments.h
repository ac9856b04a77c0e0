/* Moments: the mean of some elements and the sum of their squared deviations from it, in f64. Those
 * of a row are computed in two passes, those of several rows by the rule of Chan, Golub & LeVeque
 * (1983). */
#ifndef WEFT_OPS_KERNELS_MOMENTS_H
#define WEFT_OPS_KERNELS_MOMENTS_H

#include "sums.h"

#ifdef WEFT_KERNEL_ISA

/* Of n elements with this sum and this sum of squared deviations from `mean`, the mean rounded.
 * What rounding added to the squares is taken away, but never more than there is. */
static inline void moments_state(double sum, T mean, double square, int64_t n, double *state,
                                 int64_t next)
{
    const double miss = n ? sum / (double)n - (double)mean : 0;
    state[0] = (double)mean + miss;
    const double rest = square - (double)n * miss * miss;
    state[next] = rest < 0 ? 0 : rest;
}

static inline void moments_row(const T *x, int64_t n, double *state)
{
    const double sum = sum_of(x, n);
    const T mean = n ? (T)(sum / (double)n) : 0;
#define TERM(i) ((x[i] - mean) * (x[i] - mean))
    SUM_ROW(square, n, TERM)
#undef TERM
    moments_state(sum, mean, square, n, state, 1);
}

/* Adds to the moments of `before` elements those of `count` elements, for n of them side by side: n
 * means, and then n sums. */
static inline void moments_merge(double *state, int64_t before, const double *more, int64_t count,
                                 int64_t n)
{
    const double all = (double)(before + count), share = all > 0 ? (double)count / all : 0;
    _Pragma("omp simd") for (int64_t c = 0; c < n; c++)
    {
        const double apart = more[c] - state[c];
        state[c] += apart * share;
        state[n + c] += more[n + c] + apart * apart * ((double)before * share);
    }
}

#endif
#endif
