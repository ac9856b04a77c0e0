/* Shapes on both sides of each choice of a path by size: lines and reductions of few elements,
 * images of one position, rows of few elements, few and many terms at an index, small and large
 * heaps, short dot products. Each is compared with the reference in f64, then in f32, with the same
 * bits at several numbers of threads. */
#include "reference.h"
#include "tests.h"

#include <weft/autograd.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IN = 5 };

/* Builds the node from inputs of `dtype`. The sizes are those of the case. */
typedef weft_value builder(weft_graph *g, weft_dtype dtype, const int64_t *n);

static weft_value in(weft_graph *g, weft_dtype dtype, weft_shape shape)
{
    char name[32];
    snprintf(name, sizeof name, "x%zu", weft_graph_node_count(g));
    return weft_input(g, name, dtype, shape);
}

static weft_value build_sum(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    return weft_sum(g, in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2])), WEFT_AXES(1), false);
}

static weft_value build_sum_swapped(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    weft_value x = weft_transpose(g, in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2])), 0, 2);
    return weft_sum(g, x, WEFT_AXES(0, 2), false);
}

static weft_value build_max(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    return weft_max(g, in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2])), WEFT_AXES(1), false);
}

static weft_value build_variance(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    return weft_variance(g, in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2])), WEFT_AXES(1), false, 0);
}

static weft_value build_logsumexp(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    return weft_logsumexp(g, in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2])), WEFT_AXES(1), false);
}

static weft_value build_softmax(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    return weft_softmax(g, in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2], n[3])), 1);
}

static weft_value build_softmax_swapped(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    weft_value x = in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2], n[3]));
    return weft_log_softmax(g, weft_transpose(g, x, 0, 2), 1);
}

static weft_value build_argmax(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    return weft_argmax(g, in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2], n[3])), 1, false);
}

static weft_value build_cumsum(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    return weft_cumsum(g, in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2], n[3])), 1, n[0] % 2);
}

static weft_value build_batch_norm(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    weft_value x = in(g, dtype, n[2] ? WEFT_SHAPE(n[0], n[1], n[2]) : WEFT_SHAPE(n[0], n[1]));
    weft_value gamma = in(g, dtype, WEFT_SHAPE(n[1])), beta = in(g, dtype, WEFT_SHAPE(n[1]));
    return weft_batch_norm(g, x, gamma, beta, 1e-5, NULL, NULL);
}

static weft_value build_where(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    weft_value mask = in(g, WEFT_BOOL, WEFT_SHAPE(n[2], n[1]));
    return weft_where(g, mask, in(g, dtype, WEFT_SHAPE(n[0], n[1])),
                      in(g, dtype, WEFT_SHAPE(n[0], n[3])));
}

static weft_value build_fill(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    weft_value x = in(g, dtype, WEFT_SHAPE(n[0], n[1]));
    return weft_masked_fill(g, x, in(g, WEFT_BOOL, WEFT_SHAPE(n[2], n[3])), 2);
}

static weft_value build_tril(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    (void)dtype;
    return weft_tril_mask(g, n[0], n[1], n[2]);
}

static weft_value build_pad(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    static const int64_t before[] = {1, 0, 2, 0}, after[] = {0, 2, 1, 1};
    return weft_pad(g, in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2], n[3])), before, after, 3);
}

static weft_value build_scatter(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    weft_value x = in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2]));
    weft_value at = in(g, WEFT_I32, WEFT_SHAPE(n[0], n[3], n[2]));
    return weft_scatter_add(g, x, at, in(g, dtype, WEFT_SHAPE(n[0], n[3], n[2])), 1);
}

static weft_value build_top_k(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    return weft_top_k(g, in(g, dtype, WEFT_SHAPE(n[0], n[1])), n[2], 1, true, NULL);
}

static weft_value build_matmul(weft_graph *g, weft_dtype dtype, const int64_t *n)
{
    weft_value b = in(g, dtype, WEFT_SHAPE(n[0], n[3], n[2]));
    return weft_matmul(g, in(g, dtype, WEFT_SHAPE(n[0], n[1], n[2])), weft_transpose(g, b, 1, 2));
}

