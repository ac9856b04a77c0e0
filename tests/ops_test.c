/* Tests generated from the list of ops: every op on each of its samples. */
#include "reference.h"
#include "tests.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How a sample is run. */
typedef struct variant {
    weft_dtype dtype;
    int threads;
    bool strided;  /* inputs are every other element of a larger tensor */
    bool expanded; /* the op's expansion instead of the op */
} variant;

typedef struct outputs {
    size_t n;
    weft_tensor tensor[WEFT_MAX_OUTPUTS]; /* dense, own data */
} outputs;

static void free_outputs(outputs *o)
{
    for (size_t i = 0; i < o->n; i++) free(o->tensor[i].data);
    o->n = 0;
}

static weft_dtype input_dtype(const weft_sample *sample, size_t i, weft_dtype dtype)
{
    return sample->in[i].dtype == WEFT_FLOAT ? dtype : sample->in[i].dtype;
}

/* The sample's values; those of f32 are f64's rounded, so that dtypes can be compared. */
static weft_tensor input_data(const weft_sample *sample, size_t i, weft_dtype dtype)
{
    weft_dtype d = input_dtype(sample, i, dtype);
    int64_t n = weft_shape_numel(sample->in[i].shape);
    void *data = calloc((size_t)n + 1, 8);
    weft_sample_fill(&sample->in[i], d, 1 + 100 * i, data);
    return weft_tensor_dense(data, d, sample->in[i].shape);
}

static weft_value strided_input(weft_graph *g, const char *name, const weft_tensor *t)
{
    weft_shape wide = t->shape;
    if (wide.rank == WEFT_MAX_RANK) return weft_input(g, name, t->dtype, t->shape);
    wide.dim[wide.rank++] = 2;
    weft_value x = weft_slice(g, weft_input(g, name, t->dtype, wide), -1, 0, 1, 1);
    return weft_reshape(g, x, t->shape);
}

static bool feed_input(weft_session *s, weft_value x, const weft_tensor *t, bool strided)
{
    size_t size = weft_dtype_bytes(t->dtype), n = (size_t)weft_shape_numel(t->shape);
    if (!strided) return weft_feed(s, x, t->data, n * size) == WEFT_OK;
    char *wide = calloc(2 * n + 1, size);
    for (size_t i = 0; i < n; i++) memcpy(wide + 2 * i * size, (char *)t->data + i * size, size);
    bool good = weft_feed(s, x, wide, 2 * n * size) == WEFT_OK;
    free(wide);
    return good;
}

/* Builds a graph of the sample's one node, runs it, and takes the outputs. */
static bool run_sample(const weft_op *op, const weft_sample *sample, variant v, outputs *out,
                       weft_error *error)
{
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    weft_value in[WEFT_SAMPLE_INPUTS], results[WEFT_MAX_OUTPUTS] = {{0, 0}};
    weft_tensor data[WEFT_SAMPLE_INPUTS];
    memset(out, 0, sizeof *out);
    memset(error, 0, sizeof *error);
    for (size_t i = 0; i < sample->n_in; i++) {
        char name[32];
        weft_tensor t;
        snprintf(name, sizeof name, "x%zu", i);
        data[i] = input_data(sample, i, v.dtype);
        if (i < op->updates) {
            in[i] = weft_state(g, name, data[i].dtype, data[i].shape, WEFT_INIT_ZEROS);
            weft_params_add(params, name, data[i].dtype, data[i].shape, &t, NULL);
            memcpy(t.data, data[i].data, weft_tensor_bytes(t.dtype, t.shape));
        } else {
            in[i] = v.strided ? strided_input(g, name, &data[i])
                              : weft_input(g, name, data[i].dtype, data[i].shape);
        }
    }
    if (v.expanded) {
        weft_expand e = {g, sample->attr, sample->n_in, op->n_out, in, results};
        op->expand(&e);
    } else {
        weft_apply(g, op, sample->attr, in, sample->n_in, results);
    }
    weft_plan *plan =
        weft_plan_new(g, results, op->n_out, &(weft_plan_options){.verify = true}, error);
    weft_session *s = NULL;
    if (plan)
        s = weft_session_new(plan, params,
                             &(weft_session_options){.threads = v.threads, .poison = true}, error);
    bool good = s != NULL;
    for (size_t i = op->updates; i < sample->n_in && good; i++) {
        char name[32];
        snprintf(name, sizeof name, "x%zu", i);
        good = feed_input(s, weft_find(g, name), &data[i], v.strided);
    }
    if (good && weft_run(s) != WEFT_OK) {
        *error = *weft_session_error(s);
        good = false;
    }
    for (size_t i = 0; i < op->n_out && good; i++) {
        weft_tensor t;
        good = weft_session_tensor(s, results[i], &t);
        if (!good) break;
        size_t bytes = weft_tensor_bytes(t.dtype, t.shape);
        void *copy = malloc(bytes + 1);
        memcpy(copy, t.data, bytes);
        out->tensor[out->n++] = weft_tensor_dense(copy, t.dtype, t.shape);
    }
    for (size_t i = 0; i < sample->n_in; i++) free(data[i].data);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
    return good;
}

