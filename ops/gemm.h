/* Products of matrices: the choice of a backend, and the one door to BLAS. */
#ifndef WEFT_OPS_GEMM_H
#define WEFT_OPS_GEMM_H

#include <weft/graph.h>

/* Whose kernels multiply: weft's own, or those of a library, by the environment variable WEFT_GEMM
 * (weft, openblas); weft's own by default. */
typedef enum gemm_backend { GEMM_WEFT, GEMM_OPENBLAS } gemm_backend;
gemm_backend gemm_chosen(void);

/* Loads OpenBLAS once for the process; WEFT_NO_BACKEND with one line where that fails. */
weft_status gemm_load(weft_error *error);

/* C [m, n] = op(A) [m, k] op(B) [k, n], row-major with leading dimensions lda, ldb, ldc; op is the
 * transpose where trans_ is set. On the calling thread alone. Only after gemm_load. */
void gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
              int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc);
void gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const double *a,
              int64_t lda, const double *b, int64_t ldb, double *c, int64_t ldc);

#endif
