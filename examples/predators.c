/* Finds the rates of a differential equation from observations, by gradients through a loop of 1,000
 * steps (weft_scan). It is the model of predators y and their prey x by Lotka (1925) and Volterra
 * (1926),
 *
 *     dx/dt = a x - b x y,    dy/dt = c x y - d y,
 *
 * solved by the classical Runge-Kutta method. The loop is one node, and so is its gradient, a loop
 * back in time, so a plan is small for any number of steps. Adam moves the logarithms of the rates.
 *
 *     cc predators.c $(pkg-config --cflags --libs weft) -lm -o predators
 *
 * Prints the way to them. The exit status is 1 if a rate is off by more than 1 %. */
#include <weft/plan.h>
#include <weft/scan.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { STEPS = 1000, TRACKS = 4, UPDATES = 120 };
static const double dt = 0.005, truth[4] = {1.5, 0.8, 0.6, 1.2};

static float starts[2][TRACKS] = {{1.0f, 1.5f, 2.0f, 2.5f}, {1.0f, 0.5f, 1.5f, 1.0f}};
static float observed[2][STEPS][TRACKS]; /* x and y after each step */

/* ---- The observations, by plain C ---- */

static void slope(const double u[2], double du[2])
{
    du[0] = truth[0] * u[0] - truth[1] * u[0] * u[1];
    du[1] = truth[2] * u[0] * u[1] - truth[3] * u[1];
}

static void observe(void)
{
    const double part[] = {0, 0.5, 0.5, 1}, weight[] = {1, 2, 2, 1};
    for (int k = 0; k < TRACKS; k++) {
        double u[2] = {starts[0][k], starts[1][k]};
        for (int t = 0; t < STEPS; t++) {
            double du[2] = {0, 0}, sum[2] = {0, 0};
            for (int i = 0; i < 4; i++) {
                const double at[2] = {u[0] + part[i] * dt * du[0], u[1] + part[i] * dt * du[1]};
                slope(at, du);
                for (int j = 0; j < 2; j++) sum[j] += weight[i] * du[j];
            }
            for (int j = 0; j < 2; j++) {
                u[j] += dt / 6 * sum[j];
                observed[j][t][k] = (float)u[j];
            }
        }
    }
}

/* ---- The same as a graph: one step is the body of the loop ---- */

typedef struct state {
    weft_value x, y;
} state;

static state slope_at(weft_graph *g, state u, const weft_value rate[4])
{
    const weft_value xy = weft_mul(g, u.x, u.y);
    const weft_value born = weft_mul(g, rate[0], u.x), eaten = weft_mul(g, rate[1], xy);
    const weft_value grown = weft_mul(g, rate[2], xy), died = weft_mul(g, rate[3], u.y);
    u.x = weft_sub(g, born, eaten);
    u.y = weft_sub(g, grown, died);
    return u;
}

static state moved(weft_graph *g, state u, state du, double by)
{
    u.x = weft_add(g, u.x, weft_mul_scalar(g, du.x, by));
    u.y = weft_add(g, u.y, weft_mul_scalar(g, du.y, by));
    return u;
}

static state runge_kutta(weft_graph *g, state u, const weft_value rate[4])
{
    const state k1 = slope_at(g, u, rate), k2 = slope_at(g, moved(g, u, k1, dt / 2), rate);
    const state k3 = slope_at(g, moved(g, u, k2, dt / 2), rate);
    const state k4 = slope_at(g, moved(g, u, k3, dt), rate);
    const state middle = moved(g, k2, k3, 1), ends = moved(g, k1, k4, 1);
    return moved(g, u, moved(g, ends, middle, 2), dt / 6);
}

/* x and y after each of STEPS steps from the start, [STEPS, TRACKS] each. */
static void solve(weft_graph *g, const weft_value start[2], weft_value rates, weft_value path[2])
{
    weft_graph *b = weft_graph_new();
    const weft_value x = weft_input(b, "x", WEFT_F32, WEFT_SHAPE(TRACKS));
    const weft_value y = weft_input(b, "y", WEFT_F32, WEFT_SHAPE(TRACKS));
    const weft_value all = weft_input(b, "rates", WEFT_F32, WEFT_SHAPE(4)), in[] = {x, y};
    weft_value rate[4];
    weft_chunk(b, all, 0, 4, rate);
    const state u = {x, y}, next = runge_kutta(b, u, rate);
    const weft_value out[] = {next.x, next.y};
    weft_scan_body body = WEFT_DEFAULTS(weft_scan_body);
    body.graph = b;
    body.n_carry = body.n_out = 2;
    body.carry_in = in;
    body.carry_out = body.out = out;
    body.n_shared = 1;
    body.shared = &all;
    const weft_scan_inputs inputs = {start, NULL, &rates};
    weft_scan(g, &body, STEPS, &inputs, NULL, path);
    weft_graph_free(b);
}

int main(void)
{
    weft_error e = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value start[2], seen[2], path[2], terms[2];
    const weft_init zeros = {WEFT_INIT_CONSTANT, 0, 0};
    const weft_value logs = weft_param(g, "log_rates", WEFT_F32, WEFT_SHAPE(4), zeros);
    const weft_value lr = weft_input(g, "lr", WEFT_F32, WEFT_SCALAR);
    observe();
    for (int j = 0; j < 2; j++) {
        start[j] = weft_constant(g, WEFT_F32, WEFT_SHAPE(TRACKS), starts[j]);
        seen[j] = weft_constant(g, WEFT_F32, WEFT_SHAPE(STEPS, TRACKS), observed[j]);
    }
    const weft_value rates = weft_exp(g, logs);
    solve(g, start, rates, path);
    for (int j = 0; j < 2; j++) terms[j] = weft_mse_loss(g, path[j], seen[j], WEFT_REDUCE_MEAN);
    const weft_value loss = weft_add(g, terms[0], terms[1]);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    const weft_value update = weft_train_update(g, loss, NULL, 0, lr, &adam, NULL);
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(loss, rates, update), NULL, &e);
    weft_params *store = weft_params_new();
    if (plan) weft_params_init(store, g, 1, &e);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, &e) : NULL;
    if (s) printf("%d steps in a plan of %zu nodes\n", STEPS, weft_plan_stats_of(plan).nodes);
    float now = 0, found[4] = {0, 0, 0, 0};
    for (int i = 0; s && i <= UPDATES && e.status == WEFT_OK; i++) {
        const float rate = 0.05f * (1 - 0.99f * (float)i / UPDATES);
        weft_session_feed(s, lr, &rate, sizeof rate, NULL);
        weft_session_run(s, &e);
        weft_session_fetch(s, loss, &now, sizeof now, NULL);
        weft_session_fetch(s, rates, found, sizeof found, NULL);
        if (i % 20 == 0)
            printf("update %3d: mean square %.1e, rates %.3f %.3f %.3f %.3f\n", i, now, found[0],
                   found[1], found[2], found[3]);
    }
    if (e.status != WEFT_OK) fprintf(stderr, "%s: %s\n", e.where, e.message);
    double off = e.status == WEFT_OK && s ? 0 : 1;
    for (int i = 0; i < 4; i++) off = fmax(off, fabs(found[i] / truth[i] - 1));
    weft_session_free(s), weft_plan_free(plan), weft_params_free(store), weft_graph_free(g);
    return off < 0.01 ? 0 : 1;
}
