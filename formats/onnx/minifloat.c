/* Floats of at most 8 bits: their types, and the numbers of their codes. */
#include "onnx/tensor.h"

#include <math.h>

static const onnx_minifloat types[] = {
    {ONNX_FLOAT8E4M3FN, 4, 3, 7, 0x7e, .has_sign = true, .negative_zero = true, .has_nan = true},
    {ONNX_FLOAT8E4M3FNUZ, 4, 3, 8, 0x7f, .has_sign = true, .has_nan = true},
    {ONNX_FLOAT8E5M2, 5, 2, 15, 0x7b, .has_sign = true, .infinite = true, .negative_zero = true,
     .has_nan = true},
    {ONNX_FLOAT8E5M2FNUZ, 5, 2, 16, 0x7f, .has_sign = true, .has_nan = true},
    {ONNX_FLOAT4E2M1, 2, 1, 1, 0x07, .has_sign = true, .negative_zero = true},
    {ONNX_FLOAT8E8M0, 8, 0, 127, 0xfe, .has_nan = true},
};

const onnx_minifloat *weft__onnx_minifloat(int type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) return &types[i];
    return NULL;
}

double weft__onnx_minifloat_decode(const onnx_minifloat *m, int code)
{
    const int sign = m->has_sign ? 1 << (m->exponent_bits + m->mantissa_bits) : 0;
    const int size = code & ~sign, exponent = size >> m->mantissa_bits;
    const int mantissa = size & ((1 << m->mantissa_bits) - 1), one = 1 << m->mantissa_bits;
    double x;
    if (size > m->max_code)
        x = m->infinite && size == m->max_code + 1 ? INFINITY : NAN;
    else if (m->has_sign && !m->negative_zero && code == sign)
        return NAN;
    else if (m->has_sign && exponent == 0)
        x = ldexp(mantissa, 1 - m->bias - m->mantissa_bits);
    else
        x = ldexp(one + mantissa, exponent - m->bias - m->mantissa_bits);
    return code & sign ? -x : x;
}