static const struct {
    const char *name;
    builder *build;
    int64_t n[4];
} cases[] = {
    {"one element each", build_sum, {700, 1, 3}},
    {"few elements each", build_sum, {3000, 7, 1}},
    {"32 elements", build_sum, {600, 32, 1}},
    {"33 elements", build_sum, {600, 33, 1}},
    {"short runs", build_sum, {900, 5, 2}},
    {"runs of 8", build_sum, {300, 5, 8}},
    {"no elements", build_sum, {300, 0, 1}},
    {"folded around", build_sum_swapped, {3, 900, 4}},
    {"few elements", build_max, {900, 3, 2}},
    {"few elements", build_variance, {900, 6, 2}},
    {"few elements", build_logsumexp, {900, 5, 1}},
    {"short rows", build_softmax, {800, 3, 1, 1}},
    {"16 elements", build_softmax, {300, 16, 1, 1}},
    {"17 elements", build_softmax, {300, 17, 1, 1}},
    {"short lines in pairs", build_softmax, {500, 9, 1, 2}},
    {"long lines in pairs", build_softmax, {7, 50, 3, 2}},
    {"joined runs", build_softmax, {2, 40, 200, 2}},
    {"long lines, not the last", build_softmax, {4, 50, 3, 1}},
    {"long lines, transposed", build_softmax_swapped, {3, 50, 4, 1}},
    {"an axis before ones", build_softmax, {20, 300, 1, 1}},
    {"short lines", build_softmax_swapped, {5, 7, 90, 3}},
    {"runs that do not join", build_softmax_swapped, {5, 30, 9, 20}},
    {"an axis of one", build_argmax, {900, 1, 2, 1}},
    {"short lines", build_argmax, {900, 5, 1, 3}},
    {"joined runs", build_argmax, {3, 40, 30, 2}},
    {"short lines", build_cumsum, {900, 5, 1, 3}},
    {"short lines, reversed", build_cumsum, {901, 4, 2, 1}},
    {"joined runs", build_cumsum, {3, 40, 30, 2}},
    {"rows", build_batch_norm, {70, 300, 0}},
    {"many rows", build_batch_norm, {1000, 3, 0}},
    {"images of one position", build_batch_norm, {65, 270, 1}},
    {"small images", build_batch_norm, {30, 40, 3}},
    {"a mask for all rows", build_where, {900, 3, 1, 1}},
    {"narrow rows", build_where, {900, 5, 900, 5}},
    {"wide rows", build_where, {90, 40, 1, 40}},
    {"a mask for all rows", build_fill, {900, 3, 1, 3}},
    {"a mask for all columns", build_fill, {900, 3, 900, 1}},
    {"wide rows", build_fill, {60, 40, 1, 40}},
    {"wide", build_tril, {30, 700, 3}},
    {"tall", build_tril, {9000, 2, -4000}},
    {"all", build_tril, {5, 4, 9}},
    {"none", build_tril, {5, 4, -9}},
    {"narrow rows", build_pad, {3, 700, 1, 1}},
    {"rows", build_pad, {3, 4, 5, 60}},
    {"no rows", build_pad, {3, 0, 2, 4}},
    {"few terms", build_scatter, {3, 10, 4, 32}},
    {"many terms", build_scatter, {3, 10, 4, 500}},
    {"one index", build_scatter, {2, 1, 1, 300}},
    {"columns of several tiles", build_scatter, {2, 3, 2500, 5}},
    {"many updates of columns of several tiles", build_scatter, {1, 3, 1100, 70}},
    {"a heap", build_top_k, {2, 4200, 512}},
    {"beyond a heap", build_top_k, {2, 4200, 513}},
    {"a large heap", build_top_k, {1, 40000, 600}},
    {"short dots", build_matmul, {3, 5, 8, 40}},
    {"longer dots", build_matmul, {3, 5, 127, 40}},
    {"long dots", build_matmul, {3, 5, 128, 40}},
    {"few columns", build_matmul, {3, 5, 47, 15}},
    {"few columns, longer", build_matmul, {3, 5, 48, 15}},
    {"a column", build_matmul, {3, 60, 130, 1}},
    {"a short column", build_matmul, {3, 60, 20, 1}},
};

/* ---- Running one ---- */

typedef struct result {
    weft_graph *graph;
    weft_node_info node;
    weft_tensor in[MAX_IN], out; /* dense copies */
} result;

static weft_tensor copy_of(weft_session *s, weft_value v)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, v, &t, NULL) == WEFT_OK);
    const size_t bytes = weft_tensor_bytes(t.dtype, t.shape);
    void *data = calloc(bytes + 8, 1);
    memcpy(data, t.data, bytes);
    return weft_tensor_dense(data, t.dtype, t.shape);
}

