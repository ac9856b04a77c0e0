/* Elementwise ops of one operand, O(elements). UNARY_OPS holds all that makes an op: its name, its
 * formula in words and in C, its gradient, and the range that its samples are drawn from. Kernels,
 * descriptors, gradients and builders are generated from it: a new op is one row, one name in
 * ops/list.h and one declaration in weft/ops.h. */
#include "kernels/kernel.h"

#ifdef WEFT_KERNEL_ISA
#include "base/vmath_sin.h"
#include "kernels/vmath_lanes.h"

#include <float.h>

#define T_(x) ((T)(x))
/* Clang 14 compiles `x < 0 ? 0 : x` to the instruction for the maximum of AArch64 and WebAssembly,
 * which makes 0 of -0. The comparison with the largest number below 0 has the same meaning. */
#if defined(__clang__) && KERNEL_IS(f32)
#define RELU(x) ((x) <= -FLT_TRUE_MIN ? 0 : (x))
#elif defined(__clang__)
#define RELU(x) ((x) <= -DBL_TRUE_MIN ? 0 : (x))
#else
#define RELU(x) ((x) < 0 ? 0 : (x))
#endif
#endif

typedef struct slope_attr {
    double slope;
} slope_attr;

typedef struct bounds_attr {
    double low, high;
} bounds_attr;

typedef struct grid_attr {
    double scale, low, high;
} grid_attr;

/* PLAIN: no attributes; STEP: the same, and the gradient is zero; SLOPE, BOUNDS: the structs above;
 * GRID: the last of them, and the gradient is that of a surrogate. */
enum { PLAIN, STEP, SLOPE, BOUNDS, GRID };

/* name, kind, doc, ONNX, y of the element x, gradient, range of the samples, are samples distinct?
 * ONNX is an expression of operands of weft/export.h, of the operand x and the attributes;
 * NODE("Op") is the standard op that is the same. The formula of y is C on elements of type T, with
 * the attributes as T. The gradient of x is an expression of graph nodes: g is the gradient of y;
 * x, y and the attributes (as double) are known. */
