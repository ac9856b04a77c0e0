/* Minimises a function of 100 variables by Newton's method without a Hessian: the steps are found
 * by conjugate gradients, which need only products of the Hessian with vectors (weft_hvp). It is
 * the truncated Newton method (Nocedal & Wright, "Numerical Optimization", algorithm 7.1), on
 * Rosenbrock's function,
 *
 *     f(x) = sum 100 (x[i+1] - x[i]^2)^2 + (1 - x[i])^2,
 *
 * whose minimum 0 lies at x = (1, ..., 1), at the end of a long curved valley.
 *
 *     cc newton.c $(pkg-config --cflags --libs weft) -lm -o newton
 *
 * Prints the way to it. The exit status is 1 if the gradient is not below 1e-8 after 400 steps. */
#include <weft/transform.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 100, STEPS = 400 };

typedef struct problem {
    weft_value x, v, loss, gradient, product;
    weft_session *slope, *bend; /* compute loss and gradient, and the product with v */
    weft_error error;
    int products;
} problem;

static weft_value rosenbrock(weft_graph *g, weft_value x)
{
    const weft_value now = weft_slice(g, x, 0, 0, N - 1, 1), next = weft_slice(g, x, 0, 1, N, 1);
    const weft_value valley = weft_square(g, weft_sub(g, next, weft_square(g, now)));
    const weft_value slope = weft_square(g, weft_add_scalar(g, now, -1));
    return weft_sum(g, weft_add(g, weft_mul_scalar(g, valley, 100), slope), WEFT_ALL_AXES, false);
}

static double evaluate(problem *p, const double *x, double *gradient)
{
    double loss = 0;
    weft_session_feed(p->slope, p->x, x, N * sizeof *x, NULL);
    weft_session_run(p->slope, &p->error);
    weft_session_fetch(p->slope, p->loss, &loss, sizeof loss, NULL);
    weft_session_fetch(p->slope, p->gradient, gradient, N * sizeof *gradient, NULL);
    return loss;
}

static void multiply(problem *p, const double *v, double *product)
{
    weft_session_feed(p->bend, p->v, v, N * sizeof *v, NULL);
    weft_session_run(p->bend, &p->error);
    weft_session_fetch(p->bend, p->product, product, N * sizeof *product, NULL);
    p->products++;
}

static double dot(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < N; i++) sum += a[i] * b[i];
    return sum;
}

static void move(double *x, double step, const double *direction)
{
    for (int i = 0; i < N; i++) x[i] += step * direction[i];
}

/* Solves H step = -gradient at x roughly, up to a direction of negative curvature. */
static void solve(problem *p, const double *x, const double *gradient, double *step)
{
    double r[N], d[N], product[N];
    const double norm = sqrt(dot(gradient, gradient)), enough = fmin(0.5, sqrt(norm)) * norm;
    weft_session_feed(p->bend, p->x, x, N * sizeof *x, NULL);
    memset(step, 0, N * sizeof *step);
    for (int i = 0; i < N; i++) d[i] = -(r[i] = gradient[i]);
    for (int k = 0; k < N && p->error.status == WEFT_OK; k++) {
        multiply(p, d, product);
        const double curvature = dot(d, product), before = dot(r, r);
        if (curvature <= 0) {
            if (!k) move(step, 1, d);
            return;
        }
        move(step, before / curvature, d);
        move(r, before / curvature, product);
        const double after = dot(r, r);
        if (sqrt(after) < enough) return;
        for (int i = 0; i < N; i++) d[i] = after / before * d[i] - r[i];
    }
}

int main(void)
{
    problem p;
    memset(&p, 0, sizeof p);
    weft_graph *g = weft_graph_new();
    p.x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(N));
    p.v = weft_input(g, "v", WEFT_F64, WEFT_SHAPE(N));
    p.loss = rosenbrock(g, p.x);
    weft_grad(g, p.loss, &p.x, 1, &p.gradient);
    weft_hvp(g, p.loss, &p.x, &p.v, 1, &p.product);
    weft_plan *slope = weft_plan_new(g, WEFT_VALUES(p.loss, p.gradient), NULL, &p.error);
    weft_plan *bend = slope ? weft_plan_new(g, &p.product, 1, NULL, &p.error) : NULL;
    if (bend) p.slope = weft_session_new(slope, NULL, NULL, &p.error);
    if (p.slope) p.bend = weft_session_new(bend, NULL, NULL, &p.error);

    double x[N], gradient[N], step[N], norm = 0;
    for (int i = 0; i < N; i++) x[i] = i % 2 ? 1 : -1.2;
    double loss = p.bend ? evaluate(&p, x, gradient) : 0;
    for (int k = 0; p.bend && p.error.status == WEFT_OK; k++) {
        norm = sqrt(dot(gradient, gradient));
        if (k % 40 == 0 || norm < 1e-8 || k == STEPS)
            printf("step %3d: f = %.3e, |gradient| = %.1e\n", k, loss, norm);
        if (norm < 1e-8 || k == STEPS) break;
        solve(&p, x, gradient, step);
        const double descent = dot(gradient, step), old = loss;
        double length = 1;
        move(x, length, step);
        while ((loss = evaluate(&p, x, gradient)) > old + 1e-4 * length * descent &&
               length > 1e-10) {
            move(x, -length / 2, step);
            length /= 2;
        }
    }
    if (p.error.status != WEFT_OK)
        fprintf(stderr, "%s: %s\n", p.error.where, p.error.message);
    else
        printf("%d products with the Hessian of %d x %d\n", p.products, N, N);
    weft_session_free(p.slope), weft_session_free(p.bend);
    weft_plan_free(slope), weft_plan_free(bend), weft_graph_free(g);
    return p.error.status == WEFT_OK && norm < 1e-8 ? 0 : 1;
}
