/* Values that are stored as bf16: every op and its gradient against f64, products of all shapes,
 * and whole models. */
#include "samples.h"
#include "tests.h"

#include "base/platform.h"
#include "ir/isa.h"

#include <stdlib.h>
#include <string.h>

#define EPSILON 0x1p-8 /* of bf16: twice the largest relative error of rounding */

static const weft_plan_options narrow = {
    .precision = WEFT_PRECISION_BF16, .min_narrow = 1, .verify = true};

/* The nearest bf16 of x, as the kernels round, by another way: through the fraction. */
static double rounded(double x)
{
    int exponent;
    const double fraction = frexp((double)(float)x, &exponent);
    return isfinite(x) ? ldexp(nearbyint(fraction * 256), exponent - 8) : x;
}

static void round_all(weft_tensor *t)
{
    for (int64_t i = 0; weft_dtype_is_float(t->dtype) && i < weft_shape_numel(t->shape); i++) {
        const double x = rounded(weft_tensor_element(t, i));
        if (t->dtype == WEFT_F64)
            ((double *)t->data)[i] = x;
        else
            ((float *)t->data)[i] = (float)x;
    }
}

static void test_rounding(void)
{
    static const float samples[] = {0,       1,        1.00390625f, 1.01171875f, -3.14159265f,
                                    1e38f,   3.39e38f, INFINITY,    -INFINITY,   1e-40f,
                                    6.1e-5f, 255.5f,   257.0f,      65535.0f};
    enum { N = 4096, SAMPLES = sizeof samples / sizeof *samples };
    float x[N], y[N];
    uint64_t state = 7;
    for (int i = 0; i < N; i++)
        x[i] = i < SAMPLES ? samples[i] : (float)test_uniform(&state, -1000, 1000);
    x[SAMPLES] = NAN;
    weft_graph *g = weft_graph_new();
    weft_value in = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(N));
    weft_value stored = weft_neg(g, in), out = weft_neg(g, stored);
    weft_error error = WEFT_NO_ERROR;
    weft_plan *plan = weft_plan_new(g, &out, 1, &narrow, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_plan_stats_of(plan).narrow, 1);
    CU_ASSERT_EQUAL(weft_session_feed(s, in, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, out, y, sizeof y, NULL), WEFT_OK);
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        const double want = rounded((double)x[i]);
        const bool overflows = fabs(want) >= 0x1p128;
        wrong += isnan(x[i])                     ? !isnan(y[i])
                 : overflows                     ? !isinf(y[i])
                 : fabs((double)x[i]) < 0x1p-126 ? fabs((double)y[i] - (double)x[i]) > 0x1p-134
                                                 : (double)y[i] != want;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* ---- Every op ---- */

/* Results of a sample: outputs, then gradients of the inputs, as doubles. */
typedef struct results {
    double *x;
    size_t n, outputs; /* elements; of outputs */
    size_t narrow;     /* values stored as bf16 */
} results;

static bool is_float(weft_graph *g, weft_value v)
{
    return weft_dtype_is_float(weft_dtype_of(g, v));
}

/* A node between the sample and the program's values, so that these may be stored as bf16. */
static weft_value behind_node(weft_graph *g, weft_value v)
{
    return is_float(g, v) ? weft_neg(g, weft_neg(g, v)) : v;
}

static void append(results *r, weft_session *s, weft_value v)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, v, &t, NULL) == WEFT_OK);
    const size_t n = (size_t)weft_shape_numel(t.shape);
    r->x = realloc(r->x, (r->n + n + 1) * sizeof *r->x);
    for (size_t i = 0; i < n; i++) r->x[r->n + i] = weft_tensor_element(&t, (int64_t)i);
    r->n += n;
}

/* Gradients of the sum of the outputs, each weighted by its own values, with respect to the floats
 * of the inputs; returns how many there are. */
