/* Elementwise ops of ONNX. Integers are computed in f64, which is exact for i32. */
#include "onnx/import.h"
#include "onnx/ops.h"
#include "onnx/quantized.h"

#include <math.h>

/* ---- One operand ---- */

typedef weft_value unary(onnx_node *n, weft_value x);

/* y = f(x) in the dtype of x. */
static void map_unary(onnx_node *n, unary *f)
{
    const weft_value x = weft__in_value(n, 0);
    weft_value y = f(n, weft__widen(n, x));
    if (weft_dtype_of(n->graph, x) == WEFT_I32) y = weft__narrow(n, y, weft__in_type(n, 0));
    weft__set_typed(n, 0, y, weft__in_type(n, 0));
}

/* The same, computed in f64: formulas that would lose digits in f32. */
static void map_precise(onnx_node *n, unary *f)
{
    const weft_value x = weft__in_value(n, 0);
    const weft_dtype dtype = weft_dtype_of(n->graph, x);
    weft__set_out(n, 0, weft_cast(n->graph, f(n, weft_cast(n->graph, x, WEFT_F64)), dtype));
}

#define UNARY(op, how, expression)                                                                 \
    static weft_value compute_##op(onnx_node *n, weft_value x)                                     \
    {                                                                                              \
        weft_graph *g = n->graph;                                                                  \
        (void)g;                                                                                   \
        return expression;                                                                         \
    }                                                                                              \
    void weft__map_##op(onnx_node *n)                                                              \
    {                                                                                              \
        how(n, compute_##op);                                                                      \
    }

/* e^x + sign e^-x, halved */
static weft_value hyperbolic(weft_graph *g, weft_value x, double sign)
{
    weft_value down = weft_mul_scalar(g, weft_exp(g, weft_neg(g, x)), sign);
    return weft_mul_scalar(g, weft_add(g, weft_exp(g, x), down), 0.5);
}

/* sqrt(scale x^2 + addend) */
static weft_value root(weft_graph *g, weft_value x, double scale, double addend)
{
    return weft_sqrt(g, weft_add_scalar(g, weft_mul_scalar(g, weft_square(g, x), scale), addend));
}

static weft_value tangent(weft_graph *g, weft_value x)
{
    weft_value sine = weft_sin(g, x), cosine = weft_cos(g, x);
    return weft_div(g, sine, cosine);
}

static weft_value arc_sine(weft_graph *g, weft_value x)
{
    return weft_atan(g, weft_div(g, x, root(g, x, -1, 1)));
}

static weft_value area_sine(weft_graph *g, weft_value x)
{
    weft_value sign = weft_sign(g, x), size = weft_abs(g, x);
    return weft_mul(g, sign, weft_log(g, weft_add(g, size, root(g, size, 1, 1))));
}

static weft_value area_tangent(weft_graph *g, weft_value x)
{
    weft_value above = weft_add_scalar(g, x, 1), below = weft_add_scalar(g, weft_neg(g, x), 1);
    return weft_mul_scalar(g, weft_log(g, weft_div(g, above, below)), 0.5);
}

/* x > bound ? above : below, for a number or a value below */
static weft_value above(weft_graph *g, weft_value x, double bound, weft_value value,
                        weft_value otherwise)
{
    weft_value limit = weft_scalar(g, weft_dtype_of(g, x), bound);
    return weft_where(g, weft_greater(g, x, limit), value, otherwise);
}

static weft_value zero_like(weft_graph *g, weft_value x)
{
    return weft_scalar(g, weft_dtype_of(g, x), 0);
}

/* alpha (e^(x / divisor) - 1) where x < 0 */
static weft_value exponential(weft_graph *g, weft_value x, double alpha, double divisor)
{
    weft_value low = weft_mul_scalar(g, weft_minimum(g, x, zero_like(g, x)), 1 / divisor);
    return weft_mul_scalar(g, weft_add_scalar(g, weft_exp(g, low), -1), alpha);
}

static weft_value elu(weft_graph *g, weft_value x, double alpha, double divisor, double scale)
{
    weft_value y = above(g, x, 0, x, exponential(g, x, alpha, divisor));
    return scale == 1 ? y : weft_mul_scalar(g, y, scale);
}

static weft_value hard_sigmoid(weft_graph *g, weft_value x, double alpha, double beta)
{
    return weft_clamp(g, weft_add_scalar(g, weft_mul_scalar(g, x, alpha), beta), 0, 1);
}

static weft_value shrink(onnx_node *n, weft_value x)
{
    weft_graph *g = n->graph;
    const double lambda = weft__attr_float(n, "lambd", 0.5), bias = weft__attr_float(n, "bias", 0);
    weft_value negated = weft_neg(g, x), raised = weft_add_scalar(g, x, bias);
    weft_value low = above(g, negated, lambda, raised, zero_like(g, x));
    return above(g, x, lambda, weft_add_scalar(g, x, -bias), low);
}

UNARY(Abs, map_unary, weft_abs(g, x))
UNARY(Neg, map_unary, weft_neg(g, x))
UNARY(Sign, map_unary, weft_sign(g, x))
UNARY(Floor, map_unary, weft_floor(g, x))
UNARY(Ceil, map_unary, weft_ceil(g, x))
UNARY(Round, map_unary, weft_round(g, x))
UNARY(Reciprocal, map_unary, weft_reciprocal(g, x))
UNARY(Sqrt, map_unary, weft_sqrt(g, x))
UNARY(Exp, map_unary, weft_exp(g, x))
UNARY(Log, map_unary, weft_log(g, x))
UNARY(Sin, map_unary, weft_sin(g, x))
UNARY(Cos, map_unary, weft_cos(g, x))
UNARY(Tan, map_precise, tangent(g, x))
UNARY(Asin, map_precise, arc_sine(g, x))
UNARY(Acos, map_precise, weft_add_scalar(g, weft_neg(g, arc_sine(g, x)), 1.5707963267948966))
UNARY(Atan, map_unary, weft_atan(g, x))
UNARY(Sinh, map_precise, hyperbolic(g, x, -1))
UNARY(Cosh, map_precise, hyperbolic(g, x, 1))
UNARY(Tanh, map_unary, weft_tanh(g, x))
UNARY(Asinh, map_precise, area_sine(g, x))
UNARY(Acosh, map_precise, weft_log(g, weft_add(g, x, root(g, x, 1, -1))))
UNARY(Atanh, map_precise, area_tangent(g, x))
UNARY(Erf, map_unary, weft_erf(g, x))
UNARY(Sigmoid, map_unary, weft_sigmoid(g, x))
UNARY(Softplus, map_unary, weft_softplus(g, x))
UNARY(Softsign, map_unary, weft_div(g, x, weft_add_scalar(g, weft_abs(g, x), 1)))
UNARY(LeakyRelu, map_unary, weft_leaky_relu(g, x, weft__attr_float(n, "alpha", 0.01)))
UNARY(Elu, map_unary, elu(g, x, weft__attr_float(n, "alpha", 1), 1, 1))
UNARY(Celu, map_unary,
      elu(g, x, weft__attr_float(n, "alpha", 1), weft__attr_float(n, "alpha", 1), 1))
UNARY(Selu, map_unary,
      elu(g, x, weft__attr_float(n, "alpha", 1.67326319217681884765625), 1,
          weft__attr_float(n, "gamma", 1.05070102214813232421875)))
UNARY(ThresholdedRelu, map_unary, above(g, x, weft__attr_float(n, "alpha", 1), x, zero_like(g, x)))
UNARY(HardSigmoid, map_unary,
      hard_sigmoid(g, x, weft__attr_float(n, "alpha", 0.2), weft__attr_float(n, "beta", 0.5)))
UNARY(HardSwish, map_unary, weft_mul(g, x, hard_sigmoid(g, x, 1.0 / 6, 0.5)))
UNARY(Swish, map_unary,
      weft_mul(g, x, weft_sigmoid(g, weft_mul_scalar(g, x, weft__attr_float(n, "alpha", 1)))))
UNARY(Mish, map_unary, weft_mul(g, x, weft_tanh(g, weft_softplus(g, x))))
UNARY(Gelu, map_unary,
      weft__attr_is(n, "approximate", "tanh", "none") ? weft_gelu_tanh(g, x) : weft_gelu(g, x))
UNARY(Shrink, map_unary, shrink(n, x))

/* Also of a sequence. */
void weft__map_Identity(onnx_node *n)
{
    if (has_in(n, 0) && n->in[0]->sequence) {
        n->out[0].sequence = n->in[0]->sequence;
        return;
    }
    weft__set_typed(n, 0, weft__in_value(n, 0), weft__in_type(n, 0));
}

void weft__map_IsNaN(onnx_node *n)
{
    const weft_value x = weft__in_value(n, 0);
    weft__set_out(n, 0, weft_not_equal(n->graph, x, x));
}

void weft__map_IsInf(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_dtype dtype = weft_dtype_of(g, x);
    const double up = weft__attr_int(n, "detect_positive", 1) ? INFINITY : NAN;
    const double down = weft__attr_int(n, "detect_negative", 1) ? -INFINITY : NAN;
    const weft_value is_up = weft_equal(g, x, weft_scalar(g, dtype, up));
    const weft_value is_down = weft_equal(g, x, weft_scalar(g, dtype, down));
    weft__set_out(n, 0, weft_logical_or(g, is_up, is_down));
}

/* ---- Two operands ---- */

/* Input 1, placed at the axis that opsets before 7 name. */
static weft_value second(onnx_node *n)
{
    const weft_value b = weft__in_value(n, 1);
    weft_shape shape = weft__in_shape(n, 1);
    if (n->opset >= 7 || !weft__attr_int(n, "broadcast", 0) || !weft__has_attr(n, "axis")) return b;
    const int rank = weft__in_shape(n, 0).rank,
              end = weft__attr_axis(n, "axis", 0, rank) + shape.rank;
    for (; shape.rank < rank - end + weft_rank_of(n->graph, b) && shape.rank < WEFT_MAX_RANK;)
        shape.dim[shape.rank++] = 1;
    return weft_reshape(n->graph, b, shape);
}

typedef weft_value binary(weft_graph *g, weft_value a, weft_value b);

/* f(a, b) in the dtype of a. */
static weft_value arithmetic(onnx_node *n, binary *f, weft_value a, weft_value b)
{
    if (weft_dtype_is_float(weft_dtype_of(n->graph, a))) return f(n->graph, a, b);
    const weft_value wide_a = weft__widen(n, a), wide_b = weft__widen(n, b);
    weft_value y = f(n->graph, wide_a, wide_b);
    if (f == weft_div && weft__in_type(n, 0) != ONNX_BOOL) y = weft__towards_zero(n->graph, y);
    return weft__narrow(n, y, weft__in_type(n, 0));
}

#define BINARY(op, function)                                                                       \
    void weft__map_##op(onnx_node *n)                                                              \
    {                                                                                              \
        const weft_value a = weft__in_value(n, 0);                                                 \
        weft__set_typed(n, 0, arithmetic(n, function, a, second(n)), weft__in_type(n, 0));         \
    }
BINARY(Sub, weft_sub)
BINARY(Mul, weft_mul)
BINARY(Div, weft_div)

void weft__map_Add(onnx_node *n)
{
    const weft_value a = weft__in_value(n, 0);
    weft__set_typed(n, 0, arithmetic(n, weft_add, a, second(n)), weft__in_type(n, 0));
    if (n->n_out && !weft__node_failed(n)) n->out[0].byte_op = weft__dequantized_sum(n);
}

/* a sigmoid(alpha a) b */
void weft__map_SwiGLU(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value a = weft__in_value(n, 0), b = weft__in_value(n, 1);
    const weft_shape s = weft__in_shape(n, 0), t = weft__in_shape(n, 1);
    if (!weft__node_failed(n) && !weft_shape_equal(s, t)) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its inputs must have the same shape");
        return;
    }
    weft_value gate = weft_sigmoid(g, weft_mul_scalar(g, a, weft__attr_float(n, "alpha", 1)));
    weft__set_out(n, 0, weft_mul(g, weft_mul(g, a, gate), b));
}

