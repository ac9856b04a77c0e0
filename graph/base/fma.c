/* A fused multiply-add of doubles in integers. The product of two mantissas, of 106 bits, and the
 * third one are placed in 128 bits, where what does not fit is a last bit that is set ("sticky"): it
 * is too small to change anything but a tie. Their sum is rounded once, to nearest, ties to even. */
#include "fma.h"

#include <stdbool.h>

#define MANTISSA_BITS 53
#define MIN_EXPONENT  (-1074) /* of the smallest subnormal number */
/* Bits that a mantissa of 53 bits, and a product, can be moved to the left in 126. */
#define ROOM         (126 - MANTISSA_BITS)
#define PRODUCT_ROOM (126 - 2 * MANTISSA_BITS)

__extension__ typedef unsigned __int128 wide;

/* mantissa * 2^exponent, with a mantissa of 53 bits. */
typedef struct parts {
    uint64_t mantissa;
    int exponent;
    bool negative;
} parts;

static parts split(double x)
{
    int exponent;
    const double fraction = frexp(fabs(x), &exponent);
    return (parts){(uint64_t)ldexp(fraction, MANTISSA_BITS), exponent - MANTISSA_BITS,
                   signbit(x) != 0};
}

static wide shift_right(wide x, int bits)
{
    if (bits <= 0) return x << -bits;
    if (bits >= 128) return x != 0;
    return x >> bits | ((x & (((wide)1 << bits) - 1)) != 0);
}

/* x * 2^exponent, whose last bit may be sticky. */
static double round_to_double(wide x, int exponent, bool negative)
{
    if (!x) return 0;
    const uint64_t high = (uint64_t)(x >> 64);
    const int length = high ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll((uint64_t)x);
    int lost = length - MANTISSA_BITS;
    if (lost < MIN_EXPONENT - exponent) lost = MIN_EXPONENT - exponent;
    /* Two more bits than the result has: the half of its last bit, and the sticky one. */
    const uint64_t rough = (uint64_t)shift_right(x, lost - 2);
    const uint64_t up = (rough & 2) && (rough & 5);
    const double y = ldexp((double)((rough >> 2) + up), exponent + lost);
    return negative ? -y : y;
}

double weft__fma_f64(double x, double y, double z)
{
    if (!isfinite(x) || !isfinite(y) || x == 0 || y == 0) return x * y + z;
    if (!isfinite(z)) return z + z; /* though x y may overflow */
    if (z == 0) return x * y;
    const parts a = split(x), b = split(y), c = split(z);
    const bool negative = a.negative != b.negative;
    wide product = (wide)a.mantissa * b.mantissa, other = c.mantissa;
    const int at = a.exponent + b.exponent;
    /* The exponent of the sum's last bit: both fit above it, or one is far below the other. */
    const int high = c.exponent - ROOM > at - PRODUCT_ROOM ? c.exponent - ROOM : at - PRODUCT_ROOM;
    product = shift_right(product, high - at);
    other = shift_right(other, high - c.exponent);
    if (negative == c.negative) return round_to_double(product + other, high, negative);
    if (product >= other) return round_to_double(product - other, high, negative);
    return round_to_double(other - product, high, c.negative);
}
