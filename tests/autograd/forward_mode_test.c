/* Forward mode of every op of the list, in f64, on each of its samples: y(x) along a direction v,
 *
 *   - against central differences of y along v;
 *   - against the gradient, by the dot product: <jvp(v), w> = <v, vjp(w)> for random w;
 *   - to second order: the derivative of the gradient along v (forward over reverse), the gradient
 *     of <jvp(v), w> (reverse over forward), and central differences of the gradient agree.
 *
 * The table names the ops without forward mode, with the reason; an entry that is out of date fails
 * as well. */
#include "ops_of_passes.h"
#include "tests.h"

#include <weft/transform.h>

#include <stdlib.h>
#include <string.h>

/* Ops without forward mode, and why. */
static const struct {
    const char *op, *reason;
} without[] = {
    OPS_OF_PASSES,
    {"matmul_quantized", "its gradient exists with regard to x only, and rounds"},
    {"matmul_quantized_grad", "for training adapters: its own gradient is never needed"},
    {"embedding_quantized", "for inference"},
};

/* ---- A case: an op on one sample ---- */

typedef struct op_case {
    weft_graph *g;
    size_t n_in, n, n_y; /* inputs; those that are floats; outputs that are floats */
    weft_value in[WEFT_SAMPLE_INPUTS];
    void *data[WEFT_SAMPLE_INPUTS]; /* contents of in[] */
    int source[WEFT_SAMPLE_INPUTS]; /* of wrt[]: its index in in[] */
    double *v_data[WEFT_SAMPLE_INPUTS], *w_data[WEFT_MAX_OUTPUTS];
    weft_value wrt[WEFT_SAMPLE_INPUTS], v[WEFT_SAMPLE_INPUTS];
    weft_value y[WEFT_MAX_OUTPUTS], w[WEFT_MAX_OUTPUTS];
    weft_value jvp[WEFT_MAX_OUTPUTS], vjp[WEFT_SAMPLE_INPUTS];
    weft_value forward_reverse[WEFT_SAMPLE_INPUTS], reverse_forward[WEFT_SAMPLE_INPUTS];
} op_case;

/* A constant of random numbers in [-1, 1) of the type of a value; *data becomes a copy. */
static weft_value random_like(weft_graph *g, weft_value value, uint64_t seed, double **data)
{
    const weft_sample_input numbers = {WEFT_F64, weft_shape_of(g, value), -1, 1, false};
    *data = malloc(((size_t)weft_shape_numel(numbers.shape) + 1) * sizeof **data);
    weft_sample_input_fill(&numbers, WEFT_F64, seed, *data);
    return weft_constant(g, WEFT_F64, numbers.shape, *data);
}

static bool is_float(const op_case *c, weft_value value)
{
    return weft_dtype_of(c->g, value) == WEFT_F64;
}

static void open_case(op_case *c, const weft_op *op, const weft_sample *sample)
{
    weft_value out[WEFT_MAX_OUTPUTS];
    *c = (op_case){.g = weft_graph_new(), .n_in = sample->n_in};
    for (size_t i = 0; i < c->n_in; i++) {
        const weft_sample_input *input = &sample->in[i];
        const weft_dtype dtype = input->dtype == WEFT_FLOAT ? WEFT_F64 : input->dtype;
        char name[32];
        snprintf(name, sizeof name, "x%zu", i);
        /* An update writes its first inputs. */
        c->in[i] = i < op->updates ? weft_state(c->g, name, dtype, input->shape, WEFT_INIT_ZEROS)
                                   : weft_input(c->g, name, dtype, input->shape);
        c->data[i] = malloc(weft_tensor_bytes(dtype, input->shape) + 8);
        weft_sample_input_fill(input, WEFT_F64, 3 + 100 * i, c->data[i]);
        if (!is_float(c, c->in[i])) continue;
        c->source[c->n] = (int)i;
        c->wrt[c->n++] = c->in[i];
    }
    weft_apply(c->g, op, sample->attr, c->in, c->n_in, out);
    CU_ASSERT_EQUAL_FATAL(weft_graph_status(c->g), WEFT_OK);
    for (size_t k = 0; k < op->n_out; k++)
        if (is_float(c, out[k])) c->y[c->n_y++] = out[k];
    for (size_t i = 0; i < c->n; i++) c->v[i] = random_like(c->g, c->wrt[i], 11 + i, &c->v_data[i]);
    for (size_t k = 0; k < c->n_y; k++) c->w[k] = random_like(c->g, c->y[k], 37 + k, &c->w_data[k]);
}

static void close_case(op_case *c)
{
    for (size_t i = 0; i < c->n_in; i++) free(c->data[i]);
    for (size_t i = 0; i < c->n; i++) free(c->v_data[i]);
    for (size_t k = 0; k < c->n_y; k++) free(c->w_data[k]);
    weft_graph_free(c->g);
}

/* ---- Numbers ---- */

/* Some values of a run, one after another. */
typedef struct numbers {
    double *at;
    size_t n;
} numbers;

