/* Elementwise ops of one operand. UNARY_OPS holds each op's whole truth but for its gradient: name,
 * formula in words, formula in C (x is the element, a and b the attributes), and the range that its
 * samples are drawn from. */
#include "kernel.h"

typedef struct unary_attr {
    double a, b;
} unary_attr;

#ifdef WEFT_KERNEL_ISA
#include "vmath.h"
#define T_(x) ((T)(x))
#endif

enum { PLAIN, SLOPE, BOUNDS, ZERO }; /* SLOPE: uses a; BOUNDS: a and b; ZERO: has no gradient */
#define HAS_ATTR(kind) ((kind) == SLOPE || (kind) == BOUNDS)

/* name, kind, doc, expression, range of samples, keep them apart and away from 0? */
#define UNARY_OPS(X)                                                                               \
    X(neg, PLAIN, "y = -x", -x, -2, 2, false)                                                      \
    X(abs, PLAIN, "y = |x|; the gradient at 0 and at NaN is 0", T_(fabs((T)x)), -2, 2, true)       \
    X(sign, ZERO, "y = -1, 0 or 1", T_((x > 0) - (x < 0)), -2, 2, true)                            \
    X(exp, PLAIN, "y = e^x", vm_exp(x), -2, 2, false)                                              \
    X(log, PLAIN, "y = ln x", vm_log(x), 0.5, 3, false)                                            \
    X(sqrt, PLAIN, "y = x^(1/2)", T_(sqrt((T)x)), 0.5, 3, false)                                   \
    X(rsqrt, PLAIN, "y = x^(-1/2)", T_(1 / sqrt((T)x)), 0.5, 3, false)                             \
    X(square, PLAIN, "y = x^2", x *x, -2, 2, false)                                                \
    X(reciprocal, PLAIN, "y = 1 / x", 1 / x, 0.5, 3, false)                                        \
    X(tanh, PLAIN, "y = (e^x - e^-x) / (e^x + e^-x)", vm_tanh(x), -3, 3, false)                    \
    X(sigmoid, PLAIN, "y = 1 / (1 + e^-x)", vm_sigmoid(x), -4, 4, false)                           \
    X(relu, PLAIN, "y = max(x, 0), NaN for NaN; the gradient at 0 is 0", x < 0 ? 0 : x, -2, 2,     \
      true)                                                                                        \
    X(leaky_relu, SLOPE, "y = x if x > 0, else slope x", x > 0 ? x : a * x, -2, 2, true)           \
    X(gelu, PLAIN, "y = x (1 + erf(x / sqrt 2)) / 2", vm_gelu(x), -3, 3, false)                    \
    X(gelu_tanh, PLAIN, "y = x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2",                     \
      (T)0.5 * x * (1 + vm_tanh((T)0.79788456080286536 * (x + (T)0.044715 * x * x * x))), -3, 3,   \
      false)                                                                                       \
    X(silu, PLAIN, "y = x / (1 + e^-x)", x *vm_sigmoid(x), -4, 4, false)                           \
    X(softplus, PLAIN, "y = ln(1 + e^x), computed as max(x, 0) + ln(1 + e^-|x|)",                  \
      (x > 0 ? x : 0) + vm_log1p(vm_exp(x > 0 ? -x : x)), -4, 4, false)                            \
    X(erf, PLAIN, "y = 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x", vm_erf(x), -2, 2, \
      false)                                                                                       \
    X(clamp, BOUNDS, "y = min(max(x, low), high); the gradient outside and at NaN is 0",           \
      x<a ? a : x> b ? b : x, -2, 2, true)

/* The same, but the expression holds for |x| <= VM_SIN_LIMIT only; elsewhere libm's function of
 * this name is called. */
#define PERIODIC_OPS(X)                                                                            \
    X(sin, PLAIN, "y = sin x, x in radians", x == 0 ? x : vm_sin_quarters(x, 0), -4, 4, false)     \
    X(cos, PLAIN, "y = cos x, x in radians", vm_sin_quarters(x, 1), -4, 4, false)

#ifdef WEFT_KERNEL_ISA

