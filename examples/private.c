/* Trains a small Transformer with differential privacy (DP-SGD: Abadi et al. 2016): the gradient of
 * each example is clipped to a norm, and noise of that size is added to their sum, so that no
 * example can be read back from the parameters. weft_vmap computes the gradients of all examples
 * of a batch at once, from the graph of one example.
 *
 * The task: in which half of a sequence of random tokens does token 0 stand?
 *
 *     cc private.c $(pkg-config --cflags --libs weft-models) -lm -o private
 *
 * Prints the accuracy on new sequences, and the largest norm of the gradient of one, without noise and
 * with it. The exit status is 1 unless both trainings reach 90 %. */
#include <weft/autograd.h>
#include <weft/graph.h>
#include <weft/layers.h>
#include <weft/transform.h>
#include <weft/weft.h>

#include <stdio.h>

enum { VOCAB = 12, LENGTH = 8, WIDTH = 32, BATCH = 64, STEPS = 300, MAX_PARAMS = 64 };

typedef struct model {
    weft_graph *g;
    weft_value tokens, target;    /* of one example: [1, LENGTH] and [1] */
    weft_value logits, loss;      /* [1, 2] and a scalar */
    weft_value batch, targets;    /* of all: [BATCH, 1, LENGTH] and [BATCH, 1] */
    weft_value all_logits, norms; /* [BATCH, 1, 2] and [BATCH] */
    weft_value update;
} model;

static void build_example(model *m)
{
    weft_graph *g = m->g;
    m->tokens = weft_input(g, "tokens", WEFT_I32, WEFT_SHAPE(1, LENGTH));
    m->target = weft_input(g, "target", WEFT_I32, WEFT_SHAPE(1));
    const weft_value table = weft_nn_embedding_table(g, "table", WEFT_F32, VOCAB, WIDTH);
    weft_value x = weft_embedding(g, table, m->tokens, -1);
    x = weft_add(g, x, weft_nn_sinusoidal_positions(g, WEFT_F32, LENGTH, WIDTH));
    weft_nn_block_options o = WEFT_DEFAULTS(weft_nn_block_options);
    o.attention.heads = 4;
    x = weft_nn_stack(g, "encoder", 2, x, WEFT_NO_VALUE, WEFT_NO_VALUE, &o);
    m->logits = weft_nn_linear(g, "half", weft_mean(g, x, WEFT_AXES(1), false), 2, true);
    m->loss = weft_cross_entropy_loss(g, m->logits, m->target, NULL);
}

/* Adds the update by the clipped gradients of the examples, with noise of deviation noise clip. */
static void build_update(model *m, double clip, double noise)
{
    weft_graph *g = m->g;
    size_t n;
    const weft_value *params = weft_graph_params(g, &n);
    weft_value one[MAX_PARAMS + 1], each[MAX_PARAMS + 1], squares = WEFT_NO_VALUE;
    weft_grad(g, m->loss, params, n, one);
    one[n] = m->logits;
    m->batch = weft_input(g, "batch", WEFT_I32, WEFT_SHAPE(BATCH, 1, LENGTH));
    m->targets = weft_input(g, "targets", WEFT_I32, WEFT_SHAPE(BATCH, 1));
    const weft_value inputs[] = {m->tokens, m->target}, batches[] = {m->batch, m->targets};
    weft_vmap(g, one, n + 1, inputs, batches, 2, each);
    m->all_logits = each[n];

    for (size_t k = 0; k < n; k++) {
        each[k] = weft_reshape(g, each[k], WEFT_SHAPE(BATCH, -1));
        const weft_value sums = weft_sum(g, weft_square(g, each[k]), WEFT_AXES(1), false);
        squares = k ? weft_add(g, squares, sums) : sums;
    }
    m->norms = weft_sqrt(g, squares);
    const weft_value limit = weft_scalar(g, WEFT_F32, clip);
    weft_value factors = weft_div(g, limit, weft_maximum(g, m->norms, limit));
    factors = weft_reshape(g, factors, WEFT_SHAPE(1, BATCH));
    for (size_t k = 0; k < n; k++) {
        const weft_shape shape = weft_shape_of(g, params[k]);
        const weft_value random = weft_random_normal(g, WEFT_F32, shape, 0, noise * clip);
        const weft_value sum = weft_reshape(g, weft_matmul(g, factors, each[k]), shape);
        one[k] = weft_mul_scalar(g, weft_add(g, sum, random), 1.0 / BATCH);
    }
    const weft_gradients gradients = {params, one, n, WEFT_NO_VALUE};
    const weft_optimizer adam = WEFT_ADAMW_DEFAULT;
    const weft_value lr = weft_scalar(g, WEFT_F32, 2e-3);
    m->update = weft_apply_gradients(g, &gradients, lr, &adam, NULL, NULL);
}