static numbers fetch(const op_case *c, weft_session *s, const weft_value *values, size_t n)
{
    numbers r = {NULL, 0};
    for (size_t i = 0; i < n; i++) r.n += (size_t)weft_shape_numel(weft_shape_of(c->g, values[i]));
    r.at = calloc(r.n + 1, sizeof *r.at);
    size_t filled = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t count = (size_t)weft_shape_numel(weft_shape_of(c->g, values[i]));
        CU_ASSERT_EQUAL(weft_session_fetch(s, values[i], r.at + filled, count * sizeof *r.at, NULL),
                        WEFT_OK);
        filled += count;
    }
    return r;
}

/* Runs at x + t v. */
static bool run_at(const op_case *c, weft_session *s, double t)
{
    weft_error error = WEFT_NO_ERROR;
    for (size_t i = 0, f = 0; i < c->n_in; i++) {
        const weft_shape shape = weft_shape_of(c->g, c->in[i]);
        const size_t n = (size_t)weft_shape_numel(shape);
        const size_t bytes = weft_tensor_bytes(weft_dtype_of(c->g, c->in[i]), shape);
        double *moved = malloc(n * sizeof *moved + bytes + 8);
        memcpy(moved, c->data[i], bytes);
        if (f < c->n && c->source[f] == (int)i) {
            for (size_t k = 0; k < n; k++) moved[k] += t * c->v_data[f][k];
            f++;
        }
        weft_session_feed(s, c->in[i], moved, bytes, NULL); /* one that nothing reads is refused */
        free(moved);
    }
    weft_session_set_run_number(s, 0); /* the same random numbers in each run */
    if (weft_session_run(s, &error) == WEFT_OK) return true;
    fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    return false;
}

/* The derivative of the values along v, by differences with steps of h. */
static numbers difference(const op_case *c, weft_session *s, const weft_value *values, size_t n,
                          double h)
{
    static const double at[4] = {1, -1, 2, -2}, weight[4] = {8, -8, -1, 1};
    numbers sum = {NULL, 0};
    for (int p = 0; p < 4; p++) {
        CU_ASSERT_TRUE(run_at(c, s, at[p] * h));
        const numbers f = fetch(c, s, values, n);
        if (!sum.at) sum = (numbers){calloc(f.n + 1, sizeof *sum.at), f.n};
        for (size_t k = 0; k < f.n; k++) sum.at[k] += weight[p] * f.at[k] / (12 * h);
        free(f.at);
    }
    return sum;
}

static double distance(const numbers *a, const numbers *b)
{
    double worst = 0, scale = 1;
    for (size_t k = 0; k < b->n; k++) scale = fmax(scale, fabs(b->at[k]));
    for (size_t k = 0; k < b->n; k++) {
        const double off = fabs(a->at[k] - b->at[k]);
        if (!(off <= worst)) worst = off; /* NaN too */
    }
    return worst / scale;
}

/* The distance of `derivatives` at x to differences of `values`; smaller steps where a kink may be
 * near. */
static double difference_off(const op_case *c, weft_session *s, const weft_value *values,
                             const weft_value *derivatives, size_t n)
{
    double best = INFINITY;
    CU_ASSERT_TRUE(run_at(c, s, 0));
    const numbers analytic = fetch(c, s, derivatives, n);
    for (double h = 1e-3; h > 1e-6 && !(best < DIFFERENCES / 10); h /= 16) {
        const numbers numeric = difference(c, s, values, n, h);
        best = fmin(best, distance(&analytic, &numeric));
        free(numeric.at);
    }
    free(analytic.at);
    return best;
}

static double dot(const numbers *a, double *const *b, size_t n_lists, const op_case *c,
                  const weft_value *likes)
{
    double sum = 0;
    for (size_t i = 0, at = 0; i < n_lists; i++) {
        const size_t n = (size_t)weft_shape_numel(weft_shape_of(c->g, likes[i]));
        for (size_t k = 0; k < n; k++) sum += a->at[at++] * b[i][k];
    }
    return sum;
}

/* ---- The checks ---- */

static void expect_small(const weft_op *op, size_t sample, const char *what, double off,
                         double limit)
{
    if (!(off <= limit))
        fprintf(stderr, "\n    %s, sample %zu: %s is off by %.3g\n", op->name, sample, what, off);
    CU_ASSERT_TRUE(off <= limit);
}

/* |<jvp(v), w> - <v, vjp(w)>|, relative to the larger one or 1. */
static double dot_product_off(const op_case *c, weft_session *s)
{
    CU_ASSERT_TRUE(run_at(c, s, 0));
    const numbers jvp = fetch(c, s, c->jvp, c->n_y), vjp = fetch(c, s, c->vjp, c->n);
    const double forward = dot(&jvp, c->w_data, c->n_y, c, c->y);
    const double reverse = dot(&vjp, c->v_data, c->n, c, c->wrt);
    free(jvp.at);
    free(vjp.at);
    return fabs(forward - reverse) / fmax(1, fmax(fabs(forward), fabs(reverse)));
}

/* The distance of forward over reverse and reverse over forward, both at x. */
static double orders_off(const op_case *c, weft_session *s)
{
    CU_ASSERT_TRUE(run_at(c, s, 0));
    const numbers a = fetch(c, s, c->forward_reverse, c->n);
    const numbers b = fetch(c, s, c->reverse_forward, c->n);
    const double off = distance(&a, &b);
    free(a.at);
    free(b.at);
    return off;
}

