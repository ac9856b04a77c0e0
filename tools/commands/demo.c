/* weft demo: small demonstrations, computed when they are run.
 *
 * vanishing: how much the last state h_T of a recurrent layer still depends on an early input x_t,
 * by the Frobenius norm of the Jacobian d h_T / d x_t. It is exact: the batch holds the same
 * sequence `hidden` times, and sequence i gets the i-th unit vector as cotangent of its h_T, so
 * one backward pass computes row i of every Jacobian. */
#include "picture.h"
#include "tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    const char *name, *output;
    int64_t len, hidden;
    uint64_t seed;
    double forget_bias;
    bool json;
} arguments;

/* name, one line about it */
#define DEMOS(X) X(vanishing, "gradients that vanish over time, in an RNN and in an LSTM")

/* The usual illustration of a vanishing gradient: tanh' = 0.5 times weights of 0.9. */
#define MODEL_FACTOR 0.45

/* ---- The norms of one layer ---- */

typedef struct subject {
    const char *key, *name;
    weft_recurrent_kind kind;
    bool open; /* forget gates have the bias of the command line instead of 0 */
} subject;

static const subject subjects[] = {
    {"rnn", "RNN", WEFT_RNN, false},
    {"lstm", "LSTM", WEFT_LSTM, false},
    {"lstm_open", "LSTM, open", WEFT_LSTM, true},
};
#define N_SUBJECTS (sizeof subjects / sizeof *subjects)

/* sqrt(sum of squares) over batch and features, scaled by the largest so that nothing underflows.
 */
static weft_value norms_by_step(weft_graph *g, weft_value x)
{
    const weft_axes axes = WEFT_AXES(0, 2);
    weft_value largest = weft_max(g, weft_abs(g, x), axes, true);
    largest = weft_maximum(g, largest, weft_scalar(g, WEFT_F64, 1e-300));
    weft_value sum = weft_sum(g, weft_square(g, weft_div(g, x, largest)), axes, true);
    return weft_reshape(g, weft_mul(g, weft_sqrt(g, sum), largest), WEFT_SHAPE(-1));
}

/* Builds |d h_T / d x_t| for t = 1 .. T, [len], from the input x. */
static weft_value build_norms(weft_graph *g, const arguments *a, weft_recurrent_kind kind)
{
    int64_t hidden = a->hidden;
    weft_recurrent_state last;
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(hidden, a->len, hidden)), gradient;
    weft_nn_recurrent(g, "layer", kind, x, hidden, NULL, &last);
    weft_value index = weft_arange(g, WEFT_I32, hidden, 0, 1);
    weft_value unit_vectors = weft_one_hot(g, index, hidden, WEFT_F64);
    weft_grad_of(g, &last.h, &unit_vectors, 1, &x, 1, &gradient);
    return norms_by_step(g, gradient);
}

static void open_forget_gates(weft_params *params, const arguments *a)
{
    weft_tensor bias;
    if (!weft_params_find(params, "layer.bias", &bias)) return;
    for (int64_t i = 0; i < a->hidden; i++) ((double *)bias.data)[i] = a->forget_bias;
}

/* Every sequence of the batch is the same: normal numbers of deviation 0.5. */
static void fill_sequences(double *x, const arguments *a)
{
    int64_t n = a->len * a->hidden;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 1, 0};
        uint32_t r[4];
        weft_philox(counter, a->seed, r);
        double u = ((double)r[0] + 0.5) * 0x1p-32, v = (double)r[1] * 0x1p-32;
        x[i] = 0.5 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
    }
    for (int64_t copy = 1; copy < a->hidden; copy++) memcpy(x + copy * n, x, (size_t)n * sizeof *x);
}

