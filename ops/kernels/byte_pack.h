/* Whole numbers as bytes within bounds, 64 at a time, with AVX-512. */
#ifndef WEFT_OPS_KERNELS_BYTE_PACK_H
#define WEFT_OPS_KERNELS_BYTE_PACK_H

#include "simd.h"

#if defined(WEFT_KERNEL_ISA) && defined(__AVX512F__)

/* 16 bytes as numbers. */
SIMD_INLINE __m512i byte_lanes(const uint8_t *x)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)(const void *)x));
}

/* What is added to the numbers, and the bounds of the bytes. */
typedef struct byte_pack {
    __m512i zero, low, high;
    __m512i order; /* of words, after packing */
} byte_pack;

static inline byte_pack byte_pack_of(int32_t zero, int32_t low, int32_t high)
{
    return (byte_pack){.zero = _mm512_set1_epi16((short)zero),
                       .low = _mm512_set1_epi8((char)low),
                       .high = _mm512_set1_epi8((char)high),
                       .order =
                           _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)};
}

/* The bytes of 64 numbers, in order. Packing bounds them to 16 bits and then to bytes. */
SIMD_INLINE __m512i byte_packed(const byte_pack *p, const __m512i *number)
{
    const __m512i a = _mm512_adds_epi16(_mm512_packs_epi32(number[0], number[1]), p->zero);
    const __m512i b = _mm512_adds_epi16(_mm512_packs_epi32(number[2], number[3]), p->zero);
    const __m512i bytes = _mm512_packus_epi16(a, b);
    return _mm512_permutexvar_epi32(p->order,
                                    _mm512_min_epu8(_mm512_max_epu8(bytes, p->low), p->high));
}

#endif
#endif
