/* Hamiltonian Monte Carlo (Duane et al. 1987; Neal 2011): samples of the posterior of a logistic regression.
 * At four log doses x of a drug, 0, 1, 3 and 5 of 5 animals died (Racine et al. 1986; Gelman et al., "Bayesian
 * Data Analysis", section 3.7). A dose kills with probability 1 / (1 + e^-(a + b x)); a and b have a flat prior.
 *
 * A run computes all samples: a loop over the draws (weft_scan), whose body has a loop over leapfrog
 * steps, whose body has the gradient of the log density (weft_grad), which weft_vmap computes for CHAINS
 * independent chains at once. Random numbers are drawn before the loop.
 *
 *     cc sampling.c $(pkg-config --cflags --libs weft) -lm -o sampling
 *
 * Compares the draws after the first WARM with sums over a fine grid. The exit status is 1 if a mean is off by
 * more than 0.05 deviations or a variance by more than 10 %. */
#include <weft/plan.h>
#include <weft/scan.h>
#include <weft/transform.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { DOSES = 4, CHAINS = 16, WARM = 500, DRAWS = 4000, LEAPS = 12 };
static const double dose[DOSES] = {-0.86, -0.30, -0.05, 0.73}, died[DOSES] = {0, 1, 3, 5};
static const double animals = 5, step[2] = {0.4, 2}; /* of a and b */

/* For q = (a, b) of all chains [CHAINS, 2]: the energy, minus the log density, [CHAINS], and its
 * gradient, [CHAINS, 2]. */
static void energy(weft_graph *g, weft_value q, weft_value result[2])
{
    const weft_value one = weft_input(g, "one", WEFT_F64, WEFT_SHAPE(2)); /* of one chain */
    const weft_value x = weft_constant(g, WEFT_F64, WEFT_SHAPE(DOSES), dose);
    const weft_value y = weft_constant(g, WEFT_F64, WEFT_SHAPE(DOSES), died);
    weft_value of[2], both[2];
    weft_chunk(g, one, 0, 2, of);
    const weft_value logits = weft_add(g, of[0], weft_mul(g, of[1], x));
    const weft_value all = weft_mul_scalar(g, weft_softplus(g, logits), animals);
    both[0] = weft_sum(g, weft_sub(g, all, weft_mul(g, y, logits)), WEFT_AXES(0), false);
    weft_grad(g, both[0], &one, 1, &both[1]);
    weft_vmap(g, both, 2, &one, &q, 1, result);
}

/* Moves all chains by LEAPS steps. `from`, `to`: q and momentum [CHAINS, 2], energy of q [CHAINS], its gradient. */
static void leapfrog(weft_graph *g, const weft_value from[4], weft_value to[4])
{
    weft_graph *b = weft_graph_new();
    const char *names[] = {"q", "momentum", "energy", "slope"};
    weft_value in[4], out[4];
    for (int i = 0; i < 4; i++)
        in[i] = weft_input(b, names[i], WEFT_F64, weft_shape_of(g, from[i]));
    const weft_value size = weft_constant(b, WEFT_F64, WEFT_SHAPE(2), step);
    const weft_value half = weft_mul_scalar(b, size, 0.5);
    const weft_value middle = weft_sub(b, in[1], weft_mul(b, half, in[3]));
    out[0] = weft_add(b, in[0], weft_mul(b, size, middle));
    energy(b, out[0], out + 2);
    out[1] = weft_sub(b, middle, weft_mul(b, half, out[3]));
    weft_scan_body body = WEFT_DEFAULTS(weft_scan_body);
    body.graph = b, body.n_carry = 4, body.carry_in = in, body.carry_out = out;
    const weft_scan_inputs inputs = {from, NULL, NULL};
    weft_scan(g, &body, LEAPS, &inputs, to, NULL);
    weft_graph_free(b);
}

/* The energy of all chains with that of their momentum. */
static weft_value total(weft_graph *g, const weft_value z[4])
{
    const weft_value squares = weft_sum(g, weft_square(g, z[1]), WEFT_AXES(1), false);
    return weft_add(g, z[2], weft_mul_scalar(g, squares, 0.5));
}