static size_t add_gradients(weft_graph *g, const weft_op *op, const weft_value *out,
                            const weft_value *in, size_t n_in, weft_value *grads)
{
    weft_value loss = WEFT_NO_VALUE, wanted[WEFT_SAMPLE_INPUTS];
    size_t n = 0;
    if (op->gradient != WEFT_GRADIENT_VJP) return 0;
    for (size_t k = 0; k < op->n_out; k++) {
        if (!is_float(g, out[k])) continue;
        weft_value part = weft_sum(g, weft_mul_scalar(g, out[k], 0.5), WEFT_ALL_AXES, false);
        loss = weft_is_value(loss) ? weft_add(g, loss, part) : part;
    }
    for (size_t i = 0; i < n_in; i++)
        if (is_float(g, in[i])) wanted[n++] = in[i];
    if (!n || !weft_is_value(loss)) return 0;
    weft_grad(g, loss, wanted, n, grads);
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        if (weft_is_value(grads[i])) grads[found++] = grads[i];
    return found;
}

static bool run_both_passes(const weft_op *op, const weft_sample *sample, weft_dtype dtype,
                            const weft_plan_options *options, results *r)
{
    weft_graph *g = weft_graph_new();
    weft_value in[WEFT_SAMPLE_INPUTS], near[WEFT_SAMPLE_INPUTS], out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    weft_value targets[WEFT_MAX_OUTPUTS + WEFT_SAMPLE_INPUTS];
    weft_tensor data[WEFT_SAMPLE_INPUTS];
    weft_error error = WEFT_NO_ERROR;
    memset(r, 0, sizeof *r);
    for (size_t i = 0; i < sample->n_in; i++) {
        char name[32];
        snprintf(name, sizeof name, "x%zu", i);
        data[i] = input_data(sample, i, dtype);
        round_all(&data[i]);
        in[i] = weft_input(g, name, data[i].dtype, data[i].shape);
        near[i] = behind_node(g, in[i]);
    }
    weft_apply(g, op, sample->attr, near, sample->n_in, out);
    size_t n = 0;
    for (size_t k = 0; k < op->n_out; k++) targets[n++] = behind_node(g, out[k]);
    n += add_gradients(g, op, out, in, sample->n_in, targets + n);
    weft_plan *plan = weft_plan_new(g, targets, n, options, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    bool good = s != NULL;
    if (good) r->narrow = weft_plan_stats_of(plan).narrow;
    for (size_t i = 0; good && i < sample->n_in; i++)
        good = weft_session_feed(s, in[i], data[i].data,
                                 weft_tensor_bytes(data[i].dtype, data[i].shape), NULL) == WEFT_OK;
    good = good && weft_session_run(s, NULL) == WEFT_OK;
    for (size_t i = 0; good && i < n; i++) {
        append(r, s, targets[i]);
        if (i + 1 == op->n_out) r->outputs = r->n;
    }
    if (!good) fprintf(stderr, "\n    %s: %s: %s\n", op->name, error.where, error.message);
    for (size_t i = 0; i < sample->n_in; i++) free(data[i].data);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return good;
}

/* The largest difference of elements [from, to), relative to the largest of them and at least 1. */
static double difference(const results *a, const results *b, size_t from, size_t to)
{
    double top = 1, worst = 0;
    for (size_t i = from; i < to; i++)
        if (isfinite(b->x[i])) top = fmax(top, fabs(b->x[i]));
    for (size_t i = from; i < to; i++) {
        if ((isnan(a->x[i]) && isnan(b->x[i])) || a->x[i] == b->x[i]) continue;
        const double off = fabs(a->x[i] - b->x[i]) / top;
        worst = off > worst || isnan(off) ? (isnan(off) ? INFINITY : off) : worst;
    }
    return worst;
}

static size_t stored_narrow; /* samples of which some value was */

static void check_sample(const weft_op *op, size_t index, const weft_sample *sample)
{
    results a, b;
    if (op->updates || op->exchanges) return;
    if (!run_both_passes(op, sample, WEFT_F64, NULL, &b)) {
        CU_FAIL("a sample does not run in f64");
        return;
    }
    if (!run_both_passes(op, sample, WEFT_F32, &narrow, &a)) {
        CU_FAIL("a sample does not run in bf16");
        free(b.x);
        return;
    }
    stored_narrow += a.narrow > 0;
    CU_ASSERT_EQUAL_FATAL(a.n, b.n);
    const double forward = difference(&a, &b, 0, b.outputs),
                 backward = difference(&a, &b, b.outputs, b.n);
    if (forward > 3 * EPSILON || backward > 6 * EPSILON)
        fprintf(stderr, "\n    %s, sample %zu: off by %g and %g epsilon\n", op->name, index,
                forward / EPSILON, backward / EPSILON);
    CU_ASSERT_TRUE(forward <= 3 * EPSILON);
    CU_ASSERT_TRUE(backward <= 6 * EPSILON);
    free(a.x);
    free(b.x);
}

static void test_ops(void)
{
    stored_narrow = 0;
    for (size_t i = 0; i < weft_op_count(); i++)
        for (size_t s = 0; s < weft_op_at(i)->n_samples; s++)
            check_sample(weft_op_at(i), s, &weft_op_at(i)->samples[s]);
    CU_ASSERT_TRUE(stored_narrow > 100);
}

/* ---- Products ---- */

typedef struct product_case {
    int64_t batch, m, k, n;
    bool trans_a, trans_b, wide_a, wide_b, narrow_c, shared_b;
} product_case;

/* An operand [batch, rows, columns], as it lies or transposed; wide: an input in f32. */
static weft_value operand(weft_graph *g, const char *name, int64_t batch, int64_t rows,
                          int64_t columns, bool transposed, bool wide)
{
    weft_shape shape =
        transposed ? WEFT_SHAPE(batch, columns, rows) : WEFT_SHAPE(batch, rows, columns);
    weft_value in = weft_input(g, name, WEFT_F32, shape), x = wide ? in : weft_neg(g, in);
    x = transposed ? weft_transpose(g, x, 1, 2) : x;
    return batch == 1 ? weft_reshape(g, x, WEFT_SHAPE(rows, columns)) : x;
}

static float *random_floats(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x + 1);
    for (int64_t i = 0; i < n; i++) x[i] = (float)test_uniform(&seed, -1, 1);
    return x;
}