#define UNARY_RUN(first, expression)                                                               \
    _Pragma("omp simd") for (int64_t i = 0; i < w.count; i++)                                      \
    {                                                                                              \
        const T x = first;                                                                         \
        out[i] = expression;                                                                       \
    }

#define UNARY_KERNEL(name, kind, doc, expression, low, high, away)                                 \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        const unary_attr *attr = call->attr;                                                       \
        const T a = HAS_ATTR(kind) ? (T)attr->a : 0, b = HAS_ATTR(kind) ? (T)attr->b : 0;          \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        for (walk w = walk_begin(call, tile); walk_next(&w);) {                                    \
            const T *in = (const T *)call->in[0].data + w.offset[1];                               \
            T *out = (T *)call->out[0].data + w.offset[0];                                         \
            if (w.step[1] == 1) {                                                                  \
                UNARY_RUN(in[i], expression)                                                       \
            } else {                                                                               \
                UNARY_RUN(in[i * w.step[1]], expression)                                           \
            }                                                                                      \
        }                                                                                          \
    }
UNARY_OPS(UNARY_KERNEL)

static inline bool is_near(T x)
{
    return x >= (T)-VM_SIN_LIMIT && x <= (T)VM_SIN_LIMIT;
}

#define PERIODIC_KERNEL(name, kind, doc, expression, low, high, away)                              \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        for (walk w = walk_begin(call, tile); walk_next(&w);) {                                    \
            const T *in = (const T *)call->in[0].data + w.offset[1];                               \
            T *out = (T *)call->out[0].data + w.offset[0];                                         \
            int64_t n_near = 0;                                                                    \
            for (int64_t i = 0; i < w.count; i++) n_near += is_near(in[i * w.step[1]]);            \
            if (n_near == w.count && w.step[1] == 1) {                                             \
                UNARY_RUN(in[i], expression)                                                       \
                continue;                                                                          \
            }                                                                                      \
            for (int64_t i = 0; i < w.count; i++) {                                                \
                const T x = in[i * w.step[1]];                                                     \
                out[i] = is_near(x) ? expression : (T)name((double)x);                             \
            }                                                                                      \
        }                                                                                          \
    }
PERIODIC_OPS(PERIODIC_KERNEL)

#else

#include <weft/ops.h>

static bool infer_unary(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0);
}

static bool infer_slope(weft_infer *infer)
{
    return infer_unary(infer) &&
           weft_infer_scalar(infer, "slope", ((const unary_attr *)infer->attr)->a,
                             infer->in[0].dtype);
}

static bool infer_bounds(weft_infer *infer)
{
    const unary_attr *attr = infer->attr;
    if (!infer_unary(infer) || !weft_infer_scalar(infer, "low", attr->a, infer->in[0].dtype) ||
        !weft_infer_scalar(infer, "high", attr->b, infer->in[0].dtype))
        return false;
    return attr->a <= attr->b ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "low must not be above high, got %g and %g",
                           attr->a, attr->b);
}

/* ---- Gradients: g the cotangent, x the input, y the output ---- */

#define VJP(name)                                                                                  \
    static weft_value grad_##name(weft_graph *graph, weft_value g, weft_value x, weft_value y,     \
                                  const unary_attr *attr)
#define UNUSED (void)graph, (void)g, (void)x, (void)y, (void)attr

VJP(neg)
{
    UNUSED;
    return weft_neg(graph, g);
}
VJP(abs)
{
    UNUSED;
    return weft_mul(graph, g, weft_sign(graph, x));
}
VJP(exp)
{
    UNUSED;
    return weft_mul(graph, g, y);
}
VJP(log)
{
    UNUSED;
    return weft_div(graph, g, x);
}
VJP(sqrt)
{
    UNUSED;
    return weft_scale(graph, weft_div(graph, g, y), 0.5);
}
VJP(rsqrt)
{
    UNUSED;
    weft_value cube = weft_mul(graph, weft_square(graph, y), y);
    return weft_scale(graph, weft_mul(graph, g, cube), -0.5);
}
VJP(square)
{
    UNUSED;
    return weft_scale(graph, weft_mul(graph, g, x), 2.0);
}
VJP(reciprocal)
{
    UNUSED;
    return weft_neg(graph, weft_mul(graph, g, weft_square(graph, y)));
}
VJP(sin)
{
    UNUSED;
    return weft_mul(graph, g, weft_cos(graph, x));
}
VJP(cos)
{
    UNUSED;
    return weft_neg(graph, weft_mul(graph, g, weft_sin(graph, x)));
}
VJP(tanh)
{
    UNUSED;
    return weft_sub(graph, g, weft_mul(graph, g, weft_square(graph, y)));
}
VJP(sigmoid)
{
    UNUSED;
    return weft_mul(graph, g, weft_sub(graph, y, weft_square(graph, y)));
}

