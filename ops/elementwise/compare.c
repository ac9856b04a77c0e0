/* Comparisons and logic: bool results, gradients zero. */
#include "kernels/kernel.h"

/* name, doc, the op of ONNX (NULL: the opposite of Equal), expression, takes bool? */
#define COMPARE_OPS(X)                                                                             \
    X(equal, "y = a == b; NaN equals nothing", "Equal", x == y, true)                              \
    X(not_equal, "y = a != b, true where either is NaN", NULL, x != y, true)                       \
    X(less, "y = a < b", "Less", x < y, false)                                                     \
    X(less_equal, "y = a <= b", "LessOrEqual", x <= y, false)                                      \
    X(greater, "y = a > b", "Greater", x > y, false)                                               \
    X(greater_equal, "y = a >= b", "GreaterOrEqual", x >= y, false)

#define LOGIC_OPS(X)                                                                               \
    X(logical_and, "y = a and b", "And", x &y)                                                     \
    X(logical_or, "y = a or b", "Or", x | y)

#ifdef WEFT_KERNEL_ISA

#define BOOL_KERNEL(name, expression)                                                              \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        T packed[2][PACKED_RUN];                                                                   \
        int64_t ps, qs;                                                                            \
        for (weft_iterator w = iterator_begin_narrow(call, tile); weft_iterator_next(&w);) {       \
            const T *p = iterator_operand(&w, 1, call->in[0].data, packed[0], &ps);                \
            const T *q = iterator_operand(&w, 2, call->in[1].data, packed[1], &qs);                \
            uint8_t *out = (uint8_t *)call->out[0].data + w.offset[0];                             \
            EACH_PAIR(p, ps, q, qs, out[i] = expression)                                           \
        }                                                                                          \
    }
#define COMPARE_KERNEL(name, doc, onnx, expression, bools) BOOL_KERNEL(name, expression)
COMPARE_OPS(COMPARE_KERNEL)
#if KERNEL_IS(b8)
#define LOGIC_KERNEL(name, doc, onnx, expression) BOOL_KERNEL(name, expression)
LOGIC_OPS(LOGIC_KERNEL)
KERNEL(logical_not)
{
    for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {
        const T *p = (const T *)call->in[0].data + w.offset[1];
        uint8_t *out = (uint8_t *)call->out[0].data + w.offset[0];
        for (int64_t i = 0; i < w.count; i++) out[i] = !p[i * w.step[1]];
    }
}
#endif

#else

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

/* The function of an element, and its text. */
#define SOURCE_OF(op, expression)                                                                  \
    static void source_##op(weft_source *s)                                                        \
    {                                                                                              \
        weft_source_each(s,                                                                        \
                         "static uint8_t " #op                                                     \
                         "_of(T x, T y)\n{\n    return (uint8_t)(" #expression ");\n}\n",          \
                         #op "_of", NULL, 0);                                                      \
    }
#define COMPARE_SOURCE(op, doc, onnx, expression, bools) SOURCE_OF(op, expression)
#define LOGIC_SOURCE(op, doc, onnx, expression)          SOURCE_OF(op, expression)
COMPARE_OPS(COMPARE_SOURCE)
LOGIC_OPS(LOGIC_SOURCE)

static void source_logical_not(weft_source *s)
{
    weft_source_each(s, "static uint8_t logical_not_of(T x)\n{\n    return !x;\n}\n",
                     "logical_not_of", NULL, 0);
}

static bool infer_pair(weft_infer *infer)
{
    char a[128], b[128];
    if (!weft_infer_same_dtype(infer, 0, 1)) return false;
    infer->out[0].dtype = WEFT_BOOL;
    return weft_shape_broadcast(infer->in[0].shape, infer->in[1].shape, &infer->out[0].shape) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s and %s do not broadcast",
                           weft_shape_text(infer->in[0].shape, a, sizeof a),
                           weft_shape_text(infer->in[1].shape, b, sizeof b));
}

static bool infer_order(weft_infer *infer)
{
    if (infer->in[0].dtype == WEFT_BOOL)
        return weft_infer_fail(infer, WEFT_BAD_DTYPE, "input 0 must be a number, got bool");
    return infer_pair(infer);
}

