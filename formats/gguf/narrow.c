/* Floats as blocks of GGUF files, the inverse of blocks.c. O(numbers).
 *
 * The rules are those of quantize_row_*_ref in ggml/src/ggml-quants.c, in the form of gguf.quants in
 * the Python package `gguf`: each formula is evaluated in f32, from left to right, and each operation
 * is rounded. So the blocks are those of the package, bit for bit. */
#include "save.h"

#include "base/half.h"

#include <math.h>
#include <string.h>

static void put_u16(uint8_t *at, uint16_t number)
{
    at[0] = (uint8_t)number;
    at[1] = (uint8_t)(number >> 8);
}

static void put_half(uint8_t *at, float x)
{
    put_u16(at, half_to_f16(x));
}

/* ---- Plain numbers ---- */

static bool narrow_f32(const float *x, uint8_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        put_u16(b + 4 * i, (uint16_t)bits);
        put_u16(b + 4 * i + 2, (uint16_t)(bits >> 16));
    }
    return true;
}

static bool narrow_f16(const float *x, uint8_t *b, size_t n)
{
    bool good = true;
    for (size_t i = 0; i < n; i++) {
        const uint16_t y = half_to_f16(x[i]);
        good = good && isfinite(half_from_f16(y)) == isfinite(x[i]);
        put_u16(b + 2 * i, y);
    }
    return good;
}

static bool narrow_bf16(const float *x, uint8_t *b, size_t n)
{
    bool good = true;
    for (size_t i = 0; i < n; i++) {
        const uint16_t y = half_to_bf16(x[i]);
        good = good && isfinite(half_from_bf16(y)) == isfinite(x[i]);
        put_u16(b + 2 * i, y);
    }
    return good;
}

/* ---- Groups of 32 ---- */

/* 1 / scale; 0 if that is infinite. Such a scale is 0 as a half. */
static float inverse_of(float scale)
{
    const float inverse = scale != 0 ? 1 / scale : 0;
    return isfinite(inverse) ? inverse : 0;
}

/* d = max |x| / 127, q = x / d to the nearest, halves away from zero. */
static void choose_q8_0(const float x[32], gguf_group *to)
{
    float most = 0;
    for (int i = 0; i < 32; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    to->scale = most / 127;
    to->zero = 128;
    const float inverse = inverse_of(to->scale);
    for (int i = 0; i < 32; i++) to->q[i] = (uint8_t)(128 + (int)roundf(x[i] * inverse));
}

/* d = -m / 8 with m the first number of the largest size, which becomes 0; q = x / d + 8.5, cut. */
static void choose_q4_0(const float x[32], gguf_group *to)
{
    float most = 0;
    for (int i = 0; i < 32; i++) most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    to->scale = most / -8;
    to->zero = 8;
    const float inverse = inverse_of(to->scale);
    for (int i = 0; i < 32; i++) {
        const int q = (int)(x[i] * inverse + 8.5f);
        to->q[i] = (uint8_t)(q < 15 ? q : 15);
    }
}

/* d = (max - min) / 15, m = min; q = (x - min) / d + 0.5, cut. */
static void choose_q4_1(const float x[32], gguf_group *to)
{
    float least = x[0], most = x[0];
    for (int i = 1; i < 32; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    to->scale = (most - least) / 15;
    to->minimum = least;
    if (!isfinite(to->scale)) return; /* narrow_group refuses it */
    const float inverse = inverse_of(to->scale);
    for (int i = 0; i < 32; i++) {
        const int q = (int)((x[i] - least) * inverse + 0.5f);
        to->q[i] = (uint8_t)(q < 15 ? q : 15);
    }
}

static void join_nibbles(const uint8_t q[32], uint8_t *to)
{
    for (int i = 0; i < 16; i++) to[i] = (uint8_t)((q[i] & 15) | (q[16 + i] & 15) << 4);
}

static void join_fifth(const uint8_t q[32], uint8_t *to)
{
    uint32_t high = 0;
    for (int i = 0; i < 32; i++) high |= (uint32_t)(q[i] >> 4 & 1) << i;
    put_u16(to, (uint16_t)high);
    put_u16(to + 2, (uint16_t)(high >> 16));
    join_nibbles(q, to + 4);
}

static void join_q8_0(const gguf_group *from, uint8_t *b)
{
    put_half(b, from->scale);
    for (int i = 0; i < 32; i++) b[2 + i] = from->q[i] ^ 128;
}

static void join_q4_0(const gguf_group *from, uint8_t *b)
{
    put_half(b, from->scale);
    join_nibbles(from->q, b + 2);
}

static void join_q4_1(const gguf_group *from, uint8_t *b)
{
    put_half(b, from->scale);
    put_half(b + 2, from->minimum);
    join_nibbles(from->q, b + 4);
}

static void join_q5_0(const gguf_group *from, uint8_t *b)
{
    put_half(b, from->scale);
    join_fifth(from->q, b + 2);
}

static void join_q5_1(const gguf_group *from, uint8_t *b)
{
    put_half(b, from->scale);
    put_half(b + 2, from->minimum);
    join_fifth(from->q, b + 4);
}

/* ---- All types ---- */

/* Numbers of files: LLAMA_FTYPE_* in include/llama.h of llama.cpp. */
static const gguf_written types[] = {
    {"f32", 0, 0, true, narrow_f32, NULL, NULL},
    {"f16", 1, 1, true, narrow_f16, NULL, NULL},
    {"bf16", 30, 32, true, narrow_bf16, NULL, NULL},
    {"q8_0", 8, 7, true, NULL, choose_q8_0, join_q8_0},
    {"q4_0", 2, 2, true, NULL, choose_q4_0, join_q4_0},
    {"q4_1", 3, 3, true, NULL, choose_q4_1, join_q4_1},
    {"q5_0", 6, 8, false, NULL, NULL, join_q5_0},
    {"q5_1", 7, 9, false, NULL, NULL, join_q5_1},
};

const gguf_written *weft__gguf_written_find(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name)) return &types[i];
    return NULL;
}

bool weft__gguf_join(const gguf_written *to, const gguf_group *from, uint8_t *block)
{
    gguf_group again = *from;
    again.zero = 0; /* types with minima have none, and others no minimum */
    again.minimum = 0;
    to->join(from, block);
    weft__gguf_type_find(to->number)->split(block, 0, &again);
    return !memcmp(again.q, from->q, sizeof again.q) && again.zero == from->zero &&
           !memcmp(&again.scale, &from->scale, sizeof again.scale) &&
           !memcmp(&again.minimum, &from->minimum, sizeof again.minimum);
}

/* A block of a group, whose scale and minimum are rounded. */
static bool narrow_group(const gguf_written *to, const float x[32], uint8_t *block)
{
    gguf_group group = {.zero = 0}, again;
    for (int i = 0; i < 32; i++)
        if (!isfinite(x[i])) return false;
    to->choose(x, &group);
    to->join(&group, block);
    again = group;
    weft__gguf_type_find(to->number)->split(block, 0, &again);
    return isfinite(again.scale) && isfinite(again.minimum);
}

bool weft__gguf_narrow(const gguf_written *to, const float *x, uint8_t *blocks, size_t n)
{
    if (to->narrow) return to->narrow(x, blocks, n);
    const size_t bytes = weft__gguf_type_find(to->number)->bytes;
    for (size_t i = 0; i < n; i += 32, blocks += bytes)
        if (!narrow_group(to, x + i, blocks)) return false;
    return true;
}