static weft_value positive(weft_graph *graph, weft_value x)
{
    return weft_greater(graph, x, weft_scalar(graph, weft_dtype_of(graph, x), 0.0));
}

VJP(relu)
{
    UNUSED;
    return weft_relu_grad(graph, y, g);
}
VJP(leaky_relu)
{
    UNUSED;
    return weft_where(graph, positive(graph, x), g, weft_scale(graph, g, attr->a));
}
/* Phi(x) + x phi(x), with the normal distribution's Phi and density phi. */
VJP(gelu)
{
    UNUSED;
    weft_value cdf = weft_add_scalar(
        graph, weft_scale(graph, weft_erf(graph, weft_scale(graph, x, 0.70710678118654752)), 0.5),
        0.5);
    weft_value density =
        weft_scale(graph, weft_exp(graph, weft_scale(graph, weft_square(graph, x), -0.5)),
                   0.39894228040143268);
    return weft_mul(graph, g, weft_add(graph, cdf, weft_mul(graph, x, density)));
}
/* With u = c (x + d x^3) and t = tanh u: (1 + t)/2 + x (1 - t^2) c (1 + 3 d x^2) / 2. */
VJP(gelu_tanh)
{
    UNUSED;
    const double c = 0.79788456080286536, d = 0.044715;
    weft_value xx = weft_square(graph, x);
    weft_value inner = weft_mul(graph, x, weft_add_scalar(graph, weft_scale(graph, xx, d), 1.0));
    weft_value t = weft_tanh(graph, weft_scale(graph, inner, c));
    weft_value left = weft_add_scalar(graph, weft_scale(graph, t, 0.5), 0.5);
    weft_value slope = weft_add_scalar(graph, weft_scale(graph, xx, 3 * d), 1.0);
    weft_value bell = weft_add_scalar(graph, weft_neg(graph, weft_square(graph, t)), 1.0);
    weft_value right = weft_scale(graph, weft_mul(graph, weft_mul(graph, x, bell), slope), 0.5 * c);
    return weft_mul(graph, g, weft_add(graph, left, right));
}
VJP(silu)
{
    UNUSED;
    weft_value s = weft_sigmoid(graph, x);
    weft_value bell = weft_sub(graph, s, weft_square(graph, s));
    return weft_mul(graph, g, weft_add(graph, s, weft_mul(graph, x, bell)));
}
VJP(softplus)
{
    UNUSED;
    return weft_mul(graph, g, weft_sigmoid(graph, x));
}
VJP(erf)
{
    UNUSED;
    weft_value bell = weft_exp(graph, weft_neg(graph, weft_square(graph, x)));
    return weft_scale(graph, weft_mul(graph, g, bell), 1.1283791670955126);
}
/* Inside the bounds x is left as it is; NaN equals nothing. */
VJP(clamp)
{
    UNUSED;
    return weft_where(graph, weft_equal(graph, x, y), g,
                      weft_scalar(graph, weft_dtype_of(graph, x), 0.0));
}

#define UNARY_VJP(name)                                                                            \
    static void vjp_##name(weft_vjp *v)                                                            \
    {                                                                                              \
        v->grad_in[0] = grad_##name(v->graph, v->grad_out[0], v->in[0], v->out[0], v->attr);       \
    }
/* clang-format off */
#define UNARY_DIFFERENTIABLE(X) \
    X(neg) X(abs) X(exp) X(log) X(sqrt) X(rsqrt) X(square) X(reciprocal) X(sin) X(cos) X(tanh) \
    X(sigmoid) X(relu) X(leaky_relu) X(gelu) X(gelu_tanh) X(silu) X(softplus) X(erf) X(clamp)
