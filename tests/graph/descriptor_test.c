/* What the graph asks of an op's descriptor: a node of an incomplete one is refused when it is
 * added, with a line that names the op and what is missing. */
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Descriptors that lack something ---- */

static bool infer_same(weft_infer *infer)
{
    for (size_t i = 0; i < infer->n_out; i++) infer->out[i] = infer->in[0];
    return true;
}

static void kernel_copy(const weft_call *call, int64_t tile)
{
    int64_t n = weft_shape_numel(call->out[0].shape);
    for (int64_t i = tile * WEFT_TILE; i < n && i < (tile + 1) * WEFT_TILE; i++)
        ((float *)call->out[0].data)[i] = ((const float *)call->in[0].data)[i];
}

static void expand_same(weft_expand *e)
{
    e->out[0] = e->in[0];
}

static bool alias_same(const void *attr, const weft_type *in, const weft_layout *in_layout,
                       const weft_type *out, weft_layout *out_layout)
{
    (void)attr, (void)in, (void)out;
    *out_layout = *in_layout;
    return true;
}

static const weft_attr_field fields[] = {{"factor", WEFT_ATTR_DOUBLE, 0}, {NULL, WEFT_ATTR_INT, 0}};

/* Complete but for what follows, which overrides. */
static void vjp_same(weft_vjp *v)
{
    v->grad_in[0] = v->grad_out[0];
}

#define COPY                                                                                       \
    .name = "copy", .min_in = 1, .max_in = 1, .n_out = 1, .infer = infer_same,                     \
    .kernel = {{kernel_copy}}, .gradient = WEFT_GRADIENT_NONE

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const struct {
    weft_op op;
    weft_status status;
    const char *message; /* a part of it */
} incomplete[] = {
    {{COPY, .name = NULL}, WEFT_BAD_ARGUMENT, "has no name"},
    {{COPY, .infer = NULL}, WEFT_BAD_ARGUMENT, "has no shape rule"},
    {{COPY, .n_out = 0}, WEFT_BAD_ARGUMENT, "0 outputs"},
    {{COPY, .n_out = WEFT_MAX_OUTPUTS + 1}, WEFT_BAD_ARGUMENT, "33 outputs"},
    {{COPY, .min_in = 2}, WEFT_BAD_ARGUMENT, "2 to 1 inputs"},
    {{COPY, .updates = 2}, WEFT_BAD_ARGUMENT, "updates 2"},
    {{COPY, .min_in = 0, .updates = 1}, WEFT_BAD_ARGUMENT, "updates 1"},
    {{COPY, .phases = 3}, WEFT_BAD_ARGUMENT, "3 phases"},
    {{COPY, .attrs = fields}, WEFT_BAD_ARGUMENT, "\"factor\""},
    {{COPY, .attr_size = 4, .attrs = fields}, WEFT_BAD_ARGUMENT, "\"factor\""},
    {{COPY, .takes = (weft_takes)9}, WEFT_BAD_ARGUMENT, "takes"},
    {{COPY, .gradient = (weft_gradient)9}, WEFT_BAD_ARGUMENT, "gradient"},
    {{COPY, .n_samples = 1}, WEFT_BAD_ARGUMENT, "samples"},
    {{COPY, .exchanges = true}, WEFT_BAD_ARGUMENT, "does not declare can_fail"},
    {{COPY, .vjp = vjp_same}, WEFT_BAD_ARGUMENT, "has a vjp, but declares"},
    {{COPY, .alias = alias_same}, WEFT_BAD_ARGUMENT, "kernel"},
    {{COPY, .kernel = {{NULL}}, .alias = alias_same, .n_out = 2}, WEFT_BAD_ARGUMENT, "view"},
    {{COPY, .kernel = {{NULL}}, .alias = alias_same, .min_in = 0}, WEFT_BAD_ARGUMENT, "view"},
    {{COPY, .kernel = {{NULL}}, .alias = alias_same, .updates = 1}, WEFT_BAD_ARGUMENT, "view"},
    {{COPY, .kernel = {{NULL}}}, WEFT_NO_KERNEL, "no kernel"},
};
#pragma GCC diagnostic pop

static void test_incomplete(void)
{
    for (size_t i = 0; i < sizeof incomplete / sizeof *incomplete; i++) {
        const weft_op *op = &incomplete[i].op;
        weft_graph *g = weft_graph_new();
        weft_value x = weft_param(g, "x", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ONES);
        weft_value in[2] = {x, x}, out[WEFT_MAX_OUTPUTS];
        size_t n = op->min_in > 1 ? op->min_in : 1;
        weft_value y = weft_apply(g, op, NULL, in, n, out);
        const weft_error *e = weft_graph_error(g);
        const char *where = op->name ? op->name : "weft_apply";
        if (weft_is_value(y) || e->status != incomplete[i].status || strcmp(e->where, where) != 0 ||
            !strstr(e->message, incomplete[i].message)) {
            fprintf(stderr, "\n    descriptor %zu: \"%s\", got %d \"%s: %s\"\n", i,
                    incomplete[i].message, (int)e->status, e->where, e->message);
            CU_FAIL("an incomplete descriptor is accepted, or refused for another reason");
        }
        weft_graph_free(g);
    }
}

static void expect_error(weft_graph *g, weft_status status, const char *where, const char *part)
{
    const weft_error *e = weft_graph_error(g);
    CU_ASSERT_EQUAL(e->status, status);
    if (strcmp(e->where, where) != 0 || !strstr(e->message, part)) {
        fprintf(stderr, "\n    got \"%s: %s\", expected \"%s\" and \"%s\"\n", e->where, e->message,
                where, part);
        CU_FAIL("another message");
    }
    weft_graph_free(g);
}

