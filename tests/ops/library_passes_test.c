/* The library's passes that rewrite a few nodes: what they replace, what they leave, and that the
 * results stay the same. */
#include "tests.h"

#include <string.h>

/* ---- Passes over sums ---- */

/* Evaluates a value in f64 over inputs that are constants. */
static weft_plan *evaluate(const weft_graph *g, weft_value value, const char *skip, double *out,
                           size_t n)
{
    weft_error error = {0};
    weft_plan_options options = {.skip = skip, .verify = true};
    weft_plan *plan = weft_plan_new(g, &value, 1, &options, &error);
    weft_params *none = weft_params_new();
    weft_session *s = weft_session_new(plan, none, NULL, &error);
    if (!s) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_TRUE_FATAL(s && weft_session_run(s, NULL) == WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_session_fetch(s, value, out, n * sizeof *out, NULL), WEFT_OK);
    weft_session_free(s);
    weft_params_free(none);
    return plan;
}

static weft_value constant(weft_graph *g, weft_shape shape, uint64_t seed)
{
    double data[256];
    for (int64_t i = 0; i < weft_shape_numel(shape); i++) data[i] = test_uniform(&seed, -1, 1);
    return weft_constant(g, WEFT_F64, shape, data);
}

/* The gradient of sum(slice(x) w) for each range [begin, end) of axis 1 of x [2, 10]. */
static weft_value slice_terms(weft_graph *g, const int64_t (*ranges)[2], size_t n, double *wanted)
{
    weft_value x = constant(g, WEFT_SHAPE(2, 10), 5), pieces[8], weights[8], grad;
    memset(wanted, 0, 20 * sizeof *wanted);
    for (size_t i = 0; i < n; i++) {
        int64_t begin = ranges[i][0], count = ranges[i][1] - begin;
        double data[20];
        uint64_t seed = i + 1;
        pieces[i] = weft_slice(g, x, 1, begin, begin + count, 1);
        for (int64_t k = 0; k < 2 * count; k++) {
            data[k] = test_uniform(&seed, -1, 1);
            wanted[k / count * 10 + begin + k % count] += data[k];
        }
        weights[i] = weft_constant(g, WEFT_F64, WEFT_SHAPE(2, count), data);
    }
    weft_grad_of(g, pieces, weights, n, &x, 1, &grad);
    return grad;
}

static void test_slices(void)
{
    static const struct {
        int64_t ranges[5][2];
        size_t n, scatters; /* slice_scatter nodes that must be left */
    } cases[] = {
        {{{0, 4}, {4, 5}, {5, 10}}, 3, 0},                 /* a whole split */
        {{{5, 10}, {0, 2}, {4, 5}}, 3, 0},                 /* with gaps, in another order */
        {{{1, 3}, {7, 9}}, 2, 0},                          /* gaps at both ends */
        {{{0, 6}, {4, 10}, {6, 7}}, 3, 1},                 /* one overlaps and stays */
        {{{0, 5}, {0, 5}, {5, 10}, {5, 10}, {2, 3}}, 5, 3} /* two whole splits and more */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int without = 0; without < 2; without++) {
            double got[20], wanted[20];
            weft_graph *g = weft_graph_new();
            weft_value grad = slice_terms(g, cases[i].ranges, cases[i].n, wanted);
            weft_plan *plan = evaluate(g, grad, without ? "fold,join_slices" : "fold", got, 20);
            /* Up to three numbers below 1, added in any order: four roundings of at most 2^-52. */
            for (int k = 0; k < 20; k++) CU_ASSERT_DOUBLE_EQUAL(got[k], wanted[k], 1e-15);
            CU_ASSERT_EQUAL(test_count_nodes(plan, "slice_scatter"),
                            without || test_skips_pass("join_slices") ? cases[i].n
                                                                      : cases[i].scatters);
            weft_plan_free(plan);
            weft_graph_free(g);
        }
    }
}

