/* Naive references of elementwise ops. See reference.h. */
#include "reference_data.h"

/* ---- Elementwise ---- */

typedef struct pair_attr {
    double a, b;
} pair_attr;
#define UNARY(name, expression)                                                                    \
    REFERENCE(name)                                                                                \
    {                                                                                              \
        UNUSED;                                                                                    \
        for (int64_t i = 0; i < numel(out); i++) {                                                 \
            double x = get(in, i);                                                                 \
            put(out, i, expression);                                                               \
        }                                                                                          \
    }
#define A (((const pair_attr *)attr)->a)
#define B (((const pair_attr *)attr)->b)
UNARY(neg, -x)
UNARY(abs, fabs(x))
UNARY(sign, x > 0 ? 1 : x < 0 ? -1 : 0)
UNARY(floor, floor(x))
UNARY(ceil, ceil(x))
UNARY(round, rint(x))
UNARY(atan, atan(x))
UNARY(exp, exp(x))
UNARY(log, log(x))
UNARY(expm1, expm1(x))
UNARY(log1p, log1p(x))
UNARY(sqrt, sqrt(x))
UNARY(rsqrt, pow(x, -0.5))
UNARY(square, pow(x, 2))
UNARY(reciprocal, pow(x, -1))
UNARY(sin, sin(x))
UNARY(cos, cos(x))
UNARY(tanh, tanh(x))
UNARY(sigmoid, 1 / (1 + exp(-x)))
UNARY(relu, fmax(x, 0))
UNARY(leaky_relu, x > 0 ? x : A * x)
UNARY(gelu, x / 2 * erfc(-x / sqrt(2)))
UNARY(gelu_tanh, x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3)))))
UNARY(silu, x / (1 + exp(-x)))
UNARY(softplus, log(1 + exp(x)))
UNARY(erf, erf(x))
UNARY(clamp, fmin(fmax(x, A), B))
UNARY(contiguous, x)
UNARY(cast, x)
UNARY(logical_not, x == 0)

#define BINARY(name, expression)                                                                   \
    REFERENCE(name)                                                                                \
    {                                                                                              \
        UNUSED;                                                                                    \
        for (int64_t i = 0; i < numel(out); i++) {                                                 \
            double x = broadcast(&in[0], out->shape, i), y = broadcast(&in[1], out->shape, i);     \
            put(out, i, expression);                                                               \
        }                                                                                          \
    }
BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x *y)
BINARY(div, x / y)
BINARY(pow, exp(y *log(x)))
BINARY(maximum, fmax(x, y))
BINARY(relu_grad, x > 0 ? y : 0)
BINARY(minimum, fmin(x, y))
BINARY(equal, x == y)
BINARY(not_equal, x != y)
BINARY(less, x < y)
BINARY(less_equal, x <= y)
BINARY(greater, x > y)
BINARY(greater_equal, x >= y)
BINARY(logical_and, x &&y)
BINARY(logical_or, x || y)
BINARY(masked_fill, y ? A : x)

REFERENCE(where)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++)
        put(out, i, broadcast(&in[broadcast(&in[0], out->shape, i) ? 1 : 2], out->shape, i));
}
REFERENCE(add_n)
{
    UNUSED;
    for (size_t k = 0; k < n_in; k++)
        for (int64_t i = 0; i < numel(out); i++) data(out)[i] += data(&in[k])[i];
}
REFERENCE(global_norm)
{
    UNUSED;
    double sum = 0;
    for (size_t k = 0; k < n_in; k++)
        for (int64_t i = 0; i < numel(&in[k]); i++) sum = hypot(sum, data(&in[k])[i]);
    *data(out) = sum;
}
REFERENCE(square_sums)
{
    UNUSED;
    int64_t tile = 0;
    for (size_t k = 0; k < n_in; k++)
        for (int64_t i = 0; i < numel(&in[k]); i++) {
            data(out)[tile] += pow(data(&in[k])[i], 2);
            if ((i + 1) % WEFT_TILE == 0 || i + 1 == numel(&in[k])) tile++;
        }
}
REFERENCE(root_of_sum)
{
    UNUSED;
    double sum = 0;
    for (int64_t i = 0; i < numel(&in[1]); i++) sum += data(in)[(int64_t)get(&in[1], i)];
    *data(out) = sqrt(sum);
}

const reference references_elementwise[] = {
    SAME(neg),
    SAME(abs),
    SAME(sign),
    SAME(floor),
    SAME(ceil),
    SAME(round),
    SAME(atan),
    SAME(exp),
    SAME(log),
    SAME(sqrt),
    SAME(rsqrt),
    SAME(square),
    SAME(reciprocal),
    SAME(sin),
    SAME(cos),
    SAME(tanh),
    SAME(sigmoid),
    SAME(relu),
    SAME(leaky_relu),
    SAME(gelu),
    SAME(gelu_tanh),
    SAME(silu),
    SAME(softplus),
    SAME(erf),
    SAME(clamp),
    SAME(contiguous),
    SAME(cast),
    SAME(logical_not),
    SAME(add),
    SAME(sub),
    SAME(mul),
    SAME(div),
    SAME(pow),
    SAME(maximum),
    SAME(relu_grad),
    SAME(minimum),
    SAME(equal),
    SAME(less),
    SAME(greater),
    SAME(logical_and),
    SAME(logical_or),
    SAME(masked_fill),
    SAME(where),
    SAME(add_n),
    SAME(expm1),
    SAME(log1p),
    SAME(not_equal),
    SAME(less_equal),
    SAME(greater_equal),
    SAME(global_norm),
    SAME(square_sums),
    SAME(root_of_sum),
    {"reshape", ref_contiguous},
    {NULL, NULL},
};
