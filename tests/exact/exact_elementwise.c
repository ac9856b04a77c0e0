/* Elementwise ops. See exact.h. */
#include "base/vmath_pow.h"
#include "base/vmath_sin.h"
#include "exact_math.h"

/* ---- One operand ---- */

typedef struct numbers_attr {
    double first, second;
} numbers_attr;

/* y of x; a and b are the numbers of the attribute. */
#define UNARY(name, ...)                                                                           \
    EXACT(name)                                                                                    \
    {                                                                                              \
        UNUSED;                                                                                    \
        const numbers_attr *numbers = attr;                                                        \
        const T a = numbers ? (T)numbers->first : 0, b = numbers ? (T)numbers->second : 0;         \
        for (int64_t i = 0; i < numel(out); i++) {                                                 \
            const T x = at(in, i);                                                                 \
            (void)a, (void)b;                                                                      \
            data(out)[i] = (T)(__VA_ARGS__);                                                       \
        }                                                                                          \
    }

static T sine(T x, bool cosine)
{
    if (!(fabs((double)x) <= VM_SIN_LIMIT))
        return (T)(cosine ? vm_cos_f64((double)x) : vm_sin_f64((double)x));
    return x == 0 && !cosine ? x : vm_sin_quarters(x, cosine);
}

static T gelu_tanh(T x)
{
    const T cube = (T)0.044715 * x * x * x;
    return (T)0.5 * x * (1 + vm_tanh((T)0.79788456080286536 * (x + cube)));
}

UNARY(neg, -x)
UNARY(abs, signbit(x) ? -x : x)
UNARY(sign, x > 0 ? 1 : x < 0 ? -1 : 0)
UNARY(floor, floor((double)x))
UNARY(ceil, ceil((double)x))
UNARY(round, rint((double)x))
UNARY(atan, vm_atan_f64((double)x))
UNARY(exp, vm_exp(x))
UNARY(log, vm_log(x))
UNARY(expm1, vm_expm1(x))
UNARY(log1p, vm_log1p(x))
UNARY(sqrt, sqrt((double)x))
UNARY(rsqrt, 1 / sqrt((double)x)) /* rounded once, from f64 */
UNARY(square, x *x)
UNARY(reciprocal, 1 / x)
UNARY(sin, sine(x, false))
UNARY(cos, sine(x, true))
UNARY(tanh, vm_tanh(x))
UNARY(sigmoid, vm_sigmoid(x))
UNARY(relu, x < 0 ? 0 : x)
UNARY(leaky_relu, x > 0 ? x : a * x)
UNARY(gelu, vm_gelu(x))
UNARY(gelu_tanh, gelu_tanh(x))
UNARY(silu, x *vm_sigmoid(x))
UNARY(softplus, (x > 0 ? x : 0) + vm_log1p_unit(vm_exp(x > 0 ? -x : x)))
UNARY(erf, vm_erf(x))
UNARY(clamp, x<a ? a : x> b ? b : x)

/* The attributes are the scale and the bounds, in steps. A result of 0 has no sign. */
EXACT(fake_quantize)
{
    const double *grid = attr;
    const T scale = (T)grid[0], low = (T)grid[1], high = (T)grid[2];
    (void)n_in;
    for (int64_t i = 0; i < numel(out); i++) {
        T steps = at(in, i) / scale;
        if (steps < low) steps = low;
        if (steps > high) steps = high;
        steps = (T)rint((double)steps);
        data(out)[i] = steps == 0 ? 0 : steps * scale;
    }
}

/* ---- Two operands, which broadcast ---- */

#define BINARY(name, ...)                                                                          \
    EXACT(name)                                                                                    \
    {                                                                                              \
        UNUSED;                                                                                    \
        for (int64_t i = 0; i < numel(out); i++) {                                                 \
            const T x = broadcast_at(&in[0], &out->shape, i);                                      \
            const T y = broadcast_at(&in[1], &out->shape, i);                                      \
            data(out)[i] = (T)(__VA_ARGS__);                                                       \
        }                                                                                          \
    }
BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x *y)
BINARY(div, x / y)
BINARY(pow, vm_pow_f64((double)x, (double)y))
BINARY(maximum, x > y || x != x ? x : y)
BINARY(minimum, x < y || x != x ? x : y)
BINARY(relu_grad, x <= 0 ? 0 : y)

/* ---- More operands ---- */

/* The first 32 are added in order, then the sums of 32 more each. */
EXACT(add_n)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) {
        T sum = at(&in[0], i);
        for (size_t j = 1; j < n_in && j < 32; j++) sum += at(&in[j], i);
        for (size_t from = 32; from < n_in; from += 32) {
            T block = at(&in[from], i);
            for (size_t j = from + 1; j < n_in && j < from + 32; j++) block += at(&in[j], i);
            sum += block;
        }
        data(out)[i] = sum;
    }
}

EXACT_TABLE(elementwise) = {
    ROW(neg),        ROW(abs),   ROW(sign),          ROW(floor),   ROW(ceil),
    ROW(round),      ROW(atan),  ROW(exp),           ROW(log),     ROW(expm1),
    ROW(log1p),      ROW(sqrt),  ROW(rsqrt),         ROW(square),  ROW(reciprocal),
    ROW(sin),        ROW(cos),   ROW(tanh),          ROW(sigmoid), ROW(relu),
    ROW(leaky_relu), ROW(gelu),  ROW(gelu_tanh),     ROW(silu),    ROW(softplus),
    ROW(erf),        ROW(clamp), ROW(fake_quantize), ROW(add),     ROW(sub),
    ROW(mul),        ROW(div),   ROW(pow),           ROW(maximum), ROW(minimum),
    ROW(relu_grad),  ROW(add_n), {NULL, NULL},
};
