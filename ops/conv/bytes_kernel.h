/* Products of rows of bytes with panels of weights (conv_bytes.h): sums in i32, which wrap
 * around, so that all instruction sets compute the same.
 *
 * The micro-kernel keeps the sums of up to BYTES_ROWS rows and 32 columns in registers, and writes
 * their results at the end. AVX512_VNNI multiplies four bytes of each column and adds the products in
 * one instruction. AVX2 widens bytes to 16 bits, whose products are added in pairs without
 * saturation. */
#ifndef WEFT_OPS_CONV_BYTES_KERNEL_H
#define WEFT_OPS_CONV_BYTES_KERNEL_H

#include "kernels/byte_pack.h"

#include "bytes.h"

/* Rows of the micro-kernel. */
#define BYTES_ROWS 12

#ifdef WEFT_KERNEL_ISA

/* The bytes of a row: `lines` times `taps` runs of `run` bytes, a multiple of four. */
typedef struct bytes_runs {
    int64_t run, taps, lines, tap_step, line_step;
    int64_t row; /* bytes from a row to the next one of the line */
} bytes_runs;

/* Lines of rows, times panels. */
typedef struct bytes_block {
    const uint8_t *x;
    int64_t lines, width, line_step;
    bytes_runs runs;
    const uint8_t *panels, *panels_end; /* end: of all columns */
    int64_t panel_bytes;
    int64_t columns;
    bytes_result result;
    int64_t column; /* the first one, in the result */
    char *y;
    int64_t y_row, y_line; /* bytes */
} bytes_block;

/* Where the results of some rows and of the columns of a panel go. */
typedef struct bytes_target {
    const bytes_result *result;
    int64_t column, columns; /* the first one, in the result, and their number */
    char *y;
    int64_t y_row; /* bytes */
} bytes_target;

typedef int32_t bytes_sums[BYTES_ROWS][BYTES_PANEL];

static inline void bytes_write_rows(const bytes_target *t, int64_t rows, bytes_sums sums)
{
    for (int64_t r = 0; r < rows; r++)
        bytes_write(t->result, sums[r], t->column, t->columns, t->y + r * t->y_row);
}

#if defined(__AVX2__)
typedef int32_t bytes_four __attribute__((aligned(1), may_alias));
#endif

#if defined(__AVX512F__)

/* Half `h` of the columns of a panel. */
static inline __mmask16 bytes_half(const bytes_target *t, int h)
{
    const int64_t left = t->columns - 16 * h;
    return left >= 16 ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
}

/* What 16 sums begin with. */
static inline __m512i bytes_first(const bytes_target *t, int h)
{
    return _mm512_maskz_loadu_epi32(bytes_half(t, h), t->result->bias + t->column + 16 * h);
}

/* What makes results of sums, for the columns of a panel. */
typedef struct bytes_finish {
    __m512 scale[2], low, high;
    byte_pack pack;
    __mmask32 mask;
} bytes_finish;

static inline bytes_finish bytes_finish_of(const bytes_target *t)
{
    const bytes_result *r = t->result;
    bytes_finish f = {
        .low = _mm512_set1_ps(r->low),
        .high = _mm512_set1_ps(r->high),
        .pack = byte_pack_of(r->zero, (int32_t)r->low + r->zero, (int32_t)r->high + r->zero),
        .mask = bytes_half(t, 0) | (__mmask32)bytes_half(t, 1) << 16};
    for (int h = 0; r->scale && h < 2; h++)
        f.scale[h] = _mm512_maskz_loadu_ps(bytes_half(t, h), r->scale + t->column + 16 * h);
    return f;
}

