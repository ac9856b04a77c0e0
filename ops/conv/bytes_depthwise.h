/* Sums over the taps of each channel, of bytes (conv_bytes_depthwise.c). */
#ifndef WEFT_OPS_CONV_BYTES_DEPTHWISE_H
#define WEFT_OPS_CONV_BYTES_DEPTHWISE_H

#include "bytes.h"

/* Channels that are summed side by side. */
#define BYTES_LANES 64

#ifdef WEFT_KERNEL_ISA

/* Some lines of a result, from the pointers on. */
typedef struct bytes_depthwise {
    const uint8_t *x, *w; /* w: rows of `all` channels, tap by tap */
    int64_t pixel, line;  /* bytes from one to the next, of x */
    int64_t stride[2], kernel[2], dilation[2];
    int64_t lines, width, channels;
    int64_t all; /* channels of the result, and of w */
    bytes_result result;
    int64_t column; /* the first one, in the result */
    int64_t size;   /* bytes of an element of the result */
    char *y;
} bytes_depthwise;

/* `n` channels of one pixel of the result. */
static inline void bytes_sum_taps(const bytes_depthwise *o, const uint8_t *x, int64_t channel,
                                  int64_t n, int32_t *sum)
{
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = 0; i < o->kernel[0]; i++)
        for (int64_t j = 0; j < o->kernel[1]; j++) {
            const uint8_t *from =
                x + i * o->dilation[0] * o->line + j * o->dilation[1] * o->pixel + channel;
            const int8_t *w = (const int8_t *)o->w + (i * o->kernel[1] + j) * o->all + channel;
            SIMD_FOR (c, n) sum[c] = bytes_add(sum[c], from[c] * w[c]);
        }
}

static void bytes_depthwise_plain(const bytes_depthwise *o)
{
    int32_t sum[BYTES_LANES];
    for (int64_t l = 0; l < o->lines; l++)
        for (int64_t i = 0; i < o->width; i++)
            for (int64_t c = 0; c < o->channels; c += BYTES_LANES) {
                const int64_t n = o->channels - c < BYTES_LANES ? o->channels - c : BYTES_LANES;
                bytes_sum_taps(o, o->x + l * o->stride[0] * o->line + i * o->stride[1] * o->pixel,
                               c, n, sum);
                bytes_write(&o->result, sum, o->column + c, n,
                            o->y + ((l * o->width + i) * o->all + c) * o->size);
            }
}

#if defined(__AVX512F__)

/* Kernels of up to four rows and BYTES_TAPS columns have vectors: their weights, interleaved. */
#define BYTES_TAPS 7

/* 64 channels: weights, bias, scale and bounds, in the order of what is interleaved. */
typedef struct bytes_lanes {
    __m512i w[BYTES_TAPS][4], bias[4];
    __m512 scale[4], low, high;
    __m512i zero;
    __mmask64 mask;
} bytes_lanes;

/* The same channel of four vectors, side by side; the order of channels is that of unpacking. */
SIMD_INLINE void bytes_interleave(const __m512i *x, __m512i *four)
{
    const __m512i a = _mm512_unpacklo_epi8(x[0], x[1]), b = _mm512_unpackhi_epi8(x[0], x[1]);
    const __m512i c = _mm512_unpacklo_epi8(x[2], x[3]), d = _mm512_unpackhi_epi8(x[2], x[3]);
    four[0] = _mm512_unpacklo_epi16(a, c);
    four[1] = _mm512_unpackhi_epi16(a, c);
    four[2] = _mm512_unpacklo_epi16(b, d);
    four[3] = _mm512_unpackhi_epi16(b, d);
}

/* Reads what belongs to channels [c, c + 64). */
static void bytes_lanes_open(const bytes_depthwise *o, int64_t c, bytes_lanes *l)
{
    const int64_t n = o->channels - c < BYTES_LANES ? o->channels - c : BYTES_LANES;
    int32_t bias[BYTES_LANES] = {0};
    float scale[BYTES_LANES] = {0};
    l->mask = n == BYTES_LANES ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
    for (int64_t j = 0; j < o->kernel[1]; j++) {
        __m512i rows[4];
        for (int64_t i = 0; i < 4; i++)
            rows[i] =
                i < o->kernel[0]
                    ? _mm512_maskz_loadu_epi8(l->mask, o->w + (i * o->kernel[1] + j) * o->all + c)
                    : _mm512_setzero_si512();
        bytes_interleave(rows, l->w[j]);
    }
    memcpy(bias, o->result.bias + o->column + c, (size_t)n * sizeof *bias);
    memcpy(scale, o->result.scale + o->column + c, (size_t)n * sizeof *scale);
    for (int k = 0; k < 4; k++)
        for (int q = 0; q < 4; q++) { /* quarter q of vector k: channels 16 q + 4 k */
            memcpy((int32_t *)&l->bias[k] + 4 * q, bias + 16 * q + 4 * k, 16);
            memcpy((float *)&l->scale[k] + 4 * q, scale + 16 * q + 4 * k, 16);
        }
    l->low = _mm512_set1_ps(o->result.low);
    l->high = _mm512_set1_ps(o->result.high);
    l->zero = _mm512_set1_epi32(o->result.zero);
}