/* Many thin products become one, also products with a batch; others stay as they are. */
static void test_products(void)
{
    static const struct {
        weft_shape a, b;
        size_t n, matmuls;
    } cases[] = {{{2, {5, 2}}, {2, {2, 6}}, 4, 1},
                 {{3, {2, 4, 1}}, {3, {2, 1, 3}}, 3, 1},
                 {{3, {2, 4, 1}}, {2, {1, 3}}, 3, 3},     /* b serves the whole batch */
                 {{2, {1, 4000}}, {2, {4000, 1}}, 2, 2}}; /* the factors are larger */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool large = weft_shape_numel(cases[i].a) > 256;
        weft_value terms[4];
        double got[32], wanted[32];
        weft_graph *g = weft_graph_new();
        for (size_t k = 0; k < cases[i].n; k++) {
            weft_value a = large ? weft_fill(g, WEFT_F64, cases[i].a, 0.5 + (double)k)
                                 : constant(g, cases[i].a, 2 * k + 1);
            weft_value b = large ? weft_fill(g, WEFT_F64, cases[i].b, 0.25)
                                 : constant(g, cases[i].b, 2 * k + 2);
            terms[k] = weft_matmul(g, a, b);
        }
        size_t numel = (size_t)weft_shape_numel(weft_shape_of(g, terms[0]));
        weft_value sum = weft_add_n(g, terms, cases[i].n);
        weft_plan *joined = evaluate(g, sum, "fold", got, numel);
        weft_plan *apart = evaluate(g, sum, "fold,join_products", wanted, numel);
        /* Sums of up to 8000 terms of one sign: 8000 * 2^-53 = 9e-13 of them. */
        for (size_t k = 0; k < numel; k++)
            CU_ASSERT_DOUBLE_EQUAL(got[k], wanted[k], 1e-12 * (1 + fabs(wanted[k])));
        CU_ASSERT_EQUAL(test_count_nodes(joined, "matmul"),
                        test_skips_pass("join_products") ? cases[i].n : cases[i].matmuls);
        CU_ASSERT_EQUAL(test_count_nodes(apart, "matmul"), cases[i].n);
        weft_plan_free(joined);
        weft_plan_free(apart);
        weft_graph_free(g);
    }
}

/* A sum of both: the pieces become one term, the products another, and the last stays. */
static void test_mixed_sum(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = constant(g, WEFT_SHAPE(4, 6), 1), terms[5];
    double got[24], wanted[24];
    for (int i = 0; i < 2; i++) {
        weft_value half = weft_slice(g, x, 1, 3 * i, 3 * i + 3, 1);
        weft_value weight = constant(g, WEFT_SHAPE(4, 3), 2 + (uint64_t)i);
        weft_grad_of(g, &half, &weight, 1, &x, 1, &terms[2 * i]);
        terms[2 * i + 1] = weft_matmul(g, constant(g, WEFT_SHAPE(4, 2), 4 + (uint64_t)i),
                                       constant(g, WEFT_SHAPE(2, 6), 6 + (uint64_t)i));
    }
    terms[4] = weft_tanh(g, x);
    weft_value sum = weft_add_n(g, terms, 5);
    weft_plan *joined = evaluate(g, sum, "fold", got, 24);
    weft_plan *apart = evaluate(g, sum, "fold,join_slices,join_products", wanted, 24);
    /* Some ten terms below 1, with a product and a sum each on both sides: 40 * 2^-53 = 4e-15. */
    for (int k = 0; k < 24; k++) CU_ASSERT_DOUBLE_EQUAL(got[k], wanted[k], 1e-14);
    CU_ASSERT_EQUAL(test_count_nodes(apart, "slice_scatter"), 2);
    CU_ASSERT_EQUAL(test_count_nodes(apart, "matmul"), 2);
    if (!test_skips_pass("join")) {
        const weft_graph *planned = weft_plan_graph(joined);
        CU_ASSERT_EQUAL(test_count_nodes(joined, "slice_scatter"), 0);
        CU_ASSERT_EQUAL(test_count_nodes(joined, "matmul"), 1);
        for (size_t i = 0; i < weft_graph_node_count(planned); i++) {
            weft_node_info node = weft_graph_node(planned, i);
            if (!strcmp(node.op->name, "add_n")) CU_ASSERT_EQUAL(node.n_in, 3);
        }
    }
    weft_plan_free(joined);
    weft_plan_free(apart);
    weft_graph_free(g);
}

