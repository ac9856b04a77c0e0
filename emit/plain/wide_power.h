/* Powers in a wide_float, as graph/base/vmath_pow.h computes them. */

/* A number as the sum of two, the second one at most half a unit of the first. */
typedef struct wide_pair {
    wide_float high, low;
} wide_pair;

static wide_float wide_plus(wide_float x, wide_float y)
{
    wide_add_wide(&x, &y);
    return x;
}

static wide_float wide_minus(wide_float x, wide_float y)
{
    wide_subtract(&x, &y);
    return x;
}

/* x / y. */
static wide_float wide_ratio(wide_float x, wide_float y)
{
    wide_divide(&x, &y);
    return x;
}

static wide_pair wide_two_sum(wide_float a, wide_float b)
{
    wide_pair pair;
    wide_float added;
    pair.high = wide_plus(a, b);
    added = wide_minus(pair.high, a);
    pair.low = wide_plus(wide_minus(a, wide_minus(pair.high, added)), wide_minus(b, added));
    return pair;
}

/* What rounding removed from the product of x and y. */
static wide_float wide_lost(wide_float x, wide_float y, wide_float product)
{
    return wide_fma(x, y, wide_minus(wide_int(0), product));
}

/* ln x, for a finite x > 0. */
static wide_pair wide_log_pair(wide_float x)
{
    const wide_float one = wide_int(1), two = wide_int(2), third = wide_ratio(two, wide_int(3));
    const wide_float third_low = wide_of_bits(UINT64_C(0x3c85555555555555));
    wide_float f, g, s, s_low, z, z_low, q, t, t_low, r, r_low, low, n;
    wide_pair a, b;
    int e, k;
    x = wide_fraction(x, &e);
    n = wide_int(e);
    f = wide_minus(x, one);
    g = wide_plus(x, one);
    low = wide_minus(x, wide_minus(g, one)); /* of g */
    s = wide_ratio(f, g);
    s_low = wide_fma(wide_minus(wide_int(0), s), g, f);
    s_low = wide_ratio(wide_minus(s_low, wide_product(s, low)), g);
    z = wide_product(s, s);
    z_low = wide_plus(wide_lost(s, s, z), wide_product(wide_product(two, s), s_low));
    q = wide_ratio(two, wide_int(25));
    for (k = 23; k > 3; k -= 2) q = wide_fma(q, z, wide_ratio(two, wide_int(k)));
    t = wide_product(third, z);
    t_low = wide_plus(wide_product(third, z_low), wide_product(third_low, z));
    t_low = wide_plus(wide_lost(third, z, t), wide_fma(wide_product(q, z), z, t_low));
    r = wide_product(s, t);
    r_low = wide_plus(wide_lost(s, t, r), wide_fma(s, t_low, wide_product(s_low, t)));
    a = wide_two_sum(wide_product(n, WIDE_LN2_HIGH), wide_product(two, s));
    b = wide_two_sum(a.high, r);
    low = wide_fma(n, WIDE_LN2_LOW, wide_plus(wide_product(two, s_low), r_low));
    return wide_two_sum(b.high, wide_plus(wide_plus(a.low, b.low), low));
}

/* x^y for 0 <= x < 1 and y >= 0. */
static wide_float wide_power(wide_float x, T y)
{
    const wide_float exponent = wide_of(y);
    wide_pair p;
    wide_float high, least;
    if (y == 0) return wide_int(1);
    if (wide_value(&x) == 0) return x;
    p = wide_log_pair(x);
    high = wide_product(exponent, p.high);
    p.low = wide_fma(exponent, p.low, wide_lost(exponent, p.high, high));
    least = wide_plus(high, wide_int(746));
    if (wide_is_negative(&least)) return wide_int(0);
    return wide_exp_sum(high, p.low);
}
