/* Quantising a matrix, group by group. 8 bits take O(elements); 4 bits try RANGES ranges and two
 * zero points for each group, O(RANGES elements). */
#include "quantize.h"

#include "base/float_env.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANGES     24
#define MIN_RANGE  0.5f /* of the group's own */
#define MAX_NIBBLE 15
#define MIDDLE     128 /* the zero point of 8 bits */
#define MAX_BYTE   127 /* steps from it */

weft_status weft__quantized_check(int bits, int group, const char *where, weft_error *error)
{
    if (bits != 8 && bits != 4)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where, "%d bits, expected 8 or 4", bits);
    if (group < 32 || group % 32)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                              "groups of %d elements, expected a multiple of 32", group);
    return WEFT_OK;
}

static weft_status check(const weft_quantized_matrix *m, const float *w, const char *where,
                         weft_error *error)
{
    if (!m) return weft_error_set(error, WEFT_BAD_ARGUMENT, where, "the matrix is NULL");
    const weft_status status = weft__quantized_check(m->bits, m->group, where, error);
    if (status != WEFT_OK) return status;
    if (m->rows < 0 || m->columns < 0 || weft_shape_numel(WEFT_SHAPE(m->rows, m->columns)) < 0 ||
        m->columns % m->group)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                              "groups of %d elements do not divide rows of %lld", m->group,
                              (long long)m->columns);
    if (m->rows && m->columns && (!w || !m->q || !m->scale || !m->zero))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where, "an array is NULL");
    return WEFT_OK;
}

/* ---- Groups ---- */

static double bounded(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double larger(double a, double b)
{
    return b > a ? b : a;
}

static void quantize_bytes(const float *w, int n, uint8_t *q, float *scale, uint8_t *zero)
{
    double max = 0;
    for (int i = 0; i < n; i++) max = larger(max, fabs((double)w[i]));
    *scale = (float)(max / MAX_BYTE);
    *zero = MIDDLE;
    for (int i = 0; i < n; i++) {
        const double steps = *scale > 0 ? nearbyint((double)w[i] / (double)*scale) : 0;
        q[i] = (uint8_t)(MIDDLE + bounded(steps, -MAX_BYTE, MAX_BYTE));
    }
}

/* The numbers of elements, less `zero`, which is that of 0, where elements are `scale` apart.
 * Adding and subtracting `rounder` rounds to the nearest whole number. */
static void nibbles(const float *w, int n, float scale, float zero, float *step)
{
    const float rounder = 0x1.8p23f, by = 1 / scale, low = -zero, high = MAX_NIBBLE - zero;
#pragma omp simd
    for (int i = 0; i < n; i++) {
        const float whole = (w[i] * by + rounder) - rounder;
        step[i] = whole < low ? low : whole > high ? high : whole;
    }
}

/* The scale for which the elements' numbers have the least sum of squared errors. *gain becomes
 * what it takes from the sum of squares of the elements. */
static float fit_scale(const float *w, const float *step, int n, float *gain)
{
    enum { LANES = 16 };
    float products[LANES] = {0}, squares[LANES] = {0}, product = 0, square = 0;
    for (int i = 0; i < n; i += LANES)
        for (int c = 0; c < LANES && i + c < n; c++) {
            products[c] += step[i + c] * w[i + c];
            squares[c] += step[i + c] * step[i + c];
        }
    for (int c = 0; c < LANES; c++) {
        product += products[c];
        square += squares[c];
    }
    *gain = square > 0 ? product * product / square : 0;
    return square > 0 ? product / square : 0;
}

/* `room`: 2 n elements, for the group divided by its largest element, and for the numbers. */
static void quantize_nibbles(const float *w, int n, float *room, uint8_t *q, float *scale,
                             uint8_t *zero)
{
    float *unit = room, *step = room + n, max = 0, low = 0, high = 0;
    float best = 0, best_scale = 0, best_apart = 0, best_zero = 0;
    for (int i = 0; i < n; i++) max = (float)larger(max, fabsf(w[i]));
    for (int i = 0; i < n; i++) {
        unit[i] = max > 0 ? w[i] / max : 0;
        low = unit[i] < low ? unit[i] : low;
        high = unit[i] > high ? unit[i] : high;
    }
    const float range = high - low, at = range > 0 ? -low / range * MAX_NIBBLE : 0;
    for (int i = 0; i < 2 * RANGES && range > 0; i++) {
        const float part = 1 - (1 - MIN_RANGE) * (float)(i / 2) / (RANGES - 1);
        const float apart = range * part / MAX_NIBBLE, to = i % 2 ? ceilf(at) : floorf(at);
        float gain;
        nibbles(unit, n, apart, to, step);
        const float fitted = fit_scale(unit, step, n, &gain);
        if (fitted <= 0 || gain <= best) continue;
        best = gain;
        best_scale = fitted;
        best_apart = apart;
        best_zero = to;
    }
    *scale = best_scale * max;
    *zero = (uint8_t)best_zero;
    memset(q, 0, (size_t)n / 2);
    if (best <= 0) return;
    nibbles(unit, n, best_apart, best_zero, step);
    for (int i = 0; i < n; i++) q[i / 2] |= (uint8_t)((unsigned)(step[i] + best_zero) << i % 2 * 4);
}

weft_status weft_quantize(const float *w, const weft_quantized_matrix *matrix, weft_error *error)
{
    weft_error_clear(error);
    const weft_quantized_matrix *m = matrix;
    const weft_status status = check(m, w, "weft_quantize", error);
    if (status != WEFT_OK) return status;
    const int64_t columns = m->columns;
    const int group = m->group;
    float *room = malloc(2 * (size_t)group * sizeof *room);
    if (!room) return weft_error_set(error, WEFT_NO_MEMORY, "weft_quantize", "out of memory");
    for (int64_t g = 0; g < m->rows * columns / group; g++) {
        const float *from = w + g * group;
        for (int i = 0; i < group; i++)
            if (!isfinite(from[i])) {
                free(room);
                return weft_error_set(
                    error, WEFT_NOT_FINITE, "weft_quantize", "element [%lld, %lld] is not finite",
                    (long long)((g * group + i) / columns), (long long)((g * group + i) % columns));
            }
        const float_env env = float_env_set();
        if (m->bits == 8)
            quantize_bytes(from, group, m->q + g * group, m->scale + g, m->zero + g);
        else
            quantize_nibbles(from, group, room, m->q + g * group / 2, m->scale + g, m->zero + g);
        float_env_restore(env);
    }
    free(room);
    return WEFT_OK;
}

weft_status weft_dequantize(const weft_quantized_matrix *matrix, float *w, weft_error *error)
{
    weft_error_clear(error);
    const weft_quantized_matrix *m = matrix;
    const weft_status status = check(m, w, "weft_dequantize", error);
    if (status != WEFT_OK) return status;
    const quantized_arrays arrays = {m->q, m->zero, m->scale, NULL, m->bits, m->group};
    for (int64_t i = 0; i < m->rows * m->columns; i++) w[i] = quantized_element(&arrays, i);
    return WEFT_OK;
}