/* ---- fold_conv ---- */

/* A convolution with 2 images, 3 channels and 2 x 2 results, and a kernel of side x side. */
static weft_value fold_image(weft_graph *g, int64_t side, bool bias)
{
    const int64_t in = 1 + side;
    return weft_conv(g, constant(g, WEFT_SHAPE(2, 2, in, in), 1),
                     constant(g, WEFT_SHAPE(3, 2, side, side), 2),
                     bias ? constant(g, WEFT_SHAPE(3), 3) : WEFT_NO_VALUE, NULL);
}

static weft_value fold_channels(weft_graph *g, uint64_t seed)
{
    return weft_reshape(g, constant(g, WEFT_SHAPE(3), seed), WEFT_SHAPE(3, 1, 1));
}

/* What reads a convolution moves into it, unless another node reads the same value, or not every
 * channel has a number of its own, or there are more weights than results. */
static void test_fold_conv(void)
{
    static const struct {
        int64_t side;
        size_t adds, subs, muls; /* that must be left, those of weights and biases included */
    } cases[] = {
        {1, 1, 1, 2}, /* (conv - t) s + t: all of it moves */
        {3, 1, 1, 1}, /* 54 weights for 24 results: the scale and what follows it stay */
        {1, 0, 1, 2}, /* t - conv, then times s: both stay */
        {1, 0, 0, 1}, /* times a number for each column: stays */
        {1, 1, 0, 1}, /* conv s + conv: there are two readers */
    };
    for (int k = 0; k < 10; k++) {
        const int c = k / 2;
        double got[24], wanted[24];
        weft_graph *g = weft_graph_new();
        weft_value y = fold_image(g, cases[c].side, k % 2 == 1), conv = y;
        weft_value s = fold_channels(g, 5), t = fold_channels(g, 6);
        if (c == 3) s = constant(g, WEFT_SHAPE(2), 5);
        if (c < 3) y = c == 2 ? weft_sub(g, t, y) : weft_sub(g, y, t);
        y = weft_mul(g, s, y);
        if (c < 2) y = weft_add(g, y, t);
        if (c == 2) y = weft_mul(g, y, s);
        if (c == 4) y = weft_add(g, y, conv);
        weft_plan *folded = evaluate(g, y, "fold,fuse", got, 24);
        weft_plan *plain = evaluate(g, y, "fold,fold_conv", wanted, 24);
        for (int i = 0; i < 24; i++) CU_ASSERT_DOUBLE_EQUAL(got[i], wanted[i], ROUNDING_F64);
        CU_ASSERT_EQUAL(test_count_nodes(folded, "conv"), 1);
        CU_ASSERT_EQUAL(test_count_nodes(plain, "mul"), c == 2 ? 2 : 1);
        if (!test_skips_pass("fold_conv")) {
            /* Without a bias, the first shift becomes one: a negation and no difference. */
            const size_t subs = c < 2 && k % 2 == 0 ? 0 : cases[c].subs;
            CU_ASSERT_EQUAL(test_count_nodes(folded, "add"), cases[c].adds);
            CU_ASSERT_EQUAL(test_count_nodes(folded, "sub"), subs);
            CU_ASSERT_EQUAL(test_count_nodes(folded, "neg"), c < 2 && k % 2 == 0);
            CU_ASSERT_EQUAL(test_count_nodes(folded, "mul"), cases[c].muls);
        }
        weft_plan_free(folded);
        weft_plan_free(plain);
        weft_graph_free(g);
    }
}

/* With fixed states, weights are scaled in a session's first run only, however many they are, but
 * only by a scale that is fixed as well. The scale is either operand. */