static bool infer_logic(weft_infer *infer)
{
    return weft_infer_dtype(infer, 0, WEFT_BOOL) && infer_pair(infer);
}

static bool infer_not(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return weft_infer_dtype(infer, 0, WEFT_BOOL);
}

static void onnx_pair(weft_export *e, const char *type)
{
    weft_export_same(e, type ? type : "Equal");
    if (!type) e->out[0] = weft_export_unary(e, "Not", e->out[0]);
}

#define SAMPLES(op, kind, from, to)                                                                \
    static const weft_sample samples_##op[] = {                                                    \
        {NULL, 2, {{kind, {2, {3, 5}}, from, to, false}, {kind, {2, {3, 5}}, from, to, false}}},   \
        {NULL,                                                                                     \
         2,                                                                                        \
         {{kind, {3, {2, 1, 5}}, from, to, false}, {kind, {2, {3, 1}}, from, to, false}}},         \
        {NULL, 2, {{WEFT_I32, {1, {20}}, 0, 3, false}, {WEFT_I32, {1, {1}}, 0, 3, false}}},        \
    }

#define BOOL_OP(op, text, type, shape_rule, kernels, n)                                            \
    static void onnx_##op(weft_export *e)                                                          \
    {                                                                                              \
        onnx_pair(e, type);                                                                        \
    }                                                                                              \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text ". The operands broadcast; the result is bool.",                               \
        .min_in = 2,                                                                               \
        .max_in = 2,                                                                               \
        .n_out = 1,                                                                                \
        .infer = shape_rule,                                                                       \
        .kernel = kernels,                                                                         \
        .elementwise = true,                                                                       \
        .takes = WEFT_TAKES_ANY,                                                                   \
        .onnx = onnx_##op,                                                                         \
        .source = source_##op,                                                                     \
        .gradient = WEFT_GRADIENT_ZERO,                                                            \
        .samples = samples_##op,                                                                   \
        .n_samples = n,                                                                            \
    };                                                                                             \
    weft_value weft_##op(weft_graph *graph, weft_value a, weft_value b)                            \
    {                                                                                              \
        return weft_apply(graph, &weft_op_##op, NULL, (weft_value[]){a, b}, 2, NULL);              \
    }

#define COMPARE_OP(op, text, type, expression, bools)                                              \
    DECLARE_ANY_KERNELS(op);                                                                       \
    SAMPLES(op, WEFT_FLOAT, -2, 2);                                                                \
    BOOL_OP(op, text, type, (bools) ? infer_pair : infer_order, ANY_KERNELS(op), 3)
COMPARE_OPS(COMPARE_OP)

#define BOOL_KERNELS(name)                                                                         \
    {                                                                                              \
        {                                                                                          \
            [WEFT_BOOL] = WEFT_JOIN(name, b8, base)                                                \
        }                                                                                          \
    }
#define LOGIC_OP(op, text, type, expression)                                                       \
    void WEFT_JOIN(op, b8, base)(const weft_call *, int64_t);                                      \
    SAMPLES(op, WEFT_BOOL, 0, 0.5);                                                                \
    BOOL_OP(op, text, type, infer_logic, BOOL_KERNELS(op), 2)
LOGIC_OPS(LOGIC_OP)

static void onnx_logical_not(weft_export *e)
{
    weft_export_same(e, "Not");
}

void WEFT_JOIN(logical_not, b8, base)(const weft_call *, int64_t);
static const weft_sample samples_not[] = {{NULL, 1, {{WEFT_BOOL, {2, {3, 5}}, 0, 0.5, false}}}};
extern const weft_op weft_op_logical_not;
const weft_op weft_op_logical_not = {
    .name = "logical_not",
    .doc = "y = not a.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer_not,
    .kernel = BOOL_KERNELS(logical_not),
    .elementwise = true,
    .takes = WEFT_TAKES_ANY,
    .onnx = onnx_logical_not,
    .source = source_logical_not,
    .gradient = WEFT_GRADIENT_ZERO,
    .samples = samples_not,
    .n_samples = 1,
};

weft_value weft_logical_not(weft_graph *graph, weft_value a)
{
    return weft_apply(graph, &weft_op_logical_not, NULL, &a, 1, NULL);
}

#endif