static void check_product(const product_case *p)
{
    const int64_t b_batch = p->shared_b ? 1 : p->batch;
    const int64_t na = p->batch * p->m * p->k, nb = b_batch * p->k * p->n;
    const int64_t nc = p->batch * p->m * p->n;
    weft_graph *g = weft_graph_new();
    weft_value a = operand(g, "a", p->batch, p->m, p->k, p->trans_a, p->wide_a);
    weft_value b = operand(g, "b", b_batch, p->k, p->n, p->trans_b, p->wide_b);
    weft_value c = weft_matmul(g, a, b);
    if (p->narrow_c) c = weft_neg(g, c);
    weft_error error = WEFT_NO_ERROR;
    weft_plan *plan = weft_plan_new(g, &c, 1, &narrow, &error);
    weft_session *s =
        plan ? weft_session_new(plan, NULL, &(weft_session_options){.threads = 2}, &error) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    const size_t stored = (size_t)(p->k ? !p->wide_a + !p->wide_b : 0) + p->narrow_c;
    CU_ASSERT_EQUAL(weft_plan_stats_of(plan).narrow, stored);
    float *xa = random_floats(na, 1), *xb = random_floats(nb, 2),
          *xc = malloc((size_t)nc * sizeof *xc + 1);
    weft_session_feed(s, weft_graph_find(g, "a"), xa, (size_t)na * sizeof *xa, NULL);
    weft_session_feed(s, weft_graph_find(g, "b"), xb, (size_t)nb * sizeof *xb, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, c, xc, (size_t)nc * sizeof *xc, NULL), WEFT_OK);
    const double sign = (p->wide_a == p->wide_b ? 1 : -1) * (p->narrow_c ? -1 : 1);
    double worst = 0;
    for (int64_t i = 0; i < na; i++) xa[i] = (float)rounded((double)xa[i]);
    for (int64_t i = 0; i < nb; i++) xb[i] = (float)rounded((double)xb[i]);
    for (int64_t e = 0; e < p->batch; e++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++) {
                const float *ae = xa + e * p->m * p->k, *be = xb + e % b_batch * p->k * p->n;
                double sum = 0;
                for (int64_t l = 0; l < p->k; l++)
                    sum += (double)ae[p->trans_a ? l * p->m + i : i * p->k + l] *
                           (double)be[p->trans_b ? j * p->k + l : l * p->n + j];
                const double got = sign * (double)xc[(e * p->m + i) * p->n + j];
                const double want = p->narrow_c ? rounded(sum) : sum;
                /* A sum next to the middle of two bf16 may be rounded to either. */
                const double slack = p->narrow_c ? fabs(sum) * 2 * EPSILON : 0;
                worst = fmax(worst, fabs(got - want) - slack);
            }
    /* An addition rounds by 2^-24 of a partial sum, which is below sqrt(k + 1): the products have a
     * variance of 1/9. 2e-5 is 335 such roundings of one sign. Of k roundings with either sign some
     * sqrt(k) remain, so it is enough for k up to 10^5. */
    const double limit = 2e-5 * sqrt((double)p->k + 1);
    if (worst > limit)
        fprintf(stderr, "\n    [%d, %d, %d, %d]: off by %g\n", (int)p->batch, (int)p->m, (int)p->k,
                (int)p->n, worst);
    CU_ASSERT_TRUE(worst <= limit);
    free(xa);
    free(xb);
    free(xc);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void each_isa(void (*test)(void))
{
    static const char *const names[] = {"base", "v3", "v4", "v4_bf16", "v4_amx"};
    const char *old = getenv("WEFT_ISA");
    char *kept = old ? strdup(old) : NULL;
    for (int isa = 0; isa < WEFT_ISAS; isa++) {
        weft__os_set_variable("WEFT_ISA", names[isa]);
        test();
    }
    weft__os_set_variable("WEFT_ISA", NULL);
    if (kept) weft__os_set_variable("WEFT_ISA", kept);
    free(kept);
}

