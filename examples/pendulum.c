/* Model-predictive control swings up a pendulum whose motor is too weak to lift it. Every time step, the controller
 * improves its plan for the next HORIZON steps once by the Gauss-Newton method (iLQR: Li & Todorov 2004; one iteration
 * a time step: Diehl et al. 2005). A plan has three numbers k for each step, by which the command to the motor is
 * k[0] angle + k[1] rate + k[2].
 *
 * An improvement is two loops (weft_scan) of one graph, which this program runs, or writes as C. `forward` follows the
 * plan, and computes the derivatives of each step (weft_jacobian). `backward` goes back in time, and finds the best
 * plan for steps with these derivatives (Riccati's recursion).
 *
 *     cc pendulum.c $(pkg-config --cflags --libs weft-emit) -lm -o pendulum
 *
 * Usage: pendulum [FOLDER]. Prints the motion. With FOLDER, writes controller.c and controller.h
 * there, which emit/swing_up.c uses. The exit status is 1 if the pendulum does not stand at the end. */
#include <weft/emit.h>
#include <weft/scan.h>
#include <weft/transform.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { HORIZON = 40, STEPS = 180, PUSH = 130 };
static const double dt = 0.05, gravity = 9.81, strongest = 4;
static const int64_t none[] = {0, 0}, one[] = {1, 0}, three[] = {0, 3}, parts[] = {1, 3};

/* What follows from z = (command, angle, rate, 1), for a pendulum of 1 kg and 1 m that stands at angle 0. Returns [6]:
 * the next (angle, rate, 1), and three numbers whose squares are what the step costs. */
static weft_value move(weft_graph *g, weft_value z, weft_value *torque)
{
    weft_value from[4], to[6];
    weft_chunk(g, z, 0, 4, from);
    *torque = weft_mul_scalar(g, weft_tanh(g, from[0]), strongest);
    const weft_value weight = weft_mul_scalar(g, weft_sin(g, from[1]), gravity);
    const weft_value force = weft_add(g, weight, *torque);
    to[1] = weft_add(g, from[2], weft_mul_scalar(g, force, dt));
    to[0] = weft_add(g, from[1], weft_mul_scalar(g, to[1], dt));
    to[2] = from[3];
    to[3] = weft_sin(g, weft_mul_scalar(g, to[0], 0.5)); /* 0 if it stands, 1 if it hangs */
    to[4] = weft_mul_scalar(g, to[1], 0.1);
    to[5] = weft_mul_scalar(g, from[0], 0.3);
    return weft_concat(g, to, 6, 0);
}

/* Follows the plan [HORIZON, 3] from a state (angle, rate, 1). rows: [HORIZON, 6, 4], the matrices by which each step
 * is a linear function of z, near where it is; [HORIZON, 1], the torques; [HORIZON, 3], the states after them. */
static void forward(weft_graph *g, weft_value state, weft_value plan, weft_value rows[3])
{
    weft_graph *b = weft_graph_new();
    const weft_value x = weft_input(b, "x", WEFT_F64, WEFT_SHAPE(3));
    const weft_value k = weft_input(b, "k", WEFT_F64, WEFT_SHAPE(3));
    const weft_value command = weft_sum(b, weft_mul(b, k, x), WEFT_AXES(0), true);
    const weft_value z = weft_concat(b, WEFT_VALUES(command, x), 0);
    weft_value torque, slope;
    const weft_value to = move(b, z, &torque), next = weft_slice(b, to, 0, 0, 3, 1);
    weft_jacobian(b, &to, 1, &z, 1, &slope);
    const weft_value linear = weft_sum(b, weft_mul(b, slope, z), WEFT_AXES(1), false);
    const weft_value rest = weft_expand_dims(b, weft_sub(b, to, linear), 1); /* times z[3], 1 */
    const weft_value out[] = {weft_add(b, slope, weft_pad(b, rest, three, none, 0)), torque, next};
    const weft_scan_body body = {b, 1, &x, &next, 1, &k, 0, NULL, 3, out, false, 0, WEFT_NO_VALUE};
    const weft_scan_inputs inputs = {&state, &plan, NULL};
    weft_scan(g, &body, HORIZON, &inputs, NULL, rows);
    weft_graph_free(b);
}

/* The best plan for linear steps, moved on by the step that is over. From a state x on, the cost is
 * x' V x, for a matrix V [3, 3] that is carried back in time. */
