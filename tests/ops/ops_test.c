/* Tests generated from the list of ops: every op on each of its samples. */
#include "reference.h"
#include "samples.h"
#include "tests.h"

#include "base/platform.h"
#include "ir/isa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Some samples have sums of some hundred terms that are larger than their result, or divide by
 * small numbers: 4500 roundings of 2^-53, 500 of 2^-24. The largest differences seen are 5e-14 and
 * 1.4e-6. */
#define SAMPLE_F64 5e-13
#define SAMPLE_F32 3e-5

/* Largest difference over all outputs, relative to max(1, |b|); infinite for other shapes. */
static double distance(const outputs *a, const outputs *b)
{
    double worst = 0;
    if (a->n != b->n) return INFINITY;
    for (size_t k = 0; k < a->n; k++) {
        if (!weft_shape_equal(a->tensor[k].shape, b->tensor[k].shape)) return INFINITY;
        for (int64_t i = 0; i < weft_shape_numel(a->tensor[k].shape); i++) {
            double x = weft_tensor_element(&a->tensor[k], i),
                   y = weft_tensor_element(&b->tensor[k], i);
            double off = isnan(x) && isnan(y) ? 0 : fabs(x - y) / fmax(1, fabs(y));
            if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
        }
    }
    return worst;
}

static bool same_bits(const outputs *a, const outputs *b)
{
    bool same = a->n == b->n;
    for (size_t k = 0; same && k < a->n; k++) {
        char name[32];
        snprintf(name, sizeof name, "output %zu", k);
        same = test_same_tensors(name, &a->tensor[k], &b->tensor[k]);
    }
    return same;
}

static void report(const weft_op *op, size_t sample, const char *what, double got)
{
    fprintf(stderr, "\n    %s, sample %zu: %s: %g\n", op->name, sample, what, got);
    CU_FAIL("an op differs");
}

static void expect_near(const weft_op *op, size_t sample, const char *what, double got,
                        double limit)
{
    if (got <= limit) {
        CU_PASS("near");
    } else {
        report(op, sample, what, got);
    }
}

/* Calls `test` on every sample of every op. */
static void each_sample(void (*test)(const weft_op *op, size_t index, const weft_sample *sample))
{
    for (size_t i = 0; i < weft_op_count(); i++)
        for (size_t s = 0; s < weft_op_at(i)->n_samples; s++)
            test(weft_op_at(i), s, &weft_op_at(i)->samples[s]);
}

static const variant plain = {WEFT_F64, 1, false, false};

static bool run_or_report(const weft_op *op, size_t index, const weft_sample *sample, variant v,
                          outputs *out)
{
    weft_error error;
    if (run_sample(op, sample, v, out, &error)) return true;
    fprintf(stderr, "\n    %s, sample %zu: %s: %s\n", op->name, index, error.where, error.message);
    CU_FAIL("an op does not run");
    free_outputs(out);
    return false;
}

/* ---- The tests ---- */

/* Whether the op only declares something: it has no kernel. */
static bool declares(const weft_op *op)
{
    return op == &weft_op_input || op == &weft_op_state || op == &weft_op_constant ||
           op == &weft_op_group || op == &weft_op_track;
}

static void test_descriptors(void)
{
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        bool leaf = declares(op), kernel = false;
        for (int d = 0; d < WEFT_DTYPES; d++)
            kernel = kernel || weft__op_kernel(op, WEFT_ISA_BASE, (weft_dtype)d);
        CU_ASSERT_TRUE(op->doc && strlen(op->doc) > 4);
        CU_ASSERT_PTR_EQUAL(weft_op_find(op->name), op);
        CU_ASSERT_TRUE(leaf || kernel || op->alias || op->expand);
        CU_ASSERT_TRUE(leaf || op->exchanges || op->n_samples > 0);
        CU_ASSERT_TRUE(leaf || (op->gradient == WEFT_GRADIENT_VJP ||
                                op->gradient == WEFT_GRADIENT_STRAIGHT) == (op->vjp || op->expand));
    }
    CU_ASSERT_TRUE(weft_op_count() > 80);
    CU_ASSERT_PTR_NULL(weft_op_find("no such op"));
    CU_ASSERT_PTR_NULL(weft_op_at(weft_op_count()));
}

