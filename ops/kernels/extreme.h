/* The end of a search for the largest or the smallest element of a row by OpenMP's reduction, for
 * files of kernels. Such a reduction begins with the smallest number of the type, which is
 * -infinity for gcc, but -FLT_MAX for clang. */
#ifndef WEFT_OPS_KERNELS_EXTREME_H
#define WEFT_OPS_KERNELS_EXTREME_H

#include "kernel.h"

#include <float.h>

#ifdef WEFT_KERNEL_ISA
#if KERNEL_IS(f32)
#define LARGEST FLT_MAX
#else
#define LARGEST DBL_MAX
#endif

/* `best` of the n elements of a row, `step` apart; `worst`, which is what the search began with, if
 * it is a number that only the reduction has introduced. */
static inline T extreme_of(T best, T worst, const T *x, int64_t n, int64_t step)
{
    if (best != (worst < 0 ? -LARGEST : LARGEST)) return best;
    for (int64_t i = 0; i < n; i++)
        if (x[i * step] == best) return best;
    return worst;
}
#endif
#endif
