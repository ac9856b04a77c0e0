/* Random numbers, from the words of a node (exact_math.h). See exact.h. */
#include "exact_math.h"

#include "base/vmath_sin.h"

typedef struct dropout_attr {
    double p;
    uint64_t key;
} dropout_attr;

EXACT(dropout)
{
    UNUSED;
    const dropout_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++)
        data(out)[i] = is_kept(a->p, a->key, i) ? data(in)[i] * (T)(1 / (1 - a->p)) : 0;
}

typedef struct random_attr {
    weft_dtype dtype;
    weft_shape shape;
    double a, b;
    uint64_t key;
} random_attr;

/* 53 bits of words w and w + 1, in [0, 1). */
static double uniform53(uint64_t key, uint64_t w)
{
    const uint64_t high = word_of(key, w), low = word_of(key, w + 1);
    return (double)(high << 21 ^ low >> 11) * 0x1p-53;
}

EXACT(random_uniform)
{
    UNUSED;
    const random_attr *a = attr;
    const T high = (T)a->b;
    for (int64_t i = 0; i < numel(out); i++) {
        const uint64_t w = (uint64_t)i;
        const double u =
            sizeof(T) == 4 ? (double)(word_of(a->key, w) >> 8) * 0x1p-24 : uniform53(a->key, 2 * w);
        const T x = (T)(a->a + (a->b - a->a) * u);
        const T below = sizeof(T) == 4 ? (T)nextafterf((float)high, -INFINITY)
                                       : (T)nextafter((double)high, -INFINITY);
        data(out)[i] = x < high ? x : a->a < a->b ? below : high;
    }
}

/* Box & Muller (1958): the cosine and the sine of a pair. */
EXACT(random_normal)
{
    UNUSED;
    const random_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) {
        const uint64_t pair = (uint64_t)i / 2;
        double v, u;
        if (sizeof(T) == 4) {
            v = ((double)word_of(a->key, 2 * pair) + 1) * 0x1p-32;
            u = (double)word_of(a->key, 2 * pair + 1) * 0x1p-32;
        } else {
            v = 1 - uniform53(a->key, 4 * pair);
            u = uniform53(a->key, 4 * pair + 2);
        }
        const double radius = a->b * sqrt(-2 * vm_log_f64(v)), angle = 6.283185307179586 * u;
        data(out)[i] = (T)(a->a + radius * vm_sin_quarters_f64(angle, i % 2 == 0));
    }
}

EXACT(bernoulli)
{
    UNUSED;
    const random_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) {
        const T p = at(in, i);
        const double u = (double)word_of(a->key, (uint64_t)i) * 0x1p-32;
        data(out)[i] = isnan(p) ? p : u < (double)p;
    }
}

EXACT_TABLE(random) = {
    ROW(dropout), ROW(random_uniform), ROW(random_normal), ROW(bernoulli), {NULL, NULL},
};
