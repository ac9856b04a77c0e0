/* Blocks of quantised numbers as floats. O(numbers).
 *
 * The formats are those of ggml/src/ggml-common.h in github.com/ggml-org/ggml (block_q4_0 and
 * others), and the order of the operations is that of dequantize_row_* in ggml/src/ggml-quants.c
 * and of gguf.quants in the Python package `gguf`: each formula below is evaluated in f32, from left
 * to right, and each operation is rounded. So the floats are theirs, bit for bit.
 *
 * d, m: halves (IEEE 754 binary16). Nibbles of 32 numbers in 16 bytes: the lower half of byte i is
 * number i, the upper half number 16 + i. */
#include "blocks.h"

#include "base/half.h"

#include <string.h>

static float half_at(const uint8_t *at)
{
    return half_from_f16(gguf_u16(at));
}

/* ---- Plain numbers ---- */

static void widen_f32(const uint8_t *b, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = gguf_u32(b + 4 * i);
        memcpy(&y[i], &bits, sizeof bits);
    }
}

static void widen_f16(const uint8_t *b, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = half_at(b + 2 * i);
}

static void widen_bf16(const uint8_t *b, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = half_from_bf16(gguf_u16(b + 2 * i));
}

/* ---- Groups of 32 ---- */

/* Nibbles of 32 numbers in 16 bytes. */
static void split_nibbles(const uint8_t *nibbles, uint8_t q[32])
{
    for (int i = 0; i < 16; i++) {
        q[i] = nibbles[i] & 15;
        q[16 + i] = nibbles[i] >> 4;
    }
}

/* The 32 numbers of five bits whose upper ones are the bits of `high`, the first the lowest. */
static void join_fifth(uint32_t high, const uint8_t *nibbles, uint8_t q[32])
{
    split_nibbles(nibbles, q);
    for (int i = 0; i < 32; i++) q[i] |= (uint8_t)((high >> i & 1) << 4);
}

/* d, 32 signed bytes q: y = d q. */
static void split_q8_0(const uint8_t *b, int g, gguf_group *to)
{
    (void)g;
    to->scale = half_at(b);
    to->zero = 128;
    for (int i = 0; i < 32; i++) to->q[i] = b[2 + i] ^ 128;
}

/* d, nibbles q: y = d (q - 8). */
static void split_q4_0(const uint8_t *b, int g, gguf_group *to)
{
    (void)g;
    to->scale = half_at(b);
    to->zero = 8;
    split_nibbles(b + 2, to->q);
}

/* d, m, nibbles q: y = d q + m. */
static void split_q4_1(const uint8_t *b, int g, gguf_group *to)
{
    (void)g;
    to->scale = half_at(b);
    to->minimum = half_at(b + 2);
    split_nibbles(b + 4, to->q);
}

/* d, 32 fifth bits, nibbles, q of both: y = d (q - 16). */
static void split_q5_0(const uint8_t *b, int g, gguf_group *to)
{
    (void)g;
    to->scale = half_at(b);
    to->zero = 16;
    join_fifth(gguf_u32(b + 2), b + 6, to->q);
}

/* d, m, 32 fifth bits, nibbles, q of both: y = d q + m. */
static void split_q5_1(const uint8_t *b, int g, gguf_group *to)
{
    (void)g;
    to->scale = half_at(b);
    to->minimum = half_at(b + 2);
    join_fifth(gguf_u32(b + 4), b + 8, to->q);
}

/* The scale and the minimum of group g of 32 numbers, 0 to 7, from d, d_min and 12 bytes of scales s
 * and minima m of six bits: the scales of groups 0 to 3 are the lower six bits of bytes 0 to 3, their
 * minima those of bytes 4 to 7. Those of groups 4 to 7 have their lower four bits in the halves of
 * bytes 8 to 11, and their upper two above those of groups 0 to 3. */
static void scale_and_minimum(const uint8_t *b, int g, gguf_group *to)
{
    const uint8_t *s = b + 4;
    const int k = g & 3;
    const int scale = g < 4 ? s[k] & 63 : (s[8 + k] & 15) | (s[k] >> 6) << 4;
    const int minimum = g < 4 ? s[4 + k] & 63 : s[8 + k] >> 4 | (s[4 + k] >> 6) << 4;
    to->scale = half_at(b) * (float)scale;
    to->minimum = -(half_at(b + 2) * (float)minimum);
}

/* d, d_min, the scales and minima of eight groups, 128 bytes of nibbles: the lower halves of 32
 * bytes are a group of numbers q, their upper halves the next one. y = (d s) q - (d_min m). */
static void split_q4_k(const uint8_t *b, int g, gguf_group *to)
{
    const uint8_t *q = b + 16 + 32 * (g / 2);
    scale_and_minimum(b, g, to);
    for (int i = 0; i < 32; i++) to->q[i] = q[i] >> 4 * (g & 1) & 15;
}

/* The same with 32 bytes of fifth bits before the nibbles: bit g of byte i is that of number i of
 * group g. */