/* clang-format off */
#define UNARY_OPS(X) \
    X(neg, PLAIN, "y = -x", NODE("Neg"), \
      -x, \
      weft_neg(graph, g), -2, 2, false) \
    X(abs, PLAIN, "y = |x|; the gradient at 0 and at NaN is 0", NODE("Abs"), \
      T_(fabs((T)x)), \
      weft_mul(graph, g, weft_sign(graph, x)), -2, 2, true) \
    X(sign, STEP, "y = -1, 0 or 1", NODE("Sign"), \
      T_((x > 0) - (x < 0)), \
      WEFT_NO_VALUE, -2, 2, true) \
    X(floor, STEP, "y = the largest integer not above x", NODE("Floor"), \
      T_(floor((T)x)), \
      WEFT_NO_VALUE, -2, 2, true) \
    X(ceil, STEP, "y = the smallest integer not below x", NODE("Ceil"), \
      T_(ceil((T)x)), \
      WEFT_NO_VALUE, -2, 2, true) \
    X(round, STEP, "y = the nearest integer, ties to the even one", NODE("Round"), \
      T_(rint((T)x)), \
      WEFT_NO_VALUE, -2, 2, true) \
    X(atan, PLAIN, "y = arctan x, in (-pi/2, pi/2)", NODE("Atan"), \
      T_(vm_atan_f64((double)x)), \
      weft_div(graph, g, weft_add_scalar(graph, weft_square(graph, x), 1)), -3, 3, false) \
    X(expm1, PLAIN, "y = e^x - 1, accurate near 0", onnx_expm1_of(e, x), \
      vm_expm1(x), \
      weft_mul(graph, g, weft_add_scalar(graph, y, 1)), -2, 2, false) \
    X(log1p, PLAIN, "y = ln(1 + x), accurate near 0", onnx_log1p_of(e, x), \
      vm_log1p(x), \
      weft_div(graph, g, weft_add_scalar(graph, x, 1)), -0.7, 3, false) \
    X(sqrt, PLAIN, "y = x^(1/2)", NODE("Sqrt"), \
      T_(sqrt((T)x)), \
      weft_mul_scalar(graph, weft_div(graph, g, y), 0.5), 0.5, 3, false) \
    X(rsqrt, PLAIN, "y = x^(-1/2)", weft_export_unary(e, "Reciprocal", NODE("Sqrt")), \
      T_(1 / sqrt((T)x)), \
      weft_mul_scalar(graph, weft_mul(graph, g, weft_mul(graph, weft_square(graph, y), y)), -0.5), \
      0.5, 3, false) \
    X(square, PLAIN, "y = x^2", weft_export_binary(e, "Mul", x, x), \
      x * x, \
      weft_mul_scalar(graph, weft_mul(graph, g, x), 2.0), -2, 2, false) \
    X(reciprocal, PLAIN, "y = 1 / x", NODE("Reciprocal"), \
      1 / x, \
      weft_neg(graph, weft_mul(graph, g, weft_square(graph, y))), 0.5, 3, false) \
    X(tanh, PLAIN, "y = (e^x - e^-x) / (e^x + e^-x)", NODE("Tanh"), \
      vm_tanh(x), \
      weft_sub(graph, g, weft_mul(graph, g, weft_square(graph, y))), -3, 3, false) \
    X(sigmoid, PLAIN, "y = 1 / (1 + e^-x)", NODE("Sigmoid"), \
      vm_sigmoid(x), \
      weft_mul(graph, g, weft_sub(graph, y, weft_square(graph, y))), -4, 4, false) \
    X(relu, PLAIN, "y = max(x, 0), NaN for NaN; the gradient at 0 is 0", NODE("Relu"), \
      RELU(x), \
      weft_relu_grad(graph, y, g), -2, 2, true) \
    X(leaky_relu, SLOPE, "y = x if x > 0, else slope x", onnx_slope(e, x, slope), \
      x > 0 ? x : slope * x, \
      leaky_relu_gradient(graph, g, x, slope), -2, 2, true) \
    X(gelu_tanh, PLAIN, "y = x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2", onnx_gelu_of(e, x, true), \
      (T)0.5 * x * (1 + vm_tanh((T)0.79788456080286536 * (x + (T)0.044715 * x * x * x))), \
      gelu_tanh_gradient(graph, g, x), -3, 3, false) \
    X(silu, PLAIN, "y = x / (1 + e^-x)", weft_export_binary(e, "Mul", x, NODE("Sigmoid")), \
      x * vm_sigmoid(x), \
      silu_gradient(graph, g, x), -4, 4, false) \
    X(softplus, PLAIN, "y = ln(1 + e^x), computed as max(x, 0) + ln(1 + e^-|x|)", NODE("Softplus"), \
      (x > 0 ? x : 0) + vm_log1p_unit(vm_exp(x > 0 ? -x : x)), \
      weft_mul(graph, g, weft_sigmoid(graph, x)), -4, 4, false) \
    X(erf, PLAIN, "y = 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x", NODE("Erf"), \
      vm_erf(x), \
      weft_mul_scalar(graph, weft_mul(graph, g, weft_exp(graph, weft_neg(graph, weft_square(graph, x)))), \
                 1.1283791670955126), -2, 2, false) \
    X(clamp, BOUNDS, "y = min(max(x, low), high); the gradient outside and at NaN is 0", onnx_clip(e, x, low, high), \
      x < low ? low : x > high ? high : x, \
      clamp_gradient(graph, g, x, y), -2, 2, true) \
    X(fake_quantize, GRID, "y = scale min(max(round(x / scale), low), high); the gradient passes where x / scale is within half a step of the bounds", \
      onnx_grid(e, x, scale, low, high), \
      ((T_(rint((T)(x / scale))) < low ? low : T_(rint((T)(x / scale))) > high ? high \
         : T_(rint((T)(x / scale)))) + 0) * scale, \
      grid_gradient(graph, g, x, (const grid_attr *)attr), -2, 2, true)

/* Their kernels compute whole vectors (kernels/vmath_lanes.h). */
#define LANES_OPS(X) \
    X(exp, PLAIN, "y = e^x", NODE("Exp"), \
      vm_exp(x), \
      weft_mul(graph, g, y), -2, 2, false) \
    X(log, PLAIN, "y = ln x", NODE("Log"), \
      vm_log(x), \
      weft_div(graph, g, x), 0.5, 3, false) \
    X(gelu, PLAIN, "y = x (1 + erf(x / sqrt 2)) / 2", onnx_gelu_of(e, x, false), \
      vm_gelu(x), \
      gelu_gradient(graph, g, x), -3, 3, false)

