/* Random tensors: uniform, normal and Bernoulli numbers. They are made of the words of dropout
 * (dropout.h), which follow from the seed and number of the run, the key of the node and the
 * element alone: word w is word w % 4 of philox(counter (w / 4, run), stream). O(elements).
 *
 * An element i has the word i in f32, and the words 2i and 2i + 1 in f64. A uniform number is the
 * upper 24 or 53 bits of these as a fraction. Two normal numbers, 2p and 2p + 1, are the cosine and
 * the sine of Box & Muller (1958), in f64: their radius comes from the first half of their words,
 * their angle from the second. A Bernoulli number compares word i, as a fraction, with its
 * probability. The file is compiled without contracted operations, so all instruction sets compute
 * the same bits. */
#include "dropout.h"
#include "kernels/kernel.h"

typedef struct random_attr {
    weft_dtype dtype;
    weft_shape shape;
    double a, b; /* low and high; mean and deviation */
    uint64_t key;
} random_attr;

#ifdef WEFT_KERNEL_ISA
#include "base/vmath_sin.h"

/* Elements whose words are made at a time. Tiles consist of whole blocks. */
#define BLOCK 512
#define WORDS ((int64_t)sizeof(T) / 4) /* of an element */

/* The words of n elements from `first` on, which is a multiple of 4. */
static inline void words_of(const weft_call *call, uint64_t key, int64_t first, int64_t n,
                            uint32_t *words)
{
    dropout_bits((uint64_t)(first * WORDS) / 4, n * WORDS, dropout_stream(key, call->run),
                 call->run->number, words);
}

/* In [0, 1). */
static inline double fraction(const uint32_t *words)
{
    return WORDS == 1 ? (double)(words[0] >> 8) * 0x1p-24 : weft_uniform(words);
}

/* `high` itself, which only rounding reaches, becomes the number below it. */
static void uniform_block(const random_attr *attr, const uint32_t *words, int64_t n, T *y)
{
    const double low = attr->a, width = attr->b - attr->a;
    const T high = (T)attr->b;
    const T below = low < attr->b ? (T)(WORDS == 1 ? (double)nextafterf((float)high, -INFINITY)
                                                   : nextafter((double)high, -INFINITY))
                                  : high;
    for (int64_t i = 0; i < n; i++) {
        const T x = (T)(low + width * fraction(words + i * WORDS));
        y[i] = x < high ? x : below;
    }
}

/* (0, 1], of half of the words of a pair. */
static inline double positive(const uint32_t *words)
{
    return WORDS == 1 ? ((double)words[0] + 1) * 0x1p-32 : 1 - weft_uniform(words);
}

static inline double turns(const uint32_t *words)
{
    return WORDS == 1 ? (double)words[0] * 0x1p-32 : weft_uniform(words);
}

static void normal_block(const random_attr *attr, const uint32_t *words, int64_t n, T *y)
{
    const double mean = attr->a, deviation = attr->b;
    double radius[BLOCK / 2], angle[BLOCK / 2];
    T both[BLOCK];
    const int64_t pairs = (n + 1) / 2;
    for (int64_t p = 0; p < pairs; p++) {
        radius[p] = deviation * sqrt(-2 * vm_log_f64(positive(words + 2 * WORDS * p)));
        angle[p] = 6.283185307179586 * turns(words + 2 * WORDS * p + WORDS);
    }
    for (int64_t p = 0; p < pairs; p++) {
        both[2 * p] = (T)(mean + radius[p] * vm_sin_quarters_f64(angle[p], 1));
        both[2 * p + 1] = (T)(mean + radius[p] * vm_sin_quarters_f64(angle[p], 0));
    }
    memcpy(y, both, (size_t)n * sizeof *y);
}

#define RANDOM_KERNEL(name, fill)                                                                  \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        const random_attr *attr = call->attr;                                                      \
        const int64_t total = numel_of(&call->out[0].shape);                                       \
        const int64_t end = (tile + 1) * TILE < total ? (tile + 1) * TILE : total;                 \
        for (int64_t i = tile * TILE; i < end; i += BLOCK) {                                       \
            uint32_t words[BLOCK * WORDS];                                                         \
            const int64_t n = end - i < BLOCK ? end - i : BLOCK;                                   \
            words_of(call, attr->key, i, n + (n & 1), words);                                      \
            fill(attr, words, n, (T *)call->out[0].data + i);                                      \
        }                                                                                          \
    }
RANDOM_KERNEL(random_uniform, uniform_block)
RANDOM_KERNEL(random_normal, normal_block)