/* The result has the dtype of the base, whatever the exponent's. Squares and cubes of floats are
 * products, which are faster than powers. */
void weft__map_Pow(onnx_node *n)
{
    const weft_value a = weft__in_value(n, 0);
    const weft_dtype dtype = weft_dtype_of(n->graph, a);
    double number = 0;
    if (weft_dtype_is_float(dtype) && has_in(n, 1) && weft__in_is_number(n, 1, &number) &&
        (number == 2 || number == 3)) {
        const weft_value square = weft_square(n->graph, a);
        weft__set_out(n, 0, number == 2 ? square : weft_mul(n->graph, square, a));
        return;
    }
    weft_value b = second(n);
    if (weft_dtype_is_float(dtype) && weft_dtype_of(n->graph, b) == dtype) {
        weft__set_out(n, 0, weft_pow(n->graph, a, b));
        return;
    }
    const weft_value wide_a = weft_cast(n->graph, a, WEFT_F64);
    const weft_value wide_b = weft_cast(n->graph, b, WEFT_F64);
    weft_value y = weft_pow(n->graph, wide_a, wide_b);
    weft__set_typed(n, 0,
                    dtype == WEFT_I32 ? weft__narrow(n, y, weft__in_type(n, 0))
                                      : weft_cast(n->graph, y, dtype),
                    weft__in_type(n, 0));
}

