/* Products of matrices: the choice of a backend, and the one door to the libraries. */
#ifndef WEFT_OPS_GEMM_H
#define WEFT_OPS_GEMM_H

#include <weft/tensor.h>

/* Whether weft's own kernels, and no library's, multiply matrices of `dtype`: see weft_gemm_chosen.
 * True also where WEFT_GEMM names no backend that exists. Loads nothing. */
bool gemm_is_own(weft_dtype dtype);

/* C [m, n] = op(A) [m, k] op(B) [k, n], row-major with leading dimensions lda, ldb, ldc; op is the
 * transpose where trans_ is set. On the calling thread alone. By the library that is chosen for the
 * dtype; only after weft_gemm_chosen gave one for it. */
void gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
              int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc);
void gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const double *a,
              int64_t lda, const double *b, int64_t ldb, double *c, int64_t ldc);

#endif