/* The formula of y holds for |x| <= VM_SIN_LIMIT only; beyond, kernels call
 * vm_NAME_f64. */
#define PERIODIC_OPS(X) \
    X(sin, PLAIN, "y = sin x, x in radians", NODE("Sin"), \
      x == 0 ? x : vm_sin_quarters(x, 0), \
      weft_mul(graph, g, weft_cos(graph, x)), -4, 4, false) \
    X(cos, PLAIN, "y = cos x, x in radians", NODE("Cos"), \
      vm_sin_quarters(x, 1), \
      weft_neg(graph, weft_mul(graph, g, weft_sin(graph, x))), -4, 4, false)

/* Attributes as local variables of type `number`, for the formulas. */
#define ATTRIBUTES_PLAIN(number) (void)attr
#define ATTRIBUTES_STEP(number) (void)attr
#define ATTRIBUTES_SLOPE(number) \
    const number slope = (number)((const slope_attr *)attr)->slope; \
    (void)slope
#define ATTRIBUTES_BOUNDS(number) \
    const number low = (number)((const bounds_attr *)attr)->low; \
    const number high = (number)((const bounds_attr *)attr)->high; \
    (void)low, (void)high
#define ATTRIBUTES_GRID(number) \
    const number scale = (number)((const grid_attr *)attr)->scale; \
    const number low = (number)((const grid_attr *)attr)->low; \
    const number high = (number)((const grid_attr *)attr)->high; \
    (void)scale, (void)low, (void)high
/* clang-format on */

#ifdef WEFT_KERNEL_ISA

/* Writes out[i] for the run of w; declares i for `first`, and x, which is `first`, for the
 * expression. */
#define UNARY_RUN(first, expression)                                                               \
    _Pragma("omp simd") for (int64_t i = 0; i < w.count; i++)                                      \
    {                                                                                              \
        const T x = first;                                                                         \
        out[i] = expression;                                                                       \
    }

#define UNARY_KERNEL(name, kind, doc, onnx, expression, gradient, from, to, distinct)              \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        const void *attr = call->attr;                                                             \
        ATTRIBUTES_##kind(T);                                                                      \
        for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {         \
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

#define LANES_KERNEL(name, kind, doc, onnx, expression, gradient, from, to, distinct)              \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {         \
            const T *in = (const T *)call->in[0].data + w.offset[1];                               \
            T *out = (T *)call->out[0].data + w.offset[0];                                         \
            const int64_t whole = w.step[1] == 1 ? w.count - w.count % VM_STEP : 0;                \
            VM_EACH (i, whole) VM_AT(out + i) = vm_lanes_##name(*(const vm_lanes *)(in + i));      \
            for (int64_t i = whole; i < w.count; i++) {                                            \
                const T x = in[i * w.step[1]];                                                     \
                out[i] = expression;                                                               \
            }                                                                                      \
        }                                                                                          \
    }
LANES_OPS(LANES_KERNEL)

static inline bool is_near(T x)
{
    return x >= (T)-VM_SIN_LIMIT && x <= (T)VM_SIN_LIMIT;
}

static inline bool all_near(const T *x, int64_t n)
{
    int far = 0;
    _Pragma("omp simd reduction(| : far)") for (int64_t i = 0; i < n; i++) far |= !is_near(x[i]);
    return !far;
}

#define PERIODIC_KERNEL(name, kind, doc, onnx, expression, gradient, from, to, distinct)           \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {         \
            const T *in = (const T *)call->in[0].data + w.offset[1];                               \
            T *out = (T *)call->out[0].data + w.offset[0];                                         \
            if (w.step[1] == 1 && all_near(in, w.count)) {                                         \
                UNARY_RUN(in[i], expression)                                                       \
                continue;                                                                          \
            }                                                                                      \
            for (int64_t i = 0; i < w.count; i++) {                                                \
                const T x = in[i * w.step[1]];                                                     \
                out[i] = is_near(x) ? expression : (T)vm_##name##_f64((double)x);                  \
            }                                                                                      \
        }                                                                                          \
    }
PERIODIC_OPS(PERIODIC_KERNEL)

#else

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

/* ---- Shape rules and attributes ---- */

static bool infer_unary(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0);
}

static bool infer_slope(weft_infer *infer)
{
    const slope_attr *attr = infer->attr;
    return infer_unary(infer) && weft_infer_scalar(infer, "slope", attr->slope, infer->in[0].dtype);
}