static void products(void)
{
    static const int64_t sizes[][4] = {{1, 1, 1, 1},    {1, 3, 5, 7},     {1, 14, 32, 32},
                                       {1, 50, 33, 65}, {2, 17, 64, 40},  {3, 5, 7, 33},
                                       {1, 2, 0, 3},    {1, 100, 31, 16}, {1, 90, 1600, 34}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int bits = 0; bits < 32; bits++) {
            const int64_t *z = sizes[i];
            if ((bits & 12) == 12) continue; /* both operands in f32 */
            if (z[2] > 1000 && bits % 5) continue;
            if (z[2] == 0 && bits != 16) continue;
            check_product(&(product_case){z[0], z[1], z[2], z[3], bits & 1, bits & 2, bits & 4,
                                          bits & 8, bits & 16, false});
        }
    /* Large enough for B, or A, to be packed once for all tiles; and rows of a batch. */
    check_product(&(product_case){1, 300, 310, 290, false, false, false, true, true, false});
    check_product(&(product_case){1, 300, 311, 290, true, true, false, false, false, false});
    check_product(&(product_case){1, 130, 1700, 190, true, false, false, true, false, false});
    check_product(&(product_case){1, 601, 90, 620, false, true, true, false, true, false});
    check_product(&(product_case){3, 110, 300, 290, false, false, false, true, true, true});
}

static void test_products(void)
{
    if (weft__isa_best() < WEFT_ISA_V4_BF16)
        test_skip("products of bf16 by the processor", "it has no AVX512_BF16, or a slow one");
    each_isa(products);
}

static weft_value reduced(weft_graph *g, weft_value x, int op, weft_axes axes)
{
    switch (op) {
    case 0:
        return weft_sum(g, x, axes, false);
    case 1:
        return weft_mean(g, x, axes, false);
    case 2:
        return weft_max(g, x, axes, false);
    case 3:
        return weft_min(g, x, axes, false);
    case 4:
        return weft_variance(g, x, axes, false, 1);
    default:
        return weft_logsumexp(g, x, axes, false);
    }
}

/* Reductions of a value that is stored as bf16 have the bits of those of the same numbers in f32:
 * columns, rows, all elements, and elements that lie apart. */
typedef struct reduction_case {
    weft_shape shape;
    weft_axes axes;
    int64_t n; /* results */
    bool apart;
} reduction_case;