/* a - b floor(a / b), or truncated as in C; in f64, in which quotients of i32 and f32 are exact
 * enough. */
/* The remainder r of x / y, also for infinite y and signed zeros. */
static weft_value float_remainder(onnx_node *n, weft_value x, weft_value y, weft_value r)
{
    weft_graph *g = n->graph;
    const bool toward_zero = weft__attr_int(n, "fmod", 0);
    weft_value infinity = weft_scalar(g, WEFT_F64, INFINITY), zero = weft_scalar(g, WEFT_F64, 0);
    weft_value infinite_y = weft_equal(g, weft_abs(g, y), infinity);
    weft_value finite_x = weft_less(g, weft_abs(g, x), infinity);
    weft_value only_y = weft_logical_and(g, infinite_y, finite_x);
    weft_value sign_x = weft_sign(g, x), sign_y = weft_sign(g, y);
    weft_value signs = weft_mul(g, sign_x, sign_y);
    weft_value limit = toward_zero ? x : weft_where(g, weft_less(g, signs, zero), y, x);
    r = weft_where(g, only_y, limit, r);
    weft_value signed_zero = weft_mul_scalar(g, weft_sign(g, toward_zero ? x : y), 0);
    return weft_where(g, weft_equal(g, r, zero), signed_zero, r);
}