static bool infer_bounds(weft_infer *infer)
{
    const bounds_attr *attr = infer->attr;
    if (!infer_unary(infer) || !weft_infer_scalar(infer, "low", attr->low, infer->in[0].dtype) ||
        !weft_infer_scalar(infer, "high", attr->high, infer->in[0].dtype))
        return false;
    return attr->low <= attr->high ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "low must not be above high, got %g and %g",
                           attr->low, attr->high);
}

static bool infer_grid(weft_infer *infer)
{
    const grid_attr *attr = infer->attr;
    if (!infer_unary(infer)) return false;
    const weft_dtype dtype = infer->in[0].dtype;
    if (!weft_infer_scalar(infer, "scale", attr->scale, dtype) ||
        !weft_infer_scalar(infer, "low", attr->low, dtype) ||
        !weft_infer_scalar(infer, "high", attr->high, dtype))
        return false;
    const double scale = dtype == WEFT_F32 ? (double)(float)attr->scale : attr->scale;
    if (!(scale > 0) || isinf(scale))
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "scale must be a positive number, got %g",
                               attr->scale);
    return (attr->low <= attr->high && floor(attr->low) == attr->low &&
            floor(attr->high) == attr->high) ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                           "low and high must be whole numbers in this order, got %g and %g",
                           attr->low, attr->high);
}

static const slope_attr sample_slope = {-0.5};
static const weft_attr_field slope_fields[] = {
    {"slope", WEFT_ATTR_DOUBLE, offsetof(slope_attr, slope)},
    {NULL, WEFT_ATTR_INT, 0},
};

static const bounds_attr sample_bounds = {-0.5, 0.75};
static const weft_attr_field bounds_fields[] = {
    {"low", WEFT_ATTR_DOUBLE, offsetof(bounds_attr, low)},
    {"high", WEFT_ATTR_DOUBLE, offsetof(bounds_attr, high)},
    {NULL, WEFT_ATTR_INT, 0},
};

static const grid_attr sample_grid = {0.375, -3, 4};
static const weft_attr_field grid_fields[] = {
    {"scale", WEFT_ATTR_DOUBLE, offsetof(grid_attr, scale)},
    {"low", WEFT_ATTR_DOUBLE, offsetof(grid_attr, low)},
    {"high", WEFT_ATTR_DOUBLE, offsetof(grid_attr, high)},
    {NULL, WEFT_ATTR_INT, 0},
};

/* ---- Gradients that take more than a line ---- */

/* x > 0 ? g : slope g */
static weft_value leaky_relu_gradient(weft_graph *graph, weft_value g, weft_value x, double slope)
{
    weft_value scaled = weft_mul_scalar(graph, g, slope);
    weft_value zero = weft_scalar(graph, weft_dtype_of(graph, x), 0.0);
    return weft_where(graph, weft_greater(graph, x, zero), g, scaled);
}

/* g (Phi(x) + x phi(x)), where Phi is the normal distribution and phi its density. */
static weft_value gelu_gradient(weft_graph *graph, weft_value g, weft_value x)
{
    weft_value error = weft_erf(graph, weft_mul_scalar(graph, x, 0.70710678118654752));
    weft_value cdf = weft_add_scalar(graph, weft_mul_scalar(graph, error, 0.5), 0.5);
    weft_value bell = weft_exp(graph, weft_mul_scalar(graph, weft_square(graph, x), -0.5));
    weft_value density = weft_mul_scalar(graph, bell, 0.39894228040143268);
    return weft_mul(graph, g, weft_add(graph, cdf, weft_mul(graph, x, density)));
}

/* With u = c (x + d x^3) and t = tanh u: g ((1 + t)/2 + x (1 - t^2) c (1 + 3 d x^2) / 2). */
static weft_value gelu_tanh_gradient(weft_graph *graph, weft_value g, weft_value x)
{
    const double c = 0.79788456080286536, d = 0.044715;
    weft_value xx = weft_square(graph, x);
    weft_value inner =
        weft_mul(graph, x, weft_add_scalar(graph, weft_mul_scalar(graph, xx, d), 1.0));
    weft_value t = weft_tanh(graph, weft_mul_scalar(graph, inner, c));
    weft_value left = weft_add_scalar(graph, weft_mul_scalar(graph, t, 0.5), 0.5);
    weft_value slope = weft_add_scalar(graph, weft_mul_scalar(graph, xx, 3 * d), 1.0);
    weft_value bell = weft_add_scalar(graph, weft_neg(graph, weft_square(graph, t)), 1.0);
    weft_value right =
        weft_mul_scalar(graph, weft_mul(graph, weft_mul(graph, x, bell), slope), 0.5 * c);
    return weft_mul(graph, g, weft_add(graph, left, right));
}