static void check_reduction(const weft_plan_options *options, size_t stored, const float *x,
                            const reduction_case *c, int op, float *y)
{
    weft_graph *g = weft_graph_new();
    weft_value in = weft_input(g, "x", WEFT_F32, c->shape), from = weft_neg(g, in);
    if (c->apart) from = weft_reshape(g, weft_slice(g, from, 2, 0, 1, 1), WEFT_SHAPE(40, 1500));
    weft_value out = reduced(g, from, op, c->axes);
    weft_error error = WEFT_NO_ERROR;
    weft_plan *plan = weft_plan_new(g, &out, 1, options, &error);
    weft_session *s =
        plan ? weft_session_new(plan, NULL, &(weft_session_options){.threads = 2}, &error) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_plan_stats_of(plan).narrow, stored);
    CU_ASSERT_EQUAL(
        weft_session_feed(s, in, x, (size_t)weft_shape_numel(c->shape) * sizeof *x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, out, y, (size_t)c->n * sizeof *y, NULL), WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void reductions(void)
{
    const reduction_case cases[] = {{WEFT_SHAPE(700, 600), WEFT_AXES(0), 600, false},
                                    {WEFT_SHAPE(90, 5000), WEFT_AXES(1), 90, false},
                                    {WEFT_SHAPE(3, 50, 700), WEFT_AXES(0, 1), 700, false},
                                    {WEFT_SHAPE(300, 400), WEFT_ALL_AXES, 1, false},
                                    {WEFT_SHAPE(40, 1500, 2), WEFT_AXES(1), 40, true}};
    enum { OPS = 6, MOST = 700 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t n = weft_shape_numel(cases[i].shape);
        float *x = random_floats(n, 3 + i), got[MOST], want[MOST];
        for (int64_t k = 0; k < n; k++) x[k] = (float)rounded((double)x[k]);
        for (int op = 0; op < OPS; op++) {
            check_reduction(&narrow, 1, x, &cases[i], op, got);
            check_reduction(&(weft_plan_options){.verify = true}, 0, x, &cases[i], op, want);
            CU_ASSERT_EQUAL(memcmp(got, want, (size_t)cases[i].n * sizeof *got), 0);
        }
        free(x);
    }
}

static void test_reductions(void)
{
    each_isa(reductions);
}

/* Parts of a concatenation are stored as bf16 or not, as is the whole. */
static void check_concat(bool narrow_whole)
{
    enum { ROWS = 70, A = 33, B = 130, N = ROWS * (A + B) };
    weft_graph *g = weft_graph_new();
    weft_value a = weft_input(g, "a", WEFT_F32, WEFT_SHAPE(ROWS, A));
    weft_value b = weft_input(g, "b", WEFT_F32, WEFT_SHAPE(ROWS, B));
    weft_value out = weft_concat(g, (weft_value[]){weft_neg(g, a), b}, 2, 1);
    if (narrow_whole) out = weft_neg(g, out);
    weft_error error = WEFT_NO_ERROR;
    weft_plan *plan = weft_plan_new(g, &out, 1, &narrow, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_plan_stats_of(plan).narrow, 1 + (size_t)narrow_whole);
    float *xa = random_floats(ROWS * A, 5), *xb = random_floats(ROWS * B, 6);
    float *y = malloc(N * sizeof *y);
    weft_session_feed(s, a, xa, ROWS * A * sizeof *xa, NULL);
    weft_session_feed(s, b, xb, ROWS * B * sizeof *xb, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, out, y, N * sizeof *y, NULL), WEFT_OK);
    int wrong = 0;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < A + B; j++) {
            const double x = (double)(j < A ? -xa[i * A + j] : xb[i * B + j - A]);
            const double stored = narrow_whole || j < A ? rounded(x) : x;
            wrong += (double)y[i * (A + B) + j] != (narrow_whole ? -stored : stored);
        }
    CU_ASSERT_EQUAL(wrong, 0);
    free(xa);
    free(xb);
    free(y);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void concats(void)
{
    check_concat(false);
    check_concat(true);
}

static void test_concat(void)
{
    each_isa(concats);
}

/* ---- Models ---- */

typedef struct trained {
    weft_graph *g;
    weft_built built;
    weft_value lr, step;
} trained;

static trained build(const char *text)
{
    const weft_optimizer adam = {.kind = WEFT_ADAM, .max_norm = 1};
    trained t = {.g = weft_graph_new()};
    test_build_model(t.g, text, true, &t.built);
    t.lr = weft_input(t.g, "rate", WEFT_F32, WEFT_SCALAR);
    t.step = weft_train_update(t.g, t.built.loss, NULL, 0, t.lr, &adam, NULL);
    return t;
}

