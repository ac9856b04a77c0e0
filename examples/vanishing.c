/* How much the last state h_T of a recurrent layer still depends on an early input x_t: the
 * Frobenius norm of the Jacobian d h_T / d x_t, for layers with initial weights (Bengio et al.
 * 1994).
 *
 * It is exact: the batch holds the same sequence WIDTH times, and sequence i gets the i-th unit
 * vector as cotangent of its h_T, so that one backward pass computes row i of every Jacobian.
 *
 *     cc vanishing.c $(pkg-config --cflags --libs weft-models) -lm -o vanishing
 *     ./vanishing [SEED [--all]]
 *
 * Prints the norm and the mean factor of a step back since T, for an RNN, an LSTM whose forget
 * gates have bias 0 (half open), and one with bias 5, like gates that have learnt to remember; the
 * last column is the rule of thumb 0.45^(T - t). --all prints every step. The exit status is 1
 * unless the gradient vanishes in the RNN and not in the LSTM whose gates are open. */
#include <weft/autograd.h>
#include <weft/call.h>
#include <weft/layers.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 101, WIDTH = 32, LAYERS = 3 };

static const struct {
    weft_recurrent_kind kind;
    double forget_bias;
} layers[LAYERS] = {{WEFT_RNN, 0}, {WEFT_LSTM, 0}, {WEFT_LSTM, 5}};

/* sqrt(sum of squares) over batch and features of x [WIDTH, STEPS, WIDTH], scaled by the largest so
 * that nothing underflows: [STEPS]. */
static weft_value norms_by_step(weft_graph *g, weft_value x)
{
    const weft_axes axes = WEFT_AXES(0, 2);
    weft_value largest = weft_max(g, weft_abs(g, x), axes, true);
    largest = weft_maximum(g, largest, weft_scalar(g, WEFT_F64, 1e-300));
    weft_value sum = weft_sum(g, weft_square(g, weft_div(g, x, largest)), axes, true);
    return weft_reshape(g, weft_mul(g, weft_sqrt(g, sum), largest), WEFT_SHAPE(-1));
}

/* The norms for t = 1 .. T, of the input x. */
static weft_value build(weft_graph *g, weft_value x, weft_recurrent_kind kind)
{
    weft_recurrent_state last;
    weft_value gradient;
    weft_nn_recurrent(g, "layer", kind, x, WIDTH, NULL, &last);
    weft_value index = weft_arange(g, WEFT_I32, WIDTH, 0, 1);
    weft_value unit_vectors = weft_one_hot(g, index, WIDTH, WEFT_F64);
    weft_grad_of(g, &last.h, &unit_vectors, 1, &x, 1, &gradient);
    return norms_by_step(g, gradient);
}

/* The same sequence WIDTH times: normal numbers of deviation 0.5 (Box and Muller 1958). */
static void fill_sequences(double x[WIDTH][STEPS * WIDTH], uint64_t seed)
{
    for (uint32_t i = 0; i < STEPS * WIDTH; i++) {
        const uint32_t counter[4] = {i, 0, 1, 0};
        uint32_t r[4];
        weft_philox(counter, seed, r);
        const double u = ((double)r[0] + 0.5) * 0x1p-32, v = (double)r[1] * 0x1p-32;
        x[0][i] = 0.5 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
    }
    for (int copy = 1; copy < WIDTH; copy++) memcpy(x[copy], x[0], sizeof x[0]);
}

/* norms[t - 1] of one layer; false after an error, which is printed. */
static bool measure(int layer, uint64_t seed, double norms[STEPS])
{
    static double sequences[WIDTH][STEPS * WIDTH];
    weft_error error = WEFT_NO_ERROR;
    weft_tensor bias;
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(WIDTH, STEPS, WIDTH));
    weft_value value = build(g, x, layers[layer].kind);
    weft_plan *plan = weft_plan_new(g, &value, 1, NULL, &error);
    weft_session *s = NULL;
    if (plan && weft_params_init(params, g, seed, &error) == WEFT_OK) {
        if (weft_params_find(params, "layer.bias", &bias)) /* of an LSTM; forget gates come first */
            for (int i = 0; i < WIDTH; i++) ((double *)bias.data)[i] = layers[layer].forget_bias;
        s = weft_session_new(plan, params, NULL, &error);
    }
    fill_sequences(sequences, seed);
    const bool good = s &&
                      weft_session_feed(s, x, sequences, sizeof sequences, &error) == WEFT_OK &&
                      weft_session_run(s, &error) == WEFT_OK &&
                      weft_session_fetch(s, value, norms, STEPS * sizeof *norms, &error) == WEFT_OK;
    if (!good) fprintf(stderr, "%s: %s\n", error.where, error.message);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
    return good;
}

static void print_row(double norms[LAYERS][STEPS], int back)
{
    const int last = STEPS - 1;
    printf("%6d %6d", STEPS - back, back);
    for (int i = 0; i < LAYERS; i++)
        printf(" %12.2e %7.3f", norms[i][last - back],
               back ? pow(norms[i][last - back] / norms[i][last], 1.0 / back) : 1);
    printf(" %10.2e\n", pow(0.45, back));
}

int main(int argc, char **argv)
{
    static double norms[LAYERS][STEPS];
    static const int backs[] = {0, 1, 2, 5, 10, 20, 50, 100};
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const bool all = argc > 2 && !strcmp(argv[2], "--all");
    const int rows = all ? STEPS : (int)(sizeof backs / sizeof *backs);
    for (int i = 0; i < LAYERS; i++)
        if (!measure(i, seed, norms[i])) return 1;
    printf("     t    T-t          RNN  a step         LSTM  a step   LSTM, open  a step      "
           "model\n");
    for (int i = 0; i < rows; i++) print_row(norms, all ? i : backs[i]);
    const double *rnn = norms[0], *open = norms[2];
    return rnn[0] < 1e-5 * rnn[STEPS - 1] && open[0] > 1e-3 * open[STEPS - 1] ? 0 : 1;
}