static double element(const weft_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case WEFT_F32:
        return (double)((float *)t->data)[i];
    case WEFT_F64:
        return ((double *)t->data)[i];
    case WEFT_I32:
        return ((int32_t *)t->data)[i];
    default:
        return ((uint8_t *)t->data)[i];
    }
}

/* Largest difference over all outputs, relative to max(1, |b|); infinite for other shapes. */
static double distance(const outputs *a, const outputs *b)
{
    double worst = 0;
    if (a->n != b->n) return INFINITY;
    for (size_t k = 0; k < a->n; k++) {
        if (!weft_shape_equal(a->tensor[k].shape, b->tensor[k].shape)) return INFINITY;
        for (int64_t i = 0; i < weft_shape_numel(a->tensor[k].shape); i++) {
            double x = element(&a->tensor[k], i), y = element(&b->tensor[k], i);
            double off = isnan(x) && isnan(y) ? 0 : fabs(x - y) / fmax(1, fabs(y));
            if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
        }
    }
    return worst;
}

static bool same_bits(const outputs *a, const outputs *b)
{
    if (a->n != b->n) return false;
    for (size_t k = 0; k < a->n; k++)
        if (memcmp(a->tensor[k].data, b->tensor[k].data,
                   weft_tensor_bytes(a->tensor[k].dtype, a->tensor[k].shape)) != 0)
            return false;
    return true;
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

static void test_descriptors(void)
{
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        bool leaf = i < 4, kernel = weft_op_kernel(op, WEFT_ISA_BASE, WEFT_F64) ||
                                    weft_op_kernel(op, WEFT_ISA_BASE, WEFT_BOOL);
        CU_ASSERT_TRUE(op->doc && strlen(op->doc) > 4);
        CU_ASSERT_PTR_EQUAL(weft_op_find(op->name), op);
        CU_ASSERT_TRUE(leaf || kernel || op->alias || op->expand);
        CU_ASSERT_TRUE(leaf || op->n_samples > 0);
        CU_ASSERT_TRUE((op->gradient == WEFT_GRADIENT_VJP) == (op->vjp || op->expand));
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
    expect_near(op, index, "differs from the reference by", distance(&got, &expected), 1e-12);
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
        expect_near(op, index, "differs from its expansion by", distance(&a, &b), 1e-12);
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
        expect_near(op, index, "f32 differs from f64 by", distance(&a, &b), 3e-5);
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
        expect_near(op, index, "strided inputs change the result by", distance(&a, &b), 1e-13);
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
    static const char *const names[] = {"base", "v3", "v4"};
    outputs a, b;
    const char *old = getenv("WEFT_ISA");
    char *kept = old ? strdup(old) : NULL;
    setenv("WEFT_ISA", "base", 1);
    bool good = run_or_report(op, index, sample, plain, &a);
    for (int isa = 1; good && isa < WEFT_ISAS; isa++) {
        setenv("WEFT_ISA", names[isa], 1);
        if (!run_or_report(op, index, sample, plain, &b)) break;
        expect_near(op, index, names[isa], distance(&b, &a), 1e-12);
        free_outputs(&b);
    }
    if (good) free_outputs(&a);
    unsetenv("WEFT_ISA");
    if (kept) setenv("WEFT_ISA", kept, 1);
    free(kept);
}

static void test_isas(void)
{
    if (weft_isa_best() != WEFT_ISA_V4)
        test_skip("some instruction sets", "this processor has no AVX-512");
    each_sample(with_isas);
}

static void gradients(const weft_op *op, size_t index, const weft_sample *sample)
{
    static const double limits[] = {1e-6, 1e-4};
    (void)sample;
    for (int order = 1; order <= 2; order++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            weft_check_result r;
            weft_error error = {0};
            if (weft_check_op(op, index, order, -1, seed, &r, &error) != WEFT_OK) {
                fprintf(stderr, "\n    %s: %s: %s\n", op->name, error.where, error.message);
                report(op, index, "the gradient cannot be checked, order", order);
            } else {
                expect_near(op, index, r.where, r.worst_error, limits[order - 1]);
            }
        }
}

static void test_gradients(void)
{
    each_sample(gradients);
}

/* Of relu_grad's first input only the sign counts: its gradient is zero. */
static bool gradient_is_zero(const weft_op *op, size_t input)
{
    return !strcmp(op->name, "relu_grad") && input == 0;
}

/* A flipped sign in any one gradient must fail the check, unless the gradient is zero. */
static void test_flipped(void)
{
    size_t caught = 0;
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        if (op->gradient != WEFT_GRADIENT_VJP || !op->n_samples) continue;
        for (size_t k = 0; k < op->samples[0].n_in; k++) {
            weft_check_result r;
            if (op->samples[0].in[k].dtype != WEFT_FLOAT || gradient_is_zero(op, k)) continue;
            CU_ASSERT_EQUAL(weft_check_op(op, 0, 1, (int)k, 1, &r, NULL), WEFT_OK);
            if (r.worst_error > 1e-3) {
                caught++;
            } else {
                report(op, 0, "a flipped gradient passes, input", (double)k);
            }
        }
    }
    CU_ASSERT_TRUE(caught > 60);
}