/* With s = sigmoid(x): g (s + x (s - s^2)). */
static weft_value silu_gradient(weft_graph *graph, weft_value g, weft_value x)
{
    weft_value s = weft_sigmoid(graph, x);
    weft_value bell = weft_sub(graph, s, weft_square(graph, s));
    return weft_mul(graph, g, weft_add(graph, s, weft_mul(graph, x, bell)));
}

/* g within the bounds, where y equals x; 0 outside and at NaN, which equals nothing. */
static weft_value clamp_gradient(weft_graph *graph, weft_value g, weft_value x, weft_value y)
{
    weft_value zero = weft_scalar(graph, weft_dtype_of(graph, x), 0.0);
    return weft_where(graph, weft_equal(graph, x, y), g, zero);
}

/* The rounding is not differentiated, only the limits: what rounds to a step within them passes. */
static weft_value grid_gradient(weft_graph *graph, weft_value g, weft_value x, const grid_attr *a)
{
    const weft_value clamped =
        weft_clamp(graph, x, (a->low - 0.5) * a->scale, (a->high + 0.5) * a->scale);
    return clamp_gradient(graph, g, x, clamped);
}

/* ---- ONNX ---- */

/* ONNX has no op that is accurate near 0. */
static weft_operand onnx_expm1_of(weft_export *e, weft_operand x)
{
    const weft_operand one = weft_export_scalar(e, e->in_type[0].dtype, 1);
    return weft_export_binary(e, "Sub", weft_export_unary(e, "Exp", x), one);
}

static weft_operand onnx_log1p_of(weft_export *e, weft_operand x)
{
    const weft_operand one = weft_export_scalar(e, e->in_type[0].dtype, 1);
    return weft_export_unary(e, "Log", weft_export_binary(e, "Add", x, one));
}

static weft_operand onnx_slope(weft_export *e, weft_operand x, double slope)
{
    weft_operand y = weft_export_unary(e, "LeakyRelu", x);
    weft_export_float(e, "alpha", slope);
    return y;
}

/* An infinite bound does not limit. */
static weft_operand onnx_clip(weft_export *e, weft_operand x, double low, double high)
{
    const weft_dtype dtype = e->in_type[0].dtype;
    weft_operand in[3] = {x};
    if (low > -INFINITY) in[1] = weft_export_scalar(e, dtype, low);
    if (high < INFINITY) in[2] = weft_export_scalar(e, dtype, high);
    return weft_export_node(e, "Clip", in, in[2].id ? 3 : in[1].id ? 2 : 1, 1);
}

static weft_operand onnx_grid(weft_export *e, weft_operand x, double scale, double low, double high)
{
    const weft_operand step = weft_export_scalar(e, e->in_type[0].dtype, scale);
    weft_operand y = onnx_clip(e, weft_export_binary(e, "Div", x, step), low, high);
    return weft_export_binary(e, "Mul", weft_export_unary(e, "Round", y), step);
}

/* x (1 + f(u)) / 2, with u = x / sqrt 2 and f = erf, or u = c (x + d x^3) and f = tanh. */
static weft_operand onnx_gelu_formula(weft_export *e, weft_operand x, bool tanh_form)
{
    const weft_dtype dtype = e->in_type[0].dtype;
    weft_operand u = x;
    if (tanh_form) {
        weft_operand cube = weft_export_binary(e, "Mul", weft_export_binary(e, "Mul", x, x), x);
        cube = weft_export_binary(e, "Mul", cube, weft_export_scalar(e, dtype, 0.044715));
        u = weft_export_binary(e, "Add", x, cube);
    }
    const double factor = tanh_form ? 0.79788456080286536 : 0.70710678118654752;
    u = weft_export_binary(e, "Mul", u, weft_export_scalar(e, dtype, factor));
    weft_operand f = weft_export_unary(e, tanh_form ? "Tanh" : "Erf", u);
    weft_operand sum = weft_export_binary(e, "Add", f, weft_export_scalar(e, dtype, 1));
    weft_operand half = weft_export_binary(e, "Mul", x, weft_export_scalar(e, dtype, 0.5));
    return weft_export_binary(e, "Mul", half, sum);
}

