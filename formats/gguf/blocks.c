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

/* ---- Blocks of 32 ---- */

/* d, 32 signed bytes q: y = q d. */
static void widen_q8_0(const uint8_t *b, float *y, size_t n)
{
    for (; n; n--, b += 34, y += 32) {
        const float d = half_at(b);
        for (int i = 0; i < 32; i++) y[i] = (float)(int8_t)b[2 + i] * d;
    }
}

/* d, nibbles q: y = d (q - 8). */
static void widen_q4_0(const uint8_t *b, float *y, size_t n)
{
    for (; n; n--, b += 18, y += 32) {
        const float d = half_at(b);
        for (int i = 0; i < 16; i++) {
            y[i] = d * (float)((b[2 + i] & 15) - 8);
            y[16 + i] = d * (float)((b[2 + i] >> 4) - 8);
        }
    }
}

/* d, m, nibbles q: y = d q + m. */
static void widen_q4_1(const uint8_t *b, float *y, size_t n)
{
    for (; n; n--, b += 20, y += 32) {
        const float d = half_at(b), m = half_at(b + 2);
        for (int i = 0; i < 16; i++) {
            y[i] = d * (float)(b[4 + i] & 15) + m;
            y[16 + i] = d * (float)(b[4 + i] >> 4) + m;
        }
    }
}

/* The 32 numbers of five bits whose upper ones are the bits of `high`, the first the lowest. */
static void join_fifth(uint32_t high, const uint8_t *nibbles, int q[32])
{
    for (int i = 0; i < 16; i++) {
        q[i] = (nibbles[i] & 15) | (int)(high >> i & 1) << 4;
        q[16 + i] = nibbles[i] >> 4 | (int)(high >> (16 + i) & 1) << 4;
    }
}

/* d, 32 fifth bits, nibbles, q of both: y = d (q - 16). */
static void widen_q5_0(const uint8_t *b, float *y, size_t n)
{
    int q[32];
    for (; n; n--, b += 22, y += 32) {
        const float d = half_at(b);
        join_fifth(gguf_u32(b + 2), b + 6, q);
        for (int i = 0; i < 32; i++) y[i] = d * (float)(q[i] - 16);
    }
}

/* d, m, 32 fifth bits, nibbles, q of both: y = d q + m. */
static void widen_q5_1(const uint8_t *b, float *y, size_t n)
{
    int q[32];
    for (; n; n--, b += 24, y += 32) {
        const float d = half_at(b), m = half_at(b + 2);
        join_fifth(gguf_u32(b + 4), b + 8, q);
        for (int i = 0; i < 32; i++) y[i] = d * (float)q[i] + m;
    }
}

/* ---- Blocks of 256 ---- */

/* Scale and minimum, six bits each, of the group `g` of 32 numbers, 0 to 7, from 12 bytes: the
 * scales of groups 0 to 3 are the lower six bits of bytes 0 to 3, their minima those of bytes 4 to
 * 7. Those of groups 4 to 7 have their lower four bits in the halves of bytes 8 to 11, and their
 * upper two above those of groups 0 to 3. */
static void scale_and_minimum(const uint8_t *s, int g, float *scale, float *minimum)
{
    const int k = g & 3;
    if (g < 4) {
        *scale = (float)(s[k] & 63);
        *minimum = (float)(s[4 + k] & 63);
    } else {
        *scale = (float)((s[8 + k] & 15) | (s[k] >> 6) << 4);
        *minimum = (float)(s[8 + k] >> 4 | (s[4 + k] >> 6) << 4);
    }
}

/* d, d_min, 12 bytes of scales s and minima m of eight groups, 128 bytes of nibbles: the lower
 * halves of 32 bytes are a group of numbers q, their upper halves the next one.
 * y = (d s) q - (d_min m). */
static void widen_q4_k(const uint8_t *b, float *y, size_t n)
{
    for (; n; n--, b += 144) {
        const float d = half_at(b), d_min = half_at(b + 2);
        for (int g = 0; g < 8; g++, y += 32) {
            const uint8_t *q = b + 16 + 32 * (g / 2);
            float s, m;
            scale_and_minimum(b + 4, g, &s, &m);
            const float scale = d * s, minimum = d_min * m;
            for (int i = 0; i < 32; i++) y[i] = scale * (float)(q[i] >> 4 * (g & 1) & 15) - minimum;
        }
    }
}

/* The same with 32 bytes of fifth bits before the nibbles: bit g of byte i is that of number i of
 * group g. */
static void widen_q5_k(const uint8_t *b, float *y, size_t n)
{
    for (; n; n--, b += 176) {
        const float d = half_at(b), d_min = half_at(b + 2);
        const uint8_t *high = b + 16;
        for (int g = 0; g < 8; g++, y += 32) {
            const uint8_t *q = b + 48 + 32 * (g / 2);
            float s, m;
            scale_and_minimum(b + 4, g, &s, &m);
            const float scale = d * s, minimum = d_min * m;
            for (int i = 0; i < 32; i++) {
                const int five = (q[i] >> 4 * (g & 1) & 15) | (high[i] >> g & 1) << 4;
                y[i] = scale * (float)five - minimum;
            }
        }
    }
}

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
    {"F32", 0, 1, 4, widen_f32},
    {"F16", 1, 1, 2, widen_f16},
    {"Q4_0", 2, 32, 18, widen_q4_0},
    {"Q4_1", 3, 32, 20, widen_q4_1},
    {"Q5_0", 6, 32, 22, widen_q5_0},
    {"Q5_1", 7, 32, 24, widen_q5_1},
    {"Q8_0", 8, 32, 34, widen_q8_0},
    {"Q8_1", 9, 32, 40, NULL},
    {"Q2_K", 10, 256, 84, NULL},
    {"Q3_K", 11, 256, 110, NULL},
    {"Q4_K", 12, 256, 144, widen_q4_k},
    {"Q5_K", 13, 256, 176, widen_q5_k},
    {"Q6_K", 14, 256, 210, widen_q6_k},
    {"Q8_K", 15, 256, 292, NULL},
    {"IQ2_XXS", 16, 256, 66, NULL},
    {"IQ2_XS", 17, 256, 74, NULL},
    {"IQ3_XXS", 18, 256, 98, NULL},
    {"IQ1_S", 19, 256, 50, NULL},
    {"IQ4_NL", 20, 32, 18, NULL},
    {"IQ3_S", 21, 256, 110, NULL},
    {"IQ2_S", 22, 256, 82, NULL},
    {"IQ4_XS", 23, 256, 136, NULL},
    {"I8", 24, 1, 1, NULL},
    {"I16", 25, 1, 2, NULL},
    {"I32", 26, 1, 4, NULL},
    {"I64", 27, 1, 8, NULL},
    {"F64", 28, 1, 8, NULL},
    {"IQ1_M", 29, 256, 56, NULL},
    {"BF16", 30, 1, 2, widen_bf16},
    {"TQ1_0", 34, 256, 54, NULL},
    {"TQ2_0", 35, 256, 66, NULL},
    {"MXFP4", 39, 32, 17, NULL},
    {"NVFP4", 40, 64, 36, NULL},
    {"Q1_0", 41, 128, 18, NULL},
};

const gguf_type *weft__gguf_type_find(uint32_t number)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == number) return &types[i];
    return NULL;
}