/* Wrong calls of every op: a status and a message that names the op; never a crash. */
static void test_wrong_calls(void)
{
    for (size_t i = 4; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        const weft_sample *sample = &op->samples[0];
        weft_value in[WEFT_SAMPLE_INPUTS + 1] = {{0, 0}};
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

/* Samples large enough for what the descriptors' small ones do not reach: several parts, pieces
 * that a second stage merges, stretches of columns that end within a row. */
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
};

static void test_large(void)
{
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        const weft_op *op = weft_op_find(large[i].op);
        for (size_t k = 0; k < large[i].n_samples; k++) {
            weft_sample sample = large[i].samples[k];
            sample.n_in = large[i].n_in;
            against_reference(op, 100 + k, &sample);
            with_threads(op, 100 + k, &sample);
            with_isas(op, 100 + k, &sample);
            if (strcmp(op->name, "argmax")) with_strides(op, 100 + k, &sample);
        }
    }
}

/* Infinities and NaN in the last of many pieces and rows, of which x has 3000. */
static void test_far_specials(void)
{
    enum { ROWS = 3000, COLUMNS = 300, CASES = 10 };
    static float data[ROWS * COLUMNS];
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(ROWS, COLUMNS)), last[CASES];
    const weft_axes first = WEFT_AXES(0), all = {0, {0}};
    /* Column 0 is -inf but for a 3 in the last row, the last column has one NaN, the others +inf.
     */
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) data[i] = i % COLUMNS ? 1 : -INFINITY;
    data[(ROWS - 1) * COLUMNS] = 3;
    data[ROWS * COLUMNS - 1] = NAN;
    data[(ROWS - 1) * COLUMNS + 1] = INFINITY;
    weft_value columns[5] = {weft_max(g, x, first, false), weft_logsumexp(g, x, first, false),
                             weft_min(g, x, first, false), weft_variance(g, x, first, false, 1),
                             weft_cast(g, weft_argmax(g, x, 0, false), WEFT_F32)};
    static const float expected[5][3] = {{3, INFINITY, NAN},
                                         {3, INFINITY, NAN},
                                         {-INFINITY, 1, NAN},
                                         {NAN, NAN, NAN},
                                         {ROWS - 1, ROWS - 1, ROWS - 1}};
    memcpy(last, columns, sizeof columns);
    last[5] = weft_max(g, x, all, false);
    last[6] = weft_min(g, x, all, false);
    last[7] = weft_logsumexp(g, x, all, false);
    last[8] = weft_sum(g, x, all, false);
    last[9] = weft_variance(g, x, all, false, 0);
    weft_error error;
    weft_plan *plan = weft_plan_new(g, last, CASES, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL_FATAL(weft_feed(s, x, data, sizeof data), WEFT_OK);
    CU_ASSERT_EQUAL(weft_run(s), WEFT_OK);
    for (int i = 0; i < CASES; i++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, last[i], &t));
        const float *y = t.data;
        for (int k = 0; k < (i < 5 ? 3 : 1); k++) {
            const float want = i < 5 ? expected[i][k] : NAN, got = y[k == 2 ? COLUMNS - 1 : k];
            CU_ASSERT_TRUE(got == want || (isnan(got) && isnan(want)));
        }
        if (i < 2) CU_ASSERT_TRUE(i ? fabs((double)y[2] - log(ROWS) - 1) < 1e-6 : y[2] == 1);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A dense copy of x with its axes in another order, or of every second row, element by element. */