static weft_value backward(weft_graph *g, weft_value steps)
{
    weft_graph *b = weft_graph_new();
    const weft_value V = weft_input(b, "V", WEFT_F64, WEFT_SHAPE(3, 3));
    const weft_value step = weft_input(b, "step", WEFT_F64, WEFT_SHAPE(6, 4));
    weft_value to[2], by[2], plan;
    weft_chunk(b, step, 0, 2, to); /* the next state, and the cost of the step */
    const weft_value half = weft_concat(b, WEFT_VALUES(weft_matmul(b, V, to[0]), to[1]), 0);
    const weft_value cost = weft_matmul(b, weft_transpose(b, step, 0, 1), half);
    /* The cost is z' cost z. Its columns of the command, and of x: */
    weft_split(b, cost, 1, parts, 2, by);
    const weft_value pivot = weft_slice(b, by[0], 0, 0, 1, 1);
    const weft_value k = weft_div(b, weft_neg(b, weft_slice(b, by[1], 0, 0, 1, 1)), pivot);
    const weft_value all = weft_add(b, by[1], weft_mul(b, by[0], k)); /* its first row is now 0 */
    const weft_value U = weft_slice(b, all, 0, 1, 4, 1);              /* V one step earlier */
    const weft_scan_body body = {b, 1, &V, &U, 1, &step, 0, NULL, 1, &k, true, 0, WEFT_NO_VALUE};
    const weft_value end = weft_fill(g, WEFT_F64, WEFT_SHAPE(3, 3), 0);
    const weft_scan_inputs inputs = {&end, &steps, NULL};
    weft_scan(g, &body, HORIZON, &inputs, NULL, &plan);
    weft_graph_free(b);
    return weft_pad(g, weft_slice(g, weft_squeeze(g, plan, 1), 0, 1, HORIZON, 1), none, one, 0);
}

static bool write_piece(void *files, bool header, const char *text, size_t n)
{
    return fwrite(text, 1, n, ((FILE **)files)[header]) == n;
}

static weft_status emit(const weft_graph *g, const weft_value *v, const char *folder, weft_error *e)
{
    char path[1024];
    FILE *files[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/controller.%c", folder, "ch"[i]);
        files[i] = fopen(path, "w");
        if (!files[i]) return weft_error_set(e, WEFT_IO, path, "cannot be written");
    }
    const weft_emit_value out[] = {{v[0], "better"}, {v[1], "torque"}, {v[2], "next"}};
    weft_emit_options options = WEFT_DEFAULTS(weft_emit_options);
    options.name = "controller", options.outputs = out, options.n_outputs = 3;
    options.write = write_piece, options.context = files;
    weft_plan *plan = weft_plan_new(g, v, 3, NULL, e);
    if (plan) weft_emit(plan, &options, e);
    for (int i = 0; i < 2; i++)
        if (fclose(files[i])) weft_error_set(e, WEFT_IO, folder, "a file is incomplete");
    weft_plan_free(plan);
    return e->status;
}

int main(int argc, char **argv)
{
    weft_error e = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    const weft_value state = weft_input(g, "state", WEFT_F64, WEFT_SHAPE(3));
    const weft_value old = weft_input(g, "plan", WEFT_F64, WEFT_SHAPE(HORIZON, 3));
    weft_value rows[3];
    forward(g, state, old, rows);
    const weft_value better = backward(g, rows[0]), torque = weft_slice(g, rows[1], 0, 0, 1, 1);
    const weft_value next = weft_slice(g, rows[2], 0, 0, 1, 1), v[] = {better, torque, next};
    weft_plan *plan = weft_plan_new(g, v, 3, NULL, &e);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &e) : NULL;
    double x[3] = {3.14159265, 0, 1}, k[HORIZON][3] = {{0}}, now = 0;
    uint64_t hash = 0, bits = 0;
    for (int t = 0; t < HORIZON; t++) k[t][2] = 0.1; /* hanging still is an equilibrium */
    if (s) printf("  time    torque     turns      rate\n");
    for (int t = 1; s && t <= STEPS && e.status == WEFT_OK; t++) {
        weft_session_feed(s, state, x, sizeof x, &e);
        weft_session_feed(s, old, k, sizeof k, &e);
        weft_session_run(s, &e);
        weft_session_fetch(s, better, k, sizeof k, &e);
        weft_session_fetch(s, torque, &now, sizeof now, &e);
        weft_session_fetch(s, torque, &bits, sizeof bits, &e);
        weft_session_fetch(s, next, x, sizeof x, &e);
        if (t % 10 == 0) printf("%6.2f %9.4f %9.4f %9.4f\n", t * dt, now, x[0] / 6.2831853, x[1]);
        hash = (hash ^ bits) * 1099511628211u; /* FNV-1a, of words */
        if (t == PUSH) x[1] += 1;
    }
    if (s) printf("hash of the torques: %016llx\n", (unsigned long long)hash);
    if (argc > 1) emit(g, v, argv[1], &e);
    if (e.status != WEFT_OK) fprintf(stderr, "%s: %s\n", e.where, e.message);
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
    return e.status == WEFT_OK && fabs(sin(x[0] / 2)) + fabs(x[1]) < 0.01 ? 0 : 1;
}