/* clang-format on */
UNARY_DIFFERENTIABLE(UNARY_VJP)
#define vjp_sign NULL

/* ---- Descriptors and builders ---- */

static const unary_attr sample_attr = {-0.5, 0.75};
static const weft_attr_field unary_fields[] = {
    {"a", WEFT_ATTR_DOUBLE, offsetof(unary_attr, a)},
    {"b", WEFT_ATTR_DOUBLE, offsetof(unary_attr, b)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define UNARY_OP(op, kind, text, expression, from, to, away)                                       \
    DECLARE_KERNELS(op);                                                                           \
    static const weft_sample samples_##op[] = {                                                    \
        {HAS_ATTR(kind) ? &sample_attr : NULL, 1, {{WEFT_FLOAT, {2, {3, 7}}, from, to, away}}},    \
        {HAS_ATTR(kind) ? &sample_attr : NULL, 1, {{WEFT_FLOAT, {3, {2, 1, 5}}, from, to, away}}}, \
        {HAS_ATTR(kind) ? &sample_attr : NULL, 1, {{WEFT_FLOAT, {0, {0}}, from, to, away}}},       \
        {HAS_ATTR(kind) ? &sample_attr : NULL, 1, {{WEFT_FLOAT, {2, {0, 4}}, from, to, away}}},    \
    };                                                                                             \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text ".",                                                                           \
        .min_in = 1,                                                                               \
        .max_in = 1,                                                                               \
        .n_out = 1,                                                                                \
        .attr_size = HAS_ATTR(kind) ? sizeof(unary_attr) : 0,                                      \
        .attrs = HAS_ATTR(kind) ? unary_fields : NULL,                                             \
        .infer = (kind) == SLOPE    ? infer_slope                                                  \
                 : (kind) == BOUNDS ? infer_bounds                                                 \
                                    : infer_unary,                                                 \
        .kernel = FLOAT_KERNELS(op),                                                               \
        .elementwise = true,                                                                       \
        .takes = WEFT_TAKES_ANY,                                                                   \
        .inplace = 1,                                                                              \
        .vjp = vjp_##op,                                                                           \
        .gradient = (kind) == ZERO ? WEFT_GRADIENT_ZERO : WEFT_GRADIENT_VJP,                       \
        .samples = samples_##op,                                                                   \
        .n_samples = sizeof samples_##op / sizeof *samples_##op,                                   \
    };
UNARY_OPS(UNARY_OP)
PERIODIC_OPS(UNARY_OP)

#define UNARY_BUILDER(op)                                                                          \
    weft_value weft_##op(weft_graph *graph, weft_value x)                                          \
    {                                                                                              \
        return weft_apply(graph, &weft_op_##op, NULL, &x, 1, NULL);                                \
    }
UNARY_BUILDER(neg)
UNARY_BUILDER(abs)
UNARY_BUILDER(sign)
UNARY_BUILDER(exp)
UNARY_BUILDER(log)
UNARY_BUILDER(sqrt)
UNARY_BUILDER(rsqrt)
UNARY_BUILDER(square)
UNARY_BUILDER(reciprocal)
UNARY_BUILDER(sin)
UNARY_BUILDER(cos)
UNARY_BUILDER(tanh)
UNARY_BUILDER(sigmoid)
UNARY_BUILDER(relu)
UNARY_BUILDER(gelu)
UNARY_BUILDER(gelu_tanh)
UNARY_BUILDER(silu)
UNARY_BUILDER(softplus)
UNARY_BUILDER(erf)

weft_value weft_leaky_relu(weft_graph *graph, weft_value x, double slope)
{
    return weft_apply(graph, &weft_op_leaky_relu, &(unary_attr){slope, 0}, &x, 1, NULL);
}

weft_value weft_clamp(weft_graph *graph, weft_value x, double low, double high)
{
    return weft_apply(graph, &weft_op_clamp, &(unary_attr){low, high}, &x, 1, NULL);
}

#endif