static weft_status run_norms(weft_graph *g, weft_value norms, const arguments *a, const double *x,
                             bool open, double *out, weft_error *error)
{
    if (weft_graph_status(g) != WEFT_OK) return tool_take_error(weft_graph_error(g), error);
    weft_params *params = weft_params_new();
    weft_plan *plan = weft_plan_new(g, &norms, 1, NULL, error);
    weft_status status = plan ? weft_params_init(params, g, a->seed, error) : error->status;
    if (status == WEFT_OK && open) open_forget_gates(params, a);
    weft_session *s = status == WEFT_OK ? weft_session_new(plan, params, NULL, error) : NULL;
    status = s ? WEFT_OK : error->status;
    size_t bytes = (size_t)(a->hidden * a->len * a->hidden) * sizeof *x;
    if (s) status = weft_session_feed(s, weft_graph_find(g, "x"), x, bytes, error);
    if (s && status == WEFT_OK) status = weft_session_run(s, error);
    if (s && status == WEFT_OK)
        status = weft_session_fetch(s, norms, out, (size_t)a->len * sizeof *out, error);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    return status;
}

/* norms[subject * len + t - 1] */
static weft_status compute(const arguments *a, double *norms, weft_error *error)
{
    weft_status status = WEFT_OK;
    double *x = malloc((size_t)(a->hidden * a->len * a->hidden) * sizeof *x);
    if (!x) return weft_error_set(error, WEFT_NO_MEMORY, "demo", "no memory for the sequences");
    fill_sequences(x, a);
    for (size_t i = 0; i < N_SUBJECTS && status == WEFT_OK; i++) {
        weft_graph *g = weft_graph_new();
        weft_value value = build_norms(g, a, subjects[i].kind);
        status = run_norms(g, value, a, x, subjects[i].open, norms + (int64_t)i * a->len, error);
        weft_graph_free(g);
    }
    free(x);
    return status;
}

/* ---- Printing and drawing ---- */

/* The mean factor by which a step back shrinks the norm, over the steps since T. */
static double per_step(const double *norms, int64_t len, int64_t back)
{
    return back ? pow(norms[len - 1 - back] / norms[len - 1], 1 / (double)back) : 1;
}

static void print_table(const arguments *a, const double *norms)
{
    printf(
        "|d h_T / d x_t| (Frobenius norm of the Jacobian, by autograd, f64), T = %lld, width "
        "%lld.\nInitial weights: RNN N(0, 1/in), N(0, 1/hidden); LSTM N(0, 1/(in + "
        "hidden)).\nLSTM: forget gates with bias 0, half open. LSTM, open: with bias %g, like "
        "gates that\nhave learnt to remember. A step: the mean factor per step since T. The last "
        "column is the\nrule of thumb %.2f^(T-t).\n\n",
        (long long)a->len, (long long)a->hidden, a->forget_bias, MODEL_FACTOR);
    printf("%6s %6s", "t", "T-t");
    for (size_t i = 0; i < N_SUBJECTS; i++) printf(" %12s %7s", subjects[i].name, "a step");
    printf(" %10s\n", "model");
    /* 0, 1, 2, 5, 10, 20, 50, ... steps back, and all of them. */
    const int64_t ladder[] = {1, 2, 5};
    for (int64_t back = 0, rung = 0, ten = 1; back < a->len;) {
        printf("%6lld %6lld", (long long)(a->len - back), (long long)back);
        for (size_t i = 0; i < N_SUBJECTS; i++) {
            const double *own = norms + (int64_t)i * a->len;
            printf(" %12.2e %7.3f", own[a->len - 1 - back], per_step(own, a->len, back));
        }
        printf(" %10.2e\n", pow(MODEL_FACTOR, (double)back));
        if (back == a->len - 1) break;
        back = ladder[rung] * ten;
        if (++rung == 3) {
            rung = 0;
            ten *= 10;
        }
        if (back > a->len - 1) back = a->len - 1;
    }
}

static int print_json(const arguments *a, const double *norms)
{
    cJSON *json = cJSON_CreateObject(), *rows = cJSON_AddArrayToObject(json, "rows");
    cJSON_AddStringToObject(json, "demo", a->name);
    cJSON_AddNumberToObject(json, "len", (double)a->len);
    cJSON_AddNumberToObject(json, "hidden", (double)a->hidden);
    cJSON_AddNumberToObject(json, "seed", (double)a->seed);
    cJSON_AddNumberToObject(json, "forget_bias", a->forget_bias);
    for (int64_t t = 0; t < a->len; t++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "t", (double)(t + 1));
        cJSON_AddNumberToObject(row, "steps_back", (double)(a->len - 1 - t));
        for (size_t i = 0; i < N_SUBJECTS; i++)
            cJSON_AddNumberToObject(row, subjects[i].key, norms[(int64_t)i * a->len + t]);
        cJSON_AddNumberToObject(row, "model", pow(MODEL_FACTOR, (double)(a->len - 1 - t)));
        cJSON_AddItemToArray(rows, row);
    }
    return tool_print_json(json);
}

