/* A neural ordinary differential equation (Chen et al. 2018): a network f learns the motion
 * du/dt = f(u) of a point on a spiral, from observed positions alone.
 *
 * The solver is a loop (weft_scan) of steps of the classical Runge-Kutta method (Kutta 1901), each with
 * the network four times. Its gradient is the discrete adjoint: a loop back in time that computes each
 * step again from the position that came into it, so that only positions are stored.
 *
 *     cc neural_ode.c $(pkg-config --cflags --libs weft-models) -lm -o neural_ode
 *
 * Prints the mean distance between the learned and the true orbit over TRACK steps from the start.
 * The exit status is 1 if it is above 0.1. */
#include <weft/scan.h>
#include <weft/train.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { TRACK = 200, SEGMENT = 5, BATCH = TRACK / SEGMENT, HIDDEN = 48 };
enum { N_WEIGHTS = 3, STEPS = 2000, FINE = 2000 };
static const double dt = 0.025;

static float orbit[TRACK + 1][2]; /* the observations */

/* du/dt = A u^3, elementwise, as in the authors' torchdiffeq, by very small Euler steps. */
static void observe(void)
{
    double u[2] = {2, 0};
    for (int i = 0; i <= TRACK; i++) {
        orbit[i][0] = (float)u[0], orbit[i][1] = (float)u[1];
        for (int k = 0; k < FINE; k++) {
            const double a = u[0] * u[0] * u[0], b = u[1] * u[1] * u[1];
            u[0] += dt / FINE * (-0.1 * a + 2 * b);
            u[1] += dt / FINE * (-2 * a - 0.1 * b);
        }
    }
}

/* f: [batch, 2] to [batch, 2], of the cube, of which a quarter is where tanh bends. */
static weft_value network(weft_graph *g, const weft_value *w, weft_value u)
{
    weft_value cube = weft_mul_scalar(g, weft_mul(g, u, weft_square(g, u)), 0.25);
    weft_value h = weft_add(g, weft_matmul(g, cube, w[0]), w[1]);
    return weft_matmul(g, weft_tanh(g, h), w[2]);
}

/* u + k step. */
static weft_value moved(weft_graph *g, weft_value u, weft_value k, double step)
{
    return weft_add(g, u, weft_mul_scalar(g, k, step));
}

static weft_value runge_kutta(weft_graph *g, const weft_value *w, weft_value u)
{
    weft_value k1 = network(g, w, u), k2 = network(g, w, moved(g, u, k1, dt / 2));
    weft_value k3 = network(g, w, moved(g, u, k2, dt / 2)), k4 = network(g, w, moved(g, u, k3, dt));
    weft_value middle = weft_mul_scalar(g, weft_add(g, k2, k3), 2);
    return moved(g, u, weft_add_n(g, WEFT_VALUES(k1, middle, k4)), dt / 6);
}

/* From positions `start` [batch, 2] to those after 1 .. steps steps, [steps, batch, 2]. */
static weft_value solve(weft_graph *g, weft_value start, int64_t steps)
{
    static const char *const names[] = {"hidden", "bias", "out"};
    const weft_shape shapes[] = {WEFT_SHAPE(2, HIDDEN), WEFT_SHAPE(HIDDEN), WEFT_SHAPE(HIDDEN, 2)};
    const double spread[] = {0.7, 0, 0.14};
    weft_graph *step = weft_graph_new();
    weft_value u = weft_input(step, "u", WEFT_F32, weft_shape_of(g, start)), path;
    weft_value in[N_WEIGHTS], weights[N_WEIGHTS];
    for (int i = 0; i < N_WEIGHTS; i++) {
        in[i] = weft_input(step, names[i], WEFT_F32, shapes[i]);
        const weft_init init = {WEFT_INIT_NORMAL, 0, spread[i]};
        weights[i] = weft_param(g, names[i], WEFT_F32, shapes[i], init);
    }
    weft_value next = runge_kutta(step, in, u);
    weft_scan_body body = WEFT_DEFAULTS(weft_scan_body);
    body.graph = step, body.carry_in = &u, body.carry_out = body.out = &next;
    body.n_shared = N_WEIGHTS, body.shared = in, body.n_carry = body.n_out = body.segment = 1;
    const weft_scan_inputs inputs = {&start, NULL, weights};
    weft_scan(g, &body, steps, &inputs, NULL, &path);
    weft_graph_free(step);
    return path;
}

/* Plans `target` for the parameters of `store`. NULL: an error. */
static weft_session *open_session(weft_graph *g, weft_value target, weft_params *store,
                                  weft_plan **plan, weft_error *error)
{
    *plan = weft_plan_new(g, &target, 1, NULL, error);
    if (!*plan || weft_params_init(store, g, 1, error) != WEFT_OK) return NULL;
    return weft_session_new(*plan, store, NULL, error);
}

/* Every SEGMENT-th observation is the start of a row of the batch. */
static void train(weft_params *store, weft_error *error)
{
    weft_graph *g = weft_graph_new();
    weft_value all = weft_input(g, "orbit", WEFT_F32, WEFT_SHAPE(TRACK + 1, 2));
    weft_value lr = weft_input(g, "lr", WEFT_F32, WEFT_SCALAR);
    weft_value start = weft_slice(g, all, 0, 0, TRACK, SEGMENT);
    weft_value observed =
        weft_reshape(g, weft_slice(g, all, 0, 1, TRACK + 1, 1), WEFT_SHAPE(BATCH, SEGMENT, 2));
    weft_value path = solve(g, start, SEGMENT);
    weft_value loss = weft_mse_loss(g, weft_transpose(g, path, 0, 1), observed, WEFT_REDUCE_MEAN);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value update = weft_train_update(g, loss, NULL, 0, lr, &adam, NULL);
    weft_plan *plan = NULL;
    weft_session *s = open_session(g, update, store, &plan, error);
    const weft_schedule schedule = {WEFT_SCHEDULE_COSINE, 1e-2, 1e-4, 20, STEPS};
    if (s) weft_session_feed(s, all, orbit, sizeof orbit, NULL);
    for (int i = 0; s && i < STEPS && error->status == WEFT_OK; i++) {
        const float rate = (float)weft_schedule_rate(&schedule, (uint64_t)i, 0);
        weft_session_feed(s, lr, &rate, sizeof rate, NULL), weft_session_run(s, error);
    }
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
}

/* The mean distance to the orbit of the learned motion from the orbit's start on. */
static double deviation(weft_params *store, weft_error *error)
{
    static float us[TRACK][2];
    weft_graph *g = weft_graph_new();
    weft_value start = weft_input(g, "start", WEFT_F32, WEFT_SHAPE(1, 2));
    weft_value path = solve(g, start, TRACK);
    weft_plan *plan = NULL;
    weft_session *s = open_session(g, path, store, &plan, error);
    double sum = 0;
    if (s) weft_session_feed(s, start, orbit[0], sizeof orbit[0], NULL), weft_session_run(s, error);
    if (s) weft_session_fetch(s, path, us, sizeof us, NULL);
    for (int i = 0; s && i < TRACK; i++)
        sum += hypot(us[i][0] - orbit[i + 1][0], us[i][1] - orbit[i + 1][1]);
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
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    if (error.status == WEFT_OK)
        printf("mean distance to the orbit: %.3f before training, %.3f after\n", before, after);
    weft_params_free(store);
    return error.status == WEFT_OK && after < 0.1 ? 0 : 1;
}