static void check_copy(weft_dtype dtype, weft_shape shape, weft_axes order, bool halve)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", dtype, shape);
    weft_value view = weft_permute(g, x, order);
    if (halve) view = weft_slice(g, view, 0, 0, weft_dim(g, view, 0), 2);
    weft_value y = weft_contiguous(g, view);
    const weft_shape to = weft_shape_of(g, y);
    const size_t each = weft_dtype_bytes(dtype), n = (size_t)weft_shape_numel(shape);
    unsigned char *data = malloc(n * each + 1);
    for (size_t i = 0; i < n; i++) {
        const double number = (double)i;
        if (dtype == WEFT_BOOL)
            data[i] = i % 251 % 2;
        else
            memcpy(data + i * each, dtype == WEFT_F64 ? (void *)&number : (void *)&i, each);
    }
    weft_error error;
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL_FATAL(weft_feed(s, x, data, n * each), WEFT_OK);
    CU_ASSERT_EQUAL(weft_run(s), WEFT_OK);
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, y, &t));
    int64_t wrong = 0;
    for (int64_t i = 0; i < weft_shape_numel(to); i++) {
        int64_t index[WEFT_MAX_RANK], from = 0, rest = i;
        for (int d = to.rank - 1; d >= 0; d--) {
            index[order.axis[d]] = rest % to.dim[d] * (halve && d == 0 ? 2 : 1);
            rest /= to.dim[d];
        }
        for (int d = 0; d < shape.rank; d++) from = from * shape.dim[d] + index[d];
        wrong += memcmp((char *)t.data + (size_t)i * each, data + (size_t)from * each, each) != 0;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    free(data);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* Sizes around those of blocks and parts. */
static void test_copies(void)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_I32, WEFT_BOOL};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (int halve = 0; halve < 2; halve++) {
            check_copy(dtypes[i], WEFT_SHAPE(19, 37), WEFT_AXES(1, 0), halve);
            check_copy(dtypes[i], WEFT_SHAPE(70, 1100), WEFT_AXES(1, 0), halve);
            check_copy(dtypes[i], WEFT_SHAPE(1100, 70), WEFT_AXES(1, 0), halve);
            check_copy(dtypes[i], WEFT_SHAPE(3, 50, 34), WEFT_AXES(0, 2, 1), halve);
            check_copy(dtypes[i], WEFT_SHAPE(5, 18, 33), WEFT_AXES(2, 0, 1), halve);
            check_copy(dtypes[i], WEFT_SHAPE(5, 18, 33), WEFT_AXES(1, 0, 2), halve);
            check_copy(dtypes[i], WEFT_SHAPE(3, 17, 4, 20), WEFT_AXES(2, 3, 1, 0), halve);
            check_copy(dtypes[i], WEFT_SHAPE(2, 3, 1, 40), WEFT_AXES(3, 2, 0, 1), halve);
        }
}

