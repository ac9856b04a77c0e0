/* How to extend weft from a program: an op of its own with kernels and a gradient, a pass that puts
 * the op in the place of plainer ones, and a model made of layers.
 *
 * The op is squared ReLU, y = max(x, 0)^2 (So et al. 2021, "Primer"). The model learns to multiply
 * two numbers: 4 a b = (a + b)^2 - (a - b)^2, so a few squares are all it needs. */
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

/* ---- An op ---- */

/* The shape rule: one floating input; the output has its type. */
static bool infer(weft_infer *rule)
{
    rule->out[0] = rule->in[0];
    return weft_infer_float(rule, 0);
}

/* A kernel computes one tile: elements [tile * WEFT_TILE, (tile + 1) * WEFT_TILE) of the output. An
 * op takes dense inputs unless its descriptor says otherwise. */
#define SQUARED_RELU_KERNEL(name, type)                                                            \
    static void name(const weft_call *call, int64_t tile)                                          \
    {                                                                                              \
        const int64_t n = weft_shape_numel(call->out[0].shape), first = tile * WEFT_TILE;          \
        const int64_t end = first + WEFT_TILE < n ? first + WEFT_TILE : n;                         \
        const type *x = (const type *)call->in[0].data;                                            \
        type *y = (type *)call->out[0].data;                                                       \
        for (int64_t i = first; i < end; i++) y[i] = x[i] < 0 ? 0 : x[i] * x[i];                   \
    }
SQUARED_RELU_KERNEL(squared_relu_f32, float)
SQUARED_RELU_KERNEL(squared_relu_f64, double)

/* The gradient rule is the formula, dx = 2 max(x, 0) dy, as nodes of the graph: it can be
 * differentiated again. */
static void vjp(weft_vjp *v)
{
    weft_value slope = weft_scale(v->graph, weft_relu(v->graph, v->in[0]), 2);
    v->grad_in[0] = weft_mul(v->graph, v->grad_out[0], slope);
}

/* A small node for tests: uniform in [-2, 2), away from zero, where the slope has a kink. */
static const weft_sample samples[] = {{NULL, 1, {{WEFT_FLOAT, {2, {3, 5}}, -2, 2, true}}}};

/* All that weft knows of an op is its descriptor, which must outlive the graphs that use it. */
static weft_op make_op(void)
{
    weft_op op = WEFT_DEFAULTS(weft_op);
    op.name = "squared_relu";
    op.doc = "y = max(x, 0)^2";
    op.min_in = op.max_in = op.n_out = 1;
    op.infer = infer;
    op.kernel[WEFT_ISA_BASE][WEFT_F32] = squared_relu_f32;
    op.kernel[WEFT_ISA_BASE][WEFT_F64] = squared_relu_f64;
    op.inplace = 1; /* the output may take over the storage of input 0 */
    op.vjp = vjp;
    op.samples = samples;
    op.n_samples = 1;
    return op;
}

/* Compares the rule with central differences, in f64, to the first and the second order. */
static bool check_op(const weft_op *op, weft_error *error)
{
    for (int order = 1; order <= 2; order++) {
        weft_check_result result;
        if (weft_check_op(op, 0, order, -1, 1, &result, error) != WEFT_OK) return false;
        printf("gradient of order %d: %d derivatives checked, largest error %.0e\n", order,
               (int)result.checked, result.worst_error);
        if (!result.checked || result.worst_error > 1e-6) return false;
    }
    return true;
}

/* ---- A pass ---- */

/* square(relu(x)) becomes squared_relu(x). Called for each node, inputs first; r->in are the node's
 * inputs in the new graph. The relu that is no longer read is left out of the plan. */
static bool fuse_squared_relu(weft_rewrite *r)
{
    if (r->node.op != weft_op_find("square")) return false; /* copied as it is */
    const weft_node_info input = weft_graph_node(r->graph, weft_producer(r->graph, r->in[0]));
    if (input.op != weft_op_find("relu")) return false;
    const weft_value x = weft_value_from_id(r->graph, input.in[0]);
    weft_apply(r->graph, (const weft_op *)r->context, NULL, &x, 1, r->out);
    return true;
}

