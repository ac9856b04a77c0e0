/* conv_winograd: how far its results are from those of conv in f64, the same bits on every
 * instruction set and at one and two threads, with nodes fused to it; and the pass that makes it. */
#include "reference.h"
#include "tests.h"

#include "base/platform.h"
#include "ir/isa.h"

#include <weft/op.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer {
    int64_t images, in[2], channels, columns, pad;
    bool bias;
} layer;

/* Shapes with tiles of lines, parts of a line, several images, and several tasks of columns. */
static const layer layers[] = {
    {1, {9, 11}, 5, 7, 1, true},  {1, {30, 31}, 40, 70, 1, true}, {1, {7, 7}, 260, 100, 1, false},
    {9, {5, 4}, 90, 33, 1, true}, {1, {3, 700}, 6, 48, 0, false}, {2, {14, 14}, 256, 64, 1, true},
    {1, {1, 1}, 3, 9, 2, true},   {3, {6, 5}, 1, 1, 1, true},
};

/* y of a layer, by Winograd's method with a tile, or by conv if the tile is 0. x and w are drawn
 * from `seed` as numbers that f32 represents. Two elementwise nodes follow, which may be fused. */
static double *run(const layer *l, int64_t tile, weft_dtype dtype, int threads, uint64_t seed)
{
    weft_graph *g = weft_graph_new();
    const weft_value x =
        weft_input(g, "x", dtype, WEFT_SHAPE(l->images, l->in[0], l->in[1], l->channels));
    const weft_value w = weft_input(g, "w", dtype, WEFT_SHAPE(l->columns, l->channels, 3, 3));
    const weft_value bias = weft_input(g, "bias", dtype, WEFT_SHAPE(l->columns));
    const weft_shape pad = WEFT_SHAPE(l->pad, l->pad);
    weft_value y;
    if (tile) {
        conv_rows_attr a;
        memset(&a, 0, sizeof a);
        a.kernel = WEFT_SHAPE(3, 3);
        a.stride = a.dilation = WEFT_SHAPE(1, 1);
        a.pad_begin = a.pad_end = pad;
        a.columns = l->columns;
        const weft_value u = weft_apply(g, weft_op_find("winograd_weights"), &tile, &w, 1, NULL);
        y = weft_apply(g, weft_op_find("conv_winograd"), &a, (weft_value[]){x, u, bias},
                       l->bias ? 3 : 2, NULL);
    } else {
        const weft_conv_options o = {.pad_begin = {l->pad, l->pad}, .pad_end = {l->pad, l->pad}};
        y = weft_permute(g,
                         weft_conv(g, weft_permute(g, x, WEFT_AXES(0, 3, 1, 2)), w,
                                   l->bias ? bias : WEFT_NO_VALUE, &o),
                         WEFT_AXES(0, 2, 3, 1));
    }
    y = weft_neg(g, weft_mul_scalar(g, y, 0.5));
    weft_plan *plan = weft_plan_new(g, &y, 1, &(weft_plan_options){.verify = true}, NULL);
    weft_session *s = weft_session_new(
        plan, NULL, &(weft_session_options){.threads = threads, .poison = true}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    const weft_value in[3] = {x, w, bias};
    for (int i = 0; i < 3; i++) {
        const int64_t n = weft_shape_numel(weft_shape_of(g, in[i]));
        weft_tensor t;
        if (weft_session_tensor(s, in[i], &t, NULL) != WEFT_OK) continue; /* not used */
        for (int64_t k = 0; k < n; k++) {
            const float number = (float)test_uniform(&seed, -1, 1);
            if (dtype == WEFT_F32)
                ((float *)t.data)[k] = number;
            else
                ((double *)t.data)[k] = number;
        }
    }
    weft_tensor out;
    CU_ASSERT_TRUE_FATAL(weft_session_run(s, NULL) == WEFT_OK &&
                         weft_session_tensor(s, y, &out, NULL) == WEFT_OK);
    const int64_t n = weft_shape_numel(out.shape);
    double *result = malloc((size_t)(n + 1) * sizeof *result);
    for (int64_t k = 0; k < n; k++) result[k] = weft_tensor_element(&out, k);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return result;
}

static int64_t results_of(const layer *l)
{
    return l->images * (l->in[0] + 2 * l->pad - 2) * (l->in[1] + 2 * l->pad - 2) * l->columns;
}

/* ---- Accuracy ---- */

/* The root mean square of the difference over that of the result. */
static double distance(const double *expected, const double *got, int64_t n)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += (got[i] - expected[i]) * (got[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    return sqrt(difference / norm);
}

/* In units of 2^-24, for f64 of 2^-53. The largest seen are 3.7 for conv (0 in f64, which is the
 * same computation), 6.2 for tiles of 2, and 18.3 for tiles of 4. */
static void test_accuracy(void)
{
    static const double most[5] = {[0] = 5, [2] = 8, [4] = 24};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const layer *l = &layers[i];
        const int64_t n = results_of(l);
        double *expected = run(l, 0, WEFT_F64, 1, 7);
        for (int64_t tile = 0; tile <= 4; tile += 2) {
            double *narrow = run(l, tile, WEFT_F32, 1, 7), *wide = run(l, tile, WEFT_F64, 1, 7);
            const double off = distance(expected, narrow, n) * 0x1p24,
                         off_wide = distance(expected, wide, n) * 0x1p53;
            if (!(off < most[tile]) || !(off_wide < most[tile]))
                fprintf(stderr, "\n    layer %zu, tile %d: off by %.2f and %.2f units\n", i,
                        (int)tile, off, off_wide);
            CU_ASSERT_TRUE(off < most[tile]);
            CU_ASSERT_TRUE(off_wide < most[tile]);
            free(narrow);
            free(wide);
        }
        free(expected);
    }
}

/* ---- Bits ---- */

static void test_bits(void)
{
    static const char *const isas[] = {"base", "v3", "v4", "v4_bf16", "v4_amx"};
    const char *old = getenv("WEFT_ISA");
    char *before = old ? strdup(old) : NULL;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int64_t tile = 2; tile <= 4; tile += 2) {
            weft__os_set_variable("WEFT_ISA", "base");
            double *expected = run(&layers[i], tile, WEFT_F32, 1, 3);
            const size_t bytes = (size_t)results_of(&layers[i]) * sizeof *expected;
            for (int isa = 0; isa < WEFT_ISAS; isa++)
                for (int threads = 1; threads <= 2; threads++) {
                    weft__os_set_variable("WEFT_ISA", isas[isa]);
                    double *got = run(&layers[i], tile, WEFT_F32, threads, 3);
                    const bool same = !memcmp(expected, got, bytes);
                    if (!same)
                        fprintf(stderr, "\n    layer %zu, tile %d, %s, %d threads: other bits\n", i,
                                (int)tile, isas[isa], threads);
                    CU_ASSERT_TRUE(same);
                    free(got);
                }
            free(expected);
        }
    weft__os_set_variable("WEFT_ISA", NULL);
    if (before) weft__os_set_variable("WEFT_ISA", before);
    free(before);
}