void weft__map_Mod(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value a = weft__in_value(n, 0);
    const weft_value x = weft_cast(g, a, WEFT_F64),
                     y = weft_cast(g, weft__in_value(n, 1), WEFT_F64);
    const weft_value quotient = weft_div(g, x, y);
    weft_value whole =
        weft__attr_int(n, "fmod", 0) ? weft__towards_zero(g, quotient) : weft_floor(g, quotient);
    weft_value r = weft_sub(g, x, weft_mul(g, y, whole));
    if (weft_dtype_is_float(weft_dtype_of(g, a))) r = float_remainder(n, x, y, r);
    weft__set_typed(n, 0, weft_cast(g, r, weft_dtype_of(g, a)), weft__in_type(n, 0));
}

static weft_value fold_inputs(onnx_node *n, binary *f)
{
    weft_value y = weft__widen(n, weft__in_value(n, 0));
    for (size_t i = 1; i < n->n_in; i++) y = f(n->graph, y, weft__widen(n, weft__in_value(n, i)));
    return y;
}

static void set_like_first(onnx_node *n, weft_value y)
{
    if (weft_dtype_of(n->graph, weft__in_value(n, 0)) == WEFT_I32)
        y = weft__narrow(n, y, weft__in_type(n, 0));
    weft__set_typed(n, 0, y, weft__in_type(n, 0));
}

#define VARIADIC(op, function)                                                                     \
    void weft__map_##op(onnx_node *n)                                                              \
    {                                                                                              \
        set_like_first(n, fold_inputs(n, function));                                               \
    }
VARIADIC(Max, weft_maximum)
VARIADIC(Min, weft_minimum)
VARIADIC(Sum, weft_add)

void weft__map_Mean(onnx_node *n)
{
    set_like_first(n, weft_mul_scalar(n->graph, fold_inputs(n, weft_add), 1.0 / (double)n->n_in));
}

/* Before opset 7 a vector of slopes is one of channels. */
void weft__map_PRelu(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__widen(n, weft__in_value(n, 0));
    weft_value slope = weft__widen(n, weft__in_value(n, 1));
    const int rank = weft_rank_of(g, x);
    if (n->opset < 7 && rank > 2 && weft_rank_of(g, slope) == 1) {
        weft_shape shape = {rank - 1, {weft_dim_of(g, slope, 0), 1, 1, 1, 1, 1, 1, 1}};
        slope = weft_reshape(g, slope, shape);
    }
    set_like_first(n, above(g, x, 0, x, weft_mul(g, slope, x)));
}