static weft_plan *plan_of(const trained *t, const weft_plan_options *options)
{
    weft_error error = WEFT_NO_ERROR;
    weft_plan *p = weft_plan_new(t->g, WEFT_VALUES(t->built.loss, t->step), options, &error);
    if (!p) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

/* Trains for some steps; returns the last loss, and in *hash the parameters. */
static double train(const trained *t, const weft_plan *p, int threads, int steps, uint64_t *hash)
{
    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    const weft_session_options o = {.threads = threads, .seed = 5, .poison = true};
    CU_ASSERT_EQUAL(weft_params_init(store, t->g, 3, &error), WEFT_OK);
    weft_session *s = weft_session_new(p, store, &o, &error);
    const float rate = 0.003f;
    float loss = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, t->lr, &rate, sizeof rate, NULL);
    const weft_value *inputs = t->built.inputs;
    for (size_t i = 0; i < t->built.n_inputs; i++) {
        weft_tensor x;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, inputs[i], &x, NULL) == WEFT_OK);
        for (int64_t k = 0; k < weft_shape_numel(x.shape); k++)
            ((int32_t *)x.data)[k] = (int32_t)(1 + (k * 7 + 3) % 11);
    }
    for (int step = 0; step < steps; step++) {
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        weft_session_fetch(s, t->built.loss, &loss, sizeof loss, NULL);
    }
    *hash = 14695981039346656037u;
    for (size_t i = 0; i < weft_params_count(store); i++) {
        weft_tensor x;
        CU_ASSERT_TRUE(weft_params_find(store, weft_params_name(store, i), &x));
        CU_ASSERT_TRUE(x.dtype == WEFT_F32 || x.dtype == WEFT_I32);
        for (size_t k = 0; k < weft_tensor_bytes(x.dtype, x.shape); k++)
            *hash = (*hash ^ ((const unsigned char *)x.data)[k]) * 1099511628211u;
    }
    weft_session_free(s);
    weft_params_free(store);
    return (double)loss;
}

static void check_model(const char *text, double share)
{
    enum { STEPS = 8 };
    trained t = build(text);
    weft_plan_options o = {.verify = true};
    weft_plan *wide = plan_of(&t, &o);
    o.precision = WEFT_PRECISION_BF16;
    weft_plan *p = plan_of(&t, &o);
    const weft_plan_stats before = weft_plan_stats_of(wide), after = weft_plan_stats_of(p);
    uint64_t hash, other;
    const double expected = train(&t, wide, 2, STEPS, &hash);
    CU_ASSERT_EQUAL(before.narrow, 0);
    CU_ASSERT_TRUE(after.narrow > 0);
    if ((double)after.arena_bytes > share * (double)before.arena_bytes)
        fprintf(stderr, "\n    %s: %zu of %zu bytes\n", text, after.arena_bytes,
                before.arena_bytes);
    CU_ASSERT_TRUE((double)after.arena_bytes <= share * (double)before.arena_bytes);
    const double loss = train(&t, p, 2, STEPS, &other);
    CU_ASSERT_NOT_EQUAL(hash, other);
    /* Rounding to bf16 is 2^-9 = 0.2 %, some ten times in a row. The largest difference seen is a
     * fourteenth of the limit. */
    if (!(fabs(loss - expected) <= 0.02 * expected + 0.01))
        fprintf(stderr, "\n    %s: loss %g, in f32 %g\n", text, loss, expected);
    CU_ASSERT_TRUE(fabs(loss - expected) <= 0.02 * expected + 0.01);
    /* The same bits at any number of threads, and with recomputation. */
    CU_ASSERT_EQUAL((train(&t, p, 1, STEPS, &hash), hash), other);
    CU_ASSERT_EQUAL((train(&t, p, 3, STEPS, &hash), hash), other);
    o.memory_budget = after.arena_bytes * 9 / 10;
    weft_plan *small = plan_of(&t, &o);
    CU_ASSERT_TRUE(weft_plan_stats_of(small).recomputed > 0);
    CU_ASSERT_EQUAL((train(&t, small, 2, STEPS, &hash), hash), other);
    /* Without the pass, and with all scopes kept, the bits are those of f32. */
    weft_plan *skipped =
        plan_of(&t, &(weft_plan_options){.precision = WEFT_PRECISION_BF16, .skip = "precision"});
    CU_ASSERT_EQUAL(weft_plan_stats_of(skipped).narrow, 0);
    CU_ASSERT_EQUAL(train(&t, skipped, 2, STEPS, &hash), expected);
    weft_plan_free(skipped);
    weft_plan_free(small);
    weft_plan_free(wide);
    weft_plan_free(p);
    weft_graph_free(t.g);
}

