/* What the functions of elements ask of libm elsewhere. */

/* Of functions that a processor with fused operations does not need. */
#define VM_UNUSED __attribute__((unused))

/* A double as mantissa 2^exponent; the mantissa has 53 bits, but that of 0. */
typedef struct vm_parts {
    uint64_t mantissa;
    int exponent;
    int negative;
} vm_parts;

#if !WEFT_OWN_DOUBLES
static VM_UNUSED vm_parts vm_split(wide_float x)
{
    vm_parts p;
    uint64_t bits;
    int shift = 0;
    memcpy(&bits, &x, sizeof bits);
    p.negative = (int)(bits >> 63);
    p.exponent = (int)(bits >> 52 & 0x7ff);
    p.mantissa = bits & 0xfffffffffffffu;
    if (p.exponent)
        p.mantissa |= (uint64_t)1 << 52;
    else
        p.exponent = 1;
    p.exponent -= 1075;
    while (shift < 52 && !(p.mantissa >> (52 - shift))) shift++;
    p.mantissa <<= shift;
    p.exponent -= shift;
    return p;
}
#endif

/* An integer of 128 bits in two halves. */
typedef struct vm_wide {
    uint64_t high, low;
} vm_wide;

static VM_UNUSED vm_wide vm_wide_product(uint64_t a, uint64_t b)
{
    const uint64_t mask = 0xffffffffu, a1 = a >> 32, a0 = a & mask, b1 = b >> 32, b0 = b & mask;
    const uint64_t low = a0 * b0, mid = a1 * b0 + (low >> 32), mid2 = a0 * b1 + (mid & mask);
    vm_wide w;
    w.high = a1 * b1 + (mid >> 32) + (mid2 >> 32);
    w.low = mid2 << 32 | (low & mask);
    return w;
}

/* w 2^-n; a bit that is lost sets the last one. Negative n: to the left, without loss. */
static VM_UNUSED vm_wide vm_wide_shift(vm_wide w, int n)
{
    vm_wide r = {0, 0};
    if (n <= -64) {
        r.high = w.low << (-n - 64);
    } else if (n < 0) {
        r.high = w.high << -n | w.low >> (64 + n);
        r.low = w.low << -n;
    } else if (n == 0) {
        r = w;
    } else if (n >= 128) {
        r.low = (w.high | w.low) != 0;
    } else if (n >= 64) {
        const int more = n - 64;
        r.low =
            (more ? w.high >> more : w.high) | ((w.low | (more ? w.high << (64 - more) : 0)) != 0);
    } else {
        r.high = w.high >> n;
        r.low = (w.low >> n | w.high << (64 - n)) | (w.low << (64 - n) != 0);
    }
    return r;
}

/* The bits of w without zeros before them. */
static VM_UNUSED int vm_wide_length(vm_wide w)
{
    const uint64_t top = w.high ? w.high : w.low;
    int length = 0;
    while (length < 64 && top >> length) length++;
    return length + (w.high ? 64 : 0);
}

/* a b + c as an integer times 2^*exponent; where bits are lost, its last one is set. a and b are
 * not 0. */
static VM_UNUSED vm_wide vm_fused(vm_parts a, vm_parts b, vm_parts c, int *exponent, int *negative)
{
    vm_wide product = vm_wide_product(a.mantissa, b.mantissa), other, sum;
    other.high = 0;
    other.low = c.mantissa;
    *negative = a.negative != b.negative;
    /* Both with one exponent: the larger one as far to the left as it may be. */
    *exponent = a.exponent + b.exponent;
    const int shift = c.exponent - *exponent;
    if (shift > 0) {
        const int left = shift < 73 ? shift : 73; /* 53 of 126 bits */
        other = vm_wide_shift(other, -left);
        product = vm_wide_shift(product, shift - left);
        *exponent += shift - left;
    } else {
        const int left = -shift < 20 ? -shift : 20; /* 106 of 126 bits */
        product = vm_wide_shift(product, -left);
        other = vm_wide_shift(other, -shift - left);
        *exponent -= left;
    }
    if (*negative == c.negative) {
        sum.low = product.low + other.low;
        sum.high = product.high + other.high + (sum.low < other.low);
    } else {
        const int smaller =
            product.high < other.high || (product.high == other.high && product.low < other.low);
        const vm_wide more = smaller ? other : product, less = smaller ? product : other;
        sum.low = more.low - less.low;
        sum.high = more.high - less.high - (more.low < less.low);
        if (smaller) *negative = c.negative;
    }
    return sum;
}

