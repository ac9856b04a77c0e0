/* Derivatives beyond the gradient: transform_bench [ROUNDS]
 *
 * Prints microseconds, the fastest of ROUNDS runs (default 200) on one thread, as JSON:
 *   jacobian   [2, 32] of a network 32-32-32-2, and its forward pass
 *   hessian    the product of the Hessian of a loss with a vector, and the gradient: 4 layers of 512,
 *              batch 256
 *   examples   the norms of the gradients of 32 examples of 64 tokens, and the gradient of their sum:
 *              128-512-128
 * All layers but the last have tanh. tests/bench/transforms.py compares this with JAX and PyTorch. Not a
 * test: nothing here fails because it is slow. */
#include <weft/autograd.h>
#include <weft/session.h>
#include <weft/transform.h>
#include <weft/weft.h>

#include "base/platform.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_LAYERS = 4, MAX_TARGETS = 2 * MAX_LAYERS };

/* A network of dense layers, and what is measured of it. */
typedef struct network {
    weft_graph *g;
    int layers;
    weft_value x;
    weft_value params[2 * MAX_LAYERS]; /* weight and bias of each layer */
} network;

static weft_value dense(network *n, weft_value x, const int64_t *widths)
{
    weft_graph *g = n->g;
    for (int i = 0; i < n->layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        const weft_shape shape = WEFT_SHAPE(widths[i], widths[i + 1]);
        const weft_init init = {WEFT_INIT_XAVIER_NORMAL, 1, 0};
        n->params[2 * i] = weft_param(g, name, WEFT_F32, shape, init);
        name[0] = 'b';
        n->params[2 * i + 1] =
            weft_param(g, name, WEFT_F32, WEFT_SHAPE(widths[i + 1]), WEFT_INIT_ZEROS);
        x = weft_add(g, weft_matmul(g, x, n->params[2 * i]), n->params[2 * i + 1]);
        if (i + 1 < n->layers) x = weft_tanh(g, x);
    }
    return x;
}

/* The fastest of some runs, in microseconds; below 0: an error, which is printed. */
static double measure(weft_graph *g, const weft_value *targets, size_t n, int rounds)
{
    weft_error error = WEFT_NO_ERROR;
    weft_plan *plan = weft_plan_new(g, targets, n, NULL, &error);
    weft_params *params = weft_params_new();
    if (plan) weft_params_init(params, g, 1, &error);
    const weft_session_options o = {.threads = 1};
    weft_session *s = error.status == WEFT_OK ? weft_session_new(plan, params, &o, &error) : NULL;
    double best = 1e30;
    for (int i = 0; s && i < rounds && error.status == WEFT_OK; i++) {
        const double begin = clock_seconds();
        weft_session_run(s, &error);
        const double seconds = clock_seconds() - begin;
        if (seconds < best) best = seconds;
    }
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    weft_session_free(s);
    weft_params_free(params);
    weft_plan_free(plan);
    return error.status == WEFT_OK ? 1e6 * best : -1;
}

static bool print(const char *name, double time, double base)
{
    printf("{\"case\": \"%s\", \"us\": %.2f, \"base_us\": %.2f}\n", name, time, base);
    return time > 0 && base > 0;
}

/* An input that is fed by its default. */
static weft_value data(weft_graph *g, const char *name, weft_shape shape)
{
    const weft_value x = weft_input(g, name, WEFT_F32, shape);
    weft_input_default(g, x, 0.5);
    return x;
}

static bool jacobian(int rounds)
{
    static const int64_t widths[] = {32, 32, 32, 2};
    network n = {.g = weft_graph_new(), .layers = 3};
    n.x = data(n.g, "x", WEFT_SHAPE(1, 32));
    const weft_value y = dense(&n, n.x, widths);
    weft_value j;
    const double base = measure(n.g, &y, 1, rounds);
    weft_jacobian(n.g, &y, 1, &n.x, 1, &j);
    const bool good = print("jacobian", measure(n.g, &j, 1, rounds), base);
    weft_graph_free(n.g);
    return good;
}

static bool hessian(int rounds)
{
    static const int64_t widths[] = {512, 512, 512, 512, 512};
    network n = {.g = weft_graph_new(), .layers = 4};
    n.x = data(n.g, "x", WEFT_SHAPE(256, 512));
    const weft_value y = dense(&n, n.x, widths);
    const weft_value loss = weft_sum(n.g, weft_square(n.g, y), WEFT_ALL_AXES, false);
    weft_value gradients[MAX_TARGETS], products[MAX_TARGETS], vectors[MAX_TARGETS];
    for (int i = 0; i < 8; i++) {
        weft_graph_push_scope(n.g, "%d", i);
        vectors[i] = data(n.g, "v", weft_shape_of(n.g, n.params[i]));
        weft_graph_pop_scope(n.g);
    }
    weft_grad(n.g, loss, n.params, 8, gradients);
    weft_hvp(n.g, loss, n.params, vectors, 8, products);
    const double base = measure(n.g, gradients, 8, rounds);
    const bool good = print("hessian", measure(n.g, products, 8, rounds), base);
    weft_graph_free(n.g);
    return good;
}

static bool examples(int rounds)
{
    enum { EXAMPLES = 32, TOKENS = 64 };
    static const int64_t widths[] = {128, 512, 128};
    network n = {.g = weft_graph_new(), .layers = 2};
    weft_graph *g = n.g;
    const weft_value one = weft_input(g, "one", WEFT_F32, WEFT_SHAPE(TOKENS, 128));
    n.x = data(g, "x", WEFT_SHAPE(EXAMPLES, TOKENS, 128));
    const weft_value y = dense(&n, one, widths);
    const weft_value loss = weft_sum(g, weft_square(g, y), WEFT_ALL_AXES, false);
    weft_value gradient[4], each[4], all, plain[4], norms = WEFT_NO_VALUE;
    weft_grad(g, loss, n.params, 4, gradient);
    weft_vmap(g, gradient, 4, &one, &n.x, 1, each);
    weft_vmap(g, &loss, 1, &one, &n.x, 1, &all);
    weft_grad(g, weft_sum(g, all, WEFT_ALL_AXES, false), n.params, 4, plain);
    for (int i = 0; i < 4; i++) {
        const weft_value flat = weft_reshape(g, each[i], WEFT_SHAPE(EXAMPLES, -1));
        const weft_value sum = weft_sum(g, weft_square(g, flat), WEFT_AXES(1), false);
        norms = i ? weft_add(g, norms, sum) : sum;
    }
    norms = weft_sqrt(g, norms);
    const double base = measure(n.g, plain, 4, rounds);
    const bool good = print("examples", measure(n.g, &norms, 1, rounds), base);
    weft_graph_free(g);
    return good;
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 200;
    if (argc > 2 || rounds < 1) {
        fprintf(stderr, "Usage: transform_bench [ROUNDS]\n");
        return 2;
    }
    return !(jacobian(100 * rounds) && hessian(rounds / 20 + 3) && examples(rounds));
}