/* x - z of rows of `row` elements, z a row, a column or a transposed matrix, over several tiles. */
static void check_narrow(int64_t rows, int64_t row)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(rows, row));
    weft_value other[3] = {weft_slice(g, x, 0, 1, 2, 1), weft_slice(g, x, 1, 0, 1, 1),
                           weft_transpose(g, weft_reshape(g, x, WEFT_SHAPE(row, rows)), 0, 1)};
    weft_value y[4];
    for (int k = 0; k < 3; k++) y[k] = weft_sub(g, x, other[k]);
    y[3] = weft_less(g, other[0], x);
    const size_t n = (size_t)(rows * row);
    float *data = malloc(n * sizeof *data);
    for (size_t i = 0; i < n; i++) data[i] = (float)(i * 7919 % 104729);
    weft_error error;
    weft_plan *plan = weft_plan_new(g, y, 4, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL_FATAL(weft_feed(s, x, data, n * sizeof *data), WEFT_OK);
    CU_ASSERT_EQUAL(weft_run(s), WEFT_OK);
    weft_tensor t[4];
    for (int k = 0; k < 4; k++) CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, y[k], &t[k]));
    int64_t wrong = 0;
    for (int64_t i = 0; i < rows * row; i++) {
        const int64_t r = i / row, c = i % row;
        const float z[3] = {data[row + c], data[r * row], data[c * rows + r]};
        for (int k = 0; k < 3; k++) wrong += ((float *)t[k].data)[i] != data[i] - z[k];
        wrong += ((uint8_t *)t[3].data)[i] != (z[0] < data[i]);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    free(data);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_narrow(void)
{
    static const int64_t row[] = {1, 2, 7, 8, 31, 32, 33};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        check_narrow(3, row[i]);
        check_narrow(6001, row[i]);
    }
}

