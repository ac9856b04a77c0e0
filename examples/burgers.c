/* A physics-informed network for a partial differential equation (Raissi, Perdikaris & Karniadakis
 * 2019), Burgers' equation with its shock:
 *
 *     u_t + u u_x = nu u_xx,  u(x, 0) = -sin(pi x),  u(-1, t) = u(1, t) = 0,
 *
 * for -1 <= x <= 1, 0 <= t <= 1/2 and nu = 0.05. The loss needs u_t, u_x and u_xx at every point:
 * weft_jvp along x is u_x, weft_jvp of that is u_xx, forward over forward, in one sweep with u.
 * The training step differentiates all of it in reverse. The form
 *
 *     u = -sin(pi x) + t (1 - x^2) N(x, t)
 *
 * satisfies the initial and boundary values (Lagaris et al. 1998). A grid of finite differences
 * computes the solution to compare with.
 *
 *     cc burgers.c $(pkg-config --cflags --libs weft-models) -lm -o burgers
 *
 * Prints u at t = 1/2 and the largest error there. The exit status is 1 if it is above 0.05. */
#include <weft/train.h>
#include <weft/transform.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { COLUMNS = 33, ROWS = 11, POINTS = COLUMNS * ROWS, HIDDEN = 24, STEPS = 1500 };
static const double pi = 3.14159265358979323846, nu = 0.05, end = 0.5;

/* N(x, t): from two [POINTS, 1] to [POINTS, 1]. */
static weft_value network(weft_graph *g, weft_value x, weft_value t)
{
    const weft_value late = weft_mul_scalar(g, t, 2);
    weft_value h = weft_concat(g, WEFT_VALUES(x, late), 1);
    h = weft_tanh(g, weft_nn_linear(g, "first", h, HIDDEN, true));
    h = weft_tanh(g, weft_nn_linear(g, "second", h, HIDDEN, true));
    return weft_nn_linear(g, "last", h, 1, true);
}

static weft_value solution(weft_graph *g, weft_value x, weft_value t)
{
    const weft_value start = weft_neg(g, weft_sin(g, weft_mul_scalar(g, x, pi)));
    const weft_value inside = weft_add_scalar(g, weft_neg(g, weft_square(g, x)), 1);
    const weft_value factor = weft_mul(g, t, inside);
    return weft_add(g, start, weft_mul(g, factor, network(g, x, t)));
}

/* The derivative of y by x (or t) at every point: each moves at rate 1. */
static weft_value derivative(weft_graph *g, weft_value y, weft_value x)
{
    const weft_value rate = weft_fill(g, WEFT_F64, WEFT_SHAPE(POINTS, 1), 1);
    weft_value slope;
    weft_jvp(g, &y, 1, &x, &rate, 1, &slope);
    return slope;
}

/* u at t = 1/2 and the columns' x, by explicit steps on a fine grid. */
static void solve_on_grid(double u[COLUMNS])
{
    enum { FINE = 16, CELLS = (COLUMNS - 1) * FINE, N = CELLS + 1 };
    static double now[N], next[N];
    const double dx = 2.0 / CELLS, dt = 0.4 * dx * dx / nu;
    const int steps = (int)ceil(end / dt);
    for (int i = 0; i < N; i++) now[i] = -sin(pi * (-1 + i * dx));
    for (int k = 0; k < steps; k++) {
        for (int i = 1; i < N - 1; i++) {
            const double slope = (now[i + 1] - now[i - 1]) / (2 * dx);
            const double bend = (now[i + 1] - 2 * now[i] + now[i - 1]) / (dx * dx);
            next[i] = now[i] + end / steps * (nu * bend - now[i] * slope);
        }
        for (int i = 1; i < N - 1; i++) now[i] = next[i];
    }
    for (int i = 0; i < COLUMNS; i++) u[i] = now[i * FINE];
}

int main(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(POINTS, 1));
    const weft_value t = weft_input(g, "t", WEFT_F64, WEFT_SHAPE(POINTS, 1));
    const weft_value u = solution(g, x, t), u_t = derivative(g, u, t), u_x = derivative(g, u, x);
    const weft_value u_xx = derivative(g, u_x, x), convection = weft_mul(g, u, u_x);
    const weft_value viscosity = weft_mul_scalar(g, u_xx, nu);
    const weft_value residual = weft_sub(g, weft_add(g, u_t, convection), viscosity);
    const weft_value loss = weft_mean(g, weft_square(g, residual), WEFT_ALL_AXES, false);
    const weft_value lr = weft_input(g, "lr", WEFT_F64, WEFT_SCALAR);
    const weft_optimizer adam = WEFT_ADAM_DEFAULT;
    const weft_value update = weft_train_update(g, loss, NULL, 0, lr, &adam, NULL);

    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(u, loss, update), NULL, &error);
    if (plan) weft_params_init(store, g, 1, &error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, &error) : NULL;

    static double xs[POINTS], ts[POINTS], us[POINTS];
    double grid[COLUMNS], first = 0, last = 0, worst = 0;
    for (int i = 0; i < POINTS; i++) {
        xs[i] = -1 + 2.0 * (i % COLUMNS) / (COLUMNS - 1);
        ts[i] = end * (i / COLUMNS) / (ROWS - 1);
    }
    weft_session_feed(s, x, xs, sizeof xs, NULL);
    weft_session_feed(s, t, ts, sizeof ts, NULL);
    const weft_schedule schedule = {WEFT_SCHEDULE_COSINE, 1e-2, 1e-5, 50, STEPS};
    for (int i = 0; s && i < STEPS && error.status == WEFT_OK; i++) {
        const double rate = weft_schedule_rate(&schedule, (uint64_t)i, 0);
        weft_session_feed(s, lr, &rate, sizeof rate, NULL);
        weft_session_run(s, &error);
        weft_session_fetch(s, loss, i ? &last : &first, sizeof last, NULL);
    }
    weft_session_fetch(s, u, us, sizeof us, NULL);

    solve_on_grid(grid);
    const double *at_end = us + POINTS - COLUMNS;
    for (int i = 0; s && i < COLUMNS; i++) worst = fmax(worst, fabs(at_end[i] - grid[i]));
    const bool good = error.status == WEFT_OK && worst < 0.05;
    if (error.status != WEFT_OK)
        fprintf(stderr, "%s: %s\n", error.where, error.message);
    else {
        printf("mean square of the residual: %.1e before training, %.1e after\n", first, last);
        printf("    x   network      grid   at t = 1/2\n");
        for (int i = 0; i < COLUMNS; i += 4)
            printf("%5.2f%10.5f%10.5f\n", xs[i], at_end[i], grid[i]);
        printf("largest error: %.5f\n", worst);
    }
    weft_session_free(s), weft_plan_free(plan), weft_params_free(store), weft_graph_free(g);
    return good ? 0 : 1;
}