static void against_reference(const weft_op *op, size_t index, const weft_sample *sample)
{
    reference_function *compute = reference_find(op->name);
    outputs got, expected = {0};
    weft_tensor in[WEFT_SAMPLE_INPUTS];
    if (op->expand && !compute) return; /* held against its expansion instead */
    if (!compute) {
        report(op, index, "there is no reference", 0);
        return;
    }
    if (!run_or_report(op, index, sample, plain, &got)) return;
    for (size_t i = 0; i < sample->n_in; i++) in[i] = input_data(sample, i, WEFT_F64);
    for (size_t i = 0; i < got.n; i++) {
        void *data = calloc((size_t)weft_shape_numel(got.tensor[i].shape) + 1, 8);
        expected.tensor[expected.n++] =
            weft_tensor_dense(data, got.tensor[i].dtype, got.tensor[i].shape);
    }
    compute(sample->attr, in, sample->n_in, expected.tensor);
    const bool single = got.n && got.tensor[0].dtype == WEFT_F32; /* the op takes no f64 */
    expect_near(op, index, "differs from the reference by", distance(&got, &expected),
                single ? SAMPLE_F32 : SAMPLE_F64);
    for (size_t i = 0; i < sample->n_in; i++) free(in[i].data);
    free_outputs(&got);
    free_outputs(&expected);
}

static void test_reference(void)
{
    each_sample(against_reference);
}

static void against_expansion(const weft_op *op, size_t index, const weft_sample *sample)
{
    outputs a, b;
    variant v = plain;
    if (!op->expand) return;
    if (!run_or_report(op, index, sample, v, &a)) return;
    v.expanded = true;
    if (run_or_report(op, index, sample, v, &b)) {
        expect_near(op, index, "differs from its expansion by", distance(&a, &b), SAMPLE_F64);
        free_outputs(&b);
    }
    free_outputs(&a);
}

static void test_expansion(void)
{
    each_sample(against_expansion);
}

static bool has_float(const weft_sample *sample)
{
    for (size_t i = 0; i < sample->n_in; i++)
        if (sample->in[i].dtype == WEFT_FLOAT) return true;
    return false;
}

static void against_single(const weft_op *op, size_t index, const weft_sample *sample)
{
    outputs a, b;
    variant v = plain;
    if (!has_float(sample)) return;
    v.dtype = WEFT_F32;
    if (!run_or_report(op, index, sample, v, &a)) return;
    if (run_or_report(op, index, sample, plain, &b)) {
        expect_near(op, index, "f32 differs from f64 by", distance(&a, &b), SAMPLE_F32);
        free_outputs(&b);
    }
    free_outputs(&a);
}

static void test_single(void)
{
    each_sample(against_single);
}

static void with_strides(const weft_op *op, size_t index, const weft_sample *sample)
{
    outputs a, b;
    variant v = plain;
    if (!sample->n_in || !run_or_report(op, index, sample, v, &a)) return;
    v.strided = true;
    if (run_or_report(op, index, sample, v, &b)) {
        expect_near(op, index, "strided inputs change the result by", distance(&a, &b),
                    ROUNDING_F64);
        free_outputs(&b);
    }
    free_outputs(&a);
}

static void test_strided(void)
{
    each_sample(with_strides);
}

static void with_threads(const weft_op *op, size_t index, const weft_sample *sample)
{
    static const int threads[] = {2, 3, 4, 8};
    outputs a, b;
    variant v = plain;
    v.dtype = WEFT_F32;
    if (!run_or_report(op, index, sample, v, &a)) return;
    for (size_t i = 0; i < 4; i++) {
        v.threads = threads[i];
        if (!run_or_report(op, index, sample, v, &b)) break;
        if (!same_bits(&a, &b)) report(op, index, "other bits at threads", threads[i]);
        free_outputs(&b);
    }
    free_outputs(&a);
}

static void test_threads(void)
{
    each_sample(with_threads);
    CU_PASS("same bits");
}

