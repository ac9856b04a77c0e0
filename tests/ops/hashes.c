/* Hashes of results on fixed inputs: of every sample of every op, and of larger shapes with their
 * gradients. They are the same on every processor, by every compiler, with every instruction set
 * (WEFT_ISA), and at any number of threads: isa_test.sh compares them with golden/hashes.txt. */
#include "samples.h"

#include "base/hash.h"
#include "store/params.h"

#include <weft/autograd.h>
#include <weft/ops.h>
#include <weft/plan.h>
#include <weft/session.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Inputs: from integers alone ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static const double special[] = {0.0,   -0.0,   INFINITY, -INFINITY, NAN,    1e-40, -1e-42, 1.0,
                                 -1.0,  0.5,    1e30,     -1e30,     88.5,   -88.5, 1e6,    -3e6,
                                 1e-20, -1e-20, 3.14159,  -709.5,    710.25, 104.0, -104.5, 1e-310};

/* 24 bits in [-2, 2); with `any`, every fourth one is special. */
static double next_number(uint64_t *state, bool any)
{
    const uint64_t x = next_random(state);
    if (any && x % 4 == 0) return special[(x >> 8) % (sizeof special / sizeof *special)];
    return (double)(int64_t)(x >> 40) * 0x1p-22 - 2;
}

static void fill(weft_dtype dtype, int64_t n, int64_t bound, bool any, uint64_t seed, void *data)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == WEFT_F32)
            ((float *)data)[i] = (float)next_number(&seed, any);
        else if (dtype == WEFT_F64)
            ((double *)data)[i] = next_number(&seed, any);
        else if (dtype == WEFT_I32)
            ((int32_t *)data)[i] = (int32_t)(next_random(&seed) % (uint64_t)bound);
        else
            ((uint8_t *)data)[i] = next_random(&seed) & 1;
    }
}

/* ---- Cases ---- */

#define MAX_IN 4

typedef struct bits_case {
    const char *name;
    weft_shape in[MAX_IN]; /* a rank of 0: there is none */
    int64_t bound;         /* of the last input, an i32 below it; 0: all are floats */
    bool special;          /* with infinities, NaN and subnormal numbers, and without gradients */
    weft_value (*build)(weft_graph *g, const weft_value *x);
} bits_case;

#define S1(a)                                                                                      \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            a                                                                                      \
        }                                                                                          \
    }
#define S2(a, b)                                                                                   \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            a, b                                                                                   \
        }                                                                                          \
    }
#define S3(a, b, c)                                                                                \
    {                                                                                              \
        3,                                                                                         \
        {                                                                                          \
            a, b, c                                                                                \
        }                                                                                          \
    }
#define S4(a, b, c, d)                                                                             \
    {                                                                                              \
        4,                                                                                         \
        {                                                                                          \
            a, b, c, d                                                                             \
        }                                                                                          \
    }

#define BUILD(name, expression)                                                                    \
    static weft_value name(weft_graph *g, const weft_value *x)                                     \
    {                                                                                              \
        return expression;                                                                         \
    }

/* clang-format off */
#define UNARY(X)                                                                                   \
    X(neg) X(abs) X(sign) X(floor) X(ceil) X(round) X(exp) X(log) X(expm1) X(log1p) X(sqrt)        \
    X(rsqrt) X(square) X(reciprocal) X(sin) X(cos) X(atan) X(erf) X(tanh) X(sigmoid) X(softplus)   \
    X(silu) X(relu) X(gelu) X(gelu_tanh)
#define BINARY(X) X(add) X(sub) X(mul) X(div) X(pow) X(maximum) X(minimum)
/* clang-format on */
#define BUILD_UNARY(op)  BUILD(build_##op, weft_##op(g, x[0]))
#define BUILD_BINARY(op) BUILD(build_##op, weft_##op(g, x[0], x[1]))
UNARY(BUILD_UNARY)
BINARY(BUILD_BINARY)