/* As bytes_write, of f32 or i32, of the sums of a row, which have their bias. */
SIMD_INLINE void bytes_finish_wide(const bytes_result *r, const bytes_finish *f, const __m512i *sum,
                                   char *y)
{
    SIMD_UNROLL(2)
    for (int h = 0; h < 2; h++) {
        const __mmask16 mask = (__mmask16)(f->mask >> 16 * h);
        if (r->dtype == WEFT_I32) {
            _mm512_mask_storeu_epi32(y + 64 * h, mask, sum[h]);
            continue;
        }
        __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[h]), f->scale[h]);
        if (r->bounded) x = _mm512_min_ps(f->high, _mm512_max_ps(f->low, x)); /* of a NaN: it */
        _mm512_mask_storeu_ps(y + 64 * h, mask, x);
    }
}

/* As bytes_write, of u8, of the sums of two rows, which have their bias. Of a NaN the minimum is the
 * NaN, and the number the least. */
SIMD_INLINE void bytes_finish_rows(const bytes_finish *f, const __m512i *sum, char *y, char *next)
{
    __m512i q[4];
    SIMD_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        const __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i]), f->scale[i % 2]);
        q[i] = _mm512_cvtps_epi32(_mm512_min_ps(f->high, x));
    }
    const __m512i bytes = byte_packed(&f->pack, q);
    const __m256i first = _mm512_castsi512_si256(bytes);
    const __m256i second = _mm512_extracti64x4_epi64(bytes, 1);
    if (f->mask == 0xffffffff) {
        _mm256_storeu_si256((__m256i_u *)(void *)y, first);
        _mm256_storeu_si256((__m256i_u *)(void *)next, second);
    } else {
        _mm256_mask_storeu_epi8(y, f->mask, first);
        _mm256_mask_storeu_epi8(next, f->mask, second);
    }
}

/* The results of the sums of rows in registers. */
SIMD_INLINE void bytes_vnni_write(const int rows, __m512i (*sum)[2], const bytes_target *t)
{
    const bytes_finish f = bytes_finish_of(t);
    if (t->result->dtype != WEFT_U8) {
        SIMD_UNROLL(BYTES_ROWS)
        for (int r = 0; r < rows; r++)
            bytes_finish_wide(t->result, &f, sum[r], t->y + r * t->y_row);
        return;
    }
    SIMD_UNROLL(BYTES_ROWS)
    for (int r = 0; r < rows; r += 2) {
        const int next = r + 1 < rows ? r + 1 : r;
        const __m512i four[4] = {sum[r][0], sum[r][1], sum[next][0], sum[next][1]};
        bytes_finish_rows(&f, four, t->y + r * t->y_row, t->y + next * t->y_row);
    }
}

/* `rows` and `halves`, 16 columns each, are constants at every call. */
SIMD_INLINE void bytes_vnni(const int rows, const int halves, const bytes_runs *given,
                            const uint8_t *x, const uint8_t *w, const bytes_target *t)
{
    const bytes_runs runs = *given;
    __m512i sum[BYTES_ROWS][2];
    SIMD_UNROLL(BYTES_ROWS)
    for (int r = 0; r < rows; r++) {
        sum[r][0] = bytes_first(t, 0);
        sum[r][1] = bytes_first(t, 1);
    }
    for (int64_t i = 0; i < runs.lines; i++)
        for (int64_t j = 0; j < runs.taps; j++) {
            /* Three pointers and a distance reach all rows. */
            const uint8_t *from[3];
            SIMD_UNROLL(3)
            for (int q = 0; q < 3; q++)
                from[q] = x + i * runs.line_step + j * runs.tap_step + 4 * q * runs.row;
            for (int64_t k = 0; k < runs.run; k += BYTES_EACH, w += BYTES_STEP) {
                __m512i panel[2];
                SIMD_UNROLL(2)
                for (int h = 0; h < halves; h++) panel[h] = _mm512_loadu_si512(w + 64 * h);
                SIMD_UNROLL(BYTES_ROWS)
                for (int r = 0; r < rows; r++) {
                    const __m512i four = _mm512_set1_epi32(
                        *(const bytes_four *)(const void *)(from[r / 4] + r % 4 * runs.row));
                    SIMD_UNROLL(2)
                    for (int h = 0; h < halves; h++)
                        sum[r][h] = bytes_dot(sum[r][h], four, panel[h]);
                }
                SIMD_UNROLL(3)
                for (int q = 0; q < 3; q++) from[q] += BYTES_EACH;
            }
        }
    bytes_vnni_write(rows, sum, t);
}