/* The run may begin in the middle of four elements. */
KERNEL(bernoulli)
{
    const random_attr *attr = call->attr;
    const uint64_t stream = dropout_stream(attr->key, call->run), run = call->run->number;
    for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {
        const T *p = (const T *)call->in[0].data + w.offset[1];
        T *y = (T *)call->out[0].data + w.offset[0];
        const int64_t first = call->first + w.offset[0], skip = first % 4;
        for (int64_t at = 0; at < w.count; at += BLOCK - 4) {
            uint32_t words[BLOCK];
            const int64_t n = w.count - at < BLOCK - 4 ? w.count - at : BLOCK - 4;
            dropout_bits((uint64_t)(first + at) / 4, n + skip, stream, run, words);
            for (int64_t i = 0; i < n; i++) {
                const T x = p[(at + i) * w.step[1]];
                const bool one = (double)words[skip + i] * 0x1p-32 < (double)x;
                y[at + i] = x != x ? x : (T)one;
            }
        }
    }
}

#else

#include "batch.h"
#include "samples.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

extern const weft_op weft_op_random_uniform, weft_op_random_normal, weft_op_bernoulli;

static bool infer_random(weft_infer *infer)
{
    const random_attr *attr = infer->attr;
    infer->out[0] = (weft_type){attr->dtype, attr->shape};
    return attr->dtype == WEFT_F32 || attr->dtype == WEFT_F64 ||
           weft_infer_fail(infer, WEFT_BAD_DTYPE, "the dtype must be f32 or f64, got %s",
                           weft_dtype_name(attr->dtype));
}

static bool infer_uniform(weft_infer *infer)
{
    const random_attr *attr = infer->attr;
    if (!infer_random(infer) || !weft_infer_scalar(infer, "low", attr->a, attr->dtype) ||
        !weft_infer_scalar(infer, "high", attr->b, attr->dtype))
        return false;
    return (attr->a <= attr->b && isfinite(attr->b - attr->a)) ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                           "low must not be above high, and both must be finite, got %g and %g",
                           attr->a, attr->b);
}

static bool infer_normal(weft_infer *infer)
{
    const random_attr *attr = infer->attr;
    if (!infer_random(infer) || !weft_infer_scalar(infer, "mean", attr->a, attr->dtype) ||
        !weft_infer_scalar(infer, "deviation", attr->b, attr->dtype))
        return false;
    return (isfinite(attr->a) && isfinite(attr->b) && attr->b >= 0) ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                           "mean and deviation must be finite, and the deviation not negative, "
                           "got %g and %g",
                           attr->a, attr->b);
}

static bool infer_bernoulli(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0);
}

static void cost_random(const weft_call *call, weft_cost *cost)
{
    const double n = (double)numel_of(&call->out[0].shape);
    cost->flops = 30 * n;
    cost->bytes = n * (double)weft_dtype_bytes(call->out[0].dtype) * (double)(1 + call->n_in);
}

/* ---- ONNX: the same distribution, from the generator of the runtime ---- */

static void onnx_random(weft_export *e, const char *type, const char *a, const char *b)
{
    const random_attr *attr = e->attr;
    e->out[0] = weft_export_node(e, type, NULL, 0, 1);
    weft_export_int(e, "dtype", weft_export_type(attr->dtype));
    weft_export_float(e, a, attr->a);
    weft_export_float(e, b, attr->b);
    weft_export_ints(e, "shape", attr->shape.dim, (size_t)attr->shape.rank);
    e->inexact = true;
}

static void onnx_uniform(weft_export *e)
{
    onnx_random(e, "RandomUniform", "low", "high");
}

static void onnx_normal(weft_export *e)
{
    onnx_random(e, "RandomNormal", "mean", "scale");
}

static void onnx_bernoulli(weft_export *e)
{
    weft_export_same(e, "Bernoulli");
    e->inexact = true;
}

/* ---- C ---- */

static void source_uniform(weft_source *s)
{
    const random_attr *a = s->attr;
    const double high = s->dtype == WEFT_F32 ? (double)(float)a->b : a->b;
    double below = high;
    if (a->a < a->b)
        below = s->dtype == WEFT_F32 ? (double)nextafterf((float)high, -INFINITY)
                                     : nextafter(high, -INFINITY);
    const weft_source_arg args[] = {
        WEFT_ARG_OUT(0),       WEFT_ARG_INT(weft_shape_numel(s->out[0].shape)),
        WEFT_ARG_KEY(a->key),  WEFT_ARG_SEED,
        WEFT_ARG_DOUBLE(a->a), WEFT_ARG_DOUBLE(a->b - a->a),
        WEFT_ARG_NUMBER(high), WEFT_ARG_NUMBER(below)};
    weft_source_call_of(s, "random_uniform", args, sizeof args / sizeof *args);
}

static void source_normal(weft_source *s)
{
    const random_attr *a = s->attr;
    const weft_source_arg args[] = {
        WEFT_ARG_OUT(0),       WEFT_ARG_INT(weft_shape_numel(s->out[0].shape)),
        WEFT_ARG_KEY(a->key),  WEFT_ARG_SEED,
        WEFT_ARG_DOUBLE(a->a), WEFT_ARG_DOUBLE(a->b)};
    weft_source_call_of(s, "random_normal", args, sizeof args / sizeof *args);
}

