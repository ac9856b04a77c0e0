/* Linear regression: fits y = x w + b to noisy points by gradient descent, and compares the result
 * with the closed form (X^T X) w = X^T y (Gauss 1809), in which X has a column of ones for b.
 *
 *     cc linear_regression.c $(pkg-config --cflags --libs weft) -lm -o linear_regression
 *
 * Prints both solutions side by side. The exit status is 1 if they differ by more than 1e-6. */
#include <weft/graph.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { POINTS = 200, FEATURES = 3, UNKNOWNS = FEATURES + 1, STEPS = 300 };

static double xs[POINTS][FEATURES], ys[POINTS];

/* Uniform in [-1, 1), by a linear congruential generator (Knuth; constants of Numerical Recipes).
 */
static double uniform(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / 8388608.0 - 1.0;
}

static void make_points(void)
{
    static const double weight[FEATURES] = {1.5, -2.0, 0.5}, bias = 0.7;
    uint32_t state = 1;
    for (int i = 0; i < POINTS; i++) {
        ys[i] = bias + 0.3 * uniform(&state); /* noise */
        for (int k = 0; k < FEATURES; k++) {
            xs[i][k] = uniform(&state);
            ys[i] += weight[k] * xs[i][k];
        }
    }
}

/* Solves the normal equations by Gaussian elimination. X^T X is positive definite, so the pivots
 * need no search. */
static void closed_form(double solution[UNKNOWNS])
{
    double a[UNKNOWNS][UNKNOWNS + 1] = {{0}}; /* X^T X, and X^T y as the last column */
    for (int i = 0; i < POINTS; i++) {
        const double row[UNKNOWNS + 1] = {xs[i][0], xs[i][1], xs[i][2], 1, ys[i]};
        for (int j = 0; j < UNKNOWNS; j++)
            for (int k = 0; k <= UNKNOWNS; k++) a[j][k] += row[j] * row[k];
    }
    for (int pivot = 0; pivot < UNKNOWNS; pivot++)
        for (int j = 0; j < UNKNOWNS; j++) {
            if (j == pivot) continue;
            const double factor = a[j][pivot] / a[pivot][pivot];
            for (int k = pivot; k <= UNKNOWNS; k++) a[j][k] -= factor * a[pivot][k];
        }
    for (int j = 0; j < UNKNOWNS; j++) solution[j] = a[j][UNKNOWNS] / a[j][j];
}

/* The same by gradient descent with momentum on the mean square error. */
static weft_status descend(double solution[UNKNOWNS], weft_error *error)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(POINTS, FEATURES));
    weft_value y = weft_input(g, "y", WEFT_F64, WEFT_SHAPE(POINTS));
    weft_value w = weft_param(g, "w", WEFT_F64, WEFT_SHAPE(FEATURES, 1), WEFT_INIT_ZEROS);
    weft_value b = weft_param(g, "b", WEFT_F64, WEFT_SCALAR, WEFT_INIT_ZEROS);
    weft_value line = weft_add(g, weft_squeeze(g, weft_matmul(g, x, w), 1), b);
    weft_value loss = weft_mse_loss(g, line, y, WEFT_REDUCE_MEAN);
    weft_optimizer sgd = WEFT_DEFAULTS(weft_optimizer);
    sgd.sgd.momentum = 0.8;
    weft_value lr = weft_scalar(g, WEFT_F64, 0.2);
    weft_value update = weft_train_update(g, loss, NULL, 0, lr, &sgd, NULL);

    weft_params *store = weft_params_new();
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(loss, update), NULL, error);
    if (plan) weft_params_init(store, g, 1, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    weft_session_feed(s, x, xs, sizeof xs, NULL);
    weft_session_feed(s, y, ys, sizeof ys, NULL);
    for (int i = 0; s && i < STEPS && error->status == WEFT_OK; i++) {
        weft_session_run(s, error);
    }
    weft_session_fetch(s, w, solution, FEATURES * sizeof *solution, NULL);
    weft_session_fetch(s, b, solution + FEATURES, sizeof *solution, NULL);
    weft_session_free(s), weft_plan_free(plan), weft_params_free(store), weft_graph_free(g);
    return error->status;
}

int main(void)
{
    weft_error error = WEFT_NO_ERROR;
    double exact[UNKNOWNS], descended[UNKNOWNS];
    make_points();
    closed_form(exact);
    if (descend(descended, &error) != WEFT_OK)
        return fprintf(stderr, "%s: %s\n", error.where, error.message), 1;
    double worst = 0;
    printf("     closed form  gradient descent\n");
    for (int k = 0; k < UNKNOWNS; k++) {
        if (k < FEATURES)
            printf("w%d", k);
        else
            printf("b ");
        printf("%14.8f%18.8f\n", exact[k], descended[k]);
        worst = fmax(worst, fabs(exact[k] - descended[k]));
    }
    const bool good = worst < 1e-6;
    printf("after %d steps the solutions %s\n", STEPS, good ? "agree to 1e-6" : "differ");
    return good ? 0 : 1;
}