/* What the header promises at the edges. */
static void test_edges(void)
{
    weft_graph *g = weft_graph_new();
    weft_value low = weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 3), -INFINITY);
    weft_value none = weft_fill(g, WEFT_F32, WEFT_SHAPE(0, 3), 1);
    weft_value targets[] = {weft_softmax(g, low, -1),
                            weft_logsumexp(g, low, WEFT_AXES(1), false),
                            weft_sum(g, none, WEFT_AXES(0), false),
                            weft_max(g, none, WEFT_AXES(0), false),
                            weft_mean(g, none, WEFT_AXES(0), false),
                            WEFT_NO_VALUE,
                            WEFT_NO_VALUE};
    static const float expected[] = {0, -INFINITY, 0, -INFINITY, NAN, INFINITY, 0};
    /* A row without probabilities: an infinite loss, but no gradient. */
    weft_value p = weft_input(g, "p", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_value first = weft_fill(g, WEFT_I32, WEFT_SHAPE(2), 0);
    targets[5] = weft_cross_entropy(g, p, first, NULL);
    weft_grad(g, targets[5], &p, 1, &targets[6]);
    static const float dead[6] = {-INFINITY, -INFINITY, -INFINITY, 0, -INFINITY, -INFINITY};
    weft_error error;
    weft_plan *plan = weft_plan_new(g, targets, 7, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL(weft_feed(s, p, dead, sizeof dead), WEFT_OK);
    CU_ASSERT_EQUAL(weft_run(s), WEFT_OK);
    for (size_t i = 0; i < 7; i++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, targets[i], &t));
        float x = *(float *)t.data;
        CU_ASSERT_TRUE(x == expected[i] || (isnan(x) && isnan(expected[i])));
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* The extremes of rows in which nothing is finite, or the outermost finite number. */
static void test_outermost(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3, 40));
    weft_value low = weft_max(g, x, WEFT_AXES(1), false), least = weft_argmax(g, x, 1, false);
    weft_value high = weft_min(g, weft_neg(g, x), WEFT_AXES(1), false);
    weft_value soft = weft_log_softmax(g, x, 1), targets[] = {low, least, high, soft};
    float in[3][40], most[3], smallest[3], logs[3][40];
    int32_t at[3];
    for (int c = 0; c < 40; c++) {
        in[0][c] = -INFINITY;
        in[1][c] = c == 37 ? -FLT_MAX : -INFINITY;
        in[2][c] = -FLT_MAX;
    }
    weft_error error;
    weft_plan *plan = weft_plan_new(g, targets, 4, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL(weft_feed(s, x, in, sizeof in), WEFT_OK);
    CU_ASSERT_EQUAL(weft_run(s), WEFT_OK);
    CU_ASSERT_EQUAL(weft_fetch(s, low, most, sizeof most), WEFT_OK);
    CU_ASSERT_EQUAL(weft_fetch(s, least, at, sizeof at), WEFT_OK);
    CU_ASSERT_EQUAL(weft_fetch(s, high, smallest, sizeof smallest), WEFT_OK);
    CU_ASSERT_EQUAL(weft_fetch(s, soft, logs, sizeof logs), WEFT_OK);
    static const float expected[] = {-INFINITY, -FLT_MAX, -FLT_MAX};
    static const int32_t places[] = {0, 37, 0};
    for (int r = 0; r < 3; r++) {
        CU_ASSERT_EQUAL(most[r], expected[r]);
        CU_ASSERT_EQUAL(smallest[r], -expected[r]);
        CU_ASSERT_EQUAL(at[r], places[r]);
    }
    CU_ASSERT_EQUAL(logs[1][37], 0.0f);
    CU_ASSERT_EQUAL(logs[1][0], -INFINITY);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* The builders that are made of other ops, on 0, 1, 2, ... */
static void test_composites(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_reshape(g, weft_arange(g, WEFT_F32, 6, 0, 1), WEFT_SHAPE(2, 3)), piece[3];
    weft_value chunk[2], pair[2] = {x, weft_neg(g, x)};
    weft_split(g, x, 1, (const int64_t[]){1, 0, 2}, 3, piece);
    weft_chunk(g, x, 0, 2, chunk);
    const struct {
        weft_value value;
        weft_shape shape;
        float first[6];
    } rows[] = {
        {piece[0], {2, {2, 1}}, {0, 3}},
        {piece[1], {2, {2, 0}}, {0}},
        {piece[2], {2, {2, 2}}, {1, 2, 4, 5}},
        {chunk[1], {2, {1, 3}}, {3, 4, 5}},
        {weft_flip(g, x, -1), {2, {2, 3}}, {2, 1, 0, 5, 4, 3}},
        {weft_slice(g, x, 1, -1, 0, -2), {2, {2, 1}}, {2, 5}},
        {weft_slice(g, x, 1, 1, 100, 1), {2, {2, 2}}, {1, 2, 4, 5}},
        {weft_stack(g, pair, 2, 1), {3, {2, 2, 3}}, {0, 1, 2, 0, -1, -2}},
        {weft_stack(g, pair, 2, -1), {3, {2, 3, 2}}, {0, 0, 1, -1, 2, -2}},
        {weft_squeeze(g, weft_expand_dims(g, x, 0), 0), {2, {2, 3}}, {0, 1, 2, 3, 4, 5}},
        {weft_transpose(g, x, 0, 1), {2, {3, 2}}, {0, 3, 1, 4, 2, 5}},
        {weft_tril(g, x, 0), {2, {2, 3}}, {0, 0, 0, 3, 4, 0}},
        {weft_cast(g, weft_causal_mask(g, 2, 3), WEFT_F32), {2, {2, 3}}, {0, 0, 1, 0, 0, 0}},
        {weft_cast(g, weft_fill(g, WEFT_I32, WEFT_SHAPE(1), 1e9), WEFT_F32), {1, {1}}, {1e9f}},
        {weft_cast(g, weft_fill(g, WEFT_BOOL, WEFT_SHAPE(2), 1), WEFT_F32), {1, {2}}, {1, 1}},
        {weft_cast(g, weft_tril_mask(g, 2, 3, INT64_MAX), WEFT_F32),
         {2, {2, 3}},
         {1, 1, 1, 1, 1, 1}},
        {weft_cast(g, weft_tril_mask(g, 2, 3, INT64_MIN), WEFT_F32), {2, {2, 3}}, {0}},
        {weft_sum_to(g, x, WEFT_SHAPE(1, 3)), {2, {1, 3}}, {3, 5, 7}},
        {weft_pow_scalar(g, x, 2), {2, {2, 3}}, {0, 1, 4, 9, 16, 25}},
        {weft_softmax(g, weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 3), 7), 0), {2, {2, 3}}, {.5f, .5f}},
    };
    const size_t n = sizeof rows / sizeof *rows;
    weft_value targets[32];
    weft_error error = {0};
    for (size_t i = 0; i < n; i++) targets[i] = rows[i].value;
    weft_plan *plan = weft_plan_new(g, targets, n, &(weft_plan_options){.verify = true}, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_run(s), WEFT_OK);
    for (size_t i = 0; i < n; i++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, targets[i], &t));
        CU_ASSERT_TRUE(weft_shape_equal(t.shape, rows[i].shape));
        int64_t count = weft_shape_numel(t.shape) < 6 ? weft_shape_numel(t.shape) : 6;
        if (i == n - 1) count = 2;
        for (int64_t k = 0; k < count; k++) CU_ASSERT_EQUAL(((float *)t.data)[k], rows[i].first[k]);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* Builders refuse what their shape rules cannot see, or see too late. */
