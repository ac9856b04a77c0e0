/* A user-defined op, with kernels, a shape rule and a gradient: squared ReLU, y = max(x, 0)^2 (So
 * et al. 2021, "Primer"). A network with it learns to multiply two numbers: since 4 a b = (a + b)^2
 * - (a - b)^2, a few squares are all it needs.
 *
 *     cc custom_op.c $(pkg-config --cflags --libs weft-models) -lm -o custom_op
 *
 * Prints the largest difference between the gradient and central differences, of the first and the
 * second order, and the error of the product before and after training. The exit status is 1 if a
 * gradient is wrong, or if the error does not fall to a tenth. */
#include <weft/models.h>
#include <weft/autograd.h>
#include <weft/weft.h>

#include <stdio.h>

enum { BATCH = 64, STEPS = 300 };

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
    weft_value slope = weft_mul_scalar(v->graph, weft_relu(v->graph, v->in[0]), 2);
    v->grad_in[0] = weft_mul(v->graph, v->grad_out[0], slope);
}

/* A small node for tests: uniform in [-2, 2), away from zero, where the slope has a kink. */
static const weft_sample samples[] = {{NULL, 1, {{WEFT_FLOAT, {2, {3, 5}}, -2, 2, true}}}};

/* An op is defined by its descriptor, which must outlive the graphs that use it. */
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

/* [BATCH, 2] to [BATCH, 1]. */
static weft_value network(weft_graph *g, weft_value x, const weft_op *op)
{
    weft_value h = weft_nn_linear(g, "hidden", x, 16, true);
    h = weft_apply(g, op, NULL, &h, 1, NULL);
    return weft_nn_linear(g, "out", h, 1, true);
}

/* Uniform in [-1, 1), by a linear congruential generator (constants of Numerical Recipes). */
static float uniform(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* Trains the network; returns whether its error fell to a tenth. */
static bool train(const weft_op *op, weft_error *error)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(BATCH, 2));
    weft_value y = weft_input(g, "y", WEFT_F32, WEFT_SHAPE(BATCH, 1));
    weft_value loss = weft_mse_loss(g, network(g, x, op), y, WEFT_REDUCE_MEAN);
    weft_value lr = weft_scalar(g, WEFT_F32, 0.02);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value update = weft_train_update(g, loss, NULL, 0, lr, &adam, NULL);
    weft_params *store = weft_params_new();
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(loss, update), NULL, error);
    if (plan) weft_params_init(store, g, 1, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    uint32_t seed = 1;
    float first = 0, last = 0;
    for (int i = 0; s && i < STEPS && error->status == WEFT_OK; i++) {
        float xs[BATCH][2], ys[BATCH];
        for (int k = 0; k < BATCH; k++) {
            xs[k][0] = uniform(&seed);
            xs[k][1] = uniform(&seed);
            ys[k] = xs[k][0] * xs[k][1];
        }
        weft_session_feed(s, x, xs, sizeof xs, NULL);
        weft_session_feed(s, y, ys, sizeof ys, NULL);
        weft_session_run(s, error);
        weft_session_fetch(s, loss, i ? &last : &first, sizeof last, NULL);
    }
    weft_session_free(s), weft_plan_free(plan), weft_params_free(store), weft_graph_free(g);
    if (error->status != WEFT_OK) return false;
    printf("mean square error: %.5f before training, %.5f after %d steps\n", (double)first,
           (double)last, STEPS);
    return last < 0.1f * first;
}

int main(void)
{
    weft_error error = WEFT_NO_ERROR;
    const weft_op op = make_op();
    const bool good = check_op(&op, &error) && train(&op, &error);
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    return good ? 0 : 1;
}