/* Numbers in [-1, 1) with 10 bits, so that f32 has those of f64; indices below `rows`. */
static void fill_inputs(weft_graph *g, weft_session *s, int64_t rows)
{
    uint32_t seed = 7;
    for (size_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node_info node = weft_graph_node(g, i);
        weft_tensor t;
        if (node.op != &weft_op_input) continue;
        if (weft_session_tensor(s, weft_value_from_id(g, node.first_out), &t, NULL) != WEFT_OK)
            continue;
        for (int64_t k = 0; k < weft_shape_numel(t.shape); k++) {
            seed = seed * 1664525u + 1013904223u;
            const int number = (int)(seed >> 22);
            if (t.dtype == WEFT_F64) ((double *)t.data)[k] = number / 512.0 - 1;
            if (t.dtype == WEFT_F32) ((float *)t.data)[k] = (float)(number / 512.0 - 1);
            if (t.dtype == WEFT_I32) ((int32_t *)t.data)[k] = (int32_t)(number % rows);
            if (t.dtype == WEFT_BOOL) ((uint8_t *)t.data)[k] = number % 3 == 0;
        }
    }
}

static result run(size_t index, weft_dtype dtype, int threads)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    const weft_value y = cases[index].build(g, dtype, cases[index].n);
    const weft_node_info node = weft_graph_node(g, weft_producer_of(g, y));
    weft_value targets[1 + MAX_IN] = {y};
    for (size_t i = 0; i < node.n_in; i++)
        targets[1 + i] = weft_contiguous(g, weft_value_from_id(g, node.in[i]));
    weft_plan *plan = weft_plan_new(g, targets, 1 + node.n_in, NULL, &error);
    weft_session *s =
        weft_session_new(plan, NULL, &(weft_session_options){.threads = threads}, &error);
    if (!s) fprintf(stderr, "\n    %s: %s: %s\n", cases[index].name, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    fill_inputs(g, s, cases[index].n[1]);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    result r = {.graph = g, .node = node, .out = copy_of(s, y)};
    for (size_t i = 0; i < node.n_in; i++) r.in[i] = copy_of(s, targets[1 + i]);
    weft_session_free(s);
    weft_plan_free(plan);
    return r;
}

static void free_result(result *r)
{
    for (size_t i = 0; i < r->node.n_in; i++) free(r->in[i].data);
    free(r->out.data);
    weft_graph_free(r->graph);
}

/* Relative to max(1, |expected|). */
static void expect_near(size_t index, const char *what, const weft_tensor *got,
                        const weft_tensor *expected, double limit)
{
    for (int64_t i = 0; i < weft_shape_numel(expected->shape); i++) {
        const double x = weft_tensor_element(got, i), y = weft_tensor_element(expected, i);
        if (fabs(x - y) <= limit * fmax(1, fabs(y)) || x == y) continue;
        fprintf(stderr, "\n    case %zu, %s, %s: element %lld is %.9g, expected %.9g\n", index,
                cases[index].name, what, (long long)i, x, y);
        CU_FAIL("a path differs");
        return;
    }
    CU_PASS("near");
}

/* x [images, channels, positions...], with eps 1e-5. */
static void reference_batch_norm(const void *attr, const weft_tensor *in, size_t n_in,
                                 weft_tensor *out)
{
    const weft_shape shape = in[0].shape;
    const int64_t channels = shape.dim[1], volume = shape.rank > 2 ? shape.dim[2] : 1;
    const int64_t n = shape.dim[0] * volume;
    (void)attr;
    (void)n_in;
#define AT(i) ((i) / volume * channels + c) * volume + (i) % volume
    for (int64_t c = 0; c < channels; c++) {
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < n; i++) mean += weft_tensor_element(&in[0], AT(i)) / (double)n;
        for (int64_t i = 0; i < n; i++)
            variance += pow(weft_tensor_element(&in[0], AT(i)) - mean, 2) / (double)n;
        for (int64_t i = 0; i < n; i++)
            ((double *)out[0].data)[AT(i)] = (weft_tensor_element(&in[0], AT(i)) - mean) /
                                                 sqrt(variance + 1e-5) *
                                                 weft_tensor_element(&in[1], c) +
                                             weft_tensor_element(&in[2], c);
    }
}

static void against_reference(size_t index, const result *r)
{
    weft_tensor want[WEFT_MAX_OUTPUTS];
    for (size_t i = 0; i < r->node.n_out; i++) {
        const weft_value v = weft_value_from_id(r->graph, r->node.first_out + (uint32_t)i);
        const weft_shape shape = weft_shape_of(r->graph, v);
        const weft_dtype dtype = weft_dtype_of(r->graph, v);
        want[i] = weft_tensor_dense(calloc(weft_tensor_bytes(dtype, shape) + 8, 1), dtype, shape);
    }
    reference_function *found = reference_find(r->node.op->name);
    (found ? found : reference_batch_norm)(r->node.attr, r->in, r->node.n_in, want);
    /* 2000 terms of at most 1, with an error of 2^-53 each. */
    expect_near(index, "f64 and the reference", &r->out, &want[0], 3e-13);
    for (size_t i = 0; i < r->node.n_out; i++) free(want[i].data);
}

