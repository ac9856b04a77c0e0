/* Plans whose states are fixed: what depends on them alone is computed once, kept, and computed
 * again when the program says so; the passes that need it compute what the plain plan computes. */
#include "tests.h"

#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

extern const weft_op weft_op_matmul, weft_op_matmul_panels, weft_op_conv, weft_op_clamp;
extern const weft_op weft_op_conv_rows, weft_op_conv_rows_depthwise, weft_op_max_pool;

static const weft_plan_options fixed_states = {.verify = true, .fixed_states = true};

/* y = x + v tanh(w): tanh(w) depends on states alone. */
typedef struct small {
    weft_graph *g;
    weft_value x, y, next;
    weft_params *params;
    weft_plan *plan;
} small;

static small small_new(bool updates)
{
    weft_error error = {0};
    small m = {.g = weft_graph_new(), .params = weft_params_new()};
    m.x = weft_input(m.g, "x", WEFT_F32, WEFT_SHAPE(3));
    weft_value w = weft_state(m.g, "w", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ONES);
    weft_value v = weft_state(m.g, "v", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ONES);
    m.y = weft_add(m.g, m.x, weft_mul(m.g, v, weft_tanh(m.g, w)));
    m.next = weft_assign(m.g, w, weft_mul_scalar(m.g, w, 2));
    const weft_value targets[] = {m.y, m.next};
    m.plan = weft_plan_new(m.g, targets, updates ? 2 : 1, &fixed_states, &error);
    CU_ASSERT_EQUAL_FATAL(error.status, WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(m.params, m.g, 1, &error), WEFT_OK);
    return m;
}

static void small_free(small *m)
{
    weft_plan_free(m->plan);
    weft_params_free(m->params);
    weft_graph_free(m->g);
}

static float run_small(weft_session *s, const small *m, float x)
{
    const float in[3] = {x, x, x};
    float out[3];
    CU_ASSERT_EQUAL(weft_session_feed(s, m->x, in, sizeof in, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, m->y, out, sizeof out, NULL), WEFT_OK);
    return out[1] - x;
}

static void set_state(const small *m, const char *name, float value)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_params_find(m->params, name, &t));
    for (int i = 0; i < 3; i++) ((float *)t.data)[i] = value;
}

static void test_once(void)
{
    small m = small_new(false);
    weft_session *s = weft_session_new(m.plan, m.params, NULL, NULL);
    const weft_plan_stats stats = weft_plan_stats_of(m.plan);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(stats.fixed, 2);
    const float one = run_small(s, &m, 1);
    CU_ASSERT_DOUBLE_EQUAL(one, tanh(1), ROUNDING_F32);
    set_state(&m, "w", 0);
    CU_ASSERT_DOUBLE_EQUAL(run_small(s, &m, 2), tanh(1), ROUNDING_F32);
    weft_session_renew(s);
    CU_ASSERT_EQUAL(run_small(s, &m, 3), 0);
    weft_session_renew(NULL);
    weft_session_free(s);
    small_free(&m);
}