static void test_fold_conv_fixed(void)
{
    for (int k = 0; k < 4; k++) {
        const bool fixed = k / 2, first = k % 2;
        weft_error error = {0};
        weft_graph *g = weft_graph_new();
        weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(2, 2, 4, 4));
        weft_value w = weft_param(g, "w", WEFT_F64, WEFT_SHAPE(3, 2, 3, 3), WEFT_INIT_ZEROS);
        weft_value s = fixed ? weft_param(g, "s", WEFT_F64, WEFT_SHAPE(3, 1, 1), WEFT_INIT_ZEROS)
                             : weft_input(g, "s", WEFT_F64, WEFT_SHAPE(3, 1, 1));
        weft_value y = weft_conv(g, x, w, WEFT_NO_VALUE, NULL);
        y = first ? weft_mul(g, s, y) : weft_mul(g, y, s);
        const weft_plan_options options = {.skip = "channels_last,pack_weights,fuse",
                                           .fixed_states = true};
        weft_plan *plan = weft_plan_new(g, &y, 1, &options, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
        const weft_graph *planned = weft_plan_graph(plan);
        for (size_t i = 0; !test_skips_pass("fold_conv") && i < weft_graph_node_count(planned);
             i++) {
            const weft_node_info node = weft_graph_node(planned, i);
            if (strcmp(node.op->name, "conv") != 0) continue;
            const weft_value weights = weft_value_from_id(planned, node.in[1]);
            const weft_node_info from =
                weft_graph_node(planned, weft_producer_of(planned, weights));
            CU_ASSERT_EQUAL(!strcmp(from.op->name, "mul"), fixed);
        }
        weft_plan_free(plan);
        weft_graph_free(g);
    }
}

/* ---- channels_last ---- */

/* The bits of a convolution of two others that are joined along `axis`; *joined is the axis along
 * which the plan joins them. */
static void run_joined(int axis, const char *skip, float *out, size_t n, int *joined)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    const weft_init normal = {WEFT_INIT_NORMAL, 0, 1};
    const weft_conv_options around = {.pad_begin = {1, 1}, .pad_end = {1, 1}};
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, 4, 6, 6));
    weft_value both[2];
    for (int i = 0; i < 2; i++) {
        const weft_value w = weft_param(g, i ? "b" : "a", WEFT_F32, WEFT_SHAPE(8, 4, 3, 3), normal);
        both[i] = weft_relu(g, weft_conv(g, x, w, WEFT_NO_VALUE, &around));
    }
    const weft_value y = weft_concat(g, both, 2, axis);
    const weft_value w =
        weft_param(g, "c", WEFT_F32, WEFT_SHAPE(5, axis == 1 ? 16 : 8, 3, 3), normal);
    const weft_value z = weft_conv(g, y, w, WEFT_NO_VALUE, &around);
    const weft_plan_options options = {.skip = skip, .fixed_states = true, .verify = true};
    weft_plan *plan = weft_plan_new(g, &z, 1, &options, &error);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(params, g, 5, &error), WEFT_OK);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    float in[4 * 36];
    for (int i = 0; i < 4 * 36; i++) in[i] = sinf((float)i);
    CU_ASSERT_TRUE_FATAL(s && weft_session_feed(s, x, in, sizeof in, NULL) == WEFT_OK &&
                         weft_session_run(s, NULL) == WEFT_OK &&
                         weft_session_fetch(s, z, out, n * sizeof *out, NULL) == WEFT_OK);
    const weft_graph *planned = weft_plan_graph(plan);
    *joined = -1;
    for (size_t i = 0; i < weft_graph_node_count(planned); i++) {
        const weft_node_info node = weft_graph_node(planned, i);
        if (!strcmp(node.op->name, "concat")) *joined = *(const int32_t *)node.attr;
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
}