/* A node since opset 20. */
static weft_operand onnx_gelu_of(weft_export *e, weft_operand x, bool tanh_form)
{
    if (e->opset < 20) return onnx_gelu_formula(e, x, tanh_form);
    weft_operand y = weft_export_unary(e, "Gelu", x);
    if (tanh_form) weft_export_text(e, "approximate", "tanh");
    return y;
}

#define NODE(type) weft_export_unary(e, type, x)
#define UNARY_ONNX(op, kind, text, nodes, expression, gradient, from, to, distinct)                \
    static void onnx_##op(weft_export *e)                                                          \
    {                                                                                              \
        const weft_operand x = e->in[0];                                                           \
        const void *attr = e->attr;                                                                \
        ATTRIBUTES_##kind(double);                                                                 \
        e->out[0] = nodes;                                                                         \
    }
UNARY_OPS(UNARY_ONNX)
LANES_OPS(UNARY_ONNX)
PERIODIC_OPS(UNARY_ONNX)

/* ---- C ---- */

/* A formula as the function of an element; attributes are its last parameters. */
#define SOURCE_UNARY(op, parameters, formula)                                                      \
    "static T " #op "_of(T x" parameters ")\n{\n    return " formula ";\n}\n"
#define SOURCE_PLAIN(op, expression)                                                               \
    weft_source_each(s, SOURCE_UNARY(op, "", expression), #op "_of", NULL, 0)
#define SOURCE_STEP SOURCE_PLAIN
#define SOURCE_SLOPE(op, expression)                                                               \
    weft_source_each(s, SOURCE_UNARY(op, ", T slope", expression), #op "_of",                      \
                     &WEFT_ARG_NUMBER(((const slope_attr *)s->attr)->slope), 1)
#define SOURCE_BOUNDS(op, expression)                                                              \
    weft_source_each(                                                                              \
        s, SOURCE_UNARY(op, ", T low, T high", expression), #op "_of",                             \
        (const weft_source_arg[]){WEFT_ARG_NUMBER(((const bounds_attr *)s->attr)->low),            \
                                  WEFT_ARG_NUMBER(((const bounds_attr *)s->attr)->high)},          \
        2)
#define SOURCE_GRID(op, expression)                                                                \
    weft_source_each(                                                                              \
        s, SOURCE_UNARY(op, ", T scale, T low, T high", expression), #op "_of",                    \
        (const weft_source_arg[]){WEFT_ARG_NUMBER(((const grid_attr *)s->attr)->scale),            \
                                  WEFT_ARG_NUMBER(((const grid_attr *)s->attr)->low),              \
                                  WEFT_ARG_NUMBER(((const grid_attr *)s->attr)->high)},            \
        3)
#define UNARY_SOURCE(op, kind, text, nodes, expression, gradient, from, to, distinct)              \
    static void source_##op(weft_source *s)                                                        \
    {                                                                                              \
        SOURCE_##kind(op, #expression);                                                            \
    }
UNARY_OPS(UNARY_SOURCE)
LANES_OPS(UNARY_SOURCE)
#define PERIODIC_SOURCE(op, kind, text, nodes, expression, gradient, from, to, distinct)           \
    static void source_##op(weft_source *s)                                                        \
    {                                                                                              \
        weft_source_each(s,                                                                        \
                         SOURCE_UNARY(op, "",                                                      \
                                      "x >= (T)-1e6 && x <= (T)1e6 ? (" #expression                \
                                      ") : (T)vm_" #op "_f64((double)x)"),                         \
                         #op "_of", NULL, 0);                                                      \
    }
PERIODIC_OPS(PERIODIC_SOURCE)

/* ---- Gradients, descriptors and builders, generated ---- */

#define BUILDER_PLAIN(op)                                                                          \
    weft_value weft_##op(weft_graph *graph, weft_value x)                                          \
    {                                                                                              \
        return weft_apply(graph, &weft_op_##op, NULL, &x, 1, NULL);                                \
    }
#define BUILDER_STEP BUILDER_PLAIN
#define BUILDER_SLOPE(op)                                                                          \
    weft_value weft_##op(weft_graph *graph, weft_value x, double slope)                            \
    {                                                                                              \
        return weft_apply(graph, &weft_op_##op, &(slope_attr){slope}, &x, 1, NULL);                \
    }
#define BUILDER_BOUNDS(op)                                                                         \
    weft_value weft_##op(weft_graph *graph, weft_value x, double low, double high)                 \
    {                                                                                              \
        return weft_apply(graph, &weft_op_##op, &(bounds_attr){low, high}, &x, 1, NULL);           \
    }
#define BUILDER_GRID(op)                                                                           \
    weft_value weft_##op(weft_graph *graph, weft_value x, double scale, double low, double high)   \
    {                                                                                              \
        return weft_apply(graph, &weft_op_##op, &(grid_attr){scale, low, high}, &x, 1, NULL);      \
    }

#define UNARY_VJP(op, kind, text, onnx, expression, gradient, from, to, distinct)                  \
    static void vjp_##op(weft_vjp *v)                                                              \
    {                                                                                              \
        weft_graph *graph = v->graph;                                                              \
        const weft_value g = v->grad_out[0], x = v->in[0], y = v->out[0];                          \
        const void *attr = v->attr;                                                                \
        ATTRIBUTES_##kind(double);                                                                 \
        (void)graph, (void)g, (void)x, (void)y;                                                    \
        v->grad_in[0] = gradient;                                                                  \
    }
UNARY_OPS(UNARY_VJP)
LANES_OPS(UNARY_VJP)
PERIODIC_OPS(UNARY_VJP)

#define SAMPLE(kind)                                                                               \
    ((kind) == SLOPE    ? (const void *)&sample_slope                                              \
     : (kind) == BOUNDS ? (const void *)&sample_bounds                                             \
     : (kind) == GRID   ? (const void *)&sample_grid                                               \
                        : NULL)
#define UNARY_OP(op, kind, text, nodes, expression, derivative, from, to, distinct)                \
    DECLARE_KERNELS(op);                                                                           \
    static const weft_sample samples_##op[] = {                                                    \
        {SAMPLE(kind), 1, {{WEFT_FLOAT, {2, {3, 7}}, from, to, distinct}}},                        \
        {SAMPLE(kind), 1, {{WEFT_FLOAT, {3, {2, 1, 5}}, from, to, distinct}}},                     \
        {SAMPLE(kind), 1, {{WEFT_FLOAT, {0, {0}}, from, to, distinct}}},                           \
        {SAMPLE(kind), 1, {{WEFT_FLOAT, {2, {0, 4}}, from, to, distinct}}},                        \
    };                                                                                             \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text ".",                                                                           \
        .min_in = 1,                                                                               \
        .max_in = 1,                                                                               \
        .n_out = 1,                                                                                \
        .attr_size = (kind) == SLOPE    ? sizeof(slope_attr)                                       \
                     : (kind) == BOUNDS ? sizeof(bounds_attr)                                      \
                     : (kind) == GRID   ? sizeof(grid_attr)                                        \
                                        : 0,                                                         \
        .attrs = (kind) == SLOPE    ? slope_fields                                                 \
                 : (kind) == BOUNDS ? bounds_fields                                                \
                 : (kind) == GRID   ? grid_fields                                                  \
                                    : NULL,                                                          \
        .infer = (kind) == SLOPE    ? infer_slope                                                  \
                 : (kind) == BOUNDS ? infer_bounds                                                 \
                 : (kind) == GRID   ? infer_grid                                                   \
                                    : infer_unary,                                                   \
        .kernel = FLOAT_KERNELS(op),                                                               \
        .elementwise = true,                                                                       \
        .takes = WEFT_TAKES_ANY,                                                                   \
        .inplace = 1,                                                                              \
        .onnx = onnx_##op,                                                                         \
        .source = source_##op,                                                                     \
        .vjp = (kind) == STEP ? NULL : vjp_##op,                                                   \
        .gradient = (kind) == STEP   ? WEFT_GRADIENT_ZERO                                          \
                    : (kind) == GRID ? WEFT_GRADIENT_STRAIGHT                                      \
                                     : WEFT_GRADIENT_VJP,                                          \
        .samples = samples_##op,                                                                   \
        .n_samples = sizeof samples_##op / sizeof *samples_##op,                                   \
    };                                                                                             \
    BUILDER_##kind(op)
UNARY_OPS(UNARY_OP)
LANES_OPS(UNARY_OP)
PERIODIC_OPS(UNARY_OP)

#endif
