/* Elementary functions of whole vectors, or of elements where vectors gain nothing. AVX-512 limits a
 * number, and multiplies it by a power of two, by one instruction, which compilers do not use where
 * they vectorise the functions of base/vmath.h: those take 1.4 to 1.7 times as long. For every
 * argument the bits are those of base/vmath.h, which has the formulas; only NaNs may differ. */
#ifndef WEFT_OPS_KERNELS_VMATH_LANES_H
#define WEFT_OPS_KERNELS_VMATH_LANES_H

#include "simd.h"

#include "base/vmath.h"

#ifdef WEFT_KERNEL_ISA

#if defined(__AVX512F__) && KERNEL_IS(f32)
#define VM_VECTORS 1
typedef simd_vector vm_lanes;
#define VM_STEP       SIMD_LANES
#define VM_EACH(i, n) for (int64_t i = 0; i < (n); i += VM_STEP)
#else
#define VM_VECTORS 0
typedef T vm_lanes;
#define VM_STEP    1
#define VM_EACH    SIMD_FOR
#endif
/* Those that lie at p, where a loop VM_EACH stands; its n is a multiple of VM_STEP. */
#define VM_AT(p) (*(vm_lanes *)(p))

#if VM_VECTORS

/* min(x, high) and max(x, low), NaN for NaN. */
SIMD_INLINE vm_lanes vm_lanes_at_most(vm_lanes x, float high)
{
    return (vm_lanes)_mm512_min_ps(_mm512_set1_ps(high), (__m512)x);
}
SIMD_INLINE vm_lanes vm_lanes_at_least(vm_lanes x, float low)
{
    return (vm_lanes)_mm512_max_ps(_mm512_set1_ps(low), (__m512)x);
}

/* c[0] x^(n-1) + ... + c[n-1]. */
#define VM_POLYNOMIAL(x, ...)                                                                      \
    vm_lanes_polynomial(x, (const float[]){__VA_ARGS__},                                           \
                        (int)(sizeof(float[]){__VA_ARGS__} / sizeof(float)))
SIMD_INLINE vm_lanes vm_lanes_polynomial(vm_lanes x, const float *c, const int n)
{
    vm_lanes p = c[0] - (vm_lanes){0};
    SIMD_UNROLL(16)
    for (int i = 1; i < n; i++) p = simd_fma(p, x, c[i] - (vm_lanes){0});
    return p;
}

/* e^x = p 2^n for x from -104 to 89, or NaN. */
typedef struct vm_lanes_power {
    vm_lanes p, n;
} vm_lanes_power;

SIMD_INLINE vm_lanes_power vm_lanes_exp_power(vm_lanes x)
{
    const vm_lanes zero = {0}, magic = VM_MAGIC_F32 - zero;
    const vm_lanes n = simd_fma(x, 1.44269504f - zero, magic) - magic;
    const vm_lanes r = simd_fma(n, -1.42860677e-6f - zero, simd_fma(n, -0.693145752f - zero, x));
    const vm_lanes p =
        VM_POLYNOMIAL(r, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f);
    return (vm_lanes_power){1 + simd_fma(p * r, r, r), n};
}

SIMD_INLINE vm_lanes vm_lanes_exp(vm_lanes x)
{
    const vm_lanes_power y = vm_lanes_exp_power(vm_lanes_at_most(vm_lanes_at_least(x, -104), 89));
    return (vm_lanes)_mm512_scalef_ps((__m512)y.p, (__m512)y.n);
}

SIMD_INLINE vm_lanes vm_lanes_gelu(vm_lanes x)
{
    const vm_lanes a = vm_lanes_at_most((vm_lanes)_mm512_abs_ps((__m512)x), 20);
    const vm_lanes q = VM_POLYNOMIAL(a, -1.42752784e-6f, 2.091454329e-5f, -9.905843535e-5f,
                                     -1.664464051e-4f, 0.004988019095f, -0.03645014391f,
                                     -0.3182785744f, -0.797887758f, 5.136382963e-8f);
    const vm_lanes_power y = vm_lanes_exp_power(q);
    const __mmask16 normal = _mm512_cmp_ps_mask((__m512)q, _mm512_set1_ps(-87), _CMP_NLT_UQ);
    const vm_lanes down = (vm_lanes)_mm512_maskz_scalef_ps(normal, (__m512)y.p, (__m512)y.n);
    /* 0 for -0: where vm_gelu adds -0 to 0, 0 is added to -0 here. */
    const vm_lanes right = (vm_lanes)_mm512_max_ps((__m512)x, _mm512_setzero_ps());
    return simd_fma(-0.5f * a, down, right);
}

SIMD_INLINE vm_lanes vm_lanes_log(vm_lanes x)
{
    const vm_lanes zero = {0};
    const __mmask16 tiny = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    const __m512i bits =
        (__m512i)_mm512_mask_mul_ps((__m512)x, tiny, (__m512)x, _mm512_set1_ps(0x1p25f));
    const __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(0x3f3504f3)), 23);
    const vm_lanes m = (vm_lanes)_mm512_sub_epi32(bits, _mm512_slli_epi32(e, 23));
    __m512 n = _mm512_cvtepi32_ps(e);
    n = _mm512_mask_sub_ps(n, tiny, n, _mm512_set1_ps(25));
    const vm_lanes s = (m - 1) / (m + 1), z = s * s;
    const vm_lanes p = VM_POLYNOMIAL(z, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3) * z;
    vm_lanes y = simd_fma((vm_lanes)n, 0.693145752f - zero,
                          simd_fma((vm_lanes)n, 1.42860677e-6f - zero, 2 * simd_fma(s, p, s)));
    /* NaN, zeros, infinities and negative numbers. */
    const __mmask16 others = _mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_NGT_UQ) |
                             _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(INFINITY), _CMP_EQ_OQ);
    for (int i = 0; others && i < SIMD_WIDTH; i++) y[i] = others >> i & 1 ? vm_log_f32(x[i]) : y[i];
    return y;
}

/* Where p is above 0, x; else p. */
SIMD_INLINE vm_lanes vm_lanes_if_positive(vm_lanes p, vm_lanes x)
{
    const __mmask16 above = _mm512_cmp_ps_mask((__m512)p, _mm512_setzero_ps(), _CMP_GT_OQ);
    return (vm_lanes)_mm512_mask_mov_ps((__m512)p, above, (__m512)x);
}

#else

#define vm_lanes_exp               vm_exp
#define vm_lanes_gelu              vm_gelu
#define vm_lanes_log               vm_log
#define vm_lanes_if_positive(p, x) ((p) > 0 ? (x) : (p))

#endif

#endif
#endif