#if !WEFT_OWN_DOUBLES
/* w 2^exponent, whose last bit may be sticky, rounded to nearest, ties to even. */
static VM_UNUSED wide_float vm_round_wide(vm_wide w, int exponent, int negative)
{
    uint64_t bits;
    wide_float y;
    int lost = vm_wide_length(w) - 53;
    if (lost < -1074 - exponent) lost = -1074 - exponent;
    const uint64_t rough = vm_wide_shift(w, lost - 2).low;
    const uint64_t mantissa = (rough >> 2) + ((rough & 2) && (rough & 5));
    const int e = exponent + lost; /* the result is mantissa 2^e, at most 2^53 */
    if (mantissa >> 53)
        bits = (uint64_t)(e + 1076) << 52;
    else if (mantissa >> 52)
        bits = (uint64_t)(e + 1075) << 52 | (mantissa & 0xfffffffffffffu);
    else
        bits = mantissa; /* subnormal */
    if (mantissa >> 52 && e + 1075 + (int)(mantissa >> 53) > 2046) bits = (uint64_t)0x7ff << 52;
    bits |= (uint64_t)(negative != 0) << 63;
    memcpy(&y, &bits, sizeof y);
    return y;
}
#endif

#if !WEFT_OWN_DOUBLES
#if defined(__FMA__) || defined(__FP_FAST_FMA) || defined(__aarch64__) ||                          \
    (defined(__riscv_flen) && __riscv_flen >= 64)
static inline wide_float fma_f64(wide_float x, wide_float y, wide_float z)
{
    return __builtin_fma(x, y, z);
}
#else
/* x y + z with one rounding, in integers. */
static wide_float fma_f64(wide_float x, wide_float y, wide_float z)
{
    int exponent, negative;
    if (x - x != 0 || y - y != 0 || x == 0 || y == 0) return x * y + z;
    if (z - z != 0) return z + z;
    if (z == 0) return x * y;
    const vm_wide sum = vm_fused(vm_split(x), vm_split(y), vm_split(z), &exponent, &negative);
    return sum.high | sum.low ? vm_round_wide(sum, exponent, negative) : 0;
}
#endif
#endif

/* The square root, rounded once: by an instruction where there is one that compilers need not follow
 * with a test for errno, else digit by digit. Frama-C does not support vectors. */
#if WEFT_OWN_DOUBLES
#elif defined(__SSE2__) && !defined(__FRAMAC__)
static inline VM_UNUSED wide_float wide_sqrt(wide_float x)
{
    const __attribute__((vector_size(16))) wide_float two = {x, x};
    return __builtin_ia32_sqrtpd(two)[0];
}
#elif defined(__NO_MATH_ERRNO__) && defined(__aarch64__)
static inline VM_UNUSED wide_float wide_sqrt(wide_float x)
{
    return __builtin_sqrt(x);
}
#else
static VM_UNUSED wide_float wide_sqrt(wide_float x)
{
    uint64_t root = 0, rest = 0, bits;
    int i;
    if (!(x > 0) || x > 1.7976931348623157e308) return x < 0 ? (wide_float)NAN : x;
    vm_parts p = vm_split(x);
    if (p.exponent & 1) {
        p.mantissa <<= 1;
        p.exponent--;
    }
    /* The root of mantissa 2^54, bit by bit: 54 bits, of which the last one rounds. */
    for (i = 53; i >= 0; i--) {
        const uint64_t two = i >= 27 ? p.mantissa >> (2 * (i - 27)) & 3 : 0;
        rest = rest << 2 | two;
        root <<= 1;
        if (rest >= (root << 1 | 1)) {
            rest -= root << 1 | 1;
            root |= 1;
        }
    }
    /* The last bit of the root rounds. It is never a tie: the square of an odd root would be odd. */
    bits = ((uint64_t)(p.exponent / 2 + 1048) << 52) + ((root + 1) >> 1);
    memcpy(&x, &bits, sizeof x);
    return x;
}
#endif

#if !WEFT_OWN_DOUBLES
static inline VM_UNUSED double plain_sqrt(double x)
{
    return wide_sqrt(x);
}
#endif

static inline double plain_fabs(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= ~((uint64_t)1 << 63);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The nearest integer, ties to even; it keeps the sign of zero. */
static double plain_rint(double x)
{
    const double big = 4503599627370496.0, a = plain_fabs(x);
    if (!(a < big)) return x;
    const double y = (a + big) - big;
    return x < 0 || (x == 0 && 1 / x < 0) ? -y : y;
}

static double plain_floor(double x)
{
    const double y = plain_rint(x);
    return y > x ? y - 1 : y;
}

static double plain_ceil(double x)
{
    return -plain_floor(-x);
}