/* ---- A model ---- */

/* Two numbers, [batch, 2], to their product, [batch, 1]. Squares by the op, or without one by
 * plainer ops. Parameters have the same names either way, so both read the same store. */
static weft_value product_of(weft_graph *g, weft_value x, const weft_op *op)
{
    weft_value h = weft_layer_linear(g, "hidden", x, 16, true);
    h = op ? weft_apply(g, op, NULL, &h, 1, NULL) : weft_square(g, weft_relu(g, h));
    return weft_layer_linear(g, "out", h, 1, true);
}

enum { BATCH = 64 };

static float uniform(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f; /* in [-1, 1) */
}

static bool train(const weft_op *op, weft_params *store, weft_error *error)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(BATCH, 2));
    weft_value y = weft_input(g, "y", WEFT_F32, WEFT_SHAPE(BATCH, 1));
    weft_value loss = weft_mse(g, product_of(g, x, op), y, WEFT_REDUCE_MEAN);
    weft_value lr = weft_scalar(g, WEFT_F32, 0.02);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value step = weft_train_step(g, loss, NULL, 0, lr, &adam, NULL);
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(loss, step), NULL, error);
    if (plan) weft_params_init(store, g, 1, error);
    weft_session *s = weft_session_new(plan, store, NULL, error);
    uint32_t seed = 1;
    float first = 0, last = 0;
    for (int i = 0; s && i < 300; i++) {
        float xs[BATCH][2], ys[BATCH];
        for (int k = 0; k < BATCH; k++) {
            xs[k][0] = uniform(&seed);
            xs[k][1] = uniform(&seed);
            ys[k] = xs[k][0] * xs[k][1];
        }
        weft_feed(s, x, xs, sizeof xs);
        weft_feed(s, y, ys, sizeof ys);
        if (weft_run(s) != WEFT_OK) break;
        weft_fetch(s, loss, &last, sizeof last);
        if (i == 0) first = last;
    }
    printf("mean square error: %.5f before training, %.5f after 300 steps\n", (double)first,
           (double)last);
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
    return s && last < 0.1f * first;
}

/* Plans the model of plain ops with n_passes passes; returns the nodes of the plan, or 0. */
static size_t multiply(const weft_pass *passes, size_t n_passes, weft_params *store, float a,
                       float b, float *product, weft_error *error)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, 2));
    weft_value y = product_of(g, x, NULL);
    weft_plan_options options = WEFT_DEFAULTS(weft_plan_options);
    options.passes = passes;
    options.n_passes = n_passes;
    options.verify = true; /* checks the graph after each pass */
    weft_plan *plan = weft_plan_new(g, &y, 1, &options, error);
    weft_session *s = weft_session_new(plan, store, NULL, error);
    const float in[2] = {a, b};
    const bool good = s && weft_feed(s, x, in, sizeof in) == WEFT_OK && weft_run(s) == WEFT_OK &&
                      weft_fetch(s, y, product, sizeof *product) == WEFT_OK;
    const size_t nodes = weft_plan_get_stats(plan).nodes;
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
    return good ? nodes : 0;
}

int main(void)
{
    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    weft_op op = make_op();
    weft_pass pass = WEFT_DEFAULTS(weft_pass);
    pass.name = "fuse_squared_relu";
    pass.visit = fuse_squared_relu;
    pass.context = &op;

    float plain = 0, fused = 0;
    bool good = check_op(&op, &error) && train(&op, store, &error);
    size_t before = good ? multiply(NULL, 0, store, 0.5f, 0.6f, &plain, &error) : 0;
    size_t after = good ? multiply(&pass, 1, store, 0.5f, 0.6f, &fused, &error) : 0;
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    printf("0.5 x 0.6 = %.3f by %d nodes, %.3f by %d nodes with the pass\n", (double)plain,
           (int)before, (double)fused, (int)after);
    weft_params_free(store);
    return !(good && after && after + 1 == before && fabsf(plain - fused) < 1e-6f);
}
