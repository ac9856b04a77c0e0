/* A neural ordinary differential equation (Chen et al. 2018): a network f learns the motion
 * du/dt = f(u) of a point on a spiral, from observed positions alone.
 *
 * The graph is the solver, unrolled: SEGMENT steps of the classical Runge-Kutta method (Kutta
 * 1901), each with four copies of the network on the same parameters. Training differentiates
 * through all of them. The true motion is du/dt = A u^3, elementwise, as in the authors' torchdiffeq.
 *
 *     cc neural_ode.c $(pkg-config --cflags --libs weft-models) -lm -o neural_ode
 *
 * Prints the mean distance between the learned and the true orbit over TRACK steps from the start.
 * The exit status is 1 if it is above 0.1. */
#include <weft/train.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { TRACK = 200, SEGMENT = 5, BATCH = 32, HIDDEN = 48, STEPS = 2000 };
static const double dt = 0.025;

static float orbit[TRACK + 1][2]; /* the observations */

static void motion(const double u[2], double du[2])
{
    const double a = u[0] * u[0] * u[0], b = u[1] * u[1] * u[1];
    du[0] = -0.1 * a + 2 * b;
    du[1] = -2 * a - 0.1 * b;
}

/* Euler steps that are so small that their error does not matter. */
static void observe(void)
{
    enum { FINE = 2000 };
    double u[2] = {2, 0}, du[2];
    for (int i = 0; i <= TRACK; i++) {
        orbit[i][0] = (float)u[0];
        orbit[i][1] = (float)u[1];
        for (int k = 0; k < FINE; k++) {
            motion(u, du);
            u[0] += dt / FINE * du[0];
            u[1] += dt / FINE * du[1];
        }
    }
}

/* f: [batch, 2] to [batch, 2], of the cube, of which a quarter is where tanh bends. */
static weft_value network(weft_graph *g, weft_value u)
{
    weft_value cube = weft_mul(g, u, weft_square(g, u));
    weft_value h = weft_nn_linear(g, "hidden", weft_mul_scalar(g, cube, 0.25), HIDDEN, true);
    return weft_nn_linear(g, "out", weft_tanh(g, h), 2, true);
}

/* u + k step. */
static weft_value moved(weft_graph *g, weft_value u, weft_value k, double step)
{
    return weft_add(g, u, weft_mul_scalar(g, k, step));
}

static weft_value runge_kutta(weft_graph *g, weft_value u)
{
    weft_value k1 = network(g, u);
    weft_value k2 = network(g, moved(g, u, k1, dt / 2));
    weft_value k3 = network(g, moved(g, u, k2, dt / 2));
    weft_value k4 = network(g, moved(g, u, k3, dt));
    weft_value middle = weft_mul_scalar(g, weft_add(g, k2, k3), 2);
    return moved(g, u, weft_add_n(g, WEFT_VALUES(k1, middle, k4)), dt / 6);
}

/* From positions `start` [batch, 2] to those after 1 .. SEGMENT steps: [SEGMENT, batch, 2]. */
static weft_value solve(weft_graph *g, weft_value start)
{
    weft_value path[SEGMENT], u = start;
    weft_graph_share(g, true); /* all steps have the same weights */
    for (int i = 0; i < SEGMENT; i++) path[i] = u = runge_kutta(g, u);
    return weft_stack(g, path, SEGMENT, 0);
}

static void train(weft_params *store, weft_error *error)
{
    static float starts[BATCH][2], paths[SEGMENT][BATCH][2];
    weft_graph *g = weft_graph_new();
    weft_value start = weft_input(g, "start", WEFT_F32, WEFT_SHAPE(BATCH, 2));
    weft_value observed = weft_input(g, "observed", WEFT_F32, WEFT_SHAPE(SEGMENT, BATCH, 2));
    weft_value lr = weft_input(g, "lr", WEFT_F32, WEFT_SCALAR);
    weft_value loss = weft_mse_loss(g, solve(g, start), observed, WEFT_REDUCE_MEAN);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value update = weft_train_update(g, loss, NULL, 0, lr, &adam, NULL);
    weft_plan *plan = weft_plan_new(g, &update, 1, NULL, error);
    if (plan) weft_params_init(store, g, 1, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    const weft_schedule schedule = {WEFT_SCHEDULE_COSINE, 1e-2, 1e-4, 20, STEPS};
    for (int i = 0; s && i < STEPS && error->status == WEFT_OK; i++) {
        for (int b = 0; b < BATCH; b++) { /* another part of the orbit in each row */
            const int at = (i * 7 + b * 61) % (TRACK - SEGMENT + 1);
            for (int k = 0; k < 2; k++) {
                starts[b][k] = orbit[at][k];
                for (int n = 0; n < SEGMENT; n++) paths[n][b][k] = orbit[at + n + 1][k];
            }
        }
        const float rate = (float)weft_schedule_rate(&schedule, (uint64_t)i, 0);
        weft_session_feed(s, start, starts, sizeof starts, NULL);
        weft_session_feed(s, observed, paths, sizeof paths, NULL);
        weft_session_feed(s, lr, &rate, sizeof rate, NULL);
        weft_session_run(s, error);
    }
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
}

/* The mean distance to the orbit of the learned motion from the orbit's start on. */
static double deviation(weft_params *store, weft_error *error)
{
    weft_graph *g = weft_graph_new();
    weft_value start = weft_input(g, "start", WEFT_F32, WEFT_SHAPE(1, 2));
    weft_value path = solve(g, start);
    weft_plan *plan = weft_plan_new(g, &path, 1, NULL, error);
    if (plan) weft_params_init(store, g, 1, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    float us[SEGMENT][2];
    double sum = 0;
    weft_session_feed(s, start, orbit[0], sizeof orbit[0], NULL);
    for (int i = 1; s && i <= TRACK && error->status == WEFT_OK; i += SEGMENT) {
        weft_session_run(s, error);
        weft_session_fetch(s, path, us, sizeof us, NULL);
        for (int n = 0; n < SEGMENT; n++)
            sum += hypot(us[n][0] - orbit[i + n][0], us[n][1] - orbit[i + n][1]);
        weft_session_feed(s, start, us[SEGMENT - 1], sizeof us[0], NULL);
    }
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
    return sum / TRACK;
}

int main(void)
{
    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    observe();
    double after = 0, before = deviation(store, &error);
    if (error.status == WEFT_OK) train(store, &error);
    if (error.status == WEFT_OK) after = deviation(store, &error);
    if (error.status != WEFT_OK)
        fprintf(stderr, "%s: %s\n", error.where, error.message);
    else
        printf("mean distance to the orbit: %.3f before training, %.3f after\n", before, after);
    weft_params_free(store);
    return error.status == WEFT_OK && after < 0.1 ? 0 : 1;
}