static int draw(const arguments *a, const double *norms)
{
    char title[96];
    double *t = malloc((size_t)a->len * sizeof *t);
    plot_series series[N_SUBJECTS];
    if (!t) return tool_fail_text("demo", "out of memory");
    for (int64_t i = 0; i < a->len; i++) t[i] = (double)(i + 1);
    for (size_t i = 0; i < N_SUBJECTS; i++)
        series[i] = (plot_series){subjects[i].name, t, norms + (int64_t)i * a->len, (size_t)a->len};
    snprintf(title, sizeof title, "The gradient of the last state, T = %lld, width %lld",
             (long long)a->len, (long long)a->hidden);
    plot p = {.title = title,
              .x_label = "t",
              .y_label = "|d h_T / d x_t|",
              .log_y = true,
              .series = series,
              .n_series = N_SUBJECTS};
    int status = plot_write(&p, a->output);
    free(t);
    return status;
}

static int demo_vanishing(const arguments *a)
{
    weft_error error = {0};
    double *norms = calloc(N_SUBJECTS * (size_t)a->len, sizeof *norms);
    if (!norms) return tool_fail_text("demo", "out of memory");
    int status = EXIT_GOOD;
    if (compute(a, norms, &error) != WEFT_OK) {
        status = tool_fail(&error);
    } else {
        if (a->json)
            status = print_json(a, norms);
        else
            print_table(a, norms);
        if (a->output && status == EXIT_GOOD) status = draw(a, norms);
    }
    free(norms);
    return status;
}

/* ---- The command ---- */

static const struct {
    const char *name;
    int (*run)(const arguments *a);
} demos[] = {
#define ROW(name, doc) {#name, demo_##name},
    DEMOS(ROW)
#undef ROW
};
#define N_DEMOS (sizeof demos / sizeof *demos)

static void check(void *into, struct argp_state *state)
{
    const arguments *a = into;
    if (a->output) plot_check_name(a->output, "-o", state);
    if (a->output && !strcmp(a->output, "-"))
        argp_error(state, "-o needs a file: standard output has the table");
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {TOOL_ONE(arguments, name, "DEMONSTRATION"), .required = true},
    {"len", "N", FIELD(len), "steps T of the sequence", 1, 5000},
    {"hidden", "N", FIELD(hidden), "width of inputs and states", 1, 256},
    {"seed", "N", FIELD(seed), "seed of weights and inputs", 0, INT32_MAX},
    {"forget-bias", "X", FIELD(forget_bias), "bias of the open forget gates", -1e6, 1e6},
    {"output", "FILE", FIELD(output), "also draw it with gnuplot: FILE.svg or FILE.png",
     .letter = 'o'},
    {"json", NULL, FIELD(json), "print JSON, all steps"},
    {0}};

#define LINE(name, doc) "  " #name "  " doc "\n"
static const tool_command command = {.options = options,
                                     .usage = "DEMONSTRATION",
                                     .doc = "Runs a small demonstration and prints its numbers.",
                                     .notes = "Demonstrations:\n" DEMOS(LINE),
                                     .check = check};
#undef LINE

int cmd_demo(int argc, char **argv)
{
    arguments a = {.len = 101, .hidden = 32, .seed = 1, .forget_bias = 5};
    tool_parse(&command, argc, argv, &a);
    for (size_t i = 0; i < N_DEMOS; i++)
        if (!strcmp(demos[i].name, a.name)) return demos[i].run(&a);
    tool_print_line(stderr, "weft demo: no demonstration \"%s\" (see `weft demo --help`)", a.name);
    return EXIT_USAGE;
}
