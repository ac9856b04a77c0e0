/* Public functions that no other suite calls: each is called as a program would call it, and
 * compared with its definition or with another way to the same result. tests/style/api_used.py
 * names the functions that no test calls. */
#include "tests.h"
#include "token_batches.h"

#include "pieces.h"
#include "pipeline.h"
#include "run/team.h"

#include <weft/huggingface.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 256 }; /* numbers of a result */

/* Runs `target`, f64, with parameters from a fixed seed, and copies `result`, which may be the
 * target itself. */
static weft_status compute_of(weft_graph *g, weft_value target, weft_value result, double *out,
                              weft_error *error)
{
    const int64_t n = weft_shape_numel(weft_shape_of(g, result));
    const weft_value both[] = {target, result};
    *error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    weft_plan *plan = weft_plan_new(g, both, 2, NULL, error);
    if (plan) weft_params_init(store, g, 1, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    if (s) weft_session_run(s, error);
    if (s && error->status == WEFT_OK)
        CU_ASSERT_EQUAL(weft_session_fetch(s, result, out, (size_t)n * sizeof *out, NULL), WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    return error->status;
}

static void compute(weft_graph *g, weft_value value, double *out)
{
    weft_error error;
    const weft_status status = compute_of(g, value, value, out, &error);
    if (status != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
}

/* Whether two values of a graph have equal numbers but for rounding; frees the graph. */
static void expect_same(weft_graph *g, weft_value a, weft_value b)
{
    double x[MOST], y[MOST];
    const int64_t n = weft_shape_numel(weft_shape_of(g, a));
    CU_ASSERT_TRUE_FATAL(n > 0 && n <= MOST);
    CU_ASSERT_TRUE_FATAL(weft_shape_equal(weft_shape_of(g, a), weft_shape_of(g, b)));
    compute(g, a, x);
    compute(g, b, y);
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        CU_ASSERT_DOUBLE_EQUAL(x[i], y[i], ROUNDING_F64);
        largest = fmax(largest, fabs(x[i]));
    }
    CU_ASSERT_TRUE(largest > 1e-3);
    weft_graph_free(g);
}

/* Numbers that differ from each other, in [-2, 2]. */
static weft_value numbers(weft_graph *g, weft_shape shape)
{
    double data[MOST];
    const int64_t n = weft_shape_numel(shape);
    for (int64_t i = 0; i < n; i++) data[i] = 2 * sin(1.7 * (double)i + 0.4);
    return weft_constant(g, WEFT_F64, shape, data);
}

static weft_value integer(weft_graph *g, int32_t i)
{
    return weft_constant(g, WEFT_I32, WEFT_SCALAR, &i);
}

/* ---- Ops ---- */

static void test_elementwise(void)
{
    enum { N = 8 };
    const double x[N] = {-2.5, -1.5, -0.5, -0.2, 0.3, 0.5, 1.5, 2.7};
    double got[5][N];
    weft_graph *g = weft_graph_new();
    const weft_value v = weft_constant(g, WEFT_F64, WEFT_SHAPE(N), x);
    const weft_value zero = weft_scalar(g, WEFT_F64, 0), one = weft_scalar(g, WEFT_F64, 1);
    compute(g, weft_floor(g, v), got[0]);
    compute(g, weft_ceil(g, v), got[1]);
    compute(g, weft_round(g, v), got[2]);
    compute(g, weft_atan(g, v), got[3]);
    compute(g, weft_relu_grad(g, v, weft_square(g, v)), got[4]);
    for (int i = 0; i < N; i++) {
        CU_ASSERT_EQUAL(got[0][i], floor(x[i]));
        CU_ASSERT_EQUAL(got[1][i], ceil(x[i]));
        CU_ASSERT_EQUAL(got[2][i], nearbyint(x[i]));
        CU_ASSERT_TRUE(test_near(got[3][i], atan(x[i])));
        CU_ASSERT_EQUAL(got[4][i], x[i] <= 0 ? 0 : x[i] * x[i]);
    }
    const weft_value outside = weft_logical_or(g, weft_less(g, v, zero), weft_greater(g, v, one));
    compute(g, weft_cast(g, outside, WEFT_F64), got[0]);
    for (int i = 0; i < N; i++) CU_ASSERT_EQUAL(got[0][i], x[i] < 0 || x[i] > 1);
    weft_graph_free(g);
}

static void test_norm_in_parts(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = numbers(g, WEFT_SHAPE(7, 9));
    const int32_t first = 0;
    const weft_value order = weft_constant(g, WEFT_I32, WEFT_SHAPE(1), &first);
    const weft_value parts = weft_root_of_sum(g, weft_square_sums(g, &x, 1), order, WEFT_F64);
    expect_same(g, parts, weft_global_norm(g, &x, 1));
}

static void test_blend(void)
{
    double got[3];
    weft_graph *g = weft_graph_new();
    const weft_value state = weft_param(g, "state", WEFT_F64, WEFT_SHAPE(3), WEFT_INIT_ONES);
    const weft_value value = weft_fill(g, WEFT_F64, WEFT_SHAPE(3), 8);
    compute(
        g,
        weft_blend(g, state, value, weft_scalar(g, WEFT_F64, 0.5), weft_scalar(g, WEFT_F64, 0.25)),
        got);
    for (int i = 0; i < 3; i++) CU_ASSERT_EQUAL(got[i], 0.5 * 1 + 0.25 * 8);
    weft_graph_free(g);
}

/* ---- What a graph reports ---- */

static void test_values(void)
{
    const double data[6] = {1, 2, 3, 4, 5, 6};
    weft_tensor tensor;
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_constant(g, WEFT_F64, WEFT_SHAPE(2, 3), data);
    const weft_value t = weft_transpose(g, x, 0, 1);
    CU_ASSERT_TRUE_FATAL(weft_constant_of(g, x, &tensor));
    CU_ASSERT_FALSE(memcmp(tensor.data, data, sizeof data));
    CU_ASSERT_FALSE(weft_constant_of(g, weft_exp(g, x), &tensor));
    weft_layout layout = weft_layout_of(g, x);
    CU_ASSERT_TRUE(weft_layout_is_dense(&layout, weft_shape_of(g, x)));
    layout = weft_layout_of(g, t);
    CU_ASSERT_TRUE(layout.stride[0] == 1 && layout.stride[1] == 3 && layout.offset == 0);
    CU_ASSERT_FALSE(weft_layout_is_dense(&layout, weft_shape_of(g, t)));

    const weft_value mean = weft_state(g, "mean", WEFT_F64, WEFT_SHAPE(2, 3), WEFT_INIT_ZEROS);
    CU_ASSERT_TRUE(weft_track(g, mean, x, 0.1));
    size_t n_tracked;
    const weft_tracked *tracked = weft_graph_tracked(g, &n_tracked);
    CU_ASSERT_EQUAL_FATAL(n_tracked, 1);
    CU_ASSERT_PTR_EQUAL(weft_graph_node(g, weft_producer_of(g, tracked->node)).op, &weft_op_track);

    const weft_value w = weft_param(g, "w", WEFT_F64, WEFT_SHAPE(4, 5), WEFT_INIT_ZEROS);
    const weft_piece whole = weft__piece_of(g, w);
    CU_ASSERT_TRUE(whole.first == 0 && whole.end == 20 && whole.length == INT64_MAX);
    weft_graph_free(g);
}

static void test_environment(void)
{
    weft_error error = WEFT_NO_ERROR;
    const char *set = getenv("WEFT_ISA");
    char *before = set ? strdup(set) : NULL;
    setenv("WEFT_ISA", "none", 1);
    CU_ASSERT_PTR_NULL(weft_instruction_set(&error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "none"));
    unsetenv("WEFT_ISA");
    CU_ASSERT_PTR_NOT_NULL(weft_instruction_set(&error));
    if (before) setenv("WEFT_ISA", before, 1);
    free(before);

    int team = 0;
    CU_ASSERT_EQUAL(weft__team(3, &team, &error), WEFT_OK);
    CU_ASSERT_TRUE(team >= 1 && team <= 3);
    CU_ASSERT_STRING_EQUAL(weft_pack_end_text(WEFT_PACK_CAPACITY), "within capacity");
    CU_ASSERT_STRING_EQUAL(weft_version(), WEFT_VERSION);
    CU_ASSERT_TRUE(WEFT_VERSION_AT_LEAST(0, 1, 0) && !WEFT_VERSION_AT_LEAST(1000, 0, 0));
}

/* ---- An op of a program's own ---- */

typedef struct own_attr {
    int32_t axis;
    double limit;
} own_attr;

/* y = min(x, limit) for x of rank 2 or more: a shape rule that uses every check. */
static bool infer_own(weft_infer *infer)
{
    const own_attr *attr = infer->attr;
    char name[32];
    int axis;
    if (!weft_infer_min_rank(infer, 0, 2) ||
        !weft_infer_axis(infer, infer->in[0].shape.rank, attr->axis, &axis) ||
        !weft_infer_scalar(infer, "limit", attr->limit, infer->in[0].dtype))
        return false;
    if (attr->limit == 0)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "limit 0 for %s",
                               weft_infer_input(infer, 0, name, sizeof name));
    infer->out[0] = infer->in[0];
    return true;
}

static size_t workspace_own(const weft_call *call)
{
    return (size_t)weft_shape_numel(call->in[0].shape) * sizeof(double);
}

/* Gathers the input from all ranks, which are this process alone, in its workspace. */
static void kernel_own(const weft_call *call, int64_t tile)
{
    const own_attr *attr = call->attr;
    const size_t n = (size_t)weft_shape_numel(call->in[0].shape), bytes = n * sizeof(double);
    double *copy = weft_call_workspace(call), *y = call->out[0].data;
    const weft_exchange gather = {.kind = WEFT_ALL_GATHER,
                                  .send = call->in[0].data,
                                  .receive = copy,
                                  .receive_bytes = &bytes};
    weft_call_wait_exchange(call, weft_call_start_exchange(call, 0, 1, &gather));
    int64_t *tag = weft_call_panel_tag(call);
    *tag += 100 + tile;
    for (size_t i = 0; i < n; i++) y[i] = copy[i] < attr->limit ? copy[i] : attr->limit;
    if (*tag != 100) weft_call_fail(call, *tag, 0);
    if (!isfinite(copy[0])) weft_call_not_finite(call, 0);
}

static int64_t one_tile(const weft_call *call)
{
    (void)call;
    return 1;
}

static const weft_op op_own = {
    .name = "own",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .inputs = "operand",
    .attr_size = sizeof(own_attr),
    .infer = infer_own,
    .kernel = {{[WEFT_F64] = kernel_own}},
    .tiles = one_tile,
    .workspace = workspace_own,
    .can_fail = true,
    .exchanges = true,
    .gradient = WEFT_GRADIENT_NONE,
};

static weft_status run_own(double first, double *y, weft_error *error)
{
    const double x[4] = {first, 2, 3, 4};
    weft_graph *g = weft_graph_new();
    const weft_value in = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(2, 2));
    const weft_value out = weft_apply(g, &op_own, &(own_attr){1, 2.5}, &in, 1, NULL);
    weft_communicator *self = weft_communicator_new_self();
    const weft_session_options options = {
        .threads = 1, .communicators = &self, .n_communicators = 1};
    weft_plan *plan = weft_plan_new(g, &out, 1, NULL, error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_session *s = weft_session_new(plan, NULL, &options, error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, in, x, sizeof x, NULL);
    const weft_status status = weft_session_run(s, error);
    if (status == WEFT_OK) weft_session_fetch(s, out, y, 4 * sizeof *y, NULL);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    weft_communicator_free(self);
    return status;
}

static void test_own_op(void)
{
    double y[4];
    weft_error error = WEFT_NO_ERROR;
    CU_ASSERT_EQUAL(run_own(1, y, &error), WEFT_OK);
    CU_ASSERT_TRUE(y[0] == 1 && y[1] == 2 && y[2] == 2.5 && y[3] == 2.5);
    CU_ASSERT_EQUAL(run_own(NAN, y, &error), WEFT_NOT_FINITE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "x"));
    static const struct {
        int rank;
        own_attr attr;
        const char *message;
    } wrong[] = {
        {1, {0, 1}, "rank"}, {2, {2, 1}, "axis"}, {2, {0, 0}, "limit 0 for operand \"x\""}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft_graph *g = weft_graph_new();
        const weft_value x = weft_input(g, "x", WEFT_F64, (weft_shape){wrong[i].rank, {2, 2}});
        weft_apply(g, &op_own, &wrong[i].attr, &x, 1, NULL);
        const weft_error *e = weft_graph_error(g);
        if (!strstr(e->message, wrong[i].message)) printf("\n    %s\n", e->message);
        CU_ASSERT_PTR_NOT_NULL(strstr(e->message, wrong[i].message));
        weft_graph_free(g);
    }
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 2));
    weft_apply(g, &op_own, &(own_attr){0, 1e300}, &x, 1, NULL);
    CU_ASSERT_EQUAL(weft_graph_error(g)->status, WEFT_BAD_ARGUMENT);
    weft_graph_free(g);
}

