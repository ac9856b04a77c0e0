/* The logarithm and the exponential of losses in a wide_float: the formulas of graph/base/vmath.h, whose constants are
 * computed where they are fractions. */

/* x y + z. */
#if WEFT_OWN_DOUBLES
static vm_parts wide_split(wide_float x)
{
    vm_parts p;
    p.negative = x.mantissa < 0;
    p.mantissa = wide_size(x.mantissa) >> 8;
    p.exponent = x.exponent - 435;
    return p;
}

static wide_float wide_fma(wide_float x, wide_float y, wide_float z)
{
    wide_float sum = WIDE_ZERO;
    int64_t mantissa;
    vm_wide w;
    int negative, lost;
    sum.special = wide_sign(&x) * wide_sign(&y) + wide_sign(&z);
    if (sum.special - sum.special != 0) return sum;
    sum.special = 0;
    if (!x.mantissa || !y.mantissa) return z;
    w = vm_fused(wide_split(x), wide_split(y), wide_split(z), &sum.exponent, &negative);
    lost = vm_wide_length(w) - 62;
    mantissa = (int64_t)vm_wide_shift(w, lost).low;
    sum.exponent = mantissa ? sum.exponent + lost + 443 : 0;
    wide_put(negative ? -mantissa : mantissa, sum.exponent, &sum);
    return sum;
}
#else
static wide_float wide_fma(wide_float x, wide_float y, wide_float z)
{
    return fma_f64(x, y, z);
}
#endif

static wide_float wide_product(wide_float x, wide_float y)
{
    wide_multiply(&x, &y);
    return x;
}

/* 1 / x. */
static wide_float wide_part(int64_t x)
{
    wide_float part = wide_int(x);
    wide_invert(&part);
    return part;
}

/* ln 2 in two pieces, the first of 33 bits. */
#define WIDE_LN2_HIGH wide_of_bits(UINT64_C(0x3fe62e42fee00000))
#define WIDE_LN2_LOW  wide_of_bits(UINT64_C(0x3dea39ef35793c76))

/* x, which is positive, as a number from sqrt(1/2) to sqrt 2 times 2^*exponent. */
#if WEFT_OWN_DOUBLES
static wide_float wide_fraction(wide_float x, int *exponent)
{
    *exponent = x.exponent - 383;
    x.exponent = 383;
    if (x.mantissa >= INT64_C(0x16a09e667f3bcd00)) {
        ++*exponent;
        --x.exponent;
    }
    return x;
}
#else
static wide_float wide_fraction(wide_float x, int *exponent)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    *exponent = (int)((int64_t)(bits - UINT64_C(0x3fe6a09e667f3bcd)) >> 52);
    bits -= (uint64_t)*exponent << 52;
    memcpy(&x, &bits, sizeof x);
    return x;
}
#endif

/* The natural logarithm, as vm_log_f64, of 0, of a sum from 1 to 2^64, or of NaN. */
static wide_float wide_log(wide_float x)
{
    const wide_float one = wide_int(1), minus_one = wide_int(-1);
    wide_float n, s, z, p, more;
    int e, k;
    const T size = wide_value(&x);
    if (size == 0) return wide_of((T)-INFINITY);
    if (size - size != 0) return x;
    s = more = wide_fraction(x, &e);
    wide_add_wide(&s, &minus_one);
    wide_add_wide(&more, &one);
    wide_divide(&s, &more);
    z = wide_product(s, s);
    p = wide_part(23);
    for (k = 21; k > 1; k -= 2) p = wide_fma(p, z, wide_part(k));
    p = wide_fma(s, wide_product(p, z), s);
    z = p;
    wide_add_wide(&p, &z);
    n = wide_int(e);
    return wide_fma(n, WIDE_LN2_HIGH, wide_fma(n, WIDE_LN2_LOW, p));
}

#define WIDE_MAGIC wide_of_bits(UINT64_C(0x4338000000000000))

/* The integer x - 1.5 2^52, of up to 16 bits: the last bits of x. */
#if WEFT_OWN_DOUBLES
static int wide_integer(wide_float x)
{
    return (int)((x.mantissa >> 8) - ((int64_t)3 << 51));
}
#else
static int wide_integer(wide_float x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int16_t)(uint16_t)bits;
}
#endif

/* *x *= 2^e. */
#if WEFT_OWN_DOUBLES
static void wide_scale(wide_float *x, int e)
{
    x->exponent += e;
}
#else
static void wide_scale(wide_float *x, int e)
{
    const int half = e / 2;
    const uint64_t bits[2] = {(uint64_t)(half + 1023) << 52, (uint64_t)(e - half + 1023) << 52};
    wide_float power[2];
    memcpy(power, bits, sizeof power);
    *x = *x * power[0] * power[1];
}
#endif

/* e^(x + low), for x from -746 to 710. */
static wide_float wide_exp_sum(wide_float x, wide_float low)
{
    /* The integer nearest to x / ln 2: 1.5 2^52 has no room for fractions. */
    const int e = wide_integer(wide_fma(x, wide_of_bits(UINT64_C(0x3ff71547652b82fe)), WIDE_MAGIC));
    const wide_float n = wide_int(-(int64_t)e), one = wide_int(1);
    wide_float r = wide_fma(n, WIDE_LN2_LOW, wide_fma(n, WIDE_LN2_HIGH, x)), p;
    int64_t f = INT64_C(6227020800); /* 13! */
    int k;
    wide_add_wide(&r, &low);
    p = wide_part(f);
    for (k = 13; k > 2; k--) {
        f /= k;
        p = wide_fma(p, r, wide_part(f));
    }
    p = wide_fma(wide_product(p, r), r, r);
    wide_add_wide(&p, &one);
    wide_scale(&p, e);
    return p;
}

/* (T)e^x, as vm_exp_f64. */
static T wide_exp(T x)
{
    wide_float power;
    if (x != x) return x;
    power = wide_exp_sum(wide_of(x < -746 ? -746 : x > 710 ? 710 : x), wide_int(0));
    return wide_value(&power);
}
