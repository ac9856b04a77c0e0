/* A physics-informed network (Raissi, Perdikaris & Karniadakis 2019): a network u(t) learns to
 * solve the equation of the harmonic oscillator,
 *
 *     u'' + u = 0,  u(0) = 1,  u'(0) = 0,  for 0 <= t <= 6,
 *
 * without ever seeing its solution, cos t. The loss is the mean square of u'' + u at points of the
 * interval. weft_grad of u is u', weft_grad of u' is u'', and the training step differentiates a
 * third time. The form u = 1 + t^2 N(t) satisfies the initial conditions (Lagaris et al. 1998).
 *
 *     cc physics.c $(pkg-config --cflags --libs weft-models) -lm -o physics
 *
 * Prints the largest error against cos t. The exit status is 1 if it is above 0.01. */
#include <weft/train.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { POINTS = 64, HIDDEN = 32, STEPS = 4000 };

/* N(t): [POINTS, 1] to [POINTS, 1]. */
static weft_value network(weft_graph *g, weft_value t)
{
    weft_value h = weft_add_scalar(g, weft_mul_scalar(g, t, 1.0 / 3), -1); /* to [-1, 1] */
    h = weft_tanh(g, weft_nn_linear(g, "first", h, HIDDEN, true));
    h = weft_tanh(g, weft_nn_linear(g, "second", h, HIDDEN, true));
    return weft_nn_linear(g, "last", h, 1, true);
}

/* dy/dt at every point. y[i] depends on t[i] only, so this is the gradient of the sum of y. */
static weft_value derivative(weft_graph *g, weft_value y, weft_value t)
{
    weft_value slope;
    weft_grad(g, weft_sum(g, y, WEFT_ALL_AXES, false), &t, 1, &slope);
    return slope;
}

int main(void)
{
    weft_graph *g = weft_graph_new();
    weft_value t = weft_input(g, "t", WEFT_F64, WEFT_SHAPE(POINTS, 1));
    weft_value one = weft_scalar(g, WEFT_F64, 1), t_squared = weft_square(g, t);
    weft_value u = weft_add(g, one, weft_mul(g, t_squared, network(g, t)));
    weft_value acceleration = derivative(g, derivative(g, u, t), t);
    weft_value residual = weft_add(g, acceleration, u);
    weft_value loss = weft_mean(g, weft_square(g, residual), WEFT_ALL_AXES, false);
    weft_value lr = weft_input(g, "lr", WEFT_F64, WEFT_SCALAR);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value update = weft_train_update(g, loss, NULL, 0, lr, &adam, NULL);

    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(u, loss, update), NULL, &error);
    if (plan) weft_params_init(store, g, 1, &error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, &error) : NULL;

    double ts[POINTS], us[POINTS], first = 0, last = 0;
    for (int i = 0; i < POINTS; i++) ts[i] = 6.0 * i / (POINTS - 1);
    weft_session_feed(s, t, ts, sizeof ts, NULL);
    const weft_schedule schedule = {WEFT_SCHEDULE_COSINE, 5e-3, 1e-6, 50, STEPS};
    for (int i = 0; s && i < STEPS && error.status == WEFT_OK; i++) {
        const double rate = weft_schedule_rate(&schedule, (uint64_t)i, 0);
        weft_session_feed(s, lr, &rate, sizeof rate, NULL);
        weft_session_run(s, &error);
        weft_session_fetch(s, loss, i ? &last : &first, sizeof last, NULL);
    }
    weft_session_fetch(s, u, us, sizeof us, NULL);

    double worst = 0;
    for (int i = 0; s && i < POINTS; i++) worst = fmax(worst, fabs(us[i] - cos(ts[i])));
    const bool good = error.status == WEFT_OK && worst < 0.01;
    if (error.status != WEFT_OK)
        fprintf(stderr, "%s: %s\n", error.where, error.message);
    else {
        printf("mean square of u'' + u: %.1e before training, %.1e after\n", first, last);
        printf("   t   network     cos t\n");
        for (int i = 0; i < POINTS; i += 9) printf("%4.2f%10.5f%10.5f\n", ts[i], us[i], cos(ts[i]));
        printf("largest error: %.5f\n", worst);
    }
    weft_session_free(s), weft_plan_free(plan), weft_params_free(store), weft_graph_free(g);
    return good ? 0 : 1;
}
