/* weft/measure.h - whose kernels multiply matrices, and what this machine reaches: the peaks that
 * profiles and benchmarks are held against. */
#ifndef WEFT_MEASURE_H
#define WEFT_MEASURE_H

#include <weft/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Products of matrices ------------------------------------------------------------------- */

/* Whose kernels make the products of weft_matmul: weft's own, or those of a library that is loaded
 * when first needed. The environment variable WEFT_GEMM chooses (weft, openblas, onednn), once for
 * the process; weft's own if it is not set. oneDNN multiplies f32 only; beside it f64 is multiplied
 * by weft's own. OpenBLAS takes 128 MiB or so for its buffers when it first multiplies, and never
 * returns if there is no memory for them. */
typedef enum weft_gemm_backend {
    WEFT_GEMM_WEFT,
    WEFT_GEMM_OPENBLAS,
    WEFT_GEMM_ONEDNN,
    WEFT_GEMM_BACKENDS
} weft_gemm_backend;

/* *backend (may be NULL) becomes the one that multiplies `dtype`, which is then loaded.
 * WEFT_BAD_ARGUMENT if WEFT_GEMM names none; WEFT_NO_BACKEND if its library cannot be loaded;
 * WEFT_BAD_DTYPE unless f32 or f64. weft_matmul fails likewise. */
WEFT_API weft_status weft_gemm_chosen(weft_dtype dtype, weft_gemm_backend *backend,
                                      weft_error *error);

/* Texts live as long as the process; "" where there is nothing to tell. */
typedef struct weft_gemm_info {
    const char *name;    /* as in WEFT_GEMM */
    const char *path;    /* of the library */
    const char *version; /* as the library tells it */
    const char *core;    /* OpenBLAS: the processor for which it took its kernels */
    bool core_chosen;    /* weft asked for AVX-512 kernels: OPENBLAS_CORETYPE was not set */
} weft_gemm_info;
/* Loads the library, chosen or not; WEFT_NO_BACKEND if it cannot be, then only the name is told. */
WEFT_API weft_status weft_gemm_get_info(weft_gemm_backend backend, weft_gemm_info *info,
                                        weft_error *error);

/* ---- What the machine reaches --------------------------------------------------------------- */

/* These measure on `threads` threads (0: weft_default_threads()), take about half a second each,
 * and give the best of several repetitions. They must not be called from a parallel region. On an
 * error the result is left alone. */

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