/* Another session may have used the arena. */
static void test_given_arena(void)
{
    small m = small_new(false);
    const size_t bytes = weft_plan_stats_of(m.plan).arena_bytes;
    void *memory = weft_alloc(bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(memory);
    weft_session *s = weft_session_new(
        m.plan, m.params, &(weft_session_options){.arena = memory, .arena_bytes = bytes}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_DOUBLE_EQUAL(run_small(s, &m, 1), tanh(1), ROUNDING_F32);
    memset(memory, 0, bytes);
    CU_ASSERT_DOUBLE_EQUAL(run_small(s, &m, 1), tanh(1), ROUNDING_F32);
    weft_session_free(s);
    weft_free(memory);
    small_free(&m);
}

/* What depends on a state that the plan updates is computed in every run. */
static void test_updates(void)
{
    small m = small_new(true);
    weft_session *s = weft_session_new(m.plan, m.params, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_plan_stats_of(m.plan).fixed, 0);
    for (double w = 1; w < 5; w *= 2)
        CU_ASSERT_DOUBLE_EQUAL(run_small(s, &m, 1), tanh(w), ROUNDING_F32);
    weft_session_free(s);
    small_free(&m);
}

/* A run that stops in the middle, the first one or a later one. */
static void test_stopped(void)
{
    small m = small_new(false);
    weft_session *s = weft_session_new(m.plan, m.params, NULL, NULL);
    const float in[3] = {5, 5, 5};
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int run = 0; run < 3; run++) {
        CU_ASSERT_EQUAL(weft_session_feed(s, m.x, in, sizeof in, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run_before(s, m.y, NULL), WEFT_OK);
        CU_ASSERT_DOUBLE_EQUAL(run_small(s, &m, (float)run), tanh(1), ROUNDING_F32);
    }
    weft_session_free(s);
    small_free(&m);
}

/* More or fewer nodes in the first run only, and buffers that are not kept, are seen. */
static void test_corrupted(void)
{
    small m = small_new(false);
    CU_ASSERT_EQUAL(m.plan->fixed_intervals > 0, true);
    m.plan->fixed_intervals++;
    CU_ASSERT_EQUAL(weft_plan_check(m.plan, NULL), WEFT_INTERNAL);
    m.plan->fixed_intervals--;
    CU_ASSERT_EQUAL(weft_plan_check(m.plan, NULL), WEFT_OK);
    const plan_step *last = &m.plan->steps[m.plan->n_steps - 1];
    const node_record *node = &m.plan->graph->nodes[last->node];
    size_t kept = 0;
    for (size_t i = 0; i < node->n_in; i++)
        if (m.plan->graph->nodes[m.plan->graph->values[node->in[i]].node].op != &weft_op_input)
            kept = m.plan->places[last->first_operand + i].offset;
    /* The first run ends with the result over what it kept: only a second run shows that. */
    m.plan->places[last->first_operand + node->n_in].offset = kept;
    m.plan->buffers[m.plan->buffer_of[m.y.id ? m.plan->map[m.y.id] : 0] - 1].offset = kept;
    CU_ASSERT_EQUAL(weft_plan_check(m.plan, NULL), WEFT_INTERNAL);
    small_free(&m);
}

/* ---- The passes that need it ---- */

/* Runs a model of the list for inference, twice; returns its output, which the caller frees. */
static float *run_model(const char *name, const char *const *options, size_t n_options,
                        const weft_plan_options *plan_options, int threads, size_t *bytes,
                        size_t counts[5])
{
    static const weft_op *const counted[5] = {&weft_op_conv, &weft_op_conv_rows,
                                              &weft_op_conv_rows_depthwise, &weft_op_matmul_panels,
                                              &weft_op_clamp};
    weft_error error = {0};
    weft_built built;
    weft_graph *g = weft_graph_new();
    const weft_model *model = weft_model_find(name);
    CU_ASSERT_PTR_NOT_NULL_FATAL(model);
    weft_model_build_text(g, model, options, n_options, false, &built, &error);
    CU_ASSERT_EQUAL_FATAL(error.status, WEFT_OK);
    weft_params *params = weft_params_new();
    weft_plan *plan = weft_plan_new(g, &built.outputs[0], 1, plan_options, &error);
    weft_session *s = NULL;
    if (plan && weft_params_init(params, g, 7, &error) == WEFT_OK)
        s = weft_session_new(plan, params,
                             &(weft_session_options){.threads = threads, .poison = true}, &error);
    if (!s) fprintf(stderr, "\n    %s: %s: %s\n", name, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_tensor x, y;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, weft_built_input(&built, "input"), &x, NULL) ==
                         WEFT_OK);
    uint64_t seed = 5;
    for (int64_t i = 0; i < weft_shape_numel(x.shape); i++)
        ((float *)x.data)[i] = (float)test_uniform(&seed, -1, 1);
    for (int run = 0; run < 2; run++) CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, built.outputs[0], &y, NULL) == WEFT_OK);
    *bytes = weft_tensor_bytes(y.dtype, y.shape);
    float *out = malloc(*bytes);
    memcpy(out, y.data, *bytes);
    for (int k = 0; k < 5; k++) counts[k] = 0;
    for (size_t n = 0; n < weft_graph_node_count(weft_plan_graph(plan)); n++)
        for (int k = 0; k < 5; k++)
            counts[k] += weft_graph_node(weft_plan_graph(plan), n).op == counted[k];
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
    return out;
}

/* Of the norm: 33 roundings of f32, of 2^-24 each. The largest seen is 1.6e-6. */
#define MODEL_OFF 2e-6

/* The norm of the difference over that of `expected`. */
static double distance(const float *expected, const float *got, size_t n)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)got[i] - expected[i];
        difference += d * d;
        norm += (double)expected[i] * expected[i];
    }
    return sqrt(difference / norm);
}

