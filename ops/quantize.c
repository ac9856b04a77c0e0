/* Quantising a matrix, group by group. 8 bits take O(elements); 4 bits try RANGES ranges and two
 * zero points for each group, O(RANGES elements). */
#include "quantize.h"

#include <math.h>
#include <string.h>

#define RANGES     24
#define MIN_RANGE  0.5 /* of the group's own */
#define MAX_NIBBLE 15
#define MIDDLE     128 /* the zero point of 8 bits */
#define MAX_BYTE   127 /* steps from it */

weft_status quantized_check(int bits, int group, const char *where, weft_error *error)
{
    if (bits != 8 && bits != 4)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where, "%d bits, expected 8 or 4", bits);
    if (group < 32 || group % 32)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                              "groups of %d elements, expected a multiple of 32", group);
    return WEFT_OK;
}

static weft_status check(const void *w, int64_t rows, int64_t columns, int bits, int group,
                         const void *q, const void *scale, const void *zero, const char *where,
                         weft_error *error)
{
    const weft_status status = quantized_check(bits, group, where, error);
    if (status != WEFT_OK) return status;
    if (rows < 0 || columns < 0 || weft_shape_numel(WEFT_SHAPE(rows, columns)) < 0 ||
        columns % group)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                              "groups of %d elements do not divide rows of %lld", group,
                              (long long)columns);
    if (rows && columns && (!w || !q || !scale || !zero))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where, "an array is NULL");
    return WEFT_OK;
}

/* ---- Groups ---- */

static double bounded(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static void quantize_bytes(const float *w, int n, uint8_t *q, float *scale, uint8_t *zero)
{
    double max = 0;
    for (int i = 0; i < n; i++) max = fmax(max, fabs((double)w[i]));
    *scale = (float)(max / MAX_BYTE);
    *zero = MIDDLE;
    for (int i = 0; i < n; i++) {
        const double steps = *scale > 0 ? nearbyint((double)w[i] / (double)*scale) : 0;
        q[i] = (uint8_t)(MIDDLE + bounded(steps, -MAX_BYTE, MAX_BYTE));
    }
}

/* The number of w where elements are `scale` apart and `zero` is that of 0. */
static double nibble(double w, double scale, double zero)
{
    return bounded(nearbyint(w / scale) + zero, 0, MAX_NIBBLE);
}

/* The scale for which the elements' numbers have the least sum of squared errors. *gain becomes
 * what it takes from the sum of squares of the elements. */
static double fit_scale(const float *w, int n, double scale, double zero, double *gain)
{
    double product = 0, square = 0;
    for (int i = 0; i < n; i++) {
        const double step = nibble((double)w[i], scale, zero) - zero;
        product += step * (double)w[i];
        square += step * step;
    }
    *gain = square > 0 ? product * product / square : 0;
    return square > 0 ? product / square : 0;
}

static void quantize_nibbles(const float *w, int n, uint8_t *q, float *scale, uint8_t *zero)
{
    double low = 0, high = 0, best = 0, best_scale = 0, best_step = 0, best_zero = 0;
    for (int i = 0; i < n; i++) {
        low = fmin(low, (double)w[i]);
        high = fmax(high, (double)w[i]);
    }
    const double range = high - low, at = range > 0 ? -low / range * MAX_NIBBLE : 0;
    for (int i = 0; i < 2 * RANGES && range > 0; i++) {
        const double part = 1 - (1 - MIN_RANGE) * (i / 2) / (RANGES - 1);
        const double step = range * part / MAX_NIBBLE, to = i % 2 ? ceil(at) : floor(at);
        double gain;
        const double fitted = step > 0 ? fit_scale(w, n, step, to, &gain) : 0;
        if (fitted <= 0 || gain <= best) continue;
        best = gain;
        best_scale = fitted;
        best_step = step;
        best_zero = to;
    }
    *scale = (float)best_scale;
    *zero = (uint8_t)best_zero;
    memset(q, 0, (size_t)n / 2);
    for (int i = 0; i < n; i++) {
        const double number = best > 0 ? nibble((double)w[i], best_step, best_zero) : 0;
        q[i / 2] |= (uint8_t)((unsigned)number << i % 2 * 4);
    }
}

weft_status weft_quantize(const float *w, int64_t rows, int64_t columns, int bits, int group,
                          uint8_t *q, float *scale, uint8_t *zero, weft_error *error)
{
    const weft_status status =
        check(w, rows, columns, bits, group, q, scale, zero, "weft_quantize", error);
    if (status != WEFT_OK) return status;
    for (int64_t g = 0; g < rows * columns / group; g++) {
        const float *from = w + g * group;
        for (int i = 0; i < group; i++)
            if (!isfinite(from[i]))
                return weft_error_set(
                    error, WEFT_NOT_FINITE, "weft_quantize", "element [%lld, %lld] is not finite",
                    (long long)((g * group + i) / columns), (long long)((g * group + i) % columns));
        if (bits == 8)
            quantize_bytes(from, group, q + g * group, scale + g, zero + g);
        else
            quantize_nibbles(from, group, q + g * group / 2, scale + g, zero + g);
    }
    return WEFT_OK;
}

weft_status weft_dequantize(const uint8_t *q, const float *scale, const uint8_t *zero, int64_t rows,
                            int64_t columns, int bits, int group, float *w, weft_error *error)
{
    const weft_status status =
        check(w, rows, columns, bits, group, q, scale, zero, "weft_dequantize", error);
    if (status != WEFT_OK) return status;
    for (int64_t i = 0; i < rows * columns; i++) {
        const int number = bits == 8 ? q[i] : q[i / 2] >> i % 2 * 4 & 15;
        w[i] = scale[i / group] * (float)(number - zero[i / group]);
    }
    return WEFT_OK;
}
