/* Matrix products by a library: whether one is chosen, and the calls. Only gemm.c calls libraries.
 */
#ifndef WEFT_OPS_GEMM_H
#define WEFT_OPS_GEMM_H

#include <weft/types.h>

/* Whether weft's own kernels, and no library's, multiply matrices of `dtype`: see weft_gemm_chosen.
 * True also where WEFT_GEMM names no backend that exists. Only for bf16 is a library loaded, as not
 * every oneDNN multiplies that. */
bool weft__gemm_is_own(weft_dtype dtype);

/* C [m, n] = op(A) [m, k] op(B) [k, n], row-major with leading dimensions lda, ldb, ldc; op is the
 * transpose where trans_ is set. Data are float or double; or A and B are bf16, and C is float. */
typedef struct gemm_call {
    bool trans_a, trans_b;
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
} gemm_call;

/* The product by the library that is chosen for the dtype, on the calling thread alone. Only after
 * weft_gemm_chosen has returned WEFT_OK for it. */
void weft__gemm_f32(const gemm_call *call);
void weft__gemm_f64(const gemm_call *p);
void weft__gemm_bf16(const gemm_call *p);

#endif
