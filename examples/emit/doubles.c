/* Arithmetic of doubles for Arm processors without it, such as a Cortex-M4: what compilers call for +, -, *, /,
 * comparisons and conversions (Run-time ABI for the Arm Architecture, section 5.1), in a third of the code of
 * libgcc's functions. Link it with the file that weft emit wrote. Results are those of IEEE 754, rounded to nearest,
 * ties to even, subnormal numbers included. Doubles are passed as integers of 64 bits, as that ABI does. */
#include <stdint.h>

#define SIGN         ((uint64_t)1 << 63)
#define INFINITE     ((uint64_t)2047 << 52)
#define NOT_A_NUMBER ((uint64_t)4095 << 51)

/* A double without its sign: mantissa 2^(exponent - 1085). The mantissa has bit 62 set; or it is 0, with an
 * exponent below all others. */
typedef struct number {
    uint64_t mantissa;
    int exponent;
} number;

static number split(uint64_t x)
{
    number n;
    n.exponent = (int)(x >> 52 & 2047);
    n.mantissa = x << 12 >> 2;
    if (n.exponent) {
        n.mantissa |= (uint64_t)1 << 62;
        return n;
    }
    n.exponent = n.mantissa ? 1 : -2000;
    while (n.mantissa && !(n.mantissa >> 62)) {
        n.mantissa <<= 1;
        n.exponent--;
    }
    return n;
}

/* m 2^-n; where bits are lost, the last one is set. Bit by bit, which takes the least code. */
static __attribute__((noinline)) uint64_t shift_right(uint64_t m, int n)
{
    if (n > 63) n = 63;
    for (; n > 0; n--) m = m >> 1 | (m & 1);
    return m;
}

/* Rounds m 2^(exponent - 1085). */
static uint64_t join(uint64_t sign, int exponent, uint64_t m)
{
    if (!m) return sign;
    for (; !(m >> 62); exponent--) m <<= 1;
    if (m >> 63) {
        m = shift_right(m, 1);
        exponent++;
    }
    if (exponent > 2046) return sign | INFINITE;
    if (exponent < 1) {
        m = shift_right(m, 1 - exponent);
        exponent = 1;
    }
    m += 0x1ff + (m >> 10 & 1);
    return sign | (((uint64_t)(exponent - 1) << 52) + (m >> 10));
}

static int is_nan(uint64_t x)
{
    return (x & ~SIGN) > INFINITE;
}

uint64_t __aeabi_dadd(uint64_t a, uint64_t b)
{
    if ((a & ~SIGN) < (b & ~SIGN)) {
        const uint64_t c = a;
        a = b;
        b = c;
    }
    if ((a & ~SIGN) >= INFINITE) return is_nan(a) || b == (a ^ SIGN) ? NOT_A_NUMBER : a;
    const number x = split(a), y = split(b);
    const uint64_t less = shift_right(y.mantissa, x.exponent - y.exponent);
    const uint64_t m = (a ^ b) >> 63 ? x.mantissa - less : x.mantissa + less;
    return join(m ? a & SIGN : a & b & SIGN, x.exponent, m);
}

uint64_t __aeabi_dsub(uint64_t a, uint64_t b)
{
    return __aeabi_dadd(a, b ^ SIGN);
}

uint64_t __aeabi_drsub(uint64_t a, uint64_t b)
{
    return __aeabi_dadd(b, a ^ SIGN);
}

uint64_t __aeabi_dmul(uint64_t a, uint64_t b)
{
    const uint64_t sign = (a ^ b) & SIGN, u = a & ~SIGN, v = b & ~SIGN;
    if (u >= INFINITE || v >= INFINITE)
        return is_nan(a) || is_nan(b) || !u || !v ? NOT_A_NUMBER : sign | INFINITE;
    const number x = split(a), y = split(b);
    const uint32_t x0 = (uint32_t)x.mantissa, x1 = (uint32_t)(x.mantissa >> 32);
    const uint32_t y0 = (uint32_t)y.mantissa, y1 = (uint32_t)(y.mantissa >> 32);
    const uint64_t low = (uint64_t)x0 * y0, middle = (uint64_t)x1 * y0 + (low >> 32);
    const uint64_t more = (uint64_t)x0 * y1 + (uint32_t)middle;
    const uint64_t high = (uint64_t)x1 * y1 + (middle >> 32) + (more >> 32);
    const uint64_t rest = more << 32 | (uint32_t)low;
    return join(sign, x.exponent + y.exponent - 1023, high << 2 | rest >> 62 | (rest << 2 != 0));
}