/* Each instruction set that this processor has agrees with the reference build. */
static void with_isas(const weft_op *op, size_t index, const weft_sample *sample)
{
    static const char *const names[] = {"base", "v3", "v4", "v4_bf16", "v4_amx"};
    outputs a, b;
    const char *old = getenv("WEFT_ISA");
    char *kept = old ? strdup(old) : NULL;
    weft__os_set_variable("WEFT_ISA", "base");
    bool good = run_or_report(op, index, sample, plain, &a);
    for (int isa = 1; good && isa < WEFT_ISAS; isa++) {
        weft__os_set_variable("WEFT_ISA", names[isa]);
        if (!run_or_report(op, index, sample, plain, &b)) break;
        expect_near(op, index, names[isa], distance(&b, &a), SAMPLE_F64);
        free_outputs(&b);
    }
    if (good) free_outputs(&a);
    weft__os_set_variable("WEFT_ISA", NULL);
    if (kept) weft__os_set_variable("WEFT_ISA", kept);
    free(kept);
}

static void test_isas(void)
{
    if (weft__isa_best() < WEFT_ISA_V4)
        test_skip("some instruction sets", "this processor has no AVX-512");
    each_sample(with_isas);
}

/* Wrong calls of every op: a status and a message that names the op; never a crash. */
static void test_wrong_calls(void)
{
    for (size_t i = 4; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        const weft_sample *sample = &op->samples[0];
        weft_value in[WEFT_SAMPLE_INPUTS + 1] = {{0, 0}};
        if (!op->n_samples) continue;
        for (int wrong = 0; wrong < 4; wrong++) {
            weft_graph *g = weft_graph_new(), *other = weft_graph_new();
            size_t n = sample->n_in;
            if (n == 0 && wrong > 0) {
                weft_graph_free(g);
                weft_graph_free(other);
                continue;
            }
            for (size_t k = 0; k < n; k++) {
                char name[32];
                snprintf(name, sizeof name, "x%zu", k);
                weft_dtype d = input_dtype(sample, k, WEFT_F32);
                weft_graph *home = wrong == 2 && k == n - 1 ? other : g;
                in[k] = weft_state(home, name, d, sample->in[k].shape, WEFT_INIT_ZEROS);
            }
            if (wrong == 0) n = op->min_in ? op->min_in - 1u : op->max_in + 1u;
            if (wrong == 1) in[n - 1] = WEFT_NO_VALUE;
            if (wrong == 3) {
                weft_shape huge = {7, {3, 1, 4, 1, 5, 9, 2}};
                in[0] = weft_state(g, "odd", WEFT_BOOL, huge, WEFT_INIT_ZEROS);
            }
            for (size_t k = sample->n_in; k < n; k++) in[k] = in[0];
            weft_value y = weft_apply(g, op, sample->attr, in, n, NULL);
            const weft_error *e = weft_graph_error(g);
            bool refused = e->status != WEFT_OK && !weft_is_value(y);
            if (refused ? !strstr(e->where, op->name) || !e->message[0] : wrong < 3)
                report(op, 0, "a wrong call is not refused properly, kind", wrong);
            weft_graph_free(g);
            weft_graph_free(other);
        }
    }
    CU_PASS("refused");
}

/* Attributes as the ops' files have them. */
typedef struct reduce_attr {
    int32_t count, axis[WEFT_MAX_RANK];
    bool keepdims;
    int32_t correction;
} reduce_attr;
typedef struct scan_attr {
    int32_t axis;
    bool keepdims, reverse;
} scan_attr;
typedef struct dropout_attr {
    double p;
    uint64_t key;
} dropout_attr;
static const reduce_attr over_first = {1, {0}, false, 1}, over_all = {0, {0}, false, 1},
                         over_outer = {2, {0, 2}, false, 0}, over_middle = {1, {1}, false, 1};
static const scan_attr scan_forward = {0, false, false}, scan_reverse = {1, false, true},
                       scan_last = {2, false, false};
static const int32_t second_last = 1, third_last = 2;

/* Samples large enough for what the descriptors' small ones do not reach: several tiles, pieces
 * that a second phase merges, ranges of columns that end within a row. */
#define LARGE(...)                                                                                 \
    {                                                                                              \
        WEFT_FLOAT, {__VA_ARGS__}, -2, 2, false                                                    \
    }