static void source_bernoulli(weft_source *s)
{
    const random_attr *a = s->attr;
    const weft_source_arg args[] = {WEFT_ARG_IN(0), WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(weft_shape_numel(s->in[0].shape)),
                                    WEFT_ARG_KEY(a->key), WEFT_ARG_SEED};
    weft_source_call_of(s, "bernoulli", args, sizeof args / sizeof *args);
}

/* ---- Descriptors and builders ---- */

#define RANDOM_FIELDS(name, first, second)                                                         \
    static const weft_attr_field name[] = {                                                        \
        {"dtype", WEFT_ATTR_DTYPE, offsetof(random_attr, dtype)},                                  \
        {"shape", WEFT_ATTR_SHAPE, offsetof(random_attr, shape)},                                  \
        {first, WEFT_ATTR_DOUBLE, offsetof(random_attr, a)},                                       \
        {second, WEFT_ATTR_DOUBLE, offsetof(random_attr, b)},                                      \
        {NULL, WEFT_ATTR_INT, 0},                                                                  \
    }
RANDOM_FIELDS(uniform_fields, "low", "high");
RANDOM_FIELDS(normal_fields, "mean", "deviation");

static const random_attr uniform_f64 = {WEFT_F64, {2, {3, 5}}, -1, 3, 21},
                         uniform_f32 = {WEFT_F32, {1, {1030}}, 0, 1, 22},
                         normal_f64 = {WEFT_F64, {2, {3, 5}}, 1, 2, 23},
                         normal_f32 = {WEFT_F32, {1, {1031}}, 0, 1, 24},
                         normal_none = {WEFT_F32, {1, {0}}, 0, 1, 25}, bernoulli_attr = {.key = 26};
static const weft_sample samples_uniform[] = {{&uniform_f64, 0, {{0}}}, {&uniform_f32, 0, {{0}}}};
static const weft_sample samples_normal[] = {
    {&normal_f64, 0, {{0}}}, {&normal_f32, 0, {{0}}}, {&normal_none, 0, {{0}}}};
static const weft_sample samples_bernoulli[] = {
    {&bernoulli_attr, 1, {UNIT_FLOATS({2, {5, 9}})}},
    {&bernoulli_attr, 1, {UNIT_FLOATS({2, {0, 2}})}},
};

#define RANDOM_OP(op, text, short_name)                                                            \
    DECLARE_KERNELS(random_##short_name);                                                          \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text,                                                                               \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(random_attr),                                                          \
        .attrs = short_name##_fields,                                                              \
        .infer = infer_##short_name,                                                               \
        .kernel = FLOAT_KERNELS(op),                                                               \
        .key_output = true,                                                                        \
        .random = true,                                                                            \
        .cost = cost_random,                                                                       \
        .gradient = WEFT_GRADIENT_ZERO,                                                            \
        .onnx = onnx_##short_name,                                                                 \
        .source = source_##short_name,                                                             \
        .samples = samples_##short_name,                                                           \
        .n_samples = sizeof samples_##short_name / sizeof *samples_##short_name,                   \
    };
RANDOM_OP(random_uniform, "y is uniform in [low, high), different in each run.", uniform)
RANDOM_OP(random_normal, "y is normal with a mean and a standard deviation, different in each run.",
          normal)

DECLARE_KERNELS(bernoulli);
const weft_op weft_op_bernoulli = {
    .name = "bernoulli",
    .doc = "y = 1 with probability p, else 0, different in each run.",
    .inputs = "p",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(random_attr),
    .infer = infer_bernoulli,
    .kernel = FLOAT_KERNELS(bernoulli),
    .elementwise = true,
    .takes = WEFT_TAKES_DENSE,
    .inplace = 1,
    .random = true,
    .cost = cost_random,
    .gradient = WEFT_GRADIENT_ZERO,
    .onnx = onnx_bernoulli,
    .batch = weft__batch_each,
    .source = source_bernoulli,
    .samples = samples_bernoulli,
    .n_samples = sizeof samples_bernoulli / sizeof *samples_bernoulli,
};

static weft_value random_tensor(weft_graph *graph, const weft_op *op, weft_dtype dtype,
                                weft_shape shape, double a, double b)
{
    random_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = dtype;
    attr.shape.rank = shape.rank;
    memcpy(attr.shape.dim, shape.dim, sizeof shape.dim);
    attr.a = a;
    attr.b = b;
    attr.key = weft_graph_random_key(graph);
    return weft_apply(graph, op, &attr, NULL, 0, NULL);
}

weft_value weft_random_uniform(weft_graph *graph, weft_dtype dtype, weft_shape shape, double low,
                               double high)
{
    return random_tensor(graph, &weft_op_random_uniform, dtype, shape, low, high);
}

weft_value weft_random_normal(weft_graph *graph, weft_dtype dtype, weft_shape shape, double mean,
                              double deviation)
{
    return random_tensor(graph, &weft_op_random_normal, dtype, shape, mean, deviation);
}

weft_value weft_bernoulli(weft_graph *graph, weft_value p)
{
    random_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.key = weft_graph_random_key(graph);
    return weft_apply(graph, &weft_op_bernoulli, &attr, &p, 1, NULL);
}

#endif
