/* The mask of dropout, for the op itself and for attention: element i of a value is not dropped
 * where word i % 4 of philox(counter (i / 4, run), stream) is at or above p 2^32. */
#ifndef WEFT_OPS_DROPOUT_H
#define WEFT_OPS_DROPOUT_H

#include <weft/call.h>

typedef struct dropout_attr {
    double p;
    uint64_t key;
} dropout_attr;

static inline uint64_t dropout_stream(uint64_t key, const weft_run_context *context)
{
    return key ^ (context->seed * 0xD1342543DE82EF95u);
}

static inline uint32_t dropout_limit(double p)
{
    return (uint32_t)(p * 4294967296.0);
}

#ifdef WEFT_KERNEL_ISA
#ifdef __SSE2__
#include <immintrin.h>
#endif

/* Counters side by side, each in 64 bits of which the low half counts: a product of two halves is
 * then one instruction, and nothing needs to be packed between rounds. */
#if defined __AVX512F__
#define DROPOUT_LANES 8
#elif defined __AVX2__
#define DROPOUT_LANES 4
#else
#define DROPOUT_LANES 2
#endif
typedef uint64_t dropout_wide
    __attribute__((vector_size(8 * DROPOUT_LANES), aligned(8), may_alias));
typedef uint32_t dropout_half
    __attribute__((vector_size(4 * DROPOUT_LANES), aligned(4), may_alias));

static inline dropout_wide dropout_product(dropout_wide a, dropout_wide b)
{
#if defined __AVX512F__
    return (dropout_wide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined __AVX2__
    return (dropout_wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined __SSE2__
    return (dropout_wide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

/* The words c[0 .. 3] of DROPOUT_LANES indices, in the low halves. */
static inline void dropout_rounds(dropout_wide index, uint64_t stream, uint64_t run,
                                  dropout_wide c[4])
{
    const dropout_wide zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    uint32_t k0 = (uint32_t)stream, k1 = (uint32_t)(stream >> 32);
    c[0] = index;
    c[1] = index >> 32;
    c[2] = zero + run;
    c[3] = zero + (run >> 32);
    for (int round = 0; round < 10; round++) {
        const dropout_wide p0 = dropout_product(c[0], m0), p1 = dropout_product(c[2], m1);
        c[0] = (p1 >> 32) ^ c[1] ^ k0;
        c[1] = p1;
        c[2] = (p0 >> 32) ^ c[3] ^ k1;
        c[3] = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The words of DROPOUT_LANES indices: word w of lane i goes to out[w row + i]. */
static inline void dropout_words_wide(dropout_wide index, uint64_t stream, uint64_t run,
                                      uint32_t *out, int64_t row)
{
    dropout_wide c[4];
    dropout_rounds(index, stream, run, c);
    for (int w = 0; w < 4; w++)
        *(dropout_half *)(out + w * row) = __builtin_convertvector(c[w], dropout_half);
}

#if DROPOUT_LANES == 8
#define DROPOUT_FIRST  0, 8, 1, 9, 2, 10, 3, 11
#define DROPOUT_SECOND 4, 12, 5, 13, 6, 14, 7, 15
#elif DROPOUT_LANES == 4
#define DROPOUT_FIRST  0, 4, 1, 5
#define DROPOUT_SECOND 2, 6, 3, 7
#else
#define DROPOUT_FIRST  0, 2
#define DROPOUT_SECOND 1, 3
#endif

/* The words of elements 4 index .. 4 index + count - 1 in their order. `bits` has room for whole
 * groups of 4 DROPOUT_LANES. */
static inline void dropout_bits(uint64_t index, int64_t count, uint64_t stream, uint64_t run,
                                uint32_t *bits)
{
    dropout_wide lanes = {0};
    for (int j = 0; j < DROPOUT_LANES; j++) lanes[j] = index + (uint64_t)j;
    for (int64_t i = 0; i < count; i += 4 * DROPOUT_LANES, lanes += DROPOUT_LANES) {
        dropout_wide c[4];
        dropout_rounds(lanes, stream, run, c);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        const dropout_wide a = c[0] << 32 | (c[1] & 0xFFFFFFFFu);
        const dropout_wide b = c[2] << 32 | (c[3] & 0xFFFFFFFFu);
#else
        const dropout_wide a = (c[0] & 0xFFFFFFFFu) | c[1] << 32;
        const dropout_wide b = (c[2] & 0xFFFFFFFFu) | c[3] << 32;
#endif
        *(dropout_wide *)(bits + i) = __builtin_shufflevector(a, b, DROPOUT_FIRST);
        *(dropout_wide *)(bits + i + 2 * DROPOUT_LANES) =
            __builtin_shufflevector(a, b, DROPOUT_SECOND);
    }
}
#endif

#endif
