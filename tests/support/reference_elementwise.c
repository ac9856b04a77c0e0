/* Naive references of elementwise ops. See reference.h. */
#include "reference_data.h"

/* ---- Elementwise ---- */

typedef struct pair_attr {
    double a, b;
} pair_attr;
/* Ops without attributes, with the formula of an element. Their builders, weft_NAME(graph, x) and
 * weft_NAME(graph, x, y), always add a node. */
/* clang-format off */
#define UNARY_OPS(X) \
    X(neg, -x) \
    X(abs, fabs(x)) \
    X(sign, x > 0 ? 1 : x < 0 ? -1 : 0) \
    X(floor, floor(x)) \
    X(ceil, ceil(x)) \
    X(round, rint(x)) \
    X(atan, atan(x)) \
    X(exp, exp(x)) \
    X(log, log(x)) \
    X(expm1, expm1(x)) \
    X(log1p, log1p(x)) \
    X(sqrt, sqrt(x)) \
    X(rsqrt, pow(x, -0.5)) \
    X(square, pow(x, 2)) \
    X(reciprocal, pow(x, -1)) \
    X(sin, sin(x)) \
    X(cos, cos(x)) \
    X(tanh, tanh(x)) \
    X(sigmoid, 1 / (1 + exp(-x))) \
    X(relu, fmax(x, 0)) \
    X(gelu, x / 2 * erfc(-x / sqrt(2))) \
    X(gelu_tanh, x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3))))) \
    X(silu, x / (1 + exp(-x))) \
    X(softplus, log(1 + exp(x))) \
    X(erf, erf(x)) \
    X(logical_not, x == 0)
#define BINARY_OPS(X) \
    X(add, x + y) \
    X(sub, x - y) \
    X(mul, x * y) \
    X(div, x / y) \
    X(pow, exp(y * log(x))) \
    X(maximum, fmax(x, y)) \
    X(relu_grad, x > 0 ? y : 0) \
    X(minimum, fmin(x, y)) \
    X(equal, x == y) \
    X(not_equal, x != y) \
    X(less, x < y) \
    X(less_equal, x <= y) \
    X(greater, x > y) \
    X(greater_equal, x >= y) \
    X(logical_and, x && y) \
    X(logical_or, x || y)
/* clang-format on */

#define UNARY(name, expression)                                                                    \
    REFERENCE(name)                                                                                \
    {                                                                                              \
        UNUSED;                                                                                    \
        for (int64_t i = 0; i < numel(out); i++) {                                                 \
            double x = get(in, i);                                                                 \
            put(out, i, expression);                                                               \
        }                                                                                          \
    }
UNARY_OPS(UNARY)
#define A (((const pair_attr *)attr)->a)
#define B (((const pair_attr *)attr)->b)
UNARY(leaky_relu, x > 0 ? x : A * x)
UNARY(clamp, fmin(fmax(x, A), B))
UNARY(fake_quantize, A *rint(fmin(fmax(x / A, B), ((const double *)attr)[2])))
UNARY(reshape, x)
UNARY(custom_gradient, x)

#define BINARY(name, expression)                                                                   \
    REFERENCE(name)                                                                                \
    {                                                                                              \
        UNUSED;                                                                                    \
        for (int64_t i = 0; i < numel(out); i++) {                                                 \
            double x = broadcast(&in[0], out->shape, i), y = broadcast(&in[1], out->shape, i);     \
            put(out, i, expression);                                                               \
        }                                                                                          \
    }
BINARY_OPS(BINARY)

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

#define ROW(name, expression) SAME(name),
const reference references_elementwise[] = {
    UNARY_OPS(ROW) BINARY_OPS(ROW) SAME(leaky_relu),
    SAME(clamp),
    SAME(fake_quantize),
    SAME(add_n),
    SAME(global_norm),
    SAME(square_sums),
    SAME(root_of_sum),
    SAME(reshape),
    SAME(custom_gradient),
    {NULL, NULL},
};

/* ---- Builders ---- */

static const struct {
    const char *op;
    weft_value (*unary)(weft_graph *graph, weft_value x);
    weft_value (*binary)(weft_graph *graph, weft_value x, weft_value y);
} builders[] = {
#define OF_UNARY(name, expression)  {#name, weft_##name, NULL},
#define OF_BINARY(name, expression) {#name, NULL, weft_##name},
    UNARY_OPS(OF_UNARY) BINARY_OPS(OF_BINARY)};

bool reference_build(weft_graph *graph, const char *op, weft_value x, weft_value y,
                     weft_value *result)
{
    for (size_t i = 0; i < sizeof builders / sizeof *builders; i++)
        if (!strcmp(builders[i].op, op)) {
            *result =
                builders[i].unary ? builders[i].unary(graph, x) : builders[i].binary(graph, x, y);
            return true;
        }
    return false;
}