static void test_models(void)
{
    check_model("gpt layers=2 d_model=64 heads=2 vocab=50 dropout=0.2 batch=16 length=64", 0.62);
    check_model("llama layers=2 d_model=64 heads=4 kv_heads=2 d_ff=128 vocab=50 batch=16 length=64",
                0.65);
    check_model("transformer encoder_layers=2 decoder_layers=2 d_model=64 heads=2 d_ff=128 "
                "vocab=50 batch=16",
                0.65);
    check_model("lstm vocab=50 width=64 hidden=64 length=20 batch=64", 0.9);
}

static void test_keep(void)
{
    trained t = build("gpt layers=2 d_model=64 heads=2 vocab=50 batch=16 length=64");
    weft_plan_options o = {.precision = WEFT_PRECISION_BF16};
    size_t counts[3];
    static const char *const kept[] = {NULL, "layer.0,nothing", "layer"};
    for (int i = 0; i < 3; i++) {
        o.keep_f32 = kept[i];
        weft_plan *p = plan_of(&t, &o);
        counts[i] = weft_plan_stats_of(p).narrow;
        weft_plan_free(p);
    }
    CU_ASSERT_TRUE(counts[0] > counts[1] && counts[1] > counts[2] && counts[2] > 0);
    weft_graph_free(t.g);
}

static void test_unknown(void)
{
    weft_graph *g = weft_graph_new();
    weft_error error = WEFT_NO_ERROR;
    weft_value x = weft_neg(g, weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3)));
    const weft_plan_options o = {.precision = WEFT_PRECISION_BF16_TILES + 1};
    CU_ASSERT_PTR_NULL(weft_plan_new(g, &x, 1, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "expected WEFT_PRECISION_F32"));
    weft_graph_free(g);
}

/* The search for the first number that is not finite also runs blocks. */
static void test_not_finite(void)
{
    weft_graph *g = weft_graph_new();
    weft_error error = WEFT_NO_ERROR;
    const weft_shape shape = WEFT_SHAPE(40, 70);
    weft_value x = weft_input(g, "x", WEFT_F32, shape);
    weft_value y = weft_log(g, weft_neg(g, x)), out = weft_neg(g, y);
    weft_plan *p = weft_plan_new(g, &out, 1, &narrow, &error);
    weft_session *s = weft_session_new(p, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    float *data = random_floats(40 * 70, 3);
    for (int i = 0; i < 40 * 70; i++) data[i] = -fabsf(data[i]) - 0.1f;
    data[7 * 70 + 3] = 1;
    weft_session_feed(s, x, data, 40 * 70 * sizeof *data, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(s, &error), WEFT_NOT_FINITE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "NaN at [7, 3]"));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.where, "log"));
    free(data);
    weft_session_free(s);
    weft_plan_free(p);
    weft_graph_free(g);
}

void precision_tests(void)
{
    CU_pSuite suite = CU_add_suite("precision", NULL, NULL);
    CU_add_test(suite, "rounding", test_rounding);
    CU_add_test(suite, "every op and its gradient in bf16", test_ops);
    CU_add_test(suite, "products of bf16", test_products);
    CU_add_test(suite, "reductions of bf16", test_reductions);
    CU_add_test(suite, "concatenations of bf16", test_concat);
    CU_add_test(suite, "models in bf16", test_models);
    CU_add_test(suite, "scopes that are kept in f32", test_keep);
    CU_add_test(suite, "an invalid precision", test_unknown);
    CU_add_test(suite, "the search for numbers that are not finite", test_not_finite);
}
