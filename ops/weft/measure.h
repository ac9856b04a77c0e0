/* weft/measure.h - what this machine reaches: the peaks that profiles and benchmarks are held
 * against. */
#ifndef WEFT_MEASURE_H
#define WEFT_MEASURE_H

#include <weft/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* These measure on `threads` threads (0: OpenMP's default), take about half a second each, and give
 * the best of several repetitions. They must not be called from a parallel region. On an error the
 * result is left alone. */

/* Floating-point operations per second of weft_matmul, with the backend that it uses:
 * C [6000, 2048] = A [6000, 512] B [512, 2048]. WEFT_F32 or WEFT_F64. */
WEFT_API weft_status weft_measure_gemm(weft_dtype dtype, int threads, double *flops_per_second,
                                       weft_error *error);
/* Bytes per second between memory and processor: a = b + s c over f32 arrays that together are six
 * times the last-level cache or more (McCalpin's STREAM triad, and its count of bytes: two arrays
 * read, one written). */
WEFT_API weft_status weft_measure_triad(int threads, double *bytes_per_second, weft_error *error);
/* Both. */
WEFT_API weft_status weft_measure_peaks(weft_dtype dtype, int threads, weft_peaks *peaks,
                                        weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
