/* The doubles that sums of floats need. Where the processor has doubles, wide_float is one. Elsewhere it consists of
 * integers, and its operations have the bits of those of doubles. Sums, products and quotients of floats are far
 * from the smallest and the largest double, so only their rounding is written here. */

/* Whether wide_float consists of integers: the compiler's functions for doubles take more code, and some
 * compilers have no double of 64 bits. -DWEFT_OWN_DOUBLES=0 or 1 decides otherwise. */
#ifndef WEFT_OWN_DOUBLES
#if __SIZEOF_DOUBLE__ != 8 || (defined(__arm__) && !(defined(__ARM_FP) && __ARM_FP & 8)) ||        \
    (defined(__riscv) && !(defined(__riscv_flen) && __riscv_flen >= 64))
#define WEFT_OWN_DOUBLES 1
#else
#define WEFT_OWN_DOUBLES 0
#endif
#endif

/* `special`, if it is not 0; else mantissa 2^(exponent - 443). A mantissa that is not 0 is 2^60 to 2^61 in
 * magnitude and has 53 bits, so the last eight are 0. */
#if WEFT_OWN_DOUBLES
typedef struct wide_float {
    int64_t mantissa;
    int exponent;
    float special; /* an infinity, or NaN */
} wide_float;
#define WIDE_ZERO                                                                                  \
    {                                                                                              \
        0, 0, 0                                                                                    \
    }
#else
typedef double wide_float;
#define WIDE_ZERO 0
#endif

/* Of a function that compilers would copy to where it is called, which takes more code. */
#define WIDE_APART __attribute__((noinline, unused))

#if WEFT_OWN_DOUBLES
/* x, if it is finite, as an integer of 24 bits times 2^(*exponent - 150). *exponent is 255 else. */
static VM_UNUSED int32_t wide_parts(float x, int *exponent)
{
    uint32_t bits;
    int32_t m;
    memcpy(&bits, &x, sizeof bits);
    *exponent = (int)(bits >> 23 & 255);
    m = (int32_t)(bits & 0x7fffff);
    if (*exponent) m |= 0x800000;
    *exponent += !*exponent;
    return bits >> 31 ? -m : m;
}

/* m 2^-n; a bit that is lost sets the last one. */
static VM_UNUSED int64_t wide_shift(int64_t m, int n)
{
    for (; n > 0; n--) m = m >> 1 | (m & 1);
    return m;
}

/* Adds m 2^(e - 443), with m up to 2^61 in magnitude, or up to 2^62 to 0, without rounding: the mantissa is then 2^61
 * to 2^62 in magnitude, or 0. Where bits are lost, its last bit is set. */
static VM_UNUSED void wide_sum(int64_t m, int e, wide_float *sum)
{
    int64_t top = sum->mantissa;
    int exponent = sum->exponent;
    if (exponent < e) {
        top = m;
        exponent = e;
        m = sum->mantissa;
        e = sum->exponent;
    }
    m = wide_shift(m, exponent - e) + top;
    for (; exponent > 0 && (uint32_t)(m >> 32) + 0x20000000u < 0x40000000u; exponent--) m *= 2;
    sum->mantissa = m;
    sum->exponent = exponent;
}

/* Adds m 2^(e - 443), as wide_sum, and rounds to 53 bits, to nearest, ties to even. */
static VM_UNUSED void wide_put(int64_t m, int e, wide_float *sum)
{
    wide_sum(m, e, sum);
    m = sum->mantissa;
    m += 0xff + ((uint32_t)m >> 9 & 1);
    sum->mantissa = m >> 1 & ~(int64_t)0xff;
    sum->exponent++;
}

/* *x = m 2^(e - 443), rounded to 53 bits, unless `sign` is special. */
static VM_UNUSED void wide_set(wide_float *x, int e, int64_t m, float sign)
{
    x->mantissa = 0;
    x->exponent = e;
    x->special = sign - sign == 0 ? 0 : sign;
    wide_put(m, e, x);
}

/* The same as a result. */
static VM_UNUSED wide_float wide_made(int e, int64_t m, float sign)
{
    wide_float x;
    wide_set(&x, e, m, sign);
    return x;
}

static VM_UNUSED uint64_t wide_size(int64_t m)
{
    return m < 0 ? -(uint64_t)m : (uint64_t)m;
}

/* m 2^(e - 443) as the nearest float, ties to even. m may have more than 53 bits. */
static VM_UNUSED float wide_to_float(int64_t m, int e)
{
    const uint64_t size = wide_size(m);
    uint32_t bits = (uint32_t)(size >> 32) | ((uint32_t)size != 0);
    float x;
    int lost = 257 - e; /* bits of numbers below the smallest normal one */
    if (lost < 0) lost = 0;
    e += lost - 257;
    for (; lost; lost--) bits = bits >> 1 | (bits & 1);
    bits = ((bits + 15 + (bits >> 5 & 1)) >> 5) + ((uint32_t)e << 23);
    if (e > 253) bits = 0x7f800000;
    if (m < 0) bits |= 0x80000000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}