/* ---- Layers ---- */

static void test_linear(void)
{
    const weft_ranks alone = {0, 0, 1};
    for (int rows = 0; rows < 2; rows++) {
        weft_graph *g = weft_graph_new();
        const weft_value x = numbers(g, WEFT_SHAPE(3, 4));
        const weft_value y = rows ? weft_nn_linear_rows(g, "l", x, 5, true, alone)
                                  : weft_nn_linear_columns(g, "l", x, 5, true, alone);
        const weft_value plain = weft_add(g, weft_matmul(g, x, weft_graph_find(g, "l.weight")),
                                          weft_graph_find(g, "l.bias"));
        expect_same(g, y, plain);
    }
}

static void test_norms(void)
{
    const double eps = 1e-3;
    for (int rms = 0; rms < 2; rms++) {
        weft_graph *g = weft_graph_new();
        const weft_value x = numbers(g, WEFT_SHAPE(3, 8));
        const weft_value y =
            rms ? weft_nn_rms_norm(g, "norm", x, eps) : weft_nn_layer_norm(g, "norm", x, eps);
        weft_value centred = x;
        if (!rms) centred = weft_sub(g, x, weft_mean(g, x, WEFT_AXES(-1), true));
        const weft_value variance = weft_mean(g, weft_square(g, centred), WEFT_AXES(-1), true);
        CU_ASSERT_EQUAL(weft_is_value(weft_graph_find(g, "norm.beta")), !rms);
        expect_same(g, y, weft_mul(g, centred, weft_rsqrt(g, weft_add_scalar(g, variance, eps))));
    }
}