/* In f32: near the result in f64, with the same bits for any number of threads. */
static void check_single(size_t index, const result *exact)
{
    result one = run(index, WEFT_F32, 1), three = run(index, WEFT_F32, 3);
    const size_t bytes = weft_tensor_bytes(one.out.dtype, one.out.shape);
    /* 300 terms of at most 1, with an error of 4 times 2^-24 each, and as many of a batch norm's
     * standard deviation, which is above 1/2. */
    expect_near(index, "f32 and f64", &one.out, &exact->out, 1e-4);
    CU_ASSERT_EQUAL(memcmp(one.out.data, three.out.data, bytes), 0);
    free_result(&one);
    free_result(&three);
}

static void test_paths(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        result exact = run(i, WEFT_F64, 1);
        against_reference(i, &exact);
        check_single(i, &exact);
        free_result(&exact);
    }
}

/* The gradient of a batch norm of rows, less that of one image with the rows as positions, whose
 * channels are summed in another way. */
static void test_batch_norm_gradient(void)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    const weft_value x = in(g, WEFT_F64, WEFT_SHAPE(200, 70)),
                     gamma = in(g, WEFT_F64, WEFT_SHAPE(70));
    const weft_value seed = in(g, WEFT_F64, WEFT_SHAPE(200, 70));
    const weft_value image = weft_reshape(g, weft_transpose(g, x, 0, 1), WEFT_SHAPE(1, 70, 200));
    weft_value y[2], dx[2][2];
    y[0] = weft_batch_norm(g, x, gamma, gamma, 1e-5, NULL, NULL);
    y[1] = weft_batch_norm(g, image, gamma, gamma, 1e-5, NULL, NULL);
    y[1] = weft_transpose(g, weft_reshape(g, y[1], WEFT_SHAPE(70, 200)), 0, 1);
    for (int i = 0; i < 2; i++) {
        const weft_value loss = weft_sum(g, weft_mul(g, y[i], seed), WEFT_ALL_AXES, false);
        weft_grad(g, loss, (weft_value[]){x, gamma}, 2, dx[i]);
    }
    const weft_value targets[] = {weft_sub(g, dx[0][0], dx[1][0]), weft_sub(g, dx[0][1], dx[1][1])};
    weft_plan *plan = weft_plan_new(g, targets, 2, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    fill_inputs(g, s, 1);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, targets[i], &t, NULL) == WEFT_OK);
        /* 200 terms of at most 4, with an error of 2^-53 each, twice. */
        for (int64_t k = 0; k < weft_shape_numel(t.shape); k++)
            CU_ASSERT_TRUE(fabs(weft_tensor_element(&t, k)) < 2e-13);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static weft_value softmax_and_gradient(weft_graph *g, weft_value x, bool logarithm)
{
    const weft_value y = logarithm ? weft_log_softmax(g, x, 1) : weft_softmax(g, x, 1);
    weft_value dx;
    weft_grad(g, weft_sum(g, weft_mul(g, y, x), WEFT_ALL_AXES, false), &x, 1, &dx);
    return weft_concat(g, (weft_value[]){y, dx}, 2, 1);
}

/* Rows have the same bits whatever rows are packed with them, or a fused group would change them.
 */
static void check_rows(int64_t n, bool logarithm)
{
    static const int64_t sizes[] = {1, 2, 130, 7, 160};
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    const weft_value x = in(g, WEFT_F32, WEFT_SHAPE(300, n));
    weft_value pieces[5], y[2] = {softmax_and_gradient(g, x, logarithm)};
    weft_split(g, x, 0, sizes, 5, pieces);
    for (int i = 0; i < 5; i++) pieces[i] = softmax_and_gradient(g, pieces[i], logarithm);
    y[1] = weft_concat(g, pieces, 5, 0);
    weft_plan *plan = weft_plan_new(g, y, 2, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    fill_inputs(g, s, 1);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    weft_tensor a, b;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, y[0], &a, NULL) == WEFT_OK &&
                         weft_session_tensor(s, y[1], &b, NULL) == WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(a.data, b.data, weft_tensor_bytes(a.dtype, a.shape)), 0);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_rows(void)
{
    static const int64_t lengths[] = {1, 2, 3, 7, 8, 13, 16, 17};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int logarithm = 0; logarithm < 2; logarithm++) check_rows(lengths[i], logarithm);
}

void paths_tests(void)
{
    CU_pSuite suite = CU_add_suite("paths", NULL, NULL);
    CU_add_test(suite, "shapes on both sides of each choice of a path", test_paths);
    CU_add_test(suite, "rows alone and among others", test_rows);
    CU_add_test(suite, "the gradient of a batch norm of rows", test_batch_norm_gradient);
}
