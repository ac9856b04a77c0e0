/* weft/measure.h - which instruction set and which backend compute, and the peak rates of this
 * machine, with which profiles and benchmarks are compared. */
#ifndef WEFT_MEASURE_H
#define WEFT_MEASURE_H

#include <weft/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The instruction set of the kernels: "base", "v3" (AVX2, FMA), "v4" (AVX-512) or "v4_bf16" (with
 * dot products of bf16). It is the processor's best, or a lower one that the environment variable
 * WEFT_ISA names. NULL and WEFT_BAD_ARGUMENT if WEFT_ISA names none. */
WEFT_API const char *weft_instruction_set(weft_error *error);

/* ---- Matrix products ------------------------------------------------------------------- */

/* Whose kernels compute weft_matmul: weft's own, or those of a library that is loaded when first
 * needed. The environment variable WEFT_GEMM (weft, openblas, onednn) chooses once for the process;
 * the default is weft. weft's own kernels multiply what the library cannot: f64 of oneDNN, bf16 of
 * OpenBLAS, and bf16 of a oneDNN that has no such product for this processor. OpenBLAS allocates
 * about 128 MiB of buffers when it first multiplies, and hangs if there is no memory for them. */
typedef enum weft_gemm_backend {
    WEFT_GEMM_WEFT,
    WEFT_GEMM_OPENBLAS,
    WEFT_GEMM_ONEDNN,
    WEFT_GEMM_BACKENDS
} weft_gemm_backend;

/* Sets *backend (may be NULL) to the one that multiplies `dtype`, and loads it. WEFT_BAD_ARGUMENT
 * if WEFT_GEMM names no backend; WEFT_NO_BACKEND if its library cannot be loaded; WEFT_BAD_DTYPE
 * unless the dtype is f32, f64 or bf16. weft_matmul fails likewise. */
WEFT_API weft_status weft_gemm_chosen(weft_dtype dtype, weft_gemm_backend *backend,
                                      weft_error *error);

/* Texts live as long as the process; "" where a fact is unknown. */
typedef struct weft_gemm_info {
    const char *name;    /* as in WEFT_GEMM */
    const char *path;    /* of the library */
    const char *version; /* as the library reports it */
    const char *core;    /* OpenBLAS: the processor whose kernels it uses */
    bool core_chosen;    /* weft asked for AVX-512 kernels: OPENBLAS_CORETYPE was not set */
} weft_gemm_info;
/* Loads the library, chosen or not. WEFT_NO_BACKEND if that fails; then only the name is set. */
WEFT_API weft_status weft_gemm_info_of(weft_gemm_backend backend, weft_gemm_info *info,
                                       weft_error *error);

/* ---- Peak rates of the machine --------------------------------------------------------------- */

/* The highest rates of the machine on all threads. */
typedef struct weft_peaks {
    double flops_per_second, bytes_per_second;
} weft_peaks;

/* These functions measure on `threads` threads (0: weft_default_threads()), take about half a
 * second each, and return the best of several repetitions. Do not call them from a parallel region.
 * On an error the result is unchanged. */

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