/* ---- Comparisons, logic and choice ---- */

#define COMPARISON(op, function)                                                                   \
    void weft__map_##op(onnx_node *n)                                                              \
    {                                                                                              \
        const weft_value a = weft__in_value(n, 0);                                                 \
        weft__set_out(n, 0, function(n->graph, a, second(n)));                                     \
    }
COMPARISON(Equal, weft_equal)
COMPARISON(Less, weft_less)
COMPARISON(Greater, weft_greater)
COMPARISON(LessOrEqual, weft_less_equal)
COMPARISON(GreaterOrEqual, weft_greater_equal)
COMPARISON(And, weft_logical_and)
COMPARISON(Or, weft_logical_or)
COMPARISON(Xor, weft_not_equal)

void weft__map_Not(onnx_node *n)
{
    weft__set_out(n, 0, weft_logical_not(n->graph, weft__in_value(n, 0)));
}

void weft__map_Where(onnx_node *n)
{
    const weft_value condition = weft__in_value(n, 0), a = weft__in_value(n, 1);
    weft__set_typed(n, 0, weft_where(n->graph, condition, a, weft__in_value(n, 2)),
                    weft__in_type(n, 1));
}

/* A bound of Clip that is a number: an attribute before opset 11, then an input. */
static weft_value bound(onnx_node *n, weft_value x, size_t i, const char *name, binary *f)
{
    if (n->opset >= 11)
        return has_in(n, i) ? f(n->graph, x, weft__widen(n, weft__in_value(n, i))) : x;
    if (!weft__has_attr(n, name)) return x;
    return f(n->graph, x,
             weft_scalar(n->graph, weft_dtype_of(n->graph, x), weft__attr_float(n, name, 0)));
}

/* Whether a bound of Clip is a number in the file. It is then not a parameter, even as an
 * initializer. */
static bool known_bound(onnx_node *n, size_t i, const char *name, double *number)
{
    if (n->opset < 11) {
        *number = weft__attr_float(n, name, *number);
        return true;
    }
    return !has_in(n, i) || weft__in_is_number(n, i, number);
}

static weft_value rectified(onnx_node *n, weft_value x)
{
    return weft_relu(n->graph, x);
}

void weft__map_Relu(onnx_node *n)
{
    map_unary(n, rectified);
    weft__bound_byte_op(n, 0, (double)INFINITY);
}

void weft__map_Clip(onnx_node *n)
{
    double low = -INFINITY, high = INFINITY;
    if (known_bound(n, 1, "min", &low) && known_bound(n, 2, "max", &high) && low <= high) {
        set_like_first(n, weft_clamp(n->graph, weft__widen(n, weft__in_value(n, 0)), low, high));
        weft__bound_byte_op(n, low, high);
        return;
    }
    weft_value x = bound(n, weft__widen(n, weft__in_value(n, 0)), 1, "min", weft_maximum);
    set_like_first(n, bound(n, x, 2, "max", weft_minimum));
}

/* ---- Casts ---- */

static void cast_to(onnx_node *n, int type)
{
    weft_dtype dtype;
    weft_value x = weft__in_value(n, 0);
    const onnx_minifloat *m = weft__onnx_minifloat(type);
    if (weft__node_failed(n)) return;
    if (m) {
        weft__set_typed(n, 0, weft__round_minifloat(n, x, m), type);
        return;
    }
    if (weft__onnx_type_dtype(type, "a cast", &dtype, NULL) != WEFT_OK) {
        weft__node_fail(n, WEFT_BAD_DTYPE, "cannot convert to %s: unsupported element type",
                        weft__onnx_type_name(type));
        return;
    }
    weft__set_typed(
        n, 0, dtype == WEFT_I32 ? weft__narrow(n, x, type) : weft_cast(n->graph, x, dtype), type);
}

void weft__map_Cast(onnx_node *n)
{
    cast_to(n, (int)weft__attr_int(n, "to", 0));
}

void weft__map_CastLike(onnx_node *n)
{
    cast_to(n, weft__in_type(n, 1));
}