BUILD(build_matmul, weft_matmul(g, x[0], x[1]))
BUILD(build_matmul_ta, weft_matmul(g, weft_transpose(g, x[0], -1, -2), x[1]))
BUILD(build_matmul_tb, weft_matmul(g, x[0], weft_transpose(g, x[1], -1, -2)))
BUILD(build_softmax, weft_softmax(g, x[0], -1))
BUILD(build_log_softmax, weft_log_softmax(g, x[0], -1))
BUILD(build_softmax_0, weft_softmax(g, x[0], 0))
BUILD(build_log_softmax_0, weft_log_softmax(g, x[0], 0))
BUILD(build_layer_norm, weft_layer_norm(g, x[0], x[1], x[2], 1e-5))
BUILD(build_rms_norm, weft_rms_norm(g, x[0], x[1], 1e-6))
BUILD(build_cross_entropy, weft_cross_entropy_loss(g, x[0], x[1], NULL))
BUILD(build_embedding, weft_embedding(g, x[0], x[1], -1))
BUILD(build_cumsum, weft_cumsum(g, x[0], -1, false))

#define REDUCE(X) X(sum) X(mean) X(prod) X(max) X(min) X(logsumexp)
#define BUILD_REDUCE(op)                                                                           \
    BUILD(build_##op##_last, weft_##op(g, x[0], WEFT_AXES(-1), false))                             \
    BUILD(build_##op##_first, weft_##op(g, x[0], WEFT_AXES(0), false))                             \
    BUILD(build_##op##_all, weft_##op(g, x[0], WEFT_ALL_AXES, false))
REDUCE(BUILD_REDUCE)
BUILD(build_variance_last, weft_variance(g, x[0], WEFT_AXES(-1), false, 1))
BUILD(build_variance_first, weft_variance(g, x[0], WEFT_AXES(0), false, 1))
BUILD(build_argmax, weft_cast(g, weft_argmax(g, x[0], -1, false), weft_dtype_of(g, x[0])))

static weft_value attention(weft_graph *g, const weft_value *x, bool causal, int64_t window)
{
    const weft_sdpa_options o = {.causal = causal, .window = window};
    return weft_sdpa(g, x[0], x[1], x[2], &o);
}
BUILD(build_sdpa, attention(g, x, false, 0))
BUILD(build_sdpa_causal, attention(g, x, true, 0))
BUILD(build_sdpa_window, attention(g, x, true, 9))

/* Nodes between the inputs and a product, so that it reads bf16, and after it, so that it writes
 * bf16. */
static weft_value narrow_product(weft_graph *g, const weft_value *x, bool ta, bool tb)
{
    const weft_value a = weft_neg(g, ta ? weft_transpose(g, x[0], -1, -2) : x[0]);
    const weft_value b = weft_neg(g, tb ? weft_transpose(g, x[1], -1, -2) : x[1]);
    return weft_neg(g, weft_matmul(g, a, b));
}
BUILD(build_bf16, narrow_product(g, x, false, false))
BUILD(build_bf16_ta, narrow_product(g, x, true, false))
BUILD(build_bf16_tb, narrow_product(g, x, false, true))
/* One operand and the product are f32. */
BUILD(build_bf16_a, weft_matmul(g, weft_neg(g, x[0]), x[1]))

static weft_value narrow_attention(weft_graph *g, const weft_value *x, bool causal)
{
    weft_value narrow[3];
    for (int i = 0; i < 3; i++) narrow[i] = weft_neg(g, x[i]);
    return weft_neg(g, attention(g, narrow, causal, 0));
}
BUILD(build_bf16_sdpa, narrow_attention(g, x, false))
BUILD(build_bf16_causal, narrow_attention(g, x, true))

static weft_value conv(weft_graph *g, const weft_value *x, int64_t stride, int64_t pad,
                       int64_t groups)
{
    const weft_conv_options o = {.stride = {stride, stride},
                                 .pad_begin = {pad, pad},
                                 .pad_end = {pad, pad},
                                 .groups = groups};
    return weft_conv(g, x[0], x[1], x[2], &o);
}
BUILD(build_conv, conv(g, x, 1, 1, 1))
BUILD(build_conv_stride, conv(g, x, 2, 1, 1))
BUILD(build_conv_groups, conv(g, x, 1, 1, 2))
BUILD(build_conv_depthwise, conv(g, x, 1, 1, 24))
BUILD(build_conv_depthwise_2, conv(g, x, 2, 1, 24))

static weft_value max_pool(weft_graph *g, weft_value x)
{
    const weft_pool_options o = {.kernel = {3, 3}, .stride = {2, 2}};
    return weft_max_pool(g, x, &o, NULL);
}
static weft_value average_pool(weft_graph *g, weft_value x)
{
    const weft_pool_options o = {.kernel = {3, 3}, .stride = {2, 2}};
    return weft_average_pool(g, x, &o);
}
BUILD(build_max_pool, max_pool(g, x[0]))
BUILD(build_average_pool, average_pool(g, x[0]))

BUILD(build_batch_norm, weft_batch_norm(g, x[0], x[1], x[2], 1e-5, NULL, NULL))

#define CASE_UNARY(op)                                                                             \
    {#op, {S2(7, 301)}, 0, false, build_##op}, {#op "/special", {S2(7, 301)}, 0, true, build_##op},
#define CASE_BINARY(op)                                                                            \
    {#op, {S2(7, 301), S2(7, 301)}, 0, false, build_##op},                                         \
        {#op "/special", {S2(7, 301), S2(7, 301)}, 0, true, build_##op},
#define CASE_REDUCE(op)                                                                            \
    {#op "/last", {S2(5, 1237)}, 0, false, build_##op##_last},                                     \
        {#op "/short", {S2(301, 5)}, 0, false, build_##op##_last},                                 \
        {#op "/first", {S2(333, 67)}, 0, false, build_##op##_first},                               \
        {#op "/all", {S2(97, 1031)}, 0, false, build_##op##_all},                                  \
        {#op "/special", {S2(301, 19)}, 0, true, build_##op##_last},
#define MATMUL(m, n, k)                                                                            \
    {"matmul/" #m "," #n "," #k, {S2(m, k), S2(k, n)}, 0, false, build_matmul},                    \
        {"matmul/ta," #m "," #n "," #k, {S2(k, m), S2(k, n)}, 0, false, build_matmul_ta},          \
        {"matmul/tb," #m "," #n "," #k, {S2(m, k), S2(n, k)}, 0, false, build_matmul_tb},
#define CONV(name, build, channels, size, out, per_group, kernel)                                  \
    {name,                                                                                         \
     {S4(2, channels, size, size), S4(out, per_group, kernel, kernel), S1(out)},                   \
     0,                                                                                            \
     false,                                                                                        \
     build},
#define SDPA(name, build, q, k, heads, kv, dim)                                                    \
    {name, {S4(2, q, heads, dim), S4(2, k, kv, dim), S4(2, k, kv, dim)}, 0, false, build},

#define BF16(m, n, k)                                                                              \
    {"bf16/" #m "," #n "," #k, {S2(m, k), S2(k, n)}, 0, false, build_bf16},                        \
        {"bf16/ta," #m "," #n "," #k, {S2(k, m), S2(k, n)}, 0, false, build_bf16_ta},              \
        {"bf16/tb," #m "," #n "," #k, {S2(m, k), S2(n, k)}, 0, false, build_bf16_tb},              \
        {"bf16/a," #m "," #n "," #k, {S2(m, k), S2(k, n)}, 0, false, build_bf16_a},

/* clang-format off */
static const bits_case cases[] = {
    UNARY(CASE_UNARY) BINARY(CASE_BINARY) REDUCE(CASE_REDUCE)
    {"variance/last", {S2(5, 1237)}, 0, false, build_variance_last},
    {"variance/first", {S2(333, 67)}, 0, false, build_variance_first},
    {"argmax", {S2(33, 67)}, 0, true, build_argmax},
    {"cumsum", {S2(33, 67)}, 0, false, build_cumsum},
    MATMUL(1, 1, 1) MATMUL(1, 300, 77) MATMUL(2, 37, 301) MATMUL(3, 5, 1000) MATMUL(5, 64, 31)
    MATMUL(17, 33, 800) MATMUL(64, 64, 64) MATMUL(65, 129, 1601) MATMUL(130, 70, 257)
    {"matmul/batch", {S3(6, 31, 40), S3(6, 40, 27)}, 0, false, build_matmul},
    {"matmul/special", {S2(31, 40), S2(40, 27)}, 0, true, build_matmul},
    {"softmax", {S2(37, 301)}, 0, false, build_softmax},
    {"softmax/short", {S2(301, 7)}, 0, false, build_softmax},
    {"softmax/long", {S2(3, 5003)}, 0, false, build_softmax},
    {"softmax/columns", {S2(37, 301)}, 0, false, build_softmax_0},
    {"softmax/special", {S2(301, 3)}, 0, true, build_softmax},
    {"log_softmax", {S2(37, 301)}, 0, false, build_log_softmax},
    {"log_softmax/columns", {S2(37, 301)}, 0, false, build_log_softmax_0},
    {"layer_norm", {S2(67, 301), S1(301), S1(301)}, 0, false, build_layer_norm},
    {"layer_norm/short", {S2(301, 7), S1(7), S1(7)}, 0, false, build_layer_norm},
    {"rms_norm", {S2(67, 301), S1(301)}, 0, false, build_rms_norm},
    {"batch_norm", {S4(3, 5, 11, 13), S1(5), S1(5)}, 0, false, build_batch_norm},
    {"cross_entropy", {S2(37, 1003), S1(37)}, 1003, false, build_cross_entropy},
    {"embedding", {S2(37, 45), S2(9, 31)}, 37, false, build_embedding},
    SDPA("sdpa", build_sdpa, 70, 70, 4, 4, 32) SDPA("sdpa/dim 40", build_sdpa, 33, 50, 2, 1, 40)
    SDPA("sdpa/causal", build_sdpa_causal, 200, 200, 4, 2, 16)
    SDPA("sdpa/window", build_sdpa_window, 150, 150, 2, 2, 24)
    SDPA("sdpa/few", build_sdpa, 1, 300, 4, 2, 64) SDPA("sdpa/dim 7", build_sdpa, 19, 23, 2, 2, 7)
    CONV("conv", build_conv, 16, 13, 20, 16, 3) CONV("conv/1x1", build_conv, 24, 9, 17, 24, 1)
    CONV("conv/stride", build_conv_stride, 5, 17, 12, 5, 3)
    CONV("conv/groups", build_conv_groups, 8, 11, 12, 4, 3)
    CONV("conv/depthwise", build_conv_depthwise, 24, 15, 24, 1, 3)
    CONV("conv/depthwise stride", build_conv_depthwise_2, 24, 15, 24, 1, 5)
    CONV("conv/many", build_conv, 40, 10, 70, 40, 3)
    {"max_pool", {S4(2, 5, 13, 17)}, 0, false, build_max_pool},
    {"average_pool", {S4(2, 5, 13, 17)}, 0, false, build_average_pool},
};
/* With values stored as bf16. */
static const bits_case narrow_cases[] = {
    BF16(1, 1, 1) BF16(1, 300, 77) BF16(3, 5, 1000) BF16(5, 64, 31) BF16(17, 33, 800) BF16(65, 129, 1601)
    {"bf16/batch", {S3(6, 31, 40), S3(6, 40, 27)}, 0, false, build_bf16},
    {"bf16/special", {S2(31, 40), S2(40, 27)}, 0, true, build_bf16},
    SDPA("bf16/sdpa", build_bf16_sdpa, 70, 70, 4, 4, 32) SDPA("bf16/sdpa/dim 40", build_bf16_sdpa, 33, 50, 2, 1, 40)
    SDPA("bf16/sdpa/causal", build_bf16_causal, 200, 200, 4, 2, 16) SDPA("bf16/sdpa/few", build_bf16_sdpa, 1, 300, 4, 2, 64)
    SDPA("bf16/sdpa/dim 7", build_bf16_sdpa, 19, 23, 2, 2, 7) SDPA("bf16/sdpa/dim 301", build_bf16_sdpa, 9, 70, 1, 1, 301)
};
/* clang-format on */

/* ---- Running them ---- */

typedef struct run {
    weft_graph *g;
    weft_plan *plan;
    weft_session *session;
    weft_value in[MAX_IN], targets[1 + MAX_IN];
    size_t n_in, n_targets;
} run;

/* The output, and the gradients of the sum of its elements times cotangents. */
static void build(run *r, const bits_case *c, weft_dtype dtype)
{
    static const char *const names[MAX_IN] = {"a", "b", "c", "d"};
    while (r->n_in < MAX_IN && c->in[r->n_in].rank) r->n_in++;
    for (size_t i = 0; i < r->n_in; i++) {
        const bool index = c->bound && i == r->n_in - 1;
        r->in[i] = weft_input(r->g, names[i], index ? WEFT_I32 : dtype, c->in[i]);
    }
    const weft_value y = r->targets[r->n_targets++] = c->build(r->g, r->in);
    if (c->special) return;
    const weft_value dy = weft_input(r->g, "dy", dtype, weft_shape_of(r->g, y));
    const size_t n = r->n_in - (c->bound != 0);
    weft_grad_of(r->g, &y, &dy, 1, r->in, n, r->targets + 1);
    r->n_targets += n;
}

static weft_status feed(run *r, const bits_case *c, weft_error *error)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i <= r->n_in && status == WEFT_OK; i++) {
        const weft_value x = i < r->n_in ? r->in[i] : weft_graph_find(r->g, "dy");
        if (!weft_is_value(x)) continue;
        const weft_dtype dtype = weft_dtype_of(r->g, x);
        const int64_t n = weft_shape_numel(weft_shape_of(r->g, x));
        const size_t bytes = (size_t)n * weft_dtype_bytes(dtype);
        void *data = malloc(bytes + 1);
        if (!data) return weft_error_set(error, WEFT_NO_MEMORY, c->name, "no memory");
        fill(dtype, n, c->bound, c->special, 1 + i, data);
        status = weft_session_feed(r->session, x, data, bytes, error);
        free(data);
    }
    return status;
}

/* Prints a line: the case, the dtype, and a hash of each target. */
static bool print_case(const bits_case *c, weft_dtype dtype, const weft_plan_options *options)
{
    run r = {.g = weft_graph_new()};
    weft_error error = {0};
    build(&r, c, dtype);
    r.plan = weft_plan_new(r.g, r.targets, r.n_targets, options, &error);
    if (r.plan) r.session = weft_session_new(r.plan, NULL, NULL, &error);
    bool good = r.session && feed(&r, c, &error) == WEFT_OK &&
                weft_session_run(r.session, &error) == WEFT_OK;
    printf("%s %s", c->name, weft_dtype_name(dtype));
    for (size_t i = 0; i < r.n_targets && good; i++) {
        weft_tensor t;
        good = weft_session_tensor(r.session, r.targets[i], &t, &error) == WEFT_OK;
        if (good) printf(" %016llx", (unsigned long long)weft__tensor_hash(HASH_START, &t));
    }
    printf(good ? "\n" : " failed\n");
    if (!good) fprintf(stderr, "%s: %s\n", c->name, error.message);
    weft_session_free(r.session);
    weft_plan_free(r.plan);
    weft_graph_free(r.g);
    return good;
}

static bool print_sample(const weft_op *op, size_t i, weft_dtype dtype, bool strided)
{
    outputs o;
    weft_error error = {0};
    const variant v = {.dtype = dtype, .threads = 1, .strided = strided};
    const bool good = run_sample(op, &op->samples[i], v, &o, &error);
    printf("%s/sample %zu%s %s", op->name, i, strided ? " strided" : "", weft_dtype_name(dtype));
    for (size_t k = 0; k < o.n; k++)
        printf(" %016llx", (unsigned long long)weft__tensor_hash(HASH_START, &o.tensor[k]));
    /* Some samples fail on purpose: an index out of range, say. */
    printf(good ? "\n" : " %s\n", weft_status_text(error.status));
    free_outputs(&o);
    return true;
}

int main(void)
{
    static const weft_dtype dtypes[2] = {WEFT_F32, WEFT_F64};
    const weft_plan_options narrow = {.precision = WEFT_PRECISION_BF16, .min_narrow = 1};
    bool good = true;
    for (int d = 0; d < 2; d++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            good &= print_case(&cases[i], dtypes[d], NULL);
        for (size_t k = 0; k < weft_op_count(); k++)
            for (size_t i = 0; i < weft_op_at(k)->n_samples; i++)
                for (int s = 0; s < 2; s++) print_sample(weft_op_at(k), i, dtypes[d], s != 0);
    }
    for (size_t i = 0; i < sizeof narrow_cases / sizeof *narrow_cases; i++)
        good &= print_case(&narrow_cases[i], WEFT_F32, &narrow);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
