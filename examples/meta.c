/* Learns to learn (MAML: Finn et al. 2017): first parameters of a small network, from which five steps of
 * gradient descent on ten points of a sine wave find the wave. Each task is another wave.
 *
 * The steps are a loop (weft_scan). Its body has the gradients for one task (weft_grad), which weft_vmap
 * computes for all tasks at once. The loss is the error after the last step, on other points. Its
 * gradient goes back through all steps, and so needs second derivatives of the network.
 *
 *     cc meta.c $(pkg-config --cflags --libs weft) -lm -o meta
 *
 * Prints the error for new waves after steps from the learned parameters, and from random ones. The exit
 * status is 1 unless 5 steps from the learned ones are better than 100 from random ones. */
#include <weft/scan.h>
#include <weft/session.h>
#include <weft/transform.h>
#include <weft/weft.h>

#include <stdio.h>

enum { N = 6, TASKS = 16, POINTS = 10, HIDDEN = 32, STEPS = 5, MORE = 1000, UPDATES = 500 };
static const double rate = 0.05; /* of gradient descent */

static const weft_shape shapes[N] = {{2, {1, HIDDEN}}, {1, {HIDDEN}},    {2, {HIDDEN, HIDDEN}},
                                     {1, {HIDDEN}},    {2, {HIDDEN, 1}}, {1, {1}}};

/* The mean square error of a network with parameters p on points x and y, [POINTS, 1]. */
static weft_value error_of(weft_graph *g, const weft_value p[N], weft_value x, weft_value y)
{
    for (int i = 0; i < N; i += 2) {
        x = weft_add(g, weft_matmul(g, x, p[i]), p[i + 1]);
        if (i + 2 < N) x = weft_tanh(g, x);
    }
    return weft_mse_loss(g, x, y, WEFT_REDUCE_MEAN);
}

static weft_shape for_all_tasks(weft_shape s)
{
    weft_shape all = {s.rank + 1, {TASKS}};
    for (int i = 0; i < s.rank; i++) all.dim[i + 1] = s.dim[i];
    return all;
}

/* Descends n times on points xy[0] and xy[1], each [TASKS, POINTS, 1], from the same first parameters.
 * Returns the errors on xy[2] and xy[3] after each step, [n, TASKS]. */
static weft_value adapt(weft_graph *g, const weft_value first[N], const weft_value xy[4], int n)
{
    weft_graph *b = weft_graph_new();
    weft_value one[N + 4], all[N + 4], out[N + 1], next[N + 1], start[N], errors;
    for (int i = 0; i < N + 4; i++) { /* the parameters and points of one task, and of all */
        const weft_shape shape = i < N ? shapes[i] : WEFT_SHAPE(POINTS, 1);
        const char small[] = {(char)('a' + i), 0}, large[] = {(char)('A' + i), 0};
        one[i] = weft_input(b, small, WEFT_F32, shape);
        all[i] = weft_input(b, large, WEFT_F32, for_all_tasks(shape));
        if (i < N) start[i] = weft_broadcast_to(g, first[i], for_all_tasks(shape));
    }
    weft_grad(b, error_of(b, one, one[N], one[N + 1]), one, N, out);
    for (int i = 0; i < N; i++) out[i] = weft_sub(b, one[i], weft_mul_scalar(b, out[i], rate));
    out[N] = error_of(b, out, one[N + 2], one[N + 3]);
    weft_vmap(b, out, N + 1, one, all, N + 4, next);
    weft_scan_body body = WEFT_DEFAULTS(weft_scan_body);
    body.graph = b;
    body.n_carry = N;
    body.carry_in = all;
    body.carry_out = next;
    body.n_shared = 4;
    body.shared = all + N;
    body.n_out = 1;
    body.out = next + N;
    const weft_scan_inputs inputs = {start, NULL, xy};
    weft_scan(g, &body, n, &inputs, NULL, &errors);
    weft_graph_free(b);
    return errors;
}

/* The mean errors after each of n steps, [n], for new waves a sin(x + p) in each run. */
static weft_value errors_of(weft_graph *g, int n)
{
    static const char *names[N] = {"w0", "b0", "w1", "b1", "w2", "b2"};
    const weft_init inits[] = {WEFT_INIT_XAVIER, WEFT_INIT_ZEROS};
    weft_value first[N], xy[4];
    for (int i = 0; i < N; i++)
        first[i] = weft_param(g, names[i], WEFT_F32, shapes[i], inits[i % 2]);
    const weft_value a = weft_random_uniform(g, WEFT_F32, WEFT_SHAPE(TASKS, 1, 1), 0.5, 2);
    const weft_value p = weft_random_uniform(g, WEFT_F32, WEFT_SHAPE(TASKS, 1, 1), 0, 3.14159265);
    for (int i = 0; i < 4; i += 2) {
        xy[i] = weft_random_uniform(g, WEFT_F32, WEFT_SHAPE(TASKS, POINTS, 1), -3, 3);
        xy[i + 1] = weft_mul(g, a, weft_sin(g, weft_add(g, xy[i], p)));
    }
    return weft_mean(g, adapt(g, first, xy, n), WEFT_AXES(1), false);
}

static void learn(weft_params *store, weft_error *error)
{
    weft_graph *g = weft_graph_new();
    const weft_value lr = weft_input(g, "lr", WEFT_F32, WEFT_SCALAR);
    const weft_value last = weft_slice(g, errors_of(g, STEPS), 0, STEPS - 1, STEPS, 1);
    const weft_optimizer adam = WEFT_ADAM_DEFAULT;
    const weft_value update =
        weft_train_update(g, weft_squeeze(g, last, 0), NULL, 0, lr, &adam, NULL);
    weft_plan *plan = weft_plan_new(g, &update, 1, NULL, error);
    if (plan) weft_params_init(store, g, 1, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    for (int i = 0; s && i < UPDATES && error->status == WEFT_OK; i++) {
        const float now = 0.01f * (1 - 0.99f * (float)i / UPDATES);
        weft_session_feed(s, lr, &now, sizeof now, NULL);
        weft_session_run(s, error);
    }
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
}

/* Waves of another seed. Parameters that the store lacks are random. */
static void test(weft_params *store, float result[MORE], weft_error *error)
{
    weft_graph *g = weft_graph_new();
    const weft_value errors = errors_of(g, MORE);
    weft_session_options options = WEFT_DEFAULTS(weft_session_options);
    options.seed = 1;
    weft_plan *plan = weft_plan_new(g, &errors, 1, NULL, error);
    if (plan) weft_params_init(store, g, 2, error);
    weft_session *s = plan ? weft_session_new(plan, store, &options, error) : NULL;
    if (s) weft_session_run(s, error);
    if (s) weft_session_fetch(s, errors, result, MORE * sizeof *result, NULL);
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
}

int main(void)
{
    static const int rows[] = {1, 2, 5, 10, 100, MORE};
    static float learned[MORE], fresh[MORE];
    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new(), *random = weft_params_new();
    learn(store, &error);
    if (error.status == WEFT_OK) test(store, learned, &error);
    if (error.status == WEFT_OK) test(random, fresh, &error);
    if (error.status != WEFT_OK)
        fprintf(stderr, "%s: %s\n", error.where, error.message);
    else
        printf("steps  from learned  from random\n");
    for (int i = 0; error.status == WEFT_OK && i < 6; i++)
        printf("%5d  %12.4f %12.4f\n", rows[i], learned[rows[i] - 1], fresh[rows[i] - 1]);
    weft_params_free(store), weft_params_free(random);
    return error.status == WEFT_OK && learned[STEPS - 1] < fresh[99] ? 0 : 1;
}