#endif

/* *sum += x. */
#if WEFT_OWN_DOUBLES
static void wide_add(wide_float *sum, T x)
{
    int e;
    const int32_t m = wide_parts(x, &e);
    if (e == 255) {
        sum->special += x;
        return;
    }
    wide_put(m * ((int64_t)1 << 37), e + 256, sum);
}
#else
static void wide_add(wide_float *sum, T x)
{
    *sum += (wide_float)x;
}
#endif

/* x; 0 of -0. */
#if WEFT_OWN_DOUBLES
static wide_float wide_of(T x)
{
    int e;
    const int32_t m = wide_parts(x, &e);
    return wide_made(e + 256, m * ((int64_t)1 << 37), x);
}
#else
static wide_float wide_of(T x)
{
    return 0 + (wide_float)x;
}
#endif

/* *sum += *x. */
#if WEFT_OWN_DOUBLES
static void wide_add_wide(wide_float *sum, const wide_float *x)
{
    sum->special += x->special;
    wide_put(x->mantissa, x->exponent, sum);
}
#else
static void wide_add_wide(wide_float *sum, const wide_float *x)
{
    *sum += *x;
}
#endif

/* *x -= *y. */
#if WEFT_OWN_DOUBLES
static WIDE_APART void wide_subtract(wide_float *x, const wide_float *y)
{
    x->special -= y->special;
    wide_put(-y->mantissa, y->exponent, x);
}
#else
static void wide_subtract(wide_float *x, const wide_float *y)
{
    *x -= *y;
}
#endif

#if WEFT_OWN_DOUBLES
/* What is special, or a float of the same sign, by which operations with special numbers are decided. */
static VM_UNUSED float wide_sign(const wide_float *x)
{
    return x->special != 0 ? x->special : (float)(int32_t)(x->mantissa >> 32);
}
#endif

/* *x < 0. */
#if WEFT_OWN_DOUBLES
static int wide_is_negative(const wide_float *x)
{
    return wide_sign(x) < 0;
}
#else
static int wide_is_negative(const wide_float *x)
{
    return *x < 0;
}
#endif

/* (T)*x */
#if WEFT_OWN_DOUBLES
static T wide_value(const wide_float *x)
{
    return x->special != 0 ? x->special : wide_to_float(x->mantissa, x->exponent);
}
#else
static T wide_value(const wide_float *x)
{
    return (T)*x;
}
#endif

#if WEFT_OWN_DOUBLES
/* The first 62 bits of 2^61 x / y, for x < 2 y, or, if `root`, of the square root of 2^61 x. If there are more, the
 * last one is set. */
static WIDE_APART int64_t wide_digits(uint64_t x, uint64_t y, int root)
{
    uint64_t digits = 0, bit = root ? (uint64_t)1 << 61 : 0;
    int i = 62;
    do {
        digits *= 2;
        if (x >= y + bit) {
            x -= y + bit;
            y += 2 * bit;
            digits |= 1;
        }
        x *= 2;
        bit /= 2;
    } while (--i);
    return (int64_t)(digits | (x != 0));
}
#endif

/* (T)(1 / x) for x from 1 to 2^64, or NaN; 0 for x = 0. */
#if WEFT_OWN_DOUBLES
static T wide_inverse(const wide_float *x)
{
    const int64_t digits = wide_digits((uint64_t)1 << 60, (uint64_t)x->mantissa, 0) + 0x80;
    const uint32_t top = (uint32_t)(digits >> 32) | ((uint32_t)digits >> 8 != 0);
    const uint32_t bits = (uint32_t)(481 - x->exponent) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x->mantissa ? (float)top * power + x->special : x->special;
}
#else
static T wide_inverse(const wide_float *x)
{
    return (T)*x == 0 ? 0 : (T)(1 / *x); /* a comparison of doubles takes more code */
}
#endif

/* x. */
#if WEFT_OWN_DOUBLES
static wide_float wide_int(int64_t x)
{
    return wide_made(443, x, 0);
}
#else
static wide_float wide_int(int64_t x)
{
    return (wide_float)x;
}
#endif

/* The double of these bits, which is not subnormal. */
#if WEFT_OWN_DOUBLES
static wide_float wide_of_bits(uint64_t bits)
{
    wide_float y = WIDE_ZERO;
    const int exponent = (int)(bits >> 52 & 2047);
    y.exponent = exponent - 640;
    if (bits << 1) y.mantissa = (int64_t)((bits << 8 & ~((uint64_t)15 << 60)) | (uint64_t)1 << 60);
    if (exponent == 2047) y.special = bits << 12 ? NAN : INFINITY;
    if (bits >> 63) {
        y.mantissa = -y.mantissa;
        y.special = -y.special;
    }
    return y;
}
#else
static wide_float wide_of_bits(uint64_t bits)
{
    wide_float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}