static const weft_sample large_reductions[] = {
    {&over_first, 1, {LARGE(2, {700, 300})}},    {&over_all, 1, {LARGE(1, {70001})}},
    {&over_outer, 1, {LARGE(3, {9, 5, 4100})}},  {&over_middle, 1, {LARGE(3, {2, 600, 70})}},
    {&over_middle, 1, {LARGE(3, {40, 50, 33})}}, {&over_first, 1, {LARGE(3, {1300, 7, 1})}},
};
static const weft_sample large_scans[] = {
    {&scan_forward, 1, {LARGE(2, {300, 400})}},
    {&scan_reverse, 1, {LARGE(3, {3, 90, 300})}},
    {&scan_last, 1, {LARGE(3, {30, 2, 1000})}},
};
static const weft_sample large_softmax[] = {
    {&second_last, 2, {LARGE(3, {3, 90, 300}), LARGE(3, {3, 90, 300})}},
    {&third_last, 2, {LARGE(3, {40, 7, 80}), LARGE(3, {40, 7, 80})}},
};
/* Channels in pieces, channels of one tile, wide rows, rows of channels, small images. */
static const double eps = 1e-5;
#define POSITIVE(n)                                                                                \
    {                                                                                              \
        WEFT_FLOAT, {1, {n}}, 0.5, 1.5, false                                                      \
    }
#define BATCH(channels, ...)                                                                       \
    {                                                                                              \
        &eps, 5,                                                                                   \
        {                                                                                          \
            LARGE(__VA_ARGS__), LARGE(1, {channels}), POSITIVE(channels), LARGE(__VA_ARGS__),      \
                LARGE(1, {channels})                                                               \
        }                                                                                          \
    }
static const weft_sample large_batch_norm[] = {
    BATCH(2, 4, {3, 2, 120, 130}), BATCH(3, 3, {2, 3, 20000}), BATCH(33, 4, {2, 33, 130, 131}),
    BATCH(40, 2, {300, 40}),       BATCH(3, 2, {40000, 3}),    BATCH(40, 3, {300, 40, 3}),
    BATCH(35, 4, {40, 35, 5, 7}),
};
static const weft_sample large_dropout[] = {
    {&(const dropout_attr){0.3, 0x123456789ABCDEF}, 1, {LARGE(2, {7, 5011})}},
};
static const struct {
    const char *op;
    const weft_sample *samples;
    size_t n_samples, n_in;
} large[] = {
    {"dropout", large_dropout, 1, 1},
    {"sum", large_reductions, 6, 1},
    {"mean", large_reductions, 6, 1},
    {"max", large_reductions, 6, 1},
    {"min", large_reductions, 6, 1},
    {"variance", large_reductions, 6, 1},
    {"logsumexp", large_reductions, 6, 1},
    {"argmax", large_scans, 3, 1},
    {"cumsum", large_scans, 3, 1},
    {"softmax", large_softmax, 2, 1},
    {"log_softmax", large_softmax, 2, 1},
    {"softmax_grad", large_softmax, 2, 2},
    {"log_softmax_grad", large_softmax, 2, 2},
    {"batch_norm", large_batch_norm, 7, 3},
    {"batch_norm_grad", large_batch_norm, 7, 5},
};

static void test_large(void)
{
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        const weft_op *op = weft_op_find(large[i].op);
        for (size_t k = 0; k < large[i].n_samples; k++) {
            weft_sample sample = large[i].samples[k];
            sample.n_in = large[i].n_in;
            against_reference(op, 100 + k, &sample);
            against_expansion(op, 100 + k, &sample);
            with_threads(op, 100 + k, &sample);
            with_isas(op, 100 + k, &sample);
            if (strcmp(op->name, "argmax")) with_strides(op, 100 + k, &sample);
        }
    }
}

void ops_tests(void)
{
    CU_pSuite suite = CU_add_suite("ops", NULL, NULL);
    CU_add_test(suite, "descriptors are complete", test_descriptors);
    CU_add_test(suite, "f64 kernels equal naive references", test_reference);
    CU_add_test(suite, "kernels equal expansions", test_expansion);
    CU_add_test(suite, "f32 equals f64", test_single);
    CU_add_test(suite, "strided inputs", test_strided);
    CU_add_test(suite, "same bits at 1, 2, 3, 4, 8 threads", test_threads);
    CU_add_test(suite, "instruction sets agree", test_isas);
    CU_add_test(suite, "wrong calls are refused", test_wrong_calls);
    CU_add_test(suite, "large tensors, in several tiles", test_large);
}