static void test_positions(void)
{
    enum { LENGTH = 5, WIDTH = 6 };
    double halves[LENGTH * WIDTH], table[24];
    weft_graph *g = weft_graph_new();
    compute(g, weft_nn_sinusoidal_halves(g, WEFT_F64, LENGTH, WIDTH), halves);
    for (int p = 0; p < LENGTH; p++)
        for (int i = 0; i < WIDTH / 2; i++) {
            const double angle = p / pow(10000, 2.0 * i / WIDTH);
            CU_ASSERT_DOUBLE_EQUAL(halves[p * WIDTH + i], sin(angle), ROUNDING_F64);
            CU_ASSERT_DOUBLE_EQUAL(halves[p * WIDTH + WIDTH / 2 + i], cos(angle), ROUNDING_F64);
        }
    compute(g, weft_cast(g, weft_nn_positions_at(g, integer(g, 7), 3), WEFT_F64), halves);
    CU_ASSERT_TRUE(halves[0] == 7 && halves[1] == 8 && halves[2] == 9);
    compute(g, weft_nn_embedding_table(g, "words", WEFT_F64, 6, 4), table);
    CU_ASSERT_TRUE(table[0] != table[1] && fabs(table[0]) < 5);
    CU_ASSERT_TRUE(weft_is_value(weft_graph_find(g, "words")));
    weft_graph_free(g);
}

