/* dropout: the mask of element i comes from the counter-based generator at (key, seed, step, i), so
 * that forward, backward and any split into tiles see the same mask and none is stored. */
#include "kernel.h"

typedef struct dropout_attr {
    double p;
    uint64_t key;
} dropout_attr;

#ifdef WEFT_KERNEL_ISA
#ifdef __SSE2__
#include <immintrin.h>
#endif

/* A vector of 64-bit lanes, and the product of the lower halves of two. Compilers turn 32-bit
 * factors into 64-bit multiplications that are several times slower. */
#if defined(__AVX512F__)
#define LANES              8
#define MULTIPLY_LOW(a, b) (words) _mm512_mul_epu32((__m512i)(a), (__m512i)(b))
#define FIRST_HALF         0, 8, 1, 9, 2, 10, 3, 11
#define SECOND_HALF        4, 12, 5, 13, 6, 14, 7, 15
#elif defined(__AVX2__)
#define LANES              4
#define MULTIPLY_LOW(a, b) (words) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#define FIRST_HALF         0, 4, 1, 5
#define SECOND_HALF        2, 6, 3, 7
#else
#define LANES 2
#ifdef __SSE2__
#define MULTIPLY_LOW(a, b) (words) _mm_mul_epu32((__m128i)(a), (__m128i)(b))
#else
#define MULTIPLY_LOW(a, b) (((a)&0xFFFFFFFFu) * (b))
#endif
#define FIRST_HALF  0, 2
#define SECOND_HALF 1, 3
#endif
typedef uint64_t words __attribute__((vector_size(8 * LANES)));

#define GROUP (4 * LANES) /* elements that LANES counters serve */
#define BLOCK 1024        /* elements whose bits are made at a time: whole groups */

/* weft_philox for the counters [index + j, step] of lanes j; bits[4 j + k] becomes word k of lane
 * j. Only the lower half of a lane counts until the end: the upper ones collect what is not needed.
 */
static inline void philox_lanes(uint64_t index, uint64_t step, uint64_t key, uint32_t *bits)
{
    words c0, c2 = (words){0} + step, c1, c3 = c2 >> 32;
    const words m0 = (words){0} + 0xD2511F53u, m1 = (words){0} + 0xCD9E8D57u;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int j = 0; j < LANES; j++) c0[j] = index + (uint64_t)j;
    c1 = c0 >> 32;
    for (int round = 0; round < 10; round++) {
        const words p0 = MULTIPLY_LOW(c0, m0), p1 = MULTIPLY_LOW(c2, m1);
        c0 = (p1 >> 32) ^ c1 ^ (uint64_t)k0;
        c2 = (p0 >> 32) ^ c3 ^ (uint64_t)k1;
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    const words first = c0 << 32 | (c1 & 0xFFFFFFFFu), second = c2 << 32 | (c3 & 0xFFFFFFFFu);
#else
    const words first = (c0 & 0xFFFFFFFFu) | c1 << 32, second = (c2 & 0xFFFFFFFFu) | c3 << 32;
#endif
    const words half[2] = {__builtin_shufflevector(first, second, FIRST_HALF),
                           __builtin_shufflevector(first, second, SECOND_HALF)};
    memcpy(bits, half, sizeof half);
}

KERNEL(dropout)
{
    const dropout_attr *attr = call->attr;
    const T scale = (T)(1 / (1 - attr->p));
    /* Kept where the 32 random bits are at or above p 2^32. */
    const uint32_t limit = (uint32_t)(attr->p * 4294967296.0);
    const uint64_t key = attr->key ^ (call->run->seed * 0xD1342543DE82EF95u);
    const T *x = call->in[0].data;
    T *y = call->out[0].data;
    int64_t n = numel_of(&call->out[0].shape), end = (part + 1) * TILE < n ? (part + 1) * TILE : n;
    for (int64_t at = part * TILE; at < end; at += BLOCK) {
        uint32_t bits[BLOCK];
        const int64_t count = end - at < BLOCK ? end - at : BLOCK;
        for (int64_t i = 0; i < count; i += GROUP)
            philox_lanes((uint64_t)(at + i) / 4, call->run->step, key, bits + i);
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) y[at + i] =
            bits[i] >= limit ? x[at + i] * scale : 0;
    }
}

#else

#include <weft/ops.h>

extern const weft_op weft_op_dropout;

static bool infer_dropout(weft_infer *infer)
{
    double p = ((const dropout_attr *)infer->attr)->p;
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0) &&
           ((p >= 0 && p < 1) ||
            weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "p must be in [0, 1), got %g", p));
}

/* Linear, with the mask of the same key. */
static void vjp_dropout(weft_vjp *v)
{
    v->grad_in[0] = weft_apply(v->graph, &weft_op_dropout, v->attr, v->grad_out, 1, NULL);
}

static void cost_dropout(const weft_call *call, weft_cost *cost)
{
    double n = (double)numel_of(&call->out[0].shape);
    cost->flops = 20 * n;
    cost->bytes = 2 * n * (double)weft_dtype_bytes(call->out[0].dtype);
}

static const dropout_attr drop_some = {0.3, 11}, drop_none = {0.0, 12};
static const weft_sample samples_dropout[] = {
    {&drop_some, 1, {{WEFT_FLOAT, {2, {5, 9}}, -2, 2, false}}},
    {&drop_none, 1, {{WEFT_FLOAT, {1, {5}}, -2, 2, false}}},
    {&drop_some, 1, {{WEFT_FLOAT, {2, {0, 2}}, -2, 2, false}}},
};
static const weft_attr_field dropout_fields[] = {
    {"p", WEFT_ATTR_DOUBLE, offsetof(dropout_attr, p)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_KERNELS(dropout);
const weft_op weft_op_dropout = {
    .name = "dropout",
    .doc = "y = x / (1 - p) with probability 1 - p, else 0 (Srivastava et al. 2014, inverted).",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(dropout_attr),
    .attrs = dropout_fields,
    .infer = infer_dropout,
    .kernel = FLOAT_KERNELS(dropout),
    .takes = WEFT_TAKES_DENSE,
    .cost = cost_dropout,
    .inplace = 1,
    .random = true,
    .vjp = vjp_dropout,
    .samples = samples_dropout,
    .n_samples = sizeof samples_dropout / sizeof *samples_dropout,
};

weft_value weft_dropout(weft_graph *graph, weft_value x, double p)
{
    if (p == 0) return x;
    dropout_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.p = p;
    attr.key = weft_random_key(graph);
    return weft_apply(graph, &weft_op_dropout, &attr, &x, 1, NULL);
}

#endif