static weft_session *open_session(const op_case *c, weft_plan **plan)
{
    const weft_session_options one_thread = {.threads = 1};
    weft_value targets[2 * WEFT_MAX_OUTPUTS + 3 * WEFT_SAMPLE_INPUTS];
    weft_error error = WEFT_NO_ERROR;
    size_t n = 0;
    for (size_t k = 0; k < c->n_y; k++) targets[n++] = c->y[k];
    for (size_t k = 0; k < c->n_y; k++) targets[n++] = c->jvp[k];
    for (size_t i = 0; i < c->n; i++) targets[n++] = c->vjp[i];
    for (size_t i = 0; i < c->n; i++) targets[n++] = c->forward_reverse[i];
    for (size_t i = 0; i < c->n; i++) targets[n++] = c->reverse_forward[i];
    *plan = weft_plan_new(c->g, targets, n, NULL, &error);
    weft_session *s = *plan ? weft_session_new(*plan, NULL, &one_thread, &error) : NULL;
    if (!s) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    return s;
}

static void check_case(op_case *c, const weft_op *op, size_t sample)
{
    weft_plan *plan = NULL;
    weft_session *s = open_session(c, &plan);
    CU_ASSERT_PTR_NOT_NULL(s);
    if (s) {
        if (op->gradient != WEFT_GRADIENT_STRAIGHT) /* whose derivative is not that of its values */
            expect_small(op, sample, "jvp against differences",
                         difference_off(c, s, c->y, c->jvp, c->n_y), DIFFERENCES);
        expect_small(op, sample, "<jvp, w> against <v, vjp>", dot_product_off(c, s), ROUNDING_F64);
        /* Sums of sums of products, some hundred roundings deep. */
        expect_small(op, sample, "forward over reverse against reverse over forward",
                     orders_off(c, s), 1e-11);
        expect_small(op, sample, "forward over reverse against differences",
                     difference_off(c, s, c->vjp, c->forward_reverse, c->n), DIFFERENCES);
    }
    weft_session_free(s);
    weft_plan_free(plan);
}

/* Adds the derivatives of both orders; false if the op has none. */
static bool differentiate(op_case *c)
{
    weft_jvp(c->g, c->y, c->n_y, c->wrt, c->v, c->n, c->jvp);
    weft_grad_of(c->g, c->y, c->w, c->n_y, c->wrt, c->n, c->vjp);
    weft_jvp(c->g, c->vjp, c->n, c->wrt, c->v, c->n, c->forward_reverse);
    weft_grad_of(c->g, c->jvp, c->w, c->n_y, c->wrt, c->n, c->reverse_forward);
    return weft_graph_status(c->g) == WEFT_OK;
}

typedef enum outcome { NOTHING, CHECKED, REFUSED } outcome;

/* NOTHING: no float depends on a float. */
static outcome check_sample(const weft_op *op, size_t sample)
{
    op_case c;
    outcome result = NOTHING;
    open_case(&c, op, &op->samples[sample]);
    if (c.n && c.n_y) {
        result = differentiate(&c) ? CHECKED : REFUSED;
        const weft_error *e = weft_graph_error(c.g);
        if (result == CHECKED)
            check_case(&c, op, sample);
        else if (e->status != WEFT_NO_GRADIENT || !strstr(e->where, op->name) ||
                 weft_is_value(c.jvp[0])) {
            fprintf(stderr, "\n    %s, sample %zu: %s: %s\n", op->name, sample, e->where,
                    e->message);
            CU_FAIL("an op is not refused properly");
        }
    }
    close_case(&c);
    return result;
}

static bool is_without(const char *op)
{
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (!strcmp(without[i].op, op)) return true;
    return false;
}

static void test_ops(void)
{
    size_t checked = 0;
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        size_t refused = 0, good = 0;
        for (size_t k = 0; k < op->n_samples; k++) {
            const outcome o = check_sample(op, k);
            refused += o == REFUSED;
            good += o == CHECKED;
        }
        if ((refused > 0) != is_without(op->name))
            fprintf(stderr, "\n    %s: %zu samples are refused, but the table has %s\n", op->name,
                    refused, refused ? "no entry" : "one");
        CU_ASSERT_EQUAL(refused > 0, is_without(op->name));
        CU_ASSERT_TRUE(!refused || !good);
        checked += good > 0;
    }
    printf("%zu ops ", checked);
    CU_ASSERT_TRUE(checked > 80);
}

/* Every name of the table is an op. */
static void test_table(void)
{
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        CU_ASSERT_PTR_NOT_NULL(weft_op_find(without[i].op));
        CU_ASSERT_TRUE(strlen(without[i].reason) > 10);
    }
}

void forward_mode_tests(void)
{
    CU_pSuite suite = CU_add_suite("forward_mode", NULL, NULL);
    CU_add_test(suite, "every op, to second order", test_ops);
    CU_add_test(suite, "the table of ops without", test_table);
}