/* The bytes of 64 sums, in the order of the channels: packing undoes unpacking. */
SIMD_INLINE __m512i bytes_lanes_result(const bytes_lanes *l, const __m512i *sum)
{
    __m512i q[4];
    SIMD_UNROLL(4)
    for (int k = 0; k < 4; k++) {
        __m512 x = _mm512_cvtepi32_ps(_mm512_add_epi32(sum[k], l->bias[k]));
        x = _mm512_max_ps(_mm512_mul_ps(x, l->scale[k]), l->low); /* of a NaN: low */
        q[k] = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_min_ps(x, l->high)), l->zero);
    }
    return _mm512_packus_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
}

/* Four taps, one below the other, of 64 channels, interleaved; x is the first one. Those that the kernel
 * lacks have weights of zero. */
SIMD_INLINE void bytes_lanes_column(const bytes_depthwise *o, const bytes_lanes *l,
                                    const uint8_t *x, __m512i *four)
{
    const int64_t down = o->dilation[0] * o->line, last = o->kernel[0] - 1;
    __m512i rows[4];
    SIMD_UNROLL(4)
    for (int i = 0; i < 4; i++)
        rows[i] = _mm512_maskz_loadu_epi8(l->mask, x + (i < last ? i : last) * down);
    bytes_interleave(rows, four);
}

/* One pixel; x is its first tap. */
static void bytes_lanes_pixel(const bytes_depthwise *o, const bytes_lanes *l, const uint8_t *x,
                              uint8_t *y)
{
    __m512i sum[4], four[4];
    SIMD_UNROLL(4)
    for (int k = 0; k < 4; k++) sum[k] = _mm512_setzero_si512();
    for (int64_t tap = 0; tap < o->kernel[1]; tap++) {
        bytes_lanes_column(o, l, x + tap * o->dilation[1] * o->pixel, four);
        SIMD_UNROLL(4)
        for (int k = 0; k < 4; k++) sum[k] = bytes_dot(sum[k], four[k], l->w[tap][k]);
    }
    _mm512_mask_storeu_epi8(y, l->mask, bytes_lanes_result(l, sum));
}

/* Four neighbours in a line, of kernels of three columns without dilation; x is the first tap of the
 * first one. A column is interleaved for all pixels that read it. `stride` is a constant at every
 * call. */
SIMD_INLINE void bytes_lanes_pixels(const int stride, const bytes_depthwise *o,
                                    const bytes_lanes *l, const uint8_t *x, uint8_t *y)
{
    __m512i sum[4][4];
    SIMD_UNROLL(4)
    for (int p = 0; p < 4; p++) {
        SIMD_UNROLL(4)
        for (int k = 0; k < 4; k++) sum[p][k] = _mm512_setzero_si512();
    }
    SIMD_UNROLL(9)
    for (int c = 0; c < 3 * stride + 3; c++) {
        __m512i four[4];
        bytes_lanes_column(o, l, x + c * o->pixel, four);
        SIMD_UNROLL(4)
        for (int p = 0; p < 4; p++) {
            const int tap = c - p * stride;
            if (tap < 0 || tap >= 3) continue;
            SIMD_UNROLL(4)
            for (int k = 0; k < 4; k++) sum[p][k] = bytes_dot(sum[p][k], four[k], l->w[tap][k]);
        }
    }
    SIMD_UNROLL(4)
    for (int p = 0; p < 4; p++)
        _mm512_mask_storeu_epi8(y + p * o->all, l->mask, bytes_lanes_result(l, sum[p]));
}

/* A line of the result. */
static void bytes_lanes_line(const bytes_depthwise *o, const bytes_lanes *l, const uint8_t *x,
                             uint8_t *y)
{
    const int64_t step = o->stride[1] * o->pixel;
    int64_t i = 0;
    if (o->kernel[1] == 3 && o->dilation[1] == 1 && o->stride[1] <= 2)
        for (; i + 4 <= o->width; i += 4, x += 4 * step, y += 4 * o->all) {
            if (o->stride[1] == 1)
                bytes_lanes_pixels(1, o, l, x, y);
            else
                bytes_lanes_pixels(2, o, l, x, y);
        }
    for (; i < o->width; i++, x += step, y += o->all) bytes_lanes_pixel(o, l, x, y);
}

/* Whether the vectors above can compute it. */
static inline bool bytes_lanes_fit(const bytes_depthwise *o)
{
    return o->result.dtype == WEFT_U8 && o->kernel[0] <= 4 && o->kernel[1] <= BYTES_TAPS &&
           bytes_has_vnni();
}

#endif

static void bytes_depthwise_task(const bytes_depthwise *o)
{
#if defined(__AVX512F__)
    if (bytes_lanes_fit(o)) {
        for (int64_t c = 0; c < o->channels; c += BYTES_LANES) {
            bytes_lanes l;
            bytes_lanes_open(o, c, &l);
            for (int64_t i = 0; i < o->lines; i++)
                bytes_lanes_line(o, &l, o->x + i * o->stride[0] * o->line + c,
                                 (uint8_t *)o->y + i * o->width * o->all + c);
        }
        return;
    }
#endif
    bytes_depthwise_plain(o);
}

#endif
#endif
