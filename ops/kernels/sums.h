/* Sums whose error does not grow with the number of terms. Terms are added in T a few at a time:
 * along a row over ranges of SUM_RANGE terms, which the lanes of a vector share, down columns
 * over eight rows in pairs. The sums of these are added in f64. weft/ops.h states the bound. */
#ifndef WEFT_OPS_KERNELS_SUMS_H
#define WEFT_OPS_KERNELS_SUMS_H

#include "kernel.h"

/* At most SUM_BLOCK terms of one element are added one after the other, more of them in blocks of
 * this size. So the error of n terms grows with SUM_BLOCK + n / SUM_BLOCK. */
#define SUM_BLOCK 32

#ifdef WEFT_KERNEL_ISA

#define SUM_RANGE 512
/* Rows that may be added to an array in T one after the other. */
#define SUM_ROWS 32

static inline int64_t sum_range_end(int64_t from, int64_t n)
{
    return n - from < SUM_RANGE ? n : from + SUM_RANGE;
}
/* A loop over the ranges of n terms. Declares them: [from, to). */
#define EACH_RANGE(from, to, n)                                                                    \
    for (int64_t from = 0, to = sum_range_end(0, n); from < (n);                                   \
         from = to, to = sum_range_end(to, n))

#define SUM_EIGHT(TERM, i, step)                                                                   \
    (((TERM(i) + TERM((i) + (step))) + (TERM((i) + 2 * (step)) + TERM((i) + 3 * (step)))) +        \
     ((TERM((i) + 4 * (step)) + TERM((i) + 5 * (step))) +                                          \
      (TERM((i) + 6 * (step)) + TERM((i) + 7 * (step)))))

/* total[c] += the sum of TERM(i) over rows i of [0, length), for columns c of [0, n). Declares c,
 * which TERM may read. */
#define SUM_COLUMNS(total, length, n, TERM)                                                        \
    {                                                                                              \
        int64_t row_ = 0;                                                                          \
        for (; row_ + 8 <= (length); row_ += 8)                                                    \
            SIMD_FOR (c, n) (total)[c] += (double)SUM_EIGHT(TERM, row_, 1);                        \
        for (; row_ < (length); row_++)                                                            \
            SIMD_FOR (c, n) (total)[c] += (double)TERM(row_);                                      \
    }

/* Neighbouring terms are added in this many lanes, on every processor. */
#define SUM_LANES 16

/* The sum of the lanes, as a tree: lane i and lane i + 8, then i and i + 4, and so on. */
static inline T sum_of_lanes(const T *lanes)
{
    T sum[SUM_LANES / 2];
    for (int64_t c = 0; c < SUM_LANES / 2; c++) sum[c] = lanes[c] + lanes[c + SUM_LANES / 2];
    for (int64_t c = 0; c < SUM_LANES / 4; c++) sum[c] += sum[c + SUM_LANES / 4];
    for (int64_t c = 0; c < SUM_LANES / 8; c++) sum[c] += sum[c + SUM_LANES / 8];
    return sum[0] + sum[1];
}

/* A loop over i in [from, to), SUM_LANES at a time: term i belongs to lane c. Declares i and c. */
#define EACH_LANE(i, c, from, to, ...)                                                             \
    {                                                                                              \
        int64_t at_ = (from);                                                                      \
        for (; at_ + SUM_LANES <= (to); at_ += SUM_LANES)                                          \
            _Pragma("omp simd") for (int64_t c = 0; c < SUM_LANES; c++)                            \
            {                                                                                      \
                const int64_t i = at_ + c;                                                         \
                __VA_ARGS__;                                                                       \
            }                                                                                      \
        for (int64_t c = 0; at_ < (to); at_++, c++) {                                              \
            const int64_t i = at_;                                                                 \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    }

/* total += the sum of TERM(i) for i in [0, n), for a double total: in as many columns as stay in
 * registers, and a rest that is too short for them. TERM may read no name that ends in _. */
#define SUM_ROW(total, n, TERM)                                                                    \
    {                                                                                              \
        const int64_t rows_ = (n) / (8 * SUM_LANES) * 8;                                           \
        T rest_[SUM_LANES] = {0};                                                                  \
        if (rows_) {                                                                               \
            double lanes_[SUM_LANES] = {0};                                                        \
            for (int64_t r_ = 0; r_ < rows_; r_ += 8)                                              \
                _Pragma("omp simd") for (int64_t c_ = 0; c_ < SUM_LANES; c_++) lanes_[c_] +=       \
                    (double)SUM_EIGHT(TERM, r_ * SUM_LANES + c_, SUM_LANES);                       \
            for (int64_t c_ = 0; c_ < SUM_LANES; c_ += 8) total += SUM_EIGHT(SUM_LANE, c_, 1);     \
        }                                                                                          \
        EACH_LANE(i_, c_, rows_ *SUM_LANES, n, rest_[c_] += TERM(i_))                              \
        total += (double)sum_of_lanes(rest_);                                                      \
    }
#define SUM_LANE(c) lanes_[c]

static inline double sum_of(const T *x, int64_t n)
{
    double sum = 0;
#define TERM(i) x[i]
    SUM_ROW(sum, n, TERM)
#undef TERM
    return sum;
}

#endif
#endif