/* ---- The pass ---- */

/* A convolution of `images` [channels, side, side] by a parameter, and a relu. */
typedef struct planned {
    int64_t images, side, channels, columns;
    weft_dtype dtype;
    weft_conv_options options;
    int64_t taps;
    size_t wanted; /* nodes conv_winograd */
} planned;

/* Counts the nodes of the plan that are conv_winograd, and those that are relu. */
static void count(const planned *p, const char *skip, bool fixed, size_t *winograd, size_t *relu)
{
    weft_graph *g = weft_graph_new();
    const int64_t groups = p->options.groups ? p->options.groups : 1;
    const weft_value x =
        weft_input(g, "x", p->dtype, WEFT_SHAPE(p->images, p->channels, p->side, p->side));
    const weft_value w =
        weft_param(g, "w", p->dtype, WEFT_SHAPE(p->columns, p->channels / groups, p->taps, p->taps),
                   (weft_init){WEFT_INIT_UNIFORM, -1, 1});
    const weft_value y = weft_relu(g, weft_conv(g, x, w, WEFT_NO_VALUE, &p->options));
    const weft_plan_options options = {.skip = skip, .fixed_states = fixed, .verify = true};
    weft_plan *plan = weft_plan_new(g, &y, 1, &options, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    const weft_graph *graph = weft_plan_graph(plan);
    *winograd = *relu = 0;
    for (size_t i = 0; i < weft_graph_node_count(graph); i++) {
        const weft_node_info node = weft_graph_node(graph, i);
        *winograd += !strcmp(node.op->name, "conv_winograd");
        *relu += !strcmp(node.op->name, "relu");
    }
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* It is taken where it pays: not for few channels, nor for other kernels. */
static void test_choice(void)
{
#define AROUND .pad_begin = {1, 1}, .pad_end = { 1, 1 }
    static const planned cases[] = {
        {1, 56, 64, 64, WEFT_F32, {AROUND}, 3, 1},
        {1, 14, 256, 256, WEFT_F32, {AROUND}, 3, 1},
        {1, 56, 64, 64, WEFT_F64, {AROUND}, 3, 0},
        {1, 56, 64, 64, WEFT_F32, {AROUND, .stride = {2, 2}}, 3, 0},
        {1, 56, 64, 64, WEFT_F32, {AROUND, .dilation = {1, 2}}, 3, 0},
        {1, 56, 64, 64, WEFT_F32, {AROUND, .groups = 2}, 3, 0},
        {1, 56, 64, 64, WEFT_F32, {AROUND}, 5, 0},
        {1, 56, 3, 64, WEFT_F32, {AROUND}, 3, 0},
        {1, 1, 512, 512, WEFT_F32, {AROUND}, 3, 0}, /* one tap is inside */
        {0, 56, 64, 64, WEFT_F32, {AROUND}, 3, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n, relu;
        count(&cases[i], NULL, true, &n, &relu);
        if (!test_skips_pass("winograd")) CU_ASSERT_EQUAL(n, cases[i].wanted);
        if (n && !test_skips_pass("channels_last")) CU_ASSERT_EQUAL(relu, 0);
        count(&cases[i], "winograd", true, &n, &relu);
        CU_ASSERT_EQUAL(n, 0);
        count(&cases[i], NULL, false, &n, &relu);
        CU_ASSERT_EQUAL(n, 0);
    }
}

void winograd_tests(void)
{
    CU_pSuite suite = CU_add_suite("winograd", NULL, NULL);
    CU_add_test(suite, "near the sums of conv in f64", test_accuracy);
    CU_add_test(suite, "the same bits everywhere", test_bits);
    CU_add_test(suite, "the pass takes it where it pays", test_choice);
}