/* Digit by digit. */
uint64_t __aeabi_ddiv(uint64_t a, uint64_t b)
{
    const uint64_t sign = (a ^ b) & SIGN, u = a & ~SIGN, v = b & ~SIGN;
    if (is_nan(a) || is_nan(b) || (u == v && (!u || u == INFINITE))) return NOT_A_NUMBER;
    if (u == INFINITE || !v) return sign | INFINITE;
    if (!u || v == INFINITE) return sign;
    number x = split(a);
    const number y = split(b);
    uint64_t quotient = 0;
    int i;
    for (i = 0; i < 64; i++) {
        quotient <<= 1;
        if (x.mantissa >= y.mantissa) {
            x.mantissa -= y.mantissa;
            quotient |= 1;
        }
        x.mantissa <<= 1;
    }
    return join(sign, x.exponent - y.exponent + 1022, quotient | (x.mantissa != 0));
}

/* ---- Conversions ---- */

uint64_t __aeabi_f2d(uint32_t x)
{
    const uint32_t sign = x & 0x80000000, u = x ^ sign;
    if (u < 0x800000) return join((uint64_t)sign << 32, 897, (uint64_t)u << 39);
    const uint32_t above =
        u >= 0x7f800000 ? 2 * 896 : 896; /* to the exponents of doubles; infinities and NaN */
    return (uint64_t)(sign | ((u >> 3) + (above << 20))) << 32 | u << 29;
}

uint32_t __aeabi_d2f(uint64_t x)
{
    const uint32_t high = (uint32_t)(x >> 32), sign = high & 0x80000000;
    int exponent = (int)(high >> 20 & 2047) - 896;
    /* 24 bits and 7 that round, of which the last one is set where bits are lost. */
    uint32_t m = (uint32_t)(x >> 22) | 0x40000000 | ((uint32_t)x << 10 != 0);
    if (is_nan(x)) return 0x7fc00000;
    if (exponent > 254) return sign | 0x7f800000;
    m = m << 1 >> 1;
    if (exponent < 1) {
        m = (uint32_t)shift_right(m, 1 - exponent);
        exponent = 1;
    }
    m += 0x3f + (m >> 7 & 1);
    return sign | (((uint32_t)(exponent - 1) << 23) + (m >> 7));
}

uint64_t __aeabi_ul2d(uint64_t x)
{
    return join(0, 1085, x);
}

uint64_t __aeabi_l2d(int64_t x)
{
    return join((uint64_t)x & SIGN, 1085, x < 0 ? -(uint64_t)x : (uint64_t)x);
}

uint64_t __aeabi_ui2d(uint32_t x)
{
    return __aeabi_ul2d(x);
}

uint64_t __aeabi_i2d(int32_t x)
{
    return __aeabi_l2d(x);
}

/* ---- Comparisons ---- */

/* 1, 0 or -1; 2 if one is a NaN. */
static int compare(uint64_t a, uint64_t b)
{
    const int64_t x = a >> 63 ? -(int64_t)(a & ~SIGN) : (int64_t)a;
    const int64_t y = b >> 63 ? -(int64_t)(b & ~SIGN) : (int64_t)b;
    if (is_nan(a) || is_nan(b)) return 2;
    return (x > y) - (x < y);
}

int __aeabi_dcmpeq(uint64_t a, uint64_t b)
{
    return compare(a, b) == 0;
}

int __aeabi_dcmplt(uint64_t a, uint64_t b)
{
    return compare(a, b) < 0;
}

int __aeabi_dcmple(uint64_t a, uint64_t b)
{
    return compare(a, b) <= 0;
}

int __aeabi_dcmpgt(uint64_t a, uint64_t b)
{
    return compare(a, b) == 1;
}

int __aeabi_dcmpge(uint64_t a, uint64_t b)
{
    return (compare(a, b) | 1) == 1;
}

int __aeabi_dcmpun(uint64_t a, uint64_t b)
{
    return compare(a, b) == 2;
}