/* The samples [DRAWS, CHAINS, 2], and which of them were accepted, [DRAWS, CHAINS]. */
static void sample(weft_graph *g, weft_value q, weft_value rows[2])
{
    weft_graph *b = weft_graph_new();
    const weft_shape pairs = WEFT_SHAPE(CHAINS, 2), numbers = WEFT_SHAPE(CHAINS);
    weft_value start[3] = {q}, in[3], each[2], out[3], to[4];
    energy(g, q, start + 1);
    in[0] = weft_input(b, "q", WEFT_F64, pairs);
    in[1] = weft_input(b, "energy", WEFT_F64, numbers);
    in[2] = weft_input(b, "slope", WEFT_F64, pairs);
    each[0] = weft_input(b, "momentum", WEFT_F64, pairs);
    each[1] = weft_input(b, "uniform", WEFT_F64, numbers);
    const weft_value from[] = {in[0], each[0], in[1], in[2]};
    leapfrog(b, from, to);
    const weft_value before = total(b, from), gain = weft_sub(b, before, total(b, to));
    const weft_value accept = weft_less(b, weft_log(b, each[1]), gain);
    const weft_value whole = weft_expand_dims(b, accept, 1);
    out[0] = weft_where(b, whole, to[0], in[0]);
    out[1] = weft_where(b, accept, to[2], in[1]);
    out[2] = weft_where(b, whole, to[3], in[2]);
    const weft_value rest[] = {out[0], weft_cast(b, accept, WEFT_F64)};
    weft_value random[2] = {weft_random_normal(g, WEFT_F64, WEFT_SHAPE(DRAWS, CHAINS, 2), 0, 1)};
    random[1] = weft_random_uniform(g, WEFT_F64, WEFT_SHAPE(DRAWS, CHAINS), 0, 1);
    weft_scan_body body = WEFT_DEFAULTS(weft_scan_body);
    body.graph = b, body.n_carry = 3, body.carry_in = in, body.carry_out = out;
    body.n_each = body.n_out = 2, body.each = each, body.out = rest;
    const weft_scan_inputs inputs = {start, random, NULL};
    weft_scan(g, &body, DRAWS, &inputs, NULL, rows);
    weft_graph_free(b);
}

/* Means and variances of a and b by sums over a grid. */
static void integrate(double mean[2], double variance[2])
{
    double sums[5] = {0};
    for (int i = 0; i < 1000; i++)
        for (int j = 0; j < 1000; j++) {
            double a = -6 + i * 0.02, b = -10 + j * 0.08, log_density = 0;
            for (int k = 0; k < DOSES; k++)
                log_density += died[k] * (a + b * dose[k]) - animals * log1p(exp(a + b * dose[k]));
            const double p = exp(log_density), terms[] = {1, a, b, a * a, b * b};
            for (int k = 0; k < 5; k++) sums[k] += p * terms[k];
        }
    for (int k = 0; k < 2; k++) {
        mean[k] = sums[1 + k] / sums[0];
        variance[k] = sums[3 + k] / sums[0] - mean[k] * mean[k];
    }
}

int main(void)
{
    weft_error e = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value rows[2];
    sample(g, weft_random_normal(g, WEFT_F64, WEFT_SHAPE(CHAINS, 2), 0, 1), rows);
    const weft_value kept = weft_slice(g, rows[0], 0, WARM, DRAWS, 1);
    const weft_value rate = weft_mean(g, rows[1], WEFT_ALL_AXES, false);
    const weft_value mean = weft_mean(g, kept, WEFT_AXES(0, 1), false);
    const weft_value variance = weft_variance(g, kept, WEFT_AXES(0, 1), false, 0);
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(rate, mean, variance), NULL, &e);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &e) : NULL;
    double accepted, m[2], v[2], true_m[2], true_v[2];
    bool good = s && weft_session_run(s, &e) == WEFT_OK;
    if (good) {
        weft_session_fetch(s, rate, &accepted, sizeof accepted, NULL);
        weft_session_fetch(s, mean, m, sizeof m, NULL);
        weft_session_fetch(s, variance, v, sizeof v, NULL);
        integrate(true_m, true_v);
        printf("%d draws in a plan of %zu nodes\n", DRAWS, weft_plan_stats_of(plan).nodes);
        printf("%d chains, %.1f %% accepted\n", CHAINS, 100 * accepted);
        printf("       mean     grid  variance     grid\n");
        for (int k = 0; k < 2; k++) {
            printf("%c  %8.3f %8.3f  %8.3f %8.3f\n", "ab"[k], m[k], true_m[k], v[k], true_v[k]);
            good = good && fabs(m[k] - true_m[k]) < 0.05 * sqrt(true_v[k]);
            good = good && fabs(v[k] / true_v[k] - 1) < 0.1;
        }
    }
    if (e.status != WEFT_OK) fprintf(stderr, "%s: %s\n", e.where, e.message);
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
    return good ? 0 : 1;
}