static void test_models(void)
{
    static const struct {
        const char *name, *options[4];
        size_t n_options;
        bool depthwise;
    } models[] = {
        {"resnet", {"batch=2", "image_size=64", "depth=18"}, 3, false},
        {"resnet", {"batch=1", "image_size=96", "depth=50"}, 3, false},
        {"mobilenet", {"batch=2", "image_size=64"}, 2, true},
        {"vit", {"batch=2", "image_size=32", "layers=2"}, 3, false},
    };
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        static const weft_plan_options plain = {0};
        size_t bytes, other, counts[5];
        float *expected = run_model(models[m].name, models[m].options, models[m].n_options, &plain,
                                    1, &bytes, counts);
        for (int threads = 1; threads <= 2; threads++) {
            float *got = run_model(models[m].name, models[m].options, models[m].n_options,
                                   &fixed_states, threads, &other, counts);
            CU_ASSERT_EQUAL_FATAL(other, bytes);
            const double far = distance(expected, got, bytes / sizeof *got);
            if (!(far < MODEL_OFF)) printf("\n    %s: %g\n", models[m].name, far);
            CU_ASSERT_TRUE(far < MODEL_OFF);
            CU_ASSERT_EQUAL(counts[0] + counts[4], 0);
            CU_ASSERT_TRUE(counts[1] > 0 && counts[3] > 0);
            CU_ASSERT_EQUAL(counts[2] > 0, models[m].depthwise);
            free(got);
        }
        free(expected);
    }
}

/* y of a convolution [1, 4, 7, 7] by a state [5, 4, 3, 3] with a dilation of d rows and 2 columns;
 * sets the number of rows of the panels of weights in the plan. */
static void run_dilated(int64_t d, bool fixed, float *y, int64_t *rows)
{
    static const weft_plan_options plain = {0};
    float x[4 * 49];
    uint64_t seed = 3;
    for (size_t i = 0; i < 4 * 49; i++) x[i] = (float)test_uniform(&seed, -1, 1);
    weft_graph *g = weft_graph_new();
    const weft_value in = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, 4, 7, 7));
    const weft_value w = weft_state(g, "w", WEFT_F32, WEFT_SHAPE(5, 4, 3, 3),
                                    ((weft_init){.kind = WEFT_INIT_NORMAL, .b = 1}));
    const weft_value out =
        weft_conv(g, in, w, WEFT_NO_VALUE,
                  &(weft_conv_options){.dilation = {d, 2}, .pad_begin = {d, 2}, .pad_end = {d, 2}});
    weft_params *params = weft_params_new();
    weft_plan *plan = weft_plan_new(g, &out, 1, fixed ? &fixed_states : &plain, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(params, g, 7, NULL), WEFT_OK);
    weft_session *s = weft_session_new(plan, params, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, in, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, out, y, 5 * 49 * sizeof *y, NULL), WEFT_OK);
    const weft_graph *planned = weft_plan_graph(plan);
    for (size_t n = 0; n < weft_graph_node_count(planned); n++) {
        const weft_node_info node = weft_graph_node(planned, n);
        if (node.op == &weft_op_conv_rows)
            *rows = weft_dim_of(planned, weft_value_from_id(planned, node.in[1]), 1);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
}

/* Taps that lie in the padding in all windows are not packed. */
static void test_unused_taps(void)
{
    static const struct {
        int64_t dilation, taps;
    } cases[] = {{1, 9}, {6, 9}, {7, 3}, {20, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float expected[5 * 49], got[5 * 49];
        int64_t rows = 0;
        run_dilated(cases[i].dilation, false, expected, &rows);
        run_dilated(cases[i].dilation, true, got, &rows);
        CU_ASSERT_EQUAL(rows, cases[i].taps * 4);
        CU_ASSERT_TRUE(distance(expected, got, 5 * 49) < MODEL_OFF);
    }
}

void fixed_tests(void)
{
    CU_pSuite suite = CU_add_suite("fixed", NULL, NULL);
    CU_add_test(suite, "once, and again when renewed", test_once);
    CU_add_test(suite, "in an arena of the program's", test_given_arena);
    CU_add_test(suite, "states that the plan updates", test_updates);
    CU_add_test(suite, "runs that stop in the middle", test_stopped);
    CU_add_test(suite, "corrupted plans fail the check", test_corrupted);
    CU_add_test(suite, "models equal those without fixed states", test_models);
    CU_add_test(suite, "taps in the padding alone", test_unused_taps);
}
