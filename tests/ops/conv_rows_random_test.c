/* conv_rows and conv_rows_depthwise at random shapes against their naive references: strides,
 * dilations, padding and extents of 1, on an instruction set, in a dtype and on a number of threads
 * that are drawn. */
#include "reference.h"
#include "tests.h"

#include "base/platform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANEL 32 /* columns */

static int64_t draw(uint64_t *state, int64_t low, int64_t high)
{
    return (int64_t)test_uniform(state, (double)low, (double)high + 1);
}

/* 1 to `most`, and often 1. */
static int64_t extent(uint64_t *state, int64_t most)
{
    return draw(state, 0, 2) ? draw(state, 1, most) : 1;
}

typedef struct layer {
    bool depthwise;
    conv_rows_attr attr;
    weft_shape in[3]; /* image, weights, bias */
    size_t n_in;
    int64_t terms; /* of a sum */
    bool infinite; /* some weights are */
} layer;

/* False if the kernel does not fit the padded image. */
static bool random_layer(uint64_t *state, layer *l)
{
    memset(l, 0, sizeof *l);
    conv_rows_attr *a = &l->attr;
    l->depthwise = draw(state, 0, 1);
    const int64_t channels = draw(state, 1, 40);
    a->columns = l->depthwise ? channels : draw(state, 1, 70);
    l->in[0] = WEFT_SHAPE(draw(state, 0, 3), extent(state, 14), extent(state, 14), channels);
    a->kernel = a->stride = a->dilation = a->pad_begin = a->pad_end = WEFT_SHAPE(0, 0);
    for (int d = 0; d < 2; d++) {
        a->kernel.dim[d] = extent(state, 4);
        a->stride.dim[d] = extent(state, 4);
        a->dilation.dim[d] = extent(state, 3);
        a->pad_begin.dim[d] = extent(state, 4) - 1;
        a->pad_end.dim[d] = extent(state, 4) - 1;
        if (l->in[0].dim[1 + d] + a->pad_begin.dim[d] + a->pad_end.dim[d] <
            (a->kernel.dim[d] - 1) * a->dilation.dim[d] + 1)
            return false;
    }
    a->bounded = draw(state, 0, 1);
    a->low = -0.5;
    a->high = 0.75;
    l->n_in = draw(state, 0, 1) ? 3 : 2;
    const int64_t taps = a->kernel.dim[0] * a->kernel.dim[1];
    l->terms = l->depthwise ? taps : taps * channels;
    l->in[1] = l->depthwise ? WEFT_SHAPE(a->kernel.dim[0], a->kernel.dim[1], channels)
                            : WEFT_SHAPE((a->columns + PANEL - 1) / PANEL, l->terms, PANEL);
    l->in[2] = WEFT_SHAPE(a->columns);
    l->infinite = draw(state, 0, 3) == 0;
    return true;
}

/* Feeds the session with numbers in [-1, 1) that f32 represents, and some infinities if they are
 * asked for, and returns them; free it. */
static double *feed(weft_session *s, weft_graph *g, weft_value v, bool infinite, uint64_t *state)
{
    const size_t n = (size_t)weft_shape_numel(weft_shape_of(g, v));
    double *x = malloc((n + 1) * sizeof *x);
    float *narrow = malloc((n + 1) * sizeof *narrow);
    for (size_t i = 0; i < n; i++) x[i] = narrow[i] = (float)test_uniform(state, -1, 1);
    for (size_t i = 0; infinite && i < n; i += 1 + n / 3) x[i] = narrow[i] = INFINITY;
    const bool wide = weft_dtype_of(g, v) == WEFT_F64;
    CU_ASSERT_EQUAL(wide ? weft_session_feed(s, v, x, n * sizeof *x, NULL)
                         : weft_session_feed(s, v, narrow, n * sizeof *narrow, NULL),
                    WEFT_OK);
    free(narrow);
    return x;
}

static void check(const layer *l, weft_dtype dtype, int threads, uint64_t *state)
{
    const char *op = l->depthwise ? "conv_rows_depthwise" : "conv_rows";
    weft_graph *g = weft_graph_new();
    weft_value in[3];
    weft_tensor x[3], y;
    for (size_t i = 0; i < l->n_in; i++)
        in[i] = weft_input(g, (const char *[]){"x", "w", "bias"}[i], dtype, l->in[i]);
    weft_value target = weft_apply(g, weft_op_find(op), &l->attr, in, l->n_in, NULL);
    weft_plan *plan = weft_plan_new(g, &target, 1, &(weft_plan_options){.verify = true}, NULL);
    weft_session *s = weft_session_new(
        plan, NULL, &(weft_session_options){.threads = threads, .poison = true}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (size_t i = 0; i < l->n_in; i++)
        x[i] =
            weft_tensor_dense(feed(s, g, in[i], l->infinite && i == 1, state), WEFT_F64, l->in[i]);
    CU_ASSERT_TRUE_FATAL(weft_session_run(s, NULL) == WEFT_OK &&
                         weft_session_tensor(s, target, &y, NULL) == WEFT_OK);
    const int64_t n = weft_shape_numel(y.shape);
    weft_tensor want = weft_tensor_dense(calloc((size_t)n + 1, 8), WEFT_F64, y.shape);
    reference_find(op)(&l->attr, x, l->n_in, &want);
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double got = dtype == WEFT_F64 ? ((double *)y.data)[i] : (double)((float *)y.data)[i];
        const double wanted = ((double *)want.data)[i];
        const bool same = got == wanted || (isnan(got) && isnan(wanted));
        const double off = same ? 0 : fabs(got - wanted);
        if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
    }
    /* Each term of a sum is below 1 and rounds a few times; in f32 4e-7 is seven roundings of
     * 2^-24, in f64 1e-15 is nine of 2^-53. */
    const bool good = worst <= (dtype == WEFT_F32 ? 4e-7 : 1e-15) * (double)(4 + l->terms);
    char shapes[2][128];
    if (!good)
        fprintf(stderr, "\n    %s, %s, x %s, w %s: off by %g\n", op, weft_dtype_name(dtype),
                weft_shape_text(l->in[0], shapes[0], sizeof shapes[0]),
                weft_shape_text(l->in[1], shapes[1], sizeof shapes[1]), worst);
    CU_ASSERT_TRUE(good);
    for (size_t i = 0; i < l->n_in; i++) free(x[i].data);
    free(want.data);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_layers(void)
{
    static const char *const isas[] = {"base", "v3", "v4", "v4_bf16", "v4_amx"};
    const char *old = getenv("WEFT_ISA");
    char *before = old ? strdup(old) : NULL;
    uint64_t state = 11;
    for (int done = 0; done < 500;) {
        layer l;
        if (!random_layer(&state, &l)) continue;
        weft__os_set_variable("WEFT_ISA", isas[draw(&state, 0, WEFT_ISAS - 1)]);
        check(&l, draw(&state, 0, 1) ? WEFT_F64 : WEFT_F32, (int)draw(&state, 1, 2), &state);
        done++;
    }
    weft__os_set_variable("WEFT_ISA", NULL);
    if (before) weft__os_set_variable("WEFT_ISA", before);
    free(before);
}

void conv_rows_random_tests(void)
{
    CU_pSuite suite = CU_add_suite("conv_rows_random", NULL, NULL);
    CU_add_test(suite, "random shapes equal naive references", test_layers);
}
