/* A user-defined pass: it rewrites a graph before planning, so the code of the model does not
 * change. This one shows how many bits the weights of a trained network need. Every matrix product
 * with a parameter gets the parameter rounded to b bits, with one scale for each (symmetric
 * quantisation; Jacob et al. 2018, section 2):
 *
 *     scale = max |w| / (2^(b - 1) - 1),  w' = scale round(w / scale)
 *
 *     cc custom_pass.c $(pkg-config --cflags --libs weft-models) -lm -o custom_pass
 *
 * Prints the error of a network that computes sin(3x), for several numbers of bits. The exit status
 * is 1 unless 8 bits are nearly as good as all 32, and 2 bits are worse. */
#include <weft/train.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { POINTS = 128, STEPS = 1500 };

/* Called for each node, inputs first; r->in are its inputs in the new graph, where the pass adds
 * its nodes. False: the node is copied, with the inputs that it now has. */
static bool quantise(weft_rewrite *r)
{
    if (r->node.op != weft_op_find("matmul")) return false;
    const weft_node_info weight = weft_graph_node(r->graph, weft_producer_of(r->graph, r->in[1]));
    if (weight.op != weft_op_find("state")) return false; /* a product of two computed values */
    const int bits = *(const int *)r->context;
    weft_graph *g = r->graph;
    weft_value largest = weft_max(g, weft_abs(g, r->in[1]), WEFT_ALL_AXES, false);
    weft_value scale = weft_mul_scalar(g, largest, 1.0 / ((1 << (bits - 1)) - 1));
    r->in[1] = weft_mul(g, scale, weft_round(g, weft_div(g, r->in[1], scale)));
    return false;
}

static weft_value network(weft_graph *g, weft_value x)
{
    weft_value h = weft_tanh(g, weft_nn_linear(g, "first", x, 32, true));
    h = weft_tanh(g, weft_nn_linear(g, "second", h, 32, true));
    return weft_nn_linear(g, "last", h, 1, true);
}

static void train(weft_params *store, const float xs[POINTS], const float ys[POINTS],
                  weft_error *error)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(POINTS, 1));
    weft_value y = weft_input(g, "y", WEFT_F32, WEFT_SHAPE(POINTS, 1));
    weft_value lr = weft_input(g, "lr", WEFT_F32, WEFT_SCALAR);
    weft_value loss = weft_mse_loss(g, network(g, x), y, WEFT_REDUCE_MEAN);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value update = weft_train_update(g, loss, NULL, 0, lr, &adam, NULL);
    weft_plan *plan = weft_plan_new(g, &update, 1, NULL, error);
    if (plan) weft_params_init(store, g, 1, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    weft_session_feed(s, x, xs, POINTS * sizeof *xs, NULL);
    weft_session_feed(s, y, ys, POINTS * sizeof *ys, NULL);
    const weft_schedule schedule = {WEFT_SCHEDULE_COSINE, 1e-2, 1e-5, 20, STEPS};
    for (int i = 0; s && i < STEPS && error->status == WEFT_OK; i++) {
        const float rate = (float)weft_schedule_rate(&schedule, (uint64_t)i, 0);
        weft_session_feed(s, lr, &rate, sizeof rate, NULL);
        weft_session_run(s, error);
    }
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
}

/* The root of the mean square error with weights of `bits` bits; 32: without the pass. Sets *nodes
 * to the nodes of the plan. */
static double measure(weft_params *store, const float xs[POINTS], const float ys[POINTS], int bits,
                      size_t *nodes, weft_error *error)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(POINTS, 1));
    weft_value y = network(g, x);
    weft_pass pass = WEFT_DEFAULTS(weft_pass);
    pass.name = "quantise";
    pass.visit = quantise;
    pass.context = &bits;
    weft_plan_options options = WEFT_DEFAULTS(weft_plan_options);
    options.passes = &pass;
    options.n_passes = bits < 32;
    options.verify = true; /* checks the graph after each pass */
    weft_plan *plan = weft_plan_new(g, &y, 1, &options, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    float computed[POINTS] = {0};
    double sum = 0;
    weft_session_feed(s, x, xs, POINTS * sizeof *xs, NULL);
    if (s) weft_session_run(s, error);
    weft_session_fetch(s, y, computed, sizeof computed, NULL);
    for (int i = 0; i < POINTS; i++) sum += pow((double)computed[i] - (double)ys[i], 2);
    *nodes = weft_plan_stats_of(plan).nodes;
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
    return sqrt(sum / POINTS);
}

int main(void)
{
    static const int bits[] = {32, 8, 6, 4, 2};
    enum { ROWS = sizeof bits / sizeof *bits };
    float xs[POINTS], ys[POINTS];
    for (int i = 0; i < POINTS; i++) {
        xs[i] = 2.0f * (float)i / (POINTS - 1) - 1;
        ys[i] = sinf(3 * xs[i]);
    }
    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    train(store, xs, ys, &error);
    double errors[ROWS] = {0};
    if (error.status == WEFT_OK) printf("bits  nodes    error\n");
    for (int i = 0; i < ROWS && error.status == WEFT_OK; i++) {
        size_t nodes = 0;
        errors[i] = measure(store, xs, ys, bits[i], &nodes, &error);
        printf("%4d%7d%9.4f\n", bits[i], (int)nodes, errors[i]);
    }
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    weft_params_free(store);
    const bool good = errors[1] < errors[0] + 0.02 && errors[ROWS - 1] > 2 * errors[1];
    return error.status == WEFT_OK && good ? 0 : 1;
}