static void test_refusals(void)
{
    enum { ARGMAX, CUMSUM, SUM, CONCAT, STACK, SLICE, GATHER, SCATTER, TRIL, MOMENTUM, CASES };
    static const int axes[] = {-4, -3, 3, INT32_MIN, INT32_MAX};
    for (size_t k = 0; k < sizeof axes / sizeof *axes; k++)
        for (int i = 0; i < CASES; i++) {
            weft_graph *g = weft_graph_new();
            const int axis = i == STACK && axes[k] == -3 ? -5 : axes[k];
            weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 3), 1), y = WEFT_NO_VALUE;
            weft_value at = weft_fill(g, WEFT_I32, WEFT_SHAPE(2, 3), 1), one[2] = {x, x};
            weft_value p = weft_param(g, "p", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ONES);
            weft_value lr = weft_scalar(g, WEFT_F32, 1);
            switch (i) {
            case ARGMAX:
                y = weft_argmax(g, x, axis, false);
                break;
            case CUMSUM:
                y = weft_cumsum(g, x, axis, false);
                break;
            case SUM:
                y = weft_sum(g, x, WEFT_AXES(axis), false);
                break;
            case CONCAT:
                y = weft_concat(g, one, 2, axis);
                break;
            case STACK:
                y = weft_stack(g, one, 2, axis);
                break;
            case SLICE:
                y = weft_slice(g, x, axis, 0, 1, 1);
                break;
            case GATHER:
                y = weft_gather(g, x, at, axis);
                break;
            case SCATTER:
                y = weft_scatter_add(g, x, at, x, axis);
                break;
            case TRIL:
                y = weft_tril(g, p, 0);
                break;
            default:
                y = weft_sgd_update(g, p, WEFT_NO_VALUE, p, lr, WEFT_NO_VALUE,
                                    &(weft_sgd_options){.momentum = 0.9});
            }
            CU_ASSERT_FALSE(weft_is_value(y));
            CU_ASSERT_NOT_EQUAL(weft_graph_status(g), WEFT_OK);
            weft_graph_free(g);
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
    CU_add_test(suite, "gradients of first and second order", test_gradients);
    CU_add_test(suite, "a flipped gradient is seen", test_flipped);
    CU_add_test(suite, "wrong calls are refused", test_wrong_calls);
    CU_add_test(suite, "large tensors, in several parts", test_large);
    CU_add_test(suite, "copies in another order", test_copies);
    CU_add_test(suite, "narrow rows", test_narrow);
    CU_add_test(suite, "infinities and NaN in far parts", test_far_specials);
    CU_add_test(suite, "edges", test_edges);
    CU_add_test(suite, "the outermost numbers of rows", test_outermost);
    CU_add_test(suite, "builders made of other ops", test_composites);
    CU_add_test(suite, "builders refuse axes outside the rank", test_refusals);
}