/* Channels that are joined stay innermost; rows that are joined go back to their layout. */
static void test_channels_joined(void)
{
    static float got[2][5 * 12 * 6];
    for (int axis = 1; axis <= 2; axis++) {
        const size_t n = axis == 1 ? 5 * 36 : 5 * 72;
        int with, without;
        run_joined(axis, NULL, got[0], n, &with);
        run_joined(axis, "channels_last", got[1], n, &without);
        EXPECT_SAME_BITS(WEFT_F32, got[0], got[1], n);
        CU_ASSERT_EQUAL(without, axis);
        if (!test_skips_pass("channels_last")) CU_ASSERT_EQUAL(with, axis == 1 ? 3 : axis);
    }
}

/* ---- reuse_dropout ---- */

/* Bits of a gradient, and in *from_dropout whether a relu_grad of the plan reads a dropout. */
static void relu_gradient(const weft_graph *g, weft_value x, weft_value dx, const char *skip,
                          float *out, size_t n, bool *from_dropout)
{
    weft_error error = {0};
    float in[64];
    uint64_t seed = 3;
    for (size_t i = 0; i < n; i++) in[i] = (float)test_uniform(&seed, -1, 1);
    in[0] = 0;
    in[1] = NAN;
    in[2] = INFINITY;
    weft_plan *plan =
        weft_plan_new(g, &dx, 1, &(weft_plan_options){.skip = skip, .verify = true}, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_TRUE_FATAL(s && weft_session_feed(s, x, in, n * sizeof *in, NULL) == WEFT_OK &&
                         weft_session_run(s, NULL) == WEFT_OK &&
                         weft_session_fetch(s, dx, out, n * sizeof *out, NULL) == WEFT_OK);
    const weft_graph *planned = weft_plan_graph(plan);
    *from_dropout = false;
    for (size_t i = 0; i < weft_graph_node_count(planned); i++) {
        weft_node_info node = weft_graph_node(planned, i);
        if (strcmp(node.op->name, "relu_grad") != 0) continue;
        weft_value y = weft_value_from_id(planned, node.in[0]);
        node = weft_graph_node(planned, weft_producer_of(planned, y));
        *from_dropout = !strcmp(node.op->name, "dropout");
    }
    weft_session_free(s);
    weft_plan_free(plan);
}

/* relu's gradient after a dropout reads the dropout's output, of the same bits; after another
 * dropout, or where the mask is another, it reads relu's own. */
static void test_reuse_dropout(void)
{
    enum { N = 64, CASES = 3 };
    for (int k = 0; k < CASES; k++) {
        weft_graph *g = weft_graph_new();
        weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(N)), dx;
        weft_value y = weft_relu(g, x);
        weft_value d = weft_dropout(g, k == 1 ? weft_add(g, x, y) : y, 0.5);
        weft_grad(g, weft_sum(g, weft_mul(g, d, x), WEFT_ALL_AXES, false), &x, 1, &dx);
        if (k == 2) /* two readers: a sum arrives at relu, not a dropout */
            weft_grad(g, weft_sum(g, weft_mul(g, d, y), WEFT_ALL_AXES, false), &x, 1, &dx);
        float with[N], without[N];
        bool reused, reused_without;
        relu_gradient(g, x, dx, NULL, with, N, &reused);
        relu_gradient(g, x, dx, "reuse_dropout", without, N, &reused_without);
        CU_ASSERT_EQUAL(reused, k == 0 && !test_skips_pass("reuse_dropout"));
        CU_ASSERT_FALSE(reused_without);
        CU_ASSERT_EQUAL(memcmp(with, without, sizeof with), 0);
        weft_graph_free(g);
    }
}

void library_passes_tests(void)
{
    CU_pSuite suite = CU_add_suite("library_passes", NULL, NULL);
    CU_add_test(suite, "a sum of slices becomes a concat", test_slices);
    CU_add_test(suite, "a sum of products becomes one product", test_products);
    CU_add_test(suite, "a sum of slices, products and others", test_mixed_sum);
    CU_add_test(suite, "scales and shifts move into a convolution", test_fold_conv);
    CU_add_test(suite, "fixed scales move into fixed weights", test_fold_conv_fixed);
    CU_add_test(suite, "joined channels stay innermost", test_channels_joined);
    CU_add_test(suite, "relu's gradient reads a dropout that follows relu", test_reuse_dropout);
}