/* An op that takes f64 but has kernels for f32 only is refused where it is applied to f64, unless
 * it expands into ops that have some. */
static void test_dtypes(void)
{
    const weft_op single = {COPY};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(3));
    weft_graph_push_scope(g, "layer");
    CU_ASSERT_FALSE(weft_is_value(weft_apply(g, &single, NULL, &x, 1, NULL)));
    expect_error(g, WEFT_NO_KERNEL, "layer/copy", "no kernel for f64, only for f32");

    const weft_op either = {COPY, .expand = expand_same};
    for (int d = 0; d < 2; d++) {
        double data[2][3] = {{0}}, got[3] = {0};
        const weft_dtype dtype = d ? WEFT_F64 : WEFT_F32;
        for (int i = 0; i < 3; i++)
            if (d)
                data[0][i] = 1.5 + i;
            else
                ((float *)data[0])[i] = 1.5f + (float)i;
        g = weft_graph_new();
        x = weft_input(g, "x", dtype, WEFT_SHAPE(3));
        weft_value y = weft_relu(g, weft_apply(g, &either, NULL, &x, 1, NULL));
        weft_error error;
        weft_plan *plan = weft_plan_new(g, &y, 1, &(weft_plan_options){.verify = true}, &error);
        weft_session *s = weft_session_new(plan, NULL, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_EQUAL(weft_session_feed(s, x, data[0], 3 * weft_dtype_bytes(dtype), NULL),
                        WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, y, got, 3 * weft_dtype_bytes(dtype), NULL), WEFT_OK);
        CU_ASSERT_EQUAL(memcmp(got, data[0], 3 * weft_dtype_bytes(dtype)), 0);
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(g);
    }
}

/* A gradient that was forgotten, and one that is none by design, read differently. */
static void test_gradients(void)
{
    static const struct {
        weft_gradient declared;
        const char *message;
    } kinds[] = {
        {WEFT_GRADIENT_VJP, "no gradient rule"},
        {WEFT_GRADIENT_NONE, "no gradient by design"},
    };
    for (int i = 0; i < 2; i++) {
        weft_op op = {COPY};
        op.gradient = kinds[i].declared;
        weft_graph *g = weft_graph_new();
        weft_value x = weft_param(g, "x", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ONES), grad;
        weft_value y = weft_apply(g, &op, NULL, &x, 1, NULL);
        weft_grad(g, weft_sum(g, y, WEFT_ALL_AXES, false), &x, 1, &grad);
        const weft_error *e = weft_graph_error(g);
        CU_ASSERT_EQUAL(!strstr(e->message, "WEFT_GRADIENT_ZERO"), i);
        expect_error(g, WEFT_NO_GRADIENT, "grad/copy", kinds[i].message);
    }
}

/* ---- Ops that can fail ---- */

/* Runs one node on a sample whose indices are all `index` and whose scalars are `scalar`. */
static weft_status run_bad(const weft_op *op, const weft_sample *sample, int32_t index,
                           double scalar)
{
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    weft_value in[WEFT_SAMPLE_INPUTS], out[WEFT_MAX_OUTPUTS];
    weft_error error = {0};
    for (size_t i = 0; i < sample->n_in; i++) {
        const weft_sample_input *like = &sample->in[i];
        const weft_dtype dtype = like->dtype == WEFT_FLOAT ? WEFT_F64 : like->dtype;
        const int64_t n = weft_shape_numel(like->shape);
        char name[32];
        weft_tensor t;
        snprintf(name, sizeof name, "x%zu", i);
        in[i] = weft_state(g, name, dtype, like->shape, WEFT_INIT_ZEROS);
        CU_ASSERT_EQUAL_FATAL(weft_params_add(params, name, dtype, like->shape, &t, NULL), WEFT_OK);
        weft_sample_input_fill(like, WEFT_F64, 1 + i, t.data);
        for (int64_t k = 0; k < n && dtype == WEFT_I32; k++) ((int32_t *)t.data)[k] = index;
        if (dtype == WEFT_F64 && like->shape.rank == 0) ((double *)t.data)[0] = scalar;
        if (dtype == WEFT_F32 && like->shape.rank == 0) ((float *)t.data)[0] = (float)scalar;
    }
    weft_apply(g, op, sample->attr, in, sample->n_in, out);
    weft_plan *plan = weft_plan_new(g, out, op->n_out, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, params, NULL, &error) : NULL;
    weft_status status = s ? weft_session_run(s, NULL) : error.status;
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
    return status;
}

/* An op whose kernel reports a fault on some data says so in its descriptor, and no other. */
static void test_faults(void)
{
    static const int32_t indices[] = {-1, INT32_MIN, INT32_MAX};
    const double scalars[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        size_t failed = 0;
        for (size_t k = 0; k < 3 * op->n_samples; k++) {
            weft_status status = run_bad(op, &op->samples[k / 3], indices[k % 3], scalars[k % 3]);
            CU_ASSERT_TRUE(status == WEFT_OK || status == WEFT_BAD_INDEX ||
                           status == WEFT_NOT_FINITE);
            failed += status != WEFT_OK;
        }
        if (op->exchanges || op->can_fail == (failed > 0)) continue;
        fprintf(stderr, "\n    %s: can_fail is %d, %zu of %zu runs failed\n", op->name,
                op->can_fail, failed, 3 * op->n_samples);
        CU_FAIL("an op's can_fail is wrong");
    }
}

void descriptor_tests(void)
{
    CU_pSuite suite = CU_add_suite("descriptor", NULL, NULL);
    CU_add_test(suite, "incomplete descriptors are refused", test_incomplete);
    CU_add_test(suite, "kernels for some dtypes only", test_dtypes);
    CU_add_test(suite, "a missing gradient rule", test_gradients);
    CU_add_test(suite, "an op that can fail says so", test_faults);
}