/* Sequences in which token 0 stands once. */
static void draw(uint32_t *state, int32_t *tokens, int32_t *targets)
{
    for (int e = 0; e < BATCH; e++) {
        for (int i = 0; i <= LENGTH; i++) {
            *state = *state * 1664525u + 1013904223u;
            if (i < LENGTH)
                tokens[e * LENGTH + i] = 1 + (int32_t)((*state >> 16) % (VOCAB - 1));
            else
                targets[e] = (int32_t)((*state >> 16) % LENGTH);
        }
        tokens[e * LENGTH + targets[e]] = 0;
        targets[e] = targets[e] >= LENGTH / 2;
    }
}

/* Trains, and prints the accuracy of each fifty steps on sequences that were not yet trained on. */
static double train(const model *m, weft_session *s, weft_error *error)
{
    int32_t tokens[BATCH * LENGTH], targets[BATCH];
    float logits[BATCH][2], norms[BATCH], high = 0;
    uint32_t state = 1;
    double accuracy = 0;
    int right = 0;
    for (int step = 1; step <= STEPS && error->status == WEFT_OK; step++) {
        draw(&state, tokens, targets);
        weft_session_feed(s, m->batch, tokens, sizeof tokens, error);
        weft_session_feed(s, m->targets, targets, sizeof targets, error);
        if (weft_session_run(s, error) != WEFT_OK) break;
        weft_session_fetch(s, m->all_logits, logits, sizeof logits, error);
        weft_session_fetch(s, m->norms, norms, sizeof norms, error);
        for (int e = 0; e < BATCH; e++) {
            right += (logits[e][1] > logits[e][0]) == targets[e];
            if (norms[e] > high) high = norms[e];
        }
        if (step % 50) continue;
        accuracy = (double)right / (50 * BATCH);
        printf("step %3d: %3.0f %% right, gradients have norms up to %.3g\n", step, 100 * accuracy,
               high);
        right = 0, high = 0;
    }
    return accuracy;
}

static double train_with(double clip, double noise, weft_error *error)
{
    model m;
    m.g = weft_graph_new();
    build_example(&m);
    build_update(&m, clip, noise);
    const weft_value targets[] = {m.all_logits, m.norms, m.update};
    weft_params *store = weft_params_new();
    weft_plan *plan = weft_plan_new(m.g, targets, 3, NULL, error);
    if (plan) weft_params_init(store, m.g, 1, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    printf("gradients clipped to %g, noise %g:\n", clip, noise);
    const double accuracy = s ? train(&m, s, error) : 0;
    weft_session_free(s), weft_plan_free(plan), weft_params_free(store), weft_graph_free(m.g);
    return accuracy;
}

int main(void)
{
    weft_error error = WEFT_NO_ERROR;
    const double plain = train_with(1, 0, &error), noisy = train_with(1, 0.8, &error);
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    return error.status == WEFT_OK && plain > 0.9 && noisy > 0.9 ? 0 : 1;
}