/* A step of cross-attention, over states that a memory was written to before, equals attention to
 * this memory. */
static void test_cross_attention(void)
{
    enum { SOURCES = 2, LENGTH = 3, WIDTH = 4 };
    double y[MOST], wanted[MOST];
    const weft_nn_attention_options options = {.heads = 2};
    const weft_cache cache = {
        .position = WEFT_NO_VALUE,
        .parents = WEFT_NO_VALUE,
        .sources = SOURCES,
        .max_source_len = LENGTH,
        .source_len = LENGTH,
    };
    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    for (int i = 0; i < 3; i++) { /* write, read, compare */
        weft_graph *g = weft_graph_new();
        const weft_value memory = numbers(g, WEFT_SHAPE(SOURCES, LENGTH, WIDTH));
        const weft_value x = weft_exp(g, numbers(g, WEFT_SHAPE(SOURCES, 1, WIDTH)));
        const weft_value v = i == 0 ? weft_nn_prefill_cross_cache(g, "a", memory, &options, &cache)
                             : i == 1 ? weft_nn_cross_attention_step(g, "a", x, &options, &cache)
                                      : weft_nn_attention(g, "a", x, memory, &options, NULL);
        weft_plan *plan = weft_plan_new(g, &v, 1, NULL, &error);
        CU_ASSERT_EQUAL(weft_params_init(store, g, 3, &error), WEFT_OK);
        weft_session *s = weft_session_new(plan, store, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        if (i > 0)
            CU_ASSERT_EQUAL(weft_session_fetch(s, v, i == 1 ? y : wanted,
                                               SOURCES * WIDTH * sizeof(double), NULL),
                            WEFT_OK);
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(g);
    }
    for (int i = 0; i < SOURCES * WIDTH; i++) CU_ASSERT_DOUBLE_EQUAL(y[i], wanted[i], ROUNDING_F64);
    CU_ASSERT_TRUE(fabs(wanted[0]) > 1e-3);
    weft_params_free(store);

    weft_graph *g = weft_graph_new();
    const weft_nn_block_options block = {.attention = options, .cache = &cache};
    const weft_value memory = numbers(g, WEFT_SHAPE(SOURCES, LENGTH, WIDTH));
    const weft_value all = weft_nn_stack_prefill_cross_cache(g, "dec", 2, memory, &block);
    CU_ASSERT_TRUE(weft_is_value(all));
    CU_ASSERT_TRUE(weft_is_value(weft_graph_find(g, "dec.0.cross.cache.k")));
    CU_ASSERT_TRUE(weft_is_value(weft_graph_find(g, "dec.1.cross.cache.v")));
    weft_graph_free(g);
}

/* A step from the state of zeros is tanh(x W + b). */
static void test_recurrent(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = numbers(g, WEFT_SHAPE(3, 4));
    const weft_recurrent layer = weft_nn_recurrent_declare(g, "rnn", WEFT_RNN, WEFT_F64, 4, 5);
    const weft_recurrent_state zeros = weft_nn_recurrent_zeros(g, WEFT_RNN, WEFT_F64, 3, 5);
    const weft_recurrent_state next =
        weft_nn_recurrent_step(g, &layer, weft_nn_recurrent_project(g, &layer, x), zeros);
    CU_ASSERT_FALSE(weft_is_value(next.c));
    expect_same(g, next.h,
                weft_tanh(g, weft_add(g, weft_matmul(g, x, layer.weight_x), layer.bias)));
}

/* ---- Models ---- */

static void test_models(void)
{
    const weft_vit_config config = {
        .image = {.dtype = WEFT_F64, .image_size = 8, .channels = 3, .classes = 5},
        .patch = 4,
        .d_model = 8,
        .heads = 2,
        .d_ff = 16,
        .layers = 1};
    const weft_build_options build = {.shape = {.rows = 2}};
    weft_built built;
    weft_graph *g = weft_graph_new();
    built = weft_vit_build(g, &config, &build);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
    CU_ASSERT_TRUE(weft_shape_equal(weft_shape_of(g, built.outputs[0]), WEFT_SHAPE(2, 5)));
    weft_graph_free(g);

    weft_huggingface_architecture architecture;
    size_t n = 0;
    for (; weft_huggingface_at(n, &architecture); n++)
        CU_ASSERT_PTR_NOT_NULL(weft_model_find(architecture.model));
    CU_ASSERT_TRUE(n > 3);
}

/* A stage that is cut like another one reads the same parameters, whatever its batch is. */
static void test_stage_like(void)
{
    weft_stage *stages[2];
    weft_graph *graphs[2];
    weft_error error = WEFT_NO_ERROR;
    for (int i = 0; i < 2; i++) {
        weft_built built;
        graphs[i] = weft_graph_new();
        test_build_model(graphs[i],
                         i ? "gpt layers=4 d_model=64 vocab=20 length=6 batch=1"
                           : "gpt layers=4 d_model=64 vocab=20 length=16 batch=4",
                         true, &built);
        stages[i] =
            i ? weft__stage_new_like(graphs[1], &built.loss, 1, true, stages[0], &error)
              : weft__stage_new(graphs[0], &built.loss, 1, true, (weft_ranks){0, 1, 2}, &error);
        if (!stages[i]) printf("\n    %s: %s\n", error.where, error.message);
        CU_ASSERT_PTR_NOT_NULL_FATAL(stages[i]);
    }
    size_t n, held = 0;
    const weft_value *params = weft_graph_params(graphs[0], &n);
    CU_ASSERT_TRUE_FATAL(n > 20);
    for (size_t i = 0; i < n; i++) {
        const char *name = weft_name_of(graphs[0], params[i]);
        held += weft__stage_holds(stages[1], name, 1);
        for (int r = 0; r < 2; r++)
            CU_ASSERT_EQUAL(weft__stage_holds(stages[0], name, r),
                            weft__stage_holds(stages[1], name, r));
    }
    CU_ASSERT_TRUE(held > 0 && held < n);
    for (int i = 0; i < 2; i++) {
        weft_graph *own = weft__stage_graph(stages[i]);
        weft__stage_free(stages[i]);
        weft_graph_free(own);
        weft_graph_free(graphs[i]);
    }
}

/* ---- Training and decoding ---- */

static void test_trainer(void)
{
    weft_error error = WEFT_NO_ERROR;
    weft_corpus *corpus = make_corpus(30, 12, false, 3);
    CU_ASSERT_EQUAL(weft_corpus_count(corpus), 30);
    const weft_batch_options with = batch_options(WEFT_BATCH_LINES, 64);
    weft_batches *batches = weft_batches_new(corpus, &with, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(batches);
    weft_params *store = weft_params_new();
    const weft_trainer_options options = {
        .builder = test_builder("gpt", (const char *[]){"d_model=8", "vocab=40"}, 2),
        .optimizer = WEFT_ADAM_DEFAULT,
        .schedule = {WEFT_SCHEDULE_CONSTANT, 1e-3, 0, 0, 0},
        .session.threads = 1};
    weft_trainer_estimate estimate;
    CU_ASSERT_EQUAL(
        weft_trainer_estimate_of(&options, (weft_batch_shape){4, 0, 16}, &estimate, &error),
        WEFT_OK);
    /* The reason why there is none: a batch that is longer than the model's positions. */
    weft_trainer_estimate none;
    CU_ASSERT_EQUAL(
        weft_trainer_estimate_of(&options, (weft_batch_shape){4, 0, 100000}, &none, &error),
        error.status);
    CU_ASSERT_NOT_EQUAL(error.status, WEFT_OK);
    CU_ASSERT_TRUE(strstr(error.message, "100000") != NULL);
    weft_error_clear(&error);
    weft_trainer *t = test_new_trainer(&options, batches, store, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    size_t numbers_of_model = 0;
    for (size_t i = 0; i < weft_params_count(store); i++) {
        weft_tensor p;
        weft_params_find(store, weft_params_name(store, i), &p);
        if (weft_model_states.selects(weft_model_states.context, weft_params_name(store, i)))
            numbers_of_model += (size_t)weft_shape_numel(p.shape);
    }
    CU_ASSERT_EQUAL(estimate.parameters, numbers_of_model);
    CU_ASSERT_TRUE(estimate.state_bytes >= 3 * 4 * estimate.parameters); /* Adam's moments too */
    CU_ASSERT_TRUE(estimate.arena_bytes > 0 && estimate.flops > 0);
    CU_ASSERT_TRUE(isnan(weft_trainer_accuracy(t)));

    char path[64];
    snprintf(path, sizeof path, "/tmp/weft-public-%ld.safetensors", (long)getpid());
    CU_ASSERT_EQUAL(weft_trainer_save(t, path, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(access(path, F_OK), 0);
    weft_checkpoint_remove(path);
    CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
    weft_trainer_free(t);
    weft_params_free(store);
    weft_batches_free(batches);
    weft_corpus_free(corpus);
}

static void test_decoder(void)
{
    weft_model_config config;
    weft_error error = WEFT_NO_ERROR;
    const char *const texts[] = {"d_model=8", "vocab=20"};
    CU_ASSERT_EQUAL_FATAL(
        weft_model_parse(weft_model_find("transformer"), texts, 2, &config, &error), WEFT_OK);
    weft_graph *g = weft_graph_new();
    weft_params *store = weft_params_new();
    weft_model_build(g, &config);
    CU_ASSERT_EQUAL(weft_params_init(store, g, 1, &error), WEFT_OK);
    const weft_decoder_options options = {
        .max_len = 20, .max_source_len = 20, .session.threads = 1};
    weft_decoder *d = weft_decoder_new(&config, store, &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    for (int64_t n = 1; n <= 20; n++) {
        const int64_t padded = weft_decoder_padded(d, n);
        CU_ASSERT_TRUE(padded >= n && padded <= 20);
        CU_ASSERT_EQUAL(weft_decoder_padded(d, padded), padded);
    }
    weft_decoder_free(d);
    weft_params_free(store);
    weft_graph_free(g);
}

void public_tests(void)
{
    CU_pSuite suite = CU_add_suite("public", NULL, NULL);
    CU_add_test(suite, "elementwise ops", test_elementwise);
    CU_add_test(suite, "a norm in parts", test_norm_in_parts);
    CU_add_test(suite, "blend", test_blend);
    CU_add_test(suite, "what a graph reports", test_values);
    CU_add_test(suite, "environment", test_environment);
    CU_add_test(suite, "an op of a program's own", test_own_op);
    CU_add_test(suite, "linear layers of one rank", test_linear);
    CU_add_test(suite, "layers of norms", test_norms);
    CU_add_test(suite, "positions and embeddings", test_positions);
    CU_add_test(suite, "a step of cross-attention", test_cross_attention);
    CU_add_test(suite, "a step of a recurrent layer", test_recurrent);
    CU_add_test(suite, "models", test_models);
    CU_add_test(suite, "a stage like another", test_stage_like);
    CU_add_test(suite, "trainer", test_trainer);
    CU_add_test(suite, "lengths of sources", test_decoder);
}
