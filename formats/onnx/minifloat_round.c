/* Rounding to floats of at most 8 bits. f32 has all their numbers, so a value of such a type is one
 * of f32, and only conversions to the type round. They are built from operations on f64:
 *
 *     c = |x| within the smallest normal number of the type and its largest
 *     q = (2^52 + 1) c,      s = q - (1 - 2^-53) q
 *     y = round(x / u) u,    u = 2^-mantissa_bits s
 *
 * s is the largest power of two that is not above c: Rump, Ogita, Oishi, "Accurate floating-point
 * summation, part I", SIAM J. Sci. Comput. 31 (2008), algorithm 3.5. All else is exact but for the
 * rounding. f64, since weft check computes the graph in f64 throughout. */
#include "onnx/import.h"

#include <math.h>

/* The largest power of two that is not above c, times `scale`. c is at least `low`, a power of two,
 * so that the quotient of both is whole. */
static weft_value power_below(weft_graph *g, weft_value c, double low, double scale)
{
    const weft_value q = weft_mul_scalar(g, c, (0x1p52 + 1) / low);
    const weft_value s = weft_sub(g, q, weft_mul_scalar(g, q, 1 - 0x1p-53));
    /* The formula has a slope, but a power of two has none: floor changes only that. */
    return weft_mul_scalar(g, weft_floor(g, s), low * scale);
}

/* y, in which `other` replaces what is beyond the largest number of the type. */
static weft_value limit(weft_graph *g, weft_value y, double max, double other)
{
    const weft_value above = weft_greater(g, y, weft_scalar(g, WEFT_F64, max));
    const weft_value below = weft_less(g, y, weft_scalar(g, WEFT_F64, -max));
    return weft_masked_fill(g, weft_masked_fill(g, y, above, other), below, -other);
}

/* Rounds to nearest, ties to even. */
static weft_value round_signed(weft_graph *g, weft_value x, const onnx_minifloat *m, bool saturate)
{
    const double max = weft__onnx_minifloat_decode(m, m->max_code), low = ldexp(1, 1 - m->bias);
    const weft_value c = weft_clamp(g, weft_abs(g, x), low, max);
    const weft_value unit = power_below(g, c, low, ldexp(1, -m->mantissa_bits));
    weft_value y = weft_mul(g, weft_round(g, weft_div(g, x, unit)), unit);
    if (saturate || !m->has_nan)
        y = weft_clamp(g, y, -max, max);
    else
        y = limit(g, y, max, m->infinite ? INFINITY : NAN);
    /* The onnx package has -0 for a NaN, where its documentation has 6. */
    if (!m->has_nan) y = weft_masked_fill(g, y, weft_not_equal(g, y, y), -0.0);
    const weft_value zero = weft_scalar(g, WEFT_F64, 0);
    if (!m->negative_zero) y = weft_masked_fill(g, y, weft_equal(g, y, zero), 0);
    return y;
}

/* Powers of two. x is positive; the standard does not say what a negative one becomes, and its sign
 * is ignored. */
static weft_value round_power(onnx_node *n, weft_value x, const onnx_minifloat *m, bool saturate)
{
    weft_graph *g = n->graph;
    const double low = ldexp(1, -m->bias), max = weft__onnx_minifloat_decode(m, m->max_code);
    const weft_value size = weft_abs(g, x), c = weft_clamp(g, size, low, max);
    weft_value y = power_below(g, c, low, 1);
    const weft_value next = weft_mul_scalar(g, y, 2);
    if (weft__attr_is(n, "round_mode", "up", "up"))
        y = weft_where(g, weft_greater(g, c, y), next, y);
    else if (weft__attr_is(n, "round_mode", "nearest", "up"))
        y = weft_where(g, weft_greater_equal(g, c, weft_mul_scalar(g, y, 1.5)), next, y);
    else if (!weft__attr_is(n, "round_mode", "down", "up"))
        weft__node_fail(n, WEFT_BAD_FILE, "its round_mode is not up, down or nearest");
    if (saturate) return y;
    return weft_masked_fill(g, y, weft_not_equal(g, size, c), NAN);
}

weft_value weft__round_minifloat(onnx_node *n, weft_value x, const onnx_minifloat *m)
{
    weft_graph *g = n->graph;
    const bool saturate = weft__attr_int(n, "saturate", 1) != 0;
    x = weft_cast(g, x, WEFT_F64);
    x = m->has_sign ? round_signed(g, x, m, saturate) : round_power(n, x, m, saturate);
    return weft_cast(g, x, WEFT_F32);
}