#endif

/* The bits of a double. */
#if WEFT_OWN_DOUBLES
static uint64_t wide_bits(wide_float x)
{
    uint64_t bits = wide_size(x.mantissa) >> 8;
    if (bits) bits += (uint64_t)(x.exponent + 639) << 52;
    if (x.special != 0) bits = (uint64_t)(x.special - x.special == 0 ? 0 : 2047) << 52;
    if (x.special != x.special) bits |= 1;
    if (x.special != 0 ? x.special < 0 : x.mantissa < 0) bits |= (uint64_t)1 << 63;
    return bits;
}
#else
static uint64_t wide_bits(wide_float x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
#endif

/* *x *= *y. */
#if WEFT_OWN_DOUBLES
static void wide_multiply(wide_float *x, const wide_float *y)
{
    uint64_t bits = (uint64_t)y->mantissa >> 8;
    int64_t product = 0;
    int i = 54;
    do {
        product = wide_shift(product, 1);
        if (bits & 1) product += x->mantissa;
        bits >>= 1;
    } while (--i);
    if (y->mantissa < 0) product -= 2 * x->mantissa; /* the bits are those of y + 2^62 */
    wide_set(x, x->exponent + y->exponent - 382, product, wide_sign(x) * wide_sign(y));
}
#else
static void wide_multiply(wide_float *x, const wide_float *y)
{
    *x *= *y;
}
#endif

/* *x /= *y, which is not negative. */
#if WEFT_OWN_DOUBLES
static void wide_divide(wide_float *x, const wide_float *y)
{
    int64_t digits = 0;
    if (y->special == 0) digits = wide_digits(wide_size(x->mantissa), (uint64_t)y->mantissa, 0);
    if (x->mantissa < 0) digits = -digits;
    wide_set(x, x->exponent - y->exponent + 382, digits, wide_sign(x) / wide_sign(y));
}
#else
static void wide_divide(wide_float *x, const wide_float *y)
{
    *x /= *y;
}
#endif

/* *x = 1 / *x, which is not negative. */
static void wide_invert(wide_float *x)
{
    const wide_float below = *x;
    *x = wide_int(1);
    wide_divide(x, &below);
}

/* *x becomes its square root. It is not negative. */
#if WEFT_OWN_DOUBLES
static void wide_root(wide_float *x)
{
    uint64_t rest = 2 * (uint64_t)x->mantissa;
    if (!(x->exponent & 1)) rest *= 2;
    wide_set(x, (x->exponent + 381) >> 1, wide_digits(rest, 0, 1), x->special);
}
#else
static void wide_root(wide_float *x)
{
    *x = wide_sqrt(*x);
}
#endif

/* (T)(*x / count). Writes over *x. */
static T wide_mean(wide_float *x, int count)
{
    const wide_float n = wide_int(count);
    wide_divide(x, &n);
    return wide_value(x);
}

#if defined(__FMA__) || defined(__FP_FAST_FMAF) || defined(__aarch64__) || defined(__riscv_flen)
static inline float fma_f32(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}
#elif WEFT_OWN_DOUBLES
/* x y + z with one rounding. The product has 48 bits. */
static float fma_f32(float x, float y, float z)
{
    wide_float sum = WIDE_ZERO;
    int i, j, k;
    const int32_t a = wide_parts(x, &i), b = wide_parts(y, &j), c = wide_parts(z, &k);
    if (i == 255 || j == 255 || !a || !b) return x * y + z;
    if (k == 255) return z;
    sum.mantissa = c * ((int64_t)1 << 37);
    sum.exponent = k + 256;
    wide_sum((int64_t)a * b * 4096, i + j + 131, &sum);
    return wide_to_float(sum.mantissa >> 1 | (sum.mantissa & 1), sum.exponent + 1);
}
#else
/* The product is exact in double. The sum is rounded to odd there: where it is inexact, it is
 * rounded towards zero, and its last bit is set. So rounding it again, to float, has the result of
 * one rounding (Boldo & Melquiond 2008, "Emulation of a FMA and correctly rounded sums"). */
static inline float fma_f32(float x, float y, float z)
{
    const wide_float product = (wide_float)x * (wide_float)y, sum = product + (wide_float)z;
    const wide_float added = sum - product;
    const wide_float lost = (product - (sum - added)) + ((wide_float)z - added);
    const uint64_t inexact = (lost > 0) | (lost < 0), smaller = (lost < 0) != (sum < 0);
    uint64_t bits;
    wide_float odd;
    memcpy(&bits, &sum, sizeof bits);
    bits = (bits - (inexact & smaller)) | inexact;
    memcpy(&odd, &bits, sizeof odd);
    return (float)odd;
}
#endif