typedef void bytes_function(const bytes_runs *runs, const uint8_t *x, const uint8_t *w,
                            const bytes_target *t);
#define BYTES_VNNI(rows, halves)                                                                   \
    static __attribute__((noinline)) void bytes_vnni_##rows##_##halves(                            \
        const bytes_runs *runs, const uint8_t *x, const uint8_t *w, const bytes_target *t)         \
    {                                                                                              \
        bytes_vnni(rows, halves, runs, x, w, t);                                                   \
    }
#define BYTES_EACH_ROWS(X, halves)                                                                 \
    X(1, halves)                                                                                   \
    X(2, halves)                                                                                   \
    X(3, halves)                                                                                   \
    X(4, halves)                                                                                   \
    X(5, halves)                                                                                   \
    X(6, halves)                                                                                   \
    X(7, halves)                                                                                   \
    X(8, halves)                                                                                   \
    X(9, halves)                                                                                   \
    X(10, halves)                                                                                  \
    X(11, halves)                                                                                  \
    X(12, halves)
BYTES_EACH_ROWS(BYTES_VNNI, 1)
BYTES_EACH_ROWS(BYTES_VNNI, 2)

static void bytes_rows_vnni(const int rows, const int halves, const bytes_runs *runs,
                            const uint8_t *x, const uint8_t *w, const bytes_target *t)
{
#define BYTES_ENTRY(rows, halves) bytes_vnni_##rows##_##halves,
    static bytes_function *const functions[2][BYTES_ROWS] = {{BYTES_EACH_ROWS(BYTES_ENTRY, 1)},
                                                             {BYTES_EACH_ROWS(BYTES_ENTRY, 2)}};
#undef BYTES_ENTRY
    functions[halves - 1][rows - 1](runs, x, w, t);
}
#undef BYTES_EACH_ROWS
#undef BYTES_VNNI

#endif

#if defined(__AVX2__)

/* Rows and columns whose sums are in registers: two sums of pairs for each column. */
#define BYTES_AVX2_ROWS    4
#define BYTES_AVX2_COLUMNS 8

SIMD_INLINE void bytes_avx2(const int rows, const bytes_runs *given, const uint8_t *x,
                            const uint8_t *w, int32_t (*sums)[BYTES_PANEL])
{
    const bytes_runs runs = *given;
    __m256i sum[BYTES_AVX2_ROWS][2];
    SIMD_UNROLL(BYTES_AVX2_ROWS)
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    for (int64_t i = 0; i < runs.lines; i++)
        for (int64_t j = 0; j < runs.taps; j++) {
            const uint8_t *from = x + i * runs.line_step + j * runs.tap_step;
            for (int64_t k = 0; k < runs.run; k += BYTES_EACH, w += BYTES_STEP) {
                __m256i panel[2];
                SIMD_UNROLL(2)
                for (int h = 0; h < 2; h++)
                    panel[h] = _mm256_cvtepi8_epi16(
                        _mm_loadu_si128((const __m128i_u *)(const void *)(w + 16 * h)));
                SIMD_UNROLL(BYTES_AVX2_ROWS)
                for (int r = 0; r < rows; r++) {
                    const __m256i four =
                        _mm256_broadcastq_epi64(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(
                            *(const bytes_four *)(const void *)(from + r * runs.row + k))));
                    SIMD_UNROLL(2)
                    for (int h = 0; h < 2; h++)
                        sum[r][h] = _mm256_add_epi32(sum[r][h], _mm256_madd_epi16(four, panel[h]));
                }
            }
        }
    SIMD_UNROLL(BYTES_AVX2_ROWS)
    for (int r = 0; r < rows; r++)
        _mm256_storeu_si256(
            (__m256i_u *)(void *)sums[r],
            _mm256_permute4x64_epi64(_mm256_hadd_epi32(sum[r][0], sum[r][1]), 0xd8));
}