static void split_q5_k(const uint8_t *b, int g, gguf_group *to)
{
    const uint8_t *high = b + 16, *q = b + 48 + 32 * (g / 2);
    scale_and_minimum(b, g, to);
    for (int i = 0; i < 32; i++)
        to->q[i] = (uint8_t)((q[i] >> 4 * (g & 1) & 15) | (high[i] >> g & 1) << 4);
}

/* ---- Groups of 16 ---- */

/* 128 bytes of nibbles, 64 bytes of pairs of bits, 16 signed scales s of groups of 16 numbers, d.
 * Each half of the block has 128 numbers in four quarters of 32: the nibbles of quarters 0 and 1 are
 * the lower halves of 64 bytes, those of 2 and 3 their upper halves; quarter k has the k-th pairs of
 * 32 bytes. q of six bits: y = (d s) (q - 32). */
static void widen_q6_k(const uint8_t *b, float *y, size_t n)
{
    for (; n; n--, b += 210) {
        const float d = half_at(b + 208);
        for (int k = 0; k < 8; k++, y += 32) {
            const uint8_t *low = b + 64 * (k / 4) + 32 * (k & 1), *high = b + 128 + 32 * (k / 4);
            for (int i = 0; i < 32; i++) {
                const int four = low[i] >> 4 * (k >> 1 & 1) & 15, two = high[i] >> 2 * (k & 3) & 3;
                const float scale = d * (float)(int8_t)b[192 + 2 * k + i / 16];
                y[i] = scale * (float)((four | two << 4) - 32);
            }
        }
    }
}

/* ---- All types ---- */

/* GGML_QUANT_SIZES and GGMLQuantizationType of the package `gguf`, which are those of ggml.h. */
static const gguf_type types[] = {
    {"F32", 0, 1, 4, widen_f32, NULL, 0, false},
    {"F16", 1, 1, 2, widen_f16, NULL, 0, false},
    {"Q4_0", 2, 32, 18, NULL, split_q4_0, 4, false},
    {"Q4_1", 3, 32, 20, NULL, split_q4_1, 4, true},
    {"Q5_0", 6, 32, 22, NULL, split_q5_0, 8, false},
    {"Q5_1", 7, 32, 24, NULL, split_q5_1, 8, true},
    {"Q8_0", 8, 32, 34, NULL, split_q8_0, 8, false},
    {"Q8_1", 9, 32, 40, NULL, NULL, 0, false},
    {"Q2_K", 10, 256, 84, NULL, NULL, 0, false},
    {"Q3_K", 11, 256, 110, NULL, NULL, 0, false},
    {"Q4_K", 12, 256, 144, NULL, split_q4_k, 4, true},
    {"Q5_K", 13, 256, 176, NULL, split_q5_k, 8, true},
    {"Q6_K", 14, 256, 210, widen_q6_k, NULL, 0, false},
    {"Q8_K", 15, 256, 292, NULL, NULL, 0, false},
    {"IQ2_XXS", 16, 256, 66, NULL, NULL, 0, false},
    {"IQ2_XS", 17, 256, 74, NULL, NULL, 0, false},
    {"IQ3_XXS", 18, 256, 98, NULL, NULL, 0, false},
    {"IQ1_S", 19, 256, 50, NULL, NULL, 0, false},
    {"IQ4_NL", 20, 32, 18, NULL, NULL, 0, false},
    {"IQ3_S", 21, 256, 110, NULL, NULL, 0, false},
    {"IQ2_S", 22, 256, 82, NULL, NULL, 0, false},
    {"IQ4_XS", 23, 256, 136, NULL, NULL, 0, false},
    {"I8", 24, 1, 1, NULL, NULL, 0, false},
    {"I16", 25, 1, 2, NULL, NULL, 0, false},
    {"I32", 26, 1, 4, NULL, NULL, 0, false},
    {"I64", 27, 1, 8, NULL, NULL, 0, false},
    {"F64", 28, 1, 8, NULL, NULL, 0, false},
    {"IQ1_M", 29, 256, 56, NULL, NULL, 0, false},
    {"BF16", 30, 1, 2, widen_bf16, NULL, 0, false},
    {"TQ1_0", 34, 256, 54, NULL, NULL, 0, false},
    {"TQ2_0", 35, 256, 66, NULL, NULL, 0, false},
    {"MXFP4", 39, 32, 17, NULL, NULL, 0, false},
    {"NVFP4", 40, 64, 36, NULL, NULL, 0, false},
    {"Q1_0", 41, 128, 18, NULL, NULL, 0, false},
};

const gguf_type *weft__gguf_type_find(uint32_t number)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == number) return &types[i];
    return NULL;
}

void weft__gguf_widen(const gguf_type *type, const uint8_t *blocks, float *y, size_t n)
{
    if (type->widen) {
        type->widen(blocks, y, n);
        return;
    }
    for (; n; n--, blocks += type->bytes)
        for (int g = 0; g < type->weights / 32; g++, y += 32) {
            gguf_group from;
            type->split(blocks, g, &from);
            for (int i = 0; i < 32; i++)
                y[i] = type->minima ? from.scale * (float)from.q[i] + from.minimum
                                    : from.scale * (float)(from.q[i] - from.zero);
        }
}