static void bytes_rows_avx2(int rows, int columns, const bytes_runs *runs, const uint8_t *x,
                            const uint8_t *w, bytes_sums sums)
{
    for (int c = 0; c < columns; c += BYTES_AVX2_COLUMNS) {
        const uint8_t *panel = w + c * BYTES_EACH;
        int r = 0;
        for (; r + BYTES_AVX2_ROWS <= rows; r += BYTES_AVX2_ROWS)
            bytes_avx2(BYTES_AVX2_ROWS, runs, x + r * runs->row, panel,
                       (int32_t(*)[BYTES_PANEL])(sums[r] + c));
        for (; r < rows; r++)
            bytes_avx2(1, runs, x + r * runs->row, panel, (int32_t(*)[BYTES_PANEL])(sums[r] + c));
    }
}

#else

static void bytes_rows_plain(int rows, int columns, const bytes_runs *runs, const uint8_t *x,
                             const uint8_t *panel, bytes_sums sums)
{
    for (int r = 0; r < rows; r++) {
        const uint8_t *w = panel;
        memset(sums[r], 0, sizeof sums[r]);
        for (int64_t i = 0; i < runs->lines * runs->taps; i++) {
            const uint8_t *from = x + r * runs->row + i / runs->taps * runs->line_step +
                                  i % runs->taps * runs->tap_step;
            for (int64_t k = 0; k < runs->run; k += BYTES_EACH, w += BYTES_STEP)
                for (int c = 0; c < columns; c++) {
                    int32_t sum = 0;
                    for (int b = 0; b < BYTES_EACH; b++)
                        sum += from[k + b] * (int8_t)w[c * BYTES_EACH + b];
                    sums[r][c] = bytes_add(sums[r][c], sum);
                }
        }
    }
}

#endif

/* The results of `rows` rows and a panel. */
static inline void bytes_rows(bool vnni, int rows, const bytes_runs *runs, const uint8_t *x,
                              const uint8_t *w, const bytes_target *t)
{
#if defined(__AVX512F__)
    if (vnni) {
        bytes_rows_vnni(rows, t->columns > 16 ? 2 : 1, runs, x, w, t);
        return;
    }
#endif
    (void)vnni;
    bytes_sums sums;
#if defined(__AVX2__)
    bytes_rows_avx2(rows, (int)t->columns, runs, x, w, sums);
#else
    bytes_rows_plain(rows, (int)t->columns, runs, x, w, sums);
#endif
    bytes_write_rows(t, rows, sums);
}

/* Panel by panel, so that one stays in the cache for all rows. The rows of a line are split evenly. */
static void bytes_task(const bytes_block *o)
{
    const bool vnni = bytes_has_vnni();
    const int64_t size = bytes_size(o->result.dtype);
    const int64_t pieces = ceil_div(o->width, BYTES_ROWS);
    for (int64_t c = 0; c < o->columns; c += BYTES_PANEL) {
        const int64_t left = o->columns - c;
        const uint8_t *w = o->panels + c / BYTES_PANEL * o->panel_bytes;
        bytes_target t = {.result = &o->result,
                          .column = o->column + c,
                          .columns = left < BYTES_PANEL ? left : BYTES_PANEL,
                          .y_row = o->y_row};
        for (int64_t l = 0; l < o->lines; l++)
            for (int64_t i = 0; i < pieces; i++) {
                const int64_t begin = o->width * i / pieces, end = o->width * (i + 1) / pieces;
                t.y = o->y + l * o->y_line + begin * o->y_row + c * size;
                bytes_rows(vnni, (int)(end - begin), &o->runs,
                           o->x + l * o->line_step + begin * o->runs.row, w, &t);
            }
    }
}

#endif
#endif
